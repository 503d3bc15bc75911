"""Tables of places at several levels under pure differential privacy (claim T-017).

Every level is measured by one set of rows over the joint cells of the other attributes, the best product that
HDMM finds for what the level asks, or for what all of them ask; every place has Laplace noise of its own, and
what a record costs adds up along its path from the nation to its place.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Array
from residua._limits import VECTOR_CELLS, VECTOR_ENTRIES
from residua.answering.blocks import Shape, rows_over
from residua.errors import Infeasible
from residua.linalg.trees import merged
from residua.methods.draft import Draft, Progress, Scope
from residua.methods.hdmm.kron import kron
from residua.methods.placed import LEAST, Placed, by_node, marks
from residua.methods.places import placed, places_bound
from residua.solve.trees import solve_laplace
from residua.strategy.strategy import Strategy
from residua.workload import Explicit, Factor, Table, Workload

EVERYBODY: Scope = "all Laplace noise"
TRIES = 80  # of shares of levels that measure different rows


def laplace_places(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Nodes of a hierarchy measured, each with Laplace noise of its own scale."""
    found, sizes = placed(work), work.schema.sizes
    _refuse_large(found, sizes)
    common = _draft(found, sizes, _rows(found, [group for group, _ in found.tables], work))
    rows = [_rows(found, own, work) for own in _by_level(found)]
    if all(np.array_equal(own, rows[0]) for own in rows):
        return common
    apart = replace(common, strategy=_level_by_level(found, work, rows))
    return min(common, apart, key=lambda draft: draft.total(work))


def _refuse_large(found: Placed, sizes: Sequence[int]) -> None:
    cells = math.prod(sizes[at] for at in found.beside)
    nodes = sum(found.nest.tree.sizes)
    if cells > VECTOR_CELLS or (cells > 1 and nodes * cells**2 > VECTOR_ENTRIES):
        raise Infeasible(
            f"{nodes:,} places by {cells:,} joint cells of other attributes are more than pure DP is planned "
            "for by places; ask for fewer or coarser attributes beside the places, or use Gaussian noise, "
            "zcdp(rho)"
        )


def _by_level(found: Placed) -> list[list[Table]]:
    """The tables that are asked at each level, or else at the next one below that has some."""
    levels: list[list[Table]] = [[] for _ in found.nest.tree.sizes]
    for group, asked in found.tables:
        for depth in np.unique(asked.depths).tolist():
            levels[depth].append(group)
    for depth in range(len(levels) - 2, -1, -1):
        levels[depth] = levels[depth] or levels[depth + 1]
    return levels


def _rows(found: Placed, groups: Sequence[Table], work: Workload) -> Array:
    """Rows over the joint cells beside places that answer tables, no column longer than 1 in the L1 norm."""
    inner = [work.schema.sizes[at] for at in found.beside]
    if not any(group.attributes for group in groups):
        return np.ones((1, math.prod(inner)))
    single = kron(Workload(work.schema, tuple(groups)), "laplace").strategy.single()
    assert single is not None  # a product is one block
    factors = [Factor(each.attributes, Explicit(each.shape.sizes, each.shape.matrix)) for each in single[1]]
    rows = rows_over(factors, found.beside, inner)
    return np.asarray(rows / np.abs(rows).sum(axis=0).max())


def _draft(found: Placed, sizes: Sequence[int], rows: Array) -> Draft:
    """The draft that measures the same rows at all levels, with the best scale found for every node."""
    inverse = np.linalg.pinv(rows.T @ rows, hermitian=True)
    worth = np.array([[np.vdot(gram, inverse)] for gram in found.grams(sizes)])
    asked = found.by_table()
    weights = [own @ worth for own in asked]
    small, stands = merged(found.nest.tree, marks(weights))
    summed = by_node(weights, stands, small)
    costs = solve_laplace(small, summed)
    shares = [own[node, 0] for own, node in zip(costs, stands, strict=True)]
    strategy = _strategy(found, sizes, [rows] * len(shares), shares)
    halves = [0.5 * own**2 for own in costs]
    bound = places_bound(found, sizes, small, summed, halves, by_node(asked, stands, small))
    return Draft(strategy, bound or 0.0, EVERYBODY)


def _level_by_level(found: Placed, work: Workload, rows: Sequence[Array]) -> Strategy:
    """The strategy that measures other rows at each level, all places of it alike; the best shares found."""
    from scipy.optimize import minimize  # loading it takes longer than planning marginals

    def strategy(logits: Array) -> Strategy:
        shares = np.exp(logits - logits.max())
        shares = np.maximum(shares / shares.sum(), 20 * LEAST)  # what a level tells nothing else may
        pairs = zip(shares, found.nest.tree.sizes, strict=True)
        return _strategy(found, work.schema.sizes, rows, [np.full(size, own) for own, size in pairs])

    def value(logits: Array) -> float:
        made = strategy(logits)
        return math.log(sum(made.totals(part)[0] for part in work.parts))

    numbers = [float(own.sum()) + 1e-3 for own in found.by_table()]
    found_at = minimize(value, np.log(np.cbrt(numbers)), method="Nelder-Mead", options={"maxfev": TRIES})
    return strategy(np.asarray(found_at.x))


def _strategy(
    found: Placed, sizes: Sequence[int], rows: Sequence[Array], shares: Sequence[Array]
) -> Strategy:
    """The strategy that measures rows over the other attributes at each node; without any, its records."""
    inner = [sizes[at] for at in found.beside]
    measured = ((at, Shape.of(inner, own), shares[at]) for at, own in enumerate(rows))
    return found.by_rows(sizes, measured, "laplace", 10 * LEAST)[0]
