"""Optimised centring (C-001 to C-004)."""

from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua.linalg.lattice import integer_kernel
from residua.mechanisms.smasher import _CentredFamily, _Problem

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


def test_workloads_with_joint_families_keep_uniform_weights() -> None:
    schema = rs.Schema.of_sizes([4, 4])
    work = rs.all_tables(schema, ways=1, family=rs.prefix) + rs.all_tables(schema, ways=2, family=rs.affine)
    smashed, uniform = plans(work, "smasher", "querysmasher")
    assert smashed.rmse == uniform.rmse


def test_attributes_used_differently_have_weights_of_their_own() -> None:
    schema = rs.Schema.of_sizes([6, 6, 6])
    work = rs.all_tables(schema, ways=1, family=rs.prefix)
    work += rs.table(schema, {"a0": rs.prefix, "a1": rs.prefix})
    problem = _Problem.of(work)
    assert problem is not None
    assert problem.kinds.tolist() == [0, 0, 1]


def test_gradients_agree_with_differences() -> None:
    schema = rs.Schema(a=rs.Integer(0, 5), b=rs.Integer(0, 3), c=rs.Categorical("x", "y", "z"))
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    work = 3.0 * work + rs.table(schema, {"b": rs.prefix}, weight=0.5)
    problem = _Problem.of(work)
    assert problem is not None
    pieces = {kind: _CentredFamily(queries) for kind, queries in enumerate(problem.families)}
    rng = np.random.default_rng(3)
    weights = {kind: rng.dirichlet(np.ones(problem.families[kind].cells) * 20) for kind in problem.free}
    _, slopes = problem._sum(pieces, weights)
    for kind in problem.free:
        step = rng.standard_normal(len(weights[kind]))
        step -= step.mean()
        ends = [
            problem._sum(pieces, {**weights, kind: weights[kind] + sign * 1e-4 * step})[0] for sign in (-1, 1)
        ]
        assert slopes[kind] @ step == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-3)


def test_releases_under_whole_number_weights_are_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = rs.Schema(a=rs.Integer(0, 11), b=rs.Integer(0, 6), c=rs.Categorical("x", "y"))
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    plan = rs.plan(work, rs.zcdp(1), method="smasher")
    assert any(measure.numerators is not None for measure in plan.mechanism.measures)  # type: ignore[attr-defined]
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, size, 4000) for size in schema.sizes], axis=1).astype(np.int32)
    monkeypatch.setattr("residua._measure.draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))
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
    assert loaded.mechanism.measures == plan.mechanism.measures  # type: ignore[attr-defined]
