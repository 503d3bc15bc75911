"""Few records of a person kept in memory, by DuckDB and by Spark: 5 million records, the same counts.

Some of the 1.25 million ids have thousands of records and most have one or two.

Needs the extra `spark` and Java 17 (run it in .venv-extras); without them memory and DuckDB are compared.

Fails if a count of any table of two attributes differs.
"""

import argparse
import os
import sys
import tempfile
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from _counting import apart
from _persons import SCHEMA, write
from _timing import Limits

import residua as rs
from residua.engines import DuckDB, Memory, Spark
from residua.privacy.unit import Person

UNITS = (rs.Unit(id="who", max_records=4), rs.Unit(id="who", max_records=6, max_per={"a3": 1, "a5": 2}))
PAIRS = list(combinations(range(len(SCHEMA)), 2))


def counted(way: str, path: str) -> list[list[int]]:
    """The counts of all pairs of attributes, end to end, for each unit."""
    data: object = path
    opener: Memory | DuckDB | Spark = DuckDB(memory_limit="1GB")
    if way == "memory":
        from pyarrow import parquet

        opener, data = Memory(), parquet.read_table(path)
    elif way == "Spark":
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        opener = Spark(SparkSession.builder.master("local[2]").config(map=settings).getOrCreate())
    engines = [opener.open_kept(SCHEMA, data, Person.of(unit, SCHEMA)) for unit in UNITS]
    return [[number for own in engine.tally(PAIRS) for number in own.tolist()] for engine in engines]


def main() -> int:
    """Print how many records are kept, and whether all ways agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    records = parser.parse_args().records
    limits = Limits()
    ways = ["memory", "DuckDB", *(["Spark"] if find_spec("pyspark") else [])]
    for kind in ("BIGINT", "VARCHAR"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "visits.parquet"
            write(path, records, kind)
            found = {way: apart(counted, way, str(path)) for way in ways}
        for unit, *counts in zip(UNITS, *found.values(), strict=True):
            kept = sum(counts[0]) // len(PAIRS)
            print(f"{kind}, {unit!r}: {kept:,} of {records:,} records; {', '.join(ways)}", flush=True)
            limits.check(all(each == counts[0] for each in counts), f"{kind}, {unit!r}: counts differ")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
