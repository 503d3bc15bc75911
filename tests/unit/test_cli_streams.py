"""Streams and ledgers of periods on the command line."""

import json

import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.release.printing import SIMULATED

SPEC = """\
schema:
  fields:
    - {name: day, type: date, constraints: {minimum: 2026-01-01, maximum: 2026-03-31}, residua: {by: month}}
    - {name: sex, type: string, constraints: {enum: [F, M]}}
tables:
  - {families: {day: prefix, sex: identity}, name: so far}
  - {families: {day: {width: 2}}, name: pairs}
privacy: {definition: zcdp, rho: 0.5}
over: day.month
ledger: budget.db
"""


CREATE = "budget create budget.db --zcdp 1 --dataset births"


def run(line, expect=0):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == expect, result.output
    return result.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("residua.ledger.sqlite._SETTINGS", ("PRAGMA synchronous=OFF",))
    (tmp_path / "births.yaml").write_text(SPEC)
    rows = "".join(f"2026-0{month}-1{n},{'FM'[n % 2]}\n" for month in (1, 2, 3) for n in range(9))
    (tmp_path / "births.csv").write_text("day,sex\n" + rows)
    return tmp_path


def test_a_stream_from_its_ledger_to_its_end(folder):
    run(f"{CREATE} --periods month --disjoint")
    assert "Next: residua stream measure births.yaml 2026-01" in run("stream create births.yaml")
    assert "never replaced" in run("stream create births.yaml", expect=1)
    for month in ("2026-01", "2026-02"):
        run(f"stream measure births.yaml {month} --data births.csv --note punctual")
    assert "2 of 3 periods measured.\nMeasured: 2026-01 to 2026-02." in run("stream show births.yaml")
    twice = run("stream measure births.yaml 2026-02 --data births.csv", expect=1)
    assert "was measured already" in twice
    assert "about 2026-01/2026-02" in run("stream release births.yaml")
    assert "exists" in run("stream release births.yaml", expect=1)
    run("stream release births.yaml --through 2026-01")
    found = rs.Release.load("births-2026-02.release")
    assert found.plan.schema["day"].size == 2
    assert (folder / "births-answers-2026-01.csv").read_text().count("\n") == 3
    again = json.loads(run("stream release births.yaml --force --json"))
    assert again["hash"] == found.hash
    assert "2 releases paid" in run("budget check budget.db births-2026-01.release births-2026-02.release")
    run("stream measure births.yaml 2026-03 --data births.csv")
    shown = json.loads(run("stream show births.yaml --json"))
    assert (shown["next"], shown["measured"]) == (None, ["2026-01", "2026-02", "2026-03"])
    assert "Finished." in run("stream show births.yaml")
    assert not (folder / "births.stream.secret").exists()
    assert "so far, by the costs that blocks state" in run("verify births-2026-02.release")


def test_a_simulated_stream_and_one_that_is_closed(folder):
    assert SIMULATED in run("stream create births.yaml --simulate")
    run("stream measure births.yaml 2026-01 --data births.csv --simulate 7")
    assert SIMULATED in run("stream release births.yaml")
    assert "Finished." in run("stream close births.yaml")
    closed = run("stream measure births.yaml 2026-02 --data births.csv --simulate 8", expect=1)
    assert "was closed" in closed


def test_mistakes_in_the_spec_of_a_stream_name_the_line(folder):
    spec = folder / "births.yaml"
    spec.write_text(SPEC.replace("over: day.month\n", ""))
    assert "names no periods; add 'over: month'" in run("stream create births.yaml", expect=1)
    spec.write_text(SPEC.replace("over: day.month", "over: day.week"))
    wrong = run("plan births.yaml", expect=1)
    assert "births.yaml, line 9, over: attribute 'day' has no level 'week'" in wrong
    spec.write_text(SPEC + "renew: doubling\n")
    assert "Proved" in run("plan births.yaml")
    spec.write_text(SPEC.replace("definition: zcdp, rho: 0.5", "definition: pure_dp, epsilon: 1"))
    assert "over: instalments need Gaussian noise" in run("plan births.yaml", expect=1)


def test_a_ledger_of_periods_draws_what_was_spent_when(folder):
    run(f"{CREATE} --periods month")
    (folder / "births.yaml").write_text(SPEC.replace("over: day.month\n", ""))
    assert "say of which period the data are" in run("release births.yaml --data births.csv", expect=1)
    run("release births.yaml --data births.csv --period 2026-Q1")
    shown = run("budget show budget.db --per-period 2")
    assert "  2026-01/2026-03  0.5  ###############...............   0.5" in shown
    head = "Next periods (what is left, in equal parts):\n  period    rho\n"
    assert f"{head}  2026-04  0.25\n  2026-05  0.25" in shown
    told = json.loads(run("budget show budget.db --json --per-period 1"))
    assert (told["periods"], told["disjoint"]) == ("month", False)
    assert (told["by_period"], told["schedule"]) == ({"2026-01/2026-03": "1/2"}, {"2026-04": "1/2"})
    assert rs.Release.load("births.release").audit["period"] == "2026-Q1"


def test_a_schedule_for_ledgers_without_entries_or_periods(folder):
    run("budget create new.db --zcdp 1 --dataset b --periods year --disjoint")
    told = json.loads(run("budget show new.db --json --per-period 2"))
    assert list(told["schedule"].values()) == ["1", "1"]
    run("budget create old.db --zcdp 1 --dataset b")
    told = json.loads(run("budget show old.db --json --per-period 2"))
    assert (told["periods"], told["schedule"]) == (None, {"release 1": "1/2", "release 2": "1/2"})
    refused = run("budget create no.db --zcdp 1 --dataset b --id who --periods day --disjoint", expect=1)
    assert "may have records in two periods" in refused
