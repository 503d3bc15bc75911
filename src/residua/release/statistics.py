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

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Array, Integers
from residua._text import kind_of, listed_names
from residua.answers import Cells
from residua.errors import WorkloadError
from residua.plans import Plan
from residua.privacy.budgets import interval_margin
from residua.release.intervals import Intervals, fieller
from residua.schema import Schema
from residua.workload import Workload, linear, table
from residua.workload.moments import cell_numbers, first_crossing, last_crossing, quantile_rows

if TYPE_CHECKING:
    import pyarrow

MOST_FIGURES = 4_000  # of one statistic: their covariance is held
MOST_ARGUMENTS = 2_000  # of a function of answers: it is evaluated twice for each
UNBOUNDED = "the denominator is not clearly above zero"
Axes = Sequence[tuple[str, Sequence[str]]]
"""The name of each axis of a table of figures, and the labels along it."""
Compared = tuple[Array, Array, Array, Array, Array]
"""Numerators, denominators, and covariances: of the first, of the second, and between them."""


class Answers(Protocol):
    """What statistics are derived from: a release, or anything with answers and their covariance."""

    @property
    def plan(self) -> Plan:
        """The plan that they were measured under."""

    def values(self, work: Workload) -> Array:
        """Unbiased answers, shape (count,)."""

    def covariance(self, left: Workload, right: Workload) -> Array:
        """Covariance of answers, shape (left.count, right.count)."""


class Published(Answers, Protocol):
    """Answers that can be listed with their errors, and know where they come from."""

    def answers(self, work: Workload | None = None, *, level: float = 0.95) -> "pyarrow.Table":
        """Answers of a workload, with their errors, as an Arrow table."""

    @property
    def marks(self) -> dict[str, str]:
        """What every table of answers carries along."""

    def facts(self) -> list[tuple[str, str]]:
        """What readers of the tables should know about where they come from."""


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
        for each in (top, bottom):
            if not isinstance(each, Workload):
                raise WorkloadError(f"a ratio is of two workloads, as rs.table makes, not {kind_of(each)}")
        if bottom.count not in (1, top.count):
            raise WorkloadError(
                "a ratio needs one denominator, or as many as numerators: "
                f"{top.count:,} over {bottom.count:,}"
            )
        owners = np.arange(top.count) % bottom.count
        return ratio_of(self, top, bottom, owners, numbered("ratio", top), Intervals(level, simultaneous))

    def share(
        self: Answers,
        names: str | Sequence[str],
        *,
        within: str | Sequence[str] = (),
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Shares of the cells of attributes, as parts of 1: of all records, or within each cell of others."""
        schema, others = self.plan.schema, listed_names(within)
        refuse_overlap(listed_names(names), others)
        asked = [*others, *listed_names(names)]
        top, bottom = table(schema, asked), table(schema, others)
        owners = np.arange(top.count) // (top.count // bottom.count)
        return ratio_of(self, top, bottom, owners, axes_of(schema, asked), Intervals(level, simultaneous))

    def quantile(
        self: Answers,
        name: str,
        orders: float | Sequence[float] = (0.25, 0.5, 0.75),
        *,
        by: str | Sequence[str] = (),
        values: Sequence[float] | None = None,
        interpolate: bool = False,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Quantiles of a number, (by..., orders): the least value whose cumulative count reaches its part.

        Of bins it is the upper end, or with `interpolate` where it is if records are spread evenly in bins;
        `values` say what cells count as otherwise. It lies between the ends with the stated confidence:
        each is where a test along the cumulative counts gives way (claim F-002).
        """
        schema, groups, intervals = self.plan.schema, listed_names(by), Intervals(level, simultaneous)
        refuse_overlap([name], groups)
        orders = (orders,) if isinstance(orders, int | float) else tuple(orders)
        if not orders or not all(0 < order < 1 for order in orders):
            raise WorkloadError(f"orders of quantiles lie between 0 and 1, such as 0.5, not {list(orders)!r}")
        rows, points, smooth = _quantile_rows(schema, name, orders, values, interpolate)
        whole = table(schema, groups)
        refuse_many(whole.count * len(rows))
        asked = linear(schema, (*groups, name), np.kron(np.eye(whole.count), rows))
        found = self.values(asked).reshape(-1, len(points))
        errors = np.sqrt(self.plan.variances(asked)).reshape(found.shape)
        one = intervals.level ** (1 / len(found)) if intervals.simultaneous else intervals.level
        z = float(interval_margin(self.plan.strategy.law, one))
        middle = first_crossing(found, points, smooth)
        lower = first_crossing(found + z * errors, points, smooth)
        upper = last_crossing(found - z * errors, points, smooth)
        there = self.values(whole) > z * np.sqrt(self.plan.variances(whole))
        notes = np.where(np.repeat(there, len(orders)), "", "the group is not clearly there")
        axes = [*axes_of(schema, groups), ("quantile", [f"{order:g}" for order in orders])]
        return _shaped(axes, (middle, (upper - lower) / (2 * z), lower, upper), intervals.level, notes)

    def difference(
        self: Answers,
        first: Workload,
        second: "Workload | Answers",
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Answers of one workload less those of another, or less the same answers of another release."""
        refuse_many(first.count)
        if isinstance(second, Workload):
            if second.count != first.count:
                raise WorkloadError(f"{first.count:,} answers less {second.count:,}: they should be as many")
            found = compared(self, first, self, second)
        else:
            if second.plan.schema != self.plan.schema:
                raise WorkloadError(
                    "the two releases have different schemas; their tables cannot be compared"
                )
            refuse_shared_noise(self, second)
            found = compared(self, first, second, first)
        return difference_figures(self, numbered("difference", first), found, Intervals(level, simultaneous))

    def derived(
        self: Answers,
        function: Callable[[Mapping[str, Array]], Any],
        tables: Mapping[str, Workload],
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """Any smooth function of answers, with the error that the delta method gives (claim F-003).

        `function` is called with an array for each of the named workloads, and returns numbers.
        """
        counts = {name: work.count for name, work in tables.items()}
        if (many := sum(counts.values())) > MOST_ARGUMENTS:
            raise WorkloadError(
                f"a function of {many:,} answers, more than {MOST_ARGUMENTS:,}; use few tables"
            )
        works, ends = list(tables.values()), np.cumsum(list(counts.values()))[:-1]
        at = np.concatenate([self.values(work) for work in works])
        covariance = np.block([[self.covariance(a, b) for b in works] for a in works])

        def called(answers: Array) -> Array:
            found = function(dict(zip(counts, np.split(answers, ends), strict=True)))
            return np.asarray(found, dtype=np.float64).reshape(-1)

        changes = np.diag(1e-4 * np.sqrt(np.clip(np.diag(covariance), 1e-300, None)))
        columns = [(called(at + own) - called(at - own)) / (2 * own.sum()) for own in changes]
        slopes, values = np.array(columns).T, called(at)
        spread, intervals = slopes @ covariance @ slopes.T, Intervals(level, simultaneous)
        found = plain_figures(self, numbered("figure", values), values, spread, intervals)
        broken = ~np.isfinite(found.stddev) | ~np.isfinite(values)
        return replace(found, notes=np.where(broken, "the function has no slope here", found.notes))


def ratio_of(
    source: Answers, top: Workload, bottom: Workload, owners: Integers, axes: Axes, intervals: Intervals
) -> Statistic:
    """Ratios of answers, each with its own denominator: values, delta-method errors and Fieller's sets."""
    refuse_many(top.count)
    t, b, tops, bottoms, both = compared(source, top, source, bottom)
    pairs = (t, b[owners], tops, bottoms[np.ix_(owners, owners)], both[:, owners])
    return ratio_figures(source, axes, pairs, intervals)


def compared(source: Answers, first: Workload, other: Answers, second: Workload) -> Compared:
    """Answers of a workload, and of another, or of another release that shares no noise with this one."""
    both = source.covariance(first, second) if other is source else np.zeros((first.count, second.count))
    own, theirs = source.covariance(first, first), other.covariance(second, second)
    return source.values(first), other.values(second), own, theirs, both


def difference_figures(source: Answers, axes: Axes, pairs: Compared, intervals: Intervals) -> Statistic:
    """Differences of numbers with known covariances."""
    first, second, ours, theirs, both = pairs
    return plain_figures(source, axes, first - second, ours + theirs - both - both.T, intervals)


def ratio_figures(source: Answers, axes: Axes, pairs: Compared, intervals: Intervals) -> Statistic:
    """Ratios of numbers with known covariances."""
    t, b, tops, bottoms, both = pairs
    with np.errstate(divide="ignore", invalid="ignore"):
        values = t / b
        whole = (
            tops - both * values - both.T * values[:, None] + bottoms * np.outer(values, values)
        ) / np.outer(b, b)
    whole = np.where(np.isfinite(whole), whole, 0.0)
    z = intervals.margin(source.plan.strategy.law, whole)
    lower, upper, bounded = fieller(t, b, np.diag(tops), np.diag(bottoms), np.diag(both), z)
    stddev = np.where(bounded, np.sqrt(np.diag(whole)), np.inf)
    notes = np.where(bounded, "", UNBOUNDED)
    return _shaped(axes, (values, stddev, lower, upper), intervals.level, notes)


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


def plain_figures(
    source: Answers, axes: Axes, values: Array, covariance: Array, intervals: Intervals
) -> Statistic:
    """Figures whose errors are normal, or wider, with this covariance."""
    stddev = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    margin = intervals.margin(source.plan.strategy.law, covariance) * stddev
    figures = (values, stddev, values - margin, values + margin)
    return _shaped(axes, figures, intervals.level, np.full(len(values), ""))


def _shaped(axes: Axes, figures: Sequence[Array], level: float, notes: NDArray[np.str_]) -> Statistic:
    """Figures in a row, as a table with these axes."""
    names, labels = tuple(name for name, _ in axes), tuple(tuple(own) for _, own in axes)
    shape = [*map(len, labels)]
    values, stddev, lower, upper = (np.asarray(each, dtype=np.float64).reshape(shape) for each in figures)
    return Statistic(names, labels, values, stddev, lower, upper, level, notes.reshape(shape))


def numbers_of(schema: Schema, name: str, values: Sequence[float] | None = None) -> Array:
    """The number that each cell of an attribute counts as: itself, or the middle of its bin."""
    attribute = schema[name]
    if values is not None:
        found = np.asarray(values, dtype=np.float64)
        if found.shape != (attribute.size,) or not np.isfinite(found).all():
            raise WorkloadError(f"{name!r} has {attribute.size:,} cells; give a finite number for each")
        return found
    return cell_numbers(name, attribute)


def axes_of(schema: Schema, names: Sequence[str]) -> Axes:
    return [(name, schema.counted(name).labels()) for name in names]


def numbered(name: str, figures: Sized) -> Axes:
    """One axis for as many figures as there are."""
    return [(name, [*map(str, range(len(figures)))])]


def refuse_overlap(names: Sequence[str], by: Sequence[str]) -> None:
    if twice := set(names) & set(by) or {name for name in (*names, *by) if [*names, *by].count(name) > 1}:
        raise WorkloadError(f"{', '.join(map(repr, sorted(twice)))}: named twice")


def refuse_many(count: int) -> None:
    if count > MOST_FIGURES:
        raise WorkloadError(
            f"{count:,} figures at once are more than {MOST_FIGURES:,}, whose covariance can be held; "
            "ask for fewer attributes at a time"
        )


def refuse_shared_noise(first: object, second: object) -> None:
    """WorkloadError for two releases that have measurements in common (claim F-007)."""
    ours, theirs = (_sources(getattr(each, "audit", {})) for each in (first, second))
    if first is second or ours & theirs:
        raise WorkloadError(
            "the two releases are of one stream, or one release twice, and share their noise; ask the later "
            "one alone, as in release.change('region', over='day.month')"
        )


def _sources(audit: Mapping[str, Any]) -> set[str]:
    """The stream or the entry of a ledger that a release is from, or those of its parts."""
    if parts := audit.get("combined"):
        return {own for part in parts for own in _sources(part)}
    known = ((audit.get("stream") or {}).get("id"), (audit.get("ledger") or {}).get("hash"))
    return {str(own) for own in known if own is not None}
