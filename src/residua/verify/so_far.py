"""What some instalments of a plan have measured, by what their blocks state they cost."""

from collections.abc import Iterator

import numpy as np

from residua._arrays import Array, Integers
from residua.kernel.measurement import Measurement
from residua.strategy.strategy import Strategy, measurements_of, stated_costs


def measured_so_far(strategy: Strategy) -> Iterator[Measurement]:
    """The measured rows with noise that makes each block cost what it states (claim X-007).

    A release so far has whole matrices and costs in floats, not the exact shares of the whole plan.
    """
    matrices = [_whole(shape.matrix) for shape in strategy.shapes]
    return measurements_of(strategy, matrices, stated_costs(strategy))


def _whole(matrix: Array) -> Integers:
    if (np.rint(matrix) != matrix).any():
        raise ValueError("some instalments of a plan measure whole numbers, and this states others")
    return matrix.astype(np.int64)
