"""Workload: the union of tables that a plan is made for."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import DENSE_CELLS, EXTREME, MANY_WAYS, SAME_TABLES, WIDEST
from residua._manifests import stash
from residua._notebook import MOST, shown
from residua._text import hint, visible
from residua.errors import Infeasible, SchemaError, WorkloadError
from residua.linalg.grams import sum_out, sure_root
from residua.linalg.matrices import independent_rows, join, spread
from residua.schema import Number, Schema
from residua.workload.manifests import parts_from_manifest
from residua.workload.queries import Queries, identity, spelled
from residua.workload.tables import Factor, Table, TableRun, bound, checked_weight, table_name, without_totals

_SHOWN = 3
_SUGGESTED = 2000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Workload:
    """Tables to be published, in the order of their answers; duplicates stay and count twice.

    Answers run over the groups in order and then row-major over a group's factors. Weights multiply
    variances; `2.0 * work` doubles them all and `a + b` puts one after the other.

    >>> from residua.schema import Number, Schema
    >>> from residua.workload import marginals
    >>> work = marginals(Schema.of_sizes([2, 3]), ways=(1, 2))
    >>> work.tables, work.count, (work + work).count
    (3, 11, 22)
    """

    schema: Schema
    parts: tuple[Table | TableRun, ...]

    def __post_init__(self) -> None:
        if not self.tables:
            raise WorkloadError("a workload needs at least one table")

    def groups(self) -> Iterator[Table]:
        """Every table in order, made one at a time."""
        return chain.from_iterable(self.parts)

    @property
    def tables(self) -> int:
        """Number of tables."""
        return sum(map(len, self.parts))

    @property
    def count(self) -> int:
        """Number of queries, exactly, of any size."""
        return sum(part.count for part in self.parts)

    @property
    def attributes(self) -> tuple[int, ...]:
        """Positions of the attributes that some table uses, ascending."""
        return tuple(sorted({attribute for part in self.parts for attribute in part.attributes}))

    @property
    def families(self) -> set[Queries]:
        """The distinct families that its tables ask."""
        return {queries for part in self.parts for queries in part.families}

    @property
    def counts(self) -> bool:
        """Whether all numbers are numbers of records, none a sum in a unit of its own."""
        return not any(words for part in self.parts for own in part.families for words in own.adds or ())

    @property
    def invariant(self) -> bool:
        """Whether every family treats all cells alike: the singular value bound is then reached (B-003)."""
        return all(queries.invariant for queries in self.families)

    @property
    def whole(self) -> bool:
        """Whether every joint cell of its attributes is some record's, whole; numbers may have others."""
        own = (self.schema.attributes[at] for at in self.attributes)
        return all(not isinstance(each, Number) or each.whole for each in own)

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

    def _repr_html_(self) -> str:
        groups = islice(self.groups(), MOST)
        rows = ((own.name, own.title or "total", spelled(own.count), f"{own.weight:g}") for own in groups)
        head = ("table", "queries asked", "numbers", "weight")
        return shown(repr(self).partition(":")[0], head, rows, left=2, more=self.tables - MOST)

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
        for part in self.parts:
            for queries in part.families:
                if not queries.readable:
                    raise WorkloadError(
                        f"table {next(part.names())!r}: queries of the class {type(queries).__name__!r} are "
                        "not residua's own, so they could be saved but never loaded; make the class known "
                        "with rs.register_family, or ask with rs.linear(schema, attributes, queries.matrix())"
                    )

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""
        shelf = _Shelf(arrays)
        rows = [
            _tables_record(part, shelf) if isinstance(part, TableRun) else _group_record(part, shelf)
            for part in self.parts
        ]
        return {"queries": shelf.records, "parts": rows}

    @classmethod
    def from_manifest(cls, record: Manifest, arrays: Arrays, schema: Schema) -> "Workload":
        """The workload that `record` described, on the schema it was built from."""
        return cls(schema, parts_from_manifest(record, arrays, schema))


class _Shelf:
    """Records of queries by number, each kept once."""

    def __init__(self, arrays: dict[str, AnyArray]) -> None:
        self.arrays = arrays
        self.records: list[dict[str, Any]] = []
        self._by_object: dict[int, int] = {}
        self._by_text: dict[str, int] = {}

    def number(self, queries: Queries) -> int:
        """The number of these queries. Equal ones may be worded differently, so equality does not decide."""
        if id(queries) not in self._by_object:
            record = queries.to_manifest(self.arrays)
            key = json.dumps(record, sort_keys=True)
            if key not in self._by_text:
                self._by_text[key] = len(self.records)
                self.records.append(record)
            self._by_object[id(queries)] = self._by_text[key]
        return self._by_object[id(queries)]


def _group_record(group: Table, shelf: _Shelf) -> dict[str, Any]:
    factors = [
        {"attributes": list(factor.attributes), "queries": shelf.number(factor.queries)}
        for factor in group.factors
    ]
    return {"kind": "group", "name": group.name, "weight": group.weight, "factors": factors}


def _tables_record(tables: TableRun, shelf: _Shelf) -> dict[str, Any]:
    subsets = stash(shelf.arrays, tables.subsets)
    if tables.joint is None:
        key = "by_attribute"
        numbers = [-1 if factor is None else shelf.number(factor.queries) for factor in tables.factors]
    else:
        key, numbers = "joint", [shelf.number(queries) for queries in tables.joint]
    asked = stash(shelf.arrays, np.array(numbers, dtype=np.int64))
    return {"kind": "tables", "name": tables.name, "weight": tables.weight, "subsets": subsets, key: asked}


def positions_of(schema: Schema, names: Sequence[str], who: str) -> tuple[int, ...]:
    """Positions of named attributes, or of those whose levels are named; each may be there once."""
    names = [names] if isinstance(names, str) else names
    positions = tuple(schema.resolve(name)[0] for name in names)
    for name, position in zip(names, positions, strict=True):
        if positions.count(position) > 1:
            levels = "" if name in schema else "; name its finest level only, which tells the coarser ones"
            raise WorkloadError(f"{who}: attribute {schema.names[position]!r} is there twice{levels}")
    return positions


def asked_cells(
    schema: Schema, names: Sequence[str | Sequence[str]], figures_of: Callable[[Table], Sequence[Array]]
) -> tuple[Any, ...]:
    """Names, axes and figures (sizes...) of the marginal on attributes named one by one, or in a list."""
    asked: list[Any] = list(names[0] if len(names) == 1 and isinstance(names[0], list | tuple) else names)
    title = table_name(map(str, asked))
    places = positions_of(schema, asked, f"table {title!r}")
    pairs = zip(places, asked, strict=True)
    group = Table(title, tuple(Factor((at,), bound(identity, schema, (name,))) for at, name in pairs))
    axes = tuple(schema.counted(name).labels() for name in asked)
    return tuple(asked), axes, *(each.reshape([*map(len, axes)]) for each in figures_of(group))


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
            raise WorkloadError(
                f"table {next(part.names())!r} has queries whose weight times squared coefficients is about "
                f"1e{round(low if low < -most else high)}, beyond 1e-{most} to 1e{most}; only ratios "
                "of weights count, so divide all of them by one number"
            )


def _magnitudes(part: Table | TableRun) -> tuple[float, float]:
    """Least and largest magnitude of the queries of a table, or bounds on those of a run of tables."""
    ends = [queries.magnitudes() for queries in part.families]
    if isinstance(part, Table):
        return sum(low for low, _ in ends), sum(high for _, high in ends)
    low, high = min((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=0.0)
    return part.ways * min(low, 0.0), part.ways * max(high, 0.0)


FEW_TABLES = 32  # up to which their grams are quicker to add up than their rows to gather


def gram_over(factors: Sequence[Factor], attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Weighted gram of a product of families over the joint cells of attributes, (cells, cells)."""
    asked = [attribute for factor in factors for attribute in factor.attributes]
    rest = [attribute for attribute in attributes if attribute not in asked]
    size_of = dict(zip(attributes, sizes, strict=True))
    order = [*asked, *rest]
    ones = (np.ones((size_of[at],) * 2) for at in rest)
    square = join([*(factor.queries.gram() for factor in factors), *ones])
    return sum_out(square, [size_of[at] for at in order], [order.index(at) for at in attributes])


def joint_gram(work: Workload, attributes: Sequence[int] | None = None) -> Array:
    """The weighted gram of a workload over the joint cells of its attributes; refused where they are many."""
    attributes = work.attributes if attributes is None else attributes
    sizes = [work.schema.sizes[axis] for axis in attributes]
    refuse_many_cells(math.prod(sizes), "the attributes of this workload together")
    gram = np.zeros((math.prod(sizes),) * 2)
    for group in work.groups():
        gram += group.weight * gram_over(group.factors, attributes, sizes)
    return gram


def joint_rows(work: Workload, attributes: Sequence[int] | None = None) -> Array:
    """Independent rows over the joint cells of a workload's attributes with its weighted gram, (rank, cells).

    Refused above about 4,000 cells, which are row-major over the attributes: its own, ascending, or more.
    """
    attributes = work.attributes if attributes is None else attributes
    sizes = tuple(work.schema.sizes[axis] for axis in attributes)
    cells = math.prod(sizes)
    refuse_many_cells(cells, "the attributes of this workload together")
    if work.tables <= FEW_TABLES and (sure := sure_root(joint_gram(work, attributes))) is not None:
        return sure[0]
    stack: list[Array] = []
    weights: list[Array] = []
    for group in work.groups():
        places = [attributes.index(axis) for axis in group.attributes]
        rows = join(queries.root() for queries in group.families)
        stack.append(spread(rows, [sizes[place] for place in places], places, sizes))
        weights.append(np.full(len(rows), group.weight))
        if sum(map(len, stack)) > 4 * cells:
            root = independent_rows(np.concatenate(stack), np.concatenate(weights))
            stack, weights = [root], [np.ones(len(root))]
    return independent_rows(np.concatenate(stack), np.concatenate(weights))


def common_product(work: Workload) -> tuple[float, tuple[Factor, ...]] | None:
    """The product of families that every table is a multiple of, with the sum of the weights, or None."""
    if work.tables > SAME_TABLES:
        return None
    groups = [without_totals(group) for group in work.groups()]
    first = groups[0].factors
    if any(group.factors != first for group in groups):
        return None
    return math.fsum(group.weight for group in groups), first


def one_wide_product(work: Workload) -> bool:
    """Whether all tables are one product on so many attributes that it is best not split into pieces."""
    shared = common_product(work)
    return shared is not None and len(shared[1]) > MANY_WAYS


def refuse_many_cells(cells: int, what: str) -> None:
    """Raise Infeasible where one matrix over the cells would not fit."""
    if cells > DENSE_CELLS:
        raise Infeasible(
            f"{what}: {cells:,} cells are more than the {DENSE_CELLS:,} that fit one dense matrix; "
            "take fewer attributes at a time, or coarser ones"
        )


def refuse_wide(queries: Queries) -> None:
    """Raise Infeasible for queries on one attribute whose square matrices would not fit."""
    if len(queries.sizes) == 1 and queries.cells > WIDEST:
        raise Infeasible(
            f"{queries!r}: an attribute may have at most {WIDEST:,} cells here; use a coarser one, such as "
            "bins or a higher level of a hierarchy"
        )


def refuse_foreign(work: object, schema: Schema, whose: str) -> None:
    """Raise for what is no workload on the schema of a plan or of a release, whichever is asked."""
    if not isinstance(work, Workload):
        raise WorkloadError(
            f"a {whose} is asked about a workload, such as plan.workload or rs.table(schema, ...), "
            f"not {work!r}"
        )
    if work.schema != schema:
        raise SchemaError(f"the workload and the {whose} have different schemas; build both from one schema")
