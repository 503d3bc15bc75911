"""Circulant grams need no search: uniform cell weights are optimal, and a Fourier transform solves them.

A circulant gram has a circulant square root, whose diagonal is constant; there the two bounds meet
(claim S-009).
"""

import numpy as np
from numpy.typing import NDArray

from residua.solve.bracket import UNIT_ROUNDOFF
from residua.solve.solution import Solution

Array = NDArray[np.float64]

RANK_RATIO = 1e-10


def solve_circulant(row: Array) -> Solution | None:
    """The optimum for the circulant gram with this first row, or None if it is not of full rank.

    `row` is (cells,), symmetric: row[i] == row[-i]. Costs one Fourier transform.
    """
    cells = len(row)
    squares = np.fft.fft(row).real  # eigenvalues of the gram
    largest = float(squares.max())
    if squares.min() <= RANK_RATIO * largest:
        return None
    error = 8 * np.log2(cells + 1) * UNIT_ROUNDOFF * float(np.linalg.norm(squares))
    scales = np.sqrt(squares)  # eigenvalues of S
    trace = float(scales.sum())
    low = float(np.sqrt(np.maximum(squares - error, 0.0)).sum())
    high = float(np.sqrt(squares + error).sum())
    half = np.fft.ifft(np.sqrt(scales * cells / trace)).real
    shift = np.subtract.outer(np.arange(cells), np.arange(cells)) % cells
    lower, upper = low**2 / cells, high**2 / cells * (1 + 8 * cells * UNIT_ROUNDOFF)
    return Solution(half[shift], np.full(cells, 1 / cells), lower, upper, 1)
