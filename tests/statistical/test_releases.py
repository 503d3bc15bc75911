"""Whole releases, simulated many times, against what their plans state beforehand.

Noise is rounded, but thousands of units wide: sums of squares of standardised errors follow the chi-squared
law, and numbers of intervals that cover the truth the binomial one, to far more digits than matter here. Each
test raises a false alarm with probability at most ALARM, shared equally among all the figures that it looks
at (Bonferroni). Seeds are fixed, so a run that passes once passes for ever. The last tests show that the same
checks notice a mechanism that is a little wrong.
"""

import numpy as np
import pytest
from scipy import stats

import residua as rs
from residua.kernel import measurement, measuring
from residua.noise import RoundedGaussian

ALARM = 1e-6
RELEASES = 300
LEVEL = 0.9
SCHEMA = rs.Schema(age=rs.Integer(0, 2), sex=rs.Categorical("F", "M"), place=rs.Integer(0, 3))
CODES = np.random.default_rng(3).integers(0, [3, 2, 4], (25, 3))
WORKS = {
    "prefix": (rs.all_tables(SCHEMA, (1, 2), rs.prefix), "querysmasher"),
    "tilted": (rs.all_tables(SCHEMA, (1, 2), rs.prefix), "smasher"),
    "marginals": (rs.marginals(SCHEMA, up_to=2), "residualplanner"),
    "affine": (rs.table(SCHEMA, {("place", "age"): rs.affine}) + rs.table(SCHEMA, ["sex"]), "querysmasher"),
    "dense": (rs.table(SCHEMA, {"place": rs.ranges, "age": rs.identity}), "dense"),
}


@pytest.fixture(scope="module", params=WORKS)
def simulated(request):
    """A plan, and the errors of all its answers in many releases, shape (releases, queries)."""
    work, method = WORKS[request.param]
    plan = rs.plan(work, rs.zcdp("0.5"), method=method)
    return plan, errors_of(plan, seed=list(WORKS).index(request.param))


def errors_of(plan, seed):
    source = rs.simulated(seed)
    answers = [rs.measure(plan, CODES, ledger=None, noise=source).values() for _ in range(RELEASES)]
    return np.array(answers) - truth(plan.workload)


def truth(work):
    """Exact answers, from one count of every record."""
    cells = np.zeros(SCHEMA.sizes)
    np.add.at(cells, tuple(CODES.T), 1)
    found = []
    for group in work.groups():
        gone = tuple(axis for axis in range(3) if axis not in group.attributes)
        ascending = sorted(group.attributes)
        order = [ascending.index(axis) for axis in group.attributes]
        rows = np.ones((1, 1))
        for factor in group.factors:
            rows = np.kron(rows, factor.queries.matrix())
        found.append(rows @ cells.sum(axis=gone).transpose(order).reshape(-1))
    return np.concatenate(found)


def standardised(plan, errors):
    """Errors in independent directions, each of variance one if the plan's covariance is right."""
    values, vectors = np.linalg.eigh(plan.covariance(plan.workload, plan.workload))
    kept = values > 1e-9 * values[-1]
    return errors @ vectors[:, kept] / np.sqrt(values[kept])


def worst_chance(squares, freedom):
    """Two-sided chance of the most unlikely of several chi-squared numbers, times how many there are."""
    squares = np.atleast_1d(squares)
    tails = np.minimum(stats.chi2.cdf(squares, freedom), stats.chi2.sf(squares, freedom))
    return 2 * tails.min() * len(squares)


def pairs(columns):
    """Sums and differences of all pairs of columns, of variance one if those are uncorrelated."""
    first, second = np.triu_indices(columns.shape[1], 1)
    sums, differences = columns[:, first] + columns[:, second], columns[:, first] - columns[:, second]
    return np.concatenate([sums, differences], axis=1) / np.sqrt(2)


def test_answers_are_unbiased(simulated):
    plan, errors = simulated
    scores = errors.mean(axis=0) * np.sqrt(RELEASES / plan.variances(plan.workload))
    assert 2 * stats.norm.sf(np.abs(scores).max()) * len(scores) > ALARM


def test_variances_are_those_that_the_plan_states(simulated):
    plan, errors = simulated
    squares = np.sum(errors**2, axis=0) / plan.variances(plan.workload)
    assert worst_chance(squares, RELEASES) > ALARM / 2
    whole = np.sum(standardised(plan, errors) ** 2)  # all directions at once: a finer test of the scale
    freedom = standardised(plan, errors).size
    assert worst_chance(whole, freedom) > ALARM / 2


def test_covariances_are_those_that_the_plan_states(simulated):
    plan, errors = simulated
    columns = standardised(plan, errors)
    squares = np.sum(np.concatenate([columns, pairs(columns)], axis=1) ** 2, axis=0)
    assert worst_chance(squares, RELEASES) > ALARM


def test_answers_err_only_where_the_plan_says_that_they_can(simulated):
    """Sums that two answers share exactly have no noise of their own: directions of variance zero."""
    plan, errors = simulated
    values, vectors = np.linalg.eigh(plan.covariance(plan.workload, plan.workload))
    still = vectors[:, values <= 1e-9 * values[-1]]
    assert np.abs(errors @ still).max(initial=0) < 1e-6 * np.sqrt(values[-1])


def test_intervals_cover_the_truth_as_often_as_they_say(simulated):
    plan, errors = simulated
    margin = stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(plan.variances(plan.workload))
    covered = np.sum(np.abs(errors) <= margin, axis=0)
    law = stats.binom(RELEASES, LEVEL)
    tails = np.minimum(law.cdf(covered), law.sf(covered - 1))
    assert 2 * tails.min() * len(tails) > ALARM


def noise_of(plan, seed, releases=RELEASES):
    """Standardised noise of every measured number, shape (releases, numbers)."""
    source = rs.simulated(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "exact_answers", lambda batches, *_: [blank(batch) for batch in batches])
        drawn = [rs.measure(plan, CODES, ledger=None, noise=source).measurements for _ in range(releases)]
    scales = np.concatenate(
        [
            np.repeat([float(batch.parameters[owner]) + 1 / 12 for owner in batch.owners], batch.rows)
            for batch in plan.batches
        ]
    )
    numbers = np.array([np.concatenate([part.reshape(-1) for part in each.values]) for each in drawn])
    return numbers / np.sqrt(scales)


def blank(batch):
    return np.zeros((len(batch.subsets), batch.rows), dtype=np.int64)


@pytest.mark.parametrize("name", ["prefix", "marginals"])
def test_noise_of_different_blocks_and_rows_is_independent(name):
    work, method = WORKS[name]
    noise = noise_of(rs.plan(work, rs.zcdp("0.5"), method=method), seed=11)
    squares = np.sum(np.concatenate([noise, pairs(noise)], axis=1) ** 2, axis=0)
    assert worst_chance(squares, RELEASES) > ALARM


def test_noise_of_one_release_says_nothing_about_the_next():
    work, method = WORKS["prefix"]
    noise = noise_of(rs.plan(work, rs.zcdp("0.5"), method=method), seed=12)
    together = np.concatenate([noise[:-1:2], noise[1::2]], axis=1)  # disjoint pairs of neighbours
    squares = np.sum(pairs(together) ** 2, axis=0)
    assert worst_chance(squares, len(together)) > ALARM


def test_intervals_hold_at_other_levels_and_for_tables():
    """`table` and `answers` state the same intervals; their coverage over all cells is as stated."""
    plan = rs.plan(rs.marginals(SCHEMA, ways=2), rs.zcdp("0.5"), method="residualplanner")
    cells = np.zeros(SCHEMA.sizes)
    np.add.at(cells, tuple(CODES.T), 1)
    expected = cells.sum(axis=1)
    source, level = rs.simulated(21), 0.5
    covered = np.zeros((3, 4))
    for _ in range(RELEASES):
        table = rs.measure(plan, CODES, ledger=None, noise=source).table("age", "place", level=level)
        covered += (table.lower <= expected) & (expected <= table.upper)
    law = stats.binom(RELEASES, level)
    tails = np.minimum(law.cdf(covered), law.sf(covered - 1))
    assert 2 * tails.min() * tails.size > ALARM


# --- the same checks notice what is wrong ------------------------------------------------------------------


def test_noise_that_is_a_tenth_too_small_is_noticed(monkeypatch):
    work, method = WORKS["prefix"]
    plan = rs.plan(work, rs.zcdp("0.5"), method=method)
    monkeypatch.setattr(measurement, "RoundedGaussian", lambda variance: RoundedGaussian(variance * 81 / 100))
    columns = standardised(plan, errors_of(plan, seed=31))
    assert worst_chance(np.sum(columns**2), columns.size) < ALARM


def test_a_bias_of_half_the_noise_is_noticed(simulated):
    plan, errors = simulated
    deviations = np.sqrt(plan.variances(plan.workload))
    scores = (errors.mean(axis=0) + deviations / 2) * np.sqrt(RELEASES) / deviations
    assert 2 * stats.norm.sf(np.abs(scores).max()) * len(scores) < ALARM


def test_noise_that_blocks_share_is_noticed(monkeypatch):
    """A source that starts again for every batch: each block alone looks right."""
    work, method = WORKS["prefix"]
    plan = rs.plan(work, rs.zcdp("0.5"), method=method)
    real, rounds = measuring.draw, iter(range(10**6))

    def again(source, laws, counts):
        return real(rs.simulated(next(rounds) // len(plan.batches)), laws, counts)

    monkeypatch.setattr(measuring, "draw", again)
    noise = noise_of(plan, seed=33)
    assert worst_chance(np.sum(noise**2, axis=0), RELEASES) > ALARM
    assert worst_chance(np.sum(pairs(noise) ** 2, axis=0), RELEASES) < ALARM
