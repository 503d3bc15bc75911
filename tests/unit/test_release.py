"""Releases: one estimator, answers in every form, files that are whole, and a mark that stays."""

import json
import zipfile
from statistics import NormalDist

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import residua as rs
from residua import _files
from residua.answers import _numbers, _texts
from residua.ledger import sqlite
from residua.release import TableAnswer

SCHEMA = rs.Schema(
    age=rs.Integer(0, 4),
    sex=rs.Categorical("F", "M"),
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
)
WORK = (
    rs.table(SCHEMA, {"place": rs.identity, "age": rs.prefix}, name="T1")
    + 2 * rs.marginals(SCHEMA, up_to=2)
    + rs.table(SCHEMA, {"place": rs.level("state"), "sex": rs.identity}, name="states")
    + rs.linear(SCHEMA, ("sex", "age"), np.arange(20.0).reshape(2, 10) % 3, name="odd")
)
CODES = np.random.default_rng(0).integers(0, [5, 2, 3], (300, 3))
METHODS = ("querysmasher", "smasher", "dense", "identity")


@pytest.fixture(scope="module")
def releases():
    plans = {method: rs.plan(WORK, rs.zcdp("0.5"), method=method) for method in METHODS}
    return {
        method: rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=7))
        for method, plan in plans.items()
    }


@pytest.fixture(params=METHODS)
def release(request, releases):
    return releases[request.param]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A release with real noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))
        ledger = rs.Ledger.create(
            tmp_path_factory.mktemp("books") / "budget.db", rs.zcdp(1), dataset="people"
        )
        plan = rs.plan(WORK, rs.zcdp("0.5"), method="querysmasher")
        return rs.measure(plan, CODES, ledger=ledger, note="spring")


# --- one estimator -----------------------------------------------------------------------------------------


def test_equal_queries_get_equal_answers_in_whatever_table_they_stand(release):
    two_way = release.table("place", "age").values
    prefixes = release.values(rs.table(SCHEMA, {"age": rs.prefix, "place": rs.identity})).reshape(5, 3)
    assert np.allclose(np.cumsum(two_way, axis=1).T, prefixes, atol=1e-6)
    ranges = release.values(rs.table(SCHEMA, {"age": rs.ranges}))
    one_way = release.table("age").values
    direct = [one_way[start : stop + 1].sum() for start in range(5) for stop in range(start, 5)]
    assert sorted(ranges) == pytest.approx(sorted(direct), abs=1e-6)


def test_tables_add_up_to_their_margins(release):
    for rows, columns in (("age", "sex"), ("sex", "place"), ("place", "age")):
        table = release.table(rows, columns).values
        assert np.allclose(table.sum(axis=1), release.table(rows).values, atol=1e-6)
        assert np.allclose(table.sum(axis=0), release.table(columns).values, atol=1e-6)
        assert table.sum() == pytest.approx(float(release.table().values), abs=1e-6)


def test_a_level_of_a_hierarchy_is_the_sum_of_what_lies_below(release):
    counties = release.table("place").values
    states = release.values(rs.table(SCHEMA, {"place": rs.level("state")}))
    assert np.allclose(states, [counties[:2].sum(), counties[2]], atol=1e-6)


def test_answers_are_linear_in_the_query(release):
    one, two = np.eye(10)[3], np.arange(10.0)
    both = release.values(rs.linear(SCHEMA, ("age", "sex"), np.stack([one, two, 2 * one - two])))
    assert both[2] == pytest.approx(2 * both[0] - both[1], abs=1e-6)


def test_the_answers_of_a_workload_come_in_its_order(release):
    parts = [release.values(work) for work in (rs.table(SCHEMA, ["sex"]), rs.table(SCHEMA, ["place", "age"]))]
    both = release.values(rs.table(SCHEMA, ["sex"]) + rs.table(SCHEMA, ["place", "age"]))
    assert np.allclose(both, np.concatenate(parts), atol=1e-9)
    assert np.array_equal(release.values(), release.values(WORK))


def test_errors_are_those_that_the_plan_stated(release):
    assert np.allclose(
        release.answers().column("stddev").to_numpy() ** 2, release.plan.variances(WORK), rtol=1e-12
    )
    two = rs.table(SCHEMA, ["sex", "age"])
    covariance = release.covariance(two, WORK)
    assert np.array_equal(covariance, release.plan.covariance(two, WORK))
    assert np.allclose(np.diag(release.covariance(two, two)), release.table("sex", "age").stddev.ravel() ** 2)


# --- tables ------------------------------------------------------------------------------------------------


def test_a_table_has_its_axes_in_the_order_asked(release):
    one, two = release.table("age", "place"), release.table("place", "age")
    assert one.values.shape == one.stddev.shape == one.lower.shape == one.upper.shape == (5, 3)
    assert np.allclose(one.values, two.values.T, atol=1e-9)
    assert np.allclose(one.stddev, two.stddev.T)
    assert one.names == ("age", "place")
    assert one.axes == (tuple("01234"), SCHEMA["place"].labels())


def test_intervals_are_symmetric_and_as_wide_as_their_level(release):
    for level in (0.5, 0.95, 0.999):
        table = release.table("age", level=level)
        z = NormalDist().inv_cdf(0.5 + level / 2)
        assert np.allclose(table.upper - table.values, z * table.stddev)
        assert np.allclose(table.values - table.lower, z * table.stddev)
        assert table.level == level


def test_a_table_is_an_array_and_a_data_frame(release):
    table = release.table("sex", "age")
    assert isinstance(table, TableAnswer)
    assert np.array_equal(np.asarray(table), table.values)
    assert np.asarray(table, dtype=np.float32).dtype == np.float32
    frame = table.to_pandas()
    assert list(frame.columns) == ["values", "stddev", "lower", "upper"]
    assert frame.index.names == ["sex", "age"]
    assert frame.loc[("M", "3"), "values"] == table.values[1, 3]
    alone = release.table().to_pandas()
    assert alone.shape == (1, 4)


def test_a_table_may_be_asked_by_a_list_as_a_workload_is(release):
    one, same = release.table("sex", "age"), release.table(["sex", "age"])
    assert one.names == same.names == ("sex", "age")
    assert (one.values == same.values).all()
    assert release.table(("age",)).names == ("age",)
    processed = release.nonnegative(replicates=0)
    assert (processed.table(["sex", "age"]).values == processed.table("sex", "age").values).all()


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [(("height",), rs.SchemaError, "height"), (("age", "age"), rs.WorkloadError, "age")],
)
def test_tables_that_cannot_be_are_refused(release, names, kind, words):
    with pytest.raises(kind, match=words):
        release.table(*names)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, float("nan"), "0.95", None, True])
def test_a_level_is_a_probability(release, level):
    for ask in (lambda: release.table("age", level=level), lambda: release.answers(level=level)):
        with pytest.raises(rs.WorkloadError, match="a confidence level is between 0 and 1"):
            ask()


# --- answers as Arrow --------------------------------------------------------------------------------------


def test_answers_have_a_row_for_each_query_in_order(release):
    table = release.answers()
    assert table.column_names == [
        "table",
        "age",
        "sex",
        "place",
        "query",
        "value",
        "stddev",
        "lower",
        "upper",
    ]
    assert table.num_rows == WORK.count
    assert np.allclose(table.column("value").to_numpy(), release.values(), atol=1e-9)
    names = [group.name for group in WORK.groups() for _ in range(group.count)]
    assert table.column("table").to_pylist() == names
    words = [text for group in WORK.groups() for text in group.descriptions(SCHEMA)]
    assert table.column("query").to_pylist() == words


def test_an_attribute_has_a_label_only_where_a_query_asks_about_one_cell_of_it(release):
    rows = release.answers().to_pylist()
    first = [row for row in rows if row["table"] == "T1"]
    assert [row["place"] for row in first] == [label for label in SCHEMA["place"].labels() for _ in range(5)]
    assert {row["age"] for row in first} == {row["sex"] for row in first} == {None}
    pair = [row for row in rows if row["table"] == "age x sex"]
    assert [(row["age"], row["sex"]) for row in pair] == [(age, sex) for age in "01234" for sex in "FM"]
    states = [row for row in rows if row["table"] == "states"]
    assert [(row["place"], row["sex"]) for row in states] == [(None, "F"), (None, "M")] * 2
    assert {row["age"] for row in rows if row["table"] == "odd"} == {None}


def test_intervals_of_answers_have_the_level_asked(release):
    table = release.answers(rs.table(SCHEMA, ["age"]), level=0.9)
    z = NormalDist().inv_cdf(0.95)
    value, stddev = table.column("value").to_numpy(), table.column("stddev").to_numpy()
    assert np.allclose(table.column("lower").to_numpy(), value - z * stddev)
    assert np.allclose(table.column("upper").to_numpy(), value + z * stddev)


def test_answers_open_in_pandas_polars_and_duckdb(release):
    answers = release.answers()
    expected = release.values(rs.table(SCHEMA, ["sex"]))
    frame = answers.to_pandas()
    assert np.allclose(frame[frame["table"] == "sex"]["value"], expected)
    assert isinstance(frame["sex"].dtype, pd.CategoricalDtype)
    polar = pl.from_arrow(answers)
    assert np.allclose(polar.filter(pl.col("table") == "sex")["value"], expected)
    found = duckdb.sql("SELECT sex, value FROM answers WHERE \"table\" = 'sex' ORDER BY sex").fetchall()
    assert [sex for sex, _ in found] == ["F", "M"]
    assert np.allclose([value for _, value in found], expected)


def test_attributes_named_like_columns_of_the_answers_are_set_apart():
    schema = rs.Schema(
        {"value": rs.Integer(0, 1), "query": rs.Integer(0, 1), "attribute value": rs.Integer(0, 1)}
    )
    plan = rs.plan(rs.marginals(schema, ways=1), rs.zcdp(1), method="querysmasher")
    answers = rs.measure(plan, np.zeros((3, 3), int), ledger=None, noise=rs.simulated(seed=1)).answers()
    names = answers.column_names
    assert len(set(names)) == len(names)
    assert names[1:4] == ["attribute attribute value", "attribute query", "attribute value"]
    assert pl.from_arrow(answers).height == 6


def test_a_query_in_sql_is_answered_as_in_words(release):
    answers = release.sql("SELECT COUNT(*) FROM person WHERE age BETWEEN 1 AND 3 AND sex = 'F'")
    row = np.zeros((5, 2))
    row[1:4, 0] = 1
    expected = release.values(rs.linear(SCHEMA, ("age", "sex"), row.reshape(1, -1)))
    assert answers.column("value").to_pylist() == pytest.approx(expected.tolist(), abs=1e-6)


# --- answers in a file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [7, 10**6])
def test_written_answers_are_those_returned(release, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("residua.answers.ROWS_AT_ONCE", at_once)
    path = tmp_path / "answers.parquet"
    release.write_answers(path, level=0.9)
    written = pa.parquet.read_table(path)
    expected = release.answers(level=0.9)
    assert written.to_pylist() == expected.to_pylist()
    assert written.schema.metadata[b"residua.simulated"] == b"true"
    assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(WORK.count,)]
    release.write_answers(path, rs.table(SCHEMA, ["age"]))
    assert pa.parquet.read_table(path).num_rows == 5


def test_answers_that_cannot_be_written_leave_nothing_behind(release, tmp_path, monkeypatch):
    path = tmp_path / "answers.parquet"
    wide = rs.table(rs.Schema(other=rs.Integer(0, 1)), ["other"])
    with pytest.raises(rs.SchemaError, match="different schemas"):
        release.write_answers(path, wide)
    narrow = rs.measure(
        rs.plan(rs.table(SCHEMA, ["age"]), rs.zcdp(1), method="querysmasher"),
        CODES,
        ledger=None,
        noise=rs.simulated(seed=1),
    )
    with pytest.raises(rs.NotInSpan):
        narrow.write_answers(path, rs.table(SCHEMA, ["age"]) + rs.table(SCHEMA, ["sex"]))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        release.write_answers(tmp_path / "none" / "answers.parquet")

    def full(handle):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        release.write_answers(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_answers_is_replaced_only_by_a_whole_one(release, tmp_path):
    path = tmp_path / "answers.parquet"
    release.write_answers(path, rs.table(SCHEMA, ["age"]))
    before = path.read_bytes()
    with pytest.raises(rs.WorkloadError):
        release.write_answers(path, level=2)
    assert path.read_bytes() == before


# --- what may be asked -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [7, "age", SCHEMA])
def test_only_workloads_are_answered(release, wrong):
    for ask in (release.values, release.answers):
        with pytest.raises(rs.WorkloadError, match="is asked about a workload"):
            ask(wrong)


def test_a_workload_of_another_schema_is_refused(release):
    other = rs.marginals(rs.Schema(age=rs.Integer(0, 4)), ways=1)
    for ask in (release.values, release.answers, lambda work: release.covariance(work, work)):
        with pytest.raises(rs.SchemaError, match="different schemas"):
            ask(other)


def test_more_answers_than_fit_one_array_are_refused():
    schema = rs.Schema.of_sizes([400] * 3)
    plan = rs.plan(rs.marginals(schema, ways=1), rs.zcdp(1), method="residualplanner")
    release = rs.measure(plan, np.zeros((1, 3), int), ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(
        rs.WorkloadError, match=r"64,000,000 answers are too many for one array; use write_answers"
    ):
        release.values(rs.marginals(schema, ways=3))


# --- files -------------------------------------------------------------------------------------------------


def test_a_release_comes_back_with_every_answer(release, tmp_path):
    path = tmp_path / "people.release"
    release.save(path)
    back = rs.Release.load(path)
    assert back.hash == release.hash
    assert back.plan.hash == release.plan.hash == back.audit["plan_hash"]
    assert back.audit == release.audit
    assert np.array_equal(back.values(), release.values())
    assert back.answers().to_pylist() == release.answers().to_pylist()
    path_again = tmp_path / "again.release"
    back.save(path_again)
    assert path_again.read_bytes() == path.read_bytes()


def test_the_hash_is_that_of_the_file_and_of_nothing_else(release, releases, tmp_path):
    path = tmp_path / "people.release"
    release.save(path)
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read(_files.MANIFEST))["hash"] == release.hash
    assert len({each.hash for each in releases.values()}) == len(METHODS)


def test_a_release_of_real_noise_comes_back_as_such(real, tmp_path):
    path = tmp_path / "people.release"
    real.save(path)
    back = rs.Release.load(path)
    assert not back.simulated
    assert back.audit == real.audit
    assert back.audit["note"] == "spring"
    assert np.array_equal(back.values(), real.values())


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_a_combination_of_releases_comes_back_too(releases, tmp_path):
    plan = releases["querysmasher"].plan
    other = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=8))
    both = rs.combine(releases["querysmasher"], other)
    both.save(tmp_path / "both.release")
    back = rs.Release.load(tmp_path / "both.release")
    assert back.simulated
    assert np.array_equal(back.values(), both.values())


def refused(path, words):
    with pytest.raises(rs.FileFormatError, match=words) as caught:
        rs.Release.load(path)
    assert str(path) in str(caught.value)


def test_a_truncated_file_is_refused_wherever_it_was_cut(releases, tmp_path):
    path = tmp_path / "people.release"
    releases["querysmasher"].save(path)
    whole = path.read_bytes()
    for length in (0, 1, 30, len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, "truncated or was not written")


def test_an_edited_file_is_refused_wherever_it_was_edited(releases, tmp_path):
    path = tmp_path / "people.release"
    releases["querysmasher"].save(path)
    whole = bytearray(path.read_bytes())
    for place in range(60, len(whole), len(whole) // 25):
        edited = whole.copy()
        edited[place] ^= 4
        path.write_bytes(edited)
        with pytest.raises(rs.FileFormatError):
            rs.Release.load(path)


def test_other_files_are_no_releases(releases, tmp_path):
    release = releases["querysmasher"]
    release.plan.save(tmp_path / "people.plan")
    refused(tmp_path / "people.plan", "holds a plan, not a release")
    refused(tmp_path / "absent.release", "there is no file")
    release.save(tmp_path / "people.release")
    with pytest.raises(rs.FileFormatError, match="holds a release, not a plan"):
        rs.Plan.load(tmp_path / "people.release")


def rewritten(release, path, change):
    """The release in a file, with changed content and a hash that fits it."""
    manifest, arrays = release._content()
    manifest = json.loads(json.dumps(manifest))
    change(manifest, arrays)
    _files.write(path, "release", manifest, arrays)


CHANGES = {
    "no audit record": (lambda manifest, arrays: manifest.pop("audit"), "lacks 'audit'"),
    "no mark": (lambda manifest, arrays: manifest["audit"].pop("simulated"), "lacks 'simulated'"),
    "a mark in words": (
        lambda manifest, arrays: manifest["audit"].update(simulated="no"),
        "simulated' = 'no'",
    ),
    "no time": (lambda manifest, arrays: manifest["audit"].update(time=None), "'time' = None"),
    "no measurements": (lambda manifest, arrays: arrays.pop("measurements.0"), "does not fit the plan"),
    "fewer batches": (lambda manifest, arrays: manifest["measurements"].update(batches=1), "do not belong"),
    "no plan": (lambda manifest, arrays: manifest.pop("plan"), "lacks 'plan'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_lacks_a_part_is_refused_even_if_its_hash_fits(releases, tmp_path, name):
    change, words = CHANGES[name]
    path = tmp_path / "people.release"
    rewritten(releases["querysmasher"], path, change)
    refused(path, words)


# --- the mark of a simulation ------------------------------------------------------------------------------


def test_a_simulation_is_marked_wherever_it_shows(release, real, tmp_path):
    assert release.simulated
    assert repr(release).startswith("SIMULATED Release(")
    assert release.answers().schema.metadata[b"residua.simulated"] == b"true"
    assert not real.simulated
    assert repr(real).startswith("Release(")
    assert real.answers().schema.metadata[b"residua.simulated"] == b"false"
    release.save(tmp_path / "people.release")
    back = rs.Release.load(tmp_path / "people.release")
    assert back.simulated
    assert repr(back).startswith("SIMULATED")
    assert back.answers().schema.metadata[b"residua.simulated"] == b"true"


def test_the_mark_cannot_be_taken_off(release):
    with pytest.raises(TypeError):
        release.audit["simulated"] = False
    with pytest.raises(AttributeError):
        release.simulated = False
    with pytest.raises(AttributeError):
        release.audit = {}


def test_the_answers_are_about_right(real):
    """Real noise: eight standard deviations would be exceeded once in a million million runs."""
    counts = np.bincount(CODES[:, 0], minlength=5)
    table = real.table("age")
    assert (np.abs(table.values - counts) < 8 * table.stddev).all()


def test_rows_are_the_same_however_many_are_put_into_words_at_a_time(release, monkeypatch):
    whole = release.answers()
    expected = [text for group in WORK.groups() for text in group.descriptions(SCHEMA)]
    assert whole.column("query").to_pylist() == expected
    monkeypatch.setattr("residua.answers.ROWS_AT_ONCE", 7)
    parts = list(release.answer_batches())
    assert [len(part) for part in parts[:-1]] == [7] * (len(parts) - 1)
    assert [row for part in parts for row in part.to_pylist()] == whole.to_pylist()


def test_tables_of_one_class_have_the_variances_that_each_has_by_itself(releases):
    runs = rs.marginals(SCHEMA, ways=2) + rs.all_tables(SCHEMA, ways=2, numeric=rs.prefix, family=rs.identity)
    for part in runs.parts:
        for release in releases.values():
            answerer = release.plan.strategy.answerer
            for group, found in zip(part, answerer.variances_by_table(part), strict=True):
                np.testing.assert_allclose(found, answerer.variances(group), rtol=1e-12)


@pytest.mark.parametrize("texts", [[], ["a"], [None], ["", None, "Zürich", "a, b"] * 5, [None] * 9])
def test_texts_are_those_that_arrow_makes_itself(texts):
    found = _texts(texts)
    found.validate(full=True)
    assert found.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 8, 21])
def test_numbers_are_those_that_arrow_makes_itself(kind, count):
    values = np.arange(2 * count, dtype=kind)[::2]
    there = np.random.default_rng(count).random(count) < 0.5
    assert _numbers(values).equals(pa.array(values))
    found = _numbers(values, there)
    found.validate(full=True)
    assert found.equals(pa.array(values, mask=~there))
