"""Many tables of one kind, held as an array of attribute subsets and never as one object each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.schema import Schema
from residua.schema.wording import short
from residua.workload.groups import TIMES, Factor, Table, refuse_many_ways, table_name, without_totals
from residua.workload.queries import Queries

Subsets = NDArray[np.int32]

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
        """Number of attributes of each table."""
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
        return self._group(index, self.subsets[index].tolist())

    def __len__(self) -> int:
        return int(self.subsets.shape[0])

    def __iter__(self) -> Iterator[Table]:
        return (self._group(index, row) for index, row in enumerate(self._rows()))

    def names(self) -> Iterator[str]:
        """The name of each table in order."""
        return (self._name(row) for row in self._rows())

    def _rows(self) -> Iterator[list[int]]:
        """The subsets as lists, some thousands at a time: one by one is slow, all at once is large."""
        for start in range(0, len(self), _ROWS):
            yield from self.subsets[start : start + _ROWS].tolist()

    def _name(self, row: list[int]) -> str:
        return table_name([self.schema.names[at] for at in row]) if self.name is None else self.name

    def _group(self, index: int, row: list[int]) -> Table:
        if self.joint is not None:
            return Table(self._name(row), (Factor(tuple(row), self.joint[index]),), self.weight)
        factors = tuple(factor for at in row if (factor := self.factors[at]) is not None)
        return Table(self._name(row), factors, self.weight)

    def take(self, chosen: NDArray[np.intp]) -> "TableRun":
        """The tables at these indices."""
        joint = None if self.joint is None else tuple(self.joint[at] for at in chosen.tolist())
        return replace(self, subsets=self.subsets[chosen], joint=joint)

    def named(self, name: str) -> NDArray[np.intp]:
        """Indices of the tables of this name, without making every name."""
        if self.name is not None:
            return np.arange(len(self) if name == self.name else 0)
        return np.flatnonzero(_spelling(self.subsets, self.schema.names, name))


def refuse_wide_tables(parts: Sequence[Table | TableRun]) -> None:
    """Nothing, or Infeasible where one of these tables would be split into too many pieces."""
    for part in parts:
        if isinstance(part, TableRun):
            refuse_many_ways(part.ways, f"table {short(next(part.names()))}")
        else:
            refuse_many_ways(len(without_totals(part).attributes), f"table {short(part.name)}")


def _spelling(subsets: Subsets, names: Sequence[str], text: str) -> NDArray[np.bool_]:
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
