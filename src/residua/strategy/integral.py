"""A real strategy in integers at a budget, and an integer one at another budget."""

from fractions import Fraction

from residua.errors import Infeasible
from residua.strategy.build import Spans
from residua.strategy.costs import proved_cost
from residua.strategy.rounding import integer_strategy, with_budget
from residua.strategy.strategy import Strategy

NEGLIGIBLE = Fraction(1, 2**32)  # of a budget: noise that is wider by so little is not set again


def measurable(ideal: Strategy, spans: Spans, allowed: Fraction, *, replacing: bool) -> Strategy:
    """The integer form of a real strategy, which the kernel proves to cost at most `allowed`.

    With `replacing` the cost is that of replacing one record instead of adding or removing one.
    """
    whole = integer_strategy(ideal, spans, allowed)
    spent = proved_cost(whole, replacing=replacing)
    if (1 - NEGLIGIBLE) * allowed <= spent <= allowed:
        return whole
    return _at(whole, spent, allowed, replacing)


def rebudgeted(strategy: Strategy, allowed: Fraction, *, replacing: bool) -> Strategy:
    """The same integer measurements with noise that uses up `allowed`, as far as the kernel can prove."""
    return _at(strategy, proved_cost(strategy, replacing=replacing), allowed, replacing)


def _at(strategy: Strategy, spent: Fraction, allowed: Fraction, replacing: bool) -> Strategy:
    """The strategy, which is proved to cost `spent`, with all its costs scaled to cost `allowed`."""
    found = with_budget(strategy, allowed * strategy.exact_cost() / spent)
    if proved_cost(found, replacing=replacing) > allowed:
        raise Infeasible("the blocks are too many to share this budget")
    return found
