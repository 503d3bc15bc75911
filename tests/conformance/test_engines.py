"""Every engine on every awkward table: the counts of counting record by record, and the same release.

A new engine is added to `WAYS`: a function that stores columns somewhere and says what to count with what.
Spark is there where it is installed: `make test-extras` runs this file again.
"""

import os
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import combinations
from math import prod

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from shares import weights

import residua as rs
from residua import _measure
from residua.engines import Derived, DuckDB, Memory, counts, engine_for, engine_with
from residua.privacy.unit import Person


def _parquet(columns, folder):
    pa.parquet.write_table(pa.table(columns), folder / "it's [1].parquet", row_group_size=3)
    return folder / "it's [1].parquet", DuckDB()


def _parquet_parts(columns, folder):
    """Three files, the second with its columns in another order, as a pattern."""
    table = pa.table(columns)
    third = len(table) // 3
    turned = table.select(table.column_names[::-1])
    for number, part in enumerate((table[:third], turned[third : 2 * third], table[2 * third :])):
        pa.parquet.write_table(part, folder / f"part-{number}.parquet")
    return str(folder / "part-?.parquet"), None


def _write_csv(columns, path, options=None):
    """A CSV file; columns of bytes stand there as they are, which Arrow would not write."""
    table = pa.table(columns)
    raw = [pa.types.is_binary(field.type) for field in table.schema]
    if not any(raw):
        pa.csv.write_csv(table, path, write_options=options)
        return
    for at, name in enumerate(table.column_names):
        if raw[at]:
            text = [value.decode("latin-1") for value in table.column(name).to_pylist()]
            table = table.set_column(at, name, pa.array(text))
    written = pa.BufferOutputStream()
    pa.csv.write_csv(table, written, write_options=options)
    path.write_bytes(written.getvalue().to_pybytes().decode().encode("latin-1"))


def _csv(columns, folder):
    _write_csv(columns, folder / "people.csv")
    return folder / "people.csv", None


def _tsv(columns, folder):
    quoted = pa.csv.WriteOptions(delimiter="\t", quoting_style="needed", quoting_header="all_valid")
    _write_csv(columns, folder / "people.tsv", quoted)
    return str(folder / "people.tsv"), DuckDB(memory_limit="200MB", threads=1)


def _relation(columns, folder):
    connection = duckdb.connect()
    return connection.from_arrow(pa.table(columns)), None


def _spark(columns, folder):
    pa.parquet.write_table(pa.table(columns), folder / "spark.parquet")
    return spark_session().read.parquet(str(folder / "spark.parquet")).repartition(3), None


def _spark_parquet(columns, folder):
    from residua.engines import Spark

    pa.parquet.write_table(pa.table(columns), folder / "spark.parquet")
    return folder / "spark.parquet", Spark(spark_session())


def _spark_csv(columns, folder):
    from residua.engines import Spark

    _write_csv(columns, folder / "spark.csv")
    return str(folder / "spark.csv"), Spark(spark_session(), memory_limit="64MB")


WAYS = {
    "mapping": lambda columns, _: (columns, None),
    "arrow": lambda columns, _: (pa.table(columns), None),
    "chunked arrow": lambda columns, _: (
        pa.concat_tables([pa.table(columns)[:2], pa.table(columns)[2:]]),
        Memory(),
    ),
    "pandas": lambda columns, _: (pa.table(columns).to_pandas(), None),
    "polars": lambda columns, _: (pl.DataFrame(pa.table(columns)), None),
    "parquet": _parquet,
    "parquet parts": _parquet_parts,
    "csv": _csv,
    "tsv": _tsv,
    "relation": _relation,
}
if find_spec("pyspark"):
    WAYS |= {"spark": _spark, "spark parquet": _spark_parquet, "spark csv": _spark_csv}


def spark_session():
    """The one session of this process."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


PLACE = rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")])
SEX = rs.Categorical("F", "M")


def _many(records):
    chance = np.random.default_rng(records)
    return {
        "age": chance.integers(0, 5, records),
        "sex": np.array(["M", "F"], dtype=object)[chance.integers(0, 2, records)],
        "pay": chance.integers(0, 400, records) / 4,
        "place": np.array(["Essex", "NY/Kings", "Bronx"], dtype=object)[chance.integers(0, 3, records)],
        "grade": np.array([7, -1], dtype=np.int16)[chance.integers(0, 2, records)],
        "flag": chance.random(records) < 0.3,
    }


MANY = rs.Schema(
    age=rs.Integer(0, 4),
    sex=SEX,
    pay=rs.Binned(0, 10.25, 50, above=True),
    place=PLACE,
    grade=rs.Categorical(-1, 7),
    flag=rs.Categorical(False, True),
)


def _outside(policy):
    """Values outside the schema, and missing ones, under one policy."""
    labels = "drop" if policy == "clip" else policy
    schema = rs.Schema(
        age=rs.Integer(2, 4, outside=policy),
        pay=rs.Binned(0, 10, 20, outside=policy),
        sex=rs.Categorical("F", "M", outside=labels),
        place=rs.Hierarchy(("tract",), [("01",), ("1",)], outside=labels),
        last=rs.Integer(0, 1, outside="drop"),
    )
    missing = [None] if policy != "clip" else [3]
    ages = [2, 3, 4, 1, 5, -(2**63), 2**63 - 1, *missing]
    pays = [0.0, 9.99, 10.0, 20.0, -0.5, 1e300, *missing, 7.0]
    return schema, {
        "age": pa.array(ages),
        "pay": pa.array(pays, pa.float64()),
        "sex": ["F", "M", "f", "M ", "", None, "M", "F"],
        "place": ["01", "1", "1", "01", "001", None, "1", "1.0"],
        "last": pa.array([0, 1, 1, 0, 1, 0, 1, 7], pa.uint8()),
    }


ODD_NAMES = [
    'in"come',
    "it's",
    "select",
    "ü x",
    "`tick`",
    "a.b",
    "c0",
    "{brace}",
    "semi;colon --",
    "Age",
    "\\back",
]


def _numbers():
    """Bounded numbers of every kind of value, whose records are shared out among cells."""
    schema = rs.Schema(
        pay=rs.Number(0, 1000, step=10, bins=[100, 400], missing=True),
        sex=SEX,
        hours=rs.Number(-5.5, 5, step=0.5, degree=2),
        price=rs.Number(0, 1, step=0.01, outside="drop"),
    )
    pays = ["", "nan", "12.5", "15", "1e308", "-1e999", " 400 ", "abc", "399.99999999999999999999", "405"]
    hours = [-5.5, 5.0, 0.25, 0.75, -0.25, 1e308, -1e308, 4.75, 2.0, 2.2]
    prices = [0.005, 0.015, 0.025, 1.0, 0.0, 0.29, 0.57, 1.01, -0.01, 0.5]
    return schema, {"pay": pays, "sex": ["F", "M"] * 5, "hours": hours, "price": prices}


CASES = {
    "numbers": _numbers(),
    "many": (MANY, _many(70)),
    "one record": (MANY, _many(1)),
    "no records": (MANY, _many(0)),
    "drop": _outside("drop"),
    "clip": _outside("clip"),
    "other": _outside("other"),
    "missing": (
        rs.Schema(
            age=rs.Integer(0, 9, outside="missing"),
            sex=rs.Categorical("F", "NA", outside="missing"),
            pay=rs.Binned(0, 10, above=True, outside="missing"),
            day=rs.Date("2024-01-01", "2024-12-31", by="month", outside="missing"),
        ),
        {
            "age": pa.array([3, None, 9, None, 0], pa.int16()),
            "sex": ["F", "NA", "", "n/a", None],
            "pay": pa.array([1.5, float("nan"), None, 12.0, 10.0], pa.float64()),
            "day": ["2024-02-29", "?", None, "2024-03", "2024-12-31T10:00"],
        },
    ),
    "other order and columns": (MANY, dict(reversed([("id", list(range(9))), *_many(9).items()]))),
    "odd names": (
        rs.Schema({name: rs.Integer(0, 1) for name in ODD_NAMES}),
        {name: [number % 2, 1, 0] for number, name in enumerate(ODD_NAMES)},
    ),
    "sizes at the edge of a byte": (
        rs.Schema(a=rs.Integer(0, 255), b=rs.Integer(5, 5), c=rs.Integer(0, 256), d=rs.Integer(-9, 65_526)),
        {"a": [0, 255, 255], "b": [5, 5, 5], "c": [256, 255, 0], "d": [65_526, -9, 65_526]},
    ),
    "bytes that are not UTF-8": (
        rs.Schema(
            town=rs.Categorical("Bonn", "Ü", "", outside="other"), number=rs.Integer(0, 9, outside="drop")
        ),
        {
            "town": pa.array([b"Bonn", b"M\xf6", "Ü".encode(), b"\xff", b"Bonn", b""]),
            "number": pa.array([b"1", b"2", b"\xe9", b" 3 ", b"9", b"4"]),
        },
    ),
    "odd labels": (
        rs.Schema(
            label=rs.Categorical("it's", 'a "b"', "x,y", "two\nlines", "ü", " ", "NULL", "NA", "true", "07")
        ),
        {"label": ["it's", 'a "b"', "x,y", "two\nlines", "ü", " ", "NULL", "NA", "true", "07"]},
    ),
}


def records_of(schema, columns):
    """The codes of the records that are kept, one record at a time."""
    held = {name: pa.array(columns[name]) for name in schema.names}
    found = [
        schema.encode({name: array[row : row + 1] for name, array in held.items()}).tolist()
        for row in range(len(held[schema.names[0]]))
    ]
    return [record for kept in found for record in kept]


def counted(records, sizes, attributes):
    """Counts of the cells that are not empty, the last attribute fastest, one record at a time."""
    tally = Counter(tuple(record[at] for at in attributes) for record in records)
    found = {}
    for cell, count in tally.items():
        place = 0
        for at, code in zip(attributes, cell, strict=True):
            place = place * sizes[at] + code
        found[place] = count
    return found


def opened(way, schema, columns, folder):
    data, engine = WAYS[way](columns, folder)
    return (engine or engine_for(data)).open(schema, data)


def sets_of(schema):
    """Attribute sets of every length, in increasing and decreasing order, none with many cells."""
    every = [each for size in range(4) for each in combinations(range(len(schema)), size)]
    some = [each for each in every if np.prod([schema.sizes[at] for at in each], dtype=float) < 100_000]
    return [*some[::3], *(each[::-1] for each in some[1::3])]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_counts_are_those_of_counting_one_by_one(way, case, tmp_path):
    schema, columns = CASES[case]
    engine = opened(way, schema, columns, tmp_path)
    records = records_of(schema, columns)
    wanted = sets_of(schema)
    for attributes, found in zip(wanted, tallied(engine, schema, wanted), strict=True):
        assert found.dtype == np.int64
        assert len(found) == prod(schema.sizes[at] for at in attributes)
        kept = np.flatnonzero(found)
        assert dict(zip(kept.tolist(), found[kept].tolist(), strict=True)) == weighed(
            records, schema, attributes
        )
    assert engine.records == len(records)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_cells_that_occur_are_those_of_counting_one_by_one(way, case, tmp_path, monkeypatch):
    for module in ("memory", "duckdb", "spark"):
        if f"residua.engines.{module}" in sys.modules:
            monkeypatch.setattr(f"residua.engines.{module}.WAITING", 3)
    schema, columns = CASES[case]
    engine = opened(way, schema, columns, tmp_path)
    wanted = sets_of(schema)
    found = [Counter() for _ in wanted]
    for at, places, often in engine.occurring(wanted):
        assert places.dtype == often.dtype == np.int64
        found[at].update(dict(zip(places.tolist(), often.tolist(), strict=True)))
    records = records_of(schema, columns)
    for attributes, own in zip(wanted, found, strict=True):
        known = {place: count for place, count in own.items() if count}
        assert known == weighed(records, schema, attributes)
    assert engine.records == len(records)


def weighed(records, schema, attributes):
    """The same where records may be shares of cells: sums of whole weights, one record at a time."""
    if max(schema.units) == 1:
        return counted(records, schema.sizes, attributes)
    added = [Counter(weights(schema, record, attributes)) for record in records]
    return {place: count for place, count in sum(added, Counter()).items() if count}


def tallied(engine, schema, wanted):
    """Counts of sets in any order of attributes, all asked at once."""
    requests = [np.array([each], dtype=np.int32).reshape(1, -1) for each in wanted]
    found = [None] * len(wanted)
    for request, rows, some in rs.engines.count_marginals(engine, schema.sizes, requests, units=schema.units):
        assert rows == [0]
        assert found[request] is None
        found[request] = some[0]
    return found


class Foreign:
    """An engine of somebody else's, which has no further attributes."""

    def __init__(self, engine):
        self.engine = engine
        self.about, self.cells_at_once = engine.about, engine.cells_at_once

    @property
    def records(self):
        return self.engine.records

    def tally(self, sets, progress=None):
        return self.engine.tally(sets, progress)


@pytest.mark.parametrize("case", ["many", "no records", "drop", "other"])
@pytest.mark.parametrize("way", [*WAYS, "foreign"])
def test_attributes_by_kinds_of_cells_are_counted_as_columns_of_kinds(way, case, tmp_path):
    schema, columns = CASES[case]
    engine = opened("mapping" if way == "foreign" else way, schema, columns, tmp_path)
    first, second = np.arange(schema.sizes[0]) % 2, np.minimum(np.arange(schema.sizes[2]), 1)
    derived = [
        Derived.of([0], [first], np.array([0, 1])),
        Derived.of([0, 2], [first, second], np.array([0, 1, 1, 2])),
    ]
    engine = engine_with(Foreign(engine) if way == "foreign" else engine, schema.sizes, derived)
    sizes = (*schema.sizes, *(each.size for each in derived))
    width = len(schema)
    records = [
        [*record, first[record[0]], first[record[0]] + second[record[2]]]
        for record in records_of(schema, columns)
    ]
    wanted = [
        (),
        (width,),
        (1, width),
        (width, width + 1),
        (1, 3, width + 1),
        (0, 2, width + 1),
        (width + 1,),
    ]
    for attributes, found in zip(wanted, engine.tally(wanted), strict=True):
        kept = np.flatnonzero(found)
        assert len(found) == prod(sizes[at] for at in attributes)
        assert dict(zip(kept.tolist(), found[kept].tolist(), strict=True)) == counted(
            records, sizes, attributes
        )
    assert engine.records == len(records)


@pytest.mark.parametrize("way", WAYS)
def test_several_passes_count_what_one_pass_does(way, tmp_path):
    engine = opened(way, MANY, _many(50), tmp_path)
    wanted = sets_of(MANY)
    at_once = [found.tolist() for found in tallied(engine, MANY, wanted)]
    engine.cells_at_once = 60
    assert [found.tolist() for found in tallied(engine, MANY, wanted)] == at_once


BAD = {
    "unknown number": ("age", [0, 7, 1], r"7'? at row 1"),
    "missing number": ("age", [0, 1, None], r"at row 2"),
    "unknown label": ("sex", ["F", "M", "X"], r"'X' at row 2"),
    "missing label": ("sex", [None, "M", "F"], r"at row 0"),
    "fraction": ("age", [0.0, 1.5, 2.0], r"1\.5'? at row 1"),
    "no number": ("pay", ["1", "2", "many"], r"'many' at row 2"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_the_policy_refuses_is_named_with_its_column_and_row(way, case, tmp_path):
    name, values, words = BAD[case]
    columns = {"age": [0, 1, 2], "sex": ["F", "M", "M"], "pay": [1.0, 2.0, 30.0]} | {name: values}
    schema = rs.Schema(age=rs.Integer(0, 4), sex=SEX, pay=rs.Binned(0, 10, above=True))
    if way in ("parquet parts", "spark"):  # rows count from the start of a part
        words = words.replace("at row ", "at row [0-9]").rstrip("012")
    with pytest.raises(rs.DataError, match=f"column '{name}'.*{words}"):
        opened(way, schema, columns, tmp_path).tally([(0,)])


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_are_missing_or_there_twice_are_named(way, tmp_path):
    with pytest.raises(rs.DataError, match=r"no column 'Sex' \(did you mean 'sex'\?\)"):
        opened(way, rs.Schema(Sex=SEX), {"sex": ["F"], "age": [1]}, tmp_path).tally([(0,)])


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("mapping", "relation")])
def test_names_that_differ_in_case_only_are_different(way, tmp_path):
    schema = rs.Schema(age=rs.Integer(0, 9), Age=rs.Integer(0, 9))
    columns = {"Age": [1, 2, 3], "age": [4, 5, 6]}
    if way.startswith("spark"):
        spark_session().conf.set("spark.sql.caseSensitive", "true")
    engine = opened(way, schema, columns, tmp_path)
    assert np.flatnonzero(engine.tally([(0,)])[0]).tolist() == [4, 5, 6]
    if way.startswith("spark"):
        spark_session().conf.unset("spark.sql.caseSensitive")


def test_an_engine_counts_beyond_32_bits():
    engine = rs.engines.MemoryEngine(np.zeros((3, 1), dtype=np.int32), (2,))
    [found] = engine.tally([(0,)])
    assert found.dtype == np.int64
    wide = rs.engines.kernel.Tally((2,), [(0,), ()])
    wide.flat += 2**40
    wide.add([np.zeros(3, dtype=np.uint8)])
    assert [each.tolist() for each in wide.counts] == [[2**40 + 3, 2**40], [2**40 + 3]]


class StoppedClock(_measure.datetime):
    """It is always the same moment."""

    @classmethod
    def now(cls, zone=None):
        return cls(2024, 2, 29, 12, tzinfo=zone)


@pytest.fixture(scope="module")
def plan():
    return rs.plan(rs.marginals(MANY, up_to=2), rs.zcdp("0.1"), method="residualplanner")


@pytest.mark.parametrize("way", WAYS)
def test_a_release_with_the_same_simulated_noise_is_the_same_to_the_byte(way, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(_measure, "datetime", StoppedClock)
    columns = _many(90)
    data, engine = WAYS[way](columns, tmp_path)
    for name, how in (("expected", {"data": columns}), ("found", {"data": data, "engine": engine})):
        rs.measure(plan, **how, ledger=None, noise=rs.simulated(seed=5)).save(tmp_path / name)
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


def test_the_same_counts_come_from_pandas_without_arrow_types():
    frame = pd.DataFrame({"age": [1.0, None, 3.0], "sex": pd.Categorical(["F", "M", None])})
    schema = rs.Schema(age=rs.Integer(0, 3, outside="drop"), sex=rs.Categorical("F", "M", outside="other"))
    engine = engine_for(frame).open(schema, frame)
    assert counts(engine, schema.sizes, np.array([[0], [0]])).tolist() == [[0, 1, 0, 1]] * 2


def _opened_for_persons(schema, data, engine, person):
    return (engine or engine_for(data)).open_kept(schema, data, person)


def _visits(ids, records=3_000):
    chance = np.random.default_rng(5)
    numbers = np.minimum(chance.zipf(1.4, records), 400)
    columns = {
        "quarter": chance.integers(0, 4, records),
        "place": np.array(["x", "y", "z"], dtype=object)[chance.integers(0, 3, records)],
    }
    if ids == "whole":
        return columns | {"who": numbers}
    text = np.array([f"é{number}" for number in numbers], dtype=object)
    if ids == "missing":
        text[::7] = ""
        text[::11] = None
    return columns | {"who": pa.array(text, pa.string())}


VISITS = rs.Schema(quarter=rs.Integer(0, 3), place=rs.Categorical("x", "y", outside="drop"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ids", ["whole", "text", "missing"])
def test_every_engine_keeps_the_same_records_of_a_person(way, ids, tmp_path, monkeypatch):
    monkeypatch.setattr("residua.engines.persons.AT_ONCE", 300)
    if "duckdb" in sys.modules:
        monkeypatch.setattr("residua.engines.duckdb.AT_ONCE", 700)
    columns = _visits(ids)
    missing = "own" if ids == "missing" else "error"
    person = Person.of(rs.Unit(id="who", max_records=3, one_per="quarter", missing_id=missing), VISITS)
    data, engine = WAYS[way](columns, tmp_path)
    found = _opened_for_persons(VISITS, data, engine, person)
    twin = Memory().open_kept(VISITS, columns, person)
    assert found.records == twin.records < len(columns["quarter"])
    assert all(map(np.array_equal, found.tally([(0, 1), ()]), twin.tally([(0, 1), ()])))
    assert all(map(np.array_equal, found.tally([(0,)]), twin.tally([(0,)])))


@pytest.mark.parametrize("way", WAYS)
def test_records_without_an_id_are_refused_unless_a_policy_says_what_becomes_of_them(way, tmp_path):
    columns = _visits("missing", 30)
    data, engine = WAYS[way](columns, tmp_path)
    refused = Person.of(rs.Unit(id="who", max_records=2), VISITS)
    with pytest.raises(rs.DataError, match="column 'who': there are records without an id"):
        _opened_for_persons(VISITS, data, engine, refused).tally([()])
    dropped = Person.of(rs.Unit(id="who", max_records=30, missing_id="drop"), VISITS)
    rows = zip(columns["who"].to_pylist(), columns["place"], strict=True)
    known = sum(bool(who) and place != "z" for who, place in rows)
    assert _opened_for_persons(VISITS, data, engine, dropped).records == known
