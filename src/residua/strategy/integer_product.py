"""A product strategy in integers, with its exact cost."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.strategy.integers import (
    FILL,
    MOST_FILLED,
    combined_rows,
    enough_bits,
    even_bits,
    refuse_unfit,
    rounded_rows,
)
from residua.strategy.lattice import short_basis
from residua.strategy.product import ProductStrategy, StrategyFactor

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

ALL_BITS = 36  # of the entries of a product: leaves room for a hundred million records in 64 bits
FEW_BITS = 20  # of the entries of a factor; more only where these change what is measured
NOISE_BITS = 52  # the standard deviation of the noise stays below 2 to this
GRAINS = 62


def integer_product(
    ideal: ProductStrategy, spans: Mapping[int, Integers | None], allowed: Fraction
) -> ProductStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    `spans` has, for factors that do not measure all their cells, integer rows that span what is asked.
    """
    factors = ideal.factors or (StrategyFactor((), (), np.ones((1, 1))),)  # none: the number of records
    rows = math.prod(len(factor.matrix) for factor in factors)
    room = NOISE_BITS + 0.5 * math.log2(allowed) - 0.5 * math.log2(rows)
    bits = max(1, min(ALL_BITS, int(room)) // len(factors))
    first, *others = (_integer_factor(factor, spans.get(at), bits) for at, factor in enumerate(factors))
    norm = replace(ideal, factors=(first, *others)).exact_norm
    multiple = 2 ** max(0, even_bits(allowed) - norm.bit_length() // 2)
    return with_budget(
        replace(ideal, factors=(replace(first, matrix=multiple * first.matrix), *others)), allowed
    )


def with_budget(strategy: ProductStrategy, allowed: Fraction) -> ProductStrategy:
    """The integer strategy with its noise scaled to use up `allowed`, exactly accounted."""
    grain = GRAINS - math.ceil(math.log2(allowed))
    share = math.floor(allowed * Fraction(2) ** grain)
    variance = Fraction(strategy.exact_norm) * Fraction(2) ** grain / share
    entry = math.prod(int(np.abs(factor.matrix).max()) for factor in strategy.factors)
    refuse_unfit(float(variance), float(variance), entry)
    return replace(strategy, noise_variance=float(variance) + 1.0 / 12.0, share=share, grain=grain)


def _integer_factor(factor: StrategyFactor, span: Integers | None, bits: int) -> StrategyFactor:
    """The factor in integers of at most so many bits."""
    matrix, cells = factor.matrix, factor.matrix.shape[1]
    rank = cells if factor.projector is None else round(float(np.trace(factor.projector)))
    if rank < cells and span is not None:
        basis = short_basis(span)
        rows = enough_bits(lambda b: combined_rows(matrix, basis, b), matrix, rank, few=FEW_BITS, most=bits)
    else:
        if rank < cells:
            matrix = _filled(matrix, cells, rank)
        rows = enough_bits(lambda b: rounded_rows(matrix, b), matrix, cells, few=FEW_BITS, most=bits)
    return replace(factor, matrix=rows.astype(np.float64))


def _filled(matrix: Array, cells: int, rank: int) -> Array:
    """The strategy with every other direction added, measured with very little of the privacy (I-004)."""
    if cells > MOST_FILLED:
        raise Infeasible(
            "queries that are not small multiples of whole numbers need every direction measured, and "
            f"{cells:,} cells are more than {MOST_FILLED:,}; round the queries, or use coarser attributes"
        )
    extra = np.linalg.svd(matrix)[2][rank:]
    return np.concatenate([matrix, math.sqrt(FILL) * extra])
