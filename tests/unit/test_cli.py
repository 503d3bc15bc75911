"""The command line: from a file of records to tables with error bars, and every mistake on one line."""

import json
import random
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import residua as rs
from residua._text import columns
from residua.cli import app
from residua.cli.output import progress_bar, progress_lines
from residua.report.budgets import scaled
from residua.report.words import decimals_for

SPEC = """\
schema:
  fields:
  - name: age
    type: integer
    constraints:
      minimum: 0
      maximum: 4
  - name: sex
    type: string
    constraints:
      enum: [F, M]
tables:
- name: up to each age
  weight: 2
  families:
    age: prefix
    sex: identity
- marginals: up to 2
privacy:
  definition: zcdp
  rho: 0.5
  unit:
    max_records: 1
    neighbours: add_remove
method: auto
data: people.csv
ledger: budget.db
output:
  answers: answers.csv
  release: people.release
  level: 0.95
"""
RECORDS = 600


def run(*words, expect: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result


def mistake(*words) -> str:
    """The one line that a user reads after a mistake."""
    result = run(*words, expect=1)
    assert result.stdout == ""
    assert re.fullmatch(r"error: .+\n", result.stderr)
    return result.stderr


def write_people(folder) -> None:
    draw = random.Random(7)
    rows = [f"{draw.randrange(5)},{draw.choice('FM')}" for _ in range(RECORDS)]
    (folder / "people.csv").write_text("age,sex\n" + "\n".join(rows) + "\n")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with data, a spec and a ledger, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path)
    (tmp_path / "people.yaml").write_text(SPEC)
    run("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    return tmp_path


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A folder in which the spec has been released."""
    folder = tmp_path_factory.mktemp("released")
    write_people(folder)
    (folder / "people.yaml").write_text(SPEC)
    run("budget", "create", folder / "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    run("release", folder / "people.yaml", "--note", "first")
    return folder


# The way through


def test_help_lists_every_command_with_examples():
    shown = run("--help").stdout
    for command in ("init", "plan", "release", "answer", "tables", "synthetic", "report", "budget", "demo"):
        assert re.search(rf"^  {command} ", shown, flags=re.MULTILINE)
        assert "residua" in run(command, "--help").stdout
    assert "Example" in run("budget", "create", "--help").stdout


def test_the_version_is_shown():
    assert run("--version").stdout == f"residua {rs.__version__}\n"


def test_from_an_empty_folder_to_a_table_with_error_bars(tmp_path):
    """The whole way in processes of its own, as a user goes it."""

    def residua(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "residua.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    write_people(tmp_path)
    residua("init", "people.csv", "-o", "people.yaml")
    draft = (tmp_path / "people.yaml").read_text()
    assert "CONFIRM" in draft
    filled = draft.replace("minimum: CONFIRM, maximum: CONFIRM", "minimum: 0, maximum: 4")
    (tmp_path / "people.yaml").write_text(filled.replace("enum: CONFIRM", "enum: [F, M]"))
    assert "age x sex" in residua("plan", "people.yaml")
    residua("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    assert "Left: rho 0.9" in residua("release", "people.yaml")
    shown = residua("answer", "people.release", "--table", "age,sex")
    assert "95% interval" in shown
    assert len(re.findall(r"age = \d and sex = [FM] +[\d.-]+ +[\d.]+ +[\d.-]+ to [\d.]+", shown)) == 10


def test_a_plan_shows_each_table_each_budget_and_the_certificate(place):
    shown = run("plan", "people.yaml").stdout
    for words in ("up to each age", "age x sex", "a quarter", "four times", "Proved", "Measured", "epsilon"):
        assert words in shown


def test_plans_at_other_budgets_are_what_python_plans(place):
    document = json.loads(run("plan", "people.yaml", "--json").stdout)
    work = rs.Plan.load(_saved(place)).workload
    for other, rho in zip(document["budgets"], ("0.125", "0.25", "0.5", "1", "2"), strict=True):
        assert other["rmse"] == pytest.approx(rs.plan(work, rs.zcdp(rho)).rmse, rel=1e-3)
    assert document["rmse"] == document["budgets"][2]["rmse"]
    assert [row["name"] for row in document["tables"]][:2] == ["up to each age", "total"]


def _saved(place):
    run("plan", "people.yaml", "-o", "saved.plan")
    return place / "saved.plan"


@pytest.mark.parametrize(
    ("budget", "double"),
    [
        (rs.zcdp("0.1"), rs.zcdp("0.2")),
        (rs.gdp(1), rs.gdp(2)),
        (rs.approx_dp(1, "1e-6"), rs.approx_dp(2, "1e-6")),
        (rs.privacy_cost(3), rs.privacy_cost(6)),
    ],
)
def test_doubling_a_budget_doubles_its_amount_and_leaves_delta(budget, double):
    assert scaled(budget, 2) == double


def test_a_release_spends_its_budget_once_and_the_ledger_knows_it(released):
    [entry] = rs.Ledger.open(released / "budget.db").entries()
    release = rs.Release.load(released / "people.release")
    assert entry.amount == rs.zcdp("0.5").rho
    assert entry.release_hash == release.hash
    assert entry.note == release.audit["note"] == "first"
    shown = run("budget", "show", released / "budget.db").stdout
    assert "Left: rho 0.5" in shown
    assert "released" in shown


def test_answers_in_a_file_are_those_of_the_release(released):
    import pandas as pd

    frame = pd.read_csv(released / "answers.csv")
    expected = rs.Release.load(released / "people.release").answers().to_pandas()
    assert frame["value"].to_numpy() == pytest.approx(expected["value"].to_numpy())
    assert list(frame["query"]) == list(expected["query"])
    assert (frame["lower"] < frame["value"]).all()
    assert (frame["value"] < frame["upper"]).all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_answers_open_in_pandas_polars_and_duckdb(released, tmp_path, ending):
    import duckdb
    import pandas as pd
    import polars as pl

    path = tmp_path / f"out.{ending}"
    run("answer", released / "people.release", "--table", "age,sex", "-o", path)
    with_pandas = (pd.read_csv if ending == "csv" else pd.read_parquet)(path)
    with_polars = (pl.read_csv if ending == "csv" else pl.read_parquet)(path)
    rows = duckdb.sql(f"SELECT value, stddev FROM '{path}'").fetchall()
    assert len(with_pandas) == len(with_polars) == len(rows) == 10
    assert with_pandas["value"].tolist() == with_polars["value"].to_list() == [value for value, _ in rows]
    assert [str(age) for age in with_pandas["age"][::2]] == ["0", "1", "2", "3", "4"]


def test_a_table_is_asked_by_its_name_its_columns_or_sql(released):
    file = released / "people.release"
    assert "age <= 4 and sex = M" in run("answer", file, "--table", "up to each age").stdout
    assert run("answer", file, "--table", "sex").stdout.count("sex = ") == 2
    asked = "SELECT COUNT(*) FROM people WHERE age >= 2 AND sex = 'F'"
    document = json.loads(run("answer", file, "--sql", asked, "--json", "--level", "0.5").stdout)
    [row] = document["answers"]
    release = rs.Release.load(file)
    assert row["value"] == release.sql(asked)["value"][0].as_py()
    assert row["upper"] - row["value"] == pytest.approx(0.6745 * row["stddev"], rel=1e-3)


def test_long_tables_are_cut_and_say_so(released):
    shown = run("answer", released / "people.release", "--rows", "3").stdout
    assert "and 7 more" in shown
    assert "more tables" in shown


def test_a_report_tells_the_plan_and_the_audit(released, place):
    shown = run("report", released / "people.release").stdout
    assert "Proved" in shown
    assert "plan_hash" in shown
    assert "people-2024" in shown
    assert "Proved" in run("report", _saved(place)).stdout
    assert json.loads(run("report", released / "people.release", "--json").stdout)["audit"]["note"] == "first"


def test_a_simulated_release_spends_nothing_and_says_so_everywhere(place):
    shown = run("release", "people.yaml", "--simulate", "3").stdout
    assert "SIMULATED" in shown
    assert "SIMULATED" in run("answer", "people.release").stdout
    assert "simulated" in (place / "answers.csv").read_text().splitlines()[0]
    assert rs.Ledger.open("budget.db").spent == 0


def test_data_in_several_files_are_released_as_one_within_a_memory_limit(place):
    header, *rows = (place / "people.csv").read_text().splitlines()
    for part in range(2):
        (place / f"part-{part}.csv").write_text("\n".join([header, *rows[part::2]]) + "\n")
    whole = ("release", "people.yaml", "--simulate", "3")
    run(*whole)
    expected = rs.Release.load("people.release").measurements.values
    run(*whole, "--data", "part-*.csv", "--memory-limit", "200MB", "--force")
    found = rs.Release.load("people.release").measurements.values
    assert all((one == two).all() for one, two in zip(expected, found, strict=True))
    assert "no amount of memory" in mistake(*whole, "--memory-limit", "much", "--force")
    assert mistake(*whole, "--data", "none-*.csv") == "error: there is no data file none-*.csv\n"


def test_a_kept_plan_is_measured_and_another_specs_plan_is_refused(place):
    (place / "people.yaml").write_text(SPEC.replace("output:", "output:\n  plan: people.plan"))
    run("plan", "people.yaml")
    run("release", "people.yaml", "--simulate", "1")
    assert rs.Release.load("people.release").plan.hash == rs.Plan.load("people.plan").hash
    for old, new, word in (
        ("maximum: 4", "maximum: 5", "schema"),
        ("up to 2", "up to 1", "tables"),
        ("rho: 0.5", "rho: 0.4", "budget"),
        ("max_records: 1", "max_records: 2", "unit of privacy"),
    ):
        (place / "other.yaml").write_text(SPEC.replace(old, new))
        words = mistake("release", "other.yaml", "--plan", "people.plan", "--force")
        assert f"a plan for another {word}" in words
    assert rs.Ledger.open("budget.db").spent == 0


def test_everything_speaks_json(released, place):
    file = released / "people.release"
    for words in (
        ("init", "people.csv", "-o", "draft.yaml"),
        ("plan", "people.yaml"),
        ("release", "people.yaml"),
        ("answer", file),
        ("answer", file, "-o", "some.csv"),
        ("report", file),
        ("budget", "create", "more.db", "--approx-dp", "1", "1e-6", "--dataset", "d"),
        ("budget", "show", "budget.db"),
    ):
        assert isinstance(json.loads(run(*words, "--json").stdout), dict)


# Drafts


def test_a_draft_uses_no_values_unless_told(place):
    (place / "odd.csv").write_text("id,yes,income,town\n1,true,10.5,Secretville\n77,false,990.25,\n")
    run("init", "odd.csv")
    draft = (place / "odd.yaml").read_text()
    assert "Secretville" not in draft
    assert "77" not in draft
    assert "CONFIRM" in mistake("plan", "odd.yaml")
    run("init", "odd.csv", "--read-values", "--force")
    read = (place / "odd.yaml").read_text()
    assert read.count("read from the data: CONFIRM") == 3
    assert "missing values are counted as (missing): CONFIRM that" in read
    assert "4 columns" not in run("plan", "odd.yaml").stdout


def test_a_draft_never_replaces_a_file_unless_told(place):
    assert "people.yaml exists" in mistake("init", "people.csv")
    assert (place / "people.yaml").read_text() == SPEC
    run("init", "people.csv", "--force")


def test_a_draft_finds_its_data_from_its_own_folder(place):
    (place / "specs").mkdir()
    run("init", "people.csv", "--read-values", "-o", "specs/mine.yaml")
    assert "../people.csv" in (place / "specs" / "mine.yaml").read_text()


def test_a_draft_takes_columns_and_bounds_from_smartnoise(place):
    (place / "metadata.yaml").write_text(
        '"":\n  PUMS:\n    people:\n      max_ids: 2\n      rows: 10\n'
        "      age: {type: int, lower: 0, upper: 4}\n      pid: {type: int, private_id: true}\n"
        "      income: {type: float, lower: 0, upper: 100}\n      married: {type: boolean}\n"
    )
    run("init", "--from-smartnoise", "metadata.yaml", "-o", "imported.yaml")
    document = json.loads(run("plan", "imported.yaml", "--json").stdout)
    assert document["privacy"]["unit"]["max_records"] == 2
    assert {row["name"] for row in document["tables"]} >= {"age x income", "married"}
    (place / "bad.yaml").write_text("a: {b: {c: {age: {type: blob}}}}\n")
    assert "type 'blob'" in mistake("init", "--from-smartnoise", "bad.yaml", "-o", "x.yaml")


def test_smartnoise_metadata_that_cannot_be_followed_is_one_line(place):
    for text, words in (
        ("a: {b: {c: {pid: {type: int, private_id: true}}}}", "no columns besides the key of persons"),
        ("a: {b: {c: {x: {type: int}}, d: {x: {type: int}}}}", "there are 'c', 'd'"),
        ("a: 3", "there are none"),
    ):
        (place / "bad.yaml").write_text(text)
        assert words in mistake("init", "--from-smartnoise", "bad.yaml", "-o", "x.yaml")


def test_a_draft_says_where_bounds_are_not_known(place):
    (place / "m.yaml").write_text("a: {b: {c: {x: {type: float}, y: {type: int}, z: {type: string}}}}")
    run("init", "--from-smartnoise", "m.yaml", "-o", "x.yaml")
    assert (place / "x.yaml").read_text().count(": CONFIRM") == 4


def test_a_draft_reads_parquet_and_leaves_out_what_has_too_many_values(place):
    import pyarrow as pa
    from pyarrow import parquet

    many = pa.table({"name": [f"n{number}" for number in range(300)], "big": list(range(0, 300_000, 1000))})
    parquet.write_table(many, "many.parquet")
    run("init", "many.parquet")
    assert "names and types" in (place / "many.yaml").read_text()
    run("init", "many.parquet", "--read-values", "--force")
    draft = (place / "many.yaml").read_text()
    assert "300 different values" in draft
    assert "n299" not in draft
    assert "bins: [0.0, 30000.0" in draft


def test_data_that_cannot_be_read_are_one_line(place):
    (place / "empty.csv").write_text("")
    (place / "odd.parquet").write_text("odd")
    for name, words in (
        ("empty.csv", "cannot be read"),
        ("odd.parquet", "cannot be read"),
        ("people.yaml", "ending"),
    ):
        for more in ((), ("--read-values",)):
            assert words in mistake("init", name, "-o", "x.yaml", *more)
    (place / "folder").mkdir()
    assert "is a folder" in mistake("init", "people.csv", "-o", "folder")


# Around the commands


def test_progress_is_drawn_for_a_terminal_and_told_now_and_then_elsewhere(monkeypatch, capsys):
    with progress_bar() as told:
        told("solving", 0.5)
    assert capsys.readouterr().err == ""  # in less than ten seconds
    times = iter([0.0, 1.0, 5.0, 11.0, 12.0, 400.0, 410.0])
    lines = []
    told = progress_lines(lines.append, lambda: next(times))
    for words, fraction in (("a", 0.1), ("a", 0.5), ("a", 0.6), ("a", 0.8), ("b", 0.0), ("b", 0.05)):
        told(words, fraction)
    assert lines == ["a: 60%, about 7 s left", "b: 0%", "b: 5%, about 3 min left"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar() as drawn:
        assert drawn is not None
        drawn("solving", 0.5)


def test_the_demo_command_runs_the_demo(monkeypatch, tmp_path):
    monkeypatch.setattr("residua.demo.main", lambda folder: print(folder.name))
    assert run("demo", tmp_path / "files").stdout == "files\n"


def test_errors_of_the_system_are_one_line_too(place, monkeypatch):
    def fail(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("residua.release.Release.load", fail)
    assert mistake("answer", "x.release") == "error: x.release: Permission denied\n"


# Mistakes


def test_a_wrong_command_line_ends_with_two():
    for words in (
        ("plan",),
        ("nothing",),
        ("init",),
        ("answer", "x", "--table", "a", "--sql", "b"),
        ("budget", "create", "b.db", "--dataset", "d"),
        ("budget", "create", "b.db", "--dataset", "d", "--zcdp", "1", "--gdp", "1"),
    ):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 2, words
        assert "Traceback" not in result.output


def test_mistakes_with_files_are_one_line_and_spend_nothing(place):
    lone = SPEC.replace("ledger: budget.db\n", "").replace("data: people.csv\n", "")
    (place / "lone.yaml").write_text(lone)
    (place / "bad.csv").write_text("age,sex\n9,F\n")
    assert "no data" in mistake("release", "lone.yaml")
    assert "residua budget create" in mistake("release", "lone.yaml", "--data", "people.csv")
    assert "there is no data file" in mistake("release", "people.yaml", "--data", "none.csv")
    assert "there is no ledger" in mistake("release", "people.yaml", "--ledger", "none.db")
    assert "is not a ledger" in mistake("release", "people.yaml", "--ledger", "people.csv")
    assert "'9' at row 0" in mistake("release", "people.yaml", "--data", "bad.csv")
    assert "was not written by Residua" in mistake("release", "people.yaml", "--plan", "people.csv")
    assert "there is no file" in mistake("answer", "none.release")
    assert "there is no file" in mistake("report", "none.plan")
    told = mistake("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "d")
    assert "never replaced" in told
    told += mistake("budget", "show", "none.db") + mistake("budget", "check", "none.db", "none.release")
    assert told.count("residua budget create none.db") == 2
    assert "Ledger." not in told  # advice for those who write Python
    assert "above zero" in mistake("budget", "create", "b.db", "--zcdp", "-1", "--dataset", "d")
    assert "no data file" in mistake("init", "none.csv", "-o", "n.yaml")
    assert "cannot be read" in mistake("plan", "none.yaml")
    assert "no folder" in mistake("plan", "people.yaml", "-o", "none/people.plan")
    (place / "answers.csv").write_text("precious")
    assert "answers.csv exists" in mistake("release", "people.yaml")
    assert rs.Ledger.open("budget.db").spent == 0
    assert (place / "answers.csv").read_text() == "precious"
    assert not (place / "people.release").exists()


def test_a_release_beyond_the_budget_is_refused(place):
    run("release", "people.yaml")
    run("release", "people.yaml", "--force")
    before = (place / "people.release").read_bytes()
    assert "left" in mistake("release", "people.yaml", "--force")
    assert (place / "people.release").read_bytes() == before


def test_questions_that_cannot_be_answered_are_one_line(released):
    file = released / "people.release"
    assert "did you mean 'age'" in mistake("answer", file, "--table", "aeg")
    assert "confidence level" in mistake("answer", file, "--level", "2")
    assert ".csv or .parquet" in mistake("answer", file, "-o", "out.xls")
    mistake("answer", file, "--sql", "SELECT nothing")


LINES = SPEC.splitlines()
REQUIRED = [
    number
    for number, line in enumerate(LINES)
    if re.match(r"(schema|tables|privacy):|  - name:|      (minimum|maximum|enum):|  (definition|rho):", line)
]
OTHER_VALUES = {
    "minimum: 0": ("zero", "9", "[]", "{}", "0.5", "2030-13-45"),
    "enum: [F, M]": ("F", "[F, F]", "[]", "[1, 2]", "[no, yes]", "{F: M}"),
    "weight: 2": ("0", "-2", "two", "[2]", ".nan", ".inf", "true"),
    "age: prefix": (
        "prefixes",
        "3",
        "[prefixes]",
        "{width: 0}",
        "{width: 99}",
        "{level: state}",
        "{}",
        "affine",
    ),
    "sex: identity": ("ident", "{buckets: [1]}", "{buckets: [[X]]}", "null"),
    "marginals: up to 2": ("up to", "two", "9", "-1", "[]", "[1, x]", "1.5", "true", "null"),
    "definition: zcdp": ("zCDP", "gdp", "approx_dp", "3", "[zcdp]", "null"),
    "rho: 0.5": ("-0.5", "0", ".nan", ".inf", "half", "1/0", "[0.5]", "true", "1e999", "{}"),
    "max_records: 1": ("0", "-1", "1.5", "'1'", "many", "true", "[]"),
    "neighbours: add_remove": ("add-remove", "replace", "1"),
    "method: auto": ("magic", "3", "[]", "null"),
    "data: people.csv": ("3", "[people.csv]", "''"),
    "ledger: budget.db": ("3", "{path: budget.db}", "''"),
    "answers: answers.csv": ("answers", "answers.xlsx", "3"),
    "level: 0.95": ("95", "0", "-1", "high", "true"),
    "- name: age": ("3", "[age]", "''"),
    "type: integer": ("int", "date", "3", "number", "boolean: true"),
}


def mutations() -> list[tuple[str, str]]:
    """Specs with one mistake each, and what was done to them."""
    draw = random.Random(20)
    found = []
    for number in REQUIRED:
        rest = [line for at, line in enumerate(LINES) if at != number]
        found.append((f"without {LINES[number].strip()}", "\n".join(rest)))
    for old, values in OTHER_VALUES.items():
        assert SPEC.count(old) == 1
        key = old.split(":")[0]
        found += [(f"{key}: {value}", SPEC.replace(old, f"{key}: {value}")) for value in values]
    indented = [number for number, line in enumerate(LINES) if line.startswith("  ")]
    for number in draw.sample(indented, 10):
        lines = list(LINES)
        lines[number] = "\t" + lines[number].lstrip()
        found.append((f"tab at line {number + 1}", "\n".join(lines)))
    for number in draw.sample(range(len(LINES)), 10):
        lines = list(LINES)
        lines[number] = re.sub(r"([a-z_]+):", r"\1: {", lines[number], count=1)
        found.append((f"open brace at line {number + 1}", "\n".join(lines)))
    return found


MUTATIONS = mutations()


def test_there_are_about_a_hundred_mutations():
    assert len(MUTATIONS) >= 100


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """A folder with data and a ledger that nothing may touch."""
    folder = tmp_path_factory.mktemp("spoilt")
    write_people(folder)
    run("budget", "create", folder / "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    return folder


@pytest.mark.parametrize("text", [text for _, text in MUTATIONS], ids=[name for name, _ in MUTATIONS])
def test_a_spoilt_spec_is_one_line_that_names_the_place_and_spends_nothing(spoilt, text):
    path = spoilt / "spoilt.yaml"
    path.write_text(text)
    message = mistake("release", path)
    assert re.match(rf"error: {re.escape(str(path))}, line \d+(, [^:]+)?: .+", message)
    assert rs.Ledger.open(spoilt / "budget.db").spent == 0
    assert not list(spoilt.glob("*.release"))


# Screens


def test_columns_are_aligned_and_end_without_blanks():
    assert columns(("a", "b"), [("long", "1"), ("x", "22")]) == ["  a      b", "  long   1", "  x     22"]


@pytest.mark.parametrize(("stddev", "places"), [(0.0, 1), (0.02, 3), (3.0, 1), (25.0, 0), (4000.0, 0)])
def test_numbers_are_shown_as_far_as_they_mean_something(stddev, places):
    assert decimals_for(stddev) == places


def test_importing_residua_loads_nothing_of_the_command_line():
    program = (
        "import sys, residua; print(*(n for n in ('typer', 'rich', 'pydantic', 'yaml') if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
