"""What `plan` is called with: each argument by itself, and all together."""

from residua._limits import COUNTABLE
from residua._text import short
from residua.accuracy.targets import Targets
from residua.errors import BudgetError, WorkloadError
from residua.methods.registry import methods_for
from residua.privacy import Budget, Unit
from residua.workload import Workload
from residua.workload.queries import spelled
from residua.workload.union import refuse_extremes

OBJECTIVES = ("total_variance", "max_variance")


def check_arguments(
    work: object,
    budget: object,
    unit: object,
    method: object,
    gap: object,
    interrupt: object,
    *,
    without_budget: bool,
) -> None:
    """Nothing, or the error for an argument that is not what it should be."""
    if not isinstance(work, Workload):
        raise WorkloadError(
            f"plan needs a workload first, such as rs.marginals(schema, ways=2), not {short(work)}"
        )
    if work.count > COUNTABLE:
        largest = max(work.groups(), key=lambda group: group.count)
        raise WorkloadError(
            f"table {largest.name!r} has {spelled(largest.count)} queries, more than a float can count; "
            "ask fewer queries, or put them in tables of fewer attributes"
        )
    refuse_extremes(work)
    spent = None if budget is None and without_budget else needed(budget)
    if not isinstance(unit, Unit):
        raise BudgetError(
            f"unit is whose privacy is protected, such as rs.Unit(max_records=3), not {short(unit)}"
        )
    known = methods_for("gaussian" if spent is None else spent.law)
    if not isinstance(method, str) or method not in known:
        where = ""
        if spent is not None and isinstance(method, str) and method in methods_for("gaussian"):
            where = f" with {spent.law} noise, which {spent!r} needs"
        raise WorkloadError(f"there is no method {short(method)}{where}; there are {', '.join(known)}")
    if not isinstance(gap, int | float) or not 0 < gap < 1:
        raise WorkloadError(f"gap must be between 0 and 1, such as 1e-4, not {short(gap)}")
    if interrupt not in ("stop", "best"):
        raise WorkloadError(f"interrupt is 'stop' or 'best', what Ctrl-C does, not {short(interrupt)}")


def needed(budget: object) -> Budget:
    """The budget, or the error where there is none."""
    if not isinstance(budget, Budget):
        raise BudgetError(
            "plan needs a budget second, such as rs.zcdp(0.1) or rs.approx_dp(1, 1e-6), or targets=, such as "
            f"targets=rs.stddev(5), not {short(budget)}"
        )
    return budget


def refuse_contradictions(
    budget: Budget | None, targets: Targets | None, objective: object, for_targets: bool
) -> None:
    """Nothing, or the error for arguments that do not go together."""
    if objective not in OBJECTIVES and not callable(objective):
        raise WorkloadError(
            f"there is no objective {short(objective)}; there are {', '.join(OBJECTIVES)}, and functions of "
            "variances"
        )
    if targets is not None and objective != "total_variance":
        raise WorkloadError(
            "targets already say what matters, the least privacy that meets them; leave out "
            f"objective={objective!r}, or leave out targets"
        )
    each_query = targets is not None or objective != "total_variance"
    if each_query and budget is not None and budget.law == "laplace":
        raise BudgetError(
            f"targets and largest variances are planned with Gaussian noise, which cannot give {budget!r}; "
            "give zcdp(rho) or approx_dp(epsilon, delta)"
        )
    if targets is None and for_targets:
        raise WorkloadError("relax and refine go with targets, and there are none; leave them out")
