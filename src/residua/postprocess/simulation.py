"""Releases simulated from a post-processed one: how wrong post-processing is, where it knows the truth.

Post-processed tables are taken for the truth, noise of the plan's own law is added, and all is post-processed
again. The differences estimate bias and noise together (parametric bootstrap, claim P-107).
"""

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Measured
from residua.answering.estimator import Estimator
from residua.postprocess.stacks import Stack, TableSet
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]


def noisy(tables: TableSet, noise: Estimator) -> TableSet:
    """Tables with noise as a release would have it."""
    return TableSet(
        tuple(
            Stack(stack.subsets, stack.cells + noise.marginals(stack.subsets, stack.sizes))
            for stack in tables.stacks
        )
    )


def noise_of(strategy: Strategy, generator: np.random.Generator) -> Measured:
    """Noise of the law that a strategy has, and no data, in units of its matrices."""
    found = []
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        shapes = (strategy.shapes[at] for at in layer.shapes[rows[0]].tolist())
        size = (len(rows), int(np.prod([len(shape.matrix) for shape in shapes], dtype=np.int64)))
        variances = np.broadcast_to(layer.noise[rows][:, None], size)
        if strategy.law == "gaussian":
            drawn = np.sqrt(variances) * generator.standard_normal(size)
        elif strategy.grain is None:
            drawn = np.sqrt(variances / 2) * generator.laplace(size=size)
        else:
            drawn = _whole_laplace(variances * layer.multiplier**2, generator) / layer.multiplier
        found.append((number, rows, drawn))
    return found


def _whole_laplace(variances: Array, generator: np.random.Generator) -> Array:
    """Integers with probabilities in proportion to exp(-|k|/scale): two geometric ones, subtracted."""
    chance = -np.expm1(-2 * np.arcsinh(1 / np.sqrt(2 * variances)))  # 1 - exp(-1/scale)
    return np.asarray(generator.geometric(chance) - generator.geometric(chance), dtype=np.float64)
