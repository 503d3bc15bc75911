"""A strategy as measurements, and what those cost one record, as the kernel bounds it."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua._limits import COUNTED_CELLS
from residua.answering.blocks import Layer
from residua.errors import BudgetError, Infeasible
from residua.kernel.block import column_costs, cost_power, matrix_cost
from residua.kernel.cost import MOST_BLOCKS, added_cost, replaced_cost, separate_cost
from residua.kernel.measurement import Measurement
from residua.strategy.strategy import Strategy
from residua.workload.queries import spelled

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

Costs = Callable[[int, Integers], tuple[list[Fraction], Integers]]
"""The distinct costs of some blocks of a layer, all above zero, and which of them each block has."""

NEGLIGIBLE = 1e-9  # relative difference of costs that is not looked for
ROUNDING = 1e-3  # relative difference of costs that rounding to integers may make
FEW_BLOCKS = 64  # of which less than that is looked for
MANY_BITS, FEW_BITS = 45, 24  # of the entries of a real matrix; sums of products of the few fit 64 bits
FEW_ENTRIES = 2**12  # that many bits are taken for


def batches_of(strategy: Strategy) -> list[Measurement]:
    """The measurements of an integer strategy, in an order that its content determines."""
    if strategy.grain is None:
        raise Infeasible(
            "only a plan that rs.plan made can be measured; this one describes measurements made before"
        )
    grain = Fraction(1, 2) ** strategy.grain
    shares = [_shares(layer, strategy.grain) for layer in strategy.layers]

    def costs(number: int, rows: Integers) -> tuple[list[Fraction], Integers]:
        found, owners = np.unique(shares[number][rows], return_inverse=True)
        return [share * grain for share in found.tolist()], owners

    return list(_measurements(strategy, [_whole(shape.matrix) for shape in strategy.shapes], costs))


def _measurements(strategy: Strategy, matrices: Sequence[Integers], costs: Costs) -> Iterator[Measurement]:
    """The blocks of a strategy with these matrices as its shapes, and noise that makes them cost so much."""
    norms = [matrix_cost(strategy.law, matrix) for matrix in matrices]
    for number, mine in strategy.runs():
        layer = strategy.layers[number]
        numbers = layer.shapes[mine[0]].tolist()
        multiple = layer.multiplier ** cost_power(strategy.law)
        norm = multiple * math.prod(norms[at] for at in numbers)
        found, owners = costs(number, mine)
        yield Measurement(
            layer.subsets[mine][:, layer.order],
            tuple(size for at in numbers for size in strategy.shapes[at].sizes),
            tuple(matrices[at] for at in numbers),
            layer.multiplier,
            strategy.law,
            tuple(norm / cost for cost in found),
            owners.astype(np.int64),
            strategy.domains[layer.domain].view.parts,
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


def proved_cost(strategy: Strategy, *, replacing: bool) -> Fraction:
    """What an integer strategy is proved to cost one record that is added or removed, or replaced."""
    if replacing:
        return replaced_cost(batches_of(strategy))
    return added_cost(batches_of(strategy)) if _may_save(strategy) else strategy.exact_cost()


def record_cost(strategy: Strategy, *, replacing: bool) -> float:
    """About what a real strategy costs: the sum of what its blocks cost alone."""
    if not replacing:
        return strategy.cost()

    def costs(number: int, rows: Integers) -> tuple[list[Fraction], Integers]:
        found, owners = np.unique(strategy.layers[number].costs[rows], return_inverse=True)
        return [Fraction(cost) for cost in found.tolist()], owners

    matrices = [_to_bits(shape.matrix) for shape in strategy.shapes]
    return float(separate_cost(list(_measurements(strategy, matrices, costs)), replaced=True))


def ideal_scale(ideal: Strategy, released: Strategy, allowed: Fraction, *, replacing: bool) -> float:
    """What the costs of a real strategy are multiplied by to be compared with its integer form at a budget.

    Both then cost the same, block by block added up: as much as the integer one is proved to afford. Where
    that is no more than the budget, but for rounding, it is the budget.
    """
    spent = released.exact_cost()
    if not replacing and spent <= allowed * Fraction(1 + ROUNDING):
        spent = allowed
    return float(spent) / ideal.cost()


def _may_save(strategy: Strategy) -> bool:
    """Whether adding up costs cell by cell might be less than the sum of what the blocks cost alone."""
    blocks = sum(len(layer.noise) for layer in strategy.layers)
    if not 1 < blocks <= MOST_BLOCKS:
        return False
    costs = [column_costs(strategy.law, shape.matrix) for shape in strategy.shapes]
    level = np.array([float(own.min() / own.max()) for own in costs])
    least = sum(float(np.sum(layer.costs * level[layer.shapes].prod(axis=1))) for layer in strategy.layers)
    return least < (1 - (NEGLIGIBLE if blocks <= FEW_BLOCKS else ROUNDING)) * strategy.cost()


def _to_bits(matrix: Array) -> Integers:
    """A multiple of the matrix, rounded; whole numbers as they are."""
    largest = np.abs(matrix).max()
    bits = MANY_BITS if matrix.size <= FEW_ENTRIES else FEW_BITS
    whole = largest <= 2**MANY_BITS and not np.any(np.rint(matrix) - matrix)
    return np.asarray(np.rint(matrix * (1.0 if whole else 2.0**bits / largest)), dtype=np.int64)


def refuse_uncounted(strategy: Strategy, names: Sequence[str]) -> None:
    """Nothing, or Infeasible where a table would have to be counted that has too many cells."""
    for layer in strategy.layers:
        sizes = strategy.domains[layer.domain].sizes
        largest = np.array(sizes, dtype=np.float64)[layer.subsets].prod(axis=1)
        attributes = layer.subsets[int(largest.argmax())].tolist()
        cells = math.prod(sizes[at] for at in attributes)
        if cells > COUNTED_CELLS:
            named = " x ".join(names[at] for at in attributes)
            raise Infeasible(
                f"this plan would measure a table of {spelled(cells)} cells, {named}, more than the "
                f"{COUNTED_CELLS:,} that are counted; use coarser attributes or fewer of them in one table"
            )
