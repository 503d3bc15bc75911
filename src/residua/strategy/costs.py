"""What a strategy costs one record, as the kernel bounds it (`residua.kernel.cost`)."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.kernel.cost import added_cost, replaced_cost, separate_cost
from residua.kernel.joint import MOST_BLOCKS
from residua.privacy.laws import column_costs
from residua.strategy.batches import batches_of, measurements_of
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NEGLIGIBLE = 1e-9  # relative difference of costs that is not looked for
ROUNDING = 1e-3  # relative difference of costs that rounding to integers may make
FEW_BLOCKS = 64  # of which less than that is looked for
MANY_BITS, FEW_BITS = 45, 24  # of the entries of a real matrix; sums of products of the few fit 64 bits
FEW_ENTRIES = 2**12  # that many bits are taken for


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
    return float(separate_cost(list(measurements_of(strategy, matrices, costs)), replaced=True))


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
