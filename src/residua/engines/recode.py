"""Coding in SQL, for the columns where SQL can do exactly what the schema does.

Whole numbers in an integer column and labels in a text column are most of all data, and DuckDB codes them on
the way. Every other column comes out as it is and is coded by its attribute (claim E-002).
"""

from collections.abc import Sequence

from residua.engines.kernel import narrowest
from residua.schema import Categorical, Hierarchy, Integer, Schema

# UBIGINT and HUGEINT are left to the attribute: they do not fit the BIGINT that is computed with.
INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
SPELT_OUT = 20_000  # labels in one statement
TYPES = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}


def code_in_sql(schema: Schema, position: int, column: str, type_name: str) -> str | None:
    """SQL for the cell of a column's value, or None where the attribute has to code it.

    `column` is the column as SQL names it. The result is NULL for a record to drop and for a value that the
    policy refuses, and an unsigned integer otherwise.

    >>> from residua.schema import Integer
    >>> code_in_sql(Schema(age=Integer(1, 9)), 0, "c0", "INTEGER")
    'CASE WHEN c0::BIGINT BETWEEN 1 AND 9 THEN c0::BIGINT - 1 END::UTINYINT'
    """
    attribute = schema.attributes[position]
    code = None
    if isinstance(attribute, Integer) and type_name in INTEGERS:
        value = f"{column}::BIGINT"
        low, high = f"{attribute.low}", f"{attribute.high}"
        ends = ""
        if attribute.outside == "clip":
            ends = f"WHEN {value} < {low} THEN 0 WHEN {value} > {high} THEN {attribute.size - 1} "
        code = f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} - {low} {ends}END"
    elif isinstance(attribute, Categorical | Hierarchy) and type_name == "VARCHAR":
        labels = _labels(attribute)
        if labels is not None:
            code = f"enum_code(TRY_CAST({column} AS ENUM({', '.join(map(quoted_text, labels))})))"
    if code is None:
        return None
    kind = TYPES[narrowest(attribute.size)().itemsize]
    if attribute.other is not None:
        code = f"COALESCE({code}, {attribute.other})"
    return f"{code}::{kind}"


def _labels(attribute: Categorical | Hierarchy) -> Sequence[str] | None:
    """The text of each cell, in the order of the cells, where no other text means a cell as well."""
    if isinstance(attribute, Categorical):
        labels = [str(value) for value in attribute.values] if attribute.type == "text" else None
    else:
        # A leaf of a deeper tree may be written as its name or as its path.
        labels = [path[0] for path in attribute.paths] if len(attribute.levels) == 1 else None
    if labels is None or len(labels) > SPELT_OUT or any("\0" in label for label in labels):
        return None
    return labels


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
