"""What a plan leaves unspent on records that cost less than the dearest, and what that could measure."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import COMPARED_CELLS, UNSPENT_CELLS, UNSPENT_COSTS
from residua.errors import WorkloadError
from residua.kernel.measurement import column_costs
from residua.linalg.matrices import join, spread
from residua.privacy.unit import Person
from residua.strategy.joining import block_matrix, joint_columns
from residua.strategy.strategy import Strategy
from residua.workload import Table, Workload


def unspent(strategy: Strategy, sizes: Sequence[int], person: Person) -> tuple[tuple[int, ...], Array]:
    """Attributes in ascending order, and for each joint cell the privacy cost that a record there has left.

    Something else measured on that cell alone may cost so much before the whole costs more (claim G-005).
    Under `replace_one` it is that of replacing the record by any other. `sizes` are those of the schema.
    """
    attributes = tuple(strategy.attributes())
    width = [sizes[at] for at in attributes]
    if person.caps:
        raise WorkloadError(
            "what cells have left unspent is known where all records of a person may be in one cell, not "
            "with one_per or max_per"
        )
    if person.unit.replacing:
        return attributes, _left_to_pairs(strategy, attributes, width).min(axis=1).reshape(width)
    return attributes, _left_to_cells(strategy, attributes, width).reshape(width)


def free_variances(strategy: Strategy, work: Workload, person: Person) -> Array:
    """Variance at which each query could be measured besides, alone, for nothing; inf if it cannot."""
    attributes, left = unspent(strategy, work.schema.sizes, person)
    pairs = _left_to_pairs(strategy, attributes, left.shape) if person.unit.replacing else None
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


def _columns(
    strategy: Strategy, attributes: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[Array, Integers, float]]:
    """For each block its matrix, which of its columns is that of each joint cell, and its cost at most."""
    if strategy.law != "gaussian":
        raise WorkloadError("what cells have left unspent is known of Gaussian noise only")
    cells, blocks = math.prod(sizes), sum(len(layer.noise) for layer in strategy.layers)
    if cells > UNSPENT_CELLS or cells * blocks > UNSPENT_COSTS:
        raise WorkloadError(
            f"{cells:,} joint cells, each seen by up to {blocks:,} blocks, are too many to list what each "
            "has left; use fewer or coarser attributes"
        )
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        matrix = block_matrix(strategy, layer, rows)
        for row in rows.tolist():
            yield matrix, joint_columns(strategy, layer, row, attributes, sizes), float(layer.costs[row])


def _left_to_cells(strategy: Strategy, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """`b - X_ii`, b the largest, (cells,)."""
    costs = np.zeros(math.prod(sizes))
    for matrix, cells, cost in _columns(strategy, attributes, sizes):
        lengths = column_costs(strategy.law, matrix)
        costs += (cost / float(lengths.max())) * lengths[cells]
    return np.asarray(costs.max() - costs)


def _left_to_pairs(strategy: Strategy, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """`b - D_ij`, b the largest, `D_ij = X_ii + X_jj - 2 X_ij`, (cells, cells)."""
    count = math.prod(sizes)
    if count > COMPARED_CELLS:
        raise WorkloadError(
            f"{count:,} cells are too many to compare each with all others, which it takes to know what "
            f"replacing a record leaves; at most {COMPARED_CELLS:,} are"
        )
    square = np.zeros((count, count))
    for matrix, cells, cost in _columns(strategy, attributes, sizes):
        gram = matrix.T @ matrix
        square += (cost / float(np.diagonal(gram).max())) * gram[np.ix_(cells, cells)]
    own = np.diagonal(square)
    costs = own[:, None] + own[None, :] - 2 * square
    return np.asarray(costs.max() - costs)


def _extremes(group: Table, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Array, Array]:
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
