"""Quasi-Newton steps between bounds, against SciPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from residua.solve.descent import REMEMBERED, _Curvature, downhill


@given(st.integers(0, 10**6), st.sampled_from([0.5, np.inf]))
def test_convex_minima_between_bounds_are_those_of_scipy(seed, most):
    random = np.random.default_rng(seed)
    rows, aim = random.normal(size=(8, 5)), random.normal(size=5)

    def value(x):
        apart = rows @ (x - aim)
        return 1 + float(apart @ apart), 2 * rows.T @ apart

    found = downhill(value, random.random(5), steps=2_000, gain=1e-14, most=most)
    known = minimize(value, np.zeros(5), jac=True, method="L-BFGS-B", bounds=[(0, most)] * 5, tol=1e-14)
    assert found.min() >= 0
    assert found.max() <= most
    assert value(found)[0] == pytest.approx(known.fun, rel=1e-6)


def test_without_bounds_the_minimum_may_be_anywhere():
    aim = np.array([-3.0, 2.0, -0.5])
    value = lambda x: (1 + float((x - aim) @ (x - aim)), 2 * (x - aim))  # noqa: E731
    found = downhill(value, np.zeros(3), steps=200, gain=1e-14, least=-np.inf, patience=1)
    assert found == pytest.approx(aim, abs=1e-5)


def test_the_valley_of_rosenbrock_is_followed_to_its_end():
    def value(x):
        slope = [-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)]
        return 1 + (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2, np.array(slope)

    assert downhill(value, np.array([0.0, 2.0]), steps=500, gain=1e-15) == pytest.approx([1, 1], abs=1e-4)


def test_values_that_are_not_finite_are_stepped_back_from():
    def value(x):
        return (float(x[0] - np.log(x[0])), np.array([1 - 1 / x[0]])) if x[0] > 0 else (np.inf, np.zeros(1))

    assert downhill(value, np.array([5.0]), steps=200, gain=1e-14) == pytest.approx([1.0], abs=1e-4)


def test_evaluations_are_counted_and_the_shape_is_kept():
    seen = []

    def value(x):
        seen.append(1)
        return float(np.sum((x - 3) ** 4)), 4 * (x - 3) ** 3

    assert downhill(value, np.zeros((2, 3)), steps=7, gain=0.0).shape == (2, 3)
    assert len(seen) == 8


@given(st.integers(0, 10**6), st.integers(1, 3 * REMEMBERED))
def test_products_of_steps_give_what_the_recursion_over_their_vectors_gives(seed, steps):
    random = np.random.default_rng(seed)
    size = int(random.integers(2, 30))
    bend = random.normal(size=(size, size))
    memory, pairs = _Curvature(size), []
    for _ in range(steps):
        moved = random.normal(size=size)
        bent = bend @ (bend.T @ moved) + 0.1 * moved
        memory.learn(moved, bent)
        pairs = [*pairs, (moved, bent)][-REMEMBERED:]
    vector = random.normal(size=size)
    found, parts = vector.copy(), []
    for moved, bent in reversed(pairs):
        parts.append(float(moved @ found) / float(moved @ bent))
        found -= parts[-1] * bent
    found *= float(pairs[-1][0] @ pairs[-1][1]) / float(pairs[-1][1] @ pairs[-1][1])
    for (moved, bent), part in zip(pairs, reversed(parts), strict=True):
        found += (part - float(bent @ found) / float(moved @ bent)) * moved
    np.testing.assert_allclose(memory.times_inverse(vector), found, atol=1e-8 * np.abs(found).max())
