"""One block: the inverse of a Kronecker product is a product of inverses (claim A-002).

Factors of a table and of the block that share attributes are tied into the smallest independent parts;
figures of the whole are products over parts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from residua._arrays import Array
from residua._limits import TIED_CELLS
from residua.answering.blocks import Blocks, Measured, Placed, Shape, ascending, outer, rows_over
from residua.answering.protocol import Answerer, Estimates, FactorCovariance, Factored, not_in_span
from residua.errors import WorkloadError
from residua.linalg.matrices import along_axes, join, sum_out
from residua.workload import Factor, Table, Total
from residua.workload.tables import TIMES

Strategies = tuple[Placed, ...]

SPAN_TOLERANCE = 1e-10  # of a query's squared length: what rounding may leave outside the row space


@dataclass(frozen=True, slots=True, eq=False)
class ProductPart:
    """Some factors of a table with the strategy factors they touch.

    `square` is the covariance of the marginal on the table's attributes, in its order. Where there are things
    that no measurement sees, `q whole q'` is a query's squared length over all cells and `q outside q'` that
    of its unseen part.
    """

    strategy: Strategies
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
        square = _marginal(strategy, [factor.inverse for factor in strategy], order)
        if all(factor.projector is None for factor in strategy):
            return cls(strategy, factors, square)
        widths = [ours.matrix.shape[1] for ours in strategy]
        seen = [
            np.eye(width) if ours.projector is None else ours.projector
            for ours, width in zip(strategy, widths, strict=True)
        ]
        whole = math.prod(widths) // cells * np.eye(cells)  # so many cells of ours per cell asked
        return cls(strategy, factors, square, whole, whole - _marginal(strategy, seen, order))

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
        if excess.max() > 0:
            title = TIMES.join(factor.queries.title for factor in self.factors)
            listable = all(factor.queries.listable for factor in self.factors)
            which = f"query {int(np.argmax(excess))}" if listable else "some query"
            raise not_in_span(
                f"table {name!r}: {which} of {title!r} is not a combination of the plan's measurements"
            )


def parts_of(ours: Strategies, group: Table) -> list[ProductPart]:
    """The table's factors and ours, tied into the smallest independent parts; NotInSpan if we miss any."""
    group = _without_unmeasured_totals(ours, group)
    measured = _with_unmeasured(ours, group)
    parts: list[ProductPart] = []
    left = list(group.factors)
    while left:
        tied = [left.pop(0)]
        touched = _touching(measured, _axes(tied))
        while more := [f for f in left if any(set(f.attributes) & set(s.attributes) for s in touched)]:
            tied += more
            left = [f for f in left if f not in more]
            touched = _touching(measured, _axes(tied))
        tied.sort(key=group.factors.index)
        parts.append(ProductPart.of(touched, tuple(tied), group.name))
    for factor in _untouched(ours, parts):
        if factor.projector is not None:
            cells = len(factor.projector)
            if cells - float(factor.projector.sum()) > SPAN_TOLERANCE * cells:
                raise not_in_span(
                    f"table {group.name!r} needs a total that the plan's measurements do not contain"
                )
    for part in parts:
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


def _touching(ours: Strategies, axes: Iterable[int]) -> Strategies:
    """Those of our factors that look at one of these attributes."""
    wanted = set(axes)
    return tuple(factor for factor in ours if wanted & set(factor.attributes))


def _untouched(ours: Strategies, parts: Iterable[ProductPart]) -> Iterator[Placed]:
    """Those of our factors that no part looks at."""
    known = {id(factor) for part in parts for factor in part.strategy}
    return (factor for factor in ours if id(factor) not in known)


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
        return outer((part.variances() for part in parts), places).reshape(-1) * self._scale(parts)

    def summed(self, group: Table, *, weighted: bool) -> float:
        parts = parts_of(self.factors, group)
        return math.prod(part.total(weighted=weighted) for part in parts) * self._scale(parts)

    def largest(self, group: Table) -> float:
        """The product of the largest of each part."""
        parts = parts_of(self.factors, group)
        if not group.listable:
            return math.nan
        return math.prod(float(part.variances().max()) for part in parts) * self._scale(parts)

    def covariances(self, left: Table, right: Table) -> Array:
        for group in (left, right):
            parts_of(self.factors, group)  # refuses what the measurements do not support
        left, right = (_without_unmeasured_totals(self.factors, group) for group in (left, right))
        order = sorted({*left.attributes, *right.attributes})
        touched = _touching(_with_unmeasured(self.factors, left, right), order)
        sizes = {
            axis: size for ours in touched for axis, size in zip(ours.attributes, ours.sizes, strict=True)
        }
        width = [sizes[axis] for axis in order]
        if math.prod(width) > TIED_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} needs {math.prod(width):,} joint "
                f"cells, more than {TIED_CELLS:,}; ask for tables on fewer attributes, or for variances"
            )
        square = _marginal(touched, [ours.inverse for ours in touched], order)
        rows = [rows_over(group.factors, order, width) for group in (left, right)]
        scale = self._scale([ProductPart(touched, (), square)])
        return np.asarray(rows[0] @ square @ rows[1].T) * scale

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a marginal as a product of those of the factors that it touches."""
        found, scale = [], self.noise
        for factor in self.factors:
            kept = tuple(place for place, at in enumerate(factor.attributes) if at in subset)
            if not kept:
                scale *= float(factor.inverse.sum())
                continue
            attributes = tuple(factor.attributes[place] for place in kept)
            sizes = tuple(factor.sizes[place] for place in kept)
            square = partial(sum_out, factor.inverse, factor.sizes, kept)
            found.append(FactorCovariance(attributes, sizes, (id(factor), kept), square))
        complete = sum(len(each.attributes) for each in found) == len(subset)
        return Factored(scale, tuple(found)) if complete else Factored(0.0, ())

    def _scale(self, parts: Sequence[ProductPart]) -> float:
        """Noise variance times the variance of a total over each factor that no part touches."""
        idle = _untouched(self.factors, parts)
        return self.noise * math.prod(float(factor.inverse.sum()) for factor in idle)
