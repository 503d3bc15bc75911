"""The ingredients of a block strategy: distinct shapes, and layers of blocks that use them."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shape:
    """A distinct strategy on centred cells: B, shape (rank, cells), independent rows, cost 1."""

    sizes: tuple[int, ...]
    matrix: Array

    @cached_property
    def inverse(self) -> Array:
        """Pseudo-inverse of B, shape (cells, rank)."""
        basis, upper = np.linalg.qr(self.matrix.T)
        return np.asarray(basis @ np.linalg.inv(upper).T)

    @property
    def complete(self) -> bool:
        """Whether B answers every centred query on its cells."""
        return len(self.matrix) == math.prod(size - 1 for size in self.sizes)

    @cached_property
    def overlap(self) -> tuple[float, float]:
        """Least and largest entry of B'B."""
        gram = self.matrix.T @ self.matrix
        return float(gram.min()), float(gram.max())


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Blocks with one layout: how the attributes of each are shared out among its factors.

    `subsets` is (blocks, size), rows ascending; `layout` has the places of each factor, such as
    ((0,), (1,)) or ((0, 1),); `shapes` is (blocks, factors), numbers of shapes; `noise` is (blocks,), the
    variance of the noise on each measured number.
    """

    subsets: Subsets
    layout: tuple[tuple[int, ...], ...]
    shapes: Integers
    noise: Array
