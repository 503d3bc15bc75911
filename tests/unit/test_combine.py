"""Two releases as one (A-006)."""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest

import residua as rs
from residua import _combine

SCHEMA = rs.Schema.of_sizes([3, 4, 2])
MARGINALS = rs.marginals(SCHEMA, up_to=2)
PREFIXES = rs.all_tables(SCHEMA, ways=(1, 2), family=rs.prefix)
CODES = np.stack([np.random.default_rng(1).integers(0, size, 2000) for size in SCHEMA.sizes], axis=1).astype(
    np.int32
)


def planned(work: rs.Workload, method: str = "querysmasher") -> rs.Plan:
    return rs.plan(work, rs.zcdp(1), method=method)


def measured(plan: rs.Plan, seed: int) -> rs.Release:
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=seed))


def privacy_matrix(plan: rs.Plan) -> np.ndarray:
    """X over all cells, from the covariance of all cells that a plan of everything answers."""
    strategy = plan.strategy
    cells = int(np.prod(SCHEMA.sizes))
    total = np.zeros((cells, cells))
    for layer in strategy.layers:
        for subset, numbers, noise in zip(layer.subsets, layer.shapes, layer.noise, strict=True):
            rows = np.ones((1, 1))
            order = [int(subset[place]) for places in layer.layout for place in places]
            for number in numbers:
                rows = np.kron(rows, strategy.shapes[number].matrix)
            tensor = rows.reshape(len(rows), *(SCHEMA.sizes[at] for at in order))
            tensor = tensor.transpose(0, *(1 + np.argsort(order)))
            shape = [size if at in order else 1 for at, size in enumerate(SCHEMA.sizes)]
            wide = np.broadcast_to(tensor.reshape(len(rows), *shape), (len(rows), *SCHEMA.sizes))
            flat = wide.reshape(len(rows), -1)
            total += flat.T @ flat / noise
    return total


def test_the_same_plan_twice_halves_every_variance_and_averages() -> None:
    plan = planned(MARGINALS)
    first, second = measured(plan, 1), measured(plan, 2)
    both = rs.combine(first, second)
    np.testing.assert_allclose(both.plan.variances(MARGINALS), plan.variances(MARGINALS) / 2)
    np.testing.assert_allclose(both.values(MARGINALS), (first.values() + second.values()) / 2)
    assert both.plan.privacy.rho == 2


def test_different_plans_give_the_variances_of_least_squares_over_both() -> None:
    one, other = planned(MARGINALS), planned(PREFIXES)
    both = rs.combine(measured(one, 1), measured(other, 2))
    covariance = np.linalg.pinv(privacy_matrix(one) + privacy_matrix(other), rcond=1e-11)
    work = rs.marginals(SCHEMA, ways=2)
    found = both.plan.variances(work)
    rows = []
    for first, second in ((0, 1), (0, 2), (1, 2)):
        for i in range(SCHEMA.sizes[first]):
            for j in range(SCHEMA.sizes[second]):
                mask = np.zeros(SCHEMA.sizes)
                place: list[int | slice] = [slice(None)] * 3
                place[first], place[second] = i, j
                mask[tuple(place)] = 1
                rows.append(mask.reshape(-1))
    wanted = np.einsum("ij,jk,ik->i", np.array(rows), covariance, np.array(rows))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_combination_saves_and_loads(tmp_path) -> None:
    both = rs.combine(measured(planned(MARGINALS), 1), measured(planned(PREFIXES), 2))
    both.save(tmp_path / "both.release")
    loaded = rs.Release.load(tmp_path / "both.release")
    np.testing.assert_array_equal(loaded.values(), both.values())
    assert loaded.simulated


def test_a_combination_that_did_not_note_its_releases_is_combined_on_trust() -> None:
    first, second, third = (measured(planned(MARGINALS), seed) for seed in (1, 2, 3))
    both = rs.combine(first, second)
    unnoted = [{key: part[key] for key in part if key != "hash"} for part in both.audit["combined"]]
    old = rs.Release(both.plan, both.measurements, {**both.audit, "combined": unnoted})
    assert rs.combine(old, third).plan.privacy.rho == 3


def test_what_cannot_be_combined_is_refused_by_name() -> None:
    release = measured(planned(MARGINALS), 1)
    with pytest.raises(rs.Infeasible, match="one release twice"):
        rs.combine(release, rs.Release(release.plan, release.measurements, release.audit))
    both = rs.combine(release, measured(planned(MARGINALS), 2))
    for again in (rs.combine(both, measured(planned(MARGINALS), 6)), both):
        with pytest.raises(rs.Infeasible, match="one that a combination has already"):
            rs.combine(again, release)
    elsewhere = rs.Schema.of_sizes([3, 4])
    plan = rs.plan(rs.marginals(elsewhere, ways=1), rs.zcdp(1), method="querysmasher")
    other = rs.measure(plan, CODES[:, :2], ledger=None, noise=rs.simulated(seed=5))
    with pytest.raises(rs.SchemaError, match="different schemas"):
        rs.combine(release, other)
    laplace = measured(rs.plan(MARGINALS, rs.pure_dp(1)), 7)
    with pytest.raises(rs.Infeasible, match="Gaussian noise and one has Laplace"):
        rs.combine(release, laplace)
    with pytest.raises(rs.WorkloadError, match="combine needs releases"):
        rs.combine(release, release.plan)  # type: ignore[arg-type]  # the mistake that is refused


EVERYTHING = rs.table(SCHEMA, ["a0", "a1", "a2"])
PLANS = {
    "blocks": cache(lambda: planned(rs.marginals(SCHEMA, up_to=3))),
    "other weights": cache(lambda: planned(rs.all_tables(SCHEMA, ways=(1, 3), family=rs.prefix), "smasher")),
    "dense": cache(lambda: planned(PREFIXES + EVERYTHING, "dense")),
    "products": cache(lambda: planned(EVERYTHING + PREFIXES, "identity")),
}
LAPLACE_PLANS = {
    "nested": cache(lambda: rs.plan(PREFIXES + EVERYTHING, rs.pure_dp(1), method="hdmm-marginals")),
    "products": cache(lambda: rs.plan(EVERYTHING, rs.pure_dp(2), method="identity")),
    "union": cache(lambda: rs.plan(PREFIXES + EVERYTHING, rs.pure_dp(1), method="hdmm-union")),
}
PAIRS = [
    *combinations_with_replacement(PLANS.values(), 2),
    *combinations_with_replacement(LAPLACE_PLANS.values(), 2),
]


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_plans_of_any_kind_are_combined_by_least_squares_over_both(pair, tmp_path) -> None:
    """Claim A-007: both measure every cell, so the inverses of their covariances add up."""
    releases = [measured(each(), seed) for seed, each in enumerate(pair)]
    both = rs.combine(*releases)
    information = [np.linalg.inv(each.plan.covariance(EVERYTHING, EVERYTHING)) for each in releases]
    covariance = np.linalg.inv(sum(information))
    np.testing.assert_allclose(both.covariance(EVERYTHING, EVERYTHING), covariance, rtol=1e-6, atol=1e-9)
    weighed = sum(own @ each.values(EVERYTHING) for own, each in zip(information, releases, strict=True))
    np.testing.assert_allclose(both.values(EVERYTHING), covariance @ weighed, atol=1e-6)
    both.save(tmp_path / "both.release")
    assert rs.Release.load(tmp_path / "both.release").answers().equals(both.answers())
    with pytest.raises(rs.Infeasible, match=r"only a plan that rs\.plan made"):
        rs.measure(both.plan, CODES, ledger=None, noise=rs.simulated(seed=1))


def test_epsilons_of_pure_privacy_add_up() -> None:
    plan = rs.plan(MARGINALS, rs.pure_dp("0.5"))
    both = rs.combine(measured(plan, 1), measured(plan, 2))
    assert both.plan.privacy.pure_epsilon == 1
    assert both.plan.privacy.mu is None
    assert both.nonnegative(replicates=2).values().min() >= 0


def test_what_one_release_measured_and_the_other_did_not_keeps_its_answers() -> None:
    one = measured(planned(rs.table(SCHEMA, a0=rs.prefix), "dense"), 1)
    other = measured(planned(rs.table(SCHEMA, ["a1", "a2"]), "dense"), 2)
    both = rs.combine(one, other)
    work = rs.table(SCHEMA, a0=rs.prefix)
    assert np.all(both.plan.variances(work) < one.plan.variances(work))  # both know the total
    differences = rs.linear(SCHEMA, ["a0"], [[1, -1, 0]])
    np.testing.assert_allclose(both.plan.variances(differences), one.plan.variances(differences), rtol=0.2)
    with pytest.raises(rs.NotInSpan):
        both.values(rs.table(SCHEMA, ["a0", "a1"]))


@pytest.mark.parametrize("make", [PLANS["dense"], *LAPLACE_PLANS.values()], ids=range(4))
def test_one_plan_measured_twice_is_averaged_however_many_cells_it_has(make, monkeypatch) -> None:
    monkeypatch.setattr(_combine, "MOST_CELLS", 1)
    plan = make()
    first, second = measured(plan, 1), measured(plan, 2)
    both = rs.combine(first, second)
    np.testing.assert_allclose(both.plan.variances(plan.workload), plan.variances(plan.workload) / 2)
    np.testing.assert_allclose(both.values(plan.workload), (first.values() + second.values()) / 2)
    other = measured(rs.plan(PREFIXES, plan.budget, method="hierarchical"), 3)
    with pytest.raises(rs.Infeasible, match="24 joint cells"):
        rs.combine(first, other)


def test_several_releases_are_combined_as_one_after_the_other() -> None:
    releases = [measured(make(), seed) for seed, make in enumerate(PLANS.values())]
    together = rs.combine(*releases)
    stepwise = rs.combine(rs.combine(rs.combine(*releases[:2]), releases[2]), releases[3])
    np.testing.assert_allclose(together.values(), stepwise.values())
    assert together.plan.privacy.rho == 4
