"""Any real mechanism in integers, and any integer mechanism at another budget."""

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.strategy import integer_blocks, integer_product, nested_integers, term_integers, union_integers
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.overlap import integers as overlap_integers
from residua.strategy.product import ProductStrategy
from residua.strategy.sides import SidesStrategy
from residua.strategy.union import UnionStrategy

Integers = NDArray[np.int64]

RATIO_BITS = 30


def integer_mechanism(
    ideal: Mechanism, spans: Mapping[int, Integers | None], allowed: Fraction, *, replacing: bool
) -> Mechanism:
    """The integer form of a real mechanism, with its exact cost at most `allowed`.

    With `replacing` the cost is that of replacing one record instead of adding or removing one.
    """
    whole: Mechanism
    if isinstance(ideal, BlockStrategy):
        whole = integer_blocks.integer_blocks(ideal, spans, allowed)
    elif isinstance(ideal, OverlapStrategy):
        whole = overlap_integers.integer_overlap(ideal, spans, allowed)
    elif isinstance(ideal, ProductStrategy):
        whole = integer_product.integer_product(ideal, spans, allowed)
    elif isinstance(ideal, NestedStrategy):
        whole = nested_integers.integer_nested(ideal, allowed)
    elif isinstance(ideal, UnionStrategy):
        whole = union_integers.integer_union(ideal, allowed)
    elif isinstance(ideal, SidesStrategy):
        pairs = zip(ideal.sides, _shared(ideal, allowed), strict=True)
        whole = ideal.with_mechanisms(
            *(integer_mechanism(side.mechanism, side.spans, own, replacing=False) for side, own in pairs)
        )
    else:
        raise TypeError(f"no integer form is known of {type(ideal).__name__}")
    return rebudgeted(whole, allowed, replacing=True) if replacing else whole


def rebudgeted(mechanism: Mechanism, allowed: Fraction, *, replacing: bool) -> Mechanism:
    """The same integer measurements with noise that uses up `allowed` exactly."""
    if replacing:
        ratio = mechanism.replacement_cost() / mechanism.cost() * (1 + 1e-9)
        allowed = allowed / Fraction(math.ceil(ratio * 2**RATIO_BITS), 2**RATIO_BITS)
    if isinstance(mechanism, BlockStrategy | OverlapStrategy):
        return integer_blocks.with_budget(mechanism, allowed)
    if isinstance(mechanism, ProductStrategy):
        return integer_product.with_budget(mechanism, allowed)
    if isinstance(mechanism, NestedStrategy):
        return term_integers.with_budget(mechanism, allowed)
    if isinstance(mechanism, UnionStrategy):
        return term_integers.with_budget(mechanism, allowed)
    if isinstance(mechanism, SidesStrategy):
        found = zip(mechanism.sides, _shared(mechanism, allowed), strict=True)
        return mechanism.with_mechanisms(*(rebudgeted(s.mechanism, own, replacing=False) for s, own in found))
    raise TypeError(f"no integer form is known of {type(mechanism).__name__}")


def _shared(mechanism: SidesStrategy, allowed: Fraction) -> list[Fraction]:
    """The privacy cost of each side, in proportion to what it costs now; they add up to `allowed` exactly."""
    costs = [Fraction(side.mechanism.cost()) for side in mechanism.sides]
    return [allowed * cost / sum(costs) for cost in costs]
