"""Numbers as people read them: as many digits as mean something."""

import math
from fractions import Fraction

from residua.privacy.conversions import text_above


def decimals_for(stddev: float) -> int:
    """How many decimals of a number mean something, beside its standard deviation."""
    if not 0 < stddev < math.inf:
        return 1
    return min(8, max(0, 1 - math.floor(math.log10(stddev))))


def figure(number: float) -> str:
    """Four digits, or a dash for what is not known.

    >>> figure(12345.6), figure(0.123456), figure(float("nan"))
    ('12,350', '0.1235', '-')
    """
    if math.isnan(number):
        return "-"
    places = max(0, 3 - math.floor(math.log10(abs(number)))) if number else 0
    return f"{float(f'{number:.4g}'):,.{min(places, 8)}f}" if 1e-4 <= abs(number) < 1e15 else f"{number:.4g}"


def bound(number: float) -> str:
    """A figure that must not be understated: six digits, rounded up."""
    return text_above(Fraction(number))


def percent(fraction: float) -> str:
    """A share as a percentage of at most four digits.

    >>> percent(0.12345), percent(1.0), percent(2e-6)
    ('12.3%', '100%', '0.0002%')
    """
    if fraction >= 0.9995:
        return "100%" if fraction < 1.0005 else f"{100 * fraction:.3g}%"
    return f"{100 * fraction:.1f}%" if fraction >= 0.001 else f"{float(f'{100 * fraction:.1g}'):.12g}%"


def percent_above(fraction: float) -> str:
    """A probability that must not be understated: a percentage with one decimal, rounded up.

    >>> percent_above(0.0912)
    '9.2%'
    """
    tenths = math.ceil(fraction * 1000 * (1 - 1e-12))
    return f"{tenths // 10}%" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}%"


def level_text(level: float) -> str:
    """A confidence level as people write it: `95%`."""
    return f"{100 * level:.6g}%"
