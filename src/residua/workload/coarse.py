"""Queries over kinds of cells instead of cells: which kinds they tell apart, and the same queries there."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from residua.linalg.classes import Classes, told_apart
from residua.workload.combined import Combined
from residua.workload.explicit import Explicit, Sets
from residua.workload.groupings import Partition
from residua.workload.groups import Factor, Table
from residua.workload.queries import MATRIX_LIMIT, Queries
from residua.workload.symmetric import Total
from residua.workload.tables import TableRun


def kinds_of(queries: Queries, place: int) -> Classes:
    """Kinds of the cells of one of the queries' attributes: equal where every query treats them alike."""
    size = queries.sizes[place]
    match queries:
        case Combined():
            return queries.kinds[place]
        case Total():
            return Classes(np.zeros(size, dtype=np.int64))
        case Partition():
            return Classes(queries.classes)
        case Explicit() | Sets() if queries.count * queries.cells <= MATRIX_LIMIT:
            return told_apart(queries.matrix().reshape(queries.count, *queries.sizes), 1 + place)
    return Classes.every(size)


def coarsened(queries: Queries, kinds: Sequence[Classes]) -> Queries | None:
    """The same queries over kinds of cells, or None if they tell apart cells of one kind."""
    if not isinstance(queries, Combined) and all(own.trivial for own in kinds):
        return queries
    for place, own in enumerate(kinds):
        inner = kinds_of(queries, place).classes
        if not np.array_equal(inner, inner[own.first][own.classes]):
            return None
    firsts = [own.first for own in kinds]
    sizes = tuple(own.count for own in kinds)
    match queries:
        case Combined():
            left = tuple(Classes(own.classes[f]) for own, f in zip(queries.kinds, firsts, strict=True))
            return queries.coarse if all(own.trivial for own in left) else Combined(left, queries.coarse)
        case Total():
            return Total(sizes[0])
        case Partition():
            return Partition(queries.classes[firsts[0]], None, queries.labels)
        case Sets():
            return Sets(queries.members[:, firsts[0]], queries.labels)
        case Explicit():
            tensor = queries.values.reshape(queries.count, *queries.sizes)
            for axis, first in enumerate(firsts, start=1):
                tensor = np.take(tensor, first, axis=axis)
            return Explicit(sizes, tensor.reshape(queries.count, -1), queries.weights, queries.labels)
    return None


def cells_of_classes(kinds: Sequence[Classes]) -> int:
    """Number of combinations of kinds."""
    return math.prod(own.count for own in kinds)


def classes_along(factor: Factor, kinds: Mapping[int, Classes]) -> list[Classes]:
    """Kinds of each attribute of a factor; every cell is one where none are given."""
    pairs = zip(factor.attributes, factor.queries.sizes, strict=True)
    return [kinds[at] if at in kinds else Classes.every(size) for at, size in pairs]


def coarse_factor(factor: Factor, kinds: Mapping[int, Classes]) -> Factor | None:
    """The factor over kinds of cells, or None if it tells apart cells of one kind."""
    touched = isinstance(factor.queries, Combined) or not kinds.keys().isdisjoint(factor.attributes)
    if not touched:
        return factor
    found = coarsened(factor.queries, classes_along(factor, kinds))
    return None if found is None else Factor(factor.attributes, found)


def coarse_group(group: Table, kinds: Mapping[int, Classes]) -> Table | None:
    """The table over kinds of cells of some attributes, or None if it tells apart cells of one kind."""
    factors = [coarse_factor(factor, kinds) for factor in group.factors]
    kept = tuple(factor for factor in factors if factor is not None)
    return replace(group, factors=kept) if len(kept) == len(factors) else None


def told_apart_by(group: Table, kinds: Mapping[int, Classes]) -> list[int]:
    """Attributes of the factors of a table that tell apart cells of one kind."""
    found = (factor for factor in group.factors if coarse_factor(factor, kinds) is None)
    return [at for factor in found for at in factor.attributes if at in kinds]


def combined_factors(parts: Sequence[Table | TableRun]) -> Iterator[tuple[Table, Factor]]:
    """The tables that look at kinds of cells of several attributes, and the factors that do."""
    for part in parts:
        if isinstance(part, Table):
            yield from ((part, factor) for factor in part.factors if isinstance(factor.queries, Combined))


def by_own_classes(factors: Sequence[Factor]) -> tuple[list[Factor], list[Classes]]:
    """The factors over the kinds that joined conditions tell apart, and the kinds of all attributes in order.

    Only those factors change: every cell of the other attributes is a kind of its own.
    """
    found: list[Factor] = []
    kinds: list[Classes] = []
    for factor in factors:
        queries = factor.queries
        if isinstance(queries, Combined):
            found.append(Factor(factor.attributes, queries.coarse))
            kinds += queries.kinds
        else:
            found.append(factor)
            kinds += [Classes.every(size) for size in queries.sizes]
    return found, kinds
