"""Counting a file of 10 million invented records into the redistricting tables of a state of 25,000 blocks.

DuckDB counts all six levels by race, origin and voting age from a Parquet file with a memory limit of 1 GB.
The other side is the memory engine on the same codes.

Fails if a count differs, or if counting held more than the limit beside what was held before.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from places import LEVELS, STATE, people, places, redistricting
from pyarrow import parquet

import residua as rs
from residua.kernel.measuring import counted_answers

LIMIT = 1.0  # GB
ROWS = 1_000_000  # of the file that are made at a time


def held() -> float:
    """Gigabytes held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def written(path: Path, schema: rs.Schema, records: int) -> None:
    """A file with the labels of invented people, in parts."""
    labels = [np.array(schema[name].labels()) for name in schema.names]
    writer = None
    for start in range(0, records, ROWS):
        codes = people(schema, min(ROWS, records - start))
        columns = {
            name: own[codes[:, at]] for at, (name, own) in enumerate(zip(schema.names, labels, strict=True))
        }
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main(records: int) -> int:
    schema = rs.Schema(
        place=places(STATE, LEVELS), race=rs.Integer(0, 62), hispanic=rs.Integer(0, 1), adult=rs.Integer(0, 1)
    )
    plan = rs.plan(redistricting(schema), rs.zcdp(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        written(path, schema, records)
        before, start = held(), time.process_time()
        found = counted_answers(plan, path, None, rs.engines.DuckDB(memory_limit="1GB"))
        taken, most = time.process_time() - start, held()
    more = most - before
    print(
        f"{records:,} records by DuckDB: {taken:.1f} CPU s, {more:.2f} GB more than the {before:.2f} before"
    )
    codes = np.concatenate([people(schema, min(ROWS, records - at)) for at in range(0, records, ROWS)])
    start = time.process_time()
    again = counted_answers(plan, codes, None, rs.engines.Memory())
    print(f"{records:,} records in memory: {time.process_time() - start:.1f} CPU s")
    same = all(np.array_equal(own, other) for own, other in zip(found, again, strict=True))
    print("the counts are the same" if same else "the counts differ")
    return 0 if same and more <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000))
