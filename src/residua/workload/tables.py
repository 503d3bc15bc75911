"""A table, a run of tables of one kind, and what they have in common."""

import math
import numbers
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeGuard, overload

import numpy as np

from residua._arrays import Flags, Indices, Subsets
from residua._limits import MATRIX_ENTRIES, SPLIT_WAYS, TABLE_ATTRIBUTES
from residua._text import listing, short
from residua.errors import Infeasible, SchemaError, WorkloadError, retold
from residua.linalg.classes import Classes
from residua.linalg.matrices import subsets_of
from residua.schema import Attribute, Schema
from residua.workload.explicit import Combined, Explicit
from residua.workload.groupings import Partition
from residua.workload.queries import Family, Identity, Queries, Total

TIMES = " x "
COUNT = "count"
AND, ALL = " and ", "all"  # between words for what a query asks of attributes; where it asks nothing
NAME_WIDTH = 80  # characters of a name that tells a condition


@dataclass(frozen=True, slots=True)
class Factor:
    """Queries on the attributes at these positions of the schema, in the order of the queries' sizes."""

    attributes: tuple[int, ...]
    queries: Queries

    def __post_init__(self) -> None:
        if len(self.attributes) != len(self.queries.sizes):
            raise WorkloadError(f"{self.queries!r} cannot be put on {len(self.attributes)} attributes")

    def names(self, schema: Schema) -> list[str]:
        """Names of its attributes, with the level whose nodes it counts, if it counts those."""
        level = "" if self.queries.level is None else f".{self.queries.level}"
        return [schema.names[attribute] + level for attribute in self.attributes]

    def describe(self, index: int, schema: Schema) -> str:
        names = [schema.names[attribute] for attribute in self.attributes]
        attributes = [schema.attributes[attribute] for attribute in self.attributes]
        return self.queries.describe(index, names, attributes)

    def descriptions(self, schema: Schema) -> list[str]:
        """Words for every query in order."""
        return [self.describe(index, schema) for index in range(self.queries.count)]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: every product of one query from each factor, row-major, the last factor fastest.

    `weight` multiplies the variance of each of its queries, on top of the queries' own weights. A group
    without factors asks for the number of records.
    """

    name: str
    factors: tuple[Factor, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        attributes = self.attributes
        if len(set(attributes)) != len(attributes):
            raise WorkloadError(f"table {self.name!r} has an attribute twice")
        if len(attributes) > TABLE_ATTRIBUTES:
            raise WorkloadError(
                f"table {short(self.name)} is on {len(attributes)} attributes, more than the "
                f"{TABLE_ATTRIBUTES} that arrays have axes for; use fewer attributes in one table"
            )

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions of its attributes, in the order of its factors."""
        return tuple(attribute for factor in self.factors for attribute in factor.attributes)

    @property
    def count(self) -> int:
        """Number of queries, exactly."""
        return math.prod(queries.count for queries in self.families)

    @property
    def listable(self) -> bool:
        """Whether its queries can be gone through one by one; `predicates` of many cells cannot."""
        return all(queries.listable for queries in self.families)

    @property
    def families(self) -> list[Queries]:
        """The queries of each factor."""
        return [factor.queries for factor in self.factors]

    @property
    def title(self) -> str:
        """Its families: `prefix x identity`."""
        return TIMES.join(queries.title for queries in self.families)

    def statistics(self) -> "dict[str, Table]":
        """Its queries by what they are, each part in one unit: `count`, `sum of income`."""
        found = {}
        for chosen in product(*(queries.by_adds().items() for queries in self.families)):
            pairs = zip(self.factors, chosen, strict=True)
            own = tuple(Factor(factor.attributes, each) for factor, (_, each) in pairs)
            found[_statistic(words for words, _ in chosen)] = replace(self, factors=own)
        return found

    def units(self) -> dict[str, Flags]:
        """Which of its queries each of its statistics has, (count,)."""
        adds = product(*(each.adds or ("",) * each.count for each in self.families))
        words = np.array([_statistic(own) for own in adds])
        return {own: words == own for own in self.statistics()}

    def names(self) -> Iterator[str]:
        """Its name: as a run of tables, it is one of itself alone."""
        yield self.name

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator["Table"]:
        yield self

    def describe(self, index: int, schema: Schema) -> str:
        """Words for one query: `age <= 17 and sex = F`; `all` where it asks nothing of a record."""
        if not 0 <= index < self.count:
            raise IndexError(f"table {self.name!r} has no query {index}")
        words = []
        for factor in reversed(self.factors):
            index, place = divmod(index, factor.queries.count)
            words.append(factor.describe(place, schema))
        return _joined(reversed(words))

    def descriptions(self, schema: Schema) -> Iterator[str]:
        """Words for every query in order; each factor's are made once, not once per product."""
        return map(_joined, product(*(factor.descriptions(schema) for factor in self.factors)))


def times_words(adds: Iterable[str]) -> str:
    """What a product of queries adds up: `hours * age`; nothing where all count."""
    return " * ".join(filter(None, adds))


def _statistic(adds: Iterable[str]) -> str:
    added = times_words(adds)
    return f"sum of {added}" if added else COUNT


def splits(group: Table) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]]:
    """Every way to keep some of a table's attributes: the places kept of each factor, and the attributes, as
    ascending positions in the schema. Of a total, nothing is left but its mean."""
    refuse_many_ways(len(without_totals(group).attributes), group.name)
    each = [
        [()] if isinstance(factor.queries, Total) else list(choices(len(factor.attributes)))
        for factor in group.factors
    ]
    for kept in product(*each):
        pairs = zip(group.factors, kept, strict=True)
        yield kept, tuple(sorted(factor.attributes[place] for factor, places in pairs for place in places))


def choices(ways: int) -> Iterator[tuple[int, ...]]:
    """Every choice of some of so many places, the smaller ones first; Infeasible if there are too many."""
    refuse_many_ways(ways)
    return subsets_of(range(ways))


def refuse_many_ways(ways: int, name: str | None = None) -> None:
    """Nothing, or Infeasible where a table would be split into too many pieces, one per choice of places."""
    if ways > SPLIT_WAYS:
        what = "a table" if name is None else f"table {short(name)}"
        raise Infeasible(
            f"{what} is on {ways} attributes and would be split into 2^{ways} pieces, more than the "
            f"2^{SPLIT_WAYS} that can be gone through; use fewer attributes in one table, or plan with "
            "method 'identity' or 'hdmm-kron', which measure all its cells together"
        )


def without_totals(group: Table) -> Table:
    """The same queries without the attributes of which they ask for the total."""
    kept = tuple(factor for factor in group.factors if not isinstance(factor.queries, Total))
    return group if len(kept) == len(group.factors) else replace(group, factors=kept)


def _joined(parts: Iterator[str] | tuple[str, ...]) -> str:
    return AND.join(part for part in parts if part) or ALL


def table_name(names: Iterable[str], where: object = None) -> str:
    """The name of a table that nobody named: `age x sex`, or `total` for none, and its condition if any."""
    own = TIMES.join(names) or "total"
    return own if where is None else textwrap.shorten(f"{own} where {where}", NAME_WIDTH, placeholder=" ...")


def checked_weight(weight: object, who: str) -> float:
    """A weight of variances as a float, refused unless it is positive and finite."""
    if isinstance(weight, bool | np.bool_) or not isinstance(weight, numbers.Real):
        raise WorkloadError(f"{who}: a weight is a positive number, not {weight!r}")
    try:
        value = float(weight)
    except OverflowError:  # of a whole number or a fraction
        value = math.inf
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError(f"{who}: a weight is a positive finite number, not {short(weight)}")
    return value


_ROWS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class TableRun:
    """A run of tables on equally many attributes; item `t` is a Group made when asked for.

    `subsets` has shape `(tables, ways)` and holds positions in the schema. Each attribute is asked the same
    queries in every table it is in (`queries_of`); or, for families on two attributes, `joint[t]` holds the
    queries of table `t` and equal sizes share one object.
    """

    schema: Schema
    subsets: Subsets
    factors: tuple[Factor | None, ...] = ()  # by position in the schema; none where joint or not used
    joint: tuple[Queries, ...] | None = None
    weight: float = 1.0
    name: str | None = None

    def __post_init__(self) -> None:
        subsets = np.array(self.subsets, dtype=np.int32)
        subsets.flags.writeable = False
        object.__setattr__(self, "subsets", subsets)
        if self.joint is None:
            used = self.attributes
            for attribute in used:
                self.queries_of(attribute)
            # Without what no table uses, tables that are equal are also saved equally.
            kept = (factor if at in used else None for at, factor in enumerate(self.factors))
            object.__setattr__(self, "factors", tuple(kept))
        elif len(self.joint) != len(self):
            raise WorkloadError(f"{len(self)} tables have {len(self.joint)} families")

    @property
    def ways(self) -> int:
        return int(self.subsets.shape[1])

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions of all attributes in use, ascending."""
        return tuple(np.flatnonzero(np.bincount(self.subsets.ravel())).tolist())

    @property
    def count(self) -> int:
        """Number of queries of all tables, exactly."""
        if self.joint is not None:
            return sum(queries.count for queries in self.joint)
        counts = [0 if factor is None else factor.queries.count for factor in self.factors]
        fits = len(self) * max(counts, default=1) ** self.ways < 2**63
        each = np.array(counts, dtype=np.int64 if fits else object)
        return int(np.sum(np.prod(each[self.subsets], axis=1))) if self.ways else len(self)

    @property
    def families(self) -> list[Queries]:
        """The distinct queries that its tables ask."""
        each = self.joint or [factor.queries for factor in self.factors if factor is not None]
        return list({id(queries): queries for queries in each}.values())

    def queries_of(self, attribute: int) -> Queries:
        """The queries that every table on this attribute asks of it."""
        factor = self.factors[attribute] if self.joint is None else None
        if factor is None:
            raise WorkloadError(f"attribute {self.schema.names[attribute]!r} has no queries of its own here")
        return factor.queries

    @overload
    def __getitem__(self, index: int) -> Table: ...
    @overload
    def __getitem__(self, index: slice) -> "TableRun": ...
    def __getitem__(self, index: int | slice) -> "Table | TableRun":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return self._group(index, self.subsets[index].tolist(), self._names())

    def __len__(self) -> int:
        return int(self.subsets.shape[0])

    def __iter__(self) -> Iterator[Table]:
        names = self._names()
        return (self._group(index, row, names) for index, row in enumerate(self._rows()))

    def names(self) -> Iterator[str]:
        names = self._names()
        return (self._name(row, names) for row in self._rows())

    def _rows(self) -> Iterator[list[int]]:
        """The subsets as lists, some thousands at a time: one by one is slow, all at once is large."""
        for start in range(0, len(self), _ROWS):
            yield from self.subsets[start : start + _ROWS].tolist()

    def _name(self, row: list[int], names: Sequence[str]) -> str:
        return table_name([names[at] for at in row]) if self.name is None else self.name

    def _group(self, index: int, row: list[int], names: Sequence[str]) -> Table:
        name = self._name(row, names)
        if self.joint is not None:
            return Table(name, (Factor(tuple(row), self.joint[index]),), self.weight)
        factors = tuple(factor for at in row if (factor := self.factors[at]) is not None)
        return Table(name, factors, self.weight)

    def take(self, chosen: Indices) -> "TableRun":
        """The tables at these indices."""
        joint = None if self.joint is None else tuple(self.joint[at] for at in chosen.tolist())
        return replace(self, subsets=self.subsets[chosen], joint=joint)

    def named(self, name: str) -> Indices:
        """Indices of the tables of this name, without making every name."""
        if self.name is not None:
            return np.arange(len(self) if name == self.name else 0)
        return np.flatnonzero(_spelling(self.subsets, self._names(), name))

    def _names(self) -> list[str]:
        """What tables call the attributes, by position in the schema."""
        pairs = zip(self.schema.names, self.factors or (None,) * len(self.schema), strict=True)
        return [name if own is None else own.names(self.schema)[0] for name, own in pairs]


def answered_together(part: Table | TableRun) -> TypeGuard[TableRun]:
    """Whether the tables of a part differ in names only, and their queries can be listed."""
    return isinstance(part, TableRun) and part.joint is None and all(own.listable for own in part.families)


def runs_of(part: Table | TableRun, queries: int) -> Iterator[Table | TableRun]:
    """A run of tables in shorter ones, of about so many queries each; a table is left as it is."""
    if isinstance(part, Table):
        yield part
        return
    step = max(1, len(part) * queries // max(1, part.count))
    yield from (part[start : start + step] for start in range(0, len(part), step))


def refuse_wide_tables(parts: Sequence[Table | TableRun]) -> None:
    """Nothing, or Infeasible where one of these tables would be split into too many pieces."""
    for part in parts:
        ways = part.ways if isinstance(part, TableRun) else len(without_totals(part).attributes)
        refuse_many_ways(ways, next(part.names()))


def _spelling(subsets: Subsets, names: Sequence[str], text: str) -> Flags:
    """Which rows have names that joined by ` x ` read `text`."""
    tables, ways = subsets.shape
    found = np.zeros(tables, dtype=np.bool_)
    if ways == 0:
        return ~found if text == table_name([]) else found
    for at, name in enumerate(names):
        if ways == 1 and text == name:
            found |= subsets[:, 0] == at
        elif ways > 1 and text.startswith(name + TIMES):
            rows = np.flatnonzero(subsets[:, 0] == at)
            found[rows] |= _spelling(subsets[rows, 1:], names, text[len(name + TIMES) :])
    return found


def bound(family: Family, schema: Schema, names: Sequence[str]) -> Queries:
    """The queries of a family on the cells that names mean: of attributes, of their levels or bins."""
    if family.of_values:
        own = [schema[name] for name in names]
        return at_levels(family.bind(*own, names=names), schema, names, own)
    with retold(SchemaError, WorkloadError, f"{family!r} counts by cells: "):
        seen = [schema.counted(name) for name in names]
        queries = family.bind(*seen, names=names)
    return at_levels(queries, schema, names, seen)


def at_levels(queries: Queries, schema: Schema, names: Sequence[str], own: Sequence[Attribute]) -> Queries:
    """Queries about cells of these attributes, which names mean, as queries about the schema's own cells."""
    levels = [schema.resolve(name)[1] for name in names]
    if not any(levels) and all(schema[name] is each for name, each in zip(names, own, strict=True)):
        return queries
    classes = [schema.classes(name) for name in names]
    if isinstance(queries, Identity):
        return Partition(classes[0], levels[0], None if levels[0] else own[0].labels())
    if isinstance(queries, Total):
        return Total(classes[0].size)
    entries = queries.count * queries.cells
    if entries > MATRIX_ENTRIES:
        raise WorkloadError(f"{queries!r} of {listing(names)} take {entries:,} numbers; use a coarser level")
    words = tuple(queries.describe(at, names, own) for at in range(queries.count))
    if not any(levels) and len(names) == 1:  # a number has few cells
        rows = queries.matrix()[:, classes[0]]
        return Explicit((len(classes[0]),), rows, queries.weights, words, queries.title, queries.adds)
    coarse = Explicit(queries.sizes, queries.matrix(), queries.weights, words, adds=queries.adds)
    return Combined(tuple(map(Classes, classes)), coarse)
