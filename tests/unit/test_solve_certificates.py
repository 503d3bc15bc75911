"""No bound is ever false: brackets at hostile weights, checked with 270 digits from the very same floats."""

from collections.abc import Iterator

import numpy as np
import pytest
from flint import acb_mat, arb, arb_mat, ctx
from numpy.typing import NDArray

from residua.solve.cells import Bracket, _singular, _squared, bracket, solve_cells, solve_circulant
from residua.solve.targets import sight_of

Array = NDArray[np.float64]


@pytest.fixture(autouse=True)
def many_digits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 900
    yield
    ctx.prec = before


def balls(matrix: Array) -> arb_mat:
    return arb_mat([[arb(float(value)) for value in row] for row in matrix])


def diagonal(values: Array) -> arb_mat:
    return balls(np.diag(values))


def total(values: Array) -> arb:
    return sum((arb(float(value)) for value in values), arb(0))


def root_trace(product: arb_mat) -> arb:
    """Sum of the square roots of the eigenvalues."""
    values = acb_mat(product).eig(algorithm="approx")
    return sum((abs(value.real).sqrt() for value in values), arb(0))


def largest(values: list[arb]) -> arb:
    best = values[0]
    for value in values[1:]:
        best = best.max(value)
    return best


def in_coordinates(matrix: Array, root: Array, weights: Array | None = None) -> arb_mat:
    """F with `F root = matrix`; what rounding left outside goes by weighted least squares (S-003)."""
    R = balls(root)
    turned = R.transpose() if weights is None else diagonal(weights) * R.transpose()
    return balls(matrix) * turned * (R * turned).inv()


def cost_of(matrix: Array) -> arb:
    """Largest squared length of a column."""
    B = balls(matrix)
    return largest([sum((B[a, i] ** 2 for a in range(B.nrows())), arb(0)) for i in range(B.ncols())])


def true_lower(root: Array, weights: Array) -> arb:
    R = balls(root)
    return root_trace(R * diagonal(weights) * R.transpose()) ** 2 / total(weights)


def true_value(root: Array, weights: Array, seen: Bracket) -> arb:
    """Cost times total variance of the strategy that a bracket hands out."""
    F = in_coordinates(seen.strategy(), root, weights)
    return cost_of(seen.strategy()) * (F.transpose() * F).inv().trace()


def exact_value(root: Array, weights: Array, precise: bool, levelled: bool) -> arb:
    """Cost times total variance of the mechanism `R'KR` itself, K made of the computed U and t.

    Levelled, that is `D R'KR D` with D such that every diagonal entry, the cost, is 1.
    """
    left, scales, *_ = (_singular if precise else _squared)(root, weights)
    U, R = balls(left), balls(root)
    K = U * diagonal(scales).inv() * U.transpose()
    X = R.transpose() * K * R
    if levelled:
        lengths = [X[i, i].sqrt() for i in range(X.nrows())]
        images = arb_mat([[length * R[a, i] for a in range(R.nrows())] for i, length in enumerate(lengths)])
        return (images.transpose() * X.inv() * images).trace()  # tr(R D^-1 X^-1 D^-1 R')
    return largest([X[i, i] for i in range(X.nrows())]) * K.inv().trace()


def hostile(draw: np.random.Generator) -> tuple[Array, Array]:
    """A small root, nearly dependent or wildly scaled in rows, cells or all over, and cell weights."""
    rank = int(draw.integers(1, 7))
    cells = rank + int(draw.integers(0, 6))
    root = draw.standard_normal((rank, cells))
    kind = int(draw.integers(5))
    if kind == 1:
        root = draw.integers(0, 2, (rank, cells)) + 1e-3 * np.eye(rank, cells)
    elif kind == 2 and rank > 1:
        root[-1] = root[0] + 10.0 ** -draw.uniform(1, 10) * root[-1]
    elif kind == 3:
        root = np.tril(np.ones((cells, cells)))[-rank:]
    elif kind == 4:
        root = root * 10.0 ** draw.uniform(-8, 8, (1, cells))
    if draw.random() < 0.6:  # weights of the queries from 1e-20 to 1e20
        root = root * 10.0 ** draw.uniform(-10, 10, (rank, 1))
    if draw.random() < 0.2:
        root = root * 10.0 ** draw.uniform(-60, 60)
    weights = 10.0 ** draw.uniform(-draw.choice([0.1, 3.0, 20.0, 40.0]), 0, cells)
    if draw.random() < 0.3:
        weights = weights * 10.0 ** draw.uniform(-60, 60)
    return root, weights


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_hostile_brackets_are_true(seed: int, precise: bool) -> None:
    draw = np.random.default_rng(seed)
    finite = 0
    for _ in range(200):
        root, weights = hostile(draw)
        seen = bracket(root, weights, precise=precise)
        assert true_lower(root, weights) >= arb(seen.lower)
        if np.isfinite(seen.upper):
            finite += 1
            assert true_value(root, weights, seen) <= arb(seen.upper)
            assert exact_value(root, weights, precise, seen.levelled) <= arb(seen.upper)
    assert finite > (160 if precise else 60)  # the test must not pass by claiming nothing


@pytest.mark.parametrize("precise", [False, True])
def test_brackets_of_more_cells_are_true(precise: bool) -> None:
    ctx.prec = 300
    draw = np.random.default_rng(1)
    root, weights = np.tril(np.ones((24, 24))), draw.uniform(1e-6, 1.0, 24)
    seen = bracket(root, weights, precise=precise)
    assert true_lower(root, weights) >= arb(seen.lower)
    assert true_value(root, weights, seen) <= arb(seen.upper)
    assert exact_value(root, weights, precise, seen.levelled) <= arb(seen.upper)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("tiny", [1e-8, 1e-16, 1e-20, 1e-40])
def test_a_cell_weight_near_zero_does_not_fake_a_certificate(tiny: float, precise: bool) -> None:
    seen = bracket(np.eye(3), np.array([1.0, tiny, 1.0]), precise=precise)
    assert seen.lower <= 3 <= seen.upper
    assert seen.gap > 0.4  # two cells alone would make the two bounds meet at 2


@pytest.mark.parametrize("seed", range(20))
def test_brackets_contain_optima_that_are_known(seed: int) -> None:
    """Cells of different rows apart: the optimum is the sum of the squares of each row's largest entry."""
    draw = np.random.default_rng(seed)
    rank, each = int(draw.integers(1, 6)), int(draw.integers(1, 4))
    entries = draw.integers(1, 2**20, (rank, each)) * 2.0 ** draw.integers(-20, 21, (rank, 1))
    root = np.zeros((rank, rank * each))
    for row in range(rank):
        root[row, row::rank] = entries[row]
    optimum = total(entries.max(axis=1) ** 2)  # exact: 40 bits each
    for _ in range(10):
        weights = 10.0 ** draw.uniform(-20, 0, rank * each)
        for precise in (False, True):
            seen = bracket(root, weights, precise=precise)
            assert arb(seen.lower) <= optimum <= arb(seen.upper)
    solution = solve_cells(root)
    assert arb(solution.lower) <= optimum <= arb(solution.upper)
    assert solution.gap <= 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_the_solution_for_queries_of_wildly_different_weight_is_worth_what_it_claims(seed: int) -> None:
    draw = np.random.default_rng(seed)
    root = draw.integers(0, 2, (7, 9)) * 10.0 ** draw.uniform(-10, 10, (7, 1)) + np.eye(7, 9)
    solution = solve_cells(root).require(1e-6)
    F = in_coordinates(solution.strategy, root)
    assert cost_of(solution.strategy) <= 1 + arb(1e-14)
    assert (F.transpose() * F).inv().trace() <= arb(solution.upper)
    assert true_lower(root, solution.cell_weights) >= arb(solution.lower) * (1 - arb(1e-15))


def hostile_targets(draw: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Coefficients, root, query weights and cell weights, with nearly dependent rows or wild scales."""
    rank = int(draw.integers(1, 6))
    queries, cells = rank + int(draw.integers(0, 6)), rank + int(draw.integers(0, 5))
    root, rows = draw.standard_normal((rank, cells)), draw.standard_normal((queries, rank))
    kind = int(draw.integers(5))
    if kind in (1, 4):
        root[-1] = root[0] + 10.0 ** -draw.uniform(1, 8) * draw.standard_normal(cells)
    if kind == 2:
        rows[:rank] = np.eye(rank)
    elif kind in (3, 4):  # with 4 the queries are small differences of large numbers
        rows[:, -1] = 10.0 ** -draw.uniform(1, 8) * draw.standard_normal(queries) - rows[:, 0]
    if draw.random() < 0.5:
        scales = 10.0 ** draw.uniform(-10, 10, rank)
        root, rows = root * scales[:, None], rows / scales
    if draw.random() < 0.5:  # targets from 1e-20 up
        rows = rows * 10.0 ** draw.uniform(-draw.choice([3.0, 10.0]), 10, (queries, 1))
    u = 10.0 ** draw.uniform(-draw.choice([0.1, 3.0, 20.0]), 0, queries)
    v = 10.0 ** draw.uniform(-draw.choice([0.1, 3.0, 20.0]), 0, cells)
    return rows, root, u, v


@pytest.mark.parametrize("seed", range(4))
def test_hostile_target_brackets_are_true(seed: int) -> None:
    draw = np.random.default_rng(seed)
    finite = 0
    for _ in range(100):
        rows, root, u, v = hostile_targets(draw)
        seen = sight_of(rows, root, u, v)
        L, R = balls(rows), balls(root)
        norm = root_trace(L.transpose() * diagonal(u) * L * R * diagonal(v) * R.transpose())
        assert norm**2 / (total(u) * total(v)) >= arb(seen.lower)
        if not np.isfinite(seen.upper):
            continue
        finite += 1
        F = in_coordinates(seen.cell_directions, root, v)
        Y = L * F.inv()
        variances = [sum((Y[j, a] ** 2 for a in range(Y.ncols())), arb(0)) for j in range(Y.nrows())]
        assert cost_of(seen.cell_directions) * largest(variances) <= arb(seen.upper)
        for variance, deviation in zip(variances, seen.deviations, strict=True):
            assert variance <= arb(float(deviation)) ** 2 * (1 + arb(1e-14))
    assert finite > 90


@pytest.mark.parametrize("cells", [1, 2, 3, 8, 31, 60, 61])
def test_circulant_brackets_are_true(cells: int) -> None:
    draw = np.random.default_rng(cells)
    ctx.prec = 200
    fourier = acb_mat.dft(cells)
    stretch = arb(cells).sqrt()

    def transform(row: Array) -> list[arb]:
        values = [arb(float(value)) for value in row]
        return [
            stretch * sum((fourier[k, j].real * value for j, value in enumerate(values)), arb(0))
            for k in range(cells)
        ]

    for _ in range(5):
        window = draw.integers(0, 5, cells) + 5 * cells * np.eye(1, cells)[0]
        row = np.array([window @ np.roll(window, shift) for shift in range(cells)], dtype=float)
        solution = solve_circulant(row)
        assert solution is not None
        squares, steps = transform(row), transform(solution.strategy[:, 0])
        optimum = sum((square.sqrt() for square in squares), arb(0)) ** 2 / cells
        value = sum((square / step**2 for square, step in zip(squares, steps, strict=True)), arb(0))
        assert arb(solution.lower) <= optimum
        assert value * total(solution.strategy[:, 0] ** 2) * (1 - arb(1e-15)) <= arb(solution.upper)
