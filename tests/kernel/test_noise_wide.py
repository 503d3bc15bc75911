"""Rounded Gaussians drawn in two parts (N-025)."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray
from scipy.stats import norm

from residua.noise import RoundedGaussian, SystemSource, laws, simulated
from residua.noise.laws import Uniform
from residua.privacy.conversions import ball_of


@pytest.mark.parametrize("bits", [33, 40, 52])
def test_wide_draws_have_the_right_spread_and_even_low_bits(bits: int) -> None:
    sigma = math.sqrt(3) * 2.0**bits
    values = RoundedGaussian(3 * Fraction(4) ** bits).draw(simulated(seed=bits), 200_000)
    inside = np.abs(values) < sigma * norm.ppf(0.75)
    for share in (inside, values & 1, values >> 7 & 1, values > 0):
        assert abs(np.mean(share) - 0.5) < 5 * 0.5 / math.sqrt(len(values))


def test_the_quick_decision_is_one_that_ball_arithmetic_would_make() -> None:
    """A word below SURE keeps F even at the worst place of the farthest step that it may decide."""
    variance = Fraction(4) ** laws.COARSE_BITS
    farthest = laws.FAR * 2**laws.COARSE_BITS
    source = simulated(seed=1)
    ones = 2**41 - 1  # F next to 1/2, farthest from zero
    assert laws._keep(farthest, Uniform(source, ones, 41), Uniform(source, laws.SURE - 1, 64), variance)


def test_narrow_draws_are_left_as_they_were() -> None:
    one = RoundedGaussian(Fraction(10**12)).draw(simulated(seed=5), 1000)
    assert np.array_equal(one, RoundedGaussian(Fraction(10**12)).draw(simulated(seed=5), 1000))
    assert laws._shift(Fraction(10**12)) == 0
    assert laws._shift(Fraction(4) ** 32) == 8


def test_far_steps_are_decided_by_ball_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "FAR", 0)
    values = RoundedGaussian(Fraction(4) ** 33).draw(SystemSource(), 50)
    assert len(set(values.tolist())) == 50


class Words:
    """A source of these words, in this order."""

    simulated = True

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize("k", [0, 1, -1, 5, -7])
@pytest.mark.parametrize("eighths", [0, 1, 4, 7])
def test_a_place_is_kept_by_its_density_over_the_largest_one(k: int, eighths: int) -> None:
    """The density ratio at F = eighths / 8 - 1/2, from a normal density; chances on both sides of it."""
    sigma, peak = 3.0, max(abs(k) - 0.5, 0.0)
    ratio = norm.pdf((k + eighths / 8 - 0.5) / sigma) / norm.pdf(peak / sigma)
    for chance, kept in ((ratio - 1e-6, True), (ratio + 1e-6, False)):
        if chance < 1:
            place = Uniform(simulated(seed=1), eighths << 61, 64)
            drawn = Uniform(simulated(seed=2), int(chance * 2.0**64), 64)
            assert laws._keep(k, place, drawn, Fraction(9)) == kept


def test_a_place_that_is_not_kept_is_drawn_again() -> None:
    """Far out the chance decides: the first place is refused, the second one taken."""
    shift, k = 4, 2**34  # S = 16, t = 2^24: so far out that balls decide
    top = 2**64 - 1
    words = Words(31 << 59, top, 0, 1 << 59, 0, 0)
    [value] = laws._refined(
        words, np.array([k]), np.array([shift]), [Fraction(4) ** 24], np.zeros(1, dtype=np.intp)
    )
    assert value == 16 * k - 8 + 1  # of the five bits 00001: F is at least -1/2 + 1/32
    assert words.left == []


@pytest.mark.parametrize(("bits", "place"), [(0, 0), (1, 1), (2, 1), (30, 15), (31, 16)])
def test_the_bits_of_a_place_are_those_of_the_integer(bits: int, place: int) -> None:
    words = Words(bits << 59, 0)
    [value] = laws._refined(
        words, np.array([-3]), np.array([4]), [Fraction(4) ** 24], np.zeros(1, dtype=np.intp)
    )
    assert value == 16 * -3 - 8 + place
    assert words.left == []


def test_a_place_in_doubt_is_told_by_the_bits_that_are_drawn_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, Uniform, Uniform, Fraction]] = []
    monkeypatch.setattr(laws, "SURE", 0)
    monkeypatch.setattr(laws, "_keep", lambda *given: told.append(given) or True)
    coarse, shifts = np.array([3, -2, 0, 7]), np.array([8, 40, 11, 8])
    variances = [Fraction(2**49), Fraction(2**48)]
    found = laws._refined(simulated(seed=5), coarse, shifts, variances, np.array([0, 1, 0, 1]))
    for value, shift, variance, (k, place, chance, own) in zip(
        found.tolist(), shifts.tolist(), [*variances, *variances], told, strict=True
    ):
        assert (place.bits, chance.bits, own) == (shift + 1, 64, variance)
        assert value == k * 2**shift - 2**shift // 2 + (place.numerator + 1) // 2


def test_a_ratio_encloses_that_of_every_place_with_its_bits() -> None:
    balls = []

    class Chance:
        def below(self, ratio: Callable[[], arb]) -> bool:
            balls.append(ratio())
            return True

    place = Uniform(simulated(seed=6), 5, 3)
    with ctx.workprec(400):
        laws._keep(5, place, Chance(), Fraction(9))  # type: ignore[arg-type]
        for quarters in (1, 3):
            fine = Fraction(4 * place.numerator + quarters, 4 * 2**place.bits) - Fraction(1, 2)
            ratio = ball_of((Fraction(9, 2) ** 2 - (5 + fine) ** 2) / 18).exp()
            assert balls[0].contains(ratio)
    assert place.bits == 67


def test_the_last_step_that_is_reached_is_found_from_any_guess() -> None:
    for last in range(40):
        found = [laws.steps_reached(lambda k, last=last: k <= last, guess) for guess in range(60)]
        assert found == [last] * 60
