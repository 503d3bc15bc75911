"""Answers from blocks that see classes of cells instead of cells, alone or beside blocks that see cells.

A block planned for classes of cells is one for cells: a record counts in the class of its cell. Beside such
blocks may stand others for tables that tell all cells apart; a query is then the sum of a part for each
(`lifting`), and the two sets of measurements tell nothing about each other (claim H-041).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Measured
from residua.answering.coarsened.query_split import QuerySplit, split_by
from residua.answering.estimates import Estimates
from residua.answering.protocol import Answerer, TableByTable
from residua.workload import Table, TableRun
from residua.workload.merging import Order
from residua.workload.views import View

Array = NDArray[np.float64]


class Coarsened(TableByTable):
    """One part by classes of cells; or one by cells, then one by classes.

    The `lifts` say how queries are split between two parts; each is about attributes of its own. `layers`
    has for each part the numbers of its layers among those of the strategy.
    """

    def __init__(
        self,
        parts: Sequence[tuple[View, Answerer]],
        query_splits: Sequence[QuerySplit],
        layers: Sequence[Sequence[int]],
    ) -> None:
        self.views = [view for view, _ in parts]
        self.answerers = [answerer for _, answerer in parts]
        self.query_splits, self._layers = tuple(query_splits), layers

    def split(self, group: Table) -> "Asked":
        """What a table asks of each part; NotInSpan if it tells apart what is measured together."""
        if not self.query_splits:
            return Asked(((0, *self.views[0].group(group)),))
        split = split_by(self.query_splits, group)
        pairs = enumerate((split.fine, split.coarse))
        found = ((at, *self.views[at].group(asked)) for at, asked in pairs if asked is not None)
        return Asked(tuple(found), split.order)

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""
        return self.split(group).added_up(lambda at, asked: self.answerers[at].variances(asked))

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        found = self.split(group).parts
        return math.fsum(self.answerers[at].total(asked, weighted=weighted) for at, asked, _ in found)

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, TableRun):
            seen = self.run(part)
            if seen is not None:
                return self.answerers[0].totals(seen)
        return super().totals(part)

    def run(self, tables: TableRun) -> TableRun | None:
        """A run of tables as the first part sees it; None if not all of it is asked of that part."""
        if all(_all_settled(lift, tables) for lift in self.query_splits):
            return self.views[0].tables(tables)
        return None

    def largest(self, group: Table) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        found = self.split(group).parts
        if len(found) == 1:
            return self.answerers[found[0][0]].largest(found[0][1])
        return float(self.variances(group).max()) if group.listable else math.nan

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        one, two = self.split(left), self.split(right)
        result = np.zeros((left.count, right.count))
        for at, rows, orders in one.parts:
            for other, columns, others in two.parts:
                if at == other:
                    found = self.answerers[at].covariance(rows, columns)
                    result += in_order(others, in_order(orders, found), axis=1)
        return two.order.arranged(one.order.arranged(result), axis=1)

    def estimates(self, measured: Measured) -> Estimates:
        """The estimates of each part from its own numbers."""
        parts = []
        for answerer, mine in zip(self.answerers, self._layers, strict=True):
            own = [(mine.index(layer), rows, values) for layer, rows, values in measured if layer in mine]
            parts.append(answerer.estimates(own))
        return Estimates((), (), None, tuple(parts))

    def notes(self) -> Iterator[str]:
        """What each part has to say."""
        for answerer in self.answerers:
            yield from answerer.notes()


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a table asks of which sides, in the order that each sees, and how to get back to its own."""

    parts: tuple[tuple[int, Table, list[Order]], ...]
    order: Order = field(default_factory=Order)

    def added_up(self, figures: Callable[[int, Table], Array]) -> Array:
        """The sum over the sides of figures of all queries, in the order of the table."""
        found = [in_order(orders, figures(at, asked)) for at, asked, orders in self.parts]
        return self.order.arranged(np.sum(found, axis=0))


def in_order(orders: Sequence[Order], values: Array, axis: int = 0) -> Array:
    """Numbers of all queries along an axis, brought back to an order step by step."""
    for order in orders:
        values = order.arranged(values, axis)
    return values


def _all_settled(lift: QuerySplit, part: TableRun) -> bool:
    """Whether nothing that these tables ask is beyond what is settled."""
    tied = np.zeros(len(part.schema), dtype=np.bool_)
    tied[list(lift.attributes)] = True
    inside = np.unique(np.where(tied[part.subsets], part.subsets, -1), axis=0)
    return all(lift.is_settled(row) for row in inside.tolist())
