"""Overlapping blocks in integers: every block keeps exactly its row space (claim O-005)."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.strategy.blocks import Shape
from residua.strategy.integer_blocks import in_integers, integer_shape, with_budget
from residua.strategy.integer_rows import integer_rows
from residua.strategy.overlap.kinds import loose_shapes
from residua.strategy.overlap.strategy import OverlapStrategy
from residua.strategy.overlap.system import Memory

Integers = NDArray[np.int64]


def integer_overlap(
    ideal: OverlapStrategy, spans: Mapping[int, Integers | None], allowed: Fraction
) -> OverlapStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    `spans` has integer rows with the row space of a shape: for shapes that are not centred and do not measure
    all their cells, and for centred ones as `integer_blocks` has them.
    """
    loose = loose_shapes(ideal)

    def integer_shape_of(number: int, bits: int, few: int) -> Shape:
        shape, span = ideal.shapes[number], spans.get(number)
        if number not in loose:
            return integer_shape(shape, span, bits, few)
        rows, rank = integer_rows(shape.matrix, shape.rank, span, bits)
        return Shape(shape.sizes, rows.astype(np.float64), rank)

    fresh = replace(ideal, memory=Memory())  # nothing known of real shapes serves the integer ones
    return with_budget(in_integers(fresh, allowed, integer_shape_of), allowed)
