"""`residua tables` and `residua synthetic`: post-processing from the command line."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli import app


def run(*words, expect: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    schema = rs.Schema(age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
    data = np.random.default_rng(0).integers(0, 2, (300, 2))
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp("0.1"))
    path = tmp_path_factory.mktemp("tables") / "people.release"
    rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)).save(path)
    return path


def test_tables_are_shown_with_errors_and_a_note_that_they_are_biased(file):
    shown = run("tables", file, "--replicates", "2").stdout
    assert "They are biased" in shown
    assert "age x sex (10 numbers)" in shown
    assert "query" in shown
    assert "error" in shown


def test_rounded_tables_in_a_csv_file_are_whole_and_marked(file, tmp_path):
    path = tmp_path / "tables.csv"
    run("tables", file, "--rounded", "--replicates", "2", "-o", path)
    with open(path) as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 18
    assert all(float(row["value"]).is_integer() and float(row["value"]) >= 0 for row in rows)
    assert {row["biased"] for row in rows} == {row["simulated"] for row in rows} == {"true"}


def test_tables_in_a_parquet_file_carry_the_hash_of_their_release(file, tmp_path):
    path = tmp_path / "tables.parquet"
    run("tables", file, "--replicates", "0", "-o", path)
    assert pq.read_schema(path).metadata[b"residua.release"].decode() == rs.Release.load(file).hash
    assert "exists" in run("tables", file, "-o", path, expect=1).stderr


def test_tables_speak_json(file, tmp_path):
    document = json.loads(run("tables", file, "--replicates", "0", "--json").stdout)
    assert document["biased"] is True
    assert len(document["answers"]) == 18
    assert document["answers"][0]["error"] is None
    written = json.loads(run("tables", file, "--replicates", "0", "--json", "-o", tmp_path / "t.csv").stdout)
    assert written["tables"].endswith("t.csv")


def test_long_tables_are_cut_and_say_so(file):
    shown = run("tables", file, "--replicates", "0", "--rows", "2").stdout
    assert "and 8 more" not in shown
    assert "and 3 more; --most" in shown
    assert "and 2 more tables" in shown


def test_synthetic_records_go_to_parquet_only(file, tmp_path):
    message = run("synthetic", file, "-o", tmp_path / "rows.csv", expect=1).stderr
    assert "ends in .parquet" in message
    assert "Traceback" not in message
