"""Circulant grams: the closed form against the general solver."""

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_oracle import verify_solution

from residua.solve.cells import solve_cells, solve_circulant

Array = NDArray[np.float64]


def windows(cells: int, width: int) -> Array:
    """All circular windows of one width."""
    return np.array([np.roll(np.arange(cells) < width, shift) for shift in range(cells)], dtype=float)


@pytest.mark.parametrize(("cells", "width"), [(1, 1), (2, 1), (5, 2), (7, 3), (16, 5), (31, 4), (64, 7)])
def test_the_closed_form_is_what_the_general_solver_finds(cells: int, width: int) -> None:
    queries = windows(cells, width)
    closed = solve_circulant((queries.T @ queries)[0])
    assert closed is not None
    general = solve_cells(queries)
    assert closed.gap < 1e-9
    assert closed.lower <= general.upper
    assert general.lower <= closed.upper
    assert verify_solution(queries, None, closed).holds(1e-9)


def test_all_circular_ranges_are_solved_at_once() -> None:
    queries = np.concatenate([windows(12, width) for width in range(1, 12)])
    closed = solve_circulant((queries.T @ queries)[0])
    assert closed is not None
    assert verify_solution(queries, None, closed).holds(1e-9)


@pytest.mark.parametrize(("cells", "width"), [(6, 3), (4, 4), (8, 2)])
def test_a_gram_that_lacks_rank_is_left_to_the_general_solver(cells: int, width: int) -> None:
    queries = windows(cells, width)
    assert solve_circulant((queries.T @ queries)[0]) is None
