"""Which records of a person are counted (claim E-010), whatever the records."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.engines import Memory, persons
from residua.engines.persons import Packing, ids_of, plain_ids
from residua.engines.persons import kept as kept_of
from residua.privacy.unit import Person

SCHEMA = rs.Schema(month=rs.Integer(0, 5), place=rs.Integer(0, 2), sex=rs.Integer(0, 1))
QUARTERS = np.arange(6) // 3

records = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 2), st.integers(0, 1)), max_size=40
)
units = st.builds(
    lambda most, **per: rs.Unit(
        id="who", max_records=most, max_per={name: own for name, own in per.items() if own < most}
    ),
    st.integers(1, 5),
    month=st.integers(1, 5),
    place=st.integers(1, 5),
)


def counted_rows(person, table):
    """Positions of the records that are counted; the first column is the person."""
    packing = Packing.of(SCHEMA.codes)
    return kept_of(person, pa.array(table[:, 0]), packing.packed(list(table[:, 1:].T)), packing)


def kept(rows, unit):
    """The records of each person that are counted."""
    person = Person.of(unit, SCHEMA)
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    rows = counted_rows(person, table)
    found = {who: Counter() for who in range(5)}
    for who, *codes in table[rows].tolist():
        found[who][tuple(codes)] += 1
    return found


@given(records, units)
def test_nobody_has_more_records_than_the_unit_says(rows, unit):
    for own in kept(rows, unit).values():
        assert own.total() <= unit.max_records
        for name, most in unit.max_per.items():
            groups = Counter()
            for codes, many in own.items():
                groups[codes[SCHEMA.position(name)]] += many
            assert max(groups.values(), default=0) <= most


@given(records, units, records, st.randoms())
def test_what_is_kept_of_one_depends_on_nobody_else_and_on_no_order(rows, unit, others, random):
    alone = kept([row for row in rows if row[0] == 0], unit)[0]
    crowd = [row for row in rows if row[0] == 0] + [row for row in others if row[0] != 0]
    random.shuffle(crowd)
    assert kept(crowd, unit)[0] == alone


def scrambled(word):
    for _ in range(2):
        word = (word ^ word >> 32) * 0xD6E8FEB86659FD93 % 2**64
    return ((word ^ word >> 32) + 0x9E3779B97F4A7C15) % 2**64


def kept_one_by_one(rows, unit):
    """The rule in words (claim E-010), for the records of one person."""
    codes = [month + (place << 3) + (sex << 5) for _, month, place, sex in rows]
    salt = scrambled(sum(map(scrambled, codes)) % 2**64)
    order = sorted(range(len(rows)), key=lambda at: scrambled(scrambled(codes[at]) ^ salt))
    for name, most in unit.max_per.items():
        seen = Counter()
        for at in list(order):
            seen[rows[at][1 + SCHEMA.position(name)]] += 1
            if seen[rows[at][1 + SCHEMA.position(name)]] > most:
                order.remove(at)
    return Counter(tuple(rows[at][1:]) for at in order[: unit.max_records])


@given(records, units)
def test_what_is_kept_is_what_the_rule_says_in_words(rows, unit):
    found = kept(rows, unit)
    for who in range(5):
        assert found[who] == kept_one_by_one([row for row in rows if row[0] == who], unit)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=30), st.integers(1, 4))
def test_marks_are_compared_whole_where_groups_leave_them_few_bits(rows, most):
    """Groups so large that one bit of a mark is left beside them."""
    groups = np.array([2**62 + group for group, _ in rows], dtype=np.int64)
    marks = np.array([mark for _, mark in rows], dtype=np.uint64)
    found = persons._lowest(groups, marks, most)
    for group in set(groups.tolist()):
        own = np.sort(marks[groups == group])
        assert sorted(marks[found[groups[found] == group]].tolist()) == own[:most].tolist()


def test_persons_whose_mixes_agree_in_the_digits_that_are_looked_at_are_told_apart():
    numbers = np.arange(300_000, dtype=np.uint64)
    digits = persons._scrambled(numbers).astype(np.uint32)
    order = np.argsort(digits)
    pairs = np.flatnonzero(digits[order][1:] == digits[order][:-1])
    assert len(pairs) > 0
    alike = np.tile(numbers[order[[pairs[0], pairs[0] + 1]]], 3)
    found = alike[persons._together(alike)]
    assert np.count_nonzero(found[1:] != found[:-1]) == 1


@given(st.lists(st.integers(2, 2**20), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_packed_codes_are_unpacked_as_they_were(sizes, random):
    codes = [np.array([0, size - 1, random.randrange(size)]) for size in sizes]
    packing = Packing.of(sizes)
    found = packing.unpacked(packing.packed(codes))
    assert all(map(np.array_equal, found, codes))
    assert len(packing.packed(codes)) <= len(sizes)


def test_equal_texts_have_equal_mixes_wherever_they_are():
    ids = plain_ids(pa.array(["ab", "b", "ba", "ab", "é" * 40]), "who")
    whole = persons.mixes_of(ids)
    assert whole[0] == whole[3]
    assert len(set(whole.tolist())) == 4
    assert persons.mixes_of(ids.slice(2, 3)).tolist() == whole[2:].tolist()
    assert len(persons.mixes_of(ids.slice(0, 0))) == 0


@given(records, st.integers(1, 5))
def test_nothing_is_left_out_that_need_not_be(rows, most):
    for who, own in kept(rows, rs.Unit(id="who", max_records=most)).items():
        assert own.total() == min(most, sum(row[0] == who for row in rows))


def test_which_records_are_kept_differs_from_person_to_person():
    """Of many persons with a record in each of six months and one more, no month is left out by all."""
    rows = [(who, month, 0, 0) for who in range(64) for month in range(6)]
    rows += [(who, who % 6, 1 + who % 2, who // 12 % 2) for who in range(64)]
    table = np.array(rows)
    person = Person.of(rs.Unit(id="who", max_records=2), SCHEMA)
    months = np.bincount(table[counted_rows(person, table), 1], minlength=6)
    assert months.sum() == 128
    assert months.min() > 0


def test_levels_of_an_attribute_have_caps_too():
    schema = rs.Schema(day=rs.Date("2024-01-01", "2024-12-31", by="month"), sex=rs.Integer(0, 1))
    person = Person.of(rs.Unit(id="who", max_records=12, one_per="day.quarter"), schema)
    data = {"day": [f"2024-{month:02}-01" for month in range(1, 13)] * 2, "sex": [0, 1] * 12, "who": [7] * 24}
    assert person.records == 4
    assert Memory().open_kept(schema, data, person).tally([()])[0].tolist() == [4]


def test_the_id_is_no_attribute():
    schema = rs.Schema(who=rs.Integer(0, 9))
    with pytest.raises(rs.SchemaError, match="'who' says whose records are whose and cannot be published"):
        Person.of(rs.Unit(id="who", max_records=2), schema)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 1, None], pa.uint8()),
        pa.array(["a", "b", "a", ""]),
        pa.array([b"a", b"b", b"a", None], pa.binary()),
        pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1, None], pa.uint64()),
        pa.array([0.5, 1.5, 0.5, float("nan")]),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.chunked_array([["a", "b"], ["a", None]]),
    ],
)
def test_ids_of_any_type_are_equal_where_the_values_are(values):
    found = plain_ids(values, "who")
    assert found[0] == found[2] != found[1]
    assert found.null_count == 1


def test_lists_are_no_ids():
    with pytest.raises(rs.DataError, match="column 'who': values of type list<item: int64> are no ids"):
        ids_of({"who": [[1], [2]]}, "who")


def test_columns_of_different_lengths_are_refused():
    person = Person.of(rs.Unit(id="who", max_records=2), SCHEMA)
    data = {"month": [0, 1], "place": [0, 1], "sex": [0, 1], "who": [1, 2, 3]}
    with pytest.raises(rs.DataError, match="'month' and 'who' have different numbers of values"):
        Memory().open_kept(SCHEMA, data, person)


def test_numbers_have_no_cells_that_records_could_be_spread_over():
    schema = rs.Schema(income=rs.Number(0, 100, step=10), sex=rs.Integer(0, 1))
    with pytest.raises(rs.SchemaError, match="a number counts in several cells at once"):
        Person.of(rs.Unit(id="who", max_records=2, one_per="income"), schema)
    data = {"income": [10, 30, 50, 100], "sex": [0, 0, 1, 1], "who": [1, 1, 1, 2]}
    engine = Memory().open_kept(schema, data, Person.of(rs.Unit(id="who", max_records=1), schema))
    assert engine.tally([(1,)])[0].sum() == 2
