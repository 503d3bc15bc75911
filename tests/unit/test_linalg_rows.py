"""Independent rows with a given gram, and pseudo-inverses, against exact and dense twins."""

import ast
import os
import subprocess
import sys

import numpy as np
import pytest
from flint import acb_mat, arb_mat, ctx, fmpq, fmpq_mat
from numpy.typing import NDArray

from residua.linalg.grams import inverse_gram
from residua.linalg.matrices import _plain_row_space, independent_rows, pivoted_qr, pseudo_inverse
from residua.linalg.spans import apart

Array = NDArray[np.float64]


def exact(matrix: Array) -> fmpq_mat:
    """The same floats as rational numbers."""
    rows = [[fmpq(*float(value).as_integer_ratio()) for value in row] for row in matrix]
    return fmpq_mat(rows)


def eigenvalues(gram: fmpq_mat) -> list[float]:
    """Of a symmetric matrix of rational numbers, each to all its digits, in descending order."""
    before, ctx.prec = ctx.prec, 600
    try:
        return sorted(
            (float(value.real.mid()) for value in acb_mat(arb_mat(gram)).eig(multiple=True)), reverse=True
        )
    finally:
        ctx.prec = before


def random_stack(seed: int) -> Array:
    """Small integer rows of every kind: few or many, dependent or not, with repeats and zeros."""
    draw = np.random.default_rng(seed)
    count, columns = draw.integers(1, 9, size=2)
    stack = draw.integers(-2, 3, size=(count, columns)).astype(float)
    if seed % 3 == 0:
        stack = np.vstack([stack, stack[:1], stack.sum(axis=0, keepdims=True)])
    if seed % 4 == 0:
        stack[:, 0] = 0.0
    return stack


@pytest.mark.parametrize("seed", range(40))
def test_independent_rows_have_the_exact_rank_and_the_same_gram(seed: int) -> None:
    stack = random_stack(seed)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(stack))
    root = independent_rows(stack, weights)
    rank = exact(stack).rank()
    assert root.shape == (rank, stack.shape[1])
    assert rank == 0 or np.linalg.matrix_rank(root) == rank
    np.testing.assert_allclose(root.T @ root, (stack.T * weights) @ stack, atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_weights_of_any_spread_neither_change_the_rank_nor_drown_a_light_row(seed: int) -> None:
    draw = np.random.default_rng(seed)
    columns = int(draw.integers(2, 6))
    stack = draw.integers(-3, 4, size=(columns + 2, columns)).astype(float)
    stack[:columns] += 4 * np.eye(columns)
    weights = 10.0 ** draw.uniform(-12, 12, len(stack))
    root = independent_rows(stack, weights)
    assert root.shape == (columns, columns)
    gram = exact(stack).transpose() * exact(np.diag(weights)) * exact(stack)
    own = exact(root).transpose() * exact(root)
    np.testing.assert_allclose(eigenvalues(own), eigenvalues(gram), rtol=1e-13)


def test_dependent_rows_under_wild_weights_keep_their_rank() -> None:
    stack = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0]])
    for exponents in ([12, -12, 0, 3, -5], [-12, -12, 12, 12, 0], [20, -20, 0, -10, 10]):
        weights = 10.0 ** np.array(exponents, dtype=float)
        root = independent_rows(stack, weights)
        assert root.shape == (3, 4)
        # the light directions are there to their own digits: undo the scale of every row before looking
        lengths = np.linalg.norm(root, axis=1)
        assert np.linalg.matrix_rank(root / lengths[:, None], tol=1e-9) == 3


def test_independent_rows_are_kept_as_they_are() -> None:
    stack = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        independent_rows(stack, np.array([4.0, 1.0])), stack * [[2.0], [1.0]], rtol=1e-15
    )


def test_rows_of_weight_zero_and_zero_rows_do_not_count() -> None:
    assert independent_rows(np.eye(3), np.array([1.0, 0.0, 1.0])).shape == (2, 3)
    assert independent_rows(np.zeros((2, 3))).shape == (0, 3)
    assert independent_rows(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("seed", range(40))
def test_the_inverse_gram_is_the_pseudo_inverse_and_comes_with_its_projector(seed: int) -> None:
    rows = random_stack(seed)
    inverse, projector = inverse_gram(rows)
    expected = np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True)
    np.testing.assert_allclose(inverse, expected, atol=1e-9 * max(1.0, float(np.abs(expected).max())))
    if exact(rows).rank() == rows.shape[1]:
        assert projector is None
    else:
        assert projector is not None
        np.testing.assert_allclose(projector, np.linalg.pinv(rows) @ rows, atol=1e-10)


@pytest.mark.parametrize("shape", [(9, 12), (12, 9), (9, 9)])
def test_a_rank_that_is_known_is_kept_to_whatever_rounding_leaves(shape: tuple[int, int]) -> None:
    """Claim H-020: centring takes one direction away, and leaves of it what rounding makes."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(shape[0], 8)) @ rng.normal(size=(8, shape[1]))
    expected = np.linalg.pinv(rows, rcond=1e-9)
    for noise in (0.0, 1e-13, 1e-11, 3e-10):
        found = pseudo_inverse(rows + noise * rng.normal(size=shape), 8)
        np.testing.assert_allclose(found, expected, atol=1e-7)
    assert pseudo_inverse(np.zeros((1, 1)), 0).tolist() == [[0.0]]
    np.testing.assert_allclose(pseudo_inverse(rows, 9), expected, atol=1e-9)  # a rank that it has not


@pytest.mark.parametrize("seed", range(40))
def test_the_pseudo_inverse_is_that_of_moore_and_penrose(seed: int) -> None:
    rows = random_stack(seed)
    inverse = pseudo_inverse(rows)
    np.testing.assert_allclose(inverse, np.linalg.pinv(rows, rcond=1e-10), atol=1e-10)
    np.testing.assert_allclose(rows @ inverse @ rows, rows, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_rows_apart_are_independent_and_span_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inner = rng.integers(-2, 3, (400, 150)) @ np.eye(150, 200)
    rows = np.concatenate([np.eye(200)[:40], inner[:, :], inner[:30] + inner[30:60]])
    rows = rows[np.linalg.norm(rows, axis=1) > 0]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    rank = np.linalg.matrix_rank(rows)
    chosen = apart(unit, 1000)
    assert chosen[:40].tolist() == list(range(40))
    assert len(chosen) == rank == np.linalg.matrix_rank(rows[chosen])
    assert len(apart(unit, 17)) == 17


@pytest.mark.parametrize("seed", range(40))
def test_the_space_of_rows_without_pivoting_is_that_of_pivoting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(2, 60))
    rank = int(rng.integers(1, columns + 1))
    rows = rng.integers(0, 2, (columns + 5, rank)) @ rng.integers(-1, 2, (rank, columns)).astype(float)
    rows = rows[np.linalg.norm(rows, axis=1) > 0]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    basis, triangle, _ = pivoted_qr(unit.T)
    pivoted = basis[:, np.abs(np.diagonal(triangle)) > 1e-11 * abs(triangle[0, 0])]
    plain = _plain_row_space(unit)
    assert plain is not None
    assert plain.shape == pivoted.shape
    np.testing.assert_allclose(plain @ plain.T, pivoted @ pivoted.T, atol=1e-10)


def test_rows_that_are_almost_dependent_are_left_to_pivoting() -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((5, 8))
    near = np.concatenate([rows, rows[:1] + 1e-10 * rng.standard_normal((1, 8))])
    unit = near / np.linalg.norm(near, axis=1, keepdims=True)
    assert _plain_row_space(unit) is None
    assert _plain_row_space(unit[:5]).shape == (8, 5)


LOADED_WITHIN = """
import numpy
from threadpoolctl import ThreadpoolController
from residua.linalg import matrices

def threads():
    return sorted(each["num_threads"] for each in ThreadpoolController().info())

matrices.processors = lambda: 3
found = [threads()]
with matrices.threads_for(0):
    import scipy.linalg
    for rows in (5, 5_000):
        with matrices.threads_for(rows):
            found.append(threads())
        found.append(threads())
found.append(threads())
print(found)
"""


def test_a_blas_that_is_loaded_within_an_outer_limit_keeps_to_it_and_is_given_back() -> None:
    command = [sys.executable, "-c", LOADED_WITHIN]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}  # what SciPy's begins with
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    before, inner, between, large, after, ended = ast.literal_eval(told)
    assert set(before) == {2}
    assert set(inner) == set(between) == set(after) == {1}
    assert set(large) == {3}
    assert set(ended) == {2}
