"""Workloads written in SQL: counts of a table, filtered and grouped."""

from residua.errors import WorkloadError
from residua.schema import Schema
from residua.workload.union import Workload


def sql(schema: Schema, text: str, *, name: str | None = None, weight: float = 1.0) -> Workload:
    """A workload of the counts that SQL statements ask for, one table per statement and grouping set.

    `SELECT columns, COUNT(*) FROM t WHERE .. GROUP BY ..`; the table's name is free, and several statements
    are separated by `;`. Columns are grouped as they are or by `CASE`; `GROUPING SETS`, `ROLLUP` and `CUBE`
    give several tables, and `SUM(COUNT(*)) OVER (ORDER BY age)` cumulative counts. Conditions compare columns
    with constants by `=`, `<>`, `<`, `<=`, `>`, `>=`, `IN`, `LIKE` and `BETWEEN`, joined by `AND`, `OR` and
    `NOT`. Answers are row-major in the order of `GROUP BY`. Of statements with means, quantiles, percentages,
    `HAVING`, `WITH`, subqueries and such, which `release.sql` answers, these are the tables that they need.
    Everything else is refused with its line and column.

    The cell `(other)` is to comparisons what NULL is in SQL: none but `= '(other)'` and `IS NULL`
    selects it.

    >>> from residua.schema import Categorical, Integer
    >>> schema = Schema(age=Integer(0, 99), sex=Categorical("F", "M"))
    >>> work = sql(schema, "SELECT sex, COUNT(*) FROM people WHERE age BETWEEN 18 AND 64 GROUP BY sex")
    >>> [text for group in work.groups() for text in group.descriptions(schema)]
    ['sex = F and age in 18..64', 'sex = M and age in 18..64']
    """
    # The modules behind this one load sqlglot, which takes as long as the rest of the package.
    from residua.workload.sql.statements import groups_of

    if not isinstance(text, str):
        raise WorkloadError(f"SQL is given as text, not as {type(text).__name__}")
    if name is not None and not isinstance(name, str):
        raise WorkloadError(f"the name of a table is text, not {name!r}")
    return Workload(schema, groups_of(schema, text, name, weight))


__all__ = ["sql"]
