"""Quasi-Newton steps downhill over numbers between bounds (projected L-BFGS), in numpy alone."""

import math
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
    least: float = 0.0,
    most: float = np.inf,
    patience: int = PATIENCE,
) -> Array:
    """The point that steps from `start`, of any shape, reach; `value_of` gives a value and its gradient.

    They end after so many evaluations, or where the last `patience` steps each gain less than `gain`,
    relative to the value. No number is below `least` or exceeds `most`.

    >>> point = downhill(lambda x: (1 + ((x - [1, -1]) ** 2).sum(), 2 * (x - [1, -1])), np.array([3.0, 4.0]),
    ...                  steps=50, gain=1e-12)
    >>> point.round(6).tolist()
    [1.0, 0.0]
    """
    at = np.clip(start, least, most)
    value, slope = value_of(at)
    values = deque([value], maxlen=patience + 1)
    memory = _Curvature(at.size)
    while steps > 0:
        # Two-metric projection (Bertsekas 1982): numbers held at a bound leave the quadratic model.
        free = ~(((at <= least) & (slope > 0.0)) | ((at >= most) & (slope < 0.0)))
        step = memory.step(slope, free)
        length = 1.0
        while True:
            steps -= 1
            to = np.minimum(np.maximum(at + length * step, least), most)
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
        if len(values) > patience and values[0] - value <= patience * gain * abs(value):
            break
    return at


class _Curvature:
    """The last few steps and what they did to the gradient, as rows of one array, with their products."""

    def __init__(self, size: int) -> None:
        self.rows = np.zeros((2 * REMEMBERED, size))  # steps, then what each did to the gradient
        self.order: list[int] = []  # places of the steps, oldest first
        self.products: list[list[float]] = [[] for _ in range(REMEMBERED)]  # of all rows with what each did

    def learn(self, moved: Array, bent: Array) -> None:
        """Remember a step, unless it shows no curvature."""
        product = float(np.vdot(moved, bent))
        if product <= 1e-10 * math.sqrt(float(np.vdot(moved, moved)) * float(np.vdot(bent, bent))):
            return
        place = self.order.pop(0) if len(self.order) == REMEMBERED else len(self.order)
        self.order.append(place)
        self.rows[place], self.rows[REMEMBERED + place] = moved.reshape(-1), bent.reshape(-1)
        self.products[place] = (self.rows @ self.rows[REMEMBERED + place]).tolist()

    def step(self, slope: Array, free: Flags) -> Array:
        """The quasi-Newton step of the free numbers; steepest descent where that does not lead downhill."""
        found = self.times_inverse(np.where(free, slope, 0.0).reshape(-1)).reshape(slope.shape)
        found *= free
        if self.order and float(np.vdot(found, slope)) <= 0.0:
            self.order.clear()
            return self.step(slope, free)
        return np.negative(found, out=found)

    def times_inverse(self, vector: Array) -> Array:
        """The vector times about the inverse of the Hessian: the two-loop recursion (Nocedal 1980).

        Its vectors are sums of the rows, so that it needs their products alone.
        """
        if not self.order:
            return np.asarray(vector * (FIRST / max(float(np.abs(vector).max()), 1e-300)))
        own = (self.rows @ vector).tolist()
        left = own[REMEMBERED:]  # what each bent does to what is left of the vector
        order, products, most = self.order, self.products, REMEMBERED
        taken = [0.0] * most
        for at in range(len(order) - 1, -1, -1):
            now = order[at]
            taken[now] = own[now] / products[now][now]
            for before in order[:at]:
                own[before] -= taken[now] * products[now][before]
                left[before] -= taken[now] * products[now][most + before]
            for since in order[at:]:
                left[since] -= taken[now] * products[since][most + now]
        scale = products[order[-1]][order[-1]] / products[order[-1]][most + order[-1]]
        shares = [0.0] * (2 * most)
        for at, now in enumerate(order):
            met = scale * left[now] + sum(shares[before] * products[now][before] for before in order[:at])
            shares[now] = taken[now] - met / products[now][now]
            shares[most + now] = -scale * taken[now]
        found: Array = np.array(shares) @ self.rows
        found += scale * vector
        return found
