"""Laws of checking a ledger against releases: a ledger that forgot what it paid for is found out."""

import dataclasses
import json
import shutil
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import residua as rs
from residua import _files
from residua.cli.app import app
from residua.ledger import ledger as ledgers
from residua.ledger import sqlite

SCHEMA = rs.Schema(sex=rs.Categorical("F", "M"))
PEOPLE = {"sex": ["F", "M", "F"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Durability is another matter: do not wait for the disk."""
    monkeypatch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))


@pytest.fixture(scope="module")
def plan():
    return rs.plan(rs.table(SCHEMA, ["sex"]), rs.zcdp("0.1"))


@pytest.fixture
def ledger(tmp_path):
    return rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(1), dataset="people")


def released(plan, ledger, note=""):
    return rs.measure(plan, PEOPLE, ledger=ledger, note=note)


def states(ledger, *releases):
    return [finding.state for finding in ledger.check(releases)]


def forget(ledger, last):
    """Delete the last events, as somebody with a database browser would."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM event WHERE number > (SELECT max(number) FROM event) - ?", [last])


# --- what is well ------------------------------------------------------------------------------------------


def test_a_ledger_holds_what_it_paid_for(plan, ledger):
    first = released(plan, ledger)
    ledger.complete(ledger.entries()[0], first.hash)
    second, third = released(plan, ledger), released(plan, ledger)
    assert states(ledger, third, first, second, first) == ["paid"] * 4
    assert [finding.entry.id for finding in ledger.check([first, second])] == [2, 4]


def test_a_release_carries_the_head_of_the_chain_that_its_debit_made(plan, ledger):
    release = released(plan, ledger)
    now = ledger._book()
    assert release.audit["ledger"]["hash"] == now.hash
    assert release.audit["ledger"]["entry"] == str(now.length)


def test_two_ledgers_that_spend_alike_in_one_second_have_different_heads(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "_now", lambda: "2024-02-29T12:00:00+00:00")
    heads = []
    for name in ("one.db", "two.db"):
        made = rs.Ledger.create(tmp_path / name, rs.zcdp(1), dataset="people")
        heads.append(released(plan, made).audit["ledger"]["hash"])
    assert heads[0] != heads[1]


# --- rollbacks and forks -----------------------------------------------------------------------------------


def test_an_entry_that_was_deleted_is_missed(plan, ledger):
    first, second = released(plan, ledger), released(plan, ledger)
    forget(ledger, 1)
    rs.Ledger.open(ledger.path)  # nothing is wrong with the file itself
    assert states(ledger, first, second) == ["paid", "rolled back"]
    [_, finding] = ledger.check([first, second])
    assert "event 3, and the ledger ends with event 2" in finding.words


def test_an_old_copy_that_was_restored_is_found(plan, ledger, tmp_path):
    first = released(plan, ledger)
    shutil.copy(ledger.path, tmp_path / "copy.db")
    second = released(plan, ledger)
    shutil.copy(tmp_path / "copy.db", ledger.path)
    assert states(ledger, first, second) == ["paid", "rolled back"]


def test_an_old_copy_that_went_on_is_a_fork(plan, ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "_now", lambda: "2024-02-29T12:00:00+00:00")
    first = released(plan, ledger)
    shutil.copy(ledger.path, tmp_path / "copy.db")
    second = released(plan, ledger)
    shutil.copy(tmp_path / "copy.db", ledger.path)
    third, fourth = released(plan, ledger), released(plan, ledger)
    assert states(ledger, first, second, third, fourth) == ["paid", "forked", "paid", "paid"]


def test_a_copy_of_the_ledger_that_was_used_elsewhere_is_a_fork_of_both(plan, ledger, tmp_path):
    shutil.copy(ledger.path, tmp_path / "copy.db")
    copy = rs.Ledger.open(tmp_path / "copy.db")
    here, there = released(plan, ledger), released(plan, copy)
    assert states(ledger, here, there) == ["paid", "forked"]
    assert states(copy, here, there) == ["forked", "paid"]


def test_a_new_ledger_of_the_same_name_did_not_pay(plan, ledger, tmp_path):
    release = released(plan, ledger)
    again = rs.Ledger.create(tmp_path / "again.db", rs.zcdp(1), dataset="people")
    assert states(again, release) == ["rolled back"]
    released(plan, again)
    assert states(again, release) == ["forked"]


def test_a_note_in_the_place_of_a_debit_is_a_fork(plan, ledger):
    first, second = released(plan, ledger), released(plan, ledger)
    forget(ledger, 1)
    ledger.complete(ledger.entries()[0], first.hash)
    assert states(ledger, first, second) == ["paid", "forked"]


# --- one debit, two releases -------------------------------------------------------------------------------


def rewritten(release, path, **changes):
    """The release with another audit record and a hash that fits, as a careful forger would leave it."""
    manifest, arrays = release._content()
    manifest = json.loads(json.dumps(manifest))
    manifest["audit"] |= changes
    _files.write(path, "release", manifest, arrays)
    return rs.Release.load(path)


def test_one_entry_pays_for_one_release(plan, ledger, tmp_path):
    first, second = released(plan, ledger), released(plan, ledger)
    stolen = rewritten(second, tmp_path / "stolen", ledger=dict(first.audit["ledger"]))
    assert states(ledger, first, stolen) == ["disputed", "disputed"]
    ledger.complete(ledger.entries()[0], first.hash)
    assert states(ledger, stolen) == ["disputed"]
    assert "noted" in ledger.check([stolen])[0].words


@pytest.mark.parametrize("change", [{"amount": "1/1000"}, {"plan_hash": "0" * 64}])
def test_a_release_that_says_it_was_cheaper_or_of_another_plan_is_disputed(plan, ledger, tmp_path, change):
    release = released(plan, ledger)
    if "amount" in change:
        change = {"ledger": {**release.audit["ledger"], **change}}
    assert states(ledger, rewritten(release, tmp_path / "odd", **change)) == ["disputed"]


# --- what cannot be checked --------------------------------------------------------------------------------


def test_what_has_no_head_of_this_ledger_is_unchecked(plan, ledger, tmp_path):
    simulated = rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=1))
    other = rs.Ledger.create(tmp_path / "other.db", rs.zcdp(1), dataset="others")
    release = released(plan, ledger)
    old = {key: value for key, value in release.audit["ledger"].items() if key != "hash"}
    bare = rewritten(release, tmp_path / "old", ledger=old)
    found = ledger.check([simulated, released(plan, other), bare])
    assert [finding.state for finding in found] == ["unchecked"] * 3
    assert [finding.entry for finding in found] == [None] * 3
    for finding, words in zip(found, ("no ledger paid", "'others'", "no head of a ledger"), strict=True):
        assert words in finding.words


@pytest.mark.parametrize("parts", [[], "others", {"a": 1}, None])
def test_a_release_that_was_combined_of_nothing_is_one_itself(plan, ledger, parts):
    release = released(plan, ledger)
    told = SimpleNamespace(hash=release.hash, audit=release.audit | {"combined": parts})
    assert ledger.check([told])[0].state == "paid"


@pytest.mark.parametrize(("digits", "state"), [(18, "rolled back"), (19, "unchecked")])
def test_the_number_of_an_entry_has_at_most_so_many_digits(plan, ledger, tmp_path, digits, state):
    release = released(plan, ledger)
    paid = release.audit["ledger"] | {"entry": "9" * digits}
    assert ledger.check([rewritten(release, tmp_path / "other", ledger=paid)])[0].state == state


@pytest.mark.parametrize("record", ["x", 7, [], {"entry": "two"}, {"entry": None, "hash": 3}])
def test_audit_records_that_say_something_else_are_refused_in_files_and_unchecked(
    plan, ledger, tmp_path, record
):
    release = released(plan, ledger)
    own = dict(release.audit["ledger"])
    record = {**own, **record} if isinstance(record, dict) else record
    odd = dataclasses.replace(release, audit={**release.audit, "ledger": record})
    assert states(ledger, odd) == ["unchecked"]
    with pytest.raises(rs.FileFormatError, match="odd"):
        rewritten(release, tmp_path / "odd", ledger=record)


def test_a_combination_is_as_good_as_its_worst_part(plan, ledger, tmp_path):
    one, two = released(plan, ledger), released(plan, ledger)
    both = rs.combine(one, two)
    assert states(ledger, both, one, two) == ["paid"] * 3
    both.save(tmp_path / "both.release")
    again = rs.Release.load(tmp_path / "both.release")
    three = rs.combine(again, released(plan, ledger))
    assert states(ledger, three) == ["paid"]
    forget(ledger, 1)
    assert states(ledger, three, both) == ["rolled back", "paid"]


def test_files_of_format_1_are_unchecked(ledger):
    from pathlib import Path

    fixtures = Path(__file__).parents[1] / "fixtures"
    old = [rs.Release.load(path) for path in sorted(fixtures.glob("*.release"))[:3]]
    assert states(ledger, *old) == ["unchecked"] * 3


# --- the command line --------------------------------------------------------------------------------------


@pytest.fixture
def folder(plan, ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        released(plan, ledger, note=name).save(f"{name}.release")
    rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=1)).save("rehearsal.release")
    return tmp_path


def check(*arguments):
    return CliRunner().invoke(app, ["budget", "check", "budget.db", *map(str, arguments)])


def test_the_command_line_finds_nothing_where_nothing_is_wrong(folder):
    run = check(*sorted(folder.glob("*.release")))
    assert run.exit_code == 0
    assert "2 releases paid, 1 unchecked" in run.stdout
    assert "first.release" in run.stdout


def test_the_command_line_fails_where_entries_are_missing(folder, ledger):
    forget(ledger, 1)
    run = check("first.release", "second.release")
    assert run.exit_code == 1
    assert "second.release" in run.stdout
    assert "rolled back" in run.stdout
    assert run.stderr.startswith("error: ")
    assert "1 release" in run.stderr


def test_the_command_line_tells_programs_too(folder, ledger):
    forget(ledger, 1)
    run = check("--json", *sorted(folder.glob("*.release")))
    document = json.loads(run.stdout)
    assert run.exit_code == 1
    assert [each["state"] for each in document["releases"]] == ["paid", "unchecked", "rolled back"]
    assert document["dataset"] == "people"


def test_files_that_are_no_releases_are_named_and_the_others_checked(folder):
    (folder / "broken.release").write_bytes(b"PK")
    run = check("broken.release", "first.release", "absent.release")
    assert run.exit_code == 1
    for words in ("broken.release", "unreadable", "first.release", "paid", "there is no file absent.release"):
        assert words in run.stdout


def test_entries_without_a_release_here_are_told(folder):
    assert "1 of 2 entries has no release here" in check("first.release").stdout
