"""A schema seen by classes of cells: attributes by classes of theirs, or several as one by joint classes.

Cells that all queries treat alike are in one class. Where queries tie attributes together, combinations of
classes that all treat alike are in one joint class: the records that a condition selects are one, whatever
the number of attributes it looks at.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array
from residua._limits import MATRIX_ENTRIES, PRODUCT_ENTRIES
from residua.errors import Infeasible, NotInSpan
from residua.linalg.classes import Classes, JointClasses, equal_slices
from residua.linalg.matrices import join, spread
from residua.schema import Integer, Schema
from residua.workload.explicit import Combined, Explicit, Sets
from residua.workload.groupings import Partition
from residua.workload.queries import Queries, Total
from residua.workload.tables import Factor, Table, TableRun

ROUNDING = 1e-9  # relative; differences this small are what rounding leaves


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
        return np.asarray(join(own.every_weight[None] for own in families)[0])

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


@dataclass(frozen=True, eq=False)
class View:
    """A schema with some attributes by classes or joint classes of cells; each is part of one at most."""

    parts: tuple[JointClasses, ...] = ()

    @property
    def partitions(self) -> dict[int, Classes]:
        return {
            at: own for part in self.parts for at, own in zip(part.attributes, part.partitions, strict=True)
        }

    @property
    def tied(self) -> list[JointClasses]:
        """Those made of several attributes."""
        return [part for part in self.parts if len(part.attributes) > 1]

    def sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Numbers of cells of the attributes as they are seen."""
        seen = self._sizes()
        return tuple(seen.get(at, size) for at, size in enumerate(sizes))

    def units(self, units: Sequence[int]) -> tuple[int, ...]:
        """Units of the attributes as they are seen: those of several are multiplied."""
        made = {part.place: math.prod(units[at] for at in part.attributes) for part in self.parts}
        return tuple(made.get(at, unit) for at, unit in enumerate(units))

    def _sizes(self) -> dict[int, int]:
        """Numbers of cells of the attributes that are seen by classes."""
        gone = {at: 1 for part in self.parts for at in part.attributes}
        return gone | {part.place: part.size for part in self.parts}

    def schema(self, schema: Schema) -> Schema:
        """The schema as it is seen."""
        sizes = self._sizes()
        pairs = enumerate(zip(schema.names, schema.attributes, strict=True))
        return Schema({name: Integer(0, sizes[at] - 1) if at in sizes else own for at, (name, own) in pairs})

    def group(self, group: Table) -> tuple[Table, list[Order]]:
        """A table as it is seen, and how its queries get back into their order; NotInSpan if it is finer."""
        found = coarse_table(group, self.partitions) if self.parts else group
        orders = []
        for part in self.tied:
            merged = Merged.of(found, part.attributes)
            if merged.mine:
                factor = seen(part, merged)
                if factor is None:
                    raise finer(group, [at for at in part.attributes if at in group.attributes])
                orders.append(merged.order)
                found = merged.with_factor(factor)
        return found, orders[::-1]

    def tables(self, part: TableRun) -> TableRun | None:
        """A run of tables as it is seen; None if it is finer, or on attributes that are tied together."""
        if not self.parts:
            return part
        if any(at in part.attributes for each in self.tied for at in each.attributes):
            return None
        partitions, schema = self.partitions, self.schema(part.schema)
        if part.joint is None:
            used = [factor for factor in part.factors if factor is not None]
            own = {factor.attributes[0]: coarse_factor(factor, partitions) for factor in used}
            if any(factor is None for factor in own.values()):
                return None
            return replace(part, schema=schema, factors=tuple(own.get(at) for at in range(len(schema))))
        joint = [coarse_factor(group.factors[0], partitions) for group in part]
        kept = tuple(factor.queries for factor in joint if factor is not None)
        return replace(part, schema=schema, joint=kept) if len(kept) == len(joint) else None


def seen(part: JointClasses, merged: Merged) -> Factor | None:
    """The factors, over classes of a part's attributes, over joint classes; None if they are finer."""
    rows = merged.rows(part.attributes, [own.count for own in part.partitions])
    found = rows[:, part.joint.first]
    if np.abs(found[:, part.joint.classes] - rows).max() > ROUNDING * (1 + np.abs(rows).max()):
        return None
    others = merged.others(part.attributes)
    single = merged.factors[0].queries if len(merged.mine) == 1 else None
    labels = single.labels if isinstance(single, Explicit) else None
    sizes = (part.size, *(size for _, size in others))
    queries = Explicit(sizes, found.reshape(len(found), -1), merged.weights, labels)
    return Factor((part.place, *(at for at, _ in others)), queries)


def joint_classes(
    attributes: Sequence[int], partitions: Sequence[Classes], groups: Sequence[Table]
) -> JointClasses:
    """These attributes as one, by the joint classes that tables over the classes of each separate."""
    sizes, known = [own.count for own in partitions], dict(zip(attributes, partitions, strict=True))
    marks = np.zeros((cells_of_classes(partitions), 0))
    for group in groups:
        rows = Merged.of(coarse_table(group, known), attributes).rows(attributes, sizes)
        marks = np.column_stack([marks, equal_slices(rows, 1).classes])
    return JointClasses(tuple(attributes), tuple(partitions), Classes.of(marks))


def finer(group: Table, attributes: Sequence[int]) -> NotInSpan:
    """The error for a table that separates cells of one class."""
    return NotInSpan(
        f"table {group.name!r} tells apart cells that the plan measures together; add the table to the "
        "workload before planning",
        attributes,
    )


def classes_of(queries: Queries, place: int) -> Classes:
    """Classes of the cells of one of the queries' attributes: those that every query treats alike."""
    size = queries.sizes[place]
    match queries:
        case Combined():
            return queries.partitions[place]
        case Total():
            return Classes(np.zeros(size, dtype=np.int64))
        case Partition():
            return Classes(queries.classes)
        case Explicit() | Sets() if queries.count * queries.cells <= MATRIX_ENTRIES:
            return equal_slices(queries.matrix().reshape(queries.count, *queries.sizes), 1 + place)
    return Classes.every(size)


def coarsened(queries: Queries, partitions: Sequence[Classes]) -> Queries | None:
    """The same queries over classes of cells, or None if they separate cells of one class."""
    if not isinstance(queries, Combined) and all(own.trivial for own in partitions):
        return queries
    for place, own in enumerate(partitions):
        inner = classes_of(queries, place).classes
        if not np.array_equal(inner, inner[own.first][own.classes]):
            return None
    firsts = [own.first for own in partitions]
    sizes = tuple(own.count for own in partitions)
    match queries:
        case Combined():
            left = tuple(own.over(each) for own, each in zip(queries.partitions, partitions, strict=True))
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


def cells_of_classes(partitions: Sequence[Classes]) -> int:
    """Number of combinations of classes."""
    return math.prod(own.count for own in partitions)


def coarse_factor(factor: Factor, partitions: Mapping[int, Classes]) -> Factor | None:
    """The factor over classes of cells, or None if it separates cells of one class."""
    if not isinstance(factor.queries, Combined) and partitions.keys().isdisjoint(factor.attributes):
        return factor
    pairs = zip(factor.attributes, factor.queries.sizes, strict=True)
    along = [partitions[at] if at in partitions else Classes.every(size) for at, size in pairs]
    found = coarsened(factor.queries, along)
    return None if found is None else Factor(factor.attributes, found)


def coarse_table(group: Table, partitions: Mapping[int, Classes]) -> Table:
    """The table over classes of cells of some attributes; NotInSpan if it separates cells of one class."""
    pairs = [(factor, coarse_factor(factor, partitions)) for factor in group.factors]
    if beyond := [factor for factor, found in pairs if found is None]:
        raise finer(group, [at for factor in beyond for at in factor.attributes if at in partitions])
    return replace(group, factors=tuple(found for _, found in pairs if found is not None))


def combined_factors(parts: Sequence[Table | TableRun]) -> Iterator[tuple[Table, Factor]]:
    """The tables that look at classes of cells of several attributes, and the factors that do."""
    for part in parts:
        if isinstance(part, Table):
            yield from ((part, factor) for factor in part.factors if isinstance(factor.queries, Combined))
