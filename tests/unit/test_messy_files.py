"""Files as they come: from `init` to a published crosstab in five commands; encodings, signs, databases."""

import re
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.engines import DuckDB, Reading

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "survey.csv": ("region", "satisfied", "utf-8", ","),
    "haushalte.csv": ("Bundesland", "Größe", "latin-1", ";"),
    "wide.csv": ("Q2, sex", "Q3 (marital status)", "utf-8", ","),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", FILES)
def test_five_commands_from_a_file_to_a_published_crosstab(place, name):
    rows, columns, encoding, delimiter = FILES[name]
    shutil.copy(DATA / name, place)
    stem = Path(name).stem
    told = run("init", name, "--read-values")
    assert "This looked at the data" in told
    run("plan", f"{stem}.yaml")
    run("budget", "create", "budget.db", "--zcdp", "1000000", "--dataset", stem)
    spec = (place / f"{stem}.yaml").read_text()
    (place / f"{stem}.yaml").write_text(spec.replace("rho: 0.1", "rho: 900000"))  # to compare with the truth
    run("release", f"{stem}.yaml")
    run("answer", f"{stem}.release", "--rows", rows, "--columns", columns, "-o", "table.html")
    page = (place / "table.html").read_text(encoding="utf-8")
    assert "<caption>" in page
    options = {"read_options": csv.ReadOptions(encoding=encoding)}
    frame = csv.read_csv(name, parse_options=csv.ParseOptions(delimiter=delimiter), **options).to_pandas()
    found = rs.Release.load(f"{stem}.release").crosstab(rows, columns)
    for (down,), row in zip(found.rows[:-1], found.values, strict=False):
        for (across,), value in zip(found.columns[:-1], row, strict=False):
            if "(missing)" not in (down, across):
                same = (frame[rows].astype(str) == down) & (frame[columns].astype(str) == across)
                assert value == pytest.approx(same.sum(), abs=0.1), (down, across)
    assert found.values[-1, -1] == pytest.approx(len(frame), abs=0.1)


def test_the_draft_of_a_survey_knows_dates_missing_values_and_numbers_of_persons(place):
    shutil.copy(DATA / "survey.csv", place)
    run("init", "survey.csv", "--read-values")
    text = (place / "survey.yaml").read_text()
    assert "# - name: id" in text
    assert "constraints: {minimum: 2022-01-01, maximum: 2023-12-31}" in text
    assert "enum: [female, male]}\n    residua: {outside: missing}" in text
    run("init", "survey.csv", "--force")
    assert "type: date\n    constraints: {minimum: CONFIRM" in (place / "survey.yaml").read_text()


def test_a_plan_warns_where_missing_values_have_no_place(place):
    shutil.copy(DATA / "survey.csv", place)
    run("init", "survey.csv", "--read-values")
    told = run("plan", "survey.yaml")
    assert "No place for missing values in 'interview', 'region': one of them stops the release." in told
    spec = (place / "survey.yaml").read_text()
    (place / "survey.yaml").write_text(
        re.sub(r"enum: \[east.*\n", r"\g<0>    residua: {outside: drop}\n", spec)
    )
    assert "No place for missing values in 'interview':" in run("plan", "survey.yaml")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
def test_numbers_with_commas_and_points_are_read_as_declared(place, encoding):
    text = "größe;betrag\n1;1.234,5\n2;999\n3;-\n1;1,234.5\n2;12,34\n"
    (place / "a.csv").write_bytes(text.encode(encoding))
    schema = rs.Schema(
        {"größe": rs.Integer(1, 3), "betrag": rs.Binned(0, 100, 1000, 1234.5, above=True, outside="other")}
    )
    plan = rs.plan(rs.table(schema, ["größe", "betrag"]), rs.zcdp(10**6))
    reading = Reading(encoding=encoding, decimal=",", thousands=".")
    release = rs.measure(
        plan, "a.csv", ledger=None, noise=rs.simulated(seed=1), engine=DuckDB(reading=reading)
    )
    found = np.rint(release.table("größe", "betrag").values).astype(int)
    # what is written in neither way is outside the schema, and so is a dash
    assert found.tolist() == [[0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_a_table_of_a_database_is_counted_by_file_and_by_connection(place):
    schema = rs.Schema(sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.table(schema, ["sex"]), rs.zcdp(10**6))
    with duckdb.connect("people.duckdb") as connection:
        connection.execute(
            """CREATE TABLE "odd ""name" AS SELECT 'F' AS sex UNION ALL SELECT 'M' UNION ALL SELECT 'F'"""
        )
    engine, simulated = DuckDB(reading=Reading(table='odd "name')), rs.simulated(seed=1)
    release = rs.measure(plan, "people.duckdb", ledger=None, noise=simulated, engine=engine)
    assert np.rint(release.table("sex").values).tolist() == [2, 1]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT 'M' AS sex")
        one = DuckDB(reading=Reading(table="people"))
        release = rs.measure(plan, connection, ledger=None, noise=rs.simulated(seed=1), engine=one)
        assert np.rint(release.table("sex").values).tolist() == [0, 1]
        with pytest.raises(rs.DataError, match=r"Reading\(table=..\)"):
            rs.measure(plan, connection, ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(rs.DataError, match="cannot be read"):
        rs.measure(plan, "people.duckdb", ledger=None, noise=rs.simulated(seed=1), engine=one)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"encoding": "klingon"}, "there is no encoding 'klingon'"),
        ({"decimal": ",,"}, "one sign each"),
        ({"decimal": ",", "thousands": ","}, "one sign each"),
        ({"thousands": "0"}, "letter or digit"),
    ],
)
def test_readings_that_make_no_sense_are_refused(parts, words):
    with pytest.raises(rs.DataError, match=words):
        Reading(**parts)
