"""Strategies from lists of blocks, and from strategies that see different domains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import Array, Integers, Subsets
from residua._limits import SPAN_ENTRIES
from residua.answering.blocks import Layer, Placed, Shape, whole_growth, whole_project
from residua.answering.coarsened import QuerySplit
from residua.errors import WorkloadError
from residua.kernel.measurement import column_costs
from residua.linalg.classes import spread_over
from residua.linalg.matrices import Measure
from residua.privacy import NoiseLaw
from residua.privacy.budgets import parameter_of
from residua.schema import Schema
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Combined, Queries
from residua.workload.views import View

Spans = Mapping[int, Integers | None]
"""Integer rows with the row space of shapes, by number, for those that are to be rounded within them."""

Layout = tuple[tuple[int, ...], ...]

Block = tuple[Sequence[Placed], float]
"""Factors of a block, and the variance of the noise on each number that it measures."""


def of_blocks(sizes: Sequence[int], blocks: Sequence[Block], law: NoiseLaw = "gaussian") -> Strategy:
    """The real strategy of these blocks; those with the same matrices are one run (`runs_of`)."""
    shapes = list(dict.fromkeys(factor.shape for factors, _ in blocks for factor in factors))
    numbers = {shape: number for number, shape in enumerate(shapes)}
    norms = norms_of(law, shapes)
    layers = []
    for (layout, own), members in runs_of([factors for factors, _ in blocks]).items():
        subsets = [_subset(blocks[at][0]) for at in members]
        noise = np.array([blocks[at][1] for at in members])
        used = [numbers[shape] for shape in own]
        layers.append(run_layer(law, norms, np.array(subsets, dtype=np.int32), layout, used, noise))
    return Strategy((Domain.of(sizes),), tuple(shapes), tuple(layers), law)


def runs_of(blocks: Sequence[Sequence[Placed]]) -> dict[tuple[Layout, tuple[Shape, ...]], list[int]]:
    """Places of the blocks that have the same matrices in the same layout, run by run."""
    runs: dict[tuple[Layout, tuple[Shape, ...]], list[int]] = {}
    for place, factors in enumerate(blocks):
        subset = _subset(factors)
        layout = tuple(tuple(map(subset.index, factor.attributes)) for factor in factors)
        runs.setdefault((layout, tuple(factor.shape for factor in factors)), []).append(place)
    return runs


def _subset(factors: Sequence[Placed]) -> list[int]:
    return sorted(at for factor in factors for at in factor.attributes)


def norms_of(law: NoiseLaw, shapes: Sequence[Shape]) -> Array:
    """Cost of each shape at noise of parameter 1."""
    return np.array([float(column_costs(law, shape.matrix).max()) for shape in shapes])


def run_layer(
    law: NoiseLaw, norms: Array, subsets: Subsets, layout: Layout, numbers: Sequence[int], noise: Array
) -> Layer:
    """Blocks of the same matrices, those with these numbers, at so much noise."""
    norm = math.prod(norms[list(numbers)].tolist())
    costs = np.array([norm / parameter_of(law, variance) for variance in noise.tolist()])
    used = np.tile(np.array(numbers, dtype=np.int64), (len(noise), 1))
    return Layer(subsets.reshape(len(noise), -1), layout, used, costs, noise)


def strategy_of(
    schema: Schema,
    measured: Sequence[tuple[Mapping[str | tuple[str, ...], ArrayLike], float]],
    noise: NoiseLaw = "gaussian",
) -> Strategy:
    """The real strategy that measures these products: matrices by attribute, and the noise variance of each.

    A matrix is (queries, cells of its attribute), or on several attributes, named by a tuple, row-major over
    their cells. A product over no attribute measures the number of records.

    >>> schema = Schema.of_sizes([2, 3])
    >>> strategy_of(schema, [({"a0": np.eye(2), "a1": np.ones((1, 3))}, 4.0), ({}, 2.0)]).cost()
    0.75
    """
    blocks: list[Block] = []
    for matrices, variance in measured:
        factors = []
        for names, matrix in matrices.items():
            attributes = tuple(map(schema.position, (names,) if isinstance(names, str) else names))
            sizes = [schema.sizes[at] for at in attributes]
            rows = np.asarray(matrix, dtype=np.float64)
            if rows.ndim != 2 or rows.shape[1] != math.prod(sizes) or not np.isfinite(rows).all():
                raise WorkloadError(
                    f"the matrix on {names!r} needs {math.prod(sizes):,} columns of finite numbers, and has "
                    f"the shape {rows.shape}"
                )
            factors.append(Placed(attributes, Shape.of(sizes, rows)))
        if not 0 < variance < math.inf:
            raise WorkloadError(f"a noise variance is a positive number, not {variance!r}")
        blocks.append((factors, float(variance)))
    return of_blocks(schema.sizes, blocks, noise)


def seen_by(
    parts: Sequence[tuple[Strategy, View, Spans]], query_splits: Sequence[QuerySplit] = ()
) -> tuple[Strategy, dict[int, Integers | None]]:
    """Strategies for the schema as views show it, as one; and the spans of all their shapes."""
    domains: list[Domain] = []
    shapes: list[Shape] = []
    layers: list[Layer] = []
    spans: dict[int, Integers | None] = {}
    for number, (strategy, view, own) in enumerate(parts):
        start = len(shapes)
        (domain,) = strategy.domains
        domains.append(replace(domain, view=view))
        shapes += strategy.shapes
        spans |= {start + at: span for at, span in own.items()}
        layers += [replace(each, shapes=each.shapes + start, domain=number) for each in strategy.layers]
    first = parts[0][0]
    whole = Strategy(
        tuple(domains), tuple(shapes), tuple(layers), first.law, first.grain, tuple(query_splits)
    )
    return whole, spans


FRACTION_BITS = 12  # binary digits after the point that a query may have and still be taken exactly
LARGEST = 2**62  # whole numbers on the way
EXACT = 2**50  # whole numbers that floats hold


def integer_span(queries: Queries) -> Integers | None:
    """Integer rows with the row space of the queries, or None if there are none with small entries."""
    if len(queries.root()) == queries.cells:
        return np.eye(queries.cells, dtype=np.int64)
    if queries.count * queries.cells > SPAN_ENTRIES:
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
        own = [each.measure(measure) for each, measure in zip(queries.partitions, measures, strict=True)]
        rows = centred_span(queries.coarse, kept, own)
        if rows is None:
            return None
        partitions = [queries.partitions[place] for place in kept]
        tensor = rows.reshape(len(rows), *(each.count for each in partitions))
        return np.asarray(spread_over(tensor, partitions, first=1).reshape(len(rows), -1))
    span = integer_span(queries)
    if span is None or whole_growth(measures) * int(np.abs(span).max()) >= LARGEST:
        return None
    tensor = whole_project(span.reshape(len(span), *queries.sizes), measures, kept)
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


def integer_kernel(vector: tuple[int, ...]) -> Integers:
    """A basis, with short rows, of all integer rows z with `z @ vector == 0`, (n - 1, n); vector is not zero.

    Equal entries differ by one row each from the first of them; for those that are left, one of a kind, by
    lattice reduction of `[I | c v]` with c so large that other reduced rows come last (claim I-007).
    """
    from flint import fmpz_mat

    values, first, whose = np.unique(np.array(vector), return_index=True, return_inverse=True)
    again = np.setdiff1d(np.arange(len(vector)), first)
    same = np.zeros((len(again), len(vector)), dtype=np.int64)
    same[np.arange(len(again)), again] = 1
    same[np.arange(len(again)), first[whose[again]]] -= 1
    size, penalty = len(values), 10**6 * int(np.abs(values).max())
    start = [[int(row == at) for at in range(size)] + [int(values[row]) * penalty] for row in range(size)]
    reduced = fmpz_mat(start).lll()
    rows = [[int(reduced[row, at]) for at in range(size + 1)] for row in range(size)]
    found = np.array([row[:size] for row in rows if row[size] == 0], dtype=np.int64).reshape(-1, size)
    if len(found) != size - 1:
        raise ArithmeticError(f"lattice reduction found {len(found)} of {size - 1} rows")
    basis = np.zeros((len(found), len(vector)), dtype=np.int64)
    basis[:, first] = found
    return np.concatenate([same, basis])
