"""Trees whose nodes are measured by several rows at once, which may differ from level to level.

As `linalg.trees`, with a vector of totals at each node: one for each cell of the other attributes. What can
be told at a level is the span of all rows that are measured there or below; totals are written in orthonormal
coordinates of those spans, of which the first are those of the level below (claim T-010).

| Symbol | What it is |
|---|---|
| `bases[l]` | (cells, rank): coordinates of level l; its first columns are `bases[l + 1]` |
| `squares[l]` | (kinds, rank, rank): `B'B` of each kind of rows B of level l, in its coordinates |
| `precisions[l]` | (nodes, kinds): one over the variance of the noise on each row at a node |
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Integers
from residua.linalg.trees import EXCESS, STEP, Levels, Tree

SAME = 1e-9  # of the largest length: what is smaller is rounding
REACH = 14.0  # in the logarithm of t: for smaller ones floats do not tell all determinants


def nested_bases(matrices: Sequence[Array]) -> tuple[Array, ...]:
    """Coordinates for every level, from the rows that each measures, (rows, cells).

    >>> [each.shape[1] for each in nested_bases([np.eye(3), np.ones((1, 3))])]
    [3, 1]
    """
    basis = np.zeros((matrices[0].shape[1], 0))
    found: list[Array] = []
    for rows in reversed(matrices):
        if not len(rows):
            found.insert(0, basis)
            continue
        left = rows - (rows @ basis) @ basis.T
        scales, right = np.linalg.svd(left - (left @ basis) @ basis.T, full_matrices=False)[1:]
        basis = np.concatenate([basis, right[scales > SAME * np.linalg.norm(rows, 2)].T], axis=1)
        found.insert(0, basis)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class VectorPasses:
    """Covariances of node totals, from what is at or below a node and from everything: (nodes, rank, rank).

    `inner` has the inverse of the sum of the children's `below`, for every level but the last.
    """

    below: Levels
    inner: Levels
    final: Levels


def vector_passes(tree: Tree, precisions: Sequence[Array], squares: Sequence[Array]) -> VectorPasses:
    """Covariances of the best estimates of all node totals: one pass up, one down (claim T-010)."""
    own = [np.tensordot(each, kinds, axes=1) for each, kinds in zip(precisions, squares, strict=True)]
    below: list[Array] = [np.asarray(np.linalg.inv(own[-1]))]
    inner: list[Array] = []
    for level in range(tree.depth - 1, -1, -1):
        inner.insert(0, np.asarray(np.linalg.inv(tree.up(level, below[0]))))
        more = own[level].shape[-1] - inner[0].shape[-1]
        known = own[level] + np.pad(inner[0], ((0, 0), (0, more), (0, more)))
        below.insert(0, np.asarray(np.linalg.inv(known)))
    final = [below[0]]
    for level, parents in enumerate(tree.parents):
        share = below[level + 1] @ inner[level][parents]
        rank = share.shape[-1]
        moved = final[-1][:, :rank, :rank][parents] @ share.swapaxes(1, 2)
        final.append(below[level + 1] - share @ (below[level + 1] - moved))
    return VectorPasses(tuple(below), tuple(inner), tuple(final))


def vector_slopes(
    tree: Tree, found: VectorPasses, squares: Sequence[Array], weights: Sequence[Array]
) -> tuple[list[Array], Array]:
    """Derivatives of the sum of `tr(weights final)` by each precision, and `X^-1 G X^-1` at the leaves.

    `weights[l]`, (nodes, rank, rank), count a node with all that it stands for; so do the derivatives.
    """
    at_final = [each.copy() for each in weights]
    at_sums: list[Array] = []
    for level in range(tree.depth - 1, -1, -1):
        inner, parents = found.inner[level], tree.parents[level]
        share = found.below[level + 1] @ inner[parents]
        moved = tree.plain_up(level, share.swapaxes(1, 2) @ at_final[level + 1] @ share)
        rank = moved.shape[-1]
        at_final[level][:, :rank, :rank] += moved
        ahead = moved @ found.final[level][:, :rank, :rank] @ inner
        at_sums.insert(0, moved - ahead - ahead.swapaxes(1, 2))
    slopes, at_below = [], at_final[0]
    for level in range(tree.depth + 1):
        seen = found.below[level] @ at_below @ found.below[level]
        slopes.append(-np.einsum("kij,uij->uk", squares[level], seen, optimize=True))
        if level < tree.depth:
            parents, inner = tree.parents[level], found.inner[level]
            rank = inner.shape[-1]
            passed = (at_sums[level] + inner @ seen[:, :rank, :rank] @ inner)[parents]
            both = found.below[level + 1] @ at_final[level + 1]
            less = (inner - inner @ found.final[level][:, :rank, :rank] @ inner)[parents] @ both
            at_below = at_final[level + 1] - less - less.swapaxes(1, 2)
            at_below = at_below + passed * tree.copies[level + 1][:, None, None]
    return slopes, seen


def vector_solved(
    tree: Tree, found: VectorPasses, sides: Sequence[Array | None], columns: int
) -> list[Array]:
    """Totals of all nodes, (nodes, rank, columns), of the solution of `X y = sum of sides` (claim T-010).

    Sides are (nodes, rank, columns) a level, None for nothing. The tree has no copies.
    """
    totals: list[Array] = []
    added: list[Array] = []
    for level in range(tree.depth, -1, -1):
        side = sides[level]
        rank = found.below[level].shape[-1]
        own = np.zeros((tree.sizes[level], rank, columns)) if side is None else side.copy()
        if level < tree.depth:
            added.insert(0, tree.plain_up(level, totals[0]))
            own[:, : added[0].shape[1]] += found.inner[level] @ added[0]
        totals.insert(0, found.below[level] @ own)
    for level, parents in enumerate(tree.parents):
        rank = added[level].shape[1]
        left = found.inner[level] @ (totals[level][:, :rank] - added[level])
        totals[level + 1] = totals[level + 1] + found.below[level + 1] @ left[parents]
    return totals


def vector_root_trace(tree: Tree, weights: Sequence[Array], leaves: Array) -> float:
    """At most the trace of the root of `D^1/2 G D^1/2`, short of it by a part of 1e-4 or less (T-005).

    `G` is the sum over all nodes of `1_u 1_u' x weights[l]`, (nodes, cells, cells), and `D` is diagonal with
    `leaves`, (leaves, cells).
    """
    size = leaves.shape[1]
    diagonal = leaves[:, :, None] * np.eye(size)
    largest = sum(
        float((tree.stands_for[-1][:, None] * leaves * np.einsum("uii->ui", own)[_owners(tree, level)]).sum())
        for level, own in enumerate(weights)
    )
    start, total, at = 0.5 * np.log(largest), 0.0, 0.0
    for direction in (STEP, -STEP):
        at = start + (direction if direction < 0 else 0.0)
        while at > start - REACH:
            term = np.exp(at) * _log_determinant(tree, weights, diagonal * np.exp(-2.0 * at))
            total += term
            at += direction
            if term <= 1e-10 * total:
                break
    # Determinants grow as t falls: the last one bounds all that are left out.
    total += term / np.expm1(STEP)
    return float(total * STEP / np.pi / (1.0 + EXCESS))


def _owners(tree: Tree, level: int) -> Integers:
    """The node of a level that each leaf is below."""
    found = np.arange(tree.sizes[-1])
    for parents in reversed(tree.parents[level:]):
        found = parents[found]
    return found


def _log_determinant(tree: Tree, weights: Sequence[Array], below: Array) -> float:
    """Of `1 + D^1/2 G D^1/2`: one factor a node, from the sums of what is below it."""
    total = 0.0
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
            below = tree.up(level, below)
        factor = np.eye(below.shape[-1]) + weights[level] @ below
        total += float((tree.stands_for[level] * np.linalg.slogdet(factor)[1]).sum())
        below = np.asarray(np.linalg.solve(factor.swapaxes(1, 2), below))
    return total
