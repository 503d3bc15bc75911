"""GROUP BY: columns, CASE buckets and grouping sets to the queries that they ask of attributes."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from sqlglot import exp

from residua._limits import GROUPING_SETS
from residua.schema.coding import short
from residua.workload.queries import Identity
from residua.workload.sql.conditions import constant, region_of
from residua.workload.sql.factors import compressed
from residua.workload.sql.reading import Columns, bare, shown
from residua.workload.tables import Factor

SUPPORTED = "groups are columns and CASE .. END on one column"


@dataclass(frozen=True, slots=True)
class Grouper:
    """What the expressions of one statement mean; it may name the items of SELECT by alias or number."""

    columns: Columns
    items: tuple[exp.Expression, ...]
    aliases: Mapping[str, exp.Expression]  # by case-folded name

    def grouped(self, node: exp.Expression) -> Factor:
        """What an expression of GROUP BY, PARTITION BY or ORDER BY groups by."""
        node = bare(node)
        if isinstance(node, exp.Column) and not node.table and node.name.casefold() in self.aliases:
            meant = self.aliases[node.name.casefold()]
            if self.columns.find(node.name) and shown(meant) != shown(node):
                raise self.columns.refusal(
                    node,
                    f"{short(node.name)} is a column and also the alias of something else; rename the alias",
                )
            return self.expression(meant)
        return self.expression(node)

    def expression(self, node: exp.Expression) -> Factor:
        """What a column or a CASE groups by."""
        node = bare(node)
        if isinstance(node, exp.Case):
            return _case(self.columns, node)
        position = self.columns.position(node, SUPPORTED)
        return Factor((position,), Identity(self.columns.schema.sizes[position]))

    def sets(self, group: exp.Expression) -> list[tuple[Factor, ...]]:
        """The grouping sets of a GROUP BY, each without repetitions."""
        self.columns.source.allow_only(group, ("expressions",), "in GROUP BY; write ROLLUP (a, b) and such")
        if group.args.get("all") is not None:
            raise self.columns.refusal(group, "GROUP BY DISTINCT is not supported; list each set once")
        parts = [self._alternatives(node) for node in group.expressions]
        total = 1
        for part in parts:
            total *= len(part)
            self._refuse_many(group, total)
        found = []
        for chosen in product(*parts):
            members = tuple(dict.fromkeys(member for part in chosen for member in part))
            attributes = [member.attributes[0] for member in members]
            for attribute in attributes:
                if attributes.count(attribute) > 1:
                    name = self.columns.schema.names[attribute]
                    raise self.columns.refusal(group, f"column {name!r} is grouped in two ways at once")
            found.append(members)
        return found

    def _alternatives(self, node: exp.Expression) -> list[tuple[Factor, ...]]:
        """The grouping sets of one part of GROUP BY."""
        # Only here does a number mean an item of SELECT; in grouping sets and windows databases differ.
        if isinstance(node, exp.Literal) and not node.is_string and isinstance(node.parent, exp.Group):
            return [(self.expression(self._numbered(node)),)]
        if not isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            return [self._members(node)]
        if not node.expressions:
            raise self.columns.refusal(node, "this needs columns, such as ROLLUP (a, b)")
        if isinstance(node, exp.GroupingSets):
            return [each for part in node.expressions for each in self._alternatives(part)]
        parts = [self._members(part) for part in node.expressions]
        if isinstance(node, exp.Rollup):
            kept = [range(size) for size in range(len(parts), -1, -1)]
            return [tuple(member for at in places for member in parts[at]) for places in kept]
        self._refuse_many(node, 2 ** len(parts))
        chosen = [each for size in range(len(parts), -1, -1) for each in combinations(parts, size)]
        return [tuple(member for part in each for member in part) for each in chosen]

    def _members(self, node: exp.Expression) -> tuple[Factor, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(self.grouped(each) for each in node.expressions)
        return (self.grouped(node),)

    def _numbered(self, node: exp.Literal) -> exp.Expression:
        text = str(node.this)
        if not text.isdecimal() or not 1 <= len(text) <= 9 or not 1 <= int(text) <= len(self.items):
            raise self.columns.refusal(node, f"there is no item {text} in SELECT; it has {len(self.items)}")
        return self.items[int(text) - 1]

    def _refuse_many(self, node: exp.Expression, sets: int) -> None:
        if sets > GROUPING_SETS:
            raise self.columns.refusal(
                node, f"this makes {sets:,} grouping sets, more than {GROUPING_SETS:,} in one statement"
            )


def _case(columns: Columns, node: exp.Case) -> Factor:
    """The groups of a CASE: its results, each once, in the order written; cells without one are 'NULL'."""
    columns.source.allow_only(node, ("this", "ifs", "default"), "in CASE")
    attribute: int | None = None
    numbers: dict[str, int] = {}
    classes = np.empty(0, dtype=np.int64)
    for branch in node.args["ifs"]:
        condition = branch.this
        if node.this is not None:
            condition = exp.EQ(this=node.this.copy(), expression=condition.copy())
        region = region_of(columns, condition)
        if len(region.attributes) != 1 or attribute not in (None, region.attributes[0]):
            raise columns.refusal(branch, "CASE groups by one column; this condition looks at another")
        if attribute is None:
            attribute = region.attributes[0]
            classes = np.full(columns.schema.sizes[attribute], -1, dtype=np.int64)
        number = numbers.setdefault(_label(columns, branch.args.get("true")), len(numbers))
        classes[(classes < 0) & region.cells] = number
    if attribute is None:
        raise columns.refusal(node, "CASE needs a WHEN")
    classes[classes < 0] = numbers.setdefault(_label(columns, node.args.get("default")), len(numbers))
    return Factor((attribute,), compressed(classes, tuple(numbers)))


def _label(columns: Columns, node: exp.Expression | None) -> str:
    if node is None or isinstance(bare(node), exp.Null):
        return "NULL"
    return str(constant(columns, node))
