"""The solver for least total variance: certified gaps, known optima, warm starts, honest failure."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_oracle import verify_solution

from residua.errors import NotConverged
from residua.linalg.matrices import independent_rows
from residua.solve import cells as solver
from residua.solve.cells import solve_cells

Array = NDArray[np.float64]


def prefix(cells: int) -> Array:
    return np.tril(np.ones((cells, cells)))


def all_ranges_root(cells: int) -> Array:
    """A root of the gram of all ranges: entry (i, j) counts the ranges that hold both cells."""
    i = np.arange(cells)
    gram = (np.minimum.outer(i, i) + 1.0) * (cells - np.maximum.outer(i, i))
    return np.linalg.cholesky(gram).T


def affine(cells: int) -> Array:
    i, j = np.indices((cells, cells))
    return np.array([(i + j <= c).ravel() for c in range(2 * cells - 1)], dtype=float)


def absolute(cells: int) -> Array:
    i, j = np.indices((cells, cells))
    return np.array([(np.abs(i - j) <= c).ravel() for c in range(cells)], dtype=float)


@pytest.mark.parametrize("cells", [64, 256])
@pytest.mark.parametrize("make", [prefix, all_ranges_root])
def test_prefix_and_ranges_reach_a_gap_of_one_in_a_million_cold_and_warm(
    make: Callable[[int], Array], cells: int
) -> None:
    root = make(cells)
    cold = solve_cells(root, start=np.ones(cells)).require(1e-6)
    warm = solve_cells(root, start=cold.cell_weights).require(1e-6)
    other = root * (1 + 0.1 * np.sin(np.arange(cells)))[:, None]
    near, far = (solve_cells(other, start=start) for start in (cold.cell_weights, np.ones(cells)))
    assert near.require(1e-6).evaluations <= far.require(1e-6).evaluations + 1
    assert warm.evaluations < cold.evaluations
    assert warm.lower <= cold.upper
    assert cold.lower <= warm.upper
    assert verify_solution(root, None, cold).holds(1e-6)


@pytest.mark.parametrize("cells", [10, 20])
@pytest.mark.parametrize("make", [affine, absolute])
def test_two_way_affine_and_absolute_differences_are_solved(make: Callable[[int], Array], cells: int) -> None:
    queries = make(cells)
    solution = solve_cells(independent_rows(queries)).require(1e-6)
    assert verify_solution(queries, None, solution).holds(1e-6)


@pytest.mark.parametrize(
    ("queries", "optimum"),
    [
        (np.eye(5), 5.0),
        (np.ones((1, 7)), 1.0),
        (np.array([[1.0, -3.0, 2.0]]), 9.0),
        (np.diag([1.0, 10.0, 100.0]), 10101.0),
        (np.array([[4.0]]), 16.0),
        (np.array([[1.0, 1.0], [1.0, -1.0]]), 4.0),  # the gram is 2I
    ],
)
def test_optima_that_can_be_worked_out_by_hand(queries: Array, optimum: float) -> None:
    solution = solve_cells(queries)
    assert solution.lower <= optimum * (1 + 1e-15)
    assert optimum <= solution.upper * (1 + 1e-15)
    assert solution.gap <= 1e-6


@pytest.mark.parametrize("exponent", [6, 12])
@pytest.mark.parametrize("seed", range(6))
def test_weights_of_any_spread_are_certified(seed: int, exponent: int) -> None:
    draw = np.random.default_rng(seed)
    count, cells = draw.integers(5, 40, size=2)
    queries = draw.integers(0, 2, (count, cells)).astype(float)
    weights = 10.0 ** draw.uniform(-exponent, exponent, count)
    solution = solve_cells(independent_rows(queries, weights)).require(1e-6)
    assert verify_solution(queries, weights, solution).holds(1.1e-6)


def test_cells_that_rounding_alone_leaves_in_a_query_do_no_harm() -> None:
    root = np.array([[0.0, 1e-170, -1.0, -2.0, 3.0]])  # whose square is zero
    solution = solve_cells(root, 1e-4)
    assert solution.upper == pytest.approx(9.0, rel=1e-4)


def test_cells_that_no_query_uses_get_no_weight_and_no_noise() -> None:
    root = np.zeros((3, 6))
    root[:, [0, 2, 5]] = prefix(3)
    solution = solve_cells(root).require(1e-6)
    assert not solution.strategy[:, [1, 3, 4]].any()
    assert not solution.cell_weights[[1, 3, 4]].any()
    small = solve_cells(prefix(3))
    assert (solution.lower, solution.upper) == (small.lower, small.upper)


def test_the_same_call_gives_the_same_bits() -> None:
    queries = np.random.default_rng(1).integers(0, 2, (20, 30)).astype(float)
    first, second = (solve_cells(independent_rows(queries)) for _ in range(2))
    assert (first.lower, first.upper, first.evaluations) == (second.lower, second.upper, second.evaluations)
    np.testing.assert_array_equal(first.strategy, second.strategy)
    np.testing.assert_array_equal(first.cell_weights, second.cell_weights)


@pytest.mark.parametrize("exponent", [-500, -60, 1, 300])
def test_scaling_by_a_power_of_two_changes_no_other_bit(exponent: int) -> None:
    plain, scaled = solve_cells(prefix(9)), solve_cells(np.ldexp(prefix(9), exponent))
    assert scaled.lower == np.ldexp(plain.lower, 2 * exponent)
    assert scaled.upper == np.ldexp(plain.upper, 2 * exponent)
    np.testing.assert_array_equal(scaled.strategy, plain.strategy)


def test_stopping_early_carries_a_true_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    best = solve_cells(prefix(32))
    monkeypatch.setattr(solver.Search, "most_evaluations", 3)
    early = solve_cells(prefix(32))
    assert early.gap > 1e-6
    with pytest.raises(
        NotConverged, match=r"stopped at a relative gap of .* instead of 1e-06 after 3"
    ) as caught:
        early.require(1e-6)
    assert caught.value.lower == early.lower <= best.upper
    assert caught.value.upper == early.upper >= best.lower
    assert early.require(1.0) is early


def test_a_tolerance_out_of_reach_ends_with_the_best_bracket() -> None:
    solution = solve_cells(prefix(16), tolerance=1e-16)
    with pytest.raises(NotConverged):
        solution.require(1e-16)
    assert solution.gap < 1e-9
    assert solution.evaluations < solver.Search.most_evaluations


@pytest.mark.parametrize("start", [np.zeros(8), np.full(8, np.nan), np.eye(8)[3], np.full(8, 1e-320)])
def test_a_useless_start_does_no_harm(start: Array) -> None:
    assert solve_cells(prefix(8), start=start).gap <= 1e-6


def test_progress_is_told_after_every_evaluation() -> None:
    told: list[tuple[int, float]] = []
    solution = solve_cells(prefix(16), progress=lambda count, gap: told.append((count, gap)))
    assert [count for count, _ in told] == list(range(1, solution.evaluations + 1))
    gaps = [gap for _, gap in told]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == solution.gap


def test_queries_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="all zero"):
        solve_cells(np.zeros((0, 4)))


def test_one_step_is_exact_where_no_two_cells_share_a_query() -> None:
    solution = solve_cells(np.diag([1.0, 3.0, 0.2, 7.0]), 1e-9, start=np.array([0.7, 0.1, 0.1, 0.1]))
    assert solution.evaluations <= 2
    np.testing.assert_allclose(solution.cell_weights, np.array([1, 9, 0.04, 49]) / 59.04, rtol=1e-9)
