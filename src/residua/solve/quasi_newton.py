"""Limited-memory quasi-Newton steps on the logarithms of weights.

The first guess of the inverse Hessian is diag(1/weight): with it the very first step is the fixed-point
step `v_i <- v_i * slope_i`, and it halves the number of evaluations of the unscaled method
(benchmarks/solver_steps.py).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MEMORY = 20
LONGEST_LOG_STEP = 5.0
SUFFICIENT_DECREASE = 1e-4
HALVINGS = 12


@dataclass(frozen=True, slots=True)
class Point:
    """A value to be made small, its gradient in the logs, and the weights that scale the first guess."""

    value: float
    gradient: Array
    weights: Array


def descend(evaluate: Callable[[Array], Point], start: Array, keep_going: Callable[[], bool]) -> Array:
    """The logs reached from `start` when `keep_going` says no, or no step descends any more.

    `keep_going` is asked after every accepted step: it is where a caller stops on its certified gap.
    """
    logs, point = start, evaluate(start)
    pairs: deque[tuple[Array, Array]] = deque(maxlen=MEMORY)
    while keep_going():
        direction = -_inverse_hessian_times(point.gradient, pairs, point.weights)
        longest = float(np.abs(direction).max())
        if longest > LONGEST_LOG_STEP:
            direction *= LONGEST_LOG_STEP / longest
        accepted = _line_search(evaluate, logs, point, direction)
        if accepted is None:
            if not pairs:
                return logs
            pairs.clear()  # the memory misled; the bare first guess is a descent direction
            continue
        step, new_point = accepted
        change = new_point.gradient - point.gradient
        if step @ change > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
            pairs.append((step, change))
        logs, point = logs + step, new_point
    return logs


def _line_search(
    evaluate: Callable[[Array], Point], logs: Array, point: Point, direction: Array
) -> tuple[Array, Point] | None:
    slope = float(direction @ point.gradient)
    if slope >= 0:
        return None
    length = 1.0
    for _ in range(HALVINGS):
        step = length * direction
        candidate = evaluate(logs + step)
        if candidate.value <= point.value + SUFFICIENT_DECREASE * length * slope:
            return step, candidate
        length *= 0.5
    return None


def _inverse_hessian_times(gradient: Array, pairs: deque[tuple[Array, Array]], weights: Array) -> Array:
    """The two-loop recursion, started from a multiple of diag(1/weights)."""
    result = gradient.copy()
    factors = []
    for step, change in reversed(pairs):
        factor = (step @ result) / (step @ change)
        factors.append(factor)
        result -= factor * change
    first_guess = 1.0 / np.maximum(weights, np.finfo(np.float64).tiny)
    if pairs:
        step, change = pairs[-1]
        first_guess *= (step @ change) / (change @ (first_guess * change))
    result *= first_guess
    for (step, change), factor in zip(pairs, reversed(factors), strict=True):
        result += (factor - (change @ result) / (step @ change)) * step
    return result
