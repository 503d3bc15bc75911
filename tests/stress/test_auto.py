"""Method `auto` against every other one, and bounds against the optimum, on random workloads."""

import math

import numpy as np
import pytest
from random_work import random_work

import residua as rs
from residua.methods.registry import methods_for

COST = rs.privacy_cost(1)


def check(seed: int, least: int, most: int, effort: str, loss: float) -> None:
    """No other method has an error lower by more than `loss`; a bound for all mechanisms may prove it."""
    work = random_work(np.random.default_rng(seed), least, most, levels=True)
    plan = rs.plan(work, COST, effort=effort)
    print(f"seed {seed}, {work.schema.sizes}: {plan.certificate}")
    if math.sqrt(1 + plan.certificate.everywhere_gap) <= 1 + loss:
        return
    for name in methods_for("gaussian"):
        try:
            other = rs.plan(work, COST, method=name)
        except rs.ResiduaError:  # not every method plans every workload
            continue
        assert math.sqrt(plan.total_variance / other.total_variance) <= 1 + loss, name


@pytest.mark.parametrize("seed", range(500))
def test_no_other_method_is_better_on_few_cells(seed: int) -> None:
    check(seed, 2, 512, "normal", 1e-3)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("effort", "loss"), [("normal", 5e-3), ("thorough", 1e-3)])
def test_no_other_method_is_better_on_some_thousand_cells(seed: int, effort: str, loss: float) -> None:
    check(seed, 1025, 4096, effort, loss)
