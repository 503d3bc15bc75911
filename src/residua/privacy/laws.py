"""The two laws of noise: what they cost, how wide they are, real or in whole numbers.

The cost of Gaussian noise is the largest entry of the privacy matrix and goes with one over its variance; the
cost of Laplace noise is an epsilon and goes with one over its scale, the square root of half the variance.
"""

import math
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError

Array = NDArray[np.float64]
NoiseLaw = Literal["gaussian", "laplace"]

_NARROWEST = 115.0  # half of one over a scale: the variance is then 1e-100, and not to be divided by below
_FEW_INTEGERS = (
    0.25  # below it the sum over integers converges fast, above it the sum over frequencies (N-021)
)
_SMOOTH = 4.0  # from which on the frequencies add less than floats hold
_TERMS = range(1, 9)


def noise_law(name: object) -> NoiseLaw:
    """The law that a file names."""
    if name == "gaussian":
        return "gaussian"
    if name == "laplace":
        return "laplace"
    raise FileFormatError(f"this version knows no noise of the law {name!r}")


def variance_ratio(law: NoiseLaw, factor: float) -> float:
    """What variances are divided by where the privacy cost is multiplied by `factor`."""
    return factor * factor if law == "laplace" else factor


def parameter_of(law: NoiseLaw, variance: float) -> float:
    """The parameter of real noise of this variance: the variance itself, or the scale."""
    return math.sqrt(variance / 2) if law == "laplace" else variance


def unit_variance(law: NoiseLaw) -> float:
    """Variance of real noise of parameter 1."""
    return 2.0 if law == "laplace" else 1.0


def integer_variances(law: NoiseLaw, parameters: Array) -> Array:
    """Variance of integer noise of each parameter, to float accuracy.

    Gaussian noise is rounded, which adds about a twelfth (N-021). Integers with probabilities in proportion
    to exp(-|k|/scale) have `1 / (2 sinh^2(1/2scale))`, less than real Laplace noise (N-030, H-002).

    >>> integer_variances("gaussian", np.array([100.0])), integer_variances("laplace", np.array([100.0]))
    (array([100.08333333]), array([19999.83333417]))
    """
    if law == "laplace":
        half = np.minimum(0.5 / parameters, _NARROWEST)  # where almost every number is zero
        return np.asarray(1.0 / (2.0 * np.sinh(half) ** 2))
    found = parameters + 1 / 12
    narrow = parameters < _SMOOTH
    found[narrow] = [_rounded_gaussian_variance(parameter) for parameter in parameters[narrow].tolist()]
    return found


def _rounded_gaussian_variance(square: float) -> float:
    if square < _FEW_INTEGERS:
        return math.fsum((2 * k - 1) * math.erfc((k - 0.5) / math.sqrt(2 * square)) for k in _TERMS)
    waves = (
        (-1) ** m * (4 * square + 1 / (math.pi * m) ** 2) * math.exp(-2 * math.pi**2 * m * m * square)
        for m in _TERMS
    )
    return math.fsum([square, 1 / 12, *waves])


def bound_divisor(law: NoiseLaw, allowed: Fraction) -> float:
    """What a lower bound at Gaussian cost 1 is divided by to hold at this cost (claim H-003).

    With Laplace noise of epsilon in all, no cell of the privacy matrix exceeds `2 sinh^2(epsilon / 2)`.
    """
    if law == "gaussian":
        return float(allowed)
    return 2.0 * math.sinh(min(float(allowed) / 2, 350.0)) ** 2


def interval_margin(law: NoiseLaw, level: float) -> float:
    """Half the width of an interval, in standard deviations.

    Sums of Laplace noise lie between one Laplace number and a Gaussian one; the wider of the two is taken
    (claim H-004).

    >>> round(interval_margin("gaussian", 0.95), 3), round(interval_margin("laplace", 0.95), 3)
    (1.96, 2.118)
    """
    margin = NormalDist().inv_cdf(0.5 + level / 2)
    return margin if law == "gaussian" else max(margin, -math.log1p(-level) / math.sqrt(2))
