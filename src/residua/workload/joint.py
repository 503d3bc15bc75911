"""A whole workload as one matrix over the joint cells of the attributes it uses, where that fits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.linalg.rows import independent_rows
from residua.linalg.squares import join, spread
from residua.workload.groups import Factor, Table, without_totals
from residua.workload.queries import Queries
from residua.workload.union import Workload

Array = NDArray[np.float64]

MOST_CELLS = 4_096  # of all attributes together, in one dense matrix
WIDEST = 8_192  # cells of one attribute
MANY_WAYS = 8  # attributes of one table above which a product is found sooner than its 2^n pieces
SAME_TABLES = 1_000  # workloads of more tables are not looked through for being one product


@dataclass(frozen=True, slots=True, eq=False)
class JointRows:
    """A workload over the cells of all attributes it uses: `root' root` is its weighted gram.

    `root` is (rank, cells) with independent rows, cells row-major over `sizes`.
    """

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    root: Array


def joint_rows(work: Workload) -> JointRows:
    """The workload over the joint cells of its attributes, refused above about 4,000 cells."""
    attributes = work.attributes
    sizes = tuple(work.schema.sizes[axis] for axis in attributes)
    cells = math.prod(sizes)
    refuse_many_cells(cells, "the attributes of this workload together")
    stack: list[Array] = []
    weights: list[Array] = []
    for group in work.groups():
        rows = _joint_root(group, attributes, sizes)
        stack.append(rows)
        weights.append(np.full(len(rows), group.weight))
        if sum(map(len, stack)) > 4 * cells:
            root = independent_rows(np.concatenate(stack), np.concatenate(weights))
            stack, weights = [root], [np.ones(len(root))]
    return JointRows(attributes, sizes, independent_rows(np.concatenate(stack), np.concatenate(weights)))


def common_product(work: Workload) -> tuple[float, tuple[Factor, ...]] | None:
    """The product of families that every table is a multiple of, with the sum of the weights, or None."""
    if work.tables > SAME_TABLES:
        return None
    groups = [without_totals(group) for group in work.groups()]
    first = groups[0].factors
    if any(group.factors != first for group in groups):
        return None
    return math.fsum(group.weight for group in groups), first


def one_wide_product(work: Workload) -> bool:
    """Whether all tables are one product on so many attributes that it is best not split into pieces."""
    shared = common_product(work)
    return shared is not None and len(shared[1]) > MANY_WAYS


def refuse_many_cells(cells: int, what: str) -> None:
    """Raise Infeasible where one matrix over the cells would not fit."""
    if cells > MOST_CELLS:
        raise Infeasible(
            f"{what}: {cells:,} cells are more than the {MOST_CELLS:,} that fit one dense matrix; "
            "take fewer attributes at a time, or coarser ones"
        )


def refuse_wide(queries: Queries) -> None:
    """Raise Infeasible for queries on one attribute whose square matrices would not fit."""
    if len(queries.sizes) == 1 and queries.cells > WIDEST:
        raise Infeasible(
            f"{queries!r}: an attribute may have at most {WIDEST:,} cells here; use a coarser one, such as "
            "bins or a higher level of a hierarchy"
        )


def _joint_root(group: Table, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Rows over all joint cells whose gram is the group's (without its own weight)."""
    rows = join(factor.queries.root() for factor in group.factors)
    places = [attributes.index(axis) for axis in group.attributes]
    return spread(rows, [sizes[place] for place in places], places, sizes)
