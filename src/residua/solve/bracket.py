"""Two true bounds on the optimum from one set of cell weights (claims S-001 to S-004).

For queries with gram `G = R'R` (`R` with independent rows) and cell weights `v >= 0`, let
`R diag(v) R' = U diag(t^2) U'`. Then for the total weighted variance at privacy cost 1

    (sum t)^2 / sum v                      is below every mechanism           (S-001)
    tr(K^-1) * max_i r_i' K r_i            is reached by X = R'KR, any K > 0  (S-002)

and `K = U diag(1/t) U'` makes the two meet at the optimum. The second holds for *any* positive
definite K, so small or inaccurate `t` can make it large but never false; the first takes off what
rounding can have added (S-003).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2


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
        return self.upper / self.lower - 1.0 if self.lower > 0 else np.inf

    def hessian_times(self, direction: Array) -> Array:
        """Second derivative of `-2 log trace` with respect to v, applied to a direction (S-005)."""
        z = self.directions
        inner = self._coupling() * ((z * direction) @ z.T)
        bend = np.einsum("ai,ai->i", z, inner @ z)
        return np.asarray(bend + 0.5 * self.slopes * (self.slopes @ direction))

    def hessian_diagonal(self) -> Array:
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
    largest where squaring (the default) stops near 1e-7.
    """
    rank, cells = root.shape
    if precise:
        left, scales, _ = np.linalg.svd(root * np.sqrt(weights), full_matrices=False)
        error = 4 * (rank + cells) * UNIT_ROUNDOFF * float(scales[0])
        proven = np.maximum(scales - error, 0.0)
        floor = error
    else:
        squares, left = np.linalg.eigh((root * weights) @ root.T)
        error = UNIT_ROUNDOFF * ((cells + 4) * float(np.sum(np.abs(squares))) + 4 * rank * float(squares[-1]))
        proven = np.sqrt(np.maximum(squares - error, 0.0))
        scales = np.sqrt(np.maximum(squares, 0.0))
        floor = float(np.sqrt(error))
    floored = np.maximum(scales, floor)  # any positive value keeps `upper` true (S-002)
    directions = left.T @ root
    trace = float(floored.sum())
    slopes = np.einsum("ai,ai->i", directions, directions / (trace * floored)[:, None])
    rounding = 8 * (rank + cells) * UNIT_ROUNDOFF
    lower = float(proven.sum()) ** 2 / float(weights.sum()) * (1 - rounding)
    upper = trace**2 * float(slopes.max()) * (1 + rounding)
    blur = 2 * (trace - float(proven.sum())) / trace
    return Bracket(lower, upper, trace, floored, directions, slopes, blur)
