"""The square root as a sum of simple fractions that never exceeds it by more than it says (claim B-007)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 1.5  # between the logarithms of neighbouring points


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Points s and weights w with `sum w x / (x + s) <= excess * sqrt(x)` for every x >= 0."""

    points: Array
    weights: Array

    @classmethod
    def between(cls, low: float, high: float) -> "Nodes":
        """Points from `low` to `high`, with weights that allow for those beyond.

        >>> nodes = Nodes.between(1e-3, 1e7)
        >>> x = np.geomspace(1, 1e4, 5)
        >>> sums = (nodes.weights * x[:, None] / (x[:, None] + nodes.points)).sum(axis=1)
        >>> bool(np.all(np.abs(sums / np.sqrt(x) - 1) < 1e-4)), bool(np.all(sums <= EXCESS * np.sqrt(x)))
        (True, True)
        """
        count = max(1, math.ceil(math.log(high / low) / STEP))
        points = low * np.exp(STEP * np.arange(count + 1))
        weights = (STEP / math.pi) * np.sqrt(points)
        # Below the first point x / (x + s) is at least what it is there; above the last one, at least
        # s_last / s of that. Both are geometric series with the same ratio.
        beyond = 1.0 / math.expm1(STEP / 2)
        weights[0] += weights[0] * beyond
        weights[-1] += weights[-1] * beyond if len(points) > 1 else 0.0
        return cls(points, weights)


_WAVE = math.exp(-2 * math.pi**2 / STEP)
EXCESS = 1.0 + 4 * _WAVE / (1 - _WAVE)
"""Bound on the ratio of the sum to the square root: 1 + 2 sum of sech(2 pi^2 m / step) over m >= 1."""
