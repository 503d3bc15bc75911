"""The replay audit: quiet about the real program, and no planted defect gets past it."""

import re
from itertools import islice

import planted
import pytest
from kinds import PLANS, SMALL, planned
from placed_plans import some_plan
from typer.testing import CliRunner

import residua as rs
from residua.audit import Audit, audit
from residua.audit.invented import invented_plans
from residua.audit.replay import alarms_of
from residua.cli import app


@pytest.mark.parametrize("name", PLANS)
def test_no_alarm_on_any_kind_of_plan(name):
    found = audit(planned(name), rounds=1)
    assert found.alarms == []
    assert found.tried["steps of the program"] > 1_000
    assert found.tried["files"] >= 3


def test_no_alarm_on_invented_plans():
    found = Audit()
    for number, plan in enumerate(islice(invented_plans(1), 15)):
        found += audit(plan, rounds=1, seed=number)
    assert found.alarms == []
    assert found.plans == 15


@pytest.mark.parametrize("name", planted.MUTANTS)
def test_a_planted_defect_is_found(name, monkeypatch):
    own = planted.MUTANTS[name](monkeypatch)
    plan = planted.made() if own is None else own
    assert next(alarms_of(plan, Audit(), rounds=1), None) is not None


def test_without_a_defect_the_same_plans_raise_no_alarm():
    assert audit(planted.made(), rounds=1).alarms == []


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    ("missing", "per"), [("error", {"age": 1}), ("drop", {}), ("own", {"age": 1, "home": 2})]
)
def test_whole_persons_come_go_and_change_without_an_alarm(neighbours, missing, per):
    unit = rs.Unit(3, neighbours, id="household_id", max_per=per, missing_id=missing)
    found = audit(planted.made(unit=unit), rounds=1)
    assert found.alarms == []
    how = "added with" if neighbours == "add_remove" else "replaced by"
    assert found.neighbours[f"one household {how} many records"] == 1
    assert found.neighbours[f"a record without an id, policy {missing}"] == 1
    assert found.neighbours["one household of many records changed in a file"] == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_places_are_replayed_in_parts_too(seed):
    found = audit(some_plan(seed), rounds=1)
    assert found.alarms == []
    assert found.neighbours["a record removed, measured in parts"] == 1


def test_persons_with_values_that_nobody_can_invent_are_refused_with_the_remedy(monkeypatch):
    plan = rs.plan(rs.marginals(SMALL, ways=1), rs.zcdp(1), unit=rs.Unit(id="person", max_records=2))
    monkeypatch.setattr("residua.audit.replay.can_say", lambda schema: False)
    with pytest.raises(rs.Infeasible, match=r"unit=rs.Unit\(max_records"):
        audit(plan)


def test_there_are_at_least_forty_defects():
    assert len(planted.MUTANTS) >= 40


def test_the_command_writes_a_page_of_what_was_tried(tmp_path):
    planned("blocks").save(tmp_path / "a.plan")
    page = tmp_path / "audit.md"
    run = CliRunner().invoke(app, ["audit", str(tmp_path / "a.plan"), "--rounds", "1", "-o", str(page)])
    assert run.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert re.search(r"No alarm\. 1 plan, \d\d neighbouring datasets, audited by Residua", text)
    assert "other noise: 1. Seed of what is invented: 0." in text
    assert planned("blocks").hash in text
    assert "| a record added, the dearest | 1 |" in text
    assert "Signed: ____" in text


def test_the_command_fails_where_something_alarms(monkeypatch):
    planted.MUTANTS["no_noise"](monkeypatch)
    run = CliRunner().invoke(app, ["audit", "--invented", "1", "--rounds", "1", "--json"])
    assert run.exit_code == 1
    assert "measured numbers are not exact answers plus what was drawn" in run.output
