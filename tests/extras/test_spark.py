"""What is particular to counting on Spark; what every engine must do is in tests/conformance."""

import os
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import residua as rs
from residua.engines import Spark, engine_for
from residua.strategy.parts import parts_of

SCHEMA = rs.Schema(age=rs.Integer(0, 3), sex=rs.Categorical("F", "M"))
PEOPLE = [(0, "F"), (3, "M"), (3, "M"), (1, "F"), (2, "M")]


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


@pytest.fixture(scope="module")
def frame(session):
    return session.createDataFrame(PEOPLE, ["age", "sex"])


def test_a_spark_frame_is_measured_as_it_is(frame):
    plan = rs.plan(rs.marginals(SCHEMA, up_to=2), rs.zcdp(1))
    columns = {name: [record[at] for record in PEOPLE] for at, name in enumerate(SCHEMA.names)}
    one, two = (rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)) for data in (frame, columns))
    assert all(map(np.array_equal, one.measurements.values, two.measurements.values))


def test_levels_of_places_are_counted_as_in_memory(session):
    places = rs.Hierarchy(("state", "tract"), [(f"{at % 7}", f"t{at}") for at in range(60)])
    schema = rs.Schema(place=places, sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.levels(schema, "place", ["sex"]), rs.zcdp(1), method="places")
    draw = np.random.default_rng(1)
    people = [(f"t{at}", "FM"[sex]) for at, sex in draw.integers(0, [60, 2], (500, 2)).tolist()]
    columns = {name: [record[at] for record in people] for at, name in enumerate(schema.names)}
    frame = session.createDataFrame(people, ["place", "sex"])
    one, two = (rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)) for data in (frame, columns))
    assert all(map(np.array_equal, one.measurements.values, two.measurements.values))


def test_a_release_in_parts_is_counted_as_in_memory(session, tmp_path, monkeypatch):
    places = rs.Hierarchy(("state", "tract"), [(f"{at % 7}", f"t{at}") for at in range(60)])
    schema = rs.Schema(place=places, sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.levels(schema, "place", ["sex"]), rs.zcdp(1), method="places")
    monkeypatch.setattr("residua._measure.parts_of", partial(parts_of, most=40))
    people = [
        (f"t{at}", "FM"[sex]) for at, sex in np.random.default_rng(1).integers(0, [60, 2], (500, 2)).tolist()
    ]
    columns = {name: [record[at] for record in people] for at, name in enumerate(schema.names)}
    found = []
    for data in (session.createDataFrame(people, ["place", "sex"]), columns):
        path = tmp_path / f"{len(found)}.release"
        made = rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1), into=path)
        assert len(made.measurements.parts) > 1
        found.append(made.measurements.values)
    assert all(map(np.array_equal, *found))


def test_a_partition_without_records_counts_nothing(frame):
    engine = engine_for(frame).open(SCHEMA, frame.repartition(9).where("age < 0"))
    assert engine.tally([(0, 1), ()])[1].tolist() == [0]
    assert engine.records == 0


def test_progress_is_told_nothing_of_the_records(frame):
    seen = []
    engine_for(frame).open(SCHEMA, frame).tally([(0,)], lambda *told: seen.append(told))
    assert seen == [("counting", 1.0)]


def test_a_refused_value_is_named_with_its_partition_and_no_stack(session):
    frame = session.createDataFrame([(0, "F"), (7, "M")], ["age", "sex"]).coalesce(1)
    with pytest.raises(rs.DataError) as told:
        engine_for(frame).open(SCHEMA, frame).tally([(1,)])
    assert str(told.value).startswith("partition 0 of the Spark data: column 'age': 1 value is outside")
    assert "7 at row 1" in str(told.value)
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.parquet", None, "Spark cannot read the data .*PATH_NOT_FOUND"),
        ("people.xls", "age,sex\n", "the ending is not known"),
        ("empty.csv", "", "it is empty"),
        ("other.csv", "Age,sex\n1,F\n", r"no column 'age' \(did you mean 'Age'\?\)"),
        ("twice.csv", "age,sex,age\n1,F,1\n", "2 columns called 'age'"),
        ("ragged.csv", "age,sex\n1,F\n1\n", "Malformed CSV record"),
        ("broken.csv", 'age,sex,"no\nte"\n1,F,1\n', "a name may not have a line break in it here"),
    ],
)
def test_files_that_spark_cannot_read_are_refused_with_their_reason(session, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(rs.DataError, match=words):
        Spark(session).open(SCHEMA, tmp_path / name).tally([(0,)])


def test_a_pattern_of_files_is_one_dataset(session, tmp_path):
    for number in range(3):
        pa.parquet.write_table(pa.table({"age": [number], "sex": ["F"]}), tmp_path / f"{number}.parquet")
        (tmp_path / f"{number}.csv").write_text(f"age,sex\n{number},F\n")
    for ending in ("parquet", "csv"):
        engine = Spark(session).open(SCHEMA, str(tmp_path / f"*.{ending}"))
        assert engine.tally([(0,)])[0].tolist() == [1, 1, 1, 0]


def test_other_data_are_not_for_spark():
    with pytest.raises(rs.DataError, match="leave engine= out"):
        Spark().open(SCHEMA, {"age": [1]})
