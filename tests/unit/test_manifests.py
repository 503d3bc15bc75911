"""The door of saved files: types, ranges and shapes are refused by name, and so is what does not fit."""

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import residua as rs
from residua import _files, _manifests
from residua.release.combining import DifferentDataWarning

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORD: dict[str, Any] = {
    "text": "x",
    "flag": True,
    "whole": 3,
    "huge": 2**63,
    "endless": 10**400,
    "number": 1.5,
    "nothing": None,
    "list": [1, 2],
    "texts": ["a", "b"],
    "mixed": ["a", 1],
    "digits": "12",
    "manifest": {"inner": 1},
    "manifests": [{"inner": 1}],
}
READERS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "text": (_manifests.text, {"text", "digits"}),
    "flag": (_manifests.flag, {"flag"}),
    "whole": (_manifests.whole, {"whole"}),
    "number": (_manifests.number, {"whole", "huge", "number"}),
    "positive": (_manifests.positive, {"whole", "huge", "number"}),
    "listed": (_manifests.listed, {"list", "texts", "mixed", "manifests"}),
    "wholes": (_manifests.wholes, {"list"}),
    "numbers": (_manifests.numbers, {"list"}),
    "texts": (_manifests.texts, {"texts"}),
    "digits": (_manifests.digits, {"digits"}),
    "submanifest": (_manifests.submanifest, {"manifest"}),
    "submanifests": (_manifests.submanifests, {"manifests"}),
}


@pytest.mark.parametrize("name", READERS)
def test_a_field_of_another_type_is_refused_by_its_name(name: str) -> None:
    read, sound = READERS[name]
    for key in RECORD:
        if key in sound:
            read(RECORD, key)
        else:
            with pytest.raises(rs.FileFormatError, match=f"'{key}'") as caught:
                read(RECORD, key)
            assert len(str(caught.value)) < 200
    for record in (RECORD, [], None, "x"):
        with pytest.raises(rs.FileFormatError, match="lacks 'absent'"):
            read(record, "absent")


@pytest.mark.parametrize("written", ["", "0", "-1", "1.5", "x", "٣", "1_0", " 1", "9" * 401])
def test_only_plain_digits_are_a_number_in_digits(written: str) -> None:
    with pytest.raises(rs.FileFormatError, match="'share'"):
        _manifests.digits({"share": written}, "share")


def test_an_array_has_the_kind_and_the_shape_that_were_asked_for() -> None:
    arrays = {"a": np.zeros((2, 3)), "b": np.zeros(4, dtype=np.int64)}
    assert _manifests.array_of(arrays, "a", "f", (None, 3)) is arrays["a"]
    assert _manifests.fetch({"key": "b"}, "key", arrays) is arrays["b"]
    for name, kinds, shape in (("a", "i", (2, 3)), ("a", "f", (3, None)), ("a", "f", (6,)), ("b", "f", (4,))):
        with pytest.raises(rs.FileFormatError, match=f"'{name}'"):
            _manifests.array_of(arrays, name, kinds, shape)
    for wrong in ("c", 3, None):
        with pytest.raises(rs.FileFormatError, match="missing array"):
            _manifests.fetch({"key": wrong}, "key", arrays)
    with pytest.raises(rs.FileFormatError, match="'c' is missing"):
        _manifests.array_of(arrays, "c", "f", ())


# Whole files


Change = Callable[[dict[str, Any], dict[str, Any]], object]


def forged(path: Path, base: str, change: Change) -> Path:
    """A fixture with other content and a hash that fits it."""
    kind = base.rpartition(".")[2]
    container = _files.read(FIXTURES / base, kind)
    manifest, arrays = json.loads(json.dumps(container.manifest)), dict(container.arrays)
    change(manifest["plan"] if kind == "release" else manifest, arrays)
    _files.write(path, kind, manifest, arrays, container.version)
    return path


def put(value: object, *keys: str | int) -> Change:
    def change(manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
        place: Any = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def array(name: str, made: Callable[[Any], Any]) -> Change:
    def change(manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name] = made(np.array(arrays[name]))

    return change


def named(start: str, made: Callable[[Any], Any]) -> Change:
    """Change the first array whose name starts so."""

    def change(manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
        name = min(name for name in arrays if name.startswith(start))
        arrays[name] = made(np.array(arrays[name]))

    return change


BLOCKS, NESTED, OVERLAP = "format-1-smasher.plan", "format-1-nested.plan", "format-1-overlap.plan"
PRODUCT, SIDES, UNION = "format-1-dense.plan", "format-1-sides.plan", "format-1-union.plan"
ODD_LABELS = {"name": "x", "kind": "categorical", "labels": [[]], "outside": "error"}
FORGED: dict[str, tuple[str, Change]] = {
    "blocks: other sizes": (BLOCKS, put([1, 1, 1], "mechanism", "sizes")),
    "blocks: a rank of none": (BLOCKS, put(0, "mechanism", "shapes", 0, "rank")),
    "blocks: a rank beyond all": (BLOCKS, put(99, "mechanism", "shapes", 0, "rank")),
    "blocks: an endless multiplier": (BLOCKS, put(10**30, "mechanism", "layers", 1, "multiplier")),
    "blocks: a grain beyond memory": (BLOCKS, put(10**9, "mechanism", "grain")),
    "blocks: a layout that leaves out": (BLOCKS, put([[0]], "mechanism", "layers", -1, "layout")),
    "blocks: a layout of text": (BLOCKS, put("01", "mechanism", "layers", -1, "layout")),
    "blocks: an attribute that is not there": (BLOCKS, named("blocks.layer.1.subsets", lambda a: a + 9)),
    "blocks: a shape that is not there": (BLOCKS, named("blocks.layer.1.shapes", lambda a: a + 99)),
    "blocks: twice the same": (BLOCKS, named("blocks.layer.1.subsets", lambda a: a * 0)),
    "blocks: noise of nothing": (BLOCKS, named("blocks.layer.1.noise", lambda a: a * 0)),
    "blocks: noise without end": (BLOCKS, named("blocks.layer.1.noise", lambda a: a / 0.0 if a.any() else a)),
    "blocks: a cost below nothing": (BLOCKS, named("blocks.layer.1.shares", lambda a: -a)),
    "blocks: one cost too few": (BLOCKS, named("blocks.layer.1.costs", lambda a: a[:-1])),
    "blocks: matrices of fractions": (BLOCKS, named("blocks.shape.0", lambda a: a.astype(float))),
    "blocks: huge entries": (BLOCKS, named("blocks.shape.0", lambda a: a * 2**60 + 2**60)),
    "blocks: no entries": (BLOCKS, named("blocks.shape.0", lambda a: a * 0)),
    "overlap: an attribute twice": (OVERLAP, named("blocks.layer.1.subsets", lambda a: a * 0 - 1)),
    "nested: a matrix that is not there": (NESTED, put(0, "mechanism", "matrices")),
    "nested: a matrix for nobody": (NESTED, put([0], "mechanism", "chosen")),
    "nested: a term twice on one": (NESTED, put([0, 0], "mechanism", "terms", 0, "attributes")),
    "nested: no terms": (NESTED, put([], "mechanism", "terms")),
    "nested: a share of nothing": (NESTED, put("0", "mechanism", "terms", 0, "share")),
    "nested: no share": (NESTED, put(None, "mechanism", "terms", 0, "share")),
    "nested: noise in text": (NESTED, put("1", "mechanism", "terms", 0, "noise_variance")),
    "product: an attribute twice": (PRODUCT, put([0, 0], "mechanism", "factors", 0, "attributes")),
    "product: no such attribute": (PRODUCT, put([2**62, 1], "mechanism", "factors", 0, "attributes")),
    "product: a grain of text": (PRODUCT, put("5", "mechanism", "grain")),
    "product: another law": (PRODUCT, put("laplace", "mechanism", "law")),
    "union: a matrix too few": (UNION, put([], "mechanism", "terms", 0, "matrices")),
    "union: no products": (UNION, put([], "mechanism", "terms")),
    "union: another size": (UNION, put([7], "mechanism", "axes", 0, "sizes")),
    "sides: none": (SIDES, put([], "mechanism", "sides")),
    "sides: kinds that are not numbered so": (SIDES, named("side.1.view", lambda a: a + 1)),
    "sides: within sides": (SIDES, put("sides", "mechanism", "sides", 0, "mechanism", "kind")),
    "schema: no attributes": (BLOCKS, put([], "schema", "attributes")),
    "schema: labels of lists": (BLOCKS, put(ODD_LABELS, "schema", "attributes", 0)),
    "schema: a policy of numbers": (BLOCKS, put(3, "schema", "attributes", 0, "outside")),
    "workload: a weight beyond floats": (BLOCKS, put(10**400, "workload", "parts", 0, "weight")),
    "workload: a part of nothing": (BLOCKS, put(None, "workload", "parts", 0)),
    "budget: a number": (BLOCKS, put({"definition": "zcdp", "rho": 1}, "budget")),
    "unit: records without end": (BLOCKS, put(10**400, "unit", "max_manifests")),
    "figures: below nothing": (BLOCKS, put([-1.0, -1.0], "released", "totals")),
    "figures: three": (BLOCKS, put([1.0, 1.0, 1.0], "ideal", "totals")),
    "figures: a largest in text": (BLOCKS, put("9", "released", "largest")),
    "certificate: for nobody": (BLOCKS, put("nobody", "certificate", "scope")),
    "certificate: a gap of text": (BLOCKS, put("small", "certificate", "gap")),
    "method: a list": (BLOCKS, put([], "method")),
    "objective: a record": (BLOCKS, put({}, "objective")),
    "uniform centring: nothing": (BLOCKS, put(0, "uniform_total")),
    "targets: a list": (BLOCKS, put([], "targets")),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", FORGED)
def test_a_file_whose_parts_cannot_be_is_refused_however_it_is_signed(
    name: str, tmp_path: Path, within: Any
) -> None:
    base, change = FORGED[name]
    path = forged(tmp_path / "forged.plan", base, change)
    with within(5), pytest.raises(rs.FileFormatError, match=r"forged\.plan"):
        rs.Plan.load(path)
    release = forged(tmp_path / "forged.release", base.replace(".plan", ".release"), change)
    with within(5), pytest.raises(rs.FileFormatError, match=r"forged\.release"):
        rs.Release.load(release)


def twice(parts: list[Any]) -> None:
    parts += parts


NEW_ONES: dict[str, Change] = {
    "no domains": put([], "strategy", "domains"),
    "two domains": lambda manifest, arrays: twice(manifest["strategy"]["domains"]),
    "a domain of text": put(["x"], "strategy", "domains"),
    "a domain of other sizes": put([1, 1], "strategy", "domains", 0, "sizes"),
    "weights of an attribute that is not there": put([9], "strategy", "domains", 0, "measures"),
    "a view of an attribute that is not there": put([[9]], "strategy", "domains", 0, "view"),
    "a layer of no domain": put(1, "strategy", "layers", 0, "domain"),
    "a layer below all domains": put(-1, "strategy", "layers", 0, "domain"),
    "no layers": put([], "strategy", "layers"),
    "no shapes": put([], "strategy", "shapes"),
    "a lift out of nowhere": put([{"attributes": [0], "settled": []}], "strategy", "lifts"),
    "noise of another law": put("laplace", "strategy", "law"),
    "noise of no law": put("cauchy", "strategy", "law"),
    "no grain": put(None, "strategy", "grain"),
    "a grain of floats": put(1.5, "strategy", "grain"),
    "no strategy": put(None, "strategy"),
    "shares of nothing": named("strategy.layer.0.shares", lambda a: a * 0),
    "shares of fractions": named("strategy.layer.0.shares", lambda a: a * 0.5),
    "noise below nothing": named("strategy.layer.0.noise", lambda a: -a),
    "shapes of other cells": named("strategy.shape.", lambda a: a[:, :-1]),
    "shapes of nothing": named("strategy.shape.", lambda a: a[:0]),
}  # fmt: skip


@pytest.mark.parametrize("method", ["dense", "smasher", "hdmm-marginals"])
@pytest.mark.parametrize("name", NEW_ONES)
def test_a_new_file_whose_parts_cannot_be_is_refused_too(name: str, method: str, tmp_path: Path) -> None:
    schema = rs.Schema.of_sizes([3, 4])
    work = rs.marginals(schema, ways=(1, 2)) + rs.table(schema, a0=rs.prefix)
    plan = rs.plan(work, rs.zcdp(1), method=method)
    manifest, arrays = plan.content()
    manifest = json.loads(json.dumps(manifest))
    NEW_ONES[name](manifest, arrays)
    _files.write(tmp_path / "forged.plan", "plan", manifest, arrays)
    with pytest.raises(rs.FileFormatError, match=r"forged\.plan"):
        rs.Plan.load(tmp_path / "forged.plan")


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F16", "U16", "I16"])
def test_arrays_of_types_that_nobody_writes_are_refused(kind: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(FIXTURES / BLOCKS) as archive:
        head, blob = json.loads(archive.read(_files.MANIFEST)), archive.read(_files.ARRAYS)
    length = int.from_bytes(blob[:8], "little")
    tensors = json.loads(blob[8 : 8 + length])
    entry = tensors[min(tensors)]
    width = {"BF16": 2, "F16": 2, "U16": 2, "I16": 2}.get(kind, 1)
    begin, end = entry["data_offsets"]
    entry |= {"dtype": kind, "shape": [(end - begin) // width]}
    text = json.dumps(tensors).encode()
    blob = len(text).to_bytes(8, "little") + text + blob[8 + length :]
    del head["hash"]
    head["hash"] = _files._digest(_files._canonical(head), blob)
    with zipfile.ZipFile(tmp_path / "odd.plan", "w") as archive:
        archive.writestr(_files.MANIFEST, json.dumps(head))
        archive.writestr(_files.ARRAYS, blob)
    with pytest.raises(rs.FileFormatError, match=f"of {kind} .* is none that Residua writes"):
        rs.Plan.load(tmp_path / "odd.plan")


AUDITS: dict[str, Change] = {
    "a note of numbers": put(3, "note"),
    "no privacy": put({}, "privacy"),
    "a ledger of text": put("budget.db", "ledger"),
    "an entry in words": put({"dataset": "x", "entry": "one", "amount": "1", "hash": "x"}, "ledger"),
    "a combination of nothing": put([{}], "combined"),
}


@pytest.mark.parametrize("name", AUDITS)
def test_a_release_says_how_it_came_to_be(name: str, tmp_path: Path) -> None:
    container = _files.read(FIXTURES / "format-1-dense.release", "release")
    manifest = json.loads(json.dumps(container.manifest))
    AUDITS[name](manifest["audit"], {})
    _files.write(tmp_path / "odd.release", "release", manifest, container.arrays, container.version)
    with pytest.raises(rs.FileFormatError, match=r"odd\.release: "):
        rs.Release.load(tmp_path / "odd.release")


# Combined releases


def coarsened_draft() -> rs.Release:
    """Two releases of conditions on more joint cells than are ever combined one by one."""
    schema = rs.Schema.of_sizes([20, 20, 20])
    work = rs.table(schema, ["a0"], where="a1 >= 3 OR a2 < 5") + rs.table(schema, ["a1", "a2"])
    plan = rs.plan(work, rs.zcdp(1))
    nobody = np.zeros((0, 3), dtype=np.int64)
    return together(rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=4)))


def combined(name: str) -> rs.Release:
    """A release of a fixture's plan together with another one."""
    return together(rs.Release.load(FIXTURES / f"format-1-{name}.release"))


def together(release: rs.Release) -> rs.Release:
    nobody = np.zeros((0, len(release.plan.schema)), dtype=np.int64)
    other = rs.measure(release.plan, nobody, ledger=None, noise=rs.simulated(seed=5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DifferentDataWarning)  # these have no ledger
        return rs.combine(release, other)


@pytest.mark.parametrize("name", ["nested", "union", "smasher", "overlap", "dense", "by kinds"])
def test_a_combined_release_of_any_kind_can_be_kept(name: str, tmp_path: Path) -> None:
    """Those measured by classes of cells could not be saved."""
    both = coarsened_draft() if name == "by kinds" else combined(name)
    both.save(tmp_path / "both.release")
    again = rs.Release.load(tmp_path / "both.release")
    assert again.hash == both.hash
    np.testing.assert_array_equal(again.values(), both.values())


@pytest.mark.parametrize(
    "change",
    [
        array("estimates.0.cells", lambda a: a[..., :-1]),
        array("estimates.0.cells", lambda a: a.astype(np.int64)),
        array("estimates.1.subsets", lambda a: a + 99),
        array("estimates.0.subsets", lambda a: a[:0]),
        array("estimates.1.subsets", lambda a: np.repeat(a, 2, axis=1)),
        array("estimates.1.subsets", lambda a: a[:, :0]),
    ],
)
def test_estimates_that_do_not_fit_their_plan_are_refused(change: Change, tmp_path: Path) -> None:
    container = _files.read(FIXTURES / "format-1-combined-smasher.release", "release")
    arrays = dict(container.arrays)
    change({}, arrays)
    _files.write(tmp_path / "odd.release", "release", container.manifest, arrays, container.version)
    with pytest.raises(rs.FileFormatError, match=r"odd\.release: "):
        rs.Release.load(tmp_path / "odd.release")


OTHER_TARGETS: dict[str, Change] = {
    "another table": put("T2", "targets", "met", 0, 0),
    "nothing met": put([], "targets", "met"),
    "a target of no table": put("T2", "targets", "targets", 0, 0),
    "rows whose squares no float holds": put(1e300, "workload", "parts", 0, "weight"),
}


@pytest.mark.parametrize("name", OTHER_TARGETS)
def test_targets_of_other_tables_are_refused(name: str, tmp_path: Path) -> None:
    work = rs.table(rs.Schema.of_sizes([3, 4]), ["a0", "a1"], name="T1")
    manifest, arrays = rs.plan(work, targets={"T1": 5.0}).content()
    manifest = json.loads(json.dumps(manifest))
    OTHER_TARGETS[name](manifest, arrays)
    _files.write(tmp_path / "forged.plan", "plan", manifest, arrays)
    with pytest.raises(rs.FileFormatError, match=r"forged\.plan"):
        rs.Plan.load(tmp_path / "forged.plan")
