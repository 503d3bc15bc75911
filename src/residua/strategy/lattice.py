"""Short integer vectors that span a given row space.

Rounding a strategy to combinations of integer rows C is off by about half a row of C for each row of the
strategy: the shorter the rows of C, the fewer bits the strategy needs.
"""

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)  # common in numbers of cells
MOST_REDUCED = 30_000  # entries; reducing more takes too long


def short_basis(rows: Integers) -> Integers:
    """As many short integer rows with the same row space; `rows` must be independent (claim I-003).

    Every step keeps the row space: dividing a whole combination of rows by a prime, and the steps of
    lattice reduction, which are unimodular.
    """
    if rows.size > MOST_REDUCED:
        return rows
    for prime in PRIMES:
        while (divided := _divided(rows, prime)) is not None:
            rows = _reduced(divided)
    return _reduced(rows)


def _divided(rows: Integers, prime: int) -> Integers | None:
    """Rows that span more whole vectors: combinations that the prime divides, divided by it.

    None if it divides no combination but its own multiples.
    """
    from flint import nmod_mat

    kernel, nullity = nmod_mat(np.mod(rows, prime).T.tolist(), prime).nullspace()
    if nullity == 0:
        return None
    basis = np.array([[int(entry) for entry in row[:nullity]] for row in kernel.tolist()]).T
    echelon, _ = nmod_mat(basis.tolist(), prime).rref()
    result = rows.copy()
    for line in echelon.tolist():
        weights = np.array([int(entry) for entry in line])
        weights = np.where(weights > prime // 2, weights - prime, weights)
        pivot = int(np.flatnonzero(weights)[0])  # its weight is 1, and no other line has any there
        result[pivot] = weights @ rows // prime
    return result


def _reduced(rows: Integers) -> Integers:
    from flint import fmpz_mat

    return np.array([[int(entry) for entry in row] for row in fmpz_mat(rows.tolist()).lll().tolist()])
