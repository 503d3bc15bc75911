"""An attribute whose cells are days, months, quarters or years."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from residua._arrays import AnyArray, Flags, Integers, settle
from residua._text import hint, short
from residua.errors import SchemaError
from residua.schema.attribute import ABOVE, BELOW, OUTSIDE, Attribute, Cells, Policy
from residua.schema.attributes import check_policy, policy_text

Step = Literal["year", "quarter", "month", "day"]
Day = str | datetime.date
STEPS: tuple[Step, ...] = get_args(Step)
MONTHS = {"year": 12, "quarter": 3, "month": 1}


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Date(Attribute):
    """The days from `low` to `high`, both included; each `by` (day, month, quarter or year) is a cell.

    Its `levels` are `by` and what is coarser, as those of a Hierarchy: `rs.level("quarter")`. Data give dates
    as text (2024-02-29, with or without a time), as dates or as times; a time counts for its day.

    >>> born = Date("2024-01-01", "2025-06-30", by="month")
    >>> born.size, born.label(13), born.levels
    (18, '2025-02', ('year', 'quarter', 'month'))
    >>> born.encode(["2024-02-29", "2025-06-01T12:00"]).tolist()
    [1, 17]
    >>> born.level_labels("quarter")[:2], born.level_of("year").tolist()[11:13]
    (('2024-Q1', '2024-Q2'), [0, 1])
    """

    numeric: ClassVar[bool] = True

    low: datetime.date
    high: datetime.date
    by: Step
    outside: Policy

    def __init__(self, low: Day, high: Day, *, by: Step = "day", outside: Policy = "error") -> None:
        who = f"Date({low!s}, {high!s})"
        if by not in STEPS:
            raise SchemaError(
                f"{who}: by={by!r} is no step{hint(by, STEPS)}; use one of {', '.join(map(repr, STEPS))} "
                "(a week is no part of a month or a year: group days by rs.buckets instead)"
            )
        settle(self, low=_day(who, low), high=_day(who, high), by=by, outside=outside)
        if self.low > self.high:
            raise SchemaError(f"{who}: the first day is after the last")
        check_policy(who, outside, numeric=True)

    def __repr__(self) -> str:
        return f"Date('{self.low}', '{self.high}', by={self.by!r}{policy_text(self)})"

    @property
    def inner_size(self) -> int:
        return int(steps_of(np.array([self.high], dtype="M8[D]"), self.by)[0] - self._first(self.by)) + 1

    @property
    def levels(self) -> tuple[str, ...]:
        """Steps as coarse as its own and coarser, the coarsest first."""
        return STEPS[: STEPS.index(self.by) + 1]

    def at(self, level: str) -> "Date":
        """The same days with the steps of a level as cells."""
        self._refuse_unknown(level)
        return Date(self.low, self.high, by=level, outside=self.outside)  # type: ignore[arg-type]

    def level_of(self, level: str) -> Integers:
        """The step of a level that each cell is in, shape (size,); `(other)` is one more, if there is one."""
        self._refuse_unknown(level)
        found = steps_of(self._starts(), level) - self._first(level)
        return found if self.other is None else np.append(found, found.max() + 1)

    def first_days(self) -> list[datetime.date]:
        """The first day of the step of each cell, `(other)` not included."""
        found: list[datetime.date] = self._starts().tolist()
        return found

    def before(self, limit: np.datetime64) -> Flags | None:
        """The cells, `(other)` not included, that end before a day; None where it is within a cell."""
        starts = np.maximum(self._starts(), np.datetime64(self.low))
        ends = np.append(starts[1:], np.datetime64(self.high) + np.timedelta64(1, "D"))
        return None if ((starts < limit) & (limit < ends)).any() else np.asarray(ends <= limit)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        ends = {"low": str(self.low), "high": str(self.high)}
        return {"kind": "date", **ends, "by": self.by, "outside": self.outside}

    def _first(self, level: str) -> int:
        return int(steps_of(np.array([self.low], dtype="M8[D]"), level)[0])

    def _starts(self) -> AnyArray:
        """A day of each cell."""
        numbers = np.arange(self.inner_size) + self._first(self.by)
        if self.by == "day":
            return numbers.astype("M8[D]")
        return (numbers * MONTHS[self.by]).astype("M8[M]").astype("M8[D]")

    def _refuse_unknown(self, level: str) -> None:
        if level not in self.levels:
            why = f"is no level{hint(level, STEPS)}"
            if level in STEPS:
                why = f"is finer than its cells, which are {self.by}s"
            raise SchemaError(f"{self!r}: {level!r} {why}")

    def _inner_label(self, cell: int) -> str:
        return label_of(cell + self._first(self.by), self.by)

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        return np.full(len(values), OUTSIDE, dtype=np.int32)

    def _cells_of_text(self, distinct: Any, *, nearest: bool) -> Cells:
        texts: Sequence[str] = distinct.to_pylist()
        found = np.array([day_of(text) for text in texts], dtype="M8[D]")
        low, high = np.datetime64(self.low), np.datetime64(self.high)
        cells = np.full(len(texts), OUTSIDE, dtype=np.int32)
        known = ~np.isnat(found)
        inside = known & (found >= low) & (found <= high)
        cells[inside] = steps_of(found[inside], self.by) - self._first(self.by)
        if nearest:
            cells[known & (found < low)] = BELOW
            cells[known & (found > high)] = ABOVE
        labels = {self._inner_label(cell): cell for cell in range(self.inner_size)} if not known.all() else {}
        for place in np.flatnonzero(~known).tolist():  # a month may be written as a month
            cells[place] = labels.get(texts[place].strip(), OUTSIDE)
        return cells


def _day(who: str, value: Day) -> datetime.date:
    """The day that somebody wrote as an end of a range."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{who}: {short(value)} is no day; write it like '2024-02-29'") from error


def day_of(text: str) -> np.datetime64 | None:
    """The day of a text that starts with one, or None."""
    day, rest = text.strip()[:10], text.strip()[10:]
    try:
        known = len(day) == 10 and (not rest or rest[0] in "T ")
        return np.datetime64(datetime.date.fromisoformat(day)) if known else None
    except ValueError:
        return None


def steps_of(days: AnyArray, level: str) -> Integers:
    """The number of the step that each day is in, counted from 1970."""
    if level == "day":
        return days.astype(np.int64)
    return days.astype("M8[M]").astype(np.int64) // MONTHS[level]


def label_of(number: int, level: str) -> str:
    """The name of a step."""
    if level == "day":
        return str(np.datetime64(number, "D"))
    month = np.datetime64(number * MONTHS[level], "M")
    year = str(month)[:-3]
    if level == "year":
        return year
    return str(month) if level == "month" else f"{year}-Q{1 + int(str(month)[-2:]) // 3}"
