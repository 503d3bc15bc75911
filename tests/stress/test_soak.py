"""Load: many processes plan, measure, answer and are killed at random against one ledger; nothing is lost.

    python tests/stress/test_soak.py FOLDER --seconds 3600 --processes 50 --releases 10000

prints its figures as JSON, and once a minute how far it is. As a test it runs so for half a minute. A worker
reports a release after it is saved, so each that was reported must be there, whole, and paid for by an entry
of its own; what was killed in between may have wasted an entry, never more than one a kill. Workers are
forked from a process that has everything loaded; one in ten is spared until the end, and shows whether
memory or open files pile up.
"""

import argparse
import json
import os
import random
import resource
import selectors
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from forked import Child

import residua as rs

BUDGET = "1/1000"
SETTLED = 15  # releases after which a process has loaded all that it will


def test_half_a_minute_of_load_loses_nothing(tmp_path):
    command = [sys.executable, __file__, str(tmp_path), "--seconds", "30", "--processes", "6"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["releases"] > 5
    assert figures["killed_at_work"] > 0


def options() -> tuple[rs.Workload, ...]:
    """What workers plan for."""
    schema = rs.Schema(age=rs.Integer(0, 9, outside="clip"), sex=rs.Categorical("F", "M"))
    return (
        rs.marginals(schema, up_to=2),
        rs.all_tables(schema, 1, rs.prefix),
        rs.table(schema, {"age": rs.ranges, "sex": rs.identity}),
    )


def work(folder: Path, number: int, report) -> None:
    """Plan, measure, save and answer for ever; a line for each release, with memory and open files."""
    chance, workloads = random.Random(number), options()
    for step in range(10**9):
        plan = rs.plan(chance.choice(workloads), rs.zcdp(BUDGET))
        codes = np.random.default_rng(step).integers(0, 2, (50, 2))
        try:
            release = rs.measure(plan, codes, ledger=folder / "budget.db", note=f"{number}:{step}")
        except rs.LedgerError as error:  # after a minute of others: told so, and nothing was spent
            if "kept locked by another process" not in str(error):
                raise
            continue
        path = folder / f"{number}-{step}.release"
        release.save(path)
        values = rs.Release.load(path).values()
        assert np.isfinite(values).all()
        size = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        files = len(os.listdir("/proc/self/fd"))
        report(json.dumps({"path": path.name, "step": step, "memory": size, "files": files}))


@dataclass
class Worker:
    """A process at work, and what it reported."""

    child: Child
    spared: bool
    reports: list[dict[str, int | str]] = field(default_factory=list)

    def hear(self) -> int:
        """Take a report; they are shorter than what a pipe takes at once, and so come whole."""
        found = os.read(self.child.pipe, 65_536).decode()
        assert found.endswith("\n"), "a worker ended by itself"
        self.reports += map(json.loads, found.splitlines())
        return found.count("\n")

    def end(self) -> None:
        """Kill it, and take what it still had to say."""
        self.child.kill()
        self.reports += map(json.loads, self.child.reports())


def soak(folder: Path, seconds: float, processes: int, releases: int) -> dict[str, object]:
    """Load until the time is up and so many releases are there; then everything is checked."""
    chance, began = random.Random(0), time.monotonic()
    ledger = rs.Ledger.create(folder / "budget.db", rs.zcdp(10**6), dataset="soak")
    for workload in options():  # what is loaded once is loaded here
        rs.measure(rs.plan(workload, rs.zcdp(BUDGET)), np.zeros((1, 2), int), ledger=ledger)
    everybody: list[Worker] = []
    ready, kills, made = selectors.DefaultSelector(), 0, 0

    def start(*, spared: bool) -> Worker:
        worker = Worker(Child(partial(work, folder, len(everybody))), spared)
        everybody.append(worker)
        ready.register(worker.child.pipe, selectors.EVENT_READ, worker)
        return worker

    alive = [start(spared=number < processes / 10) for number in range(processes)]
    next_kill, next_word = began + 2, began + 60
    while time.monotonic() - began < seconds or made < releases:
        made += sum(key.data.hear() for key, _ in ready.select(timeout=0.5))
        if time.monotonic() > next_kill:
            at = chance.choice([at for at, worker in enumerate(alive) if not worker.spared])
            ready.unregister(alive[at].child.pipe)
            alive[at].end()
            alive[at] = start(spared=False)
            kills += 1
            next_kill = time.monotonic() + chance.uniform(0.5, 4)
        if time.monotonic() > next_word:
            print(f"{time.monotonic() - began:.0f} s: {made} releases, {kills} kills", file=sys.stderr)
            next_word += 60
    for worker in alive:
        worker.end()
    return checked(folder, ledger, everybody, alive, kills, time.monotonic() - began)


def checked(
    folder: Path, ledger: rs.Ledger, everybody: list[Worker], last: list[Worker], kills: int, took: float
) -> dict[str, object]:
    """Nothing is lost, nothing is counted twice, nothing leaks."""
    reported = [report for worker in everybody for report in worker.reports]
    there = {path.name for path in folder.glob("*.release")}
    assert {report["path"] for report in reported} <= there, "a release that was reported is gone"
    found = [rs.Release.load(folder / name) for name in sorted(there)]
    states = Counter(finding.state for finding in ledger.check(found))
    assert states == {"paid": len(found)}, states
    entries = ledger.entries()[len(options()) :]  # the first are those of warming up
    assert ledger.spent == (len(entries) + len(options())) * Fraction(BUDGET)
    wasted = len(entries) - len(found)
    assert 0 <= wasted <= kills + len(last), "more entries than releases and kills"
    spared = [worker.reports for worker in last if worker.spared and len(worker.reports) > 2 * SETTLED]
    young = [worker.reports[-1] for worker in last if not worker.spared and worker.reports]
    files = [int(own[-1]["files"]) - int(own[SETTLED]["files"]) for own in spared]
    assert max(files, default=0) <= 0, "open files pile up"
    return {
        "seconds": round(took),
        "processes": len(everybody),
        "killed_at_work": kills,
        "releases": len(found),
        "releases_reported": len(reported),
        "releases_lost": 0,
        "wasted_entries": wasted,
        "spared_workers": len(spared),
        "releases_of_a_spared_worker": _middle([len(own) for own in spared]),
        "its_memory_settled_mb": _middle([int(own[SETTLED]["memory"]) / 1e6 for own in spared]),
        "its_memory_at_the_end_mb": _middle([int(own[-1]["memory"]) / 1e6 for own in spared]),
        "memory_of_the_others_at_the_end_mb": _middle([int(own["memory"]) / 1e6 for own in young]),
        "open_files_gained": max(files, default=0),
    }


def _middle(numbers: list[float]) -> int | None:
    return round(statistics.median(numbers)) if numbers else None


def main() -> None:
    """Parse the command line; the soak runs and prints its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--releases", type=int, default=0)
    asked = parser.parse_args()
    print(json.dumps(soak(asked.folder, asked.seconds, asked.processes, asked.releases), indent=2))


if __name__ == "__main__":
    main()
