"""Matrices with independent rows: found, made and inverted without squaring what is already small."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FULL_RANK_RATIO = 1e-9  # of the smallest to the largest diagonal of a QR factor: no doubt about the rank
RANK_RATIO = 1e-11  # below this a pivot is what rounding leaves of zero


def independent_rows(stack: Array, weights: Array | None = None) -> Array:
    """R with independent rows and `R'R = stack' diag(weights) stack`; shape (rank, columns).

    The rank is read off the *unweighted* rows, each scaled to length 1: positive weights do not change a
    row space, and however widely they spread they must not change what is counted (claim S-004).
    """
    rows, scales = _unit_rows(stack, weights)
    if not len(rows):
        return rows
    spanning = rows
    if rows.shape[0] >= rows.shape[1]:
        triangle = np.linalg.qr(rows, mode="r")
        spanning = np.asarray(triangle)  # the same row space in no more rows than columns
        pivots = np.abs(np.diagonal(spanning))
        if pivots.min() > FULL_RANK_RATIO * pivots.max():
            return graded_root(rows, scales)
    basis = _row_space(spanning)  # (columns, rank)
    if basis.shape[1] == rows.shape[1]:
        return graded_root(rows, scales)
    if basis.shape[1] == rows.shape[0]:
        return np.asarray(rows * scales[:, None])
    return np.asarray(graded_root(rows @ basis, scales) @ basis.T)


def row_space(stack: Array) -> Array:
    """Orthonormal columns that span the rows, shape (columns, rank); the rank as in `independent_rows`."""
    rows = _unit_rows(stack, None)[0]
    if rows.shape[0] > rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    return _row_space(rows)


def _unit_rows(stack: Array, weights: Array | None) -> tuple[Array, Array]:
    """The rows that count, scaled to length 1, and the square root of what that leaves of the gram."""
    largest = np.max(np.abs(stack), axis=1, initial=0.0)
    alive = largest > 0 if weights is None else (largest > 0) & (weights > 0)
    rows = stack[alive] / largest[alive, None]  # squares of the largest entries might overflow
    lengths = np.linalg.norm(rows, axis=1)
    scales = lengths * largest[alive]
    return rows / lengths[:, None], scales if weights is None else scales * np.sqrt(weights[alive])


def _pivoted_qr(matrix: Array) -> tuple[Array, NDArray[np.intp]]:
    from scipy.linalg import qr  # loading it takes longer than loading all of residua

    triangle, permutation = qr(matrix, mode="r", pivoting=True, check_finite=False)
    return np.asarray(triangle), np.asarray(permutation, dtype=np.intp)


def _row_space(rows: Array) -> Array:
    """Orthonormal columns that span the rows, shape (columns, rank)."""
    from scipy.linalg import qr

    basis, triangle, _ = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(np.diagonal(triangle))
    return np.asarray(basis[:, pivots > RANK_RATIO * pivots[0]])


def graded_root(rows: Array, scales: Array) -> Array:
    """Square root factor of `rows' diag(scales^2) rows`, accurate row by row.

    Householder QR with column pivoting keeps the small rows' digits if the large rows come first
    (Cox and Higham, 1998).
    """
    graded = rows * scales[:, None]
    order = np.argsort(-np.linalg.norm(graded, axis=1), kind="stable")
    triangle, permutation = _pivoted_qr(graded[order])
    root = np.empty_like(triangle[: rows.shape[1]])
    root[:, permutation] = triangle[: rows.shape[1]]
    return root


def pseudo_inverse(rows: Array, rank: int | None = None) -> Array:
    """Moore-Penrose inverse, shape (columns, rows); by QR where the rank is full, otherwise by SVD.

    A `rank` that is known is kept to: what rounding leaves in the other directions does not count.
    """
    tall = rows.shape[0] >= rows.shape[1]
    if rank is None or rank == min(rows.shape):
        basis, upper = np.linalg.qr(rows if tall else rows.T)
        pivots = np.abs(np.diagonal(upper))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = np.linalg.inv(upper) @ basis.T if tall else basis @ np.linalg.inv(upper).T
            return np.asarray(inverse, dtype=np.float64)
    left, scales, right = np.linalg.svd(rows, full_matrices=False)
    kept = int(np.sum(scales > RANK_RATIO * scales[0]))
    kept = kept if rank is None else min(kept, rank)
    return np.asarray((right[:kept].T / scales[:kept]) @ left[:, :kept].T, dtype=np.float64)


def inverse_gram(rows: Array) -> tuple[Array, Array | None]:
    """Pseudo-inverse of `rows' rows`, and the projector on the row space (None if that is everything)."""
    count, columns = rows.shape
    if count >= columns:
        triangle = np.linalg.qr(rows, mode="r")
        pivots = np.abs(np.diagonal(triangle))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = np.linalg.inv(triangle)
            return np.asarray(inverse @ inverse.T), None
    else:
        basis, upper = np.linalg.qr(rows.T)
        pivots = np.abs(np.diagonal(upper))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = basis @ np.linalg.inv(upper).T
            return np.asarray(inverse @ inverse.T), np.asarray(basis @ basis.T)
    _, scales, right = np.linalg.svd(rows, full_matrices=False)
    kept = right[scales > RANK_RATIO * scales[0]]
    inverse = kept.T / scales[scales > RANK_RATIO * scales[0]]
    return np.asarray(inverse @ inverse.T), np.asarray(kept.T @ kept)
