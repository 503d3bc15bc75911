"""Plans whose blocks overlap, measured, saved, rescaled and combined; and what their integers span."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from separate import separate_cost

import residua as rs
from residua.accuracy.figures import Figures, certified, totals_of
from residua.answering.blocks import Layer, Shape
from residua.answering.coupled.answerer import Coupled
from residua.errors import Infeasible, NotInSpan
from residua.kernel import measuring
from residua.kernel.cost import added_cost
from residua.kernel.measurement import record_limit
from residua.plans import Plan
from residua.privacy import Unit
from residua.privacy.unit import Person
from residua.strategy import integers
from residua.strategy.integers import independent_integers
from residua.strategy.rounding import measurable
from residua.strategy.strategy import Domain, Strategy, batches_of

SCHEMA = rs.Schema(age=rs.Integer(0, 3), sex=rs.Categorical("F", "M"), place=rs.Integer(0, 3))
SIZES = SCHEMA.sizes
CODES = np.random.default_rng(3).integers(0, SIZES, (60, 3))
AFFINE = rs.table(SCHEMA, {("age", "place"): rs.affine}, name="affine")
WORK = rs.all_tables(SCHEMA, 1, rs.prefix) + AFFINE + rs.marginals(SCHEMA, ways=2, attributes=["age", "sex"])
ALARM = 1e-6


def affine_span():
    """Affine queries on age and place, and the cells of each of the two."""
    rows = next(iter(AFFINE.groups())).factors[0].queries.matrix()
    ones, cells = np.ones((1, 4)), np.eye(4)
    whole = np.concatenate([rows, np.kron(cells, ones), np.kron(ones, cells)]).astype(np.int64)
    return independent_integers(whole, int(np.linalg.matrix_rank(whole)))


SPAN = affine_span()


def of_cost_one(rows):
    return rows / math.sqrt(float(np.max(np.sum(rows * rows, axis=0))))


def ideal_strategy(seed=0):
    """Affine and one-way queries on a pair, all cells of another, prefixes of one attribute, the total."""
    rng = np.random.default_rng(seed)
    rank = len(SPAN)
    pair = (rng.normal(size=(rank, rank)) + 3 * np.eye(rank)) @ SPAN
    shapes = (
        Shape.independent((4, 4), of_cost_one(pair)),
        Shape.independent((4, 2), of_cost_one(rng.normal(size=(8, 8)) + 3 * np.eye(8))),
        Shape.independent((4,), of_cost_one(np.tril(np.ones((4, 4))))),
    )
    blocks = [((0, 2), 0, 0.4), ((0, 1), 1, 0.3), ((2,), 2, 0.25), ((), None, 0.05)]
    layers = []
    for subset, number, cost in blocks:
        chosen = [] if number is None else [number]
        layout = () if number is None else (tuple(range(len(subset))),)
        subsets = np.array([subset], dtype=np.int32).reshape(1, -1)
        numbers = np.array([chosen], dtype=np.int64).reshape(1, -1)
        layers.append(Layer(subsets, layout, numbers, np.array([cost]), np.array([1 / cost])))
    return Strategy((Domain.of(SIZES),), shapes, tuple(layers))


def planned(budget=None, unit=None, seed=0):
    """A plan of overlapping blocks, as a method would make it."""
    budget, unit = budget or rs.zcdp("0.5"), unit or Unit()
    ideal = ideal_strategy(seed)
    mechanism = measurable(ideal, {0: SPAN}, unit.record_cost(budget), Person(unit))
    figures = Figures.of(mechanism, WORK, totals_of(mechanism, WORK))
    certificate = certified(figures.total_variance, 0.0, "this block structure")
    return Plan(WORK, budget, unit, "smasher", mechanism, certificate, "total_variance", figures, figures)


def measured(plan, seed):
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=seed))


def joint_rows(work):
    """Every query over all cells of the schema, (count, cells)."""
    place = np.indices(SIZES).reshape(3, -1)
    found = []
    for group in work.groups():
        rows = np.ones((1, place.shape[1]))
        for factor in group.factors:
            cells = np.ravel_multi_index([place[at] for at in factor.attributes], factor.queries.sizes)
            rows = (rows[:, None, :] * factor.queries.matrix()[None, :, cells]).reshape(-1, place.shape[1])
        found.append(rows)
    return np.concatenate(found)


def truth(work):
    counts = np.bincount(np.ravel_multi_index(tuple(CODES.T), SIZES), minlength=math.prod(SIZES))
    return joint_rows(work) @ counts


# --- releases ----------------------------------------------------------------------------------------------


def test_without_noise_every_answer_is_the_true_count(monkeypatch):
    """Claims O-004 and O-005."""
    monkeypatch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), dtype=np.int64))
    release = measured(planned(), 0)
    assert release.values() == pytest.approx(truth(WORK), abs=1e-6)
    assert release.table("age", "sex").values.sum() == pytest.approx(len(CODES), abs=1e-6)


def test_the_errors_of_many_releases_are_as_large_as_was_said():
    """Chi-squared sums of standardised errors, every query, with false alarms shared among them."""
    plan = planned()
    source, releases = rs.simulated(5), 300
    answers = [rs.measure(plan, CODES, ledger=None, noise=source).values() for _ in range(releases)]
    errors = np.array(answers) - truth(WORK)
    scaled = np.sum(errors**2, axis=0) / plan.variances(WORK)
    low, high = stats.chi2(releases).ppf([ALARM / 2 / WORK.count, 1 - ALARM / 2 / WORK.count])
    assert np.all((low < scaled) & (scaled < high))
    means = errors.mean(axis=0) / np.sqrt(plan.variances(WORK) / releases)
    assert np.abs(means).max() < stats.norm.isf(ALARM / 2 / WORK.count)
    # A sum of answers has the variance that the covariances say.
    total = errors.sum(axis=1)
    assert np.sum(total**2) / plan.covariance(WORK, WORK).sum() == pytest.approx(releases, rel=0.45)


def test_equal_queries_get_equal_answers_whichever_table_asks_them():
    release = measured(planned(), 1)
    one = release.values(rs.marginals(SCHEMA, ways=1, attributes=["age"]))
    two = release.values(rs.table(SCHEMA, ["age", "sex"])).reshape(4, 2).sum(axis=1)
    assert one == pytest.approx(two)
    affine = release.values(AFFINE)
    assert affine[-1] == pytest.approx(release.values(rs.table(SCHEMA, [])).item())


def test_a_table_that_is_not_in_the_span_is_refused_by_plan_and_release():
    plan = planned()
    missing = rs.table(SCHEMA, ["age", "place"], name="all cells")
    for ask in (plan.variances, measured(plan, 1).values):
        with pytest.raises(NotInSpan, match=r"'all cells'.*age"):
            ask(missing)


def test_saved_plans_and_releases_answer_as_before(tmp_path):
    plan = planned()
    plan.save(tmp_path / "people.plan")
    again = rs.Plan.load(tmp_path / "people.plan")
    assert again.hash == plan.hash
    assert type(again.strategy.answerer) is Coupled
    assert np.array_equal(again.variances(WORK), plan.variances(WORK))
    release = measured(again, 2)
    release.save(tmp_path / "people.release")
    loaded = rs.Release.load(tmp_path / "people.release")
    assert np.array_equal(loaded.values(), release.values())
    assert "2 blocks on 2 attributes" in plan.explain()
    assert "4 of these blocks overlap and are answered together; they share 7 dimensions" in plan.explain()


def test_doubling_the_budget_halves_every_variance():
    plan = planned(rs.zcdp(1))
    double = plan.rescale(rs.zcdp(2))
    assert double.variances(WORK) == pytest.approx(plan.variances(WORK) / 2, rel=1e-6)
    assert added_cost(double.batches) <= 4
    assert measured(double, 1).plan.privacy.rho == 2


def test_under_replacement_no_pair_of_cells_costs_more_than_the_budget():
    """Claim O-006."""
    plan = planned(rs.zcdp(1), Unit(neighbours="replace_one"))
    cells = np.eye(math.prod(SIZES))
    privacy = np.zeros_like(cells)
    for batch in plan.batches:
        rows = np.ones((1, 1))
        for matrix in batch.matrices:
            rows = np.kron(rows, matrix)
        place = np.indices(SIZES).reshape(3, -1)
        for subset, owner in zip(batch.subsets, batch.owners, strict=True):
            at = np.ravel_multi_index([place[axis] for axis in subset], batch.sizes) if len(subset) else 0
            wide = batch.multiplier * rows[:, np.broadcast_to(at, place.shape[1])]
            privacy += wide.T @ wide / float(batch.parameters[owner])
    own = np.diagonal(privacy)
    assert (own[:, None] + own[None, :] - 2 * privacy).max() <= 2.0
    assert measured(plan, 1).values().shape == (WORK.count,)


# --- integers ----------------------------------------------------------------------------------------------


def test_integers_span_exactly_what_was_to_be_spanned():
    """Claim O-005, in rational arithmetic."""
    from flint import fmpz_mat

    whole = measurable(ideal_strategy(), {0: SPAN}, Fraction(1), Person(rs.Unit()))
    pair = next(shape for shape in whole.shapes if shape.sizes == (4, 4))
    rows = pair.matrix.astype(np.int64)
    assert fmpz_mat(rows.tolist()).rank() == pair.rank == len(SPAN)
    assert fmpz_mat(np.concatenate([rows, SPAN]).tolist()).rank() == len(SPAN)


@pytest.mark.parametrize("budget", ["1", "1/1000000", "10000"])
def test_rounding_loses_less_than_a_thousandth_and_the_cost_is_exact(budget):
    """Claim O-006."""
    allowed, ideal = Fraction(budget), ideal_strategy()
    whole = measurable(ideal, {0: SPAN}, allowed, Person(rs.Unit()))
    batches = batches_of(whole)
    assert separate_cost(batches, replaced=False) == whole.exact_cost()
    assert added_cost(batches) <= allowed
    assert float(added_cost(batches)) == pytest.approx(float(allowed), rel=1e-9)
    wanted = totals_of(ideal.scaled(float(whole.exact_cost()) / ideal.cost()), WORK)
    assert totals_of(whole, WORK)[1] == pytest.approx(wanted[1], rel=1e-3)
    assert record_limit(batches) > 10**7


def test_a_block_without_a_span_in_whole_numbers_measures_everything_a_little():
    ideal = ideal_strategy()
    whole = measurable(ideal, {}, Fraction(1), Person(rs.Unit()))
    everything = rs.marginals(SCHEMA, ways=2, attributes=["age", "place"])
    assert np.median(whole.variances(next(iter(everything.groups())))) > 10_000
    scaled = ideal.scaled(float(whole.exact_cost()) / ideal.cost())
    assert totals_of(whole, WORK)[1] == pytest.approx(totals_of(scaled, WORK)[1], rel=2e-3)


def test_a_large_block_without_a_span_is_refused(monkeypatch):
    monkeypatch.setattr(integers, "FILLED_ROWS", 15)
    with pytest.raises(Infeasible, match="16 cells are more than 15"):
        measurable(ideal_strategy(), {}, Fraction(1), Person(rs.Unit()))


def test_a_plan_that_describes_real_measurements_cannot_be_measured():
    with pytest.raises(Infeasible, match=r"only a plan that rs\.plan made"):
        batches_of(ideal_strategy())


# --- two releases ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_two_releases_together_answer_by_least_squares_over_both(tmp_path):
    """Claim A-006 for blocks that overlap, against the answers of each alone, weighed by their precision."""
    first, second = measured(planned(seed=0), 1), measured(planned(rs.zcdp(2), seed=1), 2)
    both = rs.combine(first, second)
    each = [release.plan.covariance(WORK, WORK) for release in (first, second)]
    inner = [np.linalg.pinv(covariance, hermitian=True) for covariance in each]
    # Both measure nothing but what the workload spans: information on its answers adds up.
    covariance = np.linalg.pinv(inner[0] + inner[1], rcond=1e-9, hermitian=True)
    assert both.plan.covariance(WORK, WORK) == pytest.approx(covariance, rel=1e-5, abs=1e-6)
    mean = covariance @ (inner[0] @ first.values() + inner[1] @ second.values())
    assert both.values(WORK) == pytest.approx(mean, rel=1e-6, abs=1e-5)
    assert both.plan.privacy.rho == Fraction(5, 2)
    both.save(tmp_path / "both.release")
    assert np.array_equal(rs.Release.load(tmp_path / "both.release").values(), both.values())
    third = measured(planned(seed=0), 3)
    again = rs.combine(both, third)
    assert np.all(again.plan.variances(WORK) < both.plan.variances(WORK))


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_a_release_of_blocks_is_combined_with_one_whose_blocks_overlap():
    three = rs.marginals(SCHEMA, up_to=3)
    blocks = rs.plan(three, rs.zcdp(1), method="querysmasher")
    first, second = measured(blocks, 1), measured(planned(rs.zcdp(1)), 2)
    both = rs.combine(first, second)
    assert both.plan.strategy.answerer.alone.blocks.layers
    top = rs.marginals(SCHEMA, ways=3)
    assert np.all(both.plan.variances(top) <= blocks.variances(top))
    prefix = rs.all_tables(SCHEMA, 1, rs.prefix)
    assert np.all(both.plan.variances(prefix) < second.plan.variances(prefix))
    sums = both.values(top).reshape(SIZES)
    assert sums.sum(axis=2) == pytest.approx(both.values(rs.table(SCHEMA, ["age", "sex"])).reshape(4, 2))


def test_centred_blocks_answered_as_overlapping_ones_give_the_same_release():
    work = rs.all_tables(SCHEMA, (1, 2), rs.prefix)
    plan = rs.plan(work, rs.privacy_cost(1), method="querysmasher")
    release = measured(plan, 4)
    numbers = release.measurements.in_units(plan.strategy)
    general = Coupled(plan.strategy.blocks())
    same = general.estimator(general.estimates(numbers))
    answers = np.concatenate([same.answers(group) for group in work.groups()])
    assert np.array_equal(answers, release.values())
