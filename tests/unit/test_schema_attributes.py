"""Kinds of attribute: their cells, labels, policies and refusals."""

import copy

import numpy as np
import pytest

from residua.errors import DataError, FileFormatError, SchemaError
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer, attribute_from_manifest

PLACES = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
KINDS = [
    Integer(-3, 5),
    Categorical("F", "M"),
    Categorical(3, 1),
    Categorical(False, True),
    Binned(0, 0.5, 2),
    PLACES,
]


def test_integer_bounds_are_inclusive() -> None:
    age = Integer(10, 12)
    assert age.size == 3
    assert age.labels() == ("10", "11", "12")
    assert age.encode([10, 11, 12]).tolist() == [0, 1, 2]


def test_bins_are_half_open_and_the_last_may_be_open_above() -> None:
    closed, opened = Binned(0, 10, 20), Binned(0, 10, 20, above=True)
    assert closed.labels() == ("[0, 10)", "[10, 20)")
    assert opened.labels() == ("[0, 10)", "[10, 20)", "20 and above")
    assert opened.encode([0, 9.999, 10, 20, float("inf")]).tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(DataError, match=r"20\.0 at row 1"):
        closed.encode([19.0, 20.0])


def test_one_edge_makes_a_bin_only_when_it_is_open_above() -> None:
    assert Binned(5, above=True).labels() == ("5 and above",)
    with pytest.raises(SchemaError, match=r"Binned\(5\): too few edges"):
        Binned(5)


def test_numbers_are_numeric_and_names_are_not() -> None:
    assert [kind.numeric for kind in KINDS] == [True, False, False, False, True, False]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_equal_attributes_are_equal_by_value_and_hash_alike(kind: Attribute) -> None:
    twin = attribute_from_manifest(kind.to_manifest())
    assert twin == kind
    assert hash(twin) == hash(kind)
    assert copy.deepcopy(kind) == kind
    assert len({*KINDS, twin}) == len(KINDS)


def test_booleans_and_zero_one_are_different_labels() -> None:
    assert Categorical(0, 1) != Categorical(False, True)
    assert Categorical(0, 1) != Categorical("0", "1")


def test_the_policy_is_part_of_an_attribute() -> None:
    assert Integer(0, 9) != Integer(0, 9, outside="drop")


def test_reprs_are_readable_and_short() -> None:
    assert repr(Integer(0, 9, outside="clip")) == "Integer(0, 9, outside='clip')"
    assert repr(Categorical("F", "M")) == "Categorical('F', 'M')"
    assert repr(Binned(0, 0.5, above=True)) == "Binned(0, 0.5, above=True)"
    assert repr(PLACES) == "Hierarchy('state', 'county'; 3 leaves)"
    assert len(repr(Categorical(*map(str, range(1000))))) < 80


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_other_adds_one_last_cell_for_everything_outside(kind: Attribute) -> None:
    wider = attribute_from_manifest(kind.to_manifest() | {"outside": "other"})
    assert kind.other is None
    assert wider.size == kind.size + 1
    assert wider.other == kind.size
    assert wider.labels() == (*kind.labels(), "(other)")
    assert wider.cell("(other)") == kind.size
    assert wider.encode(["nothing like it", None]).tolist() == [kind.size] * 2


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_drop_marks_everything_outside_with_minus_one(kind: Attribute) -> None:
    dropping = attribute_from_manifest(kind.to_manifest() | {"outside": "drop"})
    assert dropping.size == kind.size
    assert dropping.encode([None, "nothing like it"]).tolist() == [-1, -1]


def test_clip_takes_the_nearest_cell() -> None:
    age, income = Integer(0, 9, outside="clip"), Binned(0, 10, 20, outside="clip")
    assert age.encode([-5, 3, 40]).tolist() == [0, 3, 9]
    assert age.encode([-np.inf, 2.4, 2.6, np.inf]).tolist() == [0, 2, 3, 9]
    assert income.encode([-5, 3, 40]).tolist() == [0, 0, 1]
    assert income.encode([-np.inf, 15.5, np.inf]).tolist() == [0, 1, 1]


@pytest.mark.parametrize("kind", [Integer(0, 9, outside="clip"), Binned(0, 9, outside="clip")], ids=repr)
@pytest.mark.parametrize("value", [None, float("nan"), "many"])
def test_what_is_no_number_cannot_be_clipped(kind: Attribute, value: object) -> None:
    with pytest.raises(DataError, match="and cannot be clipped"):
        kind.encode([1, value])


def test_labels_cannot_be_clipped() -> None:
    with pytest.raises(SchemaError, match="outside='clip' needs numbers"):
        Categorical("a", outside="clip")
    with pytest.raises(SchemaError, match="outside='clip' needs numbers"):
        Hierarchy(("a",), [("x",)], outside="clip")


def test_an_unknown_policy_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SchemaError, match=r"Integer\(0, 9\): outside='cilp' .*did you mean 'clip'"):
        Integer(0, 9, outside="cilp")


def test_an_error_names_column_values_rows_and_how_many() -> None:
    with pytest.raises(DataError) as caught:
        Integer(0, 99).encode([1, 140, -2, None, 7, 200], column="age", first_row=1000)
    message = str(caught.value)
    assert "column 'age': 4 values are outside Integer(0, 99), the first ones: " in message
    assert "140 at row 1001, -2 at row 1002, a missing value at row 1003 (rows count from 0)" in message
    assert "outside='drop', 'clip' or 'other'" in message


def test_an_error_about_one_value_says_so_and_offers_what_the_kind_can_do() -> None:
    with pytest.raises(DataError) as caught:
        Categorical("F", "M").encode(["F", "X"], column="%s")
    assert str(caught.value) == (
        "column '%s': 1 value is outside Categorical('F', 'M'): 'X' at row 1 (rows count from 0); "
        "mend the data, or declare outside='drop' or 'other'"
    )


def test_cell_finds_one_value() -> None:
    assert Integer(10, 20).cell(12) == 2
    assert Integer(10, 20).cell("12") == 2
    assert Categorical("F", "M").cell("M") == 1
    assert Categorical(5, 3).cell(3) == 1
    assert Categorical(False, True).cell(True) == 1
    assert Binned(0, 10, 20).cell(10) == 1
    assert PLACES.cell("Essex") == PLACES.cell("NJ/Essex") == 2


def test_cell_refuses_a_value_outside_under_every_policy() -> None:
    with pytest.raises(SchemaError, match=r"'f' has no cell in Categorical\('F', 'M'.*did you mean 'F'"):
        Categorical("F", "M", outside="other").cell("f")
    with pytest.raises(SchemaError, match="10 has no cell in"):
        Integer(0, 9, outside="clip").cell(10)
    with pytest.raises(SchemaError, match=r"2\.5 has no cell in"):
        Integer(0, 9, outside="clip").cell(2.5)
    with pytest.raises(SchemaError, match="did you mean 'Essex'"):
        PLACES.cell("essex")


def test_among_thousands_of_labels_only_the_case_is_mended() -> None:
    many = Categorical(*(f"L{number}" for number in range(3000)))
    with pytest.raises(SchemaError, match="did you mean 'L7'"):
        many.cell("l7")
    with pytest.raises(SchemaError, match=r"all\)\)$"):
        many.cell("L7x")


def test_a_label_is_asked_for_an_existing_cell() -> None:
    with pytest.raises(SchemaError, match="cells 0 to 9, there is no cell 10"):
        Integer(0, 9).label(10)
    with pytest.raises(SchemaError, match="no cell -1"):
        Integer(0, 9).label(-1)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (10, 3, "Integer(10, 3): the lower bound is above"),
        (0, 9.5, "Integer(0, 9.5): the bound 9.5 is not a whole number"),
        ("0", 9, "Integer('0', 9): the bound '0' is not a whole number"),
        (False, True, "the bound False is not a whole number"),
        (0, 2**63, "does not fit 64 bits"),
    ],
)
def test_impossible_ranges_are_refused(low: int, high: int, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Integer(low, high)
    assert message in str(caught.value)


def test_numpy_integers_are_bounds_and_labels_like_any_other() -> None:
    assert Integer(np.int64(0), np.uint8(9)) == Integer(0, 9)
    assert Categorical(*np.array(["a", "b"])) == Categorical("a", "b")
    assert Categorical(*np.array([1, 2])) == Categorical(1, 2)
    assert Categorical(*np.array([False, True])) == Categorical(False, True)
    assert Binned(*np.array([0.0, 1.0])) == Binned(0, 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((), "Categorical(): no labels"),
        (("a", "b", "a"), "Categorical('a', 'b', 'a'): the label 'a' is there twice"),
        ((1, "1"), "the labels mix integer and text"),
        ((1, True), "the labels mix boolean and integer"),
        ((1.5,), "the label 1.5 is neither text, whole number nor boolean"),
        ((None,), "the label None is neither"),
        ((["F", "M"],), "labels are given one by one"),
        ((2**63,), "does not fit 64 bits; write the labels as text"),
        (("\ud800",), "not valid Unicode"),
    ],
)
def test_impossible_labels_are_refused(labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Categorical(*labels)
    assert message in str(caught.value)


def test_a_label_may_not_take_the_place_of_other() -> None:
    assert Categorical("(other)").size == 1
    with pytest.raises(SchemaError, match="outside='other' takes it"):
        Categorical("(other)", outside="other")


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "too few edges"),
        ((0, 2, 1), "Binned(0, 2, 1): edge 1 follows 2; edges must increase"),
        ((0, 0), "edge 0 follows 0"),
        ((0, float("nan")), "the edge nan is not finite"),
        ((0, float("inf")), "above=True makes the last bin open"),
        ((0, "5"), "the edge '5' is not a number"),
        ((0, True), "the edge True is not a number"),
        (([0, 1],), "edges are given one by one"),
        ((0, 2**53 + 1), "too many digits"),
        ((0, 10**400), "too many digits"),
    ],
)
def test_impossible_edges_are_refused(edges: tuple[float, ...], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Binned(*edges)
    assert message in str(caught.value)


def test_edges_that_are_equal_give_equal_bins() -> None:
    assert Binned(-0.0, 1.0) == Binned(0, 1)
    assert Binned(-0.0, 1.0).labels() == Binned(0, 1).labels()


def test_more_cells_than_a_cell_number_counts_are_refused_before_coding() -> None:
    assert Integer(1, 2**31).size == 2**31
    with pytest.raises(SchemaError, match="cells are too many"):
        Integer(0, 2**31).encode([5])


def test_manifests_that_no_version_wrote_are_refused() -> None:
    with pytest.raises(SchemaError, match="no attribute kind 'colour'"):
        attribute_from_manifest({"kind": "colour", "outside": "error"})
    with pytest.raises(FileFormatError, match="lacks 'low'"):
        attribute_from_manifest({"kind": "integer", "high": 3, "outside": "error"})
