"""Blocks that all measure one attribute whole, and are centred along the others: instalments over periods.

With weights that are all zero along that attribute nothing of it is centred, and nothing is left of a query
without it; under those the blocks are independent (claim Y-002). A query that asks nothing of the attribute
is one that asks for the total of its cells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Array, Subsets
from residua.answering.blocks import Blocks, Layer
from residua.answering.independent.answerer import Independent
from residua.answering.protocol import Answerer, Estimates, Estimator, Factored
from residua.linalg.classes import Classes
from residua.linalg.matrices import Measure
from residua.workload import Explicit, Factor, Table, TableRun, Total


def whole_attribute(blocks: Blocks) -> int | None:
    """The attribute that every block measures whole, by a matrix of its own, if there is one."""
    found = set[int].intersection(*({*row} for layer in blocks.layers for row in layer.subsets.tolist()))
    kept = (at for at in sorted(found) if all(_keeps(blocks, layer, at) for layer in blocks.layers))
    return next(kept, None)


def _keeps(blocks: Blocks, layer: Layer, at: int) -> bool:
    """Whether blocks measure all of an attribute, and centred rows of the others."""
    for column, places in zip(layer.shapes.T, layer.layout, strict=True):
        uses = np.unique(np.column_stack([column, layer.subsets[:, list(places)]]), axis=0)
        for number, *attributes in uses.tolist():
            shape, measures = blocks.shapes[number], [blocks.measures[other] for other in attributes]
            whole = attributes == [at] and shape.rank == shape.sizes[0]
            if not whole and (at in attributes or not shape.is_centred(measures, whole=blocks.whole)):
                return False
    return True


class Periods(Independent):
    """Blocks on different subsets of attributes, each with all of attribute `at`."""

    def __init__(self, blocks: Blocks, at: int) -> None:
        measures = list(blocks.measures)
        measures[at] = Measure.of(np.zeros(blocks.sizes[at]))
        super().__init__(replace(blocks, measures=tuple(measures)))
        self.at = at
        self._plain = Factor((at,), Total(blocks.sizes[at]))
        self._total = Factor((at,), Explicit((blocks.sizes[at],), np.ones((1, blocks.sizes[at]))))

    def _with_total(self, group: Table) -> Table:
        """The same queries, on the attribute too; totals of it as queries on its cells."""
        whole = [self._total if own == self._plain else own for own in group.factors]
        whole += [] if self.at in group.attributes else [self._total]
        return replace(group, factors=tuple(whole))

    def variances(self, group: Table) -> Array:
        return super().variances(self._with_total(group))

    def variances_by_table(self, part: Table | TableRun) -> Iterator[Array]:
        return Answerer.variances_by_table(self, part)

    def summed(self, group: Table, *, weighted: bool) -> float:
        return super().summed(self._with_total(group), weighted=weighted)

    def run_total(self, tables: TableRun) -> float | None:
        return super().run_total(tables) if (tables.subsets == self.at).any(axis=1).all() else None

    def largest(self, group: Table) -> float:
        return super().largest(self._with_total(group))

    def covariances(self, left: Table, right: Table) -> Array:
        return super().covariances(self._with_total(left), self._with_total(right))

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        return Answerer.examples(self, part)

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        return Answerer.least_accurate(self, part)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        return None

    def estimator(self, estimates: Estimates) -> Estimator:
        return _WithPeriods(estimates, self.at, self.blocks.sizes[self.at])


class _WithPeriods(Estimator):
    """Marginals without the attribute are sums over its cells of those with it."""

    def __init__(self, estimates: Estimates, at: int, cells: int) -> None:
        super().__init__(estimates)
        self.at, self.cells = at, cells

    def by_classes(self, subsets: Subsets, classes: Sequence[Classes]) -> Array:
        result = np.zeros((len(subsets), *(own.count for own in classes)))
        there = (subsets == self.at).any(axis=1)
        places = np.where(there, -1, (subsets < self.at).sum(axis=1))
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            if place < 0:
                result[rows] = super().by_classes(subsets[rows], classes)
                continue
            wider = np.insert(subsets[rows], place, self.at, axis=1)
            own = [*classes[:place], Classes.every(self.cells), *classes[place:]]
            result[rows] = super().by_classes(wider, own).sum(axis=1 + place)
        return result
