"""`residua init`: whatever program wrote the file, and without a word that is not true."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import residua as rs
from residua.cli import app
from residua.spec import load_spec
from residua.spec.language import read_document

HEADER = ("age", "sex", "ville de résidence")
ROWS = (("31", "F", "Orléans"), ("5", "M", "Åbo"), ("40", "F", "Nîmes, la ville"))
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252")


def run(*words, expect: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result


def mistake(*words) -> str:
    result = run(*words, expect=1)
    assert result.stdout == ""
    assert re.fullmatch(r"error: .+\n", result.stderr)
    return result.stderr


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, delimiter: str = ",", encoding: str = "utf-8", newline: str = "\n") -> None:
    lines = [delimiter.join(f'"{cell}"' if "," in cell else cell for cell in row) for row in (HEADER, *ROWS)]
    with open(name, "w", encoding=encoding, newline="") as file:
        file.write(newline.join(lines) + newline)


def drafted(name: str) -> dict[str, str]:
    """The types of a draft's columns."""
    fields = read_document(name).value["schema"]["fields"]
    return {field["name"]: field["type"] for field in fields}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_file_is_drafted_however_it_is_separated_and_encoded(place, delimiter, encoding):
    write("people.csv", delimiter, encoding)
    for more in ((), ("--read-values",)):
        run("init", "people.csv", "--force", *more)
        assert drafted(place / "people.yaml") == dict(
            zip(HEADER, ("integer", "string", "string"), strict=True)
        )
    assert "Nîmes, la ville" in (place / "people.yaml").read_text(encoding="utf-8")


def test_what_was_found_is_told(place):
    write("plain.csv")
    assert "separated" not in run("init", "plain.csv").stdout
    write("odd.csv", ";", "utf-16")
    told = run("init", "odd.csv").stdout
    assert "separated by ';'" in told
    assert "UTF-16" in told
    assert "reading: {encoding: utf-16}" in (place / "odd.yaml").read_text()


def test_delimiter_and_encoding_can_be_given(place):
    (place / "odd.csv").write_bytes(b"a;b:c\n1;2:3\n")
    run("init", "odd.csv", "--delimiter", ":")
    assert list(drafted(place / "odd.yaml")) == ["a;b", "c"]
    (place / "old.csv").write_bytes("größe\n1\n".encode("cp850"))
    run("init", "old.csv", "--encoding", "cp850")
    assert list(drafted(place / "old.yaml")) == ["größe"]
    run("init", "odd.csv", "--delimiter", "tab", "--force")
    assert list(drafted(place / "odd.yaml")) == ["a;b:c"]


def test_wrong_delimiters_and_encodings_are_one_line(place):
    write("people.csv")
    (place / "binary.csv").write_bytes(bytes(range(256)))
    assert "no encoding 'klingon'" in mistake("init", "people.csv", "--encoding", "klingon")
    assert "one character" in mistake("init", "people.csv", "--delimiter", "::")
    write("latin.csv", encoding="cp1252")
    assert "cannot be read" in mistake("init", "latin.csv", "--encoding", "ascii")
    assert "cannot be read" in mistake("init", "binary.csv", "--encoding", "utf-8")
    assert list(place.glob("*.yaml")) == []


def test_a_header_may_hold_line_breaks_and_delimiters_in_quotes(place):
    (place / "odd.csv").write_text('"age\nin years",sex,"a;b;c;d"\n3,F,x\n')
    run("init", "odd.csv")
    assert list(drafted(place / "odd.yaml")) == ["age\nin years", "sex", "a;b;c;d"]


def test_a_draft_does_not_say_that_no_values_were_used_where_types_were_read_from_them(place):
    import pyarrow as pa
    from pyarrow import parquet

    write("people.csv")
    run("init", "people.csv")
    draft = (place / "people.yaml").read_text(encoding="utf-8")
    assert "no values" not in draft
    assert "first rows" in draft
    assert not any(value in draft for row in ROWS for value in row if len(value) > 1)
    parquet.write_table(pa.table({"age": [1, 2]}), "people.parquet")
    run("init", "people.parquet", "--force")
    assert "no values were used" in (place / "people.yaml").read_text(encoding="utf-8")


def test_drafts_write_letters_as_letters_and_nothing_that_yaml_would_not_read_back(place):
    names = ["größe", "naïve\u2028line", "bell\a", "emoji 🙂", "nbsp\u00a0x", "\ufeffmark", "tab\tx", 'q"\\']
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({name: [1] for name in names}), "odd.parquet")
    run("init", "odd.parquet")
    text = (place / "odd.yaml").read_text(encoding="utf-8")
    assert "größe" in text
    assert "emoji 🙂" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert list(drafted(place / "odd.yaml")) == names


def test_one_column_is_one_column(place):
    (place / "one.csv").write_text("age\n1\n")
    assert ": 1 column.\n" in run("init", "one.csv").stdout
    assert run("init", "one.csv", "--json", "--force").exit_code == 0


def test_a_file_name_cannot_write_into_the_draft(place):
    (place / "a\nmethod: x.csv").write_text("age\n1\n")
    run("init", "a\nmethod: x.csv", "-o", "x.yaml")
    assert "method" not in read_document(place / "x.yaml").value


def test_a_path_to_a_database_says_what_to_do_with_it(place):
    (place / "people.duckdb").write_bytes(b"")
    told = mistake("init", "people.duckdb", "-o", "x.yaml")
    assert "name one of its tables, with reading: {table: people}" in told
    plan = rs.plan(rs.table(rs.Schema(a=rs.Integer(0, 1)), ["a"]), rs.zcdp(1))
    with pytest.raises(rs.DataError, match=r"Reading\(table='people'\)"):
        rs.measure(plan, "people.duckdb", ledger=None, noise=rs.simulated(seed=1))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_a_release_of_another_encoding_is_read_as_drafted_and_refused_where_it_is_not_said(place, encoding):
    write("people.csv", ",", encoding)
    run("init", "people.csv", "--read-values")
    run("release", "people.yaml", "--simulate", "1")
    assert rs.Release.load("people.release").table("sex").axes == (("F", "M"),)
    spec = (place / "people.yaml").read_text()
    (place / "people.yaml").write_text(re.sub(r"(?m)^reading: .*\n", "", spec))
    told = mistake("release", "people.yaml", "--simulate", "1", "--force")
    assert "iconv" in told or "outside" in told or "no column" in told


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_draft_of_any_delimiter_can_be_released(place, delimiter):
    write("people.csv", delimiter, newline="\r\n")
    run("init", "people.csv", "--read-values")
    spec = place / "people.yaml"
    assert load_spec(spec).schema.names == HEADER
    run("release", "people.yaml", "--simulate", "1")
    assert rs.Release.load("people.release").table("sex").values.shape == (2,)


@pytest.mark.parametrize("words", [(), ("--read-values",)])
def test_a_draft_of_numbers_says_how_to_publish_their_sums(words):
    chance = np.random.default_rng(1)
    rows = (f"{sex},{pay:.2f}" for sex, pay in zip("FM" * 100, chance.gamma(2, 9000, 200), strict=True))
    Path("people.csv").write_text("\n".join(["sex,pay", *rows, "F,"]))
    run("init", "people.csv", *words)
    text = Path("people.yaml").read_text()
    head, _, rest = text.partition("    # or, to publish sums and means of it instead of counts by bins:\n")
    head = re.sub(r"\n    residua: \{bins.*\n$", "\n", head)
    rest = rest.replace("    # ", "    ", 2)
    rest = rest.replace("- marginals: up to 2", "- families: {sex: identity, pay: [total, sum]}")
    rest = rest.replace("minimum: CONFIRM, maximum: CONFIRM", "minimum: 0, maximum: 90000")
    text = (head + rest).replace("step: CONFIRM", "step: 100").replace("enum: CONFIRM", "enum: [F, M]")
    Path("people.yaml").write_text(text)
    assert "sum of pay" in run("plan", "people.yaml").stdout
    assert ("missing: true" in text) == bool(words)
