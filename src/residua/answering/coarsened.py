"""Queries of which one part is measured by classes of cells and the rest cell by cell (claim H-041).

Some tables are measured cell by cell; whatever they ask, it is a sum of functions of the attributes that one
of them has. A query beyond that is split in two: a combination of rows that are measured by classes of cells,
and a rest that is such a sum. If no combination of those rows is such a sum itself, there is one way to do
it, the two sets of measurements tell nothing about each other, and answers and variances add up.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Flags, Indices, Subset, Subsets
from residua.answering.blocks import Measured
from residua.answering.independent.parts import not_together
from residua.answering.protocol import (
    CELLS,
    Answerer,
    ByPlace,
    Estimates,
    Estimator,
    TableEstimator,
    TableParts,
    in_order,
    not_in_span,
)
from residua.errors import Infeasible
from residua.linalg.classes import Classes
from residua.linalg.matrices import along_axes, pivoted_qr
from residua.linalg.spans import mean_first
from residua.workload import Combined, Explicit, Factor, Queries, Table, TableRun
from residua.workload.tables import without_totals
from residua.workload.views import Merged, Order, View, cells_of_classes, coarse_table

ROUNDING = 1e-9  # relative; what is smaller is what rounding leaves of zero


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A table in two: what is asked cell by cell and what by classes of cells; either may be nothing.

    Both have as many queries as the table, and `order` brings their numbers to its order.
    """

    fine: Table | None
    coarse: Table | None
    order: Order = field(default_factory=Order)


@dataclass(frozen=True, eq=False)
class QuerySplit:
    """What is measured by classes of cells: independent `rows` over combinations of those of `attributes`.

    `settled` are the largest sets of those attributes of which tables are measured cell by cell.
    """

    attributes: Subset
    classes: tuple[Classes, ...]
    rows: Array  # (rows, combinations of classes)
    settled: tuple[Subset, ...]

    def to_manifest(self, start: str, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under names that begin with `start`."""
        arrays[f"{start}.rows"] = self.rows
        for at, classes in self.by_attribute.items():
            arrays[f"{start}.kinds.{at}"] = classes.classes
        return {"attributes": list(self.attributes), "settled": [list(known) for known in self.settled]}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of each attribute."""
        return tuple(own.count for own in self.classes)

    @property
    def by_attribute(self) -> Mapping[int, Classes]:
        """Classes of the cells of each attribute."""
        return dict(zip(self.attributes, self.classes, strict=True))

    def asked_of(self, group: Table) -> list[int]:
        """Those of our attributes that a table has."""
        return [at for at in self.attributes if at in group.attributes]

    def is_settled(self, attributes: Sequence[int]) -> bool:
        """Whether every query on these attributes is a sum of functions of settled ones."""
        wanted = set(attributes) & set(self.attributes)
        return any(wanted <= set(known) for known in self.settled)

    def beyond(self, rows: Array) -> Array:
        """Coordinates of rows that no sum of functions of settled attributes can change, (rows, k)."""
        return along_axes(rows, [mean_first(size).T for size in self.sizes])[:, self._unsettled]

    @cached_property
    def _unsettled(self) -> Flags:
        """For each coordinate whether the attributes that it is a contrast of are not settled."""
        places = np.indices(self.sizes).reshape(len(self.sizes), -1) > 0  # (attributes, coordinates)
        free = np.ones(places.shape[1], dtype=np.bool_)
        for known in self.settled:
            outside = [at not in known for at in self.attributes]
            free &= places[outside].any(axis=0)
        return free

    @cached_property
    def _inverse(self) -> Array:
        """From coordinates beyond what is settled to weights of the rows, (k, rows)."""
        return np.asarray(np.linalg.pinv(self.beyond(self.rows)), dtype=np.float64)

    def split(self, group: Table) -> Split:
        """The table in two; NotInSpan if it refines a class, or asks for more than the rows."""
        if self.is_settled(without_totals(group).attributes):
            return Split(group, None)
        merged = self._merged(group)
        asked = _side_by_side(merged.rows(self.attributes, self.sizes))
        sizes = np.linalg.norm(asked, axis=1, keepdims=True)
        apart = self.beyond(asked)
        weights = apart @ self._inverse
        nearest = np.rint(weights)
        weights = np.where(np.abs(weights - nearest) < ROUNDING, nearest, weights)
        if np.any(np.abs(weights @ self.beyond(self.rows) - apart) > ROUNDING * (sizes + 1)):
            told = f"table {group.name!r} asks for more than the plan measures by classes of cells"
            raise not_in_span(told, self.asked_of(group))
        coarse = weights @ self.rows
        rest = np.where(np.abs(asked - coarse) > ROUNDING * (sizes + 1), asked - coarse, 0.0)
        if not weights.any():
            return Split(group, None)
        if not rest.any():
            return Split(None, group)
        return Split(self._asking(merged, rest), self._asking(merged, coarse), merged.order)

    def _merged(self, group: Table) -> Merged:
        """The table over classes of cells, with all factors on our attributes as one."""
        coarse = coarse_table(group, self.by_attribute)
        return Merged.of(coarse, self.attributes)

    def _asking(self, merged: Merged, rows: Array) -> Table:
        """The table with other rows in the place of its factors on our attributes, spread over the cells."""
        others = merged.others(self.attributes)
        width = math.prod(size for _, size in others)
        tensor = rows.reshape(-1, width, rows.shape[1]).transpose(0, 2, 1)
        tensor = tensor.reshape(len(tensor), *self.sizes, *(size for _, size in others))
        attributes = [*self.attributes, *(at for at, _ in others)]
        classes = [*self.classes, *(Classes.every(size) for _, size in others)]
        for axis in reversed(range(len(attributes))):
            if len(attributes) > 1 and (np.ptp(tensor, axis=1 + axis) == 0).all():
                tensor = np.take(tensor, 0, axis=1 + axis)
                del attributes[axis], classes[axis]
        queries: Queries = Combined.of(classes, tensor.reshape(len(tensor), -1), merged.weights)
        if len(classes) == 1:
            queries = Explicit(queries.sizes, queries.matrix(), merged.weights)
        return merged.with_factor(Factor(tuple(attributes), queries))


def _side_by_side(rows: Array) -> Array:
    """Rows over our cells, one for each query and each cell of other attributes."""
    return rows.transpose(0, 2, 1).reshape(-1, rows.shape[1])


def split_by(query_splits: Sequence[QuerySplit], group: Table) -> Split:
    """The table in two by the split whose settled attributes it is beyond; NotInSpan if there are several."""
    beyond = [split for split in query_splits if not split.is_settled(without_totals(group).attributes)]
    if len(beyond) > 1:
        raise not_together(group.name, [at for split in beyond for at in split.asked_of(group)])
    return beyond[0].split(group) if beyond else Split(group, None)


def query_split_of(
    attributes: Subset, classes: Sequence[Classes], settled: Sequence[Subset], groups: Sequence[Table]
) -> QuerySplit:
    """The split by as many rows of these tables as are independent beyond what is settled."""
    bare = QuerySplit(attributes, tuple(classes), np.zeros((0, cells_of_classes(classes))), tuple(settled))
    rows = [_side_by_side(bare._merged(group).rows(attributes, bare.sizes)) for group in groups]
    stack = np.unique(np.concatenate(rows), axis=0)
    return replace(bare, rows=stack[_independent(bare.beyond(stack))])


def _independent(rows: Array) -> Indices:
    """Places of a largest set of independent rows, ascending."""

    lengths = np.linalg.norm(rows, axis=1)
    alive = np.flatnonzero(lengths > ROUNDING)
    if not len(alive):
        return alive
    _, triangle, order = pivoted_qr((rows[alive] / lengths[alive, None]).T)
    rank = int(np.sum(np.abs(np.diagonal(triangle)) > ROUNDING))
    return np.sort(alive[order[:rank]])


class Coarsened(Answerer):
    """One part by classes of cells; or one by cells, then one by classes.

    The `query_splits` say how queries are split between two parts; each is about attributes of its own.
    `layers` has for each part the numbers of its layers among those of the strategy.
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

    def asked(self, group: Table) -> TableParts:
        """What a table asks of each part; NotInSpan if it is finer than the classes that are measured."""
        split = split_by(self.query_splits, group)
        pairs = enumerate((split.fine, split.coarse))
        found = ((at, *self.views[at].group(asked)) for at, asked in pairs if asked is not None)
        return TableParts(tuple(found), split.order)

    def run(self, tables: TableRun) -> TableRun | None:
        """A run of tables as the first part sees it; None if not all of it is asked of that part."""
        if all(_all_settled(split, tables) for split in self.query_splits):
            return self.views[0].tables(tables)
        return None

    def variances(self, group: Table) -> Array:
        return self.asked(group).added_up(lambda at, asked: self.answerers[at].variances(asked))

    def summed(self, group: Table, *, weighted: bool) -> float:
        found = self.asked(group).parts
        return math.fsum(self.answerers[at].summed(asked, weighted=weighted) for at, asked, _ in found)

    def run_total(self, tables: TableRun) -> float | None:
        seen = self.run(tables)
        return None if seen is None or seen.joint is not None else self.answerers[0].run_total(seen)

    def largest(self, group: Table) -> float:
        found = self.asked(group).parts
        if len(found) == 1:
            return self.answerers[found[0][0]].largest(found[0][1])
        return super().largest(group)

    def covariances(self, left: Table, right: Table) -> Array:
        one, two = self.asked(left), self.asked(right)
        result = np.zeros((left.count, right.count))
        for at, rows, orders in one.parts:
            for other, columns, others in two.parts:
                if at == other:
                    found = self.answerers[at].covariance(rows, columns)
                    result += in_order(others, in_order(orders, found), axis=1)
        return two.order.arranged(one.order.arranged(result), axis=1)

    def estimates(self, measured: Measured) -> Estimates:
        parts, measured = [], list(measured)
        for answerer, mine in zip(self.answerers, self._layers, strict=True):
            own = [(mine.index(layer), rows, values) for layer, rows, values in measured if layer in mine]
            parts.append(answerer.estimates(own))
        return Estimates((), (), None, tuple(parts))

    def estimator(self, estimates: Estimates) -> Estimator:
        return _SplitEstimator(self, estimates)

    def notes(self) -> Iterator[str]:
        for answerer in self.answerers:
            yield from answerer.notes()


class _SplitEstimator(TableEstimator):
    """Answers from the estimates of each part."""

    def __init__(self, coarsened: Coarsened, estimates: Estimates) -> None:
        super().__init__(estimates)
        self._coarsened = coarsened
        pairs = zip(coarsened.answerers, estimates.parts, strict=True)
        self._parts = [own.estimator(found) for own, found in pairs]

    def of_domain(self, number: int) -> Estimator:
        return self._parts[number]

    def marginals(self, subsets: Subsets, sizes: Sequence[int], classes: ByPlace = CELLS) -> Array:
        raise Infeasible(
            "this release was measured by classes of cells and not by cells, which post-processing starts "
            "from; plan the tables to be processed by themselves"
        )

    def answers(self, group: Table) -> Array:
        return self._coarsened.asked(group).added_up(lambda at, asked: self._parts[at].answers(asked))

    def run(self, tables: TableRun) -> Iterator[tuple[Indices, Array]]:
        seen = self._coarsened.run(tables)
        return super().run(tables) if seen is None else self._parts[0].run(seen)


def _all_settled(split: QuerySplit, part: TableRun) -> bool:
    """Whether nothing that these tables ask is beyond what is settled."""
    tied = np.zeros(len(part.schema), dtype=np.bool_)
    tied[list(split.attributes)] = True
    inside = np.unique(np.where(tied[part.subsets], part.subsets, -1), axis=0)
    return all(split.is_settled(row) for row in inside.tolist())
