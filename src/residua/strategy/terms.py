"""What strategies of several terms have in common, nested ones and unions: what each term costs, and all."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw
from residua.strategy.integers import column_norm, column_sum
from residua.strategy.noise_laws import column_costs, parameter_of

Array = NDArray[np.float64]


class Termwise(ABC):
    """Terms, each `multiplier * kron(matrices)` with noise of its own variance; their costs add up.

    Every term has a `noise_variance` and, in an integer strategy, a `share`: its exact cost in grains of
    `2^-grain`. A real strategy has no grain.
    """

    terms: tuple[Any, ...]
    law: NoiseLaw
    multiplier: int
    grain: int | None

    @abstractmethod
    def matrices_of(self, term: Any) -> list[Array]:
        """The matrices whose product a term measures."""

    def exact_norm(self, term: Any) -> int:
        """Cost of a term of an integer strategy at noise of parameter 1, exactly."""
        size = column_sum if self.law == "laplace" else column_norm
        whole = math.prod(size(matrix.astype(np.int64)) for matrix in self.matrices_of(term))
        return whole * self._multiple

    def norm(self, term: Any) -> float:
        """Cost of a term at noise of parameter 1."""
        own = (float(column_costs(self.law, matrix).max()) for matrix in self.matrices_of(term))
        return float(self._multiple) * math.prod(own)

    @property
    def _multiple(self) -> int:
        """What the multiplier does to costs."""
        return self.multiplier if self.law == "laplace" else self.multiplier**2

    def costs(self) -> Iterator[float]:
        """Privacy cost of each term."""
        for term in self.terms:
            if term.share is not None and self.grain is not None:
                yield term.share * 2.0**-self.grain
            else:
                yield self.norm(term) / parameter_of(self.law, term.noise_variance)

    def cost(self) -> float:
        """Privacy cost of adding or removing one record: the sum of the terms' costs.

        Exact where one cell is the worst of every term at once, as with nested terms; else a bound.
        """
        return math.fsum(self.costs())

    def exact_cost(self) -> Fraction:
        """The same of an integer strategy, exactly."""
        if self.grain is None:
            raise ValueError("only an integer strategy has an exact cost")
        return Fraction(sum(term.share or 0 for term in self.terms)) / Fraction(2) ** self.grain

    def replacement_cost(self) -> float:
        """A bound on the privacy cost of replacing one record; the number of records costs nothing."""
        return math.fsum(
            cost * self._doubled(term) for term, cost in zip(self.terms, self.costs(), strict=True)
        )

    def _doubled(self, term: Any) -> float:
        """A bound on a term's cost of replacing a record, over that of adding one.

        Two columns without negative entries differ by no more, squared, than their squares together.
        """
        matrices = self.matrices_of(term)
        if not matrices:
            return 0.0
        signed = any(bool((matrix < 0).any()) for matrix in matrices)
        return 4.0 if signed and self.law == "gaussian" else 2.0
