"""How time grows: planning with attributes, measuring and answering with numbers, counting with records.

    python growth.py             all of it
    python growth.py planning    or answering, or counting

Each figure is of processor seconds in a fresh interpreter on one processor. Fails if planning all marginals
on at most 3 attributes grows faster than the cube of the attributes from 50 to 200, measuring or answering by
more than the power 1.05 of the numbers from 1 to 50 million, or counting faster than the records of a Parquet
file, from a hundred thousand to a hundred million.

A virtual machine asks its host for memory that it has not used for a while, which can take as long
as all that is done to answers of 400 MB: so much memory is used and given back before the clock starts.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _fresh import _one_processor as one_processor
from _timing import Limits

import residua as rs

ATTRIBUTES = (50, 100, 200)
NUMBERS = (18, 35, 67)  # attributes of 10 cells: 0.9, 7.2 and 50 million numbers
RECORDS = (10**5, 10**6, 10**7, 10**8)
LINE = "  {:<12}{:>14}{:>10}{:>12}"
REPEATS, LONG = 5, 30.0  # as many runs of large sizes as of small


def marginals(attributes: int) -> rs.Workload:
    return rs.marginals(rs.Schema.of_sizes([10] * attributes), up_to=3)


def planning(attributes: int) -> list[float]:
    """Seconds of planning all marginals on at most 3 attributes."""
    plan, work = rs.plan, marginals(attributes)
    began = time.process_time()
    plan(work, rs.zcdp(1))
    return [time.process_time() - began]


def answering(attributes: int) -> list[float]:
    """Seconds of measuring 10,000 records, and of all answers."""
    plan = rs.plan(marginals(attributes), rs.zcdp(1))
    codes = np.random.default_rng(1).integers(0, 10, (10_000, attributes), dtype=np.uint8)
    began = time.process_time()
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(1))
    measured = time.process_time() - began
    np.ones(release.plan.workload.count)
    began = time.process_time()
    release.values()
    return [measured, time.process_time() - began]


def counting(records: int) -> list[float]:
    """Seconds of counting 10 tables of a Parquet file."""
    import duckdb

    schema = rs.Schema.of_sizes([10] * 4)
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        codes = ", ".join(f"floor(10 * random())::TINYINT AS {name}" for name in schema.names)
        duckdb.sql(f"COPY (SELECT {codes} FROM range({records})) TO '{path}' (FORMAT parquet)")
        began = time.process_time()
        rs.measure(plan, path, ledger=None, noise=rs.simulated(1))
        return [time.process_time() - began]


KINDS = {
    "planning": (planning, ATTRIBUTES),
    "answering": (answering, NUMBERS),
    "counting": (counting, RECORDS),
}


def fresh(kind: str, size: int) -> list[float]:
    """The best of some runs in interpreters of their own; very long ones run once."""
    best: list[float] = []
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(REPEATS):
        with one_processor():
            command = [sys.executable, __file__, "--row", kind, str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
        found = [float(each) for each in done.stdout.split()]
        best = found if not best else [min(pair) for pair in zip(best, found, strict=True)]
        if sum(found) > LONG:
            break
    return best


def grown(kind: str, what: str, sizes: list[int], seconds: list[float], most: float, limits: Limits) -> None:
    """Print the seconds at each size and the power by which they grow from the first to the last."""
    for size, own in zip(sizes, seconds, strict=True):
        print(LINE.format(kind, f"{size:,}", what, f"{own:.2f} s"), flush=True)
    power = math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
    print(f"  {kind} grows by the power {power:.2f} of {what}; {most} allowed")
    limits.check(power <= most, f"{kind}: power {power:.2f}")


def main() -> int:
    if sys.argv[1:2] == ["--row"]:
        print(*KINDS[sys.argv[2]][0](int(sys.argv[3])))
        return 0
    limits = Limits()
    for kind in sys.argv[1:] or KINDS:
        sizes = list(KINDS[kind][1])
        rows = list(zip(*(fresh(kind, size) for size in sizes), strict=True))
        if kind == "planning":
            grown(kind, "attributes", sizes, list(rows[0]), 3.0, limits)
        elif kind == "counting":
            grown(kind, "records", sizes, list(rows[0]), 1.0, limits)
        else:
            numbers = [marginals(size).count for size in sizes]
            grown("measuring", "numbers", numbers, list(rows[0]), 1.05, limits)
            grown(kind, "numbers", numbers, list(rows[1]), 1.05, limits)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
