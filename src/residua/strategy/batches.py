"""An integer strategy as measurements: what privacy rests on, in plain sight (`residua.kernel`)."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer
from residua.errors import BudgetError, Infeasible
from residua.kernel.exact import column_costs
from residua.kernel.measurement import Measurement
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


Costs = Callable[[int, Integers], tuple[list[Fraction], Integers]]
"""The distinct costs of some blocks of a layer, all above zero, and which of them each block has."""


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

    return list(measurements_of(strategy, [_whole(shape.matrix) for shape in strategy.shapes], costs))


def measurements_of(strategy: Strategy, matrices: Sequence[Integers], costs: Costs) -> Iterator[Measurement]:
    """The blocks of a strategy with these matrices as its shapes, and noise that makes them cost so much."""
    norms = [int(column_costs(strategy.law, matrix).max()) for matrix in matrices]
    for number, mine in strategy.runs():
        layer = strategy.layers[number]
        numbers = layer.shapes[mine[0]].tolist()
        multiple = layer.multiplier if strategy.law == "laplace" else layer.multiplier**2
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
