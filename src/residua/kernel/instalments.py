"""Measuring a plan in instalments: of each block the rows that look at one period last, when it is over.

The noise of all instalments together is that of the plan, each number once, and so is what they cost a
record, whatever later data and answers depend on: a Gaussian mechanism composes adaptively (claim Y-003).
A row needs the exact counts of the periods before: they are kept apart, or the same data are given again.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np

from residua._arrays import Integers
from residua.engines import Opener, Progress
from residua.errors import BudgetError
from residua.kernel.measurement import Measurement
from residua.kernel.measuring import Measurable, Paid, counted_answers, paid_noise
from residua.ledger import Instalment, Ledger
from residua.noise import Source

Counts = list[Integers]
"""For each batch the exact counts of its blocks' marginals, (blocks, cells)."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """In which period each row of each batch is measured, and which cells are of it.

    `periods` is the number of periods; `rows` and `cells` have for each batch the period of each of its rows,
    the last one that it looks at, and of each cell of its marginals. `whole` says that each period has as
    many rows as cells, so that answers need not wait for later ones.
    """

    periods: int
    rows: tuple[Integers, ...]
    cells: tuple[Integers, ...]
    whole: bool

    @classmethod
    def of(cls, batches: Sequence[Measurement], at: int, classes: Integers) -> "Schedule":
        """The schedule over an attribute whose cells are in these periods, ascending from 0.

        BudgetError where a block does not look at the attribute by its cells.
        """
        rows, cells, whole = zip(*(_of_batch(batch, at, classes) for batch in batches), strict=True)
        return cls(int(classes.max()) + 1, rows, cells, all(whole))


def _of_batch(batch: Measurement, at: int, classes: Integers) -> tuple[Integers, Integers, bool]:
    """The period of each row and of each cell of a batch, and whether it has as many of both."""
    axes = np.flatnonzero((batch.subsets == at).all(axis=0))
    hidden = batch.within is not None or any(at in part.attributes for part in batch.derived)
    if hidden or len(axes) != 1 or batch.sizes[axes[0]] != len(classes):
        raise BudgetError(
            "this plan has blocks that do not look at the periods, and cannot be measured in instalments; "
            "plan again, with over="
        )
    before = math.prod(batch.sizes[: axes[0]])
    ends = list(accumulate((matrix.shape[1] for matrix in batch.matrices), mul))
    number = min(bisect_right(ends, before), len(ends) - 1)  # of the matrix that the attribute is part of
    own = batch.matrices[number]
    seen = _spread(classes, ends[number] // before, own.shape[1])
    last = np.where(own != 0, seen, 0).max(axis=1)
    rows = _spread(last, math.prod(len(matrix) for matrix in batch.matrices[number:]), batch.rows)
    whole = np.array_equal(np.sort(last), np.sort(seen))
    return rows, _spread(classes, batch.cells // before, batch.cells), whole


def _spread(classes: Integers, length: int, cells: int) -> Integers:
    """The class of each of so many cells: all classes, alike over so many cells, again and again."""
    return np.asarray(classes[np.arange(cells) % length // (length // len(classes))], dtype=np.int64)


def noisy_instalment(
    plan: Measurable,
    schedule: Schedule,
    number: int,
    data: object,
    source: Source,
    ledger: Ledger | None,
    *,
    past: Counts | None,
    keep: Callable[[Counts], None],
    period: str,
    instalment: Instalment | None,
    note: str,
    progress: Progress | None,
    engine: Opener | None,
) -> tuple[tuple[Integers, ...], Paid | None]:
    """What one instalment measured of each batch, (blocks, rows of it), and the entry that paid for it.

    Of the data only records of this period count, on top of `past`; without it, all up to this period. The
    exact counts so far are handed to `keep`, which has put them away when it returns, before the debit.
    """
    counts = [np.zeros((len(batch.subsets), batch.cells), np.int64) for batch in plan.batches]

    def seen(at: int, blocks: Sequence[int], counted: Integers) -> Integers:
        mine = schedule.cells[at] <= number if past is None else schedule.cells[at] == number
        counts[at][blocks] = np.where(mine, counted, 0) + (0 if past is None else past[at][blocks])
        return counts[at][blocks]

    answers = counted_answers(plan, data, progress, engine, seen)
    exact = [own[:, rows == number] for own, rows in zip(answers, schedule.rows, strict=True)]
    keep(counts)
    return paid_noise(plan, exact, source, ledger, note=note, period=period, instalment=instalment)
