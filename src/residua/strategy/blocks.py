"""The ingredients of a block strategy: distinct shapes, and layers of blocks that use them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from residua.linalg.rows import pseudo_inverse
from residua.strategy.integers import column_norm

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shape:
    """A distinct strategy on centred cells: B, shape (rows, cells), whose rows sum to zero along every axis.

    `rank` is that of B; an integer strategy may have more rows than that.
    """

    sizes: tuple[int, ...]
    matrix: Array
    rank: int

    @classmethod
    def independent(cls, sizes: Sequence[int], matrix: Array) -> "Shape":
        """The shape with these independent rows."""
        return cls(tuple(sizes), matrix, len(matrix))

    @cached_property
    def inverse(self) -> Array:
        """Pseudo-inverse of B, shape (cells, rows)."""
        return pseudo_inverse(self.matrix, self.rank)

    @cached_property
    def basis(self) -> Array:
        """Orthonormal basis of B's row space, shape (cells, rank)."""
        if len(self.matrix) > self.rank:
            return np.asarray(np.linalg.svd(self.matrix)[2][: self.rank].T)
        return np.asarray(np.linalg.qr(self.matrix.T)[0])

    @property
    def complete(self) -> bool:
        """Whether B answers every centred query on its cells."""
        return self.rank == math.prod(size - 1 for size in self.sizes)

    @cached_property
    def norm(self) -> float:
        """Largest squared length of a column."""
        return float(np.max(np.sum(self.matrix * self.matrix, axis=0)))

    @cached_property
    def exact_norm(self) -> int:
        """Largest squared length of a column of an integer B, exactly."""
        return column_norm(self.matrix.astype(np.int64))

    @cached_property
    def overlap(self) -> tuple[float, float]:
        """Least and largest entry of B'B, in units of its largest diagonal entry, never rounded inwards."""
        gram = self.matrix.T @ self.matrix / self.norm
        rounding = (len(self.matrix) + 4) * float(np.finfo(np.float64).eps)
        return float(gram.min()) - rounding, float(gram.max()) + rounding


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Blocks with one layout: how the attributes of each are shared out among its factors.

    `subsets` is (blocks, size), rows ascending; `layout` has the places of each factor, such as
    ((0,), (1,)) or ((0, 1),); `shapes` is (blocks, factors), numbers of shapes. `costs` is (blocks,), the
    privacy cost of each block, and `noise` the variance of the noise on each number it measures; the
    numbers are `multiplier` times the product of the shapes, and `noise` is in units of that. `shares` are
    the exact costs of an integer strategy, in grains.
    """

    subsets: Subsets
    layout: tuple[tuple[int, ...], ...]
    shapes: Integers
    costs: Array
    noise: Array
    multiplier: int = 1
    shares: Integers | None = None
