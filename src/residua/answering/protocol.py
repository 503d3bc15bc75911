"""What every answerer can be asked, and what follows for all of them from the little that differs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from residua._arrays import Array
from residua._limits import COVARIANCE_ENTRIES
from residua.answering.blocks import Measured
from residua.answering.estimator import Estimates, Estimator
from residua.errors import NotInSpan, WorkloadError
from residua.linalg.matrices import Measure
from residua.workload import Table, TableRun
from residua.workload.union import Order


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a table asks of which parts, in the order that each sees, and how to get back to its own."""

    parts: tuple[tuple[int, Table, list[Order]], ...]
    order: Order = field(default_factory=Order)

    def added_up(self, figures: Callable[[int, Table], Array]) -> Array:
        """The sum over the parts of figures of all queries, in the order of the table."""
        found = [in_order(orders, figures(at, asked)) for at, asked, orders in self.parts]
        return self.order.arranged(np.sum(found, axis=0))


def in_order(orders: Sequence[Order], values: Array, axis: int = 0) -> Array:
    """Numbers of all queries along an axis, brought back to an order step by step."""
    for order in orders:
        values = order.arranged(values, axis)
    return values


class Answerer(ABC):
    """Figures and estimates of the best linear unbiased answers from blocks.

    A table that the blocks cannot answer raises NotInSpan, whatever is asked of it. `measures` are those
    under which estimates are centred, None where all cells are estimated at once; `shared` is the number of
    dimensions in which blocks are solved together.
    """

    measures: tuple[Measure, ...] | None = None
    shared: int = 0
    most_listed: float = math.inf  # queries whose variances are gone through to find the largest

    @abstractmethod
    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""

    def variances_by_table(self, part: Table | TableRun) -> Iterator[Array]:
        """Variances of the queries of each table of a part, table by table."""
        return map(self.variances, part)

    @abstractmethod
    def summed(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's own weight."""

    @abstractmethod
    def covariances(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, which fits one array."""

    @abstractmethod
    def estimates(self, measured: Measured) -> Estimates:
        """Least-squares estimates from measured numbers."""

    def asked(self, group: Table) -> Asked:
        """What a table asks of each part of the blocks that sees a domain of its own."""
        return Asked(((0, group, []),))

    def estimator(self, estimates: Estimates) -> Estimator:
        """What answers queries from estimates."""
        return Estimator(estimates)

    def require_answerable(self, group: Table) -> None:
        """NotInSpan if some query is not a combination of what is measured."""
        self.summed(group, weighted=False)

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the table's and the query's weight."""
        return self.summed(group, weighted=weighted) * (group.weight if weighted else 1.0)

    def run_total(self, tables: TableRun) -> float | None:
        """Sum of the variances of a run of tables at once; None where each has to be asked."""
        return None

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        at_once = self.run_total(part) if isinstance(part, TableRun) and part.joint is None else None
        if at_once is not None:
            return part.weight * at_once, at_once
        weighted = plain = 0.0
        for group in part:
            weighted += self.total(group, weighted=True)
            plain += self.total(group, weighted=False)
        return weighted, plain

    def largest(self, group: Table) -> float:
        """Largest variance of the table's queries; nan if there are too many to go through."""
        self.require_answerable(group)
        if not group.listable or group.count > self.most_listed:
            return math.nan
        return float(self.variances(group).max())

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_ENTRIES:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_ENTRIES:,} at a time"
            )
        return self.covariances(left, right)

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances."""
        yield from part

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""
        yield from self.examples(part)

    def factored(self, subset: tuple[int, ...]) -> "Factored | None":
        """Covariance of a residual as a product of small ones; None where that is not known."""
        return None

    def notes(self) -> Iterator[str]:
        """Lines for people about how answers are computed, if there is anything to say."""
        yield from ()


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


def not_in_span(told: str, attributes: Sequence[int] = ()) -> NotInSpan:
    """The error for a table with queries that are no combinations of what is measured."""
    return NotInSpan(f"{told}; add the table to the workload before planning", attributes)
