"""How one block meets one table: the smallest independent parts, and the figures of each.

A table is a product of families, a block a product of shapes; where they share attributes they are tied
together. A part is what cannot be separated further; figures of a whole are products over parts.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from residua._arrays import Array, Subsets
from residua._limits import KEPT_VARIANCES, SCRATCH
from residua.answering.blocks import Blocks, Memory, Placed, Shape, outer
from residua.answering.protocol import by_own_classes, not_in_span
from residua.errors import NotInSpan
from residua.linalg.classes import Classes, summed_over
from residua.linalg.matrices import VANISHING, Measure, RowIndex, centred_columns, join, project
from residua.workload import Combined, Factor, Queries
from residua.workload.union import refuse_wide

CANCELLED = 1e-16  # of a query's squared length: what is smaller has no digits to tell its direction by


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Families of a table, places they keep, and the shapes that measure those.

    `places` are the positions of `queries` among the table's factors, `slots` those of the shapes in the
    block. `axes` says for each shape which kept axes it measures, counted over all axes of all queries.
    Families that look only at classes of cells are held over their `classes`, one for each axis, with the
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
    classes: tuple[Classes, ...] | None = None
    fine: tuple[Measure, ...] = ()

    @property
    def key(self) -> object:
        """Equal for parts with equal figures."""
        return (self.queries, self.measures, self.kept, self.numbers, self.axes, self.classes, self.fine)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of every axis of every family."""
        return tuple(size for queries in self.queries for size in queries.sizes)

    def variances(self) -> Array:
        """Variance at noise 1 of each product of queries, shape (count of each family...)."""
        if len(self.sizes) == 1:
            return self.queries[0].quadratic(self._square())
        first, *others = self.queries
        measured = math.prod(len(shape.matrix) for shape in self.shapes)
        per_row = math.prod(queries.count for queries in others) * measured
        step = max(1, SCRATCH // max(per_row, first.cells))
        rest = [queries.matrix() for queries in others]
        parts = []
        for start in range(0, first.count, step):
            some = first.rows(start, min(start + step, first.count))
            parts.append(np.sum(self.answers_of([some, *rest]) ** 2, axis=-1))
        return np.concatenate(parts)

    def total(self, *, weighted: bool) -> float:
        """Sum of the variances at noise 1, without listing them."""
        if len(self.sizes) == 1:
            return float(self.queries[0].trace(self._square(), weighted=weighted))
        rows = [
            queries.matrix() if not weighted and queries.weights is not None else queries.root()
            for queries in self.queries
        ]
        return float(np.sum(self.answers_of(rows) ** 2))

    def answers_of(self, rows: Sequence[Array]) -> Array:
        """Coefficients of the measurements in the best answer: (rows of each family..., measured)."""
        return self._contracted(rows, range(len(self.sizes)), map(self._kernel, range(len(self.shapes))))

    def outside(self) -> float:
        """Largest share of a query's squared length, over the families' roots, that no shape sees."""
        if all(map(self._complete, range(len(self.shapes)))):
            return 0.0
        pairs = list(self._centred())
        wholes = outer(np.sum(rows**2, axis=1) for rows, _ in pairs)
        lengths = outer(np.sum(centred**2, axis=1) for _, centred in pairs)
        bases = map(self._basis, range(len(self.shapes)))
        seen = self._contracted([centred for _, centred in pairs], self.kept, bases)
        # Centring leaves rounding errors in proportion to the whole query.
        return float(np.max((lengths - np.sum(seen**2, axis=-1)) / (lengths + CANCELLED * wholes)))

    def _complete(self, number: int) -> bool:
        """Whether a shape answers everything that is left of queries on its axes."""
        shape, measures = self.shapes[number], self.fine or self.measures
        centred = (bool(measures[axis].vector().any()) for axis in self.axes[number])
        return shape.rank == math.prod(size - own for size, own in zip(shape.sizes, centred, strict=True))

    def vanishes(self) -> bool:
        """Whether every query is zero after centring, so that nothing needs to be measured."""
        return any(
            bool(np.all(np.linalg.norm(centred, axis=1) <= VANISHING * np.linalg.norm(rows, axis=1)))
            for rows, centred in self._centred()
        )

    def _contracted(self, rows: Sequence[Array], axes: Sequence[int], matrices: Iterable[Array]) -> Array:
        """Rows of each family over some axes, times a matrix for each shape and the means along other axes.

        Rows are (rows, cells), matrices (cells of the shape's axes, k); the result is (rows..., k).
        """
        operands: list[Any] = []
        sizes, start, after = self.sizes, 0, len(self.sizes)
        for number, (queries, own) in enumerate(zip(self.queries, rows, strict=True)):
            mine = [axis for axis in range(start, start + len(queries.sizes)) if axis in axes]
            operands += [own.reshape(len(own), *(sizes[axis] for axis in mine)), [after + number, *mine]]
            start += len(queries.sizes)
        for axis in (axis for axis in axes if axis not in self.kept):
            operands += [self.measures[axis].vector(), [axis]]
        last = after + len(rows)
        for number, (measured, matrix) in enumerate(zip(self.axes, matrices, strict=True)):
            shape = [sizes[axis] for axis in measured]
            operands += [matrix.reshape(*shape, -1), [*measured, last + number]]
        result = np.einsum(*operands, list(range(after, last + len(self.axes))), optimize=True)
        return np.asarray(result.reshape(*map(len, rows), -1))

    def _centred(self) -> Iterator[tuple[Array, Array]]:
        """Root of each family, (rows, cells), and the same centred along what it keeps."""
        start = 0
        for queries in self.queries:
            stop = start + len(queries.sizes)
            refuse_wide(queries)
            rows = queries.root()
            kept = [axis - start for axis in self.kept if start <= axis < stop]
            centred = project(rows, queries.sizes, self.measures[start:stop], kept)
            if self.classes is None:
                yield rows, centred
            else:
                members = [np.sqrt(own.members)[None] for own in self.classes[start:stop]]
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
        measures = self.measures if self.classes is None else self.fine
        kernel = centred_columns(shape.inverse, shape.sizes, [measures[axis] for axis in axes])
        return kernel if self.classes is None else self._added_up(kernel, shape.sizes, axes)

    def _basis(self, number: int) -> Array:
        """Orthonormal basis of what one shape sees, by classes of cells: of unit length over all cells."""
        shape, axes = self.shapes[number], self.axes[number]
        if self.classes is None:
            return shape.basis
        members = join(np.sqrt(self.classes[axis].members)[:, None] for axis in axes)
        return self._added_up(shape.basis, shape.sizes, axes) / members

    def _added_up(self, columns: Array, sizes: Sequence[int], axes: Sequence[int]) -> Array:
        """Columns over the cells of some axes, (cells, k), added up over the classes of each."""
        classes = self.classes or ()
        tensor = summed_over(columns.reshape(*sizes, -1), [classes[axis] for axis in axes])
        return np.asarray(tensor.reshape(-1, columns.shape[1]))


def parts_of(
    factors: Sequence[Factor],
    kept: Sequence[tuple[int, ...]],
    measures: Sequence[Measure],
    measured: Sequence[Placed],
) -> Iterator[Part]:
    """The parts of a table that keeps these places of each factor, under a block's shapes."""
    held = [[factor.attributes[place] for place in own] for factor, own in zip(factors, kept, strict=True)]
    for numbers in tied([*held, *(each.attributes for each in measured)]):
        own = [at for at in numbers if at < len(factors)]
        slots = [at - len(factors) for at in numbers if at >= len(factors)]
        touched = [measured[slot] for slot in slots]
        axes = [attribute for at in own for attribute in factors[at].attributes]
        queries, means, classes = _held([factors[at] for at in own], [measures[at] for at in axes])
        yield Part(
            tuple(own),
            queries,
            means,
            tuple(sorted(axes.index(factors[at].attributes[place]) for at in own for place in kept[at])),
            tuple(each.shape for each in touched),
            tuple(each.number for each in touched),
            tuple(slots),
            tuple(tuple(map(axes.index, each.attributes)) for each in touched),
            classes,
            () if classes is None else tuple(measures[attribute] for attribute in axes),
        )


def tied(sets: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """Numbers of the sets that share a member, directly or through others, ascending.

    >>> tied([{1, 2}, {3}, {2, 4}, {4}])
    [[0, 2, 3], [1]]
    """
    leaders, owners = list(range(len(sets))), dict[Hashable, int]()

    def leader(number: int) -> int:
        while leaders[number] != number:
            leaders[number] = number = leaders[leaders[number]]
        return number

    for number, own in enumerate(sets):
        for member in own:
            if (other := owners.setdefault(member, number)) != number:
                one, two = leader(other), leader(number)
                leaders[max(one, two)] = min(one, two)
    found: dict[int, list[int]] = {}
    for number, above in enumerate(leaders):  # never larger: theirs is known
        leaders[number] = leaders[above]
        found.setdefault(leaders[number], []).append(number)
    return list(found.values())


def _held(
    factors: Sequence[Factor], measures: Sequence[Measure]
) -> tuple[tuple[Queries, ...], tuple[Measure, ...], tuple[Classes, ...] | None]:
    """Families and measures of all their axes; over classes of cells, where one looks at no more."""
    if not any(isinstance(factor.queries, Combined) for factor in factors):
        return tuple(factor.queries for factor in factors), tuple(measures), None
    coarse, some = by_own_classes(factors)
    classes = [some.get(at) or Classes.every(measure.size) for at, measure in enumerate(measures)]
    own = tuple(each.measure(measure) for each, measure in zip(classes, measures, strict=True))
    return tuple(factor.queries for factor in coarse), own, tuple(classes)


SPAN_TOLERANCE = 1e-12  # of a query's squared length: what rounding may leave outside the row space


class PartCache:
    """The blocks of one strategy, how to find them, and what has been worked out about their parts."""

    def __init__(self, blocks: Blocks, elsewhere: Sequence[Subsets] = ()) -> None:
        self.blocks, self.measures = blocks, blocks.measures
        self.elsewhere = RowIndex(elsewhere, len(blocks.measures))
        self.of = Memory(KEPT_VARIANCES).of

    @cached_property
    def index(self) -> RowIndex:
        """Finds the layer and row of the block on a subset."""
        return RowIndex([layer.subsets for layer in self.blocks.layers], len(self.measures))

    def block(self, attributes: tuple[int, ...]) -> tuple[float | None, tuple[Placed, ...]]:
        """Noise variance of the block on a subset (None if not measured), and its shapes."""
        tables, rows = self.index.find(np.array([attributes], dtype=np.int32).reshape(1, -1))
        if tables[0] < 0:
            return None, ()
        layer, row = self.blocks.layers[tables[0]], int(rows[0])
        measured = self.blocks.placed(layer.layout, attributes, layer.shapes[row].tolist())
        return float(layer.noise[row]), measured

    def listed(self, part: Part) -> Array:
        """Variance at noise 1 of each product of queries."""
        return self.of(("listed", part.key), part.variances, np.size)

    def grid(self, parts: Sequence[Part]) -> Array:
        """Variance at noise 1 of each query of a table that has these parts, (count of each family...)."""
        return outer(map(self.listed, parts), [place for part in parts for place in part.places])

    def summed(self, part: Part, *, weighted: bool) -> float:
        """Sum of the variances at noise 1."""
        return self.of(("summed", weighted, part.key), lambda: part.total(weighted=weighted))

    def vanishes(self, part: Part) -> bool:
        """Whether the part asks nothing of what it keeps."""
        return self.of(("vanishes", part.key), part.vanishes)

    def refuse_outside(self, part: Part, name: str, attributes: Sequence[int]) -> None:
        """NotInSpan if a query of the part of table `name` is no combination of what a block measures."""
        if self.of(("outside", part.key), part.outside) > SPAN_TOLERANCE:
            raise not_in_span(f"table {name!r} asks for more than the plan measures", attributes)


def not_together(name: str, attributes: Sequence[int]) -> NotInSpan:
    """The error for a table that has a piece in a block which is not measured."""
    told = f"table {name!r} asks about attributes together that the plan does not measure together"
    return not_in_span(told, attributes)
