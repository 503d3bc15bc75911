"""Exact draws of many blocks of noise at once, each block with a parameter of its own.

`owner` names the block of every value, shape (count,). A draw is decided in floats where their proved error
leaves no doubt, and otherwise by `Uniform`, with more random bits and ball arithmetic (N-002).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from residua.noise.comparison import Uniform, steps_reached
from residua.noise.quantiles import BITS, Integers, Quantiles, exponential, half_normal
from residua.noise.source import Source, Words

if TYPE_CHECKING:
    from flint import arb

Owner = NDArray[np.intp]

MARGIN = 2.0**-46  # more than three times what floats can be wrong by (N-012); infinity leaves all to balls

_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Stairs:
    """What floor(scale * X + shift) is drawn with, for X half-normal or exponential."""

    quantiles: Callable[[], Quantiles]
    shift: float
    scale: Callable[[Fraction], float]  # of a block's parameter
    reaching: Callable[[Fraction, int], "arb"]  # probability of k or more, at a block's parameter
    guess: Callable[[float], float]  # roughly the x that is exceeded with a given probability


def _gaussian_reaching(variance: Fraction, k: int) -> "arb":
    """P(sigma |N| + 1/2 >= k)."""
    return ball((k - _HALF) ** 2 / (2 * variance)).sqrt().erfc()


def _geometric_reaching(scale: Fraction, k: int) -> "arb":
    """P(scale * E >= k), E exponential."""
    return ball(-k / scale).exp()


GAUSSIAN = Stairs(
    quantiles=half_normal,
    shift=0.5,
    scale=lambda variance: math.sqrt(float(variance)),
    reaching=_gaussian_reaching,
    guess=lambda v: -NormalDist().inv_cdf(v / 2),
)
GEOMETRIC = Stairs(
    quantiles=exponential,
    shift=0.0,
    scale=float,
    reaching=_geometric_reaching,
    guess=lambda v: -math.log(v),
)


def rounded_gaussian(source: Source, variances: Sequence[Fraction], owner: Owner) -> Integers:
    """round(N(0, variance)) for each value (N-020)."""
    words = source.words(len(owner))
    magnitudes = climb(GAUSSIAN, source, words, variances, owner)
    signs = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    return signs * magnitudes


def discrete_laplace(source: Source, scales: Sequence[Fraction], owner: Owner) -> Integers:
    """The difference of two geometric numbers for each value (N-030)."""
    first = climb(GEOMETRIC, source, source.words(len(owner)), scales, owner)
    second = climb(GEOMETRIC, source, source.words(len(owner)), scales, owner)
    return first - second


def climb(
    stairs: Stairs, source: Source, words: Words, parameters: Sequence[Fraction], owner: Owner
) -> Integers:
    """floor(scale * X + shift) for the X whose uniform number starts with the first 63 bits of each word."""
    parts = (words >> np.uint64(1)).view(np.int64)
    scales = np.array([stairs.scale(parameter) for parameter in parameters])[owner]
    heights = scales * stairs.quantiles()(parts) + stairs.shift
    floors = np.floor(heights)
    above = heights - floors  # exact
    slack = (scales + 1) * MARGIN
    sure = (above > slack) & (above < 1 - slack)  # not-a-number, below the table, is never sure
    steps = np.where(sure, floors, 0).astype(np.int64)
    for index in np.flatnonzero(~sure):
        steps[index] = climb_exactly(stairs, source, int(parts[index]), parameters[owner[index]])
    return steps


def climb_exactly(stairs: Stairs, source: Source, part: int, parameter: Fraction) -> int:
    """The same floor for one value, decided by ball arithmetic (N-003)."""
    uniform = Uniform(source, part, BITS)
    roughly = stairs.scale(parameter) * stairs.guess((part + 0.5) / 2**BITS) + stairs.shift
    return steps_reached(lambda k: uniform.below(lambda: stairs.reaching(parameter, k)), math.floor(roughly))


def ball(number: Fraction) -> "arb":
    """The ball of a fraction at flint's working precision."""
    from flint import arb, fmpq

    return arb(fmpq(number.numerator, number.denominator))
