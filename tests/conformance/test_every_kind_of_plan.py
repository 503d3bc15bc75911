"""All that plans and releases do, for every kind of strategy: it works, or it is refused with a reason."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places_twin import dense_rows

import residua as rs
from residua.methods.registry import methods_for
from residua.release import combining
from residua.report import plan_contents, release_contents
from residua.report.sections import page_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:a release that no ledger paid for:residua.DifferentDataWarning"
)

SMALL = rs.Schema.of_sizes([3, 4, 2])
MANY = rs.Schema.of_sizes([3] * 8)  # too many joint cells for one dense block
PREFIXES = rs.all_tables(SMALL, (1, 2), rs.prefix)
MARGINALS = rs.marginals(SMALL, up_to=2)
PRODUCT = rs.table(SMALL, {"a0": rs.prefix, "a1": rs.ranges})
MIXED = PREFIXES + rs.table(SMALL, {("a0", "a1"): rs.affine})
CROSSED = rs.table(SMALL, {"a0": rs.prefix, "a1": rs.prefix}) + rs.table(
    SMALL, {"a1": rs.ranges, "a2": rs.identity}
)
JOINT = rs.table(SMALL, {("a0", "a1"): rs.affine}) + rs.table(SMALL, ["a2"])
CONDITIONS = rs.sql(
    SMALL,
    "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0;"
    "SELECT a2, COUNT(*) FROM t WHERE NOT (a0 = 1 AND a1 = 1) GROUP BY a2",
)
BESIDE = rs.sql(SMALL, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0 OR a2 = 0") + rs.marginals(
    SMALL, up_to=1
)
OVERLAPPING = rs.all_tables(MANY, 1, rs.prefix) + rs.all_tables(MANY, 2, rs.affine)
PLACED = rs.Schema(
    a0=rs.Hierarchy(("state", "county"), [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("b", "b3")]),
    a1=rs.Integer(0, 2),
    a2=rs.Integer(0, 1),
)
PLACES = rs.table(PLACED, ["a1", "a2"]) + rs.levels(PLACED, "a0", ["a1"])
UNLIKE = rs.table(PLACED, ["a1", "a2"]) + rs.levels(PLACED, "a0", {"a1": rs.prefix})
GAUSS, LAPLACE = rs.zcdp(1), rs.pure_dp(1)
REPLACED = rs.Unit(neighbours="replace_one")

PLANS: dict[str, tuple[str, Callable[[], rs.Plan]]] = {
    # what answers, and how it is made
    "blocks": ("independent", lambda: rs.plan(PREFIXES, GAUSS, method="querysmasher")),
    "blocks of a joint family": ("independent", lambda: rs.plan(MIXED, GAUSS, method="querysmasher")),
    "blocks under best weights": ("independent", lambda: rs.plan(PREFIXES, GAUSS, method="smasher")),
    "marginals": ("independent", lambda: rs.plan(MARGINALS, GAUSS, method="residualplanner")),
    "given strategies": ("independent", lambda: rs.plan(PREFIXES, GAUSS, method="residualplanner+")),
    "fourier": ("independent", lambda: rs.plan(PREFIXES, GAUSS, method="fourier")),
    "product": ("kronecker", lambda: rs.plan(PRODUCT, GAUSS, method="dense")),
    "dense": ("kronecker", lambda: rs.plan(MIXED, GAUSS, method="dense")),
    "overlap": ("coupled", lambda: rs.plan(OVERLAPPING, GAUSS)),
    "nested": ("nested", lambda: rs.plan(MARGINALS, GAUSS, method="hdmm-marginals")),
    "nested strategies": ("nested", lambda: rs.plan(PREFIXES, GAUSS, method="hdmm-union")),
    "union": ("diagonal", lambda: rs.plan(CROSSED, GAUSS, method="hdmm-union")),
    "union of joint families": ("diagonal", lambda: rs.plan(JOINT, GAUSS, method="hdmm-union")),
    "instalments": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, over="a1")),
    "instalments of many attributes": (
        "periods",
        lambda: rs.plan(rs.all_tables(MANY, (1, 2), rs.prefix), GAUSS, over="a0"),
    ),
    "by kinds": ("coarsened", lambda: rs.plan(CONDITIONS, GAUSS)),
    "by kinds beside cells": ("coarsened", lambda: rs.plan(BESIDE, GAUSS, method="querysmasher")),
    "places": ("places", lambda: rs.plan(PLACES, GAUSS, method="places")),
    "unlike levels": ("vectorplaces", lambda: rs.plan(UNLIKE, GAUSS, method="places")),
    "places by cells": ("kronecker", lambda: rs.plan(PLACES, GAUSS, method="dense")),
    "laplace places": ("vectorplaces", lambda: rs.plan(PLACES, LAPLACE, method="places")),
    "laplace unlike": ("vectorplaces", lambda: rs.plan(UNLIKE, LAPLACE, method="places")),
    "one product for all": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, method="hdmm-kron")),
    "identity": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, method="identity")),
    "hierarchical": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, method="hierarchical")),
    "datacube": ("nested", lambda: rs.plan(MARGINALS, GAUSS, method="datacube")),
    "total alone": ("kronecker", lambda: rs.plan(rs.marginals(SMALL, ways=0), GAUSS)),
    "targets": ("kronecker", lambda: rs.plan(PREFIXES, targets=rs.stddev(3))),
    "targets and a budget": ("kronecker", lambda: rs.plan(MIXED, rs.zcdp(2), targets=rs.stddev(9))),
    "largest variance": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, objective="max_variance")),
    "largest variance of marginals": (
        "independent",
        lambda: rs.plan(MARGINALS, GAUSS, objective="max_variance"),
    ),
    "replaced records": ("kronecker", lambda: rs.plan(PREFIXES, GAUSS, unit=REPLACED)),
    "replaced places": ("places", lambda: rs.plan(PLACES, GAUSS, method="places", unit=REPLACED)),
    "replaced unlike": ("vectorplaces", lambda: rs.plan(UNLIKE, GAUSS, method="places", unit=REPLACED)),
    "replaced union": ("diagonal", lambda: rs.plan(CROSSED, GAUSS, method="hdmm-union", unit=REPLACED)),
    "replaced by kinds": ("coarsened", lambda: rs.plan(CONDITIONS, GAUSS, unit=REPLACED)),
    "laplace": ("kronecker", lambda: rs.plan(PREFIXES, LAPLACE)),
    "laplace marginals": ("kronecker", lambda: rs.plan(MARGINALS, LAPLACE, method="hdmm-marginals")),
    "laplace nested strategies": ("nested", lambda: rs.plan(PREFIXES, LAPLACE, method="hdmm-union")),
    "laplace union": ("diagonal", lambda: rs.plan(JOINT, LAPLACE, method="hdmm-union")),
    "laplace by kinds": ("coarsened", lambda: rs.plan(CONDITIONS, LAPLACE)),
    "laplace product": ("kronecker", lambda: rs.plan(PRODUCT, LAPLACE, method="hdmm-kron")),
    "laplace identity": ("kronecker", lambda: rs.plan(PREFIXES, LAPLACE, method="identity")),
    "laplace replaced union": (
        "diagonal",
        lambda: rs.plan(JOINT, LAPLACE, method="hdmm-union", unit=REPLACED),
    ),
    "laplace replaced by kinds": ("coarsened", lambda: rs.plan(CONDITIONS, LAPLACE, unit=REPLACED)),
}
METHODS = sorted(methods_for("gaussian"))

TINY = rs.Schema.of_sizes([2, 3])
TINY_WORKS = {
    "marginals": rs.marginals(TINY, up_to=2),
    "prefixes": rs.all_tables(TINY, (1, 2), rs.prefix),
    "mixed": rs.all_tables(TINY, 1, rs.prefix) + rs.table(TINY, {("a0", "a1"): rs.affine}),
}


@cache
def planned(name: str) -> rs.Plan:
    return PLANS[name][1]()


@cache
def measured(name: str, seed: int = 1) -> rs.Release:
    plan = planned(name)
    sizes = plan.schema.sizes
    codes = np.stack(
        [np.random.default_rng(at).integers(0, size, 300) for at, size in enumerate(sizes)], axis=1
    )
    return rs.measure(plan, codes.astype(np.int32), ledger=None, noise=rs.simulated(seed=seed))


@cache
def combined(name: str) -> rs.Release:
    return rs.combine(measured(name, 1), measured(name, 2))


def works_or_says_why(action: Callable[[], Any]) -> Any:
    """What comes back, or None where it is refused in words that people can use."""
    try:
        return action()
    except rs.ResiduaError as error:
        refusal = str(error)
    assert len(refusal) > 30, "a refusal must say what to do"
    return None


def round_trip(thing: Any, path: Path) -> Any:
    thing.save(path)
    return type(thing).load(path)


@pytest.mark.parametrize("name", PLANS)
def test_what_every_plan_does(name, tmp_path, answered_by):
    plan = planned(name)
    assert answered_by(plan.strategy) == PLANS[name][0], "a row must make what it says"
    work = plan.workload
    variances = plan.variances(work)
    assert variances.shape == (work.count,)
    assert np.all(variances > 0)
    assert plan.explain().count("\n") > 5
    assert len(plan.summary()) == work.tables
    assert np.array_equal(np.concatenate([each for _, each in plan.iter_variances(work)]), variances)
    assert plan.max_variance == pytest.approx(variances.max())
    assert round_trip(plan, tmp_path / "a.plan").hash == plan.hash
    loaded = rs.Plan.load(tmp_path / "a.plan")
    assert np.array_equal(loaded.variances(work), variances)
    assert loaded.explain() == plan.explain()
    assert str(rs.compare(plan, loaded)).count("\n") == 2
    assert plan.privacy
    assert repr(plan).startswith("Plan(")


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_at_twice_the_budget_has_smaller_variances(name):
    plan = planned(name)
    budget = rs.pure_dp(2) if plan.strategy.law == "laplace" else rs.zcdp(3)
    again = plan.rescale(budget)
    assert again.rmse < plan.rmse * (1 + 1e-12)
    assert again.certificate.gap == pytest.approx(plan.certificate.gap, rel=0.5, abs=0.01)
    assert again.explain().count("\n") > 5
    with pytest.raises(rs.BudgetError, match="plan again"):
        plan.rescale(rs.zcdp(1) if plan.strategy.law == "laplace" else rs.pure_dp(1))


@pytest.mark.parametrize("name", PLANS)
def test_what_a_plan_does_or_refuses(name, tmp_path):
    plan = planned(name)
    one = rs.table(plan.schema, {"a0": rs.prefix})
    two = rs.table(plan.schema, {("a0", "a1"): rs.affine})
    for work in (one, two, rs.marginals(plan.schema, up_to=2), rs.marginals(plan.schema, ways=3)):
        listed = works_or_says_why(lambda work=work: plan.variances(work))
        summed = works_or_says_why(lambda work=work: plan.summary(work))
        assert (listed is None) == (summed is None)
        covariance = works_or_says_why(lambda work=work: plan.covariance(work, work))
        assert (covariance is None) == (listed is None)
        if listed is not None:
            np.testing.assert_allclose(np.diagonal(covariance), listed, rtol=1e-6)
            assert max(each.max_stddev for each in summed) == pytest.approx(np.sqrt(listed.max()), rel=1e-6)
        works_or_says_why(lambda work=work: plan.free_variances(work))
    works_or_says_why(plan.spare)
    works_or_says_why(lambda: plan.report(tmp_path / "plan.html"))


@pytest.mark.parametrize("name", PLANS)
def test_what_every_release_does(name, tmp_path):
    release = measured(name)
    work = release.plan.workload
    values = release.values()
    assert np.all(np.isfinite(values))
    rows = release.answers()
    assert rows.num_rows == work.count
    np.testing.assert_allclose(rows["value"].to_numpy(), values, atol=1e-6)
    loaded = round_trip(release, tmp_path / "a.release")
    assert loaded.hash == release.hash
    assert np.array_equal(loaded.values(), values)
    release.write_answers(tmp_path / "answers.parquet")
    assert "Release(" in repr(release)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("make", [measured, combined], ids=["measured", "combined"])
def test_what_a_release_does_or_refuses(name, make, tmp_path):
    release = works_or_says_why(lambda: make(name))
    if release is None:
        return
    one, two = rs.table(release.plan.schema, {"a0": rs.prefix}), rs.table(release.plan.schema, ["a0", "a1"])
    works_or_says_why(lambda: release.table("a0"))
    works_or_says_why(lambda: release.table("a1", "a0", level=0.5).to_pandas)
    works_or_says_why(lambda: release.answers(one + two))
    works_or_says_why(lambda: release.covariance(one, two))
    works_or_says_why(lambda: release.sql("select a0, count(*) from records group by a0"))
    works_or_says_why(lambda: release.report(tmp_path / "release.html"))
    works_or_says_why(lambda: release.synthetic(10))
    for process in (release.nonnegative, release.rounded):
        processed = works_or_says_why(lambda process=process: process(replicates=2))
        if processed is None:
            continue
        assert processed.values().min() >= -1e-6
        errors = works_or_says_why(processed.errors)
        assert errors is None or np.all(np.isfinite(errors))
        works_or_says_why(processed.answers)
        works_or_says_why(lambda processed=processed: processed.table("a0"))
        assert "biased" in processed.note
    saved = round_trip(release, tmp_path / "a.release")
    assert np.array_equal(saved.values(), release.values())
    assert saved.plan.explain() == release.plan.explain()
    if make is combined:
        with pytest.raises(rs.Infeasible, match="rescale the plans of those releases"):
            release.plan.rescale(release.plan.budget)


@pytest.mark.parametrize("name", [name for name, (answerer, _) in PLANS.items() if answerer == "coarsened"])
@pytest.mark.filterwarnings("ignore::residua.PublicFactWarning")
def test_a_release_by_classes_of_cells_is_post_processed_over_its_classes(name):
    release = measured(name)
    total = rs.known(rs.marginals(SMALL, ways=0), 300)
    facts = () if name == "by kinds beside cells" else total
    for process in (release.nonnegative, release.rounded):
        found = process(facts, replicates=2)
        assert found.values().min() >= -1e-6
        work = found.basis.workload
        # Within a few standard errors of the unbiased answers, which are far from zero here.
        apart = np.abs(found.values() - release.values(work)) / np.sqrt(release.plan.variances(work))
        assert apart.max() < 8
        assert np.all(np.isfinite(found.errors()))
        assert found.answers().num_rows == work.count
    assert np.all(found.values() == np.rint(found.values()))


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_and_release_has_a_report(name):
    for contents in (plan_contents(planned(name)), release_contents(measured(name))):
        page = page_of(contents, {})
        assert page.count("<h2 ") >= 8
        assert sum(share.fraction for share in contents.shares) == pytest.approx(1.0)


KINDS = [
    "blocks",
    "blocks under best weights",
    "dense",
    "nested",
    "nested strategies",
    "identity",
    "targets",
    "union",
]


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("two", KINDS)
def test_releases_of_any_two_of_these_kinds_are_combined(one, two):
    both = rs.combine(measured(one, 1), measured(two, 2))
    for release in (measured(one, 1), measured(two, 2)):
        work = release.plan.workload
        assert np.all(both.plan.variances(work) <= release.plan.variances(work) * (1 + 1e-9))
    works_or_says_why(lambda: both.nonnegative(replicates=1).errors())


PLACED_KINDS = [
    "places",
    "unlike levels",
    "replaced places",
    "replaced unlike",
    "laplace places",
    "laplace unlike",
    "places by cells",
]


@pytest.mark.parametrize("name", PLACED_KINDS)
@pytest.mark.parametrize("cells", [1, 2_500])
def test_two_releases_by_places_are_their_mean_with_half_the_variance(name, cells, monkeypatch):
    """However many joint cells there are."""
    monkeypatch.setattr(combining, "COMBINED_CELLS", cells)
    both, work = combined(name), planned(name).workload
    np.testing.assert_allclose(both.plan.variances(work), planned(name).variances(work) / 2, rtol=1e-9)
    mean = (measured(name, 1).values() + measured(name, 2).values()) / 2
    np.testing.assert_allclose(both.values(work), mean, atol=1e-9)
    more = rs.combine(both, measured(name, 3))
    np.testing.assert_allclose(more.plan.variances(work), planned(name).variances(work) / 3, rtol=1e-9)


def test_releases_by_places_of_different_data_are_told():
    plan = planned("places")
    nobody = np.zeros((300, 3), dtype=np.int32)
    other = rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=2))
    with pytest.warns(rs.DifferentDataWarning, match="differ more than their noise explains"):
        rs.combine(measured("places", 1), other)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the two releases differ")
        for seed in range(2, 12):
            rs.combine(measured("places", 1), measured("places", seed))


@pytest.mark.parametrize("one", ["places", "unlike levels"])
@pytest.mark.parametrize("two", ["unlike levels", "places by cells"])
def test_releases_by_places_are_combined_as_independent_observations(one, two):
    """Of what both answer, the combination is at least as precise as the mean by precision, and unbiased."""
    both = rs.combine(measured(one, 1), measured(two, 2))
    work = rs.table(PLACED, ["a0", "a1"])
    first, second = (planned(name).variances(work) for name in (one, two))
    assert np.all(both.plan.variances(work) <= 1 / (1 / first + 1 / second) * (1 + 1e-9))
    codes = [np.random.default_rng(at).integers(0, size, 300) for at, size in enumerate(PLACED.sizes)]
    truth = np.bincount(codes[0] * 3 + codes[1], minlength=15)
    off = (both.values(work) - truth) / np.sqrt(both.plan.variances(work))
    assert np.all(np.abs(off) < 5)


@pytest.mark.parametrize("name", ["places", "unlike levels", "replaced places", "replaced unlike"])
def test_what_places_leave_unspent_is_what_their_privacy_matrix_leaves(name):
    plan = planned(name)
    rows, precisions = dense_rows(plan)
    matrix = rows.T @ (rows * precisions[:, None])
    costs = np.diagonal(matrix)
    if plan.unit == REPLACED:
        costs = costs[:, None] + costs[None, :] - 2 * matrix
    left = (costs.max() - costs).reshape(len(matrix), -1).min(axis=1)
    np.testing.assert_allclose(plan.spare().reshape(-1), left, atol=1e-9 * costs.max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("work", TINY_WORKS.values(), ids=TINY_WORKS)
def test_every_method_takes_every_objective_or_says_why_not(method, work):
    for request in (
        {"budget": GAUSS},
        {"budget": GAUSS, "objective": "max_variance"},
        {"targets": rs.stddev(5)},
        {"budget": rs.zcdp(5), "targets": rs.stddev(50)},
        {"budget": rs.zcdp("0.001"), "targets": rs.stddev(1), "relax": True},
        {"budget": GAUSS, "unit": REPLACED},
    ):
        plan = works_or_says_why(lambda request=request: rs.plan(work, method=method, **request))
        if plan is not None:
            assert np.all(plan.variances(work) > 0)
            assert plan.explain()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_laplace_noise_or_says_why_not(method):
    for work in TINY_WORKS.values():
        plan = works_or_says_why(lambda work=work: rs.plan(work, LAPLACE, method=method))
        if plan is not None:
            assert np.all(plan.variances(work) > 0)


@pytest.mark.parametrize("name", ["auto", "combined", "instalments"])
def test_no_method_takes_the_name_of_another(name):
    with pytest.raises(rs.WorkloadError, match="there is a method"):
        rs.register_method(name, methods_for("gaussian")["identity"])
