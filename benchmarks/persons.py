"""What keeping to few records of a person costs: 20 tables of one Parquet file, measured with and without.

The number of records of a person has a heavy tail: the mean is 4, more than half of all records belong to
persons with more than the 4 that are counted, and one person has thousands. Seconds are of the processor, all
threads and helpers, and of the wall; those of the wall say little on a busy machine.

Then one record a quarter over 8 quarters, tables by quarter and region and by quarter and age: variance with
the pattern beside that of 8 records anywhere, which is 64 times that of one record.

Fails if enforcement takes more than 5 times the processor's seconds with ids that are numbers (texts take
longer to read, too), or more memory than the limit, or if the pattern does not save a factor of 5.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

from _counting import apart, peak, resident
from _persons import SCHEMA, write
from _timing import Limits, timed

import residua as rs
from residua.engines.sources import bytes_of

TABLES = 20
MOST_TIMES = 5
UNITS = {
    "without": rs.Unit(),
    "4 records of a person": rs.Unit(id="who", max_records=4),
    "4 records, 1 in a cell of a3": rs.Unit(id="who", max_records=4, one_per="a3"),
}
TEXTS = {"whole numbers": "BIGINT", "text": "VARCHAR"}


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the wall and of the processor, and megabytes that measuring took."""

    wall: float
    cpu: float
    megabytes: float


def measured(path: str, unit: str, limit: str) -> Measured:
    """What it takes to measure the tables."""
    pairs = random.Random(3).sample(list(combinations(SCHEMA.names, 2)), TABLES)
    work = sum((rs.table(SCHEMA, list(pair)) for pair in pairs[1:]), rs.table(SCHEMA, list(pairs[0])))
    plan = rs.plan(work, rs.zcdp(1), unit=UNITS[unit])
    engine = rs.engines.DuckDB(memory_limit=limit)
    before, wall, cpu = resident(), time.perf_counter(), _cpu()
    rs.measure(plan, path, ledger=None, noise=rs.simulated(seed=1), engine=engine)
    return Measured(time.perf_counter() - wall, _cpu() - cpu, peak() - before)


def _cpu() -> float:
    """Seconds of the processor, of this process and of helpers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def quarters() -> float:
    """How many times lower variance is for one record a quarter than for 8 records anywhere."""
    schema = rs.Schema(
        quarter=rs.Integer(1, 8), region=rs.Categorical(*map(str, range(16))), age=rs.Integer(0, 17)
    )
    work = rs.table(schema, ["quarter", "region"]) + rs.table(schema, ["quarter", "age"])
    units = (rs.Unit(id="who", max_records=8), rs.Unit(id="who", max_records=8, one_per="quarter"))
    anywhere, apart_ = (rs.plan(work, rs.zcdp(1), unit=unit).total_variance for unit in units)
    return anywhere / apart_


def main() -> int:
    """Print what measuring takes, and the two variances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=30_000_000)
    parser.add_argument("--limit", default="1GB", help="memory limit")
    asked = parser.parse_args()
    limits = Limits()
    for name, kind in TEXTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "visits.parquet"
            made = timed(partial(write, path, asked.records, kind))
            size = path.stat().st_size / 1e6
            print(f"{asked.records:,} records, ids are {name}, {size:.0f} MB of Parquet ({made.wall:.0f} s)")
            plain = apart(measured, str(path), "without", asked.limit)
            for unit in UNITS:
                own = plain if unit == "without" else apart(measured, str(path), unit, asked.limit)
                times, walls = own.cpu / plain.cpu, own.wall / plain.wall
                print(
                    f"  {unit:<32}{own.cpu:>8.1f} s of processor ({times:.1f} times){own.wall:>8.1f} s of "
                    f"wall ({walls:.1f} times){own.megabytes:>7.0f} MB",
                    flush=True,
                )
                limits.check(
                    kind == "VARCHAR" or times <= MOST_TIMES,
                    f"{unit}: {times:.1f} times the processor's seconds",
                )
                limits.check(own.megabytes <= bytes_of(asked.limit) / 1e6, f"{unit}: {own.megabytes:.0f} MB")
    ratio = quarters()
    print(f"one record a quarter over 8 quarters: variance {ratio:.2f} times lower than by 8 squared")
    limits.check(ratio >= 5, "the pattern saves less than a factor of 5")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
