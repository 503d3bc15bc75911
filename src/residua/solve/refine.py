"""Of all cheapest mechanisms that meet the targets, the one with the least privacy profile (claim G-004).

The profile is what each cell costs. Its largest entry is the privacy cost; with that fixed, the largest of
the others is made as small as possible, and so on, level by level. What a cell may cost is its allowance `a`.
Allowances are met if the targets cost 1 with the root's columns divided by `sqrt(a)`; where they are not, the
dual weights of that problem say by how much the level must rise.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from residua.errors import NotConverged
from residua.solve.targets import TargetSolution, solve_targets

Array = NDArray[np.float64]

TOLERANCE = 1e-7  # gap to which each level is solved
LEEWAY = 3e-7  # by which all allowances may grow at each level, so that rounding never makes them contradict
MOST_RISES = 30  # Newton steps for one level
MOST_LEVELS = 60  # below them the profile stays as the last level left it
BOUND_BY = 1e-3  # of the mean weight of the cells in question: heavier cells hold the level up


def refined(coefficients: Array, root: Array, targets: Array, solution: TargetSolution) -> TargetSolution:
    """The solution with the least sorted profile; its privacy cost is the given one's, to 2e-5 at most."""
    seen = np.flatnonzero(np.any(root != 0, axis=0))
    columns = root[:, seen]
    least = np.max((coefficients @ columns) ** 2 / targets[:, None], axis=0)  # X_ii >= q_i^2 / c
    allowed = np.full(len(seen), solution.upper)
    found = solution.strategy[:, seen]
    open_cells = solution.cell_weights[seen] <= BOUND_BY / len(seen)
    for _ in range(MOST_LEVELS):
        if not open_cells.any():
            break
        allowed, found, weights = _level(coefficients, columns, targets, allowed, open_cells, least)
        share = weights[open_cells].mean()
        held = open_cells & (weights >= BOUND_BY * share)
        held |= open_cells & (weights == weights[open_cells].max())
        open_cells &= ~held
    strategy = np.zeros((len(found), root.shape[1]))
    strategy[:, seen] = found
    return _renewed(coefficients, root, targets, solution, strategy)


def _level(
    coefficients: Array,
    columns: Array,
    targets: Array,
    allowed: Array,
    open_cells: NDArray[np.bool_],
    least: Array,
) -> tuple[Array, Array, Array]:
    """Allowances with the least common one of the open cells; a mechanism within them; its cell weights.

    Newton steps from below: the share `s` of the open cells in the weights and the cost `b > 1` of the
    present allowances show that the level must rise by a factor of at least `1 + (b - 1) / s`.
    """
    level = float(least[open_cells].max())
    for _ in range(MOST_RISES):
        allowances = np.where(open_cells, level, allowed)
        scale = np.sqrt(allowances)
        tried = solve_targets(coefficients, columns / scale, targets, TOLERANCE)
        weights = tried.cell_weights
        if tried.upper <= 1 + LEEWAY:
            return allowances * max(tried.upper, 1.0), tried.strategy * scale, weights
        level *= 1 + (tried.upper - 1) / float(weights[open_cells].sum())
    raise NotConverged(
        f"a level of the privacy profile was not found in {MOST_RISES} steps; plan without refine",
        lower=tried.lower,
        upper=tried.upper,
    )


def _renewed(
    coefficients: Array, root: Array, targets: Array, solution: TargetSolution, strategy: Array
) -> TargetSolution:
    """The solution with another strategy, which is scaled until every target holds."""
    answers = np.linalg.lstsq(strategy.T, (coefficients @ root).T, rcond=None)[0]  # (rank, queries)
    variances = np.sum(answers**2, axis=0)
    worst = float(np.max(variances / targets)) * (1 + 1e-12)
    cost = float(np.max(np.sum(strategy**2, axis=0))) * worst
    return replace(solution, strategy=strategy * np.sqrt(worst), variances=variances / worst, upper=cost)
