"""Draws that floats decide and draws that ball arithmetic decides are the same draws."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given
from hypothesis import strategies as st

from residua.noise import DiscreteLaplace, RoundedGaussian, laws, simulated
from residua.noise.laws import Uniform, steps_reached
from residua.noise.quantiles import half_normal

SCALES = [Fraction(1, 2**40), Fraction(1, 1000), Fraction(3, 10), 1, Fraction(22, 7), 10**6, 10**9, 2**40]


class Script:
    """A source that says what it is told, and nothing more."""

    simulated = True

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        said, self.left = self.left[:count], self.left[count:]
        assert len(said) == count, "more words were asked for than the script has"
        return np.array(said, dtype=np.uint64)


@pytest.fixture
def exact_only(monkeypatch):
    """Every decision is left to ball arithmetic."""
    monkeypatch.setattr(laws, "MARGIN", math.inf)


def make(kind, scale):
    return kind(scale if kind is DiscreteLaplace else scale * scale)


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: f"{float(scale):g}")
@pytest.mark.parametrize("kind", [RoundedGaussian, DiscreteLaplace])
def test_floats_and_balls_make_the_same_draws_of_the_same_bits(kind, scale, monkeypatch):
    law, count = make(kind, scale), 1500
    fast = law.draw(simulated(seed=11), count)
    monkeypatch.setattr(laws, "MARGIN", math.inf)
    np.testing.assert_array_equal(fast, law.draw(simulated(seed=11), count))


@pytest.mark.usefixtures("exact_only")
def test_an_infinite_margin_leaves_nothing_to_floats(monkeypatch):
    seen = []

    def climb(stairs, source, part, parameter):
        seen.append(part)
        return 7

    monkeypatch.setattr(laws, "climb_exactly", climb)
    assert set(np.abs(RoundedGaussian(1).draw(simulated(seed=1), 100))) == {7}
    assert len(seen) == 100


@pytest.mark.parametrize("sign", [-1, 1])
def test_an_error_as_large_as_the_margin_never_changes_a_draw(sign, monkeypatch):
    table = half_normal()
    moved = table.coefficients.copy()
    moved[0] += sign * laws.MARGIN * 0.7
    monkeypatch.setattr(laws, "WIDE_BITS", 100)  # one part however wide
    law, count = RoundedGaussian(2**80), 5000  # so wide that many draws come close to a step
    right = law.draw(simulated(seed=2), count)
    wrong = replace(laws.GAUSSIAN, quantiles=lambda: replace(table, coefficients=moved))
    monkeypatch.setattr(laws, "GAUSSIAN", wrong)
    np.testing.assert_array_equal(right, law.draw(simulated(seed=2), count))
    monkeypatch.setattr(laws, "MARGIN", 0.0)
    assert (right != law.draw(simulated(seed=2), count)).any()  # the margin was what saved them


@pytest.mark.parametrize("scale", [Fraction(3, 10), 1, Fraction(22, 7), 10**6, 2**40], ids=float)
def test_a_rounded_gaussian_is_the_rounded_quantile_of_its_bits(scale, monkeypatch):
    monkeypatch.setattr(laws, "WIDE_BITS", 100)  # one part however wide
    law = RoundedGaussian(scale * scale)
    words = simulated(seed=5).words(300)
    words[:3] = [6, 2**64 - 1, 2**52]  # far in the tail, at the centre, at the end of the table
    drawn = law.draw(Script(*words.tolist(), *[2**63] * 9), len(words))  # later bits, if any, add a half
    with mpmath.workdps(50):
        for word, value in zip(words.tolist(), drawn.tolist(), strict=True):
            v = (mpmath.mpf(word >> 1) + 0.5) / 2**63
            x = mpmath.sqrt(2) * mpmath.erfinv(1 - v)
            magnitude = int(mpmath.floor(x * scale.numerator / scale.denominator + 0.5))
            assert value == (-magnitude if word & 1 else magnitude)


@pytest.mark.parametrize("scale", [Fraction(3, 10), 1, Fraction(22, 7), 10**6], ids=float)
def test_a_discrete_laplace_is_the_difference_of_two_floors_of_exponentials(scale):
    first, second = simulated(seed=6).words(300), simulated(seed=7).words(300)
    drawn = DiscreteLaplace(scale).draw(Script(*first.tolist(), *second.tolist()), 300)
    with mpmath.workdps(50):

        def floor(word):
            return int(mpmath.floor(-mpmath.log((mpmath.mpf(word >> 1) + 0.5) / 2**63) * scale))

        assert drawn.tolist() == [
            floor(a) - floor(b) for a, b in zip(first.tolist(), second.tolist(), strict=True)
        ]


def bits_of_a_step(extra_bits):
    """P(|N(0, 1)| >= 1/2), where round(N(0, 1)) leaves zero, cut after 63 + extra_bits bits."""
    with ctx.workprec(400):
        chance = arb(fmpq(1, 8)).sqrt().erfc()
        return int((chance * arb(2) ** (63 + extra_bits)).floor().unique_fmpz())


@pytest.mark.parametrize(("later", "magnitude"), [(-1, 1), (1, 0)])
@pytest.mark.parametrize("sign", [0, 1])
def test_bits_that_tie_with_a_step_are_drawn_further(sign, later, magnitude):
    part, more = divmod(bits_of_a_step(64), 2**64)
    source = Script(part << 1 | sign, more + later)
    assert RoundedGaussian(1).draw(source, 1).tolist() == [-magnitude if sign else magnitude]
    assert source.left == []


@pytest.mark.parametrize(("last", "magnitude"), [(0, 1), (2**64 - 1, 0)])
def test_bits_that_tie_twice_are_drawn_twice(last, magnitude):
    part, more = divmod(bits_of_a_step(64), 2**64)
    source = Script(part << 1, more, last)
    assert RoundedGaussian(1).draw(source, 1).tolist() == [magnitude]
    assert source.left == []


def test_a_part_of_zeros_is_drawn_further_and_reaches_far():
    # V of about 2^-127 is exceeded beyond x = 12.9; no float of the table goes there.
    source = Script(0, 1, 2**63)
    (value,) = RoundedGaussian(10**12).draw(source, 1)
    with mpmath.workdps(80):
        x = mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(1.5) / 2**127)
        assert value == int(mpmath.floor(x * 10**6 + 0.5)) > 12_900_000
    assert source.left == []


@given(reach=st.integers(0, 10**6), guess=st.integers(0, 10**6))
def test_the_steps_reached_do_not_depend_on_the_guess(reach, guess):
    assert steps_reached(lambda k: k <= reach, guess) == reach


@given(numerator=st.integers(0, 2**63 - 1), limit=st.fractions(min_value=0, max_value=1))
def test_a_comparison_is_true_of_every_number_with_these_bits(numerator, limit):
    uniform = Uniform(simulated(seed=8), numerator, 63)
    below = uniform.below(lambda: arb(fmpq(limit.numerator, limit.denominator)))
    ends = Fraction(uniform.numerator, 2**uniform.bits), Fraction(uniform.numerator + 1, 2**uniform.bits)
    assert ends[1] <= limit if below else ends[0] >= limit
    assert uniform.numerator >> (uniform.bits - 63) == numerator
