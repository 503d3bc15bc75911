"""Answers from one block: costs, answers by least squares, ties between attributes, the span, files."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.answering.blocks import Placed, Shape
from residua.answering.kronecker import Kronecker
from residua.privacy.unit import Person
from residua.strategy.build import of_blocks
from residua.strategy.manifest import strategy_from_manifest
from residua.strategy.rounding import record_cost
from residua.strategy.strategy import Strategy
from residua.strategy.words import described
from residua.workload import Table

REPLACED = Person(rs.Unit(neighbours="replace_one"))

Array = NDArray[np.float64]
RANDOM = np.random.default_rng(20240)
SCHEMA = rs.Schema.of_sizes([3, 2, 4])


def group(work: rs.Workload) -> Table:
    [only] = work.groups()
    return only


def placed(attributes: tuple[int, ...], sizes: tuple[int, ...], matrix: Array) -> Placed:
    return Placed(attributes, Shape.of(sizes, matrix))


def product(factors: tuple[Placed, ...], noise: float, sizes: tuple[int, ...] = SCHEMA.sizes) -> Strategy:
    """The strategy of one block."""
    return of_blocks(sizes, [(factors, noise)])


def factor(*attributes: int, rows: int | None = None) -> Placed:
    """A random matrix on some attributes of the schema, square unless told."""
    sizes = tuple(SCHEMA.sizes[axis] for axis in attributes)
    cells = math.prod(sizes)
    return placed(attributes, sizes, RANDOM.normal(size=(cells if rows is None else rows, cells)))


def lookup(matrix: Array, attributes: tuple[int, ...]) -> Array:
    place = np.indices(SCHEMA.sizes).reshape(3, -1)
    sizes = [SCHEMA.sizes[axis] for axis in attributes]
    return matrix[:, np.ravel_multi_index([place[axis] for axis in attributes], sizes)]


def rows_of(asked: Table) -> Array:
    rows = np.ones((1, 24))
    for part in asked.factors:
        rows = (rows[:, None] * lookup(part.queries.matrix(), part.attributes)).reshape(-1, 24)
    return rows


def privacy(strategy: Strategy) -> Array:
    ((_, factors, noise),) = strategy.blocks().each()
    rows = np.ones((1, 24))
    for part in factors:
        rows = (rows[:, None] * lookup(part.matrix, part.attributes)).reshape(-1, 24)
    return rows.T @ rows / noise


STRATEGIES = {
    "one joint matrix": product((factor(0, 1, 2),), 2.0),
    "one matrix each": product((factor(0), factor(1), factor(2)), 0.5),
    "ends together": product((factor(0, 2), factor(1)), 3.0),
    "ends together, reversed": product((factor(1), factor(2, 0)), 3.0),
    "more rows than cells": product((factor(2, rows=9), factor(1, 0, rows=11)), 1.0),
}

TABLES = {
    "total": rs.table(SCHEMA),
    "one": rs.table(SCHEMA, a2=rs.prefix),
    "ends": rs.table(SCHEMA, {"a2": rs.prefix, "a0": rs.identity}),
    "all, reversed": rs.table(SCHEMA, {"a2": rs.ranges, "a1": rs.identity, "a0": rs.prefix}),
    "pair": rs.table(SCHEMA, {("a0", "a2"): rs.affine}),
    "pair, reversed": rs.table(SCHEMA, {("a2", "a0"): rs.abs_diff, "a1": rs.predicates}),
    "explicit": rs.linear(SCHEMA, ("a1", "a2"), RANDOM.normal(size=(3, 8)), [1.0, 2.0, 5.0]),
    "with a total": rs.table(SCHEMA, {"a1": rs.total, "a0": rs.identity}),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_one_block_is_answered_factor_by_factor(strategy):
    assert type(strategy.answerer) is Kronecker


@pytest.mark.parametrize("work", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_figures_are_those_of_the_dense_pseudo_inverse(strategy, work):
    asked = group(work)
    rows = rows_of(asked)
    covariance = rows @ np.linalg.pinv(privacy(strategy), rcond=1e-12, hermitian=True) @ rows.T
    variances = np.diagonal(covariance)
    scale = variances.max()
    np.testing.assert_allclose(strategy.variances(asked), variances, rtol=1e-6, atol=1e-8 * scale)
    np.testing.assert_allclose(strategy.covariance(asked, asked), covariance, atol=1e-6 * scale)
    assert strategy.largest(asked) == pytest.approx(scale, rel=1e-6)
    assert strategy.total(asked, weighted=False) == pytest.approx(variances.sum(), rel=1e-6)
    own = asked.factors[0].queries.weights if asked.factors else None
    weights = np.ones(len(variances)) if own is None else own
    assert strategy.total(asked, weighted=True) == pytest.approx(weights @ variances, rel=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_covariances_of_two_tables_are_those_of_the_dense_pseudo_inverse(strategy):
    inverse = np.linalg.pinv(privacy(strategy), rcond=1e-12, hermitian=True)
    for left in TABLES.values():
        for right in TABLES.values():
            expected = rows_of(group(left)) @ inverse @ rows_of(group(right)).T
            found = strategy.covariance(group(left), group(right))
            np.testing.assert_allclose(found, expected, atol=1e-6 * max(np.abs(expected).max(), 1e-3))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_costs_are_those_of_the_dense_privacy_matrix(strategy):
    X = privacy(strategy)
    own = np.diagonal(X)
    assert strategy.cost() == pytest.approx(own.max())
    assert record_cost(strategy, REPLACED) == pytest.approx((own[:, None] + own - 2 * X).max(), rel=1e-9)
    assert record_cost(strategy, REPLACED) <= 4 * strategy.cost() * (1 + 1e-12)


def test_the_cost_of_replacing_is_never_rounded_down():
    rng = np.random.default_rng(5)
    for size in (2, 3, 30):
        for _ in range(50):
            matrix = rng.integers(-2, 3, size=(4, size)) + rng.integers(-(2**20), 2**20, size=(4, 1))
            worst = max(int(np.sum((a - b) ** 2)) for a in matrix.T for b in matrix.T)
            factors = (placed((0,), (size,), matrix.astype(float)), factor(1))
            for chosen in (factors[:1], factors):
                strategy = product(chosen, 1.0, (size, 2))
                scale = 1 if len(chosen) == 1 else float(factor_norm(chosen[1]))
                assert record_cost(strategy, REPLACED) >= worst * scale
                assert record_cost(strategy, REPLACED) <= 4 * strategy.cost() * (1 + 1e-9)


def factor_norm(one: Placed) -> float:
    """Smallest squared length of a column: replacing along the other factor alone costs at least this."""
    return float(np.min(np.sum(one.matrix**2, axis=0)))


def test_only_whole_numbers_have_an_exact_cost():
    with pytest.raises(ValueError, match="only an integer strategy"):
        STRATEGIES["ends together"].exact_cost()


def test_scaling_multiplies_costs_and_divides_variances():
    strategy, asked = STRATEGIES["ends together"], group(TABLES["ends"])
    scaled = strategy.scaled(4.0)
    assert scaled.cost() == pytest.approx(4 * strategy.cost())
    assert record_cost(scaled, REPLACED) == pytest.approx(4 * record_cost(strategy, REPLACED))
    np.testing.assert_allclose(4 * scaled.variances(asked), strategy.variances(asked))


def test_a_strategy_without_factors_measures_the_total():
    nothing = product((), 0.25)
    assert nothing.cost() == 4
    assert record_cost(nothing, REPLACED) == pytest.approx(0, abs=1e-13)
    assert nothing.variances(group(rs.table(SCHEMA))) == pytest.approx([0.25])
    total = group(rs.table(SCHEMA))
    np.testing.assert_array_equal(nothing.covariance(total, total), [[0.25]])
    assert list(described(nothing)) == ["the number of records: 100.0% of the privacy cost"]
    with pytest.raises(rs.NotInSpan, match="table 'a1'"):
        nothing.variances(group(rs.table(SCHEMA, ["a1"])))


def test_many_joint_cells_get_a_bound_on_the_cost_of_replacement():
    """Columns of cells are at right angles, so it is twice that of adding; those of signs are opposite."""
    for matrix, worst in ((np.eye(30), 2.0), (np.ones((1, 30)) - 2 * np.eye(30)[:1], 4.0)):
        strategy = product(tuple(placed((axis,), (30,), matrix) for axis in range(3)), 1.0, (30, 30, 30))
        assert strategy.cost() == 1
        assert worst <= record_cost(strategy, REPLACED) <= worst * (1 + 1e-12)


def test_what_is_measured_is_told_with_its_size():
    assert list(described(STRATEGIES["ends together"])) == [
        "12 queries on 12 cells of 2 attributes",
        "2 queries on 2 cells of 1 attribute",
    ]


# The span


def test_a_factor_of_low_rank_answers_its_combinations_and_refuses_the_rest():
    sums = placed((2,), (4,), np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]))
    strategy = product((factor(0), sums), 1.0)
    halves = rs.table(SCHEMA, {"a0": rs.identity, "a2": rs.buckets(2)})
    rows = rows_of(group(halves))
    expected = np.diagonal(rows @ np.linalg.pinv(privacy(strategy), rcond=1e-11, hermitian=True) @ rows.T)
    np.testing.assert_allclose(strategy.variances(group(halves)), expected, rtol=1e-6)
    with pytest.raises(rs.NotInSpan, match="table 'thirds': query 0 of 'buckets' is not a combination"):
        strategy.variances(group(rs.table(SCHEMA, a2=rs.buckets(1), name="thirds")))
    with pytest.raises(rs.NotInSpan, match=r"query .* of 'affine'"):
        strategy.total(group(rs.table(SCHEMA, {("a0", "a2"): rs.affine})), weighted=False)


def test_an_index_of_a_query_counts_over_all_families_that_are_tied():
    joint = placed((0, 1), (3, 2), np.eye(6)[:5])
    with pytest.raises(rs.NotInSpan, match="query 5 of 'identity x identity'"):
        product((joint,), 1.0).variances(group(rs.table(SCHEMA, ["a0", "a1"])))


def test_a_factor_that_sees_no_total_answers_no_table_without_it():
    differences = placed((1,), (2,), np.array([[1.0, -1.0]]))
    strategy = product((factor(0), differences), 1.0)
    with pytest.raises(rs.NotInSpan, match="table 'a0' needs a total"):
        strategy.variances(group(rs.table(SCHEMA, ["a0"])))
    assert len(strategy.variances(group(rs.linear(SCHEMA, ["a1"], [[2, -2]], name="gap") * 1.0))) == 1


def test_rounding_is_not_taken_for_a_query_outside_the_span():
    rng = np.random.default_rng(3)
    schema = rs.Schema.of_sizes([60])
    for _ in range(20):
        basis = rng.normal(size=(30, 60)) * 10.0 ** rng.uniform(-3, 3, size=(30, 1))
        strategy = product((placed((0,), (60,), basis),), 1.0, (60,))
        queries = rng.normal(size=(40, 30)) @ basis
        assert np.all(strategy.variances(group(rs.linear(schema, ["a0"], queries))) > 0)


def test_a_row_of_zeros_is_answered_with_certainty():
    strategy = product((placed((1,), (2,), np.array([[1.0, -1.0]])),), 1.0)
    found = strategy.variances(group(rs.linear(SCHEMA, ["a1"], [[0, 0], [3, -3]])))
    np.testing.assert_allclose(found, [0, 9], atol=1e-12)


# Files


def test_a_manifest_brings_back_every_figure():
    strategy = STRATEGIES["ends together, reversed"]
    arrays: dict[str, NDArray[np.float64]] = {}
    back = strategy_from_manifest(strategy.to_manifest(arrays), arrays)
    for work in TABLES.values():
        np.testing.assert_array_equal(back.variances(group(work)), strategy.variances(group(work)))
    assert back.cost() == strategy.cost()


def test_a_matrix_that_does_not_fit_its_cells_is_refused():
    with pytest.raises(ValueError, match=r"shape \(2, 5\) does not fit cells of sizes \(2, 3\)"):
        Shape((2, 3), np.ones((2, 5)), 2)
