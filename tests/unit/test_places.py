"""Blocks within places: figures, estimates and costs against dense twins, plans against the optimum."""

import io
from itertools import product

import numpy as np
import pytest
from places_twin import (
    UNEVEN,
    dense_queries,
    dense_rows,
    excess,
    hierarchy,
    joint_optimum,
    places_of,
    weighed,
)
from pyarrow import parquet

import residua as rs
from residua.errors import DataError, Infeasible, NotInSpan, WorkloadError
from residua.linalg.trees import Nest
from residua.methods.placed import by_half
from residua.strategy.strategy import batches_of
from residua.verify import verify


def some_schema(seed: int, levels: int = 3, most: int = 4) -> rs.Schema:
    draw = np.random.default_rng(seed)
    return rs.Schema(
        age=rs.Integer(0, 3), place=hierarchy(draw, levels, 1, most), sex=rs.Categorical("F", "M", "X")
    )


def tables(schema: rs.Schema) -> list[rs.Workload]:
    """Workloads that ask different families at different levels, skip levels and ask some states only."""
    one = rs.table(schema, ["age", "sex"]) + rs.levels(schema, "place", ["age", "sex"])
    two = rs.table(schema, {"place.l0": rs.identity, "age": rs.prefix}) + rs.table(schema, ["sex", "place"])
    three = rs.levels(schema, "place", {"age": rs.prefix}) + rs.table(schema, ["place.l1", "sex"])
    some = schema["place.l0"].label(0)
    four = rs.table(schema, ["place.l1", "age"], where=f"place.l0 = '{some}'") + rs.table(schema, ["place"])
    return [one, two, three, four]


@pytest.mark.parametrize(("seed", "which"), list(product([1, 2], range(4))))
def test_figures_and_estimates_are_those_of_dense_least_squares(seed, which):
    schema = some_schema(seed)
    work = tables(schema)[which]
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    rows, precisions = dense_rows(plan)
    X = rows.T @ (precisions[:, None] * rows)
    inverse = np.linalg.pinv(X, hermitian=True, rcond=1e-12)
    asked = dense_queries(work)
    covariance = asked @ inverse @ asked.T
    assert np.allclose(plan.variances(work), np.diag(covariance), rtol=1e-9)
    assert np.allclose(
        plan.covariance(work, work), covariance, rtol=1e-9, atol=1e-9 * np.diag(covariance).max()
    )
    draw = np.random.default_rng(seed)
    codes = np.column_stack([draw.integers(0, size, 300) for size in schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=seed))
    values = np.concatenate([own.reshape(-1) for own in release.measurements.values])
    estimate = inverse @ (rows.T @ (precisions * values))
    scale = np.abs(asked @ estimate).max()
    assert np.allclose(release.values(work), asked @ estimate, rtol=1e-9, atol=1e-9 * scale)
    for group in work.groups():
        assert plan.strategy.total(group, weighted=False) == pytest.approx(
            plan.strategy.variances(group).sum()
        )


def test_other_sets_of_places_are_answered_and_smaller_ones_refused():
    schema = some_schema(3)
    plan = rs.plan(rs.levels(schema, "place", ["age"]), rs.privacy_cost(1), method="places")
    size = schema["place"].size
    draw = np.random.default_rng(0)
    sets = rs.linear(schema, ["place", "age"], draw.integers(-2, 3, (5, 4 * size)))
    with pytest.raises(NotInSpan, match="ties places"):
        plan.variances(sets)
    sets = rs.linear(schema, ["place"], draw.integers(-2, 3, (5, size)))
    rows, precisions = dense_rows(plan)
    inverse = np.linalg.pinv(rows.T @ (precisions[:, None] * rows), hermitian=True, rcond=1e-12)
    asked = dense_queries(sets)
    assert np.allclose(plan.variances(sets), np.diag(asked @ inverse @ asked.T), rtol=1e-9)
    coarse = rs.plan(
        rs.levels(schema, "place", ["age"]).select("place.l0 x age") + rs.table(schema, []),
        rs.privacy_cost(1),
        method="places",
    )
    with pytest.raises(NotInSpan, match="smaller places"):
        coarse.variances(rs.table(schema, ["place"]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_plans_of_counts_are_within_a_thousandth_of_the_least_rmse_of_all_mechanisms(seed):
    schema = rs.Schema(place=hierarchy(np.random.default_rng(seed), 3, 1, 5))
    work = rs.table(schema, []) + rs.levels(schema, "place")
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    assert plan.ideal.rmse <= 1.001 * joint_optimum(work)
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap <= 0.01


@pytest.mark.parametrize(
    "which", ["one large", "large beside small", "powers of two at two levels", "chains"]
)
@pytest.mark.parametrize("weights", [(1,) * 5, (100, 30, 5, 1, 0.3)])
def test_plans_of_counts_on_uneven_trees_are_within_a_thousandth_of_the_least_rmse(which, weights):
    assert excess(weighed(rs.Schema(place=places_of(UNEVEN[which])), [], weights)) <= 1e-3


def test_plans_on_uneven_trees_with_other_attributes_are_within_a_thousandth_of_the_least_rmse():
    schema = rs.Schema(place=places_of([[1], [1], [12], [1, 1, 20]]), sex=rs.Categorical("F", "M", "X"))
    assert excess(weighed(schema, ["sex"], (100, 30, 5, 1))) <= 1.5e-3


def test_siblings_are_in_two_groups_with_about_half_of_the_leaves():
    place = places_of([[1, 2, 4], [3, 3], [1, 1, 5]])
    tree = Nest.of([place.level_of(level) for level in place.levels]).tree
    assert by_half(tree, 0).tolist() == [1, 0, 1]
    assert by_half(tree, 1).tolist() == [0, 0, 1, 2, 2, 3, 3, 4]
    assert by_half(tree, 2).tolist() == np.repeat(np.arange(8), [1, 2, 4, 3, 3, 1, 1, 5]).tolist()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("family", [rs.identity, rs.prefix, rs.buckets(2)])
def test_plans_with_the_same_families_at_all_levels_are_within_a_two_hundredth(seed, family):
    schema = some_schema(seed, most=3)
    work = rs.table(schema, age=family, sex=rs.identity) + rs.levels(
        schema, "place", {"age": family, "sex": rs.identity}
    )
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    assert plan.ideal.rmse <= 1.005 * joint_optimum(work)


@pytest.mark.parametrize("which", range(4))
def test_bounds_hold_for_the_optimum_of_all_mechanisms(which):
    schema = some_schema(10, most=3)
    work = tables(schema)[which]
    plan = rs.plan(work, rs.privacy_cost(1), method="places")
    optimum = rs.plan(work, rs.privacy_cost(1), method="dense", gap=1e-5).certificate.lower_bound
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.lower_bound <= optimum * 1.0001


def test_no_record_costs_more_than_the_plan_states_and_the_dearest_costs_it():
    schema = some_schema(4)
    for work in tables(schema):
        plan = rs.plan(work, rs.privacy_cost(1), method="places")
        rows, precisions = dense_rows(plan)
        assert (precisions @ rows**2).max() <= 1 + 1e-9
        assert (precisions @ rows**2).max() >= 0.97


@pytest.mark.parametrize("which", range(4))
def test_replacing_a_record_costs_no_more_than_the_plan_states(which):
    schema = some_schema(5, most=3)
    work = tables(schema)[which]
    plan = rs.plan(work, rs.privacy_cost(1), unit=rs.Unit(neighbours="replace_one"), method="places")
    rows, precisions = dense_rows(plan)
    X = rows.T @ (precisions[:, None] * rows)
    pairs = np.diag(X)[:, None] + np.diag(X) - 2 * X
    assert 0.8 <= pairs.max() <= 1 + 1e-9


def test_counts_of_places_replaced_cost_exactly_the_dearest_pair_of_paths():
    schema = rs.Schema(place=hierarchy(np.random.default_rng(7), 3, 1, 4))
    work = rs.table(schema, []) + rs.levels(schema, "place")
    plan = rs.plan(work, rs.privacy_cost(1), unit=rs.Unit(neighbours="replace_one"), method="places")
    rows, precisions = dense_rows(plan)
    X = rows.T @ (precisions[:, None] * rows)
    assert (np.diag(X)[:, None] + np.diag(X) - 2 * X).max() == pytest.approx(1, rel=1e-6)


def test_a_plan_says_what_its_release_takes():
    schema = some_schema(6)
    plan = rs.plan(tables(schema)[0], rs.privacy_cost(1), method="places")
    numbers = sum(len(batch.subsets) * batch.rows for batch in plan.batches)
    assert f"{numbers:,} numbers in all: a release is a file of about 1 MB" in plan.explain()
    assert "all places together: " in plan.explain()


def test_every_block_measures_within_its_place():
    schema = some_schema(6)
    plan = rs.plan(tables(schema)[0], rs.privacy_cost(1), method="places")
    within = [batch for batch in batches_of(plan.strategy) if batch.within is not None]
    assert {len(batch.subsets) for batch in within} == {*schema["place"].level_sizes}


def test_plans_and_releases_survive_their_files(tmp_path):
    schema = some_schema(8)
    work = tables(schema)[2]
    plan = rs.plan(work, rs.zcdp("0.1"), method="places")
    codes = np.column_stack([np.random.default_rng(1).integers(0, size, 50) for size in schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    release.save(tmp_path / "a.release")
    assert not verify(tmp_path / "a.release").false
    again = rs.Release.load(tmp_path / "a.release")
    assert again.hash == release.hash
    assert np.array_equal(again.values(), release.values())


def test_tables_that_ask_no_levels_are_no_work_for_places():
    schema = some_schema(9)
    for work in (rs.table(schema, ["age"]), rs.table(schema, {"place": rs.prefix})):
        with pytest.raises(Infeasible, match="method 'places' is for tables that ask for the places"):
            rs.plan(work, rs.privacy_cost(1), method="places")


def test_answers_in_parts_are_all_answers(tmp_path):
    schema = some_schema(11)
    work = rs.table(schema, ["sex"]) + rs.levels(schema, "place", ["sex"])
    plan = rs.plan(work, rs.zcdp("0.1"), method="places")
    codes = np.column_stack([np.random.default_rng(1).integers(0, size, 50) for size in schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    release.write_answers(tmp_path / "answers", by="place.l0")
    parts = sorted(path.parent.name for path in (tmp_path / "answers").glob("*/answers.parquet"))
    assert parts == sorted(f"place.l0={label}" for label in ("all", *schema["place.l0"].labels()))
    found = [
        row for path in (tmp_path / "answers").glob("*/*") for row in parquet.read_table(path).to_pylist()
    ]
    figures = sorted((row["table"], row["query"], row["value"], row["stddev"]) for row in found)
    whole = sorted(
        (row["table"], row["query"], row["value"], row["stddev"]) for row in release.answers().to_pylist()
    )
    assert [row[:2] for row in figures] == [row[:2] for row in whole]
    assert np.allclose([row[2:] for row in figures], [row[2:] for row in whole])
    with pytest.raises(DataError, match="is there already"):
        release.write_answers(tmp_path / "answers", by="place.l0")
    with pytest.raises(WorkloadError, match="written to a folder"):
        release.write_answers(io.BytesIO(), by="place.l0")


TARGETS = {"states": rs.stddev(5), "counties": rs.stddev(20), "tracts": rs.stddev(60)}


def levelled(schema: rs.Schema, *others: str) -> rs.Workload:
    names = {"states": "place.l0", "counties": "place.l1", "tracts": "place"}
    parts = [rs.table(schema, [level, *others], name=name) for name, level in names.items()]
    return sum(parts[1:], parts[0])


@pytest.mark.parametrize("others", [(), ("sex",)])
def test_targets_for_levels_are_met_at_hardly_more_than_the_least_cost_of_all_mechanisms(others):
    work = levelled(some_schema(12), *others)
    plan = rs.plan(work, targets=TARGETS, method="places")
    least = rs.plan(work, targets=TARGETS, method="dense").targets.least
    assert plan.strategy.nested
    for name, target in TARGETS.items():
        assert plan.variances(work.select(name)).max() <= float(target.variances) * (1 + 1e-9)
    cost = float(plan.budget.gaussian_cost())
    assert least * (1 - 1e-4) <= cost <= least * 1.01
    assert plan.targets.least <= least * (1 + 1e-4)
    assert max(line.ratio for line in plan.targets.met) == pytest.approx(1, abs=1e-3)


def test_targets_on_queries_that_differ_are_met_too():
    schema = some_schema(13)
    work = rs.table(schema, {"place.l0": rs.identity, "age": rs.prefix}, name="states")
    work += rs.table(schema, ["place.l1", "sex"], name="counties") + rs.table(
        schema, ["place"], name="tracts"
    )
    plan = rs.plan(work, targets=TARGETS, method="places")
    assert max(line.ratio for line in plan.targets.met) <= 1
    assert plan.certificate.scope == "this block structure"
    assert plan.certificate.gap <= 0.05


def test_the_largest_variance_of_places_is_near_the_least():
    work = levelled(some_schema(14))
    plan = rs.plan(work, rs.privacy_cost(1), objective="max_variance", method="places")
    best = rs.plan(work, rs.privacy_cost(1), objective="max_variance", method="dense")
    largest = [max(line.max_stddev for line in each.summary()) for each in (plan, best)]
    assert largest[0] <= 1.05 * largest[1]


def test_targets_for_each_query_are_left_to_other_methods():
    schema = some_schema(15)
    work = rs.table(schema, ["place.l0"], name="states")
    each = {"states": rs.stddev(np.arange(1.0, 1.0 + work.count))}
    with pytest.raises(Infeasible, match="for each query"):
        rs.plan(work, targets=each, method="places")
    assert max(line.ratio for line in rs.plan(work, targets=each).targets.met) <= 1


def two_hierarchies() -> rs.Schema:
    jobs = rs.Hierarchy(("group", "job"), [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("b", "b3")])
    place = hierarchy(np.random.default_rng(3), 3, 1, 3)
    return rs.Schema(place=place, job=jobs, sex=rs.Categorical("F", "M"))


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_two_hierarchies_in_one_schema_are_planned_and_cost_exactly_what_is_stated(neighbours):
    schema = two_hierarchies()
    work = rs.levels(schema, "place", ["job.group"]) + rs.table(schema, ["place.l0", "job"])
    work = work + rs.table(schema, ["job", "sex"]) + rs.table(schema, ["place"])
    plan = rs.plan(work, rs.privacy_cost(1), unit=rs.Unit(neighbours=neighbours), method="places")
    rows, precisions = dense_rows(plan)
    X = rows.T @ (precisions[:, None] * rows)
    inverse = np.linalg.pinv(X, hermitian=True, rcond=1e-12)
    asked = dense_queries(work)
    assert np.allclose(plan.variances(work), np.diag(asked @ inverse @ asked.T), rtol=1e-9)
    pairs = np.diag(X)[:, None] + np.diag(X) - 2 * X
    dearest = pairs.max() if neighbours == "replace_one" else np.diag(X).max()
    assert dearest == pytest.approx(1, rel=1e-6)
    if neighbours != "replace_one":
        assert plan.ideal.rmse <= 1.005 * joint_optimum(work)
