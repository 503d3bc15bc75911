"""A stream: one plan over periods, measured period by period, and a release of all so far at any time."""

import io
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from residua._arrays import Integers, settle
from residua._limits import STREAM_CELLS
from residua._text import hint, short
from residua.engines import Opener, Progress
from residua.errors import BudgetError, FileFormatError, Infeasible, LedgerError, WorkloadError, asks_for
from residua.kernel.instalments import Counts, Schedule, noisy_instalment
from residua.kernel.measuring import refuse_unkept, source_and_ledger
from residua.ledger import Instalment, Ledger
from residua.ledger.postgres import PREFIXES
from residua.noise import Source
from residua.planning import plan as planned
from residua.planning.request import time_attribute
from residua.plans import Plan
from residua.privacy.unit import Person
from residua.release import Measurements, Release, audit_record
from residua.strategy.strategy import refuse_uncounted
from residua.stream.so_far import Shortened, shortened
from residua.stream.storage import Store

LATE = "records of earlier periods that come later are not measured"


@dataclass(frozen=True)
class Stream:
    """A plan measured in instalments, in a file of its own; made by `Stream.create`, found by `Stream.open`.

    The file holds the plan and what was measured: noisy numbers, nothing secret. The exact counts so far,
    which later instalments need, are in a file beside it, `<path>.secret`, that only its owner may read; it
    goes with the last instalment. Keep both, and no copies: the ledger knows who began an instalment.

    >>> import tempfile
    >>> import residua as rs
    >>> schema = rs.Schema(month=rs.Date("2026-01-01", "2026-03-31", by="month"))
    >>> plan = rs.plan(rs.table(schema, month=rs.prefix), rs.zcdp("0.5"), over="month")
    >>> folder = tempfile.TemporaryDirectory()
    >>> stream = rs.Stream.create(folder.name + "/births.stream", plan, over="month", ledger=None)
    >>> stream.measure("2026-01", {"month": ["2026-01-07"] * 100}, noise=rs.simulated(seed=1))
    >>> stream.measure("2026-02", {"month": ["2026-02-03"] * 120}, noise=rs.simulated(seed=2))
    >>> stream.next, stream.release().values().round().tolist()
    ('2026-03', [99.0, 218.0])
    >>> folder.cleanup()
    """

    path: Path

    def __post_init__(self) -> None:
        settle(self, path=Path(os.path.abspath(self.path)))
        facts = self._facts()
        if "plan" not in facts:
            raise FileFormatError(f"{self.path} is no stream: it has no plan")
        if "closed" in facts or len(_records(facts)) == int(facts["of"]):
            _secret(self.path).delete()  # the process that was to do it may have been cut off

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Stream":
        """The stream in a file."""
        return cls(Path(path))

    @classmethod
    @asks_for(
        "ledger",
        LedgerError,
        "a stream is paid for by a ledger, such as ledger='budget.db'; give ledger=None to simulate",
    )
    def create(
        cls,
        path: str | os.PathLike[str],
        plan: Plan | str | os.PathLike[str],
        *,
        over: str,
        ledger: Ledger | str | os.PathLike[str] | None,
        keep: bool = True,
    ) -> "Stream":
        """A new stream; a file that exists is never replaced. Nothing is spent yet.

        plan: Plan, or the path of one
            What to measure. One that waits for the end (made without `over`) is planned again for
            instalments, which loses nothing: the same tables, budget and unit.
        over: str
            The attribute of periods, or a level of it, such as "day.month".
        ledger: Ledger, path or address; None to simulate
            It is debited before the first instalment's noise is drawn, whole; with disjoint periods, for
            each period before its own.
        keep: bool
            Whether exact counts so far are kept in a secret file. Without, `measure` must be given the same
            data of all earlier periods again.
        """
        plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        at = time_attribute(plan.schema, over)
        shortened(plan.schema.attributes[at], 1)  # refuses what has no order of periods
        plan = _in_instalments(plan, at, over)
        refuse_unkept(plan)
        refuse_uncounted(plan.strategy, plan.schema.names)
        _refuse_caps(Person.of(plan.unit, plan.schema), at, plan.schema.classes(over), over)
        plan.workload.refuse_unreadable()
        payer = ledger if isinstance(ledger, Ledger) or ledger is None else Ledger.open(ledger)
        if payer is not None:
            payer.remaining_in(plan.schema.counted(over).labels()[0])  # whose periods the ledger must know
        content = io.BytesIO()
        plan.save(content)
        store = Store(Path(os.path.abspath(path)))
        facts = {"over": over, "ledger": _ledger_from(store.path, payer)}
        facts |= {"id": secrets.token_hex(16), "counts": "", "keep": "yes" if keep else ""}
        facts["of"] = str(plan.schema.counted(over).size)
        store.create({"plan": content.getvalue(), **{name: own.encode() for name, own in facts.items()}})
        return cls(store.path)

    @property
    def _store(self) -> Store:
        return Store(self.path)

    def _facts(self) -> dict[str, bytes]:
        return self._store.facts()

    def _fact(self, name: str) -> str:
        return self._facts()[name].decode()

    @cached_property
    def plan(self) -> Plan:
        """The plan of all instalments together."""
        plan = Plan.load(io.BytesIO(self._facts()["plan"]))
        refuse_unkept(plan)
        return plan

    @cached_property
    def ledger(self) -> str:
        """The path or address of the ledger that pays; empty for a stream that is simulated."""
        found = self._fact("ledger")
        return found if not found or found.startswith(PREFIXES) else str(self.path.parent / found)

    @cached_property
    def over(self) -> str:
        """The attribute of periods, or a level of it."""
        return self._fact("over")

    @cached_property
    def _at(self) -> int:
        return time_attribute(self.plan.schema, self.over)

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule.of(self.plan.batches, self._at, self.plan.schema.classes(self.over))

    @property
    def periods(self) -> tuple[str, ...]:
        """The names of all periods, in order."""
        return self.plan.schema.counted(self.over).labels()

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the periods that were measured."""
        return self.periods[: len(_records(self._facts()))]

    @property
    def next(self) -> str | None:
        """The period that is to be measured next; None when all are, or the stream was closed."""
        facts = self._facts()
        done = len(_records(facts))
        return None if done == len(self.periods) or "closed" in facts else self.periods[done]

    def measure(
        self,
        period: str | int,
        data: object,
        *,
        noise: Source | None = None,
        note: str = "",
        progress: Progress | None = None,
        engine: Opener | None = None,
    ) -> None:
        """Measure one period, the next one, and put down what was measured; `release` then has it.

        Of the data only records of this period count: those of earlier ones that come late are not measured,
        which every release states. Cut off at any moment, it can be called again: nothing is measured twice,
        and nothing is paid for twice (claim Y-003).
        """
        facts, period = self._facts(), str(period)
        number = self._turn(period, facts)
        source, book = source_and_ledger(noise, self.ledger or None)
        begun = f"begun.{number}"
        if begun not in facts:
            self._store.write(facts={begun: secrets.token_hex(16).encode()})
        instalment = Instalment(facts["id"].decode(), number, self._fact(begun))
        attempt, secret = secrets.randbits(62), _secret(self.path)
        kept = bool(facts["keep"])
        if kept and number == 0 and not secret.path.exists():
            secret.create({}, secret=True)
        values, paid = noisy_instalment(
            self.plan,
            self._schedule,
            number,
            data,
            source,
            book,
            past=self._past(facts, secret) if kept and number else None,
            keep=(lambda counts: secret.write(attempt, counts)) if kept else (lambda counts: None),
            period=period,
            instalment=instalment,
            note=note,
            progress=progress,
            engine=engine,
        )
        record = {"period": period, "time": datetime.now(UTC).isoformat(), "note": note, "paid": paid}
        done = {f"instalment.{number:06}": json.dumps(record).encode(), "counts": str(attempt).encode()}
        self._store.write(number, values, facts=done)
        if kept and number + 1 == len(self.periods):
            secret.delete()
        elif kept:
            secret.forget(attempt)

    def _turn(self, period: str, facts: Mapping[str, bytes]) -> int:
        """The number of a period whose turn it is; WorkloadError for any other."""
        periods, done = self.periods, len(_records(facts))
        if period not in periods:
            raise WorkloadError(f"{short(period)} is no period of this stream{hint(period, periods)}")
        number = periods.index(period)
        if number < done:
            raise WorkloadError(f"{period!r} was measured already; what was measured stays as it is")
        if "closed" in facts:
            raise WorkloadError("this stream was closed: nothing more is measured; create a new one")
        if number > done:
            raise WorkloadError(
                f"{period!r} has to wait: {periods[done]!r} comes first, without records if there are none"
            )
        return number

    def _past(self, facts: Mapping[str, bytes], secret: Store) -> Counts:
        """The exact counts up to the last instalment."""
        shapes = [(len(batch.subsets), batch.cells) for batch in self.plan.batches]
        try:
            return list(secret.parts(int(facts["counts"]), shapes))
        except FileFormatError as error:
            raise FileFormatError(
                f"the exact counts of earlier periods are gone ({error}); without them no further instalment "
                "can be measured: close the stream, and create a new one for the periods to come"
            ) from error

    def close(self) -> None:
        """End the stream early: the secret counts are deleted, and nothing more is measured."""
        self._store.write(facts={"closed": b"yes"})
        _secret(self.path).delete()

    def release(self, through: str | None = None) -> Release:
        """All that was measured so far, or through a period, as one release about those periods.

        Its errors are exact, and it uses no later instalment; what it says of a period is never revised.
        Its schema, `release.plan.schema`, ends with the last of those periods: ask for tables of that one.
        After the last period it is the release of the whole plan.
        """
        records = _records(self._facts())
        done = len(records) if through is None else 1 + self._place(through, len(records))
        if not done:
            raise WorkloadError("nothing was measured so far; measure the first period")
        plan, schedule = self.plan, self._schedule
        values = [np.zeros((len(each.subsets), each.rows), np.int64) for each in plan.batches]
        for number in range(done):
            columns = [rows == number for rows in schedule.rows]
            shapes = [(len(own), int(mine.sum())) for own, mine in zip(values, columns, strict=True)]
            parts = self._store.parts(number, shapes)
            for own, mine, part in zip(values, columns, parts, strict=True):
                own[:, mine] = part
        last = records[done - 1]
        when, paid = datetime.fromisoformat(last["time"]), last["paid"]
        measurements = Measurements(tuple(values))
        if done < len(self.periods):
            cells = int(np.searchsorted(plan.schema.classes(self.over), done))
            so_far = Shortened(plan, self._at, cells)
            plan = so_far.plan()
            measurements = so_far.measurements(values, plan.strategy)
        span = "/".join(dict.fromkeys((self.periods[0], self.periods[done - 1])))
        audit = audit_record(plan, when, paid, last["note"], simulated=paid is None, period=span)
        audit["stream"] = {
            "id": self._fact("id"),
            "plan_hash": self.plan.hash,
            "over": self.over,
            "instalments": done,
            "of": len(self.periods),
            "late": LATE,
        }
        return Release(plan, measurements, audit)

    def _place(self, period: str, done: int) -> int:
        if period not in self.periods[:done]:
            raise WorkloadError(f"{short(period)} was not measured{hint(period, self.periods[:done])}")
        return self.periods.index(period)

    def __repr__(self) -> str:
        return f"Stream({str(self.path)!r}, {len(self.measured)} of {len(self.periods)} periods measured)"


def _records(facts: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """How each instalment came to be."""
    names = sorted(name for name in facts if name.startswith("instalment."))
    return [json.loads(facts[name]) for name in names]


def _ledger_from(path: Path, payer: Ledger | None) -> str:
    """Where a ledger is, as seen from a stream: they may move together."""
    if payer is None:
        return ""
    if payer.path == path:
        raise FileFormatError(f"{path} is the ledger; choose another name for the stream")
    if payer.name != str(payer.path):
        raise LedgerError(
            "a stream keeps the address of its ledger, and must not keep a password: leave it out, and give "
            "it in PGPASSWORD or in a password file"
        )
    return payer.path if isinstance(payer.path, str) else os.path.relpath(payer.path, path.parent)


def _secret(path: Path) -> Store:
    return Store(path.with_name(f"{path.name}.secret"))


def _in_instalments(plan: Plan, at: int, over: str) -> Plan:
    """The plan, or if it waits for the end, one for the same that does not."""
    if sum(len(batch.subsets) * batch.cells for batch in plan.batches) > STREAM_CELLS:
        raise Infeasible(
            f"the exact counts of this plan are more than the {STREAM_CELLS:,} numbers that a stream keeps; "
            "use coarser attributes, or fewer of them in one table"
        )
    try:
        if Schedule.of(plan.batches, at, plan.schema.classes(over)).whole:
            return plan
    except BudgetError:  # some block does not look at the periods
        pass
    if plan.objective != "total_variance" or plan.budget.law == "laplace":
        raise WorkloadError(
            "this plan waits for the last period; instalments are planned for the least total variance with "
            f"Gaussian noise: rs.plan(work, budget, over={over!r})"
        )
    return planned(plan.workload, plan.budget, unit=plan.unit, over=over)


def _refuse_caps(person: Person, at: int, classes: Integers, over: str) -> None:
    """BudgetError where what is kept of a person cannot be decided from one period's records (Y-005)."""
    for cap in person.caps:
        within = cap.attribute == at and all(
            len(np.unique(classes[cap.classes == own])) == 1 for own in np.unique(cap.classes)
        )
        if not within:
            raise BudgetError(
                f"at most {cap.most} records in one cell of an attribute cannot be kept to from one period's "
                f"records alone, unless each of its cells lies within one {over!r}; use one_per={over!r}"
            )
    most = min((cap.most * len(np.unique(cap.classes)) for cap in person.caps), default=None)
    if person.unit.id is not None and (most is None or most > person.unit.max_records):
        raise BudgetError(
            f"at most {person.unit.max_records} records of one {person.unit.id!r} in all periods together "
            f"cannot be kept to from one period's records alone; use one_per={over!r} and a max_records of "
            "as many as there are periods"
        )
