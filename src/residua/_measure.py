"""The only code that turns counts into a release.

The order is the promise (claim R-001): check the plan, recode the data, count, compute the exact integer
answers, try what noise is drawn with, debit the ledger durably, and only then draw noise. Nothing that can
fail on account of the data or of memory comes after the debit, and no noise is drawn before it. Before it,
nothing is told of the data but values that the schema's policies refuse, and files that cannot be read. The
ledger is not told of the release here: it is lost until somebody has saved it, and who has may say so with
`Ledger.complete`.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from residua._calls import asks_for
from residua.engines import Derived, Engine, Opener, count_marginals, engine_for, engine_with
from residua.errors import BudgetError, DataError, LedgerError, WorkloadError
from residua.kernel.cost import added_cost, replaced_cost
from residua.kernel.measurement import Measurement, refuse_few_records
from residua.ledger import Entry, Ledger
from residua.linalg.classes import JointClasses
from residua.measurements import Measurements
from residua.methods.draft import Progress
from residua.noise import Law, Source, SystemSource, draw, simulated
from residua.plans import Plan
from residua.release import Release, audit_record
from residua.strategy.costs import refuse_uncounted

Integers = NDArray[np.int64]

NUMBERS_AT_ONCE = 2**16  # that noise is drawn for


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
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> Release:
    """A release: the plan's measurements of the data with exact noise, after debiting the ledger.

    `data` is the path of a CSV or Parquet file or a pattern of such ('people-*.parquet'), a pandas, polars or
    Arrow table, a DuckDB relation, a Spark DataFrame, a mapping of columns, or an array of codes (records,
    attributes). `engine` says how to count, as in `rs.engines.DuckDB(memory_limit="1GB")`; the data decide by
    default. Real noise needs a ledger; `noise=rs.simulated(seed=...)` is for tests and simulations, takes
    `ledger=None`, and marks the release as simulated for ever.
    """
    plan = _checked_plan(plan)
    source, book = _source_and_ledger(noise, ledger)
    dataset = None if book is None else book.dataset
    if book is not None:
        plan.workload.refuse_unreadable()  # what is paid for can be saved
    _refuse_unwritable(note, dataset)
    batches, plan_hash = plan.batches, plan.hash
    laws = [batch.laws() for batch in batches]
    opened = (engine_for(data) if engine is None else engine).open(plan.schema, data)
    opened = engine_with(opened, plan.schema.sizes, list(_derived(batches).values()))
    exact = _exact_answers(batches, opened, plan.schema.sizes, progress)
    orders = [_order(batch) for batch in batches]
    if book is not None:
        _try_drawing(laws, source)
    entry = None if book is None else book.spend(plan.privacy, plan_hash=plan_hash, note=note)
    values = tuple(
        _noisy(batch, answers, own, source, order)
        for batch, answers, own, order in zip(batches, exact, laws, orders, strict=True)
    )
    audit = audit_record(plan, datetime.now(UTC), _entry_record(dataset, entry), note, simulated=book is None)
    return Release(plan, Measurements(values), audit)


def _checked_plan(plan: object) -> Plan:
    """The plan, loaded if need be; refused if its integers and noise cost more than it says they do."""
    if isinstance(plan, str | os.PathLike):
        plan = Plan.load(plan)
    if not isinstance(plan, Plan):
        raise WorkloadError(f"measure needs a plan first, or the path of a saved one, not {plan!r}")
    if any(batch.law != plan.budget.law for batch in plan.batches):
        raise BudgetError(
            f"the noise of this plan cannot keep to the {plan.budget!r} that it states; plan again"
        )
    _refuse_overspending(plan)
    refuse_few_records(plan.batches)
    if any(not _fits(part, plan.schema.sizes) for batch in plan.batches for part in batch.derived):
        raise BudgetError("this plan measures kinds of cells that its schema does not have; plan again")
    refuse_uncounted(plan.strategy, plan.schema.names)
    return plan


def _refuse_overspending(plan: Plan) -> None:
    """BudgetError where the integers and noise in use cost one record more than the plan states."""
    allowed, spent = plan.unit.allowance(plan.budget), added_cost(plan.batches)
    if plan.unit.neighbours == "replace_one":
        if spent > allowed and any(attribute.outside == "drop" for attribute in plan.schema.attributes):
            raise BudgetError(
                "a record whose new values are dropped is missing from every count, which costs more than "
                f"the {plan.budget!r} that this plan states; declare outside='other' instead of 'drop', or "
                "plan with neighbours='add_remove'"
            )
        spent = replaced_cost(plan.batches)
    if spent > allowed:
        raise BudgetError(f"this plan would spend more than the {plan.budget!r} that it states; plan again")


def _source_and_ledger(
    noise: Source | None, ledger: Ledger | str | os.PathLike[str] | None
) -> tuple[Source, Ledger | None]:
    """Simulated noise without a ledger, or the operating system's with one: there is no third way."""
    if noise is None or isinstance(noise, SystemSource):
        if ledger is None:
            raise LedgerError(
                "a release on real data needs a ledger: create one with rs.Ledger.create(path, budget, "
                "dataset=...), or pass noise=rs.simulated(seed=...) to simulate"
            )
        return SystemSource(), ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    if getattr(noise, "simulated", None) is not True:
        raise BudgetError(
            f"{noise!r} is no noise: give rs.simulated(seed=...) to simulate, or nothing for real noise from "
            "the operating system"
        )
    if ledger is not None:
        raise LedgerError("simulated noise protects nobody and spends nothing: pass ledger=None with it")
    return noise, None


def _refuse_unwritable(note: object, dataset: str | None) -> None:
    """A text that no file can hold must not be found out when the release is saved."""
    for text in (note, dataset or ""):
        if not isinstance(text, str) or text != text.encode("utf-8", "replace").decode():
            raise DataError(f"notes and names of datasets are Unicode text, not {text!r}")


def _fits(part: JointClasses, sizes: Sequence[int]) -> bool:
    """Whether joint kinds are those of attributes of these sizes, so that a record is of one kind."""
    own = [sizes[at] for at in part.attributes]
    return own == [kinds.size for kinds in part.kinds] and part.whole


def _derived(batches: Sequence[Measurement]) -> dict[JointClasses, Derived]:
    """The attributes by kinds of cells that are to be counted, each once."""
    wanted = dict.fromkeys(part for batch in batches for part in batch.derived)
    return {
        part: Derived.of(part.attributes, [kinds.classes for kinds in part.kinds], part.joint.classes)
        for part in wanted
    }


def _exact_answers(
    batches: Sequence[Measurement], engine: Engine, sizes: Sequence[int], progress: Progress | None
) -> list[Integers]:
    """Exact integer answers of every batch, (blocks, rows) each; all batches share passes over the data.

    The engine has the derived attributes of the batches after those of the schema.
    """
    derived = _derived(batches)
    places = {part: len(sizes) + number for number, part in enumerate(derived)}
    requests = []
    for batch in batches:
        counted = np.arange(len(sizes), dtype=np.int32)
        for part in batch.derived:
            counted[part.place] = places[part]
        requests.append(counted[batch.subsets])
    width = (*sizes, *(each.size for each in derived.values()))
    answers = [np.zeros((len(batch.subsets), batch.rows), dtype=np.int64) for batch in batches]
    for at, blocks, counts in count_marginals(engine, width, requests, progress):
        answers[at][blocks] = batches[at].apply(counts)
    return answers


def _order(batch: Measurement) -> Integers:
    """The blocks that have the first of the laws, then those that have the second, and so on: (blocks,)."""
    return np.argsort(batch.owners, kind="stable")


def _try_drawing(laws: Sequence[Sequence[Law]], source: Source) -> None:
    """Make and load what drawing needs, tables of quantiles and packages; what is drawn here is not used."""
    for law in {type(law): law for own in laws for law in own}.values():
        law.draw(simulated(seed=0), NUMBERS_AT_ONCE)
    source.words(1)


def _noisy(
    batch: Measurement, answers: Integers, laws: Sequence[Law], source: Source, order: Integers | None = None
) -> Integers:
    """The answers plus exact noise of each block's own law, modulo 2^64.

    It is added to them in place, a few numbers at a time, so that no memory can be lacking after the debit.
    """
    order = _order(batch) if order is None else order
    wide = max(1, min(batch.rows, NUMBERS_AT_ONCE))
    tall = NUMBERS_AT_ONCE // wide
    for top in range(0, len(order), tall):
        blocks = order[top : top + tall]
        owners = batch.owners[blocks]
        own = slice(owners[0], owners[-1] + 1)
        for left in range(0, batch.rows, wide):
            part = answers[:, left : left + wide]
            counts = np.bincount(owners - owners[0]) * part.shape[1]
            part[blocks] += draw(source, laws[own], counts.tolist()).reshape(len(blocks), -1)
    return answers


def _entry_record(dataset: str | None, entry: Entry | None) -> dict[str, str] | None:
    if dataset is None or entry is None:
        return None
    return {"dataset": dataset, "entry": str(entry.id), "amount": str(entry.amount), "hash": entry.hash}
