"""Measuring by itself: measurements that no planning made, and the exact numbers under their noise."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import residua as rs
from residua.kernel import measuring
from residua.kernel.measurement import Measurement
from residua.linalg.classes import Classes, JointClasses
from residua.noise import simulated
from residua.privacy import Budget, Privacy, Unit

SCHEMA = rs.Schema.of_sizes([3, 2, 4])
CODES = np.array([[0, 0, 0], [2, 1, 3], [2, 1, 3], [1, 0, 2], [2, 0, 1]])
TIED = JointClasses((0, 1), (Classes.every(3), Classes.every(2)), Classes.of([0, 0, 1, 1, 1, 2]))


def measurement(subsets, sizes, matrices, parameters, owners, law="gaussian", derived=()):
    return Measurement(
        np.array(subsets, dtype=np.int32).reshape(len(subsets), -1),
        sizes,
        tuple(np.asarray(matrix, dtype=np.int64) for matrix in matrices),
        1,
        law,
        tuple(map(Fraction, parameters)),
        np.array(owners, dtype=np.int64),
        derived,
    )


CELLS = measurement([[0, 1]], (3, 2), (np.eye(3), np.eye(2)), [10], [0])
ONES = measurement([[2], [2]], (4,), (np.eye(4),), [20, 20], [1, 0])
CLASSES = measurement([[0]], (3,), (np.eye(3),), [10], [0], derived=(TIED,))


FIFTH, ONE = rs.privacy_cost(Fraction(1, 5)), Unit()


@dataclass(frozen=True)
class Stated:
    """What a plan says of itself, true or not."""

    batches: list[Measurement]
    budget: Budget = FIFTH
    unit: Unit = ONE
    schema: rs.Schema = SCHEMA
    hash: str = "c0ffee"

    @property
    def privacy(self) -> Privacy:
        return Privacy.from_cost(self.budget.gaussian_cost(), unit=self.unit)


def measured(plan, ledger=None, **named):
    ways = {"note": "", "progress": None, "engine": None} | named
    return measuring.noisy_answers(plan, CODES, simulated(seed=1), ledger, **ways)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))


def test_under_the_noise_are_the_counts_of_cells_and_of_their_classes(silent):
    values, paid = measured(Stated([CELLS, ONES, CLASSES]))
    assert [each.tolist() for each in values] == [
        [[1, 0, 1, 0, 1, 2]],
        [[1, 1, 1, 2], [1, 1, 1, 2]],
        [[1, 2, 2]],
    ]
    assert paid is None


def test_blocks_within_places_measure_the_records_of_their_own_place(silent):
    halves = JointClasses.of_one(2, Classes.of([0, 0, 1, 1]))
    coarse = replace(measurement([[0], [0]], (3,), (np.eye(3),), [10], [0, 0], derived=(halves,)), within=2)
    fine = replace(measurement([[]] * 4, (), (), [10], [0] * 4), within=2)
    every = JointClasses.of_one(2, Classes.of([0, 0, 0, 0]))
    whole = replace(measurement([[1]], (2,), (np.eye(2),), [10], [0], derived=(every,)), within=2)
    values, _ = measured(Stated([coarse, CELLS, fine, whole]))
    assert values[0].tolist() == [[1, 0, 1], [0, 1, 2]]
    assert values[2].tolist() == [[1], [1], [1], [2]]
    assert values[3].tolist() == [[3, 2]]
    measuring.refuse_unkept(Stated([fine]))
    with pytest.raises(rs.ResiduaError, match="cells of an attribute that its schema lacks"):
        measuring.refuse_unkept(Stated([replace(fine, within=0)]))
    shared = rs.Schema(a=rs.Integer(0, 1), b=rs.Integer(0, 1), c=rs.Number(0, 10, step=1))
    counts = replace(fine, subsets=fine.subsets[: shared.sizes[2]], owners=fine.owners[: shared.sizes[2]])
    with pytest.raises(rs.ResiduaError, match="in several of the cells"):
        measuring.refuse_unkept(Stated([counts], schema=shared))


def test_two_batches_share_what_both_count_by_classes(silent):
    values, _ = measured(Stated([CLASSES, ONES, CLASSES]))
    assert values[0].tolist() == values[2].tolist() == [[1, 2, 2]]


def test_classes_of_cells_that_records_are_shared_out_among_are_counted_last():
    plain = JointClasses.of_one(2, Classes.of([0, 0, 1, 1]))
    halves = measurement([[2]], (2,), (np.eye(2),), [10], [0], derived=(plain,))
    batches = [CLASSES, halves]
    assert [*measuring._derived(batches, (1, 1, 1))] == [TIED, plain]
    assert [*measuring._derived(batches, (2, 1, 1))] == [plain, TIED]
    assert [*measuring._derived(batches, (2, 1, 3))] == [TIED, plain]


def test_noise_is_that_of_the_seed_and_of_each_blocks_own_law():
    plan = Stated([replace(ONES, parameters=(Fraction(1, 10**9), Fraction(10**12)))])
    [values], _ = measured(plan)
    assert np.array_equal(measured(plan)[0][0], values)
    assert values[1].tolist() == [1, 1, 1, 2]  # noise of no width
    assert abs(values[0]).min() > 100


def test_what_was_paid_is_told_with_the_numbers(tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.privacy_cost(1), dataset="people")
    _, paid = measured(Stated([CELLS]), ledger, note="spring")
    [entry] = ledger.entries()
    assert (entry.plan_hash, entry.note, entry.amount) == ("c0ffee", "spring", Fraction(1, 5))
    assert paid == {"dataset": "people", "entry": str(entry.id), "amount": "1/5", "hash": entry.hash}


def test_a_cost_up_to_what_is_stated_is_kept():
    measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(1, 10))))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(1, 10) - Fraction(1, 10**9))))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        measuring.refuse_unkept(Stated([CELLS, CELLS], rs.privacy_cost(Fraction(1, 10))))
    measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(4, 10)), Unit(max_records=2)))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(39, 100)), Unit(max_records=2)))


def test_replacing_a_record_costs_the_difference_of_two_cells():
    unit = Unit(neighbours="replace_one")
    measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(1, 5)), unit))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        measuring.refuse_unkept(Stated([CELLS], rs.privacy_cost(Fraction(19, 100)), unit))


def test_a_record_that_is_dropped_costs_as_much_as_one_that_is_removed():
    """The total, which is public, costs nothing to replace; to drop a record it costs a tenth."""
    unit, budget = Unit(neighbours="replace_one"), rs.privacy_cost(Fraction(1, 20))
    total = measurement([[0]], (3,), ([[1, 1, 1]],), [10], [0])
    kept = rs.Schema(a=rs.Integer(0, 2), b=rs.Integer(0, 1, outside="other"))
    measuring.refuse_unkept(Stated([total], budget, unit, kept))
    dropped = rs.Schema(a=rs.Integer(0, 2), b=rs.Integer(0, 1, outside="drop"))
    measuring.refuse_unkept(Stated([total], rs.privacy_cost(Fraction(1, 10)), unit, dropped))
    with pytest.raises(rs.BudgetError, match="instead of 'drop'"):
        measuring.refuse_unkept(Stated([total], budget, unit, dropped))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        measuring.refuse_unkept(Stated([total], budget, schema=dropped))


def test_noise_of_another_law_does_not_keep_a_budget():
    laplace = replace(CELLS, law="laplace")
    measuring.refuse_unkept(Stated([laplace], rs.pure_dp(1)))
    for batches in ([laplace], [CELLS, laplace]):
        with pytest.raises(rs.BudgetError, match="the noise of this plan cannot keep to"):
            measuring.refuse_unkept(Stated(batches, rs.privacy_cost(100)))


def test_classes_are_those_of_the_schemas_cells():
    measuring.refuse_unkept(Stated([CLASSES]))
    with pytest.raises(rs.BudgetError, match="classes of cells that its schema does not have"):
        measuring.refuse_unkept(Stated([CLASSES], schema=rs.Schema.of_sizes([3, 3, 4])))


def test_numbers_that_leave_room_for_few_records_are_refused():
    crowded = measurement([[0]], (3,), ([[2**45, 1, 1]],), [2**100], [0])
    with pytest.raises(rs.BudgetError, match="wrap around 64 bits"):
        measuring.refuse_unkept(Stated([crowded]))


def test_a_block_that_names_an_attribute_twice_is_refused_wherever_it_does():
    for subset in ([0, 0, 1], [0, 1, 1], [1, 0, 1]):
        with pytest.raises(rs.BudgetError, match="not all different"):
            measurement([subset], (2, 2, 2), [np.eye(2)] * 3, [10], [0])
