"""The only code that turns counts into a release.

The order is the promise (claim R-001): check the plan, recode the data, count, compute the exact integer
answers, debit the ledger durably, and only then draw noise. Nothing that can fail on account of the data
comes after the debit, and nothing is drawn before it.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from residua._plan import Plan
from residua.engines import Engine, MemoryEngine
from residua.errors import DataError, LedgerError
from residua.ledger import Entry, Ledger
from residua.measurements import Measurements
from residua.mechanisms.draft import Progress
from residua.noise import RoundedGaussian, Source, SystemSource, draw
from residua.release import Release, audit_record
from residua.schema import Schema
from residua.strategy.batches import Batch, record_limit

Integers = NDArray[np.int64]

TAIL_BITS = 60  # a measured number wraps around with a probability below 2 to minus this


def measure(
    plan: Plan | str | os.PathLike[str],
    data: object,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    noise: Source | None = None,
    note: str = "",
    progress: Progress | None = None,
) -> Release:
    """A release: the plan's measurements of the data with exact noise, after debiting the ledger.

    `data` is a pandas, polars or Arrow table, a mapping of columns, a CSV or Parquet path, or an array of
    codes (records, attributes). Real noise needs a ledger; `noise=rs.simulated(seed=...)` is for tests and
    simulations, takes `ledger=None`, and marks the release as simulated for ever.
    """
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    source, book = _source_and_ledger(noise, ledger)
    batches = plan.batches
    limit = public_record_limit(batches)
    engine = _engine(plan.schema, data)
    if engine.records > limit:
        raise DataError(
            f"the data has {engine.records:,} records, more than the {limit:,} that this plan can measure in "
            "64-bit integers; plan with coarser attributes or fewer of them in one table"
        )
    exact = [_exact_answers(batch, engine, progress) for batch in batches]
    laws = [[RoundedGaussian(variance) for variance in batch.variances] for batch in batches]
    dataset = None if book is None else book.dataset
    entry = None if book is None else book.spend(plan.privacy, plan_hash=plan.hash, note=note)
    values = tuple(
        _noisy(batch, answers, own, source) for batch, answers, own in zip(batches, exact, laws, strict=True)
    )
    audit = audit_record(
        plan, datetime.now(UTC), _entry_record(dataset, entry), note, simulated=source.simulated
    )
    return Release(plan, Measurements(values), audit)


def public_record_limit(batches: list[Batch]) -> int:
    """The most records that a plan can measure, whatever the data."""
    tails = [
        max((RoundedGaussian(v).bound(TAIL_BITS) for v in batch.variances), default=0) for batch in batches
    ]
    return record_limit(batches, tails)


def _source_and_ledger(
    noise: Source | None, ledger: Ledger | str | os.PathLike[str] | None
) -> tuple[Source, Ledger | None]:
    if noise is not None and noise.simulated:
        if ledger is not None:
            raise LedgerError("simulated noise protects nobody and spends nothing: pass ledger=None with it")
        return noise, None
    if ledger is None:
        raise LedgerError(
            "a release on real data needs a ledger: create one with rs.Ledger.create(path, budget, "
            "dataset=...), or pass noise=rs.simulated(seed=...) to simulate"
        )
    return noise or SystemSource(), ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)


def _engine(schema: Schema, data: object) -> Engine:
    if isinstance(data, str | os.PathLike):
        data = _table_from_file(Path(data))
    return MemoryEngine(schema.encode(data), schema.sizes)


def _table_from_file(path: Path) -> object:
    """An Arrow table from a CSV or Parquet file."""
    if not path.exists():
        raise DataError(f"there is no data file {path}")
    if path.suffix.lower() in {".parquet", ".pq"}:
        from pyarrow import ArrowInvalid, parquet

        try:
            return parquet.read_table(path)
        except (ArrowInvalid, OSError) as error:
            raise DataError(f"{path} cannot be read as Parquet ({error})") from error
    if path.suffix.lower() in {".csv", ".tsv", ".txt"}:
        from pyarrow import ArrowInvalid, csv

        options = csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        try:
            return csv.read_csv(path, parse_options=options)
        except (ArrowInvalid, OSError) as error:
            raise DataError(f"{path} cannot be read as CSV ({error})") from error
    raise DataError(f"{path}: the ending {path.suffix!r} is not known; use .csv, .tsv or .parquet")


def _exact_answers(batch: Batch, engine: Engine, progress: Progress | None) -> Integers:
    """Exact integer answers of a batch, marginals counted some at a time."""
    step = max(1, 20_000_000 // max(1, batch.cells))
    parts = []
    for start in range(0, len(batch.subsets), step):
        parts.append(batch.apply(engine.counts(batch.subsets[start : start + step])))
        if progress is not None:
            progress("counting", min(1.0, (start + step) / len(batch.subsets)))
    return np.concatenate(parts)


def _noisy(batch: Batch, answers: Integers, laws: list[RoundedGaussian], source: Source) -> Integers:
    """The answers plus exact noise of each block's own variance, modulo 2^64."""
    order = np.argsort(batch.owners, kind="stable")
    blocks = np.bincount(batch.owners, minlength=len(batch.variances))
    drawn = draw(source, laws, [int(count) * batch.rows for count in blocks])
    noise = np.empty_like(answers)
    noise[order] = drawn.reshape(len(answers), batch.rows)
    return answers + noise


def _entry_record(dataset: str | None, entry: Entry | None) -> dict[str, str] | None:
    if dataset is None or entry is None:
        return None
    return {"dataset": dataset, "entry": str(entry.id), "amount": str(entry.amount), "hash": entry.hash}
