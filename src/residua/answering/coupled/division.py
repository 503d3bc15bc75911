"""Which residuals the blocks of a strategy touch, and which blocks therefore have to be solved together.

A block whose rows are centred touches one residual, its own; if no other block touches that one it stands
alone, is answered as independent blocks are, and is never multiplied out. All others are coupled (O-001).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from residua._limits import MULTIPLIED_CELLS
from residua.answering.blocks import Blocks, Layer, Shape, block_classes
from residua.answering.coupled.coordinates import Places, Reduced, coordinates, dimension, reduced, touched
from residua.errors import Infeasible
from residua.linalg.centring import Measure
from residua.linalg.matrices import distinct_rows, join

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]
Truths = NDArray[np.bool_]

Residual = tuple[int, ...]
"""Attributes along which something is centred, positions in the schema, ascending."""

_Found = tuple[int, int, frozenset[Places]]
"""Layer, row, and the residuals that the block touches, as places."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What coupled blocks with equal matrices have in common; `shapes` are compared by identity.

    `layout` has the places of each shape in the block; `measures` one entry per place. `private` and `shared`
    are the residuals that the block touches, as places: those that no other block touches, and the others.
    """

    layout: tuple[Places, ...]
    shapes: tuple[Shape, ...]
    measures: tuple[Measure, ...]
    private: tuple[Places, ...]
    shared: tuple[Places, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute of the block."""
        return tuple(measure.size for measure in self.measures)

    def dims(self, residuals: Sequence[Places]) -> list[int]:
        """Dimension of each of these residuals."""
        return [dimension([self.sizes[place] for place in kept]) for kept in residuals]

    def reduce(self) -> Reduced:
        """The block in residual coordinates, private ones eliminated."""
        rows = _multiplied_out(self.layout, self.shapes)
        columns = [
            np.concatenate(
                [coordinates(rows, self.sizes, self.measures, kept) for kept in residuals]
                or [np.zeros((len(rows), 0))],
                axis=1,
            )
            for residuals in (self.private, self.shared)
        ]
        return reduced(columns[0], columns[1], math.prod(shape.rank for shape in self.shapes))


@dataclass(frozen=True, slots=True)
class CoupledBlock:
    """A block that has to be solved with others: where it is in the strategy, and what it measures."""

    layer: int
    row: int
    attributes: Residual
    noise: float
    kind: Kind

    def residual(self, places: Places) -> Residual:
        """The residual on these places of the block."""
        return tuple(self.attributes[place] for place in places)


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """The blocks of a strategy that stand alone, as layers, and those that are coupled."""

    alone: tuple[Layer, ...]
    coupled: tuple[CoupledBlock, ...]

    def is_alone(self, layer: int, rows: Integers) -> Truths:
        """Which blocks in these rows of a layer stand alone."""
        return ~np.isin(rows, [block.row for block in self.coupled if block.layer == layer])


def divided(blocks: Blocks) -> Division:
    """Which blocks stand alone and which are coupled."""
    touches = _Touched(blocks)
    counts: Counter[Residual] = Counter()
    coupled: list[_Found] = []
    centred: list[Integers] = []  # rows of each layer whose blocks touch their own residual alone
    for number, layer in enumerate(blocks.layers):
        whole = frozenset([tuple(range(layer.subsets.shape[1]))])
        alone_rows = [np.zeros(0, dtype=np.int64)]
        for rows in block_classes(blocks.measures, layer):
            found = touches.of_block(layer, int(rows[0]))
            if found == whole:
                alone_rows.append(rows)
            else:
                coupled += [(number, row, found) for row in rows.tolist()]
        centred.append(np.sort(np.concatenate(alone_rows)))
    for number, row, found in coupled:
        counts.update(_residuals(blocks.layers[number], row, found))
    alone = []
    repeated = _repeated(blocks.layers, centred)
    met = [_met(layer.subsets[rows], counts) for layer, rows in zip(blocks.layers, centred, strict=True)]
    for number, layer in enumerate(blocks.layers):
        together = met[number] | repeated[number]
        for row in centred[number][together].tolist():
            coupled.append((number, row, frozenset([tuple(range(layer.subsets.shape[1]))])))
            counts.update(_residuals(layer, *coupled[-1][1:]))
        if not together.all():
            alone.append(_chosen(layer, centred[number][~together]))
    coupled.sort(key=lambda entry: entry[:2])
    return Division(tuple(alone), tuple(_coupled(blocks, *entry, counts) for entry in coupled))


def _residuals(layer: Layer, row: int, found: frozenset[Places]) -> list[Residual]:
    attributes = layer.subsets[row].tolist()
    return [tuple(attributes[place] for place in kept) for kept in found]


def _repeated(layers: Sequence[Layer], centred: Sequence[Integers]) -> list[Truths]:
    """For each centred block of each layer whether another one is on the same attributes."""
    result = [np.zeros(len(rows), dtype=bool) for rows in centred]
    for ways in {layer.subsets.shape[1] for layer in layers}:
        numbers = [number for number, layer in enumerate(layers) if layer.subsets.shape[1] == ways]
        subsets = np.concatenate([layers[number].subsets[centred[number]] for number in numbers])
        _, inverse = distinct_rows(subsets.astype(np.int64))
        often = np.bincount(inverse)[inverse] > 1
        ends = np.cumsum([len(centred[number]) for number in numbers])
        for number, part in zip(numbers, np.split(often, ends[:-1]), strict=True):
            result[number] = part
    return result


def _met(subsets: Subsets, counts: Counter[Residual]) -> Truths:
    """Which centred blocks share their residual with a block that is not centred."""
    if not counts:
        return np.zeros(len(subsets), dtype=np.bool_)
    return np.array([tuple(row) in counts for row in subsets.tolist()], dtype=np.bool_)


def _chosen(layer: Layer, rows: Integers) -> Layer:
    return replace(
        layer,
        subsets=layer.subsets[rows],
        shapes=layer.shapes[rows],
        costs=layer.costs[rows],
        noise=layer.noise[rows],
        shares=None if layer.shares is None else layer.shares[rows],
    )


def _coupled(
    blocks: Blocks, number: int, row: int, found: frozenset[Places], counts: Counter[Residual]
) -> CoupledBlock:
    layer = blocks.layers[number]
    attributes = tuple(layer.subsets[row].tolist())
    residuals = sorted(found, key=lambda kept: (len(kept), kept))
    private = tuple(kept for kept in residuals if counts[tuple(attributes[at] for at in kept)] == 1)
    kind = Kind(
        layer.layout,
        tuple(blocks.shapes[at] for at in layer.shapes[row].tolist()),
        tuple(blocks.measures[at] for at in attributes),
        private,
        tuple(kept for kept in residuals if kept not in private),
    )
    return CoupledBlock(number, row, attributes, float(layer.noise[row]), kind)


class _Touched:
    """The residuals that blocks touch, found once for equal shapes under equal measures."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.known: dict[tuple[int, tuple[Measure, ...]], frozenset[Places]] = {}

    def of_block(self, layer: Layer, row: int) -> frozenset[Places]:
        """The residuals, as places, that a block touches."""
        measures = [self.blocks.measures[at] for at in layer.subsets[row].tolist()]
        each = []
        for number, places in zip(layer.shapes[row].tolist(), layer.layout, strict=True):
            own = tuple(measures[place] for place in places)
            if (number, own) not in self.known:
                whole = self.blocks.whole
                self.known[number, own] = touched(self.blocks.shapes[number], own, whole=whole)
            each.append([tuple(places[axis] for axis in kept) for kept in self.known[number, own]])
        return frozenset(tuple(sorted(sum(parts, ()))) for parts in product(*each))


def _multiplied_out(layout: Sequence[Places], shapes: Sequence[Shape]) -> Array:
    """The whole matrix of a block, (rows, cells), cells row-major over its places in order."""
    sizes = [size for shape in shapes for size in shape.sizes]
    cells = math.prod(sizes)
    if cells > MULTIPLIED_CELLS:
        raise Infeasible(
            f"a block of {cells:,} cells has to be solved together with others, and more than "
            f"{MULTIPLIED_CELLS:,} do not fit one dense matrix; use coarser attributes, or fewer of them in "
            "one table, or method 'querysmasher', whose blocks are independent"
        )
    order = np.argsort([place for places in layout for place in places])
    rows = join(shape.matrix for shape in shapes)
    return np.asarray(rows.reshape(len(rows), *sizes).transpose(0, *(1 + order)).reshape(len(rows), -1))
