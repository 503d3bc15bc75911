"""The proof of the quantiles' error (N-010, N-011), redone in ball arithmetic piece by piece."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from flint import arb, ctx
from numpy.polynomial import Polynomial

from residua.noise import quantiles
from residua.noise.quantiles import BITS, OCTAVES, PIECE_BITS, exponential, half_normal

ULP = arb(2) ** -53
FIRST_PART = 2 ** (BITS - OCTAVES)


@pytest.fixture(autouse=True)
def precision():
    with ctx.workprec(160):
        yield


def edges():
    """First part of every piece, and 2^63 at the end."""
    octaves = range(BITS - OCTAVES, BITS)
    steps = range(2**PIECE_BITS, 2 ** (PIECE_BITS + 1))
    return [step << (e - PIECE_BITS) for e in octaves for step in steps] + [2**BITS]


def half_normal_quantile(numerator):
    return arb(2).sqrt() * (arb(numerator) / arb(2) ** BITS).erfcinv()


def exponential_quantile(numerator):
    return -(arb(numerator) / arb(2) ** BITS).log()


def mills(x):
    """V / (-dV/dx) of the half-normal law at x."""
    return (x / arb(2).sqrt()).erfc() * (arb.pi() / 2).sqrt() * (x * x / 2).exp()


TABLES = [
    pytest.param(half_normal, half_normal_quantile, 9, id="half-normal"),
    pytest.param(exponential, exponential_quantile, 25, id="exponential"),
]


@pytest.mark.parametrize(("table", "quantile", "ulps"), TABLES)
def test_the_error_stays_under_its_bound_at_every_edge_and_between(table, quantile, ulps):
    starts = edges()
    random = Random(0)
    inside = [random.randrange(low, high) for low, high in pairwise(starts)]
    parts = np.array([*starts[:-1], *[start - 1 for start in starts[1:]], *inside], dtype=np.int64)
    for part, x in zip(parts.tolist(), table()(parts).tolist(), strict=True):
        for end in (part, part + 1):  # V may lie anywhere between them
            assert abs(quantile(end) - arb(x)) < ulps * ULP


@pytest.mark.parametrize(("table", "quantile", "ulps"), TABLES)
def test_every_centre_belongs_to_its_place_and_lies_in_the_middle_of_its_piece(table, quantile, ulps):
    starts = edges()
    places = table().coefficients[0].tolist()
    for row, centre in enumerate(table().centres.tolist()[1:], start=1):
        low, high = starts[row - 1], starts[row]
        assert abs(2 * centre - low - high) * 2**38 < high - low
        # x falls as V rises: the centre of this very float lies between the whole numbers around it.
        assert quantile(centre + 1) <= arb(places[row]) <= quantile(centre)


def test_the_half_normal_remainder_is_under_one_part_in_2_to_the_56_on_every_piece():
    starts = edges()
    for row, place in enumerate(half_normal().coefficients[0].tolist()[1:], start=1):
        x, largest = arb(place), half_normal_quantile(starts[row - 1])
        r = mills(x) / 2 ** (PIECE_BITS + 1) * (1 + arb(2) ** -30)
        square = largest * largest
        p6 = 127 + square * (1740 + square * (2556 + square * 720))
        growth = ((square - x * x) / 2).exp()
        assert p6 * (growth * r) ** 7 / 5040 < arb(2) ** -56


def test_the_half_normal_polynomials_follow_from_their_recurrence():
    # The n-th derivative of x in r is P_(n-1)(x) (dx/dr)^n, P_n = P_(n-1)' + n x P_(n-1).
    p, x = Polynomial([1]), np.array([0.3, 1.7])
    factorial = 1
    rows = quantiles._half_normal_polynomials(x)
    np.testing.assert_array_equal(rows[0], x)
    for n in range(1, 7):
        factorial *= n
        np.testing.assert_allclose(rows[n], p(x) / factorial, rtol=1e-14)
        p = p.deriv() + n * Polynomial([0, 1]) * p
    np.testing.assert_array_equal(p.coef, [127, 0, 1740, 0, 2556, 0, 720])


@pytest.mark.parametrize(("table", "quantile", "ulps"), TABLES)
def test_below_the_table_there_is_no_number(table, quantile, ulps):
    x = table()(np.array([0, 1, 1023, 1024, FIRST_PART - 1, FIRST_PART]))
    assert np.isnan(x).tolist() == [True] * 5 + [False]


def test_tables_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        half_normal().coefficients[0, 5] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        half_normal().centres[5] = 1


def test_an_enclosure_that_is_too_wide_has_no_integer_part():
    with pytest.raises(ArithmeticError, match="too wide"):
        quantiles._centre(lambda x: arb("0.5 +/- 0.1"), 1.0)


def test_a_precision_that_another_thread_sets_meanwhile_makes_no_draw_fail():
    asked = []

    def survival(x):
        asked.append(x)
        if len(asked) == 1:
            ctx.prec = 53  # what a thread that ends its own work leaves behind
        return (-x).exp()

    assert quantiles._centre(survival, 0.5) == ((-arb("0.5")).exp() * 2**BITS).floor().unique_fmpz()
    assert len(asked) == 2


@pytest.mark.parametrize("table", [half_normal, exponential])
def test_tables_that_all_draws_share_cannot_be_written_to(table):
    for own in (table().centres, table().coefficients):
        with pytest.raises(ValueError, match="read-only"):
            own[..., 0] = 0
