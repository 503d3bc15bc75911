"""Whether two releases can be of the same data: a chi-squared test over what both measured (claim A-008)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.estimates import Estimates
from residua.kernel.exact import along_axes
from residua.reconstruct import Estimator
from residua.strategy.batches import batched_rows
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.together import measured_products

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Told = tuple[Mechanism, Estimates]
"""What a release measured, and its least-squares estimates."""

CHUNK_CELLS = 10_000_000  # cells of estimated marginals held at once


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


def disagreement(ours: Told, theirs: Told, both: Told, sizes: Sequence[int]) -> Disagreement:
    """How far two releases are from what they say together; `sizes` are those of all attributes."""
    if isinstance(both[0], BlockStrategy):
        return _over_blocks(ours, theirs, both[1])
    total, numbers = 0.0, []
    for told in (ours, theirs):
        squares = list(_squares(told, Estimator(*both), sizes))
        total += math.fsum(found for found, _ in squares)
        numbers.append(sum(many for _, many in squares))
    return Disagreement(total, min(numbers))


def _over_blocks(ours: Told, theirs: Told, both: Estimates) -> Disagreement:
    """The same where blocks are independent: only those that both measured can disagree."""
    total, freedom = 0.0, 0
    sides = [(mechanism, estimates, _places(mechanism)) for mechanism, estimates in (ours, theirs)]
    for subset in sides[0][2].keys() & sides[1][2].keys():
        ranks = []
        for mechanism, estimates, places in sides:
            assert isinstance(mechanism, Layered)
            layer, row = places[subset]
            shapes = [mechanism.shapes[at] for at in layer.shapes[row].tolist()]
            order = [place for own in layer.layout for place in own]
            difference = (estimates.block(subset) - both.block(subset)).transpose(order)
            rows = along_axes(difference.reshape(1, -1), [shape.matrix for shape in shapes])
            total += float(np.sum(rows * rows)) / float(layer.noise[row])
            ranks.append(math.prod(shape.rank for shape in shapes))
        freedom += min(ranks)
    return Disagreement(total, freedom)


def _places(mechanism: Mechanism) -> dict[tuple[int, ...], tuple[Layer, int]]:
    """The layer and row of each block, by its attributes."""
    layers = mechanism.layers if isinstance(mechanism, Layered) else ()
    return {tuple(own): (layer, row) for layer in layers for row, own in enumerate(layer.subsets.tolist())}


def _squares(told: Told, both: Estimator, sizes: Sequence[int]) -> Iterator[tuple[float, int]]:
    """Sums of squares of what a release measured less what both together say of it, and how many squares."""
    own = Estimator(*told)
    for attributes, matrices, noise in _products(told[0]):
        order = np.argsort(attributes[0])  # of all: they have one layout
        ascending, back = attributes[:, order], 1 + np.argsort(order)
        shape = [sizes[at] for at in ascending[0].tolist()]
        step = max(1, CHUNK_CELLS // math.prod(shape))
        for start in range(0, len(ascending), step):
            some = ascending[start : start + step]
            difference = own.marginals(some, shape) - both.marginals(some, shape)
            rows = along_axes(difference.transpose(0, *back).reshape(len(some), -1), matrices)
            yield float(np.sum(rows * rows / noise[start : start + step, None])), rows.size


def _products(mechanism: Mechanism) -> Iterator[tuple[Subsets, list[Array], Array]]:
    """What a mechanism measures: attributes, (k, ways), the matrices on them, and the noise, (k,)."""
    if not isinstance(mechanism, Layered):
        for own, matrices, variance in measured_products(mechanism):
            yield np.array([own], dtype=np.int32).reshape(1, -1), matrices, np.array([variance])
        return
    for number, rows in batched_rows(mechanism):
        layer = mechanism.layers[number]
        order = [place for places in layer.layout for place in places]
        matrices = [mechanism.shapes[at].matrix for at in layer.shapes[rows[0]].tolist()]
        yield layer.subsets[rows][:, order], matrices, layer.noise[rows]
