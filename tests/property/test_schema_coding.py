"""Coding a column at once gives what a slow reading of one value after another gives."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from residua.errors import DataError
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer
from residua.schema.columns import SPELT_MISSING

Value = None | bool | int | float | str

NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
WHOLE = re.compile(r"\s*[+-]?[0-9]+(\.0*)?\s*")
SPELLINGS = {True: ("True", "true", "TRUE", "1"), False: ("False", "false", "FALSE", "0")}
PLACES = Hierarchy(("state", "county"), [("1", "101"), ("1", "0102"), ("2", "Kings")])


def number(value: Value) -> Fraction | float | None:
    """The number that a value is, exactly; an infinity stays a float; None where it is no number."""
    if value is None or (isinstance(value, str) and not NUMBER.fullmatch(value)):
        return None
    if isinstance(value, str):
        if WHOLE.fullmatch(value):
            return Fraction(value.strip().rstrip("0").removesuffix(".") if "." in value else value.strip())
        value = float(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, float) and math.isinf(value) else Fraction(value)


def range_cell(kind: Integer, value: Value) -> int | str:
    found = number(value)
    if found is None:
        return "nothing"
    if kind.outside == "clip" and isinstance(found, Fraction):
        found = Fraction(round(found))
    if found < kind.low or found > kind.high:
        return "below" if found < kind.low else "above"
    return int(found) - kind.low if found == int(found) else "nothing"


def bin_cell(kind: Binned, value: Value) -> int | str:
    found = number(value)
    if found is None:
        return "nothing"
    reached = sum(found >= Fraction(edge) for edge in kind.edges)
    if reached == 0:
        return "below"
    return reached - 1 if reached - 1 < kind.inner_size else "above"


def label_cell(kind: Categorical, value: Value) -> int | str:
    for cell, label in enumerate(kind.values):
        if kind.type == "text":
            hit = value == label if isinstance(value, str) else is_spelt(value, str(label), kind)
        elif kind.type == "boolean" and isinstance(value, str):
            hit = value in SPELLINGS[bool(label)]
        else:
            hit = number(value) == label
        if hit:
            return cell
    return "nothing"


def is_spelt(value: Value, label: str, kind: Categorical) -> bool:
    if isinstance(value, bool):
        return label == next((text for text in SPELLINGS[value] if text in kind.values), None)
    found = number(value)
    return isinstance(found, Fraction) and found.denominator == 1 and label == str(found.numerator)


def place_cell(kind: Hierarchy, value: Value) -> int | str:
    names = [path[-1] for path in kind.paths]
    for cell, path in enumerate(kind.paths):
        if isinstance(value, str) and value in (path[-1], "/".join(path)):
            return cell
        if not isinstance(value, str) and is_spelt(value, path[-1], Categorical(*names)):
            return cell
    return "nothing"


def slow(kind: Attribute, value: Value) -> int | None:
    """The cell of one value, -1 to drop it, None for an error."""
    found: int | str
    match kind:
        case Integer():
            found = range_cell(kind, value)
        case Binned():
            found = bin_cell(kind, value)
        case Categorical():
            found = label_cell(kind, value)
        case Hierarchy():
            found = place_cell(kind, value)
        case _:
            raise AssertionError(kind)
    if isinstance(found, int):
        return found
    match kind.outside:
        case "drop":
            return -1
        case "other":
            return kind.size - 1
        case "missing" if value is None or value != value or str(value) in SPELT_MISSING:
            return kind.size - 1
        case "clip" if found != "nothing":
            return 0 if found == "below" else kind.size - 1
    return None


def check(kind: Attribute, values: list[Value], column: object) -> None:
    expected = [slow(kind, value) for value in values]
    wrong = [row for row, cell in enumerate(expected) if cell is None]
    if not wrong:
        assert kind.encode(column).tolist() == expected
        return
    with pytest.raises(DataError) as caught:
        kind.encode(column)
    assert f"at row {wrong[0]}" in str(caught.value)
    assert ("1 value is" if len(wrong) == 1 else f"{len(wrong)} values are") in str(caught.value)


numeric_policy = st.sampled_from(["error", "drop", "clip", "other", "missing"])
label_policy = st.sampled_from(["error", "drop", "other", "missing"])
starts = st.sampled_from([0, -3, 2**53 - 2, -(2**63), 2**63 - 6]) | st.integers(-(2**63), 2**63 - 6)
LABELS = [
    (0, 2, -3, 2**53 + 1),
    (False, True),
    (True,),
    ("a", "0", "2", "02", "true"),
    ("True", "true", "1.5"),
]
kinds = st.one_of(
    st.builds(
        lambda low, more, way: Integer(low, low + more, outside=way),
        starts,
        st.integers(0, 5),
        numeric_policy,
    ),
    st.builds(
        lambda edges, above, way: Binned(*sorted(edges), above=above, outside=way),
        st.sets(
            st.sampled_from([-(2.0**63), -1e30, -1, 0, 0.5, 2, 2**53, 2**53 + 2, 2.0**63, 1e30]), min_size=2
        ),
        st.booleans(),
        numeric_policy,
    ),
    st.builds(
        lambda labels, way: Categorical(*labels, outside=way),
        st.sampled_from(LABELS),
        label_policy,
    ),
    label_policy.map(lambda way: Hierarchy(PLACES.levels, PLACES.paths, outside=way)),
)
edge_integers = st.sampled_from([-1, 0, 1, 2, 5, 101, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1])
whole = edge_integers | st.integers(-(2**63), 2**63 - 1) | st.integers(-6, 6)
unsigned = whole.filter(lambda value: value >= 0) | st.integers(0, 2**64 - 1)
floats = (
    st.floats()
    | st.sampled_from([0.5, 1.5, 2.5, 2.0**53, 2.0**63, -(2.0**63)])
    | st.integers(-6, 6).map(float)
)
spelt = st.builds(
    lambda left, sign, value, right: f"{left}{sign if value >= 0 else ''}{value}{right}",
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["", "+", "0", "00000000000000000000"]),
    whole | st.integers(-(2**70), 2**70),
    st.sampled_from(["", ".", ".0", ".000 ", "e0", ".5", "e400"]),
)
words = st.sampled_from(
    [
        "a",
        "0",
        "02",
        "true",
        "True",
        "FALSE",
        "1.5",
        "1_0",
        "0x1",
        "nan",
        "inf",
        "",
        "Kings",
        "2/Kings",
        "1/101",
        "1",
    ]
)
texts = spelt | words | st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | floats.map(repr)


def column(values: st.SearchStrategy[Value]) -> st.SearchStrategy[list[Value]]:
    return st.lists(values, max_size=8)


@given(kinds, column(whole), st.sampled_from(["int8", "int16", "int32", "int64"]))
def test_integers(kind: Attribute, values: list[int], width: str) -> None:
    span = np.iinfo(width)
    values = [value for value in values if span.min <= value <= span.max]
    check(kind, values, np.array(values, dtype=width))


@given(kinds, column(unsigned), st.sampled_from(["uint8", "uint32", "uint64"]))
def test_unsigned_integers(kind: Attribute, values: list[int], width: str) -> None:
    values = [value for value in values if value <= np.iinfo(width).max]
    check(kind, values, np.array(values, dtype=width))


@given(kinds, column(floats))
def test_floats(kind: Attribute, values: list[Value]) -> None:
    check(kind, values, np.array(values, dtype=float))


@given(kinds, column(st.booleans()))
def test_booleans(kind: Attribute, values: list[Value]) -> None:
    check(kind, values, np.array(values, dtype=bool))


@given(kinds, column(texts | st.none()))
@example(Integer(-(2**63), 5 - 2**63, outside="drop"), [str(-(2**63) - 1)])
@example(Binned(0, 2.0**63, outside="drop"), [str(2**63 - 1)])
def test_text(kind: Attribute, values: list[Value]) -> None:
    check(kind, values, pa.array(values, pa.string()))
    check(kind, values, pa.array(values, pa.string()).dictionary_encode())


@given(kinds, column(whole | st.none()), column(floats | st.none()), column(st.booleans() | st.none()))
def test_nulls_among_numbers(
    kind: Attribute, integers: list[Value], others: list[Value], flags: list[Value]
) -> None:
    check(kind, integers, pa.array(integers, pa.int64()))
    check(kind, others, pa.array(others, pa.float64()))
    check(kind, flags, pa.array(flags, pa.bool_()))


@given(kinds, column(words | st.integers(-6, 6) | st.none()))
def test_lists_of_several_types(kind: Attribute, values: list[Value]) -> None:
    as_text = [value if value is None else str(value) for value in values]
    mixed = len({type(value) for value in values if value is not None}) > 1
    check(kind, as_text if mixed else values, values)


@given(kinds, column(whole), st.integers(0, 8))
def test_chunks_are_coded_like_the_whole(kind: Attribute, values: list[Value], cut: int) -> None:
    chunks = pa.chunked_array([pa.array(part, pa.int64()) for part in (values[:cut], values[cut:])])
    check(kind, values, chunks)


anything = (
    whole
    | floats
    | texts
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from(
        [
            None,
            np.bool_(True),
            np.float32(0.5),
            np.int8(1),
            b"a",
            b"1",
            b"\xff",
            Decimal("1.5"),
            Decimal("1.25"),
        ]
    )
    | st.decimals(allow_nan=False, allow_infinity=False)
)


@given(
    kinds.filter(lambda kind: kind.outside in ("drop", "other")), column(anything), anything, st.booleans()
)
@example(Integer(0, 1, outside="drop"), [True, True], "x", False)
@example(Binned(0, 1, above=True, outside="drop"), [math.inf], "x", False)
@example(Categorical("True", outside="other"), [True, True], 1.0, True)
@example(Categorical("True", outside="other"), [np.bool_(True)], 1, False)
@example(Categorical("1.5", outside="other"), [Decimal("1.5")], Decimal("1.25"), False)
@example(Categorical("1.5", outside="other"), [1.5], "x", False)
@example(Categorical("a", outside="drop"), [b"a"], b"\xff", False)
def test_the_cell_of_a_record_does_not_depend_on_other_records(
    kind: Attribute, values: list[Value], other: Value, as_array: bool
) -> None:
    """Claim E-005: otherwise one record could change what all others are counted as."""

    def cells(column: list[Value]) -> list[int]:
        held = np.empty(len(column), dtype=object)
        held[:] = column
        return kind.encode(held if as_array else column).tolist()

    alone = cells(values)
    assert cells([*values, other])[:-1] == alone
    assert cells([other, *values])[1:] == alone
    assert [cells([value])[0] for value in values] == alone
