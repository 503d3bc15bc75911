"""The file format: round trips, equal bytes, refusals with a reason, and nothing half-written."""

import json
import math
import os
import stat
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua import _files
from residua.workload.intervals import Prefix

SCHEMA = rs.Schema(
    age=rs.Binned(0, 18, 65, above=True),
    sex=rs.Categorical("F", "M", "ø"),
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
)
WORK = (
    rs.table(SCHEMA, {"age": rs.prefix, "place": rs.level("state")}, name="young")
    + 2 * rs.marginals(SCHEMA, ways=1)
    + rs.linear(SCHEMA, ("sex", "age"), np.eye(9), np.arange(1.0, 10.0), name="cells")
    + rs.table(SCHEMA)
)


@pytest.fixture(scope="module")
def plan() -> rs.Plan:
    return rs.plan(WORK, rs.approx_dp(1, "1e-6"), unit=rs.Unit(max_records=2), method="dense")


@pytest.fixture
def saved(plan, tmp_path) -> Path:
    path = tmp_path / "people.plan"
    plan.save(path)
    return path


def members(path: Path) -> tuple[bytes, bytes]:
    with zipfile.ZipFile(path) as archive:
        return archive.read(_files.MANIFEST), archive.read(_files.ARRAYS)


def rezip(path: Path, manifest: bytes, arrays: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """A zip as another program would make it, its own checksums right."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(_files.MANIFEST, manifest)
        archive.writestr(_files.ARRAYS, arrays)


def resign(path: Path, change) -> None:
    """The file with a changed manifest and a hash that fits it."""
    text, blob = members(path)
    head = json.loads(text)
    change(head)
    head.pop("hash", None)
    head["hash"] = _files._digest(_files._canonical(head), blob)
    rezip(path, json.dumps(head).encode(), blob)


def refused(path: Path | str, words: str) -> None:
    with pytest.raises(rs.FileFormatError, match=words) as caught:
        rs.Plan.load(path)
    assert str(path) in str(caught.value)


# Round trips


def test_a_plan_comes_back_with_every_figure(plan, saved):
    back = rs.Plan.load(saved)
    for name in (
        "rmse",
        "total_variance",
        "max_variance",
        "certificate",
        "budget",
        "unit",
        "method",
        "schema",
    ):
        assert getattr(back, name) == getattr(plan, name)
    assert back.ideal.weighted_rmse == plan.ideal.weighted_rmse
    assert back.explain() == plan.explain()
    assert back.summary() == plan.summary()
    assert back.privacy == plan.privacy
    np.testing.assert_array_equal(back.variances(back.workload), plan.variances(WORK))
    np.testing.assert_array_equal(back.covariance(back.workload, back.workload), plan.covariance(WORK, WORK))
    words = [list(group.descriptions(back.schema)) for group in back.workload.groups()]
    assert words == [list(group.descriptions(SCHEMA)) for group in WORK.groups()]


@pytest.mark.parametrize("method", ["dense", "identity", "hierarchical", "wavelet"])
def test_every_method_can_be_saved_under_both_relations(method, tmp_path):
    for neighbours in ("add_remove", "replace_one"):
        plan = rs.plan(WORK, rs.zcdp(1), unit=rs.Unit(neighbours=neighbours), method=method)
        plan.save(tmp_path / "a.plan")
        back = rs.Plan.load(tmp_path / "a.plan")
        assert back.certificate == plan.certificate
        assert 0 <= back.certificate.gap < math.inf


def test_the_largest_variance_of_thousands_of_tables_is_not_lost(tmp_path):
    schema = rs.Schema.of_sizes([2] * 64)
    work = rs.marginals(schema, ways=2) + rs.table(schema, ["a0"])
    assert work.tables > 2_000
    plan = rs.plan(work, rs.zcdp(1))
    plan.save(tmp_path / "many.plan")
    assert rs.Plan.load(tmp_path / "many.plan").max_variance == plan.max_variance > 0


def test_equal_plans_give_equal_bytes_and_the_hash_identifies_them(plan, saved, tmp_path):
    again = rs.plan(WORK, rs.approx_dp(1, "1e-6"), unit=rs.Unit(max_records=2), method="dense")
    again.save(tmp_path / "again.plan")
    rs.Plan.load(saved).save(tmp_path / "back.plan")
    assert (
        saved.read_bytes() == (tmp_path / "again.plan").read_bytes() == (tmp_path / "back.plan").read_bytes()
    )
    manifest = json.loads(members(saved)[0])
    assert manifest["hash"] == plan.hash == again.hash == rs.Plan.load(saved).hash
    others = [plan.rescale(rs.zcdp(1)), rs.plan(WORK, plan.budget, method="dense")]
    assert len({plan.hash, *(other.hash for other in others)}) == 3


def test_a_path_may_be_text(plan, tmp_path):
    plan.save(str(tmp_path / "text.plan"))
    assert rs.Plan.load(str(tmp_path / "text.plan")).hash == plan.hash


def test_saving_again_replaces_the_file(plan, saved):
    other = plan.rescale(rs.zcdp(5))
    other.save(saved)
    assert rs.Plan.load(saved).hash == other.hash
    assert os.listdir(saved.parent) == [saved.name]


def test_a_file_has_the_permissions_of_any_new_file(saved, tmp_path):
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_the_file_is_a_zip_that_anybody_can_look_into(saved):
    manifest = json.loads(members(saved)[0])
    assert manifest["format"] == "residua plan"
    assert manifest["version"] == _files.NEWEST
    assert manifest["content"]["budget"] == {"definition": "approx_dp", "epsilon": "1", "delta": "1/1000000"}


# Damage


def test_a_file_cut_short_anywhere_is_refused(saved):
    whole = saved.read_bytes()
    for length in [0, 1, 3, 21, 22, *range(30, len(whole), 97), *range(len(whole) - 30, len(whole))]:
        saved.write_bytes(whole[:length])
        refused(saved, "truncated or was not written by Residua")


def test_a_changed_byte_is_refused_or_changes_nothing(plan, saved):
    whole = saved.read_bytes()
    text, blob = members(saved)
    inside = [*regions(whole, text), *regions(whole, blob)]
    for place in range(0, len(whole), 17):
        for bit in (1, 128):
            edited = bytearray(whole)
            edited[place] ^= bit
            saved.write_bytes(edited)
            if any(place in region for region in inside):
                refused(saved, "truncated")  # the zip's own checksum already finds it
                continue
            assert loaded(saved) in (plan.hash, None)  # a date or an attribute of the zip changes nothing


def loaded(path: Path) -> str | None:
    """The hash of the plan in a file, or None if the file is refused."""
    try:
        return rs.Plan.load(path).hash
    except rs.FileFormatError:
        return None


def regions(whole: bytes, member: bytes) -> list[range]:
    start = whole.index(member)
    return [range(start, start + len(member))]


def test_flags_of_encryption_are_refused(saved):
    whole = bytearray(saved.read_bytes())
    directory = whole.index(b"PK\x01\x02")
    whole[directory + 8] |= 1
    saved.write_bytes(whole)
    refused(saved, "encrypted")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"max_records": 2', b'"max_records": 1'),
        (b'"epsilon": "1"', b'"epsilon": "9"'),
        (b'"weight": 2.0', b'"weight": 3.0'),
        (b'"young"', b'"old"'),
        (b'"method": "dense"', b'"method": "magic"'),
    ],
)
def test_an_edited_manifest_in_a_sound_zip_is_refused(saved, old, new):
    text, blob = members(saved)
    assert text.count(old) >= 1
    rezip(saved, text.replace(old, new), blob)
    refused(saved, "was changed after it was written")


def test_edited_arrays_in_a_sound_zip_are_refused(saved):
    text, blob = members(saved)
    for place in range(0, len(blob), 101):
        edited = bytearray(blob)
        edited[place] ^= 16
        rezip(saved, text, bytes(edited))
        refused(saved, "was changed after it was written")


def test_arrays_that_are_no_safetensors_are_refused_even_with_a_fitting_hash(saved):
    head = json.loads(members(saved)[0])
    head.pop("hash")
    for blob in (b"", b"\xff" * 64, struct.pack("<Q", 2) + b"{]"):
        head["hash"] = _files._digest(_files._canonical(head), blob)
        rezip(saved, json.dumps(head).encode(), blob)
        head.pop("hash")
        refused(saved, "its arrays are damaged")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"format": "residua plan", "version": 1, "x": NaN}',
        b'{"format": "residua plan", "version": 1, "x": 1e999}',
        b'{"format": "residua plan", "version": 1, "x": "\\ud800"}',
        b"[" * 100_000,
    ],
    ids=["empty", "open", "not text", "nan", "infinite", "half a character", "deep"],
)
def test_a_manifest_that_is_no_json_of_ours_is_refused(saved, text):
    rezip(saved, text, members(saved)[1])
    refused(saved, "its manifest is damaged")


def test_a_foreign_zip_is_refused(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("holiday.txt", "sun")
    refused(path, "was not written by Residua: it holds .*holiday.txt")
    rezip(path, b'{"format": "something else"}', b"")
    refused(path, "was not written by Residua")
    rezip(path, b"[1, 2]", b"")
    refused(path, "was not written by Residua")


def test_a_zip_with_something_added_is_refused(saved):
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("extra.txt", "more")
    refused(saved, "it holds")


def test_a_zip_packed_again_with_compression_is_refused(saved):
    rezip(saved, *members(saved), compression=zipfile.ZIP_DEFLATED)
    refused(saved, "was packed again by another program; use the file as it was saved")


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("age,sex\n1,F\n")
    refused(path, "truncated or was not written by Residua")


def test_a_directory_and_a_missing_file_are_named(tmp_path):
    refused(tmp_path, "is a directory")
    refused(tmp_path / "nothing.plan", "there is no file")


def test_a_file_that_may_not_be_read_says_so(saved, monkeypatch):
    def closed(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zipfile, "ZipFile", closed)
    refused(saved, "cannot be read: permission denied")


def test_a_later_version_is_refused_with_the_remedy(saved):
    def later(head):
        head["version"] = 3

    resign(saved, later)
    refused(saved, "has format version 3; this Residua reads versions up to 2. Use the version that wrote it")


def test_another_kind_of_file_is_named(saved):
    def other(head):
        head["format"] = "residua release"

    resign(saved, other)
    refused(saved, "holds a release, not a plan")


def drop(key):
    return lambda head: head["content"].pop(key)


def put(value, *keys):
    def change(head):
        place = head["content"]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        *map(drop, ["schema", "workload", "budget", "unit", "method", "strategy", "certificate", "released"]),
        put(None, "schema"),
        put("psychic", "strategy", "law"),
        put(None, "strategy", "shapes"),
        put([], "released", "totals"),
        put("many", "ideal"),
        put("nothing", "strategy", "layers"),
        put([7], "strategy", "shapes", 0, "sizes"),
        put("x", "strategy", "grain"),
        put({"definition": "trust"}, "budget"),
        put(0, "unit", "max_records"),
        put({"surprise": 1}, "certificate"),
        lambda head: head.pop("content"),
        lambda head: head.update(content=[]),
    ],
)
def test_a_plan_that_lacks_a_part_is_refused_even_with_a_fitting_hash(saved, change):
    resign(saved, change)
    refused(saved, "people.plan")


# Writing


def test_a_folder_that_is_not_there_is_named(plan, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere to save a.plan in"):
        plan.save(tmp_path / "nowhere" / "a.plan")


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(plan, saved, monkeypatch, broken):
    before = saved.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        plan.rescale(rs.zcdp(1)).save(saved)
    with pytest.raises(OSError, match="No space left"):
        plan.save(saved.with_name("new.plan"))
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


@pytest.mark.parametrize("stops", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing(plan, tmp_path, monkeypatch, stops):
    real = zipfile.ZipFile.writestr

    def fail(archive, entry, content):
        if entry.filename == _files.ARRAYS:
            raise stops
        real(archive, entry, content)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(type(stops)):
        plan.save(tmp_path / "new.plan")
    assert os.listdir(tmp_path) == []


def test_a_directory_is_not_overwritten(plan, tmp_path):
    (tmp_path / "folder.plan").mkdir()
    with pytest.raises(OSError):
        plan.save(tmp_path / "folder.plan")
    assert os.listdir(tmp_path) == ["folder.plan"]


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(plan, tmp_path):
    """As root, `-o /dev/null --force` would have left a file for everybody in its place."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(rs.FileFormatError, match="is no file that could be replaced"):
        plan.save(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


# What could be written and never read


class EveryOther(Prefix):
    """A family of a user's own, whose word no version of residua knows."""

    __slots__ = ()
    kind = "every other"


class Borrowed(Prefix):
    """A family of a user's own that takes the word of another."""

    __slots__ = ()


def odd(made):
    """A family that puts queries of a class on an attribute."""
    return rs.workload.Family("odd", lambda attributes, who: made(attributes[0].size))


@pytest.fixture(params=[EveryOther, Borrowed], ids=["own word", "borrowed word"])
def own(request) -> rs.Plan:
    schema = rs.Schema.of_sizes([4, 2])
    work = rs.table(schema, a1=rs.identity) + rs.all_tables(schema, 1, numeric=odd(request.param))
    return rs.plan(work, rs.zcdp(1))


def test_queries_that_could_not_be_read_again_are_not_saved(own, tmp_path):
    with pytest.raises(rs.WorkloadError, match=r"could be saved but never loaded.*rs\.linear"):
        own.save(tmp_path / "own.plan")
    release = rs.measure(own, np.zeros((0, 2), int), ledger=None, noise=rs.simulated(seed=1))
    assert release.values().shape == (own.workload.count,)
    with pytest.raises(rs.WorkloadError, match=r"could be saved but never loaded.*rs\.linear"):
        release.save(tmp_path / "own.release")
    assert os.listdir(tmp_path) == []


def test_what_could_not_be_saved_is_refused_before_the_debit(own, tmp_path):
    book = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(5), dataset="people")
    with pytest.raises(rs.WorkloadError, match="could be saved but never loaded"):
        rs.measure(own, np.zeros((0, 2), int), ledger=book)
    assert not book.entries()


def test_the_remedy_for_queries_of_ones_own_works(own, tmp_path):
    part = own.workload.parts[1]
    work = rs.linear(own.schema, ["a0"], part.queries_of(0).matrix(), name="own")
    rs.plan(work, rs.zcdp(1)).save(tmp_path / "own.plan")
    assert rs.Plan.load(tmp_path / "own.plan").workload.count == 4


def test_an_attribute_that_could_not_be_read_again_is_not_saved(tmp_path):
    class Own(rs.Integer):
        __slots__ = ()

    plan = rs.plan(rs.marginals(rs.Schema(a=Own(0, 3)), ways=1), rs.zcdp(1))
    with pytest.raises(rs.SchemaError, match=r"attribute 'a'.*could be saved but never loaded"):
        plan.save(tmp_path / "own.plan")
