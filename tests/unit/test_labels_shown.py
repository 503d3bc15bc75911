"""Labels that somebody else chose: they command no terminal, and no spreadsheet runs them as formulas."""

import csv
import json
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import residua as rs
from residua._text import columns, visible
from residua.cli import app

RED = "\x1b[31mred\x1b[0m"
ODD = {
    "age": rs.Integer(-2, 2),
    "kind\x9b2J": rs.Categorical(RED, "bell\a\rname", "two\nlines", "under\u202eover", "é漢🙂\u200d\u3000"),
}
NAME = "T\x1b]0;owned\x07"

FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "\r=1", "＝1+1")
HARMLESS = ("F", "-1", "+2.5", "-1e5", "a=b", "'", "")


def run(*words, expect: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result


def commands_of(text: str) -> list[str]:
    """The characters of an output that a terminal may obey."""
    obeyed = ("Cc", "Cs", "Zl", "Zp")
    marks = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"
    return [
        character
        for character in text
        if character != "\n" and (unicodedata.category(character) in obeyed or character in marks)
    ]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A plan, a release of it and a ledger, all with odd names in them."""
    folder = tmp_path_factory.mktemp("odd")
    schema = rs.Schema(ODD)
    work = rs.marginals(schema, up_to=2) + rs.table(schema, list(ODD), name=NAME)
    plan = rs.plan(work, rs.zcdp("0.1"))
    plan.save(folder / "odd.plan")
    rs.Ledger.create(folder / "budget.db", rs.zcdp(1), dataset=f"people {RED}")
    codes = np.zeros((4, 2), dtype=int)
    rs.measure(plan, codes, ledger=folder / "budget.db", note=f"note {RED}").save(folder / "odd.release")
    return folder


def test_what_a_terminal_would_obey_is_written_out():
    assert visible("plain é漢🙂") == "plain é漢🙂"
    assert visible(RED) == "\\x1b[31mred\\x1b[0m"
    assert visible("a\nb\u202ec\u2028") == "a\\nb\\u202ec\\u2028"
    assert visible(visible(RED)) == visible(RED)
    head, row = columns((RED, "bb"), [("x", "\t")])
    assert len(head) == len(row)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "odd.plan"),
        ("report", "odd.release"),
        ("answer", "odd.release"),
        ("answer", "odd.release", "--table", NAME),
        ("tables", "odd.release", "--replicates", "0"),
        ("budget", "show", "budget.db"),
        ("budget", "check", "budget.db", "odd.release"),
    ],
    ids=" ".join,
)
def test_no_command_sends_a_label_to_the_terminal_that_it_would_obey(odd, monkeypatch, words):
    monkeypatch.chdir(odd)
    shown = run(*words).stdout
    assert commands_of(shown) == []
    document = run(*words, "--json").stdout
    assert commands_of(document) == []
    if words[1] != "check":
        name = RED if words[0] == "budget" else "kind\x9b2J"
        assert visible(name) in shown
        assert repr(name)[1:-1] in repr(json.loads(document))  # a program reads it as it is


def test_errors_send_nothing_to_the_terminal_that_it_would_obey(odd, monkeypatch):
    monkeypatch.chdir(odd)
    for words in (
        ("answer", "odd.release", "--table", RED),
        ("answer", "odd.release", "--sql", f"SELECT COUNT(*) FROM t WHERE age = '{RED}'"),
        ("answer", f"{RED}.release"),
        ("plan", f"{RED}.yaml"),
    ):
        told = run(*words, expect=1).stderr
        assert commands_of(told) == []
        assert told.count("\n") == 1


def test_a_plan_explained_in_python_commands_no_terminal_either():
    schema = rs.Schema(ODD)
    work = rs.table(schema, list(ODD), name=NAME)
    plan = rs.plan(work, targets={NAME: rs.stddev(5)})
    assert commands_of(plan.explain()) == []
    assert "\\x1b]0;owned\\x07" in plan.explain()
    assert commands_of(repr(plan) + repr(schema) + repr(work)) == []


def test_a_terminal_of_few_letters_gets_the_others_written_out(odd):
    command = [sys.executable, "-c", "from residua.cli import main; main()", "answer", "odd.release"]
    few = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    found = subprocess.run(command, cwd=odd, capture_output=True, check=False, env=few)
    assert found.returncode == 0, found.stderr
    assert b"\\u6f22" in found.stdout


@pytest.fixture(scope="module")
def formulas(tmp_path_factory):
    """A release of a schema whose labels and names are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    schema = rs.Schema({"=1+1": rs.Categorical(*FORMULAS, *HARMLESS), "age": rs.Integer(-1, 1)})
    plan = rs.plan(rs.table(schema, ["=1+1", "age"], name="@x"), rs.zcdp(1), method="identity")
    release = rs.measure(plan, np.zeros((3, 2), dtype=int), ledger=None, noise=rs.simulated(seed=1))
    release.save(folder / "a.release")
    return folder


def cells(path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("command", ["answer", "tables"])
def test_no_cell_of_a_csv_file_is_a_formula(formulas, tmp_path, command):
    more = ("--replicates", "0") if command == "tables" else ()
    path = tmp_path / "a.csv"
    run(command, formulas / "a.release", "-o", path, *more)
    head, *rows = cells(path)
    assert head[:3] == ["table", "'=1+1", "age"]
    assert {row[0] for row in rows} == {"'@x"}
    assert {row[1] for row in rows} == {*(f"'{label}" for label in FORMULAS), *HARMLESS}
    assert {row[2] for row in rows} == {"-1", "0", "1"}  # numbers, which need no quote
    assert all(row[3].startswith("'=1+1 = ") for row in rows)
    assert all(np.isfinite(float(row[4])) for row in rows)


@pytest.mark.parametrize("command", ["answer", "tables"])
def test_labels_are_left_as_they_are_where_that_is_asked(formulas, tmp_path, command):
    more = ("--replicates", "0") if command == "tables" else ()
    run(command, formulas / "a.release", "-o", tmp_path / "a.csv", "--formulas", *more)
    head, *rows = cells(tmp_path / "a.csv")
    assert head[1] == "=1+1"
    assert {row[1] for row in rows} == {*FORMULAS, *HARMLESS}
    run(command, formulas / "a.release", "-o", tmp_path / "a.parquet", *more)
    assert set(pq.read_table(tmp_path / "a.parquet")["=1+1"].to_pylist()) == {*FORMULAS, *HARMLESS}


def test_a_release_writes_no_formulas_unless_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x\n=1\n")
    (tmp_path / "a.yaml").write_text(
        "schema: {fields: [{name: x, type: string, constraints: {enum: ['=1', b]}}]}\n"
        "tables: [{marginals: 1}]\nprivacy: {definition: zcdp, rho: 1}\ndata: a.csv\n"
    )
    run("release", "a.yaml", "--simulate", "1")
    assert {row[1] for row in cells("a-answers.csv")[1:]} == {"'=1", "b"}
    run("release", "a.yaml", "--simulate", "1", "--formulas", "--force")
    assert {row[1] for row in cells("a-answers.csv")[1:]} == {"=1", "b"}
