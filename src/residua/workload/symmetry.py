"""What is symmetric in a workload: attributes that may change places, and what is equal up to that.

| Word | Meaning |
|---|---|
| role | attributes of one role are asked the same families by equally many tables; they may share choices |
| orbit | attributes of one role any two of which may change places, and the same tables are asked for |
| mark | of a part: tables with different marks are never exchanged; None keeps its attributes apart |

A best plan may treat attributes of one orbit equally (claim J-002): all marginals on at most 3 of 100 equal
attributes have 4 orbits of blocks, not 166,751.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from residua._arrays import Integers, Subsets
from residua._limits import EXCHANGED_SUBSETS, SYMMETRY_ENTRIES
from residua.linalg.grams import unchanged_by_swap
from residua.linalg.matrices import distinct_rows
from residua.schema import Schema
from residua.workload.queries import Queries
from residua.workload.tables import Table, TableRun

Parts = Sequence[Table | TableRun]

_Placed = tuple[object, frozenset[tuple[tuple[int, ...], Queries]]]


def roles(schema: Schema, parts: Parts, marks: Sequence[object]) -> list[int]:
    """A number for each attribute of the schema, equal for those of one role."""
    uses: list[Counter[object]] = [Counter() for _ in schema.sizes]
    for number, (part, mark) in enumerate(zip(parts, marks, strict=True)):
        for at, queries, ways, tables in _uses(part):
            uses[at][(queries, ways, mark) if mark is not None else (number, at)] += tables
    numbers: dict[object, int] = {}
    keys = [(size, frozenset(used.items())) for size, used in zip(schema.sizes, uses, strict=True)]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def attribute_orbits(schema: Schema, parts: Parts, marks: Sequence[object]) -> Integers:
    """For each attribute of the schema the number of its orbit, -1 where no table uses it."""
    exchange = _Exchange(parts, marks)
    role_of = roles(schema, parts, marks)
    orbits = np.full(len(schema), -1, dtype=np.int64)
    first: dict[int, list[int]] = {}
    for at in sorted({at for part in parts for at in part.attributes}):
        heads = first.setdefault(role_of[at], [])
        same = next((head for head in heads if exchange.allowed(head, at)), None)
        if same is None:
            heads.append(at)
        orbits[at] = orbits.max() + 1 if same is None else orbits[same]
    return orbits


def row_orbits(orbits: Integers, subsets: Subsets) -> tuple[Integers, Integers]:
    """The first of each orbit of subsets, (k, ways), of attributes, and for each subset its orbit's place."""
    return distinct_rows(np.sort(orbits[subsets], axis=1))


def representatives(parts: Parts, orbits: Integers) -> Iterator[tuple[int, Table]]:
    """One table of each orbit within each part, with the number of the part."""
    for number, part in enumerate(parts):
        if isinstance(part, Table):
            yield number, part
            continue
        codes = np.sort(orbits[part.subsets], axis=1)
        if part.joint is not None:
            names = {queries: at for at, queries in enumerate(dict.fromkeys(part.joint))}
            codes = np.column_stack([codes, [names[queries] for queries in part.joint]])
        yield from ((number, part[at]) for at in distinct_rows(codes)[0].tolist())


def symmetric(queries: Queries) -> bool:
    """Whether every query on two attributes stays as it is when they change places."""
    one, two = queries.sizes
    return (
        one == two
        and queries.count * queries.cells <= SYMMETRY_ENTRIES
        and unchanged_by_swap(queries.root(), one)
    )


def _uses(part: Table | TableRun) -> Iterator[tuple[int, Queries, int, int]]:
    """Attribute, its family, number of attributes of the table, number of such tables."""
    if isinstance(part, Table):
        for factor in part.factors:
            for at in factor.attributes:
                yield at, factor.queries, len(part.attributes), 1
    elif part.joint is not None:
        for row, queries in zip(part.subsets.tolist(), part.joint, strict=True):
            for at in row:
                yield at, queries, part.ways, 1
    else:
        counts = np.bincount(part.subsets.reshape(-1), minlength=len(part.schema))
        for at in part.attributes:
            yield at, part.queries_of(at), part.ways, int(counts[at])


class _Exchange:
    """The tables of a workload, ready for trying whether two attributes may change places."""

    def __init__(self, parts: Parts, marks: Sequence[object]) -> None:
        self._runs: list[tuple[TableRun, bool]] = []
        self._tables: dict[int, Counter[_Placed]] = {}
        self._symmetric = cache(symmetric)
        for part, mark in zip(parts, marks, strict=True):
            if isinstance(part, TableRun) and part.joint is None:
                self._runs.append((part, _complete(part)))
            else:
                for table in part:
                    self._add(table, (type(part), mark))

    def allowed(self, one: int, two: int) -> bool:
        """Whether the same tables are asked for after the two attributes, of one role, change places."""
        stay = (self._run_stays(run, complete, one, two) for run, complete in self._runs)
        return self._tables_stay(one, two) and all(stay)

    def _add(self, table: Table, mark: object) -> None:
        factors = frozenset((self._ordered(f.attributes, f.queries), f.queries) for f in table.factors)
        for at in table.attributes:
            self._tables.setdefault(at, Counter())[mark, factors] += 1

    def _tables_stay(self, one: int, two: int) -> bool:
        here = self._tables.get(one, Counter()) | self._tables.get(two, Counter())
        places = {one: two, two: one}
        there: Counter[_Placed] = Counter()
        for (mark, factors), many in here.items():
            moved = frozenset(
                (self._ordered(tuple(places.get(at, at) for at in attributes), queries), queries)
                for attributes, queries in factors
            )
            there[mark, moved] += many
        return here == there

    def _ordered(self, attributes: tuple[int, ...], queries: Queries) -> tuple[int, ...]:
        """The attributes, ascending where their order makes no difference to any query."""
        if len(attributes) != 2 or attributes[0] < attributes[1]:
            return attributes
        return attributes[::-1] if self._symmetric(queries) else attributes

    def _run_stays(self, run: TableRun, complete: bool, one: int, two: int) -> bool:
        has = one in run.attributes, two in run.attributes
        if not all(has):
            return not any(has)
        if run.queries_of(one) != run.queries_of(two):
            return False
        few = len(run) * len(run.attributes) * len(self._runs) <= EXCHANGED_SUBSETS
        return complete or (few and _subsets_stay(run, one, two))


def _complete(run: TableRun) -> bool:
    """Whether the run has a table on every subset of its attributes, once."""
    rows = np.sort(run.subsets, axis=1).astype(np.int64)
    return len(run) == math.comb(len(run.attributes), run.ways) == len(distinct_rows(rows)[0])


def _subsets_stay(run: TableRun, one: int, two: int) -> bool:
    has_one, has_two = ((run.subsets == at).any(axis=1) for at in (one, two))
    here = run.subsets[has_one != has_two].astype(np.int64)  # with both or none, a table stays as it is
    swapped = np.where(here == one, two, np.where(here == two, one, here))
    _, inverse = distinct_rows(np.sort(np.concatenate([here, swapped]), axis=1))
    balance = np.bincount(inverse, weights=np.repeat([1.0, -1.0], len(here)))
    return bool(np.all(balance == 0))
