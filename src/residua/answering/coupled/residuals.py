"""Residual coordinates of queries and blocks, and which blocks have to be solved together (claim O-001).

For one attribute of n cells with weights p that sum to 1, let E be orthonormal columns that sum to zero,
shape (n, n - 1), and `F = E'(I - p 1')`. Then `I = p 1' + E F`: a query q has the coordinates `q p` and
`q E`, and counts x the coordinates `1'x` and `F x`. On several attributes coordinates are Kronecker products.

A block whose rows are centred touches one residual, its own; if no other block touches that one it stands
alone, is answered as independent blocks are, and is never multiplied out. All others are coupled.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise, product

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import MULTIPLIED_CELLS
from residua.answering.blocks import Blocks, Layer, Memory, Shape, block_classes, whole_growth, whole_project
from residua.errors import Infeasible
from residua.linalg.matrices import Measure, along_axes, join, pseudo_inverse, subsets_of, triangle_inverse

Places = tuple[int, ...]
"""Axes of a block or table, ascending; as a residual, those along which something is centred."""

Residual = tuple[int, ...]
"""Attributes along which something is centred, positions in the schema, ascending."""

FEW_CELLS = 128  # up to which contrasts are kept: they are asked for many times
RANK_RATIO = 1e-9  # singular values of parts of orthonormal rows: below it lies what rounding leaves of zero


def contrasts(size: int) -> Array:
    """E, orthonormal columns that sum to zero, shape (size, size - 1).

    >>> contrasts(3).shape, float(np.abs(contrasts(3).sum(axis=0)).max().round(12))
    ((3, 2), 0.0)
    """
    return _few_contrasts(size) if size <= FEW_CELLS else _contrasts(size)


def _contrasts(size: int) -> Array:
    steps = np.arange(1, size)
    scale = 1.0 / np.sqrt(steps * (steps + 1.0))
    columns = np.triu(np.ones((size, size - 1))) * scale
    columns[steps, steps - 1] = -steps * scale
    columns.flags.writeable = False
    return columns


_few_contrasts = lru_cache(_contrasts)


def turned(rows: Array, sizes: Sequence[int], measures: Sequence[Measure]) -> Array:
    """Rows in all coordinates, (k, cells) to (k, sizes...): along each axis the mean, then the others."""
    if rows.shape[1] <= FEW_CELLS:
        return (rows @ _few_turn(tuple(measures))).reshape(len(rows), *sizes)
    return along_axes(rows, [_turn(measure).T for measure in measures]).reshape(len(rows), *sizes)


def _turn(measure: Measure) -> Array:
    return np.column_stack([measure.vector(), contrasts(measure.size)])


@lru_cache
def _few_turn(measures: tuple[Measure, ...]) -> Array:
    """The same along all axes at once."""
    return join(map(_turn, measures))


def part_of(tensor: Array, kept: Sequence[int]) -> Array:
    """Those in the residual on the axes `kept`: (k, sizes...) to (k, product of n - 1)."""
    each = (slice(1, None) if axis in kept else 0 for axis in range(tensor.ndim - 1))
    return tensor[(slice(None), *each)].reshape(len(tensor), -1)


def dimension(sizes: Sequence[int]) -> int:
    """Dimension of the residual on attributes of these sizes."""
    return math.prod(size - 1 for size in sizes)


def lifted(values: Array, sizes: Sequence[int]) -> Array:
    """Centred cells from coordinates of counts: (k, product of n - 1) to (k, sizes...)."""
    return along_axes(values, [contrasts(size) for size in sizes]).reshape(len(values), *sizes)


def touched(shape: Shape, measures: Sequence[Measure], *, whole: bool) -> frozenset[Places]:
    """The residuals, as sets of axes of the shape, in which some row has a part that is not zero."""
    if shape.is_centred(measures, whole=whole):
        return frozenset([tuple(range(len(shape.sizes)))])
    kept_axes = subsets_of([axis for axis, size in enumerate(shape.sizes) if size > 1])
    if shape.whole_rank:
        return frozenset(kept_axes)
    tensor = turned(shape.matrix, shape.sizes, measures)

    def has_part(kept: Places) -> bool:
        if shape.stands_out(part_of(tensor, kept), whole=whole):
            return True
        return whole and bool(np.any(whole_project(shape.whole_rows(whole_growth(measures)), measures, kept)))

    return frozenset(filter(has_part, kept_axes))


@dataclass(frozen=True, eq=False)
class Reduced:
    """A block at noise variance 1, reduced to what it says about shared coordinates.

    With `u = c gain` for a query with private coordinates c, its answer has the variance `|u|^2` from this
    block, and it needs `c_s - c carry` of the shared coordinates; c must lie in the span of `seen`. The block
    says `spread z_s` with noise of variance 1, spread being (k, shared), on top of that; `known` are
    orthonormal rows with the row space of `spread`.
    Measured numbers y become `y left`: those for the gain first, then those for the spread.
    """

    gain: Array  # (private, rank of P)
    carry: Array  # (private, shared)
    seen: Array | None  # (private, rank of P), orthonormal; None if everything is seen
    spread: Array  # (k, shared)
    known: Array  # (k, shared)
    ordered: Array  # (rows, rank of P + k), the block in coordinates with private ones first

    @cached_property
    def left(self) -> Array:
        """What turns measured numbers, (rows, rank of P + k)."""
        return np.asarray(np.linalg.qr(self.ordered)[0])

    @property
    def private_rank(self) -> int:
        """Number of directions of private coordinates that are measured."""
        return int(self.gain.shape[1])


def reduced(private: Array, shared: Array, rank: int) -> Reduced:
    """The block that measures `[P | H]`, of this rank: P is (rows, private), H is (rows, shared)."""
    width = private.shape[1]
    whole: Array = np.concatenate([private, shared], axis=1)
    basis = _row_basis(whole, rank)  # None if all coordinates are measured
    back: Array = np.eye(width)
    seen: Array | None = None
    if basis is None:
        top, apart, ranked = np.zeros((width, shared.shape[1])), np.eye(shared.shape[1]), width
        ordered = whole
    else:
        turn, rows, ranked = _turned_rows(basis[:, :width])
        spaces = turn.T @ basis[:, width:]
        top, apart = spaces[:ranked], spaces[ranked:]
        back = pseudo_inverse(rows) if ranked else np.zeros((width, 0))
        if ranked < width:
            seen = np.asarray(np.linalg.qr(rows.T)[0])
        ordered = whole @ basis.T @ turn
    upper = np.asarray(np.linalg.qr(ordered, mode="r"))
    first = triangle_inverse(upper[:ranked, :ranked])
    carried = top + first @ upper[:ranked, ranked:] @ apart
    spread = upper[ranked:, ranked:] @ apart
    return Reduced(back @ first, back @ carried, seen, spread, apart, ordered)


def _row_basis(matrix: Array, rank: int) -> Array | None:
    """Orthonormal rows with the row space of the matrix, (rank, columns), or None if that is everything."""
    if rank == matrix.shape[1]:
        return None
    lengths = np.linalg.norm(matrix, axis=1)
    unit = matrix[lengths > 0] / lengths[lengths > 0, None]
    if len(unit) == rank:
        return np.asarray(np.linalg.qr(unit.T)[0].T)
    return np.asarray(np.linalg.svd(unit, full_matrices=False)[2][:rank])


def _turned_rows(rows: Array) -> tuple[Array, Array, int]:
    """Orthogonal U and rows R of full rank with `rows = U [R; 0]`, and the number of rows of R."""
    count, width = rows.shape
    if not width:
        return np.eye(count), np.zeros((0, 0)), 0
    turn, scales, right = np.linalg.svd(rows, full_matrices=count > width)
    ranked = int(np.sum(scales > RANK_RATIO))
    return turn, scales[:ranked, None] * right[:ranked], ranked


@dataclass(frozen=True, slots=True)
class BlockClass:
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

    @property
    def private_runs(self) -> list[tuple[Places, slice]]:
        """The private residuals, and where each is among the private coordinates."""
        dims = [dimension([self.sizes[place] for place in kept]) for kept in self.private]
        ends = np.cumsum([0, *dims]).tolist()
        return [(kept, slice(*run)) for kept, run in zip(self.private, pairwise(ends), strict=True)]

    def reduced(self, memory: Memory) -> Reduced:
        """The block in residual coordinates, private ones eliminated."""
        return memory.of(self, self._reduced)

    def _reduced(self) -> Reduced:
        rows = _multiplied_out(self.layout, self.shapes)
        tensor, none = turned(rows, self.sizes, self.measures), np.zeros((len(rows), 0))
        columns = [
            np.concatenate([part_of(tensor, kept) for kept in residuals] or [none], axis=1)
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
    block_class: BlockClass

    def residual(self, places: Places) -> Residual:
        """The residual on these places of the block."""
        return tuple(self.attributes[place] for place in places)

    @property
    def shared(self) -> list[Residual]:
        """The residuals that it shares with other blocks."""
        return list(map(self.residual, self.block_class.shared))


def divided(blocks: Blocks) -> tuple[tuple[Layer, ...], tuple[CoupledBlock, ...]]:
    """The blocks that stand alone, as layers, and those that are coupled."""
    classes = [
        (number, layer, rows, _touched_by(blocks, layer, int(rows[0])))
        for number, layer in enumerate(blocks.layers)
        for rows in block_classes(blocks.measures, layer)
    ]
    counts: Counter[Residual] = Counter()
    for _, layer, rows, found in classes:
        for kept in found:
            counts.update(map(tuple, layer.subsets[rows][:, kept].tolist()))
    coupled: list[CoupledBlock] = []
    alone: dict[int, list[Integers]] = {}
    for number, layer, rows, found in classes:
        if found == {tuple(range(layer.subsets.shape[1]))}:
            single = np.array([counts[tuple(row)] == 1 for row in layer.subsets[rows].tolist()])
            if single.any():
                alone.setdefault(number, []).append(rows[single])
            rows = rows[~single]
        coupled += [_coupled(blocks, number, row, found, counts) for row in rows.tolist()]
    coupled.sort(key=lambda block: (block.layer, block.row))
    chosen = (blocks.layers[at].take(np.sort(np.concatenate(alone[at]))) for at in sorted(alone))
    return tuple(chosen), tuple(coupled)


def _touched_by(blocks: Blocks, layer: Layer, row: int) -> frozenset[Places]:
    """The residuals, as places, that a block touches."""
    measures = [blocks.measures[at] for at in layer.subsets[row].tolist()]
    each = []
    for number, places in zip(layer.shapes[row].tolist(), layer.layout, strict=True):
        shape, own = blocks.shapes[number], tuple(measures[place] for place in places)
        find = partial(touched, shape, own, whole=blocks.whole)
        found = blocks.memory.of((shape, own, blocks.whole), find)
        each.append([tuple(places[axis] for axis in kept) for kept in found])
    return frozenset(tuple(sorted(sum(parts, ()))) for parts in product(*each))


def _coupled(
    blocks: Blocks, number: int, row: int, found: frozenset[Places], counts: Counter[Residual]
) -> CoupledBlock:
    layer = blocks.layers[number]
    attributes = tuple(layer.subsets[row].tolist())
    residuals = sorted(found, key=lambda kept: (len(kept), kept))
    private = tuple(kept for kept in residuals if counts[tuple(attributes[at] for at in kept)] == 1)
    block_class = BlockClass(
        layer.layout,
        tuple(blocks.shapes[at] for at in layer.shapes[row].tolist()),
        tuple(blocks.measures[at] for at in attributes),
        private,
        tuple(kept for kept in residuals if kept not in private),
    )
    return CoupledBlock(number, row, attributes, float(layer.noise[row]), block_class)


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
