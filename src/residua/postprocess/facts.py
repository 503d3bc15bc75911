"""Public facts that post-processed tables must satisfy: known tables, and cells that cannot occur."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._arrays import AnyArray, Array, Flags, Subset
from residua.errors import DataError, SchemaError, WorkloadError
from residua.linalg.classes import Classes, JointClasses
from residua.schema import Schema
from residua.workload import Factor, Identity, Partition, Queries, Table, Total, Workload
from residua.workload.views import View

AGREEMENT = 1e-6  # records by which two facts may differ


class PublicFactWarning(UserWarning):
    """Public facts are taken as exactly true: they are not protected by the release's privacy."""


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """Something that is publicly known about tables; made by `residua.known` and `residua.impossible`.

    For each table its attributes, ascending, and an array (sizes...): the counts of a known table, or for
    cells that cannot occur True; None for a known table of places of a level, whose counts `values` has.
    `groups` are the tables as they were given.
    """

    schema: Schema
    tables: tuple[tuple[Subset, NDArray[np.generic] | None], ...]
    impossible: bool
    words: str
    groups: tuple[Table, ...] = ()
    values: tuple[Array, ...] = ()


def known(work: Workload, counts: ArrayLike) -> Fact:
    """The fact that these tables are publicly known, with their counts in the workload's order.

    The tables must ask for cells, not for sums of cells. Counts that come from the data and were never public
    must not be given: they would be published as they are.

    >>> from residua.schema import Schema
    >>> from residua.workload import marginals
    >>> known(marginals(Schema.of_sizes([2, 3]), ways=0), 1000).words
    'the number of records'
    """
    if not isinstance(work, Workload):
        raise WorkloadError(
            f"a known table is given by a workload, such as rs.table(schema, ...), not {work!r}"
        )
    values = np.atleast_1d(np.asarray(counts, dtype=np.float64)).reshape(-1)
    if values.size != work.count:
        raise DataError(f"{work.count:,} known counts are needed, one for each query, not {values.size:,}")
    if not np.isfinite(values).all() or values.min() < 0:
        raise DataError("known counts are finite and not negative")
    tables: list[tuple[Subset, NDArray[np.generic] | None]] = []
    parts = np.split(values, np.cumsum([group.count for group in work.groups()])[:-1])
    for group, part in zip(work.groups(), parts, strict=True):
        levels = [factor for factor in group.factors if _of_places(work.schema, factor)]
        if not all(isinstance(factor.queries, Identity) or factor in levels for factor in group.factors):
            raise WorkloadError(
                f"table {group.name!r} asks for {group.title}; only tables that ask for every cell, or for "
                "the places of a level, can be given as known, such as rs.table(schema, ['age', 'sex'])"
            )
        if levels:
            tables.append((tuple(sorted(group.attributes)), None))
        else:
            cells = part.reshape([each.queries.cells for each in group.factors])
            tables.append(ascending(group.attributes, cells))
    return Fact(work.schema, tuple(tables), False, _words(work), tuple(work.groups()), tuple(parts))


def _of_places(schema: Schema, factor: Factor) -> bool:
    """Whether a factor asks for nodes of an attribute with levels, all of a level or some."""
    levels = schema.attributes[factor.attributes[0]].levels if len(factor.attributes) == 1 else ()
    return bool(levels) and isinstance(factor.queries, Partition)


def impossible(work: Workload) -> Fact:
    """The fact that no record can satisfy these queries: structural zeros.

    >>> from residua.schema import Schema
    >>> from residua.workload import table
    >>> fact = impossible(table(Schema.of_sizes([2, 3]), ["a0"]))
    >>> fact.tables[0][1]
    array([ True,  True])
    """
    if not isinstance(work, Workload):
        raise WorkloadError(f"what is impossible is given by a workload, such as rs.sql(...), not {work!r}")
    tables = []
    for group in work.groups():
        cells = (asked_at_all(factor.queries, group.name) for factor in group.factors)
        outer = reduce(np.multiply.outer, cells, np.ones((), dtype=bool))
        tables.append(ascending(group.attributes, outer))
    return Fact(work.schema, tuple(tables), True, _words(work), tuple(work.groups()))


def asked_at_all(queries: Queries, name: str) -> Flags:
    """Which cells some query adds, shape (sizes...)."""
    if isinstance(queries, Identity | Total):
        return np.ones(queries.sizes, dtype=bool)
    if isinstance(queries, Partition):
        return np.asarray(queries.classes >= 0)
    rows = queries.matrix()
    if rows.min() < 0:
        raise WorkloadError(f"table {name!r} subtracts cells; an impossible query only adds them")
    return np.asarray((rows > 0).any(axis=0).reshape(queries.sizes))


def ascending(attributes: Sequence[int], cells: AnyArray) -> tuple[Subset, AnyArray]:
    """The attributes in increasing order, and cells, (sizes...), in that order too."""
    return tuple(sorted(attributes)), cells.transpose(np.argsort(attributes))


def margin_of(
    cells: AnyArray, attributes: Sequence[int], kept: Sequence[int], *, leading: int = 0
) -> AnyArray:
    """Sums of tables (leading..., sizes...) to the attributes that are kept, which come in that order."""
    gone = tuple(leading + axis for axis, at in enumerate(attributes) if at not in kept)
    left = [at for at in attributes if at in kept]
    order = (leading + left.index(at) for at in kept)
    return np.asarray(cells.sum(axis=gone)).transpose(*range(leading), *order)


def _words(work: Workload) -> str:
    names = ["the number of records" if not group.factors else repr(group.name) for group in work.groups()]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more tables" if len(names) > 3 else "")


def _by_joint_class(part: JointClasses, subset: Subset, cells: AnyArray) -> tuple[Subset, AnyArray]:
    """Sums of a table's cells over the joint classes of attributes that it has, as one attribute."""
    axes = [subset.index(at) for at in part.attributes]
    last = np.moveaxis(cells, axes, range(cells.ndim - len(axes), cells.ndim))
    flat = last.reshape(*last.shape[: cells.ndim - len(axes)], -1)
    sums = Classes(part.classes().reshape(-1)).summed(flat.astype(np.float64), flat.ndim - 1)
    left = tuple(at for at in subset if at not in part.attributes)
    new = tuple(sorted((*left, part.place)))
    return new, np.moveaxis(sums, -1, new.index(part.place))


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """All facts given: counts of known tables, and which cells can occur in tables with structural zeros."""

    counts: Mapping[Subset, Array]
    allowed: Mapping[Subset, Flags]
    words: str

    @classmethod
    def of(cls, given: Fact | Iterable[Fact], schema: Schema) -> "Facts":
        """The facts put together, with a warning of what they mean for privacy."""
        facts = facts_of(given, schema)
        counts: dict[Subset, Array] = {}
        allowed: dict[Subset, Flags] = {}
        for fact in facts:
            for subset, cells in fact.tables:
                if cells is None:
                    raise DataError(f"{fact.words}: facts about levels are kept by plans of method 'places'")
                if fact.impossible:
                    allowed[subset] = ~cells.astype(bool) & allowed.get(subset, np.True_)
                else:
                    counts[subset] = cells.astype(np.float64)
        found = cls(counts, allowed, told(facts, 6))
        found._refuse_contradictions(schema)
        return found

    def seen(self, view: View, schema: Schema) -> "Facts":
        """The facts by the classes of cells of a view; a class can occur if one of its cells can."""

        def coarse(subset: Subset, cells: AnyArray) -> tuple[Subset, AnyArray]:
            for part in view.parts:
                mine = [at for at in part.attributes if at in subset]
                if mine and mine != list(part.attributes):
                    names = ", ".join(schema.names[at] for at in part.attributes)
                    raise DataError(
                        f"this plan measures {names} as one: give facts about all of them together"
                    )
                if mine:
                    subset, cells = _by_joint_class(part, subset, cells)
            return subset, cells

        counts = dict(coarse(*each) for each in self.counts.items())
        allowed = {key: each > 0 for key, each in (coarse(*pair) for pair in self.allowed.items())}
        return Facts(counts, allowed, self.words) if view.parts else self

    def margin(self, subset: Subset) -> Array | None:
        """The counts of a table that is known, by itself or as a margin of a known one."""
        for whole, cells in self.counts.items():
            if set(subset) <= set(whole):
                return margin_of(cells, whole, subset)
        return None

    def cells(self, subset: Sequence[int], sizes: Sequence[int]) -> Flags:
        """Which cells of a table can occur, shape (sizes...)."""
        result = np.ones(tuple(sizes), dtype=bool)
        for part, mask in self.allowed.items():
            if set(part) <= set(subset):
                shape = [size if at in part else 1 for at, size in zip(subset, sizes, strict=True)]
                result &= mask.reshape(shape)
        return result

    def _refuse_contradictions(self, schema: Schema) -> None:
        for subset, cells in self.counts.items():
            names = " x ".join(schema.names[at] for at in subset) or "the number of records"
            for other, others in self.counts.items():
                shared = [at for at in subset if at in other]
                apart = margin_of(cells, subset, shared) - margin_of(others, other, shared)
                if np.abs(apart).max() > AGREEMENT * max(1.0, float(cells.sum())):
                    raise DataError(f"known tables contradict each other: {names} does not add up to another")
            if cells[~self.cells(subset, cells.shape)].any():
                raise DataError(f"known counts of {names} are in cells that are said to be impossible")


def facts_of(given: Fact | Iterable[Fact], schema: Schema) -> list[Fact]:
    """The facts as a list; refused unless they are facts about this schema."""
    facts = [given] if isinstance(given, Fact) else list(given)
    for fact in facts:
        if not isinstance(fact, Fact):
            raise WorkloadError(f"a fact is made by rs.known or rs.impossible, not {fact!r}")
        if fact.schema != schema:
            raise SchemaError("a fact and the release have different schemas; build both from one schema")
    return facts


def told(facts: Sequence[Fact], frames: int) -> str:
    """The facts in words, with a warning of what they mean for privacy to who called so many frames ago."""
    words = "; ".join(("impossible: " if fact.impossible else "known: ") + fact.words for fact in facts)
    if facts:
        warnings.warn(
            f"these public facts are taken as exactly true and shown as they are ({words}). The privacy of "
            "the release does not cover them: use only what anyone may know without this data. A count taken "
            "from the records themselves would be published without any protection.",
            PublicFactWarning,
            stacklevel=frames,
        )
    return words
