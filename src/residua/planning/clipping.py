"""Bounds for a number without looking at data: what clipping takes off a sum against the noise that it saves.

The noise of a sum grows with its bounds, and what lies outside is clipped to them. A public guess of the
distribution (last year's published quantiles, another survey, a formula) tells where both are small together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Array
from residua._text import columns
from residua.errors import SchemaError
from residua.planning.request import plan
from residua.privacy import Budget, Unit
from residua.schema import Number, Schema
from residua.workload import moment, sum_of, table

Guess = Mapping[float, float] | Sequence[float] | Array | Callable[[Array], ArrayLike]
"""Quantiles by order, values, or a function from orders between 0 and 1 to quantiles."""

POINTS = 20_000  # of the guess
TRIED = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)
STEPS = 1_000
ONE_RECORD = Unit()


@dataclass(frozen=True, slots=True)
class Bound:
    """One pair of bounds: the part of the guess that they clip, and what that and noise do to a sum."""

    low: float
    high: float
    clipped: float
    bias: float
    stddev: float

    @property
    def rmse(self) -> float:
        """Root mean square error of the sum."""
        return math.hypot(self.bias, self.stddev)


@dataclass(frozen=True, slots=True)
class Clipping:
    """Bounds that were tried, in rising order, and the best of them."""

    tried: tuple[Bound, ...]
    records: int

    @property
    def best(self) -> Bound:
        """The bounds with the least error under the guess."""
        return min(self.tried, key=lambda each: each.rmse)

    def __str__(self) -> str:
        rows = []
        for each in self.tried:
            errors = (f"{value:,.4g}" for value in (each.bias, each.stddev, each.rmse))
            bounds, best = f"{each.low:,.9g} to {each.high:,.9g}", "best" if each == self.best else ""
            rows.append([bounds, f"{each.clipped:.2%}", *errors, best])
        head = [f"a sum over {self.records:,} records", "clipped", "bias", "noise", "error", ""]
        return "\n".join(columns(head, rows))


def choose_bounds(
    guess: Guess,
    budget: Budget,
    *,
    records: int,
    low: float = 0,
    highs: Sequence[float] | None = None,
    unit: Unit = ONE_RECORD,
) -> Clipping:
    """What upper bounds of a number do to its sum over so many records, under a public guess of its values.

    No data is needed: `guess` maps orders to quantiles, lists values, or is a quantile function. `records` is
    the size of the smallest group whose sum matters. Count and sum are planned together at the budget.

    >>> import residua as rs
    >>> guess = {0: 0, 0.5: 30_000, 0.9: 80_000, 0.99: 200_000, 0.999: 400_000, 1: 1_000_000}
    >>> found = choose_bounds(guess, rs.zcdp("0.1"), records=5_000)
    >>> found.best.high, f"{found.best.clipped:.1%}"
    (690000.0, '0.1%')
    """
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise SchemaError(f"records={records!r} is the size of a group, a whole number of at least 1")
    values = _values(guess)
    if highs is None:
        highs = sorted({float(f"{np.quantile(values, order):.2g}") for order in TRIED})  # of two digits
    tried = [_bound(values, float(low), float(high), budget, records, unit) for high in highs if high > low]
    if not tried:
        raise SchemaError(f"no upper bound above low={low!r}; give highs=[...]")
    return Clipping(tuple(tried), records)


def _bound(values: Array, low: float, high: float, budget: Budget, records: int, unit: Unit) -> Bound:
    step = (Decimal(repr(high)) - Decimal(repr(low))) / STEPS
    schema = Schema(x=Number(Decimal(repr(low)), Decimal(repr(high)), step=step))
    found = plan(table(schema, x=[moment(0), sum_of]), budget, unit=unit)
    noise = math.sqrt(float(found.variances(table(schema, x=sum_of))[0]))
    inside = np.clip(values, low, high)
    bias = records * float(np.mean(inside - values))
    return Bound(low, high, float(np.mean(inside != values)), bias, noise)


def _values(guess: Guess) -> Array:
    """Equally likely values, (points,)."""
    orders = (np.arange(POINTS) + 0.5) / POINTS
    if isinstance(guess, Mapping):
        known = sorted((float(order), float(value)) for order, value in guess.items())
        if len(known) < 2 or known[0][0] < 0 or known[-1][0] > 1 or any(np.diff([v for _, v in known]) < 0):
            raise SchemaError("a guess by quantiles has at least two orders from 0 to 1, and rising values")
        found = np.interp(orders, [order for order, _ in known], [value for _, value in known])
    elif callable(guess):
        found = np.asarray(guess(orders), dtype=np.float64)
    else:
        found = np.asarray(guess, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise SchemaError("a guess is finite numbers: quantiles by order, values, or a quantile function")
    return found
