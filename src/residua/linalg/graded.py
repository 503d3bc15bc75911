"""Singular values of matrices whose rows or columns differ in length by many orders of magnitude."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FULL_GRADING = 2  # LAPACK's job letter F, as its wrapper counts them


def jacobi_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """`left, scales, right` with `matrix = left diag(scales) right`, by Jacobi rotations.

    Small singular values that are due to short rows or columns, and their vectors, come out to almost full
    relative accuracy, where the usual algorithms are accurate relative to the largest only (Drmac and
    Veselic, 2008). About four times slower. `matrix` is (m, n); the results have min(m, n) scales.

    >>> rows = np.array([[1e12, 1e12], [1e-12, 2e-12]])
    >>> float(np.prod(jacobi_svd(rows)[1]).round(12))  # the determinant
    1.0
    """
    from scipy.linalg.lapack import dgejsv  # loading it takes longer than loading all of residua

    if matrix.shape[0] < matrix.shape[1]:
        right, scales, left = jacobi_svd(matrix.T)
        return left.T, scales, right.T
    scales, left, right, stretch, _, failed = dgejsv(matrix, joba=FULL_GRADING)
    if failed:
        raise np.linalg.LinAlgError("the Jacobi rotations of a singular value decomposition did not end")
    return np.asarray(left), np.asarray(scales * (stretch[0] / stretch[1])), np.asarray(right.T)
