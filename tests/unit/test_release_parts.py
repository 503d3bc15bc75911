"""Releases in parts: measured, written, read and answered with memory for one of them."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from placed_plans import shuffled_places, some_plan
from typer.testing import CliRunner

import residua as rs
from residua import _files
from residua.accuracy.reliability import Reliability
from residua.cli import app
from residua.errors import FileFormatError, Infeasible, NotInSpan
from residua.kernel import measuring, parts
from residua.release.parts import MeasuredParts
from residua.report import release_contents
from residua.strategy.parts import parts_of
from residua.verify import verify


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of few numbers, so that small plans have some."""
    monkeypatch.setattr(
        "residua._measure.parts_of",
        lambda strategy: parts_of(strategy, most=150) if strategy.nested else None,
    )


@pytest.fixture(scope="module")
def plan():
    return some_plan(0)


def codes_of(plan, count=500):
    return np.random.default_rng(1).integers(0, plan.schema.sizes, (count, len(plan.schema)))


def measured(plan, path, data=None, **given):
    data = codes_of(plan) if data is None else data
    return rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1), into=path, **given)


@pytest.fixture
def release(plan, tmp_path):
    return measured(plan, tmp_path / "a.release")


def without_noise(monkeypatch):
    for module in (measuring, parts):
        monkeypatch.setattr(module, "noisy", lambda batch, answers, *_: answers)


def test_a_release_in_parts_answers_as_one_that_is_held(release, plan, tmp_path):
    assert isinstance(release.measurements, MeasuredParts)
    assert len(release.measurements.parts) > 3
    held = replace(
        release,
        measurements=type(rs.measure(plan, codes_of(plan), ledger=None, noise=rs.simulated(1)).measurements)(
            release.measurements.values
        ),
    )
    loaded = rs.Release.load(tmp_path / "a.release")
    assert loaded.hash == release.hash
    for found in (release, loaded):
        assert np.allclose(found.values(), held.values(), atol=1e-9)
        assert np.allclose(
            found.table("place.county", "sex").values, held.table("place.county", "sex").values
        )
        rows, known = found.answers().to_pydict(), held.answers().to_pydict()
        assert rows.keys() == known.keys()
        for name in rows:
            if name in ("value", "stddev", "lower", "upper"):
                assert np.allclose(rows[name], known[name], atol=1e-9)
            else:
                assert rows[name] == known[name]
        with pytest.raises(NotInSpan):
            found.table("place", "work")
    for own, other in zip(loaded.estimates.cells, held.estimates.cells, strict=True):
        assert np.allclose(own, other, atol=1e-9)


@pytest.mark.parametrize("way", ["memory", "duckdb", "plain"])
def test_exact_numbers_are_those_of_measuring_at_once(plan, tmp_path, monkeypatch, way):
    without_noise(monkeypatch)
    codes = codes_of(plan)
    names = {
        name: [plan.schema[name].labels()[at] for at in own]
        for name, own in zip(plan.schema.names, codes.T, strict=True)
    }
    whole = rs.measure(plan, codes, ledger=None, noise=rs.simulated(1)).measurements.values
    data, engine = codes, None
    if way == "duckdb":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(
            pa.table(
                {
                    name: pa.array(own) if name in ("place", "sex") else pa.array(list(map(int, own)))
                    for name, own in names.items()
                }
            ),
            tmp_path / "data.parquet",
        )
        data, engine = tmp_path / "data.parquet", rs.engines.DuckDB(memory_limit="400MB")
    if way == "plain":
        engine = Plain()
    monkeypatch.setattr("residua.engines.memory.WAITING", 100)
    monkeypatch.setattr("residua.engines.kernel.ROWS", 64)
    found = measured(plan, tmp_path / "b.release", data, engine=engine).measurements.values
    for own, other in zip(found, whole, strict=True):
        assert np.array_equal(own, other)


class Plain:
    """A way of counting that knows nothing but tables."""

    def open(self, schema, data):
        self.engine = rs.engines.Memory().open(schema, data)
        return self

    records, about, cells_at_once = (
        property(lambda self, name=name: getattr(self.engine, name))
        for name in ("records", "about", "cells_at_once")
    )

    def tally(self, sets, progress=None):
        return self.engine.tally(sets, progress)


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        for name, own in content.items():
            archive.writestr(name, own)


def test_a_part_is_checked_when_it_is_read(release, tmp_path):
    path = tmp_path / "a.release"
    content = members(path)
    name = sorted(content)[-1]
    assert name.startswith("parts/")
    edited = bytearray(content[name])
    edited[-1] ^= 1
    rewritten(path, content | {name: bytes(edited)})
    loaded = rs.Release.load(path)
    state = loaded.table("place.state", "sex")  # needs no part at all
    assert np.array_equal(state.values, release.table("place.state", "sex").values)
    with pytest.raises(FileFormatError, match="does not match its hash"):
        loaded.table("place", "sex")
    checks = {check.subject: check.verdict for check in verify(path).checks}
    assert checks["parts"] == "false"


@pytest.mark.parametrize("what", ["missing", "more", "manifest", "scratch"])
def test_a_file_that_is_not_whole_is_no_release(release, tmp_path, what):
    path = tmp_path / "a.release"
    content = members(path)
    if what == "missing":
        content.pop(sorted(content)[-1])
    elif what == "more":
        content["parts/000099.safetensors"] = b""
    elif what == "manifest":
        content.pop("manifest.json")
    else:
        content["other"] = b""
    rewritten(path, content)
    with pytest.raises(FileFormatError):
        rs.Release.load(path)


def test_parts_of_a_file_that_was_replaced_are_refused(release, plan, tmp_path):
    path = tmp_path / "a.release"
    loaded = rs.Release.load(path)
    rs.measure(plan, codes_of(plan), ledger=None, noise=rs.simulated(seed=5)).save(path)
    with pytest.raises(FileFormatError, match="another file"):
        loaded.table("place", "sex")
    path.unlink()
    with pytest.raises(FileFormatError, match="there is no file"):
        loaded.table("place", "sex")


def test_a_copy_has_the_same_hash_and_bytes(release, tmp_path):
    rs.Release.load(tmp_path / "a.release").save(tmp_path / "copy.release")
    assert (tmp_path / "copy.release").read_bytes() == (tmp_path / "a.release").read_bytes()


def forged(path, target, edit):
    """A copy whose hashes all fit, with other arrays above the parts, or other parts."""
    kept = _files.read(path, "release")
    arrays = {name: own.copy() for name, own in kept.arrays.items()}
    manifest = {**kept.manifest, "measurements": dict(kept.manifest["measurements"])}
    found = [dict(part) for part in kept.parts]
    edit(manifest["measurements"], arrays, found)
    _files.write(target, "release", manifest, arrays, kept.version, found)


def other_sums(manifest, arrays, found):
    arrays["measurements.sums.0"] = arrays["measurements.sums.0"] + 1e3


def test_sums_that_the_parts_do_not_have_are_found_by_verify(release, tmp_path):
    forged(tmp_path / "a.release", tmp_path / "b.release", other_sums)
    assert verify(tmp_path / "a.release").holds
    assert [check.subject for check in verify(tmp_path / "b.release").false] == ["parts"]


def cut_wrongly(manifest, arrays, found):
    arrays["measurements.cuts"] = arrays["measurements.cuts"][::-1]


def too_deep(manifest, arrays, found):
    manifest["parts"] = {"depth": 99}


def fewer_batches(manifest, arrays, found):
    manifest["batches"] = 1


def above_lost(manifest, arrays, found):
    del arrays[
        next(
            name
            for name in arrays
            if name[-1].isdigit() and name.startswith("measurements.") and "sums" not in name
        )
    ]


def wrong_sums(manifest, arrays, found):
    arrays["measurements.sums.0"] = arrays["measurements.sums.0"][:, :0]


@pytest.mark.parametrize("edit", [cut_wrongly, too_deep, fewer_batches, above_lost, wrong_sums])
def test_a_forged_file_in_parts_is_refused(release, tmp_path, edit):
    forged(tmp_path / "a.release", tmp_path / "b.release", edit)
    with pytest.raises(FileFormatError):
        rs.Release.load(tmp_path / "b.release")


def renamed(manifest, arrays, found):
    found[0]["measurements.99"] = found[0].pop(next(iter(found[0])))


def shortened(manifest, arrays, found):
    name = next(iter(found[0]))
    found[0][name] = found[0][name][1:]


@pytest.mark.parametrize("edit", [renamed, shortened])
def test_a_part_that_does_not_fit_the_plan_is_refused_when_it_is_read(release, tmp_path, edit):
    forged(tmp_path / "a.release", tmp_path / "b.release", edit)
    loaded = rs.Release.load(tmp_path / "b.release")
    with pytest.raises(FileFormatError, match="does not fit the plan"):
        loaded.values()
    assert not verify(tmp_path / "b.release").holds


def test_parts_of_a_plan_that_has_none_are_refused(release, tmp_path):
    schema = rs.Schema(sex=rs.Categorical("F", "M"))
    plain = rs.plan(rs.table(schema, ["sex"]), rs.zcdp(1))
    made = rs.measure(
        plain, {"sex": ["F"]}, ledger=None, noise=rs.simulated(seed=1), into=tmp_path / "c.release"
    )
    assert rs.Release.load(tmp_path / "c.release").hash == made.hash
    kept = _files.read(tmp_path / "c.release", "release")
    _files.write(tmp_path / "d.release", "release", kept.manifest, kept.arrays, 2, [{"a": np.zeros(1)}])
    with pytest.raises(FileFormatError, match="parts of a plan that has none"):
        rs.Release.load(tmp_path / "d.release")


def test_too_many_numbers_are_not_held_at_once(release, monkeypatch):
    monkeypatch.setattr("residua.release.parts.WHOLE_NUMBERS", 10)
    with pytest.raises(Infeasible, match="in parts"):
        release.nonnegative()
    assert len(release.values()) == release.plan.workload.count


def test_the_ledger_knows_a_release_that_was_saved_and_one_that_was_lost(plan, tmp_path, monkeypatch):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    made = rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")
    assert ledger.entries()[0].release_hash == made.hash == rs.Release.load(tmp_path / "a.release").hash
    calls = []

    def fail(self, arrays):
        calls.append(arrays)
        if len(calls) > 2:
            raise OSError("no more disk")

    monkeypatch.setattr("residua.release.parts.Writer.add", fail)
    with pytest.raises(OSError, match="no more disk"):
        rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "b.release")
    assert ledger.entries()[1].release_hash is None
    assert {path.name for path in tmp_path.iterdir()} == {"a.release", "budget.db"}


def test_a_disk_without_room_costs_nothing(plan, tmp_path, monkeypatch):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    wanted = []

    def full(stream, room, target):
        wanted.append(room)
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(_files, "_set_aside", full)
    with pytest.raises(OSError, match="No space"):
        rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")
    assert ledger.spent == 0
    monkeypatch.undo()
    made = measured(plan, tmp_path / "b.release")
    assert made.measurements.parts is None or wanted[0] > (tmp_path / "b.release").stat().st_size


def test_answers_are_written_by_state_from_the_parts_of_that_state(release, plan, tmp_path):
    from pyarrow import dataset

    release.write_answers(tmp_path / "answers", by="place.state")
    found = dataset.dataset(tmp_path / "answers", partitioning="hive").to_table()
    assert found.num_rows == plan.workload.count
    assert sum(found.column("value").to_pylist()) == pytest.approx(release.values().sum())


def test_names_of_very_many_places_are_read_back_from_files(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("residua.schema.hierarchy.SPELT_OUT", 10)
    plan.save(tmp_path / "a.plan")
    assert rs.Plan.load(tmp_path / "a.plan").schema == plan.schema


SPEC = """\
schema:
  fields:
  - {name: place, type: string, residua: {hierarchy: {levels: [state, county, tract], path: places.csv}}}
  - {name: sex, type: string, constraints: {enum: [F, M]}}
tables:
- {columns: [sex], levels: place}
privacy: {definition: zcdp, rho: 0.5}
method: places
data: people.csv
ledger: budget.db
output: {answers: answers.parquet, release: people.release}
"""


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line_measures_answers_and_verifies_parts(tmp_path, monkeypatch):
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("residua.cli.releasing.parts_of", lambda strategy: parts_of(strategy, most=150))
    places = shuffled_places(np.random.default_rng(0), 200)
    rows = "\n".join(",".join(path) for path in places.paths)
    (tmp_path / "places.csv").write_text(f"state,county,tract\n{rows}\n")
    draw = np.random.default_rng(1)
    people = [f"t{at},{'FM'[sex]}" for at, sex in draw.integers(0, [200, 2], (500, 2)).tolist()]
    (tmp_path / "people.csv").write_text("place,sex\n" + "\n".join(people) + "\n")
    (tmp_path / "people.yaml").write_text(SPEC)
    run("budget", "create", "budget.db", "--zcdp", "1", "--dataset", "people-2024")
    assert "numbers in all" in run("plan", "people.yaml")
    run("release", "people.yaml", "--memory-limit", "400MB")
    release = rs.Release.load("people.release")
    assert isinstance(release.measurements, MeasuredParts)
    assert rs.Ledger.open("budget.db").entries()[0].release_hash == release.hash
    found = parquet.read_table("answers.parquet")
    assert np.allclose(found.column("value"), release.values())
    run("answer", "people.release", "-o", "folder", "--by", "place.state")
    assert len(list((tmp_path / "folder").iterdir())) >= 4
    assert "parts" in run("verify", "people.release")
    assert "released" in run("budget", "show", "budget.db", "--json") or release.hash in run(
        "budget", "show", "budget.db", "--json"
    )
    contents = release_contents(release, level=0.95, title=None, reliability=Reliability(None, "mark"))
    assert contents.tables
