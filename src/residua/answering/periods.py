"""Blocks that all measure some attributes whole, and are centred along the others, as instalments are.

With weights that are all zero along those attributes nothing of them is centred, and nothing is left of a
query without them; under those the blocks are independent (claim Y-002). A query that asks nothing of such an
attribute is one that asks for the total of its cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Array, Subsets
from residua.answering.blocks import Blocks
from residua.answering.independent.answerer import Independent
from residua.answering.protocol import CELLS, ByPlace, Estimates, Estimator, lengths
from residua.linalg.matrices import Measure
from residua.workload import Explicit, Factor


def whole_attributes(blocks: Blocks) -> tuple[int, ...]:
    """The attributes of all matrices that are not centred, if every block has them and no others with them.

    Nothing where that is not so.
    """
    found: set[int] = set()
    centred: set[tuple[int, ...]] = set()
    for layer in blocks.layers:
        for column, places in zip(layer.shapes.T, layer.layout, strict=True):
            uses = np.unique(np.column_stack([column, layer.subsets[:, list(places)]]), axis=0)
            for number, *attributes in uses.tolist():
                shape, measures = blocks.shapes[number], [blocks.measures[at] for at in attributes]
                if shape.is_centred(measures, whole=blocks.whole):
                    centred.add(tuple(attributes))
                else:
                    found.update(attributes)
    everywhere = all(found <= {*row} for layer in blocks.layers for row in layer.subsets.tolist())
    apart = all(found.isdisjoint(own) or found.issuperset(own) for own in centred)
    return tuple(sorted(found)) if everywhere and apart else ()


class Periods(Independent):
    """Blocks on different subsets of attributes, each with all of the attributes `whole`."""

    def __init__(self, blocks: Blocks, whole: Sequence[int]) -> None:
        measures = list(blocks.measures)
        self.cells = {at: blocks.sizes[at] for at in whole}
        for at, size in self.cells.items():
            measures[at] = Measure.of(np.zeros(size))
        super().__init__(replace(blocks, measures=tuple(measures)))
        self.residual_measures = blocks.measures
        ones = {at: Explicit((size,), np.ones((1, size))) for at, size in self.cells.items()}
        self.totals = {at: Factor((at,), queries) for at, queries in ones.items()}

    def estimator(self, estimates: Estimates) -> Estimator:
        return _WithTotals(estimates, self.cells)


class _WithTotals(Estimator):
    """Marginals without one of the whole attributes are sums over its cells of those with it."""

    def __init__(self, estimates: Estimates, cells: Mapping[int, int]) -> None:
        super().__init__(estimates)
        self.cells = cells

    def marginals(self, subsets: Subsets, sizes: Sequence[int], classes: ByPlace = CELLS) -> Array:
        lacking = next((at for at in self.cells if not (subsets == at).any(axis=1).all()), None)
        if lacking is None:
            return super().marginals(subsets, sizes, classes)
        result = np.zeros((len(subsets), *lengths(sizes, classes)))
        there = (subsets == lacking).any(axis=1)
        places = np.where(there, -1, (subsets < lacking).sum(axis=1))
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            if place < 0:
                result[rows] = self.marginals(subsets[rows], sizes, classes)
                continue
            wider = np.insert(subsets[rows], place, lacking, axis=1)
            own = [*sizes[:place], self.cells[lacking], *sizes[place:]]
            moved = {at + (at >= place): each for at, each in classes.items()}
            result[rows] = self.marginals(wider, own, moved).sum(axis=1 + place)
        return result
