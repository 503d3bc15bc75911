"""Places under pure differential privacy: costs along paths, dense twins, plans against other methods."""

import numpy as np
import pytest
from places_twin import dense_queries, dense_rows, hierarchy

import residua as rs
from residua.errors import Infeasible
from residua.linalg.trees import Tree, passes
from residua.solve.trees import _Shares, solve_laplace
from residua.verify import verify

WORKS = {
    "counts": lambda s: rs.table(s, []) + rs.levels(s, "place"),
    "same": lambda s: rs.table(s, ["age", "sex"]) + rs.levels(s, "place", ["age", "sex"]),
    "prefix": lambda s: rs.table(s, age=rs.prefix) + rs.levels(s, "place", {"age": rs.prefix}),
    "coarse weighs more": lambda s: (
        100 * rs.table(s, ["sex"]) + 30 * rs.table(s, ["place.l0", "sex"]) + rs.table(s, ["place", "sex"])
    ),
    "differ": lambda s: (
        rs.table(s, ["place.l0", "age", "sex"]) + rs.table(s, ["place.l1", "sex"]) + rs.table(s, ["place"])
    ),
}


def planned(which: str, method: str = "places", seed: int = 1) -> tuple[rs.Workload, rs.Plan]:
    draw = np.random.default_rng(seed)
    schema = rs.Schema(
        age=rs.Integer(0, 3), place=hierarchy(draw, 3, 1, 4), sex=rs.Categorical("F", "M", "X")
    )
    work = WORKS[which](schema)
    return work, rs.plan(work, rs.pure_dp(1), method=method)


@pytest.mark.parametrize("which", WORKS)
def test_figures_and_estimates_are_those_of_dense_least_squares(which):
    work, plan = planned(which)
    rows, precisions = dense_rows(plan)
    inverse = np.linalg.pinv(rows.T @ (precisions[:, None] * rows), hermitian=True, rcond=1e-12)
    asked = dense_queries(work)
    covariance = asked @ inverse @ asked.T
    assert np.allclose(plan.variances(work), np.diag(covariance), rtol=1e-8)
    draw = np.random.default_rng(1)
    codes = np.column_stack([draw.integers(0, size, 300) for size in work.schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    values = np.concatenate([own.reshape(-1) for own in release.measurements.values])
    estimate = asked @ (inverse @ (rows.T @ (precisions * values)))
    assert np.allclose(release.values(work), estimate, rtol=1e-8, atol=1e-8 * np.abs(estimate).max())
    whole = release.rounded(replicates=0)
    assert (whole.values() >= 0).all()
    assert whole.tables.disagreement() == 0


@pytest.mark.parametrize("which", WORKS)
def test_no_record_costs_more_than_epsilon_along_its_path(which):
    work, plan = planned(which)
    cost = np.zeros(int(np.prod(work.schema.sizes)))
    rows, _ = dense_rows(plan)
    scales = [
        float(each.parameters[owner])
        for each in plan.batches
        for owner in each.owners
        for _ in range(each.rows)
    ]
    cost = (np.abs(rows) / np.array(scales)[:, None]).sum(axis=0)
    assert 0.999 <= cost.max() <= 1 + 1e-12


@pytest.mark.parametrize("which", WORKS)
def test_plans_by_places_are_no_worse_than_those_of_hdmm_and_auto_takes_the_best(which):
    _, plan = planned(which)
    _, other = planned(which, "hdmm")
    _, best = planned(which, "auto")
    assert plan.ideal.rmse <= 1.01 * other.ideal.rmse
    assert best.ideal.rmse <= min(plan.ideal.rmse, other.ideal.rmse) * (1 + 1e-9)
    assert plan.certificate.scope == "all Laplace noise"
    assert plan.certificate.lower_bound <= other.certificate.lower_bound * 1.01


def test_plans_of_counts_survive_their_files(tmp_path):
    _, plan = planned("coarse weighs more")
    codes = np.column_stack([np.random.default_rng(1).integers(0, size, 50) for size in plan.schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    release.save(tmp_path / "a.release")
    assert not verify(tmp_path / "a.release").false
    assert rs.Release.load(tmp_path / "a.release").hash == release.hash


def test_many_places_are_planned_where_matrices_over_them_do_not_fit():
    draw = np.random.default_rng(2)
    states = np.sort(draw.integers(0, 50, 20_000))
    paths = [(f"s{own}", f"p{at}") for at, own in enumerate(states.tolist())]
    schema = rs.Schema(place=rs.Hierarchy(("state", "tract"), paths), age=rs.Integer(0, 99))
    work = 200 * rs.table(schema, ["place.state"]) + rs.table(schema, ["place"])
    plan = rs.plan(work, rs.pure_dp(1))
    assert plan.strategy.nested
    leaves = 2 * 20_000 + 200 * 2 * 20_000  # of the variance of measuring the leaves alone
    assert plan.total_variance < leaves
    with pytest.raises(Infeasible, match="joint cells of other attributes are more"):
        rs.plan(rs.levels(schema, "place", ["age"]), rs.pure_dp(1), method="places")


def test_slopes_in_the_shares_of_laplace_noise_are_derivatives():
    draw = np.random.default_rng(4)
    tree = Tree.of([np.zeros(3, dtype=np.int64), np.repeat(np.arange(3), [1, 2, 4])])
    problem = _Shares(tree, [draw.random((size, 1)) + 0.1 for size in tree.sizes], power=2)
    at = problem.start() + 0.1 * draw.random(len(problem.start()))
    ones = np.ones(len(at))
    _, slope = problem.value(at, ones)
    for place in range(len(at)):
        step = np.zeros(len(at))
        step[place] = 1e-6
        around = [problem.value(at + sign * step, ones)[0] for sign in (1, -1)]
        assert slope[place] == pytest.approx((around[0] - around[1]) / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("weights", [(1, 1, 1), (100, 10, 1), (0, 50, 1)])
def test_scales_are_as_good_as_a_search_through_all_shares_of_levels(weights):
    tree = Tree.of([np.zeros(4, dtype=np.int64), np.repeat(np.arange(4), 5)])
    asked = [np.full((size, 1), float(own)) for own, size in zip(weights, tree.sizes, strict=True)]
    costs = solve_laplace(tree, asked)
    paths = costs[0][0] + costs[1][tree.parents[1]] + costs[2]
    assert np.allclose(paths[:, 0] if paths.ndim > 1 else paths, 1)

    def value(own: list[np.ndarray]) -> float:
        found = passes(tree, [0.5 * each**2 for each in own]).final
        return sum(float((a * np.where(a > 0, b, 0)).sum()) for a, b in zip(asked, found, strict=True))

    grid = np.linspace(0, 0.95, 20)
    best = min(
        value([np.full((size, 1), share) for share, size in zip((a, b, 1 - a - b), tree.sizes, strict=True)])
        for a in grid
        for b in grid
        if a + b < 1
    )
    assert value(costs) <= best * (1 + 1e-6)
