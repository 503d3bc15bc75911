"""Strategies that do not look at the workload: their matrices, their figures and their limits."""

import math

import numpy as np
import pytest

import residua as rs
from residua.methods.baselines import hierarchical_matrix, wavelet_matrix

COST = rs.privacy_cost(1)
SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 64]


def test_hierarchical_of_four_cells_is_the_binary_tree():
    np.testing.assert_array_equal(
        hierarchical_matrix(4),
        [
            [1, 1, 1, 1],
            [1, 1, 0, 0],
            [0, 0, 1, 1],
            [1, 0, 0, 0],
            [0, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 0, 1],
        ],
    )


def test_wavelet_of_four_cells_is_haar():
    np.testing.assert_array_equal(
        wavelet_matrix(4), [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    )


@pytest.mark.parametrize("cells", SIZES)
@pytest.mark.parametrize("matrix", [np.eye, hierarchical_matrix, wavelet_matrix])
def test_a_baseline_sees_every_cell(matrix, cells):
    rows = matrix(cells)
    assert np.linalg.matrix_rank(rows) == cells
    assert len({tuple(row) for row in rows}) == len(rows)  # no query is measured twice


@pytest.mark.parametrize("cells", SIZES)
def test_a_tree_has_all_cells_and_twice_as_many_nodes_less_one(cells):
    rows = hierarchical_matrix(cells)
    assert len(rows) == 2 * cells - 1
    assert sum(row.sum() == 1 for row in rows) == cells
    assert rows[0].sum() == cells


@pytest.mark.parametrize("branching", [2, 3, 10])
def test_every_node_is_the_sum_of_its_children(branching):
    rows = hierarchical_matrix(20, branching)
    for row in rows:
        if row.sum() > 1:
            inside = [other for other in rows if np.all(other <= row) and other.sum() < row.sum()]
            largest = [r for r in inside if not any(np.all(r <= o) and r.sum() < o.sum() for o in inside)]
            assert 2 <= len(largest) <= branching
            np.testing.assert_array_equal(np.sum(largest, axis=0), row)


@pytest.mark.parametrize("cells", [2, 8, 13])
def test_wavelet_rows_below_the_total_are_balanced_halves(cells):
    rows = wavelet_matrix(cells)
    assert len(rows) == cells
    for row in rows[1:]:
        assert set(np.unique(row)) <= {-1, 0, 1}
        assert abs(row.sum()) <= 1


@pytest.mark.parametrize("method", ["identity", "hierarchical", "wavelet"])
def test_a_baseline_costs_what_the_budget_allows(method):
    schema = rs.Schema.of_sizes([5, 3, 2])
    plan = rs.plan(rs.marginals(schema, ways=2), rs.zcdp("0.1"), method=method)
    assert plan.strategy.cost() == pytest.approx(0.2, rel=1e-12)
    assert len(plan.strategy.single()[1]) == 3
    assert plan.certificate.lower_bound > 0
    assert plan.certificate.gap > 0


def test_identity_answers_a_range_with_as_many_times_the_noise_as_it_has_cells():
    schema = rs.Schema.of_sizes([6])
    work = rs.table(schema, a0=rs.prefix)
    np.testing.assert_allclose(rs.plan(work, COST, method="identity").variances(work), np.arange(1, 7))


def test_wavelet_on_powers_of_two_costs_one_level_each():
    schema = rs.Schema.of_sizes([16])
    plan = rs.plan(rs.table(schema), COST, method="wavelet")
    assert plan.rmse == pytest.approx(1)  # no attribute is asked for, so only the total is measured
    plan = rs.plan(rs.table(schema, a0=rs.ranges), COST, method="wavelet")
    [variance] = plan.variances(rs.table(schema))
    assert variance == pytest.approx(math.log2(16) + 1)


@pytest.mark.parametrize("cells", [64, 256])
def test_on_many_ranges_trees_beat_cells_and_the_optimum_beats_trees(cells):
    work = rs.table(rs.Schema.of_sizes([cells]), a0=rs.ranges)
    rmse = {m: rs.plan(work, COST, method=m, gap=1e-2).rmse for m in ("dense", "wavelet", "identity")}
    assert rmse["dense"] < rmse["wavelet"] < rmse["identity"]


def test_a_baseline_measures_only_the_attributes_in_use():
    schema = rs.Schema.of_sizes([5, 100_000, 2])
    plan = rs.plan(rs.table(schema, ["a2", "a0"]), COST, method="hierarchical")
    assert [factor.attributes for factor in plan.strategy.single()[1]] == [(0,), (2,)]


@pytest.mark.parametrize("method", ["identity", "hierarchical", "wavelet"])
def test_an_attribute_of_too_many_cells_is_named(method):
    schema = rs.Schema(tract=rs.Integer(0, 9999))
    with pytest.raises(
        rs.Infeasible, match="attribute 'tract' has 10,000 cells; a baseline holds at most 8,192"
    ):
        rs.plan(rs.table(schema, ["tract"]), COST, method=method)
