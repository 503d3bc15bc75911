"""Records that are shares of cells are measured in whole numbers, at the stated cost (claim U-003)."""

from dataclasses import replace

import numpy as np
import pytest
from shares import joint_shares

import residua as rs
from residua.kernel import measuring

SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    age=rs.Integer(0, 3),
    pay=rs.Number(0, 100, step=10, bins=[20, 60], missing=True),
    hours=rs.Number(-4, 8, step=1),
)
SUMS = (
    rs.table(SCHEMA, sex=rs.identity, pay=[rs.moment(0), rs.sum])
    + rs.table(SCHEMA, ["age", "pay"])
    + rs.table(SCHEMA, pay=rs.sum, hours=[rs.total, rs.sum])
)
TIED = rs.table(SCHEMA, ["sex"], where="pay >= 60 OR age = 0") + rs.table(
    SCHEMA, ["sex"], where="age = 1 OR sex = 'F'"
)


def people(records=200, seed=0):
    chance = np.random.default_rng(seed)
    pay = [None if chance.random() < 0.1 else float(chance.uniform(-20, 130)) for _ in range(records)]
    return {
        "sex": chance.choice(["F", "M"], records),
        "age": chance.integers(0, 4, records),
        "pay": pay,
        "hours": chance.integers(-5, 10, records),
    }


def true_answers(work, data):
    """Answers record by record, from shares in floats."""
    codes, found = SCHEMA.encode(data), []
    for group in work.groups():
        tensor = joint_shares(SCHEMA, codes, group.attributes).sum(axis=0)
        rows = np.ones((1, 1))
        for factor in group.factors:
            rows = np.kron(rows, factor.queries.matrix())
        found.append(rows @ tensor)
    return np.concatenate(found)


@pytest.fixture
def silent(monkeypatch):
    """No noise, so that what is measured can be compared with the truth."""
    monkeypatch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))


@pytest.mark.parametrize("budget", [rs.zcdp(1), rs.pure_dp(1)])
@pytest.mark.parametrize("work", [SUMS, TIED], ids=["sums", "conditions"])
def test_without_noise_every_answer_is_the_truth(silent, budget, work):
    data = people()
    plan = rs.plan(work, budget)
    found = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)).values()
    assert found == pytest.approx(true_answers(work, data), rel=1e-9, abs=1e-6)


def test_sums_that_floats_cannot_hold_are_exact(silent):
    """More than 2^53 of a unit: integers take over, and nothing is lost."""
    schema = rs.Schema(x=rs.Number(0, 2_000_000, step=1))
    plan = rs.plan(rs.table(schema, x=[rs.total, rs.sum]), rs.zcdp(1))
    values = np.full(200_000, 1_999_999)
    release = rs.measure(plan, {"x": values}, ledger=None, noise=rs.simulated(seed=1))
    assert release.values() == pytest.approx([200_000, 200_000 * 1_999_999], rel=1e-12)


def test_a_plan_whose_multipliers_do_not_fit_the_units_is_refused():
    plan = rs.plan(SUMS, rs.zcdp(1))
    other = rs.Schema({**{name: SCHEMA[name] for name in SCHEMA}, "hours": rs.Number(-4, 8, step=4)})
    same = rs.Schema({**{name: SCHEMA[name] for name in SCHEMA}, "hours": rs.Number(-6, 8, step=1)})
    measuring.refuse_unkept(plan)
    forged = replace(plan, workload=replace(plan.workload, schema=other))
    measuring.refuse_unkept(forged)  # 12 is a multiple of 3: what is measured costs no more
    forged = replace(plan, workload=replace(plan.workload, schema=same))
    with pytest.raises(rs.BudgetError, match="parts of the whole numbers"):
        measuring.refuse_unkept(forged)
