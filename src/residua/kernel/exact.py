"""Sums and products of whole numbers that never wrap around: in 64 bits where those will do."""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw

Integers = NDArray[np.int64]
Whole = NDArray[Any]
"""Whole numbers, exact: int64, or objects where those would not do."""

FITS = 2**61  # in absolute value: four such numbers add up in 64 bits
EXACT_BITS = 52  # of whole numbers that floats hold, sums of products included


def largest_size(matrix: Whole) -> int:
    """Largest absolute entry: in 64 bits the absolute value of -2^63 would be negative."""
    return max(int(matrix.max()), -int(matrix.min()))


def column_costs(law: NoiseLaw, matrix: Integers) -> Whole:
    """Cost of a record of each cell at noise of parameter 1, (cells,): sums of squares, or of sizes."""
    power = 1 if law == "laplace" else 2
    wide = largest_size(matrix) ** power * len(matrix) >= FITS
    return np.asarray((abs(matrix.astype(object) if wide else matrix) ** power).sum(axis=0))


def gram_rows(matrix: Integers, cells: slice) -> Whole:
    """Some rows of `matrix' matrix`: products of the columns of these cells with all columns.

    The entries are cut into digits so short that floats, which multiply fast, add up their products exactly.
    """
    largest, rows = largest_size(matrix), len(matrix)
    width = (EXACT_BITS - rows.bit_length()) // 2
    digits = [matrix]
    while largest >= 2 ** (width * len(digits)):
        high = digits[-1] >> width
        digits[-1:] = [digits[-1] - (high << width), high]
    floats = [digit.astype(np.float64) for digit in digits]
    kind = np.int64 if largest**2 * rows < FITS else object
    total = np.zeros((len(range(*cells.indices(matrix.shape[1]))), matrix.shape[1]), dtype=kind)
    for low, left in enumerate(floats):
        for high_place, right in enumerate(floats):
            found = (left[:, cells].T @ right).astype(np.int64).astype(kind)
            total = total + found * 2 ** (width * (low + high_place))
    return total


def kron(arrays: Iterable[Whole]) -> Whole:
    """Kronecker product of vectors or matrices of whole numbers; of none, the number one as a vector."""
    return reduce(_kron, arrays, np.ones(1, dtype=np.int64))


def _kron(left: Whole, right: Whole) -> Whole:
    wide = largest_size(left) * largest_size(right) >= FITS
    return np.kron(left.astype(object), right.astype(object)) if wide else np.kron(left, right)
