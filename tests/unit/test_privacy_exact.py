"""Numbers in and text out of the privacy room."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from residua.errors import BudgetError
from residua.privacy.conversions import exact, exact_text, non_negative, positive, probability, text_above

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        "0.1",
        "1/10",
        " 1/10 ",
        "1e-1",
        Decimal("0.1"),
        TENTH,
        np.float64(0.1),
        np.float32(0.1),
        np.float16(0.1),
    ],
    ids=repr,
)
def test_a_number_means_its_decimal_text(value):
    assert exact(value, "rho") == TENTH


@pytest.mark.parametrize("value", [3, 3.0, "3", np.int8(3), np.uint64(3), Decimal(3), Fraction(3)], ids=repr)
def test_whole_numbers_of_every_type_agree(value):
    assert exact(value, "rho") == 3


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        np.float32("nan"),
        Decimal("NaN"),
        Decimal("Infinity"),
        "nan",
        "inf",
        "",
        "much",
        "1/0",
        "1/2/3",
        True,
        np.True_,
        None,
        1j,
        [1],
    ],
    ids=repr,
)
def test_what_is_no_finite_number_is_refused_by_name(value):
    with pytest.raises(BudgetError, match=r"rho must be a finite number.*give a number such as"):
        exact(value, "rho")


@pytest.mark.parametrize(
    "value", [1e-309, "1e309", "1e-999999999", "1e999999999", 10**400, Fraction(1, 10**400)]
)
def test_numbers_that_floats_cannot_hold_are_refused_at_once(value):
    with pytest.raises(BudgetError, match="rho is out of range"):
        exact(value, "rho")


@pytest.mark.parametrize("value", [0, -1, -0.0, "-1/3", 0.0])
def test_amounts_must_be_above_zero(value):
    with pytest.raises(BudgetError, match="mu must be above zero"):
        positive(value, "mu")


def test_zero_is_not_negative():
    assert non_negative(0, "epsilon") == 0
    with pytest.raises(BudgetError, match="epsilon must not be negative, but is -1"):
        non_negative(-1, "epsilon")


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5])
def test_a_probability_lies_strictly_between_0_and_1(value):
    assert probability("1e-300", "delta") == Fraction(1, 10**300)
    with pytest.raises(BudgetError, match="delta must lie strictly between 0 and 1"):
        probability(value, "delta")


def test_text_is_exact_where_it_is_short_and_rounded_up_where_it_says_so():
    assert exact_text(Fraction(1, 8)) == "0.125"
    assert exact_text(Fraction(2, 3)) == "2/3"
    assert exact_text(Fraction(1000)) == "1000"
    assert exact_text(Fraction(1, 10**15)) == "1E-15"
    assert text_above(Fraction(2, 3)) == "0.666667"
    assert text_above(Fraction(100001, 100000), digits=3) == "1.01"
    assert text_above(Fraction(0)) == "0"
    assert text_above(Fraction(10) ** 30) == "1E+30"


@pytest.mark.parametrize(
    "long",
    [
        Fraction(10**5000 + 1, 10**5000),
        "0." + "1" * 5000,
        Decimal("1." + "7" * 2000),
        Fraction(1, 10**299 + 1) ** 4,
    ],
    ids=["fraction", "text", "decimal", "power"],
)
def test_numbers_of_thousands_of_digits_are_refused_in_few_words(long: object) -> None:
    with pytest.raises(BudgetError, match=r"^rho (has more than 1,000 digits|is out of range).{,80}$"):
        exact(long, "rho")


@pytest.mark.parametrize(
    "wrong",
    [-(10**5000), 10**5000, "9" * 10**5, "x" * 10**5, "1/" + "0" * 10**5],
    ids=["-", "+", "9", "x", "0"],
)
def test_what_is_wrong_with_a_long_number_is_said_in_few_words(wrong: object) -> None:
    with pytest.raises(BudgetError, match=r"^.{,250}$"):
        positive(wrong, "rho")
