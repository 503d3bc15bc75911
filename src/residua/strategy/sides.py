"""Mechanisms that measure kinds of cells instead of cells, alone or beside one that measures cells.

A mechanism planned for kinds of cells is one for cells: a record counts in the kind of its cell. Beside it
may stand a mechanism for tables that tell all cells apart; the two share out the privacy, and a query is the
sum of a part for each (`lifting`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw
from residua.strategy.lifting import Lift, split_by
from residua.strategy.mechanism import Mechanism, totals_by_table
from residua.workload import Group, Tables
from residua.workload.merging import Order
from residua.workload.views import View

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A mechanism for the schema as `view` shows it.

    `spans` are those of a real mechanism that is still to be rounded to integers (see `Draft`).
    """

    mechanism: Mechanism
    view: View
    spans: Mapping[int, Integers | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SidesStrategy:
    """One side by kinds of cells; or one by cells, then one by kinds.

    The `lifts` say how queries are split between two sides; each is about attributes of its own.
    """

    sides: tuple[Side, ...]
    lifts: tuple[Lift, ...] = ()

    kind: ClassVar[str] = "sides"

    @property
    def law(self) -> NoiseLaw:
        """The law of the noise of every side."""
        return self.sides[0].mechanism.law

    def cost(self) -> float:
        """Privacy cost of adding or removing one record: the sum of the sides' costs."""
        return math.fsum(side.mechanism.cost() for side in self.sides)

    def exact_cost(self) -> Fraction:
        """Privacy cost of an integer strategy, exactly."""
        return sum((side.mechanism.exact_cost() for side in self.sides), Fraction(0))

    def replacement_cost(self) -> float:
        """A bound on the privacy cost of replacing one record."""
        return math.fsum(side.mechanism.replacement_cost() for side in self.sides)

    def scaled(self, factor: float) -> "SidesStrategy":
        """The same measurements at `factor` times the privacy cost."""
        return self.with_mechanisms(*(side.mechanism.scaled(factor) for side in self.sides))

    def with_mechanisms(self, *mechanisms: Mechanism) -> "SidesStrategy":
        """The same sides with other mechanisms."""
        pairs = zip(self.sides, mechanisms, strict=True)
        return replace(self, sides=tuple(replace(side, mechanism=found) for side, found in pairs))

    def split(self, group: Group) -> "Asked":
        """What a table asks of each side; NotInSpan if it tells apart what is measured together."""
        if not self.lifts:
            return Asked(((0, *self.sides[0].view.group(group)),))
        split = split_by(self.lifts, group)
        pairs = enumerate((split.fine, split.coarse))
        found = ((at, *self.sides[at].view.group(asked)) for at, asked in pairs if asked is not None)
        return Asked(tuple(found), split.order)

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        return self.split(group).added_up(lambda at, asked: self.sides[at].mechanism.variances(asked))

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        found = self.split(group).parts
        return math.fsum(self.sides[at].mechanism.total(asked, weighted=weighted) for at, asked, _ in found)

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, Tables):
            seen = self.run(part)
            if seen is not None:
                return self.sides[0].mechanism.totals(seen)
        return totals_by_table(self, part)

    def run(self, tables: Tables) -> Tables | None:
        """A run of tables as the first side sees it; None if not all of it is asked of that side."""
        if all(_all_settled(lift, tables) for lift in self.lifts):
            return self.sides[0].view.tables(tables)
        return None

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        found = self.split(group).parts
        if len(found) == 1:
            return self.sides[found[0][0]].mechanism.largest(found[0][1])
        return float(self.variances(group).max()) if group.listable else math.nan

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        one, two = self.split(left), self.split(right)
        result = np.zeros((left.count, right.count))
        for at, rows, orders in one.parts:
            for other, columns, others in two.parts:
                if at == other:
                    found = self.sides[at].mechanism.covariance(rows, columns)
                    result += in_order(others, in_order(orders, found), axis=1)
        return two.order.arranged(one.order.arranged(result), axis=1)

    def describe(self) -> Iterator[str]:
        """Lines for people: what each side measures, and its share of the privacy."""
        whole = self.cost()
        for side in self.sides:
            what = "kinds of cells" if side.view.parts else "cells"
            share = (
                f", {side.mechanism.cost() / whole:.1%} of the privacy cost" if len(self.sides) > 1 else ""
            )
            yield f"by {what}{share}:"
            yield from (f"  {line}" for line in side.mechanism.describe())

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its sides and how queries are split, with every array in `arrays`."""
        sides = []
        for number, side in enumerate(self.sides):
            own: dict[str, NDArray[Any]] = {}
            record = side.mechanism.record(own)
            for at, part in enumerate(side.view.parts):
                own[f"view.{at}"] = part.joint.classes
                own |= {f"view.{at}.{place}": kinds.classes for place, kinds in enumerate(part.kinds)}
            arrays.update({f"side.{number}.{key}": array for key, array in own.items()})
            sides.append({"mechanism": record, "view": [list(part.attributes) for part in side.view.parts]})
        lifts = []
        for number, lift in enumerate(self.lifts):
            arrays[f"lift.{number}.rows"] = lift.rows
            for at, kinds in lift.by_attribute.items():
                arrays[f"lift.{number}.kinds.{at}"] = kinds.classes
            settled = [list(known) for known in lift.settled]
            lifts.append({"attributes": list(lift.attributes), "settled": settled})
        return {"kind": self.kind, "sides": sides, "lifts": lifts}


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a table asks of which sides, in the order that each sees, and how to get back to its own."""

    parts: tuple[tuple[int, Group, list[Order]], ...]
    order: Order = field(default_factory=Order)

    def added_up(self, figures: Callable[[int, Group], Array]) -> Array:
        """The sum over the sides of figures of all queries, in the order of the table."""
        found = [in_order(orders, figures(at, asked)) for at, asked, orders in self.parts]
        return self.order.arranged(np.sum(found, axis=0))


def in_order(orders: Sequence[Order], values: Array, axis: int = 0) -> Array:
    """Numbers of all queries along an axis, brought back to an order step by step."""
    for order in orders:
        values = order.arranged(values, axis)
    return values


def _all_settled(lift: Lift, part: Tables) -> bool:
    """Whether nothing that these tables ask is beyond what is settled."""
    tied = np.zeros(len(part.schema), dtype=np.bool_)
    tied[list(lift.attributes)] = True
    inside = np.unique(np.where(tied[part.subsets], part.subsets, -1), axis=0)
    return all(lift.is_settled(row) for row in inside.tolist())
