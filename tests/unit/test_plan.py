"""Planning: arguments, units of privacy, figures, what can and cannot be asked, words for people."""

import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest

import residua as rs
from residua.accuracy.figures import Certificate, certified

SCHEMA = rs.Schema(age=rs.Integer(0, 9), sex=rs.Categorical("F", "M"), grade=rs.Integer(0, 3))
ONE_WAY = rs.marginals(SCHEMA, ways=1)
COST = rs.privacy_cost(1)


@pytest.fixture(scope="module")
def one_way() -> rs.Plan:
    return rs.plan(ONE_WAY, COST, method="dense")


def test_marginals_are_planned_without_loading_scipy():
    """Which takes as long to load as all of residua and numpy."""
    program = (
        "import sys, residua as rs; "
        "rs.plan(rs.marginals(rs.Schema.of_sizes([3, 4, 5]), up_to=2), rs.zcdp(1)); "
        "sys.exit(any(name.startswith('scipy') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_count_with_cost_one_has_variance_one():
    plan = rs.plan(rs.table(SCHEMA), COST, method="dense")
    for figure in (plan.rmse, plan.total_variance, plan.max_variance, plan.ideal.rmse):
        assert figure == pytest.approx(1, rel=1e-9)
    assert plan.certificate.gap < 1e-9
    assert "the number of records" in plan.explain()


def test_identity_at_rho_one_tenth_has_variance_five():
    work = rs.table(SCHEMA, ["age", "sex"])
    for method in ("dense", "identity"):
        plan = rs.plan(work, rs.zcdp("0.1"), method=method)
        np.testing.assert_allclose(plan.variances(work), 5.0, rtol=1e-6)


def test_a_person_with_three_records_multiplies_every_variance_by_nine(one_way):
    three = rs.plan(ONE_WAY, COST, unit=rs.Unit(max_records=3), method="dense")
    np.testing.assert_allclose(three.variances(ONE_WAY), 9 * one_way.variances(ONE_WAY), rtol=1e-12)
    assert three.certificate.lower_bound == pytest.approx(9 * one_way.certificate.lower_bound)
    assert three.certificate.gap == pytest.approx(one_way.certificate.gap, abs=1e-12)
    assert three.privacy.cost == 1
    assert "3 records" in three.explain()


def test_replacing_a_record_doubles_the_variances_of_disjoint_counts_that_add_up_to_a_public_number():
    work = rs.table(SCHEMA, ["age"])
    plan = rs.plan(work, COST, unit=rs.Unit(neighbours="replace_one"), method="dense")
    cells = work.count  # two of which change by one each
    np.testing.assert_allclose(plan.variances(work), 2.0 * (1 - 1 / cells), rtol=1e-3)
    assert plan.certificate.gap < 1e-3


def test_a_total_is_free_when_records_are_replaced():
    work = rs.table(SCHEMA, ["sex"]) + rs.table(SCHEMA)
    plan = rs.plan(work, COST, unit=rs.Unit(neighbours="replace_one"), method="dense")
    _, [factor], noise = plan.strategy.single()
    change = factor.matrix @ [1.0, -1.0]
    assert change @ change / noise == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize(
    "work",
    [
        rs.table(SCHEMA),
        rs.table(SCHEMA, age=rs.total, sex=rs.total),
        rs.table(SCHEMA) + 0.3 * rs.table(SCHEMA, age=rs.total),
        rs.linear(SCHEMA, "grade", [[0.1] * 4, [0.7] * 4]),
        rs.linear(SCHEMA, ("age", "grade"), np.full((1, 40), 1 / 3)) + rs.table(SCHEMA, grade=rs.total),
    ],
    ids=["total", "totals", "weighted", "multiples", "thirds"],
)
@pytest.mark.parametrize("method", ["dense", "hierarchical", "wavelet", "identity"])
def test_only_the_number_of_records_is_refused_when_records_are_replaced(work, method):
    if method != "dense" and work.attributes:
        return  # a baseline measures the cells whatever is asked
    with pytest.raises(rs.Infeasible, match=r"asks only for the number of records.*add_remove"):
        rs.plan(work, COST, unit=rs.Unit(neighbours="replace_one"), method=method)


def test_weights_move_error_from_the_heavy_to_the_light_table():
    fine, coarse = rs.table(SCHEMA, ["age", "sex"], name="fine"), rs.table(SCHEMA, ["grade"], name="coarse")
    even = rs.plan(fine + coarse, COST, method="dense")
    tilted = rs.plan(fine + 100 * coarse, COST, method="dense")
    assert tilted.variances(coarse).max() < even.variances(coarse).min()
    assert tilted.variances(fine).min() > even.variances(fine).max()


def test_weights_count_in_totals_and_not_in_variances(one_way):
    heavy = rs.plan(4 * ONE_WAY, COST, method="dense")
    assert heavy.total_variance == pytest.approx(4 * one_way.total_variance, rel=1e-3)
    assert heavy.rmse == pytest.approx(one_way.rmse, rel=1e-3)
    assert heavy.released.weighted_rmse == pytest.approx(2 * one_way.rmse, rel=1e-3)
    assert heavy.max_variance == pytest.approx(one_way.max_variance, rel=1e-2)


def test_the_same_call_gives_the_same_plan(one_way):
    assert rs.plan(ONE_WAY, COST, method="dense").hash == one_way.hash
    assert rs.plan(ONE_WAY, rs.privacy_cost(2), method="dense").hash != one_way.hash


def test_a_smaller_gap_is_kept():
    work = rs.table(SCHEMA, age=rs.ranges) + ONE_WAY
    loose, tight = (rs.plan(work, COST, method="dense", gap=gap) for gap in (1e-2, 1e-6))
    assert tight.certificate.gap <= 1e-6 + 2e-6  # whole numbers add a little
    assert loose.certificate.gap <= 1e-2
    assert loose.certificate.lower_bound <= tight.total_variance


def test_progress_ends_at_one_and_names_what_is_solved():
    told: list[tuple[str, float]] = []
    work = rs.table(SCHEMA, age=rs.prefix) + rs.table(SCHEMA, ["sex"])
    rs.plan(work, COST, method="dense", progress=lambda what, part: told.append((what, part)))
    assert told[-1] == ("solving 2 attributes", 1.0)
    assert all(0 <= part <= 1 for _, part in told)


# What cannot be asked


@pytest.mark.parametrize(
    ("work", "table"),
    [
        (rs.table(SCHEMA, ["age", "sex"]), "age x sex"),
        (rs.table(SCHEMA, {"sex": rs.identity, "grade": rs.prefix}, name="T2"), "T2"),
        (rs.table(SCHEMA, {("age", "grade"): rs.affine}, name="sums"), "sums"),
        (rs.linear(SCHEMA, ("sex", "grade"), np.eye(8)[:1], name="corner"), "corner"),
    ],
)
def test_two_way_tables_are_not_in_the_span_of_one_way_marginals(one_way, work, table):
    for ask in (one_way.variances, one_way.summary, lambda w: one_way.covariance(ONE_WAY, w)):
        with pytest.raises(rs.NotInSpan, match=f"table '{table}'.*add the table to the workload"):
            ask(work)


def test_the_query_that_is_not_in_the_span_is_named(one_way):
    rows = np.zeros((3, 8))
    rows[0, :4] = rows[1, ::4] = 1.0  # sex = F; grade = 0
    rows[2, 5] = 1.0
    with pytest.raises(rs.NotInSpan, match="query 2 of 'linear'"):
        one_way.variances(rs.linear(SCHEMA, ("sex", "grade"), rows))
    assert one_way.variances(rs.linear(SCHEMA, ("sex", "grade"), rows[:2])) == pytest.approx(
        [one_way.variances(rs.table(SCHEMA, [name]))[0] for name in ("sex", "grade")], rel=1e-6
    )


def test_sums_of_answers_are_in_the_span(one_way):
    rows = np.zeros((1, 20))
    rows[0, 1::2] += 1  # sex = M
    rows[0, :2] += 3  # 3 times age = 0
    both = rs.table(SCHEMA, ["age"]), rs.table(SCHEMA, ["sex"])
    cov = one_way.covariance(both[0] + both[1], both[0] + both[1])
    q = np.zeros(12)
    q[0], q[11] = 3, 1
    [variance] = one_way.variances(rs.linear(SCHEMA, ("age", "sex"), rows))
    assert variance == pytest.approx(q @ cov @ q)


def test_an_attribute_that_is_not_measured_is_named_by_its_table():
    plan = rs.plan(rs.table(SCHEMA, ["sex"]), COST, method="dense")
    with pytest.raises(rs.NotInSpan, match="table 'grade'"):
        plan.variances(rs.table(SCHEMA, ["grade"]))
    with pytest.raises(rs.NotInSpan, match="table 'sex x grade'"):
        plan.covariance(rs.table(SCHEMA, ["sex"]), rs.table(SCHEMA, ["sex", "grade"]))


def test_a_total_over_an_attribute_that_is_not_measured_asks_nothing_of_it():
    plan = rs.plan(rs.table(SCHEMA, ["sex"]), COST, method="dense")
    plain = rs.table(SCHEMA, ["sex"])
    for work in (
        rs.table(SCHEMA, {"age": rs.total, "sex": rs.identity}),
        rs.table(SCHEMA, {"sex": rs.identity, "grade": rs.buckets((0, 1, 2, 3))}),
        rs.linear(SCHEMA, ("sex", "age"), np.repeat(np.eye(2), 10, axis=1)),
    ):
        np.testing.assert_allclose(plan.variances(work), plan.variances(plain))
        np.testing.assert_allclose(plan.covariance(work, plain), np.diag(plan.variances(plain)), atol=1e-12)
        assert plan.summary(work)[0].rmse == pytest.approx(plan.rmse)


def test_a_large_attribute_that_is_not_measured_is_refused_without_building_it():
    schema = rs.Schema(sex=rs.Categorical("F", "M"), tract=rs.Integer(0, 99_999))
    plan = rs.plan(rs.table(schema, ["sex"]), COST, method="dense")
    assert plan.variances(rs.table(schema, sex=rs.identity, tract=rs.total)) == pytest.approx([1, 1])
    with pytest.raises(rs.NotInSpan, match="table 'tract' asks about an attribute of 100,000 cells"):
        plan.variances(rs.table(schema, ["tract"]))


def test_a_total_is_not_in_the_span_of_differences():
    plan = rs.plan(rs.linear(SCHEMA, ["sex"], [[1, -1]], name="difference"), COST, method="dense")
    for work in (rs.table(SCHEMA), rs.table(SCHEMA, age=rs.total)):
        with pytest.raises(rs.NotInSpan, match=r"table '(total|age)' needs a total.*add the table"):
            plan.variances(work)


def test_another_schema_is_refused(one_way):
    other = rs.Schema(age=rs.Integer(0, 8), sex=rs.Categorical("F", "M"), grade=rs.Integer(0, 3))
    with pytest.raises(rs.SchemaError, match="build both from one schema"):
        one_way.variances(rs.table(other, ["age"]))


@pytest.mark.parametrize("name", ["variances", "iter_variances", "summary"])
def test_asking_about_no_workload_says_what_to_ask_with(one_way, name):
    with pytest.raises(rs.WorkloadError, match=r"such as plan.workload .* not 'age'"):
        getattr(one_way, name)("age")
    with pytest.raises(rs.WorkloadError, match="asked about a workload"):
        one_way.covariance(ONE_WAY, "age")


# What cannot be listed


def test_predicates_of_thirty_cells_have_totals_and_are_not_listed():
    schema = rs.Schema(x=rs.Integer(0, 29), y=rs.Categorical("a", "b"))
    sets = rs.table(schema, x=rs.predicates, name="sets")
    for work in (
        sets,
        sets + rs.table(schema, ["y"]),
        rs.table(schema, {"x": rs.predicates, "y": rs.prefix}),
    ):
        plan = rs.plan(work, COST, method="dense")
        assert plan.certificate.gap < 1e-4
        row = plan.summary()[0]
        assert row.queries == next(iter(work.groups())).count
        assert row.rmse > 0
        assert math.isnan(row.max_stddev)
        assert math.isnan(plan.max_variance)
        assert row.name in plan.explain()
        with pytest.raises(rs.WorkloadError, match=r"too many for one array; plan.summary\(work\)"):
            plan.variances(work)
        with pytest.raises(rs.WorkloadError, match=r"too many to list; plan.summary\(work\)"):
            next(plan.iter_variances(work))


def test_totals_of_predicates_agree_with_their_list_where_both_exist():
    schema = rs.Schema(x=rs.Integer(0, 7), y=rs.Categorical("a", "b"))
    work = rs.table(schema, x=rs.predicates) + rs.table(schema, {"y": rs.identity, "x": rs.prefix})
    plan = rs.plan(work, COST, method="dense")
    variances = plan.variances(work)
    assert plan.rmse == pytest.approx(math.sqrt(variances.mean()))
    assert plan.max_variance == pytest.approx(variances.max())


def test_predicates_of_21_cells_are_few_enough_for_an_array_and_still_not_listed():
    schema = rs.Schema(x=rs.Integer(0, 20))
    work = rs.table(schema, x=rs.predicates)
    with pytest.raises(rs.WorkloadError, match=r"table 'x' has 2,097,152 queries.*plan.summary"):
        rs.plan(work, COST, method="dense").variances(work)


def test_predicates_outside_the_span_are_refused_without_being_listed():
    schema = rs.Schema(x=rs.Integer(0, 29))
    plan = rs.plan(rs.table(schema, x=rs.buckets(10)), COST, method="dense")
    with pytest.raises(rs.NotInSpan, match="table 'x': some query of 'predicates'"):
        plan.summary(rs.table(schema, x=rs.predicates))


def test_more_than_ten_million_variances_are_refused_by_name():
    schema = rs.Schema.of_sizes([100, 100, 20])
    work = rs.table(schema, {"a0": rs.ranges, "a1": rs.ranges})
    plan = rs.plan(rs.table(schema, ["a0", "a1"]), COST, method="identity")
    assert work.count == 25_502_500
    with pytest.raises(
        rs.WorkloadError, match=r"25,502,500 variances .*plan.summary\(work\).*plan.iter_variances\(work\)"
    ):
        plan.variances(work)
    [row] = plan.summary(work)
    # A range of m of 100 cells has variance m; there are 101 - m of each length.
    mean = sum(m * (101 - m) for m in range(1, 101)) / 5050
    assert row.rmse == pytest.approx(mean)
    assert row.max_stddev == pytest.approx(100)


def test_more_queries_than_a_float_can_count_are_refused_with_the_tables_name():
    schema = rs.Schema(a=rs.Integer(0, 599), b=rs.Integer(0, 599))
    with pytest.raises(rs.WorkloadError, match="table 'sets' has about 1e361 queries"):
        rs.plan(rs.table(schema, a=rs.predicates, b=rs.predicates, name="sets"), COST, method="identity")


def test_a_sum_of_variances_that_a_float_cannot_hold_is_refused_with_the_tables_name():
    schema = rs.Schema(age=rs.Integer(0, 899))
    for asked in (rs.table(schema, age=rs.predicates), rs.all_tables(schema, 1, rs.predicates)):
        with pytest.raises(rs.WorkloadError, match="'age': the sum of the variances of about 1e271 queries"):
            rs.plan(asked, rs.privacy_cost("1e-40"), method="identity")


def test_a_covariance_of_too_many_entries_is_refused_with_the_tables_names():
    schema = rs.Schema.of_sizes([100, 100])
    work = rs.table(schema, ["a0", "a1"])
    plan = rs.plan(work, COST, method="identity")
    with pytest.raises(rs.WorkloadError, match="tables 'a0 x a1' and 'a0 x a1' has 100,000,000 entries"):
        plan.covariance(work, work)
    left, right = rs.table(schema, a0=rs.buckets(50)), rs.table(schema, a1=rs.buckets(50))
    with pytest.raises(rs.WorkloadError, match="'a0' and 'a1' needs 10,000 joint cells, more than 5,000"):
        plan.covariance(left, right)
    joint = rs.linear(schema, ["a0", "a1"], np.ones((1, 10_000)), name="all")
    with pytest.raises(rs.WorkloadError, match="'all' joins attributes that are measured apart in 10,000"):
        plan.variances(joint)


def test_covariances_need_only_the_attributes_they_are_about():
    schema = rs.Schema.of_sizes([30, 30, 30])
    plan = rs.plan(rs.table(schema, ["a0", "a1", "a2"]), COST, method="hierarchical")
    left, right = rs.table(schema, ["a0"]), rs.table(schema, ["a2"])
    cov = plan.covariance(left, right)
    assert cov.shape == (30, 30)
    assert cov.sum() == pytest.approx(plan.variances(rs.table(schema))[0])


# What is refused


def test_arguments_that_make_no_sense_say_what_would():
    for arguments, words in (
        ({"work": SCHEMA}, "needs a workload first, such as"),
        ({"budget": 0.1}, "needs a budget second, such as"),
        ({"unit": 3}, r"such as rs.Unit\(max_records=3\), not 3"),
        ({"method": "magic"}, "no method 'magic'; there are auto, "),
        ({"method": ["dense"]}, "there are auto, "),
        ({"objective": "beauty"}, "no objective 'beauty'; there are total_variance"),
        ({"gap": 0}, "gap must be between 0 and 1, such as 1e-4, not 0"),
        ({"gap": 10**5000}, "gap must be between 0 and 1, such as 1e-4, not a number of very many digits"),
        ({"gap": "small"}, "not 'small'"),
        ({"budget": rs.pure_dp(1), "method": "dense"}, "no method 'dense' with laplace noise"),
        ({"method": "dense", "strategies": {}}, r"strategies are for method 'residualplanner\+'"),
    ):
        given = {"work": ONE_WAY, "budget": COST, **arguments}
        with pytest.raises((rs.WorkloadError, rs.BudgetError), match=words):
            rs.plan(given.pop("work"), given.pop("budget"), **given)


def test_a_budget_is_needed_to_rescale(one_way):
    with pytest.raises(rs.BudgetError, match=r"such as rs.zcdp\(0.1\), not 2"):
        one_way.rescale(2)


def test_too_many_joint_cells_for_a_dense_plan_say_what_to_do():
    schema = rs.Schema.of_sizes([10] * 4)
    with pytest.raises(rs.Infeasible, match=r"10,000 cells are more than the 4,096.*fewer attributes"):
        rs.plan(rs.marginals(schema, 2), COST, method="dense")
    wide = rs.Schema(x=rs.Integer(0, 4999))
    with pytest.raises(rs.Infeasible, match="prefix on 5000 cells: 5,000 cells are more than"):
        rs.plan(rs.table(wide, x=rs.prefix), COST, method="dense")


# Words and comparisons


def test_the_explanation_names_tables_privacy_error_and_certificate(one_way):
    text = one_way.explain()
    for words in (
        "Plan for 3 tables with 16 queries, method 'dense'",
        "adding or removing one record",
        "age    identity",
        "typical",
        "Proved: ",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 110


def test_one_table_and_one_query_are_not_plural():
    plan = rs.plan(rs.table(SCHEMA), COST, method="dense")
    assert plan.explain().startswith("Plan for 1 table with 1 query, ")
    assert repr(plan).startswith("Plan(1 table with 1 query, privacy_cost('1'), method='dense', rmse=1, gap=")


def test_the_explanation_of_many_tables_shows_the_first_forty():
    schema = rs.Schema.of_sizes([2] * 10)
    plan = rs.plan(rs.marginals(schema, ways=2), COST, method="identity")
    text = plan.explain()
    assert "... and 5 more tables" in text
    assert sum(" identity x identity " in line for line in text.splitlines()) == 40


def test_the_certificate_speaks_of_percents_or_of_tiny_gaps():
    loose = rs.plan(ONE_WAY, COST, method="identity").certificate
    assert "at most" in loose.describe()
    assert "%" in loose.describe()
    tight = rs.plan(rs.table(SCHEMA, ["age"]), COST, method="dense").certificate
    assert "within" in tight.describe()


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (-1e-16, "optimal"),
        (0.0, "optimal"),
        (4e-10, "optimal"),
        (2e-6, "within 0.01%"),
        (0.99e-4, "within 0.01%"),
        (1.01e-4, "within 0.02%"),  # rounded up: nothing is promised that was not proved
        (0.012301, "within 1.24%"),
        (float("inf"), "no bound known"),
    ],
)
def test_how_near_the_best_a_plan_is_is_said_as_statisticians_say_it(one_way, gap, words):
    certificate = Certificate(100.0, gap, "all mechanisms")
    assert certificate.nearness() == words
    plan = dataclasses.replace(one_way, certificate=certificate)
    for text in (plan.explain().splitlines()[-1], str(rs.compare(plan, plan)), certificate.describe()):
        assert not re.search(r"\de-\d|-0\.0|-1e", text)
    assert words.removeprefix("within ") in str(rs.compare(plan, plan)) or gap == float("inf")
    assert "gap=-" not in repr(plan)


def test_rounding_makes_no_gap_negative():
    assert certified(3.0, 3.0 * (1 + 2e-16), "all mechanisms").gap == 0
    assert certified(3.0, 3.3, "all mechanisms").gap < -0.01  # which is no rounding, and must not be hidden


def test_figures_print_their_two_sums(one_way):
    assert repr(one_way.ideal).startswith("Figures(rmse=")


def test_plans_for_the_same_workload_are_compared_with_the_best(one_way):
    other = rs.plan(ONE_WAY, COST, method="identity")
    lines = str(rs.compare(other, one_way)).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["method", "rmse", "of", "best", "max", "stddev", "gap", "privacy"]
    assert lines[2].split()[:3] == ["dense", f"{one_way.rmse:.6g}", "1.000"]
    assert float(lines[1].split()[2]) == pytest.approx(other.rmse / one_way.rmse, abs=1e-3)


def test_compared_plans_have_names_of_their_own(one_way):
    other = rs.plan(ONE_WAY, COST, method="identity")
    lines = str(rs.compare(one_way, other, one_way.rescale(rs.zcdp(1)))).splitlines()
    assert [line[:16].strip() for line in lines] == ["method", "dense (1)", "identity", "dense (3)"]
    named = str(rs.compare(one_way, tighter=one_way.rescale(rs.zcdp(1)), cells=other)).splitlines()
    assert [line.split()[0] for line in named[1:]] == ["dense", "tighter", "cells"]
    clash = str(rs.compare(one_way, dense=other)).splitlines()
    assert [line[:16].strip() for line in clash[1:]] == ["dense (1)", "dense (2)"]


def test_plans_that_answer_different_queries_are_not_compared(one_way):
    for other in (
        rs.marginals(SCHEMA, ways=2),
        rs.table(SCHEMA, ["grade"]) + rs.table(SCHEMA, ["age", "sex"]),
        rs.all_tables(SCHEMA, 1, rs.prefix),  # as many queries, others
    ):
        with pytest.raises(rs.WorkloadError, match="the same workload"):
            rs.compare(one_way, rs.plan(other, COST, method="identity"))
    with pytest.raises(rs.WorkloadError, match="at least two"):
        rs.compare(one_way)
    with pytest.raises(rs.WorkloadError, match=r"compare needs plans.*not 'dense'"):
        rs.compare(one_way, "dense")
