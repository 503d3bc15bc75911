"""The largest job: all marginals on at most 3 of 100 attributes of size 10, from records to Parquet.

Of a million records, 166,751 tables with 162 million numbers are planned, measured and written with errors.
Fails if that takes more than 15 minutes on two processors, by the clock, or more than 4 GB.

    python largest_job.py       that
    python largest_job.py 50    with fewer attributes; the limits are the same
"""

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import residua as rs

MINUTES, GIGABYTES = 15.0, 4.0
RECORDS = 1_000_000


def peak_gigabytes() -> float:
    """Most memory of this process and, beside it, of the largest one that it started."""
    return sum(
        resource.getrusage(who).ru_maxrss / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print what a step takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    taken = f"{time.perf_counter() - wall:8.1f} s{time.process_time() - cpu:10.1f} CPU s here"
    print(f"  {name:<12}{taken}{peak_gigabytes():8.2f} GB so far", flush=True)


def main(attributes: int) -> int:
    schema = rs.Schema.of_sizes([10] * attributes)
    codes = np.random.default_rng(1).integers(0, 10, (RECORDS, attributes)).astype(np.uint8)
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
    print(f"  {minutes:.1f} of {MINUTES:.0f} minutes, {peak_gigabytes():.2f} of {GIGABYTES:.0f} GB")
    return int(minutes > MINUTES or peak_gigabytes() > GIGABYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100))
