"""Rows over all cells of a marginal in integers that answer exactly the same queries."""

import math

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.strategy.integers import FILL, MOST_FILLED, combined_rows, enough_bits, rounded_rows
from residua.strategy.lattice import short_basis

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

FEW_BITS = 20  # of the entries; more only where these change what is measured


def integer_rows(matrix: Array, rank: int, span: Integers | None, bits: int) -> tuple[Integers, int]:
    """A multiple of the rows in integers of at most so many bits, and their rank.

    `matrix` is (rows, cells). If its rank is less than that, `span` has integer rows with the same row space
    (claim I-003); without them every other direction is measured as well (claim I-004).
    """
    cells = matrix.shape[1]
    if rank < cells and span is not None:
        basis = short_basis(span)
        rows = enough_bits(lambda b: combined_rows(matrix, basis, b), matrix, rank, few=FEW_BITS, most=bits)
        return rows, rank
    whole = _filled(matrix, cells, rank) if rank < cells else matrix
    rows = enough_bits(lambda b: rounded_rows(whole, b), whole, cells, few=FEW_BITS, most=bits)
    return rows, cells


def _filled(matrix: Array, cells: int, rank: int) -> Array:
    """The strategy with every other direction added, measured with very little of the privacy (I-004)."""
    if cells > MOST_FILLED:
        raise Infeasible(
            "queries that are not small multiples of whole numbers need every direction measured, and "
            f"{cells:,} cells are more than {MOST_FILLED:,}; round the queries, or use coarser attributes"
        )
    extra = np.linalg.svd(matrix)[2][rank:]
    longest = math.sqrt(float(np.max(np.sum(matrix * matrix, axis=0))))
    return np.concatenate([matrix, math.sqrt(FILL) * longest * extra])
