"""Budgets: exact amounts, their Gaussian cost, what they cover, their records."""

from fractions import Fraction

import numpy as np
import pytest

import residua.privacy as privacy_room
from residua.errors import BudgetError, FileFormatError
from residua.privacy import (
    Budget,
    Privacy,
    amount_for,
    approx_dp,
    budget_from_manifest,
    gdp,
    privacy_cost,
    pure_dp,
    zcdp,
)

BUDGETS = [privacy_cost(2), zcdp(0.1), gdp("1/3"), approx_dp(1, 1e-6), pure_dp("0.5")]
BUILDERS = {"beta": privacy_cost, "rho": zcdp, "mu": gdp, "epsilon": pure_dp}


def test_gaussian_cost_is_exact_where_the_definition_allows_it():
    assert privacy_cost("0.3").gaussian_cost() == Fraction(3, 10)
    assert zcdp(0.1).gaussian_cost() == Fraction(1, 5)
    assert gdp("1/3").gaussian_cost() == Fraction(1, 9)
    assert approx_dp(1, 1e-6).gaussian_cost() == amount_for(1, 1e-6)


def test_pure_dp_has_no_gaussian_cost_and_only_pure_dp_has_a_laplace_epsilon():
    with pytest.raises(BudgetError, match=r"Gaussian noise cannot give pure DP.*Laplace"):
        pure_dp(1).gaussian_cost()
    assert pure_dp("0.5").laplace_epsilon() == Fraction(1, 2)
    with pytest.raises(BudgetError, match=r"Laplace noise is planned for pure DP, not for zcdp\('1'\)"):
        zcdp(1).laplace_epsilon()


@pytest.mark.parametrize(("name", "build"), BUILDERS.items())
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "x", None])
def test_senseless_amounts_are_refused_by_name(name, build, value):
    with pytest.raises(BudgetError, match=f"^{name} must be"):
        build(value)


@pytest.mark.parametrize("delta", [0, 1, -1e-9, 2, float("nan"), True])
def test_delta_must_lie_strictly_between_0_and_1(delta):
    with pytest.raises(BudgetError, match=r"^delta must"):
        approx_dp(1, delta)


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_a_budget_prints_as_the_call_that_builds_it(budget):
    assert eval(repr(budget), vars(privacy_room)) == budget
    assert str(zcdp(0.1)) == "zcdp('1/10')"


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_a_record_reads_back_as_an_equal_budget(budget):
    again = budget_from_manifest(budget.to_manifest())
    assert again == budget
    assert hash(again) == hash(budget)
    assert budget.to_manifest()["definition"] == budget.definition


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"definition": "renyi", "rho": "1"},
        {"definition": "zcdp"},
        {"definition": "zcdp", "mu": "1"},
        {"definition": "zcdp", "rho": "-1"},
        {"definition": ["zcdp"], "rho": "1"},
    ],
    ids=repr,
)
def test_an_edited_record_is_refused(record):
    with pytest.raises(FileFormatError, match="not the record of a budget"):
        budget_from_manifest(record)


def test_budgets_are_equal_by_value_within_one_definition():
    assert zcdp(0.1) == zcdp("1/10") == zcdp(np.float32(0.1))
    assert zcdp(1) != gdp(1)
    assert len({zcdp(0.1), zcdp("0.1"), gdp(0.1)}) == 2
    with pytest.raises(AttributeError):
        zcdp(1).rho = Fraction(2)
    with pytest.raises(TypeError):
        Budget()


def test_descriptions_name_the_definition_and_the_exact_amounts():
    assert [budget.describe() for budget in BUDGETS] == [
        "privacy cost 2 (Gaussian DP with mu squared at most that)",
        "zero-concentrated DP with rho = 0.1",
        "Gaussian DP with mu = 1/3",
        "approximate DP with epsilon = 1 and delta = 0.000001",
        "pure DP with epsilon = 0.5",
    ]


@pytest.mark.parametrize("budget", BUDGETS[:-1], ids=repr)
def test_a_budget_covers_its_gaussian_cost_and_nothing_above(budget):
    cost = budget.gaussian_cost()
    assert budget.covers(Privacy.from_cost(cost))
    assert not budget.covers(Privacy.from_cost(cost * (1 + Fraction(1, 2**50))))


def test_a_budget_covers_only_what_is_proved():
    discrete, laplace = Privacy.from_rho("0.1"), Privacy.from_pure_epsilon("0.4")
    assert zcdp(0.1).covers(discrete)
    assert not zcdp("0.0999").covers(discrete)
    assert not gdp(100).covers(discrete)
    assert not privacy_cost(100).covers(laplace)
    assert zcdp("0.08").covers(laplace)
    assert not zcdp("0.0799").covers(laplace)
    assert pure_dp("0.4").covers(laplace)
    assert not pure_dp("0.39").covers(laplace)
    assert not pure_dp(100).covers(Privacy.from_cost("0.01"))
    assert approx_dp(0.4, 1e-300).covers(laplace)
    assert approx_dp(2.15, 1e-6).covers(discrete)
    assert not approx_dp(2.14, 1e-6).covers(discrete)
