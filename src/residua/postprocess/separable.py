"""Nearest non-negative tables with given margins, where all cells are equally uncertain.

One attribute: subtract a threshold and cut off at zero. Two attributes: add one number per row and one per
column and cut off at zero; the numbers minimise a smooth convex function, by Newton's method (claim P-103).
"""

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_STEPS = 300
MOST_HALVINGS = 40
TOLERANCE = 1e-8  # records, in each margin
ROUNDING = 1e-14  # of a table's total: what floating point leaves of a margin
CHUNK = 4_000_000  # entries of Newton matrices held at once


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


def with_margins(cells: Array, rows: Array, columns: Array, allowed: Flags | None = None) -> Array:
    """Nearest non-negative tables with these margins: (tables, n, m), (tables, n) and (tables, m).

    The margins must be non-negative, with equal sums. Cells that are not `allowed` stay zero.

    >>> with_margins(np.array([[[3.0, -1.0], [0.0, 0.0]]]), np.array([[2.0, 1.0]]), np.array([[2.0, 1.0]]))
    array([[[2., 0.],
            [0., 1.]]])
    """
    step = max(1, CHUNK // (cells.shape[1] + cells.shape[2]) ** 2)
    open_cells = (rows > 0)[:, :, None] & (columns > 0)[:, None, :]
    if allowed is not None:
        open_cells &= allowed
    parts = [slice(start, start + step) for start in range(0, len(cells), step)]
    return np.concatenate(
        [_Transport(cells[at], rows[at], columns[at], open_cells[at]).solve() for at in parts]
    )


class _Transport:
    """Newton's method on the numbers per row and per column, for several tables at once."""

    def __init__(self, cells: Array, rows: Array, columns: Array, open_cells: Flags) -> None:
        self.cells, self.open = cells, open_cells
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
            self._move(left, _newton(tables > 0, slopes), slopes)
        raise Infeasible(
            f"no non-negative table with the given margins was found in {MOST_STEPS} steps: the impossible "
            "cells, if any, leave no room for them"
        )

    def _at(self, which: NDArray[np.intp], duals: Array) -> tuple[Array, Array]:
        """The tables at these numbers, and the excess of their margins, which is the slope."""
        n = self.cells.shape[1]
        tables = self.cells[which] + duals[:, :n, None] + duals[:, None, n:]
        tables = np.where(self.open[which], np.maximum(tables, 0.0), 0.0)
        margins = np.concatenate([tables.sum(axis=2), tables.sum(axis=1)], axis=1)
        return tables, margins - self.goal[which]

    def _move(self, which: NDArray[np.intp], steps: Array, slopes: Array) -> None:
        """Go along each step until the slope along it has all but vanished; half as far where it turned."""
        start = np.sum(slopes * steps, axis=1)  # negative
        length = np.ones(len(which))
        for _ in range(MOST_HALVINGS):
            _, there = self._at(which, self.duals[which] + length[:, None] * steps)
            beyond = np.sum(there * steps, axis=1) > -0.1 * start
            if not beyond.any():
                break
            length[beyond] /= 2
        self.duals[which] += length[:, None] * steps


def _newton(active: Flags, slopes: Array) -> Array:
    """Newton steps, damped where the problem is flat."""
    count, n, m = active.shape
    square = np.zeros((count, n + m, n + m))
    square[:, :n, n:] = active
    square[:, n:, :n] = active.transpose(0, 2, 1)
    ends = np.arange(n + m)
    errors = np.abs(slopes).max(axis=1)
    damping = 1e-3 * np.minimum(1.0, errors) + 1e-10
    own = np.concatenate([active.sum(axis=2), active.sum(axis=1)], axis=1)
    square[:, ends, ends] = own + damping[:, None]
    return -np.asarray(np.linalg.solve(square, slopes[:, :, None]))[:, :, 0]
