"""Targets relative to a public guess, targets for some tables, and errors of percentages before any data."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import residua as rs
from residua.accuracy.guesses import guessed
from residua.cli.app import app
from residua.report import plan_contents
from residua.report.sections import page_of
from residua.spec import load_spec

SCHEMA = rs.Schema(age=rs.Integer(0, 19), sex=rs.Categorical("F", "M"), work=rs.Categorical("a", "b", "c"))
CODES = np.stack(
    [
        np.minimum(np.random.default_rng(1).poisson(8, 20_000), 19),
        np.random.default_rng(2).integers(0, 2, 20_000),
        np.random.default_rng(3).choice(3, 20_000, p=[0.7, 0.2, 0.1]),
    ],
    1,
)
TWO = rs.marginals(SCHEMA, up_to=2)
T1 = rs.table(SCHEMA, ["sex", "work"], name="T1")
T2 = rs.table(SCHEMA, ["age"], name="T2")


@pytest.fixture(scope="module")
def last_year() -> rs.Release:
    return rs.measure(rs.plan(TWO, rs.zcdp("0.5")), CODES, ledger=None, noise=rs.simulated(seed=1))


def test_a_relative_target_bounds_every_error_by_its_part_of_the_guess(last_year):
    plan = rs.plan(T1, targets={"T1": rs.relative(0.05)}, guess=last_year)
    parts = np.sqrt(plan.variances(T1)) / last_year.values(T1)
    assert parts.max() <= 0.05
    assert parts.max() > 0.0499  # no privacy is spent for nothing
    same = rs.plan(T1, targets=rs.relative(0.05), guess=last_year)
    assert float(same.privacy.cost) == pytest.approx(float(plan.privacy.cost), rel=1e-3)


def test_guesses_are_a_release_numbers_by_table_or_a_number_of_records(last_year):
    np.testing.assert_allclose(guessed(T1, last_year), last_year.values(T1))
    np.testing.assert_allclose(guessed(T1, 600), np.full(6, 100.0))
    np.testing.assert_allclose(guessed(T1 + T2, {"T1": 5, "T2": np.arange(20)}), [*[5] * 6, *range(20)])
    prefix = rs.table(SCHEMA, age=rs.prefix)
    np.testing.assert_allclose(guessed(prefix, 200), 10 * np.arange(1, 21))


def test_a_run_of_tables_with_one_name_has_a_guess_for_each():
    work = rs.marginals(SCHEMA, ways=1, name="one-way")
    plan = rs.plan(work, targets={"one-way": rs.relative(0.1)}, guess=6000)
    sizes = guessed(work, 6000)
    assert (np.sqrt(plan.variances(work)) <= 0.1 * sizes * (1 + 1e-9)).all()


def test_small_numbers_may_count_as_larger():
    guess = {"T1": [0, 10, 100, 1000, 1000, 1000]}
    with pytest.raises(rs.BudgetError, match="least=100"):
        rs.plan(T1, targets={"T1": rs.relative(0.05)}, guess=guess)
    plan = rs.plan(T1, targets={"T1": rs.relative(0.05, least=100)}, guess=guess)
    assert (np.sqrt(plan.variances(T1)) <= 0.05 * np.array([100, 100, 100, 1000, 1000, 1000]) + 1e-9).all()


@pytest.mark.parametrize(
    ("targets", "guess", "words"),
    [
        ({"T1": rs.relative(0.05)}, None, "need a public guess of sizes"),
        ({"T1": rs.relative(0.05)}, {"T2": 5}, "guess: there is nothing for table 'T1'"),
        ({"T1": rs.relative(0.05)}, {"T1": [1, 2]}, "2 numbers for table 'T1', which has 6"),
        ({"T9": rs.relative(0.05)}, 100, "no table named 'T9'"),
    ],
)
def test_what_cannot_be_guessed_is_refused(targets, guess, words):
    with pytest.raises(rs.WorkloadError, match=words):
        rs.plan(T1, targets=targets, guess=guess)
    with pytest.raises(rs.BudgetError, match=r"such as rs\.relative"):
        rs.relative(-1)


def test_a_target_for_some_tables_leaves_the_others_without_one(tmp_path):
    alone = rs.plan(T1, targets={"T1": rs.stddev(3)})
    plan = rs.plan(T1 + T2, targets={"T1": rs.stddev(3)})
    assert np.sqrt(plan.variances(T1)).max() <= 3
    assert float(plan.privacy.cost) <= 1.02 * float(alone.privacy.cost)
    assert np.isfinite(plan.variances(T2)).all()  # answered all the same
    assert [line.name for line in plan.targets.met] == ["T1"]
    plan.save(tmp_path / "some.plan")
    assert rs.Plan.load(tmp_path / "some.plan").targets.factor == plan.targets.factor
    assert plan.rescale(rs.privacy_cost(5)).targets.factor < 1


@pytest.mark.parametrize(
    ("foreseen", "found"),
    [
        (
            lambda plan, guess: plan.share_error("work", within="sex", guess=guess),
            lambda release: release.share("work", within="sex").stddev,
        ),
        (
            lambda plan, guess: plan.share_error("work", guess=guess),
            lambda release: release.share("work").stddev,
        ),
        (
            lambda plan, guess: plan.mean_error("age", by=["sex"], guess=guess),
            lambda release: release.mean("age", by=["sex"]).stddev,
        ),
    ],
)
def test_errors_of_shares_and_means_are_known_before_any_data(last_year, foreseen, found):
    np.testing.assert_allclose(foreseen(last_year.plan, last_year), found(last_year), rtol=1e-9)


def test_the_error_of_a_median_is_foreseen_to_first_order(last_year):
    plan = rs.plan(rs.table(SCHEMA, age=rs.prefix, sex=rs.identity), rs.zcdp("1e-6"))
    foreseen = plan.quantile_error("age", by="sex", guess=last_year)
    assert foreseen.shape == (2,)
    draws = [
        rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=seed))
        .quantile("age", [0.5], by="sex")
        .values
        for seed in range(60)
    ]
    np.testing.assert_allclose(np.std(draws, axis=0)[:, 0], foreseen, rtol=0.6)


SPEC = """
schema:
  fields:
  - {name: sex, type: string, constraints: {enum: [F, M]}}
tables:
- {columns: [sex], name: T1}
targets: {T1: {relative: 0.05}}
guess: GUESS
"""


def test_specs_and_the_command_line_take_relative_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(SPEC.replace("GUESS", "1000"))
    plan = load_spec(tmp_path / "a.yaml").plan()
    assert np.sqrt(plan.max_variance) <= 25
    assert load_spec(tmp_path / "a.yaml").asks_targets(plan)
    data = {"sex": ["F"] * 500 + ["M"] * 500}
    rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)).save(tmp_path / "old.release")
    (tmp_path / "b.yaml").write_text(SPEC.replace("GUESS", "old.release"))
    assert load_spec(tmp_path / "b.yaml").plan().privacy.cost == pytest.approx(plan.privacy.cost, rel=0.3)
    words = ["plan", "a.yaml", "--target", "relative:0.05", "--guess", "10000", "--json"]
    found = CliRunner().invoke(app, words)
    assert json.loads(found.stdout)["max_stddev"] == pytest.approx(250, rel=0.01)
    (tmp_path / "c.yaml").write_text(SPEC.replace("guess: GUESS", ""))
    with pytest.raises(rs.ResiduaError, match="line 7, targets: relative errors need a public guess"):
        load_spec(tmp_path / "c.yaml").plan()


@pytest.mark.parametrize("guess", [0, -5, float("nan"), float("inf"), "abc", [1, 2]])
def test_a_guess_that_is_none_is_refused(guess):
    plan = rs.plan(TWO, rs.zcdp(1))
    for ask in (
        lambda: plan.share_error("work", within="sex", guess=guess),
        lambda: rs.plan(T1, targets=rs.relative(0.05), guess=guess),
    ):
        with pytest.raises(rs.WorkloadError, match=r"^guess( is a release|: a number of records is above 0)"):
            ask()


NUMBERS = rs.Schema(
    sex=rs.Categorical("F", "M"),
    pay=rs.Number(0, 100, step=1, bins=[20, 50], missing=True),
    age=rs.Integer(0, 9, outside="other"),
)
OF_NUMBERS = rs.table(NUMBERS, sex=rs.identity, pay=[rs.moment(0), rs.sum]) + rs.table(
    NUMBERS, ["sex", "pay"]
)
OF_NUMBERS += rs.table(NUMBERS, ["sex", "age"])


def test_what_is_foreseen_of_tables_are_their_percentages_means_and_medians():
    plan = rs.plan(OF_NUMBERS, rs.zcdp("0.1"))
    found = {each.statistic: each for each in plan.foreseen(8000)}
    means = plan.mean_error("pay", by="sex", guess=8000)
    shares = 100 * plan.share_error("age", within="sex", guess=8000)
    assert list(found) == [
        "mean pay by sex", "median pay by sex", "% pay within sex",
        "% age within sex", "mean age by sex", "median age by sex",
    ]  # fmt: skip
    assert found["mean pay by sex"].largest == means.max()
    assert found["% age within sex"].typical == np.median(shares)
    assert found["% age within sex"].figures == shares.size == 22
    assert found["median age by sex"].largest == plan.quantile_error("age", by="sex", guess=8000).max()


def test_errors_of_numbers_are_foreseen_as_they_come():
    """Means and medians of simulated releases scatter as they were foreseen at the true sizes."""
    chance = np.random.default_rng(1)
    people = {
        "sex": chance.choice(["F", "M"], 6000),
        "pay": np.where(chance.random(6000) < 0.1, np.nan, chance.integers(0, 101, 6000)),
        "age": np.where(chance.random(6000) < 0.1, 99, chance.integers(0, 10, 6000)),
    }
    exact = rs.measure(rs.plan(OF_NUMBERS, rs.zcdp(10**8)), people, ledger=None, noise=rs.simulated(seed=1))
    plan = rs.plan(OF_NUMBERS, rs.zcdp("0.01"))
    runs = [rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=seed)) for seed in range(150)]
    for name in ("pay", "age"):
        spread = np.std([run.mean(name, by="sex").values for run in runs], axis=0)
        assert plan.mean_error(name, by="sex", guess=exact) == pytest.approx(spread, rel=0.25)
    medians = [run.quantile("pay", [0.5], by="sex", interpolate=True).values[:, 0] for run in runs]
    foreseen = plan.quantile_error("pay", by="sex", guess=exact)
    assert foreseen == pytest.approx(np.std(medians, axis=0), rel=0.25)


def test_explanations_reports_and_the_command_line_foresee_at_a_guess(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = rs.plan(T1, rs.zcdp("0.1"))
    assert "% work within sex" in plan.explain(guess=1000)
    assert "guessed" not in plan.explain()
    assert [each.statistic for each in plan_contents(plan, guess=1000).foreseen] == ["% work within sex"]
    assert "% work within sex" in page_of(plan_contents(plan, guess=1000), {})
    (tmp_path / "a.yaml").write_text(
        "schema:\n  fields:\n"
        "  - {name: sex, type: string, constraints: {enum: [F, M]}}\n"
        "tables:\n- {columns: [sex]}\n"
        "privacy: {definition: zcdp, rho: 0.1}\noutput: {plan: a.plan}\n"
    )
    said = CliRunner().invoke(app, ["plan", "a.yaml", "--guess", "1000"]).stdout
    assert "% sex" in said
    said = CliRunner().invoke(app, ["report", "a.plan", "--guess", "1000"]).stdout
    assert "At the guessed sizes" in said
    said = json.loads(CliRunner().invoke(app, ["report", "a.plan", "--guess", "1000", "--json"]).stdout)
    assert said["plan"]["foreseen"][0]["figures"] == 2
    (tmp_path / "a.yaml").write_text((tmp_path / "a.yaml").read_text() + "guess: 2000\n")
    said = CliRunner().invoke(app, ["plan", "a.yaml", "--force"]).stdout
    assert "At the guessed sizes" in said
