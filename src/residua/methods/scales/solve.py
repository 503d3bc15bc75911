"""The best noise of blocks whose shapes are fixed: least privacy cost that meets a cap on every variance.

Query q has variance `sum_b h_qb s_b` under noise variances `s_b`, and the cost is `sum_b m_b / s_b`. The dual
is `maximise (sum_b sqrt(m_b sum_q u_q h_qb))^2 / sum_q u_q c_q` over u >= 0 (claim J-001), walked by the same
Newton steps as the dense problems, with sparse products only.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import NotConverged
from residua.solve.newton import newton_steps, worth_another_step

Array = NDArray[np.float64]

ROUNDING = 1e-12  # relative error of sums and roots of positive numbers, generously
MOST_EVALUATIONS = 300
PATIENCE = 25  # evaluations in which the gap must halve


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Noise variances by kind of block that meet every cap, and what is proved about their cost.

    `lower <= least cost <= upper`, for the shapes at hand. `prices` are shares of the caps in the bound, one
    per row, adding up to 1.
    """

    noise: Array
    prices: Array
    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """Relative width of the bracket."""
        return self.upper / self.lower - 1.0

    def require(self, tolerance: float) -> "Scales":
        """Itself, if its gap is at most `tolerance`; otherwise raise NotConverged."""
        if self.gap <= tolerance:
            return self
        raise NotConverged(
            f"the search for the blocks' noise stopped at a relative gap of {self.gap:.1e} instead of "
            f"{tolerance:.0e}; ask for a larger gap",
            lower=self.lower,
            upper=self.upper,
        )


def best_scales(rows: Any, many: Array, tolerance: float, start: Array | None = None) -> Scales:
    """The cheapest noise with `rows @ noise <= 1`.

    `rows` is a sparse matrix (queries, kinds of blocks) of figures over caps, `many` the number of blocks of
    each kind. `start` are prices to begin with.
    """
    search = _Search(rows, many, tolerance)
    weights = np.full(rows.shape[0], 1 / rows.shape[0]) if start is None else start
    for _ in range(3):
        weights = weights * search.look(weights).slopes
    newton_steps(search.look, weights, np.ones(len(weights)), search.gap, tolerance, search.keep_going)
    return Scales(search.noise, search.prices, search.lower, search.upper)


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """`-2 log sum_b sqrt(m_b (H'u)_b)` at one u: slopes and curvature, all by sparse products."""

    rows: Any
    squares: Any
    many: Array
    asked: Array  # H'u
    root: float
    slopes: Array

    def hessian_times(self, direction: Array) -> Array:
        bend = self.rows @ (self._curve() * (self.rows.T @ direction))
        return np.asarray(bend + 0.5 * self.slopes * float(self.slopes @ direction))

    def hessian_diagonal(self) -> Array:
        return np.asarray(self.squares @ self._curve() + 0.5 * self.slopes**2)

    def _curve(self) -> Array:
        return np.asarray(np.sqrt(self.many / self.asked) / self.asked / (2 * self.root))


class _Search:
    """The best bounds seen so far; every evaluation goes through `look`."""

    def __init__(self, rows: Any, many: Array, tolerance: float) -> None:
        self.rows, self.many, self.tolerance = rows, many, tolerance
        self.squares = rows.multiply(rows).tocsr()
        self.lower, self.upper = 0.0, math.inf
        self.noise, self.prices = np.ones(len(many)), np.ones(rows.shape[0])
        self.gaps: list[float] = []

    def look(self, weights: Array) -> _View:
        asked = np.asarray(self.rows.T @ weights)
        noise = np.sqrt(self.many / asked)
        variances = np.asarray(self.rows @ noise)
        root = float(np.sqrt(self.many * asked).sum())  # also the cost of this noise
        lower = root**2 / float(weights.sum()) * (1 - ROUNDING)
        largest = float(variances.max())
        if lower > self.lower:
            self.lower, self.prices = lower, weights / weights.sum()
        if root * largest * (1 + ROUNDING) < self.upper:
            self.upper, self.noise = root * largest * (1 + ROUNDING), noise / largest
        self.gaps.append(self.gap)
        return _View(self.rows, self.squares, self.many, asked, root, variances / root)

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1.0 if self.lower > 0 else math.inf

    def keep_going(self) -> bool:
        return worth_another_step(self.gaps, self.tolerance, MOST_EVALUATIONS, PATIENCE)
