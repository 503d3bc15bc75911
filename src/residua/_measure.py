"""Measuring a plan: the door to `residua.kernel.measuring`, and the release that comes out of it.

The ledger is told of the release by who has saved it, with `Ledger.complete`: until then it may be lost. That
is the caller, or `measure` itself where it is told what file to save it in.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TypedDict, Unpack

from residua._arrays import Manifest
from residua._files import ByteCount, whole_file
from residua._text import kind_of
from residua.engines import Opener, Progress
from residua.errors import LedgerError, WorkloadError, asks_for
from residua.kernel.measuring import noisy_answers, refuse_unkept, source_and_ledger
from residua.ledger import Ledger
from residua.noise import Source
from residua.plans import Plan
from residua.release import Measurements, Release, audit_record, rehearsal
from residua.release.parts import PartsWriter, rehearsed
from residua.strategy.parts import StrategyParts, counted_at_once, parts_of
from residua.strategy.strategy import refuse_uncounted

ROOM_FOR_ENTRY = 2**16  # bytes: the entry of a ledger in the audit record is shorter


class Ways(TypedDict, total=False):
    """How a release is measured: what `measure` says of each."""

    note: str
    period: str | None
    progress: Progress | None
    engine: Opener | None


@asks_for(
    "ledger",
    LedgerError,
    "a release is paid for by a ledger: make one, rs.Ledger.create('budget.db', rs.zcdp(1), dataset=...), "
    "and give ledger='budget.db'; or simulate, with ledger=None and noise=rs.simulated(seed=1)",
)
def measure(
    plan: Plan | str | os.PathLike[str],
    data: object,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    noise: Source | None = None,
    note: str = "",
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
    into: str | os.PathLike[str] | None = None,
) -> Release:
    """A release: the plan's measurements of the data with exact noise, after debiting the ledger.

    `data` is the path of a CSV or Parquet file or a pattern of such ('people-*.parquet'), a pandas, polars or
    Arrow table, a DuckDB relation, a Spark DataFrame, a mapping of columns, or an array of codes (records,
    attributes). `engine` says how to count, as in `rs.engines.DuckDB(memory_limit="1GB")`; the data decide by
    default. Real noise needs a ledger; `noise=rs.simulated(seed=...)` is for tests and simulations, takes
    `ledger=None`, and marks the release as simulated for ever. `period` is that of the data, such as
    '2026-01', '2026-Q1' or '2026-01/2026-06'; a ledger that is kept by periods needs it.

    `into` is the file that the release is saved in. Numbers of very many places are written there part by
    part while they are measured, and read from there again, so that memory for one part is enough; the ledger
    is told when the file is whole.
    """
    ways: Ways = {"note": note, "period": period, "progress": progress, "engine": engine}
    if into is not None:
        release = measured_into(into, plan, data, ledger=ledger, noise=noise, **ways)
        note_release(ledger, release)
        return release
    plan = _checked_plan(plan)
    source, book = source_and_ledger(noise, ledger)
    refuse_uncounted(plan.strategy, plan.schema.names)
    return released(plan, data, source, book, **ways)


def released(plan: Plan, data: object, source: Source, book: Ledger | None, **ways: Unpack[Ways]) -> Release:
    """A release with noise of this source, paid by this ledger; `measure` chooses both, audits theirs."""
    if book is not None:
        plan.workload.refuse_unreadable()  # what is paid for can be saved
    values, paid = noisy_answers(plan, data, source, book, **ways)
    return Release(plan, Measurements(values), _audit(plan, paid, book, ways))


def _audit(plan: Plan, paid: Mapping[str, str] | None, book: Ledger | None, ways: Ways) -> Manifest:
    """How a release came to be, now."""
    note, period = ways.get("note", ""), ways.get("period")
    return audit_record(plan, datetime.now(UTC), paid, note, simulated=book is None, period=period)


def _checked_plan(plan: object) -> Plan:
    """The plan, loaded if need be; refused if its integers and noise cost more than it says they do."""
    if isinstance(plan, str | os.PathLike):
        plan = Plan.load(plan)
    if not isinstance(plan, Plan):
        raise WorkloadError(f"measure needs a plan first, or the path of a saved one, not {kind_of(plan)}")
    refuse_unkept(plan)
    return plan


def measured_into(
    path: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str],
    data: object,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    noise: Source | None = None,
    **ways: Unpack[Ways],
) -> Release:
    """A release that is saved, in parts where it is large; the ledger is not yet told."""
    plan = _checked_plan(plan)
    source, book = source_and_ledger(noise, ledger)
    parts = parts_of(plan.strategy)
    refuse_uncounted(plan.strategy, plan.schema.names, partial(counted_at_once, plan.strategy))
    plan.workload.refuse_unreadable()
    if parts is not None:
        return released_in_parts(path, plan, parts, data, source, book, **ways)
    trial = ByteCount()
    rehearsal(plan, ways.get("note", "")).save(trial)
    with whole_file(path, trial.size + ROOM_FOR_ENTRY) as stream:
        release = released(plan, data, source, book, **ways)
        release.save(stream)
    return release


def released_in_parts(
    path: str | os.PathLike[str],
    plan: Plan,
    parts: StrategyParts,
    data: object,
    source: Source,
    book: Ledger | None,
    **ways: Unpack[Ways],
) -> Release:
    """The same as `released`, saved part by part while it is measured."""
    from residua.kernel.parts import noisy_parts  # seldom needed

    room = rehearsed(plan, parts, _audit(plan, None, book, ways)) + ROOM_FOR_ENTRY
    with whole_file(path, room) as stream, closing(PartsWriter(stream, plan, parts)) as writer:
        paid = noisy_parts(plan, parts, data, source, book, writer.write, **ways)
        audit = _audit(plan, paid, book, ways)
        return Release(plan, writer.measured(audit, path), audit)


def note_release(ledger: Ledger | str | os.PathLike[str] | None, release: Release) -> None:
    """Note in the ledger which release its entry paid for, if one did."""
    if ledger is None:
        return
    number = int(release.audit["ledger"]["entry"])
    try:
        book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        [entry] = [entry for entry in book.entries() if entry.id == number]
        book.complete(entry, release.hash)
    except LedgerError as error:
        raise LedgerError(
            f"the release is written and paid for, but the ledger could not note its hash: {error}"
        ) from error
