"""Bounds against the optimum of all mechanisms, on random workloads of few cells."""

import numpy as np
import pytest
from random_work import random_work

import residua as rs
from residua.bounds import quick_bound
from residua.methods.registry import methods_for

COST = rs.privacy_cost(1)
SOLVED = 1e-6  # relative gap of the optimum


def optimum(work: rs.Workload) -> float:
    return rs.plan(work, COST, method="dense", gap=SOLVED).ideal.total_variance


@pytest.mark.parametrize("seed", range(500))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    work = random_work(np.random.default_rng(seed), 2, 64, levels=True).without_totals()
    best = optimum(work)
    bounds = [rs.bounds.svd, rs.bounds.supreme_svd, rs.bounds.dual, rs.bounds.product_dual, quick_bound]
    for bound in bounds:
        assert bound(work) <= best * (1 + SOLVED), bound
    names = sorted(methods_for("gaussian"))
    for name in (names[seed % len(names)], "smasher"):
        try:
            plan = rs.plan(work, COST, method=name)
        except rs.ResiduaError:  # not every method plans every workload
            continue
        proved = plan.certificate
        known = proved.lower_bound if proved.scope == "all mechanisms" else proved.everywhere
        assert known is not None, name
        assert 0 < known <= best * (1 + SOLVED), name
        assert proved.lower_bound <= plan.total_variance * (1 + 1e-9), name
