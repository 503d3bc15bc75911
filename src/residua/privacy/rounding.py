"""Floats on the safe side of real numbers that are known only through ball arithmetic.

A ball is a function without arguments that returns a `flint.arb` enclosing one fixed real number at flint's
working precision. The functions here raise that precision until the ball says enough (P-002).
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flint import arb

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
    low, high = -1, _position(math.inf)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(_at_position(middle)):
            high = middle
        else:
            low = middle
    return _at_position(high)


def _dyadic_above(enclosure: "arb") -> Fraction:
    """The upper end of a ball around a probability, at least the smallest float and at most 1."""
    if not enclosure <= 1:
        return Fraction(1)
    mantissa, exponent = (int(part) for part in enclosure.upper().man_exp())
    if mantissa.bit_length() + exponent < -1074:  # perhaps 2^(-10^300): never expand that
        return Fraction(_SMALLEST_FLOAT)
    return Fraction(mantissa) * Fraction(2) ** exponent


def _position(number: float) -> int:
    """Place of a non-negative float among all of them: they sort as their bit patterns do."""
    return int.from_bytes(struct.pack(">d", number))


def _at_position(position: int) -> float:
    """The float at a place among the non-negative floats."""
    number: float = struct.unpack(">d", position.to_bytes(8))[0]
    return number
