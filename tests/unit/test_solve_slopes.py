"""Optima without a proof, as a search over splits needs them, against those with one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residua.solve import slopes
from residua.solve.active import View
from residua.solve.cells import solve_cells
from residua.solve.slopes import one_step, rough_step, settled, slopes_of

DRAWS = st.tuples(st.integers(1, 9), st.integers(0, 6), st.integers(0, 2**32 - 1))


def rows_of(rank: int, more: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rank, rank + more))


@given(DRAWS)
def test_settled_optima_are_those_that_are_proved(draw):
    rows = rows_of(*draw)
    found, proved = settled(rows, None, 1e-6), solve_cells(rows, 1e-6)
    assert proved.lower * (1 - 1e-6) <= found.root**2 <= proved.upper * (1 + 1e-9)
    assert found.weights.sum() == pytest.approx(1)
    assert np.sum((rows @ found.half) ** 2) == pytest.approx(found.root)


@given(DRAWS)
def test_slopes_of_settled_optima_are_differences(draw):
    rows = rows_of(*draw)
    found = settled(rows, None, 1e-6)
    step = np.random.default_rng(1).normal(size=rows.shape)
    ends = [solve_cells(rows + sign * 1e-4 * step, 1e-8).lower for sign in (-1, 1)]
    slope = float(np.sum((rows @ found.half @ found.half.T) * step))
    change = (math.sqrt(ends[1]) - math.sqrt(ends[0])) / 2e-4
    assert slope == pytest.approx(change, abs=2e-3 * max(found.root, np.linalg.norm(step)))


def test_cells_that_nobody_asks_about_get_no_weight():
    rows = np.insert(rows_of(4, 2, 3), 1, 0.0, axis=1)
    found = settled(rows, None, 1e-6)
    assert found.weights[1] == 0
    assert not found.half[1].any()
    assert found.root == pytest.approx(settled(rows_of(4, 2, 3), None, 1e-6).root)


def test_a_good_start_takes_fewer_steps_to_the_same_optimum():
    rows = rows_of(12, 8, 5)
    first = settled(rows, None, 1e-6)
    again = settled(rows, first.weights, 1e-6)
    assert again.work < first.work
    assert again.root == pytest.approx(first.root, rel=1e-7)


def test_a_start_without_cells_that_are_needed_reaches_the_same_optimum():
    rows = rows_of(5, 3, 7)
    start = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert settled(rows, start, 1e-6).root == pytest.approx(settled(rows, None, 1e-6).root, rel=1e-7)


def test_weights_that_the_optimum_does_without_are_zero():
    rows = np.insert(np.eye(3), 3, 0.1, axis=1)  # the last cell is asked a little of everything
    found = settled(rows, None, 1e-6)
    assert found.weights[3] == 0
    assert found.root**2 == pytest.approx(solve_cells(rows, 1e-9).upper, rel=1e-7)


def test_the_second_derivative_is_that_of_differences():
    rows, weights = rows_of(6, 5, 11), np.linspace(0.5, 1.5, 11)
    view = View.of(rows, weights)
    hessian, _ = view.hessian(np.ones(11, dtype=bool))
    for cell in range(11):
        step = 1e-5 * np.eye(11)[cell]
        # Views scale weights to sum 1, and slopes are of degree -1.
        ends = [View.of(rows, view.weights + sign * step).slopes / (1 + sign * 1e-5) for sign in (-1, 1)]
        bent = (ends[0] - ends[1]) / 2e-5
        assert hessian[cell] == pytest.approx(bent, abs=5e-3 * np.abs(np.diagonal(hessian)).max())


def test_many_rows_are_left_to_the_general_steps(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(7, 4))
    assert settled(rows, None, 1e-6).root == slopes_of(rows, None, 1e-6).root
    large = np.random.default_rng(0).normal(size=(130, 140))
    monkeypatch.setattr(slopes, "LARGE", 1e6)
    assert settled(large, None, 1e-4).root == slopes_of(large, None, 1e-4).root


def test_a_rough_root_is_never_below_the_root_and_equal_to_it_for_rows_of_one_length():
    rows = np.random.default_rng(3).standard_normal((12, 8))
    assert rough_step(rows, None, 1e-6).root >= one_step(rows, None, 1e-6).root
    even = 3 * np.linalg.qr(rows)[0]
    rough, exact = rough_step(even, None, 1e-6), one_step(even, None, 1e-6)
    assert np.isclose(rough.root, exact.root)
    assert np.allclose(rough.half @ rough.half.T, exact.half @ exact.half.T)
    few = rows[:4]
    assert rough_step(few, None, 1e-6).root == one_step(few, None, 1e-6).root
