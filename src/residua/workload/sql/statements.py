"""Statements to tables: what SELECT lists, FROM names, WHERE leaves and GROUP BY splits; conditions alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from sqlglot import exp

from residua._arrays import Array
from residua.errors import WorkloadError
from residua.schema import Schema
from residua.workload.families import prefix
from residua.workload.queries import Identity
from residua.workload.sql.conditions import restrictions
from residua.workload.sql.factors import UNGROUPED, Grouper, factors, finest
from residua.workload.sql.reading import STATEMENTS, Columns, Source, bare, quoted, refuse_joins, shown
from residua.workload.sql.selecting import Relation, answered, functions, listed, plain
from residua.workload.tables import Factor, Table, bound, checked_weight, table_name
from residua.workload.union import Workload

DEEP = "this is nested too deeply to be read; split the statement"
CUMULATIVE = "cumulative counts are SUM(COUNT(*)) OVER (PARTITION BY the other columns ORDER BY age)"


def groups_of(schema: Schema, text: str, name: str | None, weight: float) -> tuple[Table, ...]:
    """The tables of all statements in a text, in order."""
    source = Source(text)
    factor = checked_weight(weight, "SQL")
    try:
        trees = source.statements(schema.names)
        groups = tuple(group for tree in trees for group in _groups(schema, source, tree, name, factor))
        source.check_read(trees, exactly=all(map(plain, trees)) and not any(map(functions, trees)))
        return groups
    except RecursionError:
        raise source.refusal_at(0, DEEP) from None


def rows_of(
    schema: Schema, text: str, answers: Callable[[Workload], Array]
) -> tuple[Relation, Workload] | None:
    """The rows of a statement beyond plain counts, and the tables that they were made of; otherwise None."""
    source = Source(text)
    try:
        trees = source.statements(schema.names)
        if all(map(listed, trees)):
            return None
        if len(trees) > 1:
            raise source.refusal(trees[1], "one statement at a time, unless all are plain counts")
        found, asked = answered(schema, source, trees[0], answers)
        source.check_read(trees, exactly=False)
        return found, asked.work
    except RecursionError:
        raise source.refusal_at(0, DEEP) from None


def _groups(
    schema: Schema, source: Source, tree: exp.Expression, name: str | None, weight: float
) -> Iterator[Table]:
    if not plain(tree):
        tables = answered(schema, source, tree, lambda work: np.ones(work.count))[1].tables
        yield from (replace(table, name=name or table.name, weight=weight) for table in tables)
        return
    kind = f"{tree.key.upper()} is not supported; {STATEMENTS}, several with ; between"
    source.require(isinstance(tree, exp.Select), tree, kind)
    refuse_joins(source, tree)
    source.allow_only(tree, ("expressions", "from", "where", "group"), f"here; {STATEMENTS}")
    grouper = Grouper.of(schema, source, tree)
    group, where = tree.args.get("group"), tree.args.get("where")
    sets = [()] if group is None else grouper.sets(group)
    counted = _counted(source, tree, grouper.items)
    _check_selected(grouper, [item for item in grouper.items if item is not counted], sets)
    if isinstance(counted, exp.Window):
        sets = [_cumulative(grouper, counted, sets)]
    left = [] if where is None else restrictions(grouper.columns, where.this)
    for chosen in map(finest, sets):
        names = [name for member in chosen for name in member.names(schema)]
        title = table_name(names, None if where is None else shown(where.this))
        with source.placing(tree, WorkloadError):
            made = Table(name or title, factors(schema, chosen, left), weight)
        yield made


def _counted(source: Source, tree: exp.Expression, items: Sequence[exp.Expression]) -> exp.Expression:
    """The one item of SELECT that counts."""
    found = [item for item in items if isinstance(item, exp.Count | exp.Window)]
    if len(found) != 1:
        raise source.refusal(found[1] if found else tree, f"SELECT needs COUNT(*) once; {STATEMENTS}")
    (item,) = found
    count = item
    if isinstance(item, exp.Window):
        if not isinstance(item.this, exp.Sum):
            raise source.refusal(item, f"{quoted(item)} is not supported; {CUMULATIVE}")
        source.allow_only(item.this, ("this",), f"here; {CUMULATIVE}")
        count = item.this.this
    if not isinstance(count, exp.Count) or not isinstance(count.this, exp.Star):
        raise source.refusal(count, f"{quoted(count)} is not supported; only COUNT(*) is; {CUMULATIVE}")
    source.allow_only(count, ("this", "big_int"), "in COUNT")
    source.allow_only(count.this, (), "in COUNT(*)")
    return item


def _check_selected(
    grouper: Grouper, items: Sequence[exp.Expression], sets: Sequence[Sequence[Factor]]
) -> None:
    """Nothing, or the refusal of a column in SELECT that is not grouped by."""
    known = {member for chosen in sets for member in chosen}
    for item in items:
        if isinstance(bare(item), exp.Star):
            raise grouper.columns.refusal(item, f"* is not supported; name the columns; {STATEMENTS}")
        if grouper.expression(item) not in known:
            raise grouper.columns.refusal(item, f"{quoted(item)} {UNGROUPED}")


def _cumulative(
    grouper: Grouper, window: exp.Window, sets: Sequence[tuple[Factor, ...]]
) -> tuple[Factor, ...]:
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
    plain = "cumulative counts need a plain GROUP BY, not grouping sets"
    source.require(len(sets) == 1, window, f"{plain}; {CUMULATIVE}")
    along = grouper.grouped(ordered.this)
    schema, (name,) = grouper.columns.schema, along.names(grouper.columns.schema)
    numbers = (isinstance(along.queries, Identity) or along.queries.level) and schema[name].numeric
    labels = f"counts run along a column of numbers, not along {name!r}; rs.prefix takes labels in order"
    source.require(bool(numbers), ordered, labels)
    parts = {grouper.grouped(node) for node in window.args.get("partition_by") or []}
    named = along in sets[0] and parts == set(sets[0]) - {along}
    once = "PARTITION BY and ORDER BY together must name the columns of GROUP BY, each once"
    source.require(named, window, f"{once}; {CUMULATIVE}")
    running = replace(along, queries=bound(prefix, schema, [name]))
    return tuple(running if each == along else each for each in sets[0])


def _check_frame(source: Source, window: exp.Window) -> None:
    spec = window.args.get("spec")
    if spec is None:
        return
    source.allow_only(spec, ("kind", "start", "start_side", "end"), f"in OVER; {CUMULATIVE}")
    words = (str(spec.args.get(key) or "").upper() for key in ("start", "start_side", "end", "kind"))
    start, side, end, kind = words
    frame = (start, side) == ("UNBOUNDED", "PRECEDING") and end in ("", "CURRENT ROW")
    only = f"only ROWS UNBOUNDED PRECEDING is supported in OVER; {CUMULATIVE}"
    source.require(frame and kind in ("ROWS", "RANGE"), window, only)


_BEFORE = "SELECT COUNT(*) FROM t WHERE "
_PLAIN = ("expressions", "from", "where")


def restricted(schema: Schema, asked: Sequence[Factor], condition: str) -> tuple[Factor, ...]:
    """The factors on the cells that meet a condition, and on what else it looks at; columns that it ties
    together share a factor, at the place of the first of them."""
    source = Source(_BEFORE + condition, len(_BEFORE))
    try:
        trees = source.statements(schema.names)
        where = trees[0].args.get("where")
        more = [key for key, part in trees[0].args.items() if part and key.rstrip("_") not in _PLAIN]
        if not isinstance(where, exp.Where) or len(trees) > 1 or more:
            raise source.refusal_at(
                len(_BEFORE), f"{condition!r} is not one condition, such as age >= 65 OR hours >= 60"
            )
        source.check_read(trees)
        return factors(schema, asked, restrictions(Columns(schema, source, ("t",)), where.this))
    except RecursionError:
        raise WorkloadError("the condition is nested too deeply to be read") from None
