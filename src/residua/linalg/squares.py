"""Square matrices indexed by cells of several attributes: reorder, sum out, join."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAME = 1e-12  # relative difference that is rounding


def sum_out(square: Array, sizes: Sequence[int], keep: Sequence[int]) -> Array:
    """`E square E'`, where E sums out the axes not in `keep` and puts the others in that order.

    `square` is (cells, cells) with cells row-major over `sizes`; `keep` are positions in `sizes`.
    """
    width = len(sizes)
    gone = [axis for axis in range(width) if axis not in keep]
    tensor = square.reshape((*sizes, *sizes))
    tensor = tensor.sum(axis=tuple(gone) + tuple(width + axis for axis in gone))
    left = [axis for axis in range(width) if axis in keep]
    order = [left.index(axis) for axis in keep]
    tensor = tensor.transpose((*order, *(len(order) + axis for axis in order)))
    cells = int(np.prod([sizes[axis] for axis in keep], dtype=np.int64))
    return np.asarray(tensor.reshape(cells, cells))


def spread(rows: Array, sizes: Sequence[int], places: Sequence[int], width: Sequence[int]) -> Array:
    """Rows over some attributes as rows over more: `rows E`, with E summing out the others.

    `rows` is (k, cells) over attributes of `sizes`, which sit at positions `places` of the wider product
    with sizes `width`. The result is (k, product of width).
    """
    count = len(rows)
    order = np.argsort(places)
    tensor = rows.reshape(count, *sizes).transpose(0, *(1 + order))
    shape = [width[axis] if axis in places else 1 for axis in range(len(width))]
    tensor = np.broadcast_to(tensor.reshape(count, *shape), (count, *width))
    return np.ascontiguousarray(tensor).reshape(count, math.prod(width))


def unchanged_by_swap(rows: Array, size: int) -> bool:
    """Whether every row over the cells of two attributes of one size stays as it is when they are swapped."""
    swapped = rows.reshape(-1, size, size).transpose(0, 2, 1).reshape(rows.shape)
    return bool(np.abs(swapped - rows).max(initial=0.0) <= SAME * np.abs(rows).max(initial=0.0))


def join(matrices: Iterable[Array]) -> Array:
    """Kronecker product of matrices, the last one fastest; of none, the number one."""
    product = np.ones((1, 1))
    for matrix in matrices:
        product = np.asarray(np.kron(product, matrix), dtype=np.float64)
    return product


def along_axes(values: NDArray[Any], matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Kronecker product of the matrices applied to each row of `values`.

    Each step multiplies the last axis and moves it to the front, so that every product is one matrix product.
    """
    blocks = len(values)
    tensor = values.reshape(blocks, -1)
    for matrix in reversed(matrices):
        flat = tensor.reshape(-1, matrix.shape[1]) @ matrix.T
        tensor = flat.reshape(blocks, -1, len(matrix)).transpose(0, 2, 1).reshape(blocks, -1)
    return tensor
