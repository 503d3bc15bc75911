"""An integer mechanism as batches of equal measurements: what measuring and reconstructing go through.

A batch holds blocks with the same matrices on different attributes. Everything that privacy rests on is
here in plain sight: the integer matrix, the exact variance of the noise, the range of the numbers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import BudgetError, Infeasible
from residua.linalg.centring import centred_columns
from residua.linalg.keys import distinct_rows
from residua.linalg.rows import pseudo_inverse
from residua.noise import DiscreteLaplace, Law, RoundedGaussian
from residua.privacy import NoiseLaw
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.integers import column_norm, column_sum, largest_size
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

TAIL_BITS = 60  # a measured number wraps around with a probability below 2 to minus this
LEAST_RECORDS = 2**20  # that every plan can measure: what is left beside its largest entries and noise


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Blocks that measure `multiplier * kron(matrices)` of their own marginals.

    `subsets` is (blocks, attributes), attributes in the order of the matrices' axes; `sizes` has the cells of
    each of them. `inverses` turn measured numbers into estimates of cells, (cells, rows) for each matrix;
    there are none where the blocks have to be solved with others.
    `variances` are the exact variances of Gaussian noise, one per distinct value, and `owners` says which is
    whose. A batch with `scales` has Laplace noise of those exact scales instead, and no `variances`.
    Attributes in the `view` stand for those that they are made of.
    """

    subsets: Subsets
    sizes: tuple[int, ...]
    matrices: tuple[Integers, ...]
    inverses: tuple[Array, ...]
    multiplier: int
    variances: tuple[Fraction, ...]
    owners: Integers
    scales: tuple[Fraction, ...] | None = None
    view: View = field(default_factory=View)

    def __post_init__(self) -> None:
        if type(self.multiplier) is not int or self.multiplier < 1:  # it may come from a file
            raise BudgetError(
                f"measured numbers are multiplied by a whole number of at least 1, not {self.multiplier!r}; "
                "plan again"
            )

    @property
    def law(self) -> NoiseLaw:
        """The law of the noise."""
        return "gaussian" if self.scales is None else "laplace"

    @property
    def cells(self) -> int:
        """Cells of each block's marginal."""
        return math.prod(self.sizes)

    @property
    def rows(self) -> int:
        """Numbers measured in each block."""
        return math.prod(len(matrix) for matrix in self.matrices)

    def largest_entry(self) -> int:
        """Largest absolute entry of the whole matrix."""
        return self.multiplier * math.prod(largest_size(matrix) for matrix in self.matrices)

    def costs(self) -> tuple[Fraction, ...]:
        """Privacy cost of one block for each of the noise parameters, exactly (claims I-005 and H-001).

        Gaussian noise: largest squared length of a column over the variance. Laplace noise: largest sum of
        the absolute entries of a column over the scale, an epsilon of pure DP.
        """
        if self.scales is None:
            norm = self.multiplier**2 * math.prod(column_norm(matrix) for matrix in self.matrices)
            return tuple(norm / variance for variance in self.variances)
        norm = self.multiplier * math.prod(column_sum(matrix) for matrix in self.matrices)
        return tuple(norm / scale for scale in self.scales)

    def laws(self) -> list[Law]:
        """The law of the noise for each of the noise parameters."""
        if self.scales is None:
            return [RoundedGaussian(variance) for variance in self.variances]
        return [DiscreteLaplace(scale) for scale in self.scales]

    def apply(self, counts: Integers) -> Integers:
        """Exact answers to the measured queries, modulo 2^64: (blocks, cells) to (blocks, rows)."""
        records = int(counts[0].sum()) if len(counts) else 0
        if self.largest_entry() * max(records, 1) < 2**53:
            # Every product and partial sum is a whole number below 2^53: floating point is exact, and faster.
            answers = along_axes(counts.astype(np.float64), [m.astype(np.float64) for m in self.matrices])
            return (answers * self.multiplier).astype(np.int64)
        return np.asarray(along_axes(counts, self.matrices) * self.multiplier, dtype=np.int64)

    def estimate(self, values: Integers) -> Array:
        """Least-squares estimate of the measured part of each marginal: (blocks, rows) to (blocks, cells)."""
        return np.asarray(along_axes(values.astype(np.float64) / self.multiplier, self.inverses))

    def ascending(self, values: Integers) -> Array:
        """The same, (blocks, sizes...), with axes in the order of the attributes."""
        tensor = self.estimate(values).reshape(len(values), *self.sizes)
        order = np.argsort(self.subsets[0])  # of every block: they have one layout
        return np.ascontiguousarray(tensor.transpose(0, *(1 + order)))


def along_axes(values: NDArray[Any], matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Kronecker product of the matrices applied to each row of `values`.

    Each step multiplies the last axis and moves it to the front, so that every product is one matrix product.
    """
    blocks = len(values)
    tensor = values.reshape(blocks, -1)
    for matrix in reversed(matrices):
        flat = tensor.reshape(-1, matrix.shape[1]) @ matrix.T
        tensor = flat.reshape(blocks, -1, len(matrix)).transpose(0, 2, 1).reshape(blocks, -1)
    return tensor


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
        return [
            replace(batch, view=side.view) for side in mechanism.sides for batch in batches_of(side.mechanism)
        ]
    raise TypeError(f"{type(mechanism).__name__} has no batches")


def exact_cost(batches: Sequence[Batch]) -> Fraction:
    """Privacy cost of adding or removing one record, from the integers and noise in use (claim I-005).

    The largest entry of the privacy matrix where the noise is Gaussian, an epsilon where it is Laplace; the
    two do not add up.
    """
    if len({batch.law for batch in batches}) > 1:
        raise ValueError("costs of Gaussian and of Laplace noise do not add up")
    total = Fraction(0)
    for batch in batches:
        costs = batch.costs()
        blocks = np.bincount(batch.owners, minlength=len(costs)).tolist()
        total += sum((many * cost for many, cost in zip(blocks, costs, strict=True)), Fraction(0))
    return total


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
            tuple(_kernels(shapes, layer.subsets[row][order].tolist(), strategy)) if separate else (),
            layer.multiplier,
            tuple(Fraction(norm) * Fraction(2) ** strategy.grain / share for share in shares.tolist()),
            owners.astype(np.int64),
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


def _kernels(shapes: Sequence[Shape], attributes: Sequence[int], strategy: Layered) -> Iterator[Array]:
    """What measured numbers contribute to the cells of each shape: `C B^+`, with C that of its attributes."""
    start = 0
    for shape in shapes:
        stop = start + len(shape.sizes)
        yield centred_columns(
            shape.inverse, shape.sizes, [strategy.measures[at] for at in attributes[start:stop]]
        )
        start = stop


def _product_batch(strategy: ProductStrategy) -> Batch:
    if strategy.grain is None:
        raise _measured_before()
    parameter = (Fraction(strategy.exact_norm) / strategy.exact_cost(),)
    laplace = strategy.law == "laplace"
    order = [at for factor in strategy.factors for at in factor.attributes]
    return Batch(
        np.array([order], dtype=np.int32).reshape(1, -1),
        tuple(size for factor in strategy.factors for size in factor.sizes),
        tuple(_whole(factor.matrix) for factor in strategy.factors),
        tuple(pseudo_inverse(factor.matrix) for factor in strategy.factors),
        1,
        () if laplace else parameter,
        np.zeros(1, dtype=np.int64),
        parameter if laplace else None,
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
        laplace = strategy.law == "laplace"
        yield Batch(
            np.array([term.attributes for term in terms], dtype=np.int32).reshape(len(terms), -1),
            tuple(matrix.shape[1] for matrix in matrices),
            tuple(_whole(matrix) for matrix in matrices),
            tuple(pseudo_inverse(matrix) for matrix in matrices),
            strategy.multiplier,
            () if laplace else parameters,
            np.array([parameters.index(each) for each in found], dtype=np.int64),
            parameters if laplace else None,
        )


def _union_batches(strategy: UnionStrategy) -> Iterator[Batch]:
    if strategy.grain is None:
        raise _measured_before()
    unit = Fraction(2) ** strategy.grain
    for term in strategy.terms:
        pairs = zip(strategy.axes, term.matrices, strict=True)
        mine = [(axis, matrix) for axis, matrix in pairs if matrix is not None]
        parameter = (strategy.exact_norm(term) * unit / Fraction(term.share or 0),)
        laplace = strategy.law == "laplace"
        yield Batch(
            np.array([[at for axis, _ in mine for at in axis.attributes]], dtype=np.int32).reshape(1, -1),
            tuple(size for axis, _ in mine for size in axis.sizes),
            tuple(_whole(matrix) for _, matrix in mine),
            (),
            strategy.multiplier,
            () if laplace else parameter,
            np.zeros(1, dtype=np.int64),
            parameter if laplace else None,
        )


def record_limit(batches: Sequence[Batch]) -> int:
    """The most records for which no measured number can wrap around 2^63, whatever the data (claim I-006)."""
    tails = [max((law.bound(TAIL_BITS) for law in batch.laws()), default=0) for batch in batches]
    rooms = [(2**63 - 1 - tail) // batch.largest_entry() for batch, tail in zip(batches, tails, strict=True)]
    return max(0, min(rooms, default=2**62))


def refuse_few_records(batches: Sequence[Batch]) -> None:
    """BudgetError where entries or noise leave fewer records in 64 bits than those of any plan do."""
    if (limit := record_limit(batches)) < LEAST_RECORDS:
        raise BudgetError(
            f"this plan measures numbers that wrap around 64 bits above {limit:,} records, and plans are "
            f"made for at least {LEAST_RECORDS:,}; plan again"
        )
