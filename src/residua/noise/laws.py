"""The laws of integer noise: what is drawn, its true variance, how far it can reach, and exact draws.

Many blocks of noise are drawn at once, each with a parameter of its own: `owner` names the block of every
value, shape (count,). A draw is decided in floats where their proved error leaves no doubt, and otherwise by
`Uniform`, with more random bits and ball arithmetic (N-002).

Where sigma is so large that floats cannot tell one integer from the next, write N = S (K + F), with S a power
of two, K = round(N / S) a rounded Gaussian of moderate width, and F between -1/2 and 1/2. Given K = k the
density of F is proportional to exp(-(k + F)^2 / (2 t^2)), t = sigma / S: nearly flat. F is drawn uniformly
and kept with its density over the largest one; that ratio is above `1 - 2^-15`, so that one word nearly
always decides, and `Uniform` the rest. The integer asked for is S k plus the rounded S F, whose bits are the
uniform ones (N-025).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from residua._arrays import Indices, Integers
from residua.errors import BudgetError
from residua.noise.quantiles import (
    BITS,
    Quantiles,
    exponential,
    half_normal,
    roughly_exponential,
    roughly_half_normal,
)
from residua.noise.source import Source, Words
from residua.privacy import NoiseLaw
from residua.privacy.budgets import integer_variances
from residua.privacy.conversions import ball_of

if TYPE_CHECKING:
    from flint import arb

_CHUNK = 2**14  # values drawn at once: their arrays stay in the processor's cache
_LOG_2_ABOVE = Fraction(693_147_180_560, 10**12)
MARGIN = 2.0**-46  # more than twice what floats can be wrong by (N-012); infinity leaves all to balls
GUARD_BITS = 64  # of balls, beyond those of the number that they are compared with
COARSE_BITS = 24  # t lies between 2 to this and twice that
WIDE_BITS = 32  # sigma from which a draw is made in two parts
FAR = 2**8  # |k| up to so many t is decided by the float test
SURE = 2**64 - 2**50  # words below this keep F: a chance of 1 - 2^-14, below every density ratio up to FAR

_HALF = Fraction(1, 2)


@dataclass(slots=True)
class Uniform:
    """A number V with numerator <= 2^bits V <= numerator + 1; its later bits are not drawn yet (N-003)."""

    source: Source
    numerator: int
    bits: int

    def below(self, limit: Callable[[], "arb"]) -> bool:
        """Whether V is below a real number; `limit` encloses it at flint's working precision."""
        from flint import arb, ctx

        while True:
            with ctx.workprec(self.bits + GUARD_BITS):
                scaled = limit() * arb(2) ** self.bits
                if scaled >= self.numerator + 1:
                    return True
                if scaled <= self.numerator:
                    return False
            self.more()

    def more(self) -> None:
        """Draw 64 bits more."""
        self.numerator = self.numerator << 64 | int(self.source.words(1)[0])
        self.bits += 64


def _gaussian_reaching(variance: Fraction, k: int) -> "arb":
    """erfc of the root of (k - 1/2)^2 / (2 variance); Python's fractions would take longer than all else."""
    from flint import arb, fmpq

    square = fmpq((2 * k - 1) ** 2 * variance.denominator, 8 * variance.numerator)
    return arb(square).sqrt().erfc()


@dataclass(frozen=True, slots=True)
class Stairs:
    """What floor(scale * X + shift) is drawn with, for X half-normal or exponential."""

    quantiles: Callable[[], Quantiles]
    shift: float
    scale: Callable[[Fraction], float]  # of a block's parameter
    reaching: Callable[[Fraction, int], "arb"]  # probability of k or more, at a block's parameter
    guess: Callable[[float], float]  # roughly the x that is exceeded with a given probability


GAUSSIAN = Stairs(
    quantiles=half_normal,
    shift=0.5,
    scale=lambda variance: math.sqrt(float(variance)),
    reaching=_gaussian_reaching,
    guess=roughly_half_normal,
)
GEOMETRIC = Stairs(
    quantiles=exponential,
    shift=0.0,
    scale=float,
    reaching=lambda scale, k: ball_of(-k / scale).exp(),
    guess=roughly_exponential,
)


def rounded_gaussian(source: Source, variances: Sequence[Fraction], owner: Indices) -> Integers:
    """round(N(0, variance)) for each value, whatever the variance (N-020, N-025)."""
    shifts = np.array([_shift(variance) for variance in variances], dtype=np.int64)
    coarse = [variance / 4 ** int(shift) for variance, shift in zip(variances, shifts, strict=True)]
    words = source.words(len(owner))
    steps = climb(GAUSSIAN, source, words, coarse, owner)
    steps *= 1 - 2 * (words & np.uint64(1)).view(np.int64)  # the signs
    if shifts.any():
        wide = np.flatnonzero(shifts[owner])
        mine = owner[wide]
        steps[wide] = _refined(source, steps[wide], shifts[mine], coarse, mine)
    return steps


def discrete_laplace(source: Source, scales: Sequence[Fraction], owner: Indices) -> Integers:
    """The difference of two geometric numbers for each value (N-030)."""
    first = climb(GEOMETRIC, source, source.words(len(owner)), scales, owner)
    second = climb(GEOMETRIC, source, source.words(len(owner)), scales, owner)
    return first - second


def climb(
    stairs: Stairs, source: Source, words: Words, parameters: Sequence[Fraction], owner: Indices
) -> Integers:
    """floor(scale * X + shift) for the X whose uniform number starts with the first 63 bits of each word."""
    parts = (words >> np.uint64(1)).view(np.int64)
    scales = np.array([stairs.scale(parameter) for parameter in parameters])
    if len(scales) > 1:  # a single one is that of all values
        scales = scales[owner]
    heights = scales * stairs.quantiles()(parts) + stairs.shift
    floors = np.floor(heights)
    above = heights - floors  # exact
    slack = (scales + 1) * MARGIN
    sure = (above > slack) & (above < 1 - slack)  # not-a-number, below the table, is never sure
    unsure = np.flatnonzero(~sure)
    floors[unsure] = 0
    steps = floors.astype(np.int64)
    for index in unsure:
        steps[index] = climb_exactly(stairs, source, int(parts[index]), parameters[owner[index]])
    return steps


def climb_exactly(stairs: Stairs, source: Source, part: int, parameter: Fraction) -> int:
    """The same floor for one value, decided by ball arithmetic (N-003)."""
    uniform = Uniform(source, part, BITS)
    roughly = stairs.scale(parameter) * stairs.guess((part + 0.5) / 2**BITS) + stairs.shift
    return steps_reached(lambda k: uniform.below(lambda: stairs.reaching(parameter, k)), math.floor(roughly))


def steps_reached(reached: Callable[[int], bool], guess: int) -> int:
    """The largest k >= 0 that is reached, if 0 is and every k below one that is; `guess` only saves time."""
    low, high, stride = guess, guess + 1, 1
    while low > 0 and not reached(low):
        low, high, stride = max(0, low - stride), low, 2 * stride
    while reached(high):
        low, high, stride = high, high + stride, 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        if reached(middle):
            low = middle
        else:
            high = middle
    return low


def _shift(variance: Fraction) -> int:
    """log2 of S: 0 where the draw needs no second part."""
    bits = (math.floor(variance).bit_length() - 1) // 2  # floor of log2 sigma
    return bits - COARSE_BITS if bits >= WIDE_BITS else 0


def _refined(
    source: Source, coarse: Integers, shifts: Integers, variances: Sequence[Fraction], owner: Indices
) -> Integers:
    """S k + round(S F) for each coarse value k."""
    places = np.empty(len(coarse), dtype=np.int64)
    waiting = np.arange(len(coarse))
    while len(waiting):
        fine = source.words(len(waiting))
        chance = source.words(len(waiting))
        bits = (fine >> (63 - shifts[waiting]).astype(np.uint64)).astype(np.int64)  # shift + 1 of them
        near = np.abs(coarse[waiting]) <= FAR * 2**COARSE_BITS
        kept = near & (chance < np.uint64(SURE))
        for index in np.flatnonzero(~kept):
            at, drawn = waiting[index], Uniform(source, int(chance[index]), 64)
            place = Uniform(source, int(bits[index]), int(shifts[at]) + 1)
            kept[index] = _keep(int(coarse[at]), place, drawn, variances[owner[at]])
        # F = -1/2 + (i + g) / S with i the first bits and g >= 1/2 where the last one is set.
        places[waiting[kept]] = ((bits + 1) >> 1)[kept]
        waiting = waiting[~kept]
    size = np.left_shift(np.int64(1), shifts)
    return np.asarray(coarse * size - size // 2 + places)


def _keep(k: int, place: Uniform, chance: Uniform, variance: Fraction) -> bool:
    """Whether F + 1/2, which `place` draws, is kept; both numbers are drawn as far as that needs."""

    def ratio() -> "arb":
        """Density at F over the largest density, for every F that starts with the bits drawn so far."""
        place.more()
        low = Fraction(place.numerator, 2**place.bits) - _HALF
        fine = ball_of(low).union(ball_of(low + Fraction(1, 2**place.bits)))
        peak = max(abs(k) - _HALF, Fraction(0))
        return ((ball_of(peak**2) - (ball_of(Fraction(k)) + fine) ** 2) / (2 * ball_of(variance))).exp()

    return chance.below(ratio)


@dataclass(frozen=True, slots=True)
class Law(ABC):
    """A symmetric law of integers with one exact parameter above zero."""

    parameter: Fraction
    name: ClassVar[NoiseLaw]
    meaning: ClassVar[str]  # of the parameter, in errors
    largest: ClassVar[int]  # parameter; the smallest is one over it

    def __post_init__(self) -> None:
        given = self.parameter
        if isinstance(given, bool) or not isinstance(given, (int, Fraction)):
            raise BudgetError(f"{self.meaning} must be a fraction, not {given!r}; try Fraction('0.1')")
        if not Fraction(1, self.largest) <= given <= self.largest:
            power = self.largest.bit_length() - 1
            raise BudgetError(f"{self.meaning} must lie between 2^-{power} and 2^{power}, but is {given}")
        object.__setattr__(self, "parameter", Fraction(given))

    @property
    def variance(self) -> float:
        """Variance of the integers drawn, not the parameter: rounding a Gaussian adds about 1/12."""
        return float(integer_variances(self.name, np.array([float(self.parameter)]))[0])

    @abstractmethod
    def bound(self, bits: int) -> int:
        """A t with P(|Z| > t) <= 2^-bits."""

    @staticmethod
    @abstractmethod
    def sample(source: Source, parameters: Sequence[Fraction], owner: Indices, /) -> Integers:
        """One value for each entry of `owner`, which says whose parameter it has."""

    def draw(self, source: Source, count: int) -> Integers:
        """Independent values of this law, shape (count,)."""
        return draw(source, [self], [count])


class RoundedGaussian(Law):
    """round(N(0, parameter)): a post-processing of the Gaussian mechanism (P-011, N-020)."""

    __slots__ = ()
    name = "gaussian"
    meaning = "the variance of a rounded Gaussian"
    largest = 2**112  # drawn in two parts, it may be as wide as 64 bits hold
    sample = staticmethod(rounded_gaussian)

    def bound(self, bits: int) -> int:
        """The least t that claim N-022 allows."""
        square = math.ceil(8 * self.parameter * _nats(bits))
        root = math.isqrt(square)
        return (root + (root * root < square)) // 2


class DiscreteLaplace(Law):
    """Integers with probabilities in proportion to exp(-|k| / parameter) (N-030)."""

    __slots__ = ()
    name = "laplace"
    meaning = "the scale of a discrete Laplace law"
    largest = 2**40  # leaves room for counts in 64 bits; noise of one over it is always zero
    sample = staticmethod(discrete_laplace)

    def bound(self, bits: int) -> int:
        """The least t that claim N-031 allows."""
        return math.ceil(self.parameter * (_nats(bits) + _LOG_2_ABOVE)) - 1


def _nats(bits: int) -> Fraction:
    """At least log 2^bits."""
    if bits < 0:
        raise ValueError(f"the bits of a tail's probability must be at least 0, not {bits}")
    return bits * _LOG_2_ABOVE


def draw(source: Source, laws: Sequence[Law], counts: Sequence[int]) -> Integers:
    """Independent noise of many blocks, laid end to end: counts[i] values of laws[i], all of one kind."""
    kinds = {type(law) for law in laws}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise BudgetError(f"the blocks have noise of several kinds ({names}); draw one kind at a time")
    parameters = [law.parameter for law in laws]
    owner = np.repeat(np.arange(len(laws)), _checked_counts(counts, len(laws)))
    values = np.empty(len(owner), dtype=np.int64)
    for start in range(0, len(owner), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        first, last = owner[chunk][0], owner[chunk][-1]
        values[chunk] = laws[0].sample(source, parameters[first : last + 1], owner[chunk] - first)
    return values


def _checked_counts(counts: Sequence[int], laws: int) -> Integers:
    """The counts as an array, one for each law and none negative."""
    if len(counts) != laws:
        raise ValueError(f"{laws} laws need {laws} counts, not {len(counts)}")
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(f"a count of noise values must be an integer of at least 0, not {count!r}")
    return np.array(counts, dtype=np.int64)
