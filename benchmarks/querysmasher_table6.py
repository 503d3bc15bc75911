"""Seconds from schema to saved plan for all one-way and two-way prefixes of d attributes of n cells.

QuerySmasher, Table 6. Every row is a fresh interpreter on one processor, the faster of two. The ratio to
the published total is indicative: that was measured on another machine (128 cores), and includes measuring
and answering.

Fails if a row takes 2 processor seconds: on an idle machine the clock shows no more than that, and on a busy
one it says little. There is one distinct block however many attributes there are, so the ratio of d = 50 to
d = 10 shows the bookkeeping for 23 times as many tables.
"""

import math
import sys

from _fresh import Row, answer_row, fresh
from _timing import Limits

import residua as rs

SECONDS = 2.0
PATIENCE = 30.0
ATTRIBUTES = (10, 20, 30, 40, 50)
LINE = "{:>4}{:>4}{:>7}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>10}"

# n: published seconds for each number of attributes
PUBLISHED = {
    10: (2.8, 4.4, 2.6, 7.2, 9.7),
    20: (2.7, 4.3, 6.4, 8.2, 10.2),
    30: (3.6, 7.1, 10.0, 12.8, 16.6),
    40: (4.9, 9.3, 14.9, 20.6, 37.7),
}


def workload(size: int, attributes: int) -> rs.Workload:
    """All one-way and two-way prefixes."""
    return rs.all_tables(rs.Schema.of_sizes([size] * attributes), (1, 2), rs.prefix)


def show(size: int, attributes: int, row: Row, published: float) -> None:
    """One line of the table."""
    views = attributes * (attributes + 1) // 2
    print(
        LINE.format(
            size,
            attributes,
            views,
            f"{row.planning:.2f}",
            f"{row.wall:.2f}",
            f"{row.cpu:.2f}",
            f"{row.peak:.0f}",
            f"{row.rmse:.3f}",
            f"{row.gap:.0e}",
            f"{published:.1f}",
            f"{row.wall / published:.3f}",
        ),
        flush=True,
    )


def main() -> int:
    if answer_row(workload, "querysmasher"):
        return 0
    limits = Limits()
    print(
        LINE.format("n", "d", "views", "plan s", "saved s", "cpu s", "MB", "rmse", "gap", "theirs s", "ratio")
    )
    for size, published in PUBLISHED.items():
        rows = [fresh(__file__, size, attributes, patience=PATIENCE, repeats=2) for attributes in ATTRIBUTES]
        for attributes, row, theirs in zip(ATTRIBUTES, rows, published, strict=True):
            show(size, attributes, row, theirs)
            name = f"n={size} d={attributes}"
            limits.check(row.cpu < SECONDS, f"{name}: {row.cpu:.2f} s, not {SECONDS:g} s")
            limits.check(math.isfinite(row.wall), f"{name}: not saved within {PATIENCE:g} s")
        print(f"     n={size}: d=50 takes {rows[-1].cpu / rows[0].cpu:.2f} times the processor time of d=10")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
