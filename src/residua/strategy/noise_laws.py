"""What the two laws of noise have in common, and where they differ: costs, variances, bounds.

The cost of Gaussian noise is the largest entry of the privacy matrix and goes with one over its variance; the
cost of Laplace noise is an epsilon and goes with one over its scale, the square root of half the variance.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, Infeasible
from residua.privacy import NoiseLaw

Array = NDArray[np.float64]

NARROWEST = 115.0  # half of one over a scale: the variance is then 1e-100, and not to be divided by below
LARGEST_SCALE = 2.0**39  # of Laplace noise that is drawn; leaves room for counts in 64 bits


def variance_ratio(law: NoiseLaw, factor: float) -> float:
    """What variances are divided by where the privacy cost is multiplied by `factor`."""
    return factor * factor if law == "laplace" else factor


def column_costs(law: NoiseLaw, matrix: Array) -> Array:
    """Cost of a record of each cell at noise of parameter 1, shape (cells,): sums of squares, or of sizes."""
    if law == "laplace":
        return np.asarray(np.abs(matrix).sum(axis=0))
    return np.asarray(np.einsum("ri,ri->i", matrix, matrix))


def parameter_of(law: NoiseLaw, variance: float) -> float:
    """The parameter of real noise of this variance: the variance itself, or the scale."""
    return math.sqrt(variance / 2) if law == "laplace" else variance


def unit_variance(law: NoiseLaw) -> float:
    """Variance of real noise of parameter 1."""
    return 2.0 if law == "laplace" else 1.0


def laplace_variance(scales: Array) -> Array:
    """Variance of integers with probabilities in proportion to exp(-|k|/scale): `1 / (2 sinh^2(1/2scale))`.

    About `2 scale^2` where the scale is large, and less than that always (claim H-002).
    """
    half = np.minimum(0.5 / scales, NARROWEST)  # where almost every number is zero
    return np.asarray(1.0 / (2.0 * np.sinh(half) ** 2))


def bound_divisor(law: NoiseLaw, allowed: Fraction) -> float:
    """What a lower bound at Gaussian cost 1 is divided by to hold at this cost (claim H-003).

    With Laplace noise of epsilon in all, no cell of the privacy matrix exceeds `2 sinh^2(epsilon / 2)`.
    """
    if law == "gaussian":
        return float(allowed)
    return 2.0 * math.sinh(min(float(allowed) / 2, 350.0)) ** 2


def noise_law(name: object) -> NoiseLaw:
    """The law that a file names."""
    if name == "gaussian":
        return "gaussian"
    if name == "laplace":
        return "laplace"
    raise FileFormatError(f"this version knows no noise of the law {name!r}")


def refuse_wide_laplace(*scales: Fraction) -> None:
    """Infeasible if 64-bit integers cannot hold Laplace noise of these scales."""
    if not 1 / LARGEST_SCALE <= min(scales) <= max(scales) <= LARGEST_SCALE:
        raise Infeasible(
            "the Laplace noise of this plan does not fit 64-bit integers; plan for this budget (a plan made "
            "for another may not stretch so far), or with weights that differ less"
        )
