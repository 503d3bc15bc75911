"""Variances of best linear unbiased answers, from the measured matrices and the queries themselves.

Three ways, each a few lines of linear algebra: one block that is a product, blocks that are centred and so
add up, and any blocks over few joint cells. What fits none of them is not recomputed.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Array, Integers
from residua.kernel.measurement import Measurement
from residua.linalg.classes import JointClasses
from residua.strategy.strategy import Strategy, measurements_of, stated_costs
from residua.workload import Factor, Table

JOINT_CELLS = 1_024  # over which all blocks are solved as one matrix
ENTRIES = 20_000_000  # of one matrix: 160 MB
BLUR = (1e-13, 1e-9)  # singular values between these, relative to the largest, are neither zero nor not
OUTSIDE = 1e-9  # of a query's squared length: what is more is not in the span


@dataclass(frozen=True, slots=True)
class Found:
    """Variance of each query of a table, (count,), and whether all are combinations of what is measured."""

    variances: Array
    in_span: bool


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Matrices on some attributes each, in the order of their axes, and the variance of each number."""

    axes: tuple[tuple[int, ...], ...]
    matrices: tuple[Array, ...]
    variance: float
    derived: tuple[JointClasses, ...]
    within: tuple[int, int] | None = None  # the attribute whose one cell it is within, and that cell

    @property
    def attributes(self) -> tuple[int, ...]:
        return tuple(at for axes in self.axes for at in axes)

    @property
    def cells(self) -> int:
        return math.prod(matrix.shape[1] for matrix in self.matrices)


def blocks_of(strategy: Strategy) -> Iterator[Block]:
    """Every block of a strategy."""
    for layer in strategy.layers:
        view = strategy.domains[layer.domain].view.parts
        rows = enumerate(zip(layer.subsets, layer.shapes, layer.noise, strict=True))
        for place, (subset, numbers, noise) in rows:
            axes = tuple(tuple(int(subset[at]) for at in places) for places in layer.layout)
            matrices = tuple(strategy.shapes[number].matrix for number in numbers.tolist())
            within = None if layer.within is None else (layer.within, place)
            yield Block(axes, matrices, float(noise), view, within)


def way_for(strategy: Strategy, sizes: Sequence[int], attributes: Sequence[int]) -> "Joint | Pieces | None":
    """The way that fits a strategy and tables on these attributes, if any does."""
    used = sorted({*strategy.attributes(), *attributes})
    cells = math.prod(sizes[at] for at in used)
    if strategy.nested and cells > JOINT_CELLS:
        return None
    blocks = list(blocks_of(strategy))
    rows = sum(math.prod(map(len, block.matrices)) for block in blocks)
    if cells <= JOINT_CELLS and rows * cells <= ENTRIES:
        joint = Joint(blocks, used, [sizes[at] for at in used])
        return None if joint.blurred else joint
    if strategy.coarsened or strategy.nested:
        return None
    if len(blocks) == 1:
        return Pieces(blocks, _means(strategy), centred=False)
    return centred_pieces(strategy)


def centred_pieces(strategy: Strategy) -> "Pieces | None":
    """The way of centred blocks on different attributes, where a strategy has no others.

    One attribute that all blocks have may be whole: under means that are all zero its rows are centred.
    """
    blocks = list(blocks_of(strategy))
    subsets = {frozenset(block.attributes) for block in blocks}
    if strategy.coarsened or strategy.nested or len(subsets) < len(blocks):
        return None
    for whole in (None, *sorted(frozenset.intersection(*subsets))):
        means = _means(strategy)
        if whole is not None:
            means[whole] = np.zeros(len(means[whole]))
        if _centred(strategy, means):
            return Pieces(blocks, means, centred=True, whole=whole)
    return None


def _means(strategy: Strategy) -> list[Array]:
    return [measure.vector() for measure in strategy.measures]


def _centred(strategy: Strategy, means: Sequence[Array]) -> bool:
    """Whether every row has mean zero along every axis, exactly where matrices are integers (claim X-002)."""
    seen = set()
    for layer in strategy.layers:
        for subset, numbers in zip(layer.subsets.tolist(), layer.shapes.tolist(), strict=True):
            for number, places in zip(numbers, layer.layout, strict=True):
                seen.add((number, tuple(subset[at] for at in places)))
    for number, attributes in seen:
        shape = strategy.shapes[number]
        tensor = shape.matrix.reshape(-1, *shape.sizes)
        for axis, at in enumerate(attributes):
            left = np.tensordot(tensor, means[at], axes=(1 + axis, 0))
            if np.abs(left).max(initial=0.0) > 1e-10 * np.abs(tensor).max():
                return False
    return True


class Joint:
    """Any blocks, as one matrix over all joint cells of the attributes in use (claim X-001)."""

    words = "one matrix over all joint cells"

    def __init__(self, blocks: Sequence[Block], used: Sequence[int], sizes: Sequence[int]) -> None:
        self.used, self.sizes = list(used), list(sizes)
        cells = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
        codes = dict(zip(used, cells, strict=True))
        rows = np.concatenate([_spread(block, codes, cells.shape[1]) for block in blocks])
        scales, right = np.linalg.svd(np.linalg.qr(rows, mode="r") if len(rows) > len(rows[0]) else rows)[1:]
        relative = scales / scales[0]
        self.blurred = bool(((relative > BLUR[0]) & (relative < BLUR[1])).any())
        kept = relative > BLUR[1]
        basis = right[: len(scales)][kept]
        self.covariance = (basis.T / scales[kept] ** 2) @ basis  # (cells, cells)
        self.outside = np.eye(len(rows[0])) - basis.T @ basis

    def table(self, table: Table) -> Found | None:
        """What is found of a table; None where that takes too much."""
        if not table.listable or table.count * table_cells(table) > ENTRIES:
            return None
        rows = rows_of(table)
        spread = math.prod(self.sizes) / rows.shape[1]  # a query's squared length over all joint cells
        left = np.einsum("qi,ij,qj->q", rows, self._of(self.outside, table), rows, optimize=True)
        variances = np.einsum("qi,ij,qj->q", rows, self._of(self.covariance, table), rows, optimize=True)
        return Found(variances, bool((left <= OUTSIDE * spread * (rows**2).sum(axis=1)).all()))

    def _of(self, square: Array, table: Table) -> Array:
        """Sums of a matrix over all joint cells to the cells of a table, in the order of its attributes."""
        wide, asked = len(self.used), [self.used.index(at) for at in table.attributes]
        others = [at for at in range(wide) if at not in asked]
        tensor = square.reshape(self.sizes * 2)
        tensor = tensor.sum(axis=(*others, *(wide + at for at in others)))
        order = np.argsort(np.argsort(asked))
        cells = table_cells(table)
        return np.asarray(tensor.transpose(*order, *(len(asked) + order)).reshape(cells, cells))


def _spread(block: Block, codes: dict[int, NDArray[np.int64]], cells: int) -> Array:
    """Rows of a block over all joint cells, divided by the standard deviation of their noise."""
    seen = dict(codes)
    for part in block.derived:
        seen[part.place] = part.classes()[tuple(codes[at] for at in part.attributes)]
    at = np.zeros(cells, dtype=np.int64)
    for attribute in block.attributes:
        at = at * (int(seen[attribute].max()) + 1) + seen[attribute]
    inside = True if block.within is None else seen[block.within[0]] == block.within[1]
    return kron(block.matrices)[:, at] * inside / math.sqrt(block.variance)


Tensor = tuple[tuple[int, ...], Array]
"""Attributes, and rows over their cells: (queries, sizes...)."""


class Pieces:
    """One product block, or centred blocks on different attributes, whose variances add up (X-002, X-003).

    A query that asks nothing of an attribute that is `whole` asks for the total of its cells (Y-002).
    """

    def __init__(
        self, blocks: Sequence[Block], means: Sequence[Array], *, centred: bool, whole: int | None = None
    ) -> None:
        self.blocks = {frozenset(block.attributes): block for block in blocks}
        self.means, self.centred, self.whole = means, centred, whole
        self._inverses: dict[int, Array] = {}
        self.words = "the pieces of every query, block by block" if centred else "its one product block"

    def table(self, table: Table) -> Found | None:
        """What is found of a table; None where that takes too much."""
        if not table.listable or table.count > ENTRIES:
            return None
        factors = [tensor_of(factor) for factor in table.factors]
        if any(factor is None for factor in factors):
            return None
        shown = [factor for factor in factors if factor is not None]
        total, outside = np.zeros(table.count), np.zeros(table.count)
        length = kron([_squares(rows) for _, rows in shown], 1)
        for attributes, parts in self.cut(shown):
            block = self.blocks.get(attributes)
            if block is None:
                outside += kron([_squares(rows) for _, rows in parts], 1)
                continue
            found = self._answered(parts, block)
            if found is None:
                return None
            total += found[0] * block.variance
            outside += found[1]
        return Found(total, bool((outside <= OUTSIDE * np.maximum(length, 1e-300)).all()))

    def cut(self, factors: Sequence[Tensor]) -> Iterator[tuple[frozenset[int], list[Tensor]]]:
        """The parts of a table on each subset of its attributes; of one product block, the whole of it."""
        if not self.centred:
            [block] = self.blocks.values()
            own = [each for each in factors if {*each[0]} & {*block.attributes} or not _is_total(each)]
            asked = {at for attributes, _ in own for at in attributes}
            rest = [at for at in block.attributes if at not in asked]
            yield (
                frozenset(block.attributes) | asked,
                [*own, *(((at,), np.ones((1, len(self.means[at])))) for at in rest)],
            )
            return
        if self.whole is not None and all(self.whole not in attributes for attributes, _ in factors):
            factors = [*factors, ((self.whole,), np.ones((1, len(self.means[self.whole]))))]
        choices = [list(product((False, True), repeat=len(attributes))) for attributes, _ in factors]
        for kept in product(*choices):
            parts = [self._part(factor, own) for factor, own in zip(factors, kept, strict=True)]
            yield frozenset(at for attributes, _ in parts for at in attributes), parts

    def _part(self, factor: Tensor, kept: Sequence[bool]) -> Tensor:
        """Rows centred along the axes that are kept, and their means along the others."""
        attributes, tensor = factor
        for axis in reversed(range(len(kept))):
            mean = np.tensordot(tensor, self.means[attributes[axis]], axes=(1 + axis, 0))
            tensor = tensor - np.expand_dims(mean, 1 + axis) if kept[axis] else mean
        return tuple(at for at, own in zip(attributes, kept, strict=True) if own), tensor

    def _answered(self, parts: Sequence[Tensor], block: Block) -> tuple[Array, Array] | None:
        """Squared length of each query's combination of a block's rows, and of what is left; (count,) each.

        Parts and matrices that share attributes are taken together, all others multiply.
        """
        counts = [len(rows) for _, rows in parts]
        variances, inside, length = (np.ones(counts) for _ in range(3))
        for chosen, matrices in _components([attributes for attributes, _ in parts], block.axes):
            own = [parts[at] for at in chosen]
            attributes = [at for matrix in matrices for at in block.axes[matrix]]
            if math.prod(rows.size for _, rows in own) > ENTRIES:
                return None
            rows = _outer(own, attributes)
            B = kron([block.matrices[at] for at in matrices])
            inverse = kron([self._inverse(block.matrices[at]) for at in matrices])
            combination = rows @ inverse
            left = (rows - combination @ B) ** 2
            shape = [counts[at] if at in chosen else 1 for at in range(len(parts))]
            squares = (rows**2).sum(axis=1)
            variances = variances * (combination**2).sum(axis=1).reshape(shape)
            inside = inside * (squares - left.sum(axis=1)).reshape(shape)
            length = length * squares.reshape(shape)
        return variances.reshape(-1), (length - inside).reshape(-1)

    def _inverse(self, matrix: Array) -> Array:
        if id(matrix) not in self._inverses:
            self._inverses[id(matrix)] = np.asarray(np.linalg.pinv(matrix, rcond=BLUR[1]), dtype=np.float64)
        return self._inverses[id(matrix)]


def _components(
    parts: Sequence[Sequence[int]], axes: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], list[int]]]:
    """Numbers of parts and of matrices that share attributes; a part on none stands alone."""
    left = set(range(len(parts)))
    while left:
        chosen, attributes = {min(left)}, set(parts[min(left)])
        while True:
            matrices = [at for at, own in enumerate(axes) if attributes & set(own)]
            attributes |= {at for matrix in matrices for at in axes[matrix]}
            more = {at for at in left if attributes & set(parts[at])} | chosen
            if more == chosen:
                break
            chosen = more
            attributes |= {at for part in chosen for at in parts[part]}
        left -= chosen
        yield sorted(chosen), matrices


def _outer(parts: Sequence[Tensor], attributes: Sequence[int]) -> Array:
    """Every product of one row of each part, (queries, cells), cells in the order of these attributes."""
    found = reduce(np.multiply.outer, [rows for _, rows in parts], np.ones(()))
    axes, at = [], 0
    where: dict[int, int] = {}
    for own, rows in parts:
        axes.append(at)
        where |= {attribute: at + 1 + place for place, attribute in enumerate(own)}
        at += rows.ndim
    count = math.prod(len(rows) for _, rows in parts)
    return found.transpose(*axes, *(where[attribute] for attribute in attributes)).reshape(count, -1)


def tensor_of(factor: Factor) -> Tensor | None:
    queries = factor.queries
    if queries.count * queries.cells > ENTRIES:
        return None
    return factor.attributes, queries.matrix().reshape(queries.count, *queries.sizes)


def _is_total(part: Tensor) -> bool:
    return len(part[1]) == 1 and bool((part[1] == 1).all())


def _squares(rows: Array) -> Array:
    return np.asarray((rows.reshape(len(rows), -1) ** 2).sum(axis=1))


def kron(arrays: Iterable[Array], axes: int = 2) -> Array:
    """Kronecker product of matrices, or of vectors with one axis; of none, the number one."""
    found: Array = np.ones((1,) * axes)
    for array in arrays:
        found = np.asarray(np.kron(found, array), dtype=np.float64)
    return found


def table_cells(table: Table) -> int:
    """Cells of the marginal that a table is on."""
    return math.prod(factor.queries.cells for factor in table.factors)


def rows_of(table: Table) -> Array:
    """Every query of a table, row by row, (count, cells)."""
    return kron([factor.queries.matrix() for factor in table.factors])


def weights_of(table: Table) -> Array:
    """The weight of each query's variance, (count,)."""
    return table.weight * kron((own.every_weight for own in table.families), 1)


def measured_so_far(strategy: Strategy) -> Iterator[Measurement]:
    """The measured rows with noise that makes each block cost what it states (claim X-007).

    A release so far has whole matrices and costs in floats, not the exact shares of the whole plan.
    """
    matrices = [_whole(shape.matrix) for shape in strategy.shapes]
    return measurements_of(strategy, matrices, stated_costs(strategy))


def _whole(matrix: Array) -> Integers:
    if (np.rint(matrix) != matrix).any():
        raise ValueError("some instalments of a plan measure whole numbers, and this states others")
    return matrix.astype(np.int64)
