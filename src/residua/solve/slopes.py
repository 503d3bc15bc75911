"""The optimum of a block as a search over splits needs it: its root and its slopes, without a proof.

The dual bound of S-001 is far nearer to the optimum than any strategy made of the same cell weights, and its
slopes in the rows are those of the optimum there. So a few steps that multiply weights by their squared
slopes (S-011) do, from rows that need not be independent, and each is one decomposition.
"""

import math
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import independent_rows, triangle_inverse
from residua.solve.active import FAINT, nearest
from residua.solve.cells import solve_cells

STEPS = 50  # at most; short of them the bound is far below the optimum after a long step, and misleads
SMALL, SMALLEST = 2e6, 1e5  # rank^2 * cells up to which the optimum is found itself, of few queries or many
FLOPS = 12.0  # of one step, in units of the size cubed: a product, and a decomposition


@dataclass(frozen=True, slots=True)
class Slopes:
    """T, the root of the optimum; M = half half' with `dT = tr(M R' dR)`; cell weights; flops spent."""

    root: float
    half: Array  # (cells, rank)
    weights: Array
    work: float


def slopes_of(rows: Array, start: Array | None, gap: float, most: int | None = None) -> Slopes:
    """The optimum for queries with gram `rows' rows`, about `gap` below it; starts from weights if given.

    With `most`, after at most so many steps, however far that is from it.
    """
    count, cells = rows.shape
    few = 10 * count < 9 * cells  # queries: they leave many weights zero, which such steps take long to find
    if most is None and float(min(count, cells)) ** 2 * cells <= (SMALL if few else SMALLEST):
        return _optimal(rows, start, gap)
    used = np.einsum("ki,ki->i", rows, rows) > 0
    weights = used / used.sum() if start is None else np.where(used, np.maximum(start, 1e-9 / cells), 0.0)
    gram = rows.T @ rows if count > cells else None
    steps = 0
    while steps < (STEPS if most is None else most):
        steps += 1
        weights = weights / weights.sum()
        roots = np.sqrt(weights)
        inner = (rows * weights) @ rows.T if gram is None else gram * roots * roots[:, None]
        squares, vectors = np.linalg.eigh(inner)
        kept = squares > FAINT * squares[-1]
        scales, vectors = np.sqrt(squares[kept]), vectors[:, kept]
        if gram is None:  # directions over the cells, (cells, rank)
            directions = (rows.T @ vectors) / scales * roots[:, None]
        else:
            directions = vectors
        trace = float(scales.sum())
        own = np.divide(directions**2 @ scales, weights * trace, out=np.zeros(cells), where=used)
        if float(weights @ (own - 1) ** 2) <= gap:
            break
        weights = weights * own**2
    half = directions * roots[:, None] / np.sqrt(scales)
    size = min(count, cells)
    return Slopes(trace, half, weights, steps * FLOPS * float(size) ** 2 * max(size, cells))


def _optimal(rows: Array, start: Array | None, gap: float) -> Slopes:
    """The same at the optimum."""
    root = independent_rows(rows)
    found = solve_cells(root, gap, start=start)
    _, scales, right = np.linalg.svd(root * np.sqrt(found.cell_weights), full_matrices=False)
    half = (right * np.sqrt(found.cell_weights)).T / np.sqrt(scales)
    work = found.evaluations * FLOPS * float(len(root)) ** 2 * root.shape[1]
    value = found.upper if math.isfinite(found.upper) else found.lower  # where rounding hides the rank
    return Slopes(math.sqrt(value), half, found.cell_weights, work)


FEW_STEPS = 2  # where splits are only approached


def few_steps(rows: Array, start: Array | None, gap: float) -> Slopes:
    """About the optimum: after few steps from where a similar problem ended."""
    return slopes_of(rows, start, gap, FEW_STEPS)


def one_step(rows: Array, start: Array | None, gap: float) -> Slopes:
    """The same after a single one."""
    return slopes_of(rows, start, gap, 1)


def rough_step(rows: Array, start: Array | None, gap: float) -> Slopes:
    """The same without a decomposition, for rows with so much filling that their lengths hardly differ.

    With c the mean square, `(A + c) / (2 sqrt c)` is never below the root of A, and about it near c.
    """
    count, cells = rows.shape
    if count < cells:
        return one_step(rows, start, gap)
    used = np.einsum("ki,ki->i", rows, rows) > 0
    weights = used / used.sum() if start is None else np.where(used, np.maximum(start, 1e-9 / cells), 0.0)
    roots = np.sqrt(weights)
    inner = (rows * roots).T @ (rows * roots)
    mean = float(np.trace(inner)) / cells
    inner[np.diag_indices(cells)] += mean
    half = roots[:, None] * triangle_inverse(np.asarray(np.linalg.cholesky(inner).T))
    own = np.diagonal(inner) / (2 * math.sqrt(mean))
    trace = float(own.sum())
    own = np.divide(own, weights * trace, out=np.zeros(cells), where=used)
    return Slopes(trace, half * math.sqrt(2 * math.sqrt(mean)), weights * own**2, float(cells) ** 3)


SETTLED = 1e-9  # how far below the optimum the bound is, relative
NEWTON_STEPS = 30  # at most
LARGE = 1e9  # rank^2 * cells from which they take too long


def settled(rows: Array, start: Array | None, gap: float) -> Slopes:
    """The optimum for independent rows to all digits that slopes need, in few steps from a good start."""
    count, cells = rows.shape
    if count > cells or float(count) ** 2 * cells > LARGE:
        return slopes_of(rows, start, gap)
    used = np.einsum("ki,ki->i", rows, rows) > 0
    weights = np.ones(np.count_nonzero(used)) if start is None else np.maximum(start[used], 0.0)
    found = nearest(rows[:, used], weights, SETTLED, NEWTON_STEPS)
    half, all_weights = np.zeros((cells, count)), np.zeros(cells)
    seen = found.view
    half[used], all_weights[used] = (seen.weights * seen.directions).T / seen.scales**1.5, seen.weights
    return Slopes(seen.trace, half, all_weights, found.work)
