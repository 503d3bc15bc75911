"""The trace of a square root under product weights, from below, and its slopes (claims B-006 and B-007)."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from residua._arrays import Array, Subsets
from residua._limits import ALL_PAIRS_WORK, PAIR_SHARED, PAIR_WORK, WIDE_WORK
from residua.bounds.alone import AttributeQueries
from residua.bounds.leaves import (
    EXCESS,
    Axis,
    Leaf,
    Leaves,
    Listed,
    Node,
    Nodes,
    Product,
    Side,
    Slopes,
    inverse_trace,
)
from residua.bounds.pairs import Layout, Shared, Structure, structure_of, ways_of
from residua.bounds.singular import refuse_other
from residua.bounds.wide import wide_dual
from residua.errors import Infeasible
from residua.linalg.matrices import distinct_rows, threads_for
from residua.solve.descent import downhill
from residua.workload import Factor, Queries, Table, TableRun, Workload

LARGEST = 1e60  # entry of a query times the root of its weight: fourth powers must fit
HUGE = 1e290  # a point at which pairs leave all of the shared coordinates


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A structure with the rows of its tables: of each class alone, and of each pair kind (see `roots`)."""

    layout: Layout
    alone: tuple[Array, ...]
    pairs: tuple[tuple[Array, ...], ...]

    @property
    def structure(self) -> Structure:
        """What is asked of single attributes and pairs."""
        return self.layout.structure

    @classmethod
    def of(cls, structure: Structure) -> "Problem":
        """The rows of a structure, made once."""
        alone = []
        for kind, tables in zip(structure.role_of, structure.alone, strict=True):
            rows = [math.sqrt(weight) * queries.root() for queries, weight in tables.items()]
            alone.append(np.concatenate([np.zeros((0, structure.sizes[kind])), *rows]))
        pairs = tuple(kind.roots() for kind in structure.pair_kinds)
        largest = max(
            (float(np.abs(rows).max(initial=0.0)) for rows in (*alone, *chain(*pairs))), default=1.0
        )
        if not 1 / LARGEST < largest < LARGEST:
            raise Infeasible(
                f"queries with entries of about {largest:.0e} are beyond what is computed here; change the "
                "unit of their numbers, or their weights"
            )
        return cls(Layout(structure), tuple(alone), pairs)

    def leaf(self, number: int, axes: Sequence[Axis]) -> Leaf:
        """A pair kind under these weights."""
        one, two = (axes[kind] for kind in self.structure.pair_kinds[number].roles)
        rows = self.pairs[number]
        if len(rows) == 1:
            return Listed.of(rows[0], one, two)
        return Product(Side.of(rows[0], one), Side.of(rows[1], two))


class Evaluation:
    """A lower bound, `value`, on the trace of the root under product weights, and its slopes."""

    def __init__(self, problem: Problem, axes: Sequence[Axis]) -> None:
        structure = problem.structure
        self.axes, self.layout = axes, problem.layout
        self._leaves = [problem.leaf(number, axes) for number in range(len(problem.pairs))]
        self._left = Leaves(self._leaves).left
        self._uses = structure.uses()
        own = [leaf.squares for leaf in self._leaves]
        self._squares = np.concatenate([np.zeros(0), *own])  # of all pairs, and how often each occurs
        self._counts = np.repeat(np.array(self._uses, dtype=np.float64), [len(each) for each in own])
        squares = []
        for kind, rows in zip(structure.role_of, problem.alone, strict=True):
            parts = np.column_stack([rows @ axes[kind].weights, rows @ axes[kind].centred])
            squares.append(parts.T @ parts)
        self._singles = self.layout.of_singles(structure.total, squares)
        self._nodes = self._chosen_nodes()
        self._inverses: list[Shared] = []
        self._whole = self._nodes.sum(self._at)
        self.value = self._whole / EXCESS

    def _at(self, point: float) -> float:
        """The trace of `A (A + s)^-1`, never more than it is (claim B-007); remembers the inverse."""
        once, twice = (self._singles.plus(self.layout.of_pairs(each)) for each in self._left(point))
        total = float(self._counts @ (self._squares / (self._squares + point)))
        inverses = []
        for count, one, two in zip(self.layout.multiplicities, once.parts, twice.parts, strict=True):
            if not count:  # of a class of one attribute, which has no other directions
                inverses.append(np.zeros_like(one))
                continue
            trace, inverse = inverse_trace(one + point * np.eye(len(one)), two)
            inverses.append(inverse)
            total += count * trace
        self._inverses.append(Shared(inverses[0], tuple(inverses[1:])))
        return total

    def _chosen_nodes(self) -> Nodes:
        """Points from below all roots that matter to above all roots."""
        pairs = self.layout.of_pairs(self._left(HUGE)[0])
        whole = self._singles.plus(pairs)
        found = [
            (count, np.maximum(np.linalg.eigvalsh(part), 0.0))
            for count, part in zip(self.layout.multiplicities, whole.parts, strict=True)
            if count
        ]
        squares = np.concatenate([self._squares, *(each for _, each in found)])
        counts = np.concatenate([self._counts, *(np.full(len(each), float(count)) for count, each in found)])
        top = float(np.trace(whole.common) + squares.max())
        if top <= 0:
            return Nodes(np.zeros(0), np.zeros(0))
        return Nodes.around(squares, counts, top)

    def traces(self) -> list[Array]:
        """For each kind of attribute the root's trace over each of its cells, summed over its attributes.

        Half of it, over the weight of a cell, is the slope of the trace of the root (claim B-006).
        """
        structure = self.layout.structure
        sums = [Slopes.zero(axis.width) for axis in self.axes]
        nodes: list[list[Node]] = [[] for _ in self._leaves]
        for point, weight, inverse in zip(
            self._nodes.points.tolist(), self._nodes.weights.tolist(), self._inverses, strict=True
        ):
            for at, (kind, count) in enumerate(zip(structure.role_of, structure.members, strict=True)):
                scale = weight * count
                sums[kind].along += scale * (
                    np.eye(self.layout.widths[at]) - point * self.layout.own(inverse, at)
                )
                sums[kind].across -= scale * point * self.layout.edge(inverse, at)
            for number, local in self.layout.by_kind(inverse).items():
                nodes[number].append(Node(point, weight, local, self._uses[number]))
        for pair_kind, leaf, own in zip(structure.pair_kinds, self._leaves, nodes, strict=True):
            for kind, slopes in zip(pair_kind.roles, leaf.slopes(own), strict=True):
                sums[kind].add(slopes)
        counts = structure.attributes()
        return [
            _by_cell(axis, slopes, count * self._whole)
            for axis, slopes, count in zip(self.axes, sums, counts, strict=True)
        ]


def _by_cell(axis: Axis, slopes: Slopes, whole: float) -> Array:
    """Traces over single cells from partial traces in the coordinates of an attribute."""
    mean = whole - float(np.trace(slopes.along))
    inner = np.sum((axis.turn @ slopes.along) * axis.turn, axis=1)
    return np.asarray(axis.weights * mean + 2 * (axis.centred @ slopes.across) + inner)


MOST_STEPS = 40
LEAST_GAIN = 1e-6  # relative; a step that gains less is the last
LEAST_WEIGHT = 1e-12  # of a cell
ROUNDING = 1e-9  # relative; more than rounding adds to sums of positive numbers


def product_dual(work: Workload) -> float:
    """The best dual bound found over cell weights that are a product over the attributes (B-006 to B-008).

    Within about 1% of the optimum for tables on single attributes and pairs, of any families, and within a
    few for tables on three and more attributes (B-011). The number of attributes hardly matters.

    >>> import residua as rs
    >>> schema = rs.Schema.of_sizes([4] * 20)
    >>> work = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.affine)
    >>> lower = math.sqrt(rs.bounds.product_dual(work) / work.count)
    >>> round(lower, 1), round(rs.plan(work, rs.privacy_cost(1)).rmse, 1)
    (8.9, 9.0)
    """
    refuse_other(work)
    return _searched(work, {})


def _searched(work: Workload, near: Mapping[int, Array], gain: float = LEAST_GAIN) -> float:
    """The same, from weights of some attributes that may be near the best; the others' are equal at first.

    A step that gains less than `gain`, relative, is the last.
    """
    problem, wide = _posed(work, PAIR_WORK, PAIR_SHARED)
    with threads_for(problem.structure.shared):
        start = [np.full(size, 1.0 / size) for size in problem.structure.sizes]
        for at, role in reversed(list(enumerate(problem.structure.roles))):
            if at in near:
                start[role] = _scaled(np.log(near[at] + LEAST_WEIGHT))
        search = _Search(problem)
        best = search.best(start, gain)
        if wide or not search.value:
            search.value = max(_root_at(problem, wide, weights) for weights in (start, best))
    found = (search.value * (1 - ROUNDING)) ** 2
    if wide:
        with suppress(Infeasible):
            found = max(found, wide_dual(work, AttributeQueries(work), WIDE_WORK))
    return found


def product_dual_at(work: Workload, weights: Callable[[int], Array], pairs: float, most: int) -> float:
    """The bound at given weights of each attribute: one evaluation.

    Infeasible where a pair of attributes takes more work than `pairs`, or all share more dimensions than
    `most`.
    """
    problem, wide = _posed(work, pairs, most)
    first = {role: at for at, role in reversed(list(enumerate(problem.structure.roles)))}
    used = set(work.attributes)  # nothing is asked of the cells of others
    own = [weights(first[role]) if first[role] in used else np.ones(1) for role in sorted(first)]
    given = [_scaled(np.log(each + LEAST_WEIGHT)) for each in own]
    with threads_for(0):
        return (_root_at(problem, wide, given) * (1 - ROUNDING)) ** 2


def _posed(work: Workload, pairs: float, most: int) -> tuple[Problem, list[Table | TableRun]]:
    """Tables on up to two attributes as a problem, and those on more."""
    structure = structure_of(work, pairs)
    if structure.shared > most:
        raise Infeasible(
            f"tables on up to two attributes share {structure.shared:,} dimensions, more than the {most:,} "
            "that fit; take fewer attributes at a time, or coarser ones"
        )
    return Problem.of(structure), [part for part in work.parts if ways_of(part) > 2]


def _root_at(problem: Problem, wide: Sequence[Table | TableRun], weights: Sequence[Array]) -> float:
    axes = [Axis.of(each) for each in weights]
    return Evaluation(problem, axes).value + _wide_roots(wide, problem.structure.roles, axes)


def product_dual_or_nothing(
    work: Workload, near: Mapping[int, Array] | None = None, gain: float = LEAST_GAIN
) -> float:
    """The bound where it can be had, from weights `near` the best; otherwise 0, which is a bound too.

    A step that gains less than `gain`, relative, is the last.
    """
    try:
        return _searched(work, near or {}, gain)
    except Infeasible:
        return 0.0


def product_dual_near(work: Workload, near: Mapping[int, Array]) -> float:
    """The bound at weights of attributes that may be near the best: one evaluation; 0 where it has none."""
    if not set(work.attributes) <= near.keys():
        return 0.0
    try:
        return product_dual_at(work, near.__getitem__, PAIR_WORK, PAIR_SHARED)
    except Infeasible:
        return 0.0


class _Search:
    """Quasi-Newton steps on the logarithms of the weights of each kind of attribute.

    `value` is the largest root that was seen.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._ends = np.cumsum(problem.structure.sizes)[:-1]
        self._counts = problem.structure.attributes()
        self.value = 0.0
        self._best: list[Array] = []

    def best(self, start: list[Array], gain: float) -> list[Array]:
        """The weights with the largest bound of all that were tried."""
        self._best = start
        steps = int(min(MOST_STEPS, ALL_PAIRS_WORK // max(self._problem.structure.work, 1.0)))
        if steps > 1 and self._problem.structure.members:
            logs = np.log(np.concatenate(start))
            downhill(self._loss, logs, steps=steps, gain=gain, least=-np.inf, patience=1)
        return self._best

    def _loss(self, logs: Array) -> tuple[float, Array]:
        """Minus the logarithm of the root under weights scaled to sum 1, and its slope."""
        weights = [_scaled(part) for part in np.split(logs, self._ends)]
        found = Evaluation(self._problem, [Axis.of(part) for part in weights])
        if found.value > self.value:
            self.value, self._best = found.value, weights
        slopes = [
            0.5 * (count * part - traces / found.value)
            for part, traces, count in zip(weights, found.traces(), self._counts, strict=True)
        ]
        return -math.log(found.value), np.concatenate(slopes)


def _scaled(logs: Array) -> Array:
    """Positive weights that sum to 1."""
    raw = np.exp(logs - logs.max())
    weights = np.maximum(raw / raw.sum(), LEAST_WEIGHT)
    return np.asarray(weights / weights.sum())


def _wide_roots(parts: Sequence[Table | TableRun], kinds: Sequence[int], axes: Sequence[Axis]) -> float:
    """Sum over sets of three and more attributes of the root of what varies along all of them (B-008)."""
    known: dict[tuple[Queries, tuple[int, ...]], float] = {}

    def root(factor: Factor) -> float:
        key = (factor.queries, tuple(kinds[at] for at in factor.attributes))
        if key not in known:
            tensor = factor.queries.root().reshape(-1, *factor.queries.sizes)
            for place, kind in enumerate(key[1]):
                tensor = np.moveaxis(np.tensordot(tensor, axes[kind].centred, (1 + place, 0)), -1, 1 + place)
            known[key] = float(np.linalg.svd(tensor.reshape(len(tensor), -1), compute_uv=False).sum())
        return known[key]

    sums: dict[int, list[tuple[Subsets, Array]]] = {}
    for part in parts:
        if isinstance(part, TableRun) and part.joint is None:
            one = np.zeros(len(part.schema))
            for at in part.attributes:
                one[at] = root(Factor((at,), part.queries_of(at)))
            squares = part.weight * one[part.subsets].prod(axis=1) ** 2
            sums.setdefault(part.ways, []).append((np.sort(part.subsets, axis=1), squares))
        else:
            for group in part:
                square = group.weight * math.prod(map(root, group.factors)) ** 2
                subset = np.array([sorted(group.attributes)], dtype=np.int32)
                sums.setdefault(subset.shape[1], []).append((subset, np.array([square])))
    roots = []
    for runs in sums.values():
        subsets, squares = (np.concatenate(each) for each in zip(*runs, strict=True))
        roots.append(float(np.sqrt(np.bincount(distinct_rows(subsets)[1], weights=squares)).sum()))
    return math.fsum(roots)
