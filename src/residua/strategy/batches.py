"""An integer mechanism as batches of equal measurements: what measuring and reconstructing go through.

A batch holds blocks with the same matrices on different attributes: a measurement, which is all that privacy
rests on (`residua.kernel`), and how its numbers become estimates.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.errors import BudgetError, Infeasible
from residua.kernel.cost import separate_cost
from residua.kernel.exact import along_axes
from residua.kernel.measurement import Measurement
from residua.linalg.centring import centred_columns
from residua.linalg.keys import distinct_rows
from residua.linalg.rows import pseudo_inverse
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy, Term
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.product import ProductStrategy
from residua.strategy.sides import SidesStrategy
from residua.strategy.union import UnionStrategy
from residua.workload.views import View

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Measurement):
    """A measurement, and how its numbers become estimates.

    `inverses` turn measured numbers into estimates of cells, (cells, rows) for each matrix; there are none
    where the blocks have to be solved with others.
    """

    inverses: tuple[Array, ...] = ()

    @property
    def variances(self) -> tuple[Fraction, ...]:
        """The parameters of Gaussian noise."""
        return self.parameters if self.law == "gaussian" else ()

    @property
    def scales(self) -> tuple[Fraction, ...] | None:
        """The parameters of Laplace noise."""
        return self.parameters if self.law == "laplace" else None

    @property
    def view(self) -> View:
        """The schema as the blocks look at it."""
        return View(self.derived)

    def estimate(self, values: Integers) -> Array:
        """Least-squares estimate of the measured part of each marginal: (blocks, rows) to (blocks, cells)."""
        return np.asarray(along_axes(values.astype(np.float64) / self.multiplier, self.inverses))

    def ascending(self, values: Integers) -> Array:
        """The same, (blocks, sizes...), with axes in the order of the attributes."""
        tensor = self.estimate(values).reshape(len(values), *self.sizes)
        order = np.argsort(self.subsets[0])  # of every block: they have one layout
        return np.ascontiguousarray(tensor.transpose(0, *(1 + order)))


def batches_of(mechanism: Mechanism) -> list[Batch]:
    """The batches of an integer mechanism, in an order that its content determines."""
    if isinstance(mechanism, BlockStrategy | OverlapStrategy):
        return list(_block_batches(mechanism))
    if isinstance(mechanism, ProductStrategy):
        return [_product_batch(mechanism)]
    if isinstance(mechanism, NestedStrategy):
        return list(_nested_batches(mechanism))
    if isinstance(mechanism, UnionStrategy):
        return list(_union_batches(mechanism))
    if isinstance(mechanism, SidesStrategy):
        pairs = ((side.view.parts, batch) for side in mechanism.sides for batch in batches_of(side.mechanism))
        return [replace(batch, derived=parts) for parts, batch in pairs]
    raise TypeError(f"{type(mechanism).__name__} has no batches")


def exact_cost(batches: Sequence[Measurement]) -> Fraction:
    """Cost of adding or removing a record if one cell were the dearest of all blocks (claim I-005)."""
    return separate_cost(batches, replaced=False)


def batched_rows(strategy: Layered) -> Iterator[tuple[int, Integers]]:
    """For each batch of a strategy, in order, its layer and the rows of its blocks there."""
    measures = {measure: number for number, measure in enumerate(dict.fromkeys(strategy.measures))}
    measured = np.array([measures[measure] for measure in strategy.measures], dtype=np.int64)
    for number, layer in enumerate(strategy.layers):
        if not layer.layout:
            yield number, np.arange(len(layer.noise), dtype=np.int64)
            continue
        first, inverse = distinct_rows(np.concatenate([layer.shapes, measured[layer.subsets]], axis=1))
        for kind in range(len(first)):
            yield number, np.flatnonzero(inverse == kind).astype(np.int64)


def _block_batches(strategy: BlockStrategy | OverlapStrategy) -> Iterator[Batch]:
    if strategy.grain is None:
        raise _measured_before()
    all_shares = [_shares(layer, strategy.grain) for layer in strategy.layers]
    for number, mine in batched_rows(strategy):
        layer = strategy.layers[number]
        order = [place for places in layer.layout for place in places]
        row = int(mine[0])
        shapes = [strategy.shapes[at] for at in layer.shapes[row].tolist()]
        norm = layer.multiplier**2 * math.prod(shape.exact_norm for shape in shapes)
        separate = isinstance(strategy, BlockStrategy) or strategy.division.any_alone(number, mine)
        shares, owners = np.unique(all_shares[number][mine], return_inverse=True)
        yield Batch(
            layer.subsets[mine][:, order],
            tuple(size for shape in shapes for size in shape.sizes),
            tuple(_whole(shape.matrix) for shape in shapes),
            layer.multiplier,
            strategy.law,
            tuple(Fraction(norm) * Fraction(2) ** strategy.grain / share for share in shares.tolist()),
            owners.astype(np.int64),
            inverses=_kernels(shapes, layer.subsets[row][order].tolist(), strategy) if separate else (),
        )


def _measured_before() -> Infeasible:
    return Infeasible(
        "only a plan that rs.plan made can be measured; this one describes measurements made before"
    )


def _shares(layer: Layer, grain: int) -> Integers:
    """The exact costs of a layer's blocks; refused where its other arrays tell of other costs or blocks."""
    if layer.shares is None:
        raise ValueError("only an integer strategy can be measured")
    blocks = {len(layer.subsets), len(layer.shapes), len(layer.noise), len(layer.shares)}
    if len(blocks) > 1 or not np.array_equal(layer.costs, layer.shares * 2.0**-grain):
        raise BudgetError("this plan says of its blocks what their noise does not keep; plan again")
    return layer.shares


def _whole(matrix: Array) -> Integers:
    """The matrix in integers; refused where those would not be the very numbers that it has."""
    if not (np.abs(matrix) <= 2.0**53).all() or (np.rint(matrix) != matrix).any():
        raise BudgetError("only small whole numbers can be measured, and this plan has others; plan again")
    return matrix.astype(np.int64)


def _kernels(shapes: Sequence[Shape], attributes: Sequence[int], strategy: Layered) -> tuple[Array, ...]:
    """What measured numbers contribute to the cells of each shape: `C B^+`, with C that of its attributes."""
    start, found = 0, []
    for shape in shapes:
        stop = start + len(shape.sizes)
        measures = [strategy.measures[at] for at in attributes[start:stop]]
        found.append(centred_columns(shape.inverse, shape.sizes, measures))
        start = stop
    return tuple(found)


def _product_batch(strategy: ProductStrategy) -> Batch:
    if strategy.grain is None:
        raise _measured_before()
    parameter = (Fraction(strategy.exact_norm) / strategy.exact_cost(),)
    order = [at for factor in strategy.factors for at in factor.attributes]
    return Batch(
        np.array([order], dtype=np.int32).reshape(1, -1),
        tuple(size for factor in strategy.factors for size in factor.sizes),
        tuple(_whole(factor.matrix) for factor in strategy.factors),
        1,
        strategy.law,
        parameter,
        np.zeros(1, dtype=np.int64),
        inverses=tuple(pseudo_inverse(factor.matrix) for factor in strategy.factors),
    )


def nested_order(strategy: NestedStrategy) -> list[list[Term]]:
    """The terms of each batch: those that measure the same matrices."""
    kinds: dict[object, list[Term]] = {}
    for term in strategy.terms:
        key = tuple(strategy.chosen[at] for at in term.attributes)
        kinds.setdefault(key, []).append(term)
    return list(kinds.values())


def _nested_batches(strategy: NestedStrategy) -> Iterator[Batch]:
    if strategy.grain is None:
        raise _measured_before()
    unit = Fraction(2) ** strategy.grain
    for terms in nested_order(strategy):
        matrices = strategy.matrices_of(terms[0])
        found = tuple(strategy.exact_norm(term) * unit / Fraction(term.share or 0) for term in terms)
        parameters = tuple(dict.fromkeys(found))
        yield Batch(
            np.array([term.attributes for term in terms], dtype=np.int32).reshape(len(terms), -1),
            tuple(matrix.shape[1] for matrix in matrices),
            tuple(_whole(matrix) for matrix in matrices),
            strategy.multiplier,
            strategy.law,
            parameters,
            np.array([parameters.index(each) for each in found], dtype=np.int64),
            inverses=tuple(pseudo_inverse(matrix) for matrix in matrices),
        )


def _union_batches(strategy: UnionStrategy) -> Iterator[Batch]:
    if strategy.grain is None:
        raise _measured_before()
    unit = Fraction(2) ** strategy.grain
    for term in strategy.terms:
        pairs = zip(strategy.axes, term.matrices, strict=True)
        mine = [(axis, matrix) for axis, matrix in pairs if matrix is not None]
        parameter = (strategy.exact_norm(term) * unit / Fraction(term.share or 0),)
        yield Batch(
            np.array([[at for axis, _ in mine for at in axis.attributes]], dtype=np.int32).reshape(1, -1),
            tuple(size for axis, _ in mine for size in axis.sizes),
            tuple(_whole(matrix) for _, matrix in mine),
            strategy.multiplier,
            strategy.law,
            parameter,
            np.zeros(1, dtype=np.int64),
        )
