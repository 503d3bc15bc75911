"""What a plan leaves unspent on cells that cost less than the dearest one, and what that could measure."""

import math

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.linalg.squares import join, spread
from residua.strategy.strategy import Strategy
from residua.workload import Workload

Array = NDArray[np.float64]

MOST_CELLS = 1_000_000


def room_left(strategy: Strategy) -> tuple[tuple[int, ...], Array]:
    """Attributes in ascending order, and for each joint cell the privacy cost that a record there has left.

    Something else measured on that cell alone may cost so much before the whole costs more (claim G-005).
    """
    block = strategy.single()
    if block is None or strategy.law != "gaussian":
        raise WorkloadError(
            "what cells have left is known only of plans on few cells, made by method 'dense', or by 'auto' "
            "where that takes it"
        )
    factors = block[1]
    sizes = [size for factor in factors for size in factor.sizes]
    if math.prod(sizes) > MOST_CELLS:
        raise WorkloadError(f"{math.prod(sizes):,} cells are too many to list what each has left")
    shares = np.ones(())
    for factor in factors:
        lengths = np.sum(factor.matrix**2, axis=0)
        shares = np.multiply.outer(shares, (lengths / lengths.max()).reshape(factor.sizes))
    attributes = [at for factor in factors for at in factor.attributes]
    order = np.argsort(attributes)
    left = float(strategy.exact_cost()) * (1.0 - shares)
    return tuple(attributes[at] for at in order), np.asarray(np.maximum(left, 0.0).transpose(order))


def free_variances(strategy: Strategy, work: Workload) -> Array:
    """Variance at which each query could be measured besides, alone, for nothing; inf if it cannot."""
    attributes, left = room_left(strategy)
    found = []
    for group in work.groups():
        if not set(group.attributes) <= set(attributes):
            found.append(np.full(group.count, np.inf))  # a query on other attributes is seen by all cells
            continue
        places = [attributes.index(at) for at in group.attributes]
        rows = join(factor.queries.matrix() for factor in group.factors)
        wide = spread(rows, [left.shape[place] for place in places], places, left.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(wide != 0, wide**2 / left.reshape(-1), 0.0)
        found.append(needed.max(axis=1))
    return np.concatenate(found)
