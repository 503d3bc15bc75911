"""Tables in pieces, and how certain each piece is.

A table is the sum of its pieces, one for each subset of attributes, with zero sums along each of them, spread
evenly along the others; the pieces of a table and those of its margins are the same arrays. So tables built
from one family of pieces agree on every margin they share, whether it is published or not (claim P-101).

The true covariance of a piece is a product of small ones in their eigenvectors. For blocks that are centred
evenly these are all of the covariance: pieces on different attributes are independent. For other plans a
piece's own covariance is true, and what it has in common with other pieces is left out of account (P-102).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from residua._arrays import Array, Subset, Subsets
from residua._limits import JOINT_COVARIANCE, STACKED_CELLS
from residua.answering.protocol import apply_queries
from residua.errors import Infeasible, NotInSpan
from residua.postprocess.facts import margin_of
from residua.schema import Schema
from residua.strategy.strategy import Strategy
from residua.workload import Factor, Identity, Table, Workload
from residua.workload.tables import choices

EVEN = 1e-6  # relative spread of eigenvalues that rounding to integers leaves of equal ones
UNSEEN = 1e-9  # of the largest eigenvalue: what rounding leaves of a direction that is not measured
LOOSE = 1e6  # how much less certain than anything measured is what is not measured


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Marginals of one shape: `subsets` is (tables, ways), rows ascending, `cells` is (tables, sizes...)."""

    subsets: Subsets
    cells: Array

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells along each attribute."""
        return self.cells.shape[1:]

    @property
    def ways(self) -> int:
        """Number of attributes of each table."""
        return self.cells.ndim - 1

    def rows(self) -> list[Subset]:
        """The attributes of each table."""
        return [tuple(row) for row in self.subsets.tolist()]


@dataclass(frozen=True, eq=False)
class TableSet:
    """Marginals on several sets of attributes, none inside another."""

    stacks: tuple[Stack, ...]

    @cached_property
    def places(self) -> dict[Subset, tuple[int, int]]:
        """For every subset of a table's attributes, the stack and place of the first such table."""
        found: dict[Subset, tuple[int, int]] = {}
        for number, stack in enumerate(self.stacks):
            for kept in _choices(stack.ways):
                for place, row in enumerate(stack.subsets[:, kept].tolist()):
                    found.setdefault(tuple(row), (number, place))
        return found

    def __contains__(self, subset: Subset) -> bool:
        return subset in self.places

    def subsets(self, ways: int) -> list[Subset]:
        """All attribute sets of this size that some table covers, ascending."""
        return sorted(subset for subset in self.places if len(subset) == ways)

    @property
    def ways(self) -> int:
        """The most attributes of any table."""
        return max(stack.ways for stack in self.stacks)

    def marginal(self, subset: Subset) -> Array:
        """The marginal on attributes that some table covers, in that order; shape (sizes...)."""
        number, place = self.places[tuple(sorted(subset))]
        stack = self.stacks[number]
        return margin_of(stack.cells[place], stack.subsets[place].tolist(), subset)

    @property
    def cells(self) -> int:
        """Number of all cells."""
        return sum(stack.cells.size for stack in self.stacks)

    @property
    def count(self) -> int:
        """Number of tables."""
        return sum(len(stack.subsets) for stack in self.stacks)

    def answers(self, group: Table) -> Array:
        """Answers of one table, shape (count,), from a marginal that covers its attributes."""
        return apply_queries(self.marginal(group.attributes), group.factors).reshape(-1)

    def with_cells(self, cells: Iterable[Array]) -> "TableSet":
        """The same attribute sets with other cells, (tables, sizes...) for each stack."""
        pairs = zip(self.stacks, cells, strict=True)
        return TableSet(tuple(Stack(stack.subsets, each) for stack, each in pairs))

    def with_tables(self, found: Mapping[Subset, Array]) -> "TableSet":
        """The same attribute sets with the table that is found for each."""
        return self.with_cells(np.stack([found[row] for row in stack.rows()]) for stack in self.stacks)

    def disagreement(self) -> float:
        """Largest difference between the margins that any two tables share."""
        worst = 0.0
        for stack in self.stacks:
            for kept in _choices(stack.ways):
                margins = margin_of(stack.cells, range(stack.ways), kept, leading=1)
                shared = [self.marginal(tuple(row)) for row in stack.subsets[:, kept].tolist()]
                worst = max(worst, float(np.abs(margins - np.stack(shared)).max()))
        return worst


def _choices(ways: int) -> list[list[int]]:
    """Every choice of places, the largest first."""
    return sorted(map(list, choices(ways)), key=len, reverse=True)


def largest_sets(groups: Iterator[Table]) -> list[Subset]:
    """Attribute sets of tables that are not inside another table's, in order of first appearance."""
    asked = dict.fromkeys(tuple(sorted(group.attributes)) for group in groups)
    covered: set[Subset] = set()
    for subset in sorted(asked, key=len, reverse=True):
        if subset not in covered:
            covered.update(tuple(subset[at] for at in kept) for kept in choices(len(subset)))
            covered.discard(subset)
    return [subset for subset in asked if subset not in covered]


def shaped(work: Workload) -> list[tuple[Subsets, tuple[int, ...]]]:
    """The largest attribute sets of a workload by shape: (tables, ways) attributes, and sizes."""
    sizes = work.schema.sizes
    shapes: dict[tuple[int, ...], list[Subset]] = {}
    for subset in largest_sets(work.groups()):
        shapes.setdefault(tuple(sizes[at] for at in subset), []).append(subset)
    cells = sum(math.prod(shape) * len(rows) for shape, rows in shapes.items())
    if cells > STACKED_CELLS:
        largest = max(shapes, key=math.prod)
        names = " x ".join(work.schema.names[at] for at in shapes[largest][0])
        raise Infeasible(
            f"the marginals that these tables are part of have {cells:,} cells, more than the "
            f"{STACKED_CELLS:,} that are post-processed (the largest is {names}, {math.prod(largest):,} "
            "cells); plan tables on fewer attributes, or coarser ones"
        )
    return [(as_subsets(rows), shape) for shape, rows in shapes.items()]


def every_cell(schema: Schema, subset: Sequence[int]) -> Table:
    """The table that asks for every cell of some attributes."""
    return Table("cells", tuple(Factor((at,), Identity(schema.sizes[at])) for at in subset))


def as_subsets(rows: Sequence[Subset]) -> Subsets:
    """Attribute sets of one size as an array (sets, ways)."""
    return np.array(rows, dtype=np.int32).reshape(len(rows), -1)


def centred(cells: Array, *, leading: int = 0) -> Array:
    """The piece on all attributes of tables (leading..., sizes...): zero sums along every axis."""
    for axis in range(leading, cells.ndim):
        cells = cells - cells.mean(axis=axis, keepdims=True)
    return cells


def piece(cells: Array, kept: Sequence[int]) -> Array:
    """The piece on the places `kept` of stacked tables (tables, sizes...)."""
    return centred(margin_of(cells, range(cells.ndim - 1), kept, leading=1), leading=1)


def spread(pieces: Array, kept: Sequence[int], sizes: Sequence[int]) -> Array:
    """Pieces on the places `kept`, (tables, sizes there...), as they stand in tables of these sizes.

    The result broadcasts: it has length one along the other places.
    """
    shape = [size if axis in kept else 1 for axis, size in enumerate(sizes)]
    others = math.prod(size for axis, size in enumerate(sizes) if axis not in kept)
    return np.asarray(pieces.reshape(len(pieces), *shape) / others)


@dataclass(frozen=True, eq=False)
class Square:
    """Covariance on cells of some attributes, centred: eigenvectors (cells, cells) and values (cells,)."""

    vectors: Array
    values: Array
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, covariance: Array, sizes: Sequence[int]) -> "Square":
        """The decomposition of a covariance over cells of these sizes, row-major; it is centred first."""
        tensor = centred(covariance.reshape(*sizes, *sizes))
        values, vectors = np.linalg.eigh(tensor.reshape(covariance.shape))
        values = np.where(values > UNSEEN * max(float(values[-1]), 0.0), values, 0.0)
        return cls(vectors, values, tuple(sizes))

    @cached_property
    def even(self) -> bool:
        """Whether every centred direction is equally uncertain; only asked of one attribute."""
        seen = self.values[self.values > 0]
        complete = len(seen) == math.prod(size - 1 for size in self.sizes)
        return complete and len(self.sizes) == 1 and bool(np.ptp(seen) <= EVEN * seen.max(initial=0.0))


Squares = tuple[tuple[tuple[int, ...], Square], ...]
"""Squares, each on some places of a table, that together make up its covariance."""


def turned(cells: Any, squares: Squares, *, back: bool = False, arrays: Any = np) -> Any:
    """Stacked tables (tables, sizes...) in the coordinates of the eigenvectors, or back from them."""
    for places, square in squares:
        axes = [1 + place for place in places]
        ends = list(range(cells.ndim - len(axes), cells.ndim))
        moved = arrays.moveaxis(cells, axes, ends)
        flat = moved.reshape(*moved.shape[: ends[0]], -1)
        product = flat @ arrays.asarray(square.vectors.T if back else square.vectors)
        cells = arrays.moveaxis(product.reshape(moved.shape), ends, axes)
    return cells


@dataclass(frozen=True, eq=False)
class PieceError:
    """Covariance of one piece: `scale` times the product of squares, each on some places of the piece.

    The piece is centred under `means`, weights on the cells of each attribute; evenly if there are none.
    """

    scale: float
    squares: Squares
    means: tuple[Array, ...] | None = None

    @cached_property
    def measured(self) -> bool:
        """Whether anything is known about the piece."""
        return self.scale > 0 and all(square.values.any() for _, square in self.squares)

    @cached_property
    def even(self) -> bool:
        """Whether every direction of the piece is equally uncertain."""
        return not self.measured or all(square.even for _, square in self.squares)

    @property
    def variance(self) -> float:
        """Mean variance over the directions that are measured."""
        return self.scale * math.prod(
            float(square.values[square.values > 0].mean()) if square.values.any() else 0.0
            for _, square in self.squares
        )

    def variances(self, sizes: Sequence[int]) -> Array:
        """Variance along each product of eigenvectors, shape (sizes...); zero where nothing is measured."""
        result = np.full((1,) * len(sizes), self.scale)
        for places, square in self.squares:
            # A square's cells are in the order of its attributes, which need not be ascending.
            values = square.values.reshape(square.sizes).transpose(np.argsort(places))
            shape = [sizes[axis] if axis in places else 1 for axis in range(len(sizes))]
            result = result * values.reshape(shape)
        return np.asarray(np.broadcast_to(result, tuple(sizes)))

    def weights(self, sizes: Sequence[int]) -> Array:
        """One over the variances; what is not measured has a tiny weight, so that it stays near even."""
        if self.even:
            return np.full(tuple(sizes), 1.0 / self.variance if self.measured else 1.0 / LOOSE)
        found = self.variances(sizes)
        return 1.0 / np.where(found > 0, found, LOOSE * float(found.max()))

    def rotated(self, pieces: Any, *, back: bool = False, arrays: Any = np) -> Any:
        """Stacked pieces (tables, sizes...) in coordinates where they are uncorrelated, or back from them."""
        # Where all directions are equally uncertain, pieces are uncorrelated in any coordinates.
        return pieces if self.even else turned(pieces, self.squares, back=back, arrays=arrays)


def alike(pieces: Mapping[Subset, Array], errors: Mapping[Subset, PieceError]) -> list[list[Subset]]:
    """Subsets whose pieces have one shape, and covariances that differ by a factor, together."""
    classes: dict[object, list[Subset]] = {}
    for subset, own in pieces.items():
        squares = () if errors[subset].even else errors[subset].squares
        key = (own.shape, *((places, id(square)) for places, square in squares))
        classes.setdefault(key, []).append(subset)
    return list(classes.values())


class PieceErrors(dict[Subset, PieceError]):
    """Finds the covariance of the piece on any subset of attributes, each distinct one worked out once."""

    def __init__(self, strategy: Strategy, schema: Schema) -> None:
        self._strategy, self._schema = strategy, schema
        self._squares: dict[object, Square] = {}

    def __missing__(self, subset: Subset) -> PieceError:
        self[subset] = self._found(subset)
        return self[subset]

    def _found(self, subset: Subset) -> PieceError:
        factored = self._strategy.answerer.factored(subset)
        if factored is None:
            return self._of_any(subset)
        squares = []
        for factor in factored.factors:
            if factor.key not in self._squares:
                self._squares[factor.key] = Square.of(factor.square(), factor.sizes)
            places = tuple(subset.index(at) for at in factor.attributes)
            squares.append((places, self._squares[factor.key]))
        return PieceError(factored.scale, tuple(squares), factored.means)

    def _of_any(self, subset: Subset) -> PieceError:
        """From the covariance of all cells of the marginal: for every strategy, if it is small."""
        sizes = [self._schema.sizes[at] for at in subset]
        cells = math.prod(sizes)
        if cells > JOINT_COVARIANCE:
            raise Infeasible(
                f"a table of {cells:,} cells of this plan is too large to be post-processed (the most is "
                f"{JOINT_COVARIANCE:,}); plan with method 'querysmasher' or 'residualplanner'"
            )
        group = every_cell(self._schema, subset)
        try:
            covariance = self._strategy.covariance(group, group)
        except NotInSpan as error:
            names = " x ".join(self._schema.names[at] for at in subset)
            raise Infeasible(
                f"this plan does not measure every cell of {names}, which post-processing starts from; plan "
                "with method 'querysmasher', or publish that table cell by cell too"
            ) from error
        square = Square.of(covariance, sizes)
        return PieceError(1.0, ((tuple(range(len(subset))), square),))
