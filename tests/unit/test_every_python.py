"""Finding the Pythons that the wheel is tried with (`make test-wheel`)."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "wheel" / "every_python.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("every_python", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder: Path, name: str, text: str) -> Path:
    """An executable that prints a text, or complains and fails where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{f'echo {text}' if text else 'echo no such version >&2; exit 127'}\n")
    path.chmod(0o755)
    return path


def test_the_first_python_of_each_version_is_tried(script, tmp_path):
    first = program(tmp_path / "one", "python3.12", "3 12")
    program(tmp_path / "two", "python3.12", "3 12")
    program(tmp_path / "two", "python3.9", "3 9")
    program(tmp_path / "two", "python3-config", "3 12")
    kept = program(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin", "python", "3 13")
    path = f"{tmp_path / 'one'}:{tmp_path / 'two'}:{tmp_path / 'none'}"
    found = script.pythons({"PATH": path, "PYENV_ROOT": str(tmp_path / "pyenv")}, (3, 11))
    assert found == {(3, 12): first, (3, 13): kept}


def test_a_python_that_does_not_run_is_passed_over_with_a_word(script, tmp_path, capsys):
    shim = program(tmp_path / "shims", "python3.13", "")
    dangling = tmp_path / "shims" / "python3.14"
    dangling.symlink_to(tmp_path / "gone")
    environment = {"PATH": str(tmp_path / "shims"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert script.pythons(environment, (3, 11)) == {}
    told = capsys.readouterr().out
    assert f"passed over {shim}: no such version" in told
    assert f"passed over {dangling}: " in told


def test_every_version_from_the_oldest_on_is_declared(script):
    versions = sorted(script.declared())
    assert versions[0] == (3, 11)
    assert versions == [(3, minor) for minor in range(11, 11 + len(versions))]
    assert sys.version_info[:2] in versions or sys.version_info[:2] > versions[-1]
