"""Release specs: what is written is what is planned, and what is wrong is named on one line."""

import random
import re
import string

import pytest

import residua as rs
from residua.spec import SpecError, load_spec
from residua.spec.language import family_of, ways_of, words_of

TEXT = """\
schema:
  fields:
  - name: age
    type: integer
    constraints: {minimum: 0, maximum: 5}
  - name: sex
    type: string
    constraints:
      enum: [F, M]
  - name: place
    type: string
    residua:
      hierarchy:
        levels: [state, county]
        rows: [[N, a], [N, b], [S, c]]
tables:
- name: first
  weight: 2
  families:
    age: prefix
    sex: identity
- columns: [sex, age]
- all: [1-way, 2-way]
  numeric: prefix
  categorical: identity
- marginals: up to 2
  attributes: [age, sex]
- families:
    place: {level: state}
    age: {buckets: [2, 4]}
- columns: [age, place]
  family: affine
- sql: SELECT sex, COUNT(*) FROM people WHERE age >= 2 GROUP BY sex
privacy:
  definition: zcdp
  rho: 1/10
  unit:
    max_records: 2
    neighbours: add_remove
method: auto
output:
  answers: out.csv
  level: 0.9
ledger: budget.db
data: people.csv
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "people.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_spec_is_the_workload_that_python_would_write(written):
    spec = load_spec(written(TEXT))
    schema = rs.Schema(
        age=rs.Integer(0, 5),
        sex=rs.Categorical("F", "M"),
        place=rs.Hierarchy(("state", "county"), [("N", "a"), ("N", "b"), ("S", "c")]),
    )
    work = (
        2.0 * rs.table(schema, {"age": rs.prefix, "sex": rs.identity}, name="first")
        + rs.table(schema, ["sex", "age"])
        + rs.all_tables(schema, ways=(1, 2), numeric=rs.prefix, categorical=rs.identity)
        + rs.marginals(schema, up_to=2, attributes=("age", "sex"))
        + rs.table(schema, place=rs.level("state"), age=rs.buckets(2, 4))
        + rs.table(schema, {("age", "place"): rs.affine})
        + rs.sql(schema, "SELECT sex, COUNT(*) FROM people WHERE age >= 2 GROUP BY sex")
    )
    assert spec.schema == schema
    assert spec.asks_what(work)
    assert spec.budget == rs.zcdp("0.1")
    assert spec.unit == rs.Unit(max_records=2)
    assert spec.plan().rmse == rs.plan(work, rs.zcdp("0.1"), unit=rs.Unit(2)).rmse


def test_paths_are_relative_to_the_spec_and_have_defaults(written, tmp_path):
    spec = load_spec(written(TEXT))
    assert spec.data == tmp_path / "people.csv"
    assert spec.ledger == str(tmp_path / "budget.db")  # it may be an address
    assert spec.answers_file == tmp_path / "out.csv"
    assert spec.release_file == tmp_path / "people.release"
    assert spec.plan_file is None
    assert spec.level == 0.9


def test_the_schema_may_be_in_a_file_of_its_own(written, tmp_path):
    rs.Schema.of_sizes([3, 2]).save(tmp_path / "schema.yaml")
    spec = load_spec(
        written("schema: schema.yaml\ntables: [{marginals: 1}]\nprivacy: {definition: gdp, mu: 1}\n")
    )
    assert spec.schema.sizes == (3, 2)
    assert spec.workload.tables == 2


@pytest.mark.parametrize(
    ("privacy", "budget"),
    [
        ("{definition: zcdp, rho: 0.1}", rs.zcdp("0.1")),
        ("{definition: gdp, mu: 1/2}", rs.gdp("1/2")),
        ("{definition: approx_dp, epsilon: 1, delta: 1e-6}", rs.approx_dp(1, "1e-6")),
        ("{definition: pure_dp, epsilon: '0.5'}", rs.pure_dp("0.5")),
        ("{definition: privacy_cost, cost: 2}", rs.privacy_cost(2)),
    ],
)
def test_every_definition_of_privacy_can_be_written(written, privacy, budget):
    text = re.sub(r"privacy:\n(  .*\n)+", f"privacy: {privacy}\n", TEXT)
    assert load_spec(written(text)).budget == budget


def test_a_pure_budget_is_planned_with_laplace_noise(written):
    text = TEXT.replace("definition: zcdp", "definition: pure_dp").replace("rho:", "epsilon:")
    assert load_spec(written(text)).plan().strategy.law == "laplace"


def test_families_and_ways_are_read_as_python_writes_them():
    assert repr(family_of({"width": 3})) == repr(rs.width(3))
    assert repr(family_of({"buckets": {"low": ["a"], "high": ["b"]}})) == repr(
        rs.buckets({"low": ["a"], "high": ["b"]})
    )
    assert ways_of("up to 3-way").numbers(2) == (0, 1, 2)
    assert ways_of(["1-way", 2]).numbers(9) == (1, 2)


def test_a_place_is_spelt_with_entries_counted_from_one():
    assert words_of(()) == ""
    assert words_of(("schema", "fields", 0, "name")) == "schema.fields entry 1, name"


# Mistakes


def refusal(path) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path).plan()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}, line ")
    return message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rho: 1/10", "rh: 1/10", 36, "privacy.rh: there is no such key (did you mean 'rho'?)"),
        ("rho: 1/10", "rho: -1", 36, "privacy.rho: rho must be above zero"),
        ("  rho: 1/10\n", "", 34, "privacy: zcdp needs rho"),
        ("rho: 1/10", "rho: 1\n  mu: 1", 34, "privacy: mu does not go with zcdp"),
        ("age: prefix", "age: prefx", 20, "tables entry 1, families.age: there is no query family 'prefx'"),
        ("age: prefix", "age: width", 20, "width needs its own word, such as {width: 3}"),
        (
            "    age: prefix",
            "    Age: prefix",
            19,
            "attribute 'Age' is not in the schema (did you mean 'age'?)",
        ),
        ("weight: 2", "weight: 0", 18, "tables entry 1, weight: a weight is a number above zero"),
        ("{level: state}", "{level: stat}", 28, "no level 'stat' (did you mean 'state'?)"),
        ("  family: affine", "  family: affine\n  sql: x", 31, "an entry has one of"),
        ("  attributes: [age, sex]", "  family: prefix", 26, "'family' does not go with 'marginals'"),
        ("COUNT(*)", "SUM(sex)", 33, "tables entry 7, sql: "),
        ("minimum: 0", "minimum: zero", 3, "field 'age'"),
        ("minimum: 0", "minimum: CONFIRM", 5, "schema.fields entry 1, constraints.minimum: replace CONFIRM"),
        ("max_records: 2", "max_records: 0", 38, "privacy.unit.max_records"),
        ("add_remove", "add", 39, "'add' is not one of add_remove, replace_one"),
        ("method: auto", "method: aut", 40, "there is no method 'aut' (did you mean 'auto'?)"),
        ("method: auto", "objective: least", 40, "objective: there is no objective 'least'"),
        ("rho: 1/10", "rho: 1/10\n  unit: 3", 38, "the key 'unit' is there twice"),
        ("output:", "output: 3\nother:", 42, "there is no such key"),
        ("  - name: age", "  - 3\n  - name: age", 3, "field 1: it has no name"),
        ("  family: affine", "  numeric: affine", 31, "affine"),
        ("columns: [age, place]", "columns: [age, sex, place]", 31, "affine is on two columns"),
        ("columns: [sex, age]", "columns: [sex, sex]", 22, "a column is there twice"),
        ("{buckets: [2, 4]}", "{bucket: [2, 4]}", 30, "(did you mean 'buckets'?)"),
        ("{buckets: [2, 4]}", "{buckets: 2, width: 3}", 30, "is not a query family"),
        ("answers: out.csv", "answers: out.xls", 42, "ends in .csv or .parquet"),
        ("level: 0.9", "level: 95", 43, "output.level"),
        ("ledger: budget.db", "ledger: budget.db\nledger: other.db", 45, "the key 'ledger' is there twice"),
        ("schema:\n", "schema: &a\n  more: *a\n", 1, "an alias that contains itself"),
        ("data: people.csv", "[data]: people.csv", 45, "a key should be text"),
        ("data: people.csv", "reading: {delimitr: ','}", 45, "(did you mean 'delimiter'?)"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_field(written, old, new, line, words):
    assert TEXT.count(old) == 1
    message = refusal(written(TEXT.replace(old, new)))
    assert re.search(rf", line {line}[,:]", message)
    assert words in message


def test_a_schema_that_is_missing_or_no_schema_is_refused_at_its_line(written):
    tail = "tables: [{marginals: 1}]\nprivacy: {definition: gdp, mu: 1}\n"
    for head in ("schema: none.yaml", "schema: 3", "schema: {fields: []}", "schema: {fields: 3}", "schema:"):
        assert ", line 1, schema: " in refusal(written(f"{head}\n{tail}"))


def test_a_workload_that_no_plan_can_be_made_of_is_refused_at_its_tables(written):
    text = TEXT.replace("add_remove", "replace_one")
    alone = re.sub(r"tables:\n(- .*\n|  .*\n)+", "tables:\n- columns: []\n", text)
    message = refusal(written(alone))
    assert ", line 16, tables: " in message
    assert "number of records" in message


@pytest.mark.parametrize("text", ["", "3", "- a\n", "schema"])
def test_what_is_no_mapping_is_no_spec(written, text):
    assert "a spec is a mapping" in refusal(written(text))


def test_a_file_that_is_not_there_or_is_not_text_is_said_to_be_so(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_spec(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00x")
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "bytes.yaml")


KEYS = [
    (number, key)
    for number, line in enumerate(TEXT.splitlines())
    for key in re.findall(r"^[ -]*([a-z_]+):", line)
    if number >= 15
]


@pytest.mark.parametrize(("number", "key"), KEYS, ids=lambda value: str(value))
def test_a_misspelt_key_is_refused_at_its_own_line(written, number, key):
    chosen = random.Random(number)
    at = chosen.randrange(len(key))
    wrong = key[:at] + chosen.choice(string.ascii_uppercase) + key[at + chosen.randrange(2) :]
    lines = TEXT.splitlines()
    lines[number] = lines[number].replace(key, wrong, 1)
    message = refusal(written("\n".join(lines)))
    # A key of 'families' is the name of a column, which is looked up once the table is made.
    assert f", line {number + 1}," in message or "is not in the schema" in message


@pytest.mark.parametrize(
    "schema",
    [
        '"\\0"',
        '{fields: [{name: a, type: string, residua: {hierarchy: {levels: [x], path: "a\\0b"}}}]}',
    ],
)
def test_what_no_file_is_called_is_refused_with_its_line(tmp_path, schema):
    path = tmp_path / "odd.yaml"
    path.write_text(f"schema: {schema}\ntables: [{{marginals: 1}}]\nprivacy: {{definition: gdp, mu: 1}}\n")
    with pytest.raises(SpecError, match=r"odd\.yaml, line 1.*is not the name of a file"):
        load_spec(path)
