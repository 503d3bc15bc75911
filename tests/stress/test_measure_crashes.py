"""Kill -9 at many moments of measuring and saving: no release without its debit, no file that is not whole.

Run as a program (`python test_measure_crashes.py POINTS FOLDER PLAN`) it does the killing: it plans and reads
the data once and forks, so that a point takes milliseconds. As a test it runs itself so, which keeps forks
out of pytest.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from forked import Child

import residua as rs
from residua import _measure
from residua.errors import FileFormatError
from residua.kernel import measuring
from residua.ledger import Entry
from residua.strategy.parts import parts_of

POINTS_PER_LEDGER = 20
RHO = Fraction(1, 1000)


@pytest.mark.parametrize(("points", "which"), [(1000, "tables"), (200, "places"), (200, "parts")])
def test_a_thousand_kills_release_nothing_unpaid(points, which, tmp_path):
    command = [sys.executable, __file__, str(points), str(tmp_path), which]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == points
    assert counts["returned"]
    assert counts["wasted"]  # kills between a debit and the file that it paid for
    assert counts["scratch"]  # kills while a file was being written


@dataclass
class Counts:
    """What happened at all the points of one run."""

    points: int = 0
    returned: int = 0
    saved: int = 0
    wasted: int = 0
    scratch: int = 0


def release_for_ever(plan: rs.Plan, ledger: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Release after release; the debit is reported once `measure` returned, then the release is saved."""
    for number in range(1_000_000):
        release = rs.measure(plan, None, ledger=ledger, note=str(number))
        report(release.audit["ledger"]["hash"])
        release.save(folder / f"{number}.release")


def release_in_parts(plan: rs.Plan, ledger: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Release after release, each written part by part while it is measured."""
    for number in range(1_000_000):
        release = rs.measure(plan, None, ledger=ledger, note=str(number), into=folder / f"{number}.release")
        assert release.measurements.parts is not None
        report(release.audit["ledger"]["hash"])


def kill_while_releasing(plan: rs.Plan, ledger: Path, folder: Path, moment: float, which: str) -> Counts:
    """One point: a process that measures and saves is killed after so many seconds."""
    folder.mkdir()
    before = len(rs.Ledger.open(ledger).entries())
    work = release_in_parts if which == "parts" else release_for_ever
    child = Child(lambda report: work(plan, ledger, folder, report))
    time.sleep(moment)
    child.kill()
    returned = child.reports()
    book = rs.Ledger.open(ledger)
    entries = book.entries()
    paid = {entry.hash for entry in entries}
    assert set(returned) <= paid, "a release was returned whose debit is lost"
    assert book.spent == len(entries) * RHO, "the ledger counts something else than its releases"
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    found = [rs.Release.load(path) for path in files]  # refuses a file that is not whole
    assert {release.audit["ledger"]["hash"] for release in found} <= paid, "a file's debit is lost"
    new = len(entries) - before
    if which == "parts":
        assert len(returned) <= len(files) <= new <= len(returned) + 1
        refuse_unlike(entries[before:], found)
    else:
        assert len(files) <= len(returned) <= new <= len(returned) + 1
        assert len(returned) <= len(files) + 1
    scratch = [path for path in folder.iterdir() if path.name.startswith(".")]
    for path in scratch:
        with suppress(FileFormatError):  # it may be whole, and lack nothing but its name
            release = rs.Release.load(path)
            assert release.audit["ledger"]["hash"] in paid
            assert np.isfinite(release.values()).all()
    return Counts(1, len(returned), len(files), new - len(files), len(scratch))


def refuse_unlike(entries: Sequence[Entry], found: Sequence[rs.Release]) -> None:
    """Every part of every file is whole, and the ledger names all of them but perhaps the last one."""
    known = {release.audit["ledger"]["hash"]: release for release in found}
    for number, entry in enumerate(entries):
        release = known.get(entry.hash)
        if release is None:
            assert entry.release_hash is None, "a release is said to be there that is not"
        else:
            assert np.isfinite(release.values()).all()  # reads and checks all parts
            last = number == len(entries) - 1
            assert entry.release_hash == release.hash or (last and entry.release_hash is None)


class _Opened:
    """Opens an engine that is open already."""

    def __init__(self, engine: object) -> None:
        self._engine = engine

    def open(self, schema: rs.Schema, data: object) -> object:
        return self._engine


def small_plan(which: str) -> rs.Plan:
    """A plan, measured once: everything that loads late is loaded, and tables of quantiles are made."""
    if which == "tables":
        schema = rs.Schema.of_sizes([4, 3, 5])
        plan = rs.plan(rs.all_tables(schema, (1, 2), rs.prefix), rs.zcdp(RHO), method="querysmasher")
    else:
        paths = [(f"{at % 50}", f"{at % 500}", f"{at}") for at in range(5000)]
        schema = rs.Schema(
            place=rs.Hierarchy(("state", "county", "tract"), paths), sex=rs.Categorical("F", "M")
        )
        plan = rs.plan(rs.levels(schema, "place", ["sex"]), rs.zcdp(RHO))
        assert plan.strategy.nested
    if which == "parts":
        divided = parts_of(plan.strategy, most=2_000)
        _measure.parts_of = lambda strategy: divided
    codes = np.random.default_rng(0).integers(0, schema.sizes, (1000, len(schema)))
    engine = rs.engines.Memory().open(schema, codes)
    measuring.engine_for = lambda data: _Opened(engine)  # the data is read and recoded once
    return plan


def main(points: int, folder: Path, which: str) -> None:
    """Run so many points in a folder and print the counts as JSON."""
    chance = random.Random(points)
    plan = small_plan(which)
    rs.Ledger.create(folder / "pace.db", rs.zcdp(1), dataset="pace")
    into = folder / "pace.release"
    rs.measure(plan, None, ledger=folder / "pace.db", into=into)
    start = time.perf_counter()
    for _ in range(5):
        rs.measure(plan, None, ledger=folder / "pace.db", into=into)
    pace = (time.perf_counter() - start) / 5
    total = Counts()
    for point in range(points):
        ledger = folder / f"{point // POINTS_PER_LEDGER}.db"
        if point % POINTS_PER_LEDGER == 0:
            rs.Ledger.create(ledger, rs.zcdp(1000), dataset="crashes")
        moment = chance.uniform(0, 3 * pace)
        counts = kill_while_releasing(plan, ledger, folder / f"point-{point}", moment, which)
        for name, value in vars(counts).items():
            setattr(total, name, getattr(total, name) + value)
    print(json.dumps(vars(total)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
