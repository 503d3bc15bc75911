"""Schema: names, look-up, coding of tables, files."""

import copy
import json
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from residua.errors import DataError, SchemaError
from residua.schema import Binned, Categorical, Hierarchy, Integer, Schema

PEOPLE = Schema(age=Integer(0, 99), sex=Categorical("F", "M"), income=Binned(0, 10_000, 25_000, above=True))
DATA: dict[str, Any] = {"income": [0.0, 3e4], "extra": ["x", "y"], "sex": ["M", "F"], "age": [7, 42]}
CELLS = [[7, 1, 0], [42, 0, 2]]


def test_attributes_keep_their_order() -> None:
    assert PEOPLE.names == ("age", "sex", "income")
    assert PEOPLE.sizes == (100, 2, 3)
    assert list(PEOPLE) == ["age", "sex", "income"]
    assert len(PEOPLE) == 3
    assert PEOPLE.cells == 600
    assert PEOPLE.attributes[1] is PEOPLE["sex"]
    assert PEOPLE.position("income") == 2
    assert "sex" in PEOPLE
    assert 3 not in PEOPLE


def test_the_joint_size_is_exact_at_any_length() -> None:
    assert Schema.of_sizes([10] * 40).cells == 10**40


def test_sizes_make_attributes_of_integers() -> None:
    small = Schema.of_sizes([10, np.int64(2)])
    assert small == Schema(a0=Integer(0, 9), a1=Integer(0, 1))


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "3"])
def test_a_size_that_is_no_positive_integer_is_refused(size: int) -> None:
    with pytest.raises(SchemaError, match="attribute 'a1': the size"):
        Schema.of_sizes([2, size])


@pytest.mark.parametrize(
    "name", ["income>50K", "self", "schema", "name", "attributes", "a b", "π", "class", "%s {}"]
)
def test_any_text_is_a_name(name: str) -> None:
    schema = Schema({name: Integer(0, 1)})
    assert Schema(**{name: Integer(0, 1)}) == schema
    assert schema.encode({name: [1]}).tolist() == [[1]]
    assert Schema.from_manifest(schema.to_manifest()) == schema


def test_a_mapping_and_keywords_join() -> None:
    schema = Schema({"income>50K": Categorical("no", "yes")}, age=Integer(0, 9))
    assert schema.names == ("income>50K", "age")


def test_equality_and_hash_follow_names_order_and_attributes() -> None:
    assert Schema(a=Integer(0, 1), b=Integer(0, 2)) == Schema({"a": Integer(0, 1), "b": Integer(0, 2)})
    assert hash(copy.deepcopy(PEOPLE)) == hash(PEOPLE)
    assert Schema(a=Integer(0, 1), b=Integer(0, 2)) != Schema(b=Integer(0, 2), a=Integer(0, 1))
    assert Schema(a=Integer(0, 1)) != Schema(a=Integer(0, 1, outside="drop"))


def test_a_record_is_json_and_gives_the_schema_back() -> None:
    schema = Schema(
        {"place": Hierarchy(("a",), [("x",)])}, smokes=Categorical(False, True), half=Binned(0, 0.5)
    )
    assert Schema.from_manifest(json.loads(json.dumps(schema.to_manifest()))) == schema


def test_a_record_with_a_name_twice_is_refused() -> None:
    record = Schema(a=Integer(0, 1)).to_manifest()
    with pytest.raises(SchemaError, match="'a' is recorded twice"):
        Schema.from_manifest({"attributes": record["attributes"] * 2})


def test_a_long_schema_is_shown_with_an_attribute_on_each_line() -> None:
    assert repr(Schema(a=Integer(0, 1))) == "Schema(a=Integer(0, 1))"
    assert repr(Schema({"a b": Integer(0, 1)})) == "Schema({'a b': Integer(0, 1)})"
    lines = repr(Schema.of_sizes([10] * 20)).splitlines()
    assert len(lines) == 22
    assert lines[1] == "    a0=Integer(0, 9),"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Schema(), "the schema has no attributes"),
        (lambda: Schema([("a", Integer(0, 1))]), "made of a mapping"),
        (lambda: Schema({"age": Integer(0, 1)}, age=Integer(0, 1)), "attribute 'age' is given twice"),
        (lambda: Schema({"": Integer(0, 1)}), "attribute name '' is empty"),
        (lambda: Schema({3: Integer(0, 1)}), "attribute name 3 is not text"),
        (lambda: Schema({"\ud800": Integer(0, 1)}), "not valid Unicode"),
        (lambda: Schema(age=9), "attribute 'age' is 9, not an attribute"),
        (lambda: Schema(age=Integer), "attribute 'age' is <class"),
        (lambda: Schema(age=Integer(0, 2**31)), "attribute 'age': 2147483649 cells are too many"),
    ],
)
def test_impossible_schemas_are_refused_by_name(build: Callable[[], Schema], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        build()
    assert message in str(caught.value)


def test_an_unknown_attribute_gets_the_nearest_name_and_the_list() -> None:
    with pytest.raises(SchemaError) as caught:
        PEOPLE["Age"]
    assert str(caught.value) == (
        "attribute 'Age' is not in the schema (did you mean 'age'?); it has 'age', 'sex', 'income'"
    )
    with pytest.raises(SchemaError, match="100 in all"):
        Schema.of_sizes([2] * 100).position("weight")
    with pytest.raises(SchemaError, match="attribute 3 is not"):
        PEOPLE.position(3)


def structured(data: dict[str, Any]) -> np.ndarray:
    kinds = [("income", "f8"), ("extra", "U1"), ("sex", "S1"), ("age", "i2")]
    return np.array(list(zip(*data.values(), strict=True)), dtype=kinds)


class StreamCapsule:
    """A table that only speaks the Arrow PyCapsule interface for streams."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ArrayCapsule:
    """A batch that only speaks the Arrow PyCapsule interface for arrays."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


class SubFrame(pd.DataFrame):
    pass


TABLES: dict[str, Callable[[dict[str, Any]], object]] = {
    "mapping": dict,
    "structured": structured,
    "pandas": pd.DataFrame,
    "pandas subclass": SubFrame,
    "polars": pl.DataFrame,
    "arrow table": pa.table,
    "arrow batch": pa.record_batch,
    "arrow reader": lambda data: pa.table(data).to_reader(),
    "stream capsule": lambda data: StreamCapsule(pa.table(data)),
    "array capsule": lambda data: ArrayCapsule(pa.record_batch(data)),
    "duckdb": lambda data: duckdb.connect().from_arrow(pa.table(data)),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_kind_of_table_gives_the_same_cells(table: Callable[[dict[str, Any]], object]) -> None:
    cells = PEOPLE.encode(table(DATA))
    assert cells.tolist() == CELLS
    assert cells.dtype == np.int32
    assert cells.flags.f_contiguous


def test_columns_outside_the_schema_may_hold_anything() -> None:
    odd = DATA | {"extra": [object(), {1: 2}]}
    assert PEOPLE.encode(odd).tolist() == CELLS
    assert PEOPLE.encode(pd.DataFrame(odd)).tolist() == CELLS
    repeated = pd.concat([pd.DataFrame(DATA), pd.DataFrame({"extra": [1, 2]})], axis=1)
    assert PEOPLE.encode(repeated).tolist() == CELLS


@pytest.mark.parametrize("outside", ["error", "drop", "other"])
def test_an_empty_table_gives_no_records(outside: Any) -> None:
    schema = Schema(age=Integer(0, 9, outside=outside), sex=Categorical("F", outside=outside))
    assert schema.encode({"age": [], "sex": []}).shape == (0, 2)
    assert schema.encode(np.zeros((0, 2), dtype=np.int8)).shape == (0, 2)


def test_a_record_is_dropped_when_any_attribute_drops_it() -> None:
    schema = Schema(a=Integer(0, 9, outside="drop"), b=Categorical("x", "y", outside="drop"), c=Integer(0, 9))
    data = {"a": [1, 99, 3, 4], "b": ["x", "y", "z", "y"], "c": [1, 2, 3, 4]}
    kept = schema.encode(data)
    assert kept.tolist() == [[1, 0, 1], [4, 1, 4]]
    assert kept.flags.f_contiguous
    assert schema.encode_columns(data).tolist() == [[1, 0, 1], [-1, 1, 2], [3, -1, 3], [4, 1, 4]]


def test_an_error_names_the_column_and_the_row_of_the_whole_data_set() -> None:
    with pytest.raises(DataError, match=r"column 'sex': 1 value is outside .*: 'X' at row 501"):
        PEOPLE.encode(DATA | {"sex": ["F", "X"]}, first_row=500)


@pytest.mark.parametrize("table", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_a_missing_column_is_named_with_the_nearest_one(table: Callable[[dict[str, Any]], object]) -> None:
    data = {("Sex" if name == "sex" else name): values for name, values in DATA.items()}
    with pytest.raises(DataError, match=r"no column 'sex' \(did you mean 'Sex'\?\); they have 'income'"):
        PEOPLE.encode(table(data))


def test_a_repeated_column_of_the_schema_is_refused() -> None:
    frame = pd.concat([pd.DataFrame(DATA), pd.DataFrame({"age": [1, 2]})], axis=1)
    with pytest.raises(DataError, match="2 columns called 'age'"):
        PEOPLE.encode(frame)
    table = pa.table(DATA).append_column("age", pa.array([1, 2]))
    with pytest.raises(DataError, match="2 columns called 'age'"):
        PEOPLE.encode(table)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="columns 'age' and 'sex' have different numbers of values"):
        PEOPLE.encode(DATA | {"sex": ["F"]})


@pytest.mark.parametrize("width", ["int8", "uint8", "int64", "uint64"])
def test_codes_pass_through_when_they_are_in_range(width: str) -> None:
    codes = np.array(CELLS, dtype=width)
    assert PEOPLE.encode(codes).tolist() == CELLS
    assert PEOPLE.encode(np.asfortranarray(codes)).flags.f_contiguous
    assert Schema.of_sizes([2, 2]).encode(np.array([[True, False]])).tolist() == [[1, 0]]


@pytest.mark.parametrize("code", [-1, 2])
def test_a_code_out_of_range_is_refused_with_attribute_and_row(code: int) -> None:
    with pytest.raises(
        DataError, match=rf"column 'sex': 1 value is outside the codes 0 to 1 .*: {code} at row 1"
    ):
        PEOPLE.encode(np.array([[0, 0, 0], [0, code, 0]]))


def test_codes_follow_the_policy_of_their_attribute() -> None:
    schema = Schema(
        a=Integer(0, 4, outside="clip"), b=Integer(0, 4, outside="other"), c=Integer(0, 4, outside="drop")
    )
    codes = np.array([[-1, -1, 0], [9, 9, 4], [2, 5, 2], [0, 0, 7]])
    assert schema.encode(codes).tolist() == [[0, 5, 0], [4, 5, 4], [2, 5, 2]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((2, 2), dtype=int), "an array of shape (records, 3), not an array with 2 columns"),
        (np.zeros(3, dtype=int), "not an array of 1 dimension"),
        (np.zeros((2, 3)), "holds integers, not float64"),
        (np.zeros((1, 1), dtype=[("age", int)]), "is no table"),
        ([[0, 0, 0]], "cannot read data of type builtins.list; give a pandas or polars DataFrame"),
        ("people.csv", "cannot read data of type builtins.str"),
        (pl.LazyFrame({"age": [1]}), "call .collect() first"),
        (pa.chunked_array([[1]]), "pyarrow.lib.ChunkedArray are not a table"),
        (pd.Series([1]), "pandas"),
    ],
)
def test_what_is_no_table_is_refused_with_what_is(data: object, message: str) -> None:
    with pytest.raises(DataError) as caught:
        PEOPLE.encode(data)
    assert message in str(caught.value)
