"""Interior-point Newton steps, for the problems where quasi-Newton steps stall (claim S-005).

With the scale of v left free the problem is `minimise sum v - 2 tr (R diag(v) R')^1/2` over v >= 0, convex
and smooth inside. Its optimality conditions `1 - slope_i = z_i >= 0`, `v_i z_i = 0` are followed along
`v_i z_i = mu`, mu -> 0. A cell whose weight goes to zero is what stalls a method that works with
logarithms; here it only adds a large number to the diagonal of the system.

The Hessian is never formed: with Z = U'R and c_ab = 1 / (t_a t_b (t_a + t_b)) its product with d is
`diag(Z' (c * (Z diag(d) Z')) Z)`, two matrix products, and conjugate gradients need 5 to 20 of them.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from residua.solve.bracket import Bracket

Array = NDArray[np.float64]

BOUNDARY = 0.99  # how much of the way to the boundary a step may go
LEAST_TARGET = 0.05  # the last mu aims at this fraction of the wanted gap
INNER_STEPS = 200
INNER_DECREASE = 1e-6  # of the squared preconditioned residual


def newton_steps(
    look: Callable[[Array], Bracket],
    start: Array,
    tolerance: float,
    keep_going: Callable[[], bool],
) -> None:
    """Walk from `start` (positive weights) towards the optimum, showing every point to `look`.

    `look` returns the bracket at given weights and remembers the best; `keep_going` stops the walk.
    """
    seen = look(start)
    cells = len(start)
    scale = seen.trace / float(start.sum())  # makes sum v = tr S, where the free-scale problem has its optimum
    weights, slopes, scales = start * scale**2, seen.slopes / scale, seen.scales * scale
    target = 0.3 * min(seen.gap, 10.0) * float(scales.sum()) / cells
    weights = np.maximum(weights, target)  # a start with vanishing weights would take many steps to leave
    slack = target / weights
    seen = look(weights)
    slopes, scales = seen.slopes, seen.scales
    while keep_going():
        step = _newton_direction(seen, weights, slack, target)
        slack_step = (target - slack * (weights + step)) / weights
        length = _longest_step(weights, step)
        slack_length = _longest_step(slack, slack_step)
        weights = weights + length * step
        slack = slack + slack_length * slack_step
        seen = look(weights)
        shortest = min(length, slack_length)
        shrink = 0.1 if shortest > 0.9 else 0.5 if shortest > 0.5 else 1.0
        target = max(shrink * float(weights @ slack) / cells, LEAST_TARGET * tolerance * seen.trace / cells)


def _newton_direction(seen: Bracket, weights: Array, slack: Array, target: float) -> Array:
    """Solve (Hessian + diag(slack / weights)) d = slopes - 1 + target / weights by conjugate gradients."""
    z, t = seen.directions, seen.scales  # (rank, cells), (rank,)
    coupling = 1.0 / (t[:, None] * t[None, :] * (t[:, None] + t[None, :]))
    pull = slack / weights
    squares = z * z
    preconditioner = 1.0 / (np.einsum("ai,ai->i", squares, coupling @ squares) + pull)

    def hessian_times(d: Array) -> Array:
        inner = coupling * ((z * d) @ z.T)
        return np.asarray(np.einsum("ai,ai->i", z, inner @ z) + pull * d)

    residual = seen.slopes - 1.0 + target / weights
    solution = np.zeros_like(weights)
    conjugate = scaled = preconditioner * residual
    size = first = float(residual @ scaled)
    for _ in range(INNER_STEPS):
        image = hessian_times(conjugate)
        length = size / float(conjugate @ image)
        solution += length * conjugate
        residual = residual - length * image
        scaled = preconditioner * residual
        size, previous = float(residual @ scaled), size
        if size <= INNER_DECREASE * first:
            break
        conjugate = scaled + (size / previous) * conjugate
    return solution


def _longest_step(position: Array, step: Array) -> float:
    """The largest length up to 1 that keeps `position + length * step` inside the positive orthant."""
    shrinking = step < 0
    if not shrinking.any():
        return 1.0
    return min(1.0, BOUNDARY * float(np.min(-position[shrinking] / step[shrinking])))
