"""What a user writes to say which queries a table asks of an attribute: `prefix`, `width(32)`, ..

A family knows no attribute yet; `bind` puts it on one (or two) and gives `Queries`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from residua.errors import SchemaError, WorkloadError
from residua.schema import Attribute, Binned, Hierarchy, Integer
from residua.schema.coding import hint, listing
from residua.workload.explicit import Sets
from residua.workload.groupings import AbsDiff, Affine, Partition
from residua.workload.intervals import Circular, Prefix, Ranges, Width
from residua.workload.queries import Identity, Predicates, Queries, Total


class Family(ABC):
    """A kind of queries, not yet on any attribute."""

    __slots__ = ()

    @property
    def arity(self) -> int:
        """Number of attributes that one of its queries looks at."""
        return 1

    def bind(self, *attributes: Attribute, names: Sequence[str] = ()) -> Queries:
        """The queries on these attributes; `names` are used in errors only.

        >>> from residua.schema import Integer
        >>> prefix.bind(Integer(0, 99))
        prefix on 100 cells
        """
        if len(attributes) != self.arity:
            raise WorkloadError(f"{self!r} looks at {self.arity} attribute(s), not {len(attributes)}")
        who = f"attribute {names[0]!r}: " if names else ""
        return self._bind(attributes, who)

    @abstractmethod
    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries: ...


@dataclass(frozen=True, slots=True, repr=False)
class _Plain(Family):
    """A family that the sizes determine."""

    word: str
    make: Callable[..., Queries]
    attributes: int = 1

    @property
    def arity(self) -> int:
        """Number of attributes that one of its queries looks at."""
        return self.attributes

    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries:
        return self.make(*(attribute.size for attribute in attributes))

    def __repr__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True, repr=False)
class _Width(Family):
    cells: int

    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries:
        size = attributes[0].size
        if self.cells > size:
            raise WorkloadError(f"{who}{self!r} is wider than its {size} cells")
        return Width(size, self.cells)

    def __repr__(self) -> str:
        return f"width({self.cells})"


@dataclass(frozen=True, slots=True, repr=False)
class _Level(Family):
    level: str

    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries:
        attribute = attributes[0]
        if not isinstance(attribute, Hierarchy):
            raise WorkloadError(f"{who}{self!r} needs a Hierarchy, not {type(attribute).__name__}")
        if self.level not in attribute.levels:
            known = f"; it has {listing(attribute.levels)}"
            raise WorkloadError(
                f"{who}there is no level {self.level!r}{hint(self.level, attribute.levels)}{known}"
            )
        return Partition(attribute.level_of(self.level), self.level)

    def __repr__(self) -> str:
        return f"level({self.level!r})"


@dataclass(frozen=True, slots=True, repr=False)
class _Cuts(Family):
    """Buckets of an ordered attribute: below the first cut, between cuts, from the last cut on."""

    edges: tuple[int | float, ...]

    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries:
        attribute = attributes[0]
        if not isinstance(attribute, Integer | Binned):
            example = ", ".join(repr((label,)) for label in attribute.labels()[:2])
            raise WorkloadError(f"{who}{self!r} needs numbers; group labels like buckets({example})")
        inside = attribute.inner_size
        firsts = [self._first_cell(attribute, edge, inside, who) for edge in self.edges]
        classes = np.full(attribute.size, -1, dtype=np.int64)
        classes[:inside] = np.searchsorted(firsts, np.arange(inside), side="right")
        return Partition(classes)

    def _first_cell(self, attribute: Integer | Binned, edge: int | float, inside: int, who: str) -> int:
        """The first cell from the cut on; both sides of a cut have cells."""
        if isinstance(attribute, Binned):
            if edge not in attribute.edges:
                raise WorkloadError(
                    f"{who}cut {edge} of {self!r} is not an edge of its bins: {listing(attribute.edges)}"
                )
            first = attribute.edges.index(edge)
        elif edge == int(edge):
            first = int(edge) - attribute.low
        else:
            raise WorkloadError(
                f"{who}cut {edge} of {self!r} falls between whole numbers; use {math.ceil(edge)}"
            )
        if not 0 < first < inside:
            raise WorkloadError(f"{who}cut {edge} of {self!r} leaves one side empty")
        return first

    def __repr__(self) -> str:
        return f"buckets({', '.join(map(repr, self.edges))})"


@dataclass(frozen=True, slots=True, repr=False)
class _Sets(Family):
    """Buckets of labels, which may overlap and need not cover."""

    groups: tuple[tuple[object, ...], ...]
    labels: tuple[str, ...] | None

    def _bind(self, attributes: Sequence[Attribute], who: str) -> Queries:
        attribute = attributes[0]
        members = np.zeros((len(self.groups), attribute.size), dtype=np.bool_)
        for row, group in zip(members, self.groups, strict=True):
            for value in group:
                row[_cell(attribute, value, who)] = True
        if members.sum(axis=0).max() > 1:
            return Sets(members, self.labels)
        classes: NDArray[np.int64] = np.where(members.any(axis=0), members.argmax(axis=0), -1)
        return Partition(classes, None, self.labels)

    def __repr__(self) -> str:
        if self.labels is None:
            return f"buckets({', '.join(map(repr, self.groups))})"
        return f"buckets({dict(zip(self.labels, self.groups, strict=True))!r})"


def _cell(attribute: Attribute, value: object, who: str) -> int:
    try:
        return attribute.cell(value)
    except SchemaError as error:
        raise WorkloadError(f"{who}{error}") from error


identity = _Plain("identity", Identity)
"""One query per cell: the marginal itself."""

total = _Plain("total", Total)
"""One query that counts everybody, whatever the cell."""

prefix = _Plain("prefix", Prefix)
"""Cumulative counts: cells up to each cell."""

ranges = _Plain("ranges", Ranges)
"""Every run of neighbouring cells."""

circular = _Plain("circular", Circular)
"""Every run of cells on a circle, such as months or hours: each start, each length."""

predicates = _Plain("predicates", Predicates)
"""Every set of cells."""

affine = _Plain("affine", Affine, 2)
"""Of two attributes: the sum of the cell positions is at most c, for each c."""

abs_diff = _Plain("abs_diff", AbsDiff, 2)
"""Of two attributes: the cell positions differ by at most c, for each c."""


def width(cells: int) -> Family:
    """Every run of exactly this many neighbouring cells.

    >>> from residua.schema import Integer
    >>> width(32).bind(Integer(0, 99)).count
    69
    """
    if not isinstance(cells, int) or isinstance(cells, bool) or cells < 1:
        raise WorkloadError(f"width({cells!r}): a width is a whole number of cells, at least 1")
    return _Width(cells)


def level(name: str) -> Family:
    """One query per node of a level of a hierarchy: `level("county")`."""
    if not isinstance(name, str):
        raise WorkloadError(f"level({name!r}): a level is named by its text")
    return _Level(name)


def buckets(*groups: object) -> Family:
    """Coarser cells: cut values of numbers, or groups of labels, or a mapping from names to labels.

    `buckets(18, 65)` is below 18, 18 to 64, and 65 and over; cuts of binned attributes lie on their edges.
    Groups such as `buckets(("F",), ("M", "X"))` or `buckets({"a": ["F"], "b": ["M", "X"]})` may overlap and
    leave cells out. Cuts, and groups, can also be one list of them.

    >>> from residua.schema import Integer
    >>> buckets(18, 65).bind(Integer(0, 99)).count
    3
    """
    if len(groups) == 1 and isinstance(groups[0], Mapping):
        named = groups[0]
        return _Sets(_label_groups(tuple(named.values())), tuple(map(str, named)))
    if (
        len(groups) == 1
        and isinstance(groups[0], list)
        and (all(map(_is_cut, groups[0])) or all(map(_is_group, groups[0])))
    ):
        groups = tuple(groups[0])
    if groups and all(map(_is_cut, groups)):
        return _Cuts(_cuts(groups))
    return _Sets(_label_groups(groups), None)


def _cuts(groups: Sequence[object]) -> tuple[int | float, ...]:
    values = np.array(groups, dtype=np.float64)
    if not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise WorkloadError(f"buckets{tuple(groups)!r}: cuts are finite and rise")
    return tuple(int(value) if value == int(value) else value for value in values.tolist())


def _is_cut(cut: object) -> bool:
    return isinstance(cut, int | float | np.number) and not isinstance(cut, bool)


def _is_group(group: object) -> TypeGuard[Sequence[object] | set[object] | frozenset[object]]:
    return isinstance(group, Sequence | set | frozenset) and not isinstance(group, str)


def _label_groups(groups: Sequence[object]) -> tuple[tuple[object, ...], ...]:
    if not groups:
        raise WorkloadError("buckets() needs cut values, or groups of labels")
    out = []
    for group in groups:
        if not _is_group(group) or not len(group):
            raise WorkloadError(
                f"buckets: {group!r} is not a group of labels; write a tuple such as ('a', 'b')"
            )
        out.append(tuple(group) if isinstance(group, Sequence) else tuple(sorted(group, key=str)))
    return tuple(out)
