"""Every method on workloads that are awkward: a plan whose figures make sense, or a refusal in words."""

import math

import numpy as np
import pytest

import residua as rs
from residua.methods.registry import methods_for
from residua.workload import Explicit, Factor, Table

SCHEMA = rs.Schema.of_sizes([3, 1, 4])
REPLACED = rs.Unit(neighbours="replace_one")
METHODS = [
    *((rs.zcdp("0.5"), method) for method in sorted(methods_for("gaussian"))),
    *((rs.pure_dp(1), method) for method in sorted(methods_for("laplace"))),
]
NAMES = [f"{budget.law} {method}" for budget, method in METHODS]
RANDOM = np.random.default_rng(2)
DIFFERENCES = Factor((0,), Explicit((3,), np.array([[1, -1, 0], [0, 1, -1]])))


def linear(names, rows, **more):
    return rs.linear(SCHEMA, names, rows, **more)


def table(**families):
    return rs.table(SCHEMA, families)


WORKLOADS = {
    "the total": rs.table(SCHEMA),
    "the total three times": rs.table(SCHEMA) + 5.0 * rs.table(SCHEMA) + table(a0=rs.total, a2=rs.total),
    "an attribute of one cell": table(a1=rs.prefix),
    "one cell beside others": table(a1=rs.identity, a0=rs.prefix) + table(a1=rs.predicates),
    "all cells as one bucket": table(a0=rs.buckets((0, 1, 2))) + table(a0=rs.width(3), a2=rs.total),
    "totals of either": table(a0=rs.total, a2=rs.prefix) + table(a0=rs.prefix, a2=rs.total),
    "one table twice": table(a0=rs.prefix) + table(a0=rs.prefix),
    "rows of ones": linear(["a0", "a2"], np.ones((2, 12))) + table(a2=rs.identity),
    "rows of zeros": linear(["a2"], [[0, 0, 0, 0], [1, 2, 0, 0]]) + table(a0=rs.total),
    "equal rows": linear(["a2"], np.ones((5, 1)) @ [[3, 1, 0, 0]]),
    "differences": linear(["a0"], [[1, -1, 0]]) + linear(["a2"], [[1, 1, -1, -1]]),
    "differences by groups": rs.Workload(
        SCHEMA,
        tuple(
            Table(family.__class__.__name__, (*next(iter(table(a2=family).groups())).factors, DIFFERENCES))
            for family in (rs.prefix, rs.identity)
        ),
    ),
    "sums of two attributes": linear(["a0", "a2"], np.add.outer([0, 1, 2], [0, 1, 2, 3]).reshape(1, 12)),
    "no whole numbers": linear(["a0", "a2"], RANDOM.normal(size=(5, 12))) + table(a0=rs.prefix),
    "nearly dependent rows": linear(["a2"], np.eye(4)[[0, 0, 1]] + 1e-9 * RANDOM.normal(size=(3, 4))),
    "large and small coefficients": linear(["a2"], [[1e40, 0, 0, 0], [0, 1e-40, 0, 0]]),
    "large and small weights": 1e60 * table(a0=rs.prefix) + 1e-60 * table(a2=rs.ranges),
    "large and small own weights": linear(["a0"], np.eye(3), weights=[1e-30, 1.0, 1e30]),
    "a condition": rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a2 = 0") + rs.table(SCHEMA),
}


def planned_or_refused(work, budget, **request):
    """A plan, or None where it is refused in words that people can use."""
    try:
        plan = rs.plan(work, budget, **request)
        plan.variances(work)
    except rs.ResiduaError as error:
        refusal = str(error)
    else:
        return plan
    assert 30 < len(refusal) < 1000, refusal
    return None


@pytest.mark.parametrize(("budget", "method"), METHODS, ids=NAMES)
def test_every_method_plans_every_awkward_workload_or_says_why_not(budget, method):
    for number, (name, work) in enumerate(WORKLOADS.items()):
        unit = REPLACED if number % 3 == 1 else rs.Unit()
        plan = planned_or_refused(work, budget, method=method, unit=unit)
        if plan is None:
            continue
        variances = plan.variances(work)
        assert np.all(np.isfinite(variances)), name
        assert np.all(variances >= 0), name
        # The budget makes both kinds of noise wide, so that rounding to whole numbers changes little.
        assert plan.ideal.total_variance == pytest.approx(plan.total_variance, rel=0.5), name
        assert 0 < plan.rmse < math.inf, name
        assert plan.explain(), name


@pytest.mark.parametrize("wrong", [1e300, 1e-300, 1e101, 5e-324], ids=str)
@pytest.mark.parametrize(
    "weighted",
    [
        lambda weight: weight * table(a0=rs.prefix),
        lambda weight: table(a2=rs.identity) + weight * rs.marginals(SCHEMA, up_to=2),
        lambda weight: linear(["a0"], np.eye(3), weights=[1, weight, 1]),
        lambda weight: linear(["a0"], np.eye(3) * math.sqrt(weight)),
        lambda weight: weight * rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a2 = 0"),
    ],
    ids=["times", "run", "own", "coefficients", "condition"],
)
def test_weights_and_coefficients_that_floats_cannot_square_and_add_are_refused(wrong, weighted):
    for request in ({"budget": rs.zcdp(1)}, {"budget": rs.pure_dp(1)}, {"targets": rs.stddev(3)}):
        with pytest.raises(rs.WorkloadError, match="only ratios of weights count, so divide all of them"):
            rs.plan(weighted(wrong), **request)


@pytest.mark.parametrize(
    "make", [rs.privacy_cost, rs.zcdp, rs.gdp, rs.pure_dp, lambda each: rs.approx_dp(each, 1e-9)]
)
def test_tiny_and_huge_budgets_are_planned_or_refused(make):
    work = rs.marginals(SCHEMA, up_to=2)
    for power in (-308, -300, -59, -30, -12, 6, 15, 29, 40, 308):
        budget = make(f"1e{power}")
        for request in ({}, {"method": "identity"}, {"unit": rs.Unit(max_records=10**6)}):
            plan = planned_or_refused(work, budget, **request)
            assert plan is None or 0 < plan.rmse < math.inf, power
            assert plan is None or plan.explain(), power
