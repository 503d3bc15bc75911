"""Half-normal and exponential quantiles in floats, with a proved error.

No library's word is taken for the error: each piece of the range has a centre that ball arithmetic encloses,
and a Taylor polynomial around it whose remainder and rounding errors are bounded on paper (N-010, N-011).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from residua._arrays import Array, Integers

if TYPE_CHECKING:
    from flint import arb

# A uniform number V is known through its first 63 bits, the integer `part`: part <= 2^63 V <= part + 1.
BITS = 63
# V is covered from 2^-14 to 1. Each octave [2^e, 2^(e+1)) is cut into 2^7 pieces of equal width.
OCTAVES = 14
PIECE_BITS = 7

_ASKED = 100  # times that an enclosure is asked for

_LOW_BITS = np.int64(2**10 - 1)  # without them a part is a float exactly
_SHIFT = 52 - PIECE_BITS  # leaves a float's exponent and the first bits after it: the piece
_FIRST = ((1023 + BITS - OCTAVES) << PIECE_BITS) - 1  # the first piece gets row 1; row 0 is below the table


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Taylor polynomials of x(V), where V is the probability of exceeding x; row 0 holds not-a-number."""

    centres: Integers  # (1 + pieces,), 2^63 V at the centre
    coefficients: Array  # (7, 1 + pieces), of the powers of centre - part

    def __post_init__(self) -> None:
        self.centres.setflags(write=False)
        self.coefficients.setflags(write=False)

    def __call__(self, parts: Integers) -> Array:
        """The x of each part, within 25 * 2^-53 of x(V); not-a-number where V < 2^-14."""
        floats = (parts & ~_LOW_BITS).astype(np.float64)
        piece = np.maximum((floats.view(np.int64) >> _SHIFT) - _FIRST, 0)
        away = (self.centres.take(piece) - parts).astype(np.float64)
        x: Array = self.coefficients[-1].take(piece)
        for row in self.coefficients[-2::-1]:
            x *= away
            x += row.take(piece)
        return x


def roughly_half_normal(v: float) -> float:
    """About the x that |N(0, 1)| exceeds with probability v; nothing exact rests on it."""
    return -NormalDist().inv_cdf(v / 2)


def roughly_exponential(v: float) -> float:
    """About the x that an exponential number of mean 1 exceeds with probability v."""
    return -math.log(v)


@cache
def half_normal() -> Quantiles:
    """Quantiles of |N(0, 1)|: V = erfc(x / sqrt 2)."""
    from flint import arb

    return _table(
        roughly=roughly_half_normal,
        survival=lambda x: (x / arb(2).sqrt()).erfc(),
        slope=lambda x: (arb.pi() / 2).sqrt() * (x * x / 2).exp(),
        polynomials=_half_normal_polynomials,
    )


@cache
def exponential() -> Quantiles:
    """Quantiles of the exponential law of mean 1: V = exp(-x)."""
    return _table(
        roughly=roughly_exponential,
        survival=lambda x: (-x).exp(),
        slope=lambda x: x.exp(),
        polynomials=lambda x: [x] + [np.full_like(x, 1 / power) for power in range(1, 7)],
    )


def _half_normal_polynomials(x: Array) -> list[Array]:
    """Taylor coefficients of x in r, where dx/dr = exp((x^2 - centre^2) / 2)."""
    s = x * x
    return [
        x,
        np.ones_like(x),
        x / 2,
        (1 + 2 * s) / 6,
        x * (7 + 6 * s) / 24,
        (7 + s * (46 + 24 * s)) / 120,
        x * (127 + s * (326 + 120 * s)) / 720,
    ]


def _table(
    roughly: Callable[[float], float],
    survival: Callable[["arb"], "arb"],
    slope: Callable[["arb"], "arb"],
    polynomials: Callable[[Array], list[Array]],
) -> Quantiles:
    """The table of a law; `slope` is -dx/dV at x, and r = slope * (centre - V)."""
    from flint import arb, ctx

    centres, places, slopes = [0], [np.nan], [np.nan]
    halves = range(2 ** (PIECE_BITS + 1) + 1, 2 ** (PIECE_BITS + 2), 2)
    middles = [half << (e - PIECE_BITS - 1) for e in range(BITS - OCTAVES, BITS) for half in halves]
    with ctx.workprec(128):
        unit = arb(2) ** BITS
        for middle in middles:  # of every piece, in units of 2^-63
            place = roughly(middle / 2**BITS)  # any float close by would do: the centre belongs to it
            centres.append(_centre(survival, place))
            places.append(place)
            slopes.append(float(slope(arb(place)) / unit))
    x, rate = np.array(places), np.array(slopes)
    powers = np.cumprod([np.ones_like(x), *[rate] * 6], axis=0)  # products only: their rounding is known
    return Quantiles(np.array(centres), np.array(polynomials(x)) * powers)


def _centre(survival: Callable[["arb"], "arb"], place: float) -> int:
    """The integer part of 2^63 V at a place."""
    from flint import arb, ctx

    for _ in range(_ASKED):  # another thread may set flint's precision meanwhile, which widens the ball
        with ctx.workprec(128):
            enclosure = survival(arb(place)) * arb(2) ** BITS
            whole = enclosure.floor().unique_fmpz()
        if whole is not None:
            return int(whole)
    raise ArithmeticError(f"the enclosure {enclosure} is too wide to tell an integer part")
