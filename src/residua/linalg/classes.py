"""Classes of the cells of an attribute, and arrays over classes instead of cells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Integers, settle
from residua.linalg.matrices import Measure


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The class of each cell of one attribute, `(cells,)`, numbered 0, 1, .. as they first occur."""

    classes: Integers
    count: int = field(init=False)
    _key: bytes = field(init=False)

    def __post_init__(self) -> None:
        classes = np.array(self.classes, dtype=np.int64)
        if classes.ndim != 1 or not classes.size:
            raise ValueError("classes give each cell of an attribute a number")
        steps = np.diff(np.maximum.accumulate(classes), prepend=-1)
        if classes.min() < 0 or steps[0] != 1 or steps.max() > 1:  # not numbered as they first occur
            distinct, first, numbers = np.unique(classes, return_index=True, return_inverse=True)
            ranks = np.empty(len(distinct), dtype=np.int64)
            ranks[np.argsort(first)] = np.arange(len(distinct))
            classes = ranks[numbers.reshape(-1)]
        settle(self, classes=classes, count=int(classes.max()) + 1, _key=classes.tobytes())

    @classmethod
    def of(cls, marks: ArrayLike) -> "Classes":
        """Cells with equal marks, or equal rows of marks, are in one class."""
        array = np.asarray(marks)
        if array.ndim == 1:
            return cls(np.unique(array, return_inverse=True)[1])
        rows = array.reshape(len(array), -1) + 0  # there is one zero, not two
        seen: dict[bytes, int] = {}  # rows may be as long as a table: comparing columns takes minutes
        return cls(np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows], dtype=np.int64))

    @classmethod
    def every(cls, size: int) -> "Classes":
        """Every cell in a class of its own."""
        return cls(np.arange(size))

    @property
    def size(self) -> int:
        return len(self.classes)

    @property
    def trivial(self) -> bool:
        """Whether every cell is in a class of its own."""
        return self.count == self.size

    @property
    def first(self) -> Integers:
        """One cell of each class, `(count,)`."""
        return np.unique(self.classes, return_index=True)[1].astype(np.int64)

    @property
    def members(self) -> Integers:
        """Number of cells of each class, `(count,)`."""
        return np.bincount(self.classes, minlength=self.count).astype(np.int64)

    def summed(self, values: AnyArray, axis: int) -> AnyArray:
        """Sums over the cells of each class along an axis of cells."""
        return values if self.trivial else class_sums(values, self.classes, axis)

    def spread(self, values: AnyArray, axis: int) -> AnyArray:
        """Each cell's value is that of its class, along an axis of classes."""
        return values if self.trivial else np.take(values, self.classes, axis=axis)

    def over(self, finer: "Classes") -> "Classes":
        """These classes as classes of the members of a refinement."""
        return Classes(self.classes[finer.first])

    def measure(self, own: Measure) -> Measure:
        """The measure of the classes under one of the cells."""
        if self.trivial:
            return own
        if own.weights is None or own.numerators is not None:
            return Measure.whole(self.summed(np.array(own.whole_numbers(), dtype=object), 0).tolist())
        return Measure.of(self.summed(own.vector(), 0))

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Classes) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.count} classes of {self.size} cells"


@dataclass(frozen=True, slots=True)
class JointClasses:
    """Several attributes as one, in the place of the first: classes of the cells of each, and the
    joint class of their combinations. Attributes are ascending."""

    attributes: tuple[int, ...]
    partitions: tuple[Classes, ...]
    joint: Classes

    @classmethod
    def of_one(cls, attribute: int, partitions: Classes) -> "JointClasses":
        return cls((attribute,), (partitions,), Classes.every(partitions.count))

    @property
    def place(self) -> int:
        """The position that it takes in the schema."""
        return self.attributes[0]

    @property
    def size(self) -> int:
        return self.joint.count

    @property
    def cells(self) -> int:
        """Number of joint cells of the attributes that it is made of."""
        return math.prod(own.size for own in self.partitions)

    @property
    def whole(self) -> bool:
        """Whether every combination of classes has a joint class."""
        return self.joint.size == math.prod(own.count for own in self.partitions)

    def classes(self) -> Integers:
        """The joint class of each joint cell of the attributes, `(sizes...)`."""
        places = np.zeros((), dtype=np.int64)
        for own in self.partitions:
            places = np.add.outer(own.count * places, own.classes)
        return np.asarray(self.joint.classes[places])


def class_sums(values: AnyArray, classes: Integers, axis: int) -> AnyArray:
    """Sums of the slices along an axis that share a class 0, 1, ..; class -1 is left out, none is empty."""
    order = np.argsort(classes, kind="stable")
    order = order[np.searchsorted(classes[order], 0) :]
    starts = np.searchsorted(classes[order], np.arange(int(classes.max()) + 1))
    return np.asarray(np.add.reduceat(np.take(values, order, axis=axis), starts, axis=axis))


def common_refinement(several: Sequence[Classes]) -> Classes:
    """The coarsest classes that separate what any of these does.

    >>> common_refinement([Classes.of([0, 0, 1, 1]), Classes.of([0, 1, 1, 1])]).classes.tolist()
    [0, 1, 2, 2]
    """
    found, *others = dict.fromkeys(several)
    for each in others:
        found = Classes(found.classes * each.count + each.classes)
    return found


def summed_over(values: AnyArray, partitions: Sequence[Classes], *, first: int = 0) -> AnyArray:
    """Sums by class along consecutive axes, from axis `first` on."""
    for at, own in enumerate(partitions):
        values = own.summed(values, first + at)
    return values


def spread_over(values: AnyArray, partitions: Sequence[Classes], *, first: int = 0) -> AnyArray:
    """Values by class to values by cell along consecutive axes, from axis `first` on."""
    for at, own in enumerate(partitions):
        values = own.spread(values, first + at)
    return values


def equal_slices(values: AnyArray, axis: int) -> Classes:
    """Classes of the places along an axis: those with equal slices are in one."""
    slices = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    return Classes.of(np.ascontiguousarray(slices))


def coarsest(
    partitions: Sequence[Classes], values: AnyArray, *, first: int = 0
) -> tuple[tuple[Classes, ...], AnyArray]:
    """The classes with those joined that values over them treat alike, and the values over what is left."""
    found = []
    for axis, own in enumerate(partitions, start=first):
        equal = equal_slices(values, axis)
        values = np.take(values, equal.first, axis=axis)
        found.append(Classes(equal.classes[own.classes]))
    return tuple(found), values
