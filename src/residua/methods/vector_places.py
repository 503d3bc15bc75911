"""Tables of places whose families differ by level: every level measures the rows that are best for it.

All other attributes are taken together, so their joint cells must not be many, nor the places. On a regular
tree this is the optimum of all mechanisms (claims T-011 to T-013).
"""

import math
from collections.abc import Sequence

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import SPAN_ENTRIES, VECTOR_CELLS, VECTOR_ENTRIES, VECTOR_WORK
from residua.answering.blocks import Shape, rows_over
from residua.linalg.trees import Tree, merged
from residua.methods.draft import Draft
from residua.methods.placed import LEAST, Placed, by_node, marks
from residua.solve.vector_trees import LevelMatrices, VectorSolution, level_matrices, solve_vector_tree
from residua.strategy.integers import independent_integers

STEPS, LEAST_STEPS = 300, 12  # of a search, and how few are worth starting it
WORTH = 2.5e-3  # of the value: a distance from the bound that matrices of several kinds are tried for


def vector_places(found: Placed, sizes: Sequence[int], tolerance: float) -> Draft | None:
    """The draft; None where there are no other attributes, or too many cells or places."""
    cells = math.prod(sizes[at] for at in found.beside)
    nodes = sum(found.nest.tree.sizes)
    if not 1 < cells <= VECTOR_CELLS or nodes * cells**2 > VECTOR_ENTRIES:
        return None
    asked = found.by_table()
    tree, stands = merged(found.nest.tree, marks(asked))
    steps = min(STEPS, int(VECTOR_WORK / (sum(tree.sizes) * (cells + 10.0) ** 3)))
    if steps < LEAST_STEPS:
        return None
    grams = found.grams(sizes)
    weights = [np.tensordot(own, grams, axes=1) for own in by_node(asked, stands, tree)]
    ways, solution = _solved(tree, weights, 0.1 * tolerance, steps)
    shares = [own[node] for own, node in zip(solution.precisions, stands, strict=True)]
    inner = [sizes[at] for at in found.beside]
    measured = (
        (depth, shape, shape.norm * own[:, kind])
        for depth, own in enumerate(shares)
        for kind, shape in enumerate(Shape.independent(inner, way.rows[depth]) for way in ways)
    )
    strategy, levels = found.by_rows(sizes, measured, "gaussian", LEAST)
    spans = {at: _span(found, sizes, depth, strategy.shapes[at]) for at, depth in enumerate(levels)}
    known = {number: span for number, span in spans.items() if span is not None}
    return Draft(strategy, solution.lower_bound, "all mechanisms", None, known)


def _solved(
    tree: Tree, weights: Sequence[Array], gap: float, steps: int
) -> tuple[list[LevelMatrices], VectorSolution]:
    """Matrices of the regular tree of the same sizes, or of several such trees, and precisions for them."""
    stands, leaves = tree.stands_for, [np.ones(tree.sizes[-1])]
    for level in range(tree.depth - 1, -1, -1):
        leaves.insert(0, tree.up(level, leaves[0]))
    nodes = np.array([own.sum() for own in stands])
    grams = [own.sum(axis=0) / count for own, count in zip(weights, nodes, strict=True)]
    first = level_matrices(nodes, grams, gap)
    found = solve_vector_tree(tree, weights, [(rows,) for rows in first.rows], first.cells, steps)
    if found.value <= found.lower_bound * (1 + WORTH):
        return [first], found
    extremes = [np.array([float(own.min()), float(own.max())]) for own in leaves]
    sizes = np.stack(extremes, axis=1)  # (2, levels)
    ways = [first, *(level_matrices(own[0] / own, grams, gap) for own in sizes)]
    rows = list(zip(*(each.rows for each in ways), strict=True))
    more = solve_vector_tree(tree, weights, rows, first.cells, steps)
    bound = max(found.lower_bound, more.lower_bound)
    if more.value < found.value:
        return ways, VectorSolution(more.precisions, more.value, bound)
    return [first], VectorSolution(found.precisions, found.value, bound)


def _span(found: Placed, sizes: Sequence[int], depth: int, shape: Shape) -> Integers | None:
    """Whole rows with the span of all that is asked at a level or below; None where that is everything."""
    cells = shape.matrix.shape[1]
    if shape.rank == cells:
        return None
    inner = [sizes[at] for at in found.beside]
    asked = [group for group, asked in found.tables if asked.depths.max() >= depth]
    if sum(group.count for group in asked) * cells > SPAN_ENTRIES:
        return None
    rows = np.concatenate([rows_over(group.factors, found.beside, inner) for group in asked])
    if (np.rint(rows) != rows).any():
        return None
    return independent_integers(rows.astype(np.int64), shape.rank)
