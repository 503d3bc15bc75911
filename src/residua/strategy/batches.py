"""An integer strategy as batches of equal measurements: what measuring goes through.

A batch holds blocks with the same matrices on different attributes. Everything that privacy rests on is
here in plain sight: the integer matrix, the exact variance of the noise, the range of the numbers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, along_axes
from residua.errors import BudgetError, Infeasible
from residua.noise import DiscreteLaplace, Law, RoundedGaussian
from residua.privacy import NoiseLaw
from residua.strategy.integers import column_norm, column_sum, largest_size
from residua.strategy.strategy import Strategy
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
    each of them.
    `variances` are the exact variances of Gaussian noise, one per distinct value, and `owners` says which is
    whose. A batch with `scales` has Laplace noise of those exact scales instead, and no `variances`.
    Attributes in the `view` stand for those that they are made of.
    """

    subsets: Subsets
    sizes: tuple[int, ...]
    matrices: tuple[Integers, ...]
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


def batches_of(strategy: Strategy) -> list[Batch]:
    """The batches of an integer strategy, in an order that its content determines."""
    if strategy.grain is None:
        raise Infeasible(
            "only a plan that rs.plan made can be measured; this one describes measurements made before"
        )
    return list(_batches(strategy, strategy.grain))


def _batches(strategy: Strategy, grain: int) -> Iterator[Batch]:
    whole = [_whole(shape.matrix) for shape in strategy.shapes]
    size = column_sum if strategy.law == "laplace" else column_norm
    norms = [size(matrix) for matrix in whole]
    shares_of = [_shares(layer, grain) for layer in strategy.layers]
    for number, mine in strategy.runs():
        layer = strategy.layers[number]
        numbers = layer.shapes[mine[0]].tolist()
        multiple = layer.multiplier if strategy.law == "laplace" else layer.multiplier**2
        norm = Fraction(multiple * math.prod(norms[at] for at in numbers))
        shares, owners = np.unique(shares_of[number][mine], return_inverse=True)
        parameters = tuple(norm * Fraction(2) ** grain / share for share in shares.tolist())
        laplace = strategy.law == "laplace"
        yield Batch(
            layer.subsets[mine][:, layer.order],
            tuple(size for at in numbers for size in strategy.shapes[at].sizes),
            tuple(whole[at] for at in numbers),
            layer.multiplier,
            () if laplace else parameters,
            owners.astype(np.int64),
            parameters if laplace else None,
            strategy.domains[layer.domain].view,
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
