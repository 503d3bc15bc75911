"""What records may change in what is measured, and what that costs: from the plan's integers alone."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from residua._arrays import Integers
from residua.kernel.measurement import Measurement

Cells = tuple[int, ...]
"""The cell of a record in each attribute of the schema."""


def answers(batch: Measurement, records: Sequence[Cells]) -> Integers:
    """What each block measures of these records without noise, modulo 2^64: (blocks, rows)."""
    total = np.zeros((len(batch.subsets), batch.rows), dtype=np.int64)
    for record in records:
        total += change(batch, record)
    return total


def change(batch: Measurement, record: Cells) -> Integers:
    """What one more record adds to each measured number: its column of every block (claim X-006)."""
    codes = np.array(record, dtype=np.int64)
    for part in batch.derived:
        codes[part.place] = part.classes()[tuple(record[at] for at in part.attributes)]
    seen = codes[batch.subsets]  # (blocks, axes)
    found = np.full((len(batch.subsets), 1), batch.multiplier, dtype=np.int64)
    if batch.within is not None:
        found *= (np.arange(len(found)) == codes[batch.within])[:, None]
    axis = 0
    for matrix in batch.matrices:
        at = np.zeros(len(seen), dtype=np.int64)
        cells = 1
        while cells < matrix.shape[1]:
            at = at * batch.sizes[axis] + seen[:, axis]
            cells *= batch.sizes[axis]
            axis += 1
        column = matrix[:, at].T  # (blocks, rows of this matrix)
        found = (found[:, :, None] * column[:, None, :]).reshape(len(found), -1)
    if batch.within is not None:  # the block of its own cell sees it, no other does
        found[np.arange(len(found)) != batch.cells_of_blocks()[record[batch.within]]] = 0
    return found


def cost(batches: Sequence[Measurement], added: Sequence[Cells], removed: Sequence[Cells]) -> Fraction:
    """Exact privacy cost of some records coming and others going, from the integers and parameters."""
    total = Fraction(0)
    for batch in batches:
        apart = (answers(batch, added) - answers(batch, removed)).astype(object)
        sizes = (abs(apart) if batch.law == "laplace" else apart * apart).sum(axis=1)
        for size, owner in zip(sizes.tolist(), batch.owners.tolist(), strict=True):
            total += Fraction(size) / batch.parameters[owner]
    return total


def dearest(
    batches: Sequence[Measurement], options: Sequence[Sequence[int]], chance: np.random.Generator
) -> Cells:
    """A record that costs as much as a short search finds: random ones, then the best of each attribute."""
    drawn = [tuple(int(chance.choice(cells)) for cells in options) for _ in range(8)]
    best = max(drawn, key=lambda cells: cost(batches, [cells], []))
    for at, cells in enumerate(options):
        tried = [(*best[:at], cell, *best[at + 1 :]) for cell in _some(cells, chance)]
        best = max([best, *tried], key=lambda cells: cost(batches, [cells], []))
    return best


def _some(cells: Sequence[int], chance: np.random.Generator) -> Sequence[int]:
    return cells if len(cells) <= 8 else sorted({cells[0], cells[-1], *chance.choice(cells, 6).tolist()})
