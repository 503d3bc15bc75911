"""Two true bounds on the optimum from one set of cell weights (claims S-001 to S-004).

For queries with gram `G = R'R` (`R` with independent rows) and cell weights `v >= 0`, let
`R diag(v) R' = U diag(t^2) U'`. Then for the total weighted variance at privacy cost 1

    (sum t)^2 / sum v                      is below every mechanism           (S-001)
    tr(K^-1) * max_i r_i' K r_i            is reached by X = R'KR, any K > 0  (S-002)

and `K = U diag(1/t) U'` makes the two meet at the optimum. The first takes off what rounding can have
added; the second adds what rounding can have hidden, in K and in the matrix that is handed out (S-003).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.linalg.graded import jacobi_svd

Array = NDArray[np.float64]

UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2

GRADED = 1e-8  # ratio of the smallest to the largest t below which normwise accuracy is not enough
SMALLEST_RATIO = 1e-60  # of the smallest to the largest t: its cube must not underflow


@dataclass(frozen=True, slots=True)
class Bracket:
    """Bounds on the optimum from one evaluation, and what a next step needs.

    `scales` is t, shape (rank,), `trace` its sum; `directions` is Z = U'R, shape (rank, cells); `slopes` is
    `r_i' K r_i / trace`, shape (cells,), the slope of `2 log trace`: its mean under v is 1, and at the
    optimum (sum v = 1) none is above 1. `blur` is the part of the relative gap that rounding alone causes.
    """

    lower: float
    upper: float
    trace: float
    scales: Array
    directions: Array
    slopes: Array
    blur: float

    @property
    def gap(self) -> float:
        """Relative width of the bracket; infinite where nothing is proved."""
        return self.upper / self.lower - 1.0 if self.lower > 0 else np.inf

    def hessian_times(self, direction: Array) -> Array:
        """Second derivative of `-2 log trace` with respect to v, applied to a direction (S-005)."""
        z = self.directions
        inner = self._coupling() * ((z * direction) @ z.T)
        bend = np.einsum("ai,ai->i", z, inner @ z)
        return np.asarray(bend + 0.5 * self.slopes * (self.slopes @ direction))

    def hessian_diagonal(self) -> Array:
        """Diagonal of that second derivative, shape (cells,)."""
        squares = self.directions**2
        bend = np.einsum("ai,ai->i", squares, self._coupling() @ squares)
        return np.asarray(bend + 0.5 * self.slopes**2)

    def _coupling(self) -> Array:
        t = self.scales
        return np.asarray(1.0 / (self.trace * t[:, None] * t[None, :] * (t[:, None] + t[None, :])))

    def strategy(self) -> Array:
        """The mechanism that reaches `upper`: B, shape (rank, cells), with max_i (B'B)_ii = 1."""
        return np.asarray(self.directions / np.sqrt(self.scales * self.trace * self.slopes.max())[:, None])


def bracket(root: Array, weights: Array, *, precise: bool = False) -> Bracket:
    """Certified bounds on the optimum from cell weights v (positive, shape (cells,)).

    `root` is R, shape (rank, cells). One symmetric eigendecomposition of size rank; with
    `precise=True` a singular value decomposition instead, which resolves `t` down to 1e-14 of the
    largest (below that where rows differ in length) while squaring, the default, stops near 1e-7.
    Where the smallest `t` is not resolved, `upper` is infinite.
    """
    rank, cells = root.shape
    left, scales, proven, floor = _singular(root, weights) if precise else _squared(root, weights)
    floored = np.maximum(scales, floor)  # keeps the slopes finite where there is no upper bound
    directions = left.T @ root
    trace = float(floored.sum())
    slopes = np.einsum("ai,ai->i", directions, directions / (trace * floored)[:, None])
    rounding = 8 * (rank + cells) * UNIT_ROUNDOFF
    lower = float(proven.sum()) ** 2 / float(weights.sum()) * (1 - rounding)
    upper = np.inf
    if scales.min() > floor:
        upper = _reached(root, weights, left, scales, trace * slopes) * (1 + rounding)
    blur = 2 * (trace - float(proven.sum())) / trace
    return Bracket(lower, upper, trace, floored, directions, slopes, blur)


def _squared(root: Array, weights: Array) -> tuple[Array, Array, Array, float]:
    """U, t, a lower bound on every t, and what t must exceed to be resolved, from `R diag(v) R'`."""
    rank, cells = root.shape
    squares, left = np.linalg.eigh((root * weights) @ root.T)
    error = UNIT_ROUNDOFF * ((cells + 4) * float(np.sum(np.abs(squares))) + 4 * rank * float(squares[-1]))
    scales = np.sqrt(np.maximum(squares, 0.0))
    return left, scales, np.sqrt(np.maximum(squares - error, 0.0)), float(np.sqrt(error))


def _singular(root: Array, weights: Array) -> tuple[Array, Array, Array, float]:
    """The same from the singular values of `R diag(v)^1/2`.

    Where they spread widely, by Jacobi rotations, so that a light query keeps its own digits in the strategy
    beside a heavy one.
    """
    rank, cells = root.shape
    scaled = root * np.sqrt(weights)
    left, scales, _ = np.linalg.svd(scaled, full_matrices=False)
    if scales[-1] <= GRADED * scales[0]:
        left, scales, _ = jacobi_svd(scaled)
    error = 4 * (rank + cells) * UNIT_ROUNDOFF * float(scales[0])
    return left, scales, np.maximum(scales - error, 0.0), SMALLEST_RATIO * float(scales[0])


def _reached(root: Array, weights: Array, left: Array, scales: Array, costs: Array) -> float:
    """What the strategy made of these U and t reaches, rounding of `U'R` included (S-003).

    Infinite where rounding could have made the rows of the strategy dependent.
    """
    unit = (len(root) + 4) * UNIT_ROUNDOFF
    hidden = unit * (np.sqrt(np.sum(left**2 / scales, axis=1)) @ np.abs(root))  # (cells,)
    cost = float(np.max((np.sqrt(costs) + hidden) ** 2))
    lengths = np.sqrt(root**2 @ weights)
    drift = 2 * unit * (np.abs(left).T @ lengths)  # (rank,)
    if float(np.sum(drift / scales)) >= 1:
        return np.inf
    trace = float(np.sum(scales) + 2 * np.sum(drift) + (drift @ drift) * np.sum(1 / scales))
    return trace * cost
