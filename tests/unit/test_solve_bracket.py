"""One evaluation: its slopes, its curvature, its strategy, and how much it loses to rounding."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.solve.cells import _levelled, bracket, solve_cells
from residua.solve.targets import sight_of

Array = NDArray[np.float64]


def prefix(cells: int) -> Array:
    return np.tril(np.ones((cells, cells)))


def example(seed: int) -> tuple[Array, Array]:
    draw = np.random.default_rng(seed)
    rank = int(draw.integers(1, 7))
    root = draw.standard_normal((rank, rank + int(draw.integers(0, 5))))
    return root, np.asarray(draw.uniform(0.2, 1.0, size=root.shape[1]))


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_the_bounds_are_the_formulas_of_the_dual(seed: int, precise: bool) -> None:
    root, v = example(seed)
    seen = bracket(root, v, precise=precise)
    scaled = root * np.sqrt(v)
    scales, turn = np.linalg.eigh(scaled.T @ scaled)
    S = (turn * np.sqrt(np.maximum(scales, 0.0))) @ turn.T  # square root of V^1/2 G V^1/2
    assert seen.lower == pytest.approx(np.trace(S) ** 2 / v.sum(), rel=1e-6)
    reached = np.trace(S) * np.max(np.diag(S) / v)
    assert (
        seen.upper <= reached * (1 + 1e-6)
        if seen.levelled
        else seen.upper == pytest.approx(reached, rel=1e-6)
    )
    assert seen.lower <= seen.upper
    np.testing.assert_allclose(seen.slopes, np.diag(S) / v / np.trace(S), rtol=1e-6)
    assert seen.slopes @ v == pytest.approx(1)


def test_scaled_columns_come_nearer_to_the_optimum() -> None:
    seen = bracket(prefix(100), np.full(100, 0.01))
    assert seen.levelled
    np.testing.assert_allclose(np.sum(seen.strategy() ** 2, axis=0), 1)
    plain = seen.trace**2 * seen.slopes.max()
    optimum = solve_cells(prefix(100), 1e-6).lower
    assert seen.upper < 1.01 * optimum < 1.4 * optimum < plain


@pytest.mark.parametrize("rank", [3, 20, 39])
def test_columns_are_scaled_within_the_row_space(rank: int) -> None:
    root = np.random.default_rng(rank).standard_normal((rank, 40))
    seen = bracket(root, np.full(40, 1 / 40))
    rows, upper = _levelled(root, np.linalg.qr(root.T)[0], seen)
    assert np.max(np.sum(rows**2, axis=0)) == pytest.approx(1, abs=1e-14)
    inverse = np.linalg.pinv(rows)
    np.testing.assert_allclose(root @ inverse @ rows, root, atol=1e-9)
    assert float(np.sum((root @ inverse) ** 2)) == pytest.approx(upper, rel=1e-9)
    assert seen.lower <= upper <= seen.upper


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_the_strategy_costs_one_and_reaches_the_upper_bound(seed: int, precise: bool) -> None:
    root, v = example(seed)
    seen = bracket(root, v, precise=precise)
    B = seen.strategy()
    assert np.max(np.sum(B**2, axis=0)) == pytest.approx(1, abs=1e-14)
    value = float(np.sum((root @ np.linalg.pinv(B)) ** 2))
    assert value == pytest.approx(seen.upper, rel=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_slopes_and_curvature_are_derivatives(seed: int) -> None:
    root, v = example(seed)
    step = np.random.default_rng(seed).standard_normal(len(v))
    seen, h = bracket(root, v, precise=True), 1e-5
    ahead, behind = (bracket(root, v + sign * h * step, precise=True) for sign in (1, -1))
    rise = 2 * (np.log(ahead.trace) - np.log(behind.trace)) / (2 * h)
    assert seen.slopes @ step == pytest.approx(rise, rel=1e-7, abs=1e-8)
    bend = -(ahead.slopes - behind.slopes) / (2 * h)  # of -2 log trace
    np.testing.assert_allclose(seen.hessian_times(step), bend, rtol=1e-6, atol=1e-7)
    check_operator(seen.hessian_times, seen.hessian_diagonal(), len(v))


@pytest.mark.parametrize("seed", range(6))
def test_slopes_and_curvature_for_targets_are_derivatives(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rank = int(draw.integers(1, 5))
    root = draw.standard_normal((rank, rank + int(draw.integers(0, 4))))
    rows = draw.standard_normal((rank + int(draw.integers(0, 4)), rank))
    weights = draw.uniform(0.2, 1.0, len(rows) + root.shape[1])
    step, h = draw.standard_normal(len(weights)), 1e-5

    def look(at: Array) -> tuple[float, Array]:
        seen = sight_of(rows, root, at[: len(rows)], at[len(rows) :])
        return float(seen.scales.sum()), seen.slopes

    seen = sight_of(rows, root, weights[: len(rows)], weights[len(rows) :])
    (norm_ahead, ahead), (norm_behind, behind) = look(weights + h * step), look(weights - h * step)
    rise = 2 * (np.log(norm_ahead) - np.log(norm_behind)) / (2 * h)
    assert seen.slopes @ step == pytest.approx(rise, rel=1e-7, abs=1e-8)
    bend = -(ahead - behind) / (2 * h)
    np.testing.assert_allclose(seen.hessian_times(step), bend, rtol=1e-6, atol=1e-7)
    check_operator(seen.hessian_times, seen.hessian_diagonal(), len(weights))


def check_operator(times: Callable[[Array], Array], diagonal: Array, size: int) -> None:
    """A symmetric positive semidefinite operator whose diagonal is as stated."""
    matrix = np.array([times(unit) for unit in np.eye(size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-10 * np.abs(matrix).max())
    np.testing.assert_allclose(np.diag(matrix), diagonal, rtol=1e-10)
    assert np.linalg.eigvalsh(matrix).min() >= -1e-10 * np.abs(matrix).max()


def test_rounding_leaves_room_for_a_gap_of_one_in_a_million_on_a_thousand_cells() -> None:
    assert bracket(prefix(1024), np.full(1024, 1 / 1024)).blur < 2.5e-7


def test_the_allowances_for_rounding_are_small_beside_the_gap() -> None:
    root = prefix(256)[1:]  # of less than full rank: columns keep their lengths
    v = np.full(256, 1 / 256)
    quick, slow = bracket(root, v), bracket(root, v, precise=True)
    assert quick.upper == pytest.approx(slow.upper, rel=1e-9)
    assert quick.lower == pytest.approx(slow.lower, rel=1e-8)
    ideal = quick.trace**2 * quick.slopes.max()
    assert ideal < quick.upper < ideal * (1 + 1e-9)


def test_where_squaring_loses_a_scale_there_is_no_upper_bound_until_it_is_done_precisely() -> None:
    root = np.array([[1e9, 1e9, 0.0], [1.0, 2.0, 1.0]])
    v = np.full(3, 1 / 3)
    assert bracket(root, v).upper == np.inf
    assert bracket(root, v, precise=True).gap < 1.0


def test_a_light_query_keeps_its_own_digits_beside_a_heavy_one() -> None:
    heavy = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0], [0.0, 1.0, 0.5]])
    B = bracket(heavy * [[1e10], [1.0], [1e-10]], np.full(3, 1 / 3), precise=True).strategy()
    lengths = np.linalg.norm(B, axis=1)
    answers = np.linalg.solve((B / lengths[:, None]).T, heavy.T).T
    variances = np.sum((answers / lengths) ** 2, axis=1)
    assert variances[0] < 1.1  # the heavy query takes almost all of the budget, as it should
    assert 1e9 < variances[1] < 1e11
    assert 1e19 < variances[2] < 1e21
