"""What a set of linear queries can say about itself without listing its rows.

A `Queries` is numbers only: its sizes and its family. Two attributes of the same size give equal
`Queries`, so whatever is derived from one can be reused for the other. Names and labels enter only
where a query is worded for people (`describe`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import CHUNK_ENTRIES, MATRIX_ENTRIES
from residua._manifests import storable, whole
from residua.errors import WorkloadError
from residua.linalg.matrices import independent_rows
from residua.schema import Attribute
from residua.workload import wording


class Queries(ABC):
    """A set of linear queries on the cells of one marginal.

    A subclass supplies `sizes`, `count`, `rows_at`, `phrase` and what files hold of it; the base derives the
    rest from the rows, and a subclass overrides what it has in closed form. Queries are numbered from 0;
    cells are row-major over `sizes`.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The word that names the family in saved files."""

    saved: ClassVar[tuple[str, ...]] = ()
    """The attributes that its manifest holds, arrays by name."""

    invariant: ClassVar[bool] = False
    """Whether swapping any two cells leaves the gram as it is."""

    circulant: ClassVar[bool] = False
    """Whether moving every cell one step on, the last to the first, leaves the gram as it is."""

    independent: ClassVar[bool] = False
    """Whether no query is a combination of others, and all have weight one."""

    level: str | None = None
    """The level of the one attribute whose nodes they count, where they do."""

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
        return math.prod(self.sizes)

    @property
    def title(self) -> str:
        """The family as a user would write it."""
        return self.kind

    @property
    def weights(self) -> Array | None:
        """Weight of each query's variance `(count,)`, or None where every weight is one."""
        return None

    @property
    def adds(self) -> tuple[str, ...] | None:
        """What each query adds up, such as `income^2`, or nothing where it counts; None where all count."""
        return None

    def by_adds(self) -> "Mapping[str, Queries]":
        """The queries by what they add up, each part in one unit."""
        return {"" if self.adds is None else self.adds[0]: self}

    @property
    def every_weight(self) -> Array:
        """Weight of each query's variance `(count,)`."""
        return np.ones(self.count) if self.weights is None else self.weights

    @property
    def parts(self) -> bool:
        """Whether each cell is in exactly one query, so that the queries add up to everybody."""
        return False

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
    def rows_at(self, indices: AnyArray) -> Array:
        """Rows of the query matrix at these indices, shape `(len(indices), cells)`."""

    @abstractmethod
    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """Words for the query at a valid index; see `describe`."""

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""
        return {"kind": self.kind} | {name: storable(getattr(self, name), arrays) for name in self.saved}

    @property
    def readable(self) -> bool:
        """Whether files bring them back: their class is residua's own, or registered."""
        return KINDS.get(self.kind) is type(self)

    @classmethod
    @abstractmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        """The queries that a manifest describes."""

    def rows(self, start: int, stop: int) -> Array:
        """Rows `start..stop-1` of the query matrix, shape `(stop - start, cells)`."""
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"{self!r} has no rows {spelled(start)}..{spelled(stop)}")
        if stop < 2**62:
            return self.rows_at(np.arange(start, stop, dtype=np.int64))
        return self.rows_at(np.array(range(start, stop), dtype=object))

    def matrix(self) -> Array:
        """All rows, shape `(count, cells)`; refused above 50 million entries."""
        if self.count * self.cells > MATRIX_ENTRIES:
            raise WorkloadError(
                f"{self!r}: {spelled(self.count)} queries on {self.cells:,} cells are too many to list; "
                "use answers, quadratic, gram or rows(start, stop)"
            )
        return self.rows(0, self.count)

    def gram(self, *, weighted: bool = True) -> Array:
        """Sum over the queries of `weight * q' q`, shape `(cells, cells)`."""
        A = self.matrix()
        left = A if self.weights is None or not weighted else A * self.weights[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            gram = left.T @ A
        if not np.isfinite(gram).all():
            raise WorkloadError(f"{self!r}: the gram overflows; scale the rows or the weights down")
        return np.asarray(0.5 * (gram + gram.T))

    def mean_gram(self) -> Array:
        """Unweighted gram over the number of queries, shape `(cells, cells)`; it never overflows."""
        return self.gram(weighted=False) / self.count

    def root(self) -> Array:
        """Matrix `R`, shape `(rank, cells)`, of independent rows with `R' R` the weighted gram (W-010)."""
        return self.rows(0, self.count) if self.independent else independent_rows(self.matrix(), self.weights)

    def answers(self, x: ArrayLike) -> Array:
        """Answer of every query on `x`, shape `(..., cells)` to `(..., count)`."""
        return np.asarray(self._vectors(x) @ self.matrix().T)

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Variance `q P q'` of every query, from `(..., cells, cells)` to `(..., count)`."""
        P = self._squares(covariance)
        batch = P.shape[:-2]
        out = np.empty((*batch, self.count))
        step = max(1, CHUNK_ENTRIES // max(1, self.cells * math.prod(batch)))
        for start in range(0, self.count, step):
            stop = min(start + step, self.count)
            block = self.rows(start, stop)
            out[..., start:stop] = np.sum((block @ P) * block, axis=-1)
        return out

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        """Sum of the queries' variances, from `(..., cells, cells)` to `(...)`; plain unless `weighted`."""
        return np.asarray(np.einsum("ij,...ij->...", self.gram(weighted=weighted), self._squares(covariance)))

    def describe(self, index: SupportsIndex, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """Words for one query, such as `age <= 17`; empty for a query that asks nothing of the cell."""
        position = index.__index__()
        if not 0 <= position < self.count:
            raise IndexError(f"{self!r} has no query {position}")
        return self.phrase(position, names, attributes)

    def _vectors(self, x: ArrayLike) -> Array:
        return self._shaped(x, self.cells)

    def _squares(self, covariance: ArrayLike) -> Array:
        return self._shaped(covariance, self.cells, self.cells)

    def _shaped(self, values: ArrayLike, *shape: int) -> Array:
        array = np.asarray(values, dtype=np.float64)
        if array.shape[-len(shape) :] != shape:
            needed = ", ".join(map(str, shape))
            raise WorkloadError(f"{self!r} needs arrays of shape (..., {needed}), not {array.shape}")
        return array

    def __repr__(self) -> str:
        return f"{self.title} on {' x '.join(map(str, self.sizes))} cells"


KINDS: dict[str, type[Queries]] = {}
"""The classes of queries that files bring back, by the words that name them there."""


@dataclass(frozen=True, slots=True, repr=False)
class SizedQueries(Queries):
    """Queries on one attribute that its number of cells determines; one for each, unless a family differs."""

    size: int

    saved: ClassVar[tuple[str, ...]] = ("size",)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise WorkloadError(f"{self.title} needs at least one cell, not {self.size}")

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def count(self) -> int:
        return self.size

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        return cls(*(whole(manifest, name) for name in cls.saved))


def spelled(count: int) -> str:
    """A count for people: digits with commas, or a power of ten where those would not help."""
    return f"{count:,}" if count < 10**15 else f"about 1e{round(math.log10(count))}"


class Identity(SizedQueries):
    """One query per cell."""

    __slots__ = ()
    kind = "identity"
    invariant = circulant = parts = True

    def gram(self, *, weighted: bool = True) -> Array:
        return np.eye(self.size)

    def root(self) -> Array:
        return np.eye(self.size)

    def rows_at(self, indices: AnyArray) -> Array:
        return np.asarray((indices[:, None] == np.arange(self.size)).astype(np.float64))

    def answers(self, x: ArrayLike) -> Array:
        return self._vectors(x).copy()

    def quadratic(self, covariance: ArrayLike) -> Array:
        return np.diagonal(self._squares(covariance), axis1=-2, axis2=-1).copy()

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        return np.asarray(np.sum(self.quadratic(covariance), axis=-1))

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return wording.one_cell(names[0], attributes[0], index)


class Total(SizedQueries):
    """The one query that counts everybody; it asks nothing of the cell."""

    __slots__ = ()
    kind = "total"
    invariant = circulant = independent = True
    count = 1

    def gram(self, *, weighted: bool = True) -> Array:
        return np.ones((self.size, self.size))

    def rows_at(self, indices: AnyArray) -> Array:
        return np.ones((len(indices), self.size))

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return ""


@dataclass(frozen=True, slots=True, repr=False)
class Family:
    """A kind of queries, not yet on any attribute: known by how it is written, which names all its numbers.

    `make` gives the queries on some attributes; it also takes the words that open its errors. `arity` is how
    many attributes one of its queries looks at; with `of_values` it asks for what values are, or nothing,
    instead of counting by cells.
    """

    word: str
    make: Callable[[Sequence[Attribute], str], Queries] = field(compare=False)
    arity: int = 1
    of_values: bool = field(default=False, kw_only=True)

    def bind(self, *attributes: Attribute, names: Sequence[str] = ()) -> Queries:
        """The queries on these attributes; `names` are used in errors only.

        >>> from residua.schema import Integer
        >>> identity.bind(Integer(0, 99))
        identity on 100 cells
        """
        if len(attributes) != self.arity:
            raise WorkloadError(f"{self!r} looks at {self.arity} attribute(s), not {len(attributes)}")
        return self.make(attributes, f"attribute {names[0]!r}: " if names else "")

    def __repr__(self) -> str:
        return self.word


def sized(queries: Callable[..., Queries]) -> Callable[[Sequence[Attribute], str], Queries]:
    return lambda attributes, who: queries(*(attribute.size for attribute in attributes))


identity = Family("identity", sized(Identity))
"""One query per cell: the marginal itself."""

total = Family("total", sized(Total), of_values=True)
"""One query that counts everybody, whatever the cell."""
