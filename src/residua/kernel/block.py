"""What one block costs a record of each cell, each pair of cells, and the dearest of them: exactly.

Sums and products of whole numbers never wrap around: they are of 64 bits where those will do, else objects.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Integers
from residua.kernel.measurement import Measurement, largest_size
from residua.privacy import NoiseLaw

Whole = NDArray[Any]
"""Whole numbers, exact: int64, or objects where those would not do."""

GRAIN_BITS = 61  # of the whole cost in grains: their sums fit 64 bits
FITS = 2**61  # in absolute value: four such numbers add up in 64 bits
EXACT_BITS = 52  # of whole numbers that floats hold, sums of products included
COMPARED = 100_000_000  # numbers gone through to compare the columns of one block with Laplace noise
CHUNK = 2**20  # entries of a Gram matrix held at once
FRONT = 2**9  # pairs of cells that none outdoes; where they are more, one bounds them all


def cost_power(law: NoiseLaw) -> int:
    """The power of a measured number that costs go with."""
    return 1 if law == "laplace" else 2


def column_costs(law: NoiseLaw, matrix: Whole) -> Whole:
    """Cost of a record of each cell at noise of parameter 1, (cells,): sums of squares, or of sizes.

    Exact for whole numbers; real matrices, of strategies that are not rounded yet, are added up in floats.
    """
    if matrix.dtype == np.float64:
        real = abs(matrix).sum(axis=0) if law == "laplace" else np.einsum("ri,ri->i", matrix, matrix)
        return np.asarray(real)
    power = cost_power(law)
    wide = largest_size(matrix) ** power * len(matrix) >= FITS
    return np.asarray((abs(matrix.astype(object) if wide else matrix) ** power).sum(axis=0))


def matrix_cost(law: NoiseLaw, matrix: Integers) -> int:
    """Cost of a record of the dearest cell at noise of parameter 1."""
    return int(column_costs(law, matrix).max())


def block_cost(measurement: Measurement, *, replaced: bool) -> int:
    """What a block costs the record that it costs most, at noise of parameter 1 (claims K-002, K-003).

    For replacing a record, twice the cost of adding one where Laplace noise is on too many numbers.
    """
    matrices, law = measurement.matrices, measurement.law
    largest = math.prod(matrix_cost(law, matrix) for matrix in matrices)
    if replaced and law == "gaussian":
        largest = dearest_pair(matrices)
    elif replaced:
        largest = int(_differences(matrices).max()) if _comparable(measurement) else 2 * largest
    return largest * int(measurement.multiplier ** cost_power(law))


def costs_by_cell(measurement: Measurement, *, replaced: bool) -> Whole:
    """Cost of a record of each cell, (cells,), or of each pair of cells, (cells, cells), at parameter 1.

    The multiplier is left out. Pairs are bounded by the sum of the two where `block_cost` does so.
    """
    law, matrices = measurement.law, measurement.matrices
    costs = kron(column_costs(law, matrix) for matrix in matrices)
    if not replaced:
        return costs
    if law == "gaussian":
        grams = kron(gram_rows(matrix, slice(None)) for matrix in matrices)
        return np.asarray(costs[:, None] + costs[None, :] - 2 * grams)
    if _comparable(measurement):
        return _differences(matrices)
    apart = costs[:, None] + costs[None, :]
    np.fill_diagonal(apart, 0)
    return np.asarray(apart)


def dearest_pair(matrices: Iterable[Integers]) -> int:
    """Largest squared distance of two columns of a Kronecker product.

    Of two cells `i` and `j` it is `a + b - 2 g` with `a` and `b` the squared lengths of their columns and `g`
    the product of these, and all three are products over the factors. So only such triples of a factor matter
    that no other outdoes in `a`, `b` and `-g`, or in `a`, `b` and `g`: the longest column with itself.
    """
    front, longest = np.ones((1, 3), dtype=object), 1
    for matrix in matrices:
        own, length = _front(matrix), matrix_cost("gaussian", matrix)
        ours = np.concatenate([front, [[longest] * 3]])
        theirs = np.concatenate([own, [[length] * 3]])
        front = _undominated((ours[:, None] * theirs[None]).reshape(-1, 3))
        longest *= length
    return max(int(a + b - 2 * g) for a, b, g in front)


def _front(matrix: Integers) -> Whole:
    """The triples of a matrix that none outdoes in `a`, `b` and `-g`, (count, 3)."""
    lengths = column_costs("gaussian", matrix)
    order = np.argsort(-lengths, kind="stable")
    found = []
    step = max(1, CHUNK // len(lengths))
    for start in range(0, len(lengths), step):
        products = gram_rows(matrix, slice(start, start + step))[:, order]
        least = np.minimum.accumulate(products, axis=1)
        smaller = np.ones(products.shape, dtype=bool)  # than those with all longer columns
        smaller[:, 1:] = products[:, 1:] < least[:, :-1]
        one, other = np.nonzero(smaller)
        found.append(np.stack([lengths[start + one], lengths[order[other]], products[one, other]], axis=1))
    return _undominated(np.concatenate(found))


def _undominated(triples: Whole) -> Whole:
    """Those that none outdoes in `a`, `b` and `-g`; where they are many, one that outdoes them all."""
    left = triples[np.argsort(triples[:, 2], kind="stable")]
    left = left[np.argsort(-(left[:, 0] + left[:, 1]), kind="stable")]
    kept = []
    while len(left):
        kept.append(left[0])
        left = left[(left[:, 0] > left[0, 0]) | (left[:, 1] > left[0, 1]) | (left[:, 2] < left[0, 2])]
        if len(kept) > FRONT:
            return np.array([[*map(int, triples[:, :2].max(axis=0)), int(triples[:, 2].min())]], dtype=object)
    return np.array(kept, dtype=object)


def _comparable(measurement: Measurement) -> bool:
    """Whether a block with Laplace noise has so few numbers that all its columns are compared."""
    return measurement.rows * measurement.cells**2 <= COMPARED


def _differences(matrices: Iterable[Integers]) -> Whole:
    """Sum of the absolute differences of each two columns of a Kronecker product, (cells, cells)."""
    columns = np.ascontiguousarray(np.atleast_2d(kron(matrices)).T)
    if 2 * largest_size(columns) * columns.shape[1] >= FITS:
        columns = columns.astype(object)
    return np.stack([abs(columns - column).sum(axis=1) for column in columns])


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


def grain_of(whole: Fraction) -> Fraction:
    """A grain so small that it takes many, and so large that `whole` is less than 2^GRAIN_BITS of them."""
    bits = whole.numerator.bit_length() - whole.denominator.bit_length() + 1  # whole < 2^bits
    return Fraction(2) ** (bits - GRAIN_BITS)


def kron(arrays: Iterable[Whole]) -> Whole:
    """Kronecker product of vectors or matrices of whole numbers; of none, the number one as a vector."""
    found: Whole = np.ones(1, dtype=np.int64)
    for each in arrays:
        wide = largest_size(found) * largest_size(each) >= FITS
        found = np.kron(found.astype(object), each.astype(object)) if wide else np.kron(found, each)
    return found
