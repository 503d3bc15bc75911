"""An attacker's best guess whether one person is in the data, against the privacy that a plan states.

Two datasets differ in one record, the one that the plan protects least. Many releases of each are measured,
and the attacker looks at the measured numbers alone, at their best linear statistic: the log likelihood ratio
of two Gaussians with the same covariance; and at that of every batch of blocks alone, in case one has too
little noise. The means of a statistic differ by mu standard deviations, so that

    T = (difference of the means) / (pooled standard deviation * sqrt(2 / n))

follows the non-central t law with 2n - 2 degrees of freedom and centre mu * sqrt(n / 2). The test rejects
"the privacy cost is at most beta" if any T exceeds its 1 - ALARM/LOOKS quantile at mu = sqrt(beta). So

- a mechanism that keeps its promise is rejected with probability at most ALARM, one in a million;
- one with a fifth too little noise (mu a quarter larger) passes with a probability below MISSED.

Seeds are fixed, so a run that passes once passes for ever.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import residua as rs
from residua.kernel import measurement, measuring
from residua.noise import RoundedGaussian

ALARM = 1e-6
MISSED = 1e-3
LOOKS = 10
RELEASES = 1000
COST = 4
SCHEMA = rs.Schema.of_sizes([3, 2])
CODES = np.array([[0, 0], [1, 1], [2, 0], [2, 1], [2, 1]])
WORKS = {
    "prefix": (rs.all_tables(SCHEMA, (1, 2), rs.prefix), "querysmasher"),
    "tilted": (rs.all_tables(SCHEMA, (1, 2), rs.prefix), "smasher"),
    "marginals": (rs.marginals(SCHEMA, up_to=2), "residualplanner"),
    "affine": (rs.all_tables(SCHEMA, 2, rs.affine), "querysmasher"),
    "dense": (rs.all_tables(SCHEMA, 2, rs.ranges), "dense"),
}


@pytest.fixture(scope="module", params=WORKS)
def plan(request):
    work, method = WORKS[request.param]
    return rs.plan(work, rs.privacy_cost(COST), method=method)


def column(batch, cell):
    """What one record of this cell adds to every number of a batch, in standard deviations squared."""
    found = []
    for attributes, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
        place = np.ravel_multi_index([cell[at] for at in attributes], batch.sizes) if attributes else 0
        rows = np.ones((1, 1)) * batch.multiplier
        for matrix in batch.matrices:
            rows = np.kron(rows, matrix)
        found.append(rows[:, place] / float(batch.parameters[owner]))
    return np.concatenate(found)


def exposure(plan, cell):
    """Exact privacy cost of one record of this cell."""
    return sum(float(np.sum(column(batch, cell) ** 2 * spread(batch))) for batch in plan.batches)


def spread(batch):
    return np.repeat([float(batch.parameters[owner]) for owner in batch.owners], batch.rows)


def worst_record(plan):
    return max(np.ndindex(SCHEMA.sizes), key=lambda cell: exposure(plan, cell))


def statistics(plan, codes, cell, seed):
    """The attacker's statistics in many releases of one dataset, shape (releases, 1 + batches)."""
    source = rs.simulated(seed)
    weights = [column(batch, cell) for batch in plan.batches]
    found = np.empty((RELEASES, 1 + len(weights)))
    for row in found:
        values = rs.measure(plan, codes, ledger=None, noise=source).measurements.values
        row[1:] = [part.reshape(-1) @ own for part, own in zip(values, weights, strict=True)]
        row[0] = row[1:].sum()
    return found


def evidence(plan, seed=0):
    """The t statistics of the difference that one record makes: of all numbers, and of each batch."""
    cell = worst_record(plan)
    without = statistics(plan, CODES, cell, seed)
    present = statistics(plan, np.concatenate([CODES, [cell]]), cell, seed + 1)
    pooled = np.sqrt((without.var(axis=0, ddof=1) + present.var(axis=0, ddof=1)) / 2)
    with np.errstate(divide="ignore"):
        return (present.mean(axis=0) - without.mean(axis=0)) / (pooled * math.sqrt(2 / RELEASES))


def law(cost):
    return stats.nct(2 * RELEASES - 2, math.sqrt(cost * RELEASES / 2))


LIMIT = law(COST).isf(ALARM / LOOKS)


def quieter(factor):
    """The noise law with its standard deviation multiplied by a factor."""
    return lambda variance: RoundedGaussian(variance * Fraction(factor) ** 2)


@pytest.fixture(scope="module")
def attacked(plan):
    return evidence(plan)


def test_the_test_has_the_error_rates_that_it_states(plan):
    assert 1 + len(plan.batches) <= LOOKS
    assert LOOKS * law(COST).sf(LIMIT) == pytest.approx(ALARM, rel=1e-3)
    assert law(COST / 0.8**2).cdf(LIMIT) < MISSED


def test_the_record_that_is_protected_least_costs_the_whole_budget_or_less(plan):
    """So the attacker attacks where it hurts most."""
    assert 0.9 * COST < exposure(plan, worst_record(plan)) <= COST * (1 + 1e-12)


def test_the_real_mechanism_passes(attacked):
    assert attacked.max() < LIMIT


def test_the_attack_finds_the_cost_itself(plan, attacked):
    """Two-sided: a mechanism that passes does not pass because the attack is idle."""
    found = law(exposure(plan, worst_record(plan)))
    assert found.ppf(ALARM / 2) < attacked[0] < found.isf(ALARM / 2)


def test_a_mechanism_with_a_fifth_too_little_noise_is_rejected(plan, monkeypatch):
    monkeypatch.setattr(measurement, "RoundedGaussian", quieter("0.8"))
    assert evidence(plan, seed=10).max() > LIMIT


def test_a_mechanism_that_forgets_the_noise_of_one_block_is_rejected(monkeypatch):
    work, method = WORKS["prefix"]
    plan = rs.plan(work, rs.privacy_cost(COST), method=method)
    real = measuring.noisy

    def forgetful(batch, answers, *others):
        return answers if batch is plan.batches[-1] else real(batch, answers, *others)

    monkeypatch.setattr(measuring, "noisy", forgetful)
    assert evidence(plan, seed=20).max() > LIMIT


def test_a_mechanism_that_counts_a_record_twice_is_rejected(monkeypatch):
    work, method = WORKS["marginals"]
    plan = rs.plan(work, rs.privacy_cost(COST), method=method)
    real = measuring.exact_answers
    monkeypatch.setattr(measuring, "exact_answers", lambda *args: [2 * answers for answers in real(*args)])
    assert evidence(plan, seed=30).max() > LIMIT
