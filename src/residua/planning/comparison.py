"""Several plans for the same tables, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

import numpy as np

from residua._arrays import AnyArray
from residua._notebook import shown
from residua._text import visible
from residua.errors import WorkloadError
from residua.planning.request import plan
from residua.plans import Plan
from residua.privacy import Budget, Unit
from residua.workload import Workload


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several plans side by side, each with a name of its own; print it."""

    plans: tuple[Plan, ...]
    names: tuple[str, ...]

    @property
    def _errors(self) -> list[float]:
        """The rmse of each plan; weighted, where sums would drown the counts beside them."""
        found = [plan.released for plan in self.plans]
        return [each.rmse if self.plans[0].workload.counts else each.weighted_rmse for each in found]

    @property
    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """A line of headings, and one for each plan."""
        errors, counts = self._errors, self.plans[0].workload.counts
        rows = [("method", "rmse" if counts else "weighted rmse", "of best", "max stddev", "gap", "privacy")]
        for name, error, own in zip(self.names, errors, self.plans, strict=True):
            ratio, largest = f"{error / min(errors):.3f}", f"{math.sqrt(own.max_variance):.6g}"
            rows.append((name, f"{error:.6g}", ratio, largest, _gap(own), repr(own.budget)))
        return rows

    def __str__(self) -> str:
        wide = max(16, *(len(name) + 2 for name in self.names))
        width = max(12, len(self._rows[0][1]) + 2)
        return "\n".join(
            f"{name:<{wide}}{rmse:>{width}}{best:>9}{largest:>12}{gap:>10}  {privacy}"
            for name, rmse, best, largest, gap, privacy in self._rows
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self._rows
        return shown("Plans side by side", head, rows)

    def plot(self) -> Any:
        """A picture of the errors of the plans; needs the extra `residua[report]`."""
        from residua.report.charts import bar_plot  # seldom needed

        return bar_plot(self.names, self._errors, self._rows[0][1], "Plans side by side")


def _gap(plan: Plan) -> str:
    known = math.isfinite(plan.certificate.gap)
    return plan.certificate.nearness().removeprefix("within ") if known else "unknown"


def compare(*plans: Plan, **named: Plan) -> Comparison:
    """A table of the errors and certificates of several plans for the same workload.

    Plans go by their methods, with their place where two have the same one, or by the names that you give:
    `rs.compare(small=plan_a, large=plan_b)`.

    >>> import residua as rs
    >>> work = rs.table(rs.Schema(age=rs.Integer(0, 9)), age=rs.prefix)
    >>> plans = [rs.plan(work, rs.privacy_cost(1), method=method) for method in ("dense", "identity")]
    >>> print("\\n".join(line[:37] for line in str(compare(*plans)).splitlines()))
    method                  rmse  of best
    dense                1.55615    1.000
    identity             2.34521    1.507
    """
    found = (*plans, *named.values())
    _refuse_incomparable(found)
    names = [visible(name) for name in (*(plan.method for plan in plans), *named)]
    own = (name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, start=1))
    return Comparison(found, tuple(own))


def compare_max_records(
    work: Workload, budget: Budget, unit: Unit, bounds: Sequence[int] | None = None
) -> Comparison:
    """What each bound on the records of a person costs in noise, known without data: a table of plans.

    `bounds` are tried instead of the unit's `max_records`; 1, 2, 4, .. up to it by default. What a bound
    leaves out is not known without data; `rs.contributions` has a look at that.

    >>> import residua as rs
    >>> work = rs.table(rs.Schema(quarter=rs.Integer(1, 8), sex=rs.Categorical("F", "M")), ["quarter", "sex"])
    >>> unit = rs.Unit(id="patient_id", max_records=8, one_per="quarter")
    >>> found = rs.compare_max_records(work, rs.zcdp("0.5"), unit)
    >>> print("\\n".join(line[:37] for line in str(found).splitlines()))
    method                  rmse  of best
    at most 1                  1    1.000
    at most 2            1.41421    1.414
    at most 4                  2    2.000
    at most 8            2.82843    2.828
    """
    most = unit.max_records
    tried = [*takewhile(most.__gt__, (2**at for at in count())), most] if bounds is None else bounds
    plans = {}
    for own in tried:
        caps = {name: cap for name, cap in unit.max_per.items() if cap < own}  # others would say nothing
        plans[f"at most {own}"] = plan(work, budget, unit=replace(unit, max_records=own, max_per=caps))
    return compare(**plans)


def _refuse_incomparable(plans: Sequence[Plan]) -> None:
    if len(plans) < 2:
        raise WorkloadError("compare needs at least two plans")
    for each in plans:
        if not isinstance(each, Plan):
            raise WorkloadError(f"compare needs plans, such as those rs.plan makes, not {each!r}")
    if not all(same_queries(plans[0].workload, other.workload) for other in plans[1:]):
        raise WorkloadError("compare needs plans for the same workload; these answer different queries")


def same_queries(one: Workload, two: Workload) -> bool:
    """Whether two workloads would be saved alike."""
    arrays: tuple[dict[str, AnyArray], dict[str, AnyArray]] = ({}, {})
    alike = one.schema == two.schema and one.to_manifest(arrays[0]) == two.to_manifest(arrays[1])
    return alike and all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])
