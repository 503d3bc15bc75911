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

    `scales` is t, shape (rank,); `directions` is Z = U'R, shape (rank, cells); `slopes` is
    `r_i' K r_i`, shape (cells,): at the optimum `slopes <= trace` with equality where v > 0 (sum v = 1).
    `blur` is the part of the relative gap that rounding alone causes.
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

    def strategy(self) -> Array:
        """The mechanism that reaches `upper`: B, shape (rank, cells), with max_i (B'B)_ii = 1."""
        return self.directions / np.sqrt(self.scales * self.slopes.max())[:, None]


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
    slopes = np.einsum("ai,ai->i", directions, directions / floored[:, None])
    trace = float(floored.sum())
    rounding = 8 * (rank + cells) * UNIT_ROUNDOFF
    lower = float(proven.sum()) ** 2 / float(weights.sum()) * (1 - rounding)
    upper = trace * float(slopes.max()) * (1 + rounding)
    blur = 2 * (trace - float(proven.sum())) / trace
    return Bracket(lower, upper, trace, floored, directions, slopes, blur)
