"""The laws of integer noise: what is drawn, its true variance, and how far it can reach."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from residua._arrays import Indices, Integers
from residua.errors import BudgetError
from residua.noise.samplers import discrete_laplace, rounded_gaussian
from residua.noise.source import Source
from residua.privacy import NoiseLaw
from residua.privacy.budgets import integer_variances

_CHUNK = 2**14  # values drawn at once: their arrays stay in the processor's cache
_LOG_2_ABOVE = Fraction(693_147_180_560, 10**12)


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
