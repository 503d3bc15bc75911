"""Numbers shared out among many groups at once, and many tables rounded at once, all in arrays (P-111)."""

import numpy as np

from residua._arrays import Array, Flags, Integers
from residua.errors import DataError
from residua.postprocess.margins import WHOLE, controlled


def shared_among(
    cells: Array, starts: Integers, totals: Array, least: Array, closed: Flags, spread: Array
) -> Array:
    """The nearest numbers, none below `least`, that sum to `totals` in each group; all but those: (cells,).

    Groups are runs of cells that begin at `starts`. Closed cells stay at their least. Near is by variances in
    proportion to `spread`: what is over or missing is shared out in proportion to it.
    """
    owners = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells)))
    left = totals - np.add.reduceat(least, starts)
    if (left < -1e-6 * np.maximum(1.0, totals)).any():
        raise DataError("public facts contradict each other: known parts add up to more than a known whole")
    over = np.where(closed, -np.inf, (cells - least) / spread)  # what would make it zero, per unit of spread
    order = np.lexsort((-over, owners))
    weight = np.where(np.isfinite(over[order]), spread[order], 0.0)
    worth = np.where(weight > 0, cells[order] - least[order], 0.0)
    before = starts - 1
    sums = [np.cumsum(own) for own in (weight, worth)]
    weights, worths = (own - np.where(before >= 0, own[before], 0.0)[owners] for own in sums)
    moves = np.divide(left[owners] - worths, weights, out=np.full_like(worths, -np.inf), where=weights > 0)
    kept = (weight > 0) & (over[order] + moves > 0)
    count = np.add.reduceat(kept.astype(np.int64), starts)
    if ((count == 0) & (left > 1e-6 * np.maximum(1.0, totals))).any():
        raise DataError("public facts leave no place for records that are counted above it")
    free = np.zeros(len(cells), dtype=bool)
    free[order] = kept & (left[owners] > 0)
    sums = [np.add.reduceat(np.where(free, own, 0.0), starts) for own in (spread, cells - least)]
    move = np.divide(left - sums[1], sums[0], out=np.zeros_like(left), where=sums[0] > 0)
    found = np.where(free, np.maximum(cells - least + move[owners] * spread, 0.0), 0.0)
    return np.asarray(least + found)


def rounded_among(cells: Array, starts: Integers, totals: Array) -> Array:
    """Whole numbers with whole sums in each group, each cell its floor or its ceiling: (cells,)."""
    owners = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells)))
    floor = np.floor(cells + WHOLE)
    missing = np.rint(totals - np.add.reduceat(floor, starts)).astype(np.int64)
    order = np.lexsort((-(cells - floor), owners))
    ranks = np.arange(len(cells)) - starts[owners]
    floor[order] += ranks < missing[owners]
    return np.asarray(floor)


def rounded_tables_of(cells: Array, rows: Array, columns: Array) -> Array:
    """Whole tables (tables, n, m) with whole margins, each cell its floor or its ceiling.

    Rows are rounded one after another, and carry on what they owe each column; what columns owe in the end is
    swapped within rows. The few tables where no swap helps are rounded by linear programmes.
    """
    floor = np.floor(cells + WHOLE)
    share = np.where(cells - floor > WHOLE, cells - floor, 0.0)
    up = np.zeros(cells.shape, dtype=bool)
    owed = np.zeros_like(columns)
    for row in range(cells.shape[1]):
        count = np.rint(rows[:, row] - floor[:, row].sum(axis=1)).astype(np.int64)
        score = np.where(share[:, row] > 0, share[:, row] + owed, -np.inf)
        order = np.argsort(-score, axis=1, kind="stable")
        chosen = np.arange(cells.shape[2]) < count[:, None]
        np.put_along_axis(up[:, row], order, chosen, axis=1)
        up[:, row] &= share[:, row] > 0
        owed += share[:, row] - up[:, row]
    result = floor + up
    left = _swapped(result, up, share, columns)
    for table in left.tolist():
        allowed = (rows[table] > 0)[:, None] & (columns[table] > 0)
        result[table] = controlled(cells[table], allowed, rows[table], columns[table])
    return np.asarray(result)


def _swapped(result: Array, up: Flags, share: Array, columns: Array) -> Integers:
    """Swap units within rows, from columns with too many to columns with too few; tables left undone."""
    short = np.rint(columns - result.sum(axis=1)).astype(np.int64)
    left = np.flatnonzero((short != 0).any(axis=1) | (np.rint(result) != result).any(axis=(1, 2)))
    stuck: list[int] = []
    while len(left):
        over, under = (short[left] < 0)[:, None, :], (short[left] > 0)[:, None, :]
        down = np.where(up[left] & over, share[left], np.inf)
        raised = np.where(~up[left] & (share[left] > 0) & under, share[left], -np.inf)
        price = down.min(axis=2) - raised.max(axis=2)
        row = price.argmin(axis=1)
        here = np.arange(len(left))
        able = np.isfinite(price[here, row])
        stuck += left[~able].tolist()
        left, row, down, raised = left[able], row[able], down[able], raised[able]
        here = np.arange(len(left))
        lower, higher = down[here, row].argmin(axis=1), raised[here, row].argmax(axis=1)
        for column, change in ((lower, -1), (higher, 1)):
            result[left, row, column] += change
            up[left, row, column] = change > 0
            short[left, column] -= change
        left = left[(short[left] != 0).any(axis=1)]
    return np.array(stuck, dtype=np.int64)
