"""Expressions of one column, cell by cell: `age / 10`, `UPPER(region)`, `date_trunc('year', born)`.

A column has a value for each of its cells, and so has what is computed from it and constants. Whole numbers
divide to whole numbers, as in standard SQL; what has no value (NULL, the cell `(other)`) stays without one.
"""

import datetime
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from residua._arrays import Flags
from residua._text import hint
from residua.errors import SchemaError
from residua.schema import Attribute, Binned, Categorical, Date, Integer
from residua.schema.dates import STEPS
from residua.workload.sql.comparing import Unfit, Value
from residua.workload.sql.reading import Columns, bare, quoted

Values = list[Any]
"""Of each cell a number, a text, a boolean, a day, or None."""

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
SIGN_OF: dict[type[exp.Expression], str] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=",
}  # fmt: skip
FINER = {"week": "day", "dayofweek": "day", "dayofyear": "day", "isodow": "day", "dow": "day", "doy": "day"}
PARTS: dict[str, Callable[[datetime.date], int]] = {
    "year": lambda day: day.year,
    "quarter": lambda day: (day.month + 2) // 3,
    "month": lambda day: day.month,
    "day": lambda day: day.day,
    "week": lambda day: day.isocalendar().week,
    "dow": lambda day: day.isoweekday() % 7,
    "dayofweek": lambda day: day.isoweekday() % 7,
    "isodow": lambda day: day.isoweekday(),
    "doy": lambda day: day.timetuple().tm_yday,
    "dayofyear": lambda day: day.timetuple().tm_yday,
}
STARTS: dict[str, Callable[[datetime.date], datetime.date]] = {
    "year": lambda day: day.replace(month=1, day=1),
    "quarter": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    "month": lambda day: day.replace(day=1),
    "week": lambda day: day - datetime.timedelta(days=day.weekday()),
    "day": lambda day: day,
}
_PARTS_OF: dict[type[exp.Expression], str] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.Week: "week", exp.WeekOfYear: "week", exp.DayOfWeek: "dow", exp.DayOfWeekIso: "isodow",
    exp.DayOfYear: "doy",
}  # fmt: skip
_TEXT: dict[type[exp.Expression], Callable[[str], Any]] = {
    exp.Upper: str.upper, exp.Lower: str.lower, exp.Trim: str.strip, exp.Length: len,
}  # fmt: skip
_NUMBERS: dict[type[exp.Expression], Callable[[Any], Any]] = {
    exp.Neg: operator.neg, exp.Floor: math.floor, exp.Ceil: math.ceil, exp.Abs: abs,
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expression], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul,
}  # fmt: skip
NAMES = (
    "COUNT", "SUM", "AVG", "MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "STDDEV_POP", "VAR_POP", "ROUND",
    "FLOOR", "LEFT", "SUBSTRING", "UPPER", "LOWER", "CONCAT", "DATE_TRUNC", "EXTRACT", "YEAR", "MONTH",
    "COALESCE",
)  # fmt: skip
SUPPORTED = "there are +, -, *, /, %, FLOOR, LEFT, SUBSTRING, UPPER, LOWER, CONCAT, DATE_TRUNC and EXTRACT"


def cellwise(columns: Columns, node: exp.Expression) -> tuple[str, Values]:
    """The one column that an expression looks at, and the value of the expression for each of its cells."""
    found = {columns.named(each, SUPPORTED) for each in node.find_all(exp.Column)}
    if len(found) != 1:
        what = "looks at several columns" if found else "looks at no column"
        raise columns.refusal(node, f"{quoted(node)} {what}; an expression to group or compare takes one")
    (name,) = found
    with columns.source.placing(node, SchemaError, Unfit):
        attribute = columns.schema.counted(name)
        columns.source.look_at(node, attribute.size)
        return name, _Expression(name, attribute).of(node)


def unknown_function(node: exp.Expression) -> str:
    """Why an expression is not supported, with the function that was meant, if one was."""
    if not isinstance(node, exp.Anonymous):
        return f"{quoted(node)} is not supported"
    return f"there is no function {node.this}{hint(node.this, NAMES)}"


def compared_values(values: Values, sign: str, constant: Value) -> tuple[Flags, Flags]:
    """Where `value sign constant` is true, and where it is false; neither where there is no value."""

    def holds(value: Any) -> bool:
        try:
            return bool(SIGNS[sign](_text_of_day(value), constant))
        except TypeError:
            raise Unfit(f"{_text_of_day(value)!r} and {constant!r} cannot be compared") from None

    return _masks(values, holds)


def among_values(values: Values, constants: Sequence[Value]) -> tuple[Flags, Flags]:
    """Where the value is one of some constants, and where it is none of them."""
    return _masks(values, lambda value: _text_of_day(value) in constants)


def like_values(values: Values, node: exp.Expression, pattern: str) -> tuple[Flags, Flags]:
    """Where LIKE, ILIKE or STARTS_WITH is true of the text of a value, and where it is false."""
    if isinstance(node, exp.StartsWith):
        return _masks(values, lambda value: str(value).startswith(pattern))
    words = (".*" if part == "%" else "." if part == "_" else re.escape(part) for part in pattern)
    fits = re.compile("".join(words), re.DOTALL | (0 if isinstance(node, exp.Like) else re.IGNORECASE))
    found = _masks(values, lambda value: fits.fullmatch(str(value)) is not None)
    return found[::-1] if node.args.get("negate") else found


def _masks(values: Values, holds: Callable[[Any], bool]) -> tuple[Flags, Flags]:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    true = np.array([value is not None and holds(value) for value in values], dtype=np.bool_)
    return true, known & ~true


def _text_of_day(value: Any) -> Any:
    return str(value) if isinstance(value, datetime.date) else value


def values_of(attribute: Attribute) -> Values:
    """What each cell of an attribute is to SQL: a number, a label, or the first day of its step."""
    inner: Values
    if isinstance(attribute, Integer):
        inner = list(range(attribute.low, attribute.high + 1))
    elif isinstance(attribute, Categorical):
        inner = list(attribute.values)
    elif isinstance(attribute, Date):
        inner = attribute.first_days()
    else:
        inner = [attribute.label(cell) for cell in range(attribute.inner_size)]
    return inner if attribute.other is None else [*inner, None]


class _Expression:
    """How an expression of one attribute is computed."""

    def __init__(self, name: str, attribute: Attribute) -> None:
        self.name, self.attribute = name, attribute

    def of(self, node: exp.Expression) -> Values:
        """The value for each cell."""
        node = bare(node)
        kind = type(node)
        if isinstance(node, exp.Column):
            return values_of(self.attribute)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            return [_literal(node)] * self.attribute.size
        if kind in _TEXT:
            return self._each(lambda value: _TEXT[kind](str(value)), node.this)
        if kind in _NUMBERS:
            return self._each(lambda value: _NUMBERS[kind](self._number(value)), node.this)
        if kind in _PARTS_OF:
            return self._of_days(PARTS, _PARTS_OF[kind], node.this)
        if isinstance(node, exp.Extract):
            return self._of_days(PARTS, str(node.this.this), node.expression)
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            return self._of_days(STARTS, str(node.args["unit"].this).partition("(")[0], node.this)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in ("date_part", "datepart"):
            return self._of_days(PARTS, str(node.expressions[0].this), node.expressions[1])
        if isinstance(node, exp.Coalesce):
            return self._each(_first_known, node.this, *node.expressions)
        return self._cast(node) if isinstance(node, exp.Cast) else self._composed(node)

    def _composed(self, node: exp.Expression) -> Values:
        """Arithmetic, and parts of texts."""
        match node:
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.IntDiv() | exp.Mod():
                return self._each(lambda one, other: self._arithmetic(node, one, other), *_both(node))
            case exp.Left():
                return self._each(lambda text, size: str(text)[: int(size)], *_both(node))
            case exp.Right():
                return self._each(lambda text, size: str(text)[-int(size) :], *_both(node))
            case exp.DPipe():
                return self._each(lambda one, other: str(one) + str(other), *_both(node))
            case exp.Concat():
                return self._each(lambda *parts: "".join(map(str, parts)), *node.expressions)
            case exp.Round():
                digits = node.args.get("decimals") or exp.Literal.number(0)
                return self._each(lambda value, to: round(self._number(value), int(to)), node.this, digits)
            case exp.Substring():
                length = node.args.get("length") or exp.Literal.number(10**6)
                return self._each(_substring, node.this, node.args["start"], length)
        raise Unfit(f"{unknown_function(node)}; {SUPPORTED}")

    def _each(self, function: Callable[..., Any], *nodes: exp.Expression) -> Values:
        """The function of the values of some expressions, where all of them have one."""
        total = isinstance(nodes[0].parent, exp.Coalesce)
        rows = zip(*map(self.of, nodes), strict=True)
        return [None if None in row and not total else function(*row) for row in rows]

    def _arithmetic(self, node: exp.Expression, one: Any, other: Any) -> Any:
        one, other = self._number(one), self._number(other)
        if isinstance(node, exp.Div | exp.IntDiv | exp.Mod):
            if other == 0:
                return None
            if isinstance(node, exp.Mod):
                return int(math.fmod(one, other)) if _whole(one, other) else math.fmod(one, other)
            whole = isinstance(node, exp.IntDiv) or _whole(one, other)
            return math.trunc(one / other) if whole else one / other
        return _ARITHMETIC[type(node)](one, other)

    def _number(self, value: Any) -> Any:
        if isinstance(self.attribute, Binned):
            raise Unfit(f"attribute {self.name!r} holds bins, which are no numbers to calculate with")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unfit(f"attribute {self.name!r}: {value!r} is no number to calculate with")
        return value

    def _cast(self, node: exp.Cast) -> Values:
        if node.is_type(*exp.DataType.TEXT_TYPES):
            return self._each(str, node.this)
        if node.is_type(*exp.DataType.INTEGER_TYPES):
            return self._each(lambda value: round(self._number(value)), node.this)
        if node.is_type(*exp.DataType.REAL_TYPES):
            return self._each(lambda value: float(self._number(value)), node.this)
        if node.is_type("date", "timestamp"):
            return [
                datetime.date.fromisoformat(value) if isinstance(value, str) else value
                for value in self.of(node.this)
            ]
        raise Unfit(f"{quoted(node)}: columns are cast to whole numbers, numbers, text or days")

    def _of_days(self, known: Mapping[str, Callable[..., Any]], named: str, node: exp.Expression) -> Values:
        """The parts of days, or the days on which their units start, whichever are known."""
        unit = named.lower()
        if unit not in known:
            wrong = "there is no part {!r} of a day" if known is PARTS else "days are not cut to {!r}"
            raise Unfit(f"{wrong.format(unit)}; there are {', '.join(known)}")
        if not isinstance(self.attribute, Date):
            raise Unfit(
                f"attribute {self.name!r} holds no dates; declare it as rs.Date to ask for its {unit}"
            )
        if FINER.get(unit, unit) not in self.attribute.levels:
            raise Unfit(
                f"attribute {self.name!r} has a cell a {self.attribute.by}, which is coarser than a {unit}; "
                f"ask for {' or '.join(STEPS[: len(self.attribute.levels)])}"
            )
        return self._each(known[unit], node)


def _both(node: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
    return node.this, node.expression


def _whole(*numbers: Any) -> bool:
    return all(isinstance(number, int) for number in numbers)


def _substring(text: Any, start: Any, length: Any) -> str:
    first = max(int(start) - 1, 0)
    return str(text)[first : first + int(length)]


def _first_known(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _literal(node: exp.Expression) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean) or node.is_string:
        return node.this
    text = str(node.this)
    return int(text) if text.isdecimal() else float(text)  # infinite where it is too large
