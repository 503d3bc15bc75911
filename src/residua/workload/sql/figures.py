"""Numbers that are made of answers, with the slopes that carry the errors of the answers along.

A figure is a value for each row and its derivatives with respect to every answer that was asked for, so that
the covariance of answers gives the error of anything made of them: exactly where it is a sum, by the delta
method where it is not (claim F-006). A quotient keeps its two parts, for Fieller's intervals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from residua._arrays import Array, Indices
from residua.schema import Schema
from residua.workload.moments import first_crossing
from residua.workload.tables import Factor, Table
from residua.workload.union import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A number for each row, (rows,), and its slopes, (rows, answers)."""

    values: Array
    slopes: Any
    parts: "tuple[Figure, Figure] | None" = None

    @classmethod
    def constant(cls, values: Any, rows: int) -> "Figure":
        """Numbers that no answer has a part in."""
        return cls(np.broadcast_to(np.asarray(values, dtype=np.float64), rows), sparse.csr_array((rows, 0)))

    @property
    def fixed(self) -> bool:
        """Whether no answer has a part in it."""
        return bool(self.slopes.nnz == 0)

    def take(self, rows: Indices) -> "Figure":
        """The figure at some rows, in this order."""
        parts = None if self.parts is None else (self.parts[0].take(rows), self.parts[1].take(rows))
        return Figure(self.values[rows], self.slopes[rows], parts)

    def times(self, other: "Figure") -> "Figure":
        """The product; a constant factor goes into the numerator of a quotient."""
        found = joined(self.values * other.values, (self, other.values), (other, self.values))
        for one, factor in ((self, other), (other, self)):
            if one.parts is not None and factor.fixed:
                return replace(found, parts=(one.parts[0].times(factor), one.parts[1]))
        return found

    def over(self, other: "Figure") -> "Figure":
        """The quotient, with its parts unless it is one by a constant."""
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / other.values
            found = joined(self.values * inverse, (self, inverse), (other, -self.values * inverse**2))
        if not other.fixed:
            return replace(found, parts=(self, other))
        return (
            found if self.parts is None else replace(found, parts=(self.parts[0].over(other), self.parts[1]))
        )

    def mapped(self, function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> "Figure":
        """A smooth function of each number."""
        with np.errstate(all="ignore"):
            return joined(function(self.values), (self, slope(self.values)))

    def summed(self, owners: Indices, count: int) -> "Figure":
        """The sums over rows of the same owner, of whom there are so many."""
        sums = sparse.csr_array(
            (np.ones(len(owners)), (owners, np.arange(len(owners)))), (count, len(owners))
        )
        return Figure(np.asarray(sums @ self.values), sparse.csr_array(sums @ self.slopes))


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """A quantile for each row: where its figures, one for each of some numbers, stop being below zero.

    With `smooth`, between two numbers where the line between them does.
    """

    figure: Figure  # (rows * numbers,)
    numbers: Array
    smooth: bool

    @property
    def values(self) -> Array:
        """The least number at which the cumulative count reaches its part."""
        return first_crossing(self.figure.values.reshape(-1, len(self.numbers)), self.numbers, self.smooth)

    def take(self, rows: Indices) -> "Crossing":
        """The quantiles at some rows."""
        width = len(self.numbers)
        return replace(self, figure=self.figure.take((rows[:, None] * width + np.arange(width)).reshape(-1)))


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A text, a whole number or nothing for each row, and the order that rows have by it."""

    values: list[Any]
    ranks: Array

    @classmethod
    def of(cls, values: Sequence[Any]) -> "Labels":
        """Labels in the order of numbers, or of the alphabet; nothing comes last, as in DuckDB."""
        known = {value for value in values if value is not None}
        text = any(isinstance(value, str) for value in known)
        places = {value: at for at, value in enumerate(sorted(known, key=str if text else None))}
        return cls(list(values), np.array([places.get(value, np.inf) for value in values], dtype=np.float64))

    def take(self, rows: Indices) -> "Labels":
        """The labels at some rows."""
        return Labels([self.values[row] for row in rows.tolist()], self.ranks[rows])


Column = Figure | Crossing | Labels


def joined(values: Array, *terms: tuple[Figure, Array]) -> Figure:
    """The figure with these values whose slopes are the sum of those of others, each row times a number."""
    width = max(figure.slopes.shape[1] for figure, _ in terms)
    total = sparse.csr_array((len(values), width))
    for figure, factors in terms:
        if figure.slopes.nnz:
            factors = np.where(np.isfinite(factors), factors, 0.0)
            diagonal = sparse.diags_array(np.broadcast_to(factors, len(values)))
            total = total + diagonal @ _padded(figure.slopes, width)
    return Figure(np.asarray(values), sparse.csr_array(total))


def _padded(slopes: Any, width: int) -> Any:
    """The slopes with columns for answers that were asked for later."""
    return sparse.csr_array((slopes.data, slopes.indices, slopes.indptr), (slopes.shape[0], width))


def stacked(columns: Sequence[Column]) -> Column:
    """Columns of one kind below each other."""
    first = columns[0]
    if isinstance(first, Labels):
        return Labels.of([value for each in columns if isinstance(each, Labels) for value in each.values])
    if isinstance(first, Crossing):
        return replace(first, figure=_below([each.figure for each in columns if isinstance(each, Crossing)]))
    return _below([each for each in columns if isinstance(each, Figure)])


def _below(figures: Sequence[Figure]) -> Figure:
    width = max(each.slopes.shape[1] for each in figures)
    slopes = sparse.vstack([_padded(each.slopes, width) for each in figures], format="csr")
    tops = [each.parts[0] for each in figures if each.parts is not None]
    bottoms = [each.parts[1] for each in figures if each.parts is not None]
    parts = (_below(tops), _below(bottoms)) if len(tops) == len(figures) else None
    return Figure(np.concatenate([each.values for each in figures]), slopes, parts)


@dataclass(frozen=True, slots=True, eq=False)
class AskedTables:
    """The tables that statements have asked for so far, and how they are answered; equal ones once."""

    schema: Schema
    answers: Callable[[Workload], Array]
    tables: list[Table] = field(default_factory=list)
    known: dict[tuple[Factor, ...], Figure] = field(default_factory=dict)

    def ask(self, table: Table) -> Figure:
        """The answers of a table."""
        if table.factors not in self.known:
            start = sum(each.count for each in self.tables)
            self.tables.append(table)
            places = np.arange(table.count)
            slopes = sparse.csr_array(
                (np.ones(table.count), (places, start + places)), (table.count, start + table.count)
            )
            self.known[table.factors] = Figure(self.answers(Workload(self.schema, (table,))), slopes)
        return self.known[table.factors]

    @property
    def work(self) -> Workload:
        """All of them, in the order of the slopes."""
        return Workload(self.schema, tuple(self.tables))
