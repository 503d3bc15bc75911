"""Rounded Gaussians of any width: a coarse one, and a fine place inside its step (N-025).

Where sigma is so large that floats cannot tell one integer from the next, write N = S (K + F), with S a power
of two, K = round(N / S) a rounded Gaussian of moderate width, and F between -1/2 and 1/2. Given K = k the
density of F is proportional to exp(-(k + F)^2 / (2 t^2)), t = sigma / S: nearly flat. F is drawn
uniformly and kept with its density over the largest one; that ratio is above `1 - 2^-15`, so that one word
nearly always decides, and `Uniform` the rest. The integer asked for is S k plus the rounded S F, whose bits
are the uniform ones.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from residua.noise.comparison import Uniform
from residua.noise.quantiles import Integers
from residua.noise.samplers import Owner, ball, rounded_gaussian
from residua.noise.source import Source

if TYPE_CHECKING:
    from flint import arb

COARSE_BITS = 24  # t lies between 2 to this and twice that
WIDE_BITS = 32  # sigma from which a draw is made in two parts
FAR = 2**8  # |k| up to so many t is decided by the float test
SURE = 2**64 - 2**50  # words below this keep F: a chance of 1 - 2^-14, below every density ratio up to FAR


def any_rounded_gaussian(source: Source, variances: Sequence[Fraction], owner: Owner) -> Integers:
    """round(N(0, variance)) for each value, whatever the variance (N-025)."""
    shifts = np.array([_shift(variance) for variance in variances], dtype=np.int64)
    coarse = [variance / 4 ** int(shift) for variance, shift in zip(variances, shifts, strict=True)]
    steps = rounded_gaussian(source, coarse, owner)
    wide = np.flatnonzero(shifts[owner] > 0)
    if len(wide):
        mine = owner[wide]
        steps[wide] = _refined(source, steps[wide], shifts[mine], coarse, mine)
    return steps


def _shift(variance: Fraction) -> int:
    """log2 of S: 0 where the draw needs no second part."""
    bits = (math.floor(variance).bit_length() - 1) // 2  # floor of log2 sigma
    return bits - COARSE_BITS if bits >= WIDE_BITS else 0


def _refined(
    source: Source, coarse: Integers, shifts: Integers, variances: Sequence[Fraction], owner: Owner
) -> Integers:
    """S k + round(S F) for each coarse value k."""
    places = np.empty(len(coarse), dtype=np.int64)
    waiting = np.arange(len(coarse))
    while len(waiting):
        fine = source.words(len(waiting))
        chance = source.words(len(waiting))
        bits = (fine >> (np.uint64(63) - shifts[waiting].astype(np.uint64))).astype(
            np.int64
        )  # shift + 1 bits
        near = np.abs(coarse[waiting]) <= FAR * 2**COARSE_BITS
        kept = near & (chance < np.uint64(SURE))
        for index in np.flatnonzero(~kept):
            at = waiting[index]
            shift = int(shifts[at])
            first = int(bits[index])
            variance = variances[owner[at]]
            kept[index] = _keep(source, int(coarse[at]), first, shift + 1, int(chance[index]), variance)
        # F = -1/2 + (i + g) / S with i the first bits and g >= 1/2 where the last one is set.
        places[waiting[kept]] = ((bits + 1) >> 1)[kept]
        waiting = waiting[~kept]
    size = np.left_shift(np.int64(1), shifts)
    return np.asarray(coarse * size - size // 2 + places)


def _keep(source: Source, k: int, first: int, bits: int, chance: int, variance: Fraction) -> bool:
    """Whether F is kept, by ball arithmetic: both uniform numbers are drawn as far as that needs."""
    known = [first, bits]

    def ratio() -> "arb":
        """Density at F over the largest density, for every F that starts with the bits drawn so far."""
        known[0] = known[0] << 64 | int(source.words(1)[0])
        known[1] += 64
        low = Fraction(known[0], 2 ** known[1]) - Fraction(1, 2)
        place = ball(low).union(ball(low + Fraction(1, 2 ** known[1])))
        peak = Fraction(0) if k == 0 else Fraction(abs(k)) - Fraction(1, 2)
        return ((ball(peak * peak) - (ball(Fraction(k)) + place) ** 2) / (2 * ball(variance))).exp()

    return Uniform(source, chance, 64).below(ratio)
