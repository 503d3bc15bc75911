"""Tables with rows and columns: margins that add up, escaped labels, marked and suppressed cells."""

import json
import re
import sys

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import residua as rs
from residua.accuracy.reliability import Reliability
from residua.cli.app import app
from residua.report import release_contents
from residua.report.crosstabs import tables_section

SCHEMA = rs.Schema(
    age=rs.Categorical("young", "old"),
    sex=rs.Categorical("F", "M"),
    work=rs.Categorical("<b>", "none|ever", "a"),
)
CODES = np.stack([np.arange(900) % 2, np.arange(900) % 3 // 2, (np.arange(900) % 7) // 3], 1)


@pytest.fixture(scope="module")
def release() -> rs.Release:
    plan = rs.plan(rs.marginals(SCHEMA, up_to=3), rs.zcdp("0.5"))
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=1))


def test_margins_are_the_sums_of_what_they_stand_beside(release):
    found = release.crosstab(["age", "sex"], "work")
    np.testing.assert_allclose(found.values[:-1].sum(axis=0), found.values[-1])
    np.testing.assert_allclose(found.values[:, :-1].sum(axis=1), found.values[:, -1])
    np.testing.assert_allclose(
        found.values[:-1, :-1].reshape(2, 2, 3), release.table("age", "sex", "work").values
    )
    assert found.rows[-1] == ("Total", "Total")


def test_pandas_has_headings_and_every_figure(release):
    frame = release.crosstab("sex", ["age", "work"]).to_pandas("stddev")
    assert frame.columns.names == ["age", "work"]
    assert frame.index.tolist() == ["F", "M", "Total"]
    assert frame.shape == (3, 7)
    assert release.crosstab("sex", margins=False).to_pandas().shape == (2, 1)


def test_html_escapes_labels_and_spans_headings(release):
    page = release.crosstab("sex", ["age", "work"]).to_html()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert '<th scope="col" colspan=3>young</th>' in page
    assert page.count("<tr") == 2 + 3 + 2
    assert "± is half the width of the 95% interval, from" in page
    assert "±" not in release.crosstab("sex", "work").to_html(errors=False)


def test_markdown_escapes_bars(release):
    lines = release.crosstab("sex", "work").to_markdown().splitlines()
    assert lines[0] == "| sex | <b> | none\\|ever | a | Total |"
    assert re.fullmatch(r"\| F \| [\d,]+ ± [\d.]+ .*\|", lines[2])


def test_unreliable_cells_are_marked_greyed_or_suppressed_by_a_rule_that_is_stated(release):
    marked = release.crosstab("sex", "work", reliability=0.02)
    assert marked.unsure.any()
    assert not marked.unsure.all()
    assert "above 2% of them are followed by *" in marked.to_html()
    assert re.search(r"<td>\d+\*<span", marked.to_html())
    assert re.search(r"\d\* ± ", str(marked))
    greyed = release.crosstab("sex", "work", reliability=0.02, unreliable="grey").to_html()
    assert greyed.count('"grey"') + greyed.count(' grey"') == marked.unsure.sum()
    left_out = release.crosstab("sex", "work", reliability=0.02, unreliable="suppress")
    assert left_out.to_pandas().isna().to_numpy().sum() == marked.unsure.sum()
    assert left_out.to_arrow()["value"].null_count == marked.unsure.sum()
    assert ".." in left_out.to_markdown()
    assert ".." in str(left_out)


def test_intervals_that_hold_zero_are_a_rule_too(release):
    found = release.crosstab("sex", "work", reliability="zero", level=0.9999999)
    np.testing.assert_array_equal(found.unsure, found.lower <= 0)
    assert "Numbers whose interval holds zero are followed by *." in found.to_markdown()


def test_arrow_has_a_row_for_each_cell_margins_included(release):
    found = release.crosstab(["age", "sex"], "work").to_arrow()
    assert found.column_names == ["age", "sex", "work", "value", "stddev", "lower", "upper", "reliable"]
    assert len(found) == 5 * 4
    assert found.slice(19).to_pylist()[0]["age"] == "Total"


def test_the_text_of_a_table_needs_no_other_package(release):
    lines = str(release.crosstab(["age", "sex"], "work")).splitlines()
    assert lines[0] == "Number of records by age, sex and work"
    assert lines[2].split() == ["age", "sex", "<b>", "none|ever", "a", "Total"]
    assert lines[4].startswith("       M")
    assert "protects nobody" in lines[-1]


def test_rows_alone_have_one_column(release):
    found = release.crosstab("sex")
    assert found.to_arrow().column_names[:2] == ["sex", "value"]
    assert '<th scope="col">count</th>' in found.to_html()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r.crosstab("sex", "sex"), "none of them again for its columns"),
        (lambda r: r.crosstab([], "sex"), "needs attributes for its rows"),
        (lambda r: r.crosstab("sex", unreliable="hide"), "marked, greyed or suppressed, not 'hide'"),
        (lambda r: r.crosstab("sex", reliability=-1), "such as 0.3, or 'zero'"),
        (lambda r: r.to_excel("t.xlsx", []), "no table here has rows and columns"),
    ],
)
def test_what_is_no_table_is_refused(release, ask, words):
    with pytest.raises(rs.WorkloadError, match=words):
        ask(release)


def test_a_workbook_without_its_package_names_the_extra(release, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(rs.ResiduaError, match=r"pip install 'residua\[excel\]'"):
        release.crosstab("sex").to_excel(tmp_path / "t.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_family_over_two_attributes_is_no_table_of_their_cells(tmp_path):
    schema = rs.Schema(a=rs.Integer(0, 2), b=rs.Integer(0, 3))
    plan = rs.plan(rs.table(schema, {("a", "b"): rs.affine}), rs.zcdp(1))
    found = rs.measure(plan, {"a": [0, 1], "b": [3, 1]}, ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(rs.WorkloadError, match="no table here has rows and columns"):
        found.to_excel(tmp_path / "t.xlsx")


def test_the_command_line_writes_tables_with_rows_and_columns(release, tmp_path):
    release.save(tmp_path / "people.release")

    def answer(*words: str) -> str:
        result = CliRunner().invoke(app, ["answer", str(tmp_path / "people.release"), *words])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert "none|ever" in answer("--rows", "sex", "--columns", "age,work").splitlines()[2]
    for ending, words in [("html", "<caption>"), ("md", "| sex |"), ("csv", '"sex","work","value"')]:
        written = tmp_path / f"table.{ending}"
        answer("--rows", "sex", "--columns", "work", "--reliability", "0.02", "-o", str(written))
        assert words in written.read_text()
    answer("--rows", "sex", "-o", str(tmp_path / "table.parquet"))
    assert parquet.read_table(tmp_path / "table.parquet").column_names[0] == "sex"
    assert len(json.loads(answer("--rows", "sex", "--no-margins", "--json"))[0]["cells"]) == 2
    assert (
        answer("--sql", "SELECT sex, AVG(1) AS one, COUNT(*) AS n FROM t GROUP BY sex").split()[0]
        == "SIMULATED:"
    )
    answer("--sql", "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex LIMIT 1", "-o", str(tmp_path / "s.csv"))
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--columns", "sex"], "--columns goes with --rows"),
        (["--rows", "sex", "--table", "age"], "give one of --table, --sql and --rows"),
        (["--rows", "sex", "-o", "t.doc"], ".csv, .parquet, .xlsx, .html or .md"),
        (["--table", "sex", "-o", "t.html"], "with --rows also .xlsx, .html or .md"),
        (["--rows", "sexx"], "sexx"),
        (["--rows", "sex", "--reliability", "often"], "such as 0.3, or 'zero'"),
    ],
)
def test_mistakes_on_the_command_line_say_what_to_write(release, tmp_path, words, expected):
    release.save(tmp_path / "people.release")
    result = CliRunner().invoke(app, ["answer", str(tmp_path / "people.release"), *words])
    assert result.exit_code != 0
    assert expected in " ".join(result.output.replace("│", " ").split())


def test_a_report_flags_by_the_same_rule_and_states_it(release):
    for unreliable, words in [("mark", "*<small>"), ("grey", '<td class="grey"'), ("suppress", "<td>..")]:
        rule = Reliability(0.02, unreliable)
        page = tables_section(release_contents(release, reliability=rule), {})
        assert rule.describe() in page
        assert words in page
    assert "standard error is above" not in tables_section(release_contents(release), {})
