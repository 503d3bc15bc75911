"""Gram matrices: roots where the rank is surely full, inverses, sums over axes, which are the same."""

import math
from collections.abc import Sequence

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import RANK_RATIO, SAME, triangle_inverse

SURE_GRAM = 1e7  # at most the ratio of eigenvalues of a gram whose root has digits enough


def sure_root(gram: Array) -> tuple[Array, Array] | None:
    """The upper triangle R with `R'R = gram`, and its inverse; None where the rank is not surely full.

    A few times quicker than a QR decomposition of the rows, and as good where eigenvalues are alike.
    """
    try:
        root = np.ascontiguousarray(np.linalg.cholesky(gram).T)
    except np.linalg.LinAlgError:
        return None
    inverse = triangle_inverse(root)
    # The square of the largest singular value is at most the largest sum of a row times that of a column.
    ratio = math.prod(float(np.linalg.norm(each, kind)) for each in (root, inverse) for kind in (1, np.inf))
    return (root, inverse) if ratio <= SURE_GRAM else None


def inverse_gram(rows: Array) -> tuple[Array, Array | None]:
    """Pseudo-inverse of `rows' rows`, and the projector on the row space (None if that is everything)."""
    count, columns = rows.shape
    own = np.abs(rows.diagonal())
    plain = count == columns == np.count_nonzero(rows) and own.min() > RANK_RATIO * own.max()
    if plain:  # cells by themselves, each with its own weight
        return np.diag(1.0 / (own * own)), None
    if count >= columns:
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
        pivots = np.abs(np.diagonal(triangle))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = triangle_inverse(triangle)
            return np.asarray(inverse @ inverse.T), None
    else:
        basis, upper = np.linalg.qr(rows.T)
        pivots = np.abs(np.diagonal(upper))
        if pivots.min() > RANK_RATIO * pivots.max():
            inverse = basis @ triangle_inverse(upper).T
            return np.asarray(inverse @ inverse.T), np.asarray(basis @ basis.T)
    _, scales, right = np.linalg.svd(rows, full_matrices=False)
    kept = right[scales > RANK_RATIO * scales[0]]
    inverse = kept.T / scales[scales > RANK_RATIO * scales[0]]
    return np.asarray(inverse @ inverse.T), np.asarray(kept.T @ kept)


def same_gram(one: Array, two: Array) -> bool:
    """Whether `R'R` of two roots agrees in every direction, light or heavy: `two = M one`, M orthogonal."""
    if np.array_equal(one, two):
        return True
    if one.shape != two.shape:
        return False
    basis, upper = np.linalg.qr(one.T)
    turn = np.linalg.solve(upper, (two @ basis).T).T  # one = upper' basis'
    lost = np.linalg.norm(two - turn @ one, axis=1) > SAME * np.linalg.norm(two, axis=1)
    return not lost.any() and bool(np.abs(turn.T @ turn - np.eye(len(turn))).max() < SAME)


FULL_GRADING = 2  # LAPACK's job letter F, as its wrapper counts them


def jacobi_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """`left, scales, right` with `matrix = left diag(scales) right`, by Jacobi rotations.

    Small singular values that are due to short rows or columns, and their vectors, come out to almost full
    relative accuracy (Drmac and Veselic, 2008); about four times slower than the usual algorithms.
    """
    from scipy.linalg.lapack import dgejsv  # loading it takes longer than loading all of residua

    if matrix.shape[0] < matrix.shape[1]:
        right, scales, left = jacobi_svd(matrix.T)
        return left.T, scales, right.T
    scales, left, right, stretch, _, failed = dgejsv(matrix, joba=FULL_GRADING)
    if failed:
        raise np.linalg.LinAlgError("the Jacobi rotations of a singular value decomposition did not end")
    return np.asarray(left), np.asarray(scales * (stretch[0] / stretch[1])), np.asarray(right.T)


def sum_out(square: Array, sizes: Sequence[int], keep: Sequence[int]) -> Array:
    """`E square E'`, where E sums out the axes of `sizes` not in `keep` and puts the others in that order."""
    width = len(sizes)
    gone = [axis for axis in range(width) if axis not in keep]
    tensor = square.reshape((*sizes, *sizes)).sum(axis=(*gone, *(width + axis for axis in gone)))
    left = [axis for axis in range(width) if axis in keep]
    order = [left.index(axis) for axis in keep]
    tensor = tensor.transpose((*order, *(len(order) + axis for axis in order)))
    cells = int(np.prod([sizes[axis] for axis in keep], dtype=np.int64))
    return np.asarray(tensor.reshape(cells, cells))


def unchanged_by_swap(rows: Array, size: int) -> bool:
    """Whether every row over the cells of two attributes of one size stays as it is when they are swapped."""
    swapped = rows.reshape(-1, size, size).transpose(0, 2, 1).reshape(rows.shape)
    return bool(np.abs(swapped - rows).max(initial=0.0) <= SAME * np.abs(rows).max(initial=0.0))
