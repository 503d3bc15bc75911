"""Files that earlier versions wrote must load for ever: these are of format 1, and never rewritten."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import residua as rs
from residua import _files
from residua.kernel.measurement import Measurement

FIXTURES = Path(__file__).parents[1] / "fixtures"
FACTS = json.loads((FIXTURES / "format-1.json").read_text())
ANSWERERS = {
    "blocks": "independent",
    "nested": "nested",
    "overlap": "coupled",
    "product": "kronecker",
    "sides": "coarsened",
    "union": "diagonal",
}


def plan_of(name: str) -> rs.Plan:
    return rs.Plan.load(FIXTURES / f"format-1-{name}.plan")


def release_of(name: str) -> rs.Release:
    return rs.Release.load(FIXTURES / f"format-1-{name}.release")


@pytest.mark.parametrize("name", FACTS)
def test_a_plan_of_format_1_still_says_what_it_said(name, answered_by) -> None:
    plan, facts = plan_of(name), FACTS[name]
    assert plan.method == facts["method"]
    assert answered_by(plan.strategy) == ANSWERERS[facts["kind"]]
    assert plan.unit == rs.Unit(max_records=2)
    assert plan.rmse == pytest.approx(facts["rmse"], rel=1e-12)
    assert plan.ideal.rmse == pytest.approx(facts["ideal"], rel=1e-12)
    assert plan.variances(plan.workload).mean() ** 0.5 == pytest.approx(facts["rmse"], rel=1e-9)


@pytest.mark.parametrize("name", FACTS)
def test_a_release_of_format_1_still_answers_the_same(name) -> None:
    release = release_of(name)
    assert release.simulated
    assert release.audit["plan_hash"] == FACTS[name]["hash"]
    np.testing.assert_allclose(release.values()[:12], FACTS[name]["values"], atol=1e-5)


def test_there_are_files_of_these_kinds_of_strategies() -> None:
    assert {facts["kind"] for facts in FACTS.values()} == set(ANSWERERS)


def digest(batch: Measurement) -> str:
    """What is measured, of whom and with what noise, block by block, as one hash."""
    facts = {
        "law": batch.law,
        "sizes": list(batch.sizes),
        "multiplier": batch.multiplier,
        "parameters": [str(batch.parameters[owner]) for owner in batch.owners.tolist()],
        "view": [
            [
                list(part.attributes),
                part.joint.classes.tolist(),
                [own.classes.tolist() for own in part.partitions],
            ]
            for part in batch.derived
        ],
    }
    mixed = hashlib.sha256(json.dumps(facts).encode())
    for array in (batch.subsets, *batch.matrices):
        mixed.update(repr(array.shape).encode())
        mixed.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return mixed.hexdigest()[:16]


@pytest.mark.parametrize("name", FACTS)
def test_hashes_and_the_order_of_what_is_measured_are_those_that_version_1_had(name) -> None:
    """Written by the version that wrote the files: numbers in a release belong to blocks by their order."""
    plan, release = plan_of(name), release_of(name)
    assert plan.hash == release.plan.hash == FACTS[name]["hash"]
    assert release.hash == FACTS[name]["release_hash"]
    for each in (plan, release.plan):
        assert [digest(batch) for batch in each.batches] == FACTS[name]["batches"]


@pytest.mark.parametrize("name", FACTS)
def test_files_of_format_1_are_saved_to_the_byte(name, tmp_path) -> None:
    for kind, thing in (("plan", plan_of(name)), ("release", release_of(name))):
        thing.save(tmp_path / f"again.{kind}")
        before = FIXTURES / f"format-1-{name}.{kind}"
        assert (tmp_path / f"again.{kind}").read_bytes() == before.read_bytes()


@pytest.mark.parametrize("name", FACTS)
def test_a_plan_of_format_1_can_still_be_measured(name, tmp_path) -> None:
    plan = plan_of(name)
    nobody = np.zeros((0, len(plan.schema.sizes)), dtype=np.int64)
    release = rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=1))
    assert release.values().shape == (plan.workload.count,)
    release.save(tmp_path / "new.release")
    again = rs.Release.load(tmp_path / "new.release")
    assert again.hash == release.hash
    assert again.plan.hash == plan.hash
    assert np.array_equal(again.values(), release.values())


@pytest.mark.parametrize("name", FACTS)
def test_a_release_of_format_1_is_combined_with_a_new_one_of_its_plan(name, tmp_path) -> None:
    old, plan = release_of(name), plan_of(name)
    nobody = np.zeros((0, len(plan.schema.sizes)), dtype=np.int64)
    with pytest.warns(rs.DifferentDataWarning):
        both = rs.combine(old, rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=1)))
    np.testing.assert_allclose(both.plan.variances(plan.workload), plan.variances(plan.workload) / 2, 1e-6)
    both.save(tmp_path / "both.release")
    np.testing.assert_array_equal(rs.Release.load(tmp_path / "both.release").values(), both.values())


# --- forged files of format 1 ------------------------------------------------------------------------------


def holders(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The record of a strategy, and those of its sides."""
    return [record, *(side["mechanism"] for side in record.get("sides", ()))]


def louder(record: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Twice the cost, and half the noise."""
    for name in arrays:
        if name.endswith("shares"):
            arrays[name] = arrays[name] * 2
    for each in holders(record):
        for term in (each, *each.get("terms", ())):
            if isinstance(term.get("share"), str):
                term["share"] = str(2 * int(term["share"]))


def beyond_floats(record: dict[str, Any], arrays: dict[str, Any]) -> None:
    for each in holders(record):
        for term in (each, *each.get("terms", ())):
            if isinstance(term.get("share"), str):
                term["share"] = "9" * 400
    finer(record, arrays)


def finer(record: dict[str, Any], arrays: dict[str, Any]) -> None:
    for each in holders(record):
        if "grain" in each:
            each["grain"] -= 1


def negative(record: dict[str, Any], arrays: dict[str, Any]) -> None:
    """A negative cost leaves room for any other."""
    for name in arrays:
        if name.endswith("shares"):
            arrays[name] = -arrays[name]
    for each in holders(record):
        for term in (each, *each.get("terms", ())):
            if isinstance(term.get("share"), str):
                term["share"] = str(-int(term["share"]))


def without_shares(record: dict[str, Any], arrays: dict[str, Any]) -> None:
    for name in [name for name in arrays if name.endswith("shares")]:
        del arrays[name]
    for each in holders(record):
        for term in (each, *each.get("terms", ())):
            if "share" in term:
                term["share"] = None


@pytest.mark.parametrize("change", [louder, finer, negative, without_shares, beyond_floats])
@pytest.mark.parametrize("name", FACTS)
def test_a_forged_plan_of_format_1_is_never_measured(name, change, tmp_path) -> None:
    plan = plan_of(name)
    manifest, arrays = plan.content()
    manifest = json.loads(json.dumps(manifest))
    change(manifest["mechanism"], arrays)
    _files.write(tmp_path / "forged.plan", "plan", manifest, arrays, 1)
    nobody = np.zeros((0, len(plan.schema.sizes)), dtype=np.int64)
    with pytest.raises((rs.BudgetError, rs.FileFormatError)):
        rs.measure(tmp_path / "forged.plan", nobody, ledger=None, noise=rs.simulated(seed=1))


COMBINED = json.loads((FIXTURES / "format-1-combined.json").read_text())


@pytest.mark.parametrize("name", COMBINED)
def test_a_combined_release_of_format_1_still_answers_the_same(name, tmp_path) -> None:
    """They hold estimates where others hold measured numbers."""
    release, facts = release_of(f"combined-{name}"), COMBINED[name]
    assert release.hash == facts["hash"]
    assert release.plan.rmse == pytest.approx(facts["rmse"], rel=1e-12)
    np.testing.assert_allclose(release.values()[:12], facts["values"], atol=1e-5)
    release.save(tmp_path / "again.release")
    assert rs.Release.load(tmp_path / "again.release").hash == facts["hash"]
