"""Least privacy cost at which every query meets its variance target.

Xiao, Ding, Wang, Zhang and Kifer, Optimizing fitness-for-use of differentially private linear queries,
Table 2 (prefix queries, every target 1; its interior point method and SM-II print the same figures) and
Theorem 7 (identity and sum, every target gamma: cost 2d / (1 + d) / gamma). Takes a second.
"""

import sys

import numpy as np
from _comparison import Comparison
from numpy.typing import NDArray

from residua.solve.targets import TargetSolution, solve_targets

Array = NDArray[np.float64]

PREFIX_COST = {2: "1.33", 4: "1.76", 8: "2.28", 16: "2.91", 64: "4.46"}
GAP = 1e-6
IDENTITY_SUM_SIZES = (5, 10, 64, 256)
GAMMAS = (1.0, 4.0)


def prefix(size: int) -> TargetSolution:
    """The cheapest mechanism that answers every prefix with variance at most 1."""
    return solve_targets(np.eye(size), np.tri(size), np.ones(size), GAP).require(GAP)


def identity_and_sum(size: int, gamma: float) -> TargetSolution:
    """The cheapest mechanism that answers every cell and the total with variance at most gamma."""
    queries: Array = np.vstack([np.eye(size), np.ones((1, size))])
    return solve_targets(queries, np.eye(size), np.full(size + 1, gamma), GAP).require(GAP)


def main() -> int:
    table = Comparison("Fitness for use: squared privacy cost")
    for size, theirs in PREFIX_COST.items():
        found = prefix(size)
        note = f"gap {found.gap:.0e}, {found.evaluations} evaluations"
        table.at_most(f"Table 2: prefix, d = {size}", found.upper, theirs, note)
    for gamma in GAMMAS:
        for size in IDENTITY_SUM_SIZES:
            found = identity_and_sum(size, gamma)
            note = f"gap {found.gap:.0e}, {found.evaluations} evaluations"
            exact = 2 * size / (1 + size) / gamma
            table.close(f"Theorem 7: d = {size}, gamma = {gamma:g}", found.upper, exact, GAP, note)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
