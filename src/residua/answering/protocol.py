"""What every answerer can say about the blocks that it answers from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Measured
from residua.answering.estimates import Estimates
from residua.errors import WorkloadError
from residua.workload import Table, TableRun

Array = NDArray[np.float64]

COVARIANCE_LIMIT = 10_000_000  # entries


class Answerer(Protocol):
    """Figures and estimates of the best linear unbiased answers from blocks.

    A table that the blocks cannot answer raises NotInSpan, whatever is asked of it.
    """

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""

    def largest(self, group: Table) -> float:
        """Largest variance of the table's queries; nan if there are too many to go through."""

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, shape (left.count, right.count)."""

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances."""

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""

    def factored(self, subset: tuple[int, ...]) -> "Factored | None":
        """Covariance of a residual as a product of small ones; None where that is not known."""

    def estimates(self, measured: Measured) -> Estimates:
        """Least-squares estimates from measured numbers."""

    def notes(self) -> Iterator[str]:
        """Lines for people about how answers are computed, if there is anything to say."""


@dataclass(frozen=True, slots=True, eq=False)
class FactorCovariance:
    """Covariance of the cells of some attributes, `square()`, (cells, cells); equal where `key` is."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    key: object
    square: Callable[[], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Factored:
    """Covariance of a residual: `scale` times a product of covariances, centred under `means` or evenly."""

    scale: float
    factors: tuple[FactorCovariance, ...]
    means: tuple[Array, ...] | None = None


class TableByTable:
    """An answerer that has nothing quicker for a run of tables than each of them."""

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""
        raise NotImplementedError

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        weighted = plain = 0.0
        for group in part if isinstance(part, TableRun) else (part,):
            weighted += self.total(group, weighted=True)
            plain += self.total(group, weighted=False)
        return weighted, plain

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances: all of them."""
        yield from part if isinstance(part, TableRun) else (part,)

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""
        yield from self.examples(part)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a residual as a product of small ones: not known."""
        return None

    def notes(self) -> Iterator[str]:
        """Nothing to say."""
        yield from ()


def refuse_large_covariance(left: Table, right: Table) -> None:
    """Raise WorkloadError where the covariance of two tables does not fit one array."""
    if left.count * right.count > COVARIANCE_LIMIT:
        raise WorkloadError(
            f"the covariance of tables {left.name!r} and {right.name!r} has "
            f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
        )
