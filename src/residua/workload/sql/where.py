"""Conditions in SQL on tables that are not written in SQL."""

from collections.abc import Sequence

from sqlglot import exp

from residua.errors import WorkloadError
from residua.schema import Schema
from residua.workload.sql.columns import Columns
from residua.workload.sql.conditions import restrictions
from residua.workload.sql.factors import factors
from residua.workload.sql.reading import Source
from residua.workload.tables import Factor

_BEFORE = "SELECT COUNT(*) FROM t WHERE "
_PLAIN = ("expressions", "from", "where")


def restricted(schema: Schema, asked: Sequence[Factor], condition: str) -> tuple[Factor, ...]:
    """The factors on the cells that meet a condition, and those of what else it looks at.

    Columns that it ties together share a factor, at the place of the first of them.
    """
    source = Source(_BEFORE + condition, len(_BEFORE))
    try:
        trees = source.statements()
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
