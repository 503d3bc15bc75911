"""Plans where a record is replaced: the dual over pairs of cells, and a number of records that is public."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs
from residua.solve.pairs import solve_pairs

REPLACED = rs.Unit(neighbours="replace_one")


@pytest.mark.parametrize("cells", [2, 3, 17])
def test_plain_cells_have_twice_the_variance_of_all_but_one(cells):
    found = solve_pairs(np.eye(cells), 1e-6)
    assert found.lower == pytest.approx(2 * (cells - 1))
    assert found.upper == pytest.approx(2 * (cells - 1))


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_bracket_of_random_queries_is_true_and_its_strategy_reaches_it(cells, count, seed):
    chance = np.random.default_rng(seed)
    rows = chance.normal(size=(count, cells)) * chance.lognormal(size=(1, cells))
    gram = rows.T @ rows
    found = solve_pairs(gram, 1e-4)
    products = found.strategy.T @ found.strategy
    own = np.diag(products)
    assert (own[:, None] + own - 2 * products).max() == pytest.approx(1)
    asked = rows[:, :-1] - rows[:, -1:]  # of all but the last cell, once the number of records is known
    answers = np.linalg.lstsq(found.strategy[:, :-1].T, asked.T)[0]
    assert answers.T @ found.strategy[:, :-1] == pytest.approx(asked, abs=1e-6 * np.abs(asked).max())
    assert np.sum(answers**2) == pytest.approx(found.upper, rel=1e-5)
    assert found.lower <= found.upper * (1 + 1e-9)
    assert found.gap < 0.01


@pytest.mark.parametrize("method", ["auto", "dense"])
def test_prefix_sums_are_optimal_and_far_better_than_for_adding_a_record(method):
    work = rs.table(rs.Schema(age=rs.Integer(0, 31)), age=rs.prefix)
    plan = rs.plan(work, rs.privacy_cost(1), unit=REPLACED, method=method)
    assert plan.certificate.gap < 1e-3
    assert plan.certificate.scope == "all mechanisms"
    added = rs.plan(work, rs.privacy_cost(1), method="dense")
    matrix, noise = added.strategy.single()[1][0].shape.matrix, added.strategy.single()[2]
    products = matrix.T @ matrix / noise
    own = np.diag(products)
    cost = float((own[:, None] + own - 2 * products).max())
    assert plan.total_variance < 0.7 * added.total_variance * cost


def test_the_number_of_records_is_as_good_as_known():
    work = rs.marginals(rs.Schema.of_sizes([4] * 6), ways=2) + rs.table(rs.Schema.of_sizes([4] * 6))
    plan = rs.plan(work, rs.privacy_cost(1), unit=REPLACED)
    total = rs.table(work.schema)
    assert plan.variances(total).item() < 0.05 * plan.variances(rs.table(work.schema, ["a0"])).min()


@pytest.mark.parametrize(
    "unit", [REPLACED, rs.Unit(neighbours="replace_one", id="who", max_records=2)], ids=["dropped", "persons"]
)
def test_a_number_that_is_not_public_is_measured_like_others(unit):
    outside = "drop" if unit.id is None else "error"
    schema = rs.Schema(age=rs.Integer(0, 9, outside=outside), sex=rs.Integer(0, 1))
    work = rs.table(schema, age=rs.identity, sex=rs.identity)
    plan = rs.plan(work, rs.zcdp(1), unit=unit)
    rows = {len(shape.matrix) for shape in plan.strategy.shapes}
    assert max(rows) <= 20
    assert plan.variances(rs.table(schema)).item() > 1


def test_releases_have_the_variance_that_is_stated():
    schema = rs.Schema(age=rs.Integer(0, 5))
    work = rs.table(schema, age=rs.prefix)
    plan = rs.plan(work, rs.zcdp(1), unit=REPLACED)
    people = {"age": [0, 1, 1, 2, 5, 5, 5]}
    draws = [
        rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=seed)).values(work)
        for seed in range(400)
    ]
    means, variances = np.mean(draws, axis=0), np.var(draws, axis=0)
    stated = plan.variances(work)
    assert np.abs(means - [1, 3, 4, 4, 4, 7]).max() < 5 * math.sqrt(stated.max() / 400)
    assert variances[:-1] == pytest.approx(stated[:-1], rel=0.35)
