"""The unit of privacy and its factors, against brute force over small privacy matrices."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from residua.errors import BudgetError, FileFormatError
from residua.privacy import Budget, Unit, gdp, privacy_cost, pure_dp, zcdp


@pytest.fixture
def privacy_matrix():
    rows = np.random.default_rng(5).integers(-4, 5, size=(3, 4))
    return rows.T @ rows


@pytest.mark.parametrize("records", [0, -1, 1.0, "2", True, None])
def test_max_records_is_a_whole_number_of_at_least_one(records):
    with pytest.raises(BudgetError, match="max_records must be a whole number of at least 1"):
        Unit(max_records=records)


def test_neighbours_are_one_of_two_relations():
    with pytest.raises(BudgetError, match="neighbours must be 'add_remove' or 'replace_one', not 'zero_out'"):
        Unit(neighbours="zero_out")


def test_integers_of_numpy_count_records_too():
    assert Unit(max_records=np.int32(3)) == Unit(3)
    assert type(Unit(max_records=np.int32(3)).max_records) is int


def test_a_person_with_c_records_has_c_squared_times_the_cost_of_one(privacy_matrix):
    c = 3
    people = itertools.combinations_with_replacement(range(4), c)
    differences = [np.bincount(cells, minlength=4) for cells in people]
    worst = max(d @ privacy_matrix @ d for d in differences)
    assert worst == Unit(c).factor * int(privacy_matrix.diagonal().max())


def test_a_person_who_changes_c_records_has_c_squared_times_the_cost_of_one_change(privacy_matrix):
    c, cells = 2, range(4)
    swaps = [np.eye(4, dtype=int)[i] - np.eye(4, dtype=int)[j] for i in cells for j in cells]
    one = max(d @ privacy_matrix @ d for d in swaps)
    person = max((d + e) @ privacy_matrix @ (d + e) for d in swaps for e in swaps)
    unit = Unit(c, "replace_one")
    assert person == unit.factor * int(one)
    assert person <= 4 * unit.factor * int(privacy_matrix.diagonal().max())


def test_factors_of_both_relations():
    added, replaced = Unit(3), Unit(3, "replace_one")
    assert (added.factor, added.pure_factor) == (replaced.factor, replaced.pure_factor) == (9, 3)


def test_a_record_gets_its_share_of_a_persons_budget():
    assert Unit(3).record_cost(zcdp(1)) == Fraction(2, 9)
    assert Unit(3).record_epsilon(pure_dp(1)) == Fraction(1, 3)
    assert Unit().record_cost(zcdp(1)) == Unit(1, "replace_one").record_cost(zcdp(1)) == 2


def test_units_are_described_in_plain_words():
    assert Unit().describe() == "adding or removing one record"
    assert Unit(3).describe() == "adding or removing one person with at most 3 records"
    assert (
        Unit(3, "replace_one").describe()
        == "changing the values of one person with at most 3 records, the number of records being public"
    )


@pytest.mark.parametrize("unit", [Unit(), Unit(4, "replace_one")])
def test_a_record_reads_back_as_an_equal_unit(unit):
    assert Unit.from_manifest(unit.to_manifest()) == unit


@pytest.mark.parametrize(
    "record", [{"max_records": 0}, {"max_records": 1, "colour": "red"}, {"neighbours": []}]
)
def test_an_edited_record_is_refused(record):
    with pytest.raises(FileFormatError, match="not the record of a unit of privacy"):
        Unit.from_manifest(record)


@pytest.mark.parametrize(
    "budget",
    [pure_dp("1e-300"), zcdp("1e-308"), privacy_cost("1e-61"), gdp("1e-31")],
    ids=lambda each: each.definition,
)
def test_a_budget_that_no_noise_can_keep_to_is_refused(budget: Budget) -> None:
    with pytest.raises(BudgetError, match="64-bit integers do not hold the noise for that; give a larger"):
        Unit().allowance(budget)
    with pytest.raises(BudgetError, match="give a larger budget"):
        Unit(max_records=10**40).allowance(zcdp(1))


@pytest.mark.parametrize(
    "budget",
    [pure_dp("1e300"), zcdp("1e308"), privacy_cost("1e31"), gdp("1e16")],
    ids=lambda each: each.definition,
)
def test_a_budget_that_protects_nobody_is_refused(budget: Budget) -> None:
    with pytest.raises(BudgetError, match="which protects nobody; give a smaller one"):
        Unit().allowance(budget)
