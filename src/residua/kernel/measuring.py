"""The only code that turns counts into noisy numbers.

The order is the promise (claim R-001): check the plan, recode the data, count, compute the exact integer
answers, try what noise is drawn with, debit the ledger durably, and only then draw noise. Nothing that can
fail on account of the data or of memory comes after the debit, and no noise is drawn before it. Before it,
nothing is told of the data but values that the schema's policies refuse, and files that cannot be read.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from residua._arrays import Integers, Subsets
from residua.engines import Derived, Engine, Keeps, Opener, Progress, count_marginals, engine_for, engine_with
from residua.errors import BudgetError, DataError, LedgerError
from residua.kernel.cost import person_cost, refuse_dropped
from residua.kernel.measurement import Measurement, refuse_few_records
from residua.ledger import Instalment, Ledger
from residua.linalg.classes import JointClasses
from residua.noise import Law, Source, SystemSource, draw, simulated
from residua.privacy import Budget, Privacy, Unit
from residua.privacy.unit import Person
from residua.schema import Schema

NUMBERS_AT_ONCE = 2**16  # that noise is drawn for

Paid = dict[str, str]
"""The entry of a ledger that paid, as audit records have it."""

Seen = Callable[[int, Sequence[int], Integers], Integers]
"""From a batch, some of its blocks and their counts, (blocks, cells), to the counts that are measured."""


class Measurable(Protocol):
    """A plan, as far as measuring is concerned: what is measured of what, and the privacy that it states."""

    @property
    def schema(self) -> Schema: ...
    @property
    def batches(self) -> Sequence[Measurement]: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def privacy(self) -> Privacy: ...
    @property
    def hash(self) -> str: ...


def noisy_answers(
    plan: Measurable,
    data: object,
    source: Source,
    ledger: Ledger | None,
    *,
    note: str = "",
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> tuple[tuple[Integers, ...], Paid | None]:
    """What each batch measured, (blocks, rows), and the entry that paid for it; None where none has to."""
    refuse_unnoted(note, period, ledger)
    exact = counted_answers(plan, data, progress, engine)
    return paid_noise(plan, exact, source, ledger, note=note, period=period)


def counted_answers(
    plan: Measurable,
    data: object,
    progress: Progress | None,
    engine: Opener | None,
    seen: Seen | None = None,
) -> list[Integers]:
    """The exact answers of every batch, (blocks, rows); `seen` may change what is counted of the data."""
    opened = opened_for(plan, data, engine)
    return exact_answers(plan.batches, opened, Positions(plan), progress, seen)


def opened_for(plan: Measurable, data: object, engine: Opener | None) -> Engine:
    """An engine over the records that are counted, with the attributes that blocks look at."""
    sizes, units = plan.schema.sizes, plan.schema.units
    opened = _opened(engine_for(data) if engine is None else engine, plan, data)
    derived = list(_derived(plan.batches, units).values())
    return engine_with(opened, sizes, derived, units) if derived else opened


def paid_noise(
    plan: Measurable,
    exact: Sequence[Integers],
    source: Source,
    ledger: Ledger | None,
    *,
    note: str,
    period: str | None = None,
    instalment: Instalment | None = None,
) -> tuple[tuple[Integers, ...], Paid | None]:
    """The exact answers with noise, once it is paid for; some rows of each batch, or all."""
    laws = [batch.laws() for batch in plan.batches]
    orders = [np.argsort(batch.owners, kind="stable") for batch in plan.batches]
    paid = pay(plan, laws, source, ledger, note=note, period=period, instalment=instalment)
    return tuple(map(noisy, plan.batches, exact, laws, [source] * len(laws), orders)), paid


def pay(
    plan: Measurable,
    laws: Sequence[Sequence[Law]],
    source: Source,
    ledger: Ledger | None,
    *,
    note: str,
    period: str | None,
    instalment: Instalment | None = None,
) -> Paid | None:
    """The debit, durable when this returns; nothing where noise is simulated."""
    if ledger is None:
        return None
    plan_hash = plan.hash
    _try_drawing(laws, source)
    entry = ledger.spend(plan.privacy, plan_hash=plan_hash, note=note, period=period, instalment=instalment)
    paid = {"dataset": entry.dataset, "entry": str(entry.id)}
    return paid | {"amount": str(entry.amount), "hash": entry.hash}


def _opened(opener: Opener, plan: Measurable, data: object) -> Engine:
    """An engine over the records that are counted: at most so many of a person, where the unit says so."""
    if plan.unit.id is None:
        return opener.open(plan.schema, data)
    if not isinstance(opener, Keeps):
        raise DataError(
            f"{opener!r} cannot keep to {plan.unit.max_records} records of one {plan.unit.id!r}; count with "
            "rs.engines.Memory(), rs.engines.DuckDB() or rs.engines.Spark()"
        )
    return opener.open_kept(plan.schema, data, Person.of(plan.unit, plan.schema))


def refuse_unkept(plan: Measurable) -> None:
    """BudgetError where the integers and noise of a plan do not keep what it states, or 64 bits not them."""
    if any(batch.law != plan.budget.law for batch in plan.batches):
        raise BudgetError(
            f"the noise of this plan cannot keep to the {plan.budget!r} that it states; plan again"
        )
    _refuse_overspending(plan)
    refuse_few_records(plan.batches)
    for batch in plan.batches:
        batch.multiples(plan.schema.units)
        if batch.within is not None and len(batch.cells_of_blocks()) != plan.schema.sizes[batch.within]:
            raise BudgetError("this plan measures cells of an attribute that its schema lacks; plan again")
        if batch.within is not None and plan.schema.units[batch.within] != 1:
            raise BudgetError("a record is in several of the cells that this plan measures apart; plan again")
    for part in (part for batch in plan.batches for part in batch.derived):
        if [plan.schema.sizes[at] for at in part.attributes] != [own.size for own in part.partitions]:
            raise BudgetError("this plan measures classes of cells that its schema does not have; plan again")


def _refuse_overspending(plan: Measurable) -> None:
    """BudgetError where the integers and noise in use cost one record more than the plan states."""
    if plan.unit.replacing:
        refuse_dropped(plan.batches, plan.unit, plan.schema, plan.budget)
    person = Person.of(plan.unit, plan.schema)
    if person_cost(plan.batches, person) > person.allowance(plan.budget):
        raise BudgetError(f"this plan would spend more than the {plan.budget!r} that it states; plan again")


def source_and_ledger(
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


def refuse_unnoted(note: str, period: str | None, ledger: Ledger | None) -> None:
    """A text that no file can hold, or a period that the ledger does not know, is refused before any work."""
    _refuse_no_text(note)
    _refuse_no_text(period or "")
    if ledger is not None:
        _refuse_no_text(ledger.dataset_in(period))


def _refuse_no_text(text: object) -> None:
    if not isinstance(text, str) or text != text.encode("utf-8", "replace").decode():
        raise DataError(f"notes and names of datasets are Unicode text, not {text!r}")


def _derived(batches: Sequence[Measurement], units: Sequence[int]) -> dict[JointClasses, Derived]:
    """The attributes by classes of cells that are to be counted, each once; those with units come last."""
    wanted = dict.fromkeys(part for batch in batches for part in batch.derived)
    return {
        part: Derived.of(part.attributes, [own.classes for own in part.partitions], part.joint.classes)
        for part in sorted(wanted, key=lambda part: math.prod(units[at] for at in part.attributes) > 1)
    }


class Positions:
    """Where an engine has the attributes of each batch, those made of others after those of the schema."""

    def __init__(self, plan: Measurable) -> None:
        sizes, units = plan.schema.sizes, plan.schema.units
        self.schema_units = units
        derived = _derived(plan.batches, units)
        self._places = {part: len(sizes) + number for number, part in enumerate(derived)}
        self.sizes = (*sizes, *(each.size for each in derived.values()))
        self.units = (*units, *(math.prod(units[at] for at in part.attributes) for part in derived))

    def of(self, batch: Measurement) -> Subsets:
        """The position of each attribute as the blocks of a batch see it."""
        counted = np.arange(len(self.schema_units), dtype=np.int32)
        for part in batch.derived:
            counted[part.place] = self._places[part]
        return counted


def exact_answers(
    batches: Sequence[Measurement],
    engine: Engine,
    positions: Positions,
    progress: Progress | None,
    seen: Seen | None = None,
) -> list[Integers]:
    """Exact integer answers of some batches, (blocks, rows) each; they share passes over the data."""
    requests = []
    for batch in batches:
        one = (
            batch.subsets if batch.within is None else np.array([[batch.within, *batch.subsets[0].tolist()]])
        )
        requests.append(positions.of(batch)[one])
    multiples = [batch.multiples(positions.schema_units) for batch in batches]
    answers = [np.zeros((len(batch.subsets), batch.rows), dtype=np.int64) for batch in batches]
    for at, blocks, counts in count_marginals(engine, positions.sizes, requests, progress, positions.units):
        if seen is not None:
            counts = seen(at, blocks, counts)
        if batches[at].within is None:
            answers[at][blocks] = batches[at].apply(counts, multiples[at][blocks])
        else:  # one marginal, whose cells come block by block
            answers[at][:] = batches[at].apply(counts.reshape(len(answers[at]), -1), multiples[at])
    return answers


def _try_drawing(laws: Sequence[Sequence[Law]], source: Source) -> None:
    """Make and load what drawing needs, tables of quantiles and packages; what is drawn here is not used."""
    for law in {type(law): law for own in laws for law in own}.values():
        law.draw(simulated(seed=0), NUMBERS_AT_ONCE)
    source.words(1)


def noisy(
    batch: Measurement,
    answers: Integers,
    laws: Sequence[Law],
    source: Source,
    order: Integers,
    blocks: Integers | None = None,
) -> Integers:
    """The answers plus exact noise of each block's own law, modulo 2^64; `order` has the rows law by law.

    They are of all blocks, or of these. It is added to them in place, a few numbers at a time, so that no
    memory can be lacking after the debit.
    """
    rows = answers.shape[1]
    wide = max(1, min(rows, NUMBERS_AT_ONCE))
    tall = NUMBERS_AT_ONCE // wide
    for top in range(0, len(order), tall):
        some = order[top : top + tall]
        owners = batch.owners[some if blocks is None else blocks[some]]
        own = slice(owners[0], owners[-1] + 1)
        for left in range(0, rows, wide):
            part = answers[:, left : left + wide]
            counts = np.bincount(owners - owners[0]) * part.shape[1]
            part[some] += draw(source, laws[own], counts.tolist()).reshape(len(some), -1)
    return answers
