"""Coding in SQL is coding by the schema (claim E-002), errors included."""

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.engines import DuckDB, Memory
from residua.engines.sources import code_in_sql

WIDTHS = {
    "TINYINT": (pa.int8(), -(2**7), 2**7 - 1),
    "SMALLINT": (pa.int16(), -(2**15), 2**15 - 1),
    "INTEGER": (pa.int32(), -(2**31), 2**31 - 1),
    "BIGINT": (pa.int64(), -(2**63), 2**63 - 1),
    "UTINYINT": (pa.uint8(), 0, 2**8 - 1),
    "USMALLINT": (pa.uint16(), 0, 2**16 - 1),
    "UINTEGER": (pa.uint32(), 0, 2**32 - 1),
}
POLICIES = st.sampled_from(["error", "drop", "clip", "other", "missing"])
# Control characters, quotes, nulls, signs of other alphabets; a NUL is left to the attribute.
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("'\"\\\0\n %")), max_size=4)


@st.composite
def numbers(draw):
    """An attribute of whole numbers and a column of any width around its ends."""
    kind, least, most = WIDTHS[draw(st.sampled_from(sorted(WIDTHS)))]
    low = draw(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5)))
    high = min(2**63 - 1, low + draw(st.sampled_from([0, 1, 254, 255, 256, 65_535, 65_536])))
    near = [value for end in (low, high) for value in (end - 1, end, end + 1) if least <= value <= most]
    values = st.one_of(st.none(), st.integers(least, most), st.sampled_from([*near, least, most]))
    column = draw(st.lists(values, max_size=12))
    return rs.Integer(low, high, outside=draw(POLICIES)), pa.array(column, kind)


@st.composite
def labels(draw):
    """An attribute of labels and a column of these and other texts."""
    words = draw(st.lists(TEXT, min_size=1, max_size=6, unique=True))
    policy = draw(st.sampled_from(["error", "drop", "other", "missing"]))
    if draw(st.booleans()) and all(words):
        attribute = rs.Hierarchy(("place",), [(word,) for word in words], outside=policy)
    else:
        attribute = rs.Categorical(*words, outside=policy)
    column = draw(st.lists(st.one_of(st.sampled_from([*words, "NA", ""]), st.none(), TEXT), max_size=12))
    return attribute, pa.array(column, pa.string())


def outcome(opener, schema, data):
    """The counts, or the words of the error."""
    try:
        engine = opener.open(schema, data)
        [found] = engine.tally([(0,)])
        return np.flatnonzero(found).tolist(), found[found > 0].tolist(), engine.records
    except rs.DataError as error:
        return str(error)


BASE = duckdb.connect(config={"threads": 1})


@given(st.one_of(numbers(), labels()))
def test_sql_codes_as_the_schema_does(drawn):
    attribute, column = drawn
    schema, table = rs.Schema(x=attribute), pa.table({"x": column})
    relation = BASE.from_arrow(table)
    assert outcome(DuckDB(threads=1), schema, relation) == outcome(Memory(), schema, table)


def test_sql_codes_most_data():
    schema = rs.Schema(
        n=rs.Integer(0, 9), s=rs.Categorical("F", "M"), b=rs.Binned(0, 1), f=rs.Categorical(True)
    )
    coded = [
        code_in_sql(schema, at, "x", kind) is not None
        for at, kind in (
            (0, "BIGINT"),
            (1, "VARCHAR"),
            (0, "VARCHAR"),
            (0, "UBIGINT"),
            (2, "BIGINT"),
            (3, "VARCHAR"),
        )
    ]
    assert coded == [True, True, False, False, False, False]
