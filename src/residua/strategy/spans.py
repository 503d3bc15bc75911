"""Integer rows that span exactly what queries ask, before and after centring (claim I-003)."""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure
from residua.linalg.classes import spread_over
from residua.linalg.lattice import integer_kernel
from residua.workload import Combined, Queries

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

FRACTION_BITS = 12  # binary digits after the point that a query may have and still be taken exactly
LARGEST = 2**62  # whole numbers on the way
EXACT = 2**50  # whole numbers that floats hold
MOST_ROWS = 20_000_000  # entries of a query matrix that is listed


def integer_span(queries: Queries) -> Integers | None:
    """Integer rows with the row space of the queries, or None if there are none with small entries."""
    if len(queries.root()) == queries.cells:
        return np.eye(queries.cells, dtype=np.int64)
    if queries.count * queries.cells > MOST_ROWS:
        return None
    rows = queries.matrix()
    for bits in range(FRACTION_BITS + 1):
        scaled = rows * 2.0**bits
        if np.array_equal(scaled, np.rint(scaled)):
            return scaled.astype(np.int64) if float(np.abs(scaled).max()) < 2**20 else None
    return None


def centred_span(queries: Queries, kept: Sequence[int], measures: Sequence[Measure]) -> Integers | None:
    """Integer rows with the row space of the queries centred along the places `kept`.

    Weights of a measure are multiples of one over the sum of its whole numbers (over the number of cells for
    the uniform one), and so are means and centred rows: that many times them is whole.
    """
    if isinstance(queries, Combined):
        own = [each.measure(measure) for each, measure in zip(queries.kinds, measures, strict=True)]
        rows = centred_span(queries.coarse, kept, own)
        if rows is None:
            return None
        kinds = [queries.kinds[place] for place in kept]
        tensor = rows.reshape(len(rows), *(each.count for each in kinds))
        return np.asarray(spread_over(tensor, kinds, first=1).reshape(len(rows), -1))
    span = integer_span(queries)
    if span is None:
        return None
    growth = math.prod(2 * sum(map(abs, measure.whole_numbers())) for measure in measures)
    if growth * int(np.abs(span).max()) >= LARGEST:
        return None
    tensor = span.reshape(len(span), *queries.sizes)
    for axis in reversed(range(len(measures))):  # as `project`, in whole numbers
        weights = np.array(measures[axis].whole_numbers())
        sums = np.tensordot(tensor, weights, axes=(1 + axis, 0))
        tensor = weights.sum() * tensor - np.expand_dims(sums, 1 + axis) if axis in kept else sums
    return np.asarray(tensor.reshape(len(span), -1), dtype=np.int64)


def whole_span(measures: Sequence[Measure]) -> Integers:
    """Integer rows that span everything that is centred along every axis."""
    basis = product_span([integer_kernel(measure.whole_numbers()) for measure in measures])
    if basis is None:
        raise ArithmeticError("what is centred has no basis of small whole numbers; use smaller weights")
    return basis


def product_span(spans: Sequence[Integers | None]) -> Integers | None:
    """Kronecker product of spans, the last one fastest; None if one is missing or the numbers get large."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or math.prod(int(np.abs(span).max()) for span in known) >= EXACT:
        return None
    return np.asarray(reduce(np.kron, known, np.ones((1, 1), dtype=np.int64)), dtype=np.int64)
