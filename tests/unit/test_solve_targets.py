"""Accuracy first: known costs, certified gaps, all variances within their targets."""

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_oracle import verify_targets

from residua.errors import NotConverged
from residua.linalg.matrices import independent_rows
from residua.solve import targets as solver
from residua.solve.targets import TargetSolution, solve_targets

Array = NDArray[np.float64]


def prefix(cells: int) -> Array:
    return np.tril(np.ones((cells, cells)))


def solve(queries: Array, targets: Array) -> TargetSolution:
    root = independent_rows(queries)
    coefficients = np.asarray(np.linalg.lstsq(root.T, queries.T, rcond=None)[0].T, dtype=np.float64)
    return solve_targets(coefficients, root, targets)


@pytest.mark.parametrize(("cells", "cost"), [(4, 1.7586), (64, 4.4579)])
def test_prefix_sums_with_variance_one_cost_what_is_published(cells: int, cost: float) -> None:
    solution = solve_targets(np.eye(cells), prefix(cells), np.ones(cells)).require(1e-6)
    assert solution.upper == pytest.approx(cost, abs=5e-5)
    assert verify_targets(prefix(cells), np.ones(cells), solution).holds(1e-6)


@pytest.mark.parametrize("cells", [5, 6, 20, 50])
def test_counts_and_their_sum_cost_two_n_over_n_plus_one(cells: int) -> None:
    queries = np.vstack([np.eye(cells), np.ones(cells)])
    solution = solve_targets(queries, np.eye(cells), np.ones(cells + 1)).require(1e-6)
    assert solution.lower <= 2 * cells / (cells + 1) <= solution.upper
    assert verify_targets(queries, np.ones(cells + 1), solution).holds(1e-6)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_random_ranges_with_random_targets_are_certified(seed: int, spread: float) -> None:
    draw = np.random.default_rng(seed)
    cells = int(draw.integers(2, 40))
    ends = np.sort(draw.integers(0, cells, (2 * cells, 2)), axis=1)
    queries = np.array([(np.arange(cells) >= a) & (np.arange(cells) <= b) for a, b in ends], dtype=float)
    targets = 10.0 ** draw.uniform(-spread, spread, len(queries))
    solution = solve(queries, targets).require(1e-6)
    assert verify_targets(queries, targets, solution).holds(1e-6)


def test_prefix_sums_over_256_cells_are_certified() -> None:
    solution = solve_targets(np.eye(256), prefix(256), np.ones(256)).require(1e-6)
    assert verify_targets(prefix(256), np.ones(256), solution).holds(1e-6)


def test_equal_counts_need_a_cost_of_one_over_the_target() -> None:
    solution = solve_targets(np.eye(6), np.eye(6), np.full(6, 4.0))
    assert solution.lower <= 0.25 <= solution.upper
    np.testing.assert_allclose(solution.variances, 4.0, rtol=1e-6)


def test_different_counts_cost_what_the_strictest_needs() -> None:
    targets = np.array([1.0, 0.5, 8.0])
    solution = solve_targets(np.eye(3), np.eye(3), targets).require(1e-6)
    assert solution.lower <= 2.0 <= solution.upper


def test_zero_queries_and_unused_cells_are_answered_for_nothing() -> None:
    queries = np.zeros((4, 6))
    queries[np.ix_([0, 2, 3], [1, 2, 4])] = prefix(3)
    solution = solve(queries, np.array([1.0, 1e-9, 1.0, 1.0])).require(1e-6)
    plain = solve_targets(np.eye(3), prefix(3), np.ones(3))
    assert solution.upper == pytest.approx(plain.upper, rel=1e-6)
    assert solution.variances[1] == 0
    assert not solution.strategy[:, [0, 3, 5]].any()


def test_fewer_queries_than_rows_of_the_root_need_only_their_own_span() -> None:
    rows = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]])
    solution = solve_targets(rows, np.eye(4), np.ones(2)).require(1e-6)
    assert solution.strategy.shape == (2, 4)
    assert verify_targets(rows, np.ones(2), solution).holds(1e-6)


def test_the_same_call_gives_the_same_bits() -> None:
    first, second = (solve_targets(np.eye(12), prefix(12), np.ones(12)) for _ in range(2))
    assert (first.lower, first.upper) == (second.lower, second.upper)
    np.testing.assert_array_equal(first.strategy, second.strategy)


def test_stopping_early_carries_a_true_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    best = solve_targets(np.eye(16), prefix(16), np.ones(16))
    monkeypatch.setattr(solver.Search, "most_evaluations", 4)
    early = solve_targets(np.eye(16), prefix(16), np.ones(16))
    with pytest.raises(NotConverged, match="the solver stopped") as caught:
        early.require(1e-6)
    assert caught.value.lower == early.lower <= best.upper
    assert caught.value.upper == early.upper >= best.lower
    assert verify_targets(prefix(16), np.ones(16), early).problems == ()
