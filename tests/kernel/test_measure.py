"""Measuring: what is refused before anything is spent, and the order in which the rest happens."""

import dataclasses
import errno
import inspect
import json
import os
import sqlite3
import tracemalloc
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import residua as rs
from residua import _files
from residua.engines import MemoryEngine
from residua.kernel import measuring
from residua.kernel.measurement import Measurement
from residua.ledger import sqlite
from residua.noise import RoundedGaussian, SystemSource
from residua.privacy.unit import Person
from residua.strategy.build import seen_by
from residua.strategy.rounding import rebudgeted, record_cost
from residua.workload.queries import Family, Identity, sized
from residua.workload.views import View

REPLACED = Person(rs.Unit(neighbours="replace_one"))

SCHEMA = rs.Schema(age=rs.Integer(0, 3), sex=rs.Categorical("F", "M"))
WORK = rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T1") + rs.marginals(SCHEMA, up_to=1)
PEOPLE = {"age": [0, 3, 3, 1, 2], "sex": ["F", "M", "M", "F", "M"]}
CODES = np.array([[0, 0], [3, 1], [3, 1], [1, 0], [2, 1]])
SIMULATED = {"ledger": None, "noise": rs.simulated(seed=1)}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Durability is the ledger's own affair: do not wait for the disk."""
    monkeypatch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))


@pytest.fixture(scope="module")
def plan():
    return rs.plan(WORK, rs.zcdp("0.1"), method="querysmasher")


@pytest.fixture
def ledger(tmp_path):
    return rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(1), dataset="people")


@pytest.fixture
def unspent(ledger):
    """After the test, the ledger must be as it was, to the byte."""
    before = ledger.path.read_bytes()
    yield ledger
    assert ledger.path.read_bytes() == before


class Counting:
    """A way of counting in memory with an engine of one's own."""

    def __init__(self, engine, **settings):
        self.engine, self.settings = engine, settings

    def open(self, schema, data):
        opened = self.engine(schema.encode(data), schema.sizes)
        vars(opened).update(self.settings)
        return opened


def same_measurements(one, two):
    return all(map(np.array_equal, one.measurements.values, two.measurements.values))


# --- a release is paid for before its noise is drawn -------------------------------------------------------


def test_a_release_costs_what_its_plan_says(plan, ledger):
    release = rs.measure(plan, PEOPLE, ledger=ledger, note="first")
    [entry] = ledger.entries()
    assert ledger.spent == entry.amount == plan.privacy.rho == Fraction(1, 10)
    assert (entry.plan_hash, entry.note) == (plan.hash, "first")
    assert release.audit["ledger"] == {
        "dataset": "people",
        "entry": str(entry.id),
        "amount": "1/10",
        "hash": entry.hash,
    }


def test_everything_about_the_data_comes_before_the_debit_and_all_noise_after_it(plan, ledger, monkeypatch):
    happened = []
    real_draw, real_spend = measuring.draw, rs.Ledger.spend

    class Watched(MemoryEngine):
        def tally(self, sets, progress=None):
            happened.append("count")
            return super().tally(sets, progress)

    def spend(self, *args, **named):
        entry = real_spend(self, *args, **named)
        happened.append("spent")
        return entry

    def draw(*args):
        assert ledger.spent == Fraction(1, 10)  # on disk, as another process would read it
        happened.append("draw")
        return real_draw(*args)

    monkeypatch.setattr(measuring, "draw", draw)
    monkeypatch.setattr(rs.Ledger, "spend", spend)
    rs.measure(plan, PEOPLE, ledger=ledger, engine=Counting(Watched))
    assert set(happened) == {"count", "spent", "draw"}
    assert happened == sorted(happened, key=["count", "spent", "draw"].index)
    assert happened.count("spent") == 1
    assert happened.count("draw") == len(plan.batches)


def test_a_failure_of_the_entropy_source_wastes_the_debit_and_releases_nothing(plan, ledger, monkeypatch):
    def dead(*_):
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "draw", dead)
        with pytest.raises(OSError, match="no entropy"):
            rs.measure(plan, PEOPLE, ledger=ledger)
    assert ledger.spent == Fraction(1, 10)
    rs.measure(plan, PEOPLE, ledger=ledger)
    assert ledger.spent == Fraction(2, 10)


def test_nothing_large_is_allocated_after_the_debit(ledger, monkeypatch):
    schema = rs.Schema.of_sizes([1000, 500])
    plan = rs.plan(rs.table(schema, ["a0", "a1"]), rs.zcdp("0.1"), method="identity")
    real = rs.Ledger.spend

    def spend(self, *args, **named):
        entry = real(self, *args, **named)
        tracemalloc.start()
        return entry

    monkeypatch.setattr(rs.Ledger, "spend", spend)
    try:
        release = rs.measure(plan, np.zeros((5, 2), dtype=int), ledger=ledger)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [measured] = release.measurements.values
    assert most < measured.nbytes


@pytest.mark.parametrize("at_once", [1, 3, 7, 2**16])
def test_every_block_gets_noise_of_its_own_law_however_many_are_drawn_at_once(monkeypatch, at_once):
    rows = np.array([[1, 0, 1], [0, 1, 0]])
    laws = [RoundedGaussian(Fraction(v)) for v in (2, 3, 5)]
    batch = Measurement(
        np.arange(6, dtype=np.int32).reshape(-1, 1),
        (3,),
        (rows,),
        1,
        "gaussian",
        tuple(law.parameter for law in laws),
        np.array([1, 0, 2, 0, 1, 2]),
    )

    def draw(source, laws, counts):
        assert sum(counts) <= at_once
        return np.repeat([int(law.parameter) for law in laws], counts)

    monkeypatch.setattr(measuring, "NUMBERS_AT_ONCE", at_once)
    monkeypatch.setattr(measuring, "draw", draw)
    answers = np.arange(12).reshape(6, 2)
    noisy = measuring.noisy(
        batch, answers.copy(), laws, rs.simulated(seed=1), np.argsort(batch.owners, kind="stable")
    )
    assert (noisy - answers).tolist() == [[v, v] for v in (3, 2, 5, 2, 3, 5)]


def test_what_noise_is_drawn_with_is_at_hand_before_the_debit(plan, ledger, monkeypatch):
    """A table that cannot be made and a package that is not there are found out for nothing."""
    for place in ("residua.noise.SystemSource.words", "residua.noise.laws.draw"):
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                rs.measure(plan, PEOPLE, ledger=ledger)
        assert ledger.spent == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_interruption_before_the_debit_spends_nothing(plan, unspent, monkeypatch, stop):
    def interrupted(*_):
        raise stop

    monkeypatch.setattr(measuring, "exact_answers", interrupted)
    with pytest.raises(stop):
        rs.measure(plan, PEOPLE, ledger=unspent)


def test_a_progress_callback_sees_fractions_and_can_stop_for_nothing(plan, unspent):
    seen = []
    rs.measure(plan, PEOPLE, **SIMULATED, progress=lambda what, part: seen.append((what, part)))
    assert seen
    assert all(what.startswith("counting ") and 0 < part <= 1 for what, part in seen)

    def stop(what, part):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rs.measure(plan, PEOPLE, ledger=unspent, progress=stop)


def test_no_noise_is_drawn_in_floating_point_and_every_draw_is_new(plan, ledger):
    first = rs.measure(plan, PEOPLE, ledger=ledger)
    second = rs.measure(plan, PEOPLE, ledger=ledger)
    assert all(values.dtype == np.int64 for values in first.measurements.values)
    assert not same_measurements(first, second)
    assert not first.simulated


def test_nothing_has_a_default_seed():
    for function in (rs.measure, rs.simulated):
        for name, parameter in inspect.signature(function).parameters.items():
            assert parameter.default in (inspect.Parameter.empty, None, ""), name
    assert inspect.signature(rs.measure).parameters["ledger"].default is inspect.Parameter.empty


# --- one of two ways: a ledger and real noise, or neither --------------------------------------------------


def test_real_noise_needs_a_ledger(plan):
    for noise in (None, SystemSource()):
        with pytest.raises(rs.LedgerError, match="needs a ledger: create one with"):
            rs.measure(plan, PEOPLE, ledger=None, noise=noise)


def test_simulated_noise_takes_no_ledger(plan, unspent):
    with pytest.raises(rs.LedgerError, match="spends nothing: pass ledger=None"):
        rs.measure(plan, PEOPLE, ledger=unspent, noise=rs.simulated(seed=1))


class Foretold:
    """A source that says it is real, and is not the operating system's."""

    simulated = False

    def words(self, count):
        return np.zeros(count, dtype=np.uint64)


@pytest.mark.parametrize("noise", [1, "seed", Foretold(), np.random.default_rng(1), 0])
def test_nothing_but_the_operating_system_passes_for_real_noise(plan, unspent, noise):
    for ledger in (unspent, None):
        with pytest.raises(rs.BudgetError, match="is no noise"):
            rs.measure(plan, PEOPLE, ledger=ledger, noise=noise)


def test_a_seed_repeats_a_simulation_and_another_does_not(plan):
    releases = [rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed)) for seed in (1, 1, 2)]
    assert same_measurements(releases[0], releases[1])
    assert not same_measurements(releases[0], releases[2])
    assert all(release.simulated for release in releases)


def test_a_ledger_may_be_a_path(plan, ledger):
    rs.measure(plan, PEOPLE, ledger=ledger.path)
    rs.measure(plan, PEOPLE, ledger=str(ledger.path))
    assert ledger.spent == Fraction(2, 10)


# --- ledgers that cannot pay -------------------------------------------------------------------------------


def test_a_ledger_that_has_too_little_left_pays_nothing(plan, tmp_path):
    poor = rs.Ledger.create(tmp_path / "poor.db", rs.zcdp("0.15"), dataset="people")
    rs.measure(plan, PEOPLE, ledger=poor)
    with pytest.raises(rs.BudgetExceeded, match=r"only 0\.05 left"):
        rs.measure(plan, PEOPLE, ledger=poor)
    assert poor.spent == Fraction(1, 10)


def test_a_ledger_of_another_unit_or_definition_pays_nothing(plan, tmp_path):
    for name, budget, unit in (
        ("unit", rs.zcdp(1), rs.Unit(max_records=2)),
        ("pure", rs.pure_dp(1), rs.Unit()),
    ):
        other = rs.Ledger.create(tmp_path / name, budget, dataset="people", unit=unit)
        with pytest.raises(rs.BudgetError):
            rs.measure(plan, PEOPLE, ledger=other)
        assert other.spent == 0


def test_a_missing_ledger_is_not_created(plan, tmp_path):
    with pytest.raises(rs.LedgerError, match="there is no ledger"):
        rs.measure(plan, PEOPLE, ledger=tmp_path / "none.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"not a ledger", "foreign", "truncated"])
def test_a_file_that_is_no_ledger_pays_nothing(plan, ledger, tmp_path, content):
    path = tmp_path / "odd.db"
    if content == "foreign":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE event (number, text, hash)")
    else:
        path.write_bytes(ledger.path.read_bytes()[:5000] if content == "truncated" else content)
    before = path.read_bytes()
    with pytest.raises(rs.LedgerError, match=r"odd\.db"):
        rs.measure(plan, PEOPLE, ledger=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("setting", "words"),
    [("PRAGMA query_only=ON", "is read-only"), ("PRAGMA max_page_count=2", "the disk is full")],
)
def test_a_ledger_that_cannot_be_written_pays_nothing(plan, unspent, monkeypatch, setting, words):
    drawn = []
    monkeypatch.setattr(measuring, "draw", lambda *_: drawn.append(1))
    monkeypatch.setattr(sqlite, "_SETTINGS", (*sqlite._SETTINGS, setting))
    with pytest.raises(rs.LedgerError, match=words):
        rs.measure(plan, PEOPLE, ledger=unspent, note="x" * 9000)
    assert not drawn


@pytest.mark.parametrize("note", [None, 3, b"note", "\ud800", "ok \udfff"])
def test_a_note_that_no_file_can_hold_is_refused_before_it_is_too_late(plan, unspent, note):
    for ways in ({"ledger": unspent}, SIMULATED):
        with pytest.raises(rs.DataError, match="Unicode text"):
            rs.measure(plan, PEOPLE, **ways, note=note)
        with pytest.raises(rs.DataError, match="Unicode text"):
            rs.measure(plan, PEOPLE, **ways, period=note or b"period")


def test_a_release_reads_the_ledger_before_it_counts_and_when_it_pays(plan, ledger, monkeypatch):
    read, every = [], sqlite._Events.every
    monkeypatch.setattr(sqlite._Events, "every", lambda rows: read.append(1) or every(rows))
    rs.measure(plan, PEOPLE, ledger=ledger)
    assert len(read) == 2


def test_queries_that_no_file_brings_back_are_simulated_and_never_paid_for(unspent, tmp_path):
    class Own(Identity):
        kind = "own"

    plan = rs.plan(rs.table(SCHEMA, {"sex": Family("own", sized(Own))}), rs.zcdp("0.1"))
    assert rs.measure(plan, PEOPLE, **SIMULATED).simulated
    for into in (None, tmp_path / "own.release"):
        with pytest.raises(rs.WorkloadError, match="never loaded"):
            rs.measure(plan, PEOPLE, ledger=unspent, into=into)


def test_a_dataset_whose_name_no_file_can_hold_pays_nothing(plan, tmp_path):
    odd = rs.Ledger.create(tmp_path / "odd.db", rs.zcdp(1), dataset="people \udcff")
    with pytest.raises(rs.DataError, match="names of datasets are Unicode text"):
        rs.measure(plan, PEOPLE, ledger=odd)
    assert odd.spent == 0


# --- plans that must not be measured -----------------------------------------------------------------------


def test_a_plan_may_be_a_path(plan, tmp_path):
    plan.save(tmp_path / "t1.plan")
    release = rs.measure(tmp_path / "t1.plan", PEOPLE, ledger=None, noise=rs.simulated(seed=1))
    assert release.plan.hash == plan.hash
    assert same_measurements(release, rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=1)))


@pytest.mark.parametrize("wrong", [WORK, 7, None])
def test_only_plans_are_measured(unspent, wrong):
    with pytest.raises(rs.WorkloadError, match="measure needs a plan first"):
        rs.measure(wrong, PEOPLE, ledger=unspent)


def test_data_given_for_a_plan_are_not_in_the_message(unspent, plan):
    with pytest.raises(rs.WorkloadError, match=r"not an object of type dict$"):
        rs.measure(PEOPLE, plan, ledger=unspent)
    with pytest.raises(rs.WorkloadError, match=r"not an object of type dict$"):
        rs.plan(PEOPLE, rs.zcdp(1))


def cheaper(plan):
    """A plan that says it spends half of what it does."""
    return dataclasses.replace(plan, budget=rs.privacy_cost(plan.budget.gaussian_cost() / 2))


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_a_plan_that_would_spend_more_than_it_states_is_refused(unspent, method, neighbours):
    plan = rs.plan(WORK, rs.zcdp("0.1"), method=method, unit=rs.Unit(neighbours=neighbours))
    rs.measure(plan, PEOPLE, **SIMULATED)
    for ways in ({"ledger": unspent}, SIMULATED):
        with pytest.raises(rs.BudgetError, match=r"would spend more than the .* that it states"):
            rs.measure(cheaper(plan), PEOPLE, **ways)


def test_a_plan_for_one_record_does_not_pass_for_three(plan, unspent):
    weak = dataclasses.replace(plan, unit=rs.Unit(max_records=3))
    with pytest.raises(rs.BudgetError, match="would spend more"):
        rs.measure(weak, PEOPLE, ledger=unspent)


def forged(plan, path, change):
    """The saved plan with changed content and a hash that fits it, as a careful forger would leave it."""
    manifest, arrays = plan.content()
    manifest = json.loads(json.dumps(manifest))
    change(manifest, arrays)
    _files.write(path, "plan", manifest, arrays)


def louder(manifest, arrays):
    for name in arrays:
        if name.endswith("shares"):
            arrays[name] = arrays[name] * 2


def finer(manifest, arrays):
    manifest["strategy"]["grain"] -= 1


def negative(manifest, arrays):
    for name in arrays:
        if name.endswith("shares"):
            arrays[name] = -arrays[name]


def parted(manifest, arrays):
    """Numbers that are multiplied by less than one jump by a whole unit, at a thousandth of the cost."""
    for layer in manifest["strategy"]["layers"]:
        layer["multiplier"] = 0.001


def wrapped(manifest, arrays):
    """In 64 bits the absolute value of this entry is negative, and its square is zero."""
    for name, array in arrays.items():
        if name.startswith("strategy.shape"):
            arrays[name] = array.copy()
            arrays[name][:, 0] = -(2**63)


def fractional(manifest, arrays):
    """Columns that are nearly alike in floats, and not at all once they are cut to integers."""
    for name, array in arrays.items():
        if name.startswith("strategy.shape"):
            arrays[name] = np.full(array.shape, 1 - 1e-12)
            arrays[name][:, 0] = 1


@pytest.mark.parametrize("change", [louder, finer, negative, parted, wrapped, fractional])
def test_a_forged_plan_cannot_be_measured_with_less_noise_than_it_pays_for(plan, unspent, tmp_path, change):
    path = tmp_path / "forged.plan"
    forged(plan, path, change)
    with pytest.raises((rs.BudgetError, rs.FileFormatError)):
        rs.measure(path, PEOPLE, ledger=unspent)


def mirrored(manifest, arrays):
    """A negative cost leaves room for any other."""
    for layer in manifest["strategy"]["layers"]:
        layer["multiplier"] = -(10**6)
    for name in arrays:
        if name.endswith("shares"):
            arrays[name] = -1000 * arrays[name]


@pytest.mark.parametrize(
    ("method", "change"),
    [("hdmm-kron", wrapped), ("hdmm-marginals", wrapped), ("hdmm-marginals", mirrored)],
)
def test_nor_can_a_forged_plan_with_laplace_noise(tmp_path, method, change):
    ledger = rs.Ledger.create(tmp_path / "pure.db", rs.pure_dp(1), dataset="people")
    path = tmp_path / "forged.plan"
    forged(rs.plan(rs.marginals(SCHEMA, up_to=2), rs.pure_dp("0.1"), method=method), path, change)
    for data in (PEOPLE, CODES[:0]):
        with pytest.raises((rs.BudgetError, rs.FileFormatError)):
            rs.measure(path, data, ledger=ledger)
    assert ledger.spent == 0


def dearer_total(manifest, arrays):
    """The total costs nothing where records are replaced: say that it is nearly all of the cost."""
    manifest["strategy"]["grain"] -= 6
    for name in [name for name in arrays if name.endswith("shares")]:
        costs = np.full(arrays[name].shape, 1e9 if "layer.0" in name else 1e-9)
        arrays[name.replace("shares", "costs")] = costs


def more_totals(manifest, arrays):
    """The same by costs of totals that are not measured."""
    manifest["strategy"]["grain"] -= 6
    arrays["strategy.layer.0.shares"] = np.repeat(arrays["strategy.layer.0.shares"], 1000)


def costs_without_shares(manifest, arrays):
    """The same by costs that no exact ones stand beside."""
    dearer_total(manifest, arrays)
    for name in [name for name in arrays if name.endswith("shares")]:
        del arrays[name]


@pytest.mark.parametrize("change", [dearer_total, more_totals, costs_without_shares])
def test_a_forged_plan_cannot_make_replacing_a_record_look_cheap(tmp_path, change):
    unit = rs.Unit(neighbours="replace_one")
    plan = rs.plan(WORK, rs.zcdp("0.1"), method="querysmasher", unit=unit)
    ledger = rs.Ledger.create(tmp_path / "replacing.db", rs.zcdp(1), dataset="people", unit=unit)
    forged(plan, tmp_path / "forged.plan", change)
    with pytest.raises((rs.BudgetError, rs.FileFormatError)):
        rs.measure(tmp_path / "forged.plan", PEOPLE, ledger=ledger)
    assert ledger.spent == 0


def test_a_block_that_states_more_noise_than_it_has_does_not_make_replacing_look_cheap():
    cells, total = (
        rs.plan(work, rs.zcdp("0.1"), method="identity")
        for work in (rs.marginals(SCHEMA, ways=2), rs.marginals(SCHEMA, ways=0))
    )
    (layer,) = cells.strategy.layers
    quiet = dataclasses.replace(cells.strategy, layers=(dataclasses.replace(layer, noise=np.array([1e12])),))
    both, _ = seen_by([(quiet, View(), {}), (total.strategy, View(), {})])
    assert record_cost(both, REPLACED) == pytest.approx(0.4)
    plan = dataclasses.replace(
        cells, strategy=both, budget=rs.zcdp("0.15"), unit=rs.Unit(neighbours="replace_one")
    )
    with pytest.raises(rs.BudgetError, match="would spend more"):
        rs.measure(plan, PEOPLE, **SIMULATED)
    rs.measure(dataclasses.replace(plan, budget=rs.zcdp("0.21")), PEOPLE, **SIMULATED)


@pytest.mark.parametrize("outside", ["other", "drop"])
def test_replacing_a_record_by_one_that_is_dropped_takes_it_from_the_total(outside):
    """Claim P-032: the number of records is public, but not how many of them are kept."""
    schema = rs.Schema(age=rs.Integer(0, 3, outside=outside), sex=rs.Categorical("F", "M"))
    even, heavy = rs.marginals(schema, up_to=1), 1e6 * rs.marginals(schema, ways=0)
    unit = rs.Unit(neighbours="replace_one")
    rs.measure(rs.plan(even, rs.zcdp("0.1"), method="querysmasher", unit=unit), PEOPLE, **SIMULATED)
    if outside == "drop":
        with pytest.raises(rs.BudgetError, match="declare outside='other' instead of 'drop'"):
            rs.plan(even + heavy, rs.zcdp("0.1"), method="querysmasher", unit=unit)
        return
    plan = rs.plan(even + heavy, rs.zcdp("0.1"), method="querysmasher", unit=unit)
    rs.measure(plan, PEOPLE, **SIMULATED)


class TwoFaced:
    """A source that says it is simulated when it is asked first, and real ever after."""

    def __init__(self):
        self.asked, self.words = 0, rs.simulated(seed=1).words

    @property
    def simulated(self):
        self.asked += 1
        return self.asked == 1


def test_what_no_ledger_paid_for_is_simulated_whatever_its_source_says(plan):
    assert rs.measure(plan, PEOPLE, ledger=None, noise=TwoFaced()).simulated


def test_an_edited_plan_file_is_not_measured(plan, unspent, tmp_path):
    path = tmp_path / "edited.plan"
    plan.save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(rs.FileFormatError, match=r"edited\.plan"):
        rs.measure(path, PEOPLE, ledger=unspent)


@pytest.mark.filterwarnings("ignore:a release that no ledger paid for:residua.DifferentDataWarning")
def test_a_combination_of_releases_is_not_measured_again(plan, unspent):
    releases = [rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed)) for seed in (1, 2)]
    with pytest.raises(rs.Infeasible, match="describes measurements made before"):
        rs.measure(rs.combine(*releases).plan, PEOPLE, ledger=unspent)


def test_a_table_that_no_memory_holds_is_refused_by_its_size(unspent, monkeypatch):
    work = rs.marginals(rs.Schema.of_sizes([10] * 12), ways=1)
    with pytest.raises(rs.Infeasible, match="1,000,000,000,000 cells"):
        rs.plan(work, rs.zcdp("0.1"), method="identity")
    with monkeypatch.context() as patch:
        patch.setattr("residua.strategy.strategy.COUNTED_CELLS", 10**12)
        plan = rs.plan(work, rs.zcdp("0.1"), method="identity")
    with pytest.raises(rs.Infeasible, match="1,000,000,000,000 cells"):
        rs.measure(plan, np.zeros((1, 12), dtype=int), ledger=unspent)


# --- data that does not fit --------------------------------------------------------------------------------


BAD = {
    "no column sex": ({"age": [1]}, "sex"),
    "other columns": (pd.DataFrame({"Age": [1], "Sex": ["F"]}), "age"),
    "text for a number": ({"age": ["old"], "sex": ["F"]}, "age"),
    "a missing value": ({"age": [1, None], "sex": ["F", "M"]}, "age"),
    "outside": ({"age": [4], "sex": ["F"]}, "age"),
    "unknown label": ({"age": [1], "sex": ["X"]}, "sex"),
    "columns of two lengths": ({"age": [1, 2], "sex": ["F"]}, "age|sex"),
    "real codes": (np.zeros((2, 2)), "codes"),
    "codes of another schema": (np.zeros((2, 3), dtype=int), "codes"),
    "codes outside": (np.array([[0, 2]]), "sex"),
    "negative codes": (np.array([[-1, 0]]), "age"),
    "nothing": (None, "NoneType"),
    "a number": (7, "type builtins.int"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_does_not_fit_the_schema_is_refused_and_costs_nothing(plan, unspent, name):
    data, words = BAD[name]
    with pytest.raises(rs.DataError, match=words):
        rs.measure(plan, data, ledger=unspent)


def test_a_plan_for_another_schema_is_refused_and_costs_nothing(unspent):
    other = rs.plan(rs.marginals(rs.Schema(height=rs.Integer(0, 9)), ways=1), rs.zcdp("0.1"))
    with pytest.raises(rs.DataError, match="height"):
        rs.measure(other, PEOPLE, ledger=unspent)


OUTSIDE = {"age": [0, 1, 5, None, -7], "sex": ["F", "M", "M", "F", "F"]}
POLICIES = {
    "drop": (rs.Integer(0, 3, outside="drop"), [1, 1, 0, 0]),
    "clip": (rs.Integer(0, 3, outside="clip"), None),
    "other": (rs.Integer(0, 3, outside="other"), [1, 1, 0, 0, 3]),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_of_the_schema_decides_about_values_outside_it(policy, monkeypatch):
    age, expected = POLICIES[policy]
    schema = rs.Schema(age=age, sex=rs.Categorical("F", "M"))
    plan = rs.plan(rs.marginals(schema, ways=1), rs.zcdp(1), method="querysmasher")
    monkeypatch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))
    if expected is None:  # a missing value is nearest to no cell
        with pytest.raises(rs.DataError, match="age"):
            rs.measure(plan, OUTSIDE, **SIMULATED)
        return
    release = rs.measure(plan, OUTSIDE, **SIMULATED)
    assert np.allclose(release.table("age").values, expected)
    assert release.audit["policies"] == {"age": policy, "sex": "error"}


def test_no_records_are_data_too(plan):
    for empty in ({"age": [], "sex": []}, np.zeros((0, 2), dtype=int), pd.DataFrame(PEOPLE)[:0]):
        release = rs.measure(plan, empty, ledger=None, noise=rs.simulated(seed=3))
        deviations = np.abs(release.values()) / np.sqrt(plan.variances(plan.workload))
        assert 0 < deviations.max() < 6


class Crowd(MemoryEngine):
    """So many records more, all in the first cell of every table."""

    more = 0

    def tally(self, sets, progress=None):
        counts = super().tally(sets, progress)
        for each in counts:
            each[0] += self.more
        return counts


def test_more_records_than_64_bits_hold_wrap_around_and_nobody_is_told(plan, ledger, monkeypatch):
    """A refusal would tell the number of records, to whoever chose the plan and for nothing (claim I-006)."""
    counts = {}
    monkeypatch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))
    for more in (0, plan.most_records, 2**62):
        release = rs.measure(plan, PEOPLE, ledger=ledger, engine=Counting(Crowd, more=more))
        counts[more] = release.measurements.values
    ones = [np.eye(1, batch.cells, dtype=np.int64) for batch in plan.batches]
    pairs = zip(plan.batches, ones, strict=True)
    first = [batch.apply(one, np.array([batch.multiplier]))[0] for batch, one in pairs]
    for more, values in counts.items():
        for found, before, column in zip(values, counts[0], first, strict=True):
            assert np.array_equal(found, before + column * np.int64(more))  # numpy's are modulo 2^64
    assert ledger.spent == Fraction(3, 10)


def test_the_record_limit_is_the_plans_and_stands_in_its_words(plan):
    assert plan.most_records > 10**10
    assert "wrap around" not in plan.explain()
    tight = rs.plan(rs.table(SCHEMA, age=rs.prefix, sex=rs.prefix), rs.zcdp("0.1"), method="dense")
    assert 10**8 < tight.most_records < 10**10
    assert f"at most {tight.most_records:,} records: with more, numbers would wrap" in tight.explain()


def crowded(manifest, arrays):
    """Larger numbers at no more cost: they leave room for a few thousand records only."""
    for layer in manifest["strategy"]["layers"]:
        layer["multiplier"] *= 2**30


@pytest.mark.parametrize("method", ["querysmasher", "hdmm-marginals"])
def test_a_plan_that_leaves_room_for_few_records_is_refused_when_it_is_loaded(unspent, tmp_path, method):
    path = tmp_path / "forged.plan"
    forged(rs.plan(WORK, rs.zcdp("0.1"), method=method), path, crowded)
    with pytest.raises(rs.BudgetError, match=r"forged\.plan: .* wrap around 64 bits above [0-9,]+ records"):
        rs.Plan.load(path)
    told = set()
    for data in (PEOPLE, {"age": [1] * 5000, "sex": ["F"] * 5000}):
        with pytest.raises(rs.BudgetError) as refused:
            rs.measure(path, data, ledger=unspent)
        told.add(str(refused.value))
    assert len(told) == 1


def test_laplace_plans_keep_to_the_same_limit():
    for method in ("identity", "hdmm-marginals"):
        found = rs.plan(rs.marginals(SCHEMA, ways=2), rs.pure_dp(1), method=method).strategy
        if method == "identity":
            wide = [dataclasses.replace(each, matrix=each.matrix * 2**22) for each in found.shapes]
            found = dataclasses.replace(found, shapes=tuple(wide))
        else:
            layers = (dataclasses.replace(layer, multiplier=2**43) for layer in found.layers)
            found = dataclasses.replace(found, layers=tuple(layers))
        with pytest.raises(rs.Infeasible, match="bits, too large to measure"):
            rebudgeted(found, Fraction(10**6), Person(rs.Unit()))


# --- what is told of the data ------------------------------------------------------------------------------


CLEAN = rs.Schema(age=rs.Integer(0, 3, outside="drop"), sex=rs.Categorical("F", "M", outside="drop"))


def crowd(records, dropped=0):
    """So many records, some of which are dropped."""
    ages = [9] * dropped + [at % 4 for at in range(records - dropped)]
    return {"age": ages, "sex": ["F", "M"] * (records // 2)}


def forms_of(columns, folder):
    """The same records for every engine."""
    folder.mkdir()
    pa.parquet.write_table(pa.table(columns), folder / "people.parquet")
    pa.csv.write_csv(pa.table(columns), folder / "people.csv")
    return [columns, pa.table(columns), folder / "people.parquet", str(folder / "*.csv")]


@pytest.mark.parametrize("cells_at_once", [None, 9])
def test_progress_is_told_the_same_whatever_the_data(tmp_path, cells_at_once):
    plan = rs.plan(rs.marginals(CLEAN, up_to=2), rs.zcdp("0.1"), method="residualplanner")

    class Passes:
        """The engine that would be chosen, with room for few counts."""

        def open(self, schema, data):
            opened = rs.engines.engine_for(data).open(schema, data)
            opened.cells_at_once = cells_at_once or opened.cells_at_once
            return opened

    told = []
    for number, (records, dropped) in enumerate([(0, 0), (2, 2), (4, 1), (200_000, 0), (200_000, 190_000)]):
        for form in forms_of(crowd(records, dropped), tmp_path / str(number)):
            rs.measure(plan, form, **SIMULATED, engine=Passes(), progress=lambda *each: told.append(each))
            assert told == [("counting 4 tables", step / 100) for step in range(1, 101)]
            told.clear()


WRONG = {
    "codes for fewer attributes": lambda records: np.zeros((records, 1), dtype=int),
    "real codes": lambda records: np.zeros((records, 2)),
    "one column of codes": lambda records: np.zeros(records, dtype=int),
    "a column of two dimensions": lambda records: {"age": np.zeros((records, 2)), "sex": ["F"] * records},
    "columns of two lengths": lambda records: {"age": [1] * records, "sex": ["F"] * (records + 1)},
    "a column of durations": lambda records: {
        "age": np.zeros(records, "timedelta64[D]"),
        "sex": ["F"] * records,
    },
    "no column": lambda records: {"age": [1] * records},
}


@pytest.mark.parametrize("name", WRONG)
def test_data_of_another_form_are_refused_without_their_number_of_records(plan, unspent, name):
    told = set()
    for records in (4321, 8765):
        with pytest.raises(rs.DataError) as refused:
            rs.measure(plan, WRONG[name](records), ledger=unspent)
        told.add(str(refused.value))
    assert len(told) == 1


# --- forms of data -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    """One table in files of every known kind."""
    table = pa.table(PEOPLE)
    pa.parquet.write_table(table, tmp_path / "people.parquet")
    pa.parquet.write_table(table, tmp_path / "people.PQ")
    pa.csv.write_csv(table, tmp_path / "people.csv")
    tabs = pa.csv.WriteOptions(delimiter="\t")
    pa.csv.write_csv(table, tmp_path / "people.tsv", write_options=tabs)
    return tmp_path


def test_every_form_of_the_same_data_is_measured_alike(plan, files):
    forms = [CODES, pd.DataFrame(PEOPLE), pl.DataFrame(PEOPLE), pa.table(PEOPLE)]
    forms += [files / name for name in ("people.parquet", "people.PQ", "people.csv", "people.tsv")]
    forms += [str(files / "people.csv")]
    expected = rs.measure(plan, PEOPLE, ledger=None, noise=rs.simulated(seed=1))
    for form in forms:
        assert same_measurements(rs.measure(plan, form, ledger=None, noise=rs.simulated(seed=1)), expected)


def test_files_that_cannot_be_read_are_refused_and_cost_nothing(plan, unspent, files):
    (files / "people.xls").write_bytes(b"")
    (files / "broken.parquet").write_bytes((files / "people.parquet").read_bytes()[:-9])
    (files / "broken.csv").write_text("age,sex\n1,F\n1\n")
    for name, words in (
        ("absent.csv", "there is no data file"),
        ("people.xls", "is not known; use"),
        ("broken.parquet", "cannot be read as Parquet"),
        ("broken.csv", "cannot be read as CSV"),
    ):
        with pytest.raises(rs.DataError, match=words):
            rs.measure(plan, files / name, ledger=unspent)


def test_large_marginals_are_counted_a_few_at_a_time():
    schema = rs.Schema.of_sizes([3] * 6)
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(1), method="residualplanner")
    codes = np.random.default_rng(0).integers(0, 3, (40, 6))
    expected = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    asked = []

    class Watched(MemoryEngine):
        def tally(self, sets, progress=None):
            asked.append(len(sets))
            return super().tally(sets, progress)

    ways = {"ledger": None, "noise": rs.simulated(seed=1), "engine": Counting(Watched, cells_at_once=20)}
    assert same_measurements(rs.measure(plan, codes, **ways), expected)
    assert max(asked) == 2  # two-way marginals of nine cells


# --- nothing of the data stays behind ----------------------------------------------------------------------


def test_an_audit_record_says_how_and_nothing_of_whom(plan, ledger):
    release = rs.measure(plan, PEOPLE, ledger=ledger, note="spring")
    audit = dict(release.audit)
    assert audit.pop("time").endswith("+00:00")
    [entry] = ledger.entries()
    assert audit == {
        "residua": rs.__version__,
        "numpy": np.__version__,
        "python": audit["python"],
        "plan_hash": plan.hash,
        "privacy": {"cost": "1/5", "unit": {"max_records": 1, "neighbours": "add_remove"}},
        "noise": "rounded gaussian",
        "ledger": {"dataset": "people", "entry": str(entry.id), "amount": "1/10", "hash": entry.hash},
        "note": "spring",
        "policies": {"age": "error", "sex": "error"},
        "simulated": False,
    }


def test_two_datasets_leave_the_same_record_but_for_their_noisy_numbers(plan, tmp_path):
    """Of the files of two releases, only the measured numbers, the hash and the time may differ."""
    contents = []
    for name, data in (("one", PEOPLE), ("two", {"age": [2] * 977, "sex": ["F"] * 977})):
        path = tmp_path / name
        rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=1)).save(path)
        container = _files.read(path, "release")
        manifest = json.loads(json.dumps(container.manifest))
        manifest["audit"].pop("time")
        arrays = {
            key: value for key, value in container.arrays.items() if not key.startswith("measurements.")
        }
        shapes = {key: value.shape for key, value in container.arrays.items()}
        contents.append((manifest, {key: value.tobytes() for key, value in arrays.items()}, shapes))
    assert contents[0] == contents[1]


def test_a_release_holds_no_exact_answer(plan, monkeypatch):
    """Every measured number has noise of its own: the exact ones are nowhere in what measure returns."""
    exact = []
    real = measuring.exact_answers

    def watched(*args):
        exact.extend(real(*args))
        return [answers.copy() for answers in exact]

    monkeypatch.setattr(measuring, "exact_answers", watched)
    release = rs.measure(plan, PEOPLE, **SIMULATED)
    assert set(vars(release)) == {"plan", "measurements", "audit"}
    for clean, noisy in zip(exact, release.measurements.values, strict=True):
        assert noisy is not clean
        assert (noisy != clean).any()


def test_a_full_disk_loses_no_release_that_is_still_in_memory(plan, ledger, tmp_path, monkeypatch):
    release = rs.measure(plan, PEOPLE, ledger=ledger)
    target = tmp_path / "people.release"

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            release.save(target)
    assert [path for path in tmp_path.iterdir() if path != ledger.path] == []
    release.save(target)
    assert rs.Release.load(target).hash == release.hash


def test_measuring_writes_nothing_but_the_ledger(plan, ledger, tmp_path):
    rs.measure(plan, PEOPLE, ledger=ledger)
    assert list(Path(tmp_path).iterdir()) == [ledger.path]
