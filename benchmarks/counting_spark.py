"""Counting on Spark with 2 local cores: 20 million records of Parquet, all 2-way marginals of 10 attributes
of size 10, against the DuckDB engine on the same file and cores.

Needs the extra `spark` and Java 17; without them nothing is measured (run it in .venv-extras). The session is
started, and its Python workers with it, before the clock.

Fails if Spark takes more than 4 times as long as the DuckDB engine, or if a count differs.
"""

import argparse
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from _counting import SIZE, Counted, apart, count, views_of, write_parquet
from _timing import Limits

import residua as rs
from residua.engines import DuckDB, Spark

ATTRIBUTES = 10
SCHEMA = rs.Schema.of_sizes([SIZE] * ATTRIBUTES)


def on_duckdb(path: str) -> Counted:
    """Everything counted by the DuckDB engine."""
    return count(lambda: DuckDB(threads=2).open(SCHEMA, path), SCHEMA.sizes, views_of(ATTRIBUTES, 2))


def on_spark(path: str, small: str, repeats: int) -> Counted:
    """Everything counted by Spark, the fastest of some runs in one session."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    count(lambda: Spark(session).open(SCHEMA, small), SCHEMA.sizes, views_of(ATTRIBUTES, 2))
    runs = [
        count(lambda: Spark(session).open(SCHEMA, path), SCHEMA.sizes, views_of(ATTRIBUTES, 2))
        for _ in range(repeats)
    ]
    session.stop()
    return min(runs, key=lambda each: each.seconds)


def main() -> int:
    """Print both times and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    if not find_spec("pyspark"):
        print("pyspark is not installed here; run this with .venv-extras/bin/python")
        return 0
    limits = Limits()
    [views] = views_of(ATTRIBUTES, 2)
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "people.parquet", Path(folder) / "few.parquet"
        write_parquet(path, asked.records, ATTRIBUTES)
        write_parquet(small, 100_000, ATTRIBUTES)
        runs = [apart(on_duckdb, str(path)) for _ in range(asked.repeats)]
        duck = min(runs, key=lambda each: each.seconds)
        spark = apart(on_spark, str(path), str(small), asked.repeats)
    print(f"{asked.records:,} records, {len(views)} views")
    print(duck.line("DuckDB engine, 2 threads", asked.records, len(views)))
    print(spark.line("Spark engine, local[2] (driver)", asked.records, len(views)))
    ratio = spark.seconds / duck.seconds
    print(f"  Spark takes {ratio:.2f} times as long (at most 4)")
    limits.check(ratio <= 4, f"Spark takes {ratio:.1f} times as long as DuckDB")
    limits.check(spark.checksum == duck.checksum, "the counts differ")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
