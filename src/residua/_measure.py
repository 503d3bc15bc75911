"""Measuring a plan: the door to `residua.kernel.measuring`, and the release that comes out of it.

The ledger is told of the release by who has saved it, with `Ledger.complete`: until then it may be lost.
"""

import os
from datetime import UTC, datetime

from residua.engines import Opener, Progress
from residua.errors import LedgerError, WorkloadError, asks_for
from residua.kernel.measuring import noisy_answers, refuse_unkept, source_and_ledger
from residua.ledger import Ledger
from residua.noise import Source
from residua.plans import Plan
from residua.release import Measurements, Release, audit_record
from residua.strategy.strategy import refuse_uncounted


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
) -> Release:
    """A release: the plan's measurements of the data with exact noise, after debiting the ledger.

    `data` is the path of a CSV or Parquet file or a pattern of such ('people-*.parquet'), a pandas, polars or
    Arrow table, a DuckDB relation, a Spark DataFrame, a mapping of columns, or an array of codes (records,
    attributes). `engine` says how to count, as in `rs.engines.DuckDB(memory_limit="1GB")`; the data decide by
    default. Real noise needs a ledger; `noise=rs.simulated(seed=...)` is for tests and simulations, takes
    `ledger=None`, and marks the release as simulated for ever. `period` is that of the data, such as
    '2026-01', '2026-Q1' or '2026-01/2026-06'; a ledger that is kept by periods needs it.
    """
    plan = _checked_plan(plan)
    source, book = source_and_ledger(noise, ledger)
    return released(plan, data, source, book, note=note, period=period, progress=progress, engine=engine)


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
    refuse_uncounted(plan.strategy, plan.schema.names)
    return plan
