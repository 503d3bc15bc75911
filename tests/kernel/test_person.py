"""What a person with several records costs, against every pattern of records (claims K-010 to K-013)."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement

import numpy as np
import pytest

import residua as rs
from residua.kernel import person as kernel_person
from residua.kernel.cost import added_cost, person_cost
from residua.kernel.measurement import Measurement
from residua.linalg.classes import Classes, JointClasses
from residua.privacy import Unit
from residua.privacy.unit import Cap, Person

SIZES = (3, 2, 2)
CELLS = np.indices(SIZES).reshape(len(SIZES), -1)


def whom(records, caps=(), neighbours="add_remove"):
    names = {f"a{cap.attribute}": cap.most for cap in caps}
    return Person(Unit(records, neighbours, id="who", max_per=names), tuple(caps))


def patterns(person):
    """Every sum of at most so many records, (patterns, joint cells)."""
    found = []
    for many in range(person.unit.max_records + 1):
        for cells in combinations_with_replacement(range(CELLS.shape[1]), many):
            own = CELLS[:, list(cells)]
            groups = [np.bincount(cap.classes[own[cap.attribute]], minlength=1) for cap in person.caps]
            if all(group.max() <= cap.most for cap, group in zip(person.caps, groups, strict=True)):
                found.append(np.bincount(cells, minlength=CELLS.shape[1]))
    return np.array(found)


def true_cost(measurements, person):
    sums = patterns(person)
    unit = math.lcm(*(own.numerator for each in measurements for own in each.parameters))
    costs = 0
    for each in measurements:
        for subset, owner in zip(each.subsets.tolist(), each.owners.tolist(), strict=True):
            at = np.zeros(CELLS.shape[1], dtype=np.int64)
            for attribute, size in zip(subset, each.sizes, strict=True):
                at = at * size + CELLS[attribute]
            whole = reduce(np.kron, each.matrices, np.ones((1, 1), dtype=np.int64))
            found = sums @ (each.multiplier * whole[:, at]).T  # (patterns, rows)
            if person.unit.replacing:
                found = found[:, None] - found[None]
            sizes = abs(found) if each.law == "laplace" else found**2
            costs = costs + sizes.sum(axis=-1) * int(unit / each.parameters[owner])
    return Fraction(int(np.max(costs)), unit)


def matrix(random, size):
    """A random matrix, often centred, often without negative products of columns."""
    rows = random.integers(-3, 4, size=(random.integers(1, size + 2), size))
    kind = random.integers(3)
    if kind == 0:
        rows = size * rows - rows.sum(axis=1, keepdims=True)
    rows = abs(rows) if kind == 1 else rows
    rows[0, 0] += not rows.any()
    return rows


def measurements(random, law, blocks):
    found = []
    for _ in range(blocks):
        subset = random.permutation(len(SIZES))[: random.integers(0, len(SIZES) + 1)].tolist()
        sizes = [SIZES[at] for at in subset]
        factors = [matrix(random, size) for size in sizes]
        if len(sizes) > 1 and random.integers(2):
            factors = [matrix(random, sizes[0] * sizes[1]), *factors[2:]]
        found.append(block(law, subset, factors, Fraction(int(random.integers(1, 4)))))
    return found


def block(law, subset, factors, parameter=Fraction(1), sizes=SIZES, derived=()):
    return Measurement(
        np.array([subset], dtype=np.int32).reshape(1, -1),
        tuple(sizes[at] for at in subset),
        tuple(np.asarray(each, dtype=np.int64) for each in factors),
        2,
        law,
        (parameter,),
        np.array([0]),
        derived,
    )


def caps(random, records, many=1):
    found = []
    for at in random.permutation(len(SIZES))[:many].tolist():
        classes = random.integers(0, 2, SIZES[at]) if random.integers(2) else np.arange(SIZES[at])
        found.append(Cap(at, classes, int(random.integers(1, records))))
    return tuple(found)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("listing", [True, False])
def test_no_pattern_of_records_costs_more_than_is_stated(law, neighbours, listing, monkeypatch):
    if not listing:
        monkeypatch.setattr(kernel_person, "PATTERNS", 0)
        monkeypatch.setattr(kernel_person, "PAIRED", 0)
    random = np.random.default_rng(7)
    for _ in range(60):
        records = int(random.integers(2, 4))
        person = whom(records, caps(random, records, random.integers(0, 3)), neighbours)
        found = measurements(random, law, random.integers(1, 4))
        stated = person_cost(found, person)
        assert stated >= true_cost(found, person)
        assert stated <= person_cost(found, whom(records, (), neighbours))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_one_block_alone_costs_a_person_exactly_what_is_stated(law, neighbours):
    random = np.random.default_rng(8)
    for _ in range(40):
        records = int(random.integers(2, 4))
        person = whom(records, caps(random, records), neighbours)
        found = measurements(random, law, 1)
        assert person_cost(found, person) == true_cost(found, person)


def test_without_an_id_a_person_costs_a_multiple_of_a_record():
    found = measurements(np.random.default_rng(9), "gaussian", 3)
    assert person_cost(found, Person(Unit(3))) == 9 * added_cost(found)
    total = [block("gaussian", [], [])]
    assert person_cost(total, Person(Unit(3, "replace_one"))) == 0
    assert person_cost(total, whom(3, (), "replace_one")) == 9 * 4


def centred(size):
    return size * np.eye(size, dtype=np.int64) - 1


def kappa(factors, sizes, cap, records, neighbours="add_remove"):
    """A person's cost over that of a record."""
    own = block("gaussian", range(len(sizes)), factors, sizes=sizes)
    return person_cost([own], whom(records, [cap], neighbours)) / added_cost([own])


def test_one_record_a_quarter_costs_plain_cells_as_many_times_as_there_are_quarters():
    quarters = Cap(0, np.arange(8), 1)
    assert kappa([np.eye(8), np.eye(10)], (8, 10), quarters, 8) == 8
    assert kappa([np.eye(8), centred(10)], (8, 10), quarters, 8) == 8
    assert kappa([np.eye(8), np.eye(10)], (8, 10), quarters, 8, "replace_one") == 16
    assert kappa([np.eye(8), np.eye(10)], (8, 10), Cap(0, np.arange(8), 2), 5) == 4 + 4 + 1


def test_centred_quarters_cost_what_their_worst_pattern_does():
    assert kappa([centred(8)], (8,), Cap(0, np.arange(8), 1), 8) == Fraction(16, 7)
    # Aligned records of all four quarters cost nothing, and the worst are not aligned.
    found = kappa([centred(4), centred(3)], (4, 3), Cap(0, np.arange(4), 1), 4)
    assert found * Fraction(3, 4) * Fraction(2, 3) == Fraction(5, 2)


def test_running_totals_cost_what_one_record_in_every_period_does():
    prefix = np.tril(np.ones((30, 30), dtype=np.int64))
    records = prefix @ np.ones(30, dtype=np.int64)
    assert kappa([prefix], (30,), Cap(0, np.arange(30), 1), 30) == Fraction(int(records @ records), 30)


def test_derived_attributes_are_bounded_by_the_cells_that_each_class_may_be_in(monkeypatch):
    cap = Cap(0, np.arange(4), 1)
    part = JointClasses.of_one(0, Classes.of([0, 0, 1, 1]))
    halves = block("gaussian", [0], [np.eye(2)], sizes=(2,), derived=(part,))
    assert person_cost([halves], whom(4, [cap])) == 4 * (2**2 + 2**2)
    part = JointClasses((0, 1), (Classes.every(4), Classes.every(2)), Classes.of([0, 1, 2, 2, 3, 3, 4, 4]))
    joint = block("gaussian", [0], [np.eye(5)], sizes=(5,), derived=(part,))
    assert person_cost([joint], whom(4, [cap])) == 4 * 4
    assert person_cost([joint], whom(4, [Cap(1, np.arange(2), 2)])) == 4 * 16  # cells of either class
    other = block("gaussian", [2], [np.eye(2)], sizes=(1, 1, 2), derived=(part,))
    assert person_cost([other], whom(4, [cap])) == 4 * 16
    monkeypatch.setattr(kernel_person, "LISTED", 2)
    assert person_cost([halves], whom(4, [cap])) == 4 * 16


def test_matrices_that_axes_cut_through_bound_nothing():
    cap, cells = Cap(0, np.arange(4), 1), np.eye(4, dtype=np.int64)
    whole = 16 * 4
    cut = block("gaussian", [0, 1], [np.eye(3), np.eye(4)], sizes=(4, 3))  # matrices across axes
    assert person_cost([cut], whom(4, [cap])) == whole
    assert person_cost([block("gaussian", [0], [cells], sizes=(4,))], whom(4, [cap])) == 4 * 4
    other = Cap(0, np.arange(5), 1)
    assert person_cost([block("gaussian", [0], [cells], sizes=(4,))], whom(4, [other])) == whole
    lonely = Cap(0, np.arange(1), 1)  # one record in all
    assert person_cost([block("gaussian", [1, 0], [cells, [[1]]], sizes=(1, 4))], whom(4, [lonely])) == 4


def test_attributes_of_many_cells_are_bounded_as_if_all_records_were_in_one(monkeypatch):
    monkeypatch.setattr(kernel_person, "LISTED", 8)
    assert kappa([np.eye(8)], (8,), Cap(0, np.arange(8), 1), 8) == 64


def test_numbers_beyond_64_bits_are_added_up_exactly():
    large = np.eye(3, dtype=np.int64) * 2**40
    assert kappa([large], (3,), Cap(0, np.arange(3), 1), 3) == 3
    assert kappa([large, np.ones((1, 2))], (3, 2), Cap(0, np.arange(3), 1), 3) == 3


def within(random, law, blocks, subset, factors):
    """Blocks within the cells of attribute 0, or within classes of them."""
    classes = {3: [0, 1, 2], 2: [0, 1, 1], 1: [0, 0, 0]}[blocks]
    parts = () if blocks == 3 else (JointClasses.of_one(0, Classes(np.array(classes))),)
    return Measurement(
        np.array([subset] * blocks, dtype=np.int32).reshape(blocks, -1),
        tuple(SIZES[at] for at in subset),
        tuple(factors),
        2,
        law,
        (Fraction(1), Fraction(3)),
        random.integers(0, 2, blocks),
        parts,
        0,
    )


def true_path_cost(measurements, person):
    sums, costs = patterns(person), 0
    for each in measurements:
        for number, owner in enumerate(each.owners.tolist()):
            at = np.zeros(CELLS.shape[1], dtype=np.int64)
            for attribute, size in zip(each.subsets[0].tolist(), each.sizes, strict=True):
                at = at * size + CELLS[attribute]
            whole = reduce(np.kron, each.matrices, np.ones((1, 1), dtype=np.int64))[:, at]
            found = sums @ (2 * whole * (each.cells_of_blocks()[CELLS[0]] == number)).T
            found = found[:, None] - found[None] if person.unit.replacing else found
            sizes = abs(found) if each.law == "laplace" else found**2
            costs = costs + sizes.sum(axis=-1) * int(3 / each.parameters[owner])
    return Fraction(int(np.max(costs)), 3)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_blocks_within_places_cost_a_person_no_more_than_is_stated(law, neighbours, monkeypatch):
    random = np.random.default_rng(11)
    for _ in range(20):
        subset = [[1, 2], [2], [2, 1], []][random.integers(4)]
        factors = [matrix(random, SIZES[at]) for at in subset]
        found = [within(random, law, blocks, subset, factors) for blocks in (1, 2, 3)]
        person = whom(3, caps(random, 3), neighbours)
        assert person_cost(found, person) >= true_path_cost(found, person)
    cells = [within(random, "gaussian", blocks, [1], [np.eye(2, dtype=np.int64)]) for blocks in (1, 3)]
    spread, anywhere = whom(2, [Cap(1, np.arange(2), 1)]), whom(2)
    assert person_cost(cells, spread) * 2 == person_cost(cells, anywhere)
    monkeypatch.setattr(kernel_person, "LISTED", 2)
    assert person_cost(cells, spread) == person_cost(cells, anywhere)


def test_replacing_a_person_costs_at_most_twice_what_adding_one_does_where_columns_do_not_oppose(monkeypatch):
    """Claim K-016, with two months in each quarter, where K-013 says nothing."""
    quarters, months = Cap(0, np.arange(16) // 2, 1), np.eye(16, dtype=np.int64)
    monkeypatch.setattr(kernel_person, "PAIRED", 0)
    assert kappa([months], (16,), quarters, 8, "replace_one") == 2 * 8
    assert kappa([centred(16)], (16,), quarters, 8, "replace_one") == 4 * kappa(
        [centred(16)], (16,), quarters, 8
    )
    random = np.random.default_rng(12)
    cells = [within(random, "gaussian", blocks, [1], [np.eye(2, dtype=np.int64)]) for blocks in (1, 3)]
    added, replaced = (
        whom(2, [Cap(1, np.arange(2), 1)], neighbours) for neighbours in ("add_remove", "replace_one")
    )
    assert person_cost(cells, replaced) == 2 * person_cost(cells, added)
    assert person_cost(cells, replaced) >= true_path_cost(cells, replaced)


# --- how far each way of proving a cost goes: limits, and figures worked out by hand ------------------------


CELL = [np.array([at]) for at in range(3)]  # groups of one cell each


def as_objects(rows):
    return np.array(rows, dtype=object)


def test_several_blocks_cost_a_person_each_by_the_axis_that_is_capped():
    subsets = np.array([[0, 1], [1, 0], [1, 2]], dtype=np.int32)
    cells, owners = np.eye(3, dtype=np.int64), np.array([0, 1, 0])
    person = whom(3, [Cap(0, np.arange(3), 1)])
    found = Measurement(subsets, (3, 3), (cells, cells), 3, "gaussian", (Fraction(1), Fraction(2)), owners)
    costs = [(cost, rows.tolist()) for cost, rows in kernel_person.block_costs(found, person)]
    assert sorted(costs) == [(9 * 3, [0]), (9 * 3, [1]), (9 * 9, [2])]
    alone = [replace(found, subsets=subsets[[at]], owners=owners[[at]]) for at in range(3)]
    assert person_cost([found], person) == sum(person_cost([each], person) for each in alone)


def test_blocks_within_places_cost_a_person_with_laplace_noise_as_many_times_as_there_are_records():
    random = np.random.default_rng(13)
    [path] = [within(random, "laplace", 3, [1], [np.eye(2, dtype=np.int64)])]
    person = whom(2, [Cap(1, np.arange(2), 1)])
    assert person_cost([path], person) == 2 * person_cost([path], Person(Unit()))
    replaced = whom(2, [Cap(1, np.arange(2), 1)], "replace_one")
    assert person_cost([path], replaced) == 2 * person_cost([path], person)


def test_replacing_costs_twice_what_adding_does_where_few_cells_show_that_columns_do_not_oppose(monkeypatch):
    cells = block("gaussian", [0], [np.eye(3)])
    assert kernel_person._times_replaced(block("laplace", [0], [np.eye(3)])) == 2
    monkeypatch.setattr(kernel_person, "LISTED", 9)
    assert kernel_person._times_replaced(cells) == 2
    monkeypatch.setattr(kernel_person, "LISTED", 8)
    assert kernel_person._times_replaced(cells) == 4


def test_what_a_record_costs_beside_others_is_known_of_matrices_of_few_cells(monkeypatch):
    cells, person = block("gaussian", [0], [np.eye(3)]), whom(3, [Cap(0, np.arange(3), 1)])
    for listed, ratio, bound in ((9, 1, 3), (8, 3, None)):
        monkeypatch.setattr(kernel_person, "LISTED", listed)
        monkeypatch.setattr(kernel_person, "PATTERNS", 0)
        monkeypatch.setattr(kernel_person, "PAIRED", 0)
        assert kernel_person._row_ratio(cells, person) == ratio
        assert kernel_person._capped(cells, CELL, 0, 1, 3, replaced=False) == bound
        assert kernel_person._capped(cells, CELL, 0, 1, 3, replaced=True) == (bound and 2 * bound)


def test_cells_of_derived_attributes_are_looked_at_up_to_a_limit(monkeypatch):
    part = JointClasses.of_one(0, Classes.of([0, 0, 1, 1]))
    halves = block("gaussian", [0], [np.eye(2)], sizes=(2,), derived=(part,))
    for listed, place in ((4, 0), (3, kernel_person.NOWHERE)):
        monkeypatch.setattr(kernel_person, "LISTED", listed)
        assert kernel_person._groups(halves, Cap(0, np.arange(4), 1))[0] == place


@pytest.mark.parametrize(
    ("matrix", "groups", "most", "patterns", "numbers"),
    [
        ([[1, 1]], [[0]], 1, 2, 2),
        (np.eye(2), [[0], [1]], 2, 4, 8),
        (np.eye(3)[:2], [[0, 1], [2]], 2, 6, 12),
    ],
)
def test_patterns_of_a_person_are_listed_up_to_a_limit(matrix, groups, most, patterns, numbers, monkeypatch):
    rows = np.asarray(matrix, dtype=np.int64)
    cells = [np.array(each) for each in groups]

    def listed():
        return kernel_person._listed([rows], cells, 1, most, False)

    for limit, least in (("PATTERNS", patterns), ("LISTED", numbers)):
        with monkeypatch.context() as patch:
            patch.setattr(kernel_person, limit, least)
            assert len(listed()) == patterns
            patch.setattr(kernel_person, limit, least - 1)
            assert listed() is None


@pytest.mark.parametrize(("largest", "kind"), [(2**28, object), (2**28 - 1, np.int64)])
def test_patterns_whose_squares_would_not_fit_64_bits_are_objects(largest, kind):
    rows = np.eye(2, dtype=np.int64) * largest  # (2 * 2 records * 2^28)^2 * 2 rows = 2^61
    assert kernel_person._listed([rows], CELL[:2], 1, 2, False).dtype == kind


def test_records_of_a_group_are_all_in_one_cell_and_shared_out_from_the_dearest_on():
    sizes = as_objects([[1, 3, 9], [3, 4, 0], [9, 0, 9]])
    assert kernel_person._rows(sizes, [np.array([0, 1]), np.array([2])], 1, 2) == [1 + 9, 9 + 9]
    assert kernel_person._shared_out(as_objects([[3, 5, 1]]), 2, 3).tolist() == [2 * 5 + 3]


def test_the_bound_on_replacing_a_person_is_for_groups_of_one_cell_each():
    sizes = as_objects([[4, 2, 1], [2, 4, 1], [1, 1, 4]])
    assert kernel_person._replaced_bound(sizes, CELL, 1, 1, 2) == (4 + 2) * 2
    assert kernel_person._replaced_bound(sizes, CELL, 2, 3, 2) == (4 + 2 + 1) * 3 * 2 * 2
    # Two records may be in one cell: the four of both persons are in two cells, not in three.
    assert kernel_person._replaced_bound(sizes, CELL, 2, 2, 2) == (4 + 2) * 2 * 2 * 2
    assert kernel_person._replaced_bound(sizes, [np.array([0, 1]), *CELL[1:]], 1, 1, 2) is None
    assert kernel_person._replaced_bound(sizes, CELL[:2], 1, 1, 2) is None


def planned(unit):
    schema = rs.Schema(quarter=rs.Integer(0, 1), place=rs.Integer(0, 1))
    return rs.plan(rs.table(schema, ["quarter", "place"]), rs.privacy_cost(10**6), unit=unit)


def test_no_more_records_of_a_person_are_measured_than_the_unit_says():
    data = {"quarter": [0, 0, 0, 1], "place": [1, 1, 1, 1], "who": ["a", "a", "a", "b"]}
    for unit, many in ((rs.Unit(), 4), (rs.Unit(id="who", max_records=2), 3)):
        release = rs.measure(planned(unit), data, ledger=None, noise=rs.simulated(seed=1))
        assert release.table("quarter", "place").values.sum() == pytest.approx(many, abs=0.1)


def test_an_engine_of_ones_own_that_cannot_bound_persons_is_refused():
    class Own:
        def open(self, schema, data):
            raise AssertionError

    plan = planned(rs.Unit(id="who", max_records=8))
    with pytest.raises(rs.DataError, match="cannot keep to 8 records of one 'who'"):
        rs.measure(plan, {}, ledger=None, noise=rs.simulated(seed=1), engine=Own())
