"""Residual coordinates: a query as one vector for each subset of its attributes (claim O-001).

For one attribute of n cells with weights p that sum to 1, let E be orthonormal columns that sum to zero,
shape (n, n - 1), and `F = E'(I - p 1')`. Then `I = p 1' + E F`: a query q has the coordinates `q p` and
`q E`, and counts x the coordinates `1'x` and `F x`. On several attributes coordinates are Kronecker products.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import TOUCHED, WHOLE_TOUCHED, Shape
from residua.linalg.centring import Measure

Array = NDArray[np.float64]

Places = tuple[int, ...]
"""Axes of a block or table, ascending; as a residual, those along which something is centred."""


def contrasts(size: int) -> Array:
    """E, orthonormal columns that sum to zero, shape (size, size - 1).

    >>> contrasts(3).shape, float(np.abs(contrasts(3).sum(axis=0)).max().round(12))
    ((3, 2), 0.0)
    """
    steps = np.arange(1, size)
    scale = 1.0 / np.sqrt(steps * (steps + 1.0))
    columns = np.triu(np.ones((size, size - 1))) * scale
    columns[steps, steps - 1] = -steps * scale
    return columns


def subsets_of(places: Sequence[int]) -> Iterator[Places]:
    """Every subset, smaller ones first."""
    for size in range(len(places) + 1):
        yield from combinations(places, size)


def coordinates(rows: Array, sizes: Sequence[int], measures: Sequence[Measure], kept: Sequence[int]) -> Array:
    """Coordinates of rows in the residual on the axes `kept`: (k, cells) to (k, product of n - 1)."""
    tensor = rows.reshape(len(rows), *sizes)
    for axis in reversed(range(len(sizes))):
        weights = contrasts(sizes[axis]) if axis in kept else measures[axis].vector()[:, None]
        tensor = np.moveaxis(np.tensordot(tensor, weights, axes=(1 + axis, 0)), -1, 1 + axis)
    return np.asarray(tensor.reshape(len(rows), -1))


def dimension(sizes: Sequence[int]) -> int:
    """Dimension of the residual on attributes of these sizes."""
    return math.prod(size - 1 for size in sizes)


def lifted(values: Array, sizes: Sequence[int]) -> Array:
    """Centred cells from coordinates of counts: (k, product of n - 1) to (k, sizes...)."""
    tensor = values.reshape(len(values), *(size - 1 for size in sizes))
    for axis, size in enumerate(sizes):
        tensor = np.moveaxis(np.tensordot(tensor, contrasts(size), axes=(1 + axis, 1)), -1, 1 + axis)
    return np.asarray(tensor)


def touched(shape: Shape, measures: Sequence[Measure], *, whole: bool) -> frozenset[Places]:
    """The residuals, as sets of axes of the shape, in which some row has a part that is not zero."""
    if shape.is_centred(measures, whole=whole):
        return frozenset([tuple(range(len(shape.sizes)))])
    return frozenset(
        kept
        for kept in subsets_of(range(len(shape.sizes)))
        if all(shape.sizes[axis] > 1 for axis in kept) and _has_part(shape, measures, kept, whole=whole)
    )


def _has_part(shape: Shape, measures: Sequence[Measure], kept: Places, *, whole: bool) -> bool:
    lengths = np.linalg.norm(shape.matrix, axis=1)
    parts = np.linalg.norm(coordinates(shape.matrix, shape.sizes, measures, kept), axis=1)
    if np.any(parts > (WHOLE_TOUCHED if whole else TOUCHED) * lengths):
        return True
    gone = [axis for axis in range(len(shape.sizes)) if axis not in kept]
    return whole and bool(np.any(_whole_part(shape, gone, kept, measures)))


def _whole_part(
    shape: Shape, summed: Sequence[int], kept: Sequence[int], measures: Sequence[Measure]
) -> NDArray[Any]:
    """Whole multiples of the rows' means along some axes, centred along the others, in exact arithmetic."""
    growth = math.prod(2 * sum(map(abs, measure.whole_numbers())) for measure in measures)
    tensor = shape.whole_rows(growth)
    for axis in sorted({*summed, *kept}, reverse=True):
        weights = np.array(measures[axis].whole_numbers(), dtype=tensor.dtype)
        sums = np.tensordot(tensor, weights, axes=(1 + axis, 0))
        tensor = weights.sum() * tensor - np.expand_dims(sums, 1 + axis) if axis in kept else sums
    return np.asarray(tensor)
