"""Nested strategies in integers, with their exact cost."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from residua.strategy.integers import column_sum, even_bits
from residua.strategy.laplace_integers import entry_bits, rounded_factor, whole_multiple
from residua.strategy.nested import NestedStrategy, Term
from residua.strategy.product_parts import StrategyFactor
from residua.strategy.term_integers import parts_of_cost, shared_out


def integer_nested(ideal: NestedStrategy, allowed: Fraction) -> NestedStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    Rows of small whole numbers, such as those of marginals, stay as they are.
    """
    factors = [StrategyFactor((0,), (matrix.shape[1],), matrix) for matrix in ideal.matrices]
    plain = [whole_multiple(factor) for factor in factors]
    parts = parts_of_cost(ideal)
    multiplier = 1 if ideal.law == "laplace" else 2 ** even_bits(allowed)
    bits = min(
        _bits(ideal, term, plain, part * float(allowed), multiplier)
        for term, part in zip(ideal.terms, parts, strict=True)
    )
    matrices = tuple(
        (rounded_factor(factor, bits) if found is None else found).matrix
        for factor, found in zip(factors, plain, strict=True)
    )
    return shared_out(replace(ideal, matrices=matrices, multiplier=multiplier), parts, allowed)


def _bits(
    ideal: NestedStrategy, term: Term, plain: Sequence[StrategyFactor | None], cost: float, multiplier: int
) -> int:
    """The most bits of a rounded matrix's entries that leave room for the noise of this term."""
    mine = [ideal.chosen[at] for at in term.attributes]
    known = math.prod(
        column_sum(found.matrix.astype(np.int64)) for at in mine if (found := plain[at]) is not None
    )
    rounded = [at for at in mine if plain[at] is None]
    rows = math.prod(len(ideal.matrices[at]) for at in rounded)
    return entry_bits(ideal.law, cost, rows=rows, known=known, factors=len(rounded), multiplier=multiplier)
