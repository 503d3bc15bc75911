"""Integer plans: exactly what is asked, at exactly the cost that is stated, with hardly more error.

Exact arithmetic throughout: whole numbers, fractions and flint's integer matrices, none of it shared with
the code that makes the plans.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpz_mat
from separate import separate_cost

import residua as rs
from residua.decompose import decompose
from residua.errors import Infeasible
from residua.kernel.cost import added_cost
from residua.kernel.measurement import matrix_cost
from residua.linalg.matrices import Measure, project
from residua.methods.blocks import Optimal, solve_blocks
from residua.strategy import build, integers, rounding
from residua.strategy.build import centred_span, integer_span, product_span, whole_span
from residua.strategy.integers import (
    balanced,
    balanced_columns,
    balanced_within,
    centred_rows,
    combined_rows,
    completed,
    enough_bits,
    has_rank,
    independent_integers,
    rounded_rows,
    short_basis,
)
from residua.strategy.rounding import contrast_rows

ONE = rs.privacy_cost(1)
SMALL = rs.Schema.of_sizes([3, 2, 4])
PLACES = rs.Schema(
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
    age=rs.Integer(0, 4),
)


def numbers(seed=0):
    return np.random.default_rng(seed)


def sizes(count: int, cells: int) -> rs.Schema:
    return rs.Schema.of_sizes([cells] * count)


def over_cells(matrix, attributes, shape):
    """Rows on some attributes, in any order, as rows over all cells, by looking up each cell."""
    place = np.indices(shape).reshape(len(shape), -1)
    inner = [place[axis] for axis in attributes]
    return (
        matrix[:, np.ravel_multi_index(inner, [shape[axis] for axis in attributes])]
        if inner
        else (np.repeat(matrix, math.prod(shape), axis=1))
    )


def product(matrices):
    rows = np.ones((1, 1), dtype=object)
    for matrix in matrices:
        rows = np.kron(rows, matrix.astype(object))
    return rows


def measured_rows(plan):
    """Every measured row over all cells of the schema, exact, with the variance of its noise."""
    rows, variances = [], []
    for batch in plan.batches:
        whole = batch.multiplier * product(batch.matrices)
        for attributes, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
            rows.append(over_cells(whole, attributes, plan.schema.sizes))
            variances += [batch.parameters[owner]] * len(whole)
    return np.concatenate(rows), variances


def query_rows(group, shape):
    rows = np.ones((1, math.prod(shape)))
    for factor in group.factors:
        own = over_cells(factor.queries.matrix(), factor.attributes, shape)
        rows = (rows[:, None] * own[None]).reshape(-1, rows.shape[1])
    return rows


def rank(rows):
    """Rank over the rationals; floats are whole multiples of a power of two."""
    whole = [[int(Fraction(entry) * 2**80) for entry in row] for row in rows.tolist()]
    return fmpz_mat(whole).rank()


PLANS = {
    "marginals": (rs.marginals(SMALL, up_to=2), "residualplanner"),
    "prefix": (rs.all_tables(SMALL, (1, 2, 3), rs.prefix), "querysmasher"),
    "tilted": (rs.all_tables(SMALL, (1, 2), rs.prefix), "smasher"),
    "width": (rs.all_tables(SMALL, (1, 2), rs.width(2)), "querysmasher"),
    "affine": (rs.all_tables(SMALL, 2, rs.affine), "querysmasher"),
    "abs_diff and prefix": (
        rs.all_tables(SMALL, 2, rs.abs_diff) + rs.all_tables(SMALL, 1, rs.prefix),
        "querysmasher",
    ),
    "affine in products": (rs.all_tables(SMALL, 2, rs.affine), "residualplanner+"),
    "circular": (rs.all_tables(SMALL, (1, 2), rs.circular), "fourier"),
    "affine by frequency": (rs.all_tables(SMALL, 2, rs.affine), "fourier"),
    "real numbers": (rs.linear(SMALL, ("a2", "a0"), numbers().normal(size=(5, 12))), "querysmasher"),
    "real numbers, tilted": (
        rs.linear(SMALL, ("a2",), numbers(3).random((2, 4))) + rs.table(SMALL, ["a0"]),
        "smasher",
    ),
    "real numbers, dense": (rs.linear(SMALL, ("a2", "a0"), numbers().normal(size=(5, 12))), "dense"),
    "sixty-fourths": (
        rs.linear(SMALL, ("a2", "a0"), numbers().integers(-300, 300, (5, 12)) / 64),
        "querysmasher",
    ),
    "levels": (rs.table(PLACES, {"place": rs.level("state"), "age": rs.buckets(2, 3)}), "querysmasher"),
    "levels, dense": (rs.table(PLACES, {"place": rs.level("state"), "age": rs.buckets(2, 3)}), "dense"),
    "few queries, dense": (rs.all_tables(SMALL, 2, rs.affine), "dense"),
    "predicates": (rs.table(SMALL, {"a2": rs.predicates, "a0": rs.identity}), "identity"),
    "hierarchy": (rs.all_tables(SMALL, (1, 2), rs.ranges), "hierarchical"),
    "wavelet": (rs.all_tables(SMALL, (1, 2), rs.ranges), "wavelet"),
    "total": (rs.marginals(SMALL, ways=0), "querysmasher"),
}


@pytest.fixture(scope="module", params=PLANS, ids=list(PLANS))
def saved(request, tmp_path_factory):
    """A plan as it comes back from its file."""
    work, method = PLANS[request.param]
    path = tmp_path_factory.mktemp("plans") / "saved.plan"
    rs.plan(work, rs.zcdp("0.37"), method=method).save(path)
    return rs.Plan.load(path)


# --- exactly what is asked ---------------------------------------------------------------------------------


def test_every_query_is_exactly_a_combination_of_what_is_measured(saved):
    measured, _ = measured_rows(saved)
    asked = np.concatenate([query_rows(group, saved.schema.sizes) for group in saved.workload.groups()])
    assert rank(np.concatenate([measured, asked.astype(object)])) == rank(measured)


def test_blocks_of_different_attributes_measure_independent_things(saved):
    """The split of a query into blocks is then unique, and the answers from blocks may be added."""
    shape = saved.schema.sizes
    ranks = [
        rank(over_cells(product(batch.matrices), attributes, shape))
        for batch in saved.batches
        for attributes in batch.subsets.tolist()
    ]
    assert sum(ranks) == rank(measured_rows(saved)[0])


def nearly_dependent():
    """Two whole-number queries whose directions differ by less than floats can be sure of."""
    one, two = 2**19 + 1, 2**19 - 1
    inverse = pow(one, -1, two)
    other = (one * inverse - 1) // two  # one * inverse - two * other = 1
    return np.array([[one, two, 0, 0], [other, inverse, 0, 0]])


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
def test_queries_that_floats_take_for_multiples_of_each_other_are_still_answered_exactly(method):
    rows = nearly_dependent()
    assert np.linalg.det(rows[:, :2].astype(float)) == pytest.approx(1, abs=1e-3)
    assert np.linalg.svd(rows / np.linalg.norm(rows, axis=1)[:, None])[1][1] < 1e-11
    plan = rs.plan(rs.linear(sizes(1, 4), ("a0",), rows), ONE, method=method)
    measured, _ = measured_rows(plan)
    assert rank(np.concatenate([measured, rows]).astype(object)) == rank(measured)


@pytest.mark.parametrize("name", ["prefix", "tilted"])
def test_a_row_that_is_off_centre_stops_the_plan(monkeypatch, name):
    def sloppy(matrix, *_):
        rows = np.rint(1000 * matrix).astype(np.int64)
        rows[0, 0] += 1
        return rows

    monkeypatch.setattr(rounding, "centred_rows", sloppy)
    monkeypatch.setattr(rounding, "combined_rows", sloppy)
    work, method = PLANS[name]
    with pytest.raises(ArithmeticError, match="off centre"):
        rs.plan(work, ONE, method=method)


def test_weights_that_are_not_whole_cannot_be_measured():
    work, _ = PLANS["prefix"]
    measures = [Measure.of(np.array(weights)) for weights in ([0.5, 0.25, 0.25], [0.3, 0.7], [0.25] * 4)]
    draft = solve_blocks(decompose(work, measures), SMALL.sizes, Optimal(), 1e-3)
    with pytest.raises(Infeasible, match="real weights cannot be measured"):
        rounding.integer_strategy(draft.strategy, draft.spans, Fraction(1))


# --- exactly the cost that is stated -----------------------------------------------------------------------


def worst_cell(plan):
    """The privacy cost of the worst single record, as a fraction."""
    rows, variances = measured_rows(plan)
    return max(
        sum(
            (int(entry) ** 2 / variance for entry, variance in zip(column, variances, strict=True)),
            Fraction(0),
        )
        for column in rows.T
    )


def test_no_record_costs_more_than_the_budget(saved):
    cost = worst_cell(saved)
    assert cost <= added_cost(saved.batches) <= saved.budget.gaussian_cost()
    assert separate_cost(saved.batches, replaced=False) == saved.strategy.exact_cost()
    assert cost > Fraction(99, 100) * added_cost(saved.batches)  # nor is privacy left lying about


@pytest.mark.parametrize("rho", ["1e-6", "0.1", "100", "7/3"])
@pytest.mark.parametrize("name", ["prefix", "marginals", "affine", "few queries, dense", "tilted"])
def test_budgets_of_any_size_are_used_up_and_never_exceeded(name, rho):
    work, method = PLANS[name]
    plan = rs.plan(work, rs.zcdp(rho), method=method)
    allowed = 2 * Fraction(rho)
    assert allowed * (1 - Fraction(1, 10**10)) < added_cost(plan.batches) <= allowed


def test_a_person_with_several_records_shares_the_budget_among_them():
    work, method = PLANS["prefix"]
    plan = rs.plan(work, rs.zcdp("0.1"), unit=rs.Unit(max_records=3), method=method)
    assert worst_cell(plan) * 9 <= Fraction("0.2")


@pytest.mark.parametrize("name", ["prefix", "marginals", "affine", "few queries, dense", "hierarchy"])
def test_replacing_a_record_costs_no_more_than_the_budget(name):
    work, method = PLANS[name]
    plan = rs.plan(work, ONE, unit=rs.Unit(neighbours="replace_one"), method=method)
    rows, variances = measured_rows(plan)
    worst = max(
        sum((int(a - b) ** 2 / v for a, b, v in zip(one, two, variances, strict=True)), Fraction(0))
        for one in rows.T
        for two in rows.T
    )
    assert worst <= 1


@pytest.mark.parametrize("factor", [2, Fraction(1, 1000), 10**4])
def test_a_plan_at_another_budget_is_exact_there_too(saved, factor):
    budget = rs.privacy_cost(saved.budget.gaussian_cost() * factor)
    again = saved.rescale(budget)
    assert worst_cell(again) <= budget.gaussian_cost()
    assert again.rmse == pytest.approx(saved.rmse / math.sqrt(factor), rel=1e-3)


@pytest.mark.parametrize("power", [-60, 30])
def test_a_budget_that_64_bits_cannot_follow_is_refused(power):
    plan = rs.plan(*PLANS["prefix"][:1], ONE, method="querysmasher")
    with pytest.raises(Infeasible, match="does not fit 64-bit integers; plan for this budget"):
        plan.rescale(rs.privacy_cost(Fraction(10) ** power))


def test_a_million_grains_of_blocks_add_up_exactly():
    """Floats would lose the small blocks: the sum is one of whole numbers."""
    work = rs.marginals(sizes(12, 2), up_to=4)
    plan = rs.plan(1e-9 * work + 1e9 * rs.marginals(work.schema, ways=1), ONE, method="querysmasher")
    assert 1 - Fraction(1, 10**11) < added_cost(plan.batches) <= 1


def test_blocks_without_number_are_refused_rather_than_overspent(monkeypatch):
    monkeypatch.setattr(rounding, "LEAST_GRAINS", 2**60)
    with pytest.raises(Infeasible, match="too many to share this budget"):
        rs.plan(rs.marginals(SMALL, up_to=2), ONE, method="querysmasher")


# --- hardly more error -------------------------------------------------------------------------------------


def spread(weight):
    """Tables whose weights differ by the square of a factor."""
    schema = sizes(4, 10)
    return (
        weight * rs.all_tables(schema, 1, rs.prefix)
        + rs.all_tables(schema, 2, rs.prefix)
        + (1 / weight) * rs.all_tables(schema, 3, rs.prefix)
    )


LOSSES = {
    "prefix 100, to 3 ways": (rs.all_tables(sizes(3, 100), (1, 2, 3), rs.prefix), "querysmasher"),
    "prefix 20, 4 ways of 8": (rs.all_tables(sizes(8, 20), 4, rs.prefix), "querysmasher"),
    "prefix 10, 5 ways": (rs.all_tables(sizes(5, 10), 5, rs.prefix), "querysmasher"),
    "prefix 20, tilted": (rs.all_tables(sizes(4, 20), (1, 2, 3, 4), rs.prefix), "smasher"),
    "marginals": (rs.marginals(sizes(6, 10), up_to=4), "residualplanner"),
    "affine": (rs.all_tables(sizes(4, 10), 2, rs.affine), "querysmasher"),
    "abs_diff": (rs.all_tables(sizes(3, 15), 2, rs.abs_diff), "querysmasher"),
    "mixed": (
        rs.all_tables(sizes(4, 8), 2, rs.affine)
        + rs.marginals(sizes(4, 8), up_to=2)
        + rs.all_tables(sizes(4, 8), 3, rs.ranges),
        "querysmasher",
    ),
    "windows, 4 ways": (rs.all_tables(sizes(4, 10), 4, rs.width(3)), "querysmasher"),
    "buckets, 3 ways": (rs.all_tables(sizes(3, 40), 3, rs.buckets(7, 13, 22, 34)), "querysmasher"),
    "affine x prefix x windows": (
        rs.table(sizes(4, 8), {("a0", "a2"): rs.affine, "a1": rs.prefix, "a3": rs.width(2)}),
        "querysmasher",
    ),
    "real numbers": (rs.linear(sizes(2, 6), ("a1", "a0"), numbers().normal(size=(9, 36))), "querysmasher"),
    "hundreds": (rs.linear(sizes(1, 12), ("a0",), numbers().integers(-300, 400, (7, 12))), "querysmasher"),
    "circular": (rs.all_tables(sizes(3, 10), (1, 2), rs.circular), "fourier"),
    "one product of three": (
        rs.table(sizes(3, 10), {"a0": rs.prefix, "a1": rs.ranges, "a2": rs.width(3)}),
        "dense",
    ),
    "hierarchical, many attributes": (rs.marginals(sizes(8, 8), ways=1), "hierarchical"),
    "identity, many attributes": (rs.marginals(sizes(16, 3), ways=1), "identity"),
    "weights to 1e6": (spread(1e3), "querysmasher"),
    "weights to 1e12": (spread(1e6), "querysmasher"),
    "weights to 1e24": (spread(1e12), "querysmasher"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_whole_numbers_cost_less_than_a_thousandth_of_the_error(name):
    work, method = LOSSES[name]
    plan = rs.plan(work, ONE, method=method)
    assert plan.ideal.rmse * (1 - 1e-3) < plan.rmse < plan.ideal.rmse * (1 + 1e-3)
    assert plan.total_variance < plan.ideal.total_variance * (1 + 2e-3)
    assert added_cost(plan.batches) <= 1


@pytest.mark.parametrize("rho", ["1e-6", "1e-3", "1", "100"])
@pytest.mark.parametrize("name", ["mixed", "windows, 4 ways", "one product of three"])
def test_tiny_and_huge_budgets_lose_no_more(name, rho):
    work, method = LOSSES[name]
    plan = rs.plan(work, rs.zcdp(rho), method=method)
    assert plan.rmse < plan.ideal.rmse * (1 + 1e-3)


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
@pytest.mark.parametrize("weight", [1e3, 1e6, 1e12])
def test_weights_that_differ_on_one_attribute_do_not_drown_each_other(method, weight):
    """Rounding a heavy row must not lean on a light one: its noise is up to a million times wider."""
    schema = sizes(1, 10)
    work = weight * rs.table(schema, {"a0": rs.width(3)}) + (1 / weight) * rs.table(schema, {"a0": rs.prefix})
    plan = rs.plan(work, ONE, method=method)
    assert plan.total_variance < plan.ideal.total_variance * (1 + 2e-3)
    assert plan.rmse < plan.ideal.rmse * (1 + 2e-3)


def test_products_of_many_factors_are_refused_where_64_bits_end():
    with pytest.raises(Infeasible, match="too large to measure more than a few records"):
        rs.plan(rs.all_tables(sizes(15, 3), 15, rs.prefix), ONE, method="querysmasher")


# --- the ways to round -------------------------------------------------------------------------------------


def test_rounded_rows_are_the_nearest_multiple_up_to_a_few_units():
    matrix = numbers().normal(size=(5, 7))
    rows = rounded_rows(matrix, 12)
    assert rows.dtype == np.int64
    assert np.abs(rows - matrix * integers.scale_of(matrix, 12)).max() < 2
    assert np.abs(rows).max() <= 2**12


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (2,)])
@pytest.mark.parametrize("bits", [3, 8, 30])
def test_centred_rows_sum_to_exactly_zero_along_every_axis(shape, bits):
    rows = numbers().normal(size=(6, *shape))
    for axis in range(1, 1 + len(shape)):
        rows = rows - rows.mean(axis=axis, keepdims=True)
    whole = centred_rows(rows.reshape(6, -1), shape, bits).reshape(6, *shape)
    for axis in range(1, 1 + len(shape)):
        assert not whole.sum(axis=axis).any()
    bound = 2 ** len(shape) * math.prod(shape)
    assert np.abs(whole.reshape(6, -1) - rows.reshape(6, -1) * integers.scale_of(rows, bits)).max() < bound


@pytest.mark.parametrize(("size", "bits"), [(2, 1), (3, 10), (100, 4), (1, 5)])
def test_contrast_rows_measure_all_centred_cells_alike(size, bits):
    rows = contrast_rows(size, bits).astype(object)
    gram = rows.T @ rows
    multiple = max(1, 2**bits // size)
    assert (gram == multiple**2 * size * (size * np.eye(size, dtype=int) - 1)).all()


def test_combined_rows_stay_in_the_span_exactly():
    span = numbers(1).integers(-4, 5, (3, 8))
    matrix = numbers(2).normal(size=(3, 3)) @ span
    for bits in (6, 14, 30):
        rows = combined_rows(matrix, span, bits)
        assert rank(np.concatenate([rows, span]).astype(object)) == rank(span.astype(object)) == 3


def test_combinations_beyond_exact_floats_are_refused():
    with pytest.raises(Infeasible, match="no common form in small integers"):
        combined_rows(np.array([[1.0, 2.0]]), np.array([[1, 2]]), 60)


def test_completed_rows_answer_everything_and_cost_hardly_more():
    matrix = numbers().normal(size=(2, 3, 4))
    matrix = matrix - matrix.mean(axis=1, keepdims=True)
    matrix = (matrix - matrix.mean(axis=2, keepdims=True)).reshape(2, 12)
    matrix /= math.sqrt(np.max(np.sum(matrix**2, axis=0)))
    whole = completed(matrix, [np.ones(3), np.ones(4)])
    assert len(whole) == np.linalg.matrix_rank(whole) == 6
    assert np.max(np.sum(whole**2, axis=0)) == pytest.approx(1)
    gram, before = np.linalg.pinv(whole.T @ whole), np.linalg.pinv(matrix.T @ matrix)
    for query in matrix:
        assert query @ gram @ query <= query @ before @ query * (1 + 2e-5)


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
def test_real_valued_queries_on_too_many_cells_are_refused(monkeypatch, method):
    monkeypatch.setattr(integers, "FILLED_ROWS", 5)
    with pytest.raises(Infeasible, match="round the queries, or use coarser attributes"):
        rs.plan(PLANS["real numbers"][0], ONE, method=method)


def test_bits_are_spent_where_they_are_needed_and_only_there():
    plain = numbers().normal(size=(4, 4))
    steep = np.diag([1.0, 1.0, 1e-3, 1e-5]) @ plain
    tried: list[int] = []

    def rounding(matrix, bits):
        tried.append(bits)
        return rounded_rows(matrix, bits)

    enough_bits(lambda bits: rounding(plain, bits), plain, 4, few=14, most=34)
    assert tried == [14]
    tried.clear()
    rows = enough_bits(lambda bits: rounding(steep, bits), steep, 4, few=14, most=34)
    assert tried[-1] >= 26
    change = (rows / integers.scale_of(steep, tried[-1]) - steep) @ np.linalg.inv(steep)
    assert np.linalg.norm(change) <= 1e-3
    tried.clear()
    enough_bits(lambda bits: rounding(plain, bits), plain, 4, few=14, most=5)
    assert tried == [5]


def test_a_rounding_that_works_is_kept_where_more_bits_do_not():
    matrix = np.array([[1.0, 0.0], [1.0, 1e-4]])

    def rounding(bits):
        if bits > 20:
            raise Infeasible("too many bits")
        return rounded_rows(matrix, bits)

    rows = enough_bits(rounding, matrix, 2, few=18, most=34)
    assert np.abs(rows).max() == 2**18 - 1
    with pytest.raises(Infeasible, match="too many bits"):
        enough_bits(rounding, matrix, 2, few=22, most=34)


def test_a_direction_that_rounding_loses_is_never_lost_silently():
    matrix = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]])
    with pytest.raises(Infeasible, match="loses a direction"):
        enough_bits(lambda bits: rounded_rows(matrix, bits), matrix, 2, few=5, most=10)


def test_a_rank_is_only_believed_where_floats_cannot_be_wrong():
    assert has_rank(np.array([[1, 0], [0, 1]]), 2)
    assert not has_rank(np.array([[1, 2], [2, 4]]), 2)
    assert not has_rank(np.array([[2**40, 0], [0, 1]]), 2)  # true, but not certain
    assert not has_rank(np.array([[1, 0]]), 2)


def test_the_length_of_a_column_is_exact_beyond_64_bits():
    assert matrix_cost("gaussian", np.array([[3, 1], [4, 1]])) == 25
    assert matrix_cost("gaussian", np.array([[2**40, 1], [2**40, 1]])) == 2**81


def test_independent_rows_span_all_rows():
    rows = np.array([[2, 4, 6], [0, 0, 0], [1, 2, 3], [0, 5, 5], [1, 3, 4]])
    chosen = independent_integers(rows, 2)
    assert rank(np.concatenate([chosen, rows]).astype(object)) == rank(chosen.astype(object)) == 2
    assert (np.gcd.reduce(chosen, axis=1) == 1).all()


def test_a_span_is_whole_numbers_or_nothing(monkeypatch):
    schema = sizes(1, 3)

    def span(rows):
        [group] = rs.linear(schema, ("a0",), np.array(rows)).groups()
        return integer_span(group.factors[0].queries)

    assert span([[1.0, 0.5, 0.25]]).tolist() == [[4, 2, 1]]
    assert span([[0.1, 0.0, 0.0]]) is None
    assert span([[2.0**21, 1.0, 0.0]]) is None
    assert span([[0.1, 0, 0], [0, 1, 0], [0, 0, 7]]).tolist() == np.eye(3).tolist()  # all cells
    monkeypatch.setattr(build, "SPAN_ENTRIES", 2)
    assert span([[1.0, 1.0, 0.0]]) is None


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("tilted", [False, True])
def test_centred_spans_are_the_centred_queries_times_a_whole_number(kept, tilted):
    measures = [Measure.whole([3, 1, 2]), Measure.whole([5, -1])] if tilted else [Measure(3), Measure(2)]
    [group] = rs.linear(SMALL, ("a0", "a1"), numbers().integers(-3, 4, (3, 6))).groups()
    queries = group.factors[0].queries
    found = centred_span(queries, kept, measures)
    common = math.prod(sum(measure.whole_numbers()) for measure in measures)
    assert np.allclose(found, common * project(queries.matrix(), (3, 2), measures, kept))
    assert found.dtype == np.int64


def test_products_of_spans_are_whole_or_nothing():
    one, two = np.array([[1, -1]]), np.array([[2, 3], [0, 1]])
    assert product_span([one, two]).tolist() == [[2, 3, -2, -3], [0, 1, 0, -1]]
    assert product_span([]).tolist() == [[1]]
    assert product_span([one, None]) is None
    assert product_span([2**30 * one, 2**30 * two]) is None


def test_everything_centred_is_spanned_or_refused(monkeypatch):
    measures = [Measure.whole([3, 1, 2]), Measure(2)]
    basis = whole_span(measures)
    assert rank(basis.astype(object)) == len(basis) == 2
    assert not (basis.reshape(2, 3, 2) @ np.ones(2, int)).any()
    assert not np.tensordot(basis.reshape(2, 3, 2), [3, 1, 2], axes=(1, 0)).any()
    monkeypatch.setattr(build, "EXACT", 1)
    with pytest.raises(ArithmeticError, match="use smaller weights"):
        whole_span(measures)


def test_spans_that_would_overflow_are_none():
    [group] = rs.linear(SMALL, ("a0", "a1"), np.eye(1, 6)).groups()
    measures = [Measure.whole([2**40, 1, 1]), Measure.whole([2**30, 1])]
    assert centred_span(group.factors[0].queries, (0, 1), measures) is None


# --- short bases and level columns -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_short_basis_spans_the_same_rows_with_smaller_numbers(seed):
    chance = np.random.default_rng(seed)
    rows = 30 * chance.integers(-2, 3, (4, 9)) + chance.integers(0, 2) * 7
    rows = (
        rows[: np.linalg.matrix_rank(rows)] if np.linalg.matrix_rank(rows) == 4 else np.eye(4, 9, dtype=int)
    )
    short = short_basis(rows)
    assert short.shape == rows.shape
    assert rank(np.concatenate([short, rows]).astype(object)) == 4
    assert np.abs(short).max() <= np.abs(rows).max()


def test_a_short_basis_divides_out_what_centring_multiplied_by():
    """Windows of three cells out of ten, centred and times ten, differ by tens."""
    windows = np.array([[1 if start <= cell < start + 3 else 0 for cell in range(10)] for start in range(8)])
    assert np.abs(short_basis(10 * windows - 3)).max() == 1


def test_a_basis_too_large_to_shorten_stays_as_it_is(monkeypatch):
    monkeypatch.setattr("residua.strategy.integers.REDUCED_ENTRIES", 1)
    rows = np.array([[6, 0], [0, 6]])
    assert short_basis(rows) is rows


def loss_of_length(wanted, rounded):
    return abs(np.max(np.sum(rounded**2, axis=0)) / np.max(np.sum(wanted**2, axis=0)) - 1)


def equal_columns(rows, columns):
    """A random matrix whose columns are all equally long, large enough to round."""
    matrix = numbers().normal(size=(rows, columns))
    return 200 * matrix / np.linalg.norm(matrix, axis=0)


def test_levelling_keeps_columns_as_long_as_they_should_be():
    wanted = equal_columns(15, 20)
    level = balanced_columns(wanted, np.rint(wanted))
    assert np.array_equal(level, np.rint(level))
    assert np.abs(level - wanted).max() < 2.5
    assert loss_of_length(wanted, level) < 0.1 * loss_of_length(wanted, np.rint(wanted))


def test_levelling_keeps_zero_sums():
    wanted = equal_columns(15, 20)
    wanted -= wanted.mean(axis=1, keepdims=True)
    rounded = integers._zero_sum(wanted)
    level = balanced(wanted, rounded)
    assert not level.sum(axis=1).any()
    assert loss_of_length(wanted, level) < 0.3 * loss_of_length(wanted, rounded)


def test_levelling_within_a_basis_stays_within_it():
    basis = np.array([[1.0, -1, 0, 0, 2], [0, 1, -1, 1, 0], [0, 0, 1, -2, 1]])
    wanted = 300 * numbers().normal(size=(3, 3)) @ basis
    rounded = np.rint(np.linalg.lstsq(basis.T, wanted.T, rcond=None)[0].T) @ basis
    level = balanced_within(wanted, rounded, basis)
    assert rank(np.concatenate([level, basis]).astype(object)) == 3
    excess = [np.abs(np.sum(each**2, axis=0) - np.sum(wanted**2, axis=0)) for each in (level, rounded)]
    assert np.sum(excess[0] ** 2) <= np.sum(excess[1] ** 2)


def test_levelling_ends_where_no_row_of_the_basis_reaches():
    basis = np.array([[1.0, -1.0, 0.0]])
    rounded = np.array([[5.0, -5.0, 0.0]])
    wanted = np.array([[5.0, -5.0, 9.0]])  # nothing in the basis has a third entry
    assert np.array_equal(balanced_within(wanted, rounded, basis), rounded)


@pytest.mark.parametrize("allowed", [Fraction(1, 10**400), Fraction(-1)])
def test_a_budget_that_no_float_holds_is_refused_in_words(allowed):
    plan = rs.plan(rs.marginals(rs.Schema.of_sizes([2, 3]), up_to=1), rs.zcdp(1))
    with pytest.raises(Infeasible, match="so small a budget"):
        rounding.with_budget(plan.strategy, allowed)
