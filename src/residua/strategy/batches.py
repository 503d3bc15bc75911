"""What a strategy measures, as the kernel has it, and how to share a budget among that for a person."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from residua._arrays import Array, Integers
from residua.answering.blocks import Layer
from residua.errors import BudgetError, Infeasible
from residua.kernel.measurement import Measurement, block_cost, cost_power, matrix_cost
from residua.kernel.person import block_costs
from residua.privacy.budgets import variance_ratio
from residua.privacy.unit import Person
from residua.strategy.strategy import Strategy

Costs = Callable[[int, Integers], tuple[list[Fraction], Integers]]
"""The distinct costs of some blocks of a layer, all above zero, and which of them each block has."""

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
            layer.within,
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

    def costs(number: int, rows: Integers) -> tuple[list[Fraction], Integers]:
        found, owners = np.unique(strategy.layers[number].costs[rows], return_inverse=True)
        return [Fraction(cost) for cost in found.tolist()], owners

    matrices = [_to_bits(shape.matrix) for shape in strategy.shapes]
    return _measurements(strategy, matrices, costs)


def _to_bits(matrix: Array) -> Integers:
    """A multiple of the matrix, rounded; whole numbers as they are."""
    largest = np.abs(matrix).max()
    bits = MANY_BITS if matrix.size <= FEW_ENTRIES else FEW_BITS
    whole = largest <= 2**MANY_BITS and not np.any(np.rint(matrix) - matrix)
    return np.asarray(np.rint(matrix * (1.0 if whole else 2.0**bits / largest)), dtype=np.int64)
