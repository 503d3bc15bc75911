"""Conversions between costs and (epsilon, delta), against mpmath, dp-accounting and brute force."""

import math
from fractions import Fraction
from functools import partial

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from scipy.stats import norm

from residua.errors import BudgetError
from residua.privacy import amount_for, conversions, delta_of, epsilon_of
from residua.privacy.conversions import proves

rho_for = partial(amount_for, figure="rho")
zcdp_delta_of = partial(delta_of, figure="rho")
zcdp_epsilon_of = partial(epsilon_of, figure="rho")
pure_delta_of = partial(delta_of, figure="pure_epsilon")

EPSILONS = ["0.001", "0.01", "0.1", "0.5", "1", "3", "10", "50"]
DELTAS = ["1e-15", "1e-12", "1e-9", "1e-6", "0.001", "0.1"]
COSTS = ["1e-8", "1e-4", "0.05", "1", "7", "100", "1e4"]
EXTREME_EPSILONS = [*EPSILONS, "1e-12", "1000"]
EXTREME_DELTAS = [*DELTAS, "1e-300", "1e-40", "0.9", "0.999999999999999999999999"]


def rational(text):
    number = Fraction(text)
    return mpmath.mpf(number.numerator) / number.denominator


def true_delta(cost, epsilon):
    """Delta at 120 digits; cancellation costs at most about 30 of them on these grids."""
    mu = mpmath.sqrt(cost)
    upper, lower = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = [mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (upper, lower)]
    return tail[0] - mpmath.exp(epsilon) * tail[1]


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(120):
        yield


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("epsilon", ["0", *EXTREME_EPSILONS])
def test_delta_is_never_below_the_truth_and_hardly_above(cost, epsilon):
    computed = mpmath.mpf(delta_of(cost, epsilon))
    truth = true_delta(rational(cost), rational(epsilon))
    if truth < 1e-300:
        assert truth <= computed <= 1e-299
    else:
        assert truth <= computed <= truth * (1 + mpmath.mpf("1e-12"))


@pytest.mark.parametrize("epsilon", EXTREME_EPSILONS)
@pytest.mark.parametrize("delta", EXTREME_DELTAS)
def test_the_cost_for_a_budget_is_never_above_the_truth_and_hardly_below(epsilon, delta):
    cost = amount_for(epsilon, delta)
    eps, limit = rational(epsilon), rational(delta)
    assert true_delta(rational(cost), eps) <= limit
    assert true_delta(rational(cost) * (1 + mpmath.mpf(2) ** -50), eps) > limit
    assert cost.numerator.bit_length() <= 53
    assert cost.denominator.bit_count() == 1


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("delta", EXTREME_DELTAS)
def test_epsilon_is_never_below_the_truth_and_hardly_above(cost, delta):
    epsilon = epsilon_of(cost, delta)
    limit = rational(delta)
    assert true_delta(rational(cost), mpmath.mpf(epsilon)) <= limit
    assert true_delta(rational(cost), rational(repr(epsilon))) <= limit
    if epsilon > 0:
        assert true_delta(rational(cost), mpmath.mpf(epsilon) * (1 - mpmath.mpf(2) ** -50)) > limit


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_dp_accounting_agrees_on_the_gaussian(epsilon, delta):
    cost = amount_for(epsilon, delta)
    assert 1 / math.sqrt(cost) == pytest.approx(
        dp_accounting.get_sigma_gaussian(float(epsilon), float(delta)), rel=1e-7
    )
    assert epsilon_of(cost, delta) == pytest.approx(
        dp_accounting.get_epsilon_gaussian(1 / math.sqrt(cost), float(delta)), rel=1e-7
    )


def test_epsilon_one_and_delta_one_in_a_million_need_noise_of_4_22():
    assert 1 / math.sqrt(amount_for(1, "1e-6")) == pytest.approx(4.22468, abs=5e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_a_budget_turned_into_a_cost_and_back_is_the_same_epsilon(epsilon, delta):
    exact = Fraction(epsilon)
    back = Fraction(epsilon_of(amount_for(epsilon, delta), delta))
    assert exact * (1 - Fraction(1, 2**45)) <= back <= math.nextafter(float(epsilon), math.inf)


def test_nothing_measured_costs_nothing():
    assert delta_of(0, 0) == epsilon_of(0, "1e-300") == 0.0
    assert zcdp_delta_of(0, 0) == zcdp_epsilon_of(0, "1e-300") == 0.0
    assert pure_delta_of(0, 0) == 0.0


def test_epsilon_is_zero_where_delta_is_generous():
    assert epsilon_of("1e-4", "0.01") == 0.0
    assert zcdp_epsilon_of("1e-4", "0.5") == 0.0


def test_delta_too_small_for_floats_is_the_smallest_float():
    assert delta_of("1e-300", 1000) == zcdp_delta_of("1e-300", 1000) == math.ulp(0.0)


def test_astronomical_numbers_get_true_bounds():
    assert delta_of("1e300", "1e299") == 1.0
    assert delta_of("1e100", "1e100") == math.ulp(0.0)
    assert amount_for("1e100", 0.5) == pytest.approx(2e100)
    assert epsilon_of("1e100", "1e-9") == pytest.approx(5e99)
    assert zcdp_delta_of("1e100", "1e100") == 1.0
    assert rho_for("1e100", 0.5) == pytest.approx(1e100)
    assert pure_delta_of("1e300", 1) == 1.0


@pytest.mark.parametrize("convert", [amount_for, rho_for])
def test_a_budget_too_small_for_any_float_is_refused(convert):
    with pytest.raises(BudgetError, match="more noise than numbers can hold; raise it"):
        convert("1e-300", "1e-300")


def test_where_precision_runs_out_the_answer_errs_on_the_private_side(monkeypatch):
    cost, epsilon, delta = Fraction(1, 10**40), Fraction(0), Fraction(1, 10**10)
    assert proves("cost", cost, epsilon, delta)
    tight = delta_of(cost, epsilon)
    monkeypatch.setattr(conversions, "_PRECISIONS", (2,))
    assert not proves("cost", cost, epsilon, delta)
    assert delta_of(cost, epsilon) > tight
    monkeypatch.setattr(conversions, "_PRECISIONS", ())
    assert not proves("cost", cost, epsilon, delta)
    assert delta_of(cost, epsilon) == 1.0


@pytest.mark.parametrize("variance", [0.3, 2.0, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_rounded_gaussian_noise_stays_within_the_gaussian_delta(variance, epsilon):
    cells = np.arange(-200, 201)
    scale = math.sqrt(variance)
    there = norm.cdf((cells + 0.5) / scale) - norm.cdf((cells - 0.5) / scale)
    delta = np.maximum(there[1:] - math.exp(epsilon) * there[:-1], 0).sum()
    assert delta <= delta_of(1 / Fraction(str(variance)), epsilon) + 1e-15


@pytest.mark.parametrize("variance", [0.3, 2.0, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_discrete_gaussian_noise_stays_within_the_zcdp_delta(variance, epsilon):
    weights = np.exp(-(np.arange(-200, 201) ** 2) / (2 * variance))
    there = weights / weights.sum()
    delta = np.maximum(there[1:] - math.exp(epsilon) * there[:-1], 0).sum()
    assert delta <= zcdp_delta_of(1 / (2 * Fraction(str(variance))), epsilon) + 1e-15


def test_discrete_gaussian_noise_can_exceed_the_gaussian_delta():
    weights = np.exp(-(np.arange(-50, 51) ** 2) / (2 * 0.3))
    there = weights / weights.sum()
    excess = [
        np.maximum(there[1:] - math.exp(eps) * there[:-1], 0).sum() - delta_of(1 / Fraction("0.3"), eps)
        for eps in (0.5, 1.0, 1.6, 3.0)
    ]
    assert max(excess) > 0.01


def zcdp_delta_on_a_grid(rho, epsilon):
    """The bound over many orders alpha, as it is usually written; tiny orders and large ones included."""
    alpha = 1 + np.exp(np.linspace(-20, 20, 200_001))
    exponent = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    return math.exp(exponent.min())


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 10.0, 50.0])
def test_the_zcdp_bound_is_the_best_over_all_orders(rho, epsilon):
    grid = zcdp_delta_on_a_grid(rho, epsilon)
    if grid > 1e-300:
        assert zcdp_delta_of(rho, epsilon) == pytest.approx(grid, rel=1e-6)


@pytest.mark.parametrize("rho", ["0.001", "0.1", "1", "20"])
@pytest.mark.parametrize("delta", DELTAS)
def test_dp_accounting_agrees_on_zcdp(rho, delta):
    accountant = rdp.RdpAccountant(orders=1 + np.exp(np.linspace(-4, 10, 4000)))
    accountant.compose(dp_accounting.ZCDpEvent(float(rho)))
    theirs = accountant.get_epsilon(float(delta))
    ours = zcdp_epsilon_of(rho, delta)
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-12)
    assert ours <= theirs * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("epsilon", EXTREME_EPSILONS)
@pytest.mark.parametrize("delta", EXTREME_DELTAS)
def test_rho_for_a_budget_is_within_it_and_hardly_below(epsilon, delta):
    rho, eps, limit = rho_for(epsilon, delta), Fraction(epsilon), Fraction(delta)
    assert proves("rho", rho, eps, limit)
    assert not proves("rho", rho * (1 + Fraction(1, 2**50)), eps, limit)
    assert 2 * rho <= amount_for(epsilon, delta)


@pytest.mark.parametrize("pure", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0, 2.0])
def test_the_pure_bound_is_the_worst_event_that_pure_dp_allows(pure, share):
    epsilon = share * pure
    q = np.append(np.linspace(0, 1, 100_001), 1 / (1 + math.exp(pure)))
    p = np.minimum(math.exp(pure) * q, 1 - math.exp(-pure) * (1 - q))
    worst = max(0.0, (p - math.exp(epsilon) * q).max())
    assert pure_delta_of(pure, epsilon) == pytest.approx(worst, rel=1e-12, abs=1e-15)


def test_the_pure_bound_decides_as_it_rounds():
    pure, epsilon = Fraction(1), Fraction(1, 2)
    delta = Fraction(pure_delta_of(pure, epsilon))
    assert proves("pure_epsilon", pure, epsilon, delta)
    assert not proves("pure_epsilon", pure, epsilon, delta * (1 - Fraction(1, 2**48)))
    assert proves("pure_epsilon", pure, pure, Fraction(1, 10**300))


@pytest.mark.parametrize("convert", [delta_of, zcdp_delta_of, pure_delta_of])
def test_negative_arguments_are_refused(convert):
    with pytest.raises(BudgetError, match="must not be negative"):
        convert(-1, 1)
    with pytest.raises(BudgetError, match="epsilon must not be negative"):
        convert(1, -1)


@pytest.mark.parametrize("convert", [epsilon_of, amount_for, zcdp_epsilon_of, rho_for])
def test_delta_outside_0_and_1_is_refused(convert):
    with pytest.raises(BudgetError, match="delta must lie strictly between 0 and 1"):
        convert(1, 1)


def test_a_search_without_an_end_says_infinity():
    assert conversions.first_float(lambda _: False) == math.inf
    assert conversions.first_float(lambda _: True) == 0.0
    assert conversions.first_float(lambda x: x >= 0.1) == 0.1
