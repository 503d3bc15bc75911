"""What a plan or release proves, for each of the three noise laws."""

from fractions import Fraction

import mpmath
import pytest

from residua.errors import BudgetError, FileFormatError
from residua.privacy import Privacy, Unit, delta_of, epsilon_of

GAUSSIAN = Privacy.from_cost("0.2", Unit(3))
DISCRETE = Privacy.from_rho("0.1")
LAPLACE = Privacy.from_pure_epsilon("0.5", Unit(1, "replace_one"))
ALL = [GAUSSIAN, DISCRETE, LAPLACE]


def test_what_a_noise_law_does_not_prove_is_none():
    assert (GAUSSIAN.cost, GAUSSIAN.rho, GAUSSIAN.pure_epsilon) == (Fraction(1, 5), Fraction(1, 10), None)
    assert (DISCRETE.cost, DISCRETE.rho, DISCRETE.mu, DISCRETE.pure_epsilon) == (
        None,
        Fraction(1, 10),
        None,
        None,
    )
    assert (LAPLACE.cost, LAPLACE.rho, LAPLACE.mu) == (None, Fraction(1, 8), None)
    assert LAPLACE.pure_epsilon == Fraction(1, 2)


@pytest.mark.parametrize("cost", ["0", "0.2", "1/3", "2", "1e-300", "123456789"])
def test_mu_is_the_root_of_the_cost_rounded_up(cost):
    mu = Privacy.from_cost(cost).mu
    exact = Fraction(cost)
    assert Fraction(mu) ** 2 >= exact
    assert Fraction(repr(mu)) ** 2 >= exact
    with mpmath.workdps(50):
        root = mpmath.sqrt(mpmath.mpf(exact.numerator) / exact.denominator)
        assert mu <= root * (1 + mpmath.mpf(2) ** -50)


def test_each_law_uses_its_own_conversion():
    assert GAUSSIAN.epsilon(1e-6) == epsilon_of("0.2", 1e-6)
    assert GAUSSIAN.delta(1) == delta_of("0.2", 1)
    assert DISCRETE.epsilon(1e-6) == epsilon_of("0.1", 1e-6, "rho")
    assert DISCRETE.delta(1) == delta_of("0.1", 1, "rho")
    assert LAPLACE.epsilon(1e-6) == 0.5
    assert LAPLACE.delta("0.2") == delta_of("0.5", "0.2", "pure_epsilon")
    assert LAPLACE.delta(0.5) == 0.0


def test_pure_privacy_holds_at_a_delta_of_zero_too():
    assert Privacy.from_pure_epsilon("0.1").epsilon(0) == 0.1
    with pytest.raises(BudgetError, match="delta must lie strictly between 0 and 1"):
        Privacy.from_cost(1).epsilon(0)
    with pytest.raises(BudgetError, match="delta"):
        Privacy.from_pure_epsilon("0.1").epsilon(1)


@pytest.mark.parametrize("privacy", ALL, ids=repr)
def test_what_is_stated_is_implied_and_clearly_less_is_not(privacy):
    epsilon = privacy.epsilon("1e-6")
    assert privacy.implies(epsilon, "1e-6")
    assert not privacy.implies(0.99 * epsilon, "1e-6")
    delta = privacy.delta("0.2")
    assert privacy.implies("0.2", delta)
    assert not privacy.implies("0.2", 0.99 * delta)


@pytest.mark.parametrize("privacy", ALL, ids=repr)
def test_senseless_questions_are_refused(privacy):
    with pytest.raises(BudgetError, match=r"^delta must lie strictly between 0 and 1"):
        privacy.epsilon(1)
    with pytest.raises(BudgetError, match=r"^epsilon must not be negative"):
        privacy.delta(-1)
    with pytest.raises(BudgetError, match=r"^delta must lie strictly between 0 and 1"):
        privacy.implies(1, 1)


def test_statements_are_described_in_plain_words():
    assert GAUSSIAN.describe().splitlines() == [
        "Protects against adding or removing one person with at most 3 records.",
        "Zero-concentrated DP: rho = 0.1.",
        "Gaussian DP: mu = 0.447214; privacy cost = 0.2.",
        "Approximate DP: epsilon = 1.99453 at delta = 1e-6 and 2.58288 at delta = 1e-9.",
    ]
    assert DISCRETE.describe().splitlines() == [
        "Protects against adding or removing one record.",
        "Zero-concentrated DP: rho = 0.1.",
        "Approximate DP: epsilon = 2.14194 at delta = 1e-6 and 2.71549 at delta = 1e-9.",
    ]
    assert LAPLACE.describe().splitlines() == [
        "Protects against changing the values of one record, the number of records being public.",
        "Pure DP: epsilon = 0.5, whatever delta.",
        "Zero-concentrated DP: rho = 0.125.",
    ]


def test_statements_print_their_figures_as_decimals_rounded_up():
    assert (
        repr(GAUSSIAN)
        == "Privacy(cost=0.2, rho=0.1, mu=0.447214, unit=Unit(max_records=3, neighbours='add_remove'))"
    )
    assert repr(Privacy.from_rho("1/3")).startswith("Privacy(rho=0.333334, unit=")
    assert repr(LAPLACE).startswith("Privacy(rho=0.125, pure_epsilon=0.5, unit=")


@pytest.mark.parametrize("privacy", ALL, ids=repr)
def test_a_record_reads_back_as_an_equal_statement(privacy):
    again = Privacy.from_manifest(privacy.to_manifest())
    assert again == privacy
    assert hash(again) == hash(privacy)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"cost": "1"},
        {"unit": Unit().to_manifest()},
        {"cost": "1", "rho": "1", "unit": Unit().to_manifest()},
        {"mu": "1", "unit": Unit().to_manifest()},
        {"cost": "-1", "unit": Unit().to_manifest()},
        {"cost": "1", "unit": {"max_records": 0}},
        {"cost": "1", "unit": 3},
    ],
    ids=repr,
)
def test_an_edited_record_is_refused(record):
    with pytest.raises(FileFormatError, match="not the record of a privacy statement"):
        Privacy.from_manifest(record)
