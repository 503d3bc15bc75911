"""What a plan leaves unspent on records that cost less than the dearest, and what that could measure."""

import math

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.linalg.squares import join, spread
from residua.strategy.mechanism import Mechanism
from residua.strategy.product import ProductStrategy
from residua.strategy.product_parts import marginal
from residua.workload import Group, Workload

Array = NDArray[np.float64]

MOST_CELLS = 1_000_000
MOST_COMPARED = 2_500  # cells that are compared with each other, all pairs of them


def room_left(mechanism: Mechanism, *, replacing: bool) -> tuple[tuple[int, ...], Array]:
    """Attributes in ascending order, and for each joint cell the privacy cost that a record there has left.

    Something else measured on that cell alone may cost so much before the whole costs more (claim G-005).
    With `replacing` the cost is that of replacing the record by any other.
    """
    product = _product(mechanism)
    attributes = tuple(sorted(at for factor in product.factors for at in factor.attributes))
    if replacing:
        sizes = {at: size for f in product.factors for at, size in zip(f.attributes, f.sizes, strict=True)}
        return attributes, _left_to_pairs(product).min(axis=1).reshape([sizes[at] for at in attributes])
    return attributes, _left_to_cells(product)


def free_variances(mechanism: Mechanism, work: Workload, *, replacing: bool) -> Array:
    """Variance at which each query could be measured besides, alone, for nothing; inf if it cannot."""
    attributes, left = room_left(mechanism, replacing=replacing)
    pairs = _left_to_pairs(_product(mechanism)) if replacing else None
    found = []
    for group in work.groups():
        low, high = _extremes(group, attributes, left.shape)
        with np.errstate(divide="ignore"):
            if pairs is None:
                needed = _over(np.maximum(low**2, high**2), left.reshape(-1)).max(axis=1)
            else:
                changes = (each[:, None] - other[None, :] for each, other in zip(high, low, strict=True))
                needed = np.array([_over(change**2, pairs).max() for change in changes])
        found.append(needed)
    return np.concatenate(found)


def _product(mechanism: Mechanism) -> ProductStrategy:
    if not isinstance(mechanism, ProductStrategy) or mechanism.law != "gaussian":
        raise WorkloadError(
            "what cells have left is known only of plans on few cells, made by method 'dense', or by 'auto' "
            "where that takes it"
        )
    cells = math.prod(size for factor in mechanism.factors for size in factor.sizes)
    if cells > MOST_CELLS:
        raise WorkloadError(f"{cells:,} cells are too many to list what each has left")
    return mechanism


def _left_to_cells(mechanism: ProductStrategy) -> Array:
    """`b - X_ii`, b the largest, shaped as the cells, attributes in ascending order."""
    shares = np.ones(())
    for factor in mechanism.factors:
        lengths = factor.costs()
        shares = np.multiply.outer(shares, (lengths / lengths.max()).reshape(factor.sizes))
    attributes = [at for factor in mechanism.factors for at in factor.attributes]
    left = float(mechanism.exact_cost()) * (1.0 - shares)
    return np.asarray(np.maximum(left, 0.0).transpose(np.argsort(attributes)))


def _left_to_pairs(mechanism: ProductStrategy) -> Array:
    """`b - D_ij`, b the largest, `D_ij = X_ii + X_jj - 2 X_ij`, (cells, cells), attributes ascending."""
    cells = math.prod(size for factor in mechanism.factors for size in factor.sizes)
    if cells > MOST_COMPARED:
        raise WorkloadError(
            f"{cells:,} cells are too many to compare each with all others, which it takes to know what "
            f"replacing a record leaves; at most {MOST_COMPARED:,} are"
        )
    order = sorted(at for factor in mechanism.factors for at in factor.attributes)
    grams = [factor.matrix.T @ factor.matrix for factor in mechanism.factors]
    square = marginal(mechanism.factors, grams, order)
    own = np.diagonal(square)
    costs = (own[:, None] + own[None, :] - 2 * square) * (float(mechanism.exact_cost()) / own.max())
    return np.asarray(costs.max() - costs)


def _extremes(group: Group, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Array, Array]:
    """Least and largest entry of each query in a cell, whatever its other attributes, (count, cells) each."""
    rows = join(factor.queries.matrix() for factor in group.factors)
    own = [size for factor in group.factors for size in factor.queries.sizes]
    tensor = rows.reshape(-1, *own)
    others = tuple(1 + at for at, attribute in enumerate(group.attributes) if attribute not in attributes)
    places = [attributes.index(at) for at in group.attributes if at in attributes]
    inner = [sizes[place] for place in places]
    low, high = (
        spread(each.reshape(len(rows), -1), inner, places, sizes)
        for each in (tensor.min(axis=others), tensor.max(axis=others))
    )
    return low, high


def _over(squares: Array, left: Array) -> Array:
    """The variance that costs what is left, for squared entries; nothing is needed where they are zero."""
    return np.divide(squares, left, out=np.zeros_like(squares), where=squares != 0)
