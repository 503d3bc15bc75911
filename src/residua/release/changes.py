"""Changes between periods, with intervals: within one release, whose answers share noise, or between two.

| symbol | meaning |
|---|---|
| now, before | answers that are compared, one pair for each figure |
| covariance | of all of them, exactly: what both have of the same noise cancels in their difference (F-007) |
"""

from dataclasses import replace

import numpy as np

from residua.errors import WorkloadError
from residua.release.intervals import Intervals
from residua.release.statistics import (
    Answers,
    Axes,
    Compared,
    Statistic,
    axes_of,
    compared,
    difference_figures,
    ratio_figures,
    refuse_many,
    refuse_overlap,
    refuse_shared_noise,
)
from residua.workload import table

NOISE = "may be noise"


class Compares:
    """What a release offers to compare periods."""

    def change(
        self: Answers,
        *names: str,
        over: str | None = None,
        lag: int = 1,
        since: "Answers | None" = None,
        growth: bool = False,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Statistic:
        """What changed from period to period, or since another release, with intervals.

        Where an interval has no change in it, `notes` say that the change may be noise.

        names: str
            The attributes to compare by; without any, totals are compared.
        over: str
            The attribute of periods in this release, such as "day.month": each is compared with the one
            `lag` periods before. Both share noise of one plan, which is taken into account exactly.
        since: Release
            Instead of `over`, a release of earlier data, measured for itself.
        growth: bool
            Relative change, 0.02 for two percent more, with Fieller's sets, instead of the difference.

        >>> import residua as rs
        >>> schema = rs.Schema(month=rs.Integer(1, 3))
        >>> plan = rs.plan(rs.table(schema, ["month"]), rs.zcdp("0.5"))
        >>> data = {"month": [1] * 50 + [2] * 90 + [3] * 91}
        >>> release = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1))
        >>> found = release.change(over="month")
        >>> found.axes, found.values.round().tolist(), found.notes.tolist()
        ((('2', '3'),), [38.0, 3.0], ['', 'may be noise'])
        """
        intervals = Intervals(level, simultaneous)
        if over is not None and since is None:
            return _within(self, names, over, lag, growth, intervals)
        if since is not None and over is None:
            return _between(self, names, since, growth, intervals)
        raise WorkloadError("give over=, the attribute of periods, or since=, an earlier release")


def _within(
    source: Answers, names: tuple[str, ...], over: str, lag: int, growth: bool, intervals: Intervals
) -> Statistic:
    """Each period of a release against the one so many periods before."""
    schema = source.plan.schema
    refuse_overlap(names, [over])
    (_, labels), *others = axes_of(schema, [over, *names])
    periods = len(labels)
    if type(lag) is not int or not 0 < lag < periods:
        raise WorkloadError(f"lag is a number of periods from 1 to {periods - 1}, not {lag!r}")
    work = table(schema, [over, *names])
    refuse_many(work.count)
    inner = work.count // periods
    covariance, values = source.covariance(work, work), source.values(work)
    now, before = slice(lag * inner, None), slice(None, work.count - lag * inner)
    parts = (covariance[now, now], covariance[before, before], covariance[now, before])
    pairs = (values[now], values[before], *parts)
    return _figures(source, pairs, [(over, labels[lag:]), *others], growth, intervals)


def _between(
    source: Answers, names: tuple[str, ...], since: Answers, growth: bool, intervals: Intervals
) -> Statistic:
    """The tables of two releases on the same attributes."""
    refuse_shared_noise(source, since)
    schema, earlier = source.plan.schema, since.plan.schema
    if any(schema[name] != earlier[name] for name in names):
        raise WorkloadError("the two releases have different attributes; their tables cannot be compared")
    work = table(schema, list(names))
    refuse_many(work.count)
    found = compared(source, work, since, table(earlier, list(names)))
    return _figures(source, found, axes_of(schema, names) or [("change", ["all"])], growth, intervals)


def _figures(source: Answers, pairs: Compared, axes: Axes, growth: bool, intervals: Intervals) -> Statistic:
    """Differences, or ratios less one, of which those that have none in their interval are marked."""
    if growth:
        found = ratio_figures(source, axes, pairs, intervals)
        found = replace(found, values=found.values - 1, lower=found.lower - 1, upper=found.upper - 1)
    else:
        found = difference_figures(source, axes, pairs, intervals)
    unclear = (found.lower <= 0) & (found.upper >= 0) & (found.notes == "")
    return replace(found, notes=np.where(unclear, NOISE, found.notes))
