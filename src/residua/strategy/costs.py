"""What a strategy costs a record that is replaced by another, in floating point and never rounded down."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Shape
from residua.linalg.squares import join
from residua.privacy import NoiseLaw
from residua.strategy.noise_laws import largest_difference
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]

COMPARED_CELLS = 5_000  # of one block, all pairs of which are compared
ROUNDING = float(np.finfo(np.float64).eps)


def replacement_cost(strategy: Strategy) -> float:
    """A bound on the privacy cost of replacing one record, the sum over blocks; a total costs nothing."""
    known: dict[tuple[int, ...], float] = {}
    total = 0.0
    for layer in strategy.layers:
        numbers, inverse = np.unique(layer.shapes, axis=0, return_inverse=True)
        ratios = []
        for row in map(tuple, numbers.tolist()):
            if row not in known:
                known[row] = replacement_ratio(strategy.law, [strategy.shapes[at] for at in row])
            ratios.append(known[row])
        total += float(np.sum(np.array(ratios)[inverse.reshape(-1)] * layer.costs))
    return total


def replacement_ratio(law: NoiseLaw, shapes: Sequence[Shape]) -> float:
    """The worst cost of replacing a record over that of adding one, for a product of shapes (claim A-005).

    Two columns without negative entries differ by no more, squared, than their squares together.
    """
    if not shapes:
        return 0.0
    if law == "laplace":
        return largest_difference([shape.matrix for shape in shapes])
    if math.prod(shape.matrix.shape[1] for shape in shapes) <= COMPARED_CELLS:
        square = join([shape.matrix.T @ shape.matrix for shape in shapes])
        own = np.diagonal(square)
        worst = float((own[:, None] + own[None, :] - 2 * square).max()) / float(own.max())
        # Differences of large numbers: what rounding can have taken off is put back.
        return worst + 4 * ROUNDING * (sum(len(shape.matrix) + 1 for shape in shapes) + 3)
    low = high = 1.0
    for shape in shapes:
        gram = shape.matrix.T @ shape.matrix / shape.norm
        slack = ROUNDING * (len(shape.matrix) + 4)
        ends = float(gram.min()) - slack, float(gram.max()) + slack
        corners = [one * other for one in (low, high) for other in ends]
        low, high = min(corners), max(corners)
    return 2.0 - 2.0 * low
