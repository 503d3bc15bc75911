"""The two laws of noise, by name, and how wide an interval of answers with such noise is."""

import math
from statistics import NormalDist
from typing import Literal

NoiseLaw = Literal["gaussian", "laplace"]
"""Gaussian noise has a privacy cost, the largest entry of the privacy matrix; Laplace noise an epsilon."""


def interval_margin(law: NoiseLaw, level: float) -> float:
    """Half the width of an interval, in standard deviations.

    Sums of Laplace noise lie between one Laplace number and a Gaussian one; the wider of the two is taken
    (claim H-004).

    >>> round(interval_margin("gaussian", 0.95), 3), round(interval_margin("laplace", 0.95), 3)
    (1.96, 2.118)
    """
    margin = NormalDist().inv_cdf(0.5 + level / 2)
    return margin if law == "gaussian" else max(margin, -math.log1p(-level) / math.sqrt(2))
