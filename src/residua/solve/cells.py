"""The certified solver: least total weighted variance at privacy cost 1, over all linear mechanisms."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from residua.solve.bracket import Bracket, bracket
from residua.solve.newton import newton_steps
from residua.solve.quasi_newton import Point, descend
from residua.solve.solution import Solution

Array = NDArray[np.float64]

DEFAULT_TOLERANCE = 1e-6
PATIENCE = 12  # evaluations in which the gap must halve, or the other kind of step takes over
MOST_EVALUATIONS = 400
BLUR_SHARE = 0.25  # of the tolerance: above this, rounding is in the way and brackets are made precisely
FULL_RANK = 0.9  # rank / cells above which no weight tends to zero and quasi-Newton steps do best

Progress = Callable[[int, float], None]


def solve_cells(
    root: Array,
    tolerance: float = DEFAULT_TOLERANCE,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Solution:
    """The best mechanism found for queries with gram `root' root`, with its certified bracket.

    `root` is (rank, cells) with independent rows. `start` are cell weights of a similar problem.
    Deterministic. Stops when the relative gap is at most `tolerance`, or when neither kind of step
    makes progress: the caller checks with `solution.require(tolerance)`. `progress` is called with the
    number of evaluations so far and the gap.
    """
    support = np.flatnonzero(np.any(root != 0, axis=0))
    search = _Search(root[:, support], tolerance, progress)
    weights = np.full(len(support), 1.0 / len(support))
    if start is not None:
        weights = _usable(start[support], weights)
    if root.shape[0] > FULL_RANK * len(support):
        weights = search.quasi_newton(weights)
    if not search.done:
        search.newton(weights)
    return search.solution(support, root.shape[1])


def _usable(start: Array, uniform: Array) -> Array:
    """`start`, normalised and mixed with a little of the uniform weights so that no cell is cut off."""
    positive = np.where(np.isfinite(start) & (start > 0), start, 0.0)
    if positive.sum() <= 0:
        return uniform
    return np.asarray(0.999 * positive / positive.sum() + 0.001 * uniform)


class _Search:
    """The best bounds seen so far; every evaluation goes through `look`."""

    def __init__(self, root: Array, tolerance: float, progress: Progress | None) -> None:
        self.root = root
        self.tolerance = tolerance
        self.progress = progress
        self.precise = False
        self.evaluations = 0
        self.lower = 0.0
        self.lower_weights = np.ones(root.shape[1])
        self.best: Bracket | None = None
        self.gaps: list[float] = []

    def look(self, weights: Array) -> Bracket:
        self.evaluations += 1
        seen = bracket(self.root, weights, precise=self.precise)
        if not self.precise and seen.blur > BLUR_SHARE * self.tolerance:
            self.precise = True
            seen = bracket(self.root, weights, precise=True)
        if seen.lower > self.lower:
            self.lower, self.lower_weights = seen.lower, weights / weights.sum()
        if self.best is None or seen.upper < self.best.upper:
            self.best = seen
        self.gaps.append(self.gap)
        if self.progress is not None:
            self.progress(self.evaluations, self.gap)
        return seen

    @property
    def gap(self) -> float:
        if self.best is None or self.lower <= 0:
            return np.inf
        return self.best.upper / self.lower - 1.0

    @property
    def done(self) -> bool:
        return self.gap <= self.tolerance

    def _halving_since(self, first: int) -> Callable[[], bool]:
        """Whether to go on: not done, and the gap still halves within PATIENCE evaluations."""

        def keep_going() -> bool:
            if self.done or self.evaluations >= MOST_EVALUATIONS:
                return False
            recent = self.gaps[first:]
            return len(recent) <= PATIENCE or recent[-1] <= 0.5 * recent[-1 - PATIENCE]

        return keep_going

    def quasi_newton(self, weights: Array) -> Array:
        """Weights after quasi-Newton steps on log v of `log sum v - 2 log tr S`."""

        def evaluate(logs: Array) -> Point:
            v = _softmax(logs)
            seen = self.look(v)
            return Point(-2 * np.log(seen.trace), v * (1 - seen.slopes / seen.trace), v)

        logs = descend(evaluate, np.log(weights), self._halving_since(self.evaluations))
        return _softmax(logs)

    def newton(self, weights: Array) -> None:
        newton_steps(self.look, weights, self.tolerance, self._halving_since(self.evaluations))

    def solution(self, support: NDArray[np.intp], cells: int) -> Solution:
        if self.best is None:
            raise ValueError("no evaluation was made")
        local = self.best.strategy()
        strategy = np.zeros((local.shape[0], cells))
        strategy[:, support] = local
        weights = np.zeros(cells)
        weights[support] = self.lower_weights
        return Solution(strategy, weights, self.lower, self.best.upper, self.evaluations)


def _softmax(logs: Array) -> Array:
    shifted = np.exp(logs - logs.max())
    return np.asarray(shifted / shifted.sum())
