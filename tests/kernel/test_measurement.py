"""What is measured is refused when it is made, unless it is what it says (claim K-001)."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from residua.errors import BudgetError
from residua.kernel import measurement
from residua.kernel.measurement import TAIL_BITS, Measurement, record_limit, refuse_few_records
from residua.linalg.classes import Classes, JointClasses
from residua.noise import DiscreteLaplace, RoundedGaussian

ONE = np.array([[1, 1, 0], [0, 2, -1]], dtype=np.int64)
TWO = np.eye(2, dtype=np.int64)
TIED = JointClasses((1, 2), (Classes.every(2), Classes.every(2)), Classes.of([0, 1, 1, 1]))


def subsets(*rows):
    return np.array(rows, dtype=np.int32).reshape(len(rows), -1)


def owners(*numbers):
    return np.array(numbers, dtype=np.int64)


GOOD = Measurement(
    subsets([0, 1], [2, 1]),
    (3, 2),
    (ONE, TWO),
    3,
    "gaussian",
    (Fraction(2), Fraction(5, 3)),
    owners(1, 0),
)


def test_a_measurement_knows_its_cells_its_numbers_and_their_range():
    assert (GOOD.cells, GOOD.rows, GOOD.largest_entry()) == (6, 4, 6)
    nothing = replace(GOOD, subsets=subsets([]), sizes=(), matrices=(), owners=owners(0))
    assert (nothing.cells, nothing.rows, nothing.largest_entry()) == (1, 1, 3)


@pytest.mark.parametrize("multiplier", [0, -1, 1.0, True, np.int64(2), "2"])
def test_a_multiplier_is_a_whole_number_of_at_least_one(multiplier):
    with pytest.raises(BudgetError, match="whole number of at least 1"):
        replace(GOOD, multiplier=multiplier)


@pytest.mark.parametrize("bad", [ONE.astype(np.float64), ONE.astype(np.int32), ONE[0], ONE[:0]])
def test_matrices_are_of_64_bit_integers(bad):
    with pytest.raises(BudgetError, match="matrices of 64-bit integers"):
        replace(GOOD, matrices=(bad, TWO))


@pytest.mark.parametrize("entry", [2**53 + 1, -(2**53) - 1, -(2**63), 0])
def test_entries_are_small_whole_numbers_and_not_all_zero(entry):
    replace(GOOD, matrices=(np.full((1, 3), np.sign(entry + 1) * 2**53), TWO))
    with pytest.raises(BudgetError, match="small whole numbers"):
        replace(GOOD, matrices=(np.full((1, 3), entry, dtype=np.int64), TWO))


def test_matrices_have_the_cells_of_the_block():
    with pytest.raises(BudgetError, match="not those of 6 cells"):
        replace(GOOD, matrices=(ONE,))


@pytest.mark.parametrize(
    "bad",
    [
        subsets([0, 1], [2, 1]).astype(np.int64),
        subsets([0], [1]),
        np.zeros(2, dtype=np.int32),
        subsets([0, 1])[:0],
    ],
)
def test_a_block_names_an_attribute_for_each_axis(bad):
    with pytest.raises(BudgetError, match="one attribute for each"):
        replace(GOOD, subsets=bad)


@pytest.mark.parametrize("bad", [([0, 0], [2, 1]), ([0, 1], [1, -1])])
def test_the_attributes_of_a_block_are_different_ones(bad):
    with pytest.raises(BudgetError, match="not all different"):
        replace(GOOD, subsets=subsets(*bad))


def test_derived_attributes_are_of_cells_that_exist_and_of_no_two_at_once():
    replace(GOOD, subsets=subsets([0, 1], [3, 1]), derived=(TIED,))
    short = JointClasses((1, 2), (Classes.every(2), Classes.every(3)), TIED.joint)
    with pytest.raises(BudgetError, match="classes of cells that its schema does not have"):
        replace(GOOD, derived=(short,))
    with pytest.raises(BudgetError, match="part of two"):
        replace(GOOD, derived=(TIED, JointClasses.of_one(2, Classes.every(2))))


@pytest.mark.parametrize("bad", [([2, 1], [0, 1]), ([1, 0], [3, 0])])
def test_a_block_does_not_look_at_what_became_part_of_another(bad):
    """Attribute 2 is gone, and attribute 1 has as many cells as it has classes."""
    with pytest.raises(BudgetError, match="made part of another"):
        replace(GOOD, subsets=subsets(*bad), derived=(TIED,))


def test_there_are_two_laws():
    assert replace(GOOD, law="laplace").law == "laplace"
    with pytest.raises(BudgetError, match="'cauchy'"):
        replace(GOOD, law="cauchy")


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), 2, 2.0])
def test_parameters_are_fractions_above_zero(bad):
    with pytest.raises(BudgetError, match="fractions above zero"):
        replace(GOOD, parameters=(Fraction(1), bad))


@pytest.mark.parametrize("bad", [owners(0), owners(0, 1).astype(np.int32), owners(0, 1).reshape(2, 1)])
def test_each_block_has_one_owner(bad):
    with pytest.raises(BudgetError, match="one parameter"):
        replace(GOOD, owners=bad)


@pytest.mark.parametrize("bad", [owners(0, 2), owners(-1, 0)])
def test_each_owner_is_a_parameter(bad):
    with pytest.raises(BudgetError, match="no parameter"):
        replace(GOOD, owners=bad)


def test_a_multiplier_is_shared_out_among_the_whole_numbers_of_a_record():
    """Of units 2, 1 and 3 a block on the first and the last has 6: multiplier over that (claim U-003)."""
    found = replace(GOOD, multiplier=12)
    assert found.multiples((1, 1, 1)).tolist() == [12, 12]
    assert found.multiples((2, 1, 1)).tolist() == [6, 12]
    assert found.multiples((2, 1, 3)).tolist() == [6, 4]
    tied = replace(found, subsets=subsets([0, 1], [0, 1]), derived=(TIED,))
    assert tied.multiples((2, 1, 3)).tolist() == [2, 2]  # the derived attribute is made of units 1 and 3
    nothing = replace(found, subsets=subsets([]), sizes=(), matrices=(), owners=owners(0))
    assert nothing.multiples((2, 1, 3)).tolist() == [12]
    with pytest.raises(BudgetError, match="parts of the whole numbers"):
        found.multiples((5, 1, 1))


@pytest.mark.parametrize("multiplier", [1, 2**51])
def test_answers_are_those_of_the_whole_matrix_modulo_two_to_the_64(multiplier):
    found = replace(GOOD, multiplier=multiplier)
    counts = np.random.default_rng(0).integers(0, 50, (2, 6))
    exact = (multiplier * np.kron(ONE, TWO).astype(object)) @ counts.T.astype(object)
    wrapped = np.array([[(int(value) + 2**63) % 2**64 - 2**63 for value in row] for row in exact.T])
    assert np.array_equal(found.apply(counts, found.multiples((1, 1, 1))), wrapped)


def test_at_the_record_limit_the_largest_number_just_fits():
    tail = max(law.bound(TAIL_BITS) for law in GOOD.laws())
    limit = record_limit([replace(GOOD, multiplier=1), GOOD])
    assert 6 * limit + tail < 2**63 <= 6 * (limit + 1) + tail
    ones = replace(GOOD, matrices=(ONE[:1], TWO), multiplier=1)
    assert record_limit([ones]) == 2**63 - 1 - tail


def test_measurements_leave_room_for_a_million_records(monkeypatch):
    refuse_few_records([replace(GOOD, multiplier=2**40)])
    with pytest.raises(BudgetError, match="wrap around 64 bits above"):
        refuse_few_records([GOOD, replace(GOOD, multiplier=2**42)])
    monkeypatch.setattr(measurement, "LEAST_RECORDS", record_limit([GOOD]))
    refuse_few_records([GOOD])
    monkeypatch.setattr(measurement, "LEAST_RECORDS", record_limit([GOOD]) + 1)
    with pytest.raises(BudgetError, match=f"above {record_limit([GOOD]):,} records"):
        refuse_few_records([GOOD])


def test_the_laws_of_the_noise_have_its_parameters():
    assert GOOD.laws() == [RoundedGaussian(Fraction(2)), RoundedGaussian(Fraction(5, 3))]
    assert replace(GOOD, law="laplace").laws() == [DiscreteLaplace(each) for each in GOOD.parameters]
    with pytest.raises(BudgetError, match="must lie between"):
        replace(GOOD, parameters=(Fraction(1), Fraction(2**112 + 1))).laws()
