"""The certified solver: least total weighted variance at privacy cost 1, over all linear mechanisms.

Two fixed-point steps `v_i <- v_i * slope_i`, then interior-point Newton steps. Both meet every bracket they
make on the way, so the search stops as soon as the best two bounds seen are close enough.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from residua.solve.bracket import Bracket, bracket
from residua.solve.newton import newton_steps, worth_another_step
from residua.solve.solution import Solution

Array = NDArray[np.float64]

DEFAULT_TOLERANCE = 1e-6
PATIENCE = 20  # evaluations in which the gap must halve
MOST_EVALUATIONS = 400
BLUR_SHARE = 0.25  # of the tolerance: above this, rounding is in the way and brackets are made precisely
FIXED_POINT_STEPS = 2

Progress = Callable[[int, float], None]


def solve_cells(
    root: Array,
    tolerance: float = DEFAULT_TOLERANCE,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Solution:
    """The best mechanism found for queries with gram `root' root`, with its certified bracket.

    `root` is (rank, cells) with independent rows. `start` are cell weights of a similar problem.
    Deterministic. Stops when the relative gap is at most `tolerance`, or when no step makes progress any
    more: the caller checks with `solution.require(tolerance)`. `progress` is called with the number of
    evaluations so far and the gap.
    """
    support = np.flatnonzero(np.any(root != 0, axis=0))
    if not len(support):
        raise ValueError("the queries are all zero: there is nothing to measure")
    exponent = int(np.frexp(np.abs(root).max())[1])  # squares must not underflow; a power of two is exact
    search = _Search(np.ldexp(root[:, support], -exponent), tolerance, progress)
    weights = np.full(len(support), 1.0 / len(support))
    if start is not None:
        weights = _usable(start[support], weights)
    weights = search.fixed_point(weights)
    if not search.done:
        search.newton(weights)
    return search.solution(support, root.shape[1], exponent)


def _usable(start: Array, uniform: Array) -> Array:
    """`start`, normalised and mixed with a little of the uniform weights so that no cell is cut off."""
    positive = np.where(np.isfinite(start) & (start > 0), start, 0.0)
    total = positive.sum()
    if not 0 < total < np.inf:
        return uniform
    return np.asarray(0.999 * positive / total + 0.001 * uniform)


class _Search:
    """The best bounds seen so far; every evaluation goes through `look`."""

    def __init__(self, root: Array, tolerance: float, progress: Progress | None) -> None:
        self.root = root
        self.tolerance = tolerance
        self.progress = progress
        self.precise = False
        self.lower = 0.0
        self.lower_weights = np.ones(root.shape[1])
        self.best: Bracket | None = None
        self.gaps: list[float] = []

    def look(self, weights: Array) -> Bracket:
        seen = bracket(self.root, weights, precise=self.precise)
        if not self.precise and (seen.blur > BLUR_SHARE * self.tolerance or seen.upper == np.inf):
            self.precise = True
            seen = bracket(self.root, weights, precise=True)
        if seen.lower > self.lower:
            self.lower, self.lower_weights = seen.lower, weights / weights.sum()
        if self.best is None or seen.upper < self.best.upper:
            self.best = seen
        self.gaps.append(self.best.upper / self.lower - 1.0 if self.lower > 0 else np.inf)
        if self.progress is not None:
            self.progress(len(self.gaps), self.gap)
        return seen

    @property
    def gap(self) -> float:
        return self.gaps[-1] if self.gaps else np.inf

    @property
    def done(self) -> bool:
        return self.gap <= self.tolerance

    def keep_going(self) -> bool:
        return worth_another_step(self.gaps, self.tolerance, MOST_EVALUATIONS, PATIENCE)

    def fixed_point(self, weights: Array) -> Array:
        """Weights (sum 1) after the first steps."""
        for _ in range(FIXED_POINT_STEPS):
            seen = self.look(weights)
            if self.done:
                break
            weights = weights * seen.slopes
        return weights

    def newton(self, weights: Array) -> None:
        """Newton steps on `sum v - 2 log tr S`, whose optimum has sum v = 1."""
        price = np.ones(len(weights))
        newton_steps(self.look, weights, price, self.gap, self.tolerance, self.keep_going)

    def solution(self, support: NDArray[np.intp], cells: int, exponent: int) -> Solution:
        """The best of both bounds, on all cells and for the root as it was before scaling."""
        if self.best is None:
            raise ValueError("no evaluation was made")
        local = self.best.strategy()
        strategy = np.zeros((local.shape[0], cells))
        strategy[:, support] = local
        weights = np.zeros(cells)
        weights[support] = self.lower_weights
        lower, upper = (math.ldexp(bound, 2 * exponent) for bound in (self.lower, self.best.upper))
        return Solution(strategy, weights, lower, upper, len(self.gaps))
