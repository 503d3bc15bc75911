"""Which rows span what all of them do, and a basis of all functions of cells."""

import numpy as np

from residua._arrays import Array, Indices
from residua.linalg.matrices import pivoted_qr

FAR = 1e-6  # of the length of a row: what it adds to others that it is independent of
BATCH = 128  # rows that are looked at together


def apart(rows: Array, most: int) -> Indices:
    """Places of at most so many rows of length 1, each far from all that come before it together.

    Some rows are looked at at a time, so that nearly all of the work is products of matrices: pivoting over
    thousands of rows takes minutes.
    """
    basis = np.zeros((rows.shape[1], 0))
    found: list[Indices] = []
    for start in range(0, len(rows), BATCH):
        if basis.shape[1] >= most:
            break
        batch = rows[start : start + BATCH]
        for _ in range(2):  # once leaves what rounding does of the first time
            batch = batch - (batch @ basis) @ basis.T
        more, triangle, order = pivoted_qr(batch.T)
        far = np.flatnonzero(np.abs(np.diagonal(triangle)) > FAR)[: most - basis.shape[1]]
        basis = np.concatenate([basis, more[:, far]], axis=1)
        found.append(start + np.sort(order[far]))
    return np.concatenate([*found, np.zeros(0, dtype=np.intp)])


def mean_first(size: int) -> Array:
    """An orthonormal basis of the functions of so many cells as columns, the constant one first."""
    return np.asarray(np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, 1:]]))[0])
