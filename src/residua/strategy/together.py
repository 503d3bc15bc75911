"""Two mechanisms of any kind as one, where all their attributes have few joint cells (claim A-007).

Over the joint cells every mechanism is a privacy matrix, a sum of the squares of its measured rows over the
variances of their noise. Those of two releases add up, and one matrix with that sum as its square measures
as much as both.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.linalg.squares import join, spread
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.product import ProductStrategy, StrategyFactor
from residua.strategy.union import UnionStrategy

Array = NDArray[np.float64]
Measured = tuple[list[int], list[Array], float]
"""Attributes, the matrices on them whose product is measured, and the noise variance of each number."""

RANK_RATIO = 1e-11  # of the largest eigenvalue: what rounding leaves of zero


def with_half_the_noise(mechanism: Mechanism) -> Mechanism:
    """What the mean of two releases of one plan measures; nothing that could be measured again."""
    if isinstance(mechanism, ProductStrategy):
        return replace(mechanism, noise_variance=mechanism.noise_variance / 2, share=None, grain=None)
    if isinstance(mechanism, UnionStrategy):
        products = (
            replace(each, noise_variance=each.noise_variance / 2, share=None) for each in mechanism.terms
        )
        return replace(mechanism, terms=tuple(products), grain=None)
    if isinstance(mechanism, NestedStrategy):
        terms = (
            replace(each, noise_variance=each.noise_variance / 2, share=None) for each in mechanism.terms
        )
        return replace(mechanism, terms=tuple(terms), grain=None)
    raise _unknown(mechanism)


def privacy_matrix(mechanism: Mechanism, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """X over the joint cells of attributes, which are all that the mechanism looks at: (cells, cells)."""
    cells = math.prod(sizes)
    total = np.zeros((cells, cells))
    for own, matrices, noise in measured_products(mechanism):
        places = [attributes.index(at) for at in own]
        rows = spread(join(matrices), [sizes[place] for place in places], places, sizes)
        total += rows.T @ rows / noise
    return total


def solved_together(
    mechanisms: Sequence[Mechanism], estimates: Sequence[Array], attributes: Sequence[int]
) -> tuple[ProductStrategy, Array]:
    """One strategy that measures as much as all mechanisms, and the estimate of its cells, (sizes...).

    `estimates` are those of the same joint cells, (sizes...) each, by each mechanism alone.
    """
    sizes = estimates[0].shape
    squares = [privacy_matrix(mechanism, attributes, sizes) for mechanism in mechanisms]
    # Which directions are measured must not depend on how much noise one has beside the other.
    values, vectors = np.linalg.eigh(sum(square / np.trace(square) for square in squares))
    basis = vectors[:, values > RANK_RATIO * values[-1]]
    inner = basis.T @ sum(squares) @ basis
    root = np.linalg.cholesky((inner + inner.T) / 2).T
    seen = basis.T @ sum(square @ each.reshape(-1) for square, each in zip(squares, estimates, strict=True))
    mean = basis @ np.linalg.solve(inner, seen)
    factor = StrategyFactor(tuple(attributes), sizes, root @ basis.T)
    return ProductStrategy((factor,), 1.0, law=mechanisms[0].law), np.asarray(mean).reshape(sizes)


def measured_products(mechanism: Mechanism) -> Iterator[Measured]:
    """What a mechanism measures, product by product."""
    if isinstance(mechanism, Layered):
        yield from _of_layers(mechanism)
    elif isinstance(mechanism, ProductStrategy):
        order = [at for factor in mechanism.factors for at in factor.attributes]
        yield order, [factor.matrix for factor in mechanism.factors], mechanism.noise_variance
    elif isinstance(mechanism, UnionStrategy):
        for product in mechanism.terms:
            pairs = zip(mechanism.axes, product.matrices, strict=True)
            mine = [(axis, matrix) for axis, matrix in pairs if matrix is not None]
            order = [at for axis, _ in mine for at in axis.attributes]
            yield order, [matrix for _, matrix in mine], product.noise_variance / mechanism.multiplier**2
    elif isinstance(mechanism, NestedStrategy):
        for term in mechanism.terms:
            noise = term.noise_variance / mechanism.multiplier**2
            yield list(term.attributes), mechanism.matrices_of(term), noise
    else:
        raise _unknown(mechanism)


def _unknown(mechanism: Mechanism) -> Infeasible:
    return Infeasible(
        f"releases of plans of kind {mechanism.kind!r} cannot be combined; plan with method 'querysmasher'"
    )


def _of_layers(mechanism: Layered) -> Iterator[Measured]:
    for layer in mechanism.layers:
        order = [place for places in layer.layout for place in places]
        for subset, shapes, noise in zip(
            layer.subsets[:, order].tolist(), layer.shapes.tolist(), layer.noise.tolist(), strict=True
        ):
            yield subset, [mechanism.shapes[at].matrix for at in shapes], noise
