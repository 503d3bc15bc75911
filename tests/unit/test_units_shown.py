"""Counts and sums are told apart wherever errors are shown, each in its own unit."""

import numpy as np
import pytest

import residua as rs
from residua.report import plan_contents, release_contents
from residua.report.budgets import overall
from residua.report.words import methods_paragraph
from residua.studio.figures import figures_of
from residua.studio.rehearsal import rehearse

SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    age=rs.Integer(0, 9),
    income=rs.Number(0, 1000, step=10),
    hours=rs.Number(10, 60, step=1, bins=[20, 40], degree=2, missing=True),
)
MIXED = rs.table(SCHEMA, sex=rs.identity, income=[rs.total, rs.sum], name="both")
WORK = MIXED + rs.table(SCHEMA, ["sex", "age"]) + rs.table(SCHEMA, hours=[rs.moment(0), rs.sum, rs.moment(2)])


@pytest.fixture(scope="module")
def plan():
    return rs.plan(WORK, rs.zcdp("0.5"))


def test_a_summary_has_each_statistic_in_its_own_unit(plan):
    both, plain, hours = plan.summary()
    stddev = np.sqrt(plan.variances(MIXED)).reshape(2, 2)
    assert [each.statistic for each in both.parts] == ["count", "sum of income"]
    assert [each.rmse for each in both.parts] == pytest.approx(np.sqrt((stddev**2).mean(axis=0)))
    assert [each.max_stddev for each in both.parts] == pytest.approx(stddev.max(axis=0))
    assert (plain.statistic, plain.parts, plain.lines()) == ("count", (), (plain,))
    assert [each.name for each in hours.lines()][1:] == ["hours: sum of hours", "hours: sum of hours^2"]


def test_statistics_and_units_are_the_queries_of_the_table(plan):
    for group in WORK.groups():
        own = np.sqrt(plan.variances(rs.workload.Workload(SCHEMA, (group,))))
        statistics, units = group.statistics(), group.units()
        assert list(statistics) == list(units)
        for words, part in statistics.items():
            found = np.sqrt(plan.variances(rs.workload.Workload(SCHEMA, (part,))))
            assert found == pytest.approx(own[units[words]])


@pytest.mark.parametrize(
    ("query", "statistic"),
    [
        ("SELECT sex, SUM(hours * hours) FROM t GROUP BY sex", "sum of hours^2"),
        ("SELECT sex, SUM(hours * age) FROM t GROUP BY sex", "sum of hours * age"),
        ("SELECT sex, SUM(age) FROM t WHERE age < 5 OR sex = 'F' GROUP BY sex", "sum of age"),
        ("SELECT sex, SUM(age) FROM t WHERE age < 5 GROUP BY sex", "sum of age"),
        ("SELECT age, SUM(age) FROM t GROUP BY age", "sum of age"),
        ("SELECT MEDIAN(age) FROM t", "count"),
    ],
)
def test_sql_says_what_it_sums(query, statistic):
    first, *_ = rs.sql(SCHEMA, query).groups()
    assert list(first.statistics()) == [statistic]


def test_files_keep_what_is_summed(plan, tmp_path):
    plan.save(tmp_path / "a.plan")
    loaded = rs.Plan.load(tmp_path / "a.plan")
    assert loaded.summary() == plan.summary()
    assert not loaded.workload.counts


def test_what_is_said_of_all_numbers_is_said_of_counts(plan):
    contents = plan_contents(plan)
    counts = [line for each in plan.summary() for line in each.lines() if line.statistic == "count"]
    numbers = sum(each.queries for each in counts)
    rmse = np.sqrt(sum(each.queries * each.rmse**2 for each in counts) / numbers)
    assert contents.noun == "count"
    assert contents.rmse == pytest.approx(rmse) == overall(plan)[0]
    assert contents.max_stddev == max(each.max_stddev for each in counts)
    assert "overall" not in plan.explain().splitlines()[0]
    assert "both: sum of income" in plan.explain()
    assert "of the counts' standard deviations" in methods_paragraph(contents)


def test_sums_alone_have_no_figure_of_all_counts():
    plan = rs.plan(rs.table(SCHEMA, sex=rs.identity, income=rs.sum), rs.zcdp("0.5"))
    contents = plan_contents(plan)
    assert np.isnan(contents.rmse)
    assert "root mean square" not in methods_paragraph(contents)


def test_plans_of_sums_are_compared_by_weighted_errors(plan):
    other = rs.plan(WORK, rs.zcdp("0.5"), method="identity")
    said = str(rs.compare(plan, other))
    assert "weighted rmse" in said.splitlines()[0]
    assert f"{other.released.weighted_rmse:.6g}" in said


def test_crosstabs_of_reports_call_counts_counts(plan):
    people = {"sex": ["F", "M"], "age": [1, 2], "income": [100, 900], "hours": [12, 50]}
    release = rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=1))
    grid = release_contents(release).sheets[0].grid
    assert grid.columns == (("count",), ("sum of income",))


def test_a_rehearsal_knows_the_truth_about_numbers(plan):
    for number in range(3):
        found = rehearse(plan, number, 500, seed=1)
        error = np.abs(np.array(found["values"]) - np.array(found["truth"]))
        assert (error < 3 * np.array(found["halves"])).all()


def test_the_studio_has_a_bar_for_each_statistic(plan):
    figures = figures_of(plan)
    assert [each["at"] for each in figures["tables"]] == [0, 0, 1, 2, 2, 2]
    assert [each["counts"] for each in figures["tables"]] == [True, False, True, True, False, False]
    assert {each["column"] for each in figures["means"]} == {"age", "income", "hours"}
