"""Expressions over rows of answers: arithmetic, windows and conditions, for groups of people and subqueries.

A scope is some rows; it knows what columns and aggregates mean there. Everything else means the same
everywhere, and stands here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from residua._arrays import Array, Flags, Indices
from residua.errors import WorkloadError
from residua.workload.sql.cells import SIGN_OF, SIGNS, among_values, like_values, unknown_function
from residua.workload.sql.comparing import number_of
from residua.workload.sql.figures import Column, Crossing, Figure, Labels, joined
from residua.workload.sql.reading import Source, bare, quoted

FUNCTIONS: dict[type[exp.Expression], tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    exp.Sqrt: (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    exp.Ln: (np.log, lambda x: 1 / x),
    exp.Exp: (np.exp, np.exp),
    exp.Neg: (np.negative, lambda x: -np.ones_like(x)),
}
WAYS: dict[type[exp.Expression], str] = {
    exp.Max: "one person alone can make it, so that no noise helps; ask for QUANTILE_DISC({0}, 0.99)",
    exp.Min: "one person alone can make it, so that no noise helps; ask for QUANTILE_DISC({0}, 0.01)",
    exp.CovarSamp: "use COVAR_POP; release.regression(.., on=[..]) gives slopes",
    exp.Mode: "the most frequent value has no error to state; GROUP BY it, and ORDER BY COUNT(*) DESC",
    exp.Rank: "ranks of noisy numbers have no error to state; ORDER BY .. DESC LIMIT 10 lists them",
    exp.DenseRank: "ranks of noisy numbers have no error to state; ORDER BY .. DESC lists them",
    exp.RowNumber: "ranks of noisy numbers have no error to state; ORDER BY .. DESC lists them",
    exp.Greatest: "the larger of noisy numbers is biased; select both",
    exp.Least: "the smaller of noisy numbers is biased; select both",
    exp.Case: "a choice by a noisy number has no error that could be stated; select what it chooses from",
    exp.If: "a choice by a noisy number has no error that could be stated; select what it chooses from",
    exp.ArrayAgg: "values of single people are not published; GROUP BY gives their counts",
    exp.GroupConcat: "values of single people are not published; GROUP BY gives their counts",
}
SUPPORTED = (
    "there are COUNT, SUM, AVG, MEDIAN, QUANTILE_CONT, STDDEV_POP and VAR_POP, +, -, *, / and ROUND of them, "
    "and SUM, LAG and LEAD .. OVER"
)


class Scope(ABC):
    """Some rows, and what expressions are worth there."""

    source: Source
    rows: int
    subquery: Callable[[exp.Expression], Figure]  # of one row and one column

    @abstractmethod
    def leaf(self, node: exp.Expression) -> Column | None:
        """What a column, or an expression of columns, is worth; None where that is not known as such."""

    @abstractmethod
    def aggregate(self, node: exp.Expression) -> Column | None:
        """What an aggregate is worth; None for what is none."""

    def value(self, node: exp.Expression) -> Column:
        """What an expression is worth on each row."""
        node = bare(node)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            return self._constant(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if isinstance(node, exp.Subquery):
            return self.subquery(node).take(np.zeros(self.rows, dtype=np.intp))
        for found in (self.aggregate(node), self.leaf(node)):
            if found is not None:
                return found
        return self._computed(node)

    def figure(self, node: exp.Expression) -> Figure:
        """The same where a number is needed."""
        found = self.value(node)
        if isinstance(found, Figure):
            return found
        if isinstance(found, Crossing):
            raise self.refusal(node, "a quantile has no slope to carry an error along; select it by itself")
        if not all(isinstance(value, int | float) for value in found.values):
            raise self.refusal(node, f"{quoted(node)} is no number to calculate with")
        return Figure.constant(found.values, self.rows)

    def refusal(self, node: exp.Expression, what: str) -> WorkloadError:
        return self.source.refusal(node, what)

    def _constant(self, node: exp.Expression) -> Column:
        if isinstance(node, exp.Literal) and not node.is_string:
            number = number_of(str(node.this))
            if number is None:
                raise self.refusal(node, f"{quoted(node)} is no number")
            return Figure.constant(number, self.rows)
        return Labels.of([None if isinstance(node, exp.Null) else node.this] * self.rows)

    def _computed(self, node: exp.Expression) -> Column:
        match node:
            case exp.Add() | exp.Sub():
                one, other = self.figure(node.this), self.figure(node.expression)
                sign = 1.0 if isinstance(node, exp.Add) else -1.0
                unit = np.ones(self.rows)
                return joined(one.values + sign * other.values, (one, unit), (other, sign * unit))
            case exp.Mul():
                return self.figure(node.this).times(self.figure(node.expression))
            case exp.Div():
                return self.figure(node.this).over(self.figure(node.expression))
            case exp.Pow():
                return self._power(node)
            case exp.Round():
                return self._rounded(node)
            case exp.Cast() if node.is_type(*exp.DataType.NUMERIC_TYPES):
                return self.value(node.this)
            case exp.Coalesce() | exp.Nullif():  # a noisy number is never missing, and never just so
                return self.value(node.this)
        if type(node) in FUNCTIONS:
            return self.figure(node.this).mapped(*FUNCTIONS[type(node)])
        raise self.unknown(node)

    def unknown(self, node: exp.Expression) -> WorkloadError:
        """The refusal of what cannot be answered, with the way to the goal."""
        if type(node) in WAYS:
            of = "" if node.this is None or isinstance(node.this, str | list) else node.this.sql()
            return self.refusal(node, f"{quoted(node)}: {WAYS[type(node)].format(of)}")
        return self.refusal(node, f"{unknown_function(node)}; {SUPPORTED}")

    def _power(self, node: exp.Expression) -> Figure:
        exponent = self.figure(node.expression)
        if not exponent.fixed or not self.rows:
            raise self.refusal(node, "powers of answers are by constants")
        n = float(exponent.values[0])
        return self.figure(node.this).mapped(lambda x: x**n, lambda x: n * x ** (n - 1))

    def _rounded(self, node: exp.Expression) -> Column:
        """The number rounded; its error is that of the number before."""
        digits = node.args.get("decimals")
        places = 0 if digits is None else int(number_of(str(bare(digits).this)) or 0)
        found = self.value(node.this)
        if not isinstance(found, Figure):
            return found
        return Figure(np.round(found.values, places), found.slopes, found.parts)

    def _window(self, node: exp.Expression) -> Figure:
        """Sums over partitions of the rows, cumulative ones, and the rows before and after."""
        inner = node.this
        if not isinstance(inner, exp.Sum | exp.Lag | exp.Lead | exp.Count):
            raise self.unknown(inner)
        what = self.figure(inner if isinstance(inner, exp.Count) else inner.this)
        parts = [self.key(each) for each in node.args.get("partition_by") or []]
        owners, count = numbered(parts, self.rows)
        order = node.args.get("order")
        if order is None:
            if not isinstance(inner, exp.Sum | exp.Count):
                raise self.refusal(
                    node, f"{quoted(node)} needs ORDER BY, such as LAG(n) OVER (ORDER BY year)"
                )
            return what.summed(owners, count).take(owners)
        ranks = self.ranks(order)
        if isinstance(inner, exp.Sum | exp.Count):
            first, second = np.nonzero((owners[:, None] == owners) & (ranks[:, None] >= ranks))
            return what.take(second).summed(first, self.rows)
        return self._neighbour(inner, what, owners, ranks)

    def _neighbour(self, node: exp.Expression, what: Figure, owners: Indices, ranks: Indices) -> Figure:
        """The figure of the row before or after in the same partition; nothing where there is none."""
        offset = node.args.get("offset")
        step = 1 if offset is None else int(number_of(str(offset.this)) or 0)
        order = np.lexsort((ranks, owners))
        place = np.empty(self.rows, dtype=np.intp)
        place[order] = np.arange(self.rows)
        target = place + (step if isinstance(node, exp.Lead) else -step)
        inside = (target >= 0) & (target < self.rows)
        other = order[np.where(inside, target, 0)]
        known = inside & (owners[other] == owners)
        found = what.take(other)
        return joined(np.where(known, found.values, np.nan), (found, known.astype(np.float64)))

    def key(self, node: exp.Expression) -> list[Any]:
        """What rows are grouped by: labels, not numbers that have an error."""
        found = self.value(node)
        if isinstance(found, Labels):
            return found.values
        raise self.refusal(node, f"{quoted(node)} has an error, so rows cannot be grouped by it")

    def ranks(self, order: exp.Expression) -> Indices:
        """The place of each row in an order; equal ones share a place."""
        keys: list[Array] = []
        for each in order.expressions:
            found = self.value(each.this if isinstance(each, exp.Ordered) else each)
            own = found.ranks if isinstance(found, Labels) else found.values
            keys.append(-own if each.args.get("desc") else own)
        _, places = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
        return np.asarray(places.reshape(-1), dtype=np.intp)

    def mask(self, node: exp.Expression) -> Flags:
        """The rows on which a condition is true; a noisy number is taken for what it is."""
        return self._truth(node)[0]

    def _truth(self, node: exp.Expression) -> tuple[Flags, Flags]:
        node = bare(node)
        match node:
            case exp.Not():
                return self._truth(node.this)[::-1]
            case exp.And() | exp.Or():
                (a, b), (c, d) = self._truth(node.this), self._truth(node.expression)
                return (a & c, b | d) if isinstance(node, exp.And) else (a | c, b & d)
            case exp.In():
                values = [self._single(each) for each in node.expressions]
                return among_values(self._values(node.this), values)
            case exp.Between():
                low = self._compared(node.this, ">=", node.args["low"])
                high = self._compared(node.this, "<=", node.args["high"])
                return low[0] & high[0], low[1] | high[1]
            case exp.Like() | exp.ILike():
                return like_values(self._values(node.this), node, str(self._single(node.expression)))
            case exp.Is() if isinstance(node.expression, exp.Null):
                none = np.array([value is None for value in self._values(node.this)], dtype=np.bool_)
                return none, ~none
            case exp.NEQ():
                return self._compared(node.this, "=", node.expression)[::-1]
        if type(node) in SIGN_OF:
            return self._compared(node.this, SIGN_OF[type(node)], node.expression)
        raise self.refusal(
            node, f"{quoted(node)} is no condition on answers that is supported; compare numbers"
        )

    def _compared(self, left: exp.Expression, sign: str, right: exp.Expression) -> tuple[Flags, Flags]:
        pairs = list(zip(self._values(left), self._values(right), strict=True))
        known = np.array([None not in pair for pair in pairs], dtype=np.bool_)
        try:
            true = np.array([None not in pair and SIGNS[sign](*pair) for pair in pairs], dtype=np.bool_)
        except TypeError:
            raise self.refusal(left, f"{quoted(left)} and {quoted(right)} cannot be compared") from None
        return true, known & ~true

    def _values(self, node: exp.Expression) -> list[Any]:
        found = self.value(node)
        if isinstance(found, Labels):
            return found.values
        return [None if np.isnan(value) else value for value in found.values.tolist()]

    def _single(self, node: exp.Expression) -> Any:
        return next(iter(self._values(node)), None)


def numbered(keys: Sequence[Sequence[Any]], rows: int) -> tuple[Indices, int]:
    """Rows with equal keys get equal numbers, counted from 0 in the order of their first rows."""
    if not keys:
        return np.zeros(rows, dtype=np.intp), 1
    numbers: dict[tuple[Any, ...], int] = {}
    found = [numbers.setdefault(key, len(numbers)) for key in zip(*keys, strict=True)]
    return np.array(found, dtype=np.intp), len(numbers)
