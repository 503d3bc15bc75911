"""Two releases as one: the least-squares answers from the measurements of both.

Both measure the same schema with independent noise, so privacy matrices add and privacy costs add: their
blocks stand side by side in one strategy, and are answered together (claim A-006).
"""

import math
from collections.abc import Mapping
from typing import Any

from residua._figures import Figures, totals_of
from residua._plan import Plan
from residua._summary import certified
from residua.errors import Infeasible, SchemaError, WorkloadError
from residua.measurements import Measurements
from residua.privacy import Budget, privacy_cost, pure_dp
from residua.release import Release
from residua.strategy.joining import as_cells, joined
from residua.strategy.strategy import Strategy
from residua.workload import Workload

MOST_CELLS = 2_500  # joint cells over which classes of cells are told apart


def combine(first: Release, second: Release, *more: Release) -> Release:
    """One release from several on the same schema: better answers, and the privacy cost of all.

    What releases measured in the same way is averaged; what they measured in different ways is solved
    together, as far as it fits one dense matrix.
    """
    _refuse_strangers(first, second)
    strategy, numbers = _joined(first, second)
    work = first.plan.workload + second.plan.workload
    plan = _plan_of(first.plan, second.plan, strategy, work)
    audit = {
        **first.audit,
        "plan_hash": plan.hash,
        "privacy": plan.privacy.record(),
        "combined": [{**each.audit, "hash": each.hash} for each in (first, second)],
        "simulated": first.simulated or second.simulated,
    }
    both = Release(plan, numbers, audit)
    return combine(both, *more) if more else both


def _joined(first: Release, second: Release) -> tuple[Strategy, Measurements]:
    """The blocks of both as one strategy, and its numbers."""
    strategies = [first.plan.strategy, second.plan.strategy]
    measured = [each.measurements.in_units(each.plan.strategy) for each in (first, second)]
    try:
        strategy, numbers = joined(strategies, measured)
    except Infeasible as error:
        used = sorted({*first.plan.workload.attributes, *second.plan.workload.attributes})
        cells = math.prod(first.plan.schema.sizes[at] for at in used)
        if cells > MOST_CELLS:
            raise Infeasible(
                f"the two plans measure {cells:,} joint cells in ways that do not fit together ({error}); "
                "measure one plan twice, or plan both with method 'querysmasher', which always splits "
                "queries by the same weights"
            ) from error
        pairs = (
            as_cells(each, own, first.plan.schema.sizes, used)
            for each, own in zip(strategies, measured, strict=True)
        )
        found = list(pairs)
        strategy, numbers = joined([each for each, _ in found], [own for _, own in found])
    return strategy, Measurements(numbers)


def _refuse_strangers(first: Release, second: Release) -> None:
    for each in (first, second):
        if not isinstance(each, Release):
            raise WorkloadError(f"combine needs releases, such as those rs.measure makes, not {each!r}")
    if first.plan.schema != second.plan.schema:
        raise SchemaError("the two releases have different schemas and cannot be combined")
    if first.plan.unit != second.plan.unit:
        raise SchemaError("the two releases protect different units and cannot be combined")
    if first.plan.strategy.law != second.plan.strategy.law:
        raise Infeasible(
            "one release has Gaussian noise and one has Laplace noise: their privacy has no common measure "
            "but zCDP; plan both with the same definition of privacy"
        )
    if _ingredients(first.hash, first.audit) & _ingredients(second.hash, second.audit):
        raise Infeasible(
            "this is one release twice, or one that a combination has already: its noise is the same, and "
            "nothing is gained"
        )


def _ingredients(own: str | None, audit: Mapping[str, Any]) -> set[str]:
    """Hashes of a release and of all those that it was combined from, as far as they were noted."""
    parts = (_ingredients(part.get("hash"), part) for part in audit.get("combined", ()))
    found: set[str] = set().union(*parts)
    return found if own is None else {own, *found}


def _plan_of(first: Plan, second: Plan, strategy: Strategy, work: Workload) -> Plan:
    """What the combination answers and proves, as a plan that has been measured already."""
    budget = _sum_of_budgets(first.budget, second.budget)
    figures = Figures.of(strategy, work, totals_of(strategy, work))
    certificate = certified(figures.total_variance, 0.0, "this block structure")
    objective = first.objective
    return Plan(work, budget, first.unit, "combined", strategy, certificate, objective, figures, figures)


def _sum_of_budgets(first: Budget, second: Budget) -> Budget:
    """What both together have spent, in the definition that their noise proves."""
    if first.law == "laplace":
        return pure_dp(first.laplace_epsilon() + second.laplace_epsilon())
    return privacy_cost(first.gaussian_cost() + second.gaussian_cost())
