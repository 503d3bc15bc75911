"""Optimised centring (C-001 to C-004)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua.decompose import gather
from residua.methods.blocks import querysmasher
from residua.methods.dense import dense
from residua.methods.smasher import roles_in
from residua.methods.splits import sum as block_sum
from residua.methods.splits.sum import BlockSum
from residua.solve import slopes as inner_slopes
from residua.strategy.build import integer_kernel
from residua.workload import Explicit, Factor, Table

COST = rs.privacy_cost(1)


def plans(work: rs.Workload, *methods: str, gap: float = 1e-5) -> list[rs.Plan]:
    return [rs.plan(work, COST, method=method, gap=gap) for method in methods]


@pytest.mark.parametrize("family", [rs.prefix, rs.ranges, rs.width(4)], ids=str)
def test_on_one_attribute_optimised_centring_is_the_optimum_of_all_mechanisms(
    family: rs.workload.Family,
) -> None:
    work = rs.all_tables(rs.Schema.of_sizes([10]), ways=1, family=family)
    smashed, best = plans(work, "smasher", "dense")
    assert smashed.ideal.rmse == pytest.approx(best.ideal.rmse, rel=1e-3)


@pytest.mark.parametrize(
    ("attributes", "expected"), [(1, 1.5561), (2, 2.4491), (40, 32.687)], ids=["one", "two", "forty"]
)
def test_one_and_two_way_prefixes_reach_the_known_figures(attributes: int, expected: float) -> None:
    ways = (1, 2) if attributes > 1 else (1,)
    work = rs.all_tables(rs.Schema.of_sizes([10] * attributes), ways=ways, family=rs.prefix)
    (plan,) = plans(work, "smasher")
    assert plan.ideal.rmse == pytest.approx(expected, rel=5e-5)


@pytest.mark.parametrize(
    "sizes", [(6, 5, 4), (9, 7), (3, 3, 3, 3)], ids=lambda sizes: " x ".join(map(str, sizes))
)
@pytest.mark.parametrize("family", [rs.prefix, rs.ranges], ids=str)
def test_small_domains_come_within_a_fraction_of_a_percent_of_the_optimum(
    sizes: tuple[int, ...], family: rs.workload.Family
) -> None:
    work = rs.all_tables(rs.Schema.of_sizes(list(sizes)), ways=(1, 2), family=family)
    smashed, uniform, best = plans(work, "smasher", "querysmasher", "dense")
    assert best.ideal.rmse * (1 - 1e-4) <= smashed.ideal.rmse <= 1.006 * best.ideal.rmse
    assert smashed.ideal.rmse < uniform.ideal.rmse


def test_marginals_keep_uniform_weights() -> None:
    smashed, uniform = plans(
        rs.marginals(rs.Schema.of_sizes([4, 3, 5]), up_to=2), "smasher", "residualplanner"
    )
    assert smashed.rmse == pytest.approx(uniform.rmse, rel=1e-9)
    assert smashed.certificate.scope == "all mechanisms"


def test_attributes_used_differently_have_weights_of_their_own() -> None:
    schema = rs.Schema.of_sizes([6, 6, 6])
    work = rs.all_tables(schema, ways=1, family=rs.prefix)
    work += rs.table(schema, {"a0": rs.prefix, "a1": rs.prefix})
    assert roles_in(work, by_weight=True) == [0, 0, 1]


def test_attributes_weighted_differently_share_weights_only_where_asked() -> None:
    schema = rs.Schema.of_sizes([6, 6])
    work = 2.0 * rs.table(schema, {"a0": rs.prefix}) + rs.table(schema, {"a1": rs.prefix})
    assert roles_in(work, by_weight=True) == [0, 1]
    assert roles_in(work, by_weight=False) == [0, 0]


def hybrid() -> rs.Workload:
    schema = rs.Schema(a=rs.Integer(0, 5), b=rs.Integer(0, 3), c=rs.Categorical("x", "y", "z"))
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    return 3.0 * work + rs.table(schema, {"b": rs.prefix}, weight=0.5)


def several_families() -> rs.Workload:
    schema = rs.Schema.of_sizes([6, 5, 4])
    return 3.0 * rs.all_tables(schema, (1, 2), rs.prefix) + rs.all_tables(schema, (2, 3), rs.identity)


def joint_families() -> rs.Workload:
    schema = rs.Schema.of_sizes([5, 5, 4])
    work = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.affine)
    return work + rs.table(schema, {("a0", "a1"): rs.abs_diff, "a2": rs.prefix})


@pytest.mark.parametrize("make", [hybrid, several_families, joint_families], ids=lambda make: make.__name__)
def test_the_sum_of_blocks_is_that_of_querysmasher_and_its_slopes_are_differences(
    make: Callable[[], rs.Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_sum, "INNER_GAP", 1e-12)
    monkeypatch.setattr(inner_slopes, "STEPS", 200)
    work = make()
    kinds = roles_in(work, by_weight=True)
    total = BlockSum(gather(work.parts, kinds), work.schema.sizes)
    assert total.at({})[0] ** 2 == pytest.approx(querysmasher(work, 1e-6).value, rel=1e-5)
    rng = np.random.default_rng(3)
    sizes = {kind: work.schema.sizes[kinds.index(kind)] for kind in set(kinds)}
    weights = {kind: rng.dirichlet(np.full(size, 20.0)) for kind, size in sizes.items()}
    slopes = total.at(weights)[1]
    for kind, size in sizes.items():
        step = rng.standard_normal(size)
        step -= step.mean()
        ends = [total.at({**weights, kind: weights[kind] + sign * 1e-3 * step})[0] for sign in (-1, 1)]
        assert slopes[kind] @ step == pytest.approx((ends[1] - ends[0]) / 2e-3, rel=1e-2, abs=1e-2)


def test_of_one_product_the_search_starts_at_the_best_weights() -> None:
    work = rs.table(rs.Schema.of_sizes([12, 5]), {"a0": rs.prefix, "a1": rs.ranges})
    kinds = roles_in(work, by_weight=True)
    total = BlockSum(gather(work.parts, kinds), work.schema.sizes)
    start = total.own_weights(kinds)
    assert total.at(start)[0] ** 2 == pytest.approx(dense(work, 1e-6).lower_bound, rel=1e-4)
    assert total.at({})[0] ** 2 > 1.02 * total.at(start)[0] ** 2


def test_several_families_of_an_attribute_are_centred_by_one_best_vector() -> None:
    schema = rs.Schema.of_sizes([12])
    work = rs.table(schema, {"a0": rs.prefix}) + 5.0 * rs.table(schema, {"a0": rs.width(3)})
    smashed, uniform, best = plans(work, "smasher", "querysmasher", "dense")
    assert smashed.ideal.total_variance == pytest.approx(best.ideal.total_variance, rel=1e-3)
    assert smashed.ideal.total_variance < uniform.ideal.total_variance


def test_sums_of_different_products_take_part() -> None:
    schema = rs.Schema.of_sizes([7, 6])
    work = rs.all_tables(schema, 2, rs.prefix) + rs.all_tables(schema, (1, 2), rs.ranges)
    smashed, uniform, best = plans(work, "smasher", "querysmasher", "dense")
    assert best.ideal.rmse * (1 - 1e-4) <= smashed.ideal.rmse <= 1.006 * best.ideal.rmse
    assert smashed.ideal.rmse < uniform.ideal.rmse


def test_a_block_too_large_to_solve_at_every_step_is_never_made_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("residua.methods.splits.blocks.SPLIT_CELLS", 10)
    work = several_families()
    smashed, uniform = plans(work, "smasher", "querysmasher")
    assert smashed.ideal.total_variance < uniform.ideal.total_variance


def test_a_plan_records_what_uniform_centring_would_give(tmp_path: Path) -> None:
    work = rs.all_tables(rs.Schema.of_sizes([6, 5]), ways=(1, 2), family=rs.prefix)
    smashed, uniform = plans(work, "smasher", "querysmasher")
    # The search knows uniform centring by its dual, and solves no block of it: a value within the bracket.
    optimum = rs.plan(work, rs.privacy_cost(1), method="querysmasher", gap=1e-9)
    assert smashed.uniform_total == pytest.approx(optimum.ideal.total_variance, rel=1e-6)
    assert smashed.uniform_total <= uniform.ideal.total_variance * (1 + 1e-9)
    assert "Uniform centring (QuerySmasher) would have an rmse 5.05% larger." in smashed.explain()
    smashed.save(tmp_path / "a.plan")
    assert rs.Plan.load(tmp_path / "a.plan").uniform_total == smashed.uniform_total
    assert smashed.rescale(rs.privacy_cost(2)).uniform_total == smashed.uniform_total / 2
    assert uniform.uniform_total is None


def test_releases_under_whole_number_weights_are_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = rs.Schema(a=rs.Integer(0, 11), b=rs.Integer(0, 6), c=rs.Categorical("x", "y"))
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    plan = rs.plan(work, rs.zcdp(1), method="smasher")
    assert any(measure.numerators is not None for measure in plan.strategy.measures)  # type: ignore[attr-defined]
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, size, 4000) for size in schema.sizes], axis=1).astype(np.int32)
    monkeypatch.setattr(
        "residua.kernel.measuring.draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64)
    )
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    table = release.table("a", "c")
    truth = np.zeros((12, 2))
    np.add.at(truth, (codes[:, 0], codes[:, 2]), 1)
    np.testing.assert_allclose(table.values, truth, atol=1e-7)


def test_an_integer_kernel_is_orthogonal_and_short() -> None:
    vector = (3, 5, 7, 64, 12, 9, 31, 17, 2, 40)
    basis = integer_kernel(vector)
    assert basis.shape == (9, 10)
    assert not (basis @ np.array(vector)).any()
    assert np.abs(basis).max() <= 4
    assert np.linalg.matrix_rank(basis) == 9


def test_integers_cost_little_under_any_weights() -> None:
    work = rs.all_tables(rs.Schema.of_sizes([30] * 4), ways=(1, 2, 3), family=rs.prefix)
    (plan,) = plans(work, "smasher", gap=1e-4)
    assert plan.rmse <= 1.001 * plan.ideal.rmse


def test_a_saved_plan_keeps_its_whole_number_weights(tmp_path: Path) -> None:
    work = rs.all_tables(rs.Schema.of_sizes([6, 5]), ways=(1, 2), family=rs.prefix)
    (plan,) = plans(work, "smasher")
    plan.save(tmp_path / "smashed.plan")
    loaded = rs.Plan.load(tmp_path / "smashed.plan")
    assert loaded.hash == plan.hash
    assert loaded.strategy.measures == plan.strategy.measures  # type: ignore[attr-defined]


SIX = rs.Schema.of_sizes([6, 5, 4])
EVERY = rs.buckets(tuple(range(5)))  # one bucket that holds all cells
ONES = rs.linear(SIX, ("a1",), np.ones((2, 5)))
ACROSS = rs.linear(SIX, ("a0", "a1"), np.kron(np.eye(6), np.ones((1, 5))))  # tells no cells of a1 apart
PAIRS_OF_TABLES = {
    "total last": [{"a0": rs.prefix, "a1": rs.total}, {"a0": rs.identity, "a1": rs.total}],
    "total first": [{"a1": rs.total, "a0": rs.prefix}, {"a1": rs.total, "a0": rs.identity}],
    "total of either": [{"a0": rs.total, "a1": rs.prefix}, {"a0": rs.prefix, "a1": rs.total}],
    "total between": [
        {"a0": rs.prefix, "a1": rs.total, "a2": rs.identity},
        {"a0": rs.identity, "a1": rs.total, "a2": rs.prefix},
    ],
    "two totals": [
        {"a0": rs.prefix, "a1": rs.total, "a2": rs.total},
        {"a0": rs.ranges, "a1": rs.total, "a2": rs.total},
    ],
    "a total and none": [{"a0": rs.prefix, "a1": rs.total}, {"a0": rs.ranges, "a1": rs.prefix}],
    "all totals": [{"a0": rs.total, "a1": rs.total}, {"a0": rs.total}, {"a0": rs.prefix}],
    "one bucket": [{"a0": rs.prefix, "a1": EVERY}, {"a0": rs.identity, "a1": rs.total}],
    "the widest window": [{"a0": rs.prefix, "a1": rs.width(5)}, {"a0": rs.identity, "a1": EVERY}],
    "a bucket and a total": [{"a1": EVERY, "a2": rs.prefix}, {"a1": rs.total, "a2": rs.ranges}],
}


@pytest.mark.parametrize("name", PAIRS_OF_TABLES)
def test_families_that_tell_no_cells_apart_leave_the_plan_as_it_is_without_them(name: str) -> None:
    """A total along an attribute asks nothing of it, alone or beside another total (claim D-002)."""
    tables = PAIRS_OF_TABLES[name]
    flat = {rs.total, EVERY, rs.width(5)}
    with_totals, without = (
        sum((rs.table(SIX, each) for each in asked[1:]), rs.table(SIX, asked[0]))
        for asked in (tables, [{at: f for at, f in each.items() if f not in flat} for each in tables])
    )
    ours, bare = (rs.plan(work, COST, method="smasher") for work in (with_totals, without))
    assert ours.total_variance == pytest.approx(bare.total_variance, rel=1e-3)
    assert ours.total_variance <= rs.plan(with_totals, COST, method="querysmasher").total_variance * 1.0001


def test_two_totals_on_one_attribute_are_planned_by_auto_whatever_the_size() -> None:
    schema = rs.Schema.of_sizes([60, 20])
    work = rs.table(schema, a0=rs.prefix, a1=rs.total) + rs.table(schema, a0=rs.identity, a1=rs.total)
    bare = rs.table(schema, a0=rs.prefix) + rs.table(schema, a0=rs.identity)
    assert rs.plan(work, COST).total_variance == pytest.approx(rs.plan(bare, COST).total_variance, rel=1e-3)


@pytest.mark.parametrize("other", [rs.prefix, rs.ranges, rs.identity], ids=str)
def test_families_whose_means_vanish_are_split_like_any_other(other: rs.workload.Family) -> None:
    """Where all that two tables ask of an attribute has mean zero, the blocks without it ask nothing."""
    differences = Factor((1,), Explicit((5,), np.eye(5)[:-1] - np.eye(5)[1:]))
    tables = (next(iter(rs.table(SIX, a0=family).groups())) for family in (rs.prefix, other))
    work = rs.Workload(
        SIX, tuple(Table(str(at), (*each.factors, differences)) for at, each in enumerate(tables))
    )
    smashed, uniform, best = plans(work, "smasher", "querysmasher", "dense", gap=1e-4)
    assert best.total_variance * (1 - 1e-3) <= smashed.total_variance <= uniform.total_variance * 1.0001


def test_queries_on_two_attributes_that_tell_cells_of_one_apart_are_split_like_any_other() -> None:
    for work in (
        ACROSS + rs.table(SIX, a0=rs.prefix, a1=rs.total),
        ACROSS + ONES + rs.table(SIX, a0=rs.prefix, a1=rs.total),
        ONES + rs.table(SIX, a1=rs.total) + rs.table(SIX, a0=rs.prefix, a1=EVERY),
    ):
        smashed, uniform = plans(work, "smasher", "querysmasher", gap=1e-4)
        assert smashed.total_variance <= uniform.total_variance * 1.0001
