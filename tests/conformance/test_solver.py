"""Every solver on every awkward workload: certified, accepted by the second opinion, equal to an SDP solver.

A new solver is added to `SOLVERS`: a function from queries to a solution, and the check of its claims.
"""

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray
from solver_oracle import Verification, verify_solution, verify_targets

from residua.linalg.matrices import independent_rows
from residua.solve.cells import Solution, solve_cells
from residua.solve.targets import TargetSolution, solve_targets

Array = NDArray[np.float64]
Solver = Callable[[Array, Array], Solution | TargetSolution]

GAP = 1e-6
ORACLE = 1e-5  # relative: what the SDP solver is trusted with


def _dense(draw: np.random.Generator, cells: int) -> Array:
    return draw.integers(0, 2, (2 * cells, cells)).astype(float)


def _sparse(draw: np.random.Generator, cells: int) -> Array:
    queries = (draw.random((cells, cells)) < 0.15).astype(float)
    queries[0, 0] = 1.0
    return queries


def _few(draw: np.random.Generator, cells: int) -> Array:
    return draw.integers(-3, 4, (max(cells // 3, 1), cells)).astype(float)


def _deficient(draw: np.random.Generator, cells: int) -> Array:
    return np.asarray(draw.integers(-1, 2, (cells + 2, 3)) @ draw.integers(-1, 2, (3, cells)), dtype=float)


def _with_zero_columns(draw: np.random.Generator, cells: int) -> Array:
    queries = _dense(draw, cells)
    queries[:, draw.permutation(cells)[: cells // 2]] = 0.0
    return queries


def _with_repeats(draw: np.random.Generator, cells: int) -> Array:
    queries = _few(draw, cells)
    return np.concatenate([queries, queries, 2.0 * queries[:1], np.zeros((1, cells))])


def _one_query(draw: np.random.Generator, cells: int) -> Array:
    return draw.standard_normal((1, cells))


def _one_cell(draw: np.random.Generator, cells: int) -> Array:
    return draw.integers(1, 5, (3, 1)).astype(float)


def _ranges(draw: np.random.Generator, cells: int) -> Array:
    ends = np.sort(draw.integers(0, cells, (cells, 2)), axis=1)
    return np.array([(np.arange(cells) >= a) & (np.arange(cells) <= b) for a, b in ends], dtype=float)


def _nearly_dependent(draw: np.random.Generator, cells: int) -> Array:
    queries = draw.standard_normal((cells, cells))
    queries[-1] = queries[0] + 1e-5 * queries[-1]
    return queries


AWKWARD = [
    _dense,
    _sparse,
    _few,
    _deficient,
    _with_zero_columns,
    _with_repeats,
    _one_query,
    _one_cell,
    _ranges,
    _nearly_dependent,
]


def least_total(queries: Array, weights: Array) -> Solution:
    return solve_cells(independent_rows(queries, weights))


def least_cost(queries: Array, targets: Array) -> TargetSolution:
    root = independent_rows(queries)
    coefficients = np.asarray(np.linalg.lstsq(root.T, queries.T, rcond=None)[0].T, dtype=np.float64)
    return solve_targets(coefficients, root, targets)


SOLVERS: dict[Solver, Callable[..., Verification]] = {
    least_total: verify_solution,
    least_cost: verify_targets,
}


def oracle(solver: Solver, queries: Array, numbers: Array) -> float:
    """The optimum as an SDP over X restricted to the row space of the queries."""
    _, scales, right = np.linalg.svd(queries)
    basis = right[: int(np.sum(scales > 1e-9 * scales[0]))]  # (rank, cells), orthonormal
    rank = len(basis)
    K = cp.Variable((rank, rank), PSD=True)
    costs = cp.diag(basis.T @ K @ basis)
    coordinates = queries @ basis.T
    asked = coordinates.any(axis=1)
    if solver is least_total:
        half = np.linalg.cholesky((coordinates.T * numbers) @ coordinates)
        problem = cp.Problem(cp.Minimize(cp.matrix_frac(half, K)), [costs <= 1])
    else:
        limits = [cp.matrix_frac(q, K) <= c for q, c in zip(coordinates[asked], numbers[asked], strict=True)]
        problem = cp.Problem(cp.Minimize(cp.max(costs)), limits)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == "optimal"
    return float(problem.value)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)
@pytest.mark.parametrize("make", AWKWARD, ids=lambda make: make.__name__.strip("_"))
@pytest.mark.parametrize("cells", [3, 12, 40])
def test_every_awkward_workload_is_certified(solver: Solver, make: Callable[..., Array], cells: int) -> None:
    draw = np.random.default_rng(cells)
    queries = make(draw, cells)
    numbers = 10.0 ** draw.uniform(-1, 1, len(queries))
    solution = solver(queries, numbers)
    assert solution.gap <= GAP
    seen = SOLVERS[solver](queries, numbers, solution)
    assert seen.problems == ()
    assert seen.holds(GAP)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)
@pytest.mark.parametrize("make", AWKWARD[:-1], ids=lambda make: make.__name__.strip("_"))
@pytest.mark.parametrize("cells", [2, 5, 6, 8])
def test_an_sdp_solver_finds_the_same_optimum(solver: Solver, make: Callable[..., Array], cells: int) -> None:
    draw = np.random.default_rng(7 * cells)
    queries = make(draw, cells)
    numbers = 10.0 ** draw.uniform(-0.5, 0.5, len(queries))
    solution = solver(queries, numbers)
    expected = oracle(solver, queries, numbers)
    assert solution.lower <= expected * (1 + ORACLE)
    assert expected <= solution.upper * (1 + ORACLE)


@pytest.mark.parametrize("make", AWKWARD, ids=lambda make: make.__name__.strip("_"))
def test_weights_from_1e_minus_12_to_1e12_are_certified(make: Callable[..., Array]) -> None:
    draw = np.random.default_rng(11)
    queries = make(draw, 15)
    weights = 10.0 ** draw.uniform(-12, 12, len(queries))
    solution = least_total(queries, weights)
    assert solution.gap <= GAP
    assert verify_solution(queries, weights, solution).holds(1.1 * GAP)
