"""A schema seen by kinds of cells: attributes by kinds of their cells, or several as one by joint kinds.

Cells that no query tells apart are of one kind. Where queries tie attributes together, combinations of kinds
that none tells apart are of one joint kind: the records that a condition selects are one, however many
attributes it looks at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from residua.errors import NotInSpan
from residua.linalg.classes import Classes, JointClasses, told_apart
from residua.schema import Integer, Schema
from residua.workload.coarse import cells_of_classes, coarse_factor, coarse_group, told_apart_by
from residua.workload.explicit import Explicit
from residua.workload.groups import Factor, Table
from residua.workload.merging import Merged, Order
from residua.workload.tables import TableRun

Array = NDArray[np.float64]

ROUNDING = 1e-9  # relative; differences this small are what rounding leaves


@dataclass(frozen=True, eq=False)
class View:
    """A schema with some attributes by kinds or joint kinds of their cells; each is part of one at most."""

    parts: tuple[JointClasses, ...] = ()

    @property
    def kinds(self) -> dict[int, Classes]:
        """Kinds of the cells of each attribute."""
        return {at: own for part in self.parts for at, own in zip(part.attributes, part.kinds, strict=True)}

    @property
    def tied(self) -> list[JointClasses]:
        """Those made of several attributes."""
        return [part for part in self.parts if len(part.attributes) > 1]

    def sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Numbers of cells of the attributes as they are seen."""
        seen = self._sizes()
        return tuple(seen.get(at, size) for at, size in enumerate(sizes))

    def _sizes(self) -> dict[int, int]:
        """Numbers of cells of the attributes that are seen by kinds."""
        gone = {at: 1 for part in self.parts for at in part.attributes}
        return gone | {part.place: part.size for part in self.parts}

    def schema(self, schema: Schema) -> Schema:
        """The schema as it is seen."""
        sizes = self._sizes()
        pairs = enumerate(zip(schema.names, schema.attributes, strict=True))
        return Schema({name: Integer(0, sizes[at] - 1) if at in sizes else own for at, (name, own) in pairs})

    def group(self, group: Table) -> tuple[Table, list[Order]]:
        """A table as it is seen, and how its queries get back into their order; NotInSpan if it is finer."""
        found = coarse_group(group, self.kinds) if self.parts else group
        if found is None:
            raise finer(group, told_apart_by(group, self.kinds))
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
        kinds, schema = self.kinds, self.schema(part.schema)
        if part.joint is None:
            own = {at: coarse_factor(Factor((at,), part.queries_of(at)), kinds) for at in part.attributes}
            if any(factor is None for factor in own.values()):
                return None
            return replace(part, schema=schema, factors=tuple(own.get(at) for at in range(len(schema))))
        joint = [coarse_factor(group.factors[0], kinds) for group in part]
        kept = tuple(factor.queries for factor in joint if factor is not None)
        return replace(part, schema=schema, joint=kept) if len(kept) == len(joint) else None


def seen(part: JointClasses, merged: Merged) -> Factor | None:
    """The factors, over kinds of a part's attributes, over joint kinds instead; None if they are finer."""
    rows = merged.rows(part.attributes, [own.count for own in part.kinds])
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
    attributes: Sequence[int], kinds: Sequence[Classes], groups: Sequence[Table]
) -> JointClasses:
    """These attributes as one, by the joint kinds that tables over the kinds of each tell apart."""
    sizes, known = [own.count for own in kinds], dict(zip(attributes, kinds, strict=True))
    marks = np.zeros((cells_of_classes(kinds), 0))
    for group in groups:
        coarse = coarse_group(group, known)
        if coarse is None:
            raise finer(group, told_apart_by(group, known))
        rows = Merged.of(coarse, attributes).rows(attributes, sizes)
        apart = told_apart(rows, 1).classes
        marks = np.column_stack([marks, apart])
    return JointClasses(tuple(attributes), tuple(kinds), Classes.of(marks))


def finer(group: Table, attributes: Sequence[int]) -> NotInSpan:
    """The error for a table that tells apart cells of one kind."""
    return NotInSpan(
        f"table {group.name!r} tells apart cells that the plan measures together; add the table to the "
        "workload before planning",
        attributes,
    )
