"""Streams: each period once, in turn; releases so far that later periods do not change; secrets that stay."""

import io
import os
import stat
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import residua as rs
from residua.errors import BudgetError, DataError, FileFormatError, LedgerError, SchemaError, WorkloadError
from residua.evidence.facts import Facts
from residua.report import release_contents
from residua.report.words import methods_paragraph
from residua.stream import storage
from residua.stream import stream as streams
from residua.stream.so_far import shortened

MONTHS = ("2026-01", "2026-02", "2026-03", "2026-04")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(storage, "_SETTINGS", ("PRAGMA synchronous=OFF", "PRAGMA secure_delete=ON"))
    monkeypatch.setattr("residua.ledger.sqlite._SETTINGS", ("PRAGMA synchronous=OFF",))


@pytest.fixture(scope="module")
def schema():
    return rs.Schema(day=rs.Date("2026-01-01", "2026-04-30", by="month"), sex=rs.Categorical("F", "M"))


@pytest.fixture(scope="module")
def plan(schema):
    work = rs.table(schema, day=rs.prefix, sex=rs.identity) + rs.table(schema, day=rs.width(2), name="pairs")
    work += rs.table(schema, {"day.quarter": rs.identity}, name="quarters") + rs.table(schema, ["sex"])
    return rs.plan(work, rs.zcdp("0.5"), over="day")


def births(*months, each=10):
    """Records of these months, half of them girls."""
    days = [f"{month}-15" for month in months for _ in range(each)]
    return {"day": days, "sex": ["F", "M"] * (len(days) // 2)}


@pytest.fixture
def begun(tmp_path, plan):
    """A stream of which two of four months were measured, and its ledger."""
    ledger = rs.Ledger.create(tmp_path / "budget.db", rs.zcdp(1), dataset="births")
    made = rs.Stream.create(tmp_path / "births.stream", plan, over="day.month", ledger=ledger)
    for month in MONTHS[:2]:
        made.measure(month, births(month))
    return made, ledger


def simulated(path, plan, seed, upto=4, counts=(10, 20, 30, 40)):
    made = rs.Stream.create(path, plan, over="day", ledger=None)
    for number in range(upto):
        noise = rs.simulated(seed=100 * seed + number)
        made.measure(MONTHS[number], births(MONTHS[number], each=counts[number]), noise=noise)
    return made


class TestTurns:
    def test_periods_come_in_turn_and_once(self, begun):
        stream, _ = begun
        assert (stream.periods, stream.measured, stream.next) == (MONTHS, MONTHS[:2], MONTHS[2])
        assert repr(stream).endswith("2 of 4 periods measured)")
        with pytest.raises(WorkloadError, match="'2026-02' was measured already"):
            stream.measure("2026-02", births("2026-02"))
        with pytest.raises(WorkloadError, match="'2026-03' comes first"):
            stream.measure("2026-04", births("2026-04"))
        with pytest.raises(WorkloadError, match=r"is no period of this stream \(did you mean '2026-0"):
            stream.measure("2026-0", births("2026-02"))

    def test_the_plan_is_paid_for_once_and_by_disjoint_periods_each(self, begun, tmp_path, plan):
        _, ledger = begun
        assert [entry.amount for entry in ledger.entries()] == [Fraction(1, 2), 0]
        apart = rs.Ledger.create(
            tmp_path / "apart.db", rs.zcdp("0.5"), dataset="births", periods="month", disjoint=True
        )
        other = rs.Stream.create(tmp_path / "other.stream", plan, over="day", ledger=tmp_path / "apart.db")
        for month in MONTHS:
            other.measure(month, births(month))
        assert apart.spent_by_period() == dict.fromkeys(MONTHS, Fraction(1, 2))

    def test_records_of_other_periods_are_not_measured(self, tmp_path, plan):
        wide = rs.Stream.create(tmp_path / "wide.stream", plan, over="day", ledger=None)
        narrow = rs.Stream.create(tmp_path / "narrow.stream", plan, over="day", ledger=None)
        for month in MONTHS:
            noise = rs.simulated(seed=3)
            wide.measure(month, births(*MONTHS), noise=noise)
            narrow.measure(month, births(month), noise=rs.simulated(seed=3))
        assert np.array_equal(wide.release().values(), narrow.release().values())
        assert wide.release().audit["stream"]["late"] == streams.LATE

    def test_a_closed_stream_keeps_its_releases_and_no_secrets(self, begun):
        stream, _ = begun
        before = stream.release().values()
        stream.close()
        assert stream.next is None
        assert not streams._secret(stream.path).path.exists()
        with pytest.raises(WorkloadError, match="was closed"):
            stream.measure("2026-03", births("2026-03"))
        assert np.array_equal(rs.Stream.open(stream.path).release().values(), before)

    def test_a_failure_before_the_debit_leaves_everything_as_it_was(self, begun):
        stream, ledger = begun
        with pytest.raises(DataError):
            stream.measure("2026-03", {"day": ["2026-03-01"], "sex": ["?"]})
        assert (stream.next, len(ledger.entries())) == ("2026-03", 2)
        stream.measure("2026-03", births("2026-03"))
        assert stream.measured == MONTHS[:3]


class TestReleases:
    def test_a_release_uses_only_what_came_before_and_is_never_revised(self, tmp_path, plan):
        stream = rs.Stream.create(tmp_path / "a.stream", plan, over="day", ledger=None)
        with pytest.raises(WorkloadError, match="nothing was measured so far"):
            stream.release()
        seen = []
        for number, month in enumerate(MONTHS):
            stream.measure(month, births(month), noise=rs.simulated(seed=number))
            seen.append(stream.release().table("day", "sex"))
        for number, month in enumerate(MONTHS):
            found = stream.release(month).table("day", "sex")
            assert np.array_equal(found.values, seen[number].values)
            assert found.axes[0] == MONTHS[: number + 1]
            assert found.values == pytest.approx(seen[-1].values[: number + 1])
            assert found.stddev == pytest.approx(seen[-1].stddev[: number + 1], rel=1e-6)
        with pytest.raises(WorkloadError, match="was not measured"):
            stream.release("2027-01")

    def test_errors_so_far_are_those_of_dense_least_squares(self, tmp_path, plan):
        release = simulated(tmp_path / "a.stream", plan, 1, upto=3).release()
        [batch] = plan.batches
        [matrix] = batch.matrices
        early = np.indices(batch.sizes)[0].reshape(-1) < 3
        rows = matrix[~(matrix[:, ~early] != 0).any(axis=1)][:, early] * batch.multiplier
        cover = np.linalg.inv(rows.T @ rows) * (float(batch.parameters[0]) + 1 / 12)
        assert release.plan.variances(rs.table(release.plan.schema, ["day", "sex"])) == pytest.approx(
            np.diagonal(cover), rel=1e-6
        )

    def test_tables_that_look_back_are_in_and_others_wait(self, tmp_path, plan):
        stream = simulated(tmp_path / "a.stream", plan, 1)
        names = [stream.release(month).plan.workload.names for month in MONTHS]
        assert [("pairs" in own, "quarters" in own) for own in names] == [
            (False, False),
            (True, False),
            (True, True),
            (True, True),
        ]
        whole = stream.release()
        assert (whole.plan.hash, whole.plan.method) == (plan.hash, "auto")
        assert whole.plan.workload.count == plan.workload.count

    def test_a_release_so_far_is_an_ordinary_file(self, begun, tmp_path):
        release = begun[0].release()
        release.save(tmp_path / "a.release")
        loaded = rs.Release.load(tmp_path / "a.release")
        assert loaded.hash == release.hash
        assert np.array_equal(loaded.values(), release.values())
        assert loaded.audit["period"] == "2026-01/2026-02"
        assert "instalments" in loaded.plan.explain()
        assert release.nonnegative().table("sex").values.min() >= 0
        with pytest.raises(rs.Infeasible, match="some instalments of another plan"):
            loaded.plan.rescale(rs.zcdp(1))

    def test_answers_are_unbiased_with_the_stated_variance(self, tmp_path, plan):
        upto, runs = 3, 150
        found = np.array(
            [simulated(tmp_path / f"{run}.stream", plan, run, upto).release().values() for run in range(runs)]
        )
        release = simulated(tmp_path / "one.stream", plan, 0, upto).release()
        work, truth = release.plan.workload, []
        cells = np.repeat([[10.0], [20.0], [30.0]], 2, axis=1) / 2
        for table in work.groups():
            rows = np.ones((1, 1))
            for factor in sorted(table.factors, key=lambda each: each.attributes):
                rows = np.kron(rows, factor.queries.matrix())
            missing = [axis for axis in (0, 1) if axis not in table.attributes]
            truth.append(rows @ cells.sum(axis=tuple(missing)).reshape(-1))
        stddev = np.sqrt(release.plan.variances(work))
        z = (found.mean(axis=0) - np.concatenate(truth)) / stddev * np.sqrt(runs)
        assert np.abs(z).max() < 4.5
        ratio = found.var(axis=0, ddof=1) / stddev**2
        assert np.abs(ratio - 1).max() < 6 * np.sqrt(2 / runs)

    def test_statements_and_reports_name_the_period_and_the_instalments(self, begun):
        release = begun[0].release()
        facts = Facts(release)
        assert "records of 2026-01/2026-02 over" in facts.domain()
        assert (
            "measured in 4 instalments, one for each period, of which this release has 2"
            in facts.composition()
        )
        told = dict(release_contents(release).history)
        assert told["period of the data"] == "2026-01/2026-02"
        paragraph = methods_paragraph(release_contents(release))
        assert "measured in instalments, each period once, with" in paragraph
        assert told["instalments of one plan"].startswith("2 of 4; records of earlier periods")


class TestSecrets:
    def test_exact_counts_are_for_their_owner_and_go_with_the_last_instalment(self, begun, tmp_path):
        stream, _ = begun
        secret = streams._secret(stream.path).path
        assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600
        assert sorted(each.name for each in tmp_path.iterdir()) == [
            "births.stream",
            "births.stream.secret",
            "budget.db",
        ]
        for month in MONTHS[2:]:
            stream.measure(month, births(month))
        assert not secret.exists()
        secret.write_bytes(b"left over")  # as a process that was cut off would leave it
        secret.unlink()
        assert rs.Stream.open(stream.path).next is None

    def test_what_was_cut_off_at_the_end_is_tidied_up_by_who_comes_next(self, begun, monkeypatch):
        stream, _ = begun
        stream.measure(MONTHS[2], births(MONTHS[2]))
        with monkeypatch.context() as patch:
            patch.setattr(storage.Store, "delete", lambda self: None)
            stream.measure(MONTHS[3], births(MONTHS[3]))
        assert streams._secret(stream.path).path.exists()
        rs.Stream.open(stream.path)
        assert not streams._secret(stream.path).path.exists()

    def test_only_the_newest_counts_are_kept(self, begun):
        with streams._secret(begun[0].path).transaction() as connection:
            assert connection.execute("SELECT count(DISTINCT instalment) FROM part").fetchone() == (1,)

    def test_no_exact_count_is_in_a_stream_or_a_release(self, tmp_path, plan):
        stream = simulated(tmp_path / "a.stream", plan, 1, upto=2, counts=(7654320, 1234568, 0, 0))
        kept = io.BytesIO()
        stream.release().save(kept)
        stored = b"".join(zipfile.ZipFile(kept).read(name) for name in zipfile.ZipFile(kept).namelist())
        for count in (7654320, 3827160):
            number = count.to_bytes(8, "little")
            assert number not in stream.path.read_bytes()
            assert number not in stored
        assert (3827160).to_bytes(8, "little") in streams._secret(stream.path).path.read_bytes()

    def test_lost_counts_are_told_of_before_any_debit(self, begun):
        stream, ledger = begun
        streams._secret(stream.path).path.unlink()
        with pytest.raises(FileFormatError, match="exact counts of earlier periods are gone"):
            stream.measure("2026-03", births("2026-03"))
        assert len(ledger.entries()) == 2

    def test_without_a_secret_file_the_same_data_are_given_again(self, tmp_path, plan):
        again = rs.Stream.create(tmp_path / "again.stream", plan, over="day", ledger=None, keep=False)
        kept = rs.Stream.create(tmp_path / "kept.stream", plan, over="day", ledger=None)
        for number, month in enumerate(MONTHS):
            again.measure(month, births(*MONTHS[: number + 1]), noise=rs.simulated(seed=number))
            kept.measure(month, births(month), noise=rs.simulated(seed=number))
        assert np.array_equal(again.release().values(), kept.release().values())
        assert not streams._secret(again.path).path.exists()

    def test_another_copy_of_a_stream_measures_nothing(self, begun, tmp_path):
        stream, ledger = begun
        copy = tmp_path / "copy.stream"
        for suffix in ("", ".secret"):
            (tmp_path / f"copy.stream{suffix}").write_bytes(Path(f"{stream.path}{suffix}").read_bytes())
        stream.measure("2026-03", births("2026-03"))
        with pytest.raises(LedgerError, match="another copy of the stream"):
            rs.Stream.open(copy).measure("2026-03", births("2026-03"))
        assert len(ledger.entries()) == 3

    def test_of_two_processes_one_measures(self, begun, monkeypatch):
        stream, ledger = begun
        write = storage.Store.write

        def late(self, *arguments, **options):
            if arguments and self.path == stream.path:
                monkeypatch.setattr(storage.Store, "write", write)
                stream.measure("2026-03", births("2026-03"))
            write(self, *arguments, **options)

        monkeypatch.setattr(storage.Store, "write", late)
        with pytest.raises(FileFormatError, match="UNIQUE"):
            stream.measure("2026-03", births("2026-03"))
        assert (stream.measured, len(ledger.entries())) == (MONTHS[:3], 3)
        stream.measure("2026-04", births("2026-04"))


class TestCreation:
    def test_a_plan_that_waits_for_the_end_is_planned_again(self, tmp_path, schema):
        work = rs.marginals(schema, up_to=2)
        offline = rs.plan(work, rs.zcdp("0.5"), method="querysmasher")
        stream = rs.Stream.create(tmp_path / "a.stream", offline, over="day", ledger=None)
        assert stream.plan.total_variance <= 1.001 * offline.total_variance
        offline.save(tmp_path / "a.plan")
        other = rs.Stream.create(tmp_path / "b.stream", tmp_path / "a.plan", over="day", ledger=None)
        assert other.plan.hash == stream.plan.hash

    def test_one_for_another_objective_is_refused(self, tmp_path, schema):
        work = rs.table(schema, day=rs.prefix)
        pure = rs.plan(rs.table(schema, day=rs.ranges), rs.pure_dp(1), method="workload")
        for worst in (rs.plan(work, rs.zcdp(1), objective="max_variance"), pure):
            with pytest.raises(WorkloadError, match="waits for the last period"):
                rs.Stream.create(tmp_path / "a.stream", worst, over="day", ledger=None)

    def test_laplace_noise_on_cells_needs_no_other_plan(self, tmp_path, schema):
        plan = rs.plan(rs.table(schema, ["day"]), rs.pure_dp(1), method="identity")
        stream = rs.Stream.create(tmp_path / "a.stream", plan, over="day", ledger=None)
        stream.measure(MONTHS[0], births(MONTHS[0]), noise=rs.simulated(seed=1))
        assert stream.plan.hash == plan.hash
        wanted = np.sqrt(plan.variances(plan.workload)[:1])
        assert stream.release().table("day").stddev == pytest.approx(wanted)

    def test_a_stream_is_never_replaced_nor_put_in_place_of_its_ledger(self, begun, plan):
        stream, ledger = begun
        with pytest.raises(FileFormatError, match="never replaced"):
            rs.Stream.create(stream.path, plan, over="day", ledger=ledger)
        with pytest.raises(FileFormatError, match="is the ledger"):
            rs.Stream.create(ledger.path, plan, over="day", ledger=ledger)
        with pytest.raises(LedgerError, match="paid for by a ledger"):
            rs.Stream.create(stream.path, plan, over="day")
        with pytest.raises(FileFormatError, match="no file of a stream"):
            rs.Stream.open(ledger.path)
        with pytest.raises(FileFormatError, match="there is no file"):
            rs.Stream.open("nowhere.stream")
        with pytest.raises(FileFormatError, match="has no plan"):
            rs.Stream.open(streams._secret(stream.path).path)

    def test_the_ledger_must_know_the_periods(self, tmp_path):
        schema = rs.Schema(month=rs.Integer(0, 3))
        rs.Ledger.create(tmp_path / "l.db", rs.zcdp(1), dataset="b", periods="month", disjoint=True)
        plan = rs.plan(rs.table(schema, month=rs.prefix), rs.zcdp(1), over="month")
        with pytest.raises(LedgerError, match="'0' is no period"):
            rs.Stream.create(tmp_path / "a.stream", plan, over="month", ledger=tmp_path / "l.db")
        assert not (tmp_path / "a.stream").exists()

    def test_too_many_counts_to_keep_are_refused(self, tmp_path, plan, monkeypatch):
        monkeypatch.setattr(streams, "STREAM_CELLS", 7)
        with pytest.raises(rs.Infeasible, match="numbers that a stream keeps"):
            rs.Stream.create(tmp_path / "a.stream", plan, over="day", ledger=None)

    @pytest.mark.parametrize(
        ("unit", "fine"),
        [
            (rs.Unit(id="who", max_records=4, one_per="month"), True),
            (rs.Unit(id="who", max_records=8, max_per={"month": 2}), True),
            (rs.Unit(id="who", max_records=3, one_per="month"), False),
            (rs.Unit(id="who", max_records=4), False),
            (rs.Unit(id="who", max_records=4, max_per={"month": 1, "sex": 2}), False),
            (rs.Unit(max_records=2), True),
        ],
        ids=repr,
    )
    def test_a_cap_across_periods_needs_one_for_each_period(self, tmp_path, unit, fine):
        schema = rs.Schema(month=rs.Integer(0, 3), sex=rs.Categorical("F", "M"))
        plan = rs.plan(rs.table(schema, ["month", "sex"]), rs.zcdp(1), unit=unit, over="month")
        if not fine:
            with pytest.raises(BudgetError, match="one period's records alone"):
                rs.Stream.create(tmp_path / "a.stream", plan, over="month", ledger=None)
            return
        stream = rs.Stream.create(tmp_path / "a.stream", plan, over="month", ledger=None)
        data = {"month": [0, 0, 0], "sex": ["F", "F", "M"], "who": [1, 1, 1]}
        stream.measure("0", data, noise=rs.simulated(seed=1))

    def test_a_cap_on_longer_periods_than_the_instalments_is_refused(self, tmp_path, schema):
        unit = rs.Unit(id="who", max_records=2, one_per="day.quarter")
        plan = rs.plan(rs.table(schema, ["day"]), rs.zcdp(1), unit=unit, over="day")
        with pytest.raises(BudgetError, match="lies within one 'day'"):
            rs.Stream.create(tmp_path / "a.stream", plan, over="day", ledger=None)
        rs.Stream.create(tmp_path / "b.stream", plan, over="day.quarter", ledger=None)

    @pytest.mark.skipif(sys.platform == "win32", reason="platform: modes of files")
    def test_streams_over_levels_and_other_attributes(self, tmp_path):
        day = rs.Date("2026-01-10", "2026-03-20")
        assert shortened(day, 22).high.isoformat() == "2026-01-31"
        assert shortened(rs.Categorical("w1", "w2", "w3"), 2) == rs.Categorical("w1", "w2")
        with pytest.raises(SchemaError, match="no attribute of periods"):
            shortened(rs.Binned(0, 1, 2), 1)
        schema = rs.Schema(day=day)
        work = rs.table(schema, {"day.month": rs.identity}) + rs.table(schema, day=rs.prefix)
        stream = rs.Stream.create(
            tmp_path / "a.stream", rs.plan(work, rs.zcdp(1), over="day"), over="day.month", ledger=None
        )
        assert stream.periods == ("2026-01", "2026-02", "2026-03")
        stream.measure("2026-01", {"day": ["2026-01-31"] * 50}, noise=rs.simulated(seed=1))
        release = stream.release()
        assert release.plan.schema["day"].size == 22
        assert release.table("day.month").values == pytest.approx([50], abs=8)
        waves = rs.Schema(wave=rs.Categorical("w1", "w2", "w3"))
        other = rs.Stream.create(
            tmp_path / "b.stream", rs.plan(rs.table(waves, ["wave"]), rs.zcdp(1)), over="wave", ledger=None
        )
        other.measure("w1", {"wave": ["w1"] * 9}, noise=rs.simulated(seed=1))
        assert other.release().table("wave").axes == (("w1",),)
