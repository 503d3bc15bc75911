"""Laws of the privacy room that hold for every amount."""

import json
import math
from fractions import Fraction
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from residua.privacy import (
    Privacy,
    amount_for,
    approx_dp,
    budget_from_manifest,
    delta_of,
    epsilon_of,
    gdp,
    privacy_cost,
    pure_dp,
    zcdp,
)
from residua.privacy.conversions import exact, float_above, text_above

zcdp_delta_of = partial(delta_of, figure="rho")
zcdp_epsilon_of = partial(epsilon_of, figure="rho")


def powers_of_ten(low, high):
    """Numbers of four digits whose sizes spread evenly between two powers of ten."""
    mantissas = st.integers(1000, 9999)
    return st.builds(
        lambda m, e: Fraction(m, 1000) * Fraction(10) ** e, mantissas, st.integers(low, high - 1)
    )


costs = powers_of_ten(-12, 4)
epsilons = powers_of_ten(-6, 3)
deltas = powers_of_ten(-300, -1)
statements = st.one_of(
    st.builds(Privacy.from_cost, costs),
    st.builds(Privacy.from_rho, costs),
    st.builds(Privacy.from_pure_epsilon, epsilons),
)
budgets = st.one_of(
    st.builds(privacy_cost, costs),
    st.builds(zcdp, costs),
    st.builds(gdp, costs),
    st.builds(approx_dp, epsilons, deltas),
    st.builds(pure_dp, epsilons),
)
laws = settings(max_examples=60, deadline=None)


@laws
@given(costs, costs, epsilons, epsilons)
def test_delta_rises_with_cost_and_falls_with_epsilon(cost_a, cost_b, epsilon_a, epsilon_b):
    low, high = sorted([cost_a, cost_b])
    near, far = sorted([epsilon_a, epsilon_b])
    for convert in (delta_of, zcdp_delta_of):
        assert convert(low, far) <= convert(high, far) <= convert(high, near)


@laws
@given(costs, costs, deltas, deltas)
def test_epsilon_rises_with_cost_and_falls_with_delta(cost_a, cost_b, delta_a, delta_b):
    low, high = sorted([cost_a, cost_b])
    strict, loose = sorted([delta_a, delta_b])
    for convert in (epsilon_of, zcdp_epsilon_of):
        assert convert(low, loose) <= convert(high, loose) <= convert(high, strict)


@laws
@given(epsilons, epsilons, deltas, deltas)
def test_the_cost_allowed_rises_with_epsilon_and_delta(epsilon_a, epsilon_b, delta_a, delta_b):
    low, high = sorted([epsilon_a, epsilon_b])
    strict, loose = sorted([delta_a, delta_b])
    for convert in (amount_for, partial(amount_for, figure="rho")):
        assert convert(low, strict) <= convert(high, strict) <= convert(high, loose)


@laws
@given(epsilons, deltas)
def test_a_cost_for_a_budget_gives_back_its_epsilon(epsilon, delta):
    cost = amount_for(epsilon, delta)
    back = epsilon_of(cost, delta)
    # d(epsilon)/d(mu) = phi(b) / Phi(b) at b = -mu/2 - epsilon/mu, which is below 1 - b
    slack = (float(epsilon) + math.sqrt(cost) + float(cost)) * 2.0**-48
    assert epsilon - Fraction(slack) <= Fraction(back) <= float_above(epsilon)


@laws
@given(costs, epsilons)
def test_a_gaussian_is_never_worse_than_its_rho_says(cost, epsilon):
    assert delta_of(cost, epsilon) <= zcdp_delta_of(cost / 2, epsilon)


@laws
@given(statements, deltas)
def test_the_epsilon_that_is_stated_makes_a_budget_that_covers(privacy, delta):
    epsilon = privacy.epsilon(delta)
    assert epsilon == 0.0 or approx_dp(epsilon, delta).covers(privacy)
    assert privacy.mu is None or gdp(privacy.mu).covers(privacy)


@laws
@given(statements, epsilons)
def test_the_delta_that_is_stated_makes_a_budget_that_covers(privacy, epsilon):
    delta = privacy.delta(epsilon)
    assert not 1e-307 < delta < 1 or approx_dp(epsilon, delta).covers(privacy)


@laws
@given(budgets)
def test_budgets_survive_json(budget):
    assert budget_from_manifest(json.loads(json.dumps(budget.to_manifest()))) == budget


@laws
@given(statements)
def test_statements_survive_json(privacy):
    assert Privacy.from_manifest(json.loads(json.dumps(privacy.to_manifest()))) == privacy


@given(st.floats(1e-300, 1e300))
def test_a_float_means_its_decimal_text(number):
    assert exact(number, "rho") == Fraction(repr(number))


@given(st.fractions(min_value=0, max_value=10**6))
def test_floats_and_text_are_never_below_the_number(number):
    above = float_above(number)
    assert min(Fraction(above), Fraction(repr(above)), Fraction(text_above(number))) >= number
    assert above <= number * (1 + Fraction(1, 2**51))
