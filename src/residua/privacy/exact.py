"""Numbers a person writes, as exact fractions; exact fractions, as text a person reads.

A float means its decimal text: 0.1 is one tenth, not the binary fraction next to it (P-001).
"""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import numpy as np

from residua._text import short
from residua.errors import BudgetError

Number = int | float | Fraction | Decimal | str | np.integer | np.floating
"""What is accepted wherever a budget, a cost or a probability is asked for."""

# Beyond these sizes a number is a slip of the pen, and floats could no longer hold it.
_SMALLEST, _LARGEST = Fraction(1, 10**308), Fraction(10**308)
_LARGEST_POWER = 400
_MOST_DIGITS = 1_000  # of numerator or denominator: Python writes no number of many thousands
_REMEDY = "give a number such as 0.1, '1/3' or Fraction(1, 10)"


def exact(value: Number, name: str) -> Fraction:
    """The fraction that a number means; `name` is what errors call it.

    >>> exact(0.1, "rho"), exact("1/3", "rho"), exact("2e-6", "delta")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 500000))
    """
    number = _fraction(value, name)
    if number and not _SMALLEST <= abs(number) <= _LARGEST:
        raise BudgetError(f"{name} is out of range: its size must lie between 1e-308 and 1e308")
    if max(abs(number.numerator), number.denominator) >= 10**_MOST_DIGITS:
        raise BudgetError(f"{name} has more than {_MOST_DIGITS:,} digits; give a rounder number, such as 0.1")
    return number


def positive(value: Number, name: str) -> Fraction:
    """The fraction that a number above zero means."""
    number = exact(value, name)
    if number <= 0:
        raise BudgetError(f"{name} must be above zero, not {short(value)}; {_REMEDY}")
    return number


def non_negative(value: Number, name: str) -> Fraction:
    """The fraction that a number of at least zero means."""
    number = exact(value, name)
    if number < 0:
        raise BudgetError(f"{name} must not be negative, but is {short(value)}; {_REMEDY}")
    return number


def probability(value: Number, name: str) -> Fraction:
    """The fraction that a number strictly between 0 and 1 means."""
    number = exact(value, name)
    if not 0 < number < 1:
        raise BudgetError(
            f"{name} must lie strictly between 0 and 1, not {short(value)}; give one such as 1e-9"
        )
    return number


def exact_text(number: Fraction) -> str:
    """A decimal of at most 20 digits where that is exact, else a ratio of two integers.

    >>> exact_text(Fraction(1, 8)), exact_text(Fraction(1, 3))
    ('0.125', '1/3')
    """
    decimal = _quotient(number, digits=20)
    return _decimal_text(decimal) if Fraction(decimal) == number else str(number)


def text_above(number: Fraction, digits: int = 6) -> str:
    """A decimal of so many significant digits, rounded up: what is printed is never below the truth.

    >>> text_above(Fraction(1, 3)), text_above(Fraction(2))
    ('0.333334', '2')
    """
    return _decimal_text(_quotient(number, digits))


def _fraction(value: Number, name: str) -> Fraction:
    """The fraction that a number of any accepted type means, whatever its sign and size."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Fraction(int(value))
    if isinstance(value, (float, np.floating, Decimal, str)):
        try:
            return _parsed(str(value))
        except (ValueError, ArithmeticError):
            pass  # the refusal below serves text that is no number, not-a-number, infinity and 1/0 alike
    raise BudgetError(f"{name} must be a finite number, not {short(value)}; {_REMEDY}")


def _parsed(text: str) -> Fraction:
    """The fraction that a text means; a power of ten too large to expand becomes one just out of range."""
    if "/" in text:
        return Fraction(text)
    decimal = Decimal(text)
    if decimal.is_finite() and abs(decimal.adjusted()) > _LARGEST_POWER:
        return _LARGEST + 1
    return Fraction(decimal)


def _quotient(number: Fraction, digits: int) -> Decimal:
    """The number to so many significant digits, rounded up."""
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return context.divide(Decimal(number.numerator), Decimal(number.denominator)).normalize(context)


def _decimal_text(decimal: Decimal) -> str:
    """Plain digits for everyday sizes, a power of ten beyond them."""
    everyday = not decimal or -7 <= decimal.adjusted() <= 15
    return f"{decimal:f}" if everyday else str(decimal)
