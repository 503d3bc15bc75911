"""What a user writes to say which queries a table asks of an attribute: `prefix`, `width(32)`, .."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np

from residua._arrays import Integers
from residua._text import hint, listing
from residua.errors import SchemaError, WorkloadError, retold
from residua.schema import Attribute, Binned, Integer
from residua.workload.explicit import Sets
from residua.workload.groupings import AbsDiff, Affine, Partition
from residua.workload.intervals import Circular, Prefix, Ranges, Width
from residua.workload.predicates import Predicates
from residua.workload.queries import Family, Queries, sized

prefix = Family("prefix", sized(Prefix))
"""Cumulative counts: cells up to each cell."""

ranges = Family("ranges", sized(Ranges))
"""Every run of neighbouring cells."""

circular = Family("circular", sized(Circular))
"""Every run of cells on a circle, such as months or hours: each start, each length."""

predicates = Family("predicates", sized(Predicates))
"""Every set of cells."""

affine = Family("affine", sized(Affine), 2)
"""Of two attributes: the sum of the cell positions is at most c, for each c."""

abs_diff = Family("abs_diff", sized(AbsDiff), 2)
"""Of two attributes: the cell positions differ by at most c, for each c."""


def width(cells: int) -> Family:
    """Every run of exactly this many neighbouring cells.

    >>> from residua.schema import Integer
    >>> width(32).bind(Integer(0, 99)).count
    69
    """
    if not isinstance(cells, int) or isinstance(cells, bool) or cells < 1:
        raise WorkloadError(f"width({cells!r}): a width is a whole number of cells, at least 1")

    def make(attributes: Sequence[Attribute], who: str) -> Queries:
        if cells > attributes[0].size:
            raise WorkloadError(f"{who}width({cells}) is wider than its {attributes[0].size} cells")
        return Width(attributes[0].size, cells)

    return Family(f"width({cells})", make)


def level(name: str) -> Family:
    """One query per node of a level of a hierarchy, or per step of a date: `level("county")`."""
    if not isinstance(name, str):
        raise WorkloadError(f"level({name!r}): a level is named by its text")

    def make(attributes: Sequence[Attribute], who: str) -> Queries:
        (attribute,) = attributes
        if not attribute.levels:
            kind = type(attribute).__name__
            raise WorkloadError(f"{who}level({name!r}) needs a Hierarchy or a Date, not {kind}")
        if name not in attribute.levels:
            near = f"{hint(name, attribute.levels)}; it has {listing(attribute.levels)}"
            raise WorkloadError(f"{who}there is no level {name!r}{near}")
        return Partition(attribute.level_of(name), name)

    return Family(f"level({name!r})", make)


def buckets(*groups: object) -> Family:
    """Coarser cells: cut values of numbers, or groups of labels, or a mapping from names to labels.

    `buckets(18, 65)` is below 18, 18 to 64, and 65 and over; cuts of binned attributes lie on their edges.
    Groups such as `buckets(("F",), ("M", "X"))` or `buckets({"a": ["F"], "b": ["M", "X"]})` may overlap and
    leave cells out. Cuts, and groups, can also be one list of them.

    >>> from residua.schema import Integer
    >>> buckets(18, 65).bind(Integer(0, 99)).count
    3
    """
    only = groups[0] if len(groups) == 1 else None
    if isinstance(only, Mapping):
        return _grouped(_label_groups(tuple(only.values())), tuple(map(str, only)))
    if isinstance(only, list) and (all(map(_is_cut, only)) or all(map(_is_group, only))):
        groups = tuple(only)
    if groups and all(map(_is_cut, groups)):
        return _cut(_cuts(groups))
    return _grouped(_label_groups(groups), None)


def _cut(edges: tuple[int | float, ...]) -> Family:
    """Buckets of an ordered attribute: below the first cut, between cuts, from the last cut on."""
    word = f"buckets({', '.join(map(repr, edges))})"

    def make(attributes: Sequence[Attribute], who: str) -> Queries:
        (attribute,) = attributes
        if not isinstance(attribute, Integer | Binned):
            example = ", ".join(repr((label,)) for label in attribute.labels()[:2])
            raise WorkloadError(f"{who}{word} needs numbers; group labels like buckets({example})")
        inside = attribute.inner_size
        firsts = [_first_cell(attribute, edge, f"{who}cut {edge} of {word}") for edge in edges]
        classes = np.full(attribute.size, -1, dtype=np.int64)
        classes[:inside] = np.searchsorted(firsts, np.arange(inside), side="right")
        return Partition(classes)

    return Family(word, make)


def _first_cell(attribute: Integer | Binned, edge: int | float, cut: str) -> int:
    """The first cell from the cut on; both sides of a cut have cells."""
    if isinstance(attribute, Binned):
        if edge not in attribute.edges:
            raise WorkloadError(f"{cut} is not an edge of its bins: {listing(attribute.edges)}")
        first = attribute.edges.index(edge)
    elif edge == int(edge):
        first = int(edge) - attribute.low
    else:
        raise WorkloadError(f"{cut} falls between whole numbers; use {math.ceil(edge)}")
    if not 0 < first < attribute.inner_size:
        raise WorkloadError(f"{cut} leaves one side empty")
    return first


def _grouped(groups: tuple[tuple[object, ...], ...], labels: tuple[str, ...] | None) -> Family:
    """Buckets of labels, which may overlap and need not cover."""
    named = None if labels is None else dict(zip(labels, groups, strict=True))
    inside = ", ".join(map(repr, groups)) if named is None else repr(named)

    def make(attributes: Sequence[Attribute], who: str) -> Queries:
        members = np.zeros((len(groups), attributes[0].size), dtype=np.bool_)
        with retold(SchemaError, WorkloadError, who):
            for row, group in zip(members, groups, strict=True):
                row[[attributes[0].cell(value) for value in group]] = True
        if members.sum(axis=0).max() > 1:
            return Sets(members, labels)
        classes: Integers = np.where(members.any(axis=0), members.argmax(axis=0), -1)
        return Partition(classes, None, labels)

    return Family(f"buckets({inside})", make)


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
