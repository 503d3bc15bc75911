"""Coding of columns: types, widths, text, nulls, and data that are no column."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from residua.errors import DataError
from residua.schema import Binned, Categorical, Integer, Schema

DIGIT = Integer(0, 9, outside="drop")
TOP, BOTTOM = 2**63 - 1, -(2**63)


@pytest.mark.parametrize("width", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width_give_the_same_cells(width: str) -> None:
    values = np.array([0, 5, 9, 100], dtype=width)
    assert DIGIT.encode(values).tolist() == [0, 5, 9, -1]
    assert Binned(0, 5, 9, outside="drop").encode(values).tolist() == [0, 1, -1, -1]
    assert Categorical(5, 0, outside="drop").encode(values).tolist() == [1, 0, -1, -1]


@pytest.mark.parametrize("width", ["float16", "float32", "float64"])
def test_whole_floats_are_integers_and_others_are_outside(width: str) -> None:
    values = np.array([2.0, 2.5, -0.0, np.nan, np.inf, -np.inf], dtype=width)
    assert DIGIT.encode(values).tolist() == [2, -1, 0, -1, -1, -1]
    assert Categorical(2, 0, outside="drop").encode(values).tolist() == [0, -1, 1, -1, -1, -1]


def test_narrow_integers_do_not_wrap_when_the_range_starts_far_below() -> None:
    assert Integer(-100, 127).encode(np.array([-100, 127], dtype=np.int8)).tolist() == [0, 227]
    assert Integer(-1000, 1000).encode(np.array([-128], dtype=np.int8)).tolist() == [872]


def test_integers_at_the_ends_of_64_bits_do_not_wrap() -> None:
    high, low = Integer(TOP - 1, TOP, outside="drop"), Integer(BOTTOM, BOTTOM + 1, outside="drop")
    assert high.encode(np.array([TOP, BOTTOM])).tolist() == [1, -1]
    assert low.encode(np.array([TOP, BOTTOM])).tolist() == [-1, 0]
    assert high.encode(np.array([TOP, 2**63, 2**64 - 1], dtype=np.uint64)).tolist() == [1, -1, -1]
    assert high.encode([str(TOP), str(TOP + 1), str(BOTTOM)]).tolist() == [1, -1, -1]
    assert low.encode([f"{BOTTOM}.0", str(BOTTOM - 1), "+" + str(TOP)]).tolist() == [0, -1, -1]
    assert high.encode([TOP, TOP + 1, 10**30]).tolist() == [1, -1, -1]
    assert low.encode([-(2.0**63), 2.0**63, 1e300]).tolist() == [0, -1, -1]


def test_floats_beyond_64_bits_clip_to_the_right_end() -> None:
    assert Integer(0, 9, outside="clip").encode([-1e300, 1e300, 2.0**63]).tolist() == [0, 9, 9]
    assert Integer(0, 9, outside="clip").encode(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [9]
    assert Integer(0, 9, outside="clip").encode(["1e999", "-" + "9" * 5000]).tolist() == [9, 0]


def test_neighbours_above_two_to_the_53_stay_apart() -> None:
    base = 2**53
    numbers = [base, base + 1, base + 2]
    assert Integer(base, base + 2).encode(numbers).tolist() == [0, 1, 2]
    assert Integer(base, base + 2).encode([str(number) for number in numbers]).tolist() == [0, 1, 2]
    assert Categorical(*numbers).encode(numbers).tolist() == [0, 1, 2]
    assert Binned(0, base + 2, above=True).encode(numbers).tolist() == [0, 0, 1]
    assert Binned(0, 2**60 + 256, above=True).encode([f"000{2**60 + 255}", str(2**60 + 256)]).tolist() == [
        0,
        1,
    ]


def test_edges_beyond_the_width_of_a_column_are_never_or_always_reached() -> None:
    bins = Binned(-1e30, -1000, 0, 0.5, 0.7, 1000, 1e30)
    assert bins.encode(np.array([-128, -1, 0, 1, 127], dtype=np.int8)).tolist() == [1, 1, 2, 4, 4]
    assert bins.encode(np.array([0, 255], dtype=np.uint8)).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("7", 7),
        (" 7\t", 7),
        ("+7", 7),
        ("007", 7),
        ("7.", 7),
        ("7.000", 7),
        ("7e0", 7),
        ("0.7e1", 7),
        ("-0", 0),
        ("0" * 30 + "7", 7),
        ("0" * 6000 + "7", 7),
        ("7.5", -1),
        ("-7", -1),
        ("1_0", -1),
        ("0x7", -1),
        ("٧", -1),
        ("nan", -1),
        ("inf", -1),
        ("", -1),
        (".", -1),
        ("7 7", -1),
        ("seven", -1),
    ],
)
def test_text_is_read_as_plain_decimal_numbers_only(text: str, cell: int) -> None:
    assert DIGIT.encode([text]).tolist() == [cell]
    assert Categorical(*range(10), outside="drop").encode([text]).tolist() == [cell]


def test_fractions_in_text_fall_into_bins() -> None:
    assert Binned(0, 0.5, 1, above=True).encode(["0.25", ".5", "1e3", "1e999"]).tolist() == [0, 1, 2, 2]


def test_booleans_are_zero_and_one_where_numbers_are_asked() -> None:
    yes_no = np.array([True, False])
    assert Integer(0, 1).encode(yes_no).tolist() == [1, 0]
    assert Binned(0, 1, above=True).encode(yes_no).tolist() == [1, 0]
    assert Categorical(0, 1).encode(yes_no).tolist() == [1, 0]
    assert Categorical("0", "1").encode(yes_no).tolist() == [1, 0]


def test_boolean_labels_meet_booleans_numbers_and_their_spellings() -> None:
    smokes = Categorical(True, False, outside="drop")
    assert smokes.encode([True, False, None]).tolist() == [0, 1, -1]
    assert smokes.encode([1, 0, 2]).tolist() == [0, 1, -1]
    assert (
        smokes.encode(["true", "True", "TRUE", "1", "false", "False", "FALSE", "0"]).tolist()
        == [0] * 4 + [1] * 4
    )
    assert smokes.encode(["yes", "tRuE", ""]).tolist() == [-1] * 3


@pytest.mark.parametrize("spelling", [("false", "true"), ("False", "True"), ("FALSE", "TRUE")])
def test_boolean_columns_meet_text_labels_spelt_as_booleans(spelling: tuple[str, str]) -> None:
    assert Categorical(*spelling).encode([True, False]).tolist() == [1, 0]


def test_boolean_columns_do_not_meet_other_labels() -> None:
    assert Categorical("no", "yes", outside="drop").encode([True, False]).tolist() == [-1, -1]


def test_text_labels_match_exactly_or_as_a_plainly_written_number() -> None:
    code = Categorical("1", "02", "-3", "a", outside="drop")
    assert code.encode(["1", "02", "-3", "a", " 1", "A", "2"]).tolist() == [0, 1, 2, 3, -1, -1, -1]
    assert code.encode([1, 2, -3]).tolist() == [0, -1, 2]
    assert code.encode([1.0, np.nan, 1.5]).tolist() == [0, -1, -1]
    assert Categorical("a", outside="drop").encode([1]).tolist() == [-1]


def test_values_of_several_types_are_coded_as_in_columns_of_their_own() -> None:
    values = np.array(
        [1, "a", None, 2.0, 2.5, True, Decimal("1"), b"a", np.nan, np.int64(1), pd.NA], dtype=object
    )
    cells = Categorical("a", "1", "2", "2.5", "True", outside="drop").encode(values).tolist()
    assert cells == [1, 0, -1, 2, -1, 4, 1, 0, -1, 1, -1]
    with pytest.raises(
        DataError, match=r"4 values are outside .*: a missing value at row 2, 2.5 at row 4, a"
    ):
        Categorical("a", "1", "2", "True").encode(values)


def test_text_that_is_not_unicode_is_outside() -> None:
    assert Categorical("a", outside="drop").encode(["a", "\ud800"]).tolist() == [0, -1]
    assert Categorical("a", outside="drop").encode([b"a", "a", b"\xff", 3]).tolist() == [0, 0, -1, -1]
    words = r"column 'x': 1 value is outside Categorical\('a'\): b'\\xff', which is not UTF-8, at row 1"
    for values in (np.array([b"a", b"\xff"]), ["a", b"\xff"], pa.array([b"a", b"\xff"])):
        with pytest.raises(DataError, match=words):
            Categorical("a").encode(values, column="x")


ODD = [b"2", b"\xff", None, b"1", b"M\xf6"]
BYTES = {
    "list": ODD,
    "objects": np.array(ODD, dtype=object),
    "binary": pa.array(ODD),
    "large binary": pa.array(ODD, pa.large_binary()),
    "binary view": pa.array(ODD, pa.binary_view()),
    "chunks": pa.chunked_array([ODD[:1], ODD[1:]], pa.binary()),
    "text that it is not": pa.array(ODD).view(pa.string()),
    "large text that it is not": pa.array(ODD, pa.large_binary()).view(pa.large_string()),
    "dictionary": pa.array(ODD).dictionary_encode(),
    "dictionary in chunks": pa.chunked_array([ODD[:1], ODD[1:]], pa.binary()).dictionary_encode(),
    "pandas": pd.Series(ODD, dtype=object),
    "categories of pandas": pd.Series(ODD, dtype="category"),
    "pandas with Arrow": pd.Series(ODD, dtype=pd.ArrowDtype(pa.binary())),
    "polars": pl.Series(ODD, dtype=pl.Binary),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_not_utf8_get_the_policy_of_their_attribute(name: str) -> None:
    for kind, cells in (
        (Categorical("1", "2", outside="drop"), [1, -1, -1, 0, -1]),
        (Categorical(1, 2, outside="other"), [1, 2, 2, 0, 2]),
        (Integer(0, 1, outside="other"), [2, 2, 2, 1, 2]),
        (Binned(0, 2, 3, outside="drop"), [1, -1, -1, 0, -1]),
    ):
        assert kind.encode(BYTES[name]).tolist() == cells
    with pytest.raises(DataError, match=r"3 values are outside .* and cannot be clipped"):
        Integer(0, 3, outside="clip").encode(BYTES[name])


def test_fixed_bytes_get_the_policy_of_their_attribute() -> None:
    kind = Categorical("1", "2", outside="drop")
    for values in (np.array([b"2", b"\xff", b"1"]), pa.array([b"2", b"\xff", b"1"], pa.binary(1))):
        assert kind.encode(values).tolist() == [1, -1, 0]


MASKS = {
    "integers": (np.ma.array([1, 2, 0], mask=[0, 1, 0]), [1, -1, 0]),
    "narrow integers": (np.ma.array([1, 2, 0], mask=[0, 1, 0], dtype=np.int8), [1, -1, 0]),
    "floats": (np.ma.array([1.0, 2.0, 0.0], mask=[0, 1, 0]), [1, -1, 0]),
    "booleans": (np.ma.array([True, True, False], mask=[0, 1, 0]), [1, -1, 0]),
    "text": (np.ma.array(["1", "2", "0"], mask=[0, 1, 0]), [1, -1, 0]),
    "no mask": (np.ma.array([1, 2, 0]), [1, 2, 0]),
    "everything": (np.ma.array([1, 2, 0], mask=True), [-1, -1, -1]),
    "in a list": ([1, np.ma.masked, 0], [1, -1, 0]),
    "floats in a list": ([1.0, np.ma.masked, 0.0], [1, -1, 0]),
    "only masked": ([np.ma.masked, np.ma.masked], [-1, -1]),
    "in an array of objects": (np.array([1, np.ma.masked, "0"], dtype=object), [1, -1, 0]),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_is_masked_is_missing(name: str) -> None:
    values, cells = MASKS[name]
    assert Integer(0, 2, outside="drop").encode(values).tolist() == cells


@pytest.mark.parametrize("mask", [True, False, [[0, 1], [0, 0], [1, 0]]], ids=["all", "none", "some"])
def test_codes_that_are_masked_are_missing(mask: object) -> None:
    codes = np.ma.array([[0, 0], [1, 1], [9, 1]], mask=mask)
    hidden = np.ma.getmaskarray(codes)
    schema = Schema(a=Integer(0, 1, outside="other"), b=Categorical("F", "M", outside="drop"))
    whole = np.ma.getdata(codes)
    wanted = [
        [2 if masked[0] or row[0] > 2 else row[0], row[1]]
        for row, masked in zip(whole.tolist(), hidden.tolist(), strict=True)
        if not masked[1]
    ]
    assert schema.encode(codes).tolist() == wanted
    if hidden.any():
        strict = Schema(a=Integer(0, 9), b=Categorical("F", "M"))
        with pytest.raises(DataError, match="a missing value at row"):
            strict.encode(codes)


def test_manifests_of_a_masked_table_are_missing_field_by_field() -> None:
    table = np.ma.array([(0, "F"), (1, "M")], dtype=[("a", int), ("b", "U1")], mask=[(1, 0), (0, 1)])
    schema = Schema(a=Integer(0, 1, outside="other"), b=Categorical("F", "M", outside="other"))
    assert schema.encode(table).tolist() == [[2, 0], [1, 2]]


class ArrayCapsule:
    """A column that only speaks the Arrow PyCapsule interface."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.array.__arrow_c_array__(requested_schema)


CONTAINERS: dict[str, Callable[[list[Any]], object]] = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "numpy objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "pandas index": pd.Index,
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "arrow dictionary": lambda values: pa.array(values).dictionary_encode(),
    "arrow dictionary chunks": lambda values: pa.chunked_array(
        [pa.array(values[:1]).dictionary_encode(), pa.array(values[1:]).dictionary_encode()]
    ),
    "array capsule": lambda values: ArrayCapsule(pa.array(values)),
    "pandas category": lambda values: pd.Series(values, dtype="category"),
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_gives_the_same_cells(container: Callable[[list[Any]], object]) -> None:
    assert Categorical("a", "b", outside="drop").encode(container(["b", "a", None, "b"])).tolist() == [
        1,
        0,
        -1,
        1,
    ]
    assert DIGIT.encode(container([3, 1, None, 3])).tolist() == [3, 1, -1, 3]
    assert Binned(0, 1, 2, outside="drop").encode(container([1.5, 0.5, None])).tolist() == [1, 0, -1]
    assert Categorical(True, False, outside="drop").encode(container([False, None, True])).tolist() == [
        1,
        -1,
        0,
    ]


TEXTS = {
    "numpy text": np.array(["b", "a"]),
    "numpy bytes": np.array([b"b", b"a"]),
    "numpy strings": np.array(["b", "a"], dtype=np.dtypes.StringDType()),
    "arrow large": pa.array(["b", "a"], pa.large_string()),
    "arrow view": pa.array(["b", "a"], pa.string_view()),
    "arrow binary": pa.array([b"b", b"a"]),
    "polars categories": pl.Series(["b", "a"], dtype=pl.Categorical),
    "polars enum": pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])),
    "pandas string": pd.Series(["b", "a"], dtype="string"),
}


@pytest.mark.parametrize("values", TEXTS.values(), ids=TEXTS)
def test_every_kind_of_text_gives_the_same_cells(values: object) -> None:
    assert Categorical("a", "b").encode(values).tolist() == [1, 0]


def test_nullable_numbers_masks_and_decimals_are_read() -> None:
    assert DIGIT.encode(pd.Series([1, None], dtype="Int64")).tolist() == [1, -1]
    assert DIGIT.encode(np.ma.masked_array([1, 2, 3], mask=[0, 1, 0])).tolist() == [1, -1, 3]
    names = np.ma.masked_array(np.array(["a", "b"], dtype=object), mask=[1, 0])
    assert Categorical("a", "b", outside="drop").encode(names).tolist() == [-1, 1]
    money = pa.array([Decimal("2.00"), Decimal("2.50"), None], pa.decimal128(9, 2))
    assert DIGIT.encode(money).tolist() == [2, -1, -1]
    assert Binned(0, 2.5, 3, outside="drop").encode(money).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    "values", [[], np.array([]), pa.array([], pa.string()), pa.chunked_array([], pa.int8())]
)
def test_no_values_give_no_cells(values: object) -> None:
    for kind in (Integer(0, 1), Categorical("a"), Binned(0, 1)):
        cells = kind.encode(values)
        assert cells.shape == (0,)
        assert cells.dtype == np.int32


def test_a_column_of_nulls_is_outside() -> None:
    assert DIGIT.encode(pa.nulls(2)).tolist() == [-1, -1]
    assert DIGIT.encode([None, None]).tolist() == [-1, -1]


@pytest.mark.parametrize(
    "values",
    [
        np.array([1], dtype="timedelta64[D]"),
        np.array([1j]),
        np.zeros((2, 2)),
        pa.array([[1]]),
        [timedelta(days=1)],
        [1, "a", (2, 3)],
        "text",
        b"bytes",
        7,
        {"a": 1},
        pl.DataFrame({"a": [1], "b": [2]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_column_of_numbers_or_text_is_refused_by_name(values: object) -> None:
    with pytest.raises(DataError, match=r"^column 'x': "):
        DIGIT.encode(values, column="x")
