"""Measuring part by part: the same numbers, the same order of debit and noise, and nothing torn apart."""

from types import SimpleNamespace

import numpy as np
import pytest
from placed_plans import some_plan

import residua as rs
from residua import _measure
from residua.errors import BudgetError, DataError, LedgerError
from residua.kernel import measuring, parts
from residua.kernel.parts import Counted, noisy_parts
from residua.strategy import strategy
from residua.strategy.parts import parts_of


@pytest.fixture(scope="module")
def plan():
    return some_plan(1)


@pytest.fixture(scope="module")
def divided(plan):
    return parts_of(plan.strategy, most=150)


def codes_of(plan, count=400):
    return np.random.default_rng(2).integers(0, plan.schema.sizes, (count, len(plan.schema)))


def measured(plan, divided, data, source=None, ledger=None, write=None, **given):
    """The entry that paid, and by part what was handed on."""
    found = {}

    def keep(part, values):
        found[part] = {at: own.copy() for at, own in values.items()}

    settings = {"note": "", "progress": None, "engine": None} | given
    paid = noisy_parts(plan, divided, data, source or rs.simulated(seed=3), ledger, write or keep, **settings)
    return paid, found


def whole(plan, divided, found):
    """What was handed on, by batch, in the order of the blocks."""
    values = [np.zeros((len(batch.subsets), batch.rows), dtype=np.int64) for batch in plan.batches]
    for part, own in found.items():
        for at, numbers in own.items():
            blocks = slice(None) if part is None else divided.blocks(at, part)
            values[at][blocks] += numbers
    return values


def test_exact_answers_of_all_parts_are_those_of_measuring_at_once(plan, divided, monkeypatch):
    monkeypatch.setattr(parts, "noisy", lambda batch, answers, *_: answers)
    codes = codes_of(plan)
    exact = measuring.counted_answers(plan, codes, None, None)
    paid, found = measured(plan, divided, codes)
    assert paid is None
    assert [*found] == [None, *range(len(divided))]
    for own, other in zip(whole(plan, divided, found), exact, strict=True):
        assert np.array_equal(own, other)


def test_every_number_gets_noise_of_its_own_law_those_of_empty_places_too(plan, divided):
    rounds = [measured(plan, divided, codes_of(plan)[:0], rs.simulated(seed=seed))[1] for seed in range(60)]
    values = [whole(plan, divided, found) for found in rounds]
    for at, batch in enumerate(plan.batches):
        drawn = np.array([each[at] for each in values])
        spread = np.sqrt([law.variance for law in batch.laws()])[batch.owners]
        scaled = drawn / spread[None, :, None]
        assert scaled.std() == pytest.approx(1, abs=6 / np.sqrt(scaled.size))
        per_block = scaled.reshape(len(rounds), len(spread), -1).std(axis=(0, 2))
        assert (abs(per_block - 1) < 0.6).all()


def test_the_debit_is_made_before_any_noise_and_after_all_counting(plan, divided, tmp_path, monkeypatch):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    spent_when_drawn = []
    real = parts.noisy

    def watched(*given):
        spent_when_drawn.append(ledger.spent)
        return real(*given)

    monkeypatch.setattr(parts, "noisy", watched)
    paid, found = measured(plan, divided, codes_of(plan), measuring.SystemSource(), ledger)
    assert int(paid["entry"]) == ledger.entries()[0].id
    assert {*spent_when_drawn} == {ledger.total - ledger.remaining}
    assert ledger.spent > 0
    assert len(found) == 1 + len(divided)


def test_what_fails_before_the_debit_costs_nothing(plan, divided, tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    source = measuring.SystemSource()
    bad = codes_of(plan).astype(np.int64)
    bad[3, 0] = 10_000
    with pytest.raises(DataError):
        measured(plan, divided, bad, source, ledger)
    with pytest.raises(DataError, match="Unicode"):
        measured(plan, divided, codes_of(plan), source, ledger, note="\ud800")
    monthly = rs.Ledger.create(tmp_path / "monthly.db", rs.zcdp(10), dataset="people", periods="month")
    with pytest.raises(LedgerError):
        measured(plan, divided, codes_of(plan), source, monthly)
    assert ledger.spent == monthly.spent == 0


def test_memory_that_the_largest_part_lacks_costs_nothing(plan, divided, tmp_path, monkeypatch):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    asked = []

    def lacking(counted, part):
        asked.append(part)
        raise MemoryError

    monkeypatch.setattr(Counted, "largest", lambda _: 1)
    monkeypatch.setattr(Counted, "of_part", lacking)
    with pytest.raises(MemoryError):
        measured(plan, divided, codes_of(plan), measuring.SystemSource(), ledger)
    assert (asked, ledger.spent) == ([1], 0)


def test_the_largest_part_is_that_with_the_most_numbers():
    blocks = {(0, 0): 9, (1, 0): 1, (0, 1): 2, (1, 1): 2, (0, 2): 1, (1, 2): 1}
    counted = object.__new__(Counted)
    counted._batches = [SimpleNamespace(rows=2), SimpleNamespace(rows=20)]

    class Three:
        divided = (0, 1)
        __len__ = staticmethod(lambda: 3)
        blocks = staticmethod(lambda batch, part: range(blocks[batch, part]))

    counted._parts = Three()
    assert counted.largest() == 1


def test_a_kill_while_parts_are_written_leaves_the_debit_and_nothing_else(plan, divided, tmp_path):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")

    def fail(part, values):
        if part == 1:
            raise OSError("no more disk")

    with pytest.raises(OSError, match="no more disk"):
        measured(plan, divided, codes_of(plan), measuring.SystemSource(), ledger, fail)
    (entry,) = ledger.entries()
    assert entry.release_hash is None


class Changing:
    """Data of which there is one record less after every pass."""

    def __init__(self, codes):
        self.codes = codes

    def open(self, schema, data):
        return self

    @property
    def records(self):
        return len(self.codes)

    about, cells_at_once = 100, 10**6

    def tally(self, sets, progress=None):
        engine = rs.engines.MemoryEngine(self.codes, self.sizes)
        self.codes = self.codes[:-1]
        return engine.tally(sets, progress)


def test_data_that_change_between_passes_are_refused(plan, divided):
    engine = Changing(codes_of(plan))
    engine.sizes = plan.schema.sizes
    with pytest.raises(DataError, match="changed while being counted"):
        measured(plan, divided, None, engine=engine)


class Torn:
    """Parts that are not."""

    def __init__(self, real, **changes):
        self.real, self.changes = real, changes

    def __len__(self):
        return len(self.real)

    def __getattr__(self, name):
        return self.changes.get(name, getattr(self.real, name))


def test_parts_that_do_not_have_each_block_once_are_refused(plan, divided):
    missing = Torn(divided, blocks=lambda at, part: divided.blocks(at, part)[1:])
    moved = Torn(divided, of_cells=lambda: np.roll(divided.of_cells(), 1))
    above = Torn(divided, divided=[next(at for at, b in enumerate(plan.batches) if b.within is None)])
    for torn in (missing, moved, above):
        with pytest.raises(BudgetError, match="do not have each of its blocks once"):
            measured(plan, torn, codes_of(plan))


@pytest.mark.parametrize("most", [150, 10**6])
@pytest.mark.parametrize("named", [True, False])
def test_a_release_goes_into_its_file_and_the_ledger_is_told(plan, tmp_path, monkeypatch, most, named):
    monkeypatch.setattr("residua._measure.parts_of", lambda own: parts_of(own, most))
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    given = tmp_path / "budget.db" if named else ledger
    made = rs.measure(plan, codes_of(plan), ledger=given, note="all", into=tmp_path / "a.release")
    loaded = rs.Release.load(tmp_path / "a.release")
    (entry,) = rs.Ledger.open(tmp_path / "budget.db").entries()
    assert entry.release_hash == made.hash == loaded.hash
    assert loaded.audit == made.audit
    assert loaded.audit["note"] == "all"
    assert (made.measurements.parts is None) == (most > 1000)
    for own, other in zip(made.measurements.values, loaded.measurements.values, strict=True):
        assert np.array_equal(own, other)


@pytest.mark.parametrize("most", [150, 10**6])
def test_the_disk_has_room_for_the_whole_file_before_anything_is_paid(plan, tmp_path, monkeypatch, most):
    rooms, entry, real = [], 2**11, _measure.whole_file

    def watched(path, room):
        rooms.append(room)
        return real(path, room)

    monkeypatch.setattr(_measure, "parts_of", lambda own: parts_of(own, most))
    monkeypatch.setattr(_measure, "rehearsed", lambda *_: 10**6)
    monkeypatch.setattr(_measure, "whole_file", watched)
    monkeypatch.setattr(_measure, "ROOM_FOR_ENTRY", entry)
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")
    [room], size = rooms, (tmp_path / "a.release").stat().st_size
    assert room == 10**6 + entry if most == 150 else 2 * entry < size <= room <= size + entry


@pytest.mark.parametrize("most", [150, 10**6])
def test_what_cannot_be_counted_or_read_again_is_paid_by_nobody(plan, tmp_path, monkeypatch, most):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")
    monkeypatch.setattr(_measure, "parts_of", lambda own: parts_of(own, most))
    with monkeypatch.context() as patch:
        patch.setattr(strategy, "COUNTED_CELLS", 1)
        with pytest.raises(rs.Infeasible, match="counted at once"):
            rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")

    def refuse(_):
        raise rs.WorkloadError("never loaded")

    monkeypatch.setattr(rs.Workload, "refuse_unreadable", refuse)
    with pytest.raises(rs.WorkloadError, match="never loaded"):
        rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")
    assert ledger.spent == 0


def test_a_simulated_release_goes_into_its_file_without_a_ledger(plan, tmp_path):
    made = rs.measure(plan, codes_of(plan), ledger=None, noise=rs.simulated(1), into=tmp_path / "a.release")
    assert rs.Release.load(tmp_path / "a.release").simulated
    assert made.audit["ledger"] is None


def test_a_ledger_that_cannot_note_a_release_does_not_take_it_away(plan, tmp_path, monkeypatch):
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(10), dataset="people")

    def locked(*_):
        raise LedgerError("it is kept locked")

    monkeypatch.setattr(rs.Ledger, "complete", locked)
    with pytest.raises(LedgerError, match="written and paid for, but the ledger could not note"):
        rs.measure(plan, codes_of(plan), ledger=ledger, into=tmp_path / "a.release")
    assert rs.Release.load(tmp_path / "a.release").audit["ledger"]["hash"] == ledger.entries()[0].hash
