"""Accuracy targets in the release spec and on the command line."""

import json

import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli.app import app
from residua.cli.planning import written_targets
from residua.spec import SpecError, load_spec

SPEC = """\
schema:
  fields:
  - name: age
    type: integer
    constraints: {minimum: 0, maximum: 4}
  - name: sex
    type: string
    constraints: {enum: [F, M]}
tables:
- {name: T1, families: {age: prefix, sex: identity}}
- {name: one-way, marginals: 1}
targets:
  T1: {stddev: 5}
  one-way: {half_width: 20, level: 0.9}
data: people.csv
ledger: budget.db
"""
SIMPLE = SPEC.replace(
    "targets:\n  T1: {stddev: 5}\n  one-way: {half_width: 20, level: 0.9}\n", "targets: TARGET\n"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("age,sex\n" + "0,F\n4,M\n2,M\n" * 20)

    def written(text: str) -> str:
        (tmp_path / "people.yaml").write_text(text)
        return "people.yaml"

    return written


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def mistake(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 1, result.output
    return result.output


def test_a_spec_with_targets_needs_no_budget(write):
    spec = load_spec(write(SPEC))
    assert spec.budget is None
    plan = spec.plan()
    same = rs.plan(spec.workload, targets={"T1": rs.stddev(5), "one-way": rs.half_width(20, level=0.9)})
    assert plan.hash == same.hash


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("25", rs.variance(25)),
        ("{stddev: 5}", rs.stddev(5)),
        ("{variance: 3.5}", rs.variance(3.5)),
        ("{half_width: 9}", rs.half_width(9)),
    ],
)
def test_one_target_is_for_all_tables(write, written, target):
    assert load_spec(write(SIMPLE.replace("TARGET", written))).targets.same(target)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("0", "line 12, targets: a target is above zero"),
        ("{stddev: -1}", "line 12, targets: .*above zero"),
        ("{stddev: five}", "line 12, targets: a target is a standard deviation"),
        ("tight", "line 12, targets: 'tight' is no target; write a variance such as 25"),
        ("{stddev: 5, variance: 3}", "is no target"),
        ("{stddev: 5, level: 0.9}", "a level goes with half_width only"),
        ("{T1: {stdev: 5}, one-way: 3}", "target of 'T1': .* is no target"),
        ("{T1: 5, one-way: 5, two-way: 5}", "line 12, targets: the workload has no table named 'two-way'"),
    ],
)
def test_mistakes_in_targets_name_the_line(write, written, words):
    with pytest.raises(SpecError, match=words):
        load_spec(write(SIMPLE.replace("TARGET", written))).plan()


def test_a_budget_too_small_for_the_targets_is_refused_unless_relaxed(write):
    tight = SPEC + "privacy: {definition: privacy_cost, cost: 0.01}\n"
    with pytest.raises(SpecError, match=r"targets: .* need .* times that"):
        load_spec(write(tight)).plan()
    plan = load_spec(write(tight + "relax: true\n")).plan()
    assert plan.targets.factor > 1
    assert load_spec(write(SPEC + "privacy: {definition: zcdp, rho: 10}\n")).plan().targets.factor < 1


def test_whose_privacy_goes_without_an_amount(write):
    spec = load_spec(write(SPEC + "privacy: {unit: {max_records: 3}}\n"))
    assert (spec.budget, spec.unit) == (None, rs.Unit(max_records=3))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SIMPLE.replace("targets: TARGET\n", ""), "the key 'privacy' is missing; or write 'targets'"),
        (SPEC + "privacy: {rho: 1}\n", "rho needs a definition, such as 'definition: zcdp'"),
        (
            SIMPLE.replace("targets: TARGET", "privacy: {unit: {max_records: 2}}"),
            "privacy needs a definition",
        ),
        (SPEC + "relax: true\n", "relax goes with targets and a budget"),
        (SPEC + "objective: max_variance\n", "objective: targets already say what matters"),
    ],
)
def test_a_spec_says_either_how_much_or_how_good(write, text, words):
    with pytest.raises(SpecError, match=words):
        load_spec(write(text)).plan()


def test_the_command_line_shows_price_and_proof(write):
    spec = write(SPEC)
    shown = run("plan", spec, "-o", "people.plan")
    assert "half-width 20 at 90%" in shown
    assert "meets them exactly" in shown
    document = json.loads(run("plan", spec, "--json"))
    assert document["objective"] == "targets"
    assert document["targets"]["factor"] <= 1
    assert [line["name"] for line in document["targets"]["met"]] == ["T1", "one-way"]
    assert json.loads(run("report", "people.plan", "--json"))["plan"]["targets"]["factor"] <= 1


def test_targets_of_the_command_line_go_before_the_budget_of_the_spec(write):
    spec = write(SIMPLE.replace("targets: TARGET", "privacy: {definition: zcdp, rho: 0.1}"))
    assert json.loads(run("plan", spec, "--json"))["targets"] is None
    document = json.loads(run("plan", spec, "--target", "stddev:5", "--json"))
    assert document["targets"]["factor"] == pytest.approx(1, abs=1e-4)
    both = run("plan", spec, "--target", "T1=stddev:5", "--target", "one-way=half_width:20@0.9")
    assert "half-width 20 at 90%" in both


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["stdev:5"], r"did you mean 'stddev'"),
        (["stddev:five"], "is no number; write stddev:5"),
        (["stddev:0"], "above zero"),
        (["stddev:5@0.9"], "a level goes with half_width only"),
        (["stddev:5", "variance:3"], "each needs a name"),
        (["T1=stddev:5", "T1=stddev:4"], "two targets for 'T1'"),
    ],
)
def test_mistakes_in_targets_of_the_command_line_are_refused(words, problem):
    with pytest.raises(rs.BudgetError, match=problem):
        written_targets(words)


def test_a_target_of_the_command_line_for_no_table_is_no_mistake_of_the_spec(write):
    for text in (SPEC, SIMPLE.replace("targets: TARGET", "privacy: {definition: zcdp, rho: 0.1}")):
        told = mistake("plan", write(text), "--target", "T9=stddev:5")
        assert told.startswith("error: --target: the workload has no table named 'T9'; it has ")


def test_a_spec_with_targets_is_released_from_a_ledger(write):
    spec = write(SPEC + "output: {plan: people.plan}\n")
    run("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people")
    run("plan", spec)
    run("release", spec)
    plan = rs.Plan.load("people.plan")
    assert rs.Ledger.open("budget.db").spent == plan.privacy.rho
    other = write(SPEC.replace("stddev: 5", "stddev: 4") + "output: {plan: people.plan}\n")
    assert "is a plan for another set of targets" in mistake("release", other, "--force")
