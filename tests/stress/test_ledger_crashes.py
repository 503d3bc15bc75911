"""Kill -9 at many moments of spending and of creating: no acknowledged debit is ever lost.

Run as a program (`python test_ledger_crashes.py POINTS FOLDER`) it does the killing: it imports once and
forks, so that a point takes milliseconds. As a test it runs itself so, which keeps forks out of pytest.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from forked import Child

from residua.ledger import Ledger
from residua.privacy import Privacy, zcdp

POINTS_PER_LEDGER = 25
WRITERS = 2


def test_a_thousand_kills_lose_no_debit(tmp_path):
    command = [sys.executable, __file__, "1000", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == 1000
    assert counts["acknowledged"]
    assert counts["unacknowledged"] + counts["hot_journals"]  # kills that fell inside a transaction


@dataclass
class Counts:
    """What happened at all the points of one run."""

    points: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    hot_journals: int = 0
    created: int = 0


def spend_for_ever(path: Path, report: Callable[[str], None]) -> None:
    """Debit after debit, each reported only after `spend` returned."""
    ledger = Ledger.open(path)
    for step in range(1, 1_000_000):
        entry = ledger.spend(Privacy.from_cost(Fraction(1, step)), plan_hash="plan", note=f"step {step}")
        report(entry.hash)


def create_for_ever(folder: Path, report: Callable[[str], None]) -> None:
    """Ledger after ledger, each reported only after `create` returned."""
    for number in range(1_000_000):
        report(Ledger.create(folder / f"{number}.db", zcdp(1), dataset="new").dataset)


def kill_while_spending(path: Path, known: set[str], chance: random.Random, pace: float) -> Counts:
    """One point: writers that race are killed one after the other; `known` grows by what they reported."""
    before = len(Ledger.open(path).entries())
    writers = [Child(lambda report: spend_for_ever(path, report)) for _ in range(WRITERS)]
    for writer in writers:
        time.sleep(chance.uniform(0, 2 * pace))
        writer.kill()
    reported = [hash for writer in writers for hash in writer.reports()]
    hot = journal_is_hot(path)
    ledger = Ledger.open(path)
    entries = ledger.entries()
    known.update(reported)
    assert known <= {entry.hash for entry in entries}, "an acknowledged debit is lost"
    assert ledger.spent == sum(entry.privacy.rho for entry in entries)
    silent = len(entries) - before - len(reported)
    assert 0 <= silent <= WRITERS, "more debits than calls"
    return Counts(1, len(reported), silent, hot)


def kill_while_creating(folder: Path, chance: random.Random, pace: float) -> Counts:
    """One point: a process that makes ledgers is killed; each name is a whole ledger or is not there."""
    folder.mkdir()
    creator = Child(lambda report: create_for_ever(folder, report))
    time.sleep(chance.uniform(0, 6 * pace))
    creator.kill()
    acknowledged = len(creator.reports())
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    assert acknowledged <= len(found) <= acknowledged + 1
    assert all(Ledger.open(path).spent == 0 for path in found)
    Ledger.create(folder / f"{len(found)}.db", zcdp(1), dataset="new")  # nothing is in the way of the next
    return Counts(1, created=len(found))


def journal_is_hot(path: Path) -> bool:
    """Whether a transaction was cut off after it began to change the ledger, so that it must be undone."""
    journal = Path(f"{path}-journal")
    return journal.exists() and journal.read_bytes()[:1] not in (b"", bytes(1))


def seconds_of_a_debit(path: Path) -> float:
    """How long a debit takes here, so that kills fall into the first few."""
    ledger = Ledger.create(path, zcdp(1), dataset="pace")
    start = time.perf_counter()
    for _ in range(10):
        ledger.spend(Privacy.from_cost("1/100"), plan_hash="plan")
    return (time.perf_counter() - start) / 10


def main(points: int, folder: Path) -> None:
    """Run so many points in a folder and print the counts as JSON."""
    chance = random.Random(points)
    pace = seconds_of_a_debit(folder / "pace.db")
    total = Counts()
    known: set[str] = set()
    for point in range(points):
        path = folder / f"{point // POINTS_PER_LEDGER}.db"
        if point % POINTS_PER_LEDGER == 0:
            Ledger.create(path, zcdp(1000), dataset="crashes")
            known = set()
        if point % 5 == 4:
            counts = kill_while_creating(folder / f"created-{point}", chance, pace)
        else:
            counts = kill_while_spending(path, known, chance, pace)
        for name, value in vars(counts).items():
            setattr(total, name, getattr(total, name) + value)
    print(json.dumps(vars(total)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
