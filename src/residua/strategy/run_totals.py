"""The sum of the variances of many tables at once, by looking up distinct parts instead of tables."""

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from residua.linalg.keys import distinct_rows
from residua.strategy.blocks import Layer
from residua.strategy.known_parts import KnownParts, not_together
from residua.strategy.parts import parts_of
from residua.workload import Factor, Tables

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]


def total_of_run(known: KnownParts, tables: Tables) -> float:
    """Sum of the variances of all queries of all tables; their families have one attribute each."""
    run = _RunTotal(known, tables)
    ways = tables.ways
    return math.fsum(
        run.total(chosen) for size in range(ways + 1) for chosen in combinations(range(ways), size)
    )


class _RunTotal:
    """What each attribute of a run contributes, by number of its distinct families."""

    def __init__(self, known: KnownParts, tables: Tables) -> None:
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

    def total(self, chosen: tuple[int, ...]) -> float:
        """What the blocks on these places of every table contribute."""
        kept = self.subsets[:, chosen]
        others = [place for place in range(self.tables.ways) if place not in chosen]
        scale = self.means[self.subsets[:, others]].prod(axis=1)
        nothing = self.vanishing[0, self.subsets[:, others]].any(axis=1) | self.vanishing[1, kept].any(axis=1)
        owners, places = self.known.index.find(kept)
        lost = (owners < 0) & ~nothing
        if lost.any():
            row = int(np.argmax(lost))
            raise not_together(self.tables[row].name, kept[row].tolist())
        sums = []
        for owner in np.unique(owners[(owners >= 0) & ~nothing]).tolist():
            here = (owners == owner) & ~nothing
            layer = self.known.layers[owner]
            figures = self._figures(layer, np.flatnonzero(here), kept[here], places[here])
            sums.append(float(np.sum(scale[here] * layer.noise[places[here]] * figures)))
        return math.fsum(sums)

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
