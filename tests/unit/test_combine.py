"""Two releases as one (A-006)."""

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy import stats

import residua as rs
from residua.noise import DiscreteLaplace
from residua.privacy.budgets import bound_divisor
from residua.release import Measurements, combining

pytestmark = pytest.mark.filterwarnings(
    "ignore:a release that no ledger paid for:residua.DifferentDataWarning"
)

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
    monkeypatch.setattr(combining, "COMBINED_CELLS", 1)
    plan = make()
    first, second = measured(plan, 1), measured(plan, 2)
    both = rs.combine(first, second)
    np.testing.assert_allclose(both.plan.variances(plan.workload), plan.variances(plan.workload) / 2)
    np.testing.assert_allclose(both.values(plan.workload), (first.values() + second.values()) / 2)
    other = measured(rs.plan(PREFIXES, plan.budget, method="hierarchical"), 3)
    assert np.all(rs.combine(both, other).plan.variances(PREFIXES) < other.plan.variances(PREFIXES))
    conditions = rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0 OR a2 = 0")
    other = measured(rs.plan(conditions, plan.budget), 3)
    with pytest.raises(rs.Infeasible, match="24 joint cells"):
        rs.combine(first, other)


def test_several_releases_are_combined_as_one_after_the_other() -> None:
    releases = [measured(make(), seed) for seed, make in enumerate(PLANS.values())]
    together = rs.combine(*releases)
    stepwise = rs.combine(rs.combine(rs.combine(*releases[:2]), releases[2]), releases[3])
    np.testing.assert_allclose(together.values(), stepwise.values())
    assert together.plan.privacy.rho == 4


# --- releases of different data ----------------------------------------------------------------------------


def paid(plan: rs.Plan, ledger: rs.Ledger, codes: np.ndarray = CODES) -> rs.Release:
    return rs.measure(plan, codes, ledger=ledger)


def opened(folder, dataset: str, name: str | None = None) -> rs.Ledger:
    return rs.Ledger.create(folder / (name or dataset), rs.zcdp(100), dataset=dataset)


def test_releases_of_datasets_with_different_names_are_refused(tmp_path) -> None:
    plan, one, other = planned(MARGINALS), opened(tmp_path, "people-2023"), opened(tmp_path, "people-2024")
    releases = [paid(plan, one), paid(plan, one), paid(plan, other), paid(plan, other)]
    words = "different datasets, 'people-2023' and 'people-2024'"
    with pytest.raises(rs.Infeasible, match=words):
        rs.combine(releases[0], releases[2])
    early, late = rs.combine(*releases[:2]), rs.combine(*releases[2:])
    for pair in ((early, late), (early, releases[2]), (releases[0], late)):
        with pytest.raises(rs.Infeasible, match=words):
            rs.combine(*pair)
    with pytest.raises(rs.Infeasible, match=words):
        rs.combine(*releases)


def test_releases_of_one_dataset_are_combined_without_a_word(tmp_path) -> None:
    """Warnings are errors here."""
    plan, ledger = planned(MARGINALS), opened(tmp_path, "people")
    both = rs.combine(paid(plan, ledger), paid(planned(PREFIXES), ledger), paid(plan, ledger))
    again = opened(tmp_path, "people", "another file")
    assert rs.combine(both, paid(plan, again)).plan.privacy.rho == 4


def test_a_release_without_a_ledger_is_combined_with_a_warning(tmp_path) -> None:
    plan, ledger = planned(MARGINALS), opened(tmp_path, "people")
    simulated, real = measured(plan, 1), paid(plan, ledger)
    for pair in ((simulated, measured(plan, 2)), (simulated, real), (real, simulated)):
        with pytest.warns(rs.DifferentDataWarning, match="no ledger paid for") as told:
            rs.combine(*pair)
        assert [each.filename for each in told] == [__file__]


LARGE = rs.Schema.of_sizes([60, 50])
KINDS = {
    "blocks": (SCHEMA, "querysmasher", rs.zcdp(1), [MARGINALS, MARGINALS]),
    "other blocks": (SCHEMA, "querysmasher", rs.zcdp(1), [MARGINALS, PREFIXES]),
    "one block in common": (
        SCHEMA,
        "querysmasher",
        rs.zcdp(1),
        [rs.table(SCHEMA, a0=rs.prefix, a1=rs.prefix), rs.table(SCHEMA, a2=rs.identity)],
    ),
    "overlapping blocks": (SCHEMA, "smasher", rs.zcdp(1), [PREFIXES, MARGINALS]),
    "joint cells": (SCHEMA, "dense", rs.zcdp(1), [EVERYTHING, PREFIXES]),
    "one plan of many cells": (
        LARGE,
        "identity",
        rs.zcdp(1),
        [rs.table(LARGE, ["a0", "a1"])] * 2,
    ),
    "laplace": (SCHEMA, "identity", rs.pure_dp(1), [EVERYTHING, EVERYTHING]),
    "little laplace": (SCHEMA, "identity", rs.pure_dp(4), [EVERYTHING, EVERYTHING]),
    "laplace marginals": (SCHEMA, "hdmm-marginals", rs.pure_dp(2), [EVERYTHING + PREFIXES, MARGINALS]),
}


def records(schema: rs.Schema, many: int) -> np.ndarray:
    chance = np.random.default_rng(5)
    return np.stack([chance.integers(0, size, many) for size in schema.sizes], axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_releases_that_differ_by_more_than_their_noise_are_told(kind) -> None:
    schema, method, budget, works = KINDS[kind]
    plans = [rs.plan(work, budget, method=method) for work in works]
    few, many = records(schema, 100), records(schema, 10_000)
    one, two, other = (
        rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed))
        for seed, (plan, codes) in enumerate(((plans[0], few), (plans[1], few), (plans[1], many)))
    )
    rs.combine(one, two)  # an error if it warned
    for pair in ((one, other), (other, one)):
        with pytest.warns(rs.DifferentDataWarning, match="differ more than their noise explains"):
            rs.combine(*pair)


def test_a_combination_is_compared_with_what_comes_next() -> None:
    plan = planned(MARGINALS)
    both = rs.combine(measured(plan, 1), measured(plan, 2))
    rs.combine(both, measured(plan, 3))
    other = rs.measure(plan, CODES[:1000], ledger=None, noise=rs.simulated(seed=4))
    with pytest.warns(rs.DifferentDataWarning, match="differ more"):
        rs.combine(both, other)


def test_releases_with_nothing_in_common_are_not_compared() -> None:
    plans = [planned(rs.table(SCHEMA, [name]), "identity") for name in ("a0", "a1")]
    one, other = (
        rs.measure(plan, CODES[:many], ledger=None, noise=rs.simulated(seed=1))
        for plan, many in zip(plans, (5, 5), strict=True)
    )
    rs.combine(one, other)


def disagreements(first: rs.Plan, second: rs.Plan, many: int) -> list[combining.Disagreement]:
    found = []
    for seed in range(many):
        one, two = measured(first, 2 * seed), measured(second, 2 * seed + 1)
        parts, (strategy, numbers) = combining._joined(one, two)
        together = Measurements(numbers).in_units(strategy)
        found.append(combining.disagreement(parts, (strategy, together)))
    return found


@pytest.mark.parametrize("kind", ["blocks", "other blocks", "joint cells"])
def test_the_difference_of_two_releases_follows_the_chi_squared_law(kind) -> None:
    """Claim A-008, with the ranks of a twin over all cells."""
    _, method, budget, works = KINDS[kind]
    plans = [rs.plan(work, budget, method=method) for work in works]
    found = disagreements(*plans, 100)
    squares = [privacy_matrix(plan) for plan in plans]
    one, two, both = (np.linalg.matrix_rank(each, hermitian=True) for each in (*squares, sum(squares)))
    freedom = one + two - both
    assert found[0].freedom >= freedom
    if kind != "joint cells":
        assert found[0].freedom == freedom
    chances = stats.chi2.sf([each.total for each in found], freedom)
    assert stats.kstest(chances, "uniform").pvalue > 1e-6


def test_the_total_is_that_of_the_parallel_sum() -> None:
    """Over all cells: d' X_1 (X_1 + X_2)^+ X_2 d, with d the difference of two estimates."""
    plans = [planned(MARGINALS), planned(PREFIXES)]
    one, two = (measured(plan, seed) for seed, plan in enumerate(plans))
    squares = [privacy_matrix(plan) for plan in plans]
    parallel = squares[0] @ np.linalg.pinv(sum(squares), rcond=1e-11, hermitian=True) @ squares[1]
    table = np.array([[0, 1, 2]], dtype=np.int32)
    cells = [each._estimator.marginals(table, SCHEMA.sizes)[0].reshape(-1) for each in (one, two)]
    difference = cells[0] - cells[1]
    [found] = disagreements(*plans, 1)
    assert found.total == pytest.approx(float(difference @ parallel @ difference), rel=1e-6)


@pytest.mark.parametrize("numbers", [1, 24])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "6", "12"])
def test_laplace_noise_seldom_looks_like_different_data(epsilon, numbers) -> None:
    """Its squares have heavier tails than those of Gaussian noise, and are not taken for differences."""
    law = DiscreteLaplace(1 / Fraction(epsilon))
    drawn = law.draw(rs.simulated(seed=7), 2 * numbers * 100_000).reshape(2, -1, numbers)
    totals = ((drawn[0] - drawn[1]) ** 2).sum(axis=1) / (2 * law.variance)
    excess = 3 + bound_divisor("laplace", Fraction(epsilon))
    places = np.arange(10_000.0)
    chance = np.exp(-places * float(epsilon)) * np.tanh(float(epsilon) / 2) * np.where(places, 2, 1)
    assert chance @ places**4 / (chance @ places**2) ** 2 == pytest.approx(3 + excess)
    found = {total: combining.Disagreement(total, numbers).chance(excess) for total in set(totals.tolist())}
    chances = np.array([found[total] for total in totals.tolist()])
    for rare in (1e-2, 1e-3, 1e-4):
        assert (chances < rare).mean() < 3 * rare
    assert chances.min() > combining.IMPLAUSIBLE
