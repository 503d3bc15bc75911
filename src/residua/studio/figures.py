"""What the page shows of a plan: errors at one budget, which the page scales to others."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from residua.accuracy.figures import OBJECTIVE_WORDS
from residua.errors import NotInSpan, WorkloadError
from residua.plans import Plan
from residua.privacy import Budget, Privacy, Unit, budget_from_manifest
from residua.privacy.budgets import interval_margin
from residua.privacy.conversions import text_above
from residua.report.budgets import DELTA, budget_words, overall, shares_of
from residua.report.gather import asked_words
from residua.report.words import (
    FALSE_ALARMS,
    SCOPES,
    detection_limit,
    near_text,
    percent_above,
    share_words,
)
from residua.workload import Workload, linear
from residua.workload.moments import cell_numbers
from residua.workload.tables import COUNT

LEVEL = 0.95
MOST_SHOWN = 2_000  # tables with a bar of their own
MOST_MEANS = 12
STEPS = ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8")
RANGES = {"zcdp": (-4, 1), "gdp": (-2, 1), "approx_dp": (-2, 2), "pure_dp": (-2, 2), "privacy_cost": (-4, 1)}
"""Powers of ten between which a slider moves the amount of each definition."""


def ladder(budget: Budget, unit: Unit) -> list[dict[str, Any]]:
    """Budgets to choose from, this one among them, each in every word that it is proved in.

    `size` is how large errors are there: all standard deviations of a plan change in its ratio.
    """
    record = budget.to_manifest()
    name = _main(record)
    low, high = RANGES[budget.definition]
    amounts = {Fraction(step) * Fraction(10) ** power for power in range(low, high) for step in STEPS}
    amounts |= {Fraction(10) ** high, Fraction(record[name])}
    return [dict(_stop(tuple((record | {name: str(each)}).items()), unit)) for each in sorted(amounts)]


def _main(record: Mapping[str, str]) -> str:
    """The amount that is varied: the first, for a delta stays as it is."""
    return next(name for name in record if name != "definition")


@lru_cache(maxsize=4096)
def _stop(record: tuple[tuple[str, str], ...], unit: Unit) -> Mapping[str, Any]:
    budget = budget_from_manifest(dict(record))
    amount = float(Fraction(dict(record)[_main(dict(record))]))
    told = {"value": amount, "words": budget_words(budget), "size": size_of(budget)}
    return told | _words(budget.proves(unit))


def _words(privacy: Privacy) -> dict[str, str]:
    """The privacy in the words of the report, figures rounded up."""
    return {
        "rho": text_above(privacy.rho),
        "epsilon": text_above(privacy.epsilon(DELTA)),
        "detection": percent_above(detection_limit(privacy, FALSE_ALARMS)),
    }


def size_of(budget: Budget) -> float:
    """Standard deviations at this budget, up to a factor that is the same for all budgets of one law.

    An estimate while a slider moves: noise in whole numbers is narrower than this where it is very narrow.
    """
    if budget.law == "laplace":
        return 1 / float(budget.laplace_epsilon())
    return 1 / math.sqrt(float(budget.gaussian_cost()))


def figures_of(plan: Plan) -> dict[str, Any]:
    """Errors of every table, where the budget goes, and how far from the best possible that is."""
    proof = plan.certificate
    finite = math.isfinite(proof.gap)
    return {
        "budget": plan.budget.to_manifest(),
        "words": budget_words(plan.budget),
        "size": size_of(plan.budget),
        "margin": interval_margin(plan.strategy.law, LEVEL),
        "rmse": _known(overall(plan)[0]),
        "weighted": plan.released.weighted_rmse,
        "noun": "number" if plan.workload.counts else "count",
        "numbers": plan.workload.count,
        "table_count": plan.workload.tables,
        "tables": list(_tables(plan)),
        "means": list(_means(plan)),
        "shares": [{"words": share_words(each), "share": each.fraction} for each in shares_of(plan)],
        "gap": near_text(proof.gap) if finite else None,
        "scope": SCOPES[proof.scope],
        "objective": OBJECTIVE_WORDS.get(proof.objective, proof.objective),
        "method": plan.method,
        "targets": _targets(plan),
        "privacy": _words(plan.privacy),
    }


def _tables(plan: Plan) -> Iterator[dict[str, Any]]:
    work = shown_of(plan)
    for at, (group, table) in enumerate(zip(work.groups(), plan.summary(work), strict=True)):
        for row in table.lines():
            yield {
                "at": at,
                "table": table.name,
                "name": row.name,
                "asks": asked_words(group, plan.schema),
                "counts": row.statistic == COUNT,
                "numbers": row.queries,
                "typical": row.rmse,
                "largest": _known(row.max_stddev),
            }


def shown_of(plan: Plan) -> Workload:
    """The tables that have a bar of their own."""
    work = plan.workload
    few = work.tables <= MOST_SHOWN
    return work if few else Workload(work.schema, tuple(islice(work.groups(), MOST_SHOWN)))


def _known(stddev: float) -> float | None:
    return None if math.isnan(stddev) else stddev


def _means(plan: Plan) -> Iterator[dict[str, Any]]:
    """For columns of numbers: the standard deviation of the mean, times the number of people.

    Of the ratio of a sum to a count, to first order, where the mean is the middle of its range.
    """
    schema = plan.schema
    for name in [name for name in schema.names if schema[name].numeric][:MOST_MEANS]:
        try:
            values, known = (cell_numbers(name, schema[name], power=power) for power in (1, 0))
            own = values[known > 0]
            query = linear(schema, (name,), (values - (own.min() + own.max()) / 2 * known)[None])
            yield {"column": name, "stddev": float(np.sqrt(plan.variances(query)[0]))}
        except (NotInSpan, WorkloadError):  # no table asks for it, or cells have no numbers
            continue


def _targets(plan: Plan) -> dict[str, Any] | None:
    if plan.targets is None:
        return None
    lines = [
        {"name": each.name, "asked": each.target.describe(), "share": each.share, "ratio": each.ratio}
        for each in plan.targets.met
    ]
    return {"needed": plan.targets.needed, "factor": plan.targets.factor, "met": lines}


def ghost_of(plan: Plan) -> dict[str, Any]:
    """The errors of another method, for the bars beside the plan's."""
    return {
        "size": size_of(plan.budget),
        "weighted": plan.released.weighted_rmse,
        "tables": [_known(row.max_stddev) for own in plan.summary(shown_of(plan)) for row in own.lines()],
    }
