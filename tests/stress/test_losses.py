"""Losses of one's own against a semidefinite program, on random workloads of few cells (J-009)."""

import numpy as np
import pytest
from random_work import LOSSES, least_loss, random_work

import residua as rs


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(50))
def test_a_plan_is_within_a_percent_of_the_least_loss_and_its_bound_below_it(seed: int, name: str) -> None:
    work = random_work(np.random.default_rng(seed), 2, 24)
    plan = rs.plan(work, rs.privacy_cost(1), objective=LOSSES[name])
    best = least_loss(work, LOSSES[name])
    lower = plan.certificate.lower_bound
    value = lower * (1 + plan.certificate.gap)
    print(f"seed {seed}, {name}: {value / best - 1:.1e} above the optimum, bound {lower / best - 1:.1e}")
    assert value <= 1.01 * best
    assert lower <= best * (1 + 1e-4)
