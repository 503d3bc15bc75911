"""Families of runs of neighbouring cells: prefix, ranges, width and circular.

All four read their answers off cumulative sums. With `E` the double cumulative sum of a covariance,
padded by a zero row and column, cells `a..b-1` have variance `E[a,a] + E[b,b] - E[a,b] - E[b,a]` (W-008).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array, Integers
from residua.errors import WorkloadError
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import SizedQueries


def run_variances(P: Array) -> Array:
    """Variance of the sum of cells `a..b-1` at `[..., a, b]`, shape `(..., cells + 1, cells + 1)`."""
    cells = P.shape[-1]
    E = np.zeros((*P.shape[:-2], cells + 1, cells + 1))
    np.cumsum(P, axis=-1, out=E[..., 1:, 1:])
    np.cumsum(E, axis=-2, out=E)
    ends = np.diagonal(E, axis1=-2, axis2=-1)
    return np.asarray(ends[..., :, None] + ends[..., None, :] - E - np.swapaxes(E, -1, -2))


class _Runs(SizedQueries):
    """Sums of cells `start..stop-1`; a family says where each of its runs starts and stops."""

    __slots__ = ()
    turns: ClassVar[int] = 1  # times that a run may go round

    @abstractmethod
    def ends(self, indices: Integers) -> tuple[Integers, Integers]:
        """First cell, and the one after the last, of the queries at these indices."""

    def _all_ends(self) -> tuple[Integers, Integers]:
        return self.ends(np.arange(self.count, dtype=np.int64))

    def rows_at(self, indices: AnyArray) -> Array:
        starts, stops = self.ends(indices)
        steps = np.arange(self.size) - starts[:, None]
        if self.turns > 1:
            steps %= self.size
        return np.asarray(((steps >= 0) & (steps < (stops - starts)[:, None])).astype(np.float64))

    def answers(self, x: ArrayLike) -> Array:
        cells = np.concatenate([self._vectors(x)] * self.turns, axis=-1)
        sums = np.cumulative_sum(cells, axis=-1, include_initial=True)
        starts, stops = self._all_ends()
        return np.asarray(sums[..., stops] - sums[..., starts])

    def quadratic(self, covariance: ArrayLike) -> Array:
        starts, stops = self._all_ends()
        return np.asarray(run_variances(self._squares(covariance))[..., starts, stops])

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        (start,), (stop,) = self.ends(np.array([index], dtype=np.int64))
        return wording.run(names[0], attributes[0], int(start), int(stop) - 1)


class Prefix(_Runs):
    """Cells `0..i` for every `i`."""

    __slots__ = ()
    kind = "prefix"

    def ends(self, indices: Integers) -> tuple[Integers, Integers]:
        return np.zeros_like(indices), indices + 1

    def gram(self, *, weighted: bool = True) -> Array:
        """`n - max(i, j)` (W-002)."""
        cell = np.arange(self.size, dtype=np.float64)
        return np.asarray(self.size - np.maximum.outer(cell, cell))

    def root(self) -> Array:
        """The triangle of ones itself."""
        return np.tri(self.size)

    def answers(self, x: ArrayLike) -> Array:
        return np.cumsum(self._vectors(x), axis=-1)

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Row i of the triangle below adds what cell i brings: itself and twice its covariances."""
        P = self._squares(covariance)
        lower = np.sum(np.tril(P + np.swapaxes(P, -1, -2), -1), axis=-1)
        return np.cumsum(np.diagonal(P, axis1=-2, axis2=-1) + lower, axis=-1)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return wording.up_to(names[0], attributes[0], index)


class Ranges(_Runs):
    """Cells `start..end` for every `start <= end`, ordered by start and then end."""

    __slots__ = ()
    kind = "ranges"

    @property
    def count(self) -> int:
        return self.size * (self.size + 1) // 2

    def ends(self, indices: Integers) -> tuple[Integers, Integers]:
        start = np.arange(self.size, dtype=np.int64)
        first = start * self.size - start * (start - 1) // 2  # index of the query (start, start)
        starts = np.searchsorted(first, indices, side="right") - 1
        return starts, starts + indices - first[starts] + 1

    def _all_ends(self) -> tuple[Integers, Integers]:
        starts, stops = np.triu_indices(self.size + 1, 1)  # several times faster than looking them up
        return starts, stops

    def gram(self, *, weighted: bool = True) -> Array:
        """`(min(i, j) + 1) (n - max(i, j))` (W-003)."""
        cell = np.arange(self.size, dtype=np.float64)
        return np.asarray((np.minimum.outer(cell, cell) + 1.0) * (self.size - np.maximum.outer(cell, cell)))

    def root(self) -> Array:
        """Triangle with `(j + 1) sqrt((n+1) / ((i+1)(i+2)))` at `j <= i` (W-003)."""
        place = np.arange(1.0, self.size + 1.0)
        return np.tril(np.outer(np.sqrt((self.size + 1.0) / (place * (place + 1.0))), place))


@dataclass(frozen=True, slots=True, repr=False)
class Width(_Runs):
    """Every run of exactly `width` neighbouring cells, by its start."""

    width: int

    kind = "width"
    independent = True  # they begin at different cells
    saved = ("size", "width")

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.size:
            raise WorkloadError(f"width({self.width}) does not fit {self.size} cells")

    @property
    def count(self) -> int:
        return self.size - self.width + 1

    @property
    def title(self) -> str:
        return f"width({self.width})"

    def ends(self, indices: Integers) -> tuple[Integers, Integers]:
        return indices, indices + self.width

    def gram(self, *, weighted: bool = True) -> Array:
        """Number of windows that hold both cells (W-004)."""
        cell = np.arange(self.size, dtype=np.float64)
        last = np.minimum(np.minimum.outer(cell, cell), self.size - self.width)
        first = np.maximum(np.maximum.outer(cell, cell) - self.width + 1.0, 0.0)
        return np.maximum(last - first + 1.0, 0.0)


class Circular(_Runs):
    """Every start and every length `1..n`, going round from the last cell to the first."""

    __slots__ = ()
    kind = "circular"
    circulant = True
    turns = 2

    @property
    def count(self) -> int:
        """`n^2`, the whole circle once for every start."""
        return self.size * self.size

    def ends(self, indices: Integers) -> tuple[Integers, Integers]:
        starts, shorter = np.divmod(indices, self.size)  # length - 1
        return starts, starts + shorter + 1

    def gram(self, *, weighted: bool = True) -> Array:
        """`n (n+1) / 2 - d (n - d)` at distance `d` round the circle (W-005)."""
        n = self.size
        cell = np.arange(n, dtype=np.float64)
        distance = np.abs(np.subtract.outer(cell, cell))
        return np.asarray(0.5 * n * (n + 1.0) - distance * (n - distance))

    def eigenvalues(self) -> Array:
        """Eigenvalues of the gram in the order of the Fourier basis, `(cells,)` (W-005)."""
        n = self.size
        out = np.empty(n)
        out[0] = n * (n + 1.0) * (2.0 * n + 1.0) / 6.0
        out[1:] = 0.5 * n / np.sin(np.pi * np.arange(1, n) / n) ** 2
        return out

    def root(self) -> Array:
        """The symmetric circulant root."""
        n = self.size
        column = np.fft.irfft(np.sqrt(self.eigenvalues())[: n // 2 + 1], n)
        cell = np.arange(n)
        return column[np.abs(np.subtract.outer(cell, cell))]

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Variances of runs, and of the complements of runs where an arc passes the last cell (W-008)."""
        P, n = self._squares(covariance), self.size
        runs = run_variances(P)
        both = np.sum(P, axis=-1) + np.sum(P, axis=-2)
        with_whole = np.cumulative_sum(both, axis=-1, include_initial=True)
        start, stop = self._all_ends()
        passes = stop > n
        gap = np.where(passes, stop - n, 0)  # complement: cells gap..start-1
        inside = runs[..., np.where(passes, gap, start), np.where(passes, start, stop)]
        complement = runs[..., 0, n, None] - (with_whole[..., start] - with_whole[..., gap]) + inside
        return np.where(passes, complement, inside)
