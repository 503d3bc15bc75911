"""What a set of linear queries can say about itself without listing its rows.

A `Queries` is numbers only: its sizes and its family. Two attributes of the same size give equal
`Queries`, so whatever is derived from one can be reused for the other. Names and labels enter only
where a query is worded for people (`describe`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._manifests import whole
from residua.errors import WorkloadError
from residua.schema import Attribute

Array = NDArray[np.float64]

MATRIX_LIMIT = 50_000_000  # entries; 400 MB of float64
CHUNK_ENTRIES = 4_000_000  # entries of scratch space when rows have to be listed


class Queries(ABC):
    """A set of linear queries on the cells of one marginal.

    A subclass supplies `sizes`, `count`, `gram`, `root`, `rows_at`, `answers`, `phrase` and its record; the
    base derives the rest, and a subclass overrides what it can do faster. Queries are numbered from 0;
    cells are row-major over `sizes`.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The word that names the family in saved files."""

    invariant: ClassVar[bool] = False
    """Whether swapping any two cells leaves the gram as it is."""

    circulant: ClassVar[bool] = False
    """Whether moving every cell one step on, the last to the first, leaves the gram as it is."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of queries, exactly; it may exceed any machine integer."""

    @property
    def cells(self) -> int:
        """Number of cells of the marginal."""
        product = 1
        for size in self.sizes:
            product *= size
        return product

    @property
    def title(self) -> str:
        """The family as a user would write it."""
        return self.kind

    @property
    def weights(self) -> Array | None:
        """Weight of each query's variance `(count,)`, or None where every weight is one."""
        return None

    @property
    def listable(self) -> bool:
        """Whether its queries can be gone through one by one, as `answers` and `quadratic` do."""
        return True

    def magnitudes(self) -> tuple[float, float]:
        """Least and largest weight of a query times its largest coefficient squared, as powers of ten.

        Families whose coefficients are 0 and 1 need not say more than this.
        """
        return 0.0, 0.0

    @abstractmethod
    def gram(self, *, weighted: bool = True) -> Array:
        """Sum over the queries of `weight * q' q`, shape `(cells, cells)`."""

    @abstractmethod
    def root(self) -> Array:
        """Matrix `R`, shape `(rank, cells)`, of independent rows with `R' R` the weighted gram."""

    @abstractmethod
    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Rows of the query matrix at these indices, shape `(len(indices), cells)`."""

    @abstractmethod
    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """Words for the query at a valid index; see `describe`."""

    @abstractmethod
    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""

    @classmethod
    @abstractmethod
    def from_manifest(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        """The queries that `record` described."""

    def mean_gram(self) -> Array:
        """Unweighted gram over the number of queries, shape `(cells, cells)`; it never overflows."""
        return self.gram(weighted=False) / self.count

    def rows(self, start: int, stop: int) -> Array:
        """Rows `start..stop-1` of the query matrix, shape `(stop - start, cells)`."""
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"{self!r} has no rows {start}..{stop}")
        return self.rows_at(np.arange(start, stop, dtype=np.int64))

    def matrix(self) -> Array:
        """All rows, shape `(count, cells)`; refused above 50 million entries."""
        if self.count * self.cells > MATRIX_LIMIT:
            raise WorkloadError(
                f"{self!r}: {spelled(self.count)} queries on {self.cells:,} cells are too many to list; "
                "use answers, quadratic, gram or rows(start, stop)"
            )
        return self.rows(0, self.count)

    @abstractmethod
    def answers(self, x: ArrayLike) -> Array:
        """Answer of every query on `x`, shape `(..., cells)` to `(..., count)`."""

    def means(self, measure: ArrayLike | None = None) -> Array:
        """Mean of every query under weights on the cells that sum to one (uniform), `(count,)`."""
        if measure is None:
            measure = np.full(self.cells, 1.0 / self.cells)
        return self.answers(measure)

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Variance `q P q'` of every query, from `(..., cells, cells)` to `(..., count)`."""
        P = self._squares(covariance)
        batch = P.shape[:-2]
        out = np.empty((*batch, self.count))
        step = max(1, CHUNK_ENTRIES // max(1, self.cells * int(np.prod(batch, dtype=np.int64))))
        for start in range(0, self.count, step):
            stop = min(start + step, self.count)
            block = self.rows(start, stop)
            out[..., start:stop] = np.sum((block @ P) * block, axis=-1)
        return out

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        """Sum of the queries' variances, from `(..., cells, cells)` to `(...)`; plain unless `weighted`."""
        P = self._squares(covariance)
        return np.asarray(np.einsum("ij,...ij->...", self.gram(weighted=weighted), P))

    def describe(self, index: SupportsIndex, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """Words for one query, such as `age <= 17`; empty for a query that asks nothing of the cell."""
        position = index.__index__()
        if not 0 <= position < self.count:
            raise IndexError(f"{self!r} has no query {position}")
        return self.phrase(position, names, attributes)

    def _vectors(self, x: ArrayLike) -> Array:
        vector = np.asarray(x, dtype=np.float64)
        if vector.ndim < 1 or vector.shape[-1] != self.cells:
            raise WorkloadError(f"{self!r} needs arrays of shape (..., {self.cells}), not {vector.shape}")
        return vector

    def _squares(self, covariance: ArrayLike) -> Array:
        square = np.asarray(covariance, dtype=np.float64)
        if square.ndim < 2 or square.shape[-2:] != (self.cells, self.cells):
            raise WorkloadError(
                f"{self!r} needs arrays of shape (..., {self.cells}, {self.cells}), not {square.shape}"
            )
        return square

    def __repr__(self) -> str:
        return f"{self.title} on {' x '.join(map(str, self.sizes))} cells"


@dataclass(frozen=True, slots=True, repr=False)
class SizedQueries(Queries):
    """Queries on one attribute that its number of cells determines."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise WorkloadError(f"{self.title} needs at least one cell, not {self.size}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of the one attribute."""
        return (self.size,)

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """The family's kind and size."""
        return {"kind": self.kind, "size": self.size}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        """The family on as many cells as recorded."""
        return cls(whole(record, "size"))


def spelled(count: int) -> str:
    """A count for people: digits with commas, or a power of ten where those would not help.

    >>> spelled(1204), spelled(2**1000)
    ('1,204', 'about 1e301')
    """
    if count < 10**15:
        return f"{count:,}"
    return f"about 1e{round(math.log10(count))}"
