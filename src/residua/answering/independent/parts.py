"""How one block meets one table: the smallest independent parts, and the figures of each.

A table is a product of families, a block a product of shapes; where they share attributes they are tied
together. A part is what cannot be separated further; figures of a whole are products over parts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._limits import KEPT_VARIANCES, SCRATCH
from residua.answering.blocks import Layer, Shape
from residua.answering.protocol import not_in_span
from residua.errors import NotInSpan
from residua.linalg.centring import VANISHING, Measure, centred_columns, project
from residua.linalg.classes import Classes, summed_over
from residua.linalg.matrices import RowIndex, join
from residua.workload import Combined, Factor, Queries
from residua.workload.union import refuse_wide
from residua.workload.views import by_own_classes

Array = NDArray[np.float64]


MeasuredBlock = tuple[tuple[int, ...], int, Shape]
"""One shape of a block: the attributes it measures, its number, and itself."""

CANCELLED = 1e-16  # of a query's squared length: what is smaller has no digits to tell its direction by


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Families of a table, places they keep, and the shapes that measure those.

    `places` are the positions of `queries` among the table's factors, `slots` those of the shapes in the
    block. `axes` says for each shape which kept axes it measures, counted over all axes of all queries.
    Families that look only at kinds of cells are held over their `kinds`, one for each axis, with the
    `measures` of those; `fine` has the measures of the cells.
    """

    places: tuple[int, ...]
    queries: tuple[Queries, ...]
    measures: tuple[Measure, ...]
    kept: tuple[int, ...]
    shapes: tuple[Shape, ...]
    numbers: tuple[int, ...]
    slots: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    kinds: tuple[Classes, ...] | None = None
    fine: tuple[Measure, ...] = ()

    @property
    def key(self) -> object:
        """Equal for parts with equal figures."""
        return (self.queries, self.measures, self.kept, self.numbers, self.axes, self.kinds, self.fine)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of every axis of every family."""
        return tuple(size for queries in self.queries for size in queries.sizes)

    def variances(self) -> Array:
        """Variance at noise 1 of each product of queries, shape (count of each family...)."""
        if len(self.sizes) == 1:
            return self.queries[0].quadratic(self._square())
        counts = [queries.count for queries in self.queries]
        per_row = int(np.prod(counts[1:], dtype=np.int64)) * self._measured()
        step = max(1, SCRATCH // max(per_row, self.queries[0].cells))
        rest = [queries.matrix() for queries in self.queries[1:]]
        parts = []
        for start in range(0, counts[0], step):
            first = self.queries[0].rows(start, min(start + step, counts[0]))
            parts.append(np.sum(self._measured_rows([first, *rest]) ** 2, axis=-1))
        return np.concatenate(parts)

    def total(self, *, weighted: bool) -> float:
        """Sum of the variances at noise 1, without listing them."""
        if len(self.sizes) == 1:
            return float(self.queries[0].trace(self._square(), weighted=weighted))
        plain = not weighted
        rows = [
            queries.matrix() if plain and queries.weights is not None else queries.root()
            for queries in self.queries
        ]
        return float(np.sum(self._measured_rows(rows) ** 2))

    def answers_of(self, rows: Sequence[Array]) -> Array:
        """Coefficients of the measurements in the best answer: (rows of each family..., measured)."""
        return self._measured_rows(list(rows))

    def outside(self) -> float:
        """Largest share of a query's squared length, over the families' roots, that no shape sees."""
        if all(shape.complete for shape in self.shapes):
            return 0.0
        wholes, lengths, seen = np.ones(()), np.ones(()), self._orthonormal()
        for rows, centred in self._centred():
            wholes = np.multiply.outer(wholes, np.sum(rows**2, axis=1))
            lengths = np.multiply.outer(lengths, np.sum(centred**2, axis=1))
            seen = np.moveaxis(centred @ seen.reshape(centred.shape[1], -1), 0, -1)
        seen = np.sum(seen.reshape(-1, *lengths.shape) ** 2, axis=0)
        # Centring leaves rounding errors in proportion to the whole query.
        return float(np.max((lengths - seen) / (lengths + CANCELLED * wholes)))

    def vanishes(self) -> bool:
        """Whether every query is zero after centring, so that nothing needs to be measured."""
        return any(
            bool(np.all(np.linalg.norm(centred, axis=1) <= VANISHING * np.linalg.norm(rows, axis=1)))
            for rows, centred in self._centred()
        )

    def _centred(self) -> Iterator[tuple[Array, Array]]:
        """Root of each family, (rows, cells), and the same centred along what it keeps."""
        start = 0
        for queries in self.queries:
            stop = start + len(queries.sizes)
            refuse_wide(queries)
            rows = queries.root()
            kept = [axis - start for axis in self.kept if start <= axis < stop]
            centred = project(rows, queries.sizes, self.measures[start:stop], kept)
            if self.kinds is None:
                yield rows, centred
            else:
                members = [np.sqrt(own.members)[None] for own in self.kinds[start:stop]]
                left = (own for place, own in enumerate(members) if place in kept)
                yield rows * join(members), centred * join(left)  # of the lengths they have over all cells
            start = stop

    def _square(self) -> Array:
        """Covariance on the cells of the one axis there is."""
        if not self.kept:
            mean = self.measures[0].vector()
            return np.outer(mean, mean)
        kernel = self._kernel(0)
        return kernel @ kernel.T

    def _kernel(self, number: int) -> Array:
        """What a query's cells contribute to the answer from one shape: `C B^+`, (cells, rank)."""
        shape, axes = self.shapes[number], self.axes[number]
        if self.kinds is None:
            return centred_columns(shape.inverse, shape.sizes, [self.measures[axis] for axis in axes])
        kernel = centred_columns(shape.inverse, shape.sizes, [self.fine[axis] for axis in axes])
        return self._added_up(kernel, shape.sizes, axes)

    def _added_up(self, columns: Array, sizes: Sequence[int], axes: Sequence[int]) -> Array:
        """Columns over the cells of some axes, (cells, k), added up over the kinds of each."""
        assert self.kinds is not None
        tensor = summed_over(columns.reshape(*sizes, -1), [self.kinds[axis] for axis in axes])
        return np.asarray(tensor.reshape(-1, columns.shape[1]))

    def _measured(self) -> int:
        return int(np.prod([len(shape.matrix) for shape in self.shapes], dtype=np.int64))

    def _measured_rows(self, rows: list[Array]) -> Array:
        """Rows of each family, contracted with the means and the kernels: (rows..., measured)."""
        sizes, counts = self.sizes, [len(matrix) for matrix in rows]
        if len(rows) == 1:
            return self._contracted(rows[0].reshape(counts[0], *sizes)).reshape(counts[0], -1)
        # Several families tied by one shape: multiply the kernel by one family's rows at a time.
        tensor = self._spread_kernel()
        for queries, matrix in zip(self.queries, rows, strict=True):
            flat = tensor.reshape(queries.cells, -1)
            tensor = np.moveaxis((matrix @ flat).reshape(len(matrix), -1), 0, -1)
        measured = self._measured()
        tensor = tensor.reshape(measured, *counts)
        return np.moveaxis(tensor, 0, -1)

    def _contracted(self, tensor: Array) -> Array:
        """Contract the axes of one family's rows, (rows, sizes...), with means and kernels."""
        alive = list(range(len(self.sizes)))
        for axis in reversed(range(len(self.sizes))):
            if axis not in self.kept:
                tensor = np.tensordot(tensor, self.measures[axis].vector(), axes=(1 + axis, 0))
                alive.remove(axis)
        for number, axes in enumerate(self.axes):
            kernel = self._kernel(number).reshape(*(self.sizes[axis] for axis in axes), -1)
            where = [1 + alive.index(axis) for axis in axes]
            tensor = np.tensordot(tensor, kernel, axes=(where, list(range(len(axes)))))
            for axis in axes:
                alive.remove(axis)
        return np.asarray(tensor)

    def _spread_kernel(self) -> Array:
        """All means and kernels multiplied out: (cells of all axes in order, measured)."""
        order: list[int] = []
        pieces: list[Array] = []
        for axis, measure in enumerate(self.measures):
            if axis not in self.kept:
                pieces.append(measure.vector()[:, None])
                order.append(axis)
        for number, axes in enumerate(self.axes):
            pieces.append(self._kernel(number))
            order += axes
        tensor = np.ones((1, 1))
        for piece in pieces:
            tensor = np.einsum("ia,jb->ijab", tensor, piece).reshape(len(tensor) * len(piece), -1)
        tensor = tensor.reshape(*(self.sizes[axis] for axis in order), -1).transpose(
            *np.argsort(order), len(order)
        )
        return np.asarray(tensor.reshape(int(np.prod(self.sizes)), -1))

    def _orthonormal(self) -> Array:
        """Orthonormal basis of what the shapes see, on the kept axes in order, (cells, rank)."""
        order = [axis for axes in self.axes for axis in axes]
        basis = join(self._basis(number) for number in range(len(self.shapes)))
        sizes = [self.sizes[axis] for axis in order]
        ranks = [self.kept.index(axis) for axis in order]
        tensor = basis.reshape(*sizes, -1).transpose(*np.argsort(ranks), len(order))
        return np.asarray(tensor.reshape(len(basis), -1))

    def _basis(self, number: int) -> Array:
        """Orthonormal basis of what one shape sees, by kinds of cells: of unit length over all cells."""
        shape, axes = self.shapes[number], self.axes[number]
        if self.kinds is None:
            return shape.basis
        members = join(np.sqrt(self.kinds[axis].members)[:, None] for axis in axes)
        return self._added_up(shape.basis, shape.sizes, axes) / members


def parts_of(
    factors: Sequence[Factor],
    kept: Sequence[tuple[int, ...]],
    measures: Sequence[Measure],
    measured: Sequence[MeasuredBlock],
) -> Iterator[Part]:
    """The parts of a table that keeps these places of each factor, under a block's shapes."""
    left = list(range(len(factors)))
    while left:
        tied = [left.pop(0)]
        while True:
            held = {factors[at].attributes[place] for at in tied for place in kept[at]}
            slots = [slot for slot, entry in enumerate(measured) if held & set(entry[0])]
            shapes = [measured[slot] for slot in slots]
            wanted = {axis for attributes, _, _ in shapes for axis in attributes}
            more = [at for at in left if wanted & {factors[at].attributes[place] for place in kept[at]}]
            if not more:
                break
            tied += more
            left = [at for at in left if at not in more]
        tied.sort()
        axes = [attribute for at in tied for attribute in factors[at].attributes]
        queries, own, kinds = _held([factors[at] for at in tied], [measures[at] for at in axes])
        yield Part(
            tuple(tied),
            queries,
            own,
            tuple(sorted(axes.index(factors[at].attributes[place]) for at in tied for place in kept[at])),
            tuple(shape for _, _, shape in shapes),
            tuple(number for _, number, _ in shapes),
            tuple(slots),
            tuple(tuple(axes.index(attribute) for attribute in attributes) for attributes, _, _ in shapes),
            kinds,
            () if kinds is None else tuple(measures[attribute] for attribute in axes),
        )


def _held(
    factors: Sequence[Factor], measures: Sequence[Measure]
) -> tuple[tuple[Queries, ...], tuple[Measure, ...], tuple[Classes, ...] | None]:
    """Families and measures of all their axes; over kinds of cells, and those, where one looks at no more."""
    if not any(isinstance(factor.queries, Combined) for factor in factors):
        return tuple(factor.queries for factor in factors), tuple(measures), None
    coarse, kinds = by_own_classes(factors)
    own = tuple(each.measure(measure) for each, measure in zip(kinds, measures, strict=True))
    return tuple(factor.queries for factor in coarse), own, tuple(kinds)


SPAN_TOLERANCE = 1e-12  # of a query's squared length: what rounding may leave outside the row space


class PartCache:
    """The blocks of one strategy, how to find them, and what has been worked out about their parts."""

    def __init__(
        self,
        measures: tuple[Measure, ...],
        shapes: tuple[Shape, ...],
        layers: tuple[Layer, ...],
        elsewhere: Sequence[NDArray[np.int32]] = (),
    ) -> None:
        self.measures, self.shapes, self.layers = measures, shapes, layers
        self.elsewhere = RowIndex(elsewhere, len(measures))
        self._known: dict[object, Any] = {}
        self._listed = 0

    @cached_property
    def index(self) -> RowIndex:
        """Finds the layer and row of the block on a subset."""
        return RowIndex([layer.subsets for layer in self.layers], len(self.measures))

    def is_elsewhere(self, attributes: tuple[int, ...]) -> bool:
        """Whether what is asked of this subset is answered by another part of the mechanism."""
        return bool(self.elsewhere.find(np.array([attributes], dtype=np.int32).reshape(1, -1))[0][0] >= 0)

    def block(self, attributes: tuple[int, ...]) -> tuple[float | None, list[MeasuredBlock]]:
        """Noise variance of the block on a subset (None if not measured), and its shapes."""
        tables, rows = self.index.find(np.array([attributes], dtype=np.int32).reshape(1, -1))
        if tables[0] < 0:
            return None, []
        layer, row = self.layers[tables[0]], int(rows[0])
        measured = [
            (tuple(attributes[place] for place in places), int(number), self.shapes[number])
            for places, number in zip(layer.layout, layer.shapes[row].tolist(), strict=True)
        ]
        return float(layer.noise[row]), measured

    def listed(self, part: Part) -> Array:
        """Variance at noise 1 of each product of queries."""
        key = ("listed", part.key)
        if key in self._known:
            return np.asarray(self._known[key])
        figures = part.variances()
        if self._has_room_for(figures):
            self._known[key] = figures
        return figures

    def summed(self, part: Part, *, weighted: bool) -> float:
        """Sum of the variances at noise 1."""
        key = ("summed", weighted, part.key)
        if key not in self._known:
            self._known[key] = part.total(weighted=weighted)
        return float(self._known[key])

    def vanishes(self, part: Part) -> bool:
        """Whether the part asks nothing of what it keeps."""
        key = ("vanishes", part.key)
        if key not in self._known:
            self._known[key] = part.vanishes()
        return bool(self._known[key])

    def largest(self, alike: object, find: Callable[[], float]) -> float:
        """What `find` returns, which is the same for all tables with an equal `alike`."""
        key = ("largest", alike)
        if key not in self._known:
            self._known[key] = find()
        return float(self._known[key])

    def of_run(self, tables: object, find: Callable[[], tuple[float, Array]]) -> tuple[float, Array]:
        """What `find` returns of a run of tables: the sum of all variances, and those of each table."""
        key = ("run", tables)
        if key in self._known:
            total, sums = self._known[key]
            return total, sums
        total, sums = find()
        if self._has_room_for(sums):
            self._known[key] = total, sums
        return total, sums

    def _has_room_for(self, figures: Array) -> bool:
        """Whether so many more numbers may be kept; then they count."""
        if self._listed + figures.size > KEPT_VARIANCES:
            return False
        self._listed += figures.size
        return True

    def refuse_outside(self, part: Part, name: str, attributes: Sequence[int]) -> None:
        """Raise NotInSpan if a query of the part is not a combination of what its shapes measure.

        `name` is the table's, `attributes` are those of the block.
        """
        key = ("outside", part.key)
        if key not in self._known:
            self._known[key] = part.outside()
        if self._known[key] > SPAN_TOLERANCE:
            raise not_in_span(f"table {name!r} asks for more than the plan measures", attributes)


def not_together(name: str, attributes: Sequence[int]) -> NotInSpan:
    """The error for a table that has a piece in a block which is not measured."""
    told = f"table {name!r} asks about attributes together that the plan does not measure together"
    return not_in_span(told, attributes)
