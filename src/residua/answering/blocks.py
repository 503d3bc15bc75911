"""The ingredients of a strategy: distinct matrices, and runs of blocks that use them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import VANISHING, Measure
from residua.linalg.matrices import distinct_rows, inverse_gram, pseudo_inverse

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Integers = NDArray[np.int64]

Measured = Sequence[tuple[int, Integers, Array]]
"""Measured numbers in units of the matrices: layer, rows of blocks there, and numbers (blocks, rows)."""


TOUCHED = 1e-10  # of a row's length: what is smaller is rounding of a real matrix
WHOLE_TOUCHED = VANISHING**0.5  # of an integer row's length: what is smaller is looked at exactly


@dataclass(frozen=True, eq=False)
class Shape:
    """A distinct matrix B of measured queries, shape (rows, cells), cells row-major over `sizes`.

    `rank` is that of B; an integer matrix may have more rows than that.
    """

    sizes: tuple[int, ...]
    matrix: Array
    rank: int

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.matrix.shape[1] != math.prod(self.sizes):
            raise ValueError(
                f"a matrix of shape {self.matrix.shape} does not fit cells of sizes {self.sizes}"
            )

    @classmethod
    def independent(cls, sizes: Sequence[int], matrix: Array) -> "Shape":
        """The shape with these independent rows."""
        return cls(tuple(sizes), matrix, len(matrix))

    @classmethod
    def of(cls, sizes: Sequence[int], matrix: Array) -> "Shape":
        """The shape with these rows, whose rank is found out."""
        inverse, projector = inverse_gram(matrix)
        rank = matrix.shape[1] if projector is None else round(float(np.trace(projector)))
        shape = cls(tuple(sizes), matrix, rank)
        shape.__dict__["gram_inverse"] = (inverse, projector)  # worked out already
        return shape

    @cached_property
    def inverse(self) -> Array:
        """Pseudo-inverse of B, shape (cells, rows)."""
        return pseudo_inverse(self.matrix, self.rank)

    @cached_property
    def gram_inverse(self) -> tuple[Array, Array | None]:
        """Pseudo-inverse of `B'B`, and the projector on B's row space, None if that is everything."""
        return inverse_gram(self.matrix)

    @cached_property
    def basis(self) -> Array:
        """Orthonormal basis of B's row space, shape (cells, rank)."""
        if len(self.matrix) > self.rank:
            return np.asarray(np.linalg.svd(self.matrix)[2][: self.rank].T)
        return np.asarray(np.linalg.qr(self.matrix.T)[0])

    @property
    def complete(self) -> bool:
        """Whether a centred B answers every centred query on its cells."""
        return self.rank == math.prod(size - 1 for size in self.sizes)

    def is_centred(self, measures: Sequence[Measure], *, whole: bool) -> bool:
        """Whether every row has mean zero along every axis; with `whole`, integer rows exactly zero.

        Then they touch one residual, that on all axes.
        """
        key = (tuple(measures), whole)
        if key not in self._centred:
            self._centred[key] = all(
                self._vanishes(axis, measure, whole) for axis, measure in enumerate(measures)
            )
        return self._centred[key]

    @cached_property
    def _centred(self) -> dict[tuple[tuple[Measure, ...], bool], bool]:
        return {}

    def _vanishes(self, axis: int, measure: Measure, whole: bool) -> bool:
        """Whether the means along an axis are zero."""
        means = np.tensordot(self.matrix.reshape(-1, *self.sizes), measure.vector(), axes=(1 + axis, 0))
        lengths = np.linalg.norm(self.matrix, axis=1)
        allowed = (WHOLE_TOUCHED if whole else TOUCHED) * lengths
        if np.any(np.linalg.norm(means.reshape(len(lengths), -1), axis=1) > allowed):
            return False
        if not whole:
            return True
        numbers = measure.whole_numbers()
        rows = self.whole_rows(sum(map(abs, numbers)))
        return not np.any(np.tensordot(rows, np.array(numbers, dtype=rows.dtype), axes=(1 + axis, 0)))

    def whole_rows(self, growth: int) -> NDArray[Any]:
        """Integer rows, (rows, sizes...), in a type that holds numbers `growth` times as large."""
        fits = growth * int(np.abs(self.matrix).max()) < 2**63
        rows = self.matrix.astype(np.int64).reshape(-1, *self.sizes)
        return rows if fits else rows.astype(object)

    @cached_property
    def norm(self) -> float:
        """Largest squared length of a column."""
        return float(np.max(np.einsum("ri,ri->i", self.matrix, self.matrix)))


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Blocks with one layout: how the attributes of each are shared out among its factors.

    `subsets` is (blocks, size), rows ascending; `layout` has the places of each factor, such as
    ((0,), (1,)) or ((0, 1),); `shapes` is (blocks, factors), numbers of shapes. `costs` is (blocks,), the
    privacy cost of each block, and `noise` the variance of the noise on each number it measures; the
    numbers are `multiplier` times the product of the shapes, and `noise` is in units of that. `shares` are
    the exact costs of an integer strategy, in grains. `domain` is the number of the domain it sees.
    """

    subsets: Subsets
    layout: tuple[tuple[int, ...], ...]
    shapes: Integers
    costs: Array
    noise: Array
    multiplier: int = 1
    shares: Integers | None = None
    domain: int = 0

    @property
    def order(self) -> list[int]:
        """Places in the order of the factors' axes."""
        return [place for places in self.layout for place in places]


class Memory:
    """What has been worked out about matrices, whatever the noise; copies with other noise share it."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def of(self, key: object, make: Any) -> Any:
        """What was made of a key, or what `make` makes of it now."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


@dataclass(frozen=True, eq=False)
class Blocks:
    """All that answers depend on: the blocks that see one domain, and their noise.

    `sizes` and `measures` have one entry per attribute; measures define residual coordinates: any will do,
    those under which most blocks are centred are best. `whole` says that the matrices are integers.
    """

    sizes: tuple[int, ...]
    measures: tuple[Measure, ...]
    shapes: tuple[Shape, ...]
    layers: tuple[Layer, ...]
    whole: bool = False
    memory: Memory = field(default_factory=Memory, repr=False)

    def __len__(self) -> int:
        return sum(len(layer.noise) for layer in self.layers)

    def each(self) -> Iterator[tuple[tuple[int, ...], tuple["Placed", ...], float]]:
        """Every block: its attributes, ascending, its factors and its noise."""
        for layer in self.layers:
            rows = zip(layer.subsets.tolist(), layer.shapes.tolist(), layer.noise.tolist(), strict=True)
            for subset, numbers, noise in rows:
                factors = (
                    Placed(tuple(subset[place] for place in places), self.shapes[number])
                    for places, number in zip(layer.layout, numbers, strict=True)
                )
                yield tuple(subset), tuple(factors), noise


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A factor of a block: a shape on some attributes, in the order of its axes."""

    attributes: tuple[int, ...]
    shape: Shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute."""
        return self.shape.sizes

    @property
    def matrix(self) -> Array:
        """The measured queries, (rows, cells)."""
        return self.shape.matrix

    @property
    def inverse(self) -> Array:
        """Pseudo-inverse of the Gram matrix."""
        return self.shape.gram_inverse[0]

    @property
    def projector(self) -> Array | None:
        """Projector on the row space, None if that is everything."""
        return self.shape.gram_inverse[1]


def batched_rows(measures: Sequence[Measure], layers: Sequence[Layer]) -> Iterator[tuple[int, Integers]]:
    """Runs of blocks that measure alike: for each, in order, its layer and the rows of its blocks there."""
    numbers = {measure: number for number, measure in enumerate(dict.fromkeys(measures))}
    measured = np.array([numbers[measure] for measure in measures], dtype=np.int64)
    for number, layer in enumerate(layers):
        if not layer.layout:
            yield number, np.arange(len(layer.noise), dtype=np.int64)
            continue
        first, inverse = distinct_rows(np.concatenate([layer.shapes, measured[layer.subsets]], axis=1))
        for kind in range(len(first)):
            yield number, np.flatnonzero(inverse == kind).astype(np.int64)


def by_block(measured: Measured) -> dict[tuple[int, int], Array]:
    """Measured numbers of every block, by its layer and row."""
    return {
        (layer, row): own
        for layer, rows, values in measured
        for row, own in zip(rows.tolist(), values, strict=True)
    }


def ascending(cells: Array, sizes: Sequence[int], order: Sequence[int]) -> Array:
    """Cells of blocks, (blocks, cells) with axes in `order`, as (blocks, sizes...) with axes ascending."""
    tensor = cells.reshape(len(cells), *sizes).transpose(0, *(1 + np.argsort(order)))
    return np.ascontiguousarray(tensor)
