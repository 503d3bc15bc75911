"""Explicit queries: exact rank, roots under wild weights, and refusals."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.workload import Explicit

Exact = list[list[Fraction]]


def exact(matrix: NDArray[np.float64]) -> Exact:
    return [[Fraction(value) for value in row] for row in matrix.tolist()]


def times(a: Exact, b: Exact) -> Exact:
    return [
        [sum((x * y for x, y in zip(row, col, strict=True)), Fraction(0)) for col in zip(*b, strict=True)]
        for row in a
    ]


def transposed(a: Exact) -> Exact:
    return [list(col) for col in zip(*a, strict=True)]


def inverse(a: Exact) -> Exact:
    n = len(a)
    rows = [[*row, *(Fraction(i == j) for j in range(n))] for i, row in enumerate(a)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(n):
            if i != k and rows[i][k] != 0:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dependent", [False, True])
def test_root_is_accurate_in_every_direction_under_wild_weights(seed: int, dependent: bool) -> None:
    draw = np.random.default_rng(seed)
    A = draw.integers(-3, 4, size=(7, 5)).astype(float) + 4 * np.eye(7, 5)
    w = 10.0 ** draw.permutation(np.array([10, 7, 3, 0, -4, -8, -10]))
    if dependent:  # the heaviest three queries span a plane
        heavy = np.argsort(-w)[:3]
        A[heavy[2]] = A[heavy[0]] + A[heavy[1]]
    root = exact(Explicit((5,), A, w).root())
    W = exact(A)
    weighted = [
        [Fraction(weight) * value for value in row] for weight, row in zip(w.tolist(), W, strict=True)
    ]
    gram = times(transposed(W), weighted)
    back = inverse(root)
    whitened = times(transposed(back), times(gram, back))  # R^-T G R^-1, which is I for an exact root
    errors = [float(abs(whitened[i][j] - (i == j))) for i in range(5) for j in range(5)]
    # Rounding the heaviest row alone costs sqrt(1e20) * 1e-16; through the gram it would be 1e20 * 1e-16.
    assert max(errors) < 1e-5


def test_weights_do_not_change_the_rank() -> None:
    A = np.array([[1.0, 1, 0], [0, 1, 1], [1, 2, 1], [1e-9, 0, 0]])
    for w in (None, [1e-30, 1, 1, 1], [1e30, 1e30, 1e30, 1e-30], [1, 1e-200, 1e200, 1]):
        assert Explicit((3,), A, w).root().shape == (3, 3)
        assert Explicit((3,), A[:3], w if w is None else w[:3]).root().shape == (2, 3)


def test_short_rows_count_as_much_as_long_ones() -> None:
    A = np.diag([1.0, 1e-150, 1e150])
    root = Explicit((3,), A).root()
    np.testing.assert_allclose(np.sort(np.abs(root).max(axis=1)), [1e-150, 1, 1e150], rtol=1e-12)


def test_more_queries_than_scratch_space_are_answered_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    A = np.random.default_rng(0).normal(size=(50, 4))
    P = A.T @ A
    whole = Explicit((4,), A).quadratic(P)
    monkeypatch.setattr("residua.workload.queries.CHUNK_ENTRIES", 12)
    np.testing.assert_allclose(Explicit((4,), A).quadratic(P), whole, rtol=1e-14)


def test_equality_is_by_value() -> None:
    A = np.array([[1.0, -0.0], [0.0, 2.0]])
    same = Explicit((2,), np.abs(A), np.ones(2))
    assert Explicit((2,), A) == same
    assert hash(Explicit((2,), A)) == hash(same)
    assert same.weights is None
    assert Explicit((2,), A, [1.0, 2.0]) != same
    assert Explicit((2, 1), A) != same
    assert Explicit((2,), A[::-1]) != same
    assert Explicit((2,), A) != "A"


def test_the_matrix_is_a_copy_that_cannot_be_written() -> None:
    A, w = np.eye(2), np.array([1.0, 2.0])
    queries = Explicit((2,), A, w)
    A[0, 0] = w[0] = 9.0
    assert queries.matrix()[0, 0] == 1.0
    assert queries.weights is not None
    assert queries.weights[0] == 1.0
    for array in (queries.values, queries.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3.0


def test_a_gram_that_overflows_is_refused() -> None:
    with pytest.raises(WorkloadError, match="gram overflows"):
        Explicit((2,), [[1e200, 1.0]]).gram()


def test_queries_are_worded_by_number() -> None:
    assert Explicit((2,), np.eye(2)).describe(1, ["a"], []) == "query 1"


def test_the_root_of_listed_queries_is_found_once_and_cannot_be_changed():
    queries = Explicit(
        (3,), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [1.0, 3.0, 1.0]]), np.array([1.0, 2, 3])
    )
    root = queries.root()
    assert root is queries.root()
    assert np.allclose(root.T @ root, queries.gram())
    assert not root.flags.writeable
