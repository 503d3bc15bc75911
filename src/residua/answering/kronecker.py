"""How one block meets one table: the smallest independent parts, and the figures of each."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from residua._limits import TIED_CELLS
from residua.answering.blocks import Blocks, Measured, Placed, Shape, ascending
from residua.answering.protocol import (
    Estimates,
    FactorCovariance,
    Factored,
    TableByTable,
    refuse_large_covariance,
)
from residua.errors import NotInSpan, WorkloadError
from residua.linalg.matrices import along_axes, join, spread, sum_out
from residua.workload import Factor, Table, Total
from residua.workload.tables import TIMES

Array = NDArray[np.float64]


SPAN_TOLERANCE = 1e-10  # of a query's squared length: what rounding may leave outside the row space


Strategies = tuple[Placed, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ProductPart:
    """Some factors of a group with the strategy factors they touch.

    `square` is the covariance of the marginal on the group's attributes, in its order. Where there are things
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
        tied = len(strategy) > 1
        cells = math.prod(factor.queries.cells for factor in factors)
        if tied and cells > TIED_CELLS:
            raise WorkloadError(
                f"table {name!r} joins attributes that are measured apart in {cells:,} cells, "
                f"more than {TIED_CELLS:,}; ask about fewer cells, or plan this table with the others"
            )
        square = marginal(strategy, [factor.inverse for factor in strategy], order)
        if all(factor.projector is None for factor in strategy):
            return cls(strategy, factors, square)
        seen = [
            np.eye(ours.matrix.shape[1]) if ours.projector is None else ours.projector for ours in strategy
        ]
        each = math.prod(ours.matrix.shape[1] for ours in strategy) // cells  # cells of ours per cell asked
        whole = each * np.eye(cells)
        return cls(strategy, factors, square, whole, whole - marginal(strategy, seen, order))

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


def with_unmeasured(ours: Strategies, *groups: Table) -> Strategies:
    """Our factors, and a total over each attribute that the groups ask about and we do not measure.

    To measure nothing along an attribute is to measure its total there (claim A-003).
    """
    more = list(ours)
    for group in groups:
        for axis, size in _sizes(group.factors):
            if any(axis in factor.attributes for factor in more):
                continue
            if size > TIED_CELLS:
                raise NotInSpan(
                    f"table {group.name!r} asks about an attribute of {size:,} cells that the plan does "
                    "not measure; add the table to the workload before planning",
                    (axis,),
                )
            more.append(Placed((axis,), Shape.of((size,), np.ones((1, size)))))
    return tuple(more)


def parts_of(ours: Strategies, group: Table) -> list[ProductPart]:
    """The group's factors and ours, tied into the smallest independent parts; NotInSpan if we miss any."""
    group = without_unmeasured_totals(ours, group)
    measured = with_unmeasured(ours, group)
    parts: list[ProductPart] = []
    left = list(group.factors)
    while left:
        tied = [left.pop(0)]
        touched = touching(measured, _axes(tied))
        while more := [f for f in left if any(set(f.attributes) & set(s.attributes) for s in touched)]:
            tied += more
            left = [f for f in left if f not in more]
            touched = touching(measured, _axes(tied))
        tied.sort(key=group.factors.index)
        parts.append(ProductPart.of(touched, tuple(tied), group.name))
    _refuse_outside(ours, parts, group.name)
    return parts


def without_unmeasured_totals(ours: Strategies, group: Table) -> Table:
    """The same queries: a total over an attribute that is not measured asks nothing."""
    measured = {axis for factor in ours for axis in factor.attributes}
    kept = (f for f in group.factors if f.attributes[0] in measured or not isinstance(f.queries, Total))
    return replace(group, factors=tuple(kept))


def touching(ours: Strategies, axes: Iterable[int]) -> Strategies:
    """Those of our factors that look at one of these attributes."""
    wanted = set(axes)
    return tuple(factor for factor in ours if wanted & set(factor.attributes))


def marginal(strategy: Strategies, squares: list[Array], order: list[int]) -> Array:
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


def arranged(group: Table, parts: Sequence[ProductPart]) -> Array:
    """Outer product of the parts' variances, in the order of the group's factors, flattened."""
    places = [group.factors.index(factor) for part in parts for factor in part.factors]
    outer: Array = reduce(np.multiply.outer, [part.variances() for part in parts], np.ones(()))
    return np.asarray(outer.transpose(np.argsort(places)).reshape(-1))


def measured_by(parts: Sequence[ProductPart]) -> list[Placed]:
    """The strategy factors that some part touches."""
    return [factor for part in parts for factor in part.strategy]


def _refuse_outside(ours: Strategies, parts: Sequence[ProductPart], name: str) -> None:
    asked = {id(factor) for factor in measured_by(parts)}
    for factor in ours:
        if id(factor) not in asked and factor.projector is not None:
            cells = len(factor.projector)
            if cells - float(factor.projector.sum()) > SPAN_TOLERANCE * cells:
                raise NotInSpan(
                    f"table {name!r} needs a total that the plan's measurements do not contain; "
                    "add the table to the workload before planning"
                )
    for part in parts:
        if part.whole is None or part.outside is None:
            continue
        allowed = SPAN_TOLERANCE * part.squares(part.whole, spanning=True)
        excess = part.squares(part.outside, spanning=True) - allowed
        if excess.max() > 0:
            title = TIMES.join(factor.queries.title for factor in part.factors)
            listable = all(factor.queries.listable for factor in part.factors)
            which = f"query {int(np.argmax(excess))}" if listable else "some query"
            raise NotInSpan(
                f"table {name!r}: {which} of {title!r} is not a combination of the plan's measurements; "
                "add the table to the workload before planning"
            )


def _axes(factors: Iterable[Factor]) -> list[int]:
    return [axis for factor in factors for axis in factor.attributes]


def _sizes(factors: Iterable[Factor]) -> Iterator[tuple[int, int]]:
    """Each attribute with its number of cells."""
    for factor in factors:
        yield from zip(factor.attributes, factor.queries.sizes, strict=True)


class Kronecker(TableByTable):
    """`(kron_s B_s) x` plus independent noise of one variance."""

    def __init__(self, blocks: Blocks) -> None:
        ((self.attributes, self.factors, self.noise),) = blocks.each()
        self._layer = blocks.layers[0]

    def estimates(self, measured: Measured) -> Estimates:
        """The marginal of all measured cells: `B^+ y`."""
        ((_, _, values),) = measured
        sizes = [size for factor in self.factors for size in factor.sizes]
        cells = along_axes(values, [factor.shape.inverse for factor in self.factors])
        return Estimates.of([(self._layer.subsets, ascending(cells, sizes, self._layer.order))], None)

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""
        parts = parts_of(self.factors, group)
        return arranged(group, parts) * self._scale(measured_by(parts))

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        result = group.weight if weighted else 1.0
        parts = parts_of(self.factors, group)
        result *= math.prod(part.total(weighted=weighted) for part in parts)
        return result * self._scale(measured_by(parts))

    def largest(self, group: Table) -> float:
        """Largest variance: the product of the largest of each part; nan if they cannot be gone through."""
        parts = parts_of(self.factors, group)
        if not group.listable:
            return math.nan
        return math.prod(float(part.variances().max()) for part in parts) * self._scale(measured_by(parts))

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        refuse_large_covariance(left, right)
        for group in (left, right):
            parts_of(self.factors, group)  # refuses what the measurements do not support
        left, right = (without_unmeasured_totals(self.factors, group) for group in (left, right))
        order = sorted({*left.attributes, *right.attributes})
        touched = touching(with_unmeasured(self.factors, left, right), order)
        sizes = {
            axis: size for ours in touched for axis, size in zip(ours.attributes, ours.sizes, strict=True)
        }
        width = [sizes[axis] for axis in order]
        if math.prod(width) > TIED_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} needs {math.prod(width):,} joint "
                f"cells, more than {TIED_CELLS:,}; ask for tables on fewer attributes, or for variances"
            )
        square = marginal(touched, [ours.inverse for ours in touched], order)
        rows = [_dense_rows(group, order, width) for group in (left, right)]
        return np.asarray(rows[0] @ square @ rows[1].T) * self._scale(touched)

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

    def _scale(self, asked: Iterable[Placed]) -> float:
        """Noise variance times the variance of a total over each factor that is not among those asked."""
        known = {id(factor) for factor in asked}
        idle = (factor for factor in self.factors if id(factor) not in known)
        return self.noise * math.prod(float(factor.inverse.sum()) for factor in idle)


def _dense_rows(group: Table, order: list[int], sizes: list[int]) -> Array:
    """The group's queries as rows over all cells of the strategy, shape (count, cells)."""
    rows = join(factor.queries.matrix() for factor in group.factors)
    places = [order.index(axis) for axis in group.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)
