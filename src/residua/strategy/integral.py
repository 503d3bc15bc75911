"""A real strategy in integers at a budget, and an integer one at another budget."""

import math
from fractions import Fraction

from residua.strategy.build import Spans
from residua.strategy.costs import replacement_cost
from residua.strategy.rounding import integer_strategy, with_budget
from residua.strategy.strategy import Strategy

RATIO_BITS = 30


def measurable(ideal: Strategy, spans: Spans, allowed: Fraction, *, replacing: bool) -> Strategy:
    """The integer form of a real strategy, with its exact cost at most `allowed`.

    With `replacing` the cost is that of replacing one record instead of adding or removing one.
    """
    whole = integer_strategy(ideal, spans, allowed)
    return rebudgeted(whole, allowed, replacing=True) if replacing else whole


def rebudgeted(strategy: Strategy, allowed: Fraction, *, replacing: bool) -> Strategy:
    """The same integer measurements with noise that uses up `allowed` exactly."""
    if replacing:
        ratio = replacement_cost(strategy) / strategy.cost() * (1 + 1e-9)
        allowed = allowed / Fraction(math.ceil(ratio * 2**RATIO_BITS), 2**RATIO_BITS)
    return with_budget(strategy, allowed)
