"""Workload: the union of tables that a plan is made for."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from residua._text import visible
from residua.errors import WorkloadError
from residua.schema import Schema
from residua.schema.wording import hint
from residua.workload.groups import Table, checked_weight, without_totals
from residua.workload.manifests import parts_from_manifest, parts_record, refuse_unreadable
from residua.workload.queries import spelled
from residua.workload.tables import TableRun

_SHOWN = 3
_SUGGESTED = 2000


EXTREME = 100  # powers of ten that weights, and squares of queries, may reach up or down
READABLE = 150  # the same in files, where there was no bound once: squares of it are still finite


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Workload:
    """Tables to be published, in the order of their answers; duplicates stay and count twice.

    Answers run over the groups in order and then row-major over a group's factors. Weights multiply
    variances; `2.0 * work` doubles them all and `a + b` puts one after the other.

    >>> from residua.schema import Schema
    >>> from residua.workload import marginals
    >>> work = marginals(Schema.of_sizes([2, 3]), ways=(1, 2))
    >>> work.tables, work.count, (work + work).count
    (3, 11, 22)
    """

    schema: Schema
    parts: tuple[Table | TableRun, ...]

    def __post_init__(self) -> None:
        if not any(len(part) if isinstance(part, TableRun) else 1 for part in self.parts):
            raise WorkloadError("a workload needs at least one table")

    def groups(self) -> Iterator[Table]:
        """Every table in order, made one at a time."""
        for part in self.parts:
            if isinstance(part, TableRun):
                yield from part
            else:
                yield part

    @property
    def tables(self) -> int:
        """Number of tables."""
        return sum(len(part) if isinstance(part, TableRun) else 1 for part in self.parts)

    @property
    def count(self) -> int:
        """Number of queries, exactly, of any size."""
        return sum(part.count for part in self.parts)

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions of the attributes that some table uses, ascending."""
        return tuple(sorted({attribute for part in self.parts for attribute in part.attributes}))

    @property
    def names(self) -> tuple[str, ...]:
        """The tables' names, each once, in the order they first appear."""
        return tuple(dict.fromkeys(self._every_name()))

    def select(self, name: str) -> "Workload":
        """The tables of this name, in order."""
        parts: list[Table | TableRun] = []
        for part in self.parts:
            if isinstance(part, Table):
                parts.extend([part] if part.name == name else [])
            elif len(chosen := part.named(name)):
                parts.append(part.take(chosen))
        if not parts:
            near = hint(name, islice(self._every_name(), _SUGGESTED))
            raise WorkloadError(f"the workload has no table named {name!r}{near}")
        return Workload(self.schema, tuple(parts))

    def _every_name(self) -> Iterator[str]:
        for part in self.parts:
            if part.name is not None:
                yield part.name
            else:
                yield from part.names()

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # never empty, and the count may not fit where Python would look for it

    def __add__(self, other: object) -> "Workload":
        if not isinstance(other, Workload):
            return NotImplemented
        if self.schema != other.schema:
            raise WorkloadError("the workloads to add have different schemas; build both from one schema")
        return Workload(self.schema, self.parts + other.parts)

    def __radd__(self, other: object) -> "Workload":
        return self if other == 0 else NotImplemented  # where the built-in `sum` starts

    def __mul__(self, factor: object) -> "Workload":
        if isinstance(factor, Workload):
            return NotImplemented
        who = f"workload {_brief(self._every_name())}"
        times = checked_weight(factor, who)
        parts = tuple(replace(part, weight=checked_weight(part.weight * times, who)) for part in self.parts)
        return Workload(self.schema, parts)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        tables = "1 table" if self.tables == 1 else f"{self.tables:,} tables"
        queries = "1 query" if self.count == 1 else f"{spelled(self.count)} queries"
        shown = [
            f"{group.name} ({group.title})" if group.factors else group.name
            for group in islice(self.groups(), _SHOWN)
        ]
        more = ", ..." if self.tables > _SHOWN else ""
        return f"Workload of {tables}, {queries}: {visible(', '.join(shown))}{more}"

    def without_totals(self) -> "Workload":
        """The same queries in tables without the attributes of which they ask for the total."""
        parts = tuple(without_totals(part) if isinstance(part, Table) else part for part in self.parts)
        return Workload(self.schema, parts)

    def refuse_unreadable(self) -> None:
        """Nothing, or the error for what could be saved but never loaded: queries or attributes of others."""
        self.schema.refuse_unreadable()
        refuse_unreadable(self.parts)

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""
        return parts_record(self.parts, arrays)

    @classmethod
    def from_manifest(
        cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], schema: Schema
    ) -> "Workload":
        """The workload that `record` described, on the schema it was built from."""
        return cls(schema, parts_from_manifest(record, arrays, schema))


def _brief(names: Iterator[str]) -> str:
    """The first few names, quoted."""
    first = list(islice(dict.fromkeys(islice(names, _SUGGESTED)), _SHOWN + 1))
    more = ", ..." if len(first) > _SHOWN else ""
    return ", ".join(map(repr, first[:_SHOWN])) + more


def refuse_extremes(work: Workload, most: int = EXTREME) -> None:
    """WorkloadError where weights and coefficients leave floats no room for squares and sums."""
    for part in work.parts:
        low, high = (math.log10(part.weight) + end for end in _magnitudes(part))
        if not -most <= low <= high <= most:
            name = part.name if isinstance(part, Table) else next(part.names())
            raise WorkloadError(
                f"table {name!r} has queries whose weight times squared coefficients is about 1e"
                f"{round(low if low < -most else high)}, beyond 1e-{most} to 1e{most}; only ratios "
                "of weights count, so divide all of them by one number"
            )


def _magnitudes(part: Table | TableRun) -> tuple[float, float]:
    """Least and largest magnitude of the queries of a table, or bounds on those of a run of tables."""
    if isinstance(part, Table):
        ends = [factor.queries.magnitudes() for factor in part.factors]
        return sum(low for low, _ in ends), sum(high for _, high in ends)
    families = part.joint or [factor.queries for factor in part.factors if factor is not None]
    ends = [queries.magnitudes() for queries in families]
    low, high = min((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=0.0)
    return part.ways * min(low, 0.0), part.ways * max(high, 0.0)
