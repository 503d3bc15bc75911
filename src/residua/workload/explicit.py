"""Queries given row by row: any matrix on one marginal, and sets of cells that may overlap."""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._manifests import checked_array, entry, fetch, stash, texts, wholes
from residua.errors import WorkloadError
from residua.linalg.matrices import independent_rows
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import Array, Queries


class _Listed(Queries):
    """Queries that are held row by row."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows_held(self) -> Array:
        """All rows, shape `(count, cells)`."""

    def gram(self, *, weighted: bool = True) -> Array:
        """Product of the matrix with itself."""
        A = self.rows_held
        left = A if self.weights is None or not weighted else A * self.weights[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            gram = left.T @ A
        if not np.isfinite(gram).all():
            raise WorkloadError(f"{self!r}: the gram overflows; scale the rows or the weights down")
        return np.asarray(0.5 * (gram + gram.T))

    def magnitudes(self) -> tuple[float, float]:
        """Those of its rows that are not zero."""
        largest = np.abs(self.rows_held).max(axis=1)
        found = 2 * np.log10(largest[largest > 0])
        if self.weights is not None:
            found = found + np.log10(self.weights[largest > 0])
        return float(found.min()), float(found.max())

    def root(self) -> Array:
        """A root of the weighted gram in the row space of the matrix (W-010)."""
        return independent_rows(self.rows_held, self.weights)

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Rows of the matrix."""
        return np.asarray(self.rows_held[indices])

    def answers(self, x: ArrayLike) -> Array:
        """Product with the matrix."""
        return np.asarray(self._vectors(x) @ self.rows_held.T)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Explicit(_Listed):
    """Any queries on one marginal, a row of numbers each, with optional weights of their variances.

    `labels` word the queries and do not enter equality.
    """

    shape: tuple[int, ...]
    values: Array  # (count, cells)
    row_weights: Array | None = None  # (count,)
    labels: tuple[str, ...] | None = None
    _digest: bytes = field(init=False)

    kind = "linear"

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64, order="C") + 0.0  # -0.0 and 0.0 are one number
        _refuse_bad_rows(values, self.shape)
        weights = None if self.row_weights is None else _checked_weights(self.row_weights, len(values))
        if self.labels is not None and len(self.labels) != len(values):
            raise WorkloadError(f"{len(values)} queries have {len(self.labels)} labels")
        values.flags.writeable = False
        digest = hashlib.sha256(values.tobytes())
        if weights is not None:
            digest.update(weights.tobytes())
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "row_weights", weights)
        object.__setattr__(self, "_digest", digest.digest())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explicit):
            return NotImplemented
        same_weights = (self.weights is None) == (other.weights is None)
        return self.shape == other.shape and same_weights and self._digest == other._digest

    def __hash__(self) -> int:
        return hash((self.shape, self._digest))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""
        return self.shape

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def weights(self) -> Array | None:
        """Weight of each query's variance `(count,)`, or None where every weight is one."""
        return self.row_weights

    @property
    def rows_held(self) -> Array:
        """The matrix, read-only."""
        return self.values

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`query 12`, or the query's own label."""
        return f"query {index}" if self.labels is None else self.labels[index]

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Kind, sizes, matrix and weights, and words where there are some."""
        weights = None if self.weights is None else stash(arrays, self.weights)
        record = {
            "kind": self.kind,
            "sizes": list(self.shape),
            "matrix": stash(arrays, self.values),
            "weights": weights,
        }
        return record if self.labels is None else {**record, "labels": list(self.labels)}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        """The matrix recorded."""
        sizes = wholes(record, "sizes", least=1)
        matrix = checked_array(fetch(record, "matrix", arrays), "of queries", "f", (None, math.prod(sizes)))
        weights = None if entry(record, "weights") is None else fetch(record, "weights", arrays)
        if weights is not None:
            checked_array(weights, "of weights", "f", (len(matrix),))
        return cls(sizes, matrix, weights, texts(record, "labels") if "labels" in record else None)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sets(_Listed):
    """Sets of cells of one attribute that may overlap; `labels` word them and do not enter equality."""

    members: NDArray[np.bool_]  # (count, cells)
    labels: tuple[str, ...] | None = None

    kind = "sets"

    def __post_init__(self) -> None:
        members = np.array(self.members, dtype=np.bool_, order="C")
        if members.ndim != 2 or members.size == 0 or not members.any(axis=1).all():
            raise WorkloadError("sets of cells must each have a cell")
        if self.labels is not None and len(self.labels) != len(members):
            raise WorkloadError(f"{len(members)} sets have {len(self.labels)} labels")
        members.flags.writeable = False
        object.__setattr__(self, "members", members)

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.members, other.members) if isinstance(other, Sets) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.members.shape, self.members.tobytes()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of the one attribute."""
        return (int(self.members.shape[1]),)

    @property
    def count(self) -> int:
        """Number of sets."""
        return int(self.members.shape[0])

    @property
    def title(self) -> str:
        """`buckets`."""
        return "buckets"

    @property
    def rows_held(self) -> Array:
        """One where the cell is in the set."""
        return self.members.astype(np.float64)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`sex in {F, M}`, or the set's own label."""
        if self.labels is not None:
            return f"{names[0]} in {self.labels[index]}"
        return wording.cell_set(names[0], attributes[0], np.flatnonzero(self.members[index]).tolist())

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Kind, members and words."""
        labels = None if self.labels is None else list(self.labels)
        return {"kind": self.kind, "members": stash(arrays, self.members), "labels": labels}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        """The sets recorded."""
        words = None if entry(record, "labels") is None else texts(record, "labels")
        return cls(checked_array(fetch(record, "members", arrays), "of sets", "b", (None, None)), words)


def _refuse_bad_rows(values: Array, sizes: tuple[int, ...]) -> None:
    cells = math.prod(sizes)
    if values.ndim != 2 or values.shape[1] != cells or len(values) < 1:
        raise WorkloadError(
            f"the matrix must have shape (queries, {cells}), the cells row-major over sizes {sizes}, "
            f"not {values.shape}"
        )
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise WorkloadError(f"query {int(np.argmin(finite))} has a coefficient that is not a finite number")
    if not values.any():
        raise WorkloadError("every coefficient of the matrix is zero, so there is nothing to answer")


def _checked_weights(weights: Array, count: int) -> Array | None:
    """A read-only copy of the weights, or None if all are one."""
    checked = np.array(weights, dtype=np.float64)
    if checked.shape != (count,):
        raise WorkloadError(f"the weights must have shape ({count},), one per query, not {checked.shape}")
    good = np.isfinite(checked) & (checked > 0)
    if not good.all():
        query = int(np.argmin(good))
        raise WorkloadError(f"query {query} has weight {checked[query]}; weights are positive and finite")
    if (checked == 1.0).all():
        return None
    checked.flags.writeable = False
    return checked
