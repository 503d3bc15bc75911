"""An attacker's best guess whether one person is in the data, where records are shares of cells.

The attack, its law and its error rates are those of `test_privacy_black_box`: the best linear statistic of
the measured numbers in many releases with and without one record, at ends of numbers, where it costs most.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from shares import joint_shares

import residua as rs
from residua.kernel import measurement
from residua.noise import RoundedGaussian

ALARM, LOOKS, RELEASES, COST = 1e-6, 10, 800, 4
SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"), pay=rs.Number(0, 100, step=1), hours=rs.Number(-5, 15, step=5, missing=True)
)
BOTH = [rs.total, rs.sum]
WORK = rs.table(SCHEMA, sex=rs.identity, pay=BOTH) + rs.table(SCHEMA, pay=rs.sum, hours=BOTH)
CODES = np.array([[0, 0, 1], [1, 100, 5], [1, 37, 4], [0, 63, 0]])
LIMIT = stats.nct(2 * RELEASES - 2, math.sqrt(COST * RELEASES / 2)).isf(ALARM / LOOKS)


@pytest.fixture(scope="module")
def plan():
    return rs.plan(WORK, rs.privacy_cost(COST))


def column(batch, record):
    """What one record adds to every number of a batch, over the variance of its noise."""
    found = []
    for attributes, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
        rows = np.ones((1, 1)) * float(batch.multiplier)
        for matrix in batch.matrices:
            rows = np.kron(rows, matrix)
        phi = joint_shares(SCHEMA, np.array([record]), attributes)[0]
        found.append(rows @ phi / float(batch.parameters[owner]))
    return np.concatenate(found)


def exposure(plan, record):
    """Privacy cost of one record."""
    total = 0.0
    for batch in plan.batches:
        spread = np.repeat([float(batch.parameters[owner]) for owner in batch.owners], batch.rows)
        total += float(np.sum(column(batch, record) ** 2 * spread))
    return total


def worst_record(plan):
    ends = [(0, 1), (0, 50, 100), (0, 2, 4, 5)]
    return max(
        ((a, b, c) for a in ends[0] for b in ends[1] for c in ends[2]), key=lambda r: exposure(plan, r)
    )


def evidence(plan, seed):
    """The t statistics of the difference that one record makes: of all numbers, and of each batch."""
    record = worst_record(plan)
    weights = [column(batch, record) for batch in plan.batches]
    found = []
    for number, codes in enumerate((CODES, np.concatenate([CODES, [record]]))):
        source, rows = rs.simulated(seed + number), []
        for _ in range(RELEASES):
            values = rs.measure(plan, codes, ledger=None, noise=source).measurements.values
            parts = [part.reshape(-1) @ own for part, own in zip(values, weights, strict=True)]
            rows.append([sum(parts), *parts])
        found.append(np.array(rows))
    without, present = found
    pooled = np.sqrt((without.var(axis=0, ddof=1) + present.var(axis=0, ddof=1)) / 2)
    with np.errstate(divide="ignore"):
        return (present.mean(axis=0) - without.mean(axis=0)) / (pooled * math.sqrt(2 / RELEASES))


def test_the_real_mechanism_passes_and_the_attack_finds_the_cost(plan):
    found = exposure(plan, worst_record(plan))
    assert 0.9 * COST < found <= COST * (1 + 1e-12)
    assert 1 + len(plan.batches) <= LOOKS
    attacked = evidence(plan, seed=0)
    assert attacked.max() < LIMIT
    true = stats.nct(2 * RELEASES - 2, math.sqrt(found * RELEASES / 2))
    assert true.ppf(ALARM / 2) < attacked[0] < true.isf(ALARM / 2)


def test_a_mechanism_with_a_fifth_too_little_noise_is_rejected(plan, monkeypatch):
    quieter = Fraction("0.8") ** 2
    monkeypatch.setattr(measurement, "RoundedGaussian", lambda variance: RoundedGaussian(variance * quieter))
    assert evidence(plan, seed=10).max() > LIMIT


def test_a_mechanism_whose_weights_are_twice_what_its_noise_is_for_is_rejected(plan, monkeypatch):
    true = measurement.Measurement.multiples
    monkeypatch.setattr(measurement.Measurement, "multiples", lambda self, units: 2 * true(self, units))
    assert evidence(plan, seed=20).max() > LIMIT
