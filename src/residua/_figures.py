"""How wrong a workload's answers are, taken together: sums of variances, their mean, and the largest."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from residua._limits import SEARCHED_TABLES
from residua._manifests import entry, number, numbers
from residua.errors import FileFormatError, WorkloadError
from residua.strategy.strategy import Strategy
from residua.workload import TableRun, Workload
from residua.workload.queries import spelled

Totals = tuple[float, float]
"""Weighted and unweighted sum of the variances of all queries."""


class Figures:
    """The error of a workload's answers: `rmse`, `total_variance`, `max_variance`, `weighted_rmse`.

    Each is worked out when it is first asked for.
    """

    def __init__(self, count: int, totals: Callable[[], Totals], largest: Callable[[], float]) -> None:
        self._count, self._totals, self._largest = count, totals, largest

    @classmethod
    def of(cls, strategy: Strategy, work: Workload, totals: Totals | None = None) -> "Figures":
        """Figures of a mechanism; `totals` are those of `totals_of`, where they are known."""

        def largest() -> float:
            groups = (group for part in work.parts for group in strategy.answerer.least_accurate(part))
            return max(map(strategy.largest, groups), key=_nan_last)

        return cls(work.count, lambda: totals_of(strategy, work) if totals is None else totals, largest)

    @cached_property
    def totals(self) -> Totals:
        """Weighted and unweighted sum of the variances."""
        return self._totals()

    @property
    def total_variance(self) -> float:
        """Sum of weight times variance over all queries."""
        return self.totals[0]

    @property
    def rmse(self) -> float:
        """Square root of the mean variance, every query counting once."""
        return math.sqrt(self.totals[1] / self._count)

    @property
    def weighted_rmse(self) -> float:
        """Square root of the weighted total over the number of queries."""
        return math.sqrt(self.totals[0] / self._count)

    @cached_property
    def max_variance(self) -> float:
        """Largest variance of any query, weights aside; nan where there are too many to go through."""
        return float(self._largest())

    def scaled(self, factor: float) -> "Figures":
        """The same figures with every variance multiplied by `factor`."""

        def totals() -> Totals:
            weighted, plain = self.totals
            return weighted * factor, plain * factor

        return Figures(self._count, totals, lambda: self.max_variance * factor)

    def to_manifest(self, tables: int) -> dict[str, Any]:
        """The figures of so many tables as JSON can hold them; the largest only where finding it is quick."""
        largest = self.max_variance if tables <= SEARCHED_TABLES else math.nan
        return {"totals": list(self.totals), "largest": None if math.isnan(largest) else largest}

    @classmethod
    def from_manifest(cls, record: Mapping[str, Any], work: Workload, strategy: Strategy | None) -> "Figures":
        """What `record` wrote; a largest variance that it lacks is looked for where there is a strategy."""
        totals = numbers(record, "totals")
        if len(totals) != 2 or not min(totals) > 0:
            raise FileFormatError("sums of variances are two numbers above zero")
        weighted, plain = totals
        if entry(record, "largest") is None and strategy is not None:
            return cls.of(strategy, work, (weighted, plain))
        largest = math.nan if record["largest"] is None else number(record, "largest")
        if largest < 0:
            raise FileFormatError("no variance is below zero")
        return cls(work.count, lambda: (weighted, plain), lambda: largest)

    def __repr__(self) -> str:
        return f"Figures(rmse={self.rmse:.6g}, total_variance={self.total_variance:.6g})"


def _nan_last(value: float) -> float:
    """Makes `max` return nan if there is one: then the largest is not known."""
    return math.inf if math.isnan(value) else value


def totals_of(strategy: Strategy, work: Workload) -> Totals:
    """Weighted and unweighted sum of the variances of all queries, refused where they overflow."""
    weighted = plain = 0.0
    for part in work.parts:
        more = strategy.totals(part)
        weighted, plain = weighted + more[0], plain + more[1]
        if not math.isfinite(weighted + plain):
            what = (
                f"tables such as {next(part.names())!r}"
                if isinstance(part, TableRun)
                else f"table {part.name!r}"
            )
            raise WorkloadError(
                f"{what}: the sum of the variances of {spelled(part.count)} queries is beyond what a float "
                "holds; ask fewer queries, or spend more privacy"
            )
    return weighted, plain
