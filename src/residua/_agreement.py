"""Whether two releases can be of the same data: a chi-squared test over what both measured (claim A-008)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua._limits import AGREEMENT_CELLS
from residua.answering.blocks import Measured
from residua.answering.estimator import Estimator
from residua.linalg.matrices import along_axes
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]
Told = tuple[Strategy, Measured]
"""What was measured, and the numbers."""

AGREED = 1e-12  # of a block's noise: what rounding leaves of no difference


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The squared differences of two releases over the variances of their noise.

    `freedom` is how many of them are independent, or more: of the same data, at most so much is expected.
    """

    total: float
    freedom: int

    def chance(self, excess: float) -> float:
        """The chance of a total at least as large, of the same data and noise of this excess kurtosis.

        Exact for Gaussian noise, which has none; otherwise that of the gamma law with the mean and at least
        the variance of the total. 1 where the total is not above its mean.
        """
        from scipy.special import gammaincc

        if self.total <= self.freedom:
            return 1.0
        spread = 2.0 + excess
        return float(gammaincc(self.freedom / spread, self.total / spread))


def disagreement(parts: Sequence[Told], both: Told) -> Disagreement:
    """How far releases are from what they say together."""
    whole = _estimator(both)
    total, freedoms = 0.0, []
    for told in parts:
        found = list(_squares(told[0], _estimator(told), whole))
        total += math.fsum(float(squares.sum()) for squares, _ in found)
        # Where nobody else measured, there is nothing to differ from.
        freedoms.append(sum(rank * int(np.sum(squares > AGREED)) for squares, rank in found))
    return Disagreement(total, min(freedoms))


def _estimator(told: Told) -> Estimator:
    strategy, measured = told
    return strategy.answerer.estimator(strategy.estimates(measured))


def _squares(strategy: Strategy, own: Estimator, whole: Estimator) -> Iterator[tuple[Array, int]]:
    """Sums of squares of what blocks measured less what all say of it, over the noise; and their rank."""
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        sizes = [strategy.domains[layer.domain].sizes[at] for at in layer.subsets[rows[0]].tolist()]
        shapes = [strategy.shapes[at] for at in layer.shapes[rows[0]].tolist()]
        step = max(1, AGREEMENT_CELLS // math.prod(sizes))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            ours, theirs = (
                each.of_domain(layer.domain).marginals(layer.subsets[some], sizes) for each in (own, whole)
            )
            cells = (ours - theirs).transpose(0, *(1 + np.array(layer.order, dtype=np.int64)))
            found = along_axes(cells.reshape(len(some), -1), [shape.matrix for shape in shapes])
            rank = math.prod(shape.rank for shape in shapes)
            yield np.sum(found * found, axis=1) / layer.noise[some], rank
