"""Lower bounds: their order, their closed form against the explicit one, products, sets and size."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_work import random_work

import residua as rs
from residua.bounds import product_weights, quick_bound, svd_or_nothing
from residua.bounds.singular import EVERY_RANGE
from residua.linalg.matrices import join
from residua.solve.cells import bracket, solve_cells
from residua.workload.union import joint_rows

Array = NDArray[np.float64]
COST = rs.privacy_cost(1)


def explicit(work: rs.Workload) -> Array:
    """The weighted query matrix over all cells of the schema, by looking up each cell."""
    sizes = work.schema.sizes
    place = np.indices(sizes).reshape(len(sizes), -1)
    blocks = []
    for group in work.groups():
        rows = np.ones((1, place.shape[1]))
        weights = np.array([group.weight])
        for factor in group.factors:
            at = np.ravel_multi_index([place[a] for a in factor.attributes], factor.queries.sizes)
            rows = (rows[:, None] * factor.queries.matrix()[:, at]).reshape(-1, place.shape[1])
            own = factor.queries.weights
            weights = np.outer(weights, np.ones(factor.queries.count) if own is None else own).ravel()
        blocks.append(rows * np.sqrt(weights)[:, None])
    return np.concatenate(blocks)


def svd_of(matrix: Array) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum() ** 2 / matrix.shape[1])


SMALL = rs.Schema.of_sizes([4, 3, 2])
WORKLOADS = {
    "prefix": rs.table(rs.Schema.of_sizes([8]), a0=rs.prefix),
    "ranges and cells": rs.all_tables(SMALL, 1, rs.ranges) + rs.table(SMALL, ["a0", "a2"]),
    "affine": rs.all_tables(SMALL, 2, rs.affine) + 3 * rs.table(SMALL),
    "explicit": rs.linear(SMALL, ("a2", "a0"), np.arange(24).reshape(3, 8) % 5, [1, 2, 3]),
    "circular": rs.table(SMALL, a0=rs.circular, a1=rs.circular),
    "marginals": rs.marginals(SMALL, up_to=2),
}


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_the_singular_value_bound_is_that_of_the_explicit_matrix(work):
    assert rs.bounds.svd(work) == pytest.approx(svd_of(explicit(work)), rel=1e-9)


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_bounds_grow_towards_the_optimum(work):
    optimum = rs.plan(work, COST, method="dense", gap=1e-5)
    bounds = [rs.bounds.svd(work), rs.bounds.supreme_svd(work), rs.bounds.dual(work), optimum.total_variance]
    for lower, upper in pairwise(bounds):
        assert lower <= upper * (1 + 1e-5)
    assert bounds[2] >= bounds[3] * (1 - 3e-5)


@settings(max_examples=50)
@given(st.data())
def test_bounds_of_random_workloads_are_in_order_and_below_every_mechanism(data):
    sizes = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    schema = rs.Schema.of_sizes(sizes)
    families = [rs.identity, rs.prefix, rs.ranges, rs.total, rs.circular]
    work = None
    for _ in range(data.draw(st.integers(1, 3))):
        names = data.draw(st.permutations(schema.names))[: data.draw(st.integers(0, len(sizes)))]
        more = rs.table(
            schema,
            {name: data.draw(st.sampled_from(families)) for name in names},
            weight=data.draw(st.floats(0.1, 10)),
        )
        work = more if work is None else work + more
    svd, supreme, dual = rs.bounds.svd(work), rs.bounds.supreme_svd(work), rs.bounds.dual(work)
    assert svd == pytest.approx(svd_of(explicit(work)), rel=1e-9)
    assert svd <= supreme <= dual * (1 + 1e-5)
    for method in ("dense", "identity", "hierarchical", "wavelet"):
        assert dual <= rs.plan(work, COST, method=method).total_variance * (1 + 1e-12)


@pytest.mark.parametrize("sizes", [[2], [7], [2, 3], [4, 4, 4], [5, 2, 3, 2], [1, 3], [1]])
def test_the_closed_form_for_marginals_is_the_explicit_bound(sizes):
    schema = rs.Schema.of_sizes(sizes)
    for ways in range(len(sizes) + 1):
        work = rs.marginals(schema, up_to=ways)
        assert rs.bounds.svd(work) == pytest.approx(svd_of(explicit(work)), rel=1e-9)
        assert rs.bounds.svd(work) == rs.bounds.supreme_svd(work) == rs.bounds.dual(work)


def test_the_closed_form_holds_for_every_family_that_treats_cells_alike():
    schema = rs.Schema.of_sizes([3, 4, 2])
    work = (
        rs.table(schema, a0=rs.predicates, a2=rs.identity)
        + 0.3 * rs.table(schema, a1=rs.total)
        + 5 * rs.table(schema, a1=rs.predicates, a0=rs.total)
        + rs.marginals(schema, ways=(1, 2, 2))
        + rs.table(schema, ["a2", "a0"])
    )
    assert rs.bounds.svd(work) == pytest.approx(svd_of(explicit(work)), rel=1e-9)
    optimum = rs.plan(work, COST, method="dense", gap=1e-6)
    assert rs.bounds.svd(work) == pytest.approx(optimum.ideal.total_variance, rel=2e-6)


def test_the_bound_of_marginals_is_reached():
    schema = rs.Schema.of_sizes([3, 2, 4])
    work = rs.marginals(schema, up_to=2)
    assert rs.plan(work, COST, method="dense").total_variance == pytest.approx(rs.bounds.svd(work), rel=1e-4)


def test_bounds_of_a_product_multiply():
    schema = rs.Schema.of_sizes([6, 5, 4])
    product = rs.table(schema, {"a0": rs.prefix, "a1": rs.ranges, "a2": rs.identity})
    factors = [rs.table(schema, a0=rs.prefix), rs.table(schema, a1=rs.ranges), rs.table(schema, ["a2"])]
    for bound in (rs.bounds.svd, rs.bounds.supreme_svd, rs.bounds.dual):
        assert bound(product) == pytest.approx(math.prod(map(bound, factors)), rel=1e-4)
    assert rs.bounds.svd(product) == pytest.approx(svd_of(explicit(product)), rel=1e-9)


def test_bounds_of_a_product_need_no_joint_domain():
    schema = rs.Schema.of_sizes([100] * 6)
    work = rs.table(schema, dict.fromkeys(schema.names, rs.prefix))
    one = rs.bounds.svd(rs.table(schema, a0=rs.prefix))
    assert rs.bounds.svd(work) == pytest.approx(one**6, rel=1e-9)


@pytest.mark.parametrize("name", ["svd", "supreme_svd", "dual"])
def test_weights_scale_a_bound_and_duplicates_add(name):
    bound = getattr(rs.bounds, name)
    for work in (WORKLOADS["ranges and cells"], WORKLOADS["prefix"], WORKLOADS["marginals"]):
        assert bound(7 * work) == pytest.approx(7 * bound(work), rel=2e-5)
        assert bound(work + work) == pytest.approx(2 * bound(work), rel=2e-5)


def test_attributes_that_nobody_asks_about_change_nothing():
    narrow, wide = rs.Schema.of_sizes([4, 3]), rs.Schema.of_sizes([4, 3, 50, 2])
    for build in (
        lambda schema: rs.table(schema, {"a0": rs.prefix, "a1": rs.ranges}) + rs.table(schema, ["a1"]),
        lambda schema: rs.marginals(schema, 1, attributes=["a0", "a1"]),
    ):
        assert rs.bounds.svd(build(narrow)) == pytest.approx(rs.bounds.svd(build(wide)), rel=1e-12)


def test_a_set_of_cells_bounds_like_the_workload_on_those_cells():
    matrix = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 9], [1, 0, 1, 0, 0]])
    work = rs.linear(rs.Schema.of_sizes([5]), ["a0"], matrix)
    best = rs.bounds.supreme_svd(work, sets=[[0, 4], [1, 2, 3]])
    every = [[i for i in range(5) if mask >> i & 1] for mask in range(1, 32)]
    exhaustive = max(svd_of(matrix[:, chosen]) for chosen in every)
    assert rs.bounds.supreme_svd(work) <= best <= exhaustive * (1 + 1e-12)
    assert best >= svd_of(matrix[:, [0, 4]]) * (1 - 1e-9)
    assert rs.bounds.supreme_svd(work, sets=every) == pytest.approx(exhaustive, rel=1e-9)
    assert rs.bounds.supreme_svd(work, sets=every) <= rs.bounds.dual(work) * (1 + 1e-5)


def test_sets_cannot_improve_marginals():
    work = rs.marginals(SMALL, up_to=2)
    assert rs.bounds.supreme_svd(work, sets=[range(12), [0]]) == rs.bounds.svd(work)


@pytest.mark.parametrize("chosen", [[], [24], [-1], [0, 99]])
def test_a_set_of_cells_that_are_not_there_is_refused(chosen):
    with pytest.raises(rs.WorkloadError, match=r"name some of the cells 0\.\.23"):
        rs.bounds.supreme_svd(WORKLOADS["affine"], sets=[[0], chosen])


def test_ranges_of_many_cells_are_searched_from_coarse_to_fine():
    size = EVERY_RANGE + 16
    matrix = np.zeros((3, size))
    matrix[0, :] = 1.0
    matrix[1, 33:37] = [20, -20, 20, 20]
    matrix[2, 35:38] = [15, 15, -15]
    work = rs.linear(rs.Schema.of_sizes([size]), ["a0"], matrix)
    ranges = [svd_of(matrix[:, a:b]) for a in range(size) for b in range(a + 1, size + 1)]
    found = rs.bounds.supreme_svd(work)
    assert svd_of(matrix) < found <= max(ranges) * (1 + 1e-9)
    assert found >= 0.9 * max(ranges)


def test_a_hundred_attributes_of_ten_cells_need_no_domain():
    schema = rs.Schema.of_sizes([10] * 100)
    work = rs.marginals(schema, up_to=3)
    assert work.count > 160_000_000
    # The residual on s attributes (9^s dimensions) is in comb(100 - s, r - s) marginals on r attributes,
    # each with the eigenvalue 10^(100 - r); all are divided by the 10^100 cells.
    total = 0.0
    for s in range(4):
        square = sum(math.comb(100 - s, r - s) * 0.1**r for r in range(s, 4))
        total += math.comb(100, s) * 9**s * math.sqrt(square)
    assert rs.bounds.svd(work) == pytest.approx(total**2, rel=1e-9)
    assert rs.bounds.dual(work) == rs.bounds.svd(work)


def test_a_domain_that_is_too_large_is_refused_and_a_baseline_has_the_bound_of_one_table():
    schema = rs.Schema.of_sizes([20, 20, 20])
    work = rs.all_tables(schema, 2, rs.prefix)
    for bound in (rs.bounds.svd, rs.bounds.supreme_svd, rs.bounds.dual):
        with pytest.raises(rs.Infeasible, match="8,000 cells are more than the 4,096"):
            bound(work)
    wide = rs.table(rs.Schema.of_sizes([5000]), a0=rs.prefix)
    with pytest.raises(rs.Infeasible, match="prefix on 5000 cells"):
        rs.bounds.svd(wide)
    assert svd_or_nothing(work) == 0.0
    plan = rs.plan(work, COST, method="identity")
    alone = [rs.bounds.dual(rs.Workload(schema, (table,))) for table in work.groups()]
    assert max(alone) < plan.certificate.lower_bound < rs.bounds.product_dual(work)
    assert math.isfinite(plan.certificate.gap)


def test_a_bound_is_on_a_workload():
    for bound in (rs.bounds.svd, rs.bounds.supreme_svd, rs.bounds.dual):
        with pytest.raises(rs.WorkloadError, match=r"such as rs.marginals\(schema, ways=2\), not Schema"):
            bound(SMALL)


@pytest.mark.parametrize("seed", range(12))
def test_a_bound_that_takes_seconds_is_never_above_the_optimum(seed: int) -> None:
    work = random_work(np.random.default_rng(seed), 2, 64, levels=True).without_totals()
    best = rs.plan(work, COST, method="dense", gap=1e-6).ideal.total_variance
    assert 0 < quick_bound(work) <= best * (1 + 1e-6)
    whole = joint_rows(work).shape[1]
    with pytest.MonkeyPatch.context() as patch:  # as where all cells do not fit one matrix
        patch.setattr("residua.bounds.quick.BOUND_CELLS", whole - 1)
        assert quick_bound(work) <= best * (1 + 1e-6)


def test_product_weights_are_best_for_a_product_and_near_it_for_others() -> None:
    schema = rs.Schema.of_sizes([12, 7])
    product = rs.table(schema, a0=rs.prefix, a1=rs.ranges)
    alone = [solve_cells(queries.root(), 1e-3).cell_weights for queries in product.families]
    np.testing.assert_allclose(product_weights(product), join(own[None] for own in alone)[0], rtol=0.2)
    assert bracket(joint_rows(product), product_weights(product)).lower > 0.998 * rs.bounds.dual(product)
    others = product + 5 * rs.table(schema, ["a0", "a1"]) + rs.table(schema, {("a0", "a1"): rs.affine})
    assert bracket(joint_rows(others), product_weights(others)).lower > 0.99 * rs.bounds.dual(others)


def test_plain_cells_of_any_number_have_an_exact_bound() -> None:
    wide = rs.table(rs.Schema.of_sizes([5000, 30]), a0=rs.identity, a1=rs.prefix)
    narrow = rs.table(rs.Schema.of_sizes([50, 30]), a0=rs.identity, a1=rs.prefix)
    assert quick_bound(wide) == pytest.approx(100 * rs.bounds.dual(narrow), rel=1e-4)
    assert rs.plan(narrow, COST, method="hdmm-kron").certificate.gap < 0.1
    assert rs.plan(narrow, COST).certificate.gap < 1e-4
