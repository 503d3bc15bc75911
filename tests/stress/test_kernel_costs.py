"""Two thousand random plans of every method: what each costs a record, by brute force (claim K-005)."""

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from random_plans import columns, random_workload

import residua as rs
from residua.kernel.cost import added_cost, replaced_cost
from residua.methods.registry import methods_for

PLANS = 2_000
LAWS = {"gaussian": rs.zcdp, "laplace": rs.pure_dp}


def true_cost(plan: rs.Plan, *, replaced: bool) -> Fraction:
    """The cost of the dearest joint cell, or of the dearest pair."""
    costs: Any = Fraction(0)
    for rows, parameter, law in columns(plan):
        change = rows[:, :, None] - (rows[:, None, :] if replaced else 0)
        costs = costs + (abs(change) if law == "laplace" else change * change).sum(axis=0) * (1 / parameter)
    return Fraction(costs.max())


def random_plan(generator: np.random.Generator, method: str, law: str, neighbours: Any) -> rs.Plan | None:
    """A plan, or None where that is refused."""
    budget = LAWS[law](Fraction(int(generator.integers(1, 1000)), int(generator.integers(1, 1000))))
    unit = rs.Unit(max_records=int(generator.integers(1, 3)), neighbours=neighbours)
    together = float(generator.choice([0.0, 1e9]))  # whether few cells are solved as one block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("residua.methods.smasher.UNION_WORK", together)
        try:
            return rs.plan(random_workload(generator), budget, method=method, unit=unit, gap=1e-2)
        except rs.ResiduaError:
            return None


def test_no_plan_costs_more_than_it_states_or_much_less():
    generator = np.random.default_rng(18)
    kinds = [
        (method, law, neighbours)
        for law in LAWS
        for method in methods_for(law)
        if method != "places"  # for tables within places, which unit/test_places.py costs by brute force
        for neighbours in ("add_remove", "replace_one")
    ]
    found: Counter[tuple[str, str, str]] = Counter()
    least = {True: Fraction(1), False: Fraction(1)}  # true cost over the budget, of one block and of several
    drawn = 0
    while found.total() < PLANS:
        kind = kinds[drawn % len(kinds)]
        drawn += 1
        plan = random_plan(generator, *kind)
        if plan is None:
            continue
        replaced = kind[2] == "replace_one"
        true, allowed = true_cost(plan, replaced=replaced), plan.unit.allowance(plan.budget)
        stated = (replaced_cost if replaced else added_cost)(plan.batches)
        assert true <= stated <= allowed
        single = sum(len(batch.subsets) for batch in plan.batches) == 1
        assert true > allowed * (1 - Fraction(1, 10**9 if single else 10**7)), (kind, plan)
        least[single] = min(least[single], true / allowed)
        found[kind] += 1
    print(f"\n{drawn:,} workloads, plans of each kind: {dict(found)}")
    unused = {single: f"{float(1 - part):.1e}" for single, part in least.items()}
    print(f"unused at most: {unused[True]} with one block, {unused[False]} with more")
    assert set(found) == set(kinds)
