"""Public facts about places: answers given them against dense least squares with equality constraints."""

import numpy as np
import pytest
from places_twin import dense_queries, dense_rows, hierarchy

import residua as rs
from residua.errors import DataError, Infeasible, WorkloadError

AGES = 3


def some_release(seed: int, *, method: str = "places", which: int = 0) -> tuple[rs.Release, np.ndarray]:
    draw = np.random.default_rng(seed)
    schema = rs.Schema(
        age=rs.Integer(0, AGES - 1), place=hierarchy(draw, 3, 1, 3), sex=rs.Categorical("F", "M")
    )
    work = [
        rs.table(schema, ["age", "sex"]) + rs.levels(schema, "place", ["age", "sex"]),
        rs.table(schema, ["age"])
        + rs.table(schema, {"place.l0": rs.identity, "age": rs.prefix})
        + rs.table(schema, ["sex", "place"]),
        rs.table(schema, ["place.l0", "age"]) + rs.table(schema, ["place"]),
    ][which]
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    codes = np.column_stack([draw.integers(0, size, 400) for size in schema.sizes])
    return rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=seed)), codes


def counted(work: rs.Workload, codes: np.ndarray) -> np.ndarray:
    sizes = work.schema.sizes
    cells = np.bincount(np.ravel_multi_index(tuple(codes.T), sizes), minlength=int(np.prod(sizes)))
    return dense_queries(work) @ cells


def twin(release: rs.Release, asked: np.ndarray, facts: np.ndarray, values: np.ndarray):
    """Estimates and covariance of queries by least squares subject to `facts @ x == values`."""
    rows, precisions = dense_rows(release.plan)
    measured = np.concatenate([own.reshape(-1) for own in release.measurements.values])
    free = np.linalg.svd(facts)[2][np.linalg.matrix_rank(facts) :].T  # of what facts leave open
    start = np.linalg.lstsq(facts, values, rcond=None)[0]
    roots = np.sqrt(precisions)
    inverse = np.linalg.pinv(roots[:, None] * (rows @ free), rcond=1e-10)
    estimate = start + free @ (inverse @ (roots * (measured - rows @ start)))
    half = asked @ free @ inverse
    return asked @ estimate, half @ half.T


def checked(release: rs.Release, facts: list[rs.Fact], fixed: np.ndarray, values: np.ndarray) -> rs.Release:
    """The release given facts, compared with the twin."""
    with pytest.warns(rs.PublicFactWarning, match="taken as exactly true"):
        found = release.with_facts(facts)
    work = release.plan.workload
    estimate, covariance = twin(release, dense_queries(work), fixed, values)
    scale = np.abs(estimate).max()
    assert np.allclose(found.values(), estimate, rtol=1e-9, atol=1e-9 * scale)
    most = release.plan.variances(work).max()
    assert np.allclose(found.plan.variances(work), np.diag(covariance), rtol=1e-8, atol=1e-9 * most)
    assert np.allclose(found.covariance(work, work), covariance, rtol=1e-8, atol=1e-9 * most)
    return found


def level_facts(release: rs.Release, codes: np.ndarray) -> list[rs.Workload]:
    schema = release.plan.schema
    state = schema["place.l0"].label(0)
    return [
        rs.table(schema, []),
        rs.table(schema, ["place.l0"]),
        rs.table(schema, ["place.l1"]),
        rs.table(schema, ["place.l1"], where=f"place.l0 = '{state}'"),
        rs.table(schema, []) + rs.table(schema, ["place.l0"]) + rs.table(schema, ["place.l1"]),
        rs.table(schema, ["place"]),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("fact", range(6))
def test_known_totals_of_places_are_least_squares_with_equality_constraints(which, fact):
    release, codes = some_release(which + 1, which=which)
    work = level_facts(release, codes)[fact]
    values = counted(work, codes)
    found = checked(release, [rs.known(work, values)], dense_queries(work), values)
    assert np.allclose(found.values(work), values, atol=1e-6)
    assert np.allclose(found.plan.variances(work), 0, atol=1e-9)


def test_known_tables_of_places_by_other_attributes_are_kept_too():
    release, codes = some_release(4)
    schema = release.plan.schema
    work = rs.table(schema, ["sex", "place.l1"]) + rs.table(schema, ["age", "sex"])
    values = counted(work, codes)
    checked(release, [rs.known(work, values)], dense_queries(work), values)


@pytest.mark.parametrize("method", ["places", "dense"])
def test_places_where_nobody_can_be_are_zero_without_error(method):
    release, codes = some_release(5, method=method)
    schema = release.plan.schema
    size = schema["place"].size
    empty = [schema["place"].label(at) for at in (0, size // 2, size - 1)]
    quoted = ", ".join(f"'{each}'" for each in empty)
    nowhere = rs.impossible(rs.table(schema, ["place"], where=f"place IN ({quoted})"))
    cells = np.eye(int(np.prod(schema.sizes))).reshape(*schema.sizes, -1)
    fixed = np.concatenate([cells[:, at].reshape(-1, cells.shape[-1]) for at in (0, size // 2, size - 1)])
    states = rs.table(schema, ["place.l0"])
    outside = codes[~np.isin(codes[:, 1], [0, size // 2, size - 1])]
    values = counted(states, outside)
    found = checked(
        release,
        [nowhere, rs.known(states, values)],
        np.concatenate([fixed, dense_queries(states)]),
        np.concatenate([np.zeros(len(fixed)), values]),
    )
    assert np.allclose(found.table("place", "age").values[[0, size // 2, size - 1]], 0)
    assert np.allclose(found.table("place", "age").stddev[[0, size // 2, size - 1]], 0, atol=1e-6)


@pytest.mark.parametrize("method", ["dense", "smasher"])
def test_plans_of_other_methods_are_conditioned_on_a_few_numbers(method):
    release, codes = some_release(6, method=method)
    work = level_facts(release, codes)[4]
    values = counted(work, codes)
    with pytest.warns(rs.PublicFactWarning):
        found = release.with_facts(rs.known(work, values))
    assert np.allclose(found.values(work), values, atol=1e-6)
    assert (
        found.plan.variances(release.plan.workload) <= release.plan.variances(release.plan.workload)
    ).all()


def test_facts_make_no_answer_worse_and_are_told_everywhere(tmp_path):
    release, codes = some_release(7)
    work = level_facts(release, codes)[1]
    with pytest.warns(rs.PublicFactWarning):
        found = release.with_facts(rs.known(work, counted(work, codes)))
    plan = release.plan
    assert (found.plan.variances(plan.workload) <= plan.variances(plan.workload) * (1 + 1e-9)).all()
    assert found.hash == release.hash
    assert "without protection: known: 'place.l0'" in dict(found.facts())["Public facts"]
    assert found.answers().schema.metadata[b"residua.facts"] == b"known: 'place.l0'"
    for refused in (lambda: found.save(tmp_path / "a.release"), lambda: found.report(tmp_path / "a.html")):
        with pytest.raises(DataError, match="release itself"):
            refused()


@pytest.mark.parametrize("method", ["places", "dense"])
def test_facts_that_contradict_each_other_are_refused(method):
    release, codes = some_release(8, method=method)
    schema = release.plan.schema
    states, counties = rs.table(schema, ["place.l0"]), rs.table(schema, ["place.l1"])
    wrong = [rs.known(states, counted(states, codes) + 1), rs.known(counties, counted(counties, codes))]
    with pytest.warns(rs.PublicFactWarning), pytest.raises(DataError, match="contradict"):
        release.with_facts(wrong)


def test_facts_that_are_not_about_places_are_refused_with_the_way_out():
    release, _ = some_release(9)
    schema = release.plan.schema
    place = schema["place"]
    halves = rs.table(schema, place=rs.buckets((place.label(0), place.label(place.size - 1))))
    with pytest.warns(rs.PublicFactWarning), pytest.raises(WorkloadError, match="sets of places"):
        release.with_facts(rs.known(halves, np.zeros(halves.count)))
    nobody = rs.impossible(rs.table(schema, ["age"], where="age = 0"))
    with pytest.warns(rs.PublicFactWarning), pytest.raises(DataError, match="rounded"):
        release.with_facts(nobody)
    with pytest.raises(WorkloadError, match="only tables that ask for every cell, or for the places"):
        rs.known(rs.table(schema, age=rs.prefix), np.zeros(AGES))


def test_too_many_known_numbers_for_other_plans_are_refused(monkeypatch):
    release, codes = some_release(6, method="smasher")
    work = level_facts(release, codes)[4]
    monkeypatch.setattr("residua.answering.given.GIVEN_NUMBERS", 3)
    with pytest.warns(rs.PublicFactWarning), pytest.raises(Infeasible, match="method 'places'"):
        release.with_facts(rs.known(work, counted(work, codes)))
