"""Nested strategies in integers, with their exact cost."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.privacy import NoiseLaw
from residua.strategy.integer_product import GRAINS
from residua.strategy.integers import column_sum, even_bits, refuse_unfit
from residua.strategy.laplace_integers import entry_bits, rounded_factor, whole_multiple
from residua.strategy.nested import NestedStrategy, Term
from residua.strategy.noise_laws import laplace_variance, parameter_of, refuse_wide_laplace
from residua.strategy.product_parts import StrategyFactor

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

SLACK = 2.0**-40  # of the budget, left over so that rounding can never overspend it
LEAST_SHARE = 2**10  # grains of any term


def integer_nested(ideal: NestedStrategy, allowed: Fraction) -> NestedStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    Rows of small whole numbers, such as those of marginals, stay as they are.
    """
    factors = [StrategyFactor((0,), (matrix.shape[1],), matrix) for matrix in ideal.matrices]
    plain = [whole_multiple(factor) for factor in factors]
    whole = ideal.cost()
    costs = [ideal.norm(term) / parameter_of(ideal.law, term.noise_variance) / whole for term in ideal.terms]
    multiplier = 1 if ideal.law == "laplace" else 2 ** even_bits(allowed)
    bits = min(
        _bits(ideal, term, plain, cost * float(allowed), multiplier)
        for term, cost in zip(ideal.terms, costs, strict=True)
    )
    matrices = tuple(
        (rounded_factor(factor, bits) if found is None else found).matrix
        for factor, found in zip(factors, plain, strict=True)
    )
    found = replace(ideal, matrices=matrices, multiplier=multiplier)
    return _shared_out(found, costs, allowed)


def with_budget(strategy: NestedStrategy, allowed: Fraction) -> NestedStrategy:
    """The integer strategy with its costs scaled to use up `allowed`, exactly accounted."""
    whole = sum(term.share or 0 for term in strategy.terms)
    return _shared_out(strategy, [(term.share or 0) / whole for term in strategy.terms], allowed)


def _shared_out(strategy: NestedStrategy, costs: Sequence[float], allowed: Fraction) -> NestedStrategy:
    """The strategy with these parts of the budget, which sum to one, as whole numbers of grains."""
    grain = GRAINS - math.ceil(math.log2(allowed))
    terms = []
    for term, share in zip(strategy.terms, shares_of(costs, allowed, grain), strict=True):
        parameter = Fraction(strategy.exact_norm(term)) * Fraction(2) ** grain / share
        entry = strategy.multiplier * math.prod(
            int(np.abs(matrix).max()) for matrix in strategy.matrices_of(term)
        )
        variance = true_variance(strategy.law, parameter, entry)
        terms.append(replace(term, noise_variance=variance, share=share))
    return replace(strategy, terms=tuple(terms), grain=grain)


def shares_of(costs: Sequence[float], allowed: Fraction, grain: int) -> list[int]:
    """Grains of `2^-grain` for terms that take these parts of the budget; at most `allowed` in all."""
    most = math.floor(allowed * Fraction(2) ** grain)
    room = most - LEAST_SHARE * len(costs)
    return [LEAST_SHARE + math.floor(Fraction(cost * (1 - SLACK)) * room) for cost in costs]


def true_variance(law: NoiseLaw, parameter: Fraction, entry: int) -> float:
    """Variance of integer noise of this exact parameter; refused where 64 bits cannot hold it."""
    if law == "laplace":
        refuse_wide_laplace(parameter)
        return laplace_variance(parameter)
    refuse_unfit(float(parameter), float(parameter), entry)
    return float(parameter) + 1.0 / 12.0


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
