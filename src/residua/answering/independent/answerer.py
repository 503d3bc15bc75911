"""Answers from many independent measurements, one per subset of attributes, held as arrays.

Every block measures `B (marginal)` with its own noise, and B's rows answer only centred queries: so blocks
on different subsets span independent spaces, and the best answer to a query is the sum of the best
answers to its pieces (claim A-004).
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Blocks, Measured, Shape, ascending
from residua.answering.estimates import Estimates
from residua.answering.independent.cache import PartCache, not_together
from residua.answering.independent.largest import largest_of
from residua.answering.independent.parts import Part, parts_of
from residua.answering.independent.representatives import examples_of
from residua.answering.independent.runs import least_accurate, total_of_run
from residua.answering.protocol import FactorCovariance, Factored, TableByTable, refuse_large_covariance
from residua.linalg.centring import Measure, centred_columns
from residua.linalg.squares import along_axes
from residua.workload import Table, TableRun
from residua.workload.groups import splits

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

MOST_WAYS = 12  # attributes of a table, all of whose subsets are looked up


class Independent(TableByTable):
    """Blocks on different subsets of attributes, each centred under the measures.

    `elsewhere` are subsets whose pieces are answered by other blocks: they are passed over here.
    """

    def __init__(self, blocks: Blocks, elsewhere: tuple[Subsets, ...] = ()) -> None:
        self.blocks, self.measures = blocks, blocks.measures
        self.known = PartCache(blocks.measures, blocks.shapes, blocks.layers, elsewhere)

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""
        grid = np.zeros([factor.queries.count for factor in group.factors])
        for noise, parts in self._pieces(group):
            grids = [self.known.listed(part) for part in parts]
            grid += noise * _outer(parts, grids)
        return grid.reshape(-1)

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        sums = [
            noise * math.prod(self.known.summed(part, weighted=weighted) for part in parts)
            for noise, parts in self._pieces(group)
        ]
        return math.fsum(sums) * (group.weight if weighted else 1.0)

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, Table) or part.joint is not None:
            return super().totals(part)
        total = total_of_run(self.known, part)
        return part.weight * total, total

    def largest(self, group: Table) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        pieces = list(self._pieces(group))
        if not group.listable:
            return math.nan
        alike = tuple((noise, tuple((part.places, part.key) for part in parts)) for noise, parts in pieces)
        return self.known.largest(alike, lambda: self._largest(group, pieces))

    def _largest(self, group: Table, pieces: list[tuple[float, list[Part]]]) -> float:
        if any(len(part.places) > 1 for _, parts in pieces for part in parts):
            return float(self.variances(group).max())
        return largest_of(self.known, pieces, len(group.factors))

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        refuse_large_covariance(left, right)
        ours = {attributes: parts for attributes, _, parts in self._measured_pieces(left)}
        result = np.zeros((left.count, right.count))
        for attributes, noise, parts in self._measured_pieces(right):
            if attributes in ours:
                rows = _coefficients(ours[attributes], left)
                result += noise * (rows @ _coefficients(parts, right).T)
        return result

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances.

        Those with the same families and measures on their attributes, and blocks of the same shapes and noise
        on all subsets of them, have the same variances, up to order. Where that is not known, every table.
        """
        if isinstance(part, TableRun) and part.joint is None and part.ways <= MOST_WAYS:
            yield from (part[at] for at in examples_of(self.known, part).tolist())
        else:
            yield from super().examples(part)

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""
        if isinstance(part, TableRun) and part.joint is None and len(part):
            worst = least_accurate(self.known, part)
            if worst is not None:
                yield part[worst]
                return
        yield from self.examples(part)

    def estimates(self, measured: Measured) -> Estimates:
        """Each block's residual from its own numbers."""
        return Estimates.of(residuals_of(self.blocks, measured), self.measures)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a residual as a product of those of its block's factors."""
        noise, measured = self.known.block(subset)
        factors = []
        for attributes, number, shape in measured:
            measures = tuple(self.measures[at] for at in attributes)
            square = partial(_residual_square, shape, measures)
            factors.append(FactorCovariance(attributes, shape.sizes, (number, measures), square))
        means = tuple(self.measures[at].vector() for at in subset)
        return Factored(noise or 0.0, tuple(factors), means)

    def _pieces(self, group: Table) -> Iterator[tuple[float, list[Part]]]:
        """Noise variance and parts for each block that the group's queries have a piece in."""
        return ((noise, parts) for _, noise, parts in self._measured_pieces(group))

    def _measured_pieces(self, group: Table) -> Iterator[tuple[tuple[int, ...], float, list[Part]]]:
        for kept, attributes in splits(group):
            if self.known.is_elsewhere(attributes):
                continue
            noise, measured = self.known.block(attributes)
            parts = list(parts_of(group.factors, kept, self.measures, measured))
            if any(self.known.vanishes(part) for part in parts):
                continue  # whatever the block measures, or if there is none: nothing is asked of it
            if noise is None:
                raise not_together(group.name, attributes)
            for part in parts:
                self.known.refuse_outside(part, group.name, attributes)
            yield attributes, noise, parts


def _residual_square(shape: Shape, measures: Sequence[Measure]) -> Array:
    """`C (B'B)^+ C'`, the covariance of the residual that a shape measures with noise 1."""
    kernel = centred_columns(shape.inverse, shape.sizes, measures)
    return np.asarray(kernel @ kernel.T)


def _outer(parts: list[Part], grids: list[Array]) -> Array:
    """Outer product of the parts' figures, in the order of the table's factors."""
    places = [place for part in parts for place in part.places]
    outer: Array = reduce(np.multiply.outer, grids, np.ones(()))
    return np.asarray(outer.transpose(np.argsort(places)))


def _coefficients(parts: list[Part], group: Table) -> Array:
    """Coefficients of a block's measurements, in its order, in the answers of a group: (count, measured)."""
    result: Array = np.ones(())
    rows: list[tuple[int, int]] = []  # (place of the factor in the table, axis of the result)
    ranks: list[tuple[int, int]] = []  # (slot of the shape in the block, axis of the result)
    for part in parts:
        tensor = part.answers_of([queries.matrix() for queries in part.queries])
        tensor = tensor.reshape(*tensor.shape[:-1], *(len(shape.matrix) for shape in part.shapes))
        start = result.ndim
        result = np.multiply.outer(result, tensor)
        rows += [(place, start + at) for at, place in enumerate(part.places)]
        ranks += [(slot, start + len(part.places) + at) for at, slot in enumerate(part.slots)]
    order = [axis for _, axis in sorted(rows)] + [axis for _, axis in sorted(ranks)]
    return np.asarray(result.transpose(order).reshape(group.count, -1))


def residuals_of(blocks: Blocks, measured: Measured) -> Iterator[tuple[Subsets, Array]]:
    """Residuals that centred blocks estimate, `C B^+ y`: (k, attributes) ascending, and (k, sizes...)."""
    for number, rows, values in measured:
        layer = blocks.layers[number]
        attributes = layer.subsets[rows[0]].tolist()
        shapes = [blocks.shapes[at] for at in layer.shapes[rows[0]].tolist()]
        kernels = []
        for shape, places in zip(shapes, layer.layout, strict=True):
            measures = [blocks.measures[attributes[place]] for place in places]
            kernels.append(centred_columns(shape.inverse, shape.sizes, measures))
        sizes = [size for shape in shapes for size in shape.sizes]
        yield layer.subsets[rows], ascending(along_axes(values, kernels), sizes, layer.order)
