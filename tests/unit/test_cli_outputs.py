"""`residua release` and its files: whatever keeps them from being written is found out before the debit."""

import errno
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import residua as rs
from residua import _files
from residua.cli import app

SPEC = """\
schema:
  fields:
  - {{name: age, type: integer, constraints: {{minimum: 0, maximum: 199}}}}
tables:
- marginals: up to 1
privacy: {{definition: zcdp, rho: 0.5}}
method: identity
data: people.csv
ledger: budget.db
output: {{answers: {answers}, release: {release}}}
"""
LIMITED = """\
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from residua.cli import main
main()
"""


def run(*words, expect: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result


def mistake(*words) -> str:
    result = run(*words, expect=1)
    assert result.stdout == ""
    assert re.fullmatch(r"error: .+\n", result.stderr)
    return result.stderr


def asked(answers: str = "answers.csv", release: str = "people.release") -> None:
    with open("people.yaml", "w", encoding="utf-8") as file:
        file.write(SPEC.format(answers=answers, release=release))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with data, a spec and a ledger."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("age\n1\n30\n30\n")
    run("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    asked()
    return tmp_path


@pytest.fixture
def unspent(place):
    """After the test nothing was spent, nothing was written and nothing was left behind."""
    before = {path: path.read_bytes() for path in place.iterdir()}
    before.pop(place / "people.yaml")
    yield place
    after = {path: path.read_bytes() for path in place.iterdir()}
    after.pop(place / "people.yaml")
    assert after == before


@pytest.mark.parametrize("output", ["answers", "release"])
def test_a_name_that_is_too_long_is_found_out_before_the_debit(unspent, output):
    asked(**{output: "n" * 300 + ".csv"})
    assert "File name too long" in mistake("release", "people.yaml")


def test_the_longest_name_that_a_folder_takes_is_taken(place):
    names = {"answers": "a" * 251 + ".csv", "release": "b" * 255}
    asked(**names)
    run("release", "people.yaml")
    assert all((place / name).is_file() for name in names.values())


@pytest.mark.parametrize("output", ["answers", "release"])
def test_a_folder_that_cannot_be_written_is_found_out_before_the_debit(unspent, monkeypatch, output):
    def closed(path, *others):
        if os.path.basename(os.path.dirname(path)) == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return open(path, *others)

    folder = unspent / "closed"
    folder.mkdir()
    monkeypatch.setattr(_files, "open", closed, raising=False)
    asked(**{output: "closed/x.csv"})
    assert "Permission denied" in mistake("release", "people.yaml")
    folder.rmdir()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_is_found_out_before_the_debit(unspent, ending):
    pytest.importorskip("resource", reason="platform: there are no limits on the size of files")
    asked(answers=f"answers.{ending}")
    command = [sys.executable, "-c", LIMITED, "15000", "release", "people.yaml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert re.fullmatch(rf"error: answers.{ending}: File too large\n", found.stderr)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_was_set_aside_is_enough_and_what_is_not_needed_is_given_back(place, monkeypatch, ending):
    rooms = {}
    real = _files._set_aside

    def watched(stream, room, target):
        rooms[target.name] = room
        real(stream, room, target)

    monkeypatch.setattr(_files, "_set_aside", watched)
    asked(answers=f"answers.{ending}")
    run("release", "people.yaml")
    assert set(rooms) == {"people.release", f"answers.{ending}"}
    for name, room in rooms.items():
        assert room - 100_000 < (place / name).stat().st_size <= room
    release = rs.Release.load("people.release")
    assert not release.simulated
    if ending == "csv":
        assert "\0" not in (place / "answers.csv").read_text()


def test_room_is_set_aside_where_the_system_has_no_call_for_it(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with _files.whole_file(tmp_path / "a", 3_000_000) as stream:
        assert os.fstat(stream.fileno()).st_size == 3_000_000
        stream.write(b"few")
    assert (tmp_path / "a").read_bytes() == b"few"


def test_memory_that_is_lacking_for_the_answers_is_found_out_before_the_debit(unspent, monkeypatch):
    def lacking(*_):
        raise MemoryError

    monkeypatch.setattr("residua.release.Release._with_interval", lacking)
    assert "memory" in mistake("release", "people.yaml")


@pytest.mark.parametrize(
    "names",
    [
        {"answers": "same.csv", "release": "same.csv"},
        {"answers": "people.csv"},
        {"release": "people.csv"},
        {"release": "./people.yaml"},
    ],
)
def test_an_output_is_no_other_output_and_no_input_even_by_force(unspent, names):
    asked(**names)
    assert "two things" in mistake("release", "people.yaml", "--force")


def test_no_output_replaces_a_ledger_even_by_force(unspent):
    before = (unspent / "budget.db").read_bytes()
    assert "perhaps a ledger" in mistake("plan", "people.yaml", "-o", "budget.db", "--force")
    asked(release="budget.db")
    assert "perhaps a ledger" in mistake("release", "people.yaml", "--force")
    assert (unspent / "budget.db").read_bytes() == before


def test_a_release_that_cannot_get_its_name_is_not_lost(place, monkeypatch):
    real = os.replace

    def refused(source, target):
        if os.path.basename(target) == "people.release":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        real(source, target)

    monkeypatch.setattr(os, "replace", refused)
    told = mistake("release", "people.yaml")
    [kept] = re.findall(r"\S*\.part", told)
    assert rs.Release.load(kept).audit["ledger"]["dataset"] == "people-2024"


def test_a_ledger_that_cannot_note_a_release_does_not_take_it_away(place, monkeypatch):
    def locked(*_):
        raise rs.LedgerError("it is kept locked")

    monkeypatch.setattr(rs.Ledger, "complete", locked)
    assert "written and paid for, but the ledger could not note" in mistake("release", "people.yaml")
    assert rs.Release.load("people.release").hash
    assert (place / "answers.csv").is_file()


def test_answers_that_fail_after_all_do_not_take_the_release_with_them(place, monkeypatch):
    import pyarrow.csv

    written = []

    class Failing(pyarrow.csv.CSVWriter):
        def write_table(self, *others):
            written.append(1)
            if len(written) > 1:  # the first is of the rehearsal
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().write_table(*others)

    monkeypatch.setattr(pyarrow.csv, "CSVWriter", Failing)
    mistake("release", "people.yaml")
    assert rs.Release.load("people.release").hash
    assert sorted(path.name for path in place.iterdir()) == [
        "budget.db",
        "people.csv",
        "people.release",
        "people.yaml",
    ]
