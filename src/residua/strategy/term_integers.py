"""Shares of the privacy in whole grains for strategies of several terms, and the integer noise they buy."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from residua.privacy import NoiseLaw
from residua.strategy.integer_product import GRAINS
from residua.strategy.integers import refuse_large, refuse_unfit
from residua.strategy.nested import NestedStrategy
from residua.strategy.noise_laws import laplace_variance, refuse_wide_laplace
from residua.strategy.terms import Termwise
from residua.strategy.union import UnionStrategy

Strategy = TypeVar("Strategy", NestedStrategy, UnionStrategy)

SLACK = 2.0**-40  # of the budget, left over so that rounding can never overspend it
LEAST_SHARE = 2**10  # grains of any term


def parts_of_cost(strategy: Termwise) -> list[float]:
    """What part of the whole cost each term takes."""
    whole = strategy.cost()
    return [cost / whole for cost in strategy.costs()]


def with_budget(strategy: Strategy, allowed: Fraction) -> Strategy:
    """The integer strategy with its costs scaled to use up `allowed`, exactly accounted."""
    return shared_out(strategy, parts_of_cost(strategy), allowed)


def shared_out(strategy: Strategy, parts: Sequence[float], allowed: Fraction) -> Strategy:
    """The strategy with these parts of the budget, which sum to one, as whole numbers of grains."""
    grain = GRAINS - math.ceil(math.log2(allowed))
    terms = []
    for term, share in zip(strategy.terms, shares_of(parts, allowed, grain), strict=True):
        parameter = Fraction(strategy.exact_norm(term)) * Fraction(2) ** grain / share
        entries = (int(np.abs(matrix).max()) for matrix in strategy.matrices_of(term))
        variance = true_variance(strategy.law, parameter, strategy.multiplier * math.prod(entries))
        terms.append(replace(term, noise_variance=variance, share=share))
    return replace(strategy, terms=tuple(terms), grain=grain)


def shares_of(parts: Sequence[float], allowed: Fraction, grain: int) -> list[int]:
    """Grains of `2^-grain` for terms that take these parts of the budget; at most `allowed` in all."""
    most = math.floor(allowed * Fraction(2) ** grain)
    room = most - LEAST_SHARE * len(parts)
    return [LEAST_SHARE + math.floor(Fraction(part * (1 - SLACK)) * room) for part in parts]


def true_variance(law: NoiseLaw, parameter: Fraction, entry: int) -> float:
    """Variance of integer noise of this exact parameter; refused where 64 bits cannot hold it."""
    if law == "laplace":
        refuse_wide_laplace(parameter)
        refuse_large(entry)
        return laplace_variance(parameter)
    refuse_unfit(float(parameter), float(parameter), entry)
    return float(parameter) + 1.0 / 12.0
