"""Unions of products in integers, with their exact cost, and the estimate of all cells from them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from residua.strategy.integers import column_sum, even_bits
from residua.strategy.laplace_integers import entry_bits, rounded_factor, whole_multiple
from residua.strategy.product_parts import StrategyFactor
from residua.strategy.term_integers import parts_of_cost, shared_out
from residua.strategy.union import Product, UnionStrategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def integer_union(ideal: UnionStrategy, allowed: Fraction) -> UnionStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`."""
    parts = parts_of_cost(ideal)
    ideal = replace(ideal, multiplier=1 if ideal.law == "laplace" else 2 ** even_bits(allowed))
    terms = tuple(
        replace(term, matrices=_integer_matrices(ideal, term, part * float(allowed)))
        for term, part in zip(ideal.terms, parts, strict=True)
    )
    return shared_out(replace(ideal, terms=terms), parts, allowed)


def _integer_matrices(ideal: UnionStrategy, term: Product, cost: float) -> tuple[Array | None, ...]:
    factors = [
        None if matrix is None else StrategyFactor((at,), (matrix.shape[1],), matrix)
        for at, matrix in enumerate(term.matrices)
    ]
    plain = [None if factor is None else whole_multiple(factor) for factor in factors]
    rounded = [
        factor for factor, found in zip(factors, plain, strict=True) if factor is not None and found is None
    ]
    rows = math.prod(len(factor.matrix) for factor in rounded)
    known = math.prod(column_sum(found.matrix.astype(np.int64)) for found in plain if found is not None)
    bits = entry_bits(
        ideal.law, cost, rows=rows, known=known, factors=len(rounded), multiplier=ideal.multiplier
    )
    return tuple(
        found.matrix if found is not None else None if factor is None else rounded_factor(factor, bits).matrix
        for factor, found in zip(factors, plain, strict=True)
    )


def union_estimate(strategy: UnionStrategy, values: Sequence[Integers]) -> tuple[NDArray[np.int32], Array]:
    """Attributes, (1, k) ascending, and the least-squares estimate of their joint cells, (1, sizes...).

    `V D^+ V' sum_t A_t' y_t / v_t`, one axis at a time (claim H-031).
    """
    frame, axes = strategy.frame, strategy.axes
    total = np.zeros([axis.cells for axis in axes])
    for term, numbers in zip(strategy.terms, values, strict=True):
        tensor = (
            numbers[0].astype(np.float64).reshape([len(m) for m in term.matrices if m is not None] or [1])
        )
        tensor = tensor.reshape([1 if m is None else len(m) for m in term.matrices])
        for at in range(len(axes)):
            tensor = _along(tensor, strategy.matrix(term, at).T, at)
        total += tensor * (strategy.multiplier / term.noise_variance)
    tensor = total.reshape(-1) if frame.whole else total
    for at, basis in enumerate(frame.bases):
        tensor = _along(tensor, basis.T, at)
    tensor = tensor * frame.inverse
    for at, basis in enumerate(frame.bases):
        tensor = _along(tensor, basis, at)
    order = [at for axis in axes for at in axis.attributes]
    cells = tensor.reshape([size for axis in axes for size in axis.sizes]).transpose(np.argsort(order))
    return np.array([sorted(order)], dtype=np.int32), np.ascontiguousarray(cells)[None]


def _along(tensor: Array, matrix: Array, axis: int) -> Array:
    return np.asarray(np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis))
