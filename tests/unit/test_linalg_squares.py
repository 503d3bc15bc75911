"""Squares over the cells of several attributes, against explicit summing-out matrices."""

from itertools import permutations
from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.linalg.grams import sum_out
from residua.linalg.matrices import join, spread

Array = NDArray[np.float64]

SIZES = (2, 3, 4)
KEPT = [order for count in range(4) for order in permutations(range(3), count)]


def summing_out(sizes: tuple[int, ...], keep: tuple[int, ...]) -> Array:
    """E, shape (cells kept, cells), by listing every cell."""
    matrix = np.zeros((prod(sizes[axis] for axis in keep), prod(sizes)))
    for cell in np.ndindex(*sizes):
        kept = [cell[axis] for axis in keep]
        row = int(np.ravel_multi_index(kept, [sizes[axis] for axis in keep])) if keep else 0
        matrix[row, np.ravel_multi_index(cell, sizes)] = 1.0
    return matrix


@pytest.mark.parametrize("keep", KEPT)
def test_summing_out_is_a_product_with_the_summing_matrix(keep: tuple[int, ...]) -> None:
    square = np.random.default_rng(1).standard_normal((24, 24))
    E = summing_out(SIZES, keep)
    np.testing.assert_allclose(sum_out(square, SIZES, keep), E @ square @ E.T, atol=1e-12)


@pytest.mark.parametrize("places", KEPT)
def test_spreading_rows_is_a_product_with_the_summing_matrix(places: tuple[int, ...]) -> None:
    sizes = [SIZES[place] for place in places]
    rows = np.random.default_rng(2).standard_normal((5, prod(sizes)))
    np.testing.assert_array_equal(spread(rows, sizes, places, SIZES), rows @ summing_out(SIZES, places))


def test_spread_rows_of_a_strategy_have_the_summed_out_covariance() -> None:
    square = np.random.default_rng(3).standard_normal((24, 24))
    rows = np.random.default_rng(4).standard_normal((3, 8))
    wide = spread(rows, [4, 2], [2, 0], SIZES)
    np.testing.assert_allclose(
        wide @ square @ wide.T, rows @ sum_out(square, SIZES, (2, 0)) @ rows.T, atol=1e-12
    )


def test_joining_is_the_kronecker_product_with_the_last_factor_fastest() -> None:
    draw = np.random.default_rng(5)
    a, b, c = draw.standard_normal((2, 3)), draw.standard_normal((1, 2)), draw.standard_normal((3, 1))
    joined = join([a, b, c])
    assert joined.shape == (6, 6)
    assert joined[0 * 3 + 2, 2 * 2 + 1] == a[0, 2] * b[0, 1] * c[2, 0]
    np.testing.assert_array_equal(joined, np.kron(np.kron(a, b), c))
    np.testing.assert_array_equal(join([]), [[1.0]])
