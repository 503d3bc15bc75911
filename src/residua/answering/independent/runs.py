"""The sum of the variances of many tables at once, by looking up distinct parts instead of tables."""

import math

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, Shape
from residua.answering.independent.cache import PartCache, not_together
from residua.answering.independent.parts import parts_of
from residua.linalg.keys import distinct_rows
from residua.workload import Factor, Identity, TableRun, Total
from residua.workload.groups import choices

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]

ROUNDING = 1e-12  # relative; variances this close are one


def total_of_run(known: PartCache, tables: TableRun) -> float:
    """Sum of the variances of all queries of all tables; their families have one attribute each."""
    return known.of_run(tables, _RunTotal(known, tables).sums)[0]


def least_accurate(known: PartCache, tables: TableRun) -> int | None:
    """Place of the table with the largest variance; None unless all queries of a table have the same one.

    As for marginals: then the largest variance of a table is its mean.
    """
    run = _RunTotal(known, tables)
    if not run.even():
        return None
    counts = np.zeros(len(tables.schema))
    for at, factor in run.factors.items():
        counts[at] = float(factor.queries.count)
    _, totals = known.of_run(tables, run.sums)
    return int(np.argmax(totals / counts[run.subsets].prod(axis=1)))


class _RunTotal:
    """What each attribute of a run contributes, by number of its distinct families."""

    def __init__(self, known: PartCache, tables: TableRun) -> None:
        self.known, self.tables = known, tables
        self.subsets: Subsets = np.sort(tables.subsets, axis=1)
        self.factors = {at: Factor((at,), tables.queries_of(at)) for at in tables.attributes}
        width = len(tables.schema)
        numbers: dict[object, int] = {}
        self.kinds = np.zeros(width, dtype=np.int64)
        self.means = np.zeros(width)
        self.vanishing = np.zeros((2, width), dtype=bool)  # what is left out, and what is kept
        for at, factor in self.factors.items():
            self.kinds[at] = numbers.setdefault((factor.queries, known.measures[at]), len(numbers))
            (mean,) = parts_of([factor], [()], known.measures, [])
            self.means[at] = known.summed(mean, weighted=False)
            (alone,) = parts_of([factor], [(0,)], known.measures, [])
            self.vanishing[:, at] = known.vanishes(mean), known.vanishes(alone)

    def even(self) -> bool:
        """Whether all queries of each table have the same variance, every cell being treated alike."""
        if not all(isinstance(factor.queries, Identity | Total) for factor in self.factors.values()):
            return False
        return all(measure.weights is None for measure in self.known.measures) and all(
            len(shape.sizes) == 1 and _even(shape) for shape in self.known.shapes
        )

    def sums(self) -> tuple[float, Array]:
        """Sum of the variances of all queries, and the sum of each table's, (tables,)."""
        parts = []
        by_table = np.zeros(len(self.subsets))
        for chosen in choices(self.tables.ways):
            more = self.by_table(chosen)
            parts.append(float(more.sum()))
            by_table += more
        return math.fsum(parts), by_table

    def by_table(self, chosen: tuple[int, ...]) -> Array:
        """What the blocks on these places of every table add to the sum of its variances, (tables,)."""
        kept = self.subsets[:, chosen]
        others = [place for place in range(self.tables.ways) if place not in chosen]
        scale = self.means[self.subsets[:, others]].prod(axis=1)
        nothing = self.vanishing[0, self.subsets[:, others]].any(axis=1) | self.vanishing[1, kept].any(axis=1)
        owners, places = self.known.index.find(kept)
        nothing |= self.known.elsewhere.find(kept)[0] >= 0
        lost = (owners < 0) & ~nothing
        if lost.any():
            row = int(np.argmax(lost))
            raise not_together(self.tables[row].name, kept[row].tolist())
        sums = np.zeros(len(kept))
        for owner in np.unique(owners[(owners >= 0) & ~nothing]).tolist():
            here = (owners == owner) & ~nothing
            layer = self.known.layers[owner]
            figures = self._figures(layer, np.flatnonzero(here), kept[here], places[here])
            sums[here] = scale[here] * layer.noise[places[here]] * figures
        return sums

    def _figures(self, layer: Layer, tables: NDArray[np.intp], kept: Subsets, rows: Integers) -> Array:
        """Sum of the variances at noise 1 of each table in its block, each distinct case worked out once."""
        if not kept.shape[1]:
            return np.ones(len(kept))
        shapes = layer.shapes[rows]
        if all(len(places) == 1 for places in layer.layout):
            order = [places[0] for places in layer.layout]
            columns = [
                self._distinct(tables, kept[:, [place]], shapes[:, [number]], ((0,),))
                for number, place in enumerate(order)
            ]
            return np.asarray(np.prod(columns, axis=0))
        return self._distinct(tables, kept, shapes, layer.layout)

    def _distinct(
        self,
        tables: NDArray[np.intp],
        kept: Subsets,
        shapes: Integers,
        layout: tuple[tuple[int, ...], ...],
    ) -> Array:
        first, inverse = distinct_rows(np.concatenate([self.kinds[kept], shapes], axis=1))
        values = np.empty(len(first))
        for place, row in enumerate(first.tolist()):
            attributes = kept[row].tolist()
            measured = [
                (tuple(attributes[at] for at in places), int(number), self.known.shapes[number])
                for places, number in zip(layout, shapes[row].tolist(), strict=True)
            ]
            factors = [self.factors[at] for at in attributes]
            parts = list(parts_of(factors, [(0,)] * len(factors), self.known.measures, measured))
            for part in parts:
                self.known.refuse_outside(part, self.tables[int(tables[row])].name, attributes)
            values[place] = math.prod(self.known.summed(part, weighted=False) for part in parts)
        return np.asarray(values[inverse])


def _even(shape: Shape) -> bool:
    """Whether the shape answers all cells with the same variance."""
    variances = np.sum(shape.inverse**2, axis=1)
    return bool(np.ptp(variances) <= ROUNDING * variances.max())
