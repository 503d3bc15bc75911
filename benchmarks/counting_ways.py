"""Three ways of counting a file with DuckDB: a GROUP BY for each view, one query with GROUPING SETS, and
streaming the records into the counting loop, which is what the DuckDB engine does (decision 0004).

Parquet files of 10 attributes of size 10, as small integers and as text; one view, all 45 2-way views, all
120 3-way views. The SQL is given the columns as they are: it need not code them, and it need not look at
those that no view has, as an engine must. A single view, which a GROUP BY is best at, is not judged.

Fails if streaming is not the fastest for many views.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from _counting import SIZE, count, views_of, write_parquet
from _timing import Limits, timed
from numpy.typing import NDArray

import residua as rs
from residua.engines import DuckDB

ATTRIBUTES = 10
KINDS = {"UTINYINT": rs.Integer(0, SIZE - 1), "VARCHAR": rs.Categorical(*map(str, range(SIZE)))}
LINE = "  {:<10}{:>6} views{:>12.2f} s{:>14.2f} s{:>12.2f} s"


def in_sql(path: Path, views: NDArray[np.int32], *, together: bool) -> None:
    """Count the views in SQL, one query each or one for all."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    sets = [", ".join(f"a{at}" for at in view) for view in views.tolist()]
    queries = [(each, each) for each in sets]
    if together:
        used = ", ".join(f"a{at}" for at in np.unique(views).tolist())
        queries = [(used, f"GROUPING SETS ({', '.join(f'({each})' for each in sets)})")]
    for columns, groups in queries:
        connection.execute(f"SELECT {columns}, count(*) FROM '{path}' GROUP BY {groups}").fetchnumpy()


def streamed(path: Path, schema: rs.Schema, views: NDArray[np.int32]) -> None:
    """Count the views with the DuckDB engine."""
    count(lambda: DuckDB(threads=2).open(schema, path), schema.sizes, [views])


def seconds(path: Path, schema: rs.Schema, views: NDArray[np.int32]) -> tuple[float, float, float]:
    """Wall seconds of the three ways."""
    return (
        timed(lambda: in_sql(path, views, together=False)).wall,
        timed(lambda: in_sql(path, views, together=True)).wall,
        timed(lambda: streamed(path, schema, views)).wall,
    )


def main() -> int:
    """Print the three times of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    records = parser.parse_args().records
    limits = Limits()
    print(f"{records:,} records; wall seconds")
    print("                           GROUP BYs  GROUPING SETS   streaming")
    pairs, triples = views_of(ATTRIBUTES, 2, 3)
    with tempfile.TemporaryDirectory() as folder:
        for kind, attribute in KINDS.items():
            path = Path(folder) / f"{kind}.parquet"
            write_parquet(path, records, ATTRIBUTES, kind)
            schema = rs.Schema({f"a{at}": attribute for at in range(ATTRIBUTES)})
            streamed(path, schema, pairs[:1])  # libraries load, and the file is in the system's cache for all
            for views in (pairs[:1], pairs, triples):
                each, sets, stream = seconds(path, schema, views)
                print(LINE.format(kind, len(views), each, sets, stream), flush=True)
                fastest = len(views) == 1 or stream <= min(each, sets)
                limits.check(fastest, f"{len(views)} views of {kind}: {stream:.2f} s streaming")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
