"""Families that only look at which class a cell belongs to: buckets, levels, affine and abs_diff.

Cells are first added up by class; what remains is a family on the few classes. Where the classes are
counted by `identity` this is a table of buckets; where by `prefix`, the classes are scores and the
queries ask for `score <= c`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array, Arrays, Integers, Manifest, settle
from residua._manifests import checked_array, fetch, optional, text, texts, wholes
from residua.errors import FileFormatError, WorkloadError
from residua.linalg.classes import class_sums
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.intervals import Prefix
from residua.workload.queries import Queries


def summed_square(P: Array, classes: Integers) -> Array:
    """The covariance of sums by class."""
    return class_sums(class_sums(P, classes, -1), classes, -2)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Partition(Queries):
    """One query per class of cells; a cell is in at most one class and no class is empty.

    `classes` holds the class of each cell, -1 for none. `level` (of a hierarchy) and `labels` word the
    queries; they do not enter equality, since they change no number.
    """

    classes: Integers  # (cells,)
    level: str | None = None
    labels: tuple[str, ...] | None = None
    _key: tuple[int, bytes] = field(init=False)

    kind = "partition"
    independent = True  # classes do not overlap
    saved = ("classes", "level", "labels")

    def __post_init__(self) -> None:
        classes = np.array(self.classes, dtype=np.int64)
        if classes.ndim != 1 or classes.size == 0 or classes.min() < -1:
            raise WorkloadError("a partition gives each cell one class 0, 1, .., or -1 for none")
        count = int(classes.max()) + 1
        if not 0 < count <= classes.size or not np.bincount(classes[classes >= 0]).all():
            raise WorkloadError("a partition has at least one class and no empty ones")
        if self.labels is not None and len(self.labels) != count:
            raise WorkloadError(f"a partition of {count} classes has {len(self.labels)} labels")
        settle(self, classes=classes, _key=(count, classes.tobytes()))

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.classes.size,)

    @property
    def count(self) -> int:
        return self._key[0]

    @property
    def title(self) -> str:
        return "buckets" if self.level is None else f"level({self.level!r})"

    @property
    def parts(self) -> bool:
        return bool((self.classes >= 0).all())

    def gram(self, *, weighted: bool = True) -> Array:
        """One where both cells are in the same class (W-006)."""
        same = (self.classes[:, None] == self.classes) & (self.classes >= 0)
        return np.asarray(same.astype(np.float64))

    def rows_at(self, indices: AnyArray) -> Array:
        return np.asarray((indices[:, None] == self.classes).astype(np.float64))

    def answers(self, x: ArrayLike) -> Array:
        return class_sums(self._vectors(x), self.classes, -1)

    def quadratic(self, covariance: ArrayLike) -> Array:
        return np.diagonal(summed_square(self._squares(covariance), self.classes), axis1=-2, axis2=-1).copy()

    def labels_on(self, attribute: Attribute) -> tuple[str, ...] | None:
        """What its classes are called on an attribute: their own labels, or the nodes of its level."""
        if self.labels is None and self.level is not None:
            return attribute.level_labels(self.level)
        return self.labels

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`place.county = Autauga`, `age in 18..64` or `sex in {F, M}`."""
        if (labels := self.labels_on(attributes[0])) is None:
            return wording.cells(names[0], attributes[0], np.flatnonzero(self.classes == index).tolist())
        sign = " in" if self.level is None else f".{self.level} ="
        return f"{names[0]}{sign} {labels[index]}"

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        classes = checked_array(fetch(manifest, "classes", arrays), "of classes", "i", (None,))
        return cls(classes, optional(text, manifest, "level"), optional(texts, manifest, "labels"))


@dataclass(frozen=True, slots=True, repr=False)
class _Scores(Queries):
    """Cells of two attributes with a score: one query `score <= c` per score."""

    first: int
    second: int

    independent = True  # the rows grow strictly
    saved = ("sizes",)

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 1:
            raise WorkloadError(f"{self.kind} needs at least one cell each, not {self.sizes}")

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.first, self.second)

    @property
    @abstractmethod
    def scores(self) -> Integers:
        """Score of each cell, shape `(cells,)`; every score `0..count-1` occurs."""

    def gram(self, *, weighted: bool = True) -> Array:
        """`count - max(score, score')` (W-009)."""
        scores = self.scores.astype(np.float64)
        return self.count - np.maximum.outer(scores, scores)

    def rows_at(self, indices: AnyArray) -> Array:
        return (self.scores <= indices[:, None]).astype(np.float64)

    def answers(self, x: ArrayLike) -> Array:
        return np.cumsum(class_sums(self._vectors(x), self.scores, -1), axis=-1)

    def quadratic(self, covariance: ArrayLike) -> Array:
        return Prefix(self.count).quadratic(summed_square(self._squares(covariance), self.scores))

    @classmethod
    def from_manifest(cls, manifest: Manifest, arrays: Arrays) -> "Queries":
        sizes = wholes(manifest, "sizes", least=1)
        if len(sizes) != 2:
            raise FileFormatError(f"{cls.kind} is recorded on two sizes, not {len(sizes)}")
        return cls(sizes[0], sizes[1])


class Affine(_Scores):
    """Cells `i + j <= c` for `c` in `0..n1+n2-2`, in cell positions."""

    __slots__ = ()
    kind = "affine"

    @property
    def count(self) -> int:
        return self.first + self.second - 1

    @property
    def scores(self) -> Integers:
        return np.add.outer(np.arange(self.first), np.arange(self.second)).ravel()

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return wording.sum_at_most(names, attributes, index)


class AbsDiff(_Scores):
    """Cells `|i - j| <= c` for `c` in `0..max(n1, n2)-1`, in cell positions."""

    __slots__ = ()
    kind = "abs_diff"

    @property
    def count(self) -> int:
        return max(self.first, self.second)

    @property
    def scores(self) -> Integers:
        return np.abs(np.subtract.outer(np.arange(self.first), np.arange(self.second))).ravel()

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        return wording.difference_at_most(names, attributes, index)
