"""Queries that look only at the kinds of the cells of several attributes: conditions joined across them.

However many joint cells there are, the queries are rows over the product of the kinds, and one number for
each cell of each attribute: its kind (claim W-011).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._limits import MATRIX_ENTRIES
from residua._manifests import checked_array, fetch, stash, texts
from residua.errors import FileFormatError, Infeasible, WorkloadError
from residua.linalg.centring import Measure, project, standing_rows
from residua.linalg.classes import Classes, coarsest, spread_over, summed_over
from residua.schema import Attribute
from residua.workload.explicit import Explicit
from residua.workload.queries import Array, Queries


@dataclass(frozen=True, slots=True, repr=False)
class Combined(Queries):
    """Rows over the product of the kinds of each attribute's cells; `coarse` are those rows."""

    kinds: tuple[Classes, ...]
    coarse: Explicit

    kind = "combined"

    def __post_init__(self) -> None:
        if self.coarse.sizes != tuple(own.count for own in self.kinds):
            raise WorkloadError(f"{self.coarse!r} do not fit kinds of cells {self.kinds!r}")

    @classmethod
    def of(
        cls,
        kinds: Sequence[Classes],
        values: Array,
        weights: Array | None = None,
        labels: tuple[str, ...] | None = None,
    ) -> "Combined":
        """The queries with these rows over the product of the classes, joined where rows agree."""
        fewer, tensor = coarsest(kinds, values.reshape(len(values), *(own.count for own in kinds)), first=1)
        return cls(fewer, Explicit(tensor.shape[1:], tensor.reshape(len(values), -1), weights, labels))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(own.size for own in self.kinds)

    @property
    def count(self) -> int:
        return self.coarse.count

    @property
    def title(self) -> str:
        return "condition"

    @property
    def weights(self) -> Array | None:
        return self.coarse.weights

    def magnitudes(self) -> tuple[float, float]:
        return self.coarse.magnitudes()

    def gram(self, *, weighted: bool = True) -> Array:
        self._refuse_large(self.cells)
        sizes = self.coarse.sizes
        tensor = self.coarse.gram(weighted=weighted).reshape(*sizes, *sizes)
        tensor = spread_over(tensor, [*self.kinds, *self.kinds])
        return np.asarray(tensor.reshape(self.cells, self.cells))

    def root(self) -> Array:
        return self._spread(self.coarse.root())

    def centred_root(self, measures: Sequence[Measure], kept: Sequence[int]) -> Array:
        """Independent rows with the gram of the queries, centred along the places kept, means along others.

        Centring by the measures of the cells is centring kinds by theirs, so only what is left of it is
        spread over the cells of the places kept, shape `(rank, product of their sizes)` (claim W-011).
        """
        rows = self.coarse.root()
        own = [kinds.measure(measure) for kinds, measure in zip(self.kinds, measures, strict=True)]
        left = standing_rows(project(rows, self.coarse.sizes, own, kept), np.linalg.norm(rows, axis=1))
        along = [self.kinds[place] for place in kept]
        cells = math.prod(kinds.size for kinds in along)
        if len(left) * cells > MATRIX_ENTRIES:
            raise Infeasible(
                f"{self!r}: what it asks of {cells:,} cells together cannot be planned cell by cell; plan it "
                "without the tables that tell those cells apart"
            )
        tensor = left.reshape(len(left), *(kinds.count for kinds in along))
        return np.asarray(spread_over(tensor, along, first=1).reshape(len(left), cells))

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        return self._spread(self.coarse.rows_at(indices))

    def answers(self, x: ArrayLike) -> Array:
        vector = self._vectors(x)
        batch = vector.shape[:-1]
        tensor = summed_over(vector.reshape(*batch, *self.sizes), self.kinds, first=len(batch))
        return self.coarse.answers(tensor.reshape(*batch, -1))

    def quadratic(self, covariance: ArrayLike) -> Array:
        return self.coarse.quadratic(self._summed(covariance))

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        return self.coarse.trace(self._summed(covariance), weighted=weighted)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return self.coarse.phrase(index, names, attributes)

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        kinds = [stash(arrays, own.classes) for own in self.kinds]
        return {**self.coarse.to_manifest(arrays), "kind": self.kind, "kinds": kinds}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Queries":
        names = texts(manifest, "kinds")
        found = (kinds_of_record(fetch({"kinds": name}, "kinds", arrays), name) for name in names)
        return cls(tuple(found), Explicit.from_manifest(manifest, arrays))

    def _spread(self, rows: Array) -> Array:
        self._refuse_large(len(rows))
        tensor = spread_over(rows.reshape(len(rows), *self.coarse.sizes), self.kinds, first=1)
        return np.asarray(tensor.reshape(len(rows), self.cells))

    def _summed(self, covariance: ArrayLike) -> Array:
        square = self._squares(covariance)
        batch = square.shape[:-2]
        tensor = square.reshape(*batch, *self.sizes, *self.sizes)
        tensor = summed_over(tensor, [*self.kinds, *self.kinds], first=len(batch))
        return np.asarray(tensor.reshape(*batch, self.coarse.cells, self.coarse.cells))

    def _refuse_large(self, rows: int) -> None:
        if rows * self.cells > MATRIX_ENTRIES:
            raise WorkloadError(
                f"{self!r}: {rows:,} rows over all cells are too many to hold; plan this condition with "
                "method 'auto', which looks at kinds of cells, or in a release of its own"
            )


def kinds_of_record(classes: NDArray[Any], name: str) -> Classes:
    """Kinds of cells from the array that holds them in a file."""
    if not checked_array(classes, repr(name), "i", (None,)).size:
        raise FileFormatError(f"the array {name!r} gives no cell a kind")
    found = Classes(classes)
    if not np.array_equal(found.classes, classes):
        raise FileFormatError(f"the array {name!r} has kinds of cells that are not numbered as they occur")
    return found
