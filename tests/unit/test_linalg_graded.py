"""Singular values of graded matrices, each to its own digits."""

import numpy as np
import pytest
from flint import acb_mat, arb, arb_mat, ctx
from numpy.typing import NDArray
from scipy.linalg import lapack

from residua.linalg.grams import jacobi_svd

Array = NDArray[np.float64]


def singular_values(matrix: Array) -> list[float]:
    """With 300 digits, in descending order."""
    before, ctx.prec = ctx.prec, 1000
    try:
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        balls = arb_mat([[arb(float(value)) for value in row] for row in tall])
        squares = acb_mat(balls.transpose() * balls).eig(algorithm="approx")
        return sorted((float(abs(square.real).sqrt().mid()) for square in squares), reverse=True)
    finally:
        ctx.prec = before


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (5, 5), (3, 7), (7, 3)])
def test_the_factors_are_orthonormal_and_multiply_to_the_matrix(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(sum(shape)).standard_normal(shape)
    left, scales, right = jacobi_svd(matrix)
    few = min(shape)
    np.testing.assert_allclose((left * scales) @ right, matrix, atol=1e-13)
    np.testing.assert_allclose(left.T @ left, np.eye(few), atol=1e-13)
    np.testing.assert_allclose(right @ right.T, np.eye(few), atol=1e-13)
    assert list(scales) == sorted(scales, reverse=True)


@pytest.mark.parametrize("seed", range(10))
def test_small_singular_values_of_short_rows_keep_their_digits(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(2, 7))
    matrix = draw.integers(-2, 3, (rows, rows + 2)) + 4.0 * np.eye(rows, rows + 2)
    matrix = matrix * 10.0 ** draw.uniform(-15, 15, (rows, 1))
    np.testing.assert_allclose(jacobi_svd(matrix)[1], singular_values(matrix), rtol=1e-13)
    np.testing.assert_allclose(jacobi_svd(matrix.T)[1], singular_values(matrix), rtol=1e-13)


def test_rotations_that_do_not_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    original = lapack.dgejsv

    def endless(*args: object, **kwargs: object) -> tuple[object, ...]:
        return (*original(*args, **kwargs)[:-1], 1)

    monkeypatch.setattr(lapack, "dgejsv", endless)
    with pytest.raises(np.linalg.LinAlgError, match="did not end"):
        jacobi_svd(np.eye(2))
