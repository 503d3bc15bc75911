"""Optimised centring: blocks under the product measure that makes their sum least (claims C-001 to C-004).

A query may be split by any weights p on the cells of each attribute that sum to 1, not only by uniform
ones. With T the square root of a block's optimum, the total variance is `(sum over blocks of T)^2`; here p is
chosen to make the sum least, by quasi-Newton steps with exact gradients from uniform weights. The weights are
then rounded to small whole numbers, so that the plan can be measured in integers, and the blocks solved
again under exactly those.

This serves workloads of products of one-attribute families in which each attribute has one family; others
keep uniform centring.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from residua.decompose import decompose
from residua.linalg.centring import Measure, standing_rows
from residua.linalg.keys import distinct_rows
from residua.mechanisms.blocks import solve_blocks
from residua.mechanisms.draft import Draft, Progress
from residua.mechanisms.named import querysmasher
from residua.mechanisms.shapes import Optimal
from residua.solve.cells import solve_cells
from residua.workload import Group, Queries, Tables, Workload

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

INNER_GAP = 1e-7  # the gradient is that of the optimum, and misleads away from it
OUTER_STEPS = 60
LARGEST_WEIGHT = 64  # of the whole numbers that weights are rounded to


def smasher(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Blocks under optimised centring, or under uniform centring where that is not better."""
    uniform = querysmasher(work, tolerance, progress)
    problem = _Problem.of(work)
    if problem is None or not problem.free or uniform.scope == "all mechanisms":
        return uniform
    numerators = problem.solve(progress)
    measures = [
        Measure.whole(numerators[kind]) if kind in numerators else Measure(size)
        for kind, size in zip(problem.kinds.tolist(), work.schema.sizes, strict=True)
    ]
    tilted = solve_blocks(decompose(work, measures), work.schema.sizes, Optimal(), tolerance, progress)
    if tilted.total is None or uniform.total is None or tilted.total >= uniform.total:
        return uniform
    return tilted


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Contributions of tables to blocks of one size, with kinds of attributes in place of attributes.

    `block` is (rows,), which block each adds to; `others` is (rows, ways - size), the kinds that it takes the
    mean of; `weights` is (rows,). `inside` is (blocks, size), the kinds in each block.
    """

    block: list[Integers]
    others: list[Integers]
    weights: list[Array]
    inside: Integers


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The sum of blocks as a function of the weights of each kind of attribute.

    Attributes with the same family in the same numbers of tables are of one kind and share their weights.
    """

    kinds: Integers
    families: tuple[Queries, ...]
    rows: tuple[_Rows, ...]

    @property
    def free(self) -> list[int]:
        """Kinds whose weights are worth choosing: families that treat all cells alike keep uniform ones."""
        return [kind for kind, queries in enumerate(self.families) if not queries.invariant]

    @classmethod
    def of(cls, work: Workload) -> "_Problem | None":
        """The problem of a workload, or None where an attribute has several families or a joint one."""
        families: dict[int, Queries] = {}
        for part in work.parts:
            for at, queries in _asked(part):
                if families.setdefault(at, queries) != queries:
                    return None
            if not _simple(part):
                return None
        numbers: dict[object, int] = {}
        kinds = np.full(len(work.schema), -1, dtype=np.int64)
        for at in sorted(families):
            uses = tuple(int(np.sum(_subsets(part) == at)) for part in work.parts)
            kinds[at] = numbers.setdefault((families[at], uses), len(numbers))
        chosen = [next(at for at in families if kinds[at] == kind) for kind in range(len(numbers))]
        return cls(kinds, tuple(families[at] for at in chosen), tuple(_all_rows(work, kinds)))

    def solve(self, progress: Progress | None) -> dict[int, list[int]]:
        """Whole-number weights of each free kind."""
        from scipy.optimize import minimize

        pieces = {kind: _CentredFamily(queries) for kind, queries in enumerate(self.families)}
        bases = {kind: _sum_zero(self.families[kind].cells) for kind in self.free}
        lengths = [bases[kind].shape[1] for kind in self.free]
        evaluations = 0

        def weights(x: Array) -> dict[int, Array]:
            parts = np.split(x, np.cumsum(lengths)[:-1])
            return {
                kind: 1 / len(bases[kind]) + bases[kind] @ part
                for kind, part in zip(self.free, parts, strict=True)
            }

        def value(x: Array) -> tuple[float, Array]:
            nonlocal evaluations
            evaluations += 1
            if progress is not None:
                progress("choosing weights", min(1.0, evaluations / OUTER_STEPS))
            total, slopes = self._sum(pieces, weights(x))
            return total, np.concatenate([bases[kind].T @ slopes[kind] for kind in self.free])

        found = minimize(
            value, np.zeros(sum(lengths)), jac=True, method="L-BFGS-B", options={"maxiter": OUTER_STEPS}
        )
        return {kind: _whole(p) for kind, p in weights(found.x).items()}

    def _sum(
        self, pieces: dict[int, "_CentredFamily"], chosen: dict[int, Array]
    ) -> tuple[float, dict[int, Array]]:
        """The sum of blocks, and its gradient in the weights of each free kind (claim C-003)."""
        figures = [pieces[kind].at(chosen.get(kind)) for kind in range(len(self.families))]
        means = np.array([figure.mean for figure in figures])
        roots = np.array([figure.root for figure in figures])
        total = 0.0
        by_mean, by_root = np.zeros(len(figures)), np.zeros(len(figures))
        for rows in self.rows:
            count = len(rows.inside)
            values = [
                weights * means[others].prod(axis=1)
                for weights, others in zip(rows.weights, rows.others, strict=True)
            ]
            coefficients = sum(
                np.bincount(block, weights=each, minlength=count)
                for block, each in zip(rows.block, values, strict=True)
            )
            scale = np.sqrt(np.asarray(coefficients, dtype=np.float64))
            product = roots[rows.inside].prod(axis=1)
            sums = scale * product
            total += float(sums.sum())
            for column in rows.inside.T:
                by_root += np.bincount(column, weights=sums, minlength=len(figures)) / np.maximum(
                    roots, 1e-300
                )
            slope = np.divide(product, 2 * scale, out=np.zeros_like(scale), where=scale > 0)
            for block, others, each in zip(rows.block, rows.others, values, strict=True):
                for column in others.T:
                    share = np.bincount(column, weights=slope[block] * each, minlength=len(figures))
                    by_mean += share / np.maximum(means, 1e-300)
        slopes = {
            kind: by_root[kind] * figures[kind].root_slope + by_mean[kind] * figures[kind].mean_slope
            for kind in self.free
        }
        return total, slopes


@dataclass(frozen=True, slots=True, eq=False)
class _Figure:
    """Of a family centred by p: the square root of its optimum, its squared mean, and their slopes in p."""

    root: float
    root_slope: Array
    mean: float
    mean_slope: Array


class _CentredFamily:
    """The optimum of one family as a function of the weights that centre it; solutions start warm."""

    def __init__(self, queries: Queries) -> None:
        self.gram = queries.gram()
        self.rows = queries.root()
        self.lengths = np.linalg.norm(self.rows, axis=1)
        self.start: Array | None = None

    def at(self, weights: Array | None) -> _Figure:
        """Figures at these weights; uniform ones if there are none to choose."""
        cells = len(self.gram)
        p = np.full(cells, 1 / cells) if weights is None else weights
        centred = self.rows - np.outer(self.rows @ p, np.ones(cells))
        image = self.gram @ p
        root = standing_rows(centred, self.lengths)
        if not len(root):
            return _Figure(0.0, np.zeros(cells), float(p @ image), 2 * image)
        solution = solve_cells(root, INNER_GAP, start=self.start)
        self.start = v = solution.cell_weights
        _, scales, right = np.linalg.svd(root * np.sqrt(v), full_matrices=False)
        half = right * np.sqrt(v)  # M = V^1/2 S^+ V^1/2 = half' diag(1/t) half
        m_one = half.T @ (half.sum(axis=1) / scales)
        slope = -self.gram @ (m_one - p * m_one.sum())  # dT/dp = -G C M 1
        return _Figure(math.sqrt(solution.upper), slope, float(p @ image), 2 * image)


def _asked(part: Group | Tables) -> list[tuple[int, Queries]]:
    if isinstance(part, Group):
        return [(at, factor.queries) for factor in part.factors for at in factor.attributes]
    if part.joint is not None:
        return []
    return [(at, part.queries_of(at)) for at in part.attributes]


def _simple(part: Group | Tables) -> bool:
    if isinstance(part, Group):
        return all(len(factor.attributes) == 1 for factor in part.factors)
    return part.joint is None


def _subsets(part: Group | Tables) -> NDArray[np.int32]:
    if isinstance(part, Tables):
        return np.sort(part.subsets, axis=1)
    return np.sort(np.array([part.attributes], dtype=np.int32).reshape(1, -1), axis=1)


def _all_rows(work: Workload, kinds: Integers) -> list[_Rows]:
    """For each size of blocks, what every table adds to which."""
    found: dict[int, list[tuple[NDArray[np.int32], Integers, float]]] = {}
    for part in work.parts:
        subsets = _subsets(part)
        for size in range(subsets.shape[1] + 1):
            for kept in combinations(range(subsets.shape[1]), size):
                others = [place for place in range(subsets.shape[1]) if place not in kept]
                found.setdefault(size, []).append((subsets[:, kept], kinds[subsets[:, others]], part.weight))
    return [_rows_of_size(entries, kinds) for _, entries in sorted(found.items())]


def _rows_of_size(entries: Sequence[tuple[NDArray[np.int32], Integers, float]], kinds: Integers) -> _Rows:
    every = np.concatenate([subsets for subsets, _, _ in entries]).astype(np.int64)
    if every.shape[1]:
        first, block = distinct_rows(every)
    else:
        first, block = np.zeros(1, dtype=np.int64), np.zeros(len(every), dtype=np.int64)
    ends = np.cumsum([len(subsets) for subsets, _, _ in entries])[:-1]
    return _Rows(
        [part.astype(np.int64) for part in np.split(block, ends)],
        [others for _, others, _ in entries],
        [np.full(len(subsets), weight) for subsets, _, weight in entries],
        kinds[every[first]],
    )


def _sum_zero(cells: int) -> Array:
    """Orthonormal directions in which weights can change without changing their sum, (cells, cells - 1)."""
    return np.asarray(np.linalg.qr(np.column_stack([np.ones(cells), np.eye(cells)[:, 1:]]))[0][:, 1:])


def _whole(weights: Array) -> list[int]:
    """Small whole numbers nearly in proportion to the weights."""
    scaled = np.rint(weights * (LARGEST_WEIGHT / np.abs(weights).max())).astype(np.int64)
    common = int(np.gcd.reduce(scaled))
    return [int(entry) // max(common, 1) for entry in scaled]
