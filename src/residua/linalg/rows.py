"""Matrices with independent rows: found, made and inverted without squaring what is already small."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]

FULL_RANK_RATIO = 1e-9  # of the smallest to the largest diagonal of a QR factor: no doubt about the rank
RANK_RATIO = 1e-11  # below this a pivot is what rounding leaves of zero


def independent_rows(stack: Array, weights: Array | None = None) -> Array:
    """R with independent rows and `R'R = stack' diag(weights) stack`; shape (rank, columns).

    The rank is read off the *unweighted* rows, each scaled to length 1: positive weights do not change a
    row space, and however widely they spread they must not change what is counted (claim S-004).
    """
    lengths = np.linalg.norm(stack, axis=1)
    rows = stack[lengths > 0]
    scales = lengths[lengths > 0] * (1.0 if weights is None else np.sqrt(weights[lengths > 0]))
    rows = rows / lengths[lengths > 0, None]
    if rows.shape[0] >= rows.shape[1]:
        triangle = np.linalg.qr(rows, mode="r")
        pivots = np.abs(np.diagonal(triangle))
        if pivots.min() > FULL_RANK_RATIO * pivots.max():
            return _graded_root(rows, scales)
    triangle, _ = scipy.linalg.qr(rows, mode="r", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    rank = int(np.sum(pivots > RANK_RATIO * pivots[0]))
    if rank == rows.shape[1]:
        return _graded_root(rows, scales)
    if rank == rows.shape[0]:
        return np.asarray(rows * scales[:, None])
    basis = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)[0][:, :rank]  # (columns, rank)
    return np.asarray(_graded_root(rows @ basis, scales) @ basis.T)


def _graded_root(rows: Array, scales: Array) -> Array:
    """Square root factor of `rows' diag(scales^2) rows`, accurate row by row.

    Householder QR with column pivoting keeps the small rows' digits if the large rows come first
    (Cox and Higham, 1998).
    """
    order = np.argsort(-scales, kind="stable")
    graded = rows[order] * scales[order, None]
    triangle, permutation = scipy.linalg.qr(graded, mode="r", pivoting=True)
    root = np.empty((rows.shape[1], rows.shape[1]))
    root[:, permutation] = triangle[: rows.shape[1]]
    return root


def inverse_gram(rows: Array) -> tuple[Array, Array | None]:
    """Pseudo-inverse of `rows' rows`, and the projector on the row space (None if that is everything)."""
    count, columns = rows.shape
    if count >= columns:
        triangle = np.linalg.qr(rows, mode="r")
        pivots = np.abs(np.diagonal(triangle))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = scipy.linalg.solve_triangular(triangle, np.eye(columns))
            return np.asarray(inverse @ inverse.T), None
    else:
        basis, upper = np.linalg.qr(rows.T)
        pivots = np.abs(np.diagonal(upper))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = basis @ scipy.linalg.solve_triangular(upper, np.eye(count), trans="T")
            return np.asarray(inverse @ inverse.T), np.asarray(basis @ basis.T)
    _, scales, right = np.linalg.svd(rows, full_matrices=False)
    kept = right[scales > RANK_RATIO * scales[0]]
    inverse = kept.T / scales[scales > RANK_RATIO * scales[0]]
    return np.asarray(inverse @ inverse.T), np.asarray(kept.T @ kept)
