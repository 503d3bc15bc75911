"""Blocks that overlap: each measures any rows of its marginal, and answers come from all of them together.

`X = sum_B E_B' M_B' M_B E_B / noise_B`, and a query's best answer has the variance `q X^- q'`. In residual
coordinates most blocks see something that no other sees; that is eliminated block by block, and what is left
is one small system on shared coordinates (claims O-001 to O-004). Blocks that are centred and alone on their
residual are never multiplied out: they stay an ordinary `BlockStrategy` inside this one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.strategy.block_strategy import BlockStrategy, refuse_large_covariance
from residua.strategy.layered import Layered
from residua.strategy.mechanism import totals_by_table
from residua.strategy.overlap.figures import Coupled
from residua.strategy.overlap.kinds import Division, Residual, divided
from residua.strategy.overlap.system import Memory, System
from residua.workload import Group, Tables

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

MOST_LISTED = 20_000_000  # queries whose variances are gone through to find the largest


@dataclass(frozen=True, eq=False)
class OverlapStrategy(Layered):
    """Blocks on any subsets of attributes, centred or not, whose row spaces may overlap.

    `measures` define residual coordinates: any will do, those under which most blocks are centred are best.
    `memory` keeps what has been worked out about shapes; copies with other noise share it.

    >>> from residua.linalg.centring import Measure
    >>> from residua.strategy.blocks import Layer, Shape
    >>> pair, one = Shape.independent((2, 2), np.eye(4)), Shape.independent((2,), np.eye(2))
    >>> layers = (
    ...     Layer(np.array([[0, 1]], np.int32), ((0, 1),), np.array([[0]]), np.array([0.5]), np.array([2.0])),
    ...     Layer(np.array([[0]], np.int32), ((0,),), np.array([[1]]), np.array([0.25]), np.array([4.0])),
    ... )
    >>> OverlapStrategy((2, 2), (Measure(2), Measure(2)), (pair, one), layers).cost()
    0.75
    """

    memory: Memory = field(default_factory=Memory, repr=False)

    kind: ClassVar[str] = "overlap"

    @cached_property
    def division(self) -> Division:
        """Which blocks stand alone, and which are coupled."""
        return divided(self)

    @cached_property
    def alone(self) -> BlockStrategy:
        """The blocks that stand alone, passing over what the others answer."""
        return BlockStrategy(
            self.sizes,
            self.measures,
            self.shapes,
            self.division.alone,
            self.grain,
            _by_size(self.system.residuals),
        )

    @cached_property
    def system(self) -> System:
        """The blocks that have to be solved together."""
        return System(self.measures, self.division.coupled, self.memory)

    @cached_property
    def coupled(self) -> Coupled:
        """Figures from the blocks that have to be solved together."""
        return Coupled(self.system)

    def describe(self) -> Iterator[str]:
        """Lines for people: blocks and their share of the privacy, and how many are answered together."""
        yield from super().describe()
        if self.division.coupled:
            together = f"{len(self.division.coupled):,} of these blocks overlap and are answered together"
            yield f"{together}; they share {self.system.dimension:,} dimensions"

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        result = self.alone.variances(group)
        more = self.coupled.variances(group)
        return result if more is None else result + more.reshape(-1)

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        more = self.coupled.total(group, weighted=weighted) * (group.weight if weighted else 1.0)
        return self.alone.total(group, weighted=weighted) + more

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, Group) or part.joint is not None:
            return totals_by_table(self, part)
        weighted, plain = self.alone.totals(part)
        more = math.fsum(self.coupled.total(group, weighted=False) for group in part)
        return weighted + part.weight * more, plain + more

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        if not self.coupled.asks(group):
            return self.alone.largest(group)
        self.total(group, weighted=False)  # refuses what is not measured, however many queries there are
        if not group.listable or group.count > MOST_LISTED:
            return math.nan
        return float(self.variances(group).max())

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        refuse_large_covariance(left, right)
        result = self.alone.covariance(left, right)
        more = self.coupled.covariance(left, right)
        return result if more is None else result + more


def _by_size(residuals: list[Residual]) -> tuple[Subsets, ...]:
    """Residuals as arrays of rows of one length."""
    lengths = sorted({len(found) for found in residuals})
    rows = [[found for found in residuals if len(found) == length] for length in lengths]
    return tuple(
        np.array(some, dtype=np.int32).reshape(len(some), length)
        for some, length in zip(rows, lengths, strict=True)
    )
