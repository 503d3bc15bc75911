"""How blocks share a budget where persons have several records, of which so many are kept."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from residua._arrays import Array, Integers
from residua.kernel.measurement import Measurement, block_cost
from residua.kernel.person import block_costs
from residua.privacy.budgets import variance_ratio
from residua.privacy.unit import Person
from residua.strategy.strategy import Strategy, measurements_of, stated_costs

MANY_BITS, FEW_BITS = 45, 24  # of the entries of a real matrix; sums of products of the few fit 64 bits
FEW_ENTRIES = 2**12  # that many bits are taken for


def shared_for(strategy: Strategy, person: Person) -> Strategy:
    """A real strategy whose shares are the best ones for a record, with the best ones for a person.

    A block that costs a person `kappa` times what it costs a record gets a share `sqrt(kappa)` times smaller,
    or the cube root of `kappa` with Laplace noise (claim K-014).
    """
    layers = list(strategy.layers)
    power = 1 / 2 if strategy.law == "gaussian" else 1 / 3
    for (number, rows), measurement in zip(strategy.runs(), real_measurements(strategy), strict=True):
        record = block_cost(measurement, replaced=False)
        costs, noise = layers[number].costs.copy(), layers[number].noise.copy()
        for cost, blocks in block_costs(measurement, person):
            less = float(Fraction(cost, record)) ** power
            costs[rows[blocks]] /= less
            noise[rows[blocks]] *= variance_ratio(strategy.law, less)
        layers[number] = replace(layers[number], costs=costs, noise=noise)
    return replace(strategy, layers=tuple(layers))


def real_measurements(strategy: Strategy) -> Iterator[Measurement]:
    """The measurements of a real strategy with its matrices rounded, for what they cost about."""
    matrices = [_to_bits(shape.matrix) for shape in strategy.shapes]
    return measurements_of(strategy, matrices, stated_costs(strategy))


def _to_bits(matrix: Array) -> Integers:
    """A multiple of the matrix, rounded; whole numbers as they are."""
    largest = np.abs(matrix).max()
    bits = MANY_BITS if matrix.size <= FEW_ENTRIES else FEW_BITS
    whole = largest <= 2**MANY_BITS and not np.any(np.rint(matrix) - matrix)
    return np.asarray(np.rint(matrix * (1.0 if whole else 2.0**bits / largest)), dtype=np.int64)
