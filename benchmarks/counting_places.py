"""Counting a file of 10 million invented records into the redistricting tables of a state of 25,000 blocks.

DuckDB counts all six levels by race, origin and voting age from a Parquet file with a memory limit of 1 GB,
part by part from the cells that occur, as a release in parts does, and at once; Spark, where it is installed,
counts the same file part by part. The other side is the memory engine on the same codes, at once.

Fails if a count differs, or if counting held more than the limit beside what was held before.
"""

import os
import resource
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from places import LEVELS, STATE, people, places, redistricting
from pyarrow import parquet

import residua as rs
from residua.engines import Opener
from residua.kernel.measuring import counted_answers
from residua.kernel.parts import Counted
from residua.strategy.parts import parts_of

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


def in_parts(plan: rs.Plan, data: object, engine: Opener) -> list[np.ndarray]:
    """Exact answers of every batch, put together from those of the parts."""
    parts = parts_of(plan.strategy)
    assert parts is not None
    counted = Counted(plan, parts, data, None, engine)
    found = [np.zeros((len(batch.subsets), batch.rows), dtype=np.int64) for batch in plan.batches]
    for at, own in counted.rest.items():
        found[at][:] = own
    for part in range(len(parts)):
        for at, own in counted.of_part(part).items():
            found[at][parts.blocks(at, part)] = own
    return found


def at_once(plan: rs.Plan, data: object, engine: Opener) -> list[np.ndarray]:
    """Exact answers of every batch."""
    return counted_answers(plan, data, None, engine)


def spark() -> Opener:
    """Spark on this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR"}
    return rs.engines.Spark(SparkSession.builder.master("local[2]").config(map=settings).getOrCreate())


def main(records: int) -> int:
    schema = rs.Schema(
        place=places(STATE, LEVELS), race=rs.Integer(0, 62), hispanic=rs.Integer(0, 1), adult=rs.Integer(0, 1)
    )
    plan = rs.plan(redistricting(schema), rs.zcdp(1))
    limited: Opener = rs.engines.DuckDB(memory_limit="1GB")
    ways = [("DuckDB in parts", in_parts, limited), ("DuckDB at once", at_once, limited)]
    ways += [("Spark in parts", in_parts, spark())] if find_spec("pyspark") else []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        written(path, schema, records)
        for name, way, engine in ways:
            before, start, clock = held(), time.process_time(), time.perf_counter()
            found.append(way(plan, path, engine))
            taken, passed, more = time.process_time() - start, time.perf_counter() - clock, held() - before
            print(
                f"{name}: {taken:.1f} CPU s here, {passed:.1f} s by the clock, {more:.2f} GB more than the "
                f"{before:.2f} before",
                flush=True,
            )
            assert more <= LIMIT, f"{more:.2f} GB were held"
    codes = np.concatenate([people(schema, min(ROWS, records - at)) for at in range(0, records, ROWS)])
    start = time.process_time()
    known = at_once(plan, codes, rs.engines.Memory())
    print(f"{records:,} records in memory at once: {time.process_time() - start:.1f} CPU s")
    same = all(np.array_equal(*pair) for each in found for pair in zip(each, known, strict=True))
    print("the counts are the same" if same else "the counts differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000))
