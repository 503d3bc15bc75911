"""Laws of integer noise: true variances, tails, blocks, and parameters that are refused."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

import mpmath
import numpy as np
import pytest

from residua.errors import BudgetError
from residua.noise import DiscreteLaplace, RoundedGaussian, draw, laws, simulated
from residua.privacy.budgets import integer_variances

LAST = 1200  # probabilities beyond it do not matter
KINDS = [RoundedGaussian, DiscreteLaplace]
PARAMETERS = [
    Fraction(1, 1000),
    Fraction(1, 30),
    Fraction(9, 100),
    Fraction(6, 25),
    Fraction(1, 4),
    1,
    Fraction(50, 7),
]


def survivals(kind, parameter):
    """P(|Z| > t) for t = 0, 1, ... in many digits, by the definition of the law."""
    p = mpmath.mpf(parameter.numerator) / parameter.denominator
    if kind is RoundedGaussian:
        return [mpmath.erfc((t + mpmath.mpf(1) / 2) / mpmath.sqrt(2 * p)) for t in range(LAST)]
    weights = [mpmath.exp(-k / p) for k in range(LAST + 1)]
    tails = list(accumulate(reversed(weights)))[::-1]
    return [2 * tail / (2 * tails[0] - 1) for tail in tails[1:]]


@pytest.mark.parametrize("parameter", PARAMETERS, ids=float)
@pytest.mark.parametrize("kind", KINDS)
def test_the_variance_is_that_of_the_integers(kind, parameter):
    with mpmath.workdps(40):
        # E Z^2 = sum over t of (2t + 1) P(|Z| > t)
        exact = mpmath.fsum((2 * t + 1) * tail for t, tail in enumerate(survivals(kind, Fraction(parameter))))
    assert kind(parameter).variance == pytest.approx(float(exact), rel=4e-15)


def test_far_from_zero_the_variances_are_the_textbook_ones():
    assert RoundedGaussian(10**12).variance == 10**12 + 1 / 12
    assert RoundedGaussian(4).variance == pytest.approx(4 + 1 / 12, rel=1e-15)
    assert DiscreteLaplace(10**6).variance == pytest.approx(2e12 - 1 / 6, rel=1e-14)


def test_many_variances_at_once_are_those_of_each_law():
    parameters = [*map(Fraction, PARAMETERS), Fraction(399, 100), Fraction(4), Fraction(10**9)]
    for kind in KINDS:
        found = integer_variances(kind.name, np.array([float(each) for each in parameters]))
        assert found.tolist() == [kind(each).variance for each in parameters]


def test_noise_that_is_always_zero_has_next_to_no_variance():
    for kind in KINDS:
        assert 0 <= kind(Fraction(1, 2**40)).variance < 1e-99  # above zero where it is divided by
        assert not kind(Fraction(1, 2**40)).draw(simulated(seed=1), 1000).any()


@pytest.mark.parametrize("bits", [0, 1, 10, 64, 128])
@pytest.mark.parametrize("parameter", PARAMETERS, ids=float)
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_passed_with_no_more_than_its_probability(kind, parameter, bits):
    bound = kind(parameter).bound(bits)
    assert bound >= 0
    with mpmath.workdps(60):
        assert survivals(kind, Fraction(parameter))[bound] <= mpmath.mpf(2) ** -bits


@pytest.mark.parametrize(("kind", "parameter"), [(k, 10**6) for k in KINDS])
def test_the_bound_is_not_wasteful(kind, parameter):
    scale = parameter if kind is DiscreteLaplace else math.sqrt(parameter)
    nats = 64 * math.log(2)
    assert kind(parameter).bound(64) < scale * 1.03 * (
        nats if kind is DiscreteLaplace else math.sqrt(2 * nats)
    )


def test_the_bound_is_the_least_that_its_claim_allows():
    log_2 = laws._LOG_2_ABOVE
    assert [RoundedGaussian(Fraction(square, 8) / log_2).bound(1) for square in (8, 9, 10, 16)] == [
        1,
        1,
        2,
        2,
    ]
    assert [DiscreteLaplace(steps / (2 * log_2)).bound(1) for steps in (Fraction(3, 2), 2, 3)] == [1, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_probability_above_one_is_no_bound(kind):
    with pytest.raises(ValueError, match="at least 0, not -1"):
        kind(1).bound(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parameter", [0.5, math.nan, True, "1/2", None, Decimal(1), np.float64(2)], ids=repr)
def test_a_parameter_is_an_exact_fraction(kind, parameter):
    with pytest.raises(BudgetError, match=r"must be a fraction, not .*; try Fraction\('0.1'\)"):
        kind(parameter)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parameter", [0, -1, Fraction(-1, 2), Fraction(1, 2**113), 2**113], ids=str)
def test_a_parameter_lies_within_what_64_bits_can_serve(kind, parameter):
    with pytest.raises(BudgetError, match=r"must lie between 2\^-(40|112) and 2\^(40|112), but is"):
        kind(parameter)


def test_errors_say_which_parameter_they_mean():
    with pytest.raises(BudgetError, match="variance of a rounded Gaussian"):
        RoundedGaussian(0)
    with pytest.raises(
        BudgetError, match=r"scale of a discrete Laplace law must lie between 2\^-40 and 2\^40"
    ):
        DiscreteLaplace(2**41)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_are_equal_where_kind_and_number_are(kind):
    assert kind(2) == kind(Fraction(4, 2))
    assert hash(kind(2)) == hash(kind(Fraction(2)))
    assert isinstance(kind(2).parameter, Fraction)
    assert RoundedGaussian(2) != DiscreteLaplace(2)
    assert repr(kind(2)) == f"{kind.__name__}(parameter=Fraction(2, 1))"


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_keep_their_own_parameter_across_chunks(kind, monkeypatch):
    monkeypatch.setattr(laws, "_CHUNK", 1000)
    parameters, counts = [Fraction(1, 100), 10**8, 25, Fraction(1, 100)], [1700, 900, 0, 400]
    values = draw(simulated(seed=9), [kind(parameter) for parameter in parameters], counts)
    assert values.dtype == np.int64
    first, wide, none, last = np.split(values, np.cumsum(counts)[:-1])
    assert np.abs(first).max() <= 1
    assert np.abs(wide).mean() > 1000
    assert len(none) == 0
    assert np.abs(last).max() <= 1


def test_one_block_of_many_values_is_many_blocks_of_one_law():
    law = RoundedGaussian(Fraction(22, 7))
    np.testing.assert_array_equal(
        law.draw(simulated(seed=4), 60), draw(simulated(seed=4), [law, law, law], [10, 20, 30])
    )


def test_nothing_can_be_drawn():
    assert draw(simulated(seed=1), [], []).shape == (0,)
    assert RoundedGaussian(1).draw(simulated(seed=1), 0).shape == (0,)


def test_blocks_have_one_kind_of_noise():
    with pytest.raises(BudgetError, match=r"several kinds \(DiscreteLaplace, RoundedGaussian\)"):
        draw(simulated(seed=1), [RoundedGaussian(1), DiscreteLaplace(1)], [1, 1])


def test_every_law_has_a_count():
    with pytest.raises(ValueError, match="2 laws need 2 counts, not 1"):
        draw(simulated(seed=1), [RoundedGaussian(1), RoundedGaussian(2)], [1])


@pytest.mark.parametrize("count", [-1, 1.0, True, None])
def test_a_count_is_a_whole_number(count):
    with pytest.raises(ValueError, match="a count of noise values must be an integer of at least 0"):
        RoundedGaussian(1).draw(simulated(seed=1), count)


@pytest.mark.parametrize("seed", range(20))
def test_the_chance_to_reach_a_step_is_that_of_the_error_function(seed):
    chance = np.random.default_rng(seed)
    variance = Fraction(int(chance.integers(1, 2**60)), int(chance.integers(1, 2**40)))
    k = max(1, round(float(chance.exponential(1.0)) * math.sqrt(variance)))
    with mpmath.workdps(60):
        root = mpmath.sqrt(mpmath.mpf(variance.numerator) / variance.denominator)
        expected = mpmath.erfc((k - mpmath.mpf(1) / 2) / (root * mpmath.sqrt(2)))
    assert float(laws.GAUSSIAN.reaching(variance, k)) == pytest.approx(float(expected), rel=1e-13)
