"""Newton steps on cell weights, of which those that the optimum does without are zero (claim S-015).

The problem is that of S-005, `minimise sum(w) - 2 log trace` over w >= 0. Interior steps keep all weights
positive, and end at the first that would not be: from weights of a similar problem, whose zeros are others,
they take dozens. Here a step goes to the least of the quadratic model over all weights that are not negative.
"""

import math
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Flags

FAINT = 1e-13  # of the largest square: what rounding leaves of zero
COUPLED = 1e-3  # of the largest part of the coupling of directions: smaller ones only count on the diagonal
DAMPED = 1e-6  # of the diagonal, where cells could share a weight in many ways
SURE = 3e-6  # promised gain of a step after which what is left is far below what slopes need
ROUNDS = 12  # guesses at which weights are zero
DECREASE = 1e-4  # of what the slope promises, for a step to be taken
SHORTEST = 1e-3  # fraction of a step below which the search ends
LOST = 0.03  # of the least t: a step that leaves less may have left cells out that are needed
MIXED = 1e-3  # of uniform weights, where a start does not do
LOOK = 12.0  # flops of a look, in units of rank^2 * cells: two products, and a decomposition


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What is seen from weights of sum 1: t and Z of S-001, the sum of t, and the slopes of `2 log trace`."""

    weights: Array  # (cells,)
    scales: Array  # (rank,)
    directions: Array  # (rank, cells)
    trace: float
    slopes: Array  # (cells,)

    @classmethod
    def of(cls, rows: Array, weights: Array) -> "View":
        """What is seen from weights of any sum; `rows` are independent."""
        weights = weights / weights.sum()
        squares, vectors = np.linalg.eigh((rows * weights) @ rows.T)
        scales = np.sqrt(np.maximum(squares, FAINT * squares[-1]))
        directions = vectors.T @ rows
        trace = float(scales.sum())
        slopes = np.einsum("ai,ai->i", directions, directions / scales[:, None]) / trace
        return cls(weights, scales, directions, trace, slopes)

    def hessian(self, free: Flags) -> tuple[Array, float]:
        """About the second derivative in the weights of some cells, and the flops that took.

        `sum_ab z_ai z_bi z_aj z_bj / (t_a t_b (t_a + t_b))` is a sum of squares of entries, one matrix for
        each eigenvector of the Cauchy matrix `(t_a t_b)^1/2 / (t_a + t_b)`, of which very few matter.
        """
        scales, own = self.scales, self.directions[:, free]
        roots = np.sqrt(scales)
        parts, vectors = np.linalg.eigh(np.outer(roots, roots) / np.add.outer(scales, scales))
        scaled = own / (scales**0.75)[:, None]
        found = 0.5 * np.outer(self.slopes[free], self.slopes[free])
        exact = np.diagonal(found).copy()
        exact += self._bends(own)
        kept = np.flatnonzero(parts > COUPLED * parts[-1])
        for at in kept.tolist():
            entries = (scaled * vectors[:, at, None]).T @ scaled
            found += (parts[at] / self.trace) * np.square(entries, out=entries)
        found[np.diag_indices(len(found))] = exact * (1 + DAMPED)
        return found, 2.0 * len(kept) * len(scales) * float(len(found)) ** 2

    def _bends(self, own: Array) -> Array:
        """The diagonal of that sum."""
        scales, squares = self.scales, own**2
        coupling = 1.0 / (np.outer(scales, scales) * np.add.outer(scales, scales))
        return np.asarray(np.einsum("ai,ai->i", squares, coupling @ squares) / self.trace)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The last view, and the flops spent."""

    view: View
    work: float


def nearest(rows: Array, start: Array, gap: float, most: int) -> Found:
    """The optimum for independent rows to about `gap`, relative, from weights of which some may be zero."""
    view, work = View.of(rows, start), 0.0
    if view.scales[0] ** 2 <= 2 * FAINT * view.scales[-1] ** 2:  # what has weight does not answer all
        view = View.of(rows, start + MIXED * start.sum() / len(start))
    look = LOOK * float(len(rows)) ** 2 * rows.shape[1]
    for _ in range(most):
        pull = 1 - view.slopes
        free = (view.weights > 0) | (pull < 0)
        hessian, flops = view.hessian(free)
        step = np.zeros(len(pull))
        step[free], rounds = _least(hessian, pull[free], view.weights[free])
        bend = float(step[free] @ (hessian @ step[free]))
        promised = float(pull @ step)
        work += look + flops + rounds * float(len(hessian)) ** 3
        gain = -promised - 0.5 * bend
        if promised >= 0 or (rounds < ROUNDS and gain <= gap):
            break
        there = _taken(rows, view, step, promised)
        if there is None:
            break
        view = there
        if rounds < ROUNDS and gain <= SURE:
            break
    return Found(view, work + look)


def _least(hessian: Array, slope: Array, weights: Array) -> tuple[Array, int]:
    """The step to the least of a quadratic model over weights that are not negative, and guesses made.

    Which weights are zero there is guessed from the step that the others would take.
    """
    free = np.ones(len(weights), dtype=bool)
    guesses = 0
    while guesses < ROUNDS:
        guesses += 1
        step = -weights
        step[free] = np.linalg.solve(
            hessian[np.ix_(free, free)], hessian[np.ix_(free, ~free)] @ weights[~free] - slope[free]
        )
        below = free & (weights + step < 0)
        if below.any():
            free &= ~below
            continue
        wanted = ~free & (slope + hessian @ step < 0)
        if not wanted.any():
            break
        free |= wanted
    return np.maximum(weights + step, 0.0) - weights, guesses


def _taken(rows: Array, view: View, step: Array, promised: float) -> View | None:
    """What is seen after as much of a step as goes down, None where hardly anything does."""
    length = 1.0
    while length > SHORTEST:
        there = View.of(rows, view.weights + length * step)
        total = 1 + length * float(step.sum())  # of the weights before they are scaled
        change = total - 1 - 2 * math.log(there.trace / view.trace) - math.log(total)
        if change <= DECREASE * length * promised and there.scales[0] > LOST * view.scales[0]:
            return there
        length *= 0.5
    return None
