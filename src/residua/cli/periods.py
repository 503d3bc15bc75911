"""What a ledger spent when, drawn in a terminal, and what the next periods could have."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from residua._text import columns
from residua.ledger import Ledger
from residua.ledger.book import text_below
from residua.ledger.periods import covered, following, known_step
from residua.privacy.conversions import text_above

BAR = 30  # letters that the whole total is drawn with

Spending = list[tuple[str, Fraction]]
"""Periods in order, and amounts."""


def spoken(periods: Sequence[str]) -> str:
    """Some periods that follow each other, in few words."""
    return "/".join(dict.fromkeys((periods[0], periods[-1]))) if periods else ""


def spent_when(ledger: Ledger) -> Spending:
    """What was spent on each period; nothing for a ledger that knows none."""
    if ledger.periods is None:
        return []
    if ledger.disjoint:
        return list(ledger.spent_by_period().items())
    found: dict[str, Fraction] = {}
    for entry in ledger.entries():
        name = spoken(entry.periods)
        found[name] = found.get(name, Fraction(0)) + entry.amount
    return sorted(found.items())


def drawn(ledger: Ledger, spent: Spending) -> Iterator[str]:
    """A bar for each period: what was spent, and what is left of the total, there or in all."""
    before, rows = Fraction(0), []
    for period, amount in spent:
        left = ledger.total - before - amount
        bar = "".join(
            letter * round(BAR * part / ledger.total)
            for letter, part in (("-", before), ("#", amount), (".", left))
        )
        rows.append((period, text_above(amount), bar, text_below(left)))
        before = Fraction(0) if ledger.disjoint else before + amount
    return iter(columns(("period", ledger.currency, "of the total", "left"), rows, left=(0, 2)))


def schedule(ledger: Ledger, count: int) -> Spending:
    """What each of the next periods could have: the whole total, or equal parts of what is left."""
    share = ledger.total if ledger.disjoint else ledger.remaining / count
    if ledger.periods is None:
        return [(f"release {number + 1}", share) for number in range(count)]
    step = known_step(ledger.periods)
    known = [period for entry in ledger.entries() for period in entry.periods]
    if known:
        return [(period, share) for period in following(step, max(known), count)]
    today = covered(step, datetime.now(UTC).date().isoformat())
    return [(period, share) for period in (*today, *following(step, today[0], count - 1))]
