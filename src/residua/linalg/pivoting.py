"""QR with column pivoting of small matrices, in numpy alone: loading SciPy takes longer than these do."""

import numpy as np

from residua._arrays import Array, Indices

SMALL_STEPS, SMALL_ENTRIES = 128, 20_000  # up to which a step in numpy takes less than SciPy's loading


def is_small(matrix: Array) -> bool:
    """Whether a matrix is decomposed here; size alone decides: plans must not depend on what is loaded."""
    return min(matrix.shape) <= SMALL_STEPS and matrix.size <= SMALL_ENTRIES


def householder_qr(matrix: Array, *, turned: bool = True) -> tuple[Array, Array, Indices]:
    """Orthogonal Q (rows, rows), R (rows, columns) and the order of columns: `matrix[:, order] = Q R`.

    The longest column that is left comes next. Without `turned`, Q has no columns.
    """
    rows, columns = matrix.shape
    left, order = np.array(matrix, dtype=np.float64), np.arange(columns)
    turn = np.eye(rows) if turned else np.zeros((0, rows))
    for step in range(min(rows, columns)):
        lengths = np.einsum("ij,ij->j", left[step:, step:], left[step:, step:])
        longest = step + int(np.argmax(lengths))
        left[:, [step, longest]] = left[:, [longest, step]]
        order[[step, longest]] = order[[longest, step]]
        mirror = left[step:, step].copy()
        length = float(np.linalg.norm(mirror))
        if length == 0:
            break
        mirror[0] += length if mirror[0] >= 0 else -length
        mirror /= np.linalg.norm(mirror)
        left[step:, step:] -= 2 * np.outer(mirror, mirror @ left[step:, step:])
        turn[:, step:] -= 2 * np.outer(turn[:, step:] @ mirror, mirror)
    return turn, np.triu(left), order
