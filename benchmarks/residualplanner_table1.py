"""Seconds from schema to saved plan for all marginals on at most three of d attributes of 10 values.

ResidualPlanner, Table 1 (the row d = 200 is in its Table 11); the published seconds are those of its
selection step alone, on another machine, so the ratio is indicative. Then 100 attributes of 2 to 101 values,
which the paper does not have. Every row is a fresh interpreter on one processor, the faster of two.

Fails if a row up to d = 100 takes a processor second or d = 200 takes 8: on an idle machine the clock shows
no more than that, and on a busy one it says little.
"""

import math
import sys

from _fresh import Row, answer_row, fresh
from _timing import Limits

import residua as rs

LINE = "{:>24}{:>10}{:>9}{:>9}{:>9}{:>8}{:>9}{:>11}{:>10}{:>9}"
PATIENCE = 60.0
UNEQUAL = 0  # stands for the schema of unequal attributes

# d: published seconds
PUBLISHED = {
    2: 0.001,
    6: 0.002,
    10: 0.009,
    12: 0.015,
    14: 0.025,
    15: 0.030,
    20: 0.079,
    30: 0.247,
    50: 1.207,
    100: 9.913,
    200: 80.120,
}


def workload(attributes: int) -> rs.Workload:
    """All marginals on at most three attributes."""
    sizes = list(range(2, 102)) if attributes == UNEQUAL else [10] * attributes
    return rs.marginals(rs.Schema.of_sizes(sizes), up_to=3)


def limit(attributes: int) -> float:
    """Seconds that a row may take."""
    return 1.0 if attributes <= 100 else 8.0


def show(name: str, work: rs.Workload, row: Row, published: float | None) -> None:
    """One line of the table."""
    theirs = "" if published is None else f"{published:.3f}"
    ratio = "" if published is None else f"{row.wall / published:.3f}"
    times = (f"{row.planning:.3f}", f"{row.wall:.3f}")
    figures = (*times, f"{row.cpu:.3f}", f"{row.peak:.0f}", f"{row.file:.2f}", f"{row.rmse:.3f}")
    print(LINE.format(name, work.tables, *figures, theirs, ratio), flush=True)


def main() -> int:
    if answer_row(workload, "residualplanner"):
        return 0
    limits = Limits()
    print(
        LINE.format(
            "d", "marginals", "plan s", "saved s", "cpu s", "MB", "file MB", "rmse", "theirs s", "ratio"
        )
    )
    for attributes, published in PUBLISHED.items():
        row = fresh(__file__, attributes, patience=PATIENCE, repeats=2)
        show(str(attributes), workload(attributes), row, published)
        most = limit(attributes)
        limits.check(row.cpu < most, f"d={attributes}: {row.cpu:.2f} s, not {most:g} s")
        limits.check(math.isfinite(row.wall), f"d={attributes}: not saved within {PATIENCE:g} s")
    unequal = fresh(__file__, UNEQUAL, patience=PATIENCE, repeats=2)
    show("100 of sizes 2 to 101", workload(UNEQUAL), unequal, None)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
