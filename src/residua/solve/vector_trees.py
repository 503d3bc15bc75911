"""The best matrices for the levels of a tree, and how precisely each node is measured by that of its level.

On a regular tree the best privacy matrix is one square matrix for each level, found from one small dual with
as many unknowns as the other attributes have cells (claim T-011). On any other tree those of the regular tree
of the same sizes are taken, and each node has a precision of its own; where places of one level are of very
different sizes, so are the kinds of matrices (claim T-012).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import VANISHING
from residua.linalg.trees import Levels, Tree
from residua.linalg.vector_trees import nested_bases, vector_passes, vector_root_trace, vector_slopes
from residua.solve.newton import quasi_newton, quasi_newton_steps

SHARP = (64.0, 512.0, 4096.0)  # powers of the sum that stands for the dearest cell while searching
ROUND = 50  # steps between two looks at the bracket
KEPT = 1e-6  # of what is known at a level that is measured there at least: its span must not shrink
LEAST_CELL = 1e-12  # of the largest weight of a cell
FARTHEST = 12.0  # logits beyond which a share is all or nothing
LEAST_SHARE = 1e-4  # to start with: a share of nothing has no slope


@dataclass(frozen=True, slots=True)
class LevelMatrices:
    """Rows for each level, (rows, cells), at cost 1 where each node has precision 1, and the dual point.

    `cells`, (cells,), are weights that prove `lower`, for the regular tree of the same sizes; there `upper`
    is reached.
    """

    rows: tuple[Array, ...]
    cells: Array
    lower: float
    upper: float


def level_matrices(nodes: Array, grams: Sequence[Array], gap: float, steps: int = 600) -> LevelMatrices:
    """The best matrices of the regular tree with so many nodes a level, (levels,), for grams of one node."""
    dual = _Dual(nodes, grams)
    at = np.zeros(len(grams[0]))
    for _ in range(12):  # fixed-point steps are quick to begin with
        at = np.log(dual.evaluated(at)[1])
    best = dual.matrices(at)
    for _ in range(steps // ROUND):
        found, moved = quasi_newton_steps(dual.value, at, maxiter=ROUND, ftol=0, gtol=0)
        at = np.log(np.maximum(dual.evaluated(found)[1], LEAST_CELL))
        best = min(best, dual.matrices(found), dual.matrices(at), key=lambda each: each.upper / each.lower)
        if best.upper <= best.lower * (1 + gap) or moved < 2:
            break
    return best


class _Dual:
    """The dual on the regular tree: traces of roots of what is asked at or below each level."""

    def __init__(self, nodes: Array, grams: Sequence[Array]) -> None:
        leaves = nodes[-1] / nodes
        self.leaves, self.parts, self.bases = leaves, np.diff(nodes, prepend=0.0), spans(grams)
        parts = [leaf * gram for leaf, gram in zip(leaves, grams, strict=True)]
        self.asked = np.cumsum(parts[::-1], axis=0)[::-1]  # (levels, cells, cells)
        self.trees = float(nodes[-1])

    def evaluated(self, at: Array) -> tuple[float, Array, Array, Array, Array]:
        """Trace, its parts by cell, roots and directions of every level, and the cells' weights."""
        cells = np.exp(at - at.max())
        cells = cells / cells.sum()
        squares, directions = np.linalg.eigh(np.sqrt(np.outer(cells, cells)) * self.asked)
        roots = np.sqrt(np.clip(squares, 0.0, None))
        by_cell = np.einsum("l,lia,la->i", self.parts, directions**2, roots)
        return float(by_cell.sum()), by_cell, roots, directions, cells

    def value(self, at: Array) -> tuple[float, Array]:
        """`-2 log trace` at weights that sum to 1, and its slope in their logarithms."""
        trace, by_cell, _, _, cells = self.evaluated(at)
        return -2.0 * np.log(trace), cells - by_cell / trace

    def matrices(self, at: Array) -> LevelMatrices:
        trace, by_cell, roots, directions, cells = self.evaluated(at)
        scale = 1.0 / np.sqrt(np.outer(cells, cells))
        known = np.einsum("lia,la,lja->lij", directions, roots, directions) * scale
        own = known.copy()
        own[:-1] = known[:-1] - (1 - KEPT) * known[1:]  # the root is monotone, so this is no less than 0
        own /= self.leaves[:, None, None]
        cost = float(np.einsum("lii->i", own).max())
        upper = trace * float((by_cell / cells).max()) / self.trees
        rows = tuple(_root(square / cost, basis) for square, basis in zip(own, self.bases, strict=True))
        return LevelMatrices(rows, cells, trace**2 / self.trees, upper)


def _root(square: Array, basis: Array) -> Array:
    """Rows within a basis whose gram is a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(basis.T @ square @ basis)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T @ basis.T)


def spans(grams: Sequence[Array]) -> tuple[Array, ...]:
    """Coordinates of what is asked at each level or below it, from the grams of all levels."""
    found = []
    for values, vectors in map(np.linalg.eigh, grams):
        kept = values > VANISHING * max(float(values[-1]), 1e-300)
        found.append((vectors[:, kept] * np.sqrt(values[kept])).T)
    return nested_bases(found)


@dataclass(frozen=True, slots=True)
class VectorSolution:
    """Precisions of all nodes at privacy cost 1, the weighted variances they give, and a bound for all."""

    precisions: Levels  # (nodes, kinds)
    value: float
    lower_bound: float


def solve_vector_tree(
    tree: Tree, weights: Sequence[Array], rows: Sequence[Sequence[Array]], cells: Array, steps: int = 300
) -> VectorSolution:
    """Precisions for nodes that measure the kinds of rows of their level, and a bound for all mechanisms.

    `weights[l]`, (nodes, cells, cells), are grams of what is asked of a node, with all that it stands for.
    """
    problem = _Budgets(tree, weights, rows)
    at = problem.start()
    ways = [problem.scaled(problem.precisions(at, SHARP[-1])[0])]
    for power in SHARP if len(at) else ():
        at = quasi_newton(partial(problem.value, power=power), at, maxiter=steps, ftol=1e-10, gtol=1e-8)
        ways.append(problem.scaled(problem.precisions(at, SHARP[-1])[0]))
    precisions = min(ways, key=problem.total)
    return VectorSolution(tuple(precisions), problem.total(precisions), problem.bound(precisions, cells))


class _Budgets:
    """Precisions as functions of logits: the share of what the dearest cell has left at a node, by kinds."""

    def __init__(self, tree: Tree, weights: Sequence[Array], rows: Sequence[Sequence[Array]]) -> None:
        self.tree, self.grams = tree, weights
        self.bases = spans([own.sum(axis=0) for own in weights])
        pairs = list(zip(self.bases, rows, strict=True))
        self.squares = [
            np.stack([basis.T @ (own.T @ own) @ basis for own in kinds]) for basis, kinds in pairs
        ]
        self.weights = [basis.T @ own @ basis for basis, own in zip(self.bases, weights, strict=True)]
        # (kinds, cells): what a record costs
        self.costs = [np.stack([np.maximum((own**2).sum(axis=0), 1e-12) for own in kinds]) for kinds in rows]
        self.kinds = len(self.costs[0])
        # For each node one logit of its share, but at the last level, and one for each kind.
        self.shapes = [(size, self.kinds + (level < tree.depth)) for level, size in enumerate(tree.sizes)]
        self.ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]

    def start(self) -> Array:
        """Logits at which every node has precision 1 in its first kind, as on the regular tree."""
        left, found = np.ones(self.costs[0].shape[1]), []
        for shape, costs in zip(self.shapes, self.costs, strict=True):
            share = np.clip(float((costs[0] / left).max()), LEAST_SHARE, 1 - LEAST_SHARE)
            row = np.append(np.where(np.arange(self.kinds) > 0, -1.0, 0.0), np.log(share / (1 - share)))
            found.append(np.broadcast_to(row[: shape[1]], shape).reshape(-1))
            left = np.maximum(left - costs[0], LEAST_SHARE * costs[0].max())
        return np.concatenate(found)

    def _split(self, logits: Array) -> list[tuple[Array, Array]]:
        """For each level the parts of the kinds, (nodes, kinds), and the share of each node, (nodes,)."""
        found = []
        for shape, own in zip(self.shapes, np.split(logits, self.ends), strict=True):
            table = own.reshape(shape)
            parts = np.exp(table[:, : self.kinds] - table[:, : self.kinds].max(axis=1, keepdims=True))
            share = np.ones(len(table))
            if shape[1] > self.kinds:
                share = 1 / (1 + np.exp(-np.clip(table[:, -1], -FARTHEST, FARTHEST)))
            found.append((parts / parts.sum(axis=1, keepdims=True), share))
        return found

    def precisions(self, logits: Array, power: float) -> tuple[list[Array], list[Array], list[Array]]:
        """Precisions, what is left of each cell's budget at each node, and how near each cell is to it."""
        left, found, budgets, near = np.ones((1, self.costs[0].shape[1])), [], [], []
        for level, ((parts, share), kinds) in enumerate(zip(self._split(logits), self.costs, strict=True)):
            costs = parts @ kinds
            ratio = costs / left
            most = ratio.max(axis=1, keepdims=True)
            norm = most * ((ratio / most) ** power).sum(axis=1, keepdims=True) ** (1 / power)
            found.append(share[:, None] / norm * parts)
            budgets.append(left)
            near.append((ratio / norm) ** power)
            if level < self.tree.depth:
                left = (left - found[-1] @ kinds)[self.tree.parents[level]]
        return found, budgets, near

    def value(self, logits: Array, power: float) -> tuple[float, Array]:
        """The logarithm of the weighted variances, and its slope in the logits."""
        precisions, budgets, near = self.precisions(logits, power)
        found = vector_passes(self.tree, precisions, self.squares)
        value = self._summed(found.final)
        slopes, _ = vector_slopes(self.tree, found, self.squares, self.weights)
        at_left, split = np.zeros(0), self._split(logits)
        result: list[Array] = []
        for level in range(self.tree.depth, -1, -1):
            (parts, share), kinds = split[level], self.costs[level]
            passed = np.zeros_like(budgets[level])
            if level < self.tree.depth:
                passed = self.tree.plain_up(level, at_left)
            slope = slopes[level] - passed @ kinds.T  # by precision
            by_share = (slope * precisions[level]).sum(axis=1)  # by its logarithm
            at_left = passed + by_share[:, None] * near[level] / budgets[level]
            # The parts set the cells' costs, which set the norm: what it loses is near / costs of a cell.
            lost = by_share[:, None] * ((near[level] / (parts @ kinds)) @ kinds.T)
            by_part = slope * precisions[level].sum(axis=1, keepdims=True) - lost
            inner = parts * (by_part - (parts * by_part).sum(axis=1, keepdims=True))
            last = [(by_share * (1 - share))[:, None]] if level < self.tree.depth else []
            result.insert(0, np.concatenate([inner, *last], axis=1).reshape(-1))
        return float(np.log(value)), np.concatenate(result) / value

    def scaled(self, precisions: Sequence[Array]) -> list[Array]:
        """The precisions at privacy cost 1."""
        costs = precisions[0] @ self.costs[0]
        for parents, own, each in zip(self.tree.parents, precisions[1:], self.costs[1:], strict=True):
            costs = costs[parents] + own @ each
        return [own / float(costs.max()) for own in precisions]

    def total(self, precisions: Sequence[Array]) -> float:
        """Weighted variances."""
        return self._summed(vector_passes(self.tree, precisions, self.squares).final)

    def _summed(self, final: Sequence[Array]) -> float:
        pairs = zip(self.weights, final, strict=True)
        return float(sum(np.einsum("uij,uij->", own, found) for own, found in pairs))

    def bound(self, precisions: Sequence[Array], cells: Array) -> float:
        """No mechanism of cost 1 reaches below this: the dual at what leaves and cells are worth (T-013)."""
        found = vector_passes(self.tree, precisions, self.squares)
        slopes, seen = vector_slopes(self.tree, found, self.squares, self.weights)
        stands = self.tree.stands_for
        single = [own / each[:, None, None] for own, each in zip(self.grams, stands, strict=True)]
        ways = [-slopes[-1].min(axis=1)[:, None] * cells]
        if self.bases[-1].shape[1] == len(cells):  # else cells that leaves do not tell apart count nothing
            ways.append(np.einsum("ia,uab,ib->ui", self.bases[-1], seen, self.bases[-1], optimize=True))
        return max(
            vector_root_trace(self.tree, single, way / stands[-1][:, None]) ** 2 / float(way.sum())
            for way in (np.maximum(each, 1e-12 * each.max()) for each in ways)
        )
