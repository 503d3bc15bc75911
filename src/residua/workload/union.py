"""Workload: the union of tables that a plan is made for."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Arrays, Manifest
from residua._limits import DENSE_CELLS, EXTREME, MANY_WAYS, PRODUCT_ENTRIES, SAME_TABLES, WIDEST
from residua._notebook import MOST, shown
from residua._text import hint, visible
from residua.errors import Infeasible, SchemaError, WorkloadError
from residua.linalg.grams import sure_root
from residua.linalg.matrices import independent_rows, join, spread, sum_out
from residua.schema import Schema
from residua.workload.manifests import parts_from_manifest, parts_record, refuse_unreadable
from residua.workload.queries import Queries, spelled
from residua.workload.tables import Factor, Table, TableRun, checked_weight, without_totals

_SHOWN = 3
_SUGGESTED = 2000


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
        rows = (
            (each.name, each.title or "total", spelled(each.count), f"{each.weight:g}") for each in groups
        )
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
        refuse_unreadable(self.parts)

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under new keys that it refers to."""
        return parts_record(self.parts, arrays)

    @classmethod
    def from_manifest(cls, record: Manifest, arrays: Arrays, schema: Schema) -> "Workload":
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


@dataclass(frozen=True, slots=True)
class Order:
    """Where the factors of a table were before some were brought together, and their numbers of queries."""

    counts: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    def arranged(self, values: Array, axis: int = 0) -> Array:
        """Numbers of all queries along an axis, in the order that the table had."""
        if self.places == tuple(range(len(self.places))):
            return values
        numbers = np.arange(math.prod(self.counts)).reshape(self.counts)
        return np.take(values, numbers.transpose(np.argsort(self.places)).reshape(-1), axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A table whose factors that touch some attributes are one, in the place of the first of them."""

    group: Table
    mine: tuple[int, ...]

    @classmethod
    def of(cls, group: Table, attributes: Sequence[int]) -> "Merged":
        """The table with its factors on any of these attributes taken together."""
        wanted = set(attributes)
        touched = enumerate(group.factors)
        return cls(group, tuple(at for at, each in touched if wanted.intersection(each.attributes)))

    @property
    def order(self) -> Order:
        before, after = self._around
        places = (*before, *self.mine, *after)
        return Order(tuple(self.group.factors[at].queries.count for at in places), places)

    @property
    def _around(self) -> tuple[list[int], list[int]]:
        """The other factors: those before the first that is taken, and those after it."""
        first = self.mine[0] if self.mine else 0
        others = [at for at in range(len(self.group.factors)) if at not in self.mine]
        return [at for at in others if at < first], [at for at in others if at >= first]

    @property
    def factors(self) -> list[Factor]:
        return [self.group.factors[at] for at in self.mine]

    @property
    def weights(self) -> Array | None:
        """Weight of each product of their queries, or None where every weight is one."""
        families = [factor.queries for factor in self.factors]
        if all(own.weights is None for own in families):
            return None
        filled = (np.ones(own.count) if own.weights is None else own.weights for own in families)
        return np.asarray(join(each[None] for each in filled)[0])

    def others(self, attributes: Sequence[int]) -> list[tuple[int, int]]:
        """Further attributes that they look at, with their sizes."""
        return [(at, size) for at, size in self._axes() if at not in attributes]

    def rows(self, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
        """Their products, (queries, cells of these attributes, cells of the others)."""
        count, axes = math.prod(factor.queries.count for factor in self.factors), self._axes()
        others = self.others(attributes)
        width = math.prod(size for _, size in others)
        if count * width * math.prod(sizes) > PRODUCT_ENTRIES:
            raise Infeasible(
                f"table {self.group.name!r} has {count:,} queries on attributes that a condition ties "
                "together, too many to go through; take coarser groups"
            )
        order = [*attributes, *(at for at, _ in others)]
        whole = [*sizes, *(size for _, size in others)]
        rows = join(factor.queries.matrix() for factor in self.factors)
        rows = spread(rows, [size for _, size in axes], [order.index(at) for at, _ in axes], whole)
        return rows.reshape(count, -1, width)

    def with_factor(self, factor: Factor) -> Table:
        """The table with another factor in their place."""
        before, after = ([self.group.factors[at] for at in several] for several in self._around)
        return replace(self.group, factors=(*before, factor, *after))

    def _axes(self) -> list[tuple[int, int]]:
        pairs = (zip(own.attributes, own.queries.sizes, strict=True) for own in self.factors)
        return [pair for several in pairs for pair in several]


FEW_TABLES = 32  # up to which their grams are quicker to add up than their rows to gather


def gram_over(factors: Sequence[Factor], attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Weighted gram of a product of families over the joint cells of attributes, (cells, cells)."""
    asked = [attribute for factor in factors for attribute in factor.attributes]
    rest = [attribute for attribute in attributes if attribute not in asked]
    size_of = dict(zip(attributes, sizes, strict=True))
    order = [*asked, *rest]
    square = join(
        [*(factor.queries.gram() for factor in factors), *(np.ones((size_of[at],) * 2) for at in rest)]
    )
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
