"""Load: many processes plan, measure, answer and are killed at random against one ledger; nothing is lost.

    python tests/stress/test_soak.py FOLDER --seconds 3600 --processes 50 --releases 10000

prints its figures as JSON. As a test it runs so for half a minute. A worker reports a release after it is
saved, so each that was reported must be there, whole, and paid for by an entry of its own; what was killed in
between may have wasted an entry, never more than one a kill.
"""

import argparse
import json
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

import residua as rs

BUDGET = "1/1000"
SETTLED = 15  # releases after which a process has loaded all that it will


def test_half_a_minute_of_load_loses_nothing(tmp_path):
    command = [sys.executable, __file__, str(tmp_path), "--seconds", "30", "--processes", "6"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["releases"] > 5
    assert figures["kills"] > 0


def work(folder: Path, number: int) -> None:
    """Plan, measure, save and answer for ever; a line for each release, with memory and open files."""
    chance = random.Random(number)
    schema = rs.Schema(age=rs.Integer(0, 9, outside="clip"), sex=rs.Categorical("F", "M"))
    options = (
        rs.marginals(schema, up_to=2),
        rs.all_tables(schema, 1, rs.prefix),
        rs.table(schema, {"age": rs.ranges, "sex": rs.identity}),
    )
    for step in range(10**9):
        plan = rs.plan(chance.choice(options), rs.zcdp(BUDGET))
        codes = np.random.default_rng(step).integers(0, 2, (50, 2))
        release = rs.measure(plan, codes, ledger=folder / "budget.db", note=f"{number}:{step}")
        path = folder / f"{number}-{step}.release"
        release.save(path)
        values = rs.Release.load(path).values()
        assert np.isfinite(values).all()
        size = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        files = len(os.listdir("/proc/self/fd"))
        print(json.dumps({"path": path.name, "step": step, "memory": size, "files": files}), flush=True)


@dataclass
class Worker:
    """A process at work, and what it reported."""

    process: subprocess.Popen[str]
    reports: list[dict[str, int | str]] = field(default_factory=list)


def started(folder: Path, number: int) -> Worker:
    command = [sys.executable, __file__, str(folder), "--worker", str(number)]
    return Worker(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


def soak(folder: Path, seconds: float, processes: int, releases: int) -> dict[str, object]:
    """Load until the time is up and so many releases are there; then everything is checked."""
    chance, began = random.Random(0), time.monotonic()
    ledger = rs.Ledger.create(folder / "budget.db", rs.zcdp(10**6), dataset="soak")
    everybody: list[Worker] = []
    alive: dict[int, Worker] = {}
    ready, kills, made = selectors.DefaultSelector(), 0, 0

    def start() -> None:
        worker = started(folder, len(everybody))
        everybody.append(worker)
        alive[worker.process.pid] = worker
        ready.register(worker.process.stdout, selectors.EVENT_READ, worker)

    for _ in range(processes):
        start()
    next_kill = began + 5
    while time.monotonic() - began < seconds or made < releases:
        for key, _ in ready.select(timeout=0.5):
            line = key.fileobj.readline()
            assert line, "a worker ended by itself"
            key.data.reports.append(json.loads(line))
            made += 1
        if time.monotonic() > next_kill:
            victim = chance.choice(list(alive.values()))
            ready.unregister(victim.process.stdout)
            kills += 1
            ended(victim, alive)
            start()
            next_kill = time.monotonic() + chance.uniform(0.5, 4)
    for worker in list(alive.values()):
        ended(worker, alive)
    return checked(folder, ledger, everybody, kills + processes, time.monotonic() - began)


def ended(worker: Worker, alive: dict[int, Worker]) -> None:
    """Kill a worker, and take what it still had to say."""
    worker.process.send_signal(signal.SIGKILL)
    rest = worker.process.stdout.read()
    worker.process.wait()
    worker.process.stdout.close()
    worker.reports += [json.loads(line) for line in rest.splitlines() if line.endswith("}")]
    del alive[worker.process.pid]


def checked(
    folder: Path, ledger: rs.Ledger, everybody: list[Worker], kills: int, took: float
) -> dict[str, object]:
    """Nothing is lost, nothing is counted twice, nothing leaks."""
    reported = [report for worker in everybody for report in worker.reports]
    there = {path.name for path in folder.glob("*.release")}
    assert {report["path"] for report in reported} <= there, "a release that was reported is gone"
    found = [rs.Release.load(folder / name) for name in sorted(there)]
    states = Counter(finding.state for finding in ledger.check(found))
    assert states == {"paid": len(found)}, states
    entries = ledger.entries()
    assert ledger.spent == len(entries) * Fraction(BUDGET)
    assert len(found) <= len(entries) <= len(found) + kills, "more entries than releases and kills"
    growth, files = [0.0], [0]
    for worker in everybody:
        late = [report for report in worker.reports if int(report["step"]) >= SETTLED]
        if len(late) > SETTLED:
            growth.append(int(late[-1]["memory"]) / int(late[0]["memory"]) - 1)
            files.append(int(late[-1]["files"]) - int(late[0]["files"]))
    assert max(files) <= 0, "open files pile up"
    return {
        "seconds": round(took),
        "processes": len(everybody),
        "kills": kills,
        "releases": len(found),
        "wasted_entries": len(entries) - len(found),
        "largest_growth_of_memory": f"{max(growth):.1%}",
        "workers_watched_for_leaks": len(growth) - 1,
        "open_files_gained": max(files),
    }


def main() -> None:
    """Parse the command line; a worker works, otherwise the soak runs and prints its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--releases", type=int, default=0)
    parser.add_argument("--worker", type=int)
    asked = parser.parse_args()
    if asked.worker is not None:
        work(asked.folder, asked.worker)
    else:
        print(json.dumps(soak(asked.folder, asked.seconds, asked.processes, asked.releases)))


if __name__ == "__main__":
    main()
