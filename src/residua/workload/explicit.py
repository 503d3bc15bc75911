"""Queries given row by row: any matrix on one marginal, sets of cells, conditions joined across attributes.

Conditions look only at classes of cells: however many joint cells there are, they are rows over the product
of the classes, and one number for each cell of each attribute, its class (claim W-011).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array, Arrays, Flags, Indices, Integers, Manifest, settle
from residua._limits import MATRIX_ENTRIES
from residua._manifests import checked_array, entry, fetch, optional, stash, storable, text, texts, wholes
from residua.errors import FileFormatError, Infeasible, WorkloadError, retold
from residua.linalg.classes import Classes, coarsest, spread_over, summed_over
from residua.linalg.matrices import Measure, project, standing_rows
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import Queries

Labels = tuple[str, ...] | None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Explicit(Queries):
    """Any queries on one marginal, a row of numbers each, with optional weights of their variances.

    `labels` word the queries, `family` all of them, `adds` what each adds up; none enters equality.
    """

    sizes: tuple[int, ...] = field()
    values: Array  # (count, cells)
    weights: Array | None = None  # (count,)
    labels: Labels = None
    family: str | None = None
    adds: Labels = None
    _digest: bytes = field(init=False)
    _root: list[Array] = field(init=False, default_factory=list)

    kind = "linear"

    def __post_init__(self) -> None:
        values = np.add(self.values, 0.0, dtype=np.float64, order="C")  # -0.0 and 0.0 are one number
        _refuse_bad_rows(values, self.sizes)
        weights = None if self.weights is None else _checked_weights(self.weights, len(values))
        for words in (self.labels, self.adds):
            if words is not None and len(words) != len(values):
                raise WorkloadError(f"{len(values)} queries have {len(words)} labels")
        digest = hashlib.sha256(values.data)
        if weights is not None:
            digest.update(weights.tobytes())
        settle(self, values=values, weights=weights, _digest=digest.digest())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explicit):
            return NotImplemented
        same_weights = (self.weights is None) == (other.weights is None)
        return self.sizes == other.sizes and same_weights and self._digest == other._digest

    def __hash__(self) -> int:
        return hash((self.sizes, self._digest))

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def title(self) -> str:
        return self.kind if self.family is None else self.family

    def by_adds(self) -> "Mapping[str, Explicit]":
        if self.adds is None or len(set(self.adds)) == 1:
            return {"" if self.adds is None else self.adds[0]: self}
        adds = np.array(self.adds)
        return {each: self.take(np.flatnonzero(adds == each)) for each in dict.fromkeys(self.adds)}

    def take(self, rows: Indices) -> "Explicit":
        """The queries at these places."""
        weights = None if self.weights is None else self.weights[rows]
        labels, adds = (
            None if own is None else tuple(own[at] for at in rows.tolist())
            for own in (self.labels, self.adds)
        )
        return Explicit(self.sizes, self.values[rows], weights, labels, self.family, adds)

    def matrix(self) -> Array:
        """The rows as they are held, read-only."""
        return self.values

    def root(self) -> Array:
        """Found once and held, read-only: planning asks for it many times."""
        if not self._root:
            root = np.array(super(Explicit, self).root())
            root.flags.writeable = False
            self._root.append(root)
        return self._root[0]

    def rows_at(self, indices: AnyArray) -> Array:
        return np.asarray(self.values[indices])

    def magnitudes(self) -> tuple[float, float]:
        """Those of its rows that are not zero."""
        largest = np.abs(self.values).max(axis=1)
        found = 2 * np.log10(largest[largest > 0])
        if self.weights is not None:
            found = found + np.log10(self.weights[largest > 0])
        return float(found.min()), float(found.max())

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`query 12`, or the query's own label."""
        return f"query {index}" if self.labels is None else self.labels[index]

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        weights, matrix = storable(self.weights, arrays), storable(self.values, arrays)
        manifest = {"kind": self.kind, "sizes": list(self.sizes), "matrix": matrix, "weights": weights}
        words = {"family": self.family, "labels": self.labels, "adds": self.adds}
        return manifest | {name: storable(own, arrays) for name, own in words.items() if own is not None}

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Explicit":
        sizes = wholes(manifest, "sizes", least=1)
        matrix = checked_array(fetch(manifest, "matrix", arrays), "of queries", "f", (None, math.prod(sizes)))
        weights = None if entry(manifest, "weights") is None else fetch(manifest, "weights", arrays)
        if weights is not None:
            checked_array(weights, "of weights", "f", (len(matrix),))
        labels, adds = (texts(manifest, key) if key in manifest else None for key in ("labels", "adds"))
        family = text(manifest, "family") if "family" in manifest else None
        return cls(sizes, matrix, weights, labels, family, adds)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sets(Queries):
    """Sets of cells of one attribute that may overlap; `labels` word them and do not enter equality."""

    members: Flags  # (count, cells)
    labels: Labels = None

    kind = "sets"
    title = "buckets"
    saved = ("members", "labels")

    def __post_init__(self) -> None:
        members = np.array(self.members, dtype=np.bool_, order="C")
        if members.ndim != 2 or members.size == 0 or not members.any(axis=1).all():
            raise WorkloadError("sets of cells must each have a cell")
        if self.labels is not None and len(self.labels) != len(members):
            raise WorkloadError(f"{len(members)} sets have {len(self.labels)} labels")
        settle(self, members=members)

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.members, other.members) if isinstance(other, Sets) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.members.shape, self.members.tobytes()))

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.members.shape[1],)

    @property
    def count(self) -> int:
        return len(self.members)

    def matrix(self) -> Array:
        return self.members.astype(np.float64)

    def rows_at(self, indices: AnyArray) -> Array:
        return np.asarray(self.members[indices], dtype=np.float64)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`sex in {F, M}`, or the set's own label."""
        if self.labels is not None:
            return f"{names[0]} in {self.labels[index]}"
        return wording.cell_set(names[0], attributes[0], np.flatnonzero(self.members[index]).tolist())

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        members = checked_array(fetch(manifest, "members", arrays), "of sets", "b", (None, None))
        return cls(members, optional(texts, manifest, "labels"))


@dataclass(frozen=True, slots=True, repr=False)
class Combined(Queries):
    """Rows over the product of the classes of each attribute's cells; `coarse` are those rows."""

    partitions: tuple[Classes, ...]
    coarse: Explicit

    kind = "combined"
    title = "condition"

    def __post_init__(self) -> None:
        if self.coarse.sizes != tuple(own.count for own in self.partitions):
            raise WorkloadError(f"{self.coarse!r} do not fit classes of cells {self.partitions!r}")

    @classmethod
    def of(
        cls,
        partitions: Sequence[Classes],
        values: Array,
        weights: Array | None = None,
        labels: Labels = None,
        adds: Labels = None,
    ) -> "Combined":
        """The queries with these rows over the product of the classes, joined where rows agree."""
        counts = [own.count for own in partitions]
        fewer, tensor = coarsest(partitions, values.reshape(len(values), *counts), first=1)
        rows = tensor.reshape(len(values), -1)
        return cls(fewer, Explicit(tensor.shape[1:], rows, weights, labels, adds=adds))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(own.size for own in self.partitions)

    @property
    def count(self) -> int:
        return self.coarse.count

    @property
    def weights(self) -> Array | None:
        return self.coarse.weights

    @property
    def adds(self) -> Labels:
        return self.coarse.adds

    def by_adds(self) -> Mapping[str, Queries]:
        return {each: Combined(self.partitions, own) for each, own in self.coarse.by_adds().items()}

    def magnitudes(self) -> tuple[float, float]:
        return self.coarse.magnitudes()

    def gram(self, *, weighted: bool = True) -> Array:
        self._refuse_large(self.cells)
        sizes = self.coarse.sizes
        tensor = self.coarse.gram(weighted=weighted).reshape(*sizes, *sizes)
        tensor = spread_over(tensor, [*self.partitions, *self.partitions])
        return np.asarray(tensor.reshape(self.cells, self.cells))

    def root(self) -> Array:
        return self._spread(self.coarse.root())

    def centred_root(self, measures: Sequence[Measure], kept: Sequence[int]) -> Array:
        """Independent rows with the gram of the queries, centred along the places kept, means along others.

        Centring by the measures of the cells is centring classes by theirs, so only what is left of it is
        spread over the cells of the places kept, shape `(rank, product of their sizes)` (claim W-011).
        """
        rows = self.coarse.root()
        own = [own.measure(measure) for own, measure in zip(self.partitions, measures, strict=True)]
        left = standing_rows(project(rows, self.coarse.sizes, own, kept), np.linalg.norm(rows, axis=1))
        along = [self.partitions[place] for place in kept]
        cells = math.prod(partitions.size for partitions in along)
        if len(left) * cells > MATRIX_ENTRIES:
            raise Infeasible(
                f"{self!r}: what it asks of {cells:,} cells together cannot be planned cell by cell; plan it "
                "without the tables that tell those cells apart"
            )
        tensor = left.reshape(len(left), *(partitions.count for partitions in along))
        return np.asarray(spread_over(tensor, along, first=1).reshape(len(left), cells))

    def rows_at(self, indices: Integers) -> Array:
        return self._spread(self.coarse.rows_at(indices))

    def answers(self, x: ArrayLike) -> Array:
        vector = self._vectors(x)
        batch = vector.shape[:-1]
        tensor = summed_over(vector.reshape(*batch, *self.sizes), self.partitions, first=len(batch))
        return self.coarse.answers(tensor.reshape(*batch, -1))

    def quadratic(self, covariance: ArrayLike) -> Array:
        return self.coarse.quadratic(self._summed(covariance))

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        return self.coarse.trace(self._summed(covariance), weighted=weighted)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return self.coarse.phrase(index, names, attributes)

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        partitions = [stash(arrays, own.classes) for own in self.partitions]
        return {**self.coarse.to_manifest(arrays), "kind": self.kind, "kinds": partitions}

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        names = texts(manifest, "kinds")
        found = (classes_from_array(fetch({"kinds": name}, "kinds", arrays), name) for name in names)
        return cls(tuple(found), Explicit.from_manifest(manifest, arrays))

    def _spread(self, rows: Array) -> Array:
        self._refuse_large(len(rows))
        tensor = spread_over(rows.reshape(len(rows), *self.coarse.sizes), self.partitions, first=1)
        return np.asarray(tensor.reshape(len(rows), self.cells))

    def _summed(self, covariance: ArrayLike) -> Array:
        square = self._squares(covariance)
        batch = square.shape[:-2]
        tensor = square.reshape(*batch, *self.sizes, *self.sizes)
        tensor = summed_over(tensor, [*self.partitions, *self.partitions], first=len(batch))
        return np.asarray(tensor.reshape(*batch, self.coarse.cells, self.coarse.cells))

    def _refuse_large(self, rows: int) -> None:
        if rows * self.cells > MATRIX_ENTRIES:
            raise WorkloadError(
                f"{self!r}: {rows:,} rows over all cells are too many to hold; plan this condition with "
                "method 'auto', which looks at classes of cells, or in a release of its own"
            )


def classes_from_array(classes: AnyArray, name: str) -> Classes:
    """Classes of cells from the array that holds them in a file."""
    if not checked_array(classes, repr(name), "i", (None,)).size:
        raise FileFormatError(f"the array {name!r} gives no cell a class")
    found = Classes(classes)
    if not np.array_equal(found.classes, classes):
        raise FileFormatError(f"the array {name!r} has classes of cells that are not numbered as they occur")
    return found


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
    return None if (checked == 1.0).all() else checked


@runtime_checkable
class SparseMatrix(Protocol):
    """A matrix of scipy.sparse, as far as it matters here."""

    shape: Any

    def toarray(self) -> AnyArray: ...


def dense_numbers(values: ArrayLike | SparseMatrix, who: str, shape: str) -> Array:
    """A float64 array of what was given, dense."""
    if not isinstance(values, np.ndarray) and isinstance(values, SparseMatrix):
        if math.prod(values.shape) > MATRIX_ENTRIES:
            raise WorkloadError(
                f"{who} of shape {tuple(values.shape)} has more than {MATRIX_ENTRIES:,} entries; "
                "split the queries"
            )
        values = values.toarray()
    with retold(ValueError, WorkloadError, f"{who} must be numbers of shape {shape}: "):
        array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise WorkloadError(f"{who} must be real numbers of shape {shape}, not {array.dtype}")
    return array.astype(np.float64, copy=False)
