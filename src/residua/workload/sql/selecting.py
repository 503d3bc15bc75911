"""Statements beyond one count: several figures, HAVING, ORDER BY, LIMIT, WITH, subqueries, UNION ALL.

A statement is read twice in the same way: for a plan, where no answers are there yet and only the tables that
it asks for are kept, and for a release, which answers them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sqlglot import exp

from residua._arrays import Array, Indices
from residua._text import hint, listing
from residua.schema import Schema
from residua.workload.sql.factors import Grouper
from residua.workload.sql.figures import AskedTables, Column, Figure, Labels, stacked
from residua.workload.sql.people import People
from residua.workload.sql.reading import (
    STATEMENTS,
    Source,
    aliases_of,
    bare,
    clause_of,
    from_of,
    items_of,
    quoted,
    refuse_joins,
    shown,
)
from residua.workload.sql.scopes import Scope, numbered
from residua.workload.union import Workload

MOST_ROWS = 100_000  # of one statement: its labels are held one by one
SPELT_ALIKE = (exp.And, exp.Or, exp.Case, exp.If, exp.Count, exp.Sum, exp.Cast)
PARTS = ("expressions", "from", "where", "group", "having", "order", "limit", "offset", "with")


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Named columns of as many rows."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: int

    def column(self, name: str) -> Column | None:
        """The column of this name, whatever its case."""
        folded = [each.casefold() for each in self.names]
        return self.columns[folded.index(name.casefold())] if name.casefold() in folded else None

    def take(self, rows: Indices) -> "Relation":
        """Some of its rows, in this order."""
        return Relation(self.names, tuple(each.take(rows) for each in self.columns), len(rows))


def plain(tree: exp.Expression) -> bool:
    """Whether a statement is one count, grouped, which is a table like any other."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(key) for key in ("having", "order", "limit")):
        return not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery)
    clause, group = clause_of(tree, "from"), tree.args.get("group")
    if clause_of(tree, "with") or (clause and isinstance(clause.this, exp.Subquery)):
        return False
    figures = [each for each in map(bare, items_of(tree)) if each.find(exp.AggFunc, exp.Window, exp.Subquery)]
    if (group is not None and group.args.get("all") is True) or len(figures) > 1:
        return False
    return all(_one_count(each) for each in figures)


def _one_count(node: exp.Expression) -> bool:
    if isinstance(node, exp.Window):
        return isinstance(node.this, exp.Sum) and bool(node.args.get("order")) and _one_count(node.this.this)
    return isinstance(node, exp.Count) and isinstance(node.this, exp.Star)


def functions(tree: exp.Expression) -> bool:
    """Whether there are functions in it, which have several spellings."""
    return any(not isinstance(each, SPELT_ALIKE) for each in tree.find_all(exp.Func))


def listed(tree: exp.Expression) -> bool:
    """Whether it is one count by columns as they are: its answers are listed like those of any table."""
    known = (exp.Column, exp.Count, exp.Window)
    return plain(tree) and all(isinstance(bare(item), known) for item in items_of(tree))


def answered(
    schema: Schema, source: Source, tree: exp.Expression, answers: Callable[[Workload], Array]
) -> tuple[Relation, AskedTables]:
    """What a statement gives, and the tables that it was made of."""
    asked = AskedTables(schema, answers)
    return Reader(schema, source, asked).query(tree, {}), asked


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """How statements are turned to rows of answers."""

    schema: Schema
    source: Source
    asked: AskedTables

    def query(self, tree: exp.Expression, known: Mapping[str, Relation]) -> Relation:
        """The rows of a statement, which may name those of others."""
        tree = bare(tree)
        if isinstance(tree, exp.Subquery) and not tree.args.get("order"):
            tree = tree.this
        known = self._named(tree, known)
        if isinstance(tree, exp.Union):
            return self._union(tree, known)
        kind = f"{tree.key.upper()} is not supported; {STATEMENTS}"
        self.source.require(isinstance(tree, exp.Select), tree, kind)
        refuse_joins(self.source, tree)
        self.source.allow_only(tree, PARTS, f"here; {STATEMENTS}")
        found = [self._selected(scope, tree) for scope in self._scopes(tree, known)]
        whole = _below([each for each, _ in found])
        keys = [stacked(columns) for columns in zip(*(each for _, each in found), strict=True)]
        return self._cut(_sorted(whole, keys, tree.args.get("order")), tree)

    def _named(self, tree: exp.Expression, known: Mapping[str, Relation]) -> dict[str, Relation]:
        """The relations that a statement may name, those of its WITH included."""
        found = dict(known)
        clause = clause_of(tree, "with")
        for each in [] if clause is None else clause.expressions:
            found[each.alias.casefold()] = self.query(each.this, found)
        return found

    def _union(self, tree: exp.Expression, known: Mapping[str, Relation]) -> Relation:
        if tree.args.get("distinct"):
            raise self.source.refusal(tree, "UNION drops equal rows, and noisy ones are not; write UNION ALL")
        above, below = self.query(tree.this, known), self.query(tree.expression, known)
        kinds = [[isinstance(each, Labels) for each in part.columns] for part in (above, below)]
        if kinds[0] != kinds[1]:
            raise self.source.refusal(tree, "UNION ALL needs the same kinds of columns above and below")
        found = _below([above, replace(below, names=above.names)])
        rows = Rows(self, found, known)
        order = tree.args.get("order")
        keys = [] if order is None else [_key(rows, each, found) for each in order.expressions]
        return self._cut(_sorted(found, keys, order), tree)

    def _scopes(self, tree: exp.Expression, known: Mapping[str, Relation]) -> list[Scope]:
        """The rows that a SELECT is about: groups of people, or rows of another statement."""
        table = from_of(self.source, tree).this
        if isinstance(table, exp.Subquery):
            return [self._grouped(Rows(self, self.query(table, known), known), tree)]
        if isinstance(table, exp.Table) and not table.db and table.name.casefold() in known:
            return [self._grouped(Rows(self, known[table.name.casefold()], known), tree)]
        return self._people(tree, known)

    def _people(self, tree: exp.Expression, known: Mapping[str, Relation]) -> list[Scope]:
        grouper = Grouper.of(self.schema, self.source, tree)
        items = grouper.items
        if any(isinstance(bare(item), exp.Star) for item in items):
            raise self.source.refusal(
                tree, f"records of people are not published; name columns and COUNT(*); {STATEMENTS}"
            )
        group, where = tree.args.get("group"), tree.args.get("where")
        if group is not None and group.args.get("all") is True:
            own = [item for item in items if not item.find(exp.AggFunc, exp.Window, exp.Subquery)]
            group = exp.Group(expressions=[each.copy() for each in own if each.find(exp.Column)])
        sets = [()] if group is None else grouper.sets(group)
        if group is None and not any(item.find(exp.AggFunc) for item in items):
            raise self.source.refusal(tree, f"records of people are not published; count them; {STATEMENTS}")
        every = [member for chosen in sets for member in chosen]
        condition, subquery = None if where is None else where.this, partial(self.subquery, known=known)
        return [People(grouper, chosen, every, condition, self.asked, subquery) for chosen in sets]

    def subquery(self, node: exp.Expression, known: Mapping[str, Relation]) -> Figure:
        """The one figure of a subquery that stands for a number."""
        found = self.query(node, known)
        if found.rows != 1 or len(found.columns) != 1 or not isinstance(found.columns[0], Figure):
            raise self.source.refusal(
                node, "a subquery that stands for a number needs one row and one column"
            )
        return found.columns[0]

    def _grouped(self, rows: "Rows", tree: exp.Expression) -> Scope:
        """Rows of another statement, those that WHERE leaves, in groups if they are grouped."""
        where, group = tree.args.get("where"), tree.args.get("group")
        if where is not None:
            rows = Rows(self, rows.relation.take(np.flatnonzero(rows.mask(where.this))), rows.known)
        items = items_of(tree)
        if group is None and not any(_aggregates(item) for item in items):
            return rows
        named = aliases_of(tree)
        nodes: list[exp.Expression] = []
        if group is not None and group.args.get("all") is True:
            nodes = [item for item in items if not _aggregates(item)]
        for each in [] if group is None else group.expressions:
            numbered_item = isinstance(each, exp.Literal) and not each.is_string
            nodes.append(
                items[int(each.this) - 1] if numbered_item else named.get(each.sql().casefold(), each)
            )
        return Groups(rows, nodes)

    def _selected(self, scope: Scope, tree: exp.Expression) -> tuple[Relation, list[Column]]:
        """The columns of SELECT on the rows that HAVING leaves, and what they are ordered by."""
        names: list[str] = []
        columns: list[Column] = []
        for item in tree.expressions:
            inner = bare(item.this if isinstance(item, exp.Alias) else item)
            if isinstance(inner, exp.Star) and isinstance(scope, Rows):
                names += scope.relation.names
                columns += scope.relation.columns
                continue
            names.append(item.alias_or_name or shown(inner))
            columns.append(scope.value(inner))
        found = Relation(_distinct(names), tuple(columns), scope.rows)
        if found.rows > MOST_ROWS:
            raise self.source.refusal(tree, f"{found.rows:,} rows are more than {MOST_ROWS:,}; group by less")
        having, order = tree.args.get("having"), tree.args.get("order")
        keys = [] if order is None else [_key(scope, each, found) for each in order.expressions]
        if having is not None:
            kept = np.flatnonzero(Named(scope, found).mask(having.this))
            return found.take(kept), [key.take(kept) for key in keys]
        return found, keys

    def _cut(self, found: Relation, tree: exp.Expression) -> Relation:
        """The rows that OFFSET and LIMIT leave."""
        start, stop = (self._whole(tree.args.get(key)) for key in ("offset", "limit"))
        first = start or 0
        last = found.rows if stop is None else min(found.rows, first + stop)
        return found.take(np.arange(first, max(first, last)))

    def _whole(self, node: exp.Expression | None) -> int | None:
        if node is None:
            return None
        text = str(bare(node.expression).this)
        if not text.isdecimal():
            raise self.source.refusal(node, f"{quoted(node)}: a limit is a whole number")
        return int(text)


def _aggregates(node: exp.Expression) -> bool:
    """Whether an expression takes rows together, not within a window of each."""
    return any(not isinstance(each.parent, exp.Window) for each in node.find_all(exp.AggFunc))


def _below(parts: Sequence[Relation]) -> Relation:
    columns = zip(*(part.columns for part in parts), strict=True)
    return Relation(parts[0].names, tuple(map(stacked, columns)), sum(part.rows for part in parts))


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with a number where one is there already."""
    found: list[str] = []
    for name in names:
        tries = (name if at == 1 else f"{name}_{at}" for at in range(1, len(names) + 1))
        found.append(next(each for each in tries if each not in found))
    return tuple(found)


def _key(scope: Scope, node: exp.Expression, selected: Relation) -> Column:
    """What rows are ordered by: a column of SELECT by number or name, or any expression."""
    inner = bare(node.this if isinstance(node, exp.Ordered) else node)
    if isinstance(inner, exp.Literal) and not inner.is_string:
        if not 1 <= int(inner.this) <= len(selected.columns):
            raise scope.refusal(inner, f"there is no item {inner.this} in SELECT to order by")
        return selected.columns[int(inner.this) - 1]
    return Named(scope, selected).value(inner)


def _sorted(found: Relation, keys: Sequence[Column], order: exp.Expression | None) -> Relation:
    if order is None:
        return found
    ranks = []
    for key, each in zip(keys, order.expressions, strict=True):
        own = key.ranks if isinstance(key, Labels) else key.values
        own = np.where(np.isfinite(own), own, np.nan)  # what is missing comes last, either way
        ranks.append(-own if each.args.get("desc") else own)
    return found.take(np.lexsort(ranks[::-1]))


class Named(Scope):
    """A scope in which the columns of SELECT go by their names too."""

    def __init__(self, scope: Scope, selected: Relation) -> None:
        self.inner, self.selected = scope, selected
        self.source, self.rows, self.subquery = scope.source, scope.rows, scope.subquery

    def leaf(self, node: exp.Expression) -> Column | None:
        found = self.selected.column(node.name) if isinstance(node, exp.Column) and not node.table else None
        return self.inner.leaf(node) if found is None else found

    def aggregate(self, node: exp.Expression) -> Column | None:
        return self.inner.aggregate(node)


class Rows(Scope):
    """The rows of another statement."""

    def __init__(self, reader: Reader, relation: Relation, known: Mapping[str, Relation]) -> None:
        self.relation, self.known = relation, known
        self.source, self.rows = reader.source, relation.rows
        self.subquery = partial(reader.subquery, known=known)

    def leaf(self, node: exp.Expression) -> Column | None:
        if not isinstance(node, exp.Column):
            return None
        if (found := self.relation.column(node.name)) is None:
            names = self.relation.names
            near = f"{hint(node.name, names)}; there is {listing(names)}"
            raise self.refusal(node, f"there is no column {node.name!r} here{near}")
        return found

    def aggregate(self, node: exp.Expression) -> Column | None:
        if isinstance(node, exp.AggFunc):
            raise self.refusal(node, f"{quoted(node)} needs GROUP BY, or OVER ()")
        return None


class Groups(Scope):
    """Groups of rows of another statement; sums and means of their figures."""

    def __init__(self, inner: Rows, nodes: Sequence[exp.Expression]) -> None:
        self.inner, self.source, self.subquery = inner, inner.source, inner.subquery
        self.owners, self.rows = numbered([inner.key(node) for node in nodes], inner.rows)
        self.first = np.unique(self.owners, return_index=True)[1] if len(self.owners) else np.arange(0)
        self.nodes = {node.sql().casefold(): node for node in nodes}

    def leaf(self, node: exp.Expression) -> Column | None:
        if node.find(exp.AggFunc, exp.Window, exp.Subquery) or node.find(exp.Column) is None:
            return None
        if node.sql().casefold() not in self.nodes:
            raise self.refusal(node, f"{quoted(node)} is selected but not in GROUP BY; add it there")
        return self.inner.value(node).take(self.first)

    def aggregate(self, node: exp.Expression) -> Column | None:
        if not isinstance(node, exp.AggFunc | exp.Filter):
            return None
        if not isinstance(node, exp.Sum | exp.Avg):
            raise self.unknown(node)
        found = self.inner.figure(node.this).summed(self.owners, self.rows)
        sizes = Figure.constant(np.bincount(self.owners, minlength=self.rows), self.rows)
        return found.over(sizes) if isinstance(node, exp.Avg) else found
