"""One column compared with constants: the cells where that is true, and those where it is false.

A comparison is a pair of masks (cells,). In the cell `(other)` it is neither, as with NULL in SQL, unless the
constant is '(other)' itself.
"""

import math
from collections.abc import Sequence

import numpy as np

from residua._arrays import Flags
from residua._limits import MASK_CELLS
from residua._text import hint, listing, short
from residua.errors import DataError, SchemaError, WorkloadError, retold
from residua.schema import Attribute, Binned, Categorical, Date, Integer
from residua.schema.attributes import plain
from residua.schema.dates import day_of

Value = str | bool | int | float


class Unfit(WorkloadError):
    """A comparison that makes no sense; the place is added by the one who knows it."""


def among(name: str, attribute: Attribute, values: Sequence[Value]) -> tuple[Flags, Flags]:
    """Where the attribute is one of the values, and where it is none of them."""
    _refuse_many_cells(name, attribute)
    true = np.zeros(attribute.size, dtype=np.bool_)
    for kind in (str, bool, int, float):
        some = list(dict.fromkeys(value for value in values if type(value) is kind))
        if some:
            true[_cells(name, attribute, some)] = True
    false = ~true
    if attribute.other is not None and attribute.other_label not in values:
        false[attribute.other] = False
    return true, false


def missing(name: str, attribute: Attribute) -> tuple[Flags, Flags]:
    """Where a column has no value, the cell `(other)` or `(missing)`, and where it has one."""
    if attribute.other is None:
        raise Unfit(
            f"attribute {name!r} has no cell for missing values, which follow its policy "
            f"{attribute.outside!r}; with outside='missing' they are counted in the cell '(missing)'"
        )
    none = np.arange(attribute.size) == attribute.other
    return none, ~none


def compared(name: str, attribute: Attribute, sign: str, value: Value) -> tuple[Flags, Flags]:
    """Where `attribute sign value` is true, and where it is false; sign is one of <, <=, > and >=."""
    _refuse_many_cells(name, attribute)
    if sign in (">", ">="):
        false, true = compared(name, attribute, {">": "<=", ">=": "<"}[sign], value)
        return true, false
    inner = _below(name, attribute, value, or_equal=sign == "<=")
    true, false = np.zeros((2, attribute.size), dtype=np.bool_)
    true[: attribute.inner_size] = inner
    false[: attribute.inner_size] = ~inner
    return true, false


def _below(name: str, attribute: Attribute, value: Value, *, or_equal: bool) -> Flags:
    """The inner cells whose values are below a number, or days before a day."""
    if isinstance(attribute, Date):
        return _days_below(name, attribute, value, or_equal=or_equal)
    number = _number(name, attribute, value)
    if isinstance(attribute, Integer):
        first = math.floor(number) + 1 if or_equal else math.ceil(number)
        return np.arange(attribute.inner_size) < min(max(first - attribute.low, 0), attribute.inner_size)
    if isinstance(attribute, Binned):
        return _bins_below(name, attribute, number, or_equal=or_equal)
    labels = [int(attribute.label(cell)) for cell in range(attribute.inner_size)]
    return np.array([label < number or (or_equal and label == number) for label in labels])


def _days_below(name: str, attribute: Date, value: Value, *, or_equal: bool) -> Flags:
    if not isinstance(value, str) or (day := day_of(value)) is None:
        raise Unfit(f"attribute {name!r} holds dates, and {short(value)} is none; write '2024-02-29'")
    before = attribute.before(day + np.timedelta64(int(or_equal), "D"))
    if before is None:
        where = f"within a {attribute.by}; compare by < or >= at the first day of a {attribute.by}"
        raise Unfit(f"attribute {name!r}: {value} falls {where}")
    return before


def _bins_below(name: str, attribute: Binned, number: int | float, *, or_equal: bool) -> Flags:
    lower = attribute.edges[: attribute.inner_size]
    upper = [*attribute.edges[1:], math.inf][: attribute.inner_size]
    below = np.array([end <= number for end in upper])
    above = np.array([number < start or (not or_equal and number == start) for start in lower])
    if (below | above).all():
        return below
    edges = listing([plain(edge) for edge in attribute.edges])
    if number in attribute.edges:
        raise Unfit(
            f"attribute {name!r}: its bins begin with their lower edges, so {plain(float(number))} is no "
            f"border by itself; compare by < or >= at an edge: {edges}"
        )
    raise Unfit(f"attribute {name!r}: {number} falls within a bin; compare by < or >= at an edge: {edges}")


def _cells(name: str, attribute: Attribute, values: list[Value]) -> list[int]:
    """The cell of each of some values of one type."""
    if isinstance(attribute, Binned):
        labels = attribute.labels()
        places: dict[Value, int] = {label: cell for cell, label in enumerate(labels)}
        for value in values:
            if value not in places:
                near = hint(value, labels)
                raise Unfit(
                    f"attribute {name!r} holds bins, which {short(value)} does not name{near}; "
                    f"use {listing(labels)}, or compare by < and >= at an edge"
                )
        return [places[value] for value in values]
    if isinstance(attribute, Integer) and isinstance(values[0], bool):
        raise Unfit(f"attribute {name!r} holds numbers, not {str(values[0]).upper()}")
    with retold((SchemaError, DataError), Unfit, f"attribute {name!r}: "):
        found: list[int] = attribute.cells(values).tolist()
    return found


def _number(name: str, attribute: Attribute, value: Value) -> int | float:
    if not attribute.numeric and not (isinstance(attribute, Categorical) and attribute.type == "integer"):
        some = listing([attribute.label(cell) for cell in range(min(attribute.inner_size, 12))])
        raise Unfit(f"attribute {name!r} holds labels, which have no order; use =, <> or IN with {some}")
    number = number_of(value) if isinstance(value, str) else value
    if number is None or isinstance(number, bool):
        raise Unfit(f"attribute {name!r} holds numbers, and {short(value)} is none")
    return number


def number_of(text: str) -> int | float | None:
    """The finite number that a text spells, exactly if it is whole, or None."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse_many_cells(name: str, attribute: Attribute) -> None:
    if attribute.size > MASK_CELLS:
        raise Unfit(
            f"attribute {name!r} has {attribute.size:,} cells; conditions select cells one by one, up to "
            f"{MASK_CELLS:,}"
        )
