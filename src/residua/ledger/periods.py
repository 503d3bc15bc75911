"""Periods of the calendar: which days, months, quarters or years of a ledger a period touches.

Names that overlap must not pass for different periods: '2026-01' is part of '2026-Q1' and of '2026'. So a
ledger keeps one step, and whatever period a release states is told in its steps (claim L-020).
"""

import calendar
import datetime
import re

import numpy as np

from residua.errors import LedgerError
from residua.schema.dates import STEPS, Step, label_of, steps_of

MOST_PERIODS = 100_000  # of one ledger that a release may touch: three hundred years of days
_FORMS = r"(\d{4})(?:-(?:Q([1-4])|(\d\d)(?:-(\d\d))?))?"


def covered(step: Step, period: str) -> tuple[str, ...]:
    """The names of the steps that a period touches, in order.

    A period is a year, a quarter, a month or a day, or two of them with a slash: from the first to the last.

    >>> covered("month", "2026-Q1"), covered("quarter", "2026-02"), covered("year", "2025-12-31/2026-01")
    (('2026-01', '2026-02', '2026-03'), ('2026-Q1',), ('2025', '2026'))
    """
    first, _, last = period.partition("/") if isinstance(period, str) else ("", "", "")
    try:
        low, high = _days(first)[0], _days(last or first)[1]
    except ValueError as error:
        raise LedgerError(
            f"{period!r} is no period; write 2026, 2026-Q1, 2026-01, 2026-01-31, or the first and the last, "
            "as in 2026-01/2026-06"
        ) from error
    start, end = steps_of(np.array([low, high], dtype="M8[D]"), step).tolist()
    if not 0 <= end - start < MOST_PERIODS:
        raise LedgerError(f"{period!r} ends before it begins, or has more than {MOST_PERIODS:,} {step}s")
    return tuple(label_of(number, step) for number in range(start, end + 1))


def following(step: Step, period: str, count: int) -> tuple[str, ...]:
    """The names of so many steps after one."""
    day = np.array([_days(period)[0]], dtype="M8[D]")
    number = int(steps_of(day, step)[0]) + 1
    return tuple(label_of(each, step) for each in range(number, number + count))


def _days(text: str) -> tuple[datetime.date, datetime.date]:
    """The first and the last day of one period; ValueError where it is none."""
    found = re.fullmatch(_FORMS, text.strip(), re.ASCII)
    if found is None:
        raise ValueError("no period")
    year, quarter, month, day = (None if part is None else int(part) for part in found.groups())
    year = int(found[1])
    if day is not None and month is not None:
        return datetime.date(year, month, day), datetime.date(year, month, day)
    low, high = (3 * quarter - 2, 3 * quarter) if quarter is not None else (month or 1, month or 12)
    return datetime.date(year, low, 1), datetime.date(year, high, calendar.monthrange(year, high)[1])


def known_step(step: object) -> Step:
    """The step by its name, or the LedgerError."""
    if step not in STEPS:
        raise LedgerError(f"a ledger's periods are one of {', '.join(STEPS)}, not {step!r}")
    found: Step = next(each for each in STEPS if each == step)
    return found
