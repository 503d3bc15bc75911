"""Files that earlier versions wrote must load for ever: these are of format 1, and never rewritten."""

import json
from pathlib import Path

import numpy as np
import pytest

import residua as rs

FIXTURES = Path(__file__).parents[1] / "fixtures"
FACTS = json.loads((FIXTURES / "format-1.json").read_text())


@pytest.mark.parametrize("method", FACTS)
def test_a_plan_of_format_1_still_says_what_it_said(method: str) -> None:
    plan = rs.Plan.load(FIXTURES / f"format-1-{method}.plan")
    facts = FACTS[method]
    assert plan.method == method
    assert plan.unit == rs.Unit(max_records=2)
    assert plan.rmse == pytest.approx(facts["rmse"], rel=1e-12)
    assert plan.ideal.rmse == pytest.approx(facts["ideal"], rel=1e-12)
    assert plan.variances(plan.workload).mean() ** 0.5 == pytest.approx(facts["rmse"], rel=1e-9)


@pytest.mark.parametrize("method", FACTS)
def test_a_release_of_format_1_still_answers_the_same(method: str) -> None:
    release = rs.Release.load(FIXTURES / f"format-1-{method}.release")
    assert release.simulated
    assert release.audit["plan_hash"] == FACTS[method]["hash"]
    np.testing.assert_allclose(release.values()[:12], FACTS[method]["values"], atol=1e-5)
