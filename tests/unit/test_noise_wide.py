"""Rounded Gaussians drawn in two parts (N-025)."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from residua.noise import RoundedGaussian, SystemSource, simulated, wide

FALSE_ALARM = 1e-6


def chi_squared(values: NDArray[np.int64], sigma: float, reach: int) -> float:
    """p-value of integer draws against the rounded Gaussian, tails pooled."""
    steps = np.arange(-reach, reach + 1)
    upper, lower = norm.cdf((steps + 0.5) / sigma), norm.cdf((steps - 0.5) / sigma)
    upper[-1], lower[0] = 1.0, 0.0
    expected = len(values) * (upper - lower)
    found = np.bincount(np.clip(values, -reach, reach) + reach, minlength=len(steps))
    return float(chi2.sf(np.sum((found - expected) ** 2 / expected), len(steps) - 1))


@pytest.mark.parametrize("seed", [11, 12])
def test_two_part_draws_have_the_law_of_a_rounded_gaussian(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Small enough to count every integer, and so coarse that most proposals are not kept for sure.
    monkeypatch.setattr(wide, "WIDE_BITS", 3)
    monkeypatch.setattr(wide, "COARSE_BITS", 1)
    monkeypatch.setattr(wide, "SURE", 0)
    values = RoundedGaussian(Fraction(300)).draw(simulated(seed=seed), 30_000)
    assert chi_squared(values, math.sqrt(300), 50) > FALSE_ALARM


def test_the_check_notices_a_variance_that_is_wrong_by_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "WIDE_BITS", 3)
    monkeypatch.setattr(wide, "COARSE_BITS", 1)
    monkeypatch.setattr(wide, "SURE", 0)
    values = RoundedGaussian(Fraction(315)).draw(simulated(seed=1), 60_000)
    assert chi_squared(values, math.sqrt(300), 50) < FALSE_ALARM * 1e3


@pytest.mark.parametrize("bits", [33, 40, 52])
def test_wide_draws_have_the_right_spread_and_even_low_bits(bits: int) -> None:
    sigma = math.sqrt(3) * 2.0**bits
    values = RoundedGaussian(3 * Fraction(4) ** bits).draw(simulated(seed=bits), 200_000)
    inside = np.abs(values) < sigma * norm.ppf(0.75)
    for share in (inside, values & 1, values >> 7 & 1, values > 0):
        assert abs(np.mean(share) - 0.5) < 5 * 0.5 / math.sqrt(len(values))


def test_the_quick_decision_is_one_that_ball_arithmetic_would_make() -> None:
    """A word below SURE keeps F even at the worst place of the farthest step that it may decide."""
    variance = Fraction(4) ** wide.COARSE_BITS
    farthest = wide.FAR * 2**wide.COARSE_BITS
    ones = 2**41 - 1  # F next to 1/2, farthest from zero
    assert wide._keep(simulated(seed=1), farthest, ones, 41, wide.SURE - 1, variance)


def test_narrow_draws_are_left_as_they_were() -> None:
    one = RoundedGaussian(Fraction(10**12)).draw(simulated(seed=5), 1000)
    assert np.array_equal(one, RoundedGaussian(Fraction(10**12)).draw(simulated(seed=5), 1000))
    assert wide._shift(Fraction(10**12)) == 0
    assert wide._shift(Fraction(4) ** 32) == 8


def test_far_steps_are_decided_by_ball_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "FAR", 0)
    values = RoundedGaussian(Fraction(4) ** 33).draw(SystemSource(), 50)
    assert len(set(values.tolist())) == 50
