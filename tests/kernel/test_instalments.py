"""Laws of measuring in instalments, and of ledgers that know periods."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import residua as rs
from residua.errors import BudgetError, BudgetExceeded, LedgerError
from residua.kernel.cost import person_cost
from residua.kernel.instalments import Schedule, noisy_instalment
from residua.kernel.measurement import Measurement
from residua.kernel.measuring import counted_answers
from residua.ledger import Instalment, Ledger, book, periods, sqlite
from residua.ledger.periods import covered, following
from residua.linalg.classes import Classes, JointClasses
from residua.privacy import Privacy, Unit, zcdp
from residua.privacy.unit import Person

RHO = Privacy.from_rho("0.4")
MONTHS = {"periods": "month", "disjoint": True}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sqlite, "_SETTINGS", ("PRAGMA synchronous=OFF",))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture(scope="module")
def plan():
    schema = rs.Schema(sex=rs.Categorical("F", "M"), month=rs.Integer(0, 3), age=rs.Integer(0, 2))
    work = rs.table(schema, month=rs.prefix, sex=rs.identity) + rs.table(schema, ["sex"])
    work += rs.table(schema, month=rs.identity, age=rs.prefix)
    return rs.plan(work, rs.zcdp("0.5"), over="month")


def forge(ledger, text):
    """Append an event with the right hash, as a careful forger would."""
    with sqlite.File(ledger.path).transaction(write=True) as rows:
        known = list(rows.every())
        rows.add((len(known) + 1, text, book.chained(known[-1][2], text)))


def event(**changes):
    record = {"kind": "spent", "time": "2026-01-01T00:00:00+00:00", "plan_hash": "p", "note": ""}
    return json.dumps(record | {"privacy": RHO.to_manifest()} | changes)


class TestSchedule:
    def test_each_row_waits_for_the_last_period_it_looks_at(self):
        left, time = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1, 0, 0], [5, 1, 0], [0, 0, 2]])
        owners, one = np.zeros(1, np.int64), (Fraction(1),)
        batch = Measurement(np.array([[4, 7]], np.int32), (2, 3), (left, time), 1, "gaussian", one, owners)
        found = Schedule.of([batch], 7, np.array([0, 0, 1]))
        dense = np.kron(left, time)
        cells = np.tile([0, 0, 1], 2)
        assert np.array_equal(found.cells[0], cells)
        assert np.array_equal(found.rows[0], [cells[row != 0].max() for row in dense])
        assert (found.periods, found.whole) == (2, True)

    def test_a_joint_matrix_is_read_cell_by_cell(self, plan):
        [batch] = plan.batches
        found = Schedule.of([batch], 1, np.arange(4))
        [matrix] = batch.matrices
        cells = np.indices(batch.sizes)[1].reshape(-1)
        assert np.array_equal(found.rows[0], [cells[row != 0].max() for row in matrix])
        assert found.whole

    def test_a_plan_that_waits_for_the_end_is_not_whole(self):
        work = rs.table(rs.Schema(month=rs.Integer(0, 3)), month=rs.ranges)
        assert not Schedule.of(rs.plan(work, rs.zcdp(1)).batches, 0, np.arange(4)).whole

    def test_one_period_at_the_end_is_part_of_the_last_matrix(self):
        owners, one = np.zeros(1, np.int64), (Fraction(1),)
        cells = np.eye(2, dtype=np.int64)
        batch = Measurement(np.array([[4, 7]], np.int32), (2, 1), (cells,), 1, "gaussian", one, owners)
        found = Schedule.of([batch], 7, np.array([0]))
        assert (found.periods, found.rows[0].tolist(), found.cells[0].tolist()) == (1, [0, 0], [0, 0])

    @pytest.mark.parametrize("hidden", ["derived", "within"])
    def test_blocks_that_see_the_periods_by_classes_or_are_within_cells_are_refused(self, hidden):
        owners, one = np.zeros(2, np.int64), (Fraction(1),)
        part = JointClasses.of_one(1, Classes.of([0, 0, 1, 1]))
        cells = np.eye(2, dtype=np.int64)
        if hidden == "derived":
            batch = Measurement(
                np.array([[1]], np.int32), (2,), (cells,), 1, "gaussian", one, owners[:1], (part,)
            )
            assert Schedule.of([replace(batch, derived=())], 1, np.arange(2)).periods == 2
        else:
            subsets = np.array([[1], [1]], np.int32)
            batch = Measurement(subsets, (2,), (cells,), 1, "gaussian", one, owners, (), 0)
        with pytest.raises(BudgetError, match="do not look at the periods"):
            Schedule.of([batch], 1, np.arange(2))

    def test_blocks_that_do_not_see_the_periods_are_refused(self, plan):
        schema = rs.Schema(month=rs.Integer(0, 3), age=rs.Integer(0, 9))
        work = rs.marginals(schema, ways=1)
        with pytest.raises(BudgetError, match="do not look at the periods"):
            Schedule.of(rs.plan(work, rs.zcdp(1), method="querysmasher").batches, 0, np.arange(4))


class TestInstalments:
    def records(self, rng, count=500):
        return np.stack([rng.integers(0, n, count) for n in (2, 4, 3)], axis=1).astype(np.int32)

    def measured(self, plan, codes, monkeypatch, *, again):
        """The exact answers of all instalments, as noise that is always zero leaves them."""
        silent = "residua.kernel.measuring.draw"
        monkeypatch.setattr(silent, lambda source, laws, many: np.zeros(sum(many), np.int64))
        schedule, past, found = Schedule.of(plan.batches, 1, np.arange(4)), None, []
        kept = []
        for number in range(4):
            data = codes if again else codes[codes[:, 1] == number]
            values, paid = noisy_instalment(
                plan, schedule, number, data, rs.simulated(seed=0), None,
                past=None if again or number == 0 else past, keep=kept.append, period=str(number),
                instalment=None, note="", progress=None, engine=None,
            )  # fmt: skip
            assert paid is None
            past = kept[-1]
            found.append(values)
        whole = [np.zeros((len(each.subsets), each.rows), np.int64) for each in plan.batches]
        for number, values in enumerate(found):
            for own, part, rows in zip(whole, values, schedule.rows, strict=True):
                own[:, rows == number] = part
        return whole

    @pytest.mark.parametrize("again", [False, True])
    def test_all_instalments_together_measure_what_the_plan_does(self, plan, monkeypatch, again):
        codes = self.records(np.random.default_rng(1))
        wanted = counted_answers(plan, codes, None, None)
        found = self.measured(plan, codes, monkeypatch, again=again)
        assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))

    def test_the_cost_of_all_instalments_together_is_the_plans_whatever_rows_come_when(self, plan):
        batches, at = plan.batches, Schedule.of(plan.batches, 1, np.arange(4))
        everybody = Person.of(plan.unit, plan.schema)
        assert person_cost(batches, everybody) <= plan.privacy.cost
        # Column by column, the squares of all rows of all instalments over the variance of their noise.
        [batch] = batches
        [matrix] = batch.matrices
        by_period = [(matrix[at.rows[0] == t].astype(object) ** 2).sum(axis=0) for t in range(4)]
        [variance] = batch.parameters
        assert max(sum(by_period)) * batch.multiplier**2 / variance == person_cost(batches, everybody)


class TestPeriods:
    @pytest.mark.parametrize(
        ("step", "period", "names"),
        [
            ("month", "2026-Q2", ("2026-04", "2026-05", "2026-06")),
            ("month", "2025-12/2026-01-31", ("2025-12", "2026-01")),
            ("month", "2026", tuple(f"2026-{month:02}" for month in range(1, 13))),
            ("quarter", "2026-02-28", ("2026-Q1",)),
            ("year", "2024-02-29/2025", ("2024", "2025")),
            ("day", "2024-02", tuple(f"2024-02-{day:02}" for day in range(1, 30))),
        ],
    )
    def test_a_period_is_told_in_steps_of_the_ledger(self, step, period, names):
        assert covered(step, period) == names

    @pytest.mark.parametrize("period", ["", "2026-13", "2026-Q5", "spring", "2026-02-30", 7, "0000"])
    def test_what_is_no_period_is_refused(self, period):
        with pytest.raises(LedgerError, match="is no period"):
            covered("month", period)

    def test_a_period_that_ends_before_it_begins_is_refused(self):
        with pytest.raises(LedgerError, match="ends before it begins"):
            covered("month", "2026-02/2026-01")

    def test_a_period_has_at_most_so_many_steps(self, monkeypatch):
        monkeypatch.setattr(periods, "MOST_PERIODS", 28)
        assert len(covered("day", "2026-02")) == 28
        with pytest.raises(LedgerError, match="more than 28 days"):
            covered("day", "2026-02/2026-03-01")

    def test_periods_to_come(self):
        assert following("quarter", "2026-Q4", 2) == ("2027-Q1", "2027-Q2")


class TestLedgersOfPeriods:
    def test_disjoint_periods_each_have_the_whole_budget(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="births", **MONTHS)
        assert (ledger.spent, ledger.remaining) == (0, 1)
        for month in ("2026-01", "2026-02", "2026-03"):
            assert ledger.spend(RHO, plan_hash="p", period=month).periods == (month,)
        ledger.spend(RHO, plan_hash="p", period="2026-Q1")
        assert (ledger.spent, ledger.remaining) == (Fraction(4, 5), Fraction(1, 5))
        assert ledger.spent_by_period() == dict.fromkeys(("2026-01", "2026-02", "2026-03"), Fraction(4, 5))
        assert ledger.remaining_in("2026-04") == 1
        assert ledger.can_spend(RHO, "2026-04")
        assert not ledger.can_spend(RHO, "2026")
        with pytest.raises(BudgetExceeded, match="left for 2026-03"):
            ledger.spend(RHO, plan_hash="p", period="2026-03/2026-05")
        assert "Total for each month, which are disjoint" in ledger.describe()

    def test_where_persons_return_budgets_add_up_whatever_the_period(self, path):
        unit = Unit(id="person_id", max_records=2)
        ledger = Ledger.create(path, zcdp(1), dataset="visits", unit=unit, periods="month")
        cost = replace(RHO, unit=unit)
        ledger.spend(cost, plan_hash="p", period="2026-01")
        ledger.spend(cost, plan_hash="p", period="2026-02")
        assert (ledger.spent, ledger.periods, ledger.disjoint) == (Fraction(4, 5), "month", False)
        with pytest.raises(BudgetExceeded, match=r"0\.2 left;"):
            ledger.spend(cost, plan_hash="p", period="2026-03")
        assert "Kept by month; what is spent on each adds up" in ledger.describe()

    def test_a_ledger_of_no_periods_adds_up_and_notes_what_is_stated(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        assert ledger.spend(RHO, plan_hash="p", period="spring").periods == ("spring",)
        assert ledger.spend(RHO, plan_hash="p").periods == ()
        assert (ledger.spent, ledger.periods) == (Fraction(4, 5), None)
        with pytest.raises(BudgetExceeded):
            ledger.spend(RHO, plan_hash="p", period="autumn")

    @pytest.mark.parametrize(
        "unit", [Unit(max_records=2), Unit(id="person_id"), Unit(neighbours="replace_one")], ids=repr
    )
    def test_parallel_composition_is_refused_where_a_unit_may_be_in_two_periods(self, path, unit):
        with pytest.raises(BudgetError, match="may have records in two periods"):
            Ledger.create(path, zcdp(1), dataset="people", unit=unit, **MONTHS)
        assert not path.exists()

    def test_periods_are_steps_of_the_calendar_and_stated(self, path):
        with pytest.raises(LedgerError, match="one of year, quarter, month, day"):
            Ledger.create(path, zcdp(1), dataset="births", periods="week")
        with pytest.raises(LedgerError, match="give periods="):
            Ledger.create(path, zcdp(1), dataset="births", disjoint=True)
        ledger = Ledger.create(path, zcdp(1), dataset="births", **MONTHS)
        with pytest.raises(LedgerError, match="say of which period"):
            ledger.spend(RHO, plan_hash="p")

    def test_a_release_without_its_period_is_refused_before_any_work(self, path):
        Ledger.create(path, zcdp(1), dataset="births", **MONTHS)
        schema = rs.Schema(sex=rs.Categorical("F", "M"))
        plan = rs.plan(rs.table(schema, ["sex"]), rs.zcdp("0.1"))
        with pytest.raises(LedgerError, match="say of which period"):
            rs.measure(plan, "nowhere.csv", ledger=path)
        found = rs.measure(plan, {"sex": ["F"]}, ledger=path, period="2026-01")
        assert found.audit["period"] == "2026-01"

    @pytest.mark.parametrize(
        "text",
        [
            event(),
            event(periods=[]),
            event(periods="2026-01"),
            event(periods=["2026-Q1"]),
            event(periods=[7]),
            event(periods=["2026-01"], instalment={"stream": "s"}),
        ],
    )
    def test_an_event_of_no_period_of_the_ledger_cannot_be(self, path, text):
        ledger = Ledger.create(path, zcdp(1), dataset="births", **MONTHS)
        forge(ledger, text)
        with pytest.raises(LedgerError):
            ledger.spent  # noqa: B018

    @pytest.mark.parametrize("listed", ["2026-01", [7], ["2026-01", 7], {"2026-01": 1}])
    def test_periods_are_names_in_any_ledger(self, path, listed):
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        forge(ledger, event(periods=listed))
        with pytest.raises(LedgerError, match="which are no periods"):
            ledger.spent  # noqa: B018

    @pytest.mark.parametrize("terms", [{"step": "week", "disjoint": True}, {"step": "month"}, "month"])
    def test_a_ledger_that_begins_otherwise_is_refused(self, terms):
        unit, budget = Unit().to_manifest(), zcdp(1).to_manifest()
        first = {"kind": "created", "time": "t", "dataset": "d", "budget": budget, "unit": unit}
        with pytest.raises(LedgerError):
            book.Book("forged", json.dumps(first | {"periods": terms}))


class TestInstalmentsInLedgers:
    def one(self, number, token="t", stream="s"):
        return Instalment(stream, number, token)

    def test_a_stream_is_paid_for_once_and_an_instalment_is_found_again(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        first = ledger.spend(RHO, plan_hash="p", instalment=self.one(0), period="2026-01")
        again = ledger.spend(RHO, plan_hash="p", instalment=self.one(0), period="2026-01")
        second = ledger.spend(RHO, plan_hash="p", instalment=self.one(1), period="2026-02")
        other = ledger.spend(RHO, plan_hash="p", instalment=self.one(0, stream="other"))
        assert first == again
        assert [each.amount for each in (first, second, other)] == [Fraction(2, 5), 0, Fraction(2, 5)]
        assert ledger.spent == Fraction(4, 5)

    def test_with_disjoint_periods_each_is_paid_for_once(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="births", periods="quarter", disjoint=True)
        spent = [
            ledger.spend(RHO, plan_hash="p", instalment=self.one(at), period=f"2026-{at + 1:02}").amount
            for at in range(6)
        ]
        assert spent == [Fraction(2, 5), 0, 0, Fraction(2, 5), 0, 0]
        assert ledger.spent_by_period() == {"2026-Q1": Fraction(2, 5), "2026-Q2": Fraction(2, 5)}

    def test_another_copy_of_a_stream_is_refused(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        ledger.spend(RHO, plan_hash="p", instalment=self.one(0))
        for token, plan in (("other", "p"), ("t", "other")):
            with pytest.raises(LedgerError, match=r"instalment 1 of .*another copy of the stream"):
                ledger.spend(RHO, plan_hash=plan, instalment=self.one(0, token))
        with pytest.raises(LedgerError, match="another plan for this stream"):
            ledger.spend(RHO, plan_hash="other", instalment=self.one(1))
        with pytest.raises(LedgerError, match="another plan for this stream"):
            ledger.spend(Privacy.from_rho("0.5"), plan_hash="p", instalment=self.one(1))
        assert ledger.spent == Fraction(2, 5)

    def test_the_same_instalment_twice_is_an_edited_ledger(self, path):
        ledger = Ledger.create(path, zcdp(1), dataset="people")
        instalment = {"stream": "s", "number": 0, "token": "t"}
        forge(ledger, event(instalment=instalment))
        assert ledger.spent == Fraction(2, 5)
        forge(ledger, event(instalment=instalment))
        with pytest.raises(LedgerError, match="this instalment already"):
            ledger.spent  # noqa: B018


def test_releases_so_far_are_checked_by_the_plan_of_their_stream(path, plan):
    ledger = Ledger.create(path, zcdp(1), dataset="people")
    stream = rs.Stream.create(path.with_name("a.stream"), plan, over="month", ledger=path)
    for period in stream.periods[:2]:
        stream.measure(period, np.array([[0, int(period), 0]] * 3))
    releases = [stream.release("0"), stream.release()]
    assert [each.state for each in ledger.check(releases)] == ["paid", "paid"]
