"""The studio without its server: edits that keep a person's text, a file that stays the source of truth."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua._yaml import flow, parse
from residua.demo import SPEC
from residua.errors import FileFormatError
from residua.privacy import budget_from_manifest
from residua.spec import Spec, load_spec
from residua.spec.drafts import Draft, drafts_of_schema
from residua.studio import session as sessions
from residua.studio.editing import REMOVED, edited
from residua.studio.exporting import notebook, python_code
from residua.studio.figures import figures_of, ladder, size_of
from residua.studio.rehearsal import invented, rehearse
from residua.studio.session import Session, Stale, decoded
from residua.studio.view import state_of

TEXT = """\
# A comment at the top.
schema:
  fields:
  # how old
  - name: age   # in years
    type: integer
    constraints: {minimum: 0, maximum: 9}
  # F or M
  - {name: sex, type: string, constraints: {enum: [F, M]}}

# Which tables.
tables:
- columns: [age]   # first
- {columns: [sex]}

privacy:
  definition: zcdp   # or another
  rho: 0.1
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "people.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def session(spec: Path) -> Session:
    made = Session(spec, spec.parent)
    settle(made)
    return made


def settle(session: Session) -> None:
    """Return when nothing is being planned any more."""
    end = time.monotonic() + 60
    while session.job is not None:
        assert time.monotonic() < end
        time.sleep(0.005)


# Edits


@pytest.mark.parametrize(
    ("place", "value", "old", "new"),
    [
        (("privacy", "rho"), 0.2, "rho: 0.1", "rho: 0.2"),
        (("privacy", "definition"), "gdp", "definition: zcdp   # or", "definition: gdp   # or"),
        (("tables", 2), {"columns": []}, "- {columns: [sex]}\n", "- {columns: [sex]}\n- {columns: []}\n"),
        (("tables", 0), REMOVED, "- columns: [age]   # first\n", ""),
        (("tables", 1), REMOVED, "- {columns: [sex]}\n", ""),
        (("schema", "fields", 1), REMOVED, TEXT[TEXT.index("  # F or M") : TEXT.index("\n# Which")], ""),
        (("schema", "fields", 1, "constraints", "enum"), ["F"], "[F, M]", "[F]"),
        (("targets",), {"stddev": 5}, "rho: 0.1\n", "rho: 0.1\ntargets: {stddev: 5}\n"),
        (("targets",), REMOVED, "", ""),
        (("privacy", "unit", "max_records"), 2, "rho: 0.1\n", "rho: 0.1\n  unit: {max_records: 2}\n"),
        (("privacy",), {"definition": "gdp", "mu": 1}, TEXT[-54:], "privacy: {definition: gdp, mu: 1}\n"),
    ],
)  # fmt: skip
def test_an_edit_changes_its_place_and_nothing_else(place, value, old, new):
    assert edited(TEXT, place, value) == TEXT.replace(old, new, 1)


def test_the_last_entry_of_a_list_leaves_an_empty_list():
    assert edited("tables:\n- {columns: [age]}\n", ("tables", 0), REMOVED) == "tables: []\n"
    assert edited("tables: []\n", ("tables", 0), {"columns": []}) == "tables: [{columns: []}]\n"
    assert edited("a: 1\ntables:\n", ("tables", 0), 1) == "a: 1\ntables: [1]\n"


def test_a_text_that_cannot_be_read_is_not_edited():
    with pytest.raises(FileFormatError, match="edit the file"):
        edited("a: [", ("a",), 1)


ODD = st.sampled_from(["no", "1", "a: b", "# x", "- y", "\x85", "\u2028", "'", '"', "é"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=5), ODD)
KEYS = st.sampled_from(["a", "b", "on", "c d"])
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def places(value, place=()):
    """Every place of some data, those just behind the ends of lists and missing keys included."""
    if isinstance(value, dict):
        for key in {*value, "new"}:
            yield (*place, key)
            yield from places(value.get(key), (*place, key))
    elif isinstance(value, list):
        for at in range(len(value) + 1):
            yield (*place, at)
            yield from places(value[at] if at < len(value) else None, (*place, at))


@given(
    data=st.data(), held=st.dictionaries(KEYS, DATA, min_size=1, max_size=3), style=st.booleans(), new=DATA
)
def test_any_edit_of_any_document_gives_what_it_says_or_is_refused(data, held, style, new):
    import yaml

    text = yaml.safe_dump(held, default_flow_style=style)
    place = data.draw(st.sampled_from(sorted(places(held), key=str)))
    value = data.draw(st.sampled_from([new, REMOVED]))
    try:
        found = parse(edited(text, place, value))[0]
    except FileFormatError:
        return
    inner = found
    try:
        for step in place:
            inner = inner[step]
    except (LookupError, TypeError):
        assert value is REMOVED
    else:
        assert value is not REMOVED or isinstance(place[-1], int)
        assert value is REMOVED or inner == value
    untouched = [key for key in held if key != place[0]]
    assert [found[key] for key in untouched] == [held[key] for key in untouched]


@given(DATA)
def test_plain_data_on_one_line_is_read_back(value):
    assert "\n" not in flow(value)
    assert parse(f"x: {flow(value)}")[0] == {"x": value}


# The file is the source of truth


def test_what_is_clicked_is_what_the_file_says_and_undo_takes_it_back(session, spec):
    session.edit(session.revision, [(("privacy", "rho"), 0.4)])
    assert spec.read_text() == TEXT.replace("rho: 0.1", "rho: 0.4")
    session.undo(-1)
    assert spec.read_text() == TEXT
    session.undo(1)
    assert "rho: 0.4" in spec.read_text()
    session.undo(1)
    assert "rho: 0.4" in spec.read_text()


def test_what_is_written_by_hand_shows(session, spec):
    before = session.version
    spec.write_text(TEXT.replace("rho: 0.1", "rho: 0.4"))
    session.refresh()
    assert session.version > before
    settle(session)
    assert state_of(session)["figures"]["budget"]["rho"] == "2/5"
    spec.write_text("tables: [")
    session.refresh()
    assert "people.yaml, line" in state_of(session)["problem"]
    assert str(spec.parent) not in state_of(session)["problem"]
    session.undo(-1)
    assert state_of(session)["problem"] is None


def test_an_edit_of_a_text_that_the_page_has_not_seen_is_refused(session, spec):
    seen = session.revision
    spec.write_text(TEXT.replace("rho: 0.1", "rho: 0.4"))
    with pytest.raises(Stale):
        session.edit(seen, [(("privacy", "rho"), 0.2)])
    assert "rho: 0.4" in spec.read_text()


def test_a_new_budget_is_scaled_and_new_tables_are_planned(session):
    first = session.plan
    session.edit(session.revision, [(("privacy", "rho"), 0.4)])
    assert not session.stale
    assert session.job is None  # nothing was planned
    assert session.plan is not None
    assert session.plan.rmse == pytest.approx(first.rmse / 2, rel=1e-3)
    session.edit(session.revision, [(("tables", 2), {"columns": ["age", "sex"]})])
    assert state_of(session)["stale"]  # the old figures are shown as old
    settle(session)
    assert [row["name"] for row in state_of(session)["figures"]["tables"]] == ["age", "sex", "age x sex"]


def test_edits_name_places_and_nothing_else():
    sent = [{"place": ["a", 0], "remove": True}, {"place": ["b"], "value": 1}]
    assert decoded(sent) == [(("a", 0), REMOVED), (("b",), 1)]
    for wrong in ([{}], [{"place": []}], [{"place": [1.5]}], ["x"]):
        with pytest.raises(FileFormatError):
            decoded(wrong)


def test_planning_is_cancelled_and_taken_up_again(session, monkeypatch):
    began, plan = threading.Event(), Spec.plan

    def endless(self, progress=None):
        while True:
            began.set()
            progress("for ever", 0.5)
            time.sleep(0.001)

    monkeypatch.setattr(Spec, "plan", endless)
    session.edit(session.revision, [(("tables", 2), {"columns": ["age", "sex"]})])
    assert began.wait(10)
    assert state_of(session)["planning"]["words"] in ("for ever", "planning")
    job = session.job
    session.cancel()
    assert job.ended.wait(10)
    found = state_of(session)
    assert found["planning"] is None
    assert found["stale"]
    assert "cancelled" in found["failure"]
    monkeypatch.setattr(Spec, "plan", plan)
    session.replan()
    settle(session)
    assert not state_of(session)["stale"]


def test_a_quick_plan_is_shown_until_there_is_a_better_one(session, monkeypatch):
    """And the better one is at the budget that was chosen while it was planned."""
    efforts, wait, plan = [], threading.Event(), Spec.plan

    def slow(self, progress=None):
        efforts.append(self.effort)
        if self.effort != "quick":
            assert wait.wait(10)
            return plan(self)
        return replace(plan(self), undone=("something",))

    monkeypatch.setattr(Spec, "plan", slow)
    session.ghost([])
    session.edit(session.revision, [(("tables", 2), {"columns": ["age", "sex"]})])
    while len(efforts) < 2:
        time.sleep(0.001)
    assert session.plan.undone == ("something",)
    assert not session.stale
    assert state_of(session)["planning"] is not None
    session.edit(session.revision, [(("privacy", "rho"), 0.4)])
    assert session.plan.budget == rs.zcdp("0.4")
    wait.set()
    settle(session)
    assert efforts == ["quick", "normal"]
    assert (session.plan.undone, session.plan.budget) == ((), rs.zcdp("0.4"))
    assert not session.stale


def test_nothing_is_planned_again_that_a_quick_plan_left_nothing_of(session, monkeypatch):
    efforts, plan = [], Spec.plan
    monkeypatch.setattr(Spec, "plan", lambda self, progress=None: efforts.append(self.effort) or plan(self))
    session.ghost([])
    session.edit(session.revision, [(("tables", 2), {"columns": ["age", "sex"]})])
    settle(session)
    assert efforts == ["quick"]


def test_a_variant_is_kept_and_swapped(session, spec):
    session.keep()
    session.edit(session.revision, [(("privacy", "rho"), 0.4)])
    session.swap()
    assert spec.read_text() == TEXT
    assert state_of(session)["kept"]["budget"]["rho"] == "2/5"
    session.drop()
    assert state_of(session)["kept"] is None


def test_other_methods_stand_beside_the_plan(session):
    session.ghost(["identity", "wavelet", "unheard of"])
    settle(session)
    assert set(session.ghosts) == {"identity", "wavelet"}
    other = rs.plan(session.plan.workload, session.plan.budget, method="identity")
    assert session.ghosts["identity"]["weighted"] == pytest.approx(other.released.weighted_rmse)


def test_the_state_is_json_and_names_the_one_command(session):
    found = json.loads(json.dumps(state_of(session), allow_nan=False))
    assert found["commands"] == ["residua release people.yaml --data people.csv --ledger budget.db"]
    assert [column["cells"] for column in found["columns"]] == [10, 2]


# Figures


BUDGETS = [rs.zcdp("0.13"), rs.gdp(1), rs.approx_dp(1, "1e-6"), rs.pure_dp(1), rs.privacy_cost(1)]


@pytest.mark.parametrize("budget", BUDGETS)
def test_errors_scale_as_the_ladder_says(budget):
    schema = rs.Schema(age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.marginals(schema, up_to=2), budget)
    stops = ladder(budget, rs.Unit())
    assert [stop["value"] for stop in stops] == sorted(stop["value"] for stop in stops)
    own = next(stop for stop in stops if stop["size"] == size_of(budget))
    assert own["rho"]
    for stop in stops[len(stops) // 2 :: 9]:
        names = dict(budget.to_manifest())
        amount = {name: str(stop["value"]) for name in names if name not in ("definition", "delta")}
        exact = plan.rescale(budget_from_manifest(names | amount)).rmse
        estimate = plan.rmse * stop["size"] / own["size"]
        # Laplace noise that is narrow in whole numbers is narrower than the rule: errors are overstated.
        assert estimate == pytest.approx(exact, rel=0.05) or (budget.law == "laplace" and estimate > exact)


def test_the_mean_of_a_column_has_the_error_that_its_release_has():
    schema = rs.Schema(age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(1))
    (mean,) = figures_of(plan)["means"]
    people = np.repeat([[0, 0], [2, 1], [4, 0]], 10_000, axis=0)
    release = rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=1))
    assert mean["stddev"] / 30_000 == pytest.approx(float(release.mean("age").stddev), rel=0.05)


def test_a_rehearsal_is_a_release_of_invented_people():
    plan = load_spec(SPEC).plan()
    names = [row.name for row in plan.summary()]
    found = rehearse(plan, names.index("Labour force"), 5_000, seed=3)
    values, truth, halves = (np.array(found[name]) for name in ("values", "truth", "halves"))
    assert truth.sum() == 5_000
    assert abs(values - truth).max() < 4 * halves.max()
    assert np.allclose(found["below"]["values"], values.sum(axis=0))
    assert np.allclose(found["beside"]["values"], values.sum(axis=1))
    assert found["corner"]["values"][0] == pytest.approx(values.sum())
    again = rehearse(plan, names.index("Labour force"), 5_000, seed=4)
    assert again["truth"] == found["truth"]
    assert again["values"] != found["values"]
    assert rehearse(plan, names.index("Cumulative ages"), 100, seed=3)["below"] is None
    assert len(invented(plan.schema, 7, seed=1)) == 7


def test_what_cannot_be_looked_at_is_refused():
    plan = rs.plan(rs.table(rs.Schema.of_sizes([50, 50]), ["a0", "a1"]), rs.zcdp(1))
    with pytest.raises(rs.WorkloadError, match="too many to look at"):
        rehearse(plan, 0, 10, 1)
    with pytest.raises(rs.WorkloadError, match="no table 2"):
        rehearse(plan, 1, 10, 1)


# What is carried away

ENTRIES = """\
- {name: Pyramid, columns: [age, sex]}
- {columns: [age, sex], numeric: prefix}
- {columns: [age, income], family: abs_diff}
- {families: {age: {buckets: [3, 6]}, sex: identity}, weight: 2}
- {all: [1, 2], numeric: prefix, categorical: identity, attributes: [age, sex]}
- {marginals: up to 9}
- {sql: "SELECT sex, COUNT(*) FROM people WHERE age >= 3 GROUP BY sex"}
"""


PRIVACY = ["privacy: {definition: zcdp, rho: 0.1, unit: {max_records: 2}}", "targets: {stddev: 5}"]


@pytest.mark.parametrize("privacy", PRIVACY)
def test_the_code_plans_what_the_spec_plans(tmp_path, privacy):
    path = tmp_path / "people.yaml"
    fields = TEXT[TEXT.index("schema:") : TEXT.index("\n# Which")]
    income = (
        "  - {name: income, type: integer, constraints: {minimum: 0, maximum: 9}, residua: {outside: clip}}\n"
    )
    path.write_text(f"{fields}{income}tables:\n{ENTRIES}{privacy}\n")
    spec = load_spec(path)
    names: dict = {}
    exec(python_code(spec), names)
    assert names["plan"].hash == spec.plan().hash
    cells = json.loads(notebook(spec))["cells"]
    again: dict = {}
    exec("\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code"), again)
    assert again["plan"].hash == names["plan"].hash


def test_the_code_plans_sums_levels_and_relative_targets(tmp_path):
    path = tmp_path / "people.yaml"
    path.write_text(
        "schema:\n  fields:\n"
        "  - {name: sex, type: string, constraints: {enum: [F, M]}, residua: {outside: missing}}\n"
        "  - {name: pay, type: number, constraints: {minimum: 0, maximum: 10}, "
        "residua: {step: 0.5, degree: 2}}\n"
        "  - {name: town, type: string, residua: {hierarchy: {levels: [r, t], rows: [[N, x], [S, y]]}}}\n"
        "tables:\n"
        "- {families: {sex: identity, pay: [total, sum, {moment: 2}]}, name: pay}\n"
        "- {levels: town, columns: [sex], name: towns}\n"
        "targets: {towns by t: {relative: 0.05}}\nguess: 5000\neffort: quick\n"
    )
    spec, names = load_spec(path), {}
    exec(python_code(spec), names)
    assert names["plan"].hash == spec.plan().hash
    assert "effort='quick'" in python_code(spec)
    assert "explain(guess=5000)" in python_code(spec)


def test_a_table_schema_becomes_a_draft_with_questions(tmp_path):
    path = tmp_path / "schema.json"
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"]}, "title": "Sex"},
        {"name": "income", "type": "number"},
        {"name": "born", "type": "datetime"},
        {"name": "alive", "type": "boolean"},
    ]
    path.write_text(json.dumps({"fields": fields}))
    text = Draft(drafts_of_schema(path), "From a schema.", None).text(tmp_path)
    found = parse(text)[0]["schema"]["fields"]
    assert found[0]["constraints"] == {"minimum": 0, "maximum": "CONFIRM"}
    assert found[1] == fields[1]
    assert found[2]["residua"] == {"bins": "CONFIRM"}
    assert found[3]["type"] == "string"
    assert found[4] == fields[4]
    spec = tmp_path / "spec.yaml"
    spec.write_text(TEXT)
    assert drafts_of_schema(spec) is None
    spec.write_text("a: 1")
    with pytest.raises(ValueError, match="neither a spec"):
        drafts_of_schema(spec)


def test_methods_beside_the_plan_exist():
    from residua.methods.registry import methods_for

    assert {*sessions.GHOSTS} <= {*methods_for("gaussian")}
