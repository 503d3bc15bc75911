"""Nearest non-negative tables with given margins, in real and in whole numbers.

Real, where all cells are equally uncertain: with one attribute, subtract a threshold and cut off at zero;
with two, add one number per row and one per column and cut off at zero; the numbers minimise a smooth convex
function, by Newton's method (claim P-103).

Whole: the total is rounded first, then every one-way margin to add up to it, then every table on two
attributes to add up to its one-way margins: there, rounding every cell up or down always suffices (P-106). A
table on more attributes adds up to all its margins where such whole numbers are found; otherwise to its table
without the last attribute and to that attribute's margin, which is always possible.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Array, Flags, Indices, Integers, Subset
from residua._limits import ROUNDED_CELLS
from residua.errors import Infeasible
from residua.linalg.matrices import threads_for
from residua.postprocess.facts import Facts
from residua.postprocess.pieces import TableSet

MOST_STEPS = 300
MOST_HALVINGS = 40
TOLERANCE = 1e-8  # records, in each margin
ROUNDING = 1e-14  # of a table's total: what floating point leaves of a margin
CHUNK = 4_000_000  # entries of Newton matrices held at once
WHOLE = 1e-6  # distance from a whole number that rounding errors leave
MOST_NODES = 20  # of a search for whole numbers with more than two margins


def with_total(cells: Array, totals: Array) -> Array:
    """Nearest non-negative vectors with these sums: (tables, cells) and (tables,) to (tables, cells).

    >>> with_total(np.array([[3.0, 1.0, -2.0]]), np.array([3.0]))
    array([[2.5, 0.5, 0. ]])
    """
    falling = -np.sort(-cells, axis=1)
    thresholds = (np.cumsum(falling, axis=1) - totals[:, None]) / np.arange(1, cells.shape[1] + 1)
    last = np.maximum((falling > thresholds).sum(axis=1) - 1, 0)  # cells above their threshold come first
    chosen = np.take_along_axis(thresholds, last[:, None], axis=1)
    return np.asarray(np.where(totals[:, None] > 0, np.maximum(cells - chosen, 0.0), 0.0))


def with_margins(
    cells: Array, rows: Array, columns: Array, allowed: Flags | None = None, spread: Array | None = None
) -> Array:
    """Nearest non-negative tables with these margins: (tables, n, m), (tables, n) and (tables, m).

    The margins must be non-negative, with equal sums. Cells that are not `allowed` stay zero. Near is by
    variances in proportion to `spread`, (tables, n, m); without, all alike.

    >>> with_margins(np.array([[[3.0, -1.0], [0.0, 0.0]]]), np.array([[2.0, 1.0]]), np.array([[2.0, 1.0]]))
    array([[[2., 0.],
            [0., 1.]]])
    """
    step = max(1, CHUNK // (cells[0].size + min(cells.shape[1:]) ** 2))
    spread = np.ones((len(cells), 1, 1)) if spread is None else spread
    open_cells = (rows > 0)[:, :, None] & (columns > 0)[:, None, :]
    if allowed is not None:
        open_cells &= allowed
    parts = [slice(start, start + step) for start in range(0, len(cells), step)]
    return np.concatenate(
        [_Transport(cells[at], rows[at], columns[at], open_cells[at], spread[at]).solve() for at in parts]
    )


class _Transport:
    """Newton's method on the numbers per row and per column, for several tables at once."""

    def __init__(self, cells: Array, rows: Array, columns: Array, open_cells: Flags, spread: Array) -> None:
        self.cells, self.open, self.spread = cells, open_cells, spread
        self.goal = np.concatenate([rows, columns], axis=1)
        self.limit = np.maximum(TOLERANCE, ROUNDING * rows.sum(axis=1))
        self.duals = np.zeros_like(self.goal)

    def solve(self) -> Array:
        left = np.arange(len(self.cells))
        for _ in range(MOST_STEPS):
            tables, slopes = self._at(left, self.duals[left])
            wrong = np.abs(slopes).max(axis=1) > self.limit[left]
            if not wrong.any():
                return self._at(np.arange(len(self.cells)), self.duals)[0]
            left, tables, slopes = left[wrong], tables[wrong], slopes[wrong]
            self._move(left, _newton((tables > 0) * self.spread[left], slopes), slopes)
        raise Infeasible(
            f"no non-negative table with the given margins was found in {MOST_STEPS} steps: the impossible "
            "cells, if any, leave no room for them"
        )

    def _at(self, which: Indices, duals: Array) -> tuple[Array, Array]:
        """The tables at these numbers, and the excess of their margins, which is the slope."""
        n = self.cells.shape[1]
        tables = self.cells[which] + self.spread[which] * (duals[:, :n, None] + duals[:, None, n:])
        tables = np.where(self.open[which], np.maximum(tables, 0.0), 0.0)
        margins = np.concatenate([tables.sum(axis=2), tables.sum(axis=1)], axis=1)
        return tables, margins - self.goal[which]

    def _move(self, which: Indices, steps: Array, slopes: Array) -> None:
        """Go along each step until the slope along it has all but vanished; half as far where it turned.

        A step that ends within the limit is taken: what rounding leaves of the slope there has no sign.
        """
        start = np.sum(slopes * steps, axis=1)  # negative
        length = np.ones(len(which))
        for _ in range(MOST_HALVINGS):
            _, there = self._at(which, self.duals[which] + length[:, None] * steps)
            beyond = np.sum(there * steps, axis=1) > -0.1 * start
            beyond &= np.abs(there).max(axis=1) > self.limit[which]
            if not beyond.any():
                break
            length[beyond] /= 2
        self.duals[which] += length[:, None] * steps


def _newton(active: Array, slopes: Array) -> Array:
    """Newton steps, damped where the problem is flat; the longer side is eliminated."""
    n, m = active.shape[1:]
    if n < m:
        turned = np.concatenate([slopes[:, n:], slopes[:, :n]], axis=1)
        found = _newton(active.transpose(0, 2, 1), turned)
        return np.concatenate([found[:, m:], found[:, :m]], axis=1)
    damping = (1e-3 * np.minimum(1.0, np.abs(slopes).max(axis=1)) + 1e-10)[:, None]
    rows, columns = active.sum(axis=2) + damping, active.sum(axis=1) + damping
    shares = active / rows[:, :, None]
    square = -(shares.transpose(0, 2, 1) @ active)
    ends = np.arange(m)
    square[:, ends, ends] += columns
    right = np.einsum("tnm,tn->tm", shares, slopes[:, :n]) - slopes[:, n:]
    along = np.asarray(np.linalg.solve(square, right[:, :, None]))[:, :, 0]
    across = -(slopes[:, :n] + np.einsum("tnm,tm->tn", active, along)) / rows
    return np.concatenate([across, along], axis=1)


def rounded_tables(tables: TableSet, facts: Facts, shared: Collection[int] = ()) -> TableSet:
    """Whole numbers near non-negative tables, which add up to one total and to common one-way margins.

    Tables on attributes that records are `shared` out among are left alone: their cells are no counts.
    """
    found: dict[Subset, Array] = {(): np.rint(tables.marginal(()))}
    with threads_for(0):
        for ways in range(1, tables.ways + 1):
            for subset in tables.subsets(ways):
                cells = tables.marginal(subset)
                alone = any(at in shared for at in subset)
                found[subset] = cells if alone else _rounded(subset, cells, found, facts)
    return tables.with_tables(found)


def _rounded(subset: Subset, cells: Array, found: dict[Subset, Array], facts: Facts) -> Array:
    known = facts.margin(subset)
    if known is not None:
        if np.abs(known - np.rint(known)).max() > WHOLE:
            raise Infeasible("a known table is not whole, so that nothing whole adds up to it")
        return np.rint(known)
    mask = facts.cells(subset, cells.shape)
    if len(subset) == 1:
        return shared_out(cells, mask, int(found[()]))
    if len(subset) > 2 and cells.size <= ROUNDED_CELLS:
        faces = [found[subset[:axis] + subset[axis + 1 :]] for axis in range(len(subset))]
        whole = _with_faces(cells, mask, faces)
        if whole is not None:
            return whole
    rows, columns = found[subset[:-1]].reshape(-1), found[subset[-1:]]
    flat = controlled(cells.reshape(len(rows), -1), mask.reshape(len(rows), -1), rows, columns)
    return flat.reshape(cells.shape)


def shared_out(cells: Array, allowed: Flags, total: int) -> Array:
    """Whole numbers with this sum, each cell moved to its floor or ceiling once the sum is right.

    >>> shared_out(np.array([1.4, 1.4, 0.2]), np.array([True, True, True]), 3)
    array([2., 1., 0.])
    """
    result, totals = np.zeros_like(cells), np.array([float(total)])
    if allowed.any():
        near = with_total(cells[allowed][None], totals)[0]
        result[allowed] = rounded_among(near, np.zeros(1, dtype=np.int64), totals)
    elif total:
        raise Infeasible("every value of an attribute is said to be impossible, yet there are records")
    return result


def rounded_among(cells: Array, starts: Integers, totals: Array) -> Array:
    """Whole numbers with whole sums in each group, each cell its floor or its ceiling: (cells,).

    Groups are runs of cells that begin at `starts`.
    """
    owners = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells)))
    floor = np.floor(cells + WHOLE)
    missing = np.rint(totals - np.add.reduceat(floor, starts)).astype(np.int64)
    order = np.lexsort((-(cells - floor), owners))
    ranks = np.arange(len(cells)) - starts[owners]
    floor[order] += ranks < missing[owners]
    return np.asarray(floor)


def controlled(cells: Array, allowed: Flags, rows: Array, columns: Array) -> Array:
    """Whole numbers (n, m) with these whole margins, nearest to the cells moved to have them.

    >>> controlled(np.full((2, 2), 0.5), np.ones((2, 2), dtype=bool), np.ones(2), np.ones(2)).sum(axis=0)
    array([1., 1.])
    """
    moved = with_margins(cells[None], rows[None], columns[None], allowed[None])[0]
    floor = np.floor(moved + WHOLE)
    share = np.where(moved - floor > WHOLE, moved - floor, 0.0)
    loose = np.flatnonzero(share)
    short = (rows - floor.sum(axis=1), columns - floor.sum(axis=0))
    if not any(each.any() for each in short):
        return np.asarray(floor)
    # Two margins make a network, whose corners are whole; the corner nearest to the shares is taken.
    places, count = np.divmod(loose, cells.shape[1]), len(loose)
    parts = _adding(zip(places, map(len, short), strict=True), count)
    prices = 1.0 - 2.0 * share.reshape(-1)[loose]
    picked = _whole_solution(prices, parts, np.concatenate(short), np.ones(count))
    if picked is None:
        raise Infeasible(
            "no whole numbers add up to the margins: the impossible cells leave no room for them"
        )
    result = floor.reshape(-1)
    result[loose] += picked
    return np.asarray(result.reshape(cells.shape))


def _with_faces(cells: Array, allowed: Flags, faces: Sequence[Array]) -> Array | None:
    """Whole numbers with all these margins, one summing out each axis; None where none are found."""
    from scipy.sparse import hstack

    open_cells = np.flatnonzero(allowed)
    indices = np.unravel_index(open_cells, cells.shape)
    kept = (indices[:axis] + indices[axis + 1 :] for axis in range(cells.ndim))
    places = (np.ravel_multi_index(own, face.shape) for own, face in zip(kept, faces, strict=True))
    count = len(open_cells)
    parts = _adding(zip(places, (face.size for face in faces), strict=True), count)
    floor = np.floor(cells.reshape(-1)[open_cells])
    share = cells.reshape(-1)[open_cells] - floor
    # A cell is its floor, plus one at a price that falls with its share, plus more, minus some.
    found = _whole_solution(
        np.concatenate([1.0 - 2.0 * share, 3.0 - 2.0 * share, 1.0 + 2.0 * share]),
        hstack([parts, parts, -parts]),
        np.concatenate([face.reshape(-1) for face in faces]) - parts @ floor,
        np.concatenate([np.ones(count), np.full(count, np.inf), floor]),
    )
    if found is None:
        return None
    result = np.zeros(cells.size)
    up, more, less = found.reshape(3, count)
    result[open_cells] = floor + up + more - less
    return np.asarray(result.reshape(cells.shape))


def _adding(margins: Iterable[tuple[NDArray[np.integer[Any]], int]], count: int) -> Any:
    """The sparse matrix that adds up cells to margins, each given by the cells' places and its length."""
    from scipy.sparse import csr_array, vstack

    ones, cells = np.ones(count), np.arange(count)
    return vstack([csr_array((ones, (places, cells)), shape=(sums, count)) for places, sums in margins])


def _whole_solution(prices: Array, parts: Any, goal: Array, most: Array) -> Array | None:
    """The cheapest whole numbers from zero to `most` with `parts @ x == goal`; None where none are found."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    answer = milp(
        prices,
        integrality=np.ones(len(prices), dtype=np.int64),
        bounds=Bounds(np.zeros(len(prices)), most),
        constraints=LinearConstraint(parts, goal, goal),
        options={"node_limit": MOST_NODES},
    )
    if answer.x is None:
        return None
    whole = np.rint(np.asarray(answer.x, dtype=np.float64))
    return whole if np.array_equal(parts @ whole, goal) else None
