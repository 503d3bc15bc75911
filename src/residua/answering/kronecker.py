"""One block: the inverse of a Kronecker product is a product of inverses (claim A-002).

Factors of a table and of the block that share attributes are tied into the smallest independent parts;
figures of the whole are products over parts.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from residua._arrays import Array
from residua._limits import TIED_CELLS
from residua.answering.blocks import (
    Blocks,
    Factored,
    Measured,
    Placed,
    Shape,
    ascending,
    factored_over,
    outer,
    rows_over,
)
from residua.answering.independent.parts import tied
from residua.answering.protocol import Answerer, Estimates, not_in_span
from residua.errors import WorkloadError
from residua.linalg.grams import sum_out
from residua.linalg.matrices import along_axes, join
from residua.workload import Factor, Table, Total
from residua.workload.tables import TIMES

Strategies = tuple[Placed, ...]

SPAN_TOLERANCE = 1e-10  # of a query's squared length: what rounding may leave outside the row space


@dataclass(frozen=True, slots=True, eq=False)
class ProductPart:
    """Some factors of a table, tied together by the strategy factors that they touch.

    `square` is the covariance of the marginal on the table's attributes, in its order. Where there are things
    that no measurement sees, `q whole q'` is a query's squared length over all cells and `q outside q'` that
    of its unseen part.
    """

    factors: tuple[Factor, ...]
    square: Array
    whole: Array | None = None
    outside: Array | None = None

    @classmethod
    def of(cls, strategy: Strategies, factors: tuple[Factor, ...], name: str) -> "ProductPart":
        """The part of these factors of table `name`, refused if it ties too many cells together."""
        order = _axes(factors)
        cells = math.prod(factor.queries.cells for factor in factors)
        if len(strategy) > 1 and cells > TIED_CELLS:
            raise WorkloadError(
                f"table {name!r} joins attributes that are measured apart in {cells:,} cells, "
                f"more than {TIED_CELLS:,}; ask about fewer cells, or plan this table with the others"
            )
        pairs = [factor.shape.gram_inverse for factor in strategy]
        square = _marginal(strategy, [inverse for inverse, _ in pairs], order)
        if all(projector is None for _, projector in pairs):
            return cls(factors, square)
        seen = [np.eye(len(inverse)) if projector is None else projector for inverse, projector in pairs]
        each = math.prod(len(inverse) for inverse, _ in pairs) // cells  # cells of ours per cell asked
        whole = each * np.eye(cells)
        return cls(factors, square, whole, whole - _marginal(strategy, seen, order))

    def variances(self) -> Array:
        """Variance of each product of queries at noise 1, shape (count of each factor...)."""
        return self.squares(self.square)

    def total(self, *, weighted: bool) -> float:
        """Sum of the variances at noise 1, without listing them."""
        square = self.square
        for factor in self.factors:
            cells = factor.queries.cells
            rest = len(square) // cells
            tensor = square.reshape(cells, rest, cells, rest).transpose(1, 3, 0, 2)
            square = factor.queries.trace(tensor, weighted=weighted)
        return float(square[0, 0])

    def squares(self, square: Array, *, spanning: bool = False) -> Array:
        """`q square q'` for every query, shape (count of each factor...).

        With `spanning`, a family too large to be listed is represented by rows that span it.
        """
        result = square[None]  # (queries so far, cells left, cells left)
        counts = []
        for factor in self.factors:
            done, cells = len(result), factor.queries.cells
            rest = result.shape[1] // cells
            tensor = result.reshape(done, cells, rest, cells, rest).transpose(0, 2, 4, 1, 3)
            if spanning and not factor.queries.listable:
                rows = factor.queries.root()
                listed = np.sum((rows @ tensor) * rows, axis=-1)
            else:
                listed = factor.queries.quadratic(tensor)  # (done, rest, rest, count)
            result = listed.transpose(0, 3, 1, 2).reshape(-1, rest, rest)
            counts.append(listed.shape[-1])
        return result.reshape(counts)

    def refuse_outside(self, name: str) -> None:
        """NotInSpan if a query of table `name` is not a combination of what is measured."""
        if self.whole is None or self.outside is None:
            return
        allowed = SPAN_TOLERANCE * self.squares(self.whole, spanning=True)
        excess = self.squares(self.outside, spanning=True) - allowed
        if excess.max() > 0 and not self.factors:
            raise not_in_span(f"table {name!r} needs a total that the plan's measurements do not contain")
        if excess.max() > 0:
            title = TIMES.join(factor.queries.title for factor in self.factors)
            listable = all(factor.queries.listable for factor in self.factors)
            which = f"query {int(np.argmax(excess))}" if listable else "some query"
            raise not_in_span(
                f"table {name!r}: {which} of {title!r} is not a combination of the plan's measurements"
            )


def parts_of(ours: Strategies, group: Table) -> list[ProductPart]:
    """The table's factors and ours, tied into the smallest independent parts; NotInSpan if we miss any.

    Of our factors that the table does not touch it asks for the total: a part of each by itself.
    """
    group = _without_unmeasured_totals(ours, group)
    measured, asked = _with_unmeasured(ours, group), group.factors
    parts = []
    for numbers in tied([*(ours.attributes for ours in measured), *(factor.attributes for factor in asked)]):
        seen = tuple(measured[at] for at in numbers if at < len(measured))
        own = tuple(asked[at - len(measured)] for at in numbers if at >= len(measured))
        parts.append(ProductPart.of(seen, own, group.name))
    for part in sorted(parts, key=lambda part: len(part.factors)):
        part.refuse_outside(group.name)
    return parts


def _without_unmeasured_totals(ours: Strategies, group: Table) -> Table:
    """The same queries: a total over an attribute that is not measured asks nothing."""
    measured = _axes(ours)
    kept = (f for f in group.factors if f.attributes[0] in measured or not isinstance(f.queries, Total))
    return replace(group, factors=tuple(kept))


def _with_unmeasured(ours: Strategies, *groups: Table) -> Strategies:
    """Our factors, and a total over each attribute that the tables ask about and we do not measure.

    To measure nothing along an attribute is to measure its total there (claim A-003).
    """
    more = list(ours)
    for group in groups:
        sizes = [size for factor in group.factors for size in factor.queries.sizes]
        for axis, size in zip(group.attributes, sizes, strict=True):
            if axis in _axes(more):
                continue
            if size > TIED_CELLS:
                asked = f"an attribute of {size:,} cells that the plan does not measure"
                raise not_in_span(f"table {group.name!r} asks about {asked}", (axis,))
            more.append(Placed((axis,), Shape.of((size,), np.ones((1, size)))))
    return tuple(more)


def _marginal(strategy: Strategies, squares: Sequence[Array], order: list[int]) -> Array:
    """Kronecker product of the squares, summed out to the attributes in `order`."""
    kept: list[int] = []
    sizes: list[int] = []
    reduced = []
    for factor, square in zip(strategy, squares, strict=True):
        keep = [place for place, axis in enumerate(factor.attributes) if axis in order]
        reduced.append(sum_out(square, factor.sizes, keep))
        kept += [factor.attributes[place] for place in keep]
        sizes += [factor.sizes[place] for place in keep]
    return sum_out(join(reduced), sizes, [kept.index(axis) for axis in order])


def _axes(factors: Iterable[Factor | Placed]) -> list[int]:
    return [axis for factor in factors for axis in factor.attributes]


class Kronecker(Answerer):
    """`(kron_s B_s) x` plus independent noise of one variance."""

    def __init__(self, blocks: Blocks) -> None:
        ((_, self.factors, self.noise),) = blocks.each()
        self._layer = blocks.layers[0]

    def estimates(self, measured: Measured) -> Estimates:
        """The marginal of all measured cells: `B^+ y`."""
        ((_, _, values),) = measured
        sizes = [size for factor in self.factors for size in factor.sizes]
        cells = along_axes(values, [factor.shape.inverse for factor in self.factors])
        return Estimates.of([(self._layer.subsets, ascending(cells, sizes, self._layer.order))], None)

    def variances(self, group: Table) -> Array:
        parts = parts_of(self.factors, group)
        places = [group.factors.index(factor) for part in parts for factor in part.factors]
        return self.noise * outer((part.variances() for part in parts), places).reshape(-1)

    def summed(self, group: Table, *, weighted: bool) -> float:
        parts = parts_of(self.factors, group)
        return self.noise * math.prod(part.total(weighted=weighted) for part in parts)

    def largest(self, group: Table) -> float:
        """The product of the largest of each part."""
        parts = parts_of(self.factors, group)
        if not group.listable:
            return math.nan
        return self.noise * math.prod(float(part.variances().max()) for part in parts)

    def covariances(self, left: Table, right: Table) -> Array:
        for group in (left, right):
            parts_of(self.factors, group)  # refuses what the measurements do not support
        left, right = (_without_unmeasured_totals(self.factors, group) for group in (left, right))
        order = sorted({*left.attributes, *right.attributes})
        ours = _with_unmeasured(self.factors, left, right)
        sizes = dict(zip(_axes(ours), (size for factor in ours for size in factor.sizes), strict=True))
        width = [sizes[axis] for axis in order]
        if math.prod(width) > TIED_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} needs {math.prod(width):,} joint "
                f"cells, more than {TIED_CELLS:,}; ask for tables on fewer attributes, or for variances"
            )
        square = _marginal(ours, [factor.inverse for factor in ours], order)
        rows = [rows_over(group.factors, order, width) for group in (left, right)]
        return np.asarray(self.noise * (rows[0] @ square @ rows[1].T))

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a marginal as a product of those of the factors that it touches."""

        def square(factor: Placed, kept: tuple[int, ...]) -> tuple[object, Callable[[], Array]]:
            return id(factor), partial(sum_out, factor.inverse, factor.sizes, kept)

        found = factored_over(self.noise, self.factors, subset, square)
        complete = sum(len(each.attributes) for each in found.factors) == len(subset)
        return found if complete else Factored(0.0, ())
