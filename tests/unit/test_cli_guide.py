"""The guide to a first release: what it tells people to type works, in its order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.spec.models import KINDS, SpecFile

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "first-release.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE, flags=re.DOTALL)


def test_the_guide_works_from_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [program], [spec] = blocks("python"), blocks("yaml")
    subprocess.run([sys.executable, "-c", program], check=True)
    for number, lines in enumerate(blocks("sh")):
        if number == 1:
            Path("people.yaml").write_text(spec)
        for line in lines.splitlines():
            name, *words = shlex.split(line)
            assert name == "residua"
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, (line, result.output)
    assert rs.Ledger.open("budget.db").spent == rs.zcdp("0.1").rho
    assert not rs.Release.load("people.release").simulated
    assert {"people-answers.csv", "answers.parquet"} <= {path.name for path in tmp_path.iterdir()}


def test_the_guide_names_every_kind_of_entry_and_every_key():
    for kind in KINDS:
        assert f"`{{{kind}: " in GUIDE
    for name, field in SpecFile.model_fields.items():
        if name != "objective":
            assert f"{field.alias or name}" in GUIDE


@pytest.mark.parametrize("entry", re.findall(r"^\| `(\{.*?\})` \|", GUIDE, flags=re.MULTILINE))
def test_every_entry_in_the_guide_is_understood(entry, tmp_path):
    schema = rs.Schema(
        age=rs.Integer(0, 3), sex=rs.Categorical("F", "M"), work=rs.Categorical("no", "yes")
    ).fields()
    written = {
        "schema": schema,
        "tables": [yaml.safe_load(entry)],
        "privacy": {"definition": "zcdp", "rho": 1},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(written))
    result = CliRunner().invoke(app, ["plan", str(path)])
    assert result.exit_code == 0, result.output
