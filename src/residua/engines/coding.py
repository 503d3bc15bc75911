"""From coded columns to blocks for the counting loop."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.engines.kernel import Block, narrowest


def block_of(codes: Sequence[NDArray[Any]], sizes: Sequence[int]) -> Block:
    """The codes in the narrowest types, without the records that have a negative one.

    >>> block_of([np.array([0, -1, 2], np.int32), np.array([1, 1, 0], np.uint8)], (3, 2))
    [array([0, 2], dtype=uint8), array([1, 0], dtype=uint8)]
    """
    signed = [each for each in codes if each.dtype.kind == "i"]
    if any((each < 0).any() for each in signed):
        kept = np.logical_and.reduce([each >= 0 for each in signed])
        codes = [each[kept] for each in codes]
    return [each.astype(narrowest(size), copy=False) for each, size in zip(codes, sizes, strict=True)]
