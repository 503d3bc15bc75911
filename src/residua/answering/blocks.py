"""The ingredients of a strategy: distinct matrices, and runs of blocks that use them."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from residua._arrays import AnyArray, Array, Flags, Integers, Subset, Subsets
from residua.linalg.grams import inverse_gram
from residua.linalg.matrices import VANISHING, Measure, distinct_rows, join, pseudo_inverse, spread
from residua.workload import Factor

T = TypeVar("T")

Measured = Iterable[tuple[int, Integers, Array]]
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
    def whole_rank(self) -> bool:
        """Whether B answers every query on its cells: then it touches every residual."""
        return bool(self.rank == self.matrix.shape[1])

    @property
    def complete(self) -> bool:
        """Whether a centred B answers every centred query on its cells."""
        return self.rank == math.prod(size - 1 for size in self.sizes)

    def is_centred(self, measures: Sequence[Measure], *, whole: bool) -> bool:
        """Whether every row has mean zero along every axis; with `whole`, integer rows exactly zero.

        Then they touch one residual, that on all axes.
        """
        if measures and self.whole_rank:
            return False
        axes, key = enumerate(measures), (tuple(measures), whole)
        return self._centred.of(key, lambda: all(self._vanishes(axis, own, whole) for axis, own in axes))

    @cached_property
    def _centred(self) -> "Memory":
        return Memory()

    def _vanishes(self, axis: int, measure: Measure, whole: bool) -> bool:
        """Whether the means along an axis are zero."""
        means = np.tensordot(self.matrix.reshape(-1, *self.sizes), measure.vector(), axes=(1 + axis, 0))
        if self.stands_out(means.reshape(len(self.matrix), -1), whole=whole):
            return False
        if not whole:
            return True
        numbers = measure.whole_numbers()
        rows = self.whole_rows(sum(map(abs, numbers)))
        return not np.any(np.tensordot(rows, np.array(numbers, dtype=rows.dtype), axes=(1 + axis, 0)))

    def stands_out(self, parts: Array, *, whole: bool) -> bool:
        """Whether some part of a row, (rows, k), is larger than what rounding leaves of zero."""
        allowed = (WHOLE_TOUCHED if whole else TOUCHED) * np.linalg.norm(self.matrix, axis=1)
        return bool(np.any(np.linalg.norm(parts, axis=1) > allowed))

    def whole_rows(self, growth: int) -> AnyArray:
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
    the exact costs of an integer strategy, in grains. `domain` is the number of the domain it sees. With
    `within`, all blocks are on the same attributes, and each sees the records of one cell of that attribute.
    """

    subsets: Subsets
    layout: tuple[tuple[int, ...], ...]
    shapes: Integers
    costs: Array
    noise: Array
    multiplier: int = 1
    shares: Integers | None = None
    domain: int = 0
    within: int | None = None

    @property
    def order(self) -> list[int]:
        """Places in the order of the factors' axes."""
        return [place for places in self.layout for place in places]

    def take(self, rows: Integers | Flags) -> "Layer":
        """Some of its blocks."""
        names = ("subsets", "shapes", "costs", "noise", *(() if self.shares is None else ("shares",)))
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def to_manifest(self, start: str, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under names that begin with `start`."""
        for name in ("subsets", "shapes", "noise", "costs" if self.shares is None else "shares"):
            alike = self.within is not None and name in ("subsets", "shapes")
            arrays[f"{start}.{name}"] = getattr(self, name)[: 1 if alike else None]
        layout, within = list(map(list, self.layout)), {} if self.within is None else {"within": self.within}
        return {"layout": layout, "multiplier": self.multiplier, "domain": self.domain} | within


class Memory:
    """What has been worked out, by key, as long as there is room for so many numbers.

    What is known of matrices, whatever the noise, copies of blocks with other noise share.
    """

    def __init__(self, room: float = math.inf) -> None:
        self._known: dict[object, Any] = {}
        self._room = room

    def of(self, key: object, make: Callable[[], T], size: Callable[[T], int] = lambda _: 0) -> T:
        """What was made of a key before, or is now, of this size."""
        if key in self._known:
            known: T = self._known[key]
            return known
        found = make()
        if size(found) <= self._room:
            self._room -= size(found)
            self._known[key] = found
        return found


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

    def centred(self, layer: Layer) -> bool:
        """Whether every block of a layer is centred along all its attributes."""
        uses = shape_uses(self.measures, layer)
        return all(self.shapes[number].is_centred(own, whole=self.whole) for number, own in uses)

    @property
    def different(self) -> bool:
        """Whether no two blocks are on the same attributes."""
        by_size: dict[int, list[Subsets]] = {}
        for layer in self.layers:
            by_size.setdefault(layer.subsets.shape[1], []).append(layer.subsets)
        stacks = (np.concatenate(each).astype(np.int64) for each in by_size.values())
        return all(len(distinct_rows(stack)[0]) == len(stack) for stack in stacks)

    @property
    def independent(self) -> bool:
        """Whether all blocks are centred, and no two on the same attributes."""
        return all(map(self.centred, self.layers)) and self.different

    def each(self) -> Iterator[tuple[tuple[int, ...], tuple["Placed", ...], float]]:
        """Every block: its attributes, ascending, its factors and its noise."""
        for layer in self.layers:
            rows = zip(layer.subsets.tolist(), layer.shapes.tolist(), layer.noise.tolist(), strict=True)
            for subset, numbers, noise in rows:
                yield tuple(subset), self.placed(layer.layout, subset, numbers), noise

    def placed(
        self, layout: Sequence[Sequence[int]], subset: Sequence[int], numbers: Sequence[int]
    ) -> tuple["Placed", ...]:
        """The shapes with these numbers, on attributes that a layout shares out among them."""
        return tuple(
            Placed(tuple(subset[place] for place in places), self.shapes[number], number)
            for places, number in zip(layout, numbers, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A factor of a block: a shape, by its number among all, on some attributes in the order of its axes."""

    attributes: tuple[int, ...]
    shape: Shape
    number: int = 0

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


@dataclass(frozen=True, slots=True, eq=False)
class FactorCovariance:
    """Covariance of the cells of some attributes, `square()`, (cells, cells); equal where `key` is."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    key: object
    square: Callable[[], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Factored:
    """Covariance of a residual: `scale` times a product of covariances, centred under `means` or evenly."""

    scale: float
    factors: tuple[FactorCovariance, ...]
    means: tuple[Array, ...] | None = None


def factored_over(
    scale: float,
    factors: Iterable[Placed],
    subset: Sequence[int],
    square_of: Callable[[Placed, tuple[int, ...]], tuple[object, Callable[[], Array]]],
) -> Factored:
    """A covariance on a subset from the factors of a block, those beside it summed out.

    `square_of` has for a factor, and its places within the subset, what tells its covariance from others, and
    what makes it.
    """
    found = []
    for factor in factors:
        kept = tuple(place for place, at in enumerate(factor.attributes) if at in subset)
        if not kept:
            scale *= float(factor.inverse.sum())
            continue
        pairs = [(factor.attributes[place], factor.sizes[place]) for place in kept]
        attributes, sizes = zip(*pairs, strict=True)
        key, square = square_of(factor, kept)
        found.append(FactorCovariance(attributes, sizes, (key, kept), square))
    return Factored(scale, tuple(found))


def _codes(measures: Sequence[Measure], layer: Layer) -> Integers:
    """For each place of each block a number of its attribute's measure."""
    numbers = {measure: number for number, measure in enumerate(dict.fromkeys(measures))}
    codes = np.array([numbers[measure] for measure in measures], dtype=np.int64)
    return np.asarray(codes[layer.subsets].reshape(layer.subsets.shape))


def block_classes(measures: Sequence[Measure], layer: Layer) -> Iterator[Integers]:
    """Rows of the blocks of a layer that have equal shapes under equal measures, class by class."""
    first, inverse = distinct_rows(np.concatenate([layer.shapes, _codes(measures, layer)], axis=1))
    for number in range(len(first)):
        yield np.flatnonzero(inverse == number).astype(np.int64)


def shape_uses(measures: Sequence[Measure], layer: Layer) -> Iterator[tuple[int, tuple[Measure, ...]]]:
    """The shapes of a layer by number, with the measures of the attributes that each is used on."""
    codes = _codes(measures, layer)
    for column, places in zip(layer.shapes.T, layer.layout, strict=True):
        own = list(places)
        for row in distinct_rows(np.column_stack([column, codes[:, own]]))[0].tolist():
            yield int(column[row]), tuple(measures[at] for at in layer.subsets[row, own].tolist())


def whole_growth(measures: Sequence[Measure]) -> int:
    """How many times as large entries `whole_project` may make."""
    return math.prod(2 * sum(map(abs, measure.whole_numbers())) for measure in measures)


def whole_project(tensor: AnyArray, measures: Sequence[Measure], kept: Sequence[int]) -> AnyArray:
    """Whole multiples of rows, (rows, sizes...), centred along the axes `kept` and means along the others."""
    for axis in reversed(range(len(measures))):  # as `project`, in exact arithmetic
        weights = np.array(measures[axis].whole_numbers(), dtype=tensor.dtype)
        sums = np.tensordot(tensor, weights, axes=(1 + axis, 0))
        tensor = weights.sum() * tensor - np.expand_dims(sums, 1 + axis) if axis in kept else sums
    return np.asarray(tensor)


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


def outer(tensors: Iterable[Array], places: Sequence[int] | None = None) -> Array:
    """Outer product, with the axes of all; those in the order of their `places`, if given."""
    result: Array = np.asarray(reduce(np.multiply.outer, tensors, np.ones(())))
    return result if places is None else result.transpose(np.argsort(places))


def rows_over(
    factors: Iterable[Factor], attributes: Sequence[int], sizes: Sequence[int], *, listed: bool = True
) -> Array:
    """Queries of some factors over the joint cells of attributes: all of them, or rows with their gram."""
    factors = list(factors)
    rows = join(factor.queries.matrix() if listed else factor.queries.root() for factor in factors)
    places = [attributes.index(at) for factor in factors for at in factor.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)


def stacked(
    subsets: Iterable[Subset], key: Callable[[Subset], object] = len
) -> list[tuple[Subsets, list[Subset]]]:
    """Subsets in runs with an equal key: as rows of one array, and as they are."""
    found: dict[object, list[Subset]] = {}
    for subset in subsets:
        found.setdefault(key(subset), []).append(subset)
    runs = found.values()
    return [(np.array(own, dtype=np.int32).reshape(len(own), len(own[0])), own) for own in runs]
