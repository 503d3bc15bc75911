"""Schema files: what is read, what is written, and how mistakes are reported."""

import json
import os
from pathlib import Path

import pytest
import yaml

from residua.errors import SchemaError
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer, Schema

PLACES = Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")], outside="other")


def load(folder: Path, text: str) -> Schema:
    path = folder / "schema.yaml"
    path.write_text(text, encoding="utf-8")
    return Schema.load(path)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(SchemaError) as caught:
        load(folder, text)
    return str(caught.value)


def field(folder: Path, text: str) -> Attribute:
    return load(folder, f"fields:\n- name: x\n  {text}\n")["x"]


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("{type: integer, constraints: {minimum: -1, maximum: 9}}", Integer(-1, 9)),
        ("{type: integer, constraints: {enum: [3, 1]}}", Categorical(3, 1)),
        ("{type: string, constraints: {enum: [F, M]}}", Categorical("F", "M")),
        ("{constraints: {enum: [F, M]}}", Categorical("F", "M")),
        ("{type: boolean}", Categorical(False, True)),
        ("{type: boolean, constraints: {enum: [true, false]}}", Categorical(True, False)),
        ("{type: number, residua: {bins: [0, 0.5, 2]}}", Binned(0, 0.5, 2)),
        ("{residua: {bins: [0, 1], above: true}}", Binned(0, 1, above=True)),
        ("{type: integer, residua: {bins: [0, 10], above: true}}", Binned(0, 10, above=True)),
        ("{type: number, constraints: {minimum: 0}, residua: {bins: [0, 1]}}", Binned(0, 1)),
        (
            "{type: integer, constraints: {minimum: 0, maximum: 9}, residua: {outside: clip}}",
            Integer(0, 9, outside="clip"),
        ),
        (
            "{residua: {outside: other, hierarchy: {levels: [state, county], "
            "rows: [[NY, Kings], [NY, Bronx], [NJ, Essex]]}}}",
            PLACES,
        ),
    ],
)
def test_a_field_gives_its_attribute(tmp_path: Path, text: str, attribute: Attribute) -> None:
    entry = yaml.safe_load(text) | {"name": "x"}
    assert load(tmp_path, json.dumps({"fields": [entry]}))["x"] == attribute
    assert Schema.from_fields({"fields": [entry]})["x"] == attribute


def test_keys_of_table_schema_without_meaning_for_cells_are_passed_over(tmp_path: Path) -> None:
    text = """
    $schema: https://datapackage.org/profiles/2.0/tableschema.json
    missingValues: ["", NA]
    fields:
    - name: sex
      title: Sex of the person
      description: as registered
      format: default
      type: string
      constraints: {required: true, enum: [F, M], maxLength: 1}
    """
    assert load(tmp_path, text) == Schema(sex=Categorical("F", "M"))


def test_a_hierarchy_file_is_found_beside_the_schema_file(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "places.csv").write_text("state,county\nNY,Kings\nNY,Bronx\nNJ,Essex\n")
    text = "residua: {outside: other, hierarchy: {levels: [state, county], path: lists/places.csv}}"
    assert field(tmp_path, text) == PLACES
    document = {"fields": [{"name": "x"} | yaml.safe_load(text)]}
    assert Schema.from_fields(document, folder=tmp_path)["x"] == PLACES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{type: integer}", "an integer needs its range; add constraints.minimum and constraints.maximum"),
        ("{type: integer, constraints: {minimum: 0}}", "add constraints.maximum"),
        ("{type: integer, constraints: {minimum: 9, maximum: 0}}", "Integer(9, 0): the lower bound"),
        ("{type: integer, constraints: {minimum: 0, maximum: '9'}}", "the bound '9' is not a whole number"),
        ("{type: string}", "a string needs its labels; add constraints: {enum: [...]}"),
        ("{}", "a string needs its labels"),
        ("{type: number}", "a number needs bins or a step; add residua: {bins"),
        ("{type: number, constraints: {minimum: 0, maximum: 9}}", "a number needs bins"),
        ("{type: time}", "the type 'time' has no cells"),
        ("{type: interger}", "did you mean 'integer'"),
        (
            "{type: string, constraints: {enum: [no, yes]}}",
            "the label False in constraints.enum is not of type string",
        ),
        ("{type: string, constraints: {enum: [01, 02]}}", "put it in quotes"),
        (
            "{type: integer, constraints: {enum: [1, 2.5]}}",
            "the label 2.5 in constraints.enum is not of type integer",
        ),
        (
            "{type: integer, constraints: {enum: [true]}}",
            "the label True in constraints.enum is not of type integer",
        ),
        ("{type: string, constraints: {enum: F}}", "constraints.enum should be a list"),
        ("{type: string, constraints: {enum: []}}", "Categorical(): no labels"),
        ("{type: string, constraints: {enum: [a, a]}}", "the label 'a' is there twice"),
        ("{type: string, constraints: [a]}", "constraints should be a mapping"),
        (
            "{type: string, constraints: {enum: [a]}, residua: {outside: clip}}",
            "outside='clip' needs numbers",
        ),
        (
            "{type: string, constraints: {enum: [a]}, residua: {outside: forgive}}",
            "outside='forgive' is not a policy",
        ),
        (
            "{type: string, constraints: {enum: [a]}, residua: {outsid: drop}}",
            "no key 'outsid' (did you mean 'outside'?)",
        ),
        ("{type: number, residua: {bin: [0, 1]}}", "residua has no key 'bin' (did you mean 'bins'?)"),
        ("{type: number, residua: {bins: 3}}", "residua.bins should be a list"),
        (
            "{type: number, residua: {bins: [0, 1e5]}}",
            "the edge '1e5' is text to YAML; write numbers like 100000",
        ),
        ("{type: number, residua: {bins: [1, 0]}}", "edges must increase"),
        ("{type: number, residua: {bins: [0, 1], above: 1}}", "residua.above should be true or false"),
        ("{type: number, residua: {above: true}}", "residua.above needs residua.bins"),
        ("{type: string, residua: {bins: [0, 1]}}", "bins need type: number"),
        (
            "{type: integer, constraints: {enum: [1]}, residua: {bins: [0, 1]}}",
            "bins and enum exclude each other",
        ),
        (
            "{type: number, residua: {hierarchy: {levels: [a], rows: [[x]]}}}",
            "a hierarchy needs type: string",
        ),
        ("{residua: {hierarchy: places.csv}}", "residua.hierarchy should have levels"),
        (
            "{residua: {hierarchy: {level: [a]}}}",
            "residua.hierarchy has no key 'level' (did you mean 'levels'?)",
        ),
        ("{residua: {hierarchy: {rows: [[x]]}}}", "residua.hierarchy needs levels"),
        ("{residua: {hierarchy: {levels: [a]}}}", "needs either path, a CSV file, or rows"),
        (
            "{residua: {hierarchy: {levels: [a], rows: [[x]], path: p}}}",
            "needs either path, a CSV file, or rows",
        ),
        ("{residua: {hierarchy: {levels: [a], rows: [x]}}}", "should be a list of lists"),
        (
            "{residua: {hierarchy: {levels: [a], rows: [[01]]}}}",
            "the name 1 in the row [1] is not text; put it in quotes",
        ),
        ("{residua: {hierarchy: {levels: [a], path: gone.csv}}}", "gone.csv"),
    ],
)
def test_a_mistake_names_the_line_the_field_and_the_remedy(tmp_path: Path, text: str, message: str) -> None:
    found = refusal(tmp_path, "title: t\nfields:\n- {name: x, " + text[1:])
    start = f"{tmp_path / 'schema.yaml'}, line 3, field 'x': "
    assert found.startswith(start)
    assert message in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no list of fields"),
        ("[1, 2]", "there is no list of fields"),
        ("fields: {}", "there is no list of fields"),
        ("fields: []", "there is no list of fields"),
        ("fields:\n- type: boolean\n", "line 2, field 1: it has no name"),
        ("fields:\n- boolean\n", "line 2, field 1: it has no name"),
        ("fields:\n- {name: no, type: boolean}\n", "its name False is not text, put it in quotes"),
        (
            "fields:\n- {name: a, type: boolean}\n- {name: a, type: boolean}\n",
            "line 3, field 'a': two fields have this name",
        ),
        ("fields:\n- name: a\n  type: boolean\n  name: b\n", "line 4: the key 'name' is there twice"),
        ("fields: [", "not a YAML file"),
        ("a: 1\n---\nb: 2\n", "not a YAML file"),
        ("fields: !!python/object:os.system {}", "not a YAML file"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    found = refusal(tmp_path, text)
    assert found.startswith(str(tmp_path / "schema.yaml"))
    assert message in found


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SchemaError, match="not a YAML file"):
        Schema.load(tmp_path / "schema.yaml")


def test_too_many_cells_in_a_file_are_refused_by_field(tmp_path: Path) -> None:
    text = "fields:\n- {name: id, type: integer, constraints: {minimum: 0, maximum: 3000000000}}\n"
    assert "attribute 'id': 3000000001 cells are too many" in refusal(tmp_path, text)


def test_a_missing_file_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Schema.load(tmp_path / "gone.yaml")


ALL_KINDS = Schema(
    {
        "income>50K": Categorical("no", "yes", "01", "null", "~", "", " a ", "a: b", "é"),
        "age": Integer(0, 99, outside="clip"),
        "code": Categorical(3, -1, outside="drop"),
        "smokes": Categorical(False, True, outside="other"),
        "reversed": Categorical(True, False),
        "income": Binned(0, 0.5, 1e300, above=True, outside="other"),
        "height": Binned(-1, 1),
        "place": PLACES,
        "yes": Integer(5, 5),
    }
)


def test_a_saved_schema_loads_to_an_equal_one(tmp_path: Path) -> None:
    ALL_KINDS.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == ALL_KINDS
    assert Schema.load(os.fspath(tmp_path / "schema.yaml")) == ALL_KINDS
    assert Schema.from_fields(ALL_KINDS.fields()) == ALL_KINDS


def test_a_saved_schema_is_a_table_schema(tmp_path: Path) -> None:
    ALL_KINDS.save(tmp_path / "schema.yaml")
    document = yaml.safe_load((tmp_path / "schema.yaml").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in document["fields"]] == list(ALL_KINDS.names)
    assert {entry["type"] for entry in document["fields"]} <= {"integer", "string", "number", "boolean"}
    assert document["fields"][1]["constraints"] == {"minimum": 0, "maximum": 99}
    assert document["fields"][2]["constraints"] == {"enum": [3, -1]}
    assert document["fields"][5]["residua"]["bins"] == [0, 0.5, 1e300]


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text("old")
    ALL_KINDS.save(path)
    assert os.listdir(tmp_path) == ["schema.yaml"]
    assert path.read_text(encoding="utf-8").startswith("fields:\n")


def test_a_save_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        ALL_KINDS.save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["schema.yaml"]
