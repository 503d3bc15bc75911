"""Laws of the ledger: what adds up, what is refused, and that a refusal leaves the file as it was."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from pathlib import Path

import pytest

from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.ledger import Ledger, sqlite
from residua.ledger import ledger as ledgers
from residua.ledger.book import Book, chained
from residua.privacy import Privacy, Unit, approx_dp, gdp, privacy_cost, pure_dp, zcdp

CRASHES = Path(__file__).parents[1] / "stress" / "test_ledger_crashes.py"
BUDGETS = (privacy_cost("1/3"), zcdp("0.1"), gdp("1/2"), approx_dp(1, "1e-6"), pure_dp("2/7"))


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Where a test is not about durability, do not wait for the disk."""
    if request.cls is not TestDurability:
        monkeypatch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path):
    """A ledger of rho 1 of which 0.3 is spent."""
    made = Ledger.create(path, zcdp(1), dataset="people")
    made.spend(Privacy.from_rho("0.3"), plan_hash="plan-1", note="first")
    return made


def sql(path, *statements):
    """Change a file behind the ledger's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))


def forge(path, text):
    """Append an event with the right hash, as a careful forger would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        number, last = connection.execute("SELECT max(number), hash FROM event").fetchone()
        connection.execute("INSERT INTO event VALUES (?, ?, ?)", (number + 1, text, chained(last, text)))


def spent_event(**changes):
    event = {
        "kind": "spent",
        "time": "2024-01-01T00:00:00+00:00",
        "plan_hash": "p",
        "privacy": Privacy.from_rho("0.1").to_manifest(),
        "note": "",
    }
    return json.dumps(event | changes)


class TestCreation:
    @pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.definition)
    def test_a_new_ledger_knows_what_it_was_given_and_has_spent_nothing(self, path, budget):
        unit = Unit(max_records=3, neighbours="replace_one")
        made = Ledger.create(path, budget, dataset="people-2024", unit=unit)
        for ledger in (made, Ledger.open(path), Ledger(path), Ledger.open(str(path))):
            assert (ledger.budget, ledger.dataset, ledger.unit) == (budget, "people-2024", unit)
            assert (ledger.spent, ledger.remaining, ledger.entries()) == (0, ledger.total, ())

    def test_the_unit_is_one_record_unless_given(self, path):
        assert Ledger.create(path, zcdp(1), dataset="people").unit == Unit()

    @pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
    def test_a_file_in_the_way_is_never_replaced(self, path, suffix):
        occupied = Path(f"{path}{suffix}")
        occupied.write_text("mine")
        with pytest.raises(LedgerError, match="never replaced"):
            Ledger.create(path, zcdp(1), dataset="people")
        assert occupied.read_text() == "mine"

    def test_a_link_to_nowhere_is_in_the_way_too(self, path):
        path.symlink_to(path.with_name("nowhere"))
        with pytest.raises(LedgerError, match="never replaced"):
            Ledger.create(path, zcdp(1), dataset="people")

    def test_a_ledger_that_another_process_made_meanwhile_is_not_replaced(self, path, monkeypatch):
        link = os.link

        def late(source, target):
            Path(target).write_text("theirs")
            link(source, target)

        monkeypatch.setattr(os, "link", late)
        with pytest.raises(LedgerError, match="File exists"):
            Ledger.create(path, zcdp(1), dataset="people")
        assert [each.read_text() for each in path.parent.iterdir()] == ["theirs"]

    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(LedgerError, match=r"nowhere.budget\.db cannot be opened; check that its folder"):
            Ledger.create(tmp_path / "nowhere" / "budget.db", zcdp(1), dataset="people")

    @pytest.mark.parametrize("budget", [1, 0.1, "zcdp(1)", None])
    def test_a_total_that_is_no_budget_is_refused(self, path, budget):
        with pytest.raises(BudgetError, match="such as zcdp"):
            Ledger.create(path, budget, dataset="people")

    @pytest.mark.parametrize("dataset", ["", None, 7])
    def test_a_ledger_names_its_dataset(self, path, dataset):
        with pytest.raises(LedgerError, match="names its dataset"):
            Ledger.create(path, zcdp(1), dataset=dataset)

    def test_a_creation_that_fails_leaves_nothing_behind(self, path, monkeypatch):
        monkeypatch.setattr(sqlite, "_SETTINGS", ("PRAGMA max_page_count=1",))
        with pytest.raises(LedgerError, match="disk is full"):
            Ledger.create(path, zcdp(1), dataset="people")
        assert not list(path.parent.iterdir())

    def test_a_name_that_cannot_be_given_is_told(self, path, monkeypatch):
        def link(*_):
            raise PermissionError("no links here")

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(LedgerError, match=r"budget\.db cannot be created: no links here"):
            Ledger.create(path, zcdp(1), dataset="people")
        assert not list(path.parent.iterdir())

    def test_the_new_name_is_put_on_disk(self, path, monkeypatch):
        synced = []
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle)), fsync(handle)))
        Ledger.create(path, zcdp(1), dataset="people")
        assert [each.st_ino for each in synced] == [path.parent.stat().st_ino]

    def test_where_folders_cannot_be_opened_the_system_syncs_them(self, path, monkeypatch):
        monkeypatch.delattr(os, "O_DIRECTORY")
        assert Ledger.create(path, zcdp(1), dataset="people").spent == 0

    @pytest.mark.parametrize("name", ["ä ledger.db", "what?mode=ro#x.db", "100%25.db", ":memory:"])
    def test_any_file_name_is_only_a_name(self, tmp_path, name):
        Ledger.create(tmp_path / name, zcdp(1), dataset="people")
        assert [each.name for each in tmp_path.iterdir()] == [name]

    def test_a_ledger_stays_where_it_is_when_the_working_folder_changes(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ledger = Ledger.create("budget.db", zcdp(1), dataset="people")
        monkeypatch.chdir(tmp_path.parent)
        assert ledger.spent == 0
        assert repr(ledger) == f"Ledger({str(tmp_path / 'budget.db')!r})"


class TestOpening:
    def test_a_missing_ledger_is_never_created_silently(self, path):
        with pytest.raises(LedgerError, match=r"there is no ledger .* make it with Ledger\.create"):
            Ledger.open(path)
        assert not path.exists()

    def test_a_folder_is_no_ledger(self, tmp_path):
        with pytest.raises(LedgerError, match="there is no ledger"):
            Ledger.open(tmp_path)

    @pytest.mark.parametrize("content", [b"rho = 1\n" * 200, bytes(4096), b"SQLite format 3\0" + bytes(84)])
    def test_a_file_that_is_no_database_is_refused(self, path, content):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="is not a ledger"):
            Ledger.open(path)
        assert path.read_bytes() == content

    def test_an_empty_file_is_refused(self, path):
        path.touch()
        with pytest.raises(LedgerError, match="is empty or another program's database"):
            Ledger.open(path)

    def test_another_programs_database_is_refused(self, path):
        sql(path, "CREATE TABLE event (number, text, hash)", "PRAGMA user_version=1")
        with pytest.raises(LedgerError, match="another program's database"):
            Ledger.open(path)

    @pytest.mark.parametrize("version", [0, 2, 1000])
    def test_another_version_is_refused_and_named(self, ledger, version):
        sql(ledger.path, f"PRAGMA user_version={version}")
        with pytest.raises(LedgerError, match=f"format version {version}; this Residua reads version 1"):
            Ledger.open(ledger.path)

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE other (x)",
            "CREATE INDEX fast ON event (hash)",
            "CREATE TRIGGER cheap AFTER INSERT ON event BEGIN DELETE FROM event WHERE number > 1; END",
            "ALTER TABLE event ADD COLUMN more",
            "DROP TABLE event",
        ],
    )
    def test_a_ledger_with_other_tables_is_refused(self, ledger, statement):
        sql(ledger.path, statement)
        with pytest.raises(LedgerError, match="its tables are not those of a ledger"):
            Ledger.open(ledger.path)

    def test_a_ledger_with_a_write_ahead_log_is_refused(self, ledger):
        sql(ledger.path, "PRAGMA journal_mode=WAL")
        with pytest.raises(LedgerError, match=r"journal mode 'wal'.*journal_mode=DELETE"):
            Ledger.open(ledger.path)
        sql(ledger.path, "PRAGMA journal_mode=DELETE")
        assert Ledger.open(ledger.path).spent == Fraction(3, 10)

    @pytest.mark.parametrize("kept", [0, 1, 100, 512, 4096, 5000, 8191])
    def test_a_truncated_ledger_is_refused(self, ledger, kept):
        with open(ledger.path, "r+b") as stream:
            stream.truncate(kept)
        with pytest.raises(LedgerError):
            Ledger.open(ledger.path)

    def test_a_damaged_page_is_refused(self, ledger):
        content = bytearray(ledger.path.read_bytes())
        content[4096 + 3 : 4096 + 5] = b"\xff\xff"  # the number of rows in the page of events
        ledger.path.write_bytes(content)
        with pytest.raises(LedgerError, match="is damaged; restore no copy older than the last release"):
            Ledger.open(ledger.path)

    def test_damage_beside_the_events_is_refused(self, ledger):
        content = bytearray(ledger.path.read_bytes())
        content[36:40] = b"\0\0\0\5"  # the number of pages that are free
        ledger.path.write_bytes(content)
        with pytest.raises(LedgerError, match=r"(?s)is damaged; restore no copy older .*freelist"):
            Ledger.open(ledger.path)

    def test_text_that_is_no_text_is_refused(self, ledger):
        sql(ledger.path, "UPDATE event SET text = CAST(x'ff' AS TEXT) WHERE number = 1")
        with pytest.raises(LedgerError, match="is damaged"):
            Ledger.open(ledger.path)

    def test_damage_that_sqlite_quotes_is_refused(self, ledger):
        sql(
            ledger.path,
            "PRAGMA writable_schema=ON",
            "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE nonsense'",
        )
        with pytest.raises(LedgerError, match="is damaged") as caught:
            Ledger.open(ledger.path)
        assert isinstance(caught.value.__cause__, UnicodeDecodeError)

    def test_a_ledger_that_vanishes_is_missed(self, ledger):
        ledger.path.unlink()
        with pytest.raises(LedgerError, match="there is no ledger"):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")


class TestReadAgain:
    def test_events_that_were_read_before_are_not_worked_through_again(self, ledger, monkeypatch):
        added, add = [], Book.add
        monkeypatch.setattr(Book, "add", lambda own, text: added.append(text) or add(own, text))
        assert ledger.spent == ledger.spent == Fraction(3, 10)
        assert len(added) == 1
        spend(ledger, "0.1")
        assert len(added) == 2
        assert ledger.spent == ledger.spent == Fraction(4, 10)
        assert len(added) == 3

    def test_a_ledger_in_the_place_of_another_is_read_as_it_is(self, ledger, path):
        older = path.read_bytes()
        spend(ledger, "0.1")
        assert ledger.spent == Fraction(4, 10)
        path.write_bytes(older)
        assert ledger.spent == Fraction(3, 10)
        path.unlink()
        Ledger.create(path, zcdp(2), dataset="others")
        assert (ledger.dataset, ledger.spent) == ("others", 0)

    def test_a_question_leaves_what_was_read_as_it_was(self, ledger):
        entry = ledger.entries()[0]
        with pytest.raises(BudgetExceeded):
            spend(ledger, "0.8")
        ledger.complete(entry, "release-1")
        assert entry.state == "spent"
        assert [each.state for each in ledger.entries()] == ["released"]


class TestEdits:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE event SET text = replace(text, '3/10', '1/10') WHERE number = 2",
            "UPDATE event SET text = replace(text, 'people', 'others') WHERE number = 1",
            "UPDATE event SET text = replace(text, '\"1\"', '\"2\"') WHERE number = 1",
            "UPDATE event SET hash = lower(hex(randomblob(32))) WHERE number = 2",
            "UPDATE event SET number = 9 WHERE number = 3",
            "UPDATE event SET text = 7 WHERE number = 2",
            "DELETE FROM event WHERE number = 1",
            "DELETE FROM event WHERE number = 2",
            "DELETE FROM event",
        ],
    )
    def test_an_edit_is_noticed(self, ledger, statement):
        ledger.spend(Privacy.from_rho("0.2"), plan_hash="plan-2")
        sql(ledger.path, statement)
        for use in (lambda: Ledger.open(ledger.path), lambda: spend(ledger, "0.1")):
            with pytest.raises(LedgerError, match="was edited"):
                use()

    @pytest.mark.parametrize(
        "event",
        [
            spent_event(privacy=Privacy.from_rho("0.8").to_manifest()),  # more than is left
            spent_event(privacy={"rho": "-1/10", "unit": Unit().to_manifest()}),
            spent_event(privacy={"rho": "1/0", "unit": Unit().to_manifest()}),
            spent_event(privacy={"rho": "1/10", "unit": 3}),
            spent_event(privacy=Privacy.from_rho("0.1", Unit(max_records=2)).to_manifest()),
            "{",
            "[" * 100_000,
        ],
    )
    def test_an_event_that_no_ledger_would_write_is_refused(self, ledger, event):
        forge(ledger.path, event)
        with pytest.raises(LedgerError, match="was edited: its event 3 cannot be"):
            Ledger.open(ledger.path)

    @pytest.mark.parametrize("event", ["[]", "1", "{}", spent_event(kind="refunded"), spent_event(note=None)])
    def test_an_event_of_no_known_kind_is_refused(self, ledger, event):
        forge(ledger.path, event)
        with pytest.raises(LedgerError, match="cannot hold the event"):
            Ledger.open(ledger.path)

    def test_a_first_event_that_makes_no_ledger_is_refused(self, ledger):
        sql(ledger.path, "DELETE FROM event", ("INSERT INTO event VALUES (1, '{}', ?)", [chained("", "{}")]))
        with pytest.raises(LedgerError, match="does not begin as a ledger does"):
            Ledger.open(ledger.path)

    def test_the_last_entry_can_vanish_unnoticed_but_its_hash_tells(self, ledger):
        entry = spend(ledger, "0.2")
        sql(ledger.path, "DELETE FROM event WHERE number = 3")
        assert entry.hash not in {each.hash for each in ledger.entries()}


def spend(ledger, rho):
    return ledger.spend(Privacy.from_rho(rho), plan_hash="plan")


class TestSpending:
    @pytest.mark.parametrize(
        ("budget", "currency", "total"),
        [
            (zcdp("0.1"), "rho", Fraction(1, 10)),
            (pure_dp("2/7"), "epsilon", Fraction(2, 7)),
            (privacy_cost("1/3"), "privacy cost", Fraction(1, 3)),
            (gdp("1/2"), "privacy cost", Fraction(1, 4)),
            (approx_dp(1, "1e-6"), "privacy cost", approx_dp(1, "1e-6").gaussian_cost()),
        ],
        ids=lambda value: getattr(value, "definition", None),
    )
    def test_each_definition_has_its_currency_and_an_exact_total(self, path, budget, currency, total):
        ledger = Ledger.create(path, budget, dataset="people")
        assert (ledger.currency, ledger.total, ledger.remaining) == (currency, total, total)

    @pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.definition)
    def test_the_total_can_be_spent_to_the_last_bit_and_the_budget_covers_it(self, path, budget):
        ledger = Ledger.create(path, budget, dataset="people")
        prove = {"rho": Privacy.from_rho, "epsilon": Privacy.from_pure_epsilon}.get(
            ledger.currency, Privacy.from_cost
        )
        hair = Fraction(1, 10**60)
        ledger.spend(prove(ledger.total / 3), plan_hash="a third")
        assert not ledger.can_spend(prove(ledger.remaining + hair))
        with pytest.raises(BudgetExceeded):
            ledger.spend(prove(ledger.remaining + hair), plan_hash="too much")
        assert ledger.can_spend(prove(ledger.remaining))
        ledger.spend(prove(ledger.remaining), plan_hash="the rest")
        assert ledger.remaining == 0
        assert budget.covers(prove(ledger.spent))
        assert not ledger.can_spend(prove(hair))
        assert ledger.can_spend(prove(0))

    @pytest.mark.parametrize(
        ("budget", "privacy", "amount"),
        [
            (zcdp(1), Privacy.from_cost("0.2"), Fraction(1, 10)),
            (zcdp(1), Privacy.from_rho("0.2"), Fraction(1, 5)),
            (zcdp(1), Privacy.from_pure_epsilon("0.2"), Fraction(1, 50)),
            (pure_dp(1), Privacy.from_pure_epsilon("0.2"), Fraction(1, 5)),
            (pure_dp(1), Privacy.from_cost("0.2"), None),
            (pure_dp(1), Privacy.from_rho("0.2"), None),
            (gdp(1), Privacy.from_cost("0.2"), Fraction(1, 5)),
            (gdp(1), Privacy.from_rho("0.2"), None),
            (privacy_cost(1), Privacy.from_cost("0.2"), Fraction(1, 5)),
            (privacy_cost(1), Privacy.from_pure_epsilon("0.2"), None),
            (approx_dp(1, "1e-6"), Privacy.from_cost("0.02"), Fraction(1, 50)),
            (approx_dp(1, "1e-6"), Privacy.from_rho("0.01"), None),
            (approx_dp(1, "1e-6"), Privacy.from_pure_epsilon("0.01"), None),
        ],
    )
    def test_noise_is_charged_what_it_proves_and_refused_what_it_does_not(
        self, path, budget, privacy, amount
    ):
        ledger = Ledger.create(path, budget, dataset="people")
        assert ledger.can_spend(privacy) == (amount is not None)
        if amount is None:
            with pytest.raises(BudgetError, match=r"does not prove; .* zcdp\(rho\)"):
                ledger.spend(privacy, plan_hash="p")
            assert ledger.entries() == ()
        else:
            assert ledger.spend(privacy, plan_hash="p").amount == amount == ledger.spent

    def test_a_release_for_another_unit_is_refused(self, ledger):
        other = Privacy.from_rho("0.1", Unit(max_records=2))
        assert not ledger.can_spend(other)
        with pytest.raises(BudgetError, match=r"with at most 2 records, but .* one record; plan with unit="):
            ledger.spend(other, plan_hash="p")
        assert len(ledger.entries()) == 1

    def test_spending_too_much_names_what_is_left_and_leaves_the_file_as_it_was(self, ledger):
        before = ledger.path.read_bytes()
        with pytest.raises(BudgetExceeded, match=r"asks for rho 0\.700001, .* only 0\.7 left"):
            spend(ledger, "0.7000000001")
        assert ledger.path.read_bytes() == before

    @pytest.mark.parametrize("amount", [Fraction(-1, 10), Fraction(10) ** 400])
    def test_nobody_gets_a_refund_by_a_statement_that_cannot_be(self, ledger, amount):
        before = ledger.path.read_bytes()
        with pytest.raises(ValueError, match="not the record of a privacy statement"):
            ledger.spend(Privacy("rho", amount), plan_hash="p")
        assert ledger.path.read_bytes() == before

    def test_what_is_not_text_is_refused_before_anything_is_spent(self, ledger):
        with pytest.raises(LedgerError, match="cannot hold the event"):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash=None)
        with pytest.raises(TypeError):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash=b"plan")
        assert len(ledger.entries()) == 1

    def test_an_entry_says_when_what_and_how_much(self, path, monkeypatch):
        monkeypatch.setattr(ledgers, "_now", lambda: "2024-02-29T12:00:00+00:00")
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        privacy = Privacy.from_cost("0.2")
        entry = ledger.spend(privacy, plan_hash="c0ffee", note="tables – 1")
        assert ledger.entries() == (entry,)
        assert (entry.id, entry.time, entry.plan_hash) == (2, "2024-02-29T12:00:00+00:00", "c0ffee")
        assert (entry.privacy, entry.amount, entry.note) == (privacy, Fraction(1, 10), "tables – 1")
        assert (entry.state, entry.release_hash, len(entry.hash)) == ("spent", None, 64)

    def test_times_are_in_utc_to_the_second(self):
        assert len(ledgers._now()) == len("2024-02-29T12:00:00+00:00")
        assert ledgers._now().endswith("+00:00")

    def test_a_ledger_cannot_be_pointed_elsewhere(self, ledger):
        with pytest.raises(FrozenInstanceError):
            ledger.path = Path("other.db")


class TestCompletion:
    def test_a_release_is_noted_once_and_changes_no_amount(self, ledger):
        [entry] = ledger.entries()
        done = ledger.complete(entry, "beef")
        assert done == replace(entry, release_hash="beef")
        assert done.state == "released"
        later = spend(ledger, "0.1")
        assert ledger.entries() == (done, later)
        assert ledger.spent == Fraction(4, 10)
        for again in (entry, done):
            with pytest.raises(LedgerError, match="no entry 2 of this hash that waits for its release"):
                ledger.complete(again, "f00d")

    def test_an_entry_of_another_ledger_is_not_noted(self, ledger, tmp_path):
        other = Ledger.create(tmp_path / "other.db", zcdp(2), dataset="others")
        [entry] = ledger.entries()
        with pytest.raises(LedgerError, match="no entry 2"):
            other.complete(entry, "beef")
        spend(other, "0.3")
        with pytest.raises(LedgerError, match="no entry 2"):
            other.complete(entry, "beef")


class TestWords:
    def test_spent_is_rounded_up_and_left_is_rounded_down(self, path):
        ledger = Ledger.create(path, privacy_cost(1), dataset="people", unit=Unit(max_records=3))
        for _ in range(2):
            ledger.spend(Privacy.from_cost("1/3", Unit(max_records=3)), plan_hash="p")
        assert ledger.describe() == (
            "Ledger of dataset 'people', "
            "protecting against adding or removing one person with at most 3 records.\n"
            "Total: privacy cost 1 (Gaussian DP with mu squared at most that).\n"
            "Spent: privacy cost 0.666667 by 2 releases. Left: privacy cost 0.333333."
        )

    def test_one_release_is_not_several(self, ledger):
        assert "Spent: rho 0.3 by 1 release. Left: rho 0.7." in ledger.describe()


class TestFailures:
    """Whatever stops a debit, nothing is spent and the ledger goes on afterwards."""

    @staticmethod
    def refused(ledger, match):
        before = ledger.path.read_bytes()
        with pytest.raises(LedgerError, match=match):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p", note="x" * 9000)
        assert ledger.path.read_bytes() == before

    def test_a_read_only_ledger_can_be_read_but_not_spent_from(self, ledger, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "_SETTINGS", (*sqlite._SETTINGS, "PRAGMA query_only=ON"))
            self.refused(ledger, "is read-only, so nothing was spent; make the file and its folder writable")
            assert Ledger.open(ledger.path).spent == Fraction(3, 10)
        assert spend(ledger, "0.1").id == 3

    def test_a_folder_that_takes_no_journal_stops_a_debit(self, ledger):
        journal = Path(f"{ledger.path}-journal")
        journal.symlink_to(ledger.path.parent / "nowhere" / "journal")
        self.refused(ledger, "cannot be opened; check that its folder exists and that both are writable")
        journal.unlink()
        assert spend(ledger, "0.1").id == 3

    def test_a_full_disk_stops_a_debit(self, ledger, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "_SETTINGS", (*sqlite._SETTINGS, "PRAGMA max_page_count=2"))
            self.refused(ledger, "cannot grow because the disk is full, so nothing was spent")
        assert spend(ledger, "0.1").id == 3

    def test_a_write_that_the_system_refuses_stops_a_debit(self, ledger):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size, hard))
        try:
            self.refused(ledger, "the ledger .*budget.db ")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert spend(ledger, "0.1").id == 3

    def test_a_process_that_keeps_the_lock_stops_a_debit_but_no_reading(self, ledger, monkeypatch):
        monkeypatch.setattr(sqlite, "_PATIENCE", 0.0)
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            # Not `refused`: closing a file that this process has locked would drop the rival's lock.
            with pytest.raises(LedgerError, match="is kept locked by another process; try again"):
                spend(ledger, "0.1")
            assert ledger.spent == Fraction(3, 10)
            rival.execute("ROLLBACK")
        assert spend(ledger, "0.1").id == 3

    def test_an_interruption_before_the_commit_spends_nothing(self, ledger, monkeypatch):
        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(sqlite._Events, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                spend(ledger, "0.1")
        assert len(ledger.entries()) == 1
        assert spend(ledger, "0.1").id == 3


class TestDurability:
    def test_a_commit_is_on_disk_and_its_journal_gone_before_it_returns(self, ledger):
        with sqlite._connection(ledger.path, "rw", ledger.path) as connection:
            assert sqlite._value(connection, "PRAGMA synchronous") == 3  # EXTRA
            assert sqlite._value(connection, "PRAGMA journal_mode") == "delete"
            assert sqlite._value(connection, "PRAGMA fullfsync") == 1

    def test_after_a_debit_the_one_file_is_all_there_is(self, ledger, tmp_path):
        assert [each.name for each in ledger.path.parent.iterdir()] == ["budget.db"]
        copy = tmp_path / "copy.db"
        copy.write_bytes(ledger.path.read_bytes())
        assert Ledger.open(copy).entries() == ledger.entries()

    def test_a_transaction_cut_off_half_way_through_its_writing_is_undone(self, ledger):
        """Deterministic: a small cache makes SQLite write to the file before the commit that never comes."""
        program = (
            "import os, signal, sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "c.execute('PRAGMA cache_size=1')\n"
            "c.execute('BEGIN IMMEDIATE')\n"
            "c.execute(\"UPDATE event SET text = replace(text, 'a', 'b')\")\n"
            "for n in range(3, 60): c.execute('INSERT INTO event VALUES (?, ?, ?)', (n, 'x' * 4000, 'y'))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        entries, before = ledger.entries(), ledger.path.read_bytes()
        run = subprocess.run([sys.executable, "-c", program, str(ledger.path)], check=False)
        assert run.returncode == -signal.SIGKILL
        assert ledger.path.read_bytes() != before
        assert Ledger.open(ledger.path).entries() == entries
        assert ledger.path.read_bytes() == before

    def test_thirty_kills_lose_no_debit(self, tmp_path):
        command = [sys.executable, str(CRASHES), "30", str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["points"] == 30


RACER = """
import sys
from residua.errors import BudgetExceeded
from residua.ledger import Ledger
from residua.privacy import Privacy

print("ready", flush=True)
for path in sys.stdin:
    try:
        Ledger.open(path.strip()).spend(Privacy.from_rho("0.2"), plan_hash=sys.argv[1])
        print("won", flush=True)
    except BudgetExceeded:
        print("lost", flush=True)
"""


class TestRaces:
    def test_of_two_processes_that_race_for_the_last_of_a_budget_exactly_one_wins(self, tmp_path):
        ledgers = [Ledger.create(tmp_path / f"{n}.db", zcdp("0.3"), dataset="people") for n in range(10)]
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for name in ("one", "two")
        ]
        try:
            assert [racer.stdout.readline() for racer in racers] == ["ready\n", "ready\n"]
            for ledger in ledgers:
                for racer in racers:
                    racer.stdin.write(f"{ledger.path}\n")
                assert sorted(racer.stdout.readline() for racer in racers) == ["lost\n", "won\n"]
                assert ledger.spent == Fraction(1, 5)
        finally:
            for racer in racers:
                racer.communicate()

    def test_threads_share_a_ledger_and_spend_each_part_once(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="people")

        def attempt(number):
            try:
                return ledger.spend(Privacy.from_rho("0.1"), plan_hash=str(number)).id
            except BudgetExceeded:
                return None

        with ThreadPoolExecutor(4) as pool:
            ids = list(pool.map(attempt, range(14)))
        assert sorted(id for id in ids if id) == list(range(2, 12))
        assert ids.count(None) == 4
        assert ledger.remaining == 0


def test_a_notebook_shows_the_ledger_with_its_last_entries_first(tmp_path):
    ledger = Ledger.create(tmp_path / "book.db", zcdp(1), dataset="people")
    page = ledger._repr_html_()
    assert "Ledger of people" in page
    assert "by 0 releases" in page
    assert "more" not in page
