"""Quasi-Newton steps downhill over numbers between bounds (projected L-BFGS), in numpy alone."""

from collections import deque
from collections.abc import Callable

import numpy as np

from residua._arrays import Array, Flags

REMEMBERED = 5  # steps whose curvature is known; more take longer and gain little
DECREASE = 1e-4  # of what the slope promises, for a step to be taken
FIRST = 0.1  # how far the first step moves a number at most
SHORTEST = 1e-12  # fraction of a step below which the search ends
PATIENCE = 5  # steps over which a gain is judged: single ones may be small by chance


def downhill(
    value_of: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    steps: int,
    gain: float,
    most: float = np.inf,
) -> Array:
    """The point that steps from `start`, of any shape, reach; `value_of` gives a value and its gradient.

    They end after so many evaluations, or where steps gain less than `gain` each, relative to the value. No
    number is negative or exceeds `most`.

    >>> point = downhill(lambda x: (1 + ((x - [1, -1]) ** 2).sum(), 2 * (x - [1, -1])), np.array([3.0, 4.0]),
    ...                  steps=50, gain=1e-12)
    >>> point.round(6).tolist()
    [1.0, 0.0]
    """
    at = np.clip(start, 0.0, most)
    value, slope = value_of(at)
    values = deque([value], maxlen=PATIENCE + 1)
    memory = _Curvature()
    while steps > 0:
        # Two-metric projection (Bertsekas 1982): numbers held at a bound leave the quadratic model.
        free = ~(((at <= 0.0) & (slope > 0.0)) | ((at >= most) & (slope < 0.0)))
        step = memory.step(slope, free)
        length = 1.0
        while True:
            steps -= 1
            to = np.clip(at + length * step, 0.0, most)
            moved = to - at
            promised = float(np.vdot(slope, moved))
            value_there, slope_there = value_of(to)
            if value_there <= value + DECREASE * promised:
                break
            if steps <= 0 or length < SHORTEST:
                return at
            bend = value_there - value - promised
            length *= min(0.5, max(0.1, -promised / (2 * bend))) if bend > 0 else 0.5
        memory.learn(moved, slope_there - slope)
        at, value, slope = to, value_there, slope_there
        values.append(value)
        if len(values) > PATIENCE and values[0] - value <= PATIENCE * gain * abs(value):
            break
    return at


class _Curvature:
    """The last few steps and what they did to the gradient."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[Array, Array, float]] = deque(maxlen=REMEMBERED)

    def learn(self, moved: Array, bent: Array) -> None:
        """Remember a step, unless it shows no curvature."""
        product = float(np.vdot(moved, bent))
        if product > 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(bent)):
            self.pairs.append((moved, bent, 1.0 / product))

    def step(self, slope: Array, free: Flags) -> Array:
        """The quasi-Newton step of the free numbers; steepest descent where that does not lead downhill."""
        found = np.where(free, self._times_inverse(np.where(free, slope, 0.0)), 0.0)
        if self.pairs and float(np.vdot(found, slope)) <= 0.0:
            self.pairs.clear()
            return self.step(slope, free)
        return -found

    def _times_inverse(self, vector: Array) -> Array:
        """The vector times about the inverse of the Hessian (two-loop recursion)."""
        found, parts = vector.copy(), []
        for moved, bent, inverse in reversed(self.pairs):
            parts.append(inverse * float(np.vdot(moved, found)))
            found -= parts[-1] * bent
        if self.pairs:
            _, bent, inverse = self.pairs[-1]
            found /= inverse * float(np.vdot(bent, bent))
        else:
            found *= FIRST / max(float(np.abs(vector).max()), 1e-300)
        for (moved, bent, inverse), part in zip(self.pairs, reversed(parts), strict=True):
            found += (part - inverse * float(np.vdot(bent, found))) * moved
        return found
