"""Statements to tables: what SELECT lists, FROM names, WHERE leaves and GROUP BY splits."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from residua.errors import WorkloadError
from residua.schema import Schema
from residua.workload.intervals import Prefix
from residua.workload.queries import Identity
from residua.workload.sql.columns import Columns
from residua.workload.sql.conditions import Restriction, restrictions
from residua.workload.sql.factors import factors
from residua.workload.sql.grouping import Grouped, Grouper
from residua.workload.sql.reading import STATEMENTS, Source, bare, quoted, shown
from residua.workload.tables import NAME_WIDTH, Factor, Table, checked_weight, table_name

CUMULATIVE = "cumulative counts are SUM(COUNT(*)) OVER (PARTITION BY the other columns ORDER BY age)"


def groups_of(schema: Schema, text: str, name: str | None, weight: float) -> tuple[Table, ...]:
    """The tables of all statements in a text, in order."""
    source = Source(text)
    factor = checked_weight(weight, "SQL")
    try:
        trees = source.statements()
        groups = tuple(group for tree in trees for group in _groups(schema, source, tree, name, factor))
        source.check_read(trees)
        return groups
    except RecursionError:
        raise source.refusal_at(0, "this is nested too deeply to be read; split the statement") from None


def _groups(
    schema: Schema, source: Source, tree: exp.Expression, name: str | None, weight: float
) -> list[Table]:
    if not isinstance(tree, exp.Select):
        raise source.refusal(
            tree, f"{tree.key.upper()} is not supported; {STATEMENTS}, several with ; between"
        )
    source.allow_only(tree, ("expressions", "from", "where", "group"), f"here; {STATEMENTS}")
    columns = Columns(schema, source, _tables(source, tree))
    items = tuple(item.this if isinstance(item, exp.Alias) else item for item in tree.expressions)
    named = [item for item in tree.expressions if isinstance(item, exp.Alias)]
    grouper = Grouper(columns, items, {item.alias.casefold(): item.this for item in named})
    group = tree.args.get("group")
    sets = [()] if group is None else grouper.sets(group)
    counted = _counted(source, tree, items)
    _check_selected(grouper, [item for item in items if item is not counted], sets)
    if isinstance(counted, exp.Window):
        sets = [_cumulative(grouper, counted, sets)]
    where = tree.args.get("where")
    left = [] if where is None else restrictions(columns, where.this)
    said = "" if where is None else f" where {shown(where.this)}"
    return [_group(columns, tree, chosen, left, said, name, weight) for chosen in sets]


def _group(
    columns: Columns,
    tree: exp.Select,
    grouped: Sequence[Grouped],
    left: Sequence[Restriction],
    said: str,
    name: str | None,
    weight: float,
) -> Table:
    title = table_name([columns.schema.names[member.attribute] for member in grouped])
    if said:
        title = textwrap.shorten(title + said, NAME_WIDTH, placeholder=" ...")
    try:
        asked = [Factor((member.attribute,), member.queries) for member in grouped]
        return Table(name or title, factors(columns.schema, asked, left), weight)
    except WorkloadError as error:
        raise columns.source.refusal(tree, str(error)) from error


def _tables(source: Source, tree: exp.Select) -> tuple[str, ...]:
    """What the one table in FROM is called."""
    clause = tree.args.get("from_") or tree.args.get("from")
    if clause is None:
        raise source.refusal(tree, f"FROM is missing; {STATEMENTS}")
    table = clause.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise source.refusal(clause, f"FROM needs the name of one table; {STATEMENTS}")
    source.allow_only(table, ("this", "db", "catalog", "alias"), "in FROM; it needs the name of one table")
    alias = table.args.get("alias")
    if alias is not None:
        source.allow_only(alias, ("this",), "in FROM; it needs the name of one table")
    return (table.alias_or_name,)


def _counted(source: Source, tree: exp.Select, items: Sequence[exp.Expression]) -> exp.Expression:
    """The one item of SELECT that counts."""
    found = [item for item in items if isinstance(item, exp.Count | exp.Window)]
    if len(found) != 1:
        place = found[1] if found else tree
        raise source.refusal(place, f"SELECT needs COUNT(*) once; {STATEMENTS}")
    (item,) = found
    if isinstance(item, exp.Window):
        if not isinstance(item.this, exp.Sum):
            raise source.refusal(item, f"{quoted(item)} is not supported; {CUMULATIVE}")
        source.allow_only(item.this, ("this",), f"here; {CUMULATIVE}")
    _check_count(source, item.this.this if isinstance(item, exp.Window) else item)
    return item


def _check_count(source: Source, node: exp.Expression) -> None:
    if not isinstance(node, exp.Count) or not isinstance(node.this, exp.Star):
        raise source.refusal(node, f"{quoted(node)} is not supported; only COUNT(*) is; {CUMULATIVE}")
    source.allow_only(node, ("this", "big_int"), "in COUNT")
    source.allow_only(node.this, (), "in COUNT(*)")


def _check_selected(
    grouper: Grouper, items: Sequence[exp.Expression], sets: Sequence[Sequence[Grouped]]
) -> None:
    """Nothing, or the refusal of a column in SELECT that is not grouped by."""
    known = {member for chosen in sets for member in chosen}
    for item in items:
        if isinstance(bare(item), exp.Star):
            raise grouper.columns.source.refusal(item, f"* is not supported; name the columns; {STATEMENTS}")
        if grouper.expression(item) not in known:
            raise grouper.columns.source.refusal(
                item, f"{quoted(item)} is selected but not in GROUP BY; add it there or leave it out"
            )


def _cumulative(
    grouper: Grouper, window: exp.Window, sets: Sequence[tuple[Grouped, ...]]
) -> tuple[Grouped, ...]:
    """The groups of a cumulative count: running along the column of ORDER BY."""
    source = grouper.columns.source
    source.allow_only(window, ("this", "partition_by", "order", "spec", "over"), f"in OVER; {CUMULATIVE}")
    order = window.args.get("order")
    if order is None or len(order.expressions) != 1:
        raise source.refusal(window, f"OVER needs ORDER BY one column; {CUMULATIVE}")
    _check_frame(source, window)
    source.allow_only(order, ("expressions",), f"in ORDER BY; {CUMULATIVE}")
    (ordered,) = order.expressions
    source.allow_only(ordered, ("this",), "in ORDER BY; counts run upwards")
    if len(sets) != 1:
        raise source.refusal(
            window, f"cumulative counts need a plain GROUP BY, not grouping sets; {CUMULATIVE}"
        )
    along = grouper.grouped(ordered.this)
    schema = grouper.columns.schema
    if not isinstance(along.queries, Identity) or not schema.attributes[along.attribute].numeric:
        name = schema.names[along.attribute]
        raise source.refusal(
            ordered,
            f"counts run along a column of numbers, not along {name!r}; rs.prefix takes labels in order",
        )
    parts = {grouper.grouped(node) for node in window.args.get("partition_by") or []}
    if along not in sets[0] or parts != set(sets[0]) - {along}:
        raise source.refusal(
            window,
            f"PARTITION BY and ORDER BY together must name the columns of GROUP BY, each once; {CUMULATIVE}",
        )
    size = schema.sizes[along.attribute]
    return tuple(replace(each, queries=Prefix(size)) if each == along else each for each in sets[0])


def _check_frame(source: Source, window: exp.Window) -> None:
    spec = window.args.get("spec")
    if spec is None:
        return
    source.allow_only(spec, ("kind", "start", "start_side", "end"), f"in OVER; {CUMULATIVE}")
    start, end = (str(spec.args.get(key) or "").upper() for key in ("start", "end"))
    side, kind = (str(spec.args.get(key) or "").upper() for key in ("start_side", "kind"))
    frame = (start, side) == ("UNBOUNDED", "PRECEDING") and end in ("", "CURRENT ROW")
    if not frame or kind not in ("ROWS", "RANGE"):
        raise source.refusal(window, f"only ROWS UNBOUNDED PRECEDING is supported in OVER; {CUMULATIVE}")
