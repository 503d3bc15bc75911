"""Bounded quantities whose sums are published: a record is shared out among cells instead of being in one.

A value between two neighbouring edges is a share of a record at each: 30 between 0 and 100 is 0.7 of a record
at 0 and 0.3 of one at 100. Counts and sums are then queries like any other, and exact (claim U-001).

| symbol | meaning |
|---|---|
| step | what values are rounded to; codes count steps from `low` |
| D | steps of a bin; of all bins, their least common multiple |
| unit | D^degree: the whole numbers that a record's shares are multiples of one over |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from residua._arrays import AnyArray, Array, Flags, Indices, Integers, settle
from residua._text import short
from residua.errors import SchemaError
from residua.schema.attribute import ABOVE, BELOW, MISSING, OUTSIDE, Attribute, Cells, Policy
from residua.schema.attributes import Binned, check_policy
from residua.schema.columns import Column

Real = int | float | Decimal

MOST_STEPS = 2**31 - 3  # a code is an int32, and one more is for missing values
MOST_DEGREE = 8
EXACT = 2.0**53  # below this floats that are whole are exact
SAFE = 2**62  # whole numbers on the way
NEAR = 2.0**-50  # of a value: what floats may lose before they are divided by the step


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Number(Attribute):
    """A quantity from `low` to `high`, whose sums, means and moments are published; rounded to a `step`.

    Values half way between two steps go to the even one. A float means its decimal text, so that 0.35 is the
    same in text, in a column of floats and as a Decimal. `bins` are edges between the bounds where counts,
    sums and conditions can be cut. `degree` is the highest power that can be summed. With `missing`, what is
    no number is a cell of its own; without, it is outside. `outside` is `clip` (default), `drop` or `error`.

    >>> income = Number(0, 200_000, step=100)
    >>> income.encode([0, 149, 150, 250, "1e9", -5]).tolist()
    [0, 1, 2, 2, 2000, 0]
    >>> income.size, income.unit, income.moment(1).tolist()
    (2, 2000, [0.0, 200000.0])
    """

    numeric: ClassVar[bool] = True

    low: Fraction
    high: Fraction
    step: Fraction
    edges: tuple[Fraction, ...]  # bounds and bins, in order
    degree: int
    missing: bool
    outside: Policy

    def __init__(
        self,
        low: Real,
        high: Real,
        *,
        step: Real | None = None,
        bins: Sequence[Real] | None = None,
        missing: bool = False,
        outside: Policy = "clip",
        degree: int = 1,
    ) -> None:
        who = f"Number({short(low)}, {short(high)})"
        ends = _exact(who, "bound", low), _exact(who, "bound", high)
        if not ends[0] < ends[1]:
            raise SchemaError(f"{who}: the lower bound is not below the upper bound")
        if step is None:
            usual = decimal((ends[1] - ends[0]) / 1000)
            raise SchemaError(
                f"{who}: give the step that values are rounded to, such as step={usual}; a thousand steps "
                "lose nothing that noise would not hide"
            )
        width = _exact(who, "step", step)
        _check_step(who, *ends, width)
        between = [_exact(who, "edge", edge) for edge in bins or ()]
        if bins is not None:
            _check_edges(who, ends, width, between)
        if isinstance(degree, bool) or not isinstance(degree, int) or not 1 <= degree <= MOST_DEGREE:
            raise SchemaError(f"{who}: degree={degree!r} is no power from 1 to {MOST_DEGREE}")
        check_policy(who, outside, numeric=True)
        if outside in ("other", "missing"):
            raise SchemaError(f"{who}: outside={outside!r} has no value; use 'clip', 'drop' or missing=True")
        inner = [edge for edge in between if ends[0] < edge < ends[1]]
        edges = ends if bins is None else (ends[0], *inner, ends[1])
        settle(self, low=ends[0], high=ends[1], step=width, edges=edges)
        settle(self, degree=degree, missing=bool(missing), outside=outside)

    def __repr__(self) -> str:
        parts = [f"{decimal(self.low)}, {decimal(self.high)}, step={decimal(self.step)}"]
        if self.binned:
            parts.append(f"bins=[{', '.join(map(decimal, self.edges))}]")
        parts += ["missing=True"] * self.missing
        parts += [f"outside={self.outside!r}"] * (self.outside != "clip")
        parts += [f"degree={self.degree}"] * (self.degree > 1)
        return f"Number({', '.join(parts)})"

    @property
    def binned(self) -> bool:
        """Whether it has bins, by which records are counted."""
        return len(self.edges) > 2

    @property
    def whole(self) -> bool:
        """Whether every cell is that of some record: of degree 1 without bins, both ends are."""
        return self.degree == 1 and not self.binned

    @property
    def steps(self) -> tuple[int, ...]:
        """The codes of the edges."""
        return tuple(int((edge - self.low) / self.step) for edge in self.edges)

    @property
    def widest(self) -> int:
        """D: the least common multiple of the bins' numbers of steps."""
        return math.lcm(*np.diff(self.steps).tolist())

    @property
    def unit(self) -> int:
        return int(self.widest**self.degree)

    @property
    def codes(self) -> int:
        return self.steps[-1] + 1 + self.missing

    @property
    def inner_size(self) -> int:
        return (len(self.edges) - 1) * (self.degree + 1) + self.missing

    @property
    def counted(self) -> Attribute | None:
        outside: Policy = "missing" if self.missing else "error"
        return Binned(*map(float, self.edges[:-1]), above=True, outside=outside) if self.binned else None

    @property
    def counted_by(self) -> Integers:
        return np.arange(self.size) // (self.degree + 1)

    def moment(self, power: int) -> Array:
        """What each cell adds to the sum of a power of the values, (size,); of power 0, the number of values.

        On a bin from `a` to `b`, `(a + (b - a) t)^k` is the sum over cells i of `b_i` times the Bernstein
        polynomial `C(m, i) t^i (1 - t)^(m-i)`; its blossom gives `b_i` (claim U-002).
        """
        if power > self.degree:
            raise SchemaError(f"needs degree={power} at least, and this is {self!r}")
        found = []
        for low, high in pairwise(self.edges):
            for cell in range(self.degree + 1):
                found.append(float(_blossom(low, high, self.degree, cell, power)))
        return np.array(found + [0.0] * self.missing)

    def to_manifest(self, arrays: dict[str, AnyArray] | None = None) -> dict[str, Any]:
        edges = [decimal(edge) for edge in self.edges]
        manifest = {"kind": "number", "edges": edges, "step": decimal(self.step), "degree": self.degree}
        return {**manifest, "missing": self.missing, "outside": self.outside}

    def _inner_label(self, cell: int) -> str:
        at, place = divmod(cell, self.degree + 1)
        if at == len(self.edges) - 1:
            return MISSING
        low, high = self.edges[at], self.edges[at + 1]
        return f"{decimal(low)} to {decimal(high)}, end {place} of {self.degree}"

    def _cells_of_numbers(self, values: AnyArray, *, nearest: bool) -> Cells:
        values = values.astype(np.int8) if values.dtype.kind == "b" else values
        floats = values.astype(np.float64)
        codes, rows = self._coded(floats)
        whole = rows[(floats[rows] == np.rint(floats[rows])) & (np.abs(floats[rows]) < EXACT)]
        codes[whole], decided = self._divided(floats[whole])
        rows = np.setdiff1d(rows, whole[decided], assume_unique=True)
        found, inverse = np.unique(values[rows], return_inverse=True)
        codes[rows] = self._exactly([Decimal(repr(value)) for value in found.tolist()])[inverse]
        return self._beyond(codes, floats, nearest)

    def _cells_of_other_numbers(self, text: Any, *, nearest: bool) -> Cells:
        floats = text.cast("float64").to_numpy(zero_copy_only=False)
        codes, rows = self._coded(floats)
        codes[rows] = self._exactly([Decimal(text[at].as_py()) for at in rows.tolist()])
        return self._beyond(codes, floats, nearest)

    def _coded(self, values: Array) -> tuple[Cells, Indices]:
        """Codes of numbers of which floats are known, and the rows that floats cannot decide.

        Those are about half way between two steps.
        """
        low, high, step = float(self.low), float(self.high), float(self.step)
        with np.errstate(invalid="ignore"):
            quotient = (np.clip(values, low, high) - low) / step
            codes = np.where(np.isnan(values), OUTSIDE, np.rint(quotient)).astype(np.int32)
        doubt = NEAR * (abs(low) + abs(high)) / step + 2.0**-20
        unsure = np.abs(np.abs(quotient - codes) - 0.5) <= doubt
        return codes, np.flatnonzero(unsure & (values >= low) & (values <= high))

    def _divided(self, values: Array) -> tuple[Integers, Flags]:
        """Codes of whole numbers, exactly, and for which of them that is so: for all, where 64 bits do."""
        ratio = 1 / self.step
        over, under = self.low.denominator * ratio.numerator, self.low.denominator * ratio.denominator
        start = self.low.numerator * ratio.numerator
        fits = 2 * (max(abs(self.low), abs(self.high)) * over + abs(start)) + under < SAFE
        if not fits:
            return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
        # (value - low) / step = (value * over - start) / under, all of them whole.
        twice = 2 * (values.astype(np.int64) * over - start) + under
        codes, left = np.divmod(twice, 2 * under)
        return codes - ((left == 0) & (codes % 2 == 1)), np.ones(len(values), dtype=np.bool_)

    def _exactly(self, numbers: Sequence[Decimal]) -> Cells:
        """Codes of some numbers between the bounds."""
        codes = [round((_fraction(each) - self.low) / self.step) for each in numbers]
        return np.clip(np.array(codes, dtype=np.int64), 0, self.steps[-1]).astype(np.int32)

    def _beyond(self, codes: Cells, values: Array, nearest: bool) -> Cells:
        """The codes, which are those of the nearest bounds, with marks where values are beyond them."""
        if not nearest:
            codes[values < float(self.low)] = BELOW
            codes[values > float(self.high)] = ABOVE
        return codes

    def _settle(self, cells: Cells, column: Column, source: tuple[str, str, int]) -> Cells:
        cells[cells == ABOVE] = self.steps[-1] if self.outside == "clip" else ABOVE
        cells[cells == OUTSIDE] = self.codes - 1 if self.missing else OUTSIDE
        return Attribute._settle(self, cells, column, source)

    def _remedies(self) -> str:
        return "missing=True, or outside='drop'" if self.outside == "clip" else "outside='clip' or 'drop'"


def decimal(value: Fraction) -> str:
    """A decimal fraction in digits: 200000, 0.05."""
    if value.denominator == 1:
        return str(value.numerator)
    places = next(n for n in range(1, 2000) if 10**n % value.denominator == 0)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' * (value < 0)}{digits[:-places]}.{digits[-places:]}"


def _blossom(low: Fraction, high: Fraction, degree: int, cell: int, power: int) -> Fraction:
    """Coefficient of a Bernstein polynomial in `x^power`: the mean of products of `power` of the numbers
    `high` (`cell` times) and `low` (the other times)."""
    chosen = (
        math.comb(cell, tops) * math.comb(degree - cell, power - tops) * high**tops * low ** (power - tops)
        for tops in range(power + 1)
    )
    return sum(chosen, Fraction(0)) / math.comb(degree, power)


def _exact(who: str, what: str, value: object) -> Fraction:
    """A number as its decimal text has it."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float | Decimal):
        raise SchemaError(f"{who}: the {what} {short(value)} is not a number")
    if not math.isfinite(plain) or not 1e-100 < abs(float(plain) or 1.0) < 1e100:
        raise SchemaError(f"{who}: the {what} {short(value)} is not a number that can be added up")
    return Fraction(str(plain))


def _fraction(value: Decimal) -> Fraction:
    """A number exactly, but for those so near zero that nobody would wait for their digits."""
    tiny = bool(value) and value.adjusted() < -400
    return Fraction(1 if value > 0 else -1, 10**400) if tiny else Fraction(value)


def _check_step(who: str, low: Fraction, high: Fraction, step: Fraction) -> None:
    if step <= 0:
        raise SchemaError(f"{who}: step={decimal(step)} is not above zero")
    steps = (high - low) / step
    if steps.denominator != 1:
        near = low + step * (steps.numerator // steps.denominator + 1)
        raise SchemaError(
            f"{who}: step={decimal(step)} does not divide the range; use another, or high={decimal(near)}"
        )
    if steps > MOST_STEPS:
        coarser = decimal((high - low) / 1_000_000)
        raise SchemaError(f"{who}: {steps} steps are too many to count; use a coarser one, such as {coarser}")


def _check_edges(
    who: str, ends: tuple[Fraction, Fraction], step: Fraction, between: Sequence[Fraction]
) -> None:
    inner = [edge for edge in between if edge not in ends]
    if any(not ends[0] < edge < ends[1] for edge in inner) or not inner:
        raise SchemaError(f"{who}: bins are edges between the bounds, at least one of them")
    for left, right in pairwise(between):
        if not left < right:
            raise SchemaError(f"{who}: edge {decimal(right)} follows {decimal(left)}; edges must increase")
    for edge in inner:
        if ((edge - ends[0]) / step).denominator != 1:
            raise SchemaError(
                f"{who}: the edge {decimal(edge)} is between two steps of {decimal(step)}; use a finer step"
            )
