"""What some instalments of a plan have measured, by what their blocks state they cost."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from residua._arrays import Array, Integers
from residua.kernel.measurement import Measurement, cost_power, matrix_cost
from residua.strategy.strategy import Strategy


def measured_so_far(strategy: Strategy) -> Iterator[Measurement]:
    """The measured rows with noise that makes each block cost what it states (claim X-007).

    A release so far has whole matrices and costs in floats, not the exact shares of the whole plan.
    """
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        shapes = [strategy.shapes[at] for at in layer.shapes[rows[0]].tolist()]
        matrices = tuple(_whole(shape.matrix) for shape in shapes)
        norm = layer.multiplier ** cost_power(strategy.law) * math.prod(
            matrix_cost(strategy.law, matrix) for matrix in matrices
        )
        costs, owners = np.unique(layer.costs[rows], return_inverse=True)
        yield Measurement(
            layer.subsets[rows][:, layer.order],
            tuple(size for shape in shapes for size in shape.sizes),
            matrices,
            layer.multiplier,
            strategy.law,
            tuple(norm / Fraction(cost) for cost in costs.tolist()),
            owners.astype(np.int64),
            strategy.domains[layer.domain].view.parts,
            layer.within,
        )


def _whole(matrix: Array) -> Integers:
    if (np.rint(matrix) != matrix).any():
        raise ValueError("some instalments of a plan measure whole numbers, and this states others")
    return matrix.astype(np.int64)
