"""A product strategy in integers, with its exact cost."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.strategy.integer_rows import integer_rows
from residua.strategy.integers import even_bits, refuse_large, refuse_unfit
from residua.strategy.laplace_integers import ALL_BITS, NOISE_BITS, laplace_factors
from residua.strategy.noise_laws import laplace_variance, refuse_wide_laplace
from residua.strategy.product import ProductStrategy, StrategyFactor

Integers = NDArray[np.int64]

GRAINS = 62


def integer_product(
    ideal: ProductStrategy, spans: Mapping[int, Integers | None], allowed: Fraction
) -> ProductStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    `spans` has, for factors that do not measure all their cells, integer rows that span what is asked.
    """
    factors = ideal.factors or (StrategyFactor((), (), np.ones((1, 1))),)  # none: the number of records
    rows = math.prod(len(factor.matrix) for factor in factors)
    if ideal.law == "laplace":
        return with_budget(replace(ideal, factors=laplace_factors(factors, spans, allowed)), allowed)
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
    variance = Fraction(strategy.exact_norm) * Fraction(2) ** grain / share  # of Laplace noise, the scale
    entry = math.prod(int(np.abs(factor.matrix).max()) for factor in strategy.factors)
    if strategy.law == "laplace":
        refuse_wide_laplace(variance)
        refuse_large(entry)
        return replace(strategy, noise_variance=laplace_variance(variance), share=share, grain=grain)
    refuse_unfit(float(variance), float(variance), entry)
    return replace(strategy, noise_variance=float(variance) + 1.0 / 12.0, share=share, grain=grain)


def _integer_factor(factor: StrategyFactor, span: Integers | None, bits: int) -> StrategyFactor:
    """The factor in integers of at most so many bits."""
    cells = factor.matrix.shape[1]
    rank = cells if factor.projector is None else round(float(np.trace(factor.projector)))
    rows, _ = integer_rows(factor.matrix, rank, span, bits)
    return replace(factor, matrix=rows.astype(np.float64))
