"""Measuring a plan: the door to `residua.kernel.measuring`, and the release that comes out of it.

The ledger is told of the release by who has saved it, with `Ledger.complete`: until then it may be lost. That
is the caller, or `measure` itself where it is told what file to save it in.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from residua._arrays import Manifest
from residua._files import ByteCount, whole_file
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
    given: dict[str, Any] = {"note": note, "period": period, "progress": progress, "engine": engine}
    if into is not None:
        release = measured_into(into, plan, data, ledger=ledger, noise=noise, **given)
        note_release(ledger, release)
        return release
    plan = _checked_plan(plan)
    source, book = source_and_ledger(noise, ledger)
    refuse_uncounted(plan.strategy, plan.schema.names)
    return released(plan, data, source, book, **given)


def released(
    plan: Plan,
    data: object,
    source: Source,
    book: Ledger | None,
    *,
    note: str,
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> Release:
    """A release with noise of this source, paid by this ledger; `measure` chooses both, audits theirs."""
    if book is not None:
        plan.workload.refuse_unreadable()  # what is paid for can be saved
    values, paid = noisy_answers(
        plan, data, source, book, note=note, progress=progress, engine=engine, period=period
    )
    audit = audit_record(plan, datetime.now(UTC), paid, note, simulated=book is None, period=period)
    return Release(plan, Measurements(values), audit)


def _checked_plan(plan: object) -> Plan:
    """The plan, loaded if need be; refused if its integers and noise cost more than it says they do."""
    if isinstance(plan, str | os.PathLike):
        plan = Plan.load(plan)
    if not isinstance(plan, Plan):
        raise WorkloadError(f"measure needs a plan first, or the path of a saved one, not {plan!r}")
    refuse_unkept(plan)
    return plan


def measured_into(
    path: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str],
    data: object,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    noise: Source | None = None,
    note: str = "",
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> Release:
    """A release that is saved, in parts where it is large; the ledger is not yet told."""
    plan = _checked_plan(plan)
    source, book = source_and_ledger(noise, ledger)
    parts = parts_of(plan.strategy)
    refuse_uncounted(plan.strategy, plan.schema.names, partial(counted_at_once, plan.strategy))
    plan.workload.refuse_unreadable()
    given: dict[str, Any] = {"note": note, "period": period, "progress": progress, "engine": engine}
    if parts is None:
        trial = ByteCount()
        rehearsal(plan, note).save(trial)
        with whole_file(path, trial.size + ROOM_FOR_ENTRY) as stream:
            release = released(plan, data, source, book, **given)
            release.save(stream)
    else:
        release = released_in_parts(path, plan, parts, data, source, book, **given)
    return release


def released_in_parts(
    path: str | os.PathLike[str],
    plan: Plan,
    parts: StrategyParts,
    data: object,
    source: Source,
    book: Ledger | None,
    *,
    note: str,
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> Release:
    """The same as `released`, saved part by part while it is measured."""
    from residua.kernel.parts import noisy_parts  # seldom needed

    def record(paid: Mapping[str, str] | None) -> Manifest:
        return audit_record(plan, datetime.now(UTC), paid, note, simulated=book is None, period=period)

    given: dict[str, Any] = {"note": note, "period": period, "progress": progress, "engine": engine}
    room = rehearsed(plan, parts, record(None)) + ROOM_FOR_ENTRY
    with whole_file(path, room) as stream, closing(PartsWriter(stream, plan, parts)) as writer:
        audit = record(noisy_parts(plan, parts, data, source, book, writer.write, **given))
        return Release(plan, writer.finish(audit, path), audit)


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
