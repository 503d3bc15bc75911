"""The interior-point walk on problems whose answer is known."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.solve.newton import BOUNDARY, longest_step, newton_steps

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Logarithms:
    """phi(w) = -sum a_i log w_i - b'w with price 1: the minimum of price'w + phi is w = a / (1 - b)."""

    a: Array
    b: Array
    w: Array

    @property
    def slopes(self) -> Array:
        return self.a / self.w + self.b

    def hessian_times(self, direction: Array) -> Array:
        return self.a / self.w**2 * direction

    def hessian_diagonal(self) -> Array:
        return self.a / self.w**2


def walk(a: Array, b: Array, start: Array, steps: int = 40) -> list[Array]:
    seen: list[Array] = []

    def look(weights: Array) -> Logarithms:
        seen.append(weights)
        return Logarithms(a, b, weights)

    newton_steps(look, start, np.ones(len(a)), 1.0, 1e-9, lambda: len(seen) < steps)
    return seen


def test_the_walk_ends_at_the_minimum() -> None:
    a, b = np.array([1.0, 0.25, 3.0, 1e-3]), np.array([0.0, 0.5, -1.0, 0.9])
    seen = walk(a, b, np.full(4, 0.25))
    np.testing.assert_allclose(seen[-1], a / (1 - b), rtol=1e-6)


def test_weights_stay_positive_and_useless_ones_vanish() -> None:
    a, b = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.5, -3.0])
    seen = walk(a, b, np.full(3, 1 / 3))
    assert all((weights > 0).all() for weights in seen)
    assert seen[-1][0] == pytest.approx(1.0, rel=1e-6)
    assert seen[-1][1:].max() < 1e-8


def test_a_weight_that_starts_at_almost_nothing_can_grow() -> None:
    seen = walk(np.array([1.0, 1.0]), np.zeros(2), np.array([1.0, 1e-300]))
    np.testing.assert_allclose(seen[-1], 1.0, rtol=1e-6)


def test_a_step_stops_short_of_the_boundary() -> None:
    assert longest_step(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == 1.0
    assert longest_step(np.array([1.0, 1.0]), np.array([-0.5, 2.0])) == 1.0
    assert longest_step(np.array([1.0, 1.0]), np.array([-4.0, -2.0])) == pytest.approx(BOUNDARY / 4)
