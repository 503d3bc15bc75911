"""Statistics derived from a release: ratios, shares, means, quantiles, differences, functions of answers.

Answers of a release have a known covariance, so everything here has an error that is known as well and
costs no privacy. Ratios get Fieller's sets, which cover as they say however small the denominator is;
quantiles invert tests along the cumulative counts; other smooth functions get the delta method.

| symbol | meaning |
|---|---|
| z | half the width of an interval of one answer, in standard deviations |
| top, bottom | numerators and denominators, one for each figure |
| d(x) | cumulative count up to x less q times the total: crosses zero at the quantile q |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Array, Integers
from residua.answers import Cells
from residua.errors import WorkloadError
from residua.plans import Plan
from residua.privacy.budgets import interval_margin
from residua.release.intervals import Intervals, fieller
from residua.release.sources import refuse_shared_noise
from residua.schema import Schema
from residua.workload import Workload, linear, table
from residua.workload.moments import cell_numbers, first_crossing, last_crossing, quantile_rows

MOST_FIGURES = 4_000  # of one statistic: their covariance is held
MOST_ARGUMENTS = 2_000  # of a function of answers: it is evaluated twice for each
UNBOUNDED = "the denominator is not clearly above zero"


class Answers(Protocol):
    """What statistics are derived from: a release, or anything with answers and their covariance."""

    @property
    def plan(self) -> Plan:
        """The plan that they were measured under."""

    def values(self, work: Workload) -> Array:
        """Unbiased answers, shape (count,)."""

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of answers, shape (left.count, right.count)."""


@dataclass(frozen=True, slots=True, eq=False)
class TableAnswer(Cells):
    """One table of answers: arrays with an axis per attribute, in the order asked."""

    stddev: Array
    lower: Array
    upper: Array
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Statistic(TableAnswer):
    """Derived figures; `notes` has a word where one needs it, such as for an interval without an end."""

    notes: NDArray[np.str_]


class Derives:
    """What a release offers beyond its tables: each figure with its error, at no further privacy cost.

    `level` is the confidence of the intervals; with `simultaneous`, that all of them hold at once.
    """

    def ratio(
        self: Answers, top: Workload, bottom: Workload, *, level: float = 0.95, simultaneous: bool = False
    ) -> Statistic:
        """Each answer of `top` over that of `bottom`, which has as many, or one for all."""
        return ratio(self, top, bottom, Intervals(level, simultaneous))

    def share(
        self: Answers,
        names: str | Sequence[str],
        *,
        within: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Shares of the cells of attributes, as parts of 1: of all records, or within each cell of others."""
        return share(self, listed_names(names), listed_names(within), Intervals(level, simultaneous))

    def quantile(
        self: Answers,
        name: str,
        orders: Sequence[float] = (0.25, 0.5, 0.75),
        *,
        by: str | Sequence[str] = (),
        values: Sequence[float] | None = None,
        interpolate: bool = False,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Quantiles of a number, (by..., orders): the least value whose cumulative count reaches its part.

        Of bins it is the upper end, or with `interpolate` where it is if records are spread evenly in bins.
        """
        intervals = Intervals(level, simultaneous)
        return quantile(self, name, orders, listed_names(by), intervals, values, interpolate)

    def difference(
        self: Answers,
        first: Workload,
        second: "Workload | Answers",
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Answers of one workload less those of another, or less the same answers of another release."""
        return difference(self, first, second, Intervals(level, simultaneous))

    def derived(
        self: Answers,
        function: Callable[[Mapping[str, Array]], Any],
        tables: Mapping[str, Workload],
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Any smooth function of answers, which it gets as arrays by name; errors by the delta method."""
        return derived(self, function, tables, Intervals(level, simultaneous))


def listed_names(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def ratio(source: Answers, top: Workload, bottom: Workload, intervals: Intervals) -> Statistic:
    """Each answer of `top` over that of `bottom`, which has as many, or one for all."""
    if bottom.count not in (1, top.count):
        raise WorkloadError(
            f"a ratio needs one denominator, or as many as numerators: {top.count:,} over {bottom.count:,}"
        )
    labels = tuple(str(at) for at in range(top.count))
    return ratio_of(
        source, top, bottom, np.arange(top.count) % bottom.count, ("ratio",), (labels,), intervals
    )


def share(source: Answers, names: Sequence[str], within: Sequence[str], intervals: Intervals) -> Statistic:
    """Shares of the cells of some attributes within each cell of others, as parts of 1."""
    schema = source.plan.schema
    refuse_overlap(names, within)
    asked = [*within, *names]
    sizes = [schema.counted(name).size for name in asked]
    groups = int(np.prod([schema.counted(name).size for name in within]))
    owners = np.arange(np.prod(sizes)) // (np.prod(sizes) // groups)
    return ratio_of(
        source, table(schema, asked), table(schema, list(within)), owners, *axes_of(schema, asked), intervals
    )


def mean(
    source: Answers, name: str, by: Sequence[str], intervals: Intervals, values: Sequence[float] | None = None
) -> Statistic:
    """Mean of a number in each cell of other attributes; bins count at their middles unless `values` say."""
    schema = source.plan.schema
    refuse_overlap([name], by)
    numbers = numbers_of(schema, name, values)
    groups = int(np.prod([schema[each].size for each in by]))
    top, bottom = linear(schema, (*by, name), np.kron(np.eye(groups), numbers)), table(schema, list(by))
    if values is None and schema[name].other is not None:  # whose records have no value
        known = cell_numbers(name, schema[name], power=0)
        bottom = linear(schema, (*by, name), np.kron(np.eye(groups), known))
    return ratio_of(source, top, bottom, np.arange(groups), *axes_of(schema, by), intervals)


def ratio_of(
    source: Answers,
    top: Workload,
    bottom: Workload,
    owners: Integers,
    names: tuple[str, ...],
    axes: tuple[tuple[str, ...], ...],
    intervals: Intervals,
) -> Statistic:
    """Ratios of answers, each with its own denominator: values, delta-method errors and Fieller's sets."""
    refuse_many(top.count)
    t, b = source.values(top), source.values(bottom)[owners]
    tops, bottoms = source.covariance(top, top), source.covariance(bottom, bottom)
    both = source.covariance(top, bottom)[:, owners]
    bottoms = bottoms[np.ix_(owners, owners)]
    return ratio_figures(t, b, tops, bottoms, both, names, axes, source.plan.strategy.law, intervals)


def ratio_figures(
    t: Array,
    b: Array,
    tops: Array,
    bottoms: Array,
    both: Array,
    names: tuple[str, ...],
    axes: tuple[tuple[str, ...], ...],
    law: Any,
    intervals: Intervals,
) -> Statistic:
    """Ratios of numbers with these covariances: of numerators, of denominators, and of both."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = t / b
        whole = (
            tops - both * values - both.T * values[:, None] + bottoms * np.outer(values, values)
        ) / np.outer(b, b)
    whole = np.where(np.isfinite(whole), whole, 0.0)
    z = intervals.margin(law, whole)
    vt, vb, c = np.diag(tops), np.diag(bottoms), np.diag(both)
    lower, upper, bounded = fieller(t, b, vt, vb, c, z)
    stddev = np.where(bounded, np.sqrt(np.diag(whole)), np.inf)
    notes = np.where(bounded, "", UNBOUNDED)
    return _shaped(names, axes, (values, stddev, lower, upper), intervals.level, notes)


def quantile(
    source: Answers,
    name: str,
    orders: Sequence[float],
    by: Sequence[str],
    intervals: Intervals,
    values: Sequence[float] | None = None,
    interpolate: bool = False,
) -> Statistic:
    """Quantiles of a number in each cell of other attributes, (by..., orders).

    A quantile is the least value whose cumulative count reaches its part of the total; it lies between the
    ends with the stated confidence, since each end is where a test along the cumulative counts gives way
    (claim F-002). Bins are given by their upper ends, unless `values` say otherwise; with `interpolate`, the
    records of a bin are taken as spread evenly over it.
    """
    schema = source.plan.schema
    refuse_overlap([name], by)
    if not orders or not all(0 < order < 1 for order in orders):
        raise WorkloadError(f"orders of quantiles lie between 0 and 1, such as 0.5, not {list(orders)!r}")
    rows, points, smooth = _quantile_rows(schema, name, orders, values, interpolate)
    groups = int(np.prod([schema[each].size for each in by]))
    refuse_many(groups * len(rows))
    asked = linear(schema, (*by, name), np.kron(np.eye(groups), rows))
    found = source.values(asked).reshape(-1, len(points))
    errors = np.sqrt(source.plan.variances(asked)).reshape(found.shape)
    total = source.values(table(schema, list(by)))
    spread = np.sqrt(source.plan.variances(table(schema, list(by))))
    level = intervals.level ** (1 / len(found)) if intervals.simultaneous else intervals.level
    z = float(interval_margin(source.plan.strategy.law, level))
    values_at = first_crossing(found, points, smooth)
    lower = first_crossing(found + z * errors, points, smooth)
    upper = last_crossing(found - z * errors, points, smooth)
    notes = np.where(np.repeat(total - z * spread > 0, len(orders)), "", "the group is not clearly there")
    names, axes = axes_of(schema, by)
    names, axes = (*names, "quantile"), (*axes, tuple(f"{order:g}" for order in orders))
    return _shaped(names, axes, (values_at, (upper - lower) / (2 * z), lower, upper), intervals.level, notes)


def _quantile_rows(
    schema: Schema, name: str, orders: Sequence[float], values: Sequence[float] | None, smooth: bool
) -> tuple[Array, Array, bool]:
    if values is None:
        return quantile_rows(name, schema[name], orders, smooth=smooth)
    if smooth:
        raise WorkloadError(f"{name!r}: cells that count as numbers have nothing between them")
    points = numbers_of(schema, name, values)
    steps = np.tril(np.ones((len(points), len(points))))
    return np.concatenate([steps - order for order in orders]), points, False


def difference(
    source: Answers, first: Workload, second: "Workload | Answers", intervals: Intervals
) -> Statistic:
    """Answers of one workload less those of another, or less the same answers of another release."""
    refuse_many(first.count)
    if isinstance(second, Workload):
        if second.count != first.count:
            raise WorkloadError(f"{first.count:,} answers less {second.count:,}: they should be as many")
        values = source.values(first) - source.values(second)
        both = source.covariance(first, second)
        covariance = source.covariance(first, first) + source.covariance(second, second) - both - both.T
    else:
        if second.plan.schema != source.plan.schema:
            raise WorkloadError("the two releases have different schemas; their tables cannot be compared")
        refuse_shared_noise(source, second)
        values = source.values(first) - second.values(first)
        covariance = source.covariance(first, first) + second.covariance(first, first)
    labels = (tuple(str(at) for at in range(first.count)),)
    return plain_figures(("difference",), labels, values, covariance, source.plan.strategy.law, intervals)


def derived(
    source: Answers,
    function: Callable[[Mapping[str, Array]], Any],
    tables: Mapping[str, Workload],
    intervals: Intervals,
) -> Statistic:
    """A smooth function of answers, with the error that the delta method gives (claim F-003).

    `function` is called with an array for each of the named workloads, and returns numbers.
    """
    counts = {name: work.count for name, work in tables.items()}
    if sum(counts.values()) > MOST_ARGUMENTS:
        raise WorkloadError(
            f"a function of {sum(counts.values()):,} answers, more than {MOST_ARGUMENTS:,}; use few tables"
        )
    works = list(tables.values())
    at = np.concatenate([source.values(work) for work in works])
    covariance = np.block([[source.covariance(a, b) for b in works] for a in works])
    ends = np.cumsum(list(counts.values()))[:-1]

    def called(answers: Array) -> Array:
        found = function(dict(zip(counts, np.split(answers, ends), strict=True)))
        return np.asarray(found, dtype=np.float64).reshape(-1)

    steps = 1e-4 * np.sqrt(np.clip(np.diag(covariance), 1e-300, None))
    columns = []
    for place, step in enumerate(steps.tolist()):
        change = np.zeros(len(at))
        change[place] = step
        columns.append((called(at + change) - called(at - change)) / (2 * step))
    slopes, values = np.array(columns).T, called(at)
    labels = (tuple(str(number) for number in range(len(values))),)
    spread = slopes @ covariance @ slopes.T
    found = plain_figures(("figure",), labels, values, spread, source.plan.strategy.law, intervals)
    broken = ~np.isfinite(found.stddev) | ~np.isfinite(values)
    return replace(found, notes=np.where(broken, "the function has no slope here", found.notes))


def plain_figures(
    names: tuple[str, ...],
    axes: tuple[tuple[str, ...], ...],
    values: Array,
    covariance: Array,
    law: Any,
    intervals: Intervals,
) -> Statistic:
    """Figures whose errors are normal, or wider, with this covariance."""
    stddev = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    margin = intervals.margin(law, covariance) * stddev
    figures = (values, stddev, values - margin, values + margin)
    return _shaped(names, axes, figures, intervals.level, np.full(len(values), ""))


def _shaped(
    names: tuple[str, ...],
    axes: tuple[tuple[str, ...], ...],
    figures: tuple[Array, Array, Array, Array],
    level: float,
    notes: NDArray[np.str_],
) -> Statistic:
    """Figures in a row, as a table with these axes."""
    shape = tuple(map(len, axes))
    values, stddev, lower, upper = (np.asarray(each, dtype=np.float64).reshape(shape) for each in figures)
    return Statistic(names, axes, values, stddev, lower, upper, level, notes.reshape(shape))


def numbers_of(schema: Schema, name: str, values: Sequence[float] | None = None) -> Array:
    """The number that each cell of an attribute counts as: itself, or the middle of its bin."""
    attribute = schema[name]
    if values is not None:
        found = np.asarray(values, dtype=np.float64)
        if found.shape != (attribute.size,) or not np.isfinite(found).all():
            raise WorkloadError(f"{name!r} has {attribute.size:,} cells; give a finite number for each")
        return found
    return cell_numbers(name, attribute)


def axes_of(schema: Schema, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(names), tuple(schema.counted(name).labels() for name in names)


def refuse_overlap(names: Sequence[str], by: Sequence[str]) -> None:
    if twice := set(names) & set(by) or {name for name in (*names, *by) if [*names, *by].count(name) > 1}:
        raise WorkloadError(f"{', '.join(map(repr, sorted(twice)))}: named twice")


def refuse_many(count: int) -> None:
    if count > MOST_FIGURES:
        raise WorkloadError(
            f"{count:,} figures at once are more than {MOST_FIGURES:,}, whose covariance can be held; "
            "ask for fewer attributes at a time"
        )
