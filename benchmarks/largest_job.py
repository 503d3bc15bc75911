"""The largest job: all marginals on at most 3 of 100 attributes of size 10, from records to Parquet.

Of a million records, 166,751 tables with 162 million numbers are planned, measured and written with errors.
Fails if that takes more than 15 minutes on two processors, by the clock, or more than 4 GB.

    python largest_job.py       that
    python largest_job.py 50    with fewer attributes; the limits are the same
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import numpy as np

import residua as rs

MINUTES, GIGABYTES = 15.0, 4.0
RECORDS = 1_000_000


class Memory(Thread):
    """Watches the memory of this process and of those that it started, together, while it runs.

    What the system keeps as the peak of a started process has that of this one in it, as of its start.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0  # gigabytes

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, sum(map(_resident, (os.getpid(), *_started()))) / 1e9)
            time.sleep(0.1)


def _started() -> list[int]:
    """The processes that this one started and that run."""
    found = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(each) for each in task.read_text().split()]
    return found


def _resident(process: int) -> int:
    """Bytes in memory; none where the process has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


MEMORY = Memory()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print what a step takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    taken = f"{time.perf_counter() - wall:8.1f} s{time.process_time() - cpu:10.1f} CPU s here"
    print(f"  {name:<12}{taken}{MEMORY.peak:8.2f} GB so far", flush=True)


def main(attributes: int) -> int:
    schema = rs.Schema.of_sizes([10] * attributes)
    codes = np.random.default_rng(1).integers(0, 10, (RECORDS, attributes), dtype=np.uint8)
    MEMORY.start()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with step("planned"):
            work = rs.marginals(schema, up_to=3)
            plan = rs.plan(work, rs.zcdp(1))
        print(f"  {work.tables:,} tables, {work.count:,} numbers, {RECORDS:,} records")
        with step("measured"):
            release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
        with step("written"):
            release.write_answers(Path(folder) / "answers.parquet")
        print(f"  {(Path(folder) / 'answers.parquet').stat().st_size / 1e6:,.0f} MB of Parquet")
    minutes = (time.perf_counter() - start) / 60
    print(f"  {minutes:.1f} of {MINUTES:.0f} minutes, {MEMORY.peak:.2f} of {GIGABYTES:.0f} GB")
    return int(minutes > MINUTES or MEMORY.peak > GIGABYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100))
