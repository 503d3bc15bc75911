"""The best precisions of measurements on the nodes of a tree, for a weighted sum of node variances.

A record costs the sum of all precisions on the path from the root to its leaf; the budget is 1. What a node
has left is split by shares between its own channels and its children, so every choice of shares is feasible
and every path is tight; the shares are found by L-BFGS on their logits. No choice of precisions on the same
nodes does better than the bound that the slopes prove (claim T-003).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Flags
from residua.linalg.trees import Levels, Tree, passes, slopes

ROUND = 60  # steps between two looks at the bracket
LEAST_SHARE = 1e-6  # to start with: a share of nothing has no slope
FARTHEST = -30.0  # logits further below the largest make no difference: squares of what is left must fit
MEMORY = 12  # pairs of steps and slopes that L-BFGS keeps


@dataclass(frozen=True, slots=True)
class TreeSolution:
    """Precisions at privacy cost 1, the weighted variances they give, and a bound for this class."""

    precisions: Levels  # (nodes, channels)
    value: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """The most that other precisions on the same nodes could save, as a part of the value."""
        return 1.0 - self.lower_bound / self.value


def solve_tree(tree: Tree, weights: Sequence[Array], gap: float = 1e-4, steps: int = 1200) -> TreeSolution:
    """Precisions within `gap` of the best, or the best found within so many steps.

    `weights[l]`, (nodes, channels), are what the variance at a node counts, with all that it stands for.
    """
    from scipy.optimize import minimize  # loading it takes longer than planning marginals

    problem = _Shares(tree, [np.asarray(each, dtype=float) for each in weights])
    at, best = problem.start(), None
    for _ in range(max(1, steps // ROUND)):
        scale = problem.scale(at)
        found = minimize(
            problem.value,
            at * scale,
            args=(scale,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": ROUND, "maxcor": MEMORY, "ftol": 1e-15, "gtol": 1e-14},
        )
        at = found.x / scale
        solution = problem.solution(at)
        if best is None or solution.value < best.value:
            best = (
                solution
                if best is None
                else TreeSolution(
                    solution.precisions, solution.value, max(solution.lower_bound, best.lower_bound)
                )
            )
        if best.gap <= gap or found.nit < 2:
            break
    assert best is not None
    return best


class _Shares:
    """Precisions as functions of logits, one for every open channel of a node and one for what is below."""

    def __init__(self, tree: Tree, weights: list[Array]) -> None:
        self.tree, self.weights = tree, weights
        self.open = _open(tree, weights)
        self.masks = []  # (nodes, channels + 1)
        for level, own in enumerate(self.open):
            passed = np.zeros(len(own), dtype=np.bool_)
            if level < tree.depth:
                passed = np.logical_or.reduceat(self.open[level + 1].any(axis=1), tree.starts[level])
            self.masks.append(np.column_stack([own, passed]))
        self.ends = np.cumsum([mask.sum() for mask in self.masks])[:-1]

    def start(self) -> Array:
        """Logits of the shares that are best on a regular tree of the same sizes."""
        precisions = _regular(self.tree, self.weights)
        left = 1.0
        found = []
        for level, mask in enumerate(self.masks):
            shares = np.maximum(np.append(precisions[level], 0.0) / left, LEAST_SHARE)
            shares[-1] = max(1.0 - shares[:-1].sum(), LEAST_SHARE)
            left = max(left - precisions[level].sum(), 1e-300)
            found.append(np.broadcast_to(np.log(shares), mask.shape)[mask])
        return np.concatenate(found)

    def precisions(self, logits: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Precisions, shares and what is left at each node."""
        left, found, shares = np.ones(1), [], []
        for level, (own, mask) in enumerate(zip(np.split(logits, self.ends), self.masks, strict=True)):
            table = np.full(mask.shape, -np.inf)
            table[mask] = own
            largest = table.max(axis=1, keepdims=True)
            table = np.exp(np.maximum(table - np.where(np.isfinite(largest), largest, 0.0), FARTHEST)) * mask
            table /= np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
            shares.append(table)
            found.append(left[:, None] * table[:, :-1])
            if level < self.tree.depth:
                left = (left * table[:, -1])[self.tree.parents[level]]
        return found, shares, self._left(shares)

    def _left(self, shares: list[Array]) -> list[Array]:
        left = [np.ones(1)]
        for level, parents in enumerate(self.tree.parents):
            left.append((left[-1] * shares[level][:, -1])[parents])
        return left

    def value(self, scaled: Array, scale: Array) -> tuple[float, Array]:
        """Weighted variances and their slope in the scaled logits."""
        precisions, shares, left = self.precisions(scaled / scale)
        found = passes(self.tree, precisions)
        value = _weighted(self.weights, found.final)
        by_precision = slopes(self.tree, found, self.weights)
        at_left: list[Array] = [np.empty(0)] * (self.tree.depth + 1)
        result: list[Array] = [np.empty(0)] * (self.tree.depth + 1)
        for level in range(self.tree.depth, -1, -1):
            below = np.zeros(len(left[level]))
            if level < self.tree.depth:
                below = self.tree.plain_up(level, at_left[level + 1])
            by_share = np.column_stack([by_precision[level], below])
            at_left[level] = (by_share * shares[level]).sum(axis=1)
            inner = (by_share - at_left[level][:, None]) * shares[level] * left[level][:, None]
            result[level] = inner[self.masks[level]]
        return value, np.concatenate(result) / scale

    def scale(self, logits: Array) -> Array:
        """Roots of what each share does to the value: the steps of large and small nodes become alike."""
        precisions, shares, _ = self.precisions(logits)
        found = passes(self.tree, precisions)
        parts = [-a * b for a, b in zip(slopes(self.tree, found, self.weights), precisions, strict=True)]
        below: list[Array] = [parts[-1].sum(axis=1)]
        for level in range(self.tree.depth - 1, -1, -1):
            below.insert(0, parts[level].sum(axis=1) + self.tree.plain_up(level, below[0]))
        least = 1e-9 * below[0][0]
        return np.concatenate(
            [
                np.sqrt(np.maximum(own[:, None] * (table * (1 - table)), least / len(own)))[mask]
                for own, table, mask in zip(below, shares, self.masks, strict=True)
            ]
        )

    def solution(self, logits: Array) -> TreeSolution:
        """What these logits give, with the bound that their slopes prove."""
        precisions, _, _ = self.precisions(logits)
        return bracket(self.tree, self.weights, precisions)


def bracket(tree: Tree, weights: Sequence[Array], precisions: Sequence[Array]) -> TreeSolution:
    """The value of precisions and the bound that they prove: value^2 over the dearest path of slopes."""
    found = passes(tree, precisions)
    value = _weighted(weights, found.final)
    by_precision = slopes(tree, found, weights)
    dearest = -by_precision[-1].min(axis=1)
    for level in range(tree.depth - 1, -1, -1):
        dearest = np.maximum(-by_precision[level].min(axis=1), tree.plain_up(level, dearest))
    return TreeSolution(tuple(precisions), value, value**2 / float(dearest[0]))


def _weighted(weights: Sequence[Array], variances: Sequence[Array]) -> float:
    """Sum of weights times variances; what is not asked may have none."""
    return float(
        sum(
            (own * np.where(own > 0, found, 0.0)).sum() for own, found in zip(weights, variances, strict=True)
        )
    )


def _open(tree: Tree, weights: list[Array]) -> list[Flags]:
    """Channels that each node may measure: those asked at or below it or a sibling."""
    asked = [own > 0 for own in weights]
    for level in range(tree.depth - 1, -1, -1):
        asked[level] |= np.logical_or.reduceat(asked[level + 1], tree.starts[level], axis=0)
    found = [asked[0]]
    for level, parents in enumerate(tree.parents):
        found.append(np.logical_or.reduceat(asked[level + 1], tree.starts[level], axis=0)[parents])
    return found


def _regular(tree: Tree, weights: list[Array]) -> list[Array]:
    """The optimum of the regular tree with the same level sizes and weights, (channels,) a level (T-004)."""
    nodes = np.array([each.sum() for each in tree.stands_for])
    asked = np.array([own.sum(axis=0) for own in weights]) / nodes[:, None]  # of one node
    leaves = nodes[-1] / nodes
    roots = np.sqrt(np.cumsum((asked * leaves[:, None])[::-1], axis=0)[::-1])
    found = (roots - np.append(roots[1:], np.zeros((1, roots.shape[1])), axis=0)) / leaves[:, None]
    return list(found / found.sum())
