"""Interior-point Newton steps over non-negative weights, matrix-free (claim S-005).

Both dual problems are `minimise price'w + phi(w)` over w >= 0 with phi convex, smooth inside and
singular where a query leaves the row space. With `slopes = -phi'` the optimality conditions are
`price - slopes = z >= 0` and `w_i z_i = 0`; they are followed along `w_i z_i = mu`, mu -> 0.
A weight that tends to zero, which stalls methods that work with logarithms, only adds a large number to
the diagonal of the system here. The Hessian is never formed: conjugate gradients need 5 to 20 products.
Weights may be held to several sums at once; then conjugate gradients are projected (claim J-005).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BOUNDARY = 0.99  # how much of the way to the boundary a step may go
LAST_TARGET = 0.05  # mu ends where it explains this fraction of the wanted gap
INNER_STEPS = 200
INNER_DECREASE = 1e-4  # of the squared preconditioned residual


class Landscape(Protocol):
    """What a Newton step needs to know of phi at one point."""

    @property
    def slopes(self) -> Array:
        """`-phi'`, shape (weights,)."""

    def hessian_times(self, direction: Array) -> Array:
        """Second derivative of phi applied to a direction, shape (weights,)."""

    def hessian_diagonal(self) -> Array:
        """Diagonal of the second derivative, or what is near it: it only preconditions."""


def newton_steps(
    look: Callable[[Array], Landscape],
    start: Array,
    price: Array,
    gap: float,
    tolerance: float,
    keep_going: Callable[[], bool],
    pieces: Sequence[int] = (),
) -> None:
    """Walk from `start` (positive weights) towards the optimum, showing every point to `look`.

    `look` returns the landscape at given weights and remembers the best bracket; `gap` is the relative
    gap at the start, `tolerance` the wanted one; `keep_going` is asked after every step. With `pieces`,
    consecutive weights in so many each are held to a sum of 1, and `price` is only what they are worth.
    """
    sums = _Sums(pieces)
    value = float(price @ start)
    target = 0.3 * min(gap, 10.0) * value / len(start)
    weights = sums.kept(np.maximum(start, target / price))  # vanishing weights would take many steps to grow
    slack = target / weights
    seen = look(weights)
    while keep_going():
        step = _direction(seen, weights, slack, seen.slopes - price + target / weights, sums)
        slack_step = (target - slack * (weights + step)) / weights
        length, slack_length = _longest_step(weights, step), _longest_step(slack, slack_step)
        weights = weights + length * step
        slack = slack + slack_length * slack_step
        seen = look(weights)
        shortest = min(length, slack_length)
        shrink = 0.1 if shortest > 0.9 else 0.5 if shortest > 0.5 else 1.0
        target = max(shrink * float(weights @ slack), LAST_TARGET * tolerance * value) / len(start)


def worth_another_step(gaps: Sequence[float], tolerance: float, most: int, patience: int) -> bool:
    """Whether to go on after evaluations with these gaps, of which there may be `most`.

    Not where the last one is small enough, nor where `patience` evaluations did not halve it.

    >>> worth_another_step([1.0, 0.7, 0.6], 0.1, 100, 2), worth_another_step([1.0, 0.7, 0.4], 0.1, 100, 2)
    (False, True)
    """
    if gaps and (gaps[-1] <= tolerance or len(gaps) >= most):
        return False
    return len(gaps) <= patience or gaps[-1] <= 0.5 * gaps[-1 - patience]


class _Sums:
    """Consecutive pieces of the weights that keep their sums; none of them where there are no pieces."""

    def __init__(self, pieces: Sequence[int]) -> None:
        self.starts = np.concatenate([[0], np.cumsum(pieces)[:-1]]).astype(np.intp) if pieces else None
        self.whose = np.repeat(np.arange(len(pieces)), pieces)

    def kept(self, weights: Array) -> Array:
        """The weights with each piece scaled to sum 1."""
        if self.starts is None:
            return weights
        return np.asarray(weights / np.add.reduceat(weights, self.starts)[self.whose])

    def scaled(self, preconditioner: Array, residual: Array) -> Array:
        """The preconditioned residual, projected on directions that change no sum."""
        scaled = preconditioner * residual
        if self.starts is None:
            return scaled
        means = np.add.reduceat(scaled, self.starts) / np.add.reduceat(preconditioner, self.starts)
        return scaled - preconditioner * means[self.whose]


def _direction(seen: Landscape, weights: Array, slack: Array, residual: Array, sums: _Sums) -> Array:
    """Solve (Hessian + diag(slack / weights)) d = residual by preconditioned conjugate gradients."""
    pull = slack / weights
    preconditioner = 1.0 / (seen.hessian_diagonal() + pull)
    solution = np.zeros_like(weights)
    conjugate = scaled = sums.scaled(preconditioner, residual)
    size = first = float(residual @ scaled)
    for _ in range(INNER_STEPS if first > 0 else 0):
        image = seen.hessian_times(conjugate) + pull * conjugate
        length = size / float(conjugate @ image)
        solution += length * conjugate
        residual = residual - length * image
        scaled = sums.scaled(preconditioner, residual)
        size, previous = float(residual @ scaled), size
        if size <= INNER_DECREASE * first:
            break
        conjugate = scaled + (size / previous) * conjugate
    return solution


def _longest_step(position: Array, step: Array) -> float:
    """The largest length up to 1 that keeps `position + length * step` positive."""
    shrinking = step < 0
    if not shrinking.any():
        return 1.0
    return min(1.0, BOUNDARY * float(np.min(-position[shrinking] / step[shrinking])))
