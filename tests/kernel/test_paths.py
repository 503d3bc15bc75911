"""What blocks within places cost: against all records and all pairs of them, one by one (claim K-020)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from separate import separate_cost

from residua.errors import BudgetError
from residua.kernel import paths
from residua.kernel.cost import added_cost, replaced_cost
from residua.kernel.measurement import Measurement
from residua.linalg.classes import Classes, JointClasses

SIZES = (3, 7, 2)  # the places are in the middle
LEVELS = {2: [0, 0, 1, 1, 1, 0, 1], 4: [0, 0, 1, 2, 2, 3, 1], 7: [*range(7)]}
CONTRAST = np.array([[2, -1, -1], [-1, 2, -1], [-1, -1, 2]])


def within(draw, level, subset, matrices, *, law="gaussian", multiplier=1, derived=()) -> Measurement:
    """Blocks of one level with noise of different parameters."""
    parameters = tuple(Fraction(int(draw.integers(1, 40)), 7) for _ in range(3))
    part = () if level == 7 else (JointClasses.of_one(1, Classes(np.array(LEVELS[level]))),)
    return Measurement(
        np.array([subset] * level, dtype=np.int32).reshape(level, -1),
        tuple(SIZES[at] for at in subset),
        tuple(np.asarray(matrix, dtype=np.int64) for matrix in matrices),
        multiplier,
        law,
        parameters,
        draw.integers(0, 3, level),
        (*part, *derived),
        1,
    )


def columns(measurement: Measurement, number: int) -> np.ndarray:
    """What one block measures of every joint cell, (rows, cells)."""
    cells = np.indices(SIZES).reshape(3, -1)
    at = np.zeros(cells.shape[1], dtype=np.int64)
    for attribute, size in zip(measurement.subsets[0].tolist(), measurement.sizes, strict=True):
        at = at * size + cells[attribute]
    whole = np.ones((1, 1), dtype=np.int64)
    for matrix in measurement.matrices:
        whole = np.kron(whole, matrix)
    seen = measurement.cells_of_blocks()[cells[1]] == number if measurement.within is not None else True
    return measurement.multiplier * whole[:, at] * seen


def true_cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    unit = math.lcm(*(parameter.numerator for each in measurements for parameter in each.parameters))
    costs: object = 0
    for each in measurements:
        for number, owner in enumerate(each.owners.tolist()):
            rows = columns(each, number).astype(object)
            change = rows[:, :, None] - rows[:, None, :] if replaced else rows[:, :, None]
            sizes = abs(change) if each.law == "laplace" else change**2
            costs = costs + sizes.sum(axis=0) * int(unit / each.parameters[owner])
    return Fraction(int(costs.max()), unit)


def close(found: Fraction, true: Fraction) -> bool:
    """Never below the truth, and above it by grains only."""
    return true <= found <= true * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_costs_of_paths_are_those_of_the_dearest_record_and_of_the_dearest_pair(seed, law):
    draw = np.random.default_rng(seed)
    counts = [within(draw, level, (), (), law=law) for level in LEVELS]
    shapes = [within(draw, level, (0,), (CONTRAST,), law=law, multiplier=3) for level in (2, 7)]
    both = [within(draw, 4, (2, 0), (np.array([[1, -1]]), CONTRAST), law=law)]
    for several in (counts, shapes, counts + shapes, counts + shapes + both):
        assert close(added_cost(several), true_cost(several, replaced=False))
        assert close(replaced_cost(several), true_cost(several, replaced=True))
        assert separate_cost(several, replaced=True) == replaced_cost(several)


@pytest.mark.parametrize("replaced", [False, True])
def test_blocks_on_one_attribute_and_on_two_are_added_up_at_the_same_outcomes(replaced):
    """Uneven columns of both: the dearest outcome of one is not that of the other."""
    draw = np.random.default_rng(9)
    for _ in range(20):
        one = within(draw, 7, (0,), (np.diag(draw.integers(1, 6, 3)),))
        two = within(draw, 2, (0, 2), (np.diag(draw.integers(1, 6, 3)), np.diag(draw.integers(1, 6, 2))))
        true = true_cost([one, two], replaced=replaced)
        assert true <= replaced_cost([one, two]) if replaced else close(added_cost([one, two]), true)


def test_columns_that_oppose_each_other_cost_a_replaced_record_four_times_an_added_one():
    alone = [within(np.random.default_rng(8), 7, (2,), (np.array([[1, -1]]),))]
    assert close(replaced_cost(alone), true_cost(alone, replaced=True))
    assert close(replaced_cost(alone), 4 * added_cost(alone))


def test_blocks_that_see_all_places_are_added():
    draw = np.random.default_rng(1)
    one = Measurement(
        np.zeros((1, 0), dtype=np.int32), (), (), 1, "gaussian", (Fraction(2),), np.zeros(1, dtype=np.int64)
    )
    several = [one, within(draw, 7, (), ())]
    assert close(added_cost(several), true_cost(several, replaced=False))
    assert close(separate_cost(several, replaced=False), true_cost(several, replaced=False))


def test_uneven_columns_cost_the_dearest_outcome_of_all_blocks_together():
    draw = np.random.default_rng(2)
    several = [
        within(draw, 7, (0,), (np.array([[5, 1, 1]]),)),
        within(draw, 4, (0,), (np.array([[1, 1, 5]]),)),
        within(draw, 2, (2,), (np.array([[3, 1]]),)),
    ]
    assert close(added_cost(several), true_cost(several, replaced=False))
    assert true_cost(several, replaced=True) <= replaced_cost(several)


@pytest.mark.parametrize("size", [Fraction(1, 10**12), Fraction(10**12)])
def test_costs_are_as_precise_where_they_are_tiny_or_huge(size):
    draw = np.random.default_rng(6)
    several = [within(draw, level, (0,), (CONTRAST,)) for level in LEVELS]
    scaled = [replace(each, parameters=tuple(own / size for own in each.parameters)) for each in several]
    for cost in (added_cost, replaced_cost):
        assert close(cost(scaled), size * true_cost(several, replaced=cost is replaced_cost))


@pytest.mark.parametrize("replaced", [False, True])
def test_as_many_outcomes_as_are_compared_are_not_bounded_but_exact(replaced, monkeypatch):
    draw = np.random.default_rng(2)
    rows = ([[5, -5, 0]], [[0, 5, -5]]) if replaced else ([[5, 1, 1]], [[1, 1, 5]])
    several = [within(draw, level, (0,), (own,)) for level, own in zip((7, 4), rows, strict=True)]
    cost = replaced_cost if replaced else added_cost
    exact = cost(several)
    monkeypatch.setattr(paths, "JOINT_CELLS", 3 ** (1 + replaced))
    assert cost(several) == exact
    monkeypatch.setattr(paths, "JOINT_CELLS", 3 ** (1 + replaced) - 1)
    assert cost(several) > exact


def test_many_outcomes_are_bounded_by_the_dearest_of_each_block(monkeypatch):
    draw = np.random.default_rng(3)
    several = [within(draw, level, (0,), (draw.integers(-9, 9, (3, 3)),)) for level in LEVELS]
    exact = added_cost(several), replaced_cost(several)
    for name, most in (("JOINT_CELLS", 2), ("MOST_PROFILES", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(paths, name, most)
            bounds = added_cost(several), replaced_cost(several)
        assert bounds[0] >= exact[0]
        assert bounds[1] >= exact[1]


def test_outcomes_by_classes_of_cells_are_bounded_too():
    draw = np.random.default_rng(4)
    part = JointClasses.of_one(0, Classes.of([0, 1, 1]))
    seen = within(draw, 7, (2,), (np.array([[3, 1]]),), derived=(part,))
    assert close(added_cost([seen]), max(9 / seen.parameters[own] for own in seen.owners.tolist()))


def test_levels_that_are_not_nested_and_places_that_differ_are_refused():
    draw = np.random.default_rng(5)
    one = within(draw, 2, (), ())
    crossed = JointClasses.of_one(1, Classes(np.array([0, 1, 2, 0, 1, 2, 0])))
    other = Measurement(
        np.zeros((3, 0), dtype=np.int32),
        (),
        (),
        1,
        "gaussian",
        (Fraction(1),),
        np.zeros(3, dtype=np.int64),
        (crossed,),
        1,
    )
    with pytest.raises(BudgetError, match="not nested"):
        replaced_cost([one, other])
    fewer = Measurement(
        np.zeros((5, 0), dtype=np.int32),
        (),
        (),
        1,
        "gaussian",
        (Fraction(1),),
        np.zeros(5, dtype=np.int64),
        (),
        1,
    )
    with pytest.raises(BudgetError, match="disagree on how many"):
        added_cost([one, fewer])


@pytest.mark.parametrize(
    "changes",
    [
        {"within": -1},
        {
            "within": 0,
            "subsets": np.array([[0]] * 3, dtype=np.int32),
            "sizes": (3,),
            "matrices": (np.ones((1, 3), dtype=np.int64),),
        },
        {"derived": (JointClasses.of_one(1, Classes(np.array(LEVELS[4]))),)},
        {
            "subsets": np.array([[0], [2], [0]], dtype=np.int32),
            "sizes": (3,),
            "matrices": (np.ones((1, 3), dtype=np.int64),),
        },
        {"derived": (JointClasses((0, 1), (Classes.every(1), Classes.of([0, 1, 2])), Classes.every(3)),)},
    ],
)
def test_blocks_that_are_not_one_for_each_place_are_refused(changes):
    good = {
        "subsets": np.zeros((3, 0), dtype=np.int32),
        "sizes": (),
        "matrices": (),
        "multiplier": 1,
        "law": "gaussian",
        "parameters": (Fraction(1),),
        "owners": np.zeros(3, dtype=np.int64),
        "derived": (JointClasses.of_one(1, Classes(np.array([0, 1, 2, 1]))),),
        "within": 1,
    }
    Measurement(**good)
    with pytest.raises(BudgetError, match="not one for each of them"):
        Measurement(**(good | changes))


def test_outcomes_that_another_outdoes_are_left_out_and_as_many_kept_as_are_compared(monkeypatch):
    rows = np.array([[1, 1], [3, 0], [2, 2], [0, 3]])
    assert sorted(map(tuple, paths._undominated(rows).tolist())) == [(0, 3), (2, 2), (3, 0)]
    monkeypatch.setattr(paths, "MOST_PROFILES", 3)
    assert len(paths._undominated(rows)) == 3
    monkeypatch.setattr(paths, "MOST_PROFILES", 2)
    assert paths._undominated(rows) is None


def test_one_place_alone_has_no_two_paths():
    most, two = paths._largest(np.array([5]), np.array([0]), 1)
    assert (most.tolist(), two.tolist()) == ([5], [0])
