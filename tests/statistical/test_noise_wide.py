"""Rounded Gaussians drawn in two parts have their law (N-025)."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from residua.noise import RoundedGaussian, laws, simulated

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
    monkeypatch.setattr(laws, "WIDE_BITS", 3)
    monkeypatch.setattr(laws, "COARSE_BITS", 1)
    monkeypatch.setattr(laws, "SURE", 0)
    values = RoundedGaussian(Fraction(300)).draw(simulated(seed=seed), 30_000)
    assert chi_squared(values, math.sqrt(300), 50) > FALSE_ALARM


def test_the_check_notices_a_variance_that_is_wrong_by_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "WIDE_BITS", 3)
    monkeypatch.setattr(laws, "COARSE_BITS", 1)
    monkeypatch.setattr(laws, "SURE", 0)
    values = RoundedGaussian(Fraction(315)).draw(simulated(seed=1), 60_000)
    assert chi_squared(values, math.sqrt(300), 50) < FALSE_ALARM * 1e3
