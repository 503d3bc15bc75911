"""Whole-number rows orthogonal to a whole-number vector."""

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def integer_kernel(vector: tuple[int, ...]) -> Integers:
    """A basis, with short rows, of all integer rows z with `z @ vector == 0`; shape (n - 1, n).

    By lattice reduction of `[I | c v]` with c so large that reduced rows which are not orthogonal to v come
    last (claim I-007). The vector must not be zero.
    """
    from flint import fmpz_mat

    size = len(vector)
    penalty = 10**6 * max(abs(entry) for entry in vector)
    start = [[int(row == at) for at in range(size)] + [vector[row] * penalty] for row in range(size)]
    reduced = fmpz_mat(start).lll()
    rows = [[int(reduced[row, at]) for at in range(size + 1)] for row in range(size)]
    basis = np.array([row[:size] for row in rows if row[size] == 0], dtype=np.int64).reshape(-1, size)
    if len(basis) != size - 1:
        raise ArithmeticError(f"lattice reduction found {len(basis)} of {size - 1} rows")
    return basis
