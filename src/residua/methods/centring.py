"""Weights that centre attributes, as one vector to search over and as measures in whole numbers."""

from collections.abc import Container, Mapping, Sequence

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import Measure
from residua.linalg.spans import mean_first

LARGEST_WEIGHT = 64  # of the whole numbers that weights are rounded to
LARGEST_FINE = 4_096  # the same where all cells are measured
SIGNIFICANT = 5  # binary digits that fine ones keep: few different numbers have short kernels


class CellWeights:
    """Weights on the cells of some classes of attributes as one vector: distances from uniform weights."""

    def __init__(self, cells: Mapping[int, int]) -> None:
        self.cells = dict(cells)
        self._bases = {number: mean_first(size)[:, 1:] for number, size in self.cells.items()}
        self._ends = np.cumsum([size - 1 for size in self.cells.values()])

    @property
    def count(self) -> int:
        """Length of the vector."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def lengths(self) -> Array:
        """For each entry of the vector, the length of the uniform weights of its class."""
        return np.concatenate([np.zeros(0), *(np.full(n - 1, n**-0.5) for n in self.cells.values())])

    def read(self, x: Array) -> dict[int, Array]:
        """The weights of each class."""
        parts = np.split(x, self._ends[:-1]) if self.cells else []
        pairs = zip(self.cells.items(), parts, strict=True)
        return {number: 1 / size + self._bases[number] @ part for (number, size), part in pairs}

    def vector(self, by_class: Mapping[int, Array]) -> Array:
        """The vector of weights, or the slope in it from slopes in the weights."""
        own = (basis.T @ by_class.get(at, np.zeros(len(basis))) for at, basis in self._bases.items())
        return np.concatenate([np.zeros(0), *own])


def on_attributes(
    chosen: Mapping[int, Measure], classes: Sequence[int], sizes: Sequence[int]
) -> tuple[Measure, ...]:
    """The measure of every attribute, by its class; uniform where there is none."""
    return tuple(chosen.get(own, Measure(size)) for own, size in zip(classes, sizes, strict=True))


def in_whole_numbers(weights: Mapping[int, Array], fine: Container[int] = ()) -> dict[int, Measure]:
    """Measures in small whole numbers nearly in proportion to the weights (I-007).

    Those of `fine` classes keep the digits of small weights too; rows that measure less than all cells would
    get too large for that.
    """
    found = {}
    for number, own in weights.items():
        scaled = own * ((LARGEST_FINE if number in fine else LARGEST_WEIGHT) / np.abs(own).max())
        digits = np.floor(np.log2(np.maximum(np.abs(scaled), 1.0))) + 1
        unit = 2.0 ** np.maximum(digits - SIGNIFICANT, 0) if number in fine else 1.0
        scaled = (np.rint(scaled / unit) * unit).astype(np.int64)
        common = max(int(np.gcd.reduce(scaled)), 1)
        found[number] = Measure.whole([int(entry) // common for entry in scaled])
    return found
