"""From a workload and a budget to a plan: choose the method, scale it, record what is proved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua._figures import Figures, Totals, totals_of
from residua._limits import COUNTABLE, COUNTED_CELLS
from residua._plan import Plan
from residua._summary import certified
from residua._text import short, visible
from residua.accuracy import Targets
from residua.accuracy_first import (
    Request,
    plan_for_largest,
    plan_for_loss,
    plan_for_targets,
    record_cost,
    refuse_odd_requests,
)
from residua.errors import BudgetError, Infeasible, WorkloadError
from residua.linalg.matrices import threads_for
from residua.methods.coarsening import coarse_workload, coarsened_draft
from residua.methods.draft import Draft, Progress
from residua.methods.named import residualplanner_plus
from residua.methods.registry import methods_for
from residua.methods.scales.loss import Loss
from residua.privacy import Budget, Unit
from residua.privacy.laws import bound_divisor, variance_ratio
from residua.strategy.costs import ideal_scale
from residua.strategy.counted import refuse_uncounted
from residua.strategy.rounding import measurable
from residua.workload import Table, TableRun, Workload
from residua.workload.queries import spelled
from residua.workload.union import refuse_extremes

DEFAULT_GAP = 1e-4
OBJECTIVES = ("total_variance", "max_variance")
ONE_RECORD = Unit()


def plan(
    work: Workload,
    budget: Budget | None = None,
    *,
    targets: Targets | None = None,
    unit: Unit = ONE_RECORD,
    method: str = "auto",
    objective: str | Loss = "total_variance",
    gap: float = DEFAULT_GAP,
    relax: bool = False,
    refine: bool = False,
    strategies: Mapping[str, ArrayLike] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The best plan found for these tables at this privacy, with its errors and its certificate.

    No data is needed, and none is touched.

    work: Workload
        The tables to publish, such as `rs.marginals(schema, up_to=2)`; weights multiply variances.
    budget: Budget, optional
        How much privacy may be spent, such as `rs.zcdp("0.1")`. May be left out where `targets` are given:
        the plan then takes the least that meets them.
    targets: number, Target or mapping of names of tables to them, optional
        Accuracy first: what the variance of every query may be at most, as a number, as `rs.stddev(5)` or as
        `rs.half_width(10)`; or by name of table. With a budget they are met by the widest margin, and a
        budget that is too small is refused.
    unit: Unit
        Whose privacy is protected; one record unless told, as in `rs.Unit(max_records=3)`.
    method: str
        How the strategy is found. "auto" takes the best of several; docs/methods.md lists them all.
    objective: str or function
        What is made small: "total_variance", the sum of weight times variance; "max_variance", the largest
        weight times variance; or a function that makes one convex and increasing cvxpy expression of the mean
        variance of each name, `lambda v: cvxpy.maximum(v["T1"], 2 * v["T2"])`, or of the vector of them all,
        in the order of the names, `lambda v: cvxpy.max(v)`.
    gap: float
        The relative distance from the optimum at which solving stops.
    relax: bool
        With targets and a budget that is too small for them: allow every target the same factor.
    refine: bool
        With targets: of several cheapest plans the one that costs the other records least.
    strategies: mapping of attributes to matrices, optional
        What method "residualplanner+" measures of some attributes.
    progress: function, optional
        Called with what is being done and the fraction of it that is done.

    >>> import residua as rs
    >>> schema = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"))
    >>> work = rs.table(schema, {"age": rs.prefix, "sex": rs.identity}, name="T1")
    >>> found = rs.plan(work, rs.privacy_cost(1))
    >>> round(found.rmse, 3), found.certificate.scope
    (1.556, 'all mechanisms')
    >>> round(float(rs.plan(work, targets=rs.stddev(2)).privacy.cost), 2)
    0.62
    """
    _check_arguments(work, budget, targets, unit, method, objective, gap)
    if budget is not None:
        unit.allowance(budget)  # a budget that no noise can meet is refused before any work
    asked = work.without_totals()  # they ask nothing of their attribute
    with threads_for(0):  # solvers of large blocks take more for themselves
        if targets is not None or objective != "total_variance":
            request = Request(unit, method, gap, refine, progress)
            coarse = coarse_workload(asked)
            found = _accurate(coarse.work, budget, targets, objective, request, relax)
            refuse_uncounted(found.strategy, work.schema.names)
            return replace(found, workload=work, strategy=coarse.strategy(found.strategy))
        if budget is None:
            raise _no_budget(budget)
        if relax or refine:
            raise WorkloadError("relax and refine go with targets, and there are none; leave them out")
        draft = _draft(asked, budget, method, gap, strategies, progress)
        refuse_uncounted(draft.strategy, work.schema.names)
        found = _finished(draft, asked, budget, unit, method, objective)
        if method == "auto" and budget.law == "laplace":
            found = _or_plain_cells(found, gap)
        return replace(found, workload=work)


def _or_plain_cells(found: Plan, gap: float) -> Plan:
    """The plan, or that of all joint cells where they can be counted and its answers are better.

    Methods weigh real noise; integer noise on plain counts is narrower, at large epsilons by far (H-002).
    """
    work, budget = found.workload, found.budget
    if math.prod(work.schema.sizes[at] for at in work.attributes) > COUNTED_CELLS:
        return found
    try:
        draft = _draft(work, budget, "identity", gap, None, None)
        plain = _finished(draft, work, budget, found.unit, found.method, found.objective)
    except Infeasible:  # some attribute has too many cells
        return found
    return min(found, plain, key=lambda each: each.total_variance)


def _accurate(
    work: Workload,
    budget: Budget | None,
    targets: Targets | None,
    objective: str | Loss,
    request: Request,
    relax: bool,
) -> Plan:
    """The plan for targets, for the least largest variance, or for a loss of one's own."""
    if targets is not None:
        return plan_for_targets(work, budget, targets, request, relax=relax)
    if relax or request.refine:
        raise WorkloadError("relax and refine go with targets, and there are none; leave them out")
    if budget is None:
        raise _no_budget(budget)
    if not isinstance(objective, str):
        return plan_for_loss(work, budget, objective, request)
    return plan_for_largest(work, budget, request)


def _no_budget(given: object) -> BudgetError:
    return BudgetError(
        "plan needs a budget second, such as rs.zcdp(0.1) or rs.approx_dp(1, 1e-6), or targets=, such as "
        f"targets=rs.stddev(5), not {short(given)}"
    )


def _finished(draft: Draft, work: Workload, budget: Budget, unit: Unit, method: str, objective: str) -> Plan:
    """The draft in integers, scaled to the budget, with its errors and its certificate."""
    allowed = unit.allowance(budget)
    replaced = unit.neighbours == "replace_one"
    about = float(allowed) / record_cost(draft.strategy, replacing=replaced)
    real = Figures.of(draft.strategy.scaled(about), work, _totals(draft, about, work))
    strategy = measurable(draft.strategy, draft.spans, allowed, replacing=replaced)
    released = Figures.of(strategy, work, totals_of(strategy, work))
    scale = ideal_scale(draft.strategy, strategy, allowed, replacing=replaced)
    ideal = real.scaled(variance_ratio(budget.law, about / scale))
    # A bound proved for adding or removing a record says nothing about replacing one.
    lower = 0.0 if replaced else draft.lower_bound / bound_divisor(budget.law, allowed)
    certificate = certified(released.total_variance, lower, draft.scope)
    found = Plan(work, budget, unit, method, strategy, certificate, objective, ideal, released)
    if draft.uniform_total is None or replaced:
        return found
    return replace(found, uniform_total=draft.uniform_total / float(allowed))


def _draft(
    work: Workload,
    budget: Budget,
    method: str,
    gap: float,
    strategies: Mapping[str, ArrayLike] | None,
    progress: Progress | None,
) -> Draft:
    if strategies is None:
        return coarsened_draft(methods_for(budget.law)[method], work, budget.law, gap, progress)
    if method != "residualplanner+":
        raise WorkloadError(f"strategies are for method 'residualplanner+'; method {method!r} finds its own")
    return residualplanner_plus(work, gap, progress, strategies)


def _totals(draft: Draft, scale: float, work: Workload) -> Totals:
    """Weighted and unweighted sum of all ideal variances, from the method itself where it knows them."""
    weights = {part.weight for part in work.parts}
    if draft.value is None or len(weights) > 1 or any(_has_own_weights(part) for part in work.parts):
        return totals_of(draft.strategy.scaled(scale), work)  # refused before there are integers to make
    weighted = draft.value / variance_ratio(draft.strategy.law, scale)
    return weighted, weighted / weights.pop()


def _has_own_weights(part: Table | TableRun) -> bool:
    return isinstance(part, Table) and any(factor.queries.weights is not None for factor in part.factors)


def _check_arguments(
    work: object,
    budget: object,
    targets: Targets | None,
    unit: object,
    method: object,
    objective: object,
    gap: object,
) -> None:
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
    if not isinstance(budget, Budget) and (budget is not None or targets is None):
        raise _no_budget(budget)
    if not isinstance(unit, Unit):
        raise BudgetError(
            f"unit is whose privacy is protected, such as rs.Unit(max_records=3), not {short(unit)}"
        )
    known = methods_for("gaussian" if budget is None else budget.law)
    if not isinstance(method, str) or method not in known:
        where = ""
        if budget is not None and isinstance(method, str) and method in methods_for("gaussian"):
            where = f" with {budget.law} noise, which {budget!r} needs"
        raise WorkloadError(f"there is no method {short(method)}{where}; there are {', '.join(known)}")
    if objective not in OBJECTIVES and not callable(objective):
        known_ones = ", ".join(OBJECTIVES)
        raise WorkloadError(
            f"there is no objective {short(objective)}; there are {known_ones}, and functions of variances"
        )
    refuse_odd_requests(budget, targets, objective)
    if not isinstance(gap, int | float) or not 0 < gap < 1:
        raise WorkloadError(f"gap must be between 0 and 1, such as 1e-4, not {short(gap)}")


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
    found = _comparable((*plans, *named.values()))
    names = [visible(name) for name in (*(plan.method for plan in plans), *named)]
    own = (
        name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, start=1)
    )
    return Comparison(found, tuple(own))


def _comparable(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    if len(plans) < 2:
        raise WorkloadError("compare needs at least two plans")
    for each in plans:
        if not isinstance(each, Plan):
            raise WorkloadError(f"compare needs plans, such as those rs.plan makes, not {each!r}")
    first = plans[0]
    for other in plans[1:]:
        if not same_queries(first.workload, other.workload):
            raise WorkloadError("compare needs plans for the same workload; these answer different queries")
    return tuple(plans)


def same_queries(one: Workload, two: Workload) -> bool:
    """Whether two workloads would be saved alike."""
    arrays: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] = ({}, {})
    alike = one.schema == two.schema and one.to_manifest(arrays[0]) == two.to_manifest(arrays[1])
    return alike and all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])
