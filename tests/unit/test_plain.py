"""Attributes that are asked for plain counts only, measured in blocks beside the others (S-013)."""

import math
from fractions import Fraction

import numpy as np
import pytest

import residua as rs
from residua.answering.periods import Periods
from residua.kernel.cost import added_cost
from residua.methods import plain
from residua.methods.dense import dense, dense_work
from residua.methods.plain import Plain
from residua.workload import Table

SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    age=rs.Integer(0, 6),
    region=rs.Categorical(*"abcd"),
    hours=rs.Integer(0, 3),
    one=rs.Categorical("only"),
)

WORKS = {
    "one uneven attribute": rs.marginals(SCHEMA, up_to=2) + rs.table(SCHEMA, age=rs.prefix),
    "two uneven attributes": rs.table(SCHEMA, age=rs.prefix, hours=rs.ranges, sex=rs.identity)
    + 3.0 * rs.table(SCHEMA, ["region", "sex"])
    + rs.table(SCHEMA, hours=rs.prefix, region=rs.identity),
    "plain cells everywhere": rs.table(SCHEMA, age=rs.prefix, sex=rs.identity)
    + 2.0 * rs.table(SCHEMA, ["age", "sex", "region"]),
    "a condition that leaves cells out": rs.sql(
        SCHEMA, "SELECT region, COUNT(*) FROM t WHERE age < 3 AND hours > 1 GROUP BY region"
    )
    + rs.sql(SCHEMA, "SELECT sex, COUNT(*) FROM t WHERE age = 1 GROUP BY sex"),
    "every set of cells": rs.table(SCHEMA, age=rs.prefix, region=rs.predicates) + rs.table(SCHEMA, ["sex"]),
    "an attribute of one cell": rs.table(SCHEMA, age=rs.prefix, one=rs.identity)
    + rs.table(SCHEMA, ["one", "sex"]),
}


@pytest.fixture(autouse=True)
def few_cells_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PLAIN_CELLS", 0)


@pytest.mark.parametrize("name", WORKS)
def test_the_optimum_is_that_over_all_joint_cells(name: str) -> None:
    work = WORKS[name]
    apart, joint = dense(work, 1e-6), dense(work, 1e-6, apart=False)
    assert Plain.of(work) is not None
    assert apart.total(work) == pytest.approx(joint.total(work), rel=3e-6)
    assert apart.lower_bound == pytest.approx(joint.lower_bound, rel=3e-6)
    assert apart.lower_bound <= joint.total(work)


@pytest.mark.parametrize("name", WORKS)
def test_a_plan_spends_its_budget_and_states_the_errors_of_dense_least_squares(name: str) -> None:
    work = WORKS[name]
    plan = rs.plan(work, rs.privacy_cost(1))
    assert Fraction(999, 1000) < added_cost(plan.batches) <= 1
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap < 1e-3
    rows, noise = measured_over_cells(plan)
    assert 0.999 < np.max(np.sum(rows**2 / noise[:, None], axis=0)) < 1 + 1e-6
    inverse = np.linalg.pinv(rows / np.sqrt(noise)[:, None], rcond=1e-9)
    for table in work.groups():
        expected = np.sum((query_rows(table) @ inverse) ** 2, axis=1)
        np.testing.assert_allclose(plan.strategy.variances(table), expected, rtol=1e-7)


def test_blocks_are_answered_as_pieces_that_add_up() -> None:
    plan = rs.plan(WORKS["two uneven attributes"], rs.privacy_cost(1))
    assert isinstance(plan.strategy.answerer, Periods)


def test_answers_are_those_of_dense_least_squares() -> None:
    rng = np.random.default_rng(3)
    for work in WORKS.values():
        plan = rs.plan(work, rs.privacy_cost(1))
        rows, noise = measured_over_cells(plan)
        counts = rng.integers(0, 50, math.prod(SCHEMA.sizes)).astype(np.float64)
        values = rows @ counts + rng.normal(size=len(rows)) * np.sqrt(noise)
        cells = np.linalg.pinv(rows / np.sqrt(noise)[:, None], rcond=1e-9) @ (values / np.sqrt(noise))
        estimator = plan.strategy.answerer.estimator(plan.strategy.estimates(by_run(plan, values)))
        for table in work.groups():
            np.testing.assert_allclose(
                estimator.answers(table), query_rows(table) @ cells, rtol=1e-7, atol=1e-7
            )


def test_work_does_not_grow_with_plain_cells() -> None:
    def asked(regions: int) -> rs.Workload:
        region = rs.Categorical(*map(str, range(regions)))
        schema = rs.Schema(age=rs.Integer(0, 99), region=region, sex=rs.Categorical("F", "M"))
        by_region = rs.table(schema, age=rs.prefix, region=rs.identity)
        return by_region + rs.table(schema, age=rs.ranges, sex=rs.identity)

    assert dense_work(asked(20)) == dense_work(asked(500)) < dense_work(asked(20), apart=False) / 20


def test_replacing_a_record_is_planned_as_one_block() -> None:
    unit = rs.Unit(neighbours="replace_one")
    plan = rs.plan(WORKS["two uneven attributes"], rs.privacy_cost(1), unit=unit)
    assert plan.strategy.single() is not None


def query_rows(table: Table) -> np.ndarray:
    """Queries of a table over all joint cells."""
    grid = np.indices(SCHEMA.sizes).reshape(len(SCHEMA), -1)
    rows = np.ones((1, grid.shape[1]))
    for factor in table.factors:
        places = np.ravel_multi_index([grid[at] for at in factor.attributes], factor.queries.sizes)
        own = factor.queries.matrix()[:, places]
        rows = (rows[:, None, :] * own[None]).reshape(-1, grid.shape[1])
    return rows


def measured_over_cells(plan: rs.Plan) -> tuple[np.ndarray, np.ndarray]:
    """What a plan measures over all joint cells, and the variance of the noise on it."""
    grid = np.indices(SCHEMA.sizes).reshape(len(SCHEMA), -1)
    rows, noise = [], []
    strategy = plan.strategy
    for number, blocks in strategy.runs():
        layer = strategy.layers[number]
        for block in blocks.tolist():
            own = np.ones((1, grid.shape[1]))
            for places, at in zip(layer.layout, layer.shapes[block].tolist(), strict=True):
                shape = strategy.shapes[at]
                attributes = [int(layer.subsets[block, place]) for place in places]
                cells = np.ravel_multi_index([grid[each] for each in attributes], shape.sizes)
                own = (own[:, None, :] * shape.matrix[:, cells][None]).reshape(-1, grid.shape[1])
            rows.append(own)
            noise.append(np.full(len(own), float(layer.noise[block])))
    return np.concatenate(rows), np.concatenate(noise)


def by_run(plan: rs.Plan, values: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Numbers in the order of `measured_over_cells`, by run of blocks."""
    found, start = [], 0
    strategy = plan.strategy
    for number, blocks in strategy.runs():
        layer = strategy.layers[number]
        each = math.prod(len(strategy.shapes[at].matrix) for at in layer.shapes[blocks[0]].tolist())
        stop = start + each * len(blocks)
        found.append((number, blocks, values[start:stop].reshape(len(blocks), each)))
        start = stop
    return found


@pytest.mark.parametrize("name", WORKS)
def test_residuals_have_the_covariance_of_estimated_cells_centred(name: str) -> None:
    plan = rs.plan(WORKS[name], rs.privacy_cost(1))
    rows, noise = measured_over_cells(plan)
    inverse = np.linalg.pinv(rows / np.sqrt(noise)[:, None], rcond=1e-9)
    covariance = (inverse @ inverse.T).reshape(*SCHEMA.sizes, *SCHEMA.sizes)
    for subset in [(1,), (0, 1), (1, 3), (0, 1, 2)]:
        factored = plan.strategy.answerer.factored(subset)
        if factored is None or not factored.scale:
            continue
        gone = tuple(at for at in range(len(SCHEMA)) if at not in subset)
        marginal = covariance.sum(axis=(*gone, *(len(SCHEMA) + at for at in gone)))
        expected = centred_both(marginal, len(subset))
        found = np.full((1,) * (2 * len(subset)), factored.scale)
        for factor in factored.factors:
            places = [subset.index(at) for at in factor.attributes]
            axes = [*places, *(len(subset) + place for place in places)]
            square = factor.square().reshape(*factor.sizes, *factor.sizes).transpose(np.argsort(axes))
            shape = [1] * found.ndim
            for axis, size in zip(sorted(axes), square.shape, strict=True):
                shape[axis] = size
            found = found * square.reshape(shape)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def centred_both(square: np.ndarray, ways: int) -> np.ndarray:
    """A covariance of cells, centred evenly along all axes."""
    for axis in range(2 * ways):
        square = square - square.mean(axis=axis, keepdims=True)
    return square
