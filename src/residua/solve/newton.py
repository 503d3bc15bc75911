"""Interior-point Newton steps over non-negative weights, matrix-free (claim S-005).

Both dual problems are `minimise price'w + phi(w)` over w >= 0 with phi convex, smooth inside and
singular where a query leaves the row space. With `slopes = -phi'` the optimality conditions are
`price - slopes = z >= 0` and `w_i z_i = 0`; they are followed along `w_i z_i = mu`, mu -> 0.
A weight that tends to zero, which stalls methods that work with logarithms, only adds a large number to
the diagonal of the system here. The Hessian is never formed: conjugate gradients need 5 to 20 products.
Weights may be held to several sums at once; then conjugate gradients are projected (claim J-005).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from residua._arrays import Array
from residua.errors import NotConverged

BOUNDARY = 0.99  # how much of the way to the boundary a step may go
LAST_TARGET = 0.05  # mu ends where it explains this fraction of the wanted gap
INNER_STEPS = 200
ROUGH, ROUGH_STEPS = 1e-3, 20  # a wide gap does not need directions to many digits
INNER_DECREASE = 1e-4  # of the squared preconditioned residual


def newton_steps(
    look: Callable[[Array], "LogLandscape"],
    start: Array,
    price: Array,
    gap: float,
    tolerance: float,
    keep_going: Callable[[], bool],
    pieces: Sequence[int] = (),
    inner: int = INNER_STEPS,
) -> None:
    """Walk from `start` (positive weights) towards the optimum, showing every point to `look`.

    `look` returns the landscape at given weights and remembers the best bracket; `gap` is the relative
    gap at the start, `tolerance` the wanted one; `keep_going` is asked after every step. With `pieces`,
    consecutive weights in so many each are held to a sum of 1, and `price` is only what they are worth.
    Each step takes at most `inner` products with the second derivative.
    """
    sums = _Sums(pieces)
    value = float(price @ start)
    target = 0.3 * min(gap, 10.0) * value / len(start)
    weights = sums.kept(np.maximum(start, target / price))  # vanishing weights would take many steps to grow
    slack = target / weights
    seen = look(weights)
    while keep_going():
        step = _direction(seen, weights, slack, seen.slopes - price + target / weights, sums, inner)
        slack_step = (target - slack * (weights + step)) / weights
        length, slack_length = longest_step(weights, step), longest_step(slack, slack_step)
        weights = weights + length * step
        slack = slack + slack_length * slack_step
        seen = look(weights)
        shortest = min(length, slack_length)
        shrink = 0.1 if shortest > 0.9 else 0.5 if shortest > 0.5 else 1.0
        target = max(shrink * float(weights @ slack), LAST_TARGET * tolerance * value) / len(start)


class LogLandscape:
    """What a step needs to know of `phi = -2 log f` at one point.

    `slopes` are `-phi'`; the second derivative is a `bend` and half the square of the slopes.
    """

    __slots__ = ()
    slopes: Array  # (weights,)

    def bend_times(self, direction: Array) -> Array:
        """The bend applied to a direction."""
        raise NotImplementedError

    def bend_diagonal(self) -> Array:
        """The diagonal of the bend, or what is near it."""
        raise NotImplementedError

    def hessian_times(self, direction: Array) -> Array:
        """Second derivative applied to a direction, shape (weights,)."""
        return self.bend_times(direction) + 0.5 * self.slopes * float(self.slopes @ direction)

    def hessian_diagonal(self) -> Array:
        """Diagonal of the second derivative, shape (weights,), or what is near it: it only preconditions."""
        return self.bend_diagonal() + 0.5 * self.slopes**2


class Bracketed:
    """What is certainly between a lower and an upper bound, after some evaluations."""

    __slots__ = ()
    lower: float
    upper: float
    evaluations: int

    @property
    def gap(self) -> float:
        """Relative width of the bracket: nothing beats what was found by more."""
        return self.upper / self.lower - 1.0 if self.lower > 0 else math.inf

    def require(self, tolerance: float, what: str = "the solver") -> Self:
        """Itself, if its gap is at most `tolerance`; otherwise raise NotConverged with the bracket."""
        if self.gap <= tolerance:
            return self
        raise NotConverged(
            f"{what} stopped at a relative gap of {self.gap:.2e} instead of {tolerance:.0e} after "
            f"{self.evaluations} evaluations; the optimum is certainly between {self.lower:.9g} and "
            f"{self.upper:.9g}. Ask for a larger gap, or spread the weights of the queries less widely.",
            lower=self.lower,
            upper=self.upper,
        )


Progress = Callable[[int, float], None]
"""Called with the number of evaluations so far and the gap."""


class Search(Bracketed):
    """The best bounds seen so far; every evaluation goes through `look`, which hands them to `keep`.

    `weights` prove the lower bound, `best` reaches the upper one.
    """

    most_evaluations = 400
    patience = 20  # evaluations in which the gap must halve

    def __init__(self, tolerance: float, progress: Progress | None = None) -> None:
        self.tolerance, self.progress = tolerance, progress
        self.lower, self.upper = 0.0, math.inf
        self.weights = np.empty(0)
        self.best: Any = None
        self.gaps: list[float] = []

    def look(self, weights: Array) -> LogLandscape:
        """The landscape at these weights."""
        raise NotImplementedError

    def keep(self, lower: float, weights: Array, upper: float, seen: object) -> None:
        """Remember each bound that is the best yet."""
        if lower > self.lower:
            self.lower, self.weights = lower, weights
        if self.best is None or upper < self.upper:
            self.upper, self.best = upper, seen
        self.gaps.append(self.gap)
        if self.progress is not None:
            self.progress(len(self.gaps), self.gap)

    def fixed_point(self, weights: Array, steps: int) -> Array:
        """Weights after steps that multiply each by its slope."""
        for _ in range(steps):
            weights = weights * self.look(weights).slopes
        return weights

    def newton(self, weights: Array, price: Array | None = None, pieces: Sequence[int] = ()) -> None:
        """Newton steps from these weights until the gap is reached or no step helps any more."""
        price = np.ones(len(weights)) if price is None else price
        inner = INNER_STEPS if self.tolerance < ROUGH else ROUGH_STEPS
        newton_steps(self.look, weights, price, self.gap, self.tolerance, self.keep_going, pieces, inner)

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        """Points looked at."""
        return len(self.gaps)

    def keep_going(self) -> bool:
        """Whether the gap is not reached, may be, and was halved in the last evaluations."""
        gaps = self.gaps
        if gaps and (gaps[-1] <= self.tolerance or len(gaps) >= self.most_evaluations):
            return False
        return len(gaps) <= self.patience or gaps[-1] <= 0.5 * gaps[-1 - self.patience]


def quasi_newton(
    value: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any = None, **options: Any
) -> Array:
    """Where quasi-Newton steps (L-BFGS-B) downhill from `start` end; `value` also gives its gradient."""
    return quasi_newton_steps(value, start, bounds, **options)[0]


def quasi_newton_steps(
    value: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any = None, **options: Any
) -> tuple[Array, int]:
    """The same, and how many steps that took."""
    from scipy.optimize import minimize  # loading it takes longer than loading all of residua

    chosen: Any = options
    found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=chosen)
    return np.asarray(found.x), int(found.nit)


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


def _direction(
    seen: LogLandscape, weights: Array, slack: Array, residual: Array, sums: _Sums, inner: int
) -> Array:
    """Solve (Hessian + diag(slack / weights)) d = residual by preconditioned conjugate gradients."""
    pull = slack / weights
    preconditioner = 1.0 / (seen.hessian_diagonal() + pull)
    return conjugate_gradients(
        lambda direction: seen.hessian_times(direction) + pull * direction,
        residual,
        lambda left: sums.scaled(preconditioner, left),
        inner,
    )


def conjugate_gradients(
    times: Callable[[Array], Array], residual: Array, scaling: Callable[[Array], Array], steps: int
) -> Array:
    """About the solution x of `times(x) = residual`, by at most so many steps; `scaling` preconditions."""
    solution = np.zeros_like(residual)
    conjugate = scaled = scaling(residual)
    size = first = float(residual @ scaled)
    for _ in range(steps if first > 0 else 0):
        image = times(conjugate)
        length = size / float(conjugate @ image)
        solution += length * conjugate
        residual = residual - length * image
        scaled = scaling(residual)
        size, previous = float(residual @ scaled), size
        if size <= INNER_DECREASE * first:
            break
        conjugate = scaled + (size / previous) * conjugate
    return solution


def longest_step(position: Array, step: Array) -> float:
    """The largest length up to 1 that keeps `position + length * step` positive."""
    shrinking = step < 0
    if not shrinking.any():
        return 1.0
    return min(1.0, BOUNDARY * float(np.min(-position[shrinking] / step[shrinking])))
