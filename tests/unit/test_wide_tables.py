"""Tables on many attributes: planned in seconds, or refused at once with what to do instead."""

import numpy as np
import pytest

import residua as rs
from residua.methods.registry import methods_for

WIDE = rs.Schema.of_sizes([2] * 40)
NAMES = list(WIDE.names)
SPLIT = ("smasher", "querysmasher", "residualplanner", "residualplanner+", "fourier", "hdmm-marginals")


@pytest.fixture(autouse=True)
def quickly(within):
    with within(10):
        yield


def sixteen() -> rs.Workload:
    return rs.table(WIDE, NAMES[:16])


@pytest.mark.parametrize("budget", [rs.zcdp(1), rs.pure_dp(1)], ids=["gaussian", "laplace"])
def test_one_table_on_sixteen_attributes_is_planned_as_a_product(budget):
    plan = rs.plan(sixteen(), budget)
    assert plan.workload.count == 2**16
    release = rs.measure(plan, np.zeros((3, 40), int), ledger=None, noise=rs.simulated(seed=1))
    values, variances = release.values(), plan.variances(sixteen())
    assert abs(values[0] - 3) < 8 * variances[0] ** 0.5
    np.testing.assert_allclose(variances, plan.max_variance)


@pytest.mark.parametrize(
    "method", [*methods_for("gaussian"), *(f"pure {name}" for name in methods_for("laplace"))]
)
def test_every_method_plans_sixteen_attributes_or_says_what_to_do(method):
    budget = rs.pure_dp(1) if method.startswith("pure ") else rs.zcdp(1)
    name = method.removeprefix("pure ")
    if name in SPLIT:
        with pytest.raises(rs.Infeasible, match=r"on 16 attributes .* method 'identity' or 'hdmm-kron'"):
            rs.plan(sixteen(), budget, method=name)
        return
    try:
        assert rs.plan(sixteen(), budget, method=name).rmse > 0
    except rs.Infeasible:
        assert name in ("hdmm-union", "datacube", "workload", "places")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "max_variance"},
        {"targets": 5.0},
        {"budget": rs.pure_dp(1), "method": "hdmm-marginals"},
    ],
    ids=["total", "largest", "targets", "pure"],
)
@pytest.mark.parametrize("ways", [16, 40])
def test_a_wide_table_beside_others_is_refused_at_once_with_the_remedy(ways, options):
    work = rs.marginals(WIDE, ways=(0, 1, 2)) + rs.table(WIDE, NAMES[:ways])
    given = {"budget": None if "targets" in options else rs.zcdp(1)} | options
    with pytest.raises(rs.Infeasible, match=rf"on {ways} attributes .* use fewer attributes in one table"):
        rs.plan(work, **given)


def test_all_tables_on_many_attributes_are_refused_at_once():
    schema = rs.Schema.of_sizes([2] * 20)
    for work in (rs.marginals(schema, up_to=20), rs.all_tables(schema, 20, rs.prefix)):
        with pytest.raises(rs.Infeasible, match="use fewer attributes in one table"):
            rs.plan(work, rs.zcdp(1), method="querysmasher")


def test_group_by_forty_columns_is_refused_with_the_remedy():
    text = f"SELECT COUNT(*) FROM t GROUP BY {', '.join(NAMES)}"
    with pytest.raises(rs.Infeasible, match=r"1,099,511,627,776 cells, .* more than the 100,000,000"):
        rs.plan(rs.sql(WIDE, text), rs.zcdp(1))
    many = rs.Schema.of_sizes([2] * 61)
    with pytest.raises(rs.WorkloadError, match="on 61 attributes, more than the 60"):
        rs.sql(many, f"SELECT COUNT(*) FROM t GROUP BY {', '.join(many.names)}")
    with pytest.raises(rs.WorkloadError, match="on 61 attributes, more than the 60"):
        rs.table(many, list(many.names))


def test_a_release_of_small_tables_refuses_wide_ones_at_once():
    plan = rs.plan(rs.marginals(WIDE, ways=(0, 1)), rs.zcdp(1))
    release = rs.measure(plan, np.zeros((3, 40), int), ledger=None, noise=rs.simulated(seed=1))
    for ask in (
        lambda: release.table(*NAMES),
        lambda: release.sql(f"SELECT COUNT(*) FROM t GROUP BY {', '.join(NAMES)}"),
        lambda: plan.summary(rs.table(WIDE, NAMES)),
        lambda: plan.covariance(rs.table(WIDE, NAMES), rs.table(WIDE, ["a0"])),
        lambda: plan.rescale(rs.zcdp(2)).summary(rs.table(WIDE, NAMES[:16])),
    ):
        with pytest.raises(rs.ResiduaError, match=r"use fewer attributes|ask for at most"):
            ask()


@pytest.mark.parametrize("budget", [rs.zcdp(1), rs.pure_dp(1)], ids=["gaussian", "laplace"])
def test_attributes_of_which_the_total_is_asked_cost_nothing(budget):
    totals = dict.fromkeys(NAMES[2:], rs.total)
    tables = [{"a0": rs.identity}, {"a0": rs.prefix, "a1": rs.identity}]
    plain, work = (sum(rs.table(WIDE, each | more) for each in tables) for more in ({}, totals))
    one, two = rs.plan(work, budget), rs.plan(plain, budget)
    assert one.rmse == pytest.approx(two.rmse)
    assert one.workload is work
    np.testing.assert_allclose(one.variances(work), one.variances(plain), rtol=1e-9)
    release = rs.measure(one, np.zeros((9, 40), int), ledger=None, noise=rs.simulated(seed=1))
    np.testing.assert_allclose(release.values(), release.values(plain), atol=1e-9)
    np.testing.assert_allclose(one.covariance(work, work), one.covariance(plain, plain), atol=1e-9)


@pytest.mark.parametrize("method", ["auto", "dense", "identity", "smasher", "hdmm-kron"])
@pytest.mark.parametrize("family", [rs.identity, rs.prefix])
def test_what_could_never_be_measured_is_refused_when_planned(method, family):
    schema = rs.Schema.of_sizes([100] * 5)
    with pytest.raises(rs.Infeasible, match=r"10,000,000,000 cells, .* more than the 100,000,000 that"):
        rs.plan(rs.table(schema, dict.fromkeys(schema.names, family)), rs.zcdp(1), method=method)
    rs.plan(rs.table(schema, dict.fromkeys(schema.names[:4], family)), rs.zcdp(1), method=method)
