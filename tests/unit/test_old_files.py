"""Files that earlier versions wrote must load for ever: these are of format 1, and never rewritten."""

import json
from pathlib import Path

import numpy as np
import pytest

import residua as rs

FIXTURES = Path(__file__).parents[1] / "fixtures"
FACTS = json.loads((FIXTURES / "format-1.json").read_text())


@pytest.mark.parametrize("name", FACTS)
def test_a_plan_of_format_1_still_says_what_it_said(name: str) -> None:
    plan = rs.Plan.load(FIXTURES / f"format-1-{name}.plan")
    facts = FACTS[name]
    assert plan.method == facts["method"]
    assert plan.strategy.kind == facts["kind"]
    assert plan.unit == rs.Unit(max_records=2)
    assert plan.rmse == pytest.approx(facts["rmse"], rel=1e-12)
    assert plan.ideal.rmse == pytest.approx(facts["ideal"], rel=1e-12)
    assert plan.variances(plan.workload).mean() ** 0.5 == pytest.approx(facts["rmse"], rel=1e-9)


@pytest.mark.parametrize("name", FACTS)
def test_a_release_of_format_1_still_answers_the_same(name: str) -> None:
    release = rs.Release.load(FIXTURES / f"format-1-{name}.release")
    assert release.simulated
    assert release.audit["plan_hash"] == FACTS[name]["hash"]
    np.testing.assert_allclose(release.values()[:12], FACTS[name]["values"], atol=1e-5)


def test_there_are_files_of_these_kinds_of_strategies() -> None:
    kinds = {facts["kind"] for facts in FACTS.values()}
    assert kinds >= {"blocks", "nested", "overlap", "product", "sides", "union"}


@pytest.mark.parametrize("name", FACTS)
def test_a_plan_of_format_1_can_still_be_measured(name: str) -> None:
    plan = rs.Plan.load(FIXTURES / f"format-1-{name}.plan")
    nobody = np.zeros((0, len(plan.schema.sizes)), dtype=np.int64)
    release = rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=1))
    assert release.values().shape == (plan.workload.count,)
