"""Draws against the exact probabilities of their laws.

Each test raises a false alarm with probability ALARM. Seeds are fixed, so a run that passes once passes for
ever; only the comparisons with opendp and the tests of the system source draw anew.
"""

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from flint import arb, fmpq
from scipy import stats

from residua.noise import DiscreteLaplace, RoundedGaussian, SystemSource, draw, laws, simulated

ALARM = 1e-6
COUNT = 1_000_000
SCALES = [Fraction(3, 10), Fraction(1), Fraction(100)]
KINDS = [RoundedGaussian, DiscreteLaplace]


def make(kind, scale):
    return kind(scale if kind is DiscreteLaplace else scale**2)


def ball(number):
    return arb(fmpq(number.numerator, number.denominator))


def probabilities(law, largest):
    """P(Z = k) for k = 0, ..., largest, from ball arithmetic."""
    p = law.parameter
    if isinstance(law, RoundedGaussian):
        beyond = [ball(Fraction((2 * k - 1) ** 2, 8) / p).sqrt().erfc() / 2 for k in range(1, largest + 2)]
        chances = [1 - 2 * beyond[0]] + [beyond[k - 1] - beyond[k] for k in range(1, largest + 1)]
    else:
        weights = [(-ball(Fraction(k / p))).exp() for k in range(40 * largest + 60)]
        total = 2 * sum(weights, arb(0)) - 1
        chances = [weight / total for weight in weights[: largest + 1]]
    return np.array([float(chance) for chance in chances])


def chi_squared(observed, expected):
    """Probability of a worse fit, cells that expect fewer than 20 thrown together."""
    rare = expected < 20
    seen = [*observed[~rare], observed[rare].sum()]
    due = [*expected[~rare], expected[rare].sum()]
    if due[-1] < 1e-9:
        seen, due = seen[:-1], due[:-1]
    return stats.chisquare(seen, due, sum_check=False).pvalue if len(due) > 1 else 1.0


def counts_of(values, largest):
    """How many values there are of each of -largest, ..., largest, and beyond."""
    inside = values[np.abs(values) <= largest]
    return np.append(np.bincount(inside + largest, minlength=2 * largest + 1), len(values) - len(inside))


def reach(law):
    """An integer beyond which a million draws hardly go."""
    return int(5 * math.sqrt(law.variance)) + 2


def expected_counts(law, count, largest):
    half = probabilities(law, largest)
    chances = np.concatenate([half[:0:-1], half])
    return count * np.append(chances, 1 - chances.sum())


@pytest.mark.parametrize("scale", SCALES, ids=float)
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_probabilities_of_their_law(kind, scale):
    law = make(kind, scale)
    values = law.draw(simulated(seed=101), COUNT)
    largest = reach(law)
    assert chi_squared(counts_of(values, largest), expected_counts(law, COUNT, largest)) > ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_draws_that_balls_decide_have_the_probabilities_of_their_law(kind, monkeypatch):
    monkeypatch.setattr(laws, "MARGIN", math.inf)
    law, count = make(kind, Fraction(1)), 20_000
    values = law.draw(simulated(seed=102), count)
    assert chi_squared(counts_of(values, 6), expected_counts(law, count, 6)) > ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(100), Fraction(10**6)], ids=float)
@pytest.mark.parametrize("kind", KINDS)
def test_mean_variance_and_signs_are_those_of_the_law(kind, scale):
    law = make(kind, scale)
    values = law.draw(simulated(seed=103), COUNT).astype(float)
    squares = values**2
    z = stats.norm.isf(ALARM / 2)
    assert abs(values.mean()) < z * values.std() / math.sqrt(COUNT)
    assert abs(squares.mean() - law.variance) < z * squares.std() / math.sqrt(COUNT)
    positive, negative = int((values > 0).sum()), int((values < 0).sum())
    assert stats.binomtest(positive, positive + negative).pvalue > ALARM


@pytest.mark.parametrize("seed", [104, 105])
def test_the_tail_of_a_wide_rounded_gaussian_is_gaussian(seed):
    # The table ends at 3.67 standard deviations: cells lie on both sides of it and across.
    scale, count = 10**6, 4_000_000
    values = np.abs(RoundedGaussian(scale**2).draw(simulated(seed), count)) / scale
    edges = np.array([0, 3.3, 3.5, 3.6, 3.65, 3.67, 3.68, 3.7, 3.8, 4, 4.3, 4.7, np.inf])
    observed = np.histogram(values, edges)[0]
    expected = count * -np.diff(2 * stats.norm.sf(edges))
    assert chi_squared(observed, expected) > ALARM


def test_the_fraction_of_a_wide_gaussian_is_uniform():
    # Low digits show what a coarse float would hide.
    values = RoundedGaussian(Fraction(10**18)).draw(simulated(seed=106), COUNT)
    assert stats.chisquare(np.bincount(values % 1000, minlength=1000)).pvalue > ALARM


def test_blocks_with_their_own_variances_keep_their_own_laws():
    laws = [make(RoundedGaussian, scale) for scale in SCALES]
    values = draw(simulated(seed=107), laws * 100, [1000] * 300).reshape(100, 3, 1000)
    for block, law in enumerate(laws):
        largest = reach(law)
        seen = counts_of(values[:, block].ravel(), largest)
        assert chi_squared(seen, expected_counts(law, 100_000, largest)) > ALARM


def test_neighbouring_draws_are_not_correlated():
    values = RoundedGaussian(Fraction(100)).draw(simulated(seed=108), COUNT).astype(float)
    for lag in (1, 2, 16_384):
        correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
        assert abs(correlation) < stats.norm.isf(ALARM / 2) / math.sqrt(COUNT - lag)


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0])
def test_opendp_draws_the_same_law(scale):
    count = 50_000
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=count)
    release = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    law = DiscreteLaplace(Fraction(scale))
    largest = reach(law)
    ours = counts_of(law.draw(simulated(seed=109), count), largest)
    theirs = counts_of(np.array(release([0] * count)), largest)
    frequent = ours + theirs >= 20
    table = np.array([[*each[frequent], each[~frequent].sum()] for each in (ours, theirs)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > ALARM


@pytest.mark.parametrize("shift", [0, 8, 16, 24, 32, 40, 48, 56])
def test_every_byte_of_the_system_source_is_uniform(shift):
    words = SystemSource().words(COUNT)
    seen = np.bincount((words >> np.uint64(shift)).astype(np.uint8), minlength=256)
    assert stats.chisquare(seen).pvalue > ALARM


def test_the_system_source_makes_the_same_law():
    law = RoundedGaussian(Fraction(1))
    values = law.draw(SystemSource(), COUNT)
    assert chi_squared(counts_of(values, 7), expected_counts(law, COUNT, 7)) > ALARM


def test_a_wrong_variance_would_be_noticed():
    # Two percent more than claimed: what a million draws find almost surely (one percent is a coin flip).
    values = RoundedGaussian(Fraction(102, 100)).draw(simulated(seed=110), COUNT)
    assert chi_squared(counts_of(values, 7), expected_counts(RoundedGaussian(1), COUNT, 7)) < ALARM
