"""Places whose levels measure different rows: figures, estimates and costs against dense twins."""

from dataclasses import replace

import numpy as np
import pytest
from places_twin import dense_queries, dense_rows, hierarchy, joint_optimum

import residua as rs
from residua.errors import FileFormatError, NotInSpan
from residua.strategy.manifest import refuse_unfit
from residua.strategy.strategy import Strategy
from residua.verify import verify


def regular(*branches: int) -> rs.Hierarchy:
    paths: list[tuple[str, ...]] = [()]
    for count in branches:
        paths = [(*path, f"{'.'.join(path)}.{at}") for path in paths for at in range(count)]
    return rs.Hierarchy(tuple(f"l{at}" for at in range(len(branches))), paths)


def adversarial() -> rs.Hierarchy:
    """States of one place beside one of many."""
    counts = {"0": [1], "1": [1], "2": [12], "3": [1, 1, 1, 1, 30]}
    paths = [
        (state, f"{state}.{county}", f"{state}.{county}.{at}")
        for state, own in counts.items()
        for county, count in enumerate(own)
        for at in range(count)
    ]
    return rs.Hierarchy(("l0", "l1", "l2"), paths)


def schema_of(place: rs.Hierarchy) -> rs.Schema:
    return rs.Schema(age=rs.Integer(0, 3), place=place, sex=rs.Categorical("F", "M", "X"))


FAMILIES = {
    "less and less": (["age:p", "sex:p"], ["age:p", "sex:i"], ["age:b", "sex:i"], ["age:i"]),
    "one after another": (["age:i"], ["sex:i"], ["age:p"], ["age:i"]),
    "nation apart": (["age:p", "sex:i"], ["age:i"], ["age:i"], ["age:p"]),
    "only counts of leaves": ([], ["age:p"], ["age:i", "sex:i"], []),
}
GIVEN = {"p": rs.prefix, "i": rs.identity, "b": rs.buckets(2)}


def tables(schema: rs.Schema, which: str) -> rs.Workload:
    """Different families at the nation and three levels."""
    levels = ("", "place.l0", "place.l1", "place")
    parts = []
    for level, own in zip(levels, FAMILIES[which], strict=True):
        asked = {each[:3]: GIVEN[each[-1]] for each in own} | ({level: rs.identity} if level else {})
        parts.append(rs.table(schema, asked))
    return sum(parts[1:], parts[0])


def some(which: str, seed: int = 1) -> tuple[rs.Workload, rs.Plan]:
    work = tables(schema_of(hierarchy(np.random.default_rng(seed), 3, 1, 3)), which)
    return work, rs.plan(work, rs.privacy_cost(1), method="places")


@pytest.mark.parametrize("which", FAMILIES)
def test_figures_and_estimates_are_those_of_dense_least_squares(which):
    work, plan = some(which)
    assert plan.strategy.by_vectors
    rows, precisions = dense_rows(plan)
    inverse = np.linalg.pinv(rows.T @ (precisions[:, None] * rows), hermitian=True, rcond=1e-12)
    asked = dense_queries(work)
    covariance = asked @ inverse @ asked.T
    assert np.allclose(plan.variances(work), np.diag(covariance), rtol=1e-9)
    scale = np.diag(covariance).max()
    assert np.allclose(plan.covariance(work, work), covariance, rtol=1e-9, atol=1e-9 * scale)
    draw = np.random.default_rng(1)
    codes = np.column_stack([draw.integers(0, size, 300) for size in work.schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    values = np.concatenate([own.reshape(-1) for own in release.measurements.values])
    estimate = asked @ (inverse @ (rows.T @ (precisions * values)))
    assert np.allclose(release.values(work), estimate, rtol=1e-9, atol=1e-9 * np.abs(estimate).max())
    for group in work.groups():
        assert plan.strategy.total(group, weighted=False) == pytest.approx(
            plan.variances(work.select(group.name)).sum()
        )


@pytest.mark.parametrize("which", FAMILIES)
@pytest.mark.parametrize("place", [hierarchy(np.random.default_rng(2), 3, 1, 4), adversarial()])
def test_plans_with_different_families_are_within_a_hundredth_and_so_is_their_bound(which, place):
    work = tables(schema_of(place), which)
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    least = joint_optimum(work)
    assert plan.ideal.rmse <= 1.01 * least
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap <= 0.02
    assert plan.certificate.lower_bound <= least**2 * work.count * 1.0001


@pytest.mark.parametrize("which", FAMILIES)
def test_on_regular_trees_plans_are_the_optimum_of_all_mechanisms(which):
    work = tables(schema_of(regular(2, 3, 4)), which)
    plan = rs.plan(work, rs.privacy_cost(1), method="places", gap=1e-4)
    assert plan.ideal.rmse <= 1.0002 * joint_optimum(work)


@pytest.mark.parametrize("which", FAMILIES)
def test_the_dearest_record_costs_what_the_plan_states(which):
    _, plan = some(which, seed=3)
    rows, precisions = dense_rows(plan)
    assert 0.999 <= (precisions @ rows**2).max() <= 1 + 1e-9


def test_replacing_a_record_costs_no_more_than_the_plan_states():
    work = tables(schema_of(hierarchy(np.random.default_rng(4), 3, 1, 3)), "one after another")
    plan = rs.plan(work, rs.privacy_cost(1), unit=rs.Unit(neighbours="replace_one"), method="places")
    rows, precisions = dense_rows(plan)
    X = rows.T @ (precisions[:, None] * rows)
    assert 0.7 <= (np.diag(X)[:, None] + np.diag(X) - 2 * X).max() <= 1 + 1e-9


def test_other_sets_of_places_are_answered_and_what_leaves_do_not_tell_is_refused():
    work, plan = some("less and less")
    schema = work.schema
    sets = rs.linear(schema, ["place"], np.random.default_rng(0).integers(-2, 3, (5, schema["place"].size)))
    rows, precisions = dense_rows(plan)
    inverse = np.linalg.pinv(rows.T @ (precisions[:, None] * rows), hermitian=True, rcond=1e-12)
    asked = dense_queries(sets)
    assert np.allclose(plan.variances(sets), np.diag(asked @ inverse @ asked.T), rtol=1e-9)
    both = asked @ inverse @ dense_queries(work).T
    assert np.allclose(plan.covariance(sets, work), both, rtol=1e-9, atol=1e-9 * np.abs(both).max())
    counts = some("only counts of leaves")[1]
    codes = np.zeros((3, 3), dtype=np.int64)
    release = rs.measure(counts, codes, ledger=None, noise=rs.simulated(seed=1))
    for ask in (counts.variances, release.values):
        with pytest.raises(NotInSpan, match="smaller places"):
            ask(rs.table(schema, ["place", "sex"]))


def test_attributes_that_are_not_measured_are_refused():
    schema = rs.Schema(
        age=rs.Integer(0, 3), place=hierarchy(np.random.default_rng(1), 3, 1, 3), sex=rs.Categorical("F", "M")
    )
    work = rs.table(schema, {"place.l0": rs.identity, "age": rs.prefix}) + rs.table(schema, ["place", "age"])
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    assert plan.strategy.by_vectors
    with pytest.raises(NotInSpan, match="not measured"):
        plan.variances(rs.table(schema, ["place", "sex"]))


def test_plans_and_releases_survive_their_files(tmp_path):
    work = tables(schema_of(hierarchy(np.random.default_rng(8), 3, 1, 3)), "less and less")
    plan = rs.plan(work, rs.zcdp("0.1"), method="places")
    codes = np.column_stack([np.random.default_rng(1).integers(0, size, 50) for size in work.schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    release.save(tmp_path / "a.release")
    assert not verify(tmp_path / "a.release").false
    again = rs.Release.load(tmp_path / "a.release")
    assert np.array_equal(again.values(), release.values())
    joint = release.table("place.l0", "sex", "age")
    assert joint.values.sum() == pytest.approx(release.table("age").values.sum())


def test_levels_that_measure_different_pieces_are_no_plan():
    _, plan = some("one after another")
    strategy = plan.strategy
    layers = [*strategy.layers, replace(strategy.layers[0], within=None, domain=0)]
    forged = Strategy(strategy.domains, strategy.shapes, tuple(layers), strategy.law, strategy.grain)
    with pytest.raises(FileFormatError, match="different things"):
        refuse_unfit(forged, plan.schema.sizes)


def test_noise_that_leaves_nothing_to_tell_is_refused_in_words():
    work, plan = some("one after another")
    far = tuple(replace(layer, noise=np.full_like(layer.noise, np.inf)) for layer in plan.strategy.layers)
    with pytest.raises(NotInSpan, match="noise so unequal"):
        replace(plan.strategy, layers=far).variances(next(iter(work.groups())))
