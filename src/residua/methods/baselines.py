"""Strategies for comparison that do not look at the workload: identity, hierarchical, wavelet.

Each is a Kronecker product of one fixed matrix per attribute in use.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Placed, Shape
from residua.bounds import svd_or_nothing
from residua.errors import Infeasible
from residua.methods.draft import Draft
from residua.privacy import NoiseLaw
from residua.privacy.laws import column_costs, unit_variance
from residua.strategy.build import of_blocks
from residua.workload import Workload

Array = NDArray[np.float64]

MOST_CELLS = 8_192  # of one attribute


def identity_matrix(cells: int) -> Array:
    """Every cell, shape (cells, cells)."""
    return np.eye(cells)


def hierarchical_matrix(cells: int, branching: int = 2) -> Array:
    """Every node of a tree over the cells, root and leaves included (H2 for two branches).

    Each level cuts the last into `branching` nearly equal parts; a part of one cell is not cut again, so
    that no query is repeated.
    """
    rows = []
    level = [(0, cells)]
    while level:
        below = []
        for start, stop in level:
            row = np.zeros(cells)
            row[start:stop] = 1.0
            rows.append(row)
            if stop - start > 1:
                cuts = np.linspace(start, stop, min(branching, stop - start) + 1).round().astype(int)
                below += list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        level = below
    return np.array(rows)


def wavelet_matrix(cells: int) -> Array:
    """The total and, at every node of a binary tree, left half minus right half (Haar; Privelet)."""
    rows = [np.ones(cells)]
    level = [(0, cells)]
    while level:
        below = []
        for start, stop in level:
            if stop - start > 1:
                middle = (start + stop + 1) // 2
                row = np.zeros(cells)
                row[start:middle], row[middle:stop] = 1.0, -1.0
                rows.append(row)
                below += [(start, middle), (middle, stop)]
        level = below
    return np.array(rows)


def best_branching(cells: int) -> int:
    """The number of branches of HB: the one with the least mean error over all ranges of a full tree.

    A tree of height h with b branches has a mean variance in proportion to `(b - 1) h^3 - 2 (b + 1) h^2 / 3`
    (Qardaji, Yang and Li, 2013).
    """
    if cells <= 3:
        return 2

    def error(branches: int) -> float:
        height = math.ceil(math.log(cells, branches) - 1e-12)
        return (branches - 1) * height**3 - 2 * (branches + 1) * height**2 / 3

    return min(range(2, cells + 1), key=error)


def hb_matrix(cells: int) -> Array:
    """The tree with the best number of branches for ranges, without its root (HB)."""
    rows = hierarchical_matrix(cells, best_branching(cells))
    return rows if cells == 1 else rows[1:]


def baseline(work: Workload, matrix: Callable[[int], Array], law: NoiseLaw = "gaussian") -> Draft:
    """The product of `matrix(size)` over the attributes in use, scaled to cost 1."""
    factors = []
    for axis in work.attributes:
        size = work.schema.sizes[axis]
        if size > MOST_CELLS:
            raise Infeasible(
                f"attribute {work.schema.names[axis]!r} has {size:,} cells; a baseline holds at most "
                f"{MOST_CELLS:,}"
            )
        factors.append(Placed((axis,), Shape.of((size,), at_cost_one(matrix(size), law))))
    strategy = of_blocks(work.schema.sizes, [(factors, unit_variance(law))], law)
    return Draft(
        strategy, svd_or_nothing(work), "all Laplace noise" if law == "laplace" else "all mechanisms"
    )


def at_cost_one(rows: Array, law: NoiseLaw) -> Array:
    """The rows scaled so that noise of parameter 1 costs 1."""
    most = float(column_costs(law, rows).max())
    return rows / (most if law == "laplace" else math.sqrt(most))
