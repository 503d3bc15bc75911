"""The best precisions of measurements on the nodes of a tree, for a weighted sum of node variances.

A record costs the sum of all precisions on the path from the root to its leaf; the budget is 1. What a node
has left is split by shares between its own channels and its children, so every choice of shares is feasible
and every path is tight; the shares are found by L-BFGS on their logits. No choice of precisions on the same
nodes does better than the bound that the slopes prove (claim T-003).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from residua._arrays import Array, Flags, Integers
from residua.linalg.trees import Levels, Tree, passes, slopes
from residua.solve.newton import quasi_newton_steps

ROUND = 60  # steps between two looks at the bracket
LEAST_SHARE = 1e-6  # to start with: a share of nothing has no slope
FARTHEST = -30.0  # logits further below the largest make no difference: squares of what is left must fit
MEMORY = 12  # pairs of steps and slopes that L-BFGS keeps
POWERS = (16.0, 40.0, 100.0, 250.0, 600.0, 1500.0, 4000.0)  # of the means that stand for the largest ratio

Loss = Callable[[Sequence[Array]], tuple[float, list[Array]]]
"""What variances of all nodes are worth, and its slopes in them."""


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
    problem = _Shares(tree, [np.asarray(each, dtype=float) for each in weights])
    at, best = problem.start(), None
    for _ in range(max(1, steps // ROUND)):
        at, moved = problem.searched(at)
        solution = bracket(tree, problem.weights, problem.precisions(at)[0])
        if best is None or solution.value < best.value:
            proved = solution.lower_bound if best is None else max(solution.lower_bound, best.lower_bound)
            best = replace(solution, lower_bound=proved)
        if best.gap <= gap or moved < 2:
            break
    assert best is not None
    return best


def solve_laplace(tree: Tree, weights: Sequence[Array], rounds: int = 10, starts: int = 3) -> list[Array]:
    """Costs of nodes with Laplace noise, (nodes, 1) a level, that add up to 1 along paths: the best found.

    Variances are not convex in the costs of Laplace noise: levels that are better left alone are found by
    trying every choice of them, and the best few are searched from (claim T-017).
    """
    problem = _Shares(tree, [np.asarray(each, dtype=float) for each in weights], power=2)
    levels = np.array([own.sum() for own in problem.weights])
    tried = []
    for chosen in product((False, True), repeat=tree.depth):
        kept = np.append(chosen, True)  # what is asked of the last level nothing else tells
        shares = np.where(kept, np.cbrt(np.maximum(levels, 1e-3 * levels.max())), 0.0)
        at = problem.start([np.array([own]) for own in shares / shares.sum()])
        tried.append((problem.value(at, np.ones(len(at)))[0], at))
    best = None
    for _, at in sorted(tried, key=lambda each: each[0])[:starts]:
        value = math.inf
        for _ in range(rounds):
            at, moved = problem.searched(at)
            before, value = value, problem.value(at, np.ones(len(at)))[0]
            if moved < 2 or value > before * (1 - 1e-5):
                break
        best = (value, at) if best is None or value < best[0] else best
    assert best is not None
    return [np.sqrt(2.0 * own) for own in problem.precisions(best[1])[0]]


@dataclass(frozen=True, slots=True, eq=False)
class Capped:
    """Queries of nodes of a level whose variances must not exceed 1, in units of what each is allowed.

    `rows`, (kinds, channels), has for each kind of query what variance 1 of each channel adds to its own.
    """

    level: int
    nodes: Integers
    rows: Array


@dataclass(frozen=True, slots=True)
class CappedSolution(TreeSolution):
    """The largest ratio instead of a weighted sum; `prices` are weights of all queries that prove the bound.

    They sum to 1, one array (nodes, kinds) for each of the capped, all counted that a node stands for.
    """

    prices: tuple[Array, ...]


def solve_capped(
    tree: Tree, channels: int, capped: Sequence[Capped], gap: float = 1e-3, rounds: int = 6
) -> CappedSolution:
    """Precisions at privacy cost 1 with the least largest ratio found, and a bound for this class (T-014)."""
    weights = [np.zeros((size, channels)) for size in tree.sizes]
    for own in capped:
        weights[own.level][own.nodes] += tree.stands_for[own.level][own.nodes, None] * own.rows.sum(axis=0)
    problem = _Shares(tree, weights)
    at, best = problem.start(), None
    for power in POWERS:
        largest = _Largest(tree, channels, capped, power)
        problem.loss = largest
        for _ in range(rounds):
            at, moved = problem.searched(at)
            precisions = problem.precisions(at)[0]
            value, weights, prices, _ = largest.looked(passes(tree, precisions).final)
            bound = bracket(tree, weights, precisions).lower_bound
            if best is None:
                best = CappedSolution(tuple(precisions), value, bound, tuple(prices))
            if value < best.value:
                best = replace(best, precisions=tuple(precisions), value=value)
            if bound > best.lower_bound:
                best = replace(best, lower_bound=bound, prices=tuple(prices))
            if best.gap <= gap or moved < 2:
                break
    assert best is not None
    return best


class _Largest:
    """A power mean of all ratios, which stands for the largest, and its slopes in the variances."""

    def __init__(self, tree: Tree, channels: int, capped: Sequence[Capped], power: float) -> None:
        self.tree, self.channels, self.capped, self.power = tree, channels, capped, power

    def looked(self, final: Sequence[Array]) -> tuple[float, list[Array], list[Array], float]:
        """The largest ratio; weights of variances, (nodes, channels) a level; prices; their sum before."""
        ratios, stands = [], []
        for own in self.capped:
            asked = own.rows.any(axis=0)
            ratios.append(final[own.level][own.nodes][:, asked] @ own.rows[:, asked].T)
            stands.append(self.tree.stands_for[own.level][own.nodes, None])
        largest = max(float(own.max()) for own in ratios)
        pairs = zip(ratios, stands, strict=True)
        powers = [(own / largest) ** (self.power - 1) * many for own, many in pairs]
        whole = sum(float(own.sum()) for own in powers)
        weights = [np.zeros((size, self.channels)) for size in self.tree.sizes]
        for own, power in zip(self.capped, powers, strict=True):
            weights[own.level][own.nodes] += power @ own.rows / whole
        return largest, weights, [own / whole for own in powers], whole

    def __call__(self, final: Sequence[Array]) -> tuple[float, list[Array]]:
        """The power mean, and its slopes."""
        largest, weights, _, whole = self.looked(final)
        summed = whole * _weighted(weights, final) / largest  # of p-th powers
        slope = whole * summed ** (1 / self.power - 1)
        return largest * summed ** (1 / self.power), [slope * own for own in weights]


class _Shares:
    """Precisions as functions of logits, one for every open channel of a node and one for what is below.

    What costs x has precision `x^power / power`: x itself for Gaussian noise, half of its square for Laplace.
    """

    def __init__(self, tree: Tree, weights: list[Array], power: int = 1) -> None:
        self.tree, self.weights, self.power = tree, weights, power
        self.loss: Loss = lambda final: (_weighted(weights, final), weights)
        self.open = _open(tree, weights)
        self.masks = []  # (nodes, channels + 1)
        for level, own in enumerate(self.open):
            passed = np.zeros(len(own), dtype=np.bool_)
            if level < tree.depth:
                passed = np.logical_or.reduceat(self.open[level + 1].any(axis=1), tree.starts[level])
            self.masks.append(np.column_stack([own, passed]))
        self.ends = np.cumsum([mask.sum() for mask in self.masks])[:-1]

    def searched(self, at: Array) -> tuple[Array, int]:
        """Better logits after some steps, and how many those were."""
        scale = self.scale(at)
        value = partial(self.value, scale=scale)
        ends = {"maxiter": ROUND, "maxcor": MEMORY, "ftol": 1e-15, "gtol": 1e-14}
        found, steps = quasi_newton_steps(value, at * scale, **ends)
        return found / scale, steps

    def start(self, precisions: Sequence[Array] | None = None) -> Array:
        """Logits of costs, (channels,) a level; by default the best on a regular tree of the same sizes."""
        precisions = _regular(self.tree, self.weights) if precisions is None else precisions
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
        left, found, shares = [np.ones(1)], [], []
        for level, (own, mask) in enumerate(zip(np.split(logits, self.ends), self.masks, strict=True)):
            table = np.full(mask.shape, -np.inf)
            table[mask] = own
            largest = table.max(axis=1, keepdims=True)
            table = np.exp(np.maximum(table - np.where(np.isfinite(largest), largest, 0.0), FARTHEST)) * mask
            table /= np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
            shares.append(table)
            found.append((left[-1][:, None] * table[:, :-1]) ** self.power / self.power)
            if level < self.tree.depth:
                left.append((left[-1] * table[:, -1])[self.tree.parents[level]])
        return found, shares, left

    def value(self, scaled: Array, scale: Array) -> tuple[float, Array]:
        """Weighted variances and their slope in the scaled logits."""
        precisions, shares, left = self.precisions(scaled / scale)
        found = passes(self.tree, precisions)
        value, weights = self.loss(found.final)
        by_cost = slopes(self.tree, found, weights)
        if self.power == 2:  # from slopes in the precisions
            by_cost = [a * np.sqrt(2.0 * b) for a, b in zip(by_cost, precisions, strict=True)]
        at_left: list[Array] = [np.empty(0)] * (self.tree.depth + 1)
        result: list[Array] = [np.empty(0)] * (self.tree.depth + 1)
        for level in range(self.tree.depth, -1, -1):
            below = np.zeros(len(left[level]))
            if level < self.tree.depth:
                below = self.tree.plain_up(level, at_left[level + 1])
            by_share = np.column_stack([by_cost[level], below])
            at_left[level] = (by_share * shares[level]).sum(axis=1)
            inner = (by_share - at_left[level][:, None]) * shares[level] * left[level][:, None]
            result[level] = inner[self.masks[level]]
        return value, np.concatenate(result) / scale

    def scale(self, logits: Array) -> Array:
        """Roots of what each share does to the value: the steps of large and small nodes become alike."""
        precisions, shares, _ = self.precisions(logits)
        found = passes(self.tree, precisions)
        by_precision = [self.power * own for own in slopes(self.tree, found, self.loss(found.final)[1])]
        parts = [-a * b for a, b in zip(by_precision, precisions, strict=True)]
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
