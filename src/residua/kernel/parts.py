"""Measuring part by part: the same promises as `measuring`, with memory for one part at a time (claim R-009).

All data are counted before the debit; those cells of places that occur wait, by parts, where the engine put
them. After it, a part at a time, they become exact answers in memory, cells that do not occur as zeros, get
their noise there, and are handed on. The answers of the largest part are made once before the debit, so that
no memory is found lacking after it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from residua._arrays import Integers
from residua.engines import Opener, Progress
from residua.engines.occurring import Occurrences
from residua.errors import BudgetError, DataError
from residua.kernel.measuring import (
    Measurable,
    Paid,
    Positions,
    exact_answers,
    noisy,
    opened_for,
    pay,
    refuse_unnoted,
)
from residua.ledger import Ledger
from residua.noise import Source

Write = Callable[[int | None, dict[int, Integers]], None]
"""Called with a part, None for what is in none, and by batch its noisy numbers, (blocks, rows)."""


class Parts(Protocol):
    """Which blocks are measured in which part; each batch is divided whole, or not at all."""

    @property
    def divided(self) -> Sequence[int]:
        """The batches that are divided; their blocks are within the cells of one attribute."""

    def __len__(self) -> int: ...

    def of_cells(self) -> Integers:
        """The part of each cell of that attribute; it has all blocks that see the cell."""

    def blocks(self, batch: int, part: int) -> Integers:
        """The blocks of a batch that a part has, in the order in which they are handed on."""


def noisy_parts(
    plan: Measurable,
    parts: Parts,
    data: object,
    source: Source,
    ledger: Ledger | None,
    write: Write,
    *,
    note: str = "",
    period: str | None = None,
    progress: Progress | None = None,
    engine: Opener | None = None,
) -> Paid | None:
    """Measure all parts and hand them on, first what is in none; returns the entry that paid."""
    refuse_unnoted(note, period, ledger)
    counted = Counted(plan, parts, data, progress, engine)
    laws = [batch.laws() for batch in plan.batches]
    counted.of_part(counted.largest())  # memory that is lacking is found out here
    paid = pay(plan, laws, source, ledger, note=note, period=period)
    for part in (None, *range(len(parts))):
        found = counted.rest if part is None else counted.of_part(part)
        for at, answers in found.items():
            batch, blocks = plan.batches[at], None if part is None else parts.blocks(at, part)
            owners = batch.owners if blocks is None else batch.owners[blocks]
            noisy(batch, answers, laws[at], source, np.argsort(owners, kind="stable"), blocks)
        write(part, found)
    return paid


class Counted:
    """Exact answers: of what is in no part in `rest`, of each part when it is asked for."""

    def __init__(
        self,
        plan: Measurable,
        parts: Parts,
        data: object,
        progress: Progress | None,
        engine: Opener | None,
    ) -> None:
        self._batches, self._parts, self._units = plan.batches, parts, plan.schema.units
        for at in parts.divided:
            self._refuse_torn(at)
        opened = opened_for(plan, data, engine)
        others = [at for at in range(len(plan.batches)) if at not in parts.divided]
        positions = Positions(plan)
        exact = exact_answers([plan.batches[at] for at in others], opened, positions, progress)
        self.rest = dict(zip(others, exact, strict=True))
        records = opened.records
        self._asked = {at: self._set(at, positions) for at in parts.divided}
        self._found = Occurrences(
            opened,
            list(dict.fromkeys(self._asked.values())),
            positions.sizes,
            parts.of_cells(),
            progress,
            positions.units,
        )
        if opened.records != records:
            raise DataError("the data changed while being counted; count a copy that stands still")

    def _refuse_torn(self, at: int) -> None:
        """BudgetError unless each block is in one part, which has all cells that the block sees."""
        blocks = [self._parts.blocks(at, part) for part in range(len(self._parts))]
        owners = np.repeat(np.arange(len(blocks)), [len(own) for own in blocks])
        order = np.concatenate(blocks)
        seen = self._batches[at].cells_of_blocks()
        if (
            self._batches[at].within is None
            or not np.array_equal(np.sort(order), np.arange(len(self._batches[at].subsets)))
            or not np.array_equal(owners[np.argsort(order)][seen], self._parts.of_cells())
        ):
            raise BudgetError("the parts of this plan do not have each of its blocks once, whole; plan again")

    def _set(self, at: int, positions: Positions) -> tuple[int, ...]:
        """The attributes that a batch counts, those cells first that its blocks are within."""
        batch = self._batches[at]
        assert batch.within is not None
        return (batch.within, *positions.of(batch)[batch.subsets[0]].tolist())

    def largest(self) -> int:
        """The part with the most numbers."""
        rows = {at: self._batches[at].rows for at in self._parts.divided}
        sizes = [
            sum(len(self._parts.blocks(at, part)) * own for at, own in rows.items())
            for part in range(len(self._parts))
        ]
        return int(np.argmax(sizes))

    def of_part(self, part: int) -> dict[int, Integers]:
        """Exact answers of a part by batch, (blocks, rows) each."""
        return {at: self._answers(at, part) for at in self._parts.divided}

    def _answers(self, at: int, part: int) -> Integers:
        batch, blocks = self._batches[at], self._parts.blocks(at, part)
        places = np.zeros(len(batch.subsets), dtype=np.int64)  # of other blocks nothing is read
        places[blocks] = np.arange(len(blocks))
        first, cells, counts = self._found.read(self._asked[at], part)
        table = np.zeros(len(blocks) * batch.cells, dtype=np.int64)
        np.add.at(table, places[batch.cells_of_blocks()[first]] * batch.cells + cells, counts)
        return batch.apply(table.reshape(len(blocks), -1), batch.multiples(self._units)[blocks])
