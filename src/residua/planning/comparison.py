"""Several plans for the same tables, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from residua._arrays import AnyArray
from residua._notebook import shown
from residua._text import visible
from residua.errors import WorkloadError
from residua.plans import Plan
from residua.workload import Workload


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several plans side by side, each with a name of its own; print it."""

    plans: tuple[Plan, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        best = min(plan.rmse for plan in self.plans)
        wide = max(16, *(len(name) + 2 for name in self.names))
        head = f"{'method':<{wide}}{'rmse':>12}{'of best':>9}{'max stddev':>12}{'gap':>10}  privacy"
        rows = [
            f"{name:<{wide}}{plan.rmse:>12.6g}{plan.rmse / best:>9.3f}"
            f"{math.sqrt(plan.max_variance):>12.6g}{_gap(plan):>10}  {plan.budget!r}"
            for name, plan in zip(self.names, self.plans, strict=True)
        ]
        return "\n".join([head, *rows])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        best = min(plan.rmse for plan in self.plans)
        rows = (
            (
                name, f"{plan.rmse:.6g}", f"{plan.rmse / best:.3f}", f"{math.sqrt(plan.max_variance):.6g}",
                _gap(plan), repr(plan.budget),
            )
            for name, plan in zip(self.names, self.plans, strict=True)
        )  # fmt: skip
        head = ("method", "rmse", "of best", "max stddev", "gap", "privacy")
        return shown("Plans side by side", head, rows)

    def plot(self) -> Any:
        """A picture of the errors of the plans; needs the extra `residua[report]`."""
        from residua.report.plots import bar_plot  # seldom needed

        return bar_plot(self.names, [plan.rmse for plan in self.plans], "rmse", "Plans side by side")


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
    dense                1.55614    1.000
    identity             2.34521    1.507
    """
    found = (*plans, *named.values())
    _refuse_incomparable(found)
    names = [visible(name) for name in (*(plan.method for plan in plans), *named)]
    own = (
        name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, start=1)
    )
    return Comparison(found, tuple(own))


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
