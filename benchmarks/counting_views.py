"""Counting very many views: all marginals on 1 to 3 of 40 attributes of size 10 (10,700 views), 1 million
records, in memory and from a Parquet file.

Fails if the two counts differ, if a view costs more than 3 nanoseconds a record, or if counting takes more
than 2 GB.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _counting import SIZE, Counted, apart, count, views_of, write_parquet
from _timing import Limits

import residua as rs
from residua.engines import DuckDB, Engine, Memory

ATTRIBUTES = 40


def counted(path: str, in_memory: bool) -> Counted:
    """Everything counted by one of the engines."""
    from pyarrow import parquet

    schema = rs.Schema.of_sizes([SIZE] * ATTRIBUTES)

    def opened() -> Engine:
        return Memory().open(schema, parquet.read_table(path)) if in_memory else DuckDB().open(schema, path)

    return count(opened, schema.sizes, views_of(ATTRIBUTES, 1, 2, 3))


def main() -> int:
    """Print time and memory of both engines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    limits = Limits()
    views = sum(map(len, views_of(ATTRIBUTES, 1, 2, 3)))
    print(f"{views:,} views of {ATTRIBUTES} attributes of size {SIZE}, {records:,} records")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        write_parquet(path, records, ATTRIBUTES)
        found = {name: apart(counted, str(path), name == "memory") for name in ("memory", "DuckDB")}
    for name, each in found.items():
        print(each.line(f"{name} engine", records, views))
        step = each.seconds / records / views * 1e9
        limits.check(step <= 3, f"a view costs {step:.1f} ns a record on the {name} engine, not 3")
        limits.check(each.peak <= 2000, f"the {name} engine takes {each.peak:.0f} MB, not 2,000")
    limits.check(len({each.checksum for each in found.values()}) == 1, "the counts differ")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
