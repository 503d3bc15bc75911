"""Answers from one block: a Kronecker product of matrices on disjoint attributes.

With `X = kron_s B_s'B_s / sigma^2`, the pseudo-inverse is a Kronecker product too, so a query that is a
product over the same attributes has a variance that is a product (claim A-002). Nothing larger than
the square of one factor, or of the factors that one of the table's joint families ties together, is formed.
"""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Blocks, Measured, Placed, ascending
from residua.answering.estimates import Estimates
from residua.answering.kronecker.parts import (
    TIED_CELLS,
    arranged,
    marginal,
    measured_by,
    parts_of,
    touching,
    with_unmeasured,
    without_unmeasured_totals,
)
from residua.answering.protocol import FactorCovariance, Factored, TableByTable, refuse_large_covariance
from residua.errors import WorkloadError
from residua.linalg.squares import along_axes, join, spread, sum_out
from residua.workload import Table

Array = NDArray[np.float64]


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
