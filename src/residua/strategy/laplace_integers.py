"""Matrices in integers for Laplace noise: small whole numbers stay as they are, others are rounded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw
from residua.strategy.integer_rows import FEW_BITS, integer_rows
from residua.strategy.integers import column_sum, enough_bits, scale_of
from residua.strategy.noise_laws import LARGEST_SCALE
from residua.strategy.product_parts import StrategyFactor

Integers = NDArray[np.int64]

ALL_BITS = 36  # of the entries of a product: leaves room for a hundred million records in 64 bits
NOISE_BITS = 52  # the standard deviation of Gaussian noise stays below 2 to this
SMALL = 2**10  # entries of a matrix that is measured as it is
WHOLE = 1e-9  # how far from a whole number a multiple of such an entry may be, by rounding


def laplace_factors(
    factors: Sequence[StrategyFactor], spans: Mapping[int, Integers | None], allowed: Fraction
) -> tuple[StrategyFactor, ...]:
    """The factors in integers for Laplace noise.

    Rows of small whole numbers stay as they are: integer noise on plain counts is narrower than on multiples
    of them (claim H-002). Others are rounded to as many bits as the noise leaves room for.
    """
    plain = [whole_multiple(factor) for factor in factors]
    rounded = [at for at, found in enumerate(plain) if found is None]
    rows = math.prod(len(factors[at].matrix) for at in rounded)
    known = math.prod(column_sum(found.matrix.astype(np.int64)) for found in plain if found is not None)
    bits = entry_bits("laplace", float(allowed), rows=rows, known=known, factors=len(rounded))
    return tuple(
        found
        if found is not None
        else _within_span(factor, spans[at], bits)
        if at in spans
        else rounded_factor(factor, bits)
        for at, (factor, found) in enumerate(zip(factors, plain, strict=True))
    )


def entry_bits(
    law: NoiseLaw, cost: float, *, rows: int, known: int, factors: int, multiplier: int = 1
) -> int:
    """The most bits of each rounded factor's entries that leave room for the noise of a product.

    `rows` are those of the rounded factors together, `known` the column sum of those that are not rounded,
    and all of it is multiplied by `multiplier`.
    """
    if law == "laplace":
        room = math.log2(LARGEST_SCALE) + math.log2(cost) - math.log2(rows) - math.log2(known)
    else:
        room = NOISE_BITS + 0.5 * (math.log2(cost) - math.log2(rows) - math.log2(known))
    room = min(float(ALL_BITS), room) - math.log2(multiplier)
    return max(1, int(room) // max(factors, 1))


def rounded_factor(factor: StrategyFactor, bits: int) -> StrategyFactor:
    """The factor in integers of at most so many bits, entry by entry, so that equal columns stay equal.

    The rows then answer the same queries if they have full rank on the kinds of columns (claim H-005); where
    they have not, every other direction is measured as well (claim I-004).
    """
    kinds = np.unique(factor.matrix[:, np.abs(factor.matrix).max(axis=0) > 0], axis=1).shape[1]
    rank = int(np.linalg.matrix_rank(factor.matrix))
    if rank < kinds:
        return replace(factor, matrix=integer_rows(factor.matrix, rank, None, bits)[0].astype(np.float64))

    def entries(fit: int) -> Integers:
        return np.rint(factor.matrix * scale_of(factor.matrix, fit)).astype(np.int64)

    rows = enough_bits(entries, factor.matrix, kinds, few=FEW_BITS, most=bits)
    return replace(factor, matrix=rows.astype(np.float64))


def whole_multiple(factor: StrategyFactor) -> StrategyFactor | None:
    """The factor with its rows multiplied so that all entries are small whole numbers, or None."""
    sizes = np.abs(factor.matrix[factor.matrix != 0])
    rows = factor.matrix / sizes.min()
    whole = np.rint(rows)
    if np.abs(whole).max() > SMALL or np.abs(rows - whole).max() > WHOLE:
        return None
    return replace(factor, matrix=whole)


def _within_span(factor: StrategyFactor, span: Integers | None, bits: int) -> StrategyFactor:
    """The factor in integers that span what is asked of it, and no more."""
    cells = factor.matrix.shape[1]
    rank = cells if factor.projector is None else round(float(np.trace(factor.projector)))
    return replace(factor, matrix=integer_rows(factor.matrix, rank, span, bits)[0].astype(np.float64))
