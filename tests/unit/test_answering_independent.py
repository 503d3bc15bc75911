"""Answers from independent blocks: runs of tables at once, spans and refusals, largest variances."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.answering.independent import answerer
from residua.decompose import decompose
from residua.linalg.matrices import Measure
from residua.methods.blocks import Optimal, querysmasher, solve_blocks
from residua.methods.registry import fourier, residualplanner_plus
from residua.privacy.unit import Person
from residua.strategy.format_1 import strategy_of_format_1
from residua.strategy.manifest import strategy_from_manifest
from residua.strategy.rounding import record_cost
from residua.strategy.strategy import Strategy
from residua.strategy.words import described
from residua.workload import Table, TableRun

REPLACED = Person(rs.Unit(neighbours="replace_one"))

ONE = rs.privacy_cost(1)
SCHEMA = rs.Schema(
    age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"), place=rs.Integer(0, 2), month=rs.Integer(0, 3)
)


def strategy_for(work: rs.Workload) -> Strategy:
    return querysmasher(work, 1e-4).strategy


def totals_by_table(strategy: Strategy, part: Table | TableRun) -> tuple[float, float]:
    tables = list(part) if isinstance(part, TableRun) else [part]
    weighted, plain = ([strategy.total(each, weighted=w) for each in tables] for w in (True, False))
    return sum(weighted), sum(plain)


# --- runs of tables ----------------------------------------------------------------------------------------


MANY = rs.Schema.of_sizes([3, 2, 4, 3, 2, 1, 5])
RUNS = {
    "prefix": rs.all_tables(MANY, (1, 2, 3), rs.prefix),
    "marginals": rs.marginals(MANY, up_to=3),
    "by kind": rs.all_tables(
        rs.Schema(
            a=rs.Integer(0, 3),
            b=rs.Categorical("x", "y"),
            c=rs.Integer(0, 3),
            d=rs.Categorical("u", "v", "w"),
        ),
        (1, 2, 3),
        numeric=rs.ranges,
        categorical=rs.identity,
    ),
    "reversed": rs.all_tables(MANY, 2, rs.ranges, attributes=["a6", "a4", "a2", "a0"]),
    "on joint layers": rs.all_tables(MANY, (1, 2), rs.prefix) + 3.0 * rs.all_tables(MANY, 2, rs.affine),
    "two families": rs.all_tables(MANY, 2, rs.prefix) + 0.5 * rs.all_tables(MANY, 2, rs.circular),
    "some of each": rs.marginals(MANY, ways=2, attributes=["a0", "a1", "a2"])
    + rs.table(MANY, {("a0", "a2"): rs.abs_diff, "a1": rs.prefix})
    + rs.table(MANY, a0=rs.total, a6=rs.identity),
}


@pytest.mark.parametrize("method", [querysmasher, fourier, residualplanner_plus])
@pytest.mark.parametrize("name", RUNS)
def test_the_totals_of_a_run_are_the_sums_over_its_tables(name, method):
    work = RUNS[name]
    strategy = method(work, 1e-4).strategy
    for part in work.parts:
        assert strategy.totals(part) == pytest.approx(totals_by_table(strategy, part), rel=1e-10)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_not_planned_is_answered_from_what_was(name):
    """Totals of runs of other families, where the plan's blocks answer them."""
    work = RUNS[name]
    strategy = strategy_for(work)
    width = 1 if name == "some of each" else 2
    names = ["a0", "a1", "a2"] if name == "some of each" else None
    names = ["a0", "a2", "a4", "a6"] if name == "reversed" else names
    other = rs.all_tables(work.schema, range(width + 1), rs.ranges, attributes=names)
    for part in other.parts:
        assert isinstance(part, TableRun)
        assert strategy.totals(part) == pytest.approx(totals_by_table(strategy, part), rel=1e-10)


def test_the_sum_of_a_run_and_its_least_accurate_table_are_worked_out_together(monkeypatch):
    work = rs.marginals(rs.Schema.of_sizes([2, 3, 4, 5]), up_to=2)
    plan = rs.plan(work, rs.privacy_cost(1), objective="max_variance")
    monkeypatch.setattr(answerer._RunTotal, "by_table", None)  # what is known is not worked out again
    assert plan.max_variance == max(plan.strategy.variances(group).max() for group in work.groups())
    with pytest.raises(TypeError):
        plan.strategy.totals(rs.marginals(work.schema, ways=2).parts[0])


def test_five_hundred_million_queries_are_summed_up_without_being_listed(monkeypatch):
    calls = []
    find = answerer.largest_of

    def counted(*arguments: object) -> float:
        calls.append(1)
        return find(*arguments)

    monkeypatch.setattr(answerer, "largest_of", counted)
    work = rs.all_tables(rs.Schema.of_sizes([40] * 40), (1, 2), rs.ranges)
    plan = rs.plan(work, ONE, method="querysmasher")
    rows = plan.summary()
    assert work.count == 524_504_800
    assert len(rows) == 820
    assert sum(calls) == 2  # one table of each number of attributes; the others are like them
    assert math.fsum(row.queries * row.rmse**2 for row in rows) == pytest.approx(
        plan.total_variance, rel=1e-9
    )
    assert max(row.max_stddev for row in rows) ** 2 == pytest.approx(plan.max_variance, rel=1e-12)


# --- what is in the span -----------------------------------------------------------------------------------


def test_sub_marginals_and_sums_of_what_is_planned_are_answered():
    plan = rs.plan(rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}), ONE, method="querysmasher")
    cells = rs.table(SCHEMA, ["age", "sex"])
    square = plan.covariance(cells, cells)
    ranges = rs.table(SCHEMA, {"sex": rs.identity, "age": rs.ranges})
    (group,) = ranges.groups()
    rows = np.kron(np.eye(2), group.factors[1].queries.matrix())
    turned = square.reshape(5, 2, 5, 2).transpose(1, 0, 3, 2).reshape(10, 10)
    np.testing.assert_allclose(plan.variances(ranges), np.sum((rows @ turned) * rows, axis=1), rtol=1e-10)
    ages = square.reshape(5, 2, 5, 2).sum(axis=(1, 3))
    np.testing.assert_allclose(plan.variances(rs.table(SCHEMA, ["age"])), np.diagonal(ages), rtol=1e-10)
    np.testing.assert_allclose(plan.variances(rs.table(SCHEMA)), square.sum(), rtol=1e-10)
    other = rs.table(SCHEMA, {"sex": rs.identity, "place": rs.total, ("month", "age"): rs.abs_diff})
    with pytest.raises(rs.NotInSpan, match="'month'"):
        plan.variances(other)


PAIRS = rs.plan(rs.marginals(SCHEMA, ways=2), ONE, method="querysmasher")
AFFINE = rs.plan(rs.table(SCHEMA, {("age", "month"): rs.affine}), ONE, method="querysmasher")
REFUSED = {
    "three attributes": (PAIRS, rs.table(SCHEMA, ["place", "age", "sex"], name="T"), "'age', 'sex', 'place'"),
    "part of a joint block": (AFFINE, rs.table(SCHEMA, ["age", "month"], name="T"), "'age', 'month'"),
    "an attribute left out": (AFFINE, rs.table(SCHEMA, ["sex"], name="T"), r"\(attribute 'sex'\)"),
    "another family": (AFFINE, rs.table(SCHEMA, {("age", "month"): rs.abs_diff}, name="T"), "'age', 'month'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_outside_the_span_is_refused_with_the_names_of_table_and_attributes(name):
    plan, work, attributes = REFUSED[name]
    words = f"table 'T' asks .* add the table to the workload before planning .*{attributes}"
    with pytest.raises(rs.NotInSpan, match=words):
        plan.variances(work)
    with pytest.raises(rs.NotInSpan, match=words):
        plan.summary(work)
    with pytest.raises(rs.NotInSpan, match=words):
        list(plan.iter_variances(work))
    with pytest.raises(rs.NotInSpan, match=words):
        plan.covariance(plan.workload, work)


def test_a_run_outside_the_span_is_refused_with_the_name_of_the_first_such_table():
    work = rs.marginals(SCHEMA, ways=3, attributes=["sex", "place", "month"])
    with pytest.raises(
        rs.NotInSpan, match="table 'sex x place x month' asks about attributes together"
    ) as caught:
        PAIRS.strategy.totals(work.parts[0])
    assert caught.value.attributes == (1, 2, 3)
    prefix = rs.all_tables(SCHEMA, 2, rs.prefix, attributes=["month", "age"], name="both")
    with pytest.raises(rs.NotInSpan, match="table 'both' asks for more than the plan measures") as caught:
        AFFINE.strategy.totals(prefix.parts[0])
    assert caught.value.attributes == (0, 3)


def test_a_release_refuses_with_the_same_words():
    codes = np.zeros((10, 4), dtype=np.int64)
    release = rs.measure(PAIRS, codes, ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(rs.NotInSpan, match="attributes 'age', 'sex', 'place'"):
        release.values(rs.table(SCHEMA, ["place", "age", "sex"]))
    with pytest.raises(rs.NotInSpan, match="attributes 'age', 'sex', 'place'"):
        release.table("place", "age", "sex")


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
@pytest.mark.parametrize("distance", [1e-2, 2e-4, 2e-5])
def test_a_query_a_little_outside_the_span_is_refused(distance, method):
    plan = rs.plan(rs.linear(SCHEMA, ["age"], [[1, 1, 0, 0, 0]]), ONE, method=method)
    with pytest.raises(rs.NotInSpan, match="table 'age'"):
        plan.variances(rs.linear(SCHEMA, ["age"], [[1, 1, distance, 0, 0]]))
    many = np.tile([[1.0, 1.0, 0.0, 0.0, 0.0]], (2_000, 1))
    many[-1, 2] = distance
    with pytest.raises(rs.NotInSpan, match="table 'age'"):
        plan.variances(rs.linear(SCHEMA, ["age"], many))


def test_a_block_that_a_table_asks_nothing_of_cannot_refuse_it():
    """Both tables are planned; the first one's block on sex and month is less than affine asks of month."""
    work = rs.table(SCHEMA, {("age", "sex"): rs.affine, "month": rs.width(2)})
    work = work + 0.01 * rs.table(SCHEMA, {("age", "month"): rs.affine, "sex": rs.total})
    strategy = strategy_for(work)
    for group in work.groups():
        assert np.isfinite(strategy.variances(group)).all()
    with_total = rs.all_tables(
        SCHEMA, 2, numeric=rs.prefix, categorical=rs.total, attributes=["month", "sex"]
    )
    planned = strategy_for(
        rs.table(SCHEMA, ["month"]) + rs.table(SCHEMA, {"month": rs.width(3), "sex": rs.identity})
    )
    assert planned.totals(with_total.parts[0]) == pytest.approx(
        planned.totals(rs.table(SCHEMA, {"month": rs.prefix}).parts[0]), rel=1e-12
    )


def test_almost_constant_queries_are_answered_by_their_own_plan():
    rows = np.ones((3, 5)) + 1e-9 * np.outer([1, 2, 3], [1, -1, 0, 0, 0])
    work = rs.linear(SCHEMA, ["age"], rows)
    (group,) = work.groups()
    assert np.isfinite(strategy_for(work).variances(group)).all()


def test_under_another_measure_the_span_is_the_same():
    generator = np.random.default_rng(8)
    tilted = [Measure.of(generator.dirichlet(np.ones(size))) for size in SCHEMA.sizes]
    work = rs.all_tables(SCHEMA, (1, 2), rs.prefix)
    strategy = solve_blocks(decompose(work, tilted), SCHEMA.sizes, Optimal(), 1e-4).strategy
    for part in rs.all_tables(SCHEMA, (0, 1, 2), rs.ranges).parts:
        assert strategy.totals(part) == pytest.approx(totals_by_table(strategy, part), rel=1e-10)
    with pytest.raises(rs.NotInSpan):
        strategy.totals(rs.marginals(SCHEMA, ways=3).parts[0])


# --- the largest variance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_no_column_left_out_can_be_the_largest(seed):
    generator = np.random.default_rng(seed)
    figures = [generator.integers(0, 6, (3, 25)) / 4.0, generator.random((3, 40))]
    chosen = [answerer._undominated(each) for each in figures]
    for _ in range(20):
        noise = generator.random(3)
        whole = np.einsum("k,ki,kj->ij", noise, *figures)
        part = np.einsum(
            "k,ki,kj->ij", noise, *(each[:, at] for each, at in zip(figures, chosen, strict=True))
        )
        assert part.max() == pytest.approx(whole.max(), rel=1e-12)


def test_columns_that_differ_by_rounding_are_one():
    figures = np.ones((2, 1000)) + 1e-15 * np.random.default_rng(1).normal(size=(2, 1000))
    assert len(answerer._undominated(figures)) == 1


def test_columns_of_zeros_are_no_obstacle():
    assert len(answerer._undominated(np.zeros((2, 5)))) == 1
    assert answerer._undominated(np.array([[0.0, 0.0], [1.0, 2.0]])).tolist() == [1]


def test_the_largest_of_too_many_candidates_is_not_known(monkeypatch):
    strategy = strategy_for(rs.all_tables(SCHEMA, (1, 2), rs.ranges))
    (group,) = rs.table(SCHEMA, {"age": rs.ranges, "month": rs.ranges}).groups()
    assert strategy.largest(group) == pytest.approx(strategy.variances(group).max(), rel=1e-12)
    monkeypatch.setattr(answerer, "LISTED_QUERIES", 0)
    choosing = strategy_for(rs.all_tables(SCHEMA, (1, 2), rs.ranges))
    assert choosing.largest(group) == pytest.approx(strategy.variances(group).max(), rel=1e-12)
    monkeypatch.setattr(answerer, "COMBINED_CANDIDATES", 0)
    fresh = strategy_for(rs.all_tables(SCHEMA, (1, 2), rs.ranges))
    assert math.isnan(fresh.largest(group))


def test_the_largest_of_a_family_that_cannot_be_listed_is_not_known():
    schema = rs.Schema.of_sizes([30, 2])
    plan = rs.plan(rs.table(schema, {"a0": rs.predicates, "a1": rs.identity}), ONE, method="querysmasher")
    assert math.isnan(plan.max_variance)
    (row,) = plan.summary()
    assert math.isnan(row.max_stddev)
    assert row.rmse == pytest.approx(plan.rmse, rel=1e-12)
    with pytest.raises(rs.WorkloadError, match="too many"):
        plan.variances(plan.workload)


# --- the rest of what a strategy says ----------------------------------------------------------------------


def test_scaling_divides_every_variance_and_multiplies_the_cost():
    strategy = strategy_for(RUNS["on joint layers"])
    twice = strategy.scaled(2.0)
    assert twice.cost() == pytest.approx(2 * strategy.cost(), rel=1e-12)
    assert record_cost(twice, REPLACED) == pytest.approx(2 * record_cost(strategy, REPLACED), rel=1e-12)
    for group in list(RUNS["on joint layers"].groups())[::5]:
        np.testing.assert_allclose(2 * twice.variances(group), strategy.variances(group), rtol=1e-12)


def test_the_total_alone_costs_nothing_to_replace_a_record():
    assert record_cost(strategy_for(rs.table(SCHEMA)), REPLACED) == 0
    assert record_cost(strategy_for(rs.table(SCHEMA, ["sex"])), REPLACED) > 0


def test_a_covariance_too_large_to_hold_is_refused_by_name():
    schema = rs.Schema.of_sizes([80, 50])
    work = rs.table(schema, ["a0", "a1"], name="big")
    plan = rs.plan(work, ONE, method="querysmasher")
    with pytest.raises(rs.WorkloadError, match="'big' and 'big' has 16,000,000 entries"):
        plan.covariance(work, work)


def test_a_description_shares_out_the_privacy():
    lines = list(described(strategy_for(RUNS["marginals"])))
    assert lines[0].startswith("the number of records: ")
    assert lines[1].startswith("6 blocks on 1 attribute: ")
    assert lines[2].startswith("15 blocks on 2 attributes: ")
    shares = [float(line.rsplit(" ", 5)[-5].rstrip("%")) for line in lines]
    assert sum(shares) == pytest.approx(100, abs=0.3)


def test_a_tilted_strategy_comes_back_from_its_manifest():
    generator = np.random.default_rng(9)
    tilted = [Measure.whole(generator.integers(1, 9, size).tolist()) for size in SCHEMA.sizes]
    work = rs.all_tables(SCHEMA, 1, rs.prefix) + rs.all_tables(SCHEMA, 2, rs.affine)
    strategy = solve_blocks(decompose(work, tilted), SCHEMA.sizes, Optimal(), 1e-4).strategy
    arrays: dict[str, NDArray[np.float64]] = {}
    back = strategy_from_manifest(strategy.to_manifest(arrays), arrays)
    assert back.cost() == strategy.cost()
    for group in work.groups():
        np.testing.assert_array_equal(back.variances(group), strategy.variances(group))


def test_a_record_of_another_kind_is_refused():
    with pytest.raises(rs.FileFormatError, match="no strategy of kind 'waves'"):
        strategy_of_format_1({"kind": "waves"}, {}, ())
