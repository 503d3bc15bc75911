"""What a record costs, against all cells and all pairs of cells in fractions (claims K-002 to K-005)."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from separate import separate_cost

from residua.kernel import cost, measurement
from residua.kernel.cost import added_cost, replaced_cost
from residua.kernel.measurement import Measurement, block_cost, dearest_pair
from residua.linalg.classes import Classes, JointClasses

SIZES = (3, 2, 4, 1)
TIED = JointClasses((0, 1), (Classes.of([0, 1, 1]), Classes.every(2)), Classes.of([0, 1, 1, 2]))
COARSE = JointClasses.of_one(2, Classes.of([0, 0, 1, 0]))
VIEWS = ((), (TIED,), (COARSE, TIED), (JointClasses.of_one(2, Classes.of([0, 1, 1, 0])),))


def columns(measurement: Measurement, subset: Sequence[int]) -> Any:
    """What one block measures of every joint cell of all attributes, (rows, cells)."""
    cells = np.indices(SIZES).reshape(len(SIZES), -1)
    codes = list(cells)
    for part in measurement.derived:
        kinds = [own.classes[cells[at]] for at, own in zip(part.attributes, part.partitions, strict=True)]
        codes[part.place] = part.joint.classes[
            np.ravel_multi_index(kinds, [k.count for k in part.partitions])
        ]
    at = np.zeros(cells.shape[1], dtype=np.int64)
    for attribute, size in zip(subset, measurement.sizes, strict=True):
        at = at * size + codes[attribute]
    wide = (matrix.astype(object) for matrix in measurement.matrices)
    whole = reduce(np.kron, wide, np.ones((1, 1), dtype=object))
    return measurement.multiplier * whole[:, at]


def true_cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    """The cost of the dearest joint cell, or of the dearest pair, one by one."""
    unit = math.lcm(*(parameter.numerator for each in measurements for parameter in each.parameters))
    costs: Any = 0
    for each in measurements:
        for subset, owner in zip(each.subsets.tolist(), each.owners.tolist(), strict=True):
            rows = columns(each, subset)
            change = rows[:, :, None] - rows[:, None, :] if replaced else rows[:, :, None]
            sizes = abs(change) if each.law == "laplace" else change**2
            costs = costs + sizes.sum(axis=0) * int(unit / each.parameters[owner])
    return Fraction(int(costs.max()), unit)


def measured(law, view, sizes, subset_rows, matrices, parameters, owners, multiplier=1):
    return Measurement(
        np.array(subset_rows, dtype=np.int32).reshape(len(subset_rows), -1),
        tuple(sizes),
        tuple(np.asarray(matrix, dtype=np.int64) for matrix in matrices),
        multiplier,
        law,
        tuple(parameters),
        np.array(owners, dtype=np.int64),
        view,
    )


@st.composite
def measurements(draw, law, most=4):
    """Some blocks over three attributes, of one view or several, on whole or joint factors."""
    found = []
    for _ in range(draw(st.integers(1, most))):
        view = draw(st.sampled_from(VIEWS))
        gone = {at for part in view for at in part.attributes[1:]}
        own = {at: size for at, size in enumerate(SIZES) if at not in gone}
        own |= {part.place: part.size for part in view}
        subset = draw(st.lists(st.sampled_from(sorted(own)), unique=True, max_size=len(own)))
        sizes = [own[at] for at in subset]
        joint = len(sizes) > 1 and draw(st.booleans())
        widths = [int(np.prod(sizes))] if joint else sizes
        entries = st.integers(-3, 3) | st.integers(-(2**31), 2**31)
        matrices = []
        for width in widths:
            rows = draw(st.integers(1, 3))
            matrix = np.array(draw(st.lists(entries, min_size=rows * width, max_size=rows * width)))
            matrix[0] = matrix[0] or 1
            matrices.append(matrix.reshape(rows, width))
        blocks = draw(st.integers(1, 2))
        parameters = [Fraction(draw(st.integers(1, 99)), draw(st.integers(1, 99))) for _ in range(2)]
        owners = [draw(st.integers(0, 1)) for _ in range(blocks)]
        multiplier = draw(st.sampled_from([1, 2, 1000]))
        found.append(measured(law, view, sizes, [subset] * blocks, matrices, parameters, owners, multiplier))
    return found


LAWS = st.sampled_from(["gaussian", "laplace"])


@given(st.data(), LAWS, st.booleans())
def test_the_stated_cost_is_that_of_the_dearest_cell_or_pair(data, law, replaced):
    found = data.draw(measurements(law))
    stated = (replaced_cost if replaced else added_cost)(found)
    true = true_cost(found, replaced=replaced)
    assert true <= stated <= true * (1 + Fraction(1, 2**50))
    assert stated <= separate_cost(found, replaced=replaced)


@given(st.data(), LAWS, st.booleans(), st.sampled_from([1, 5, 30]))
def test_costs_that_are_added_up_a_few_at_a_time_are_the_same(data, law, replaced, few):
    found = data.draw(measurements(law))
    stated = (replaced_cost if replaced else added_cost)(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "AT_ONCE", few)
        assert (replaced_cost if replaced else added_cost)(found) == stated


@given(st.data(), LAWS, st.booleans())
def test_one_block_alone_costs_exactly_what_it_states(data, law, replaced):
    [found] = data.draw(measurements(law, most=1))
    one = measured(
        law,
        found.derived,
        found.sizes,
        found.subsets[:1].tolist(),
        found.matrices,
        found.parameters,
        found.owners[:1],
        found.multiplier,
    )
    assert (replaced_cost if replaced else added_cost)([one]) == true_cost([one], replaced=replaced)


@given(st.data(), LAWS, st.booleans(), st.sampled_from([1, 2, 6, 24, 100]))
def test_with_less_room_the_cost_is_bounded_all_the_same(data, law, replaced, limit):
    found = data.draw(measurements(law))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OWN", "TOGETHER", "CLUSTER", "APART", "AT_ONCE"):
            patch.setattr(cost, name, max(1, limit))
        patch.setattr(measurement, "COMPARED", limit)
        patch.setattr(measurement, "FRONT", limit // 6)
        patch.setattr(cost, "DEAREST", limit // 6)
        patch.setattr(measurement, "CHUNK", limit)
        stated = (replaced_cost if replaced else added_cost)(found)
        assert stated <= separate_cost(found, replaced=replaced)
    most = (2 if law == "laplace" else 4) if replaced else 1
    assert true_cost(found, replaced=replaced) <= stated
    assert stated <= most * separate_cost(found, replaced=False)


def test_blocks_whose_dearest_cells_differ_cost_less_than_the_sum():
    left = measured("gaussian", (), [3], [[0]], [[[3, 1, 0]]], [Fraction(1)], [0])
    right = measured("gaussian", (), [3], [[0]], [[[0, 2, 3]]], [Fraction(1)], [0])
    assert separate_cost([left, right], replaced=False) == 18
    assert added_cost([left, right]) == 9
    assert separate_cost([left, right], replaced=True) == 18
    assert replaced_cost([left, right]) == 18  # the first cell becomes the last


@pytest.mark.parametrize("size", [Fraction(1, 10**30), Fraction(10**30)])
def test_costs_are_added_up_as_precisely_where_they_are_tiny_or_huge(size):
    rows = [[[3, 1, 0]], [[0, 2, 3]]]
    found = [measured("gaussian", (), [3], [[0]], [own], [1 / size], [0]) for own in rows]
    assert 9 * size <= added_cost(found) <= 9 * size * (1 + Fraction(1, 10**9))


def test_as_many_blocks_and_cells_as_the_limits_say_are_added_up_together(monkeypatch):
    left = measured("gaussian", (), [3], [[0]], [[[3, 1, 0]]], [Fraction(1)], [0])
    right = measured("gaussian", (), [3], [[0]], [[[0, 2, 3]]], [Fraction(1)], [0])
    one = measured("gaussian", (), [3], [[0]], [[[0, 1, 2]]], [Fraction(1)], [0])
    for name, most in (("MOST_BLOCKS", 2), ("OWN", 9)):
        with monkeypatch.context() as patch:
            patch.setattr(cost, name, most)
            assert added_cost([left, right]) == 9
            assert replaced_cost([left, one]) == true_cost([left, one], replaced=True)
            assert replaced_cost([right, one]) == 9 + 4
            patch.setattr(cost, name, 1)
            assert added_cost([left, right]) == 18
    monkeypatch.setattr(cost, "OWN", 3)
    assert added_cost([left, right]) == 9


def test_attributes_that_others_are_made_of_are_looked_at_where_they_have_as_many_cells_as_the_limit():
    made = measured("gaussian", (TIED,), [3], [[0]], [[[4, 3, 3]]], [Fraction(1)], [0])
    found = [made, measured("gaussian", (), [3], [[0]], [[[2, 4, 1]]], [Fraction(1)], [0])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "OWN", TIED.cells)
        assert added_cost(found) == true_cost(found, replaced=False) == 25
        patch.setattr(cost, "OWN", TIED.cells - 1)
        assert added_cost(found) == 32


def test_a_block_on_two_cells_costs_a_pair_that_agrees_on_them_nothing():
    two = measured("gaussian", (), [2], [[0]], [[[1, 0]]], [Fraction(1)], [0])
    four = measured("gaussian", (), [2, 2], [[0, 1]], [[[3, -3, 0, 0]]], [Fraction(1)], [0])
    assert replaced_cost([two, four]) == 36


def test_blocks_beyond_the_limit_are_added_up_in_clusters():
    """Two attributes fit, four do not: the dearest cells of each two are those of all."""
    generator = np.random.default_rng(5)
    found = [
        measured(
            "gaussian", (), [4, 4], [[at, at + 1]], [generator.integers(-9, 9, (2, 16))], [Fraction(1)], [0]
        )
        for at in (0, 0, 2, 2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "TOGETHER", 16)
        patch.setattr(cost, "CLUSTER", 16)
        halves = added_cost(found[:2]) + added_cost(found[2:])
        assert added_cost(found) == halves < separate_cost(found, replaced=False)


def test_blocks_join_a_cluster_while_it_has_room():
    """Three blocks on three attributes fit one cluster, which a fourth does not: 27 places, not 81."""
    generator = np.random.default_rng(6)
    found = [
        measured("gaussian", (), [3, 3], [subset], [generator.integers(-9, 9, (2, 9))], [Fraction(1)], [0])
        for subset in ([0, 1], [1, 2], [2, 0], [4, 5])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "TOGETHER", 27)
        patch.setattr(cost, "CLUSTER", 27)
        parts = added_cost(found[:3]) + added_cost(found[3:])
        assert added_cost(found) == parts < separate_cost(found, replaced=False)
        patch.setattr(cost, "CLUSTER", 26)
        assert parts < added_cost(found)


def test_tables_go_to_the_first_of_the_last_clusters_that_has_room_the_largest_first(monkeypatch):
    places = {(0,): (3,), (5,): (4,), (3, 4): (2, 3), (0, 1): (3, 3), (1, 2): (3, 3), (0, 2): (3, 3)}
    tables = {key: np.zeros(shape, dtype=np.int64) for key, shape in places.items()}

    def clusters(**limits):
        with monkeypatch.context() as patch:
            for name, limit in {"TOGETHER": 1, **limits}.items():
                patch.setattr(cost, name, limit)
            return [[*own] for own in cost._clusters(tables)]

    three, rest = [(0, 1), (0, 2), (1, 2), (0,)], [(3, 4), (5,)]
    assert clusters(CLUSTER=27) == clusters(APART=27 * 6) == clusters(APART=27 * 6 + 5) == [three, rest]
    assert clusters(CLUSTER=36) == [three, rest]
    assert clusters(CLUSTER=26) == [[(0, 1), (0,)], [(0, 2)], [(1, 2)], rest]
    assert clusters(CLUSTER=27, LOOKED_AT=1) == [three[:-1], rest, [(0,)]]
    assert clusters(CLUSTER=27, LOOKED_AT=2) == [three, rest]
    together = 27 * 6 * 4 * len(tables)
    assert clusters(CLUSTER=27, TOGETHER=together) == [[*tables]]
    assert clusters(CLUSTER=27, TOGETHER=together - 1) == [three, rest]


def test_thousands_of_blocks_are_bounded_one_by_one():
    many = cost.MOST_BLOCKS + 1
    rows = [[at] for at in range(many)]
    found = [
        measured("gaussian", (), [3], rows, [[[3, 1, 0]]], [Fraction(1)], [0] * many),
        measured("gaussian", (), [3], rows[:1], [[[0, 1, 3]]], [Fraction(1)], [0]),
    ]
    assert added_cost(found) == separate_cost(found, replaced=False) == 9 * many + 9
    fewer = [
        measured("gaussian", (), [3], rows[1:-1], [[[3, 1, 0]]], [Fraction(1)], [0] * (many - 2)),
        found[1],
    ]
    assert added_cost(fewer) == 9 * many - 9  # on attributes of their own
    assert added_cost([found[1], found[1]]) == 18


def test_the_number_of_records_costs_nothing_where_one_is_replaced():
    for sizes, matrices in (([], []), ([], [[[1]]])):
        total = measured("gaussian", (), sizes, [[]], matrices, [Fraction(1, 4)], [0])
        assert added_cost([total]) == 4
        assert replaced_cost([total]) == 0
        assert replaced_cost([total, total]) == 0
        assert block_cost(total, replaced=True) == 0


def test_attributes_of_one_cell_cost_nothing_and_are_no_axes():
    """Forty of them beside one of two cells: arrays of so many axes, in pairs, there are none."""
    sizes, matrices = [2] + [1] * 40, [[[3, 1]]] + [[[2]]] * 40
    found = measured("gaussian", (), sizes, [list(range(41))] * 2, matrices, [Fraction(4**40)], [0, 0])
    assert added_cost([found]) == 18
    assert replaced_cost([found]) == 8


def test_laplace_noise_on_too_many_numbers_is_bounded_by_the_sum_of_two_cells():
    found = [
        measured("laplace", (), [3], [[0]], [matrix], [Fraction(1)], [0])
        for matrix in ([[3, 1, 0]], [[0, 2, 3]], [[-1, 0, 1]])
    ]
    assert replaced_cost(found) == true_cost(found, replaced=True) == 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, "COMPARED", 8)
        assert replaced_cost(found[:1]) == 6
        assert replaced_cost(found) == 8  # 4 and 4: the first cell becomes the last
        patch.setattr(measurement, "COMPARED", 9)
        assert replaced_cost(found[:1]) == 3


def test_differences_that_64_bits_do_not_hold_are_added_up_exactly():
    matrices = [[[2**30, -(2**30)]], np.full((8, 1), 2**30)]
    found = measured("laplace", (), [2, 1], [[0, 1]], matrices, [Fraction(1)], [0])
    assert block_cost(found, replaced=True) == 2**64


def test_a_record_that_stays_in_its_cell_costs_nothing(monkeypatch):
    monkeypatch.setattr(measurement, "COMPARED", 8)
    found = measured("laplace", (), [3], [[0]], [[[3, 1, 0]]], [Fraction(1)], [0])
    assert measurement.costs_by_cell(found, replaced=True).tolist() == [[0, 4, 3], [4, 0, 1], [3, 1, 0]]


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_costs_of_real_matrices_are_those_of_whole_ones(law):
    matrix = np.array([[3, -1, 0], [1, 2, -2]])
    real = measurement.column_costs(law, matrix.astype(np.float64))
    assert real.dtype == np.float64
    assert np.array_equal(real, measurement.column_costs(law, matrix))


@pytest.mark.parametrize("whole", ["7/4", "8/15", "1", "9007199254740993/3", "1/4503599627370497"])
def test_a_whole_cost_is_many_grains_and_fewer_than_64_bits_add_up(whole):
    assert 2**59 < Fraction(whole) / measurement.grain_of(Fraction(whole)) < 2**61


def test_no_measurement_costs_nothing():
    assert added_cost([]) == replaced_cost([]) == 0


def test_costs_of_two_laws_do_not_add_up():
    both = [measured(law, (), [2], [[0]], [np.eye(2)], [Fraction(1)], [0]) for law in ("gaussian", "laplace")]
    with pytest.raises(ValueError, match="do not add up"):
        added_cost(both)


@pytest.mark.parametrize("bits", [1, 12, 25, 31, 45, 53])
@pytest.mark.parametrize("rows", [1, 7, 600])
def test_products_of_columns_are_exact_whatever_their_size(bits, rows):
    generator = np.random.default_rng(bits + rows)
    matrix = generator.integers(-(2**bits), 2**bits, (rows, 5), endpoint=True)
    matrix[0, 0], matrix[-1, -1] = 2**bits, -(2**bits)
    wide = matrix.astype(object)
    assert np.array_equal(measurement.gram_rows(matrix, slice(None)), wide.T @ wide)
    assert np.array_equal(measurement.gram_rows(matrix, slice(1, 3)), (wide.T @ wide)[1:3])


def test_a_product_of_many_factors_is_compared_pair_by_pair_without_listing_its_cells():
    """Cells of 2^60 pairs; the worst differ in one factor of contrasts, or in all of the others."""
    contrasts = [3 * np.eye(3, dtype=np.int64) - 1] * 20
    assert (
        dearest_pair(contrasts) == 2 * 6**20 + 6**19 * 6
    )  # 6, 6 and -3: two cells that differ in one factor
    counts = [np.eye(8, dtype=np.int64)] * 20
    assert dearest_pair(counts) == 2
    apart, opposite = 2 * np.eye(2, dtype=np.int64), np.array([[5, -5]])
    assert dearest_pair([apart, opposite]) == 20**2  # of one cell of the first
    assert dearest_pair([apart, apart, opposite]) == 40**2
    between = np.array([[10, 0, -1], [0, 10, -1]])  # a short column is farther from both in its products
    assert dearest_pair([between, np.array([[1]])]) == 200


def test_all_pairs_of_one_matrix_are_compared(monkeypatch):
    """However many pairs none outdoes, and in however many pieces."""
    monkeypatch.setattr(measurement, "FRONT", 1)
    monkeypatch.setattr(measurement, "CHUNK", 20)
    matrix = np.random.default_rng(5).integers(-20, 20, (3, 9))
    differences = matrix[:, :, None] - matrix[:, None, :]
    assert dearest_pair(iter([matrix])) == (differences**2).sum(axis=0).max()
    assert dearest_pair([matrix, np.eye(2, dtype=np.int64)]) >= (differences**2).sum(axis=0).max()


def test_as_many_pairs_as_there_is_room_for_are_kept(monkeypatch):
    best = [[9, 1, 5], [1, 9, 5], [5, 5, 0]]
    triples = np.array([[4, 5, 0], [5, 4, 0], [2, 2, 3], [8, 1, 7], *best, [1, 8, 6]], dtype=object)
    monkeypatch.setattr(measurement, "FRONT", 3)
    assert sorted(measurement._undominated(triples).tolist()) == sorted(best)
    monkeypatch.setattr(measurement, "FRONT", 2)
    assert measurement._undominated(triples).tolist() == [[9, 9, 0]]


def test_pairs_that_none_outdoes_are_found_among_many():
    generator = np.random.default_rng(3)
    matrices = [generator.integers(-20, 20, (3, 7)), generator.integers(-20, 20, (4, 5))]
    whole = np.kron(*matrices)
    differences = whole[:, :, None] - whole[:, None, :]
    assert dearest_pair(matrices) == (differences**2).sum(axis=0).max()
    assert (
        block_cost(measured("laplace", (), [7, 5], [[0, 1]], matrices, [Fraction(1)], [0]), replaced=True)
        == abs(differences).sum(axis=0).max()
    )
