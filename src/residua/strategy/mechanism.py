"""What every mechanism can say about itself; `ProductStrategy` is one kind."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw
from residua.workload import Group, Tables

Array = NDArray[np.float64]


class Mechanism(Protocol):
    """Measurements of a dataset with noise of one law, answered by least squares.

    Figures are those of the best linear unbiased answer from all measurements. A group that the
    measurements cannot answer raises NotInSpan.
    """

    kind: ClassVar[str]

    @property
    def law(self) -> NoiseLaw:
        """The law of the noise; it decides what a privacy cost is."""

    def cost(self) -> float:
        """Privacy cost of adding or removing one record: `max_i X_ii`; an epsilon for Laplace noise."""

    def exact_cost(self) -> Fraction:
        """Privacy cost of adding or removing one record, exactly; only integer mechanisms have one."""

    def replacement_cost(self) -> float:
        """Privacy cost of replacing one record, `max_ij (e_i - e_j)' X (e_i - e_j)`, or a bound on it."""

    def scaled(self, factor: float) -> "Mechanism":
        """The same measurements at `factor` times the cost; see `noise_laws.variance_ratio`."""

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries."""

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""

    def describe(self) -> Iterator[str]:
        """Lines for people: what is measured."""

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""


def totals_by_table(mechanism: Mechanism, part: Group | Tables) -> tuple[float, float]:
    """Weighted and unweighted sum of the variances, one table after the other."""
    weighted = plain = 0.0
    for group in part if isinstance(part, Tables) else (part,):
        weighted += mechanism.total(group, weighted=True)
        plain += mechanism.total(group, weighted=False)
    return weighted, plain
