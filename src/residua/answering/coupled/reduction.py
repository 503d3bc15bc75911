"""One block of an overlapping mechanism, with the unknowns that only it sees eliminated (claim O-002).

In residual coordinates a block measures `y = P z_p + H z_s + noise`: z_p are coordinates that no other block
touches, z_s are shared. The row space alone decides what can be answered, so ranks are read off an
orthonormal basis of it; the numbers that are measured decide the variances.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.linalg.rows import pseudo_inverse

Array = NDArray[np.float64]

RANK_RATIO = 1e-9  # of pivots of orthonormal rows: below it lies what rounding leaves of zero


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A block at noise variance 1, reduced to what it says about shared coordinates.

    With `u = c gain` for a query with private coordinates c, its answer has the variance `|u|^2` from this
    block, and it needs `c_s - c carry` of the shared coordinates; c must lie in the span of `seen`. The block
    says `spread z_s` with noise of variance 1, spread being (k, shared), on top of that; `known` are
    orthonormal rows with the row space of `spread`.
    Measured numbers y become `y left`: those for the gain first, then those for the spread.
    """

    gain: Array  # (private, rank of P)
    carry: Array  # (private, shared)
    seen: Array | None  # (private, rank of P), orthonormal; None if everything is seen
    spread: Array  # (k, shared)
    known: Array  # (k, shared)
    left: Array  # (rows, rank of P + k)

    @property
    def private_rank(self) -> int:
        """Number of directions of private coordinates that are measured."""
        return int(self.gain.shape[1])


def reduced(private: Array, shared: Array, rank: int) -> Reduced:
    """The block that measures `[P | H]`, of this rank: P is (rows, private), H is (rows, shared)."""
    width = private.shape[1]
    whole: Array = np.concatenate([private, shared], axis=1)
    basis = _row_basis(whole, rank)  # None if all coordinates are measured
    back: Array = np.eye(width)
    seen: Array | None = None
    if basis is None:
        top, apart, ranked = np.zeros((width, shared.shape[1])), np.eye(shared.shape[1]), width
        ordered = whole
    else:
        turn, rows, ranked = _triangular(basis[:, :width])
        spaces = turn.T @ basis[:, width:]
        top, apart = spaces[:ranked], spaces[ranked:]
        back = pseudo_inverse(rows) if ranked else np.zeros((width, 0))
        if ranked < width:
            seen = np.asarray(np.linalg.qr(rows.T)[0])
        ordered = whole @ basis.T @ turn
    left, upper = np.linalg.qr(ordered)
    first = _inverse(upper[:ranked, :ranked])
    carried = top + first @ upper[:ranked, ranked:] @ apart
    spread = upper[ranked:, ranked:] @ apart
    return Reduced(back @ first, back @ carried, seen, spread, apart, left)


def _row_basis(matrix: Array, rank: int) -> Array | None:
    """Orthonormal rows with the row space of the matrix, (rank, columns), or None if that is everything."""
    if rank == matrix.shape[1]:
        return None
    from scipy.linalg import qr

    lengths = np.linalg.norm(matrix, axis=1)
    unit = matrix[lengths > 0] / lengths[lengths > 0, None]
    basis = qr(unit.T, mode="economic", pivoting=True, check_finite=False)[0]
    return np.asarray(basis[:, :rank].T)


def _triangular(rows: Array) -> tuple[Array, Array, int]:
    """Orthogonal U and rows R of full rank with `rows = U [R; 0]`, and the number of rows of R."""
    from scipy.linalg import qr

    count, width = rows.shape
    if not width:
        return np.eye(count), np.zeros((0, 0)), 0
    turn, upper, order = qr(rows, pivoting=True, check_finite=False)
    pivots = np.abs(np.diagonal(upper))
    ranked = int(np.sum(pivots > RANK_RATIO))
    result = np.empty((ranked, width))
    result[:, order] = upper[:ranked]
    return np.asarray(turn), result, ranked


def _inverse(upper: Array) -> Array:
    from scipy.linalg import solve_triangular

    if not len(upper):
        return upper
    return np.asarray(solve_triangular(upper, np.eye(len(upper)), check_finite=False))
