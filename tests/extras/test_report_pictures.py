"""Pictures of reports, drawn for real: whole SVG files that show the release's numbers and take any name."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.report import charts, release_contents

SCHEMA = rs.Schema({"a<b>&": rs.Categorical("x", "</svg>", 'q"t'), "sex": rs.Categorical("F", "M")})
WORK = rs.marginals(SCHEMA, up_to=2)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of a small release and its pictures."""
    folder = tmp_path_factory.mktemp("report")
    plan = rs.plan(WORK, rs.zcdp("0.5"), method="residualplanner")
    records = {"a<b>&": ["x", "</svg>"] * 50, "sex": ["F", "F", "M", "M"] * 25}
    release = rs.measure(plan, records, ledger=None, noise=rs.simulated(seed=1))
    release.report(folder / "report.html", plots=folder / "plots")
    release.save(folder / "people.release")
    plan.save(folder / "people.plan")
    return folder


def test_every_picture_is_a_whole_svg_file(written):
    names = sorted(path.stem for path in (written / "plots").iterdir())
    assert names == ["budget", "shares", "table-2", "table-3", "table-4"]
    for path in (written / "plots").iterdir():
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert "http" not in re.sub(r'xmlns[:a-z]*="[^"]*"', "", path.read_text())


def test_a_picture_shows_each_label_and_a_bar_for_each_number(written):
    root = ElementTree.parse(written / "plots" / "table-4.svg").getroot()
    words = {"".join(text.itertext()) for text in root.iter() if text.tag.endswith("text")}
    assert {"x", "</svg>", 'q"t', "F", "M"} <= words
    bars = [group for group in root.iter() if "mark-rect" in (group.get("class") or "")]
    assert sum(len(list(group)) for group in bars) == 6


def test_the_page_holds_the_same_pictures_in_the_colours_of_its_theme(written):
    page = (written / "report.html").read_text()
    assert page.count("<svg ") == len(list((written / "plots").iterdir()))
    inside = "".join(re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL))
    assert "var(--ink)" in inside
    assert not re.findall(r'(?:fill|stroke)="#[0-9a-f]+"', inside)


@pytest.mark.parametrize("kind", ["plan", "release"])
def test_the_command_line_writes_the_same_page(written, tmp_path, kind):
    file, page = str(written / f"people.{kind}"), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", file, "-o", str(page), "--title", "A & B", "--level", "0.9"])
    assert result.exit_code == 0, result.output
    assert "<title>A &amp; B</title>" in page.read_text()
    assert "90%" in page.read_text()
    again = CliRunner().invoke(app, ["report", file, "-o", str(page)])
    assert (again.exit_code, "exists" in again.output) == (1, True)
    lost = CliRunner().invoke(app, ["report", file, "--plots", str(tmp_path)])
    assert lost.exit_code == 2


def test_labels_that_svg_cannot_hold_are_written_out():
    schema = rs.Schema({"a\x08": rs.Categorical("\x07bell", "A & B", "\u202e]]>", "<script>")})
    plan = rs.plan(rs.marginals(schema, up_to=1), rs.zcdp(1))
    release = rs.measure(plan, {"a\x08": ["A & B"] * 9}, ledger=None, noise=rs.simulated(seed=1))
    contents = release_contents(release)
    # A control in a chart ends the process that draws it, so it is looked for before anything is drawn.
    for _, chart in charts._charts(contents):
        assert not re.search(r"\\u00(?:0|1|7f)|\\b", json.dumps(chart.to_dict()))
    root = ElementTree.fromstring(charts.pictures_of(contents)["table-2"])
    words = {"".join(text.itertext()) for text in root.iter() if text.tag.endswith("text")}
    assert {"\\x07bell", "A & B", "\\u202e]]>", "<script>"} <= words
