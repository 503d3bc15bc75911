"""Families of runs of neighbouring cells: prefix, ranges, width and circular.

All four read their answers off cumulative sums. With `E` the double cumulative sum of a covariance,
padded by a zero row and column, cells `a..b-1` have variance `E[a,a] + E[b,b] - E[a,b] - E[b,a]` (W-008).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._manifests import whole
from residua.errors import WorkloadError
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import Array, Queries, SizedQueries


def running(x: Array) -> Array:
    """Sums of the first 0, 1, .. cells, `(..., cells)` to `(..., cells + 1)`."""
    out = np.zeros((*x.shape[:-1], x.shape[-1] + 1))
    np.cumsum(x, axis=-1, out=out[..., 1:])
    return out


def run_variances(P: Array) -> Array:
    """Variance of the sum of cells `a..b-1` at `[..., a, b]`, shape `(..., cells + 1, cells + 1)`."""
    cells = P.shape[-1]
    E = np.zeros((*P.shape[:-2], cells + 1, cells + 1))
    np.cumsum(P, axis=-1, out=E[..., 1:, 1:])
    np.cumsum(E, axis=-2, out=E)
    ends = np.diagonal(E, axis1=-2, axis2=-1)
    return np.asarray(ends[..., :, None] + ends[..., None, :] - E - np.swapaxes(E, -1, -2))


def run_rows(starts: NDArray[np.int64], stops: NDArray[np.int64], cells: int) -> Array:
    """Rows that are one on cells `start..stop-1`."""
    cell = np.arange(cells)
    return np.asarray(((starts[:, None] <= cell) & (cell < stops[:, None])).astype(np.float64))


class Prefix(SizedQueries):
    """Cells `0..i` for every `i`."""

    __slots__ = ()
    kind = "prefix"

    @property
    def count(self) -> int:
        """As many queries as cells."""
        return self.size

    def gram(self, *, weighted: bool = True) -> Array:
        """`n - max(i, j)` (W-002)."""
        cell = np.arange(self.size, dtype=np.float64)
        return np.asarray(self.size - np.maximum.outer(cell, cell))

    def root(self) -> Array:
        """The triangle of ones itself."""
        return np.tri(self.size)

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Rows that are one up to the index."""
        return run_rows(np.zeros_like(indices), indices + 1, self.size)

    def answers(self, x: ArrayLike) -> Array:
        """Cumulative sums."""
        return np.cumsum(self._vectors(x), axis=-1)

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Diagonal of the double cumulative sum."""
        P = self._squares(covariance)
        # Row i of the triangle below adds what cell i brings: itself and twice its covariances.
        lower = np.sum(np.tril(P + np.swapaxes(P, -1, -2), -1), axis=-1)
        return np.cumsum(np.diagonal(P, axis1=-2, axis2=-1) + lower, axis=-1)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`age <= 17`."""
        return wording.up_to(names[0], attributes[0], index)


class Ranges(SizedQueries):
    """Cells `start..end` for every `start <= end`, ordered by start and then end."""

    __slots__ = ()
    kind = "ranges"

    @property
    def count(self) -> int:
        """`n (n + 1) / 2`."""
        return self.size * (self.size + 1) // 2

    def gram(self, *, weighted: bool = True) -> Array:
        """`(min(i, j) + 1) (n - max(i, j))` (W-003)."""
        cell = np.arange(self.size, dtype=np.float64)
        return np.asarray((np.minimum.outer(cell, cell) + 1.0) * (self.size - np.maximum.outer(cell, cell)))

    def root(self) -> Array:
        """Triangle with `(j + 1) sqrt((n+1) / ((i+1)(i+2)))` at `j <= i` (W-003)."""
        place = np.arange(1.0, self.size + 1.0)
        return np.tril(np.outer(np.sqrt((self.size + 1.0) / (place * (place + 1.0))), place))

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Rows that are one between two ends."""
        starts, ends = self.ends(indices)
        return run_rows(starts, ends + 1, self.size)

    def ends(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last cell of the queries at these indices."""
        start = np.arange(self.size, dtype=np.int64)
        first = start * self.size - start * (start - 1) // 2  # index of the query (start, start)
        starts = np.searchsorted(first, indices, side="right") - 1
        return starts, starts + indices - first[starts]

    def answers(self, x: ArrayLike) -> Array:
        """Differences of cumulative sums."""
        sums = running(self._vectors(x))
        a, b = np.triu_indices(self.size + 1, 1)
        return sums[..., b] - sums[..., a]

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Second differences of the double cumulative sum."""
        a, b = np.triu_indices(self.size + 1, 1)
        return run_variances(self._squares(covariance))[..., a, b]

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`age in 3..9`."""
        (start,), (end,) = self.ends(np.array([index], dtype=np.int64))
        return wording.run(names[0], attributes[0], int(start), int(end))


@dataclass(frozen=True, slots=True, repr=False)
class Width(Queries):
    """Every run of exactly `width` neighbouring cells, by its start."""

    size: int
    width: int

    kind = "width"

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.size:
            raise WorkloadError(f"width({self.width}) does not fit {self.size} cells")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of the one attribute."""
        return (self.size,)

    @property
    def count(self) -> int:
        """`n - w + 1`."""
        return self.size - self.width + 1

    @property
    def title(self) -> str:
        """`width(32)`."""
        return f"width({self.width})"

    def gram(self, *, weighted: bool = True) -> Array:
        """Number of windows that hold both cells (W-004)."""
        cell = np.arange(self.size, dtype=np.float64)
        last = np.minimum(np.minimum.outer(cell, cell), self.size - self.width)
        first = np.maximum(np.maximum.outer(cell, cell) - self.width + 1.0, 0.0)
        return np.maximum(last - first + 1.0, 0.0)

    def root(self) -> Array:
        """The matrix itself: its rows begin at different cells."""
        return self.rows(0, self.count)

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Windows."""
        return run_rows(indices, indices + self.width, self.size)

    def answers(self, x: ArrayLike) -> Array:
        """Differences of cumulative sums."""
        sums = running(self._vectors(x))
        return sums[..., self.width :] - sums[..., : self.count]

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Second differences of the double cumulative sum."""
        start = np.arange(self.count)
        return run_variances(self._squares(covariance))[..., start, start + self.width]

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`age in 3..9`."""
        return wording.run(names[0], attributes[0], index, index + self.width - 1)

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Kind, size and width."""
        return {"kind": self.kind, "size": self.size, "width": self.width}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        """The windows recorded."""
        return cls(whole(record, "size"), whole(record, "width"))


class Circular(SizedQueries):
    """Every start and every length `1..n`, going round from the last cell to the first."""

    __slots__ = ()
    kind = "circular"
    circulant = True

    @property
    def count(self) -> int:
        """`n^2`, the whole circle once for every start."""
        return self.size * self.size

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

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Arcs."""
        starts, shorter = np.divmod(indices, self.size)  # length - 1
        steps = (np.arange(self.size) - starts[:, None]) % self.size
        return np.asarray((steps <= shorter[:, None]).astype(np.float64))

    def answers(self, x: ArrayLike) -> Array:
        """Differences of the cumulative sums of two turns."""
        vector = self._vectors(x)
        sums = running(np.concatenate([vector, vector], axis=-1))
        start, shorter = np.divmod(np.arange(self.count), self.size)
        return sums[..., start + shorter + 1] - sums[..., start]

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Variances of runs, and of the complements of runs where an arc passes the last cell (W-008)."""
        P = self._squares(covariance)
        n = self.size
        runs = run_variances(P)
        whole_variance = runs[..., 0, n, None]
        with_whole = running(np.sum(P, axis=-1) + np.sum(P, axis=-2))
        start, shorter = np.divmod(np.arange(self.count), n)
        stop = start + shorter + 1
        passes = stop > n
        gap = np.where(passes, stop - n, 0)  # complement: cells gap..start-1
        inside = runs[..., np.where(passes, gap, start), np.where(passes, start, stop)]
        complement = whole_variance - (with_whole[..., start] - with_whole[..., gap]) + inside
        return np.where(passes, complement, inside)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`month in 11..2, going round`."""
        start, shorter = divmod(index, self.size)
        end = start + shorter
        if end < self.size:
            return wording.run(names[0], attributes[0], start, end)
        return wording.arc(names[0], attributes[0], start, end - self.size)
