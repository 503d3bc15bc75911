"""An integer mechanism as batches of equal measurements: what measuring and reconstructing go through.

A batch holds blocks with the same matrices on different attributes. Everything that privacy rests on is
here in plain sight: the integer matrix, the exact variance of the noise, the range of the numbers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.linalg.centring import centred_columns
from residua.linalg.keys import distinct_rows
from residua.linalg.rows import pseudo_inverse
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Shape
from residua.strategy.integers import column_norm
from residua.strategy.mechanism import Mechanism
from residua.strategy.product import ProductStrategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Blocks that measure `multiplier * kron(matrices)` of their own marginals.

    `subsets` is (blocks, attributes), attributes in the order of the matrices' axes; `sizes` has the cells of
    each of them. `inverses` turn measured numbers into estimates of cells, (cells, rows) for each matrix.
    `variances` are the exact noise variances, one per distinct value, and `owners` says which is whose.
    """

    subsets: Subsets
    sizes: tuple[int, ...]
    matrices: tuple[Integers, ...]
    inverses: tuple[Array, ...]
    multiplier: int
    variances: tuple[Fraction, ...]
    owners: Integers

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
        return self.multiplier * math.prod(int(np.abs(matrix).max()) for matrix in self.matrices)

    def apply(self, counts: Integers) -> Integers:
        """Exact answers to the measured queries, modulo 2^64: (blocks, cells) to (blocks, rows)."""
        records = int(counts[0].sum()) if len(counts) else 0
        if self.largest_entry() * max(records, 1) < 2**53:
            # Every product and partial sum is a whole number below 2^53: floating point is exact, and faster.
            answers = _along_axes(counts.astype(np.float64), [m.astype(np.float64) for m in self.matrices])
            return (answers * self.multiplier).astype(np.int64)
        return np.asarray(_along_axes(counts, self.matrices) * self.multiplier, dtype=np.int64)

    def estimate(self, values: Integers) -> Array:
        """Least-squares estimate of the measured part of each marginal: (blocks, rows) to (blocks, cells)."""
        return np.asarray(_along_axes(values.astype(np.float64) / self.multiplier, self.inverses))


def _along_axes(values: NDArray[Any], matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
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
    if isinstance(mechanism, BlockStrategy):
        return list(_block_batches(mechanism))
    if isinstance(mechanism, ProductStrategy):
        return [_product_batch(mechanism)]
    raise TypeError(f"{type(mechanism).__name__} has no batches")


def exact_cost(batches: Sequence[Batch]) -> Fraction:
    """Privacy cost of adding or removing one record, from the integers and variances in use (claim I-005)."""
    total = Fraction(0)
    for batch in batches:
        norm = batch.multiplier**2 * math.prod(column_norm(matrix) for matrix in batch.matrices)
        blocks = np.bincount(batch.owners, minlength=len(batch.variances)).tolist()
        total += sum(
            (many * norm / variance for many, variance in zip(blocks, batch.variances, strict=True)),
            Fraction(0),
        )
    return total


def _block_batches(strategy: BlockStrategy) -> Iterator[Batch]:
    if strategy.grain is None:
        raise Infeasible(
            "only a plan that rs.plan made can be measured; this one describes measurements made before"
        )
    for layer in strategy.layers:
        order = [place for places in layer.layout for place in places]
        first, inverse = distinct_rows(layer.shapes) if layer.layout else _one(len(layer.noise))
        for number, row in enumerate(first.tolist()):
            mine = np.flatnonzero(inverse == number)
            shapes = [strategy.shapes[at] for at in layer.shapes[row].tolist()]
            norm = layer.multiplier**2 * math.prod(shape.exact_norm for shape in shapes)
            if layer.shares is None:
                raise ValueError("only an integer strategy can be measured")
            shares, owners = np.unique(layer.shares[mine], return_inverse=True)
            yield Batch(
                layer.subsets[mine][:, order],
                tuple(size for shape in shapes for size in shape.sizes),
                tuple(shape.matrix.astype(np.int64) for shape in shapes),
                tuple(_kernels(shapes, layer.subsets[row][order].tolist(), strategy)),
                layer.multiplier,
                tuple(Fraction(norm) * Fraction(2) ** strategy.grain / share for share in shares.tolist()),
                owners.astype(np.int64),
            )


def _kernels(shapes: Sequence[Shape], attributes: Sequence[int], strategy: BlockStrategy) -> Iterator[Array]:
    """What measured numbers contribute to the cells of each shape: `C B^+`, with C that of its attributes."""
    start = 0
    for shape in shapes:
        stop = start + len(shape.sizes)
        yield centred_columns(
            shape.inverse, shape.sizes, [strategy.measures[at] for at in attributes[start:stop]]
        )
        start = stop


def _one(count: int) -> tuple[Integers, Integers]:
    return np.zeros(1, dtype=np.int64), np.zeros(count, dtype=np.int64)


def _product_batch(strategy: ProductStrategy) -> Batch:
    cost = strategy.exact_cost()
    order = [at for factor in strategy.factors for at in factor.attributes]
    return Batch(
        np.array([order], dtype=np.int32).reshape(1, -1),
        tuple(size for factor in strategy.factors for size in factor.sizes),
        tuple(factor.matrix.astype(np.int64) for factor in strategy.factors),
        tuple(pseudo_inverse(factor.matrix) for factor in strategy.factors),
        1,
        (Fraction(strategy.exact_norm) / cost,),
        np.zeros(1, dtype=np.int64),
    )


def record_limit(batches: Sequence[Batch], tail: Sequence[int]) -> int:
    """The most records for which no measured number can wrap around 2^63 (claim I-006).

    `tail` is, for each batch, a bound on the absolute noise that is practically never exceeded.
    """
    rooms = [(2**63 - 1 - noise) // batch.largest_entry() for batch, noise in zip(batches, tail, strict=True)]
    return max(0, min(rooms, default=2**62))
