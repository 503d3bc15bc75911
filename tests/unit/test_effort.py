"""Effort: an account of work decides what is tried, and the plan says what was left undone."""

import math
import re

import cvxpy
import numpy as np
import pytest

import residua as rs
from residua.methods.brief import brief
from residua.methods.dense import _few_integer_rows, dense, dense_work
from residua.methods.effort import DECOMPOSED, EFFORTS, Account
from residua.methods.registry import auto
from residua.methods.smasher import smasher
from residua.solve import cells

PAIRS = rs.Schema.of_sizes([12, 9, 7])


def hybrid() -> rs.Workload:
    return rs.all_tables(PAIRS, ways=(1, 2), family=rs.prefix) + rs.table(PAIRS, ["a0", "a1", "a2"])


def test_an_effort_that_does_not_exist_is_refused() -> None:
    with pytest.raises(rs.WorkloadError, match="effort is one of quick, normal, thorough, not 'slow'"):
        rs.plan(hybrid(), rs.privacy_cost(1), effort="slow")


def test_more_effort_is_never_worse_and_the_same_effort_gives_the_same_plan() -> None:
    plans = {effort: rs.plan(hybrid(), rs.privacy_cost(1), effort=effort) for effort in ("quick", "normal")}
    assert plans["normal"].ideal.rmse <= plans["quick"].ideal.rmse * (1 + 1e-4)
    assert rs.plan(hybrid(), rs.privacy_cost(1), effort="quick").hash == plans["quick"].hash


def test_a_plan_says_what_was_left_undone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("residua.methods.effort.EFFORTS", {"quick": 1e6, "normal": 4e11})
    plan = rs.plan(hybrid(), rs.privacy_cost(1), effort="quick")
    assert "the optimum over all joint cells" in plan.undone
    assert "Left undone at this effort: the optimum over all joint cells" in plan.explain()
    best = rs.plan(hybrid(), rs.privacy_cost(1)).ideal.rmse
    told = re.search(r"; that could lower errors by at most ([0-9.]+)%\.", plan.explain())
    assert told is not None
    assert best >= plan.ideal.rmse * (1 - float(told[1]) / 100 - 1e-4)
    plan.save(tmp_path / "a.plan")
    assert rs.Plan.load(tmp_path / "a.plan").undone == plan.undone
    best = rs.plan(hybrid(), rs.privacy_cost(1))
    assert best.undone == ()
    assert best.ideal.rmse < plan.ideal.rmse


def test_every_plan_says_what_is_known_about_all_mechanisms(tmp_path) -> None:
    plan = rs.plan(hybrid(), rs.privacy_cost(2), method="smasher")
    optimum = dense(hybrid(), 1e-6).lower_bound / 2
    assert plan.certificate.scope == "this block structure"
    assert 0 < plan.certificate.everywhere <= optimum <= plan.total_variance * (1 + 1e-9)
    assert plan.certificate.everywhere_gap == pytest.approx(
        plan.total_variance / plan.certificate.everywhere - 1
    )
    assert "No mechanism has less" in plan.certificate.describe()
    plan.save(tmp_path / "a.plan")
    assert rs.Plan.load(tmp_path / "a.plan").certificate == plan.certificate
    half = plan.rescale(rs.privacy_cost(4)).certificate.everywhere
    assert half == pytest.approx(plan.certificate.everywhere / 2)


def test_plans_for_other_objectives_say_what_is_known_about_all_mechanisms() -> None:
    cost, prefix = rs.privacy_cost(2), rs.table(PAIRS, a0=rs.prefix, a1=rs.prefix, name="prefix")
    work = prefix + rs.table(PAIRS, ["a0", "a1"], name="cells")
    for method in ("smasher", "querysmasher"):
        plan = rs.plan(work, cost, objective="max_variance", method=method)
        best = rs.plan(work, cost, objective="max_variance", method="dense").certificate.lower_bound
        assert plan.certificate.everywhere_gap < 1
        assert 0 < plan.certificate.everywhere <= best * (1 + 1e-4)
    met = rs.plan(work, targets=rs.stddev(2), method="smasher")
    least = rs.plan(work, targets=rs.stddev(2), method="dense").privacy.cost
    assert 0 < met.certificate.everywhere <= float(least / met.privacy.cost) * (1 + 1e-4)
    loss = rs.plan(work, cost, objective=cvxpy.max, method="querysmasher")
    best = rs.plan(work, cost, objective=cvxpy.max).certificate.lower_bound
    assert 0 < loss.certificate.everywhere <= best * (1 + 1e-3)
    assert loss.certificate.everywhere_gap < 1
    assert loss.rescale(rs.privacy_cost(1)).certificate.everywhere is None


def test_hdmm_has_a_bound_where_all_cells_do_not_fit_one_matrix() -> None:
    schema = rs.Schema.of_sizes([30, 20, 12])
    work = rs.table(schema, a0=rs.prefix, a1=rs.prefix) + rs.table(schema, a1=rs.prefix, a2=rs.ranges)
    assert math.isfinite(rs.plan(work, rs.privacy_cost(1), method="hdmm-kron").certificate.gap)


def test_work_is_estimated_before_it_is_done() -> None:
    product = rs.table(PAIRS, a0=rs.prefix, a1=rs.prefix)
    assert dense_work(product) < dense_work(product + rs.table(PAIRS, ["a0", "a1"]))
    assert (
        dense_work(
            rs.marginals(rs.Schema.of_sizes([10] * 5), ways=5)
            + rs.marginals(rs.Schema.of_sizes([10] * 5), ways=1)
        )
        == math.inf
    )
    account = Account(10.0)
    assert account.affords(9.0, "this")
    account.spent = 5.0
    assert not account.affords(9.0, "that")
    assert account.undone == ["that"]


def test_a_column_too_wide_for_a_matrix_is_refused_by_name() -> None:
    schema = rs.Schema(speed=rs.Integer(0, 4999), sex=rs.Categorical("F", "M"))
    work = rs.table(schema, speed=rs.prefix, sex=rs.identity) + rs.table(schema, speed=rs.ranges)
    with pytest.raises(rs.Infeasible, match=r"bin 'speed': .* 5,000 cells"):
        rs.plan(work, rs.privacy_cost(1))


@pytest.mark.parametrize("cells", [1_023, 1_025])
def test_one_attribute_is_solved_alike_on_either_side_of_a_thousand_cells(cells: int) -> None:
    work = rs.table(rs.Schema(minute=rs.Integer(0, cells - 1)), minute=rs.width(cells - 30))
    plan = rs.plan(work, rs.privacy_cost(1))
    assert plan.certificate.scope == "all mechanisms"
    assert np.isfinite(plan.certificate.gap)


SURVEY = rs.Schema(
    {
        "age": rs.Integer(0, 99),
        "hours": rs.Integer(0, 40),
        "children": rs.Integer(0, 15),
        "place": rs.Hierarchy(("state", "county"), [(f"s{at // 5}", f"c{at}") for at in range(30)]),
        **{f"q{at}": rs.Categorical(*map(str, range(2 + at % 7))) for at in range(16)},
    }
)
LATE = "SELECT q6, COUNT(*) FROM t WHERE age >= 65 {} hours < 20 GROUP BY q6"
ADDED = {
    "prefix": lambda: rs.table(SURVEY, age=rs.prefix, q6=rs.identity),
    "prefixes": lambda: rs.table(SURVEY, age=rs.prefix, hours=rs.prefix),
    "ranges": lambda: rs.table(SURVEY, age=rs.ranges),
    "width": lambda: rs.table(SURVEY, age=rs.width(5), q6=rs.identity),
    "buckets": lambda: rs.table(SURVEY, age=rs.buckets(range(18), range(18, 65), range(65, 100))),
    "level": lambda: rs.table(SURVEY, place=rs.level("state"), q0=rs.identity),
    "affine": lambda: rs.table(SURVEY, {("hours", "children"): rs.affine}),
    "sum": lambda: rs.table(SURVEY, q6=rs.identity, age=rs.sum),
    "and": lambda: rs.sql(SURVEY, LATE.format("AND")),
    "or": lambda: rs.sql(SURVEY, LATE.format("OR")),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("ways", [1, 2])
def test_a_table_added_to_a_survey_takes_little_work_at_quick_effort(
    name: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, bracket = 0.0, cells.bracket

    def counted(root, weights, **options):
        nonlocal spent
        sizes = (len(root[group]) for group in options.get("groups", (slice(None),)))
        spent += DECOMPOSED * sum(float(size) ** 2 for size in sizes) * root.shape[1]
        return bracket(root, weights, **options)

    monkeypatch.setattr(cells, "bracket", counted)
    plan = rs.plan(rs.marginals(SURVEY, up_to=ways) + ADDED[name](), rs.privacy_cost(1), effort="quick")
    assert spent <= 0.15 * EFFORTS["quick"]
    proved = plan.certificate.scope == "all mechanisms" and plan.certificate.gap < 1e-3
    assert proved or "a search over the splits of queries" in plan.undone
    assert plan.certificate.gap < 0.2
    assert plan.certificate.everywhere is None or plan.certificate.everywhere <= plan.total_variance


def test_a_plan_of_quick_effort_is_hardly_worse_and_never_better() -> None:
    for name in ("prefixes", "and"):
        work = rs.marginals(SURVEY, up_to=1) + ADDED[name]()
        quick, normal = (rs.plan(work, rs.privacy_cost(1), effort=each) for each in ("quick", "normal"))
        assert normal.ideal.rmse <= quick.ideal.rmse * (1 + 1e-4) <= 1.02 * normal.ideal.rmse
        assert normal.undone == ("the optimum over all joint cells",)


def test_where_a_search_only_guesses_its_start_is_tried_too() -> None:
    schema = rs.Schema.of_sizes([40, 30, 3])
    work = rs.marginals(schema, up_to=2) + rs.table(schema, a0=rs.prefix, a1=rs.prefix)
    assert smasher(work, 1e-4).value <= brief(work, 1e-4).value * (1 + 1e-4)


def test_rows_that_span_ranges_are_no_more_than_cells() -> None:
    pairs = np.repeat(np.eye(9), 2, axis=1)
    rows = np.array([pairs[low : high + 1].sum(axis=0) for high in range(9) for low in range(high + 1)])
    (group,) = rs.linear(rs.Schema.of_sizes([18]), ("a0",), rows).groups()
    few = _few_integer_rows(group.factors[0].queries)
    assert few is not None
    assert few.shape == (9, 18)
    assert np.linalg.matrix_rank(np.concatenate([few, rows])) == 9


def test_one_product_is_solved_as_closely_as_there_is_work_for_and_says_so() -> None:
    work = rs.table(rs.Schema.of_sizes([200]), a0=rs.prefix)
    whole, some = auto(work, 1e-5), auto(work, 1e-5, account=Account(1e8))
    assert not whole.undone
    assert some.undone == ("a closer optimum over all joint cells",)
    assert some.total(work) <= some.lower_bound * 1.011
    assert whole.total(work) <= some.total(work) * (1 + 1e-9)


def test_many_places_are_planned_on_their_tree_before_any_matrix() -> None:
    rows = [(f"s{leaf % 7}", f"t{leaf}") for leaf in range(400)]
    schema = rs.Schema(place=rs.Hierarchy(("state", "tract"), rows), sex=rs.Categorical("F", "M"))
    work = rs.levels(schema, "place", ["sex"])
    plan = rs.plan(work, rs.privacy_cost(1))
    assert plan.strategy.nested
    assert plan.certificate.everywhere_gap < 2e-3
