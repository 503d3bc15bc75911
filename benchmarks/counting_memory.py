"""Counting in memory: all 3-way marginals of 20 attributes of size 10, 1 million records (1,140 views).

The other side is DuckDB on the same codes in its own memory, one GROUP BY for each view; it counts every
tenth view, and its time is taken times ten.

Fails if counting in memory is not at least 5 times as fast, or if a count differs.
"""

import argparse
import sys
import time

import numpy as np
from _counting import SIZE, Counted, apart, codes_of, count, views_of
from _timing import Limits

from residua.engines import MemoryEngine, counts

ATTRIBUTES = 20


def ours(records: int) -> Counted:
    """Everything counted by the memory engine."""
    sizes = (SIZE,) * ATTRIBUTES
    codes = codes_of(records, ATTRIBUTES)
    return count(lambda: MemoryEngine(codes, sizes), sizes, views_of(ATTRIBUTES, 3))


def theirs(records: int) -> tuple[float, bool]:
    """Seconds of one GROUP BY per view for all views, and whether the counts are ours."""
    import duckdb
    import pyarrow as pa

    sizes = (SIZE,) * ATTRIBUTES
    codes = codes_of(records, ATTRIBUTES)
    table = pa.table({f"a{at}": codes[:, at] for at in range(ATTRIBUTES)})
    connection = duckdb.connect()
    connection.register("arrow", table)
    connection.execute("CREATE TABLE people AS SELECT * FROM arrow")
    [every] = views_of(ATTRIBUTES, 3)
    chosen = every[::10]
    start = time.perf_counter()
    found = []
    for view in chosen.tolist():
        names = ", ".join(f"a{at}" for at in view)
        found.append(
            connection.execute(f"SELECT {names}, count(*) FROM people GROUP BY {names}").fetchnumpy()
        )
    seconds = time.perf_counter() - start
    expected = counts(MemoryEngine(codes, sizes), sizes, chosen)
    same = True
    for columns, row in zip(found, expected, strict=True):
        *cell, many = (np.asarray(each, dtype=np.int64) for each in columns.values())
        place = np.ravel_multi_index(cell, (SIZE,) * 3)
        same &= bool((row[place] == many).all()) and int(row.sum()) == int(many.sum())
    return seconds * len(every) / len(chosen), same


def main() -> int:
    """Print both sides and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    limits = Limits()
    [views] = views_of(ATTRIBUTES, 3)
    print(f"all 3-way marginals of {ATTRIBUTES} attributes of size {SIZE}, {records:,} records")
    mine = min((apart(ours, records) for _ in range(3)), key=lambda each: each.seconds)
    print(mine.line("memory engine", records, len(views)))
    other, same = apart(theirs, records)
    print(f"  {'one DuckDB GROUP BY per view':<34}{other:>8.2f} s")
    ratio = other / mine.seconds
    print(f"  ratio {ratio:.1f} (at least 5)")
    limits.check(ratio >= 5, f"counting in memory is {ratio:.1f} times as fast, not 5")
    limits.check(same, "the counts differ")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
