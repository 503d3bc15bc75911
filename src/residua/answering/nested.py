"""Answers from marginals that contain each other: one matrix per attribute, on many subsets.

With `G = B'B` for the matrix B of an attribute and `p = G^+ 1 / s`, `s = 1' G^+ 1`, the gram splits into
`11'/s + C'GC`, `C = I - p1'`: so every block measures all residuals of its attributes at once, each with
noise of its own, and all blocks together are equivalent to independent ones, one per residual, whose
precisions add up (claim H-020). Whatever is asked of these blocks is asked of those.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Subset
from residua.answering.blocks import Blocks, Layer, Measured, Shape, ascending, stacked
from residua.answering.independent.answerer import Independent
from residua.answering.protocol import Estimates
from residua.linalg.matrices import Measure, along_axes

EVEN = 1e-12  # relative difference of weights that is rounding
RANK_RATIO = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """A matrix B that determines the total: `B'B = 11'/spread + C'(B'B)C`, C the centring of `measure`."""

    spread: float
    measure: Measure
    shape: Shape

    @classmethod
    def of(cls, shape: Shape) -> "Half | None":
        """The split of a matrix (claim H-020); None if no combination of its rows is the total."""
        matrix, (inverse, projector) = shape.matrix, shape.gram_inverse
        size = matrix.shape[1]
        weights = inverse.sum(axis=1)
        spread = float(weights.sum())
        if projector is not None and size - float(projector.sum()) > RANK_RATIO * size:
            return None
        weights = weights / spread
        even = bool(np.abs(weights * size - 1.0).max() <= EVEN * size)
        measure = Measure(size) if even else Measure.of(weights)
        rank = size if projector is None else round(float(np.trace(projector)))
        centred = matrix - np.outer(matrix @ measure.vector(), np.ones(size))
        return cls(spread, measure, Shape((size,), centred, rank - 1))


def halves_of(blocks: Blocks) -> "dict[int, Half] | None":
    """The split of each attribute's matrix; None unless each has one matrix, which determines its total."""
    numbers: dict[int, int] = {}
    for layer in blocks.layers:
        if any(len(places) > 1 for places in layer.layout):
            return None
        pairs = np.stack([layer.subsets[:, layer.order], layer.shapes], axis=2).reshape(-1, 2)
        for at, number in np.unique(pairs, axis=0).tolist():
            if numbers.setdefault(at, number) != number:
                return None
    known = {number: Half.of(blocks.shapes[number]) for number in dict.fromkeys(numbers.values())}
    found = {at: half for at, number in numbers.items() if (half := known[number]) is not None}
    return found if len(found) == len(numbers) else None


def given(term: Iterable[int], spreads: Mapping[int, float]) -> list[tuple[Subset, float]]:
    """The residuals that a block measures and the precision of each at noise 1.

    `spreads` has for each attribute the variance of the total, at noise 1, in the strategy of that attribute.
    """
    found: list[tuple[Subset, float]] = [((), 1.0)]
    for at in term:
        found = [
            each for kept, amount in found for each in (((*kept, at), amount), (kept, amount / spreads[at]))
        ]
    return found


def precisions(
    terms: Iterable[tuple[Iterable[int], float]], spreads: Mapping[int, float]
) -> dict[Subset, float]:
    """Precision of every residual that blocks measure, each with one over its noise variance."""
    sums: dict[Subset, float] = {}
    for term, precision in terms:
        for kept, amount in given(term, spreads):
            sums[kept] = sums.get(kept, 0.0) + precision * amount
    return sums


class Nested(Independent):
    """Blocks, each `kron(B_i)` of a marginal, as the independent blocks that they are equivalent to."""

    def __init__(self, blocks: Blocks, halves: Mapping[int, Half]) -> None:
        self.nested, self.halves = blocks, halves
        self.spreads = {at: half.spread for at, half in halves.items()}
        each = ((attributes, 1.0 / noise) for attributes, _, noise in blocks.each())
        self.precision = precisions(each, self.spreads)
        """One over the noise variance of every residual's block."""
        super().__init__(self._equivalent())

    def _equivalent(self) -> Blocks:
        """Independent blocks with the same variances and covariances of every answer."""
        distinct = list(dict.fromkeys(self.halves.values()))
        chosen = np.full(len(self.nested.sizes), -1, dtype=np.int64)
        measures = [Measure(size) for size in self.nested.sizes]
        for at, half in self.halves.items():
            chosen[at], measures[at] = distinct.index(half), half.measure
        layers = []
        for rows, subsets in stacked(self.precision):
            noise = np.array([1.0 / self.precision[kept] for kept in subsets])
            layout = tuple((place,) for place in range(rows.shape[1]))
            layers.append(Layer(rows, layout, chosen[rows], np.zeros(len(rows)), noise))
        shapes = tuple(half.shape for half in distinct)
        return Blocks(self.nested.sizes, tuple(measures), shapes, tuple(layers))

    def estimates(self, measured: Measured) -> Estimates:
        """Means of what each block's own numbers say of a residual, weighted by precision (claim H-021)."""
        sums: dict[Subset, Array] = {}
        for number, rows, values in measured:
            layer = self.nested.layers[number]
            shapes = [self.nested.shapes[at] for at in layer.shapes[rows[0]].tolist()]
            sizes = [shape.sizes[0] for shape in shapes]
            cells = ascending(along_axes(values, [shape.inverse for shape in shapes]), sizes, layer.order)
            for row, own in zip(rows.tolist(), cells, strict=True):
                subset = tuple(layer.subsets[row].tolist())
                weights = dict(given(subset, self.spreads))
                for kept, residual in self._residuals(subset, own):
                    amount = weights[kept] / float(layer.noise[row]) / self.precision[kept] * residual
                    sums[kept] = sums[kept] + amount if kept in sums else amount
        runs = stacked(sums, lambda kept: sums[kept].shape)
        found = ((rows, np.stack([sums[kept] for kept in subsets])) for rows, subsets in runs)
        return Estimates.of(found, self.measures)

    def _residuals(self, attributes: Subset, cells: Array) -> Iterator[tuple[Subset, Array]]:
        """A marginal centred along some attributes and summed over the others, for every choice of those."""
        parts: list[tuple[Subset, Array]] = [((), cells)]
        for at in attributes:
            weights = self.halves[at].measure.vector()
            found = []
            for kept, tensor in parts:
                axis = len(kept)
                sums = tensor.sum(axis=axis, keepdims=True)
                shape = [-1 if place == axis else 1 for place in range(tensor.ndim)]
                found.append(((*kept, at), tensor - weights.reshape(shape) * sums))
                found.append((kept, np.squeeze(sums, axis=axis)))
            parts = found
        yield from parts
