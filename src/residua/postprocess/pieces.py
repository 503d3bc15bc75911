"""Tables in pieces: one for each subset of attributes, with zero sums along each of them.

A table is the sum of its pieces, each spread evenly along the other attributes; the pieces of a table and
those of its margins are the same arrays. So tables built from one family of pieces agree on every margin
they share, whether it is published or not (claim P-101).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def centred(cells: Array, *, leading: int = 0) -> Array:
    """The piece on all attributes of tables (leading..., sizes...): zero sums along every axis."""
    for axis in range(leading, cells.ndim):
        cells = cells - cells.mean(axis=axis, keepdims=True)
    return cells


def piece(cells: Array, kept: Sequence[int]) -> Array:
    """The piece on the places `kept` of stacked tables (tables, sizes...)."""
    gone = tuple(1 + axis for axis in range(cells.ndim - 1) if axis not in kept)
    return centred(cells.sum(axis=gone), leading=1)


def spread(pieces: Array, kept: Sequence[int], sizes: Sequence[int]) -> Array:
    """Pieces on the places `kept`, (tables, sizes there...), as they stand in tables of these sizes.

    The result broadcasts: it has length one along the other places.
    """
    shape = [size if axis in kept else 1 for axis, size in enumerate(sizes)]
    others = math.prod(size for axis, size in enumerate(sizes) if axis not in kept)
    return np.asarray(pieces.reshape(len(pieces), *shape) / others)
