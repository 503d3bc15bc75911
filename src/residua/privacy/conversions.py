"""Exact amounts, and conversions between definitions of privacy; each says which way it rounds."""

import math
import struct
from bisect import bisect_left
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from residua._text import short
from residua.errors import BudgetError

if TYPE_CHECKING:
    from flint import arb


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
    return _checked(value, name, lambda number: number > 0, "be above zero, not")


def non_negative(value: Number, name: str) -> Fraction:
    """The fraction that a number of at least zero means."""
    return _checked(value, name, lambda number: number >= 0, "not be negative, but is")


def probability(value: Number, name: str) -> Fraction:
    """The fraction that a number strictly between 0 and 1 means."""
    between, remedy = "lie strictly between 0 and 1, not", "give one such as 1e-9"
    return _checked(value, name, lambda number: 0 < number < 1, between, remedy)


def _checked(
    value: Number, name: str, good: Callable[[Fraction], bool], must: str, remedy: str = _REMEDY
) -> Fraction:
    number = exact(value, name)
    if not good(number):
        raise BudgetError(f"{name} must {must} {short(value)}; {remedy}")
    return number


def exact_text(number: Fraction) -> str:
    """A decimal of at most 20 digits where that is exact, else a ratio of two integers."""
    decimal = _quotient(number, digits=20)
    return _decimal_text(decimal) if Fraction(decimal) == number else str(number)


def text_above(number: Fraction | float, digits: int = 6) -> str:
    """A decimal of so many significant digits, rounded up: what is printed is never below the truth."""
    return _decimal_text(_quotient(Fraction(number), digits))


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
    return f"{decimal:f}" if not decimal or -7 <= decimal.adjusted() <= 15 else str(decimal)


_PRECISIONS = (64, 128, 256, 512, 1024, 2048, 4096)
_ENOUGH_BITS = 60
_SMALLEST_FLOAT = math.ulp(0.0)


def ball_of(number: Fraction) -> "arb":
    """The ball of a fraction at flint's working precision."""
    from flint import arb, fmpq

    return arb(fmpq(number.numerator, number.denominator))


def at_most(ball: Callable[[], "arb"], limit: Fraction) -> bool:
    """Whether a real number is proved to be at most `limit`; False where no precision decides."""
    from flint import ctx

    for bits in _PRECISIONS:
        with ctx.workprec(bits):
            enclosure, bound = ball(), ball_of(limit)
            if enclosure <= bound:
                return True
            if enclosure > bound:
                return False
    return False


def probability_above(ball: Callable[[], "arb"]) -> float:
    """A float at or above a probability, by a few units in the last place at most; never above 1."""
    from flint import ctx

    upper = Fraction(1)
    for bits in _PRECISIONS:
        with ctx.workprec(bits):
            enclosure = ball()
            upper = _dyadic_above(enclosure)
            if enclosure.rel_accuracy_bits() >= _ENOUGH_BITS or upper <= _SMALLEST_FLOAT:
                break
    return float_above(upper)


def float_above(number: Fraction) -> float:
    """The smallest float that is not below a non-negative number, and whose decimal text is not either."""
    result = float(number)
    while meaning(result) < number:
        result = math.nextafter(result, math.inf)
    return result


def meaning(number: float) -> Fraction:
    """The lower of the two things a float can mean: its binary value and its decimal text."""
    return min(Fraction(number), Fraction(repr(number)))


def first_float(holds: Callable[[float], bool]) -> float:
    """The smallest non-negative float at which a condition holds that stays true once true; else infinity."""
    # Non-negative floats sort as their bit patterns do.
    every = range(int.from_bytes(struct.pack(">d", math.inf)))
    return _at_position(bisect_left(every, True, key=lambda position: holds(_at_position(position))))


def _dyadic_above(enclosure: "arb") -> Fraction:
    """The upper end of a ball around a probability, at least the smallest float and at most 1."""
    if not enclosure <= 1:
        return Fraction(1)
    mantissa, exponent = (int(part) for part in enclosure.upper().man_exp())
    if mantissa.bit_length() + exponent < -1074:  # perhaps 2^(-10^300): never expand that
        return Fraction(_SMALLEST_FLOAT)
    return Fraction(mantissa) * Fraction(2) ** exponent


def _at_position(position: int) -> float:
    """The float at a place among the non-negative floats."""
    number: float = struct.unpack(">d", position.to_bytes(8))[0]
    return number


# e^epsilon is not formed beyond this: flint's exponents are not built for it.
_LARGEST_EXPONENT = 2**60

Figure = Literal["cost", "rho", "pure_epsilon"]
NoiseLaw = Literal["gaussian", "laplace"]
"""What noise proves of itself: a Gaussian privacy cost mu^2, a rho of zCDP, or an epsilon of pure DP."""


def delta_of(amount: Number, epsilon: Number, figure: Figure = "cost") -> float:
    """Delta at epsilon >= 0 of every mechanism of which this figure is known, rounded up.

    Never below the truth; for Gaussian noise above it by a few units in the last place (P-012, P-020, P-021).

    >>> delta_of(1, 1)
    0.12693673750664397
    >>> delta_of("1/2", 1, "rho") > delta_of(1, 1)  # a Gaussian of the same rho has less
    True
    """
    ball = _delta(figure, non_negative(amount, figure), non_negative(epsilon, "epsilon"))
    return 0.0 if ball is None else probability_above(ball)


def proves(figure: Figure, amount: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether (epsilon, delta)-DP is proved to follow; a case that no precision decides is False."""
    ball = _delta(figure, amount, epsilon)
    return ball is None or at_most(ball, delta)


def epsilon_of(amount: Number, delta: Number, figure: Figure = "cost") -> float:
    """Smallest epsilon at which (epsilon, delta)-DP is proved, rounded up to a float (P-013, P-020).

    Zero where delta(0) is small enough already.

    >>> epsilon_of("1/20", "1e-6"), round(epsilon_of("0.1", "1e-6", "rho"), 4)
    (0.9405155265307765, 2.1419)
    """
    known, limit = non_negative(amount, figure), probability(delta, "delta")
    return first_float(lambda epsilon: proves(figure, known, meaning(epsilon), limit))


def amount_for(epsilon: Number, delta: Number, figure: Figure = "cost") -> Fraction:
    """Largest amount of the figure that is proved to give (epsilon, delta)-DP, rounded down (P-014, P-020).

    The result is a dyadic rational of at most 53 significant bits, at most one part in 2^51 below the truth
    unless that is under 1e-307.

    >>> round(float(amount_for(1, "1e-6")), 6), round(float(amount_for(1, "1e-6", "rho")), 5)
    (0.056029, 0.02436)
    """
    at, limit = positive(epsilon, "epsilon"), probability(delta, "delta")
    first_refused = first_float(lambda amount: not proves(figure, Fraction(amount), at, limit))
    amount = Fraction(math.nextafter(first_refused, 0.0))
    if not amount:
        raise BudgetError(f"epsilon {exact_text(at)} asks for more noise than numbers can hold; raise it")
    return amount


def _delta(figure: Figure, amount: Fraction, epsilon: Fraction) -> Callable[[], "arb"] | None:
    """What computes a ball around delta(epsilon), at any precision; None where delta is zero."""
    if not amount or (figure == "pure_epsilon" and epsilon >= amount):
        return None
    if figure == "rho":
        order = Fraction(_best_order(float(amount), float(epsilon)))
        return lambda: _zcdp_ball(amount, epsilon, order)
    ball = _gaussian_ball if figure == "cost" else _pure_ball
    return lambda: ball(amount, epsilon)


def _gaussian_ball(cost: Fraction, epsilon: Fraction) -> "arb":
    """Ball around delta(epsilon) for cost > 0; around an upper bound for an astronomical epsilon."""
    mu, eps = ball_of(cost).sqrt(), ball_of(epsilon)
    root2 = ball_of(Fraction(2)).sqrt()
    # Phi(-x) = erfc(x / sqrt 2) / 2
    likely = ((eps / mu - mu / 2) / root2).erfc() / 2
    if epsilon > _LARGEST_EXPONENT:
        return likely
    return likely - eps.exp() * ((eps / mu + mu / 2) / root2).erfc() / 2


def _zcdp_ball(rho: Fraction, epsilon: Fraction, order: Fraction) -> "arb":
    """Ball around the bound of P-020 at t = order."""
    t = ball_of(order)
    return (t * ((1 + t) * ball_of(rho) - ball_of(epsilon)) - t * (1 / t).log1p() - t.log1p()).exp()


def _best_order(rho: float, epsilon: float) -> float:
    """The t that minimises the bound of P-020, which is convex in t, by bisecting its derivative in log t."""
    low, high = -700.0, 700.0
    for _ in range(64):
        middle = (low + high) / 2
        t = math.exp(middle)
        if (1 + 2 * t) * rho - epsilon < math.log1p(1 / t):
            low = middle
        else:
            high = middle
    return math.exp(high)


def _pure_ball(pure_epsilon: Fraction, epsilon: Fraction) -> "arb":
    """Ball around (e^pure - e^epsilon) / (1 + e^pure), written so that nothing overflows."""
    top = ball_of(pure_epsilon)
    return -(ball_of(epsilon) - top).expm1() / (1 + (-top).exp())
