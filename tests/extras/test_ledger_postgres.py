"""A ledger for teams: the laws of the ledger in a file, for one that a PostgreSQL server keeps.

The tests start a server of their own, on a socket in a folder of their own.
"""

import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.ledger import postgres
from residua.ledger.book import chained
from residua.privacy import Privacy, Unit

BINARIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
SCHEMA = rs.Schema.of_sizes([3, 2])
PEOPLE = np.array([[0, 1], [2, 0]])


class Postgres:
    """A server in a folder; it does not run as root, so root starts it as the user of Debian's package."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.binaries = folder, Path(BINARIES[-1])
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self.run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self.binaries / program, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self.user,
        )
        assert done.returncode == 0, done.stderr + done.stdout

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder}"
        self.run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self, mode: str) -> None:
        self.run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    @property
    def address(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """Change a ledger behind its back."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    if not BINARIES:
        reason = "platform: there is no PostgreSQL server here (Debian's package is called postgresql)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: the name of a socket has at most 107 characters
    found = Postgres(folder)
    found.start()
    yield found
    found.stop("fast")
    shutil.rmtree(folder)


NAMES = count()


@pytest.fixture
def address(server: Postgres) -> str:
    return f"{server.address}#l{next(NAMES)}"


@pytest.fixture
def ledger(address: str) -> rs.Ledger:
    """A ledger of rho 1 of which 0.3 is spent."""
    made = rs.Ledger.create(address, rs.zcdp(1), dataset="people")
    made.spend(Privacy.from_rho("0.3"), plan_hash="plan-1", note="first")
    return made


def table(ledger: rs.Ledger) -> str:
    return postgres.Server(str(ledger.path)).table


def test_a_new_ledger_knows_what_it_was_given_and_has_spent_nothing(address):
    unit = Unit(max_records=3, neighbours="replace_one")
    made = rs.Ledger.create(address, rs.approx_dp(1, "1e-6"), dataset="people-2024", unit=unit)
    for ledger in (made, rs.Ledger.open(address), rs.Ledger(address)):
        assert (ledger.dataset, ledger.unit, ledger.spent, ledger.entries()) == ("people-2024", unit, 0, ())
        assert ledger.budget == rs.approx_dp(1, "1e-6")


def test_a_ledger_is_never_replaced_and_never_made_silently(ledger, address):
    with pytest.raises(rs.LedgerError, match="never replaced"):
        rs.Ledger.create(address, rs.zcdp(9), dataset="people")
    assert ledger.total == 1
    with pytest.raises(rs.LedgerError, match="there is no ledger"):
        rs.Ledger.open(f"{address}x")


def test_spending_adds_up_exactly_and_stops_at_the_total(ledger):
    entry = ledger.spend(Privacy.from_rho("0.7"), plan_hash="plan-2", note="\u00e4 \x00 \ud800")
    assert (entry.id, entry.amount, entry.note) == (3, Fraction(7, 10), "\u00e4 \x00 \ud800")
    assert (ledger.spent, ledger.remaining) == (1, 0)
    with pytest.raises(rs.BudgetExceeded, match="only 0 left"):
        ledger.spend(Privacy.from_rho("1e-9"), plan_hash="p")
    with pytest.raises(rs.BudgetError, match="protects against"):
        ledger.spend(Privacy.from_rho("0.1", Unit(max_records=2)), plan_hash="p")
    assert ledger.entries()[-1] == entry
    assert ledger.complete(entry, "release").release_hash == "release"
    with pytest.raises(rs.LedgerError, match="waits for its release"):
        ledger.complete(entry, "other")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE {} SET text = replace(text, '3/10', '1/10') WHERE number = 2",
        "UPDATE {} SET hash = repeat('0', 64) WHERE number = 1",
        "DELETE FROM {} WHERE number = 1",
        "UPDATE {} SET number = 7 WHERE number = 2",
        "DELETE FROM {}",
        "ALTER TABLE {} ADD COLUMN more text",
        "ALTER TABLE {} SET UNLOGGED",
        "ALTER TABLE {} ENABLE ROW LEVEL SECURITY",
        "CREATE RULE quiet AS ON INSERT TO {} DO INSTEAD NOTHING",
    ],
)
def test_an_edit_is_noticed_whatever_is_asked(server, ledger, change):
    server.sql(change.format(table(ledger)))
    with pytest.raises(rs.LedgerError, match="was edited"):
        rs.Ledger.open(ledger.path)
    with pytest.raises(rs.LedgerError, match="was edited"):
        ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")


def test_an_event_that_no_ledger_would_write_is_refused(server, ledger):
    [(last,)] = server.sql(f"SELECT hash FROM {table(ledger)} ORDER BY number DESC LIMIT 1")
    text = json.dumps({"kind": "refund"})
    server.sql(f"INSERT INTO {table(ledger)} VALUES (3, %s, %s)", text, chained(last, text))
    with pytest.raises(rs.LedgerError, match="cannot hold the event"):
        rs.Ledger.open(ledger.path)


def test_other_tables_and_other_versions_are_refused(server, ledger, address):
    server.sql(f"COMMENT ON TABLE {table(ledger)} IS 'residua ledger 99'")
    with pytest.raises(rs.LedgerError, match="another format"):
        rs.Ledger.open(ledger.path)
    server.sql(f"COMMENT ON TABLE {table(ledger)} IS NULL")
    with pytest.raises(rs.LedgerError, match="another program's table"):
        rs.Ledger.open(ledger.path)
    with pytest.raises(rs.LedgerError, match="small letters"):
        rs.Ledger.open(f"{server.address}#drop table")


def test_a_ledger_that_was_rolled_back_is_found_by_its_releases(server, address):
    ledger = rs.Ledger.create(address, rs.zcdp(3), dataset="people")
    release = rs.measure(rs.plan(rs.marginals(SCHEMA, ways=1), rs.zcdp(1)), PEOPLE, ledger=address)
    assert [finding.state for finding in ledger.check([release])] == ["paid"]
    server.sql(f"DELETE FROM {table(ledger)} WHERE number = 2")
    assert [finding.state for finding in ledger.check([release])] == ["rolled back"]


def test_threads_share_a_ledger_and_spend_each_part_once(ledger):
    def spend(_: int) -> bool:
        try:
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")
        except rs.BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(spend, range(12))) == 7
    assert ledger.remaining == 0


SPENDER = """
import sys
from residua.ledger import Ledger
from residua.privacy import Privacy
ledger = Ledger.open(sys.argv[1])
for step in range(int(sys.argv[2])):
    print(ledger.spend(Privacy.from_rho(f"1/{1000 + step}"), plan_hash="p").hash, flush=True)
"""


def spender(address: str, steps: int = 10_000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPENDER, address, str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_kills_of_racing_processes_lose_no_debit(address):
    ledger = rs.Ledger.create(address, rs.zcdp(1000), dataset="people")
    chance, reported, kills = random.Random(1), set(), 0
    for _ in range(4):
        racing = [spender(address) for _ in range(2)]
        for process in racing:
            reported.add(process.stdout.readline().strip())  # it is under way
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            kills += 1
            reported |= set(process.stdout.read().split())
            process.wait()
            process.stdout.close()
    entries = ledger.entries()
    assert reported <= {entry.hash for entry in entries}
    assert len(entries) - len(reported) <= kills  # at most one that was not reported, each
    assert ledger.spent == sum(entry.privacy.rho for entry in entries)


def test_a_server_that_crashes_loses_no_debit(server, address):
    rs.Ledger.create(address, rs.zcdp(1000), dataset="people")
    racing = [spender(address) for _ in range(2)]
    reported = {process.stdout.readline().strip() for process in racing}
    time.sleep(0.2)
    server.stop("immediate")  # as a crash: nothing is written that was not on disk
    for process in racing:
        reported |= set(process.stdout.read().split())
        assert process.wait() != 0
        process.stdout.close()
    server.start()
    assert reported <= {entry.hash for entry in rs.Ledger.open(address).entries()}


def test_a_connection_lost_before_the_commit_spends_nothing(server, ledger, monkeypatch):
    def lost(self: Any, row: Any) -> None:
        server.sql("SELECT pg_terminate_backend(%s)", self.connection.info.backend_pid)
        self.connection.execute("SELECT 1")

    with monkeypatch.context() as patch:
        patch.setattr(postgres._Events, "add", lost)
        with pytest.raises(rs.LedgerError, match="could not be read or written"):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")
    assert len(ledger.entries()) == 1
    assert ledger.spend(Privacy.from_rho("0.1"), plan_hash="p").id == 3


def test_a_connection_lost_while_committing_wastes_budget_and_releases_nothing(address, monkeypatch):
    ledger = rs.Ledger.create(address, rs.zcdp(3), dataset="people")
    plan = rs.plan(rs.marginals(SCHEMA, ways=1), rs.zcdp(1))
    commit = psycopg.Connection.commit
    drawn: list[int] = []

    def unheard(self: Any) -> None:
        commit(self)
        if any("INSERT" in each for each in told):
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    told: list[str] = []
    execute = psycopg.Connection.execute

    def telling(self: Any, query: Any, *rest: Any, **named: Any) -> Any:
        told.append(str(query))
        return execute(self, query, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "commit", unheard)
        patch.setattr(psycopg.Connection, "execute", telling)
        patch.setattr("residua.kernel.measuring.noisy", lambda *given: drawn.append(1))
        with pytest.raises(rs.LedgerError, match="counts as spent if the ledger shows it"):
            rs.measure(plan, PEOPLE, ledger=ledger)
    assert not drawn
    assert ledger.spent == 1  # committed, but nobody was told: wasted, not leaked


def test_a_lock_stops_debits_but_no_reading(server, ledger, monkeypatch):
    monkeypatch.setattr(postgres, "_PATIENCE", 1)
    with psycopg.connect(server.address) as other:
        other.execute(f"LOCK TABLE {table(ledger)} IN EXCLUSIVE MODE")
        assert ledger.spent == Fraction(3, 10)
        with pytest.raises(rs.LedgerError, match="kept locked"):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")
    assert ledger.spend(Privacy.from_rho("0.1"), plan_hash="p").id == 3


def test_a_server_that_does_not_sync_is_refused(server, ledger):
    server.sql("ALTER SYSTEM SET full_page_writes = off")
    server.sql("SELECT pg_reload_conf()")
    try:
        for _ in range(50):
            if server.sql("SHOW full_page_writes") == [("off",)]:
                break
            time.sleep(0.1)
        with pytest.raises(rs.LedgerError, match="full_page_writes off and may lose debits"):
            ledger.spend(Privacy.from_rho("0.1"), plan_hash="p")
    finally:
        server.sql("ALTER SYSTEM RESET full_page_writes")
        server.sql("SELECT pg_reload_conf()")
        time.sleep(0.5)


def test_passwords_are_not_shown(server):
    for place in (
        "postgresql://me:secret@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?user=me&password=secret",
    ):
        with pytest.raises(rs.LedgerError) as caught:
            rs.Ledger.open(place)
        assert "secret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)


def test_without_its_driver_the_remedy_is_named(monkeypatch, address):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(rs.LedgerError, match=r"pip install 'residua\[postgres\]'"):
        rs.Ledger.open(address)


def test_periods_and_streams_are_kept_as_in_a_file(address, tmp_path):
    made = rs.Ledger.create(address, rs.zcdp("0.5"), dataset="births", periods="month", disjoint=True)
    schema = rs.Schema(day=rs.Date("2026-01-01", "2026-03-31", by="month"))
    plan = rs.plan(rs.table(schema, day=rs.prefix), rs.zcdp("0.5"), over="day")
    stream = rs.Stream.create(tmp_path / "births.stream", plan, over="day", ledger=address)
    (tmp_path / "copy.stream").write_bytes(stream.path.read_bytes())
    for month in stream.periods:
        stream.measure(month, {"day": [f"{month}-01"] * 9})
    assert made.spent_by_period() == dict.fromkeys(stream.periods, Fraction(1, 2))
    assert [each.state for each in made.check([stream.release()])] == ["paid"]
    with pytest.raises(rs.LedgerError, match="another copy of the stream"):
        rs.Stream.open(tmp_path / "copy.stream").measure("2026-01", {"day": ["2026-01-01"]})
    with pytest.raises(rs.BudgetExceeded, match="left for 2026-03"):
        made.spend(Privacy.from_rho("0.1"), plan_hash="p", period="2026-03/2026-04")
    unit = Unit(max_records=2)
    with pytest.raises(rs.BudgetError, match="may have records in two periods"):
        rs.Ledger.create(f"{address}x", rs.zcdp(1), dataset="b", unit=unit, periods="month", disjoint=True)
    secret = address.replace("postgres@", "postgres:password@")
    with pytest.raises(rs.LedgerError, match="must not keep a password"):
        rs.Stream.create(tmp_path / "other.stream", plan, over="day", ledger=secret)


def test_the_command_line_takes_addresses(address, tmp_path):
    def command(*words: str) -> str:
        run = CliRunner().invoke(app, list(words))
        assert run.exit_code == 0, run.output
        return run.output

    command("budget", "create", address, "--zcdp", "2", "--dataset", "people")
    release = rs.measure(rs.plan(rs.marginals(SCHEMA, ways=1), rs.zcdp(1)), PEOPLE, ledger=address)
    release.save(tmp_path / "a.release")
    assert "Spent: rho 1 by 1 release" in command("budget", "show", address)
    assert "1 release paid" in command("budget", "check", address, str(tmp_path / "a.release"))
    assert "paid: by entry 2" in command("verify", str(tmp_path / "a.release"), "--ledger", address)
