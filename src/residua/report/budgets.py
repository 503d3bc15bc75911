"""The same plan at other budgets: what more or less privacy would buy."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from residua.privacy import Budget, budget_from_manifest
from residua.privacy.conversions import exact_text
from residua.report.contents import BudgetPoint
from residua.report.sources import SourcePlan
from residua.workload import Workload

FACTORS = {
    "a quarter": Fraction(1, 4),
    "half": Fraction(1, 2),
    "this plan": Fraction(1),
    "double": Fraction(2),
    "four times": Fraction(4),
}
DELTA = "1e-6"
MOST_SEARCHED = 2_000  # tables whose largest error is looked for

PlanKind = TypeVar("PlanKind", bound=SourcePlan)


def points_of(plan: SourcePlan, tables: Sequence[Workload]) -> tuple[BudgetPoint, ...]:
    """What the plan predicts at each budget: of all numbers together, and of some tables."""
    return tuple(_point(words, at_budget(plan, factor), tables) for words, factor in FACTORS.items())


def _point(words: str, plan: SourcePlan, tables: Sequence[Workload]) -> BudgetPoint:
    privacy = plan.privacy
    return BudgetPoint(
        words,
        amount_of(plan.budget),
        float(privacy.rho if privacy.pure_epsilon is None else privacy.pure_epsilon),
        privacy.epsilon(DELTA),
        plan.rmse,
        largest_of(plan),
        tuple(plan.summary(table)[0].rmse for table in tables),
    )


def at_budget(plan: PlanKind, factor: Fraction) -> PlanKind:
    """The plan with its budget multiplied."""
    return plan if factor == 1 else plan.rescale(scaled(plan.budget, factor))


def largest_of(plan: SourcePlan) -> float:
    """Largest standard deviation of any number, or nan where there are too many tables to go through."""
    return math.sqrt(plan.max_variance) if plan.workload.tables <= MOST_SEARCHED else math.nan


def scaled(budget: Budget, factor: Fraction) -> Budget:
    """The budget with its amount multiplied; a delta stays as it is.

    >>> from residua.privacy import approx_dp
    >>> scaled(approx_dp(1, "1e-6"), Fraction(2))
    approx_dp('2', '1/1000000')
    """
    record = budget.to_manifest()
    amounts = {
        name: str(Fraction(text) * factor)
        for name, text in record.items()
        if name not in ("definition", "delta")
    }
    return budget_from_manifest(record | amounts)


def amount_of(budget: Budget) -> str:
    """The budget's amounts as far as a few digits go.

    >>> from residua.privacy import zcdp
    >>> amount_of(zcdp("0.1"))
    'rho = 0.1'
    """
    amounts = {name: Fraction(text) for name, text in budget.to_manifest().items() if name != "definition"}
    return ", ".join(f"{name} = {_short(value)}" for name, value in amounts.items())


def budget_words(budget: Budget) -> str:
    """The budget in plain words, a small delta as people write it.

    >>> from residua.privacy import approx_dp
    >>> budget_words(approx_dp(1, "1e-6"))
    'approximate DP with epsilon = 1 and delta = 1e-6'
    """
    delta = Fraction(budget.to_manifest().get("delta", 0))
    if Fraction(_short(delta)) != delta:
        return budget.describe()
    return budget.describe().replace(f"delta = {exact_text(delta)}", f"delta = {_short(delta)}")


def _short(value: Fraction) -> str:
    return f"{float(value):.4g}".replace("e-0", "e-")
