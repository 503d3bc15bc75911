"""Counting a Parquet file that is larger than the memory limit: 100 million records, all 2-way marginals of
10 attributes of size 10 (45 views).

Fails if counting takes more memory than the limit (over what the process had when it began), if the file is
not larger than the limit, or if a view does not add up to the number of records.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _counting import SIZE, Counted, apart, count, views_of, write_parquet
from _timing import Limits, timed

import residua as rs
from residua.engines import DuckDB
from residua.engines.sources import bytes_of

ATTRIBUTES = 10


def counted(path: str, limit: str, records: int) -> Counted:
    """Everything counted by the DuckDB engine within a limit."""
    schema = rs.Schema.of_sizes([SIZE] * ATTRIBUTES)
    engine = DuckDB(memory_limit=limit)
    found = count(lambda: engine.open(schema, path), schema.sizes, views_of(ATTRIBUTES, 2))
    assert engine.open(schema, path).records == records
    return found


def main() -> int:
    """Print the size of the file, the limit, time and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--limit", default="250MB", help="memory limit")
    asked = parser.parse_args()
    limits = Limits()
    [views] = views_of(ATTRIBUTES, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        made = timed(lambda: write_parquet(path, asked.records, ATTRIBUTES))
        size, room = path.stat().st_size, bytes_of(asked.limit)
        print(f"{asked.records:,} records, {size / 1e6:.0f} MB of Parquet (made in {made.wall:.0f} s)")
        found = apart(counted, str(path), asked.limit, asked.records)
    print(found.line(f"DuckDB engine within {asked.limit}", asked.records, len(views)))
    used = (found.peak - found.before) * 1e6
    print(f"  memory: {used / room:.2f} of the limit, {used / size:.2f} of the file")
    limits.check(size > room, "the file is not larger than the limit; ask for more records or a lower limit")
    limits.check(used <= room, f"counting took {used / 1e6:.0f} MB, more than {asked.limit}")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
