"""Accuracy first over blocks: the least privacy cost at which every query's variance is at most its cap.

Shapes of blocks are fixed by `solve_blocks` to start with; their noise is then a convex problem of one number
per kind of block (`scales.solve`), with violated queries added in rounds. Largest variance is the same with
equal caps, rescaled to the budget.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from residua._limits import CENTRING_WORK, WEIGHED_CLASSES
from residua.decompose import decompose
from residua.linalg.centring import Measure
from residua.linalg.matrices import threads_for
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.centring import CellWeights, in_whole_numbers, on_attributes
from residua.methods.draft import Caps, Draft, Progress, Scope
from residua.methods.scales.cutting_planes import Scales, best_scales, in_rounds, mean_rows, with_noise
from residua.methods.scales.joint_dual import (
    PARTS,
    JointSearch,
    alone_on_attributes,
    free_kinds,
    joined,
    part_way,
    weighted,
)
from residua.methods.scales.query_pieces import (
    Block,
    Entry,
    Orbits,
    affordable,
    gathered,
    permuted,
    total_work,
    unweighted,
)
from residua.methods.scales.variance_rows import TableKinds, table_kinds, weight_of
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


EXACT = 1e-9  # gap of shapes that symmetry determines


def block_targets(work: Workload, caps: Caps, tolerance: float, progress: Progress | None = None) -> Draft:
    """The cheapest mechanism of blocks found that meets the caps, and a bound on all of its scope."""
    work = unweighted(work)
    with threads_for(0):
        problem = _Problem.of(work, caps, tolerance, progress)
        if problem.invariant:
            return problem.symmetric()
        first = problem.joined()
        if first is None:
            return min(problem.apart(), key=_cost)
        measures = best_measures(work, caps, problem.orbits, progress) or problem.rough_measures()
        if tuple(measures) == problem.strategy.measures:
            return first
        tilted = _Problem.of(work, caps, tolerance, progress, measures).joined()
        return first if tilted is None else min((first, tilted), key=_cost)


def _cost(draft: Draft) -> float:
    return draft.strategy.cost()


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """Noise for given shapes, by kind of block, and the tables that it serves."""

    tables: TableKinds
    rounds: Scales


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Caps on a workload, and the strategy whose shapes are in use."""

    work: Workload
    caps: Caps
    tolerance: float
    progress: Progress | None
    marks: list[float | None]
    invariant: bool
    strategy: Strategy
    spans: Mapping[int, Integers | None]
    orbits: Orbits

    @classmethod
    def of(
        cls,
        work: Workload,
        caps: Caps,
        tolerance: float,
        progress: Progress | None,
        measures: Sequence[Measure] | None = None,
    ) -> "_Problem":
        """The problem with the shapes that are best for total variance, each cap a weight."""
        marks = [None if isinstance(cap, np.ndarray) else float(cap) for cap in caps]
        invariant = work.invariant
        asked = Workload(work.schema, tuple(map(_weighted, work.parts, caps)))
        parts = decompose(asked, measures)
        draft = solve_blocks(parts, work.schema.sizes, Optimal(), EXACT if invariant else tolerance, progress)
        strategy = draft.strategy
        orbits = Orbits.of_blocks(work, marks, strategy.layers)
        return cls(work, caps, tolerance, progress, marks, invariant, strategy, draft.spans, orbits)

    def shared_out(self, strategy: Strategy) -> _Shared:
        """The best noise for the shapes of a strategy."""
        tables = table_kinds(self.work, strategy, self.orbits, self.marks)
        caps = _by_kind(tables, self.caps)
        share = self.tolerance / 2
        return _Shared(tables, in_rounds(tables, self.orbits.many, caps, share, self.progress))

    def symmetric(self) -> Draft:
        """The draft where all cells are alike: its shapes are the best there are, for any weights (J-002)."""
        found = self.shared_out(self.strategy)
        wide = max(layer.subsets.shape[1] for layer in self.strategy.layers)
        return self.draft(found, found.rounds.lower * (1 + EXACT) ** -wide, "all mechanisms")

    def apart(self) -> Iterator[Draft]:
        """Drafts with shapes from each attribute by itself, for several weights that centre it (J-007).

        Blocks that several families share take long to solve, and are taken as they are.
        """
        found = self.shared_out(self.strategy)
        yield self.draft(found, self.mean_bound(found), "this block structure")
        alone = alone_on_attributes(self.work, self.orbits, free_kinds(self.work, self.orbits))
        if not alone or not found.tables.simple:
            return
        work = weighted(self.work, self.caps, alone, self.orbits)
        for part in PARTS:
            measures = part_way(alone, part, self.orbits, work.schema.sizes)
            problem = _Problem.of(work, self.caps, self.tolerance, self.progress, measures)
            found = problem.shared_out(problem.strategy)
            yield problem.draft(found, problem.mean_bound(found), "this block structure")

    def rough_measures(self) -> Sequence[Measure]:
        """The weights that centre best where each attribute's shapes come from itself alone."""
        if not free_kinds(self.work, self.orbits):
            return self.strategy.measures
        return min(self.apart(), key=_cost).strategy.measures

    def joined(self) -> Draft | None:
        """The draft with the best shapes for the caps; None where that takes too long."""
        better = joined(self.work, self.caps, self.strategy, self.orbits, self.tolerance / 2, self.progress)
        if better is None:
            return None
        shaped = replace(self, strategy=better.strategy, spans=better.spans)
        return shaped.draft(shaped.shared_out(better.strategy), better.lower, "this block structure")

    def mean_bound(self, found: _Shared) -> float:
        """A bound on the cost from weights that are equal within each table: no largest is below a mean."""
        tables = found.tables
        rows = mean_rows(tables, self.orbits.many, _by_kind(tables, self.caps))
        means = best_scales(rows, self.orbits.many, self.tolerance / 2)
        if tables.simple:  # the shapes of products do not depend on the weights of tables
            wide = max(layer.subsets.shape[1] for layer in self.strategy.layers)
            return float(means.lower * (1 + self.tolerance / 4) ** -wide)
        return self._solved_again(tables, means.prices) if len(tables.many) <= WEIGHED_CLASSES else 0.0

    def _solved_again(self, tables: TableKinds, prices: Array) -> float:
        """The bound of blocks solved for these shares of the kinds of tables."""
        parts: list[Table | TableRun] = []
        for part, of, cap in zip(self.work.parts, tables.of, self.caps, strict=True):
            for kind in np.unique(of[prices[of] > 0]).tolist():
                mine = np.flatnonzero(of == kind)
                chosen = part.take(mine) if isinstance(part, TableRun) else part
                each = prices[kind] * len(mine) / tables.many[kind]
                weight = len(mine) * _weight(chosen) * float(np.mean(cap))
                parts.append(replace(chosen, weight=float(each) / weight))
        again = Workload(self.work.schema, tuple(parts))
        return solve_blocks(
            decompose(again), self.work.schema.sizes, Optimal(), self.tolerance, self.progress
        ).lower_bound

    def draft(self, found: _Shared, lower: float, scope: Scope) -> Draft:
        """What is handed out: the strategy with this noise, and prices table by table."""
        mechanism = with_noise(self.strategy, self.orbits, found.rounds.noise)
        tables = found.tables
        prices = tuple(found.rounds.prices[of] / tables.many[of] for of in tables.of)
        return Draft(mechanism, lower, scope, spans=self.spans, prices=prices)


def _weight(part: Table | TableRun) -> float:
    """Sum of the weights of the queries of one table."""
    group = part[0] if isinstance(part, TableRun) else part
    return math.prod(weight_of(factor.queries) for factor in group.factors)


def _by_kind(tables: TableKinds, caps: Caps) -> list[float | Array]:
    """The cap of each kind of table."""
    found: list[float | Array] = [0.0] * len(tables.many)
    for of, cap in zip(tables.of, caps, strict=True):
        for kind in np.unique(of).tolist():
            found[kind] = cap
    return found


def _weighted(part: Table | TableRun, cap: float | Array) -> Table | TableRun:
    """The part with weights that tell strict caps from lax ones."""
    return replace(part, weight=1.0 / float(np.mean(cap)))


OUTER_STEPS = 8
LEAST_GAIN = 1e-4  # of the logarithm of the root of the cost, for another step
INNER_GAP = 1e-5  # the slope is that of the optimum, and misleads away from it


def best_measures(
    work: Workload, caps: Sequence[float | Array], orbits: Orbits, progress: Progress | None = None
) -> tuple[Measure, ...] | None:
    """Whole-number weights for every attribute; None if there are none to choose, or it takes too long."""
    free = free_kinds(work, orbits)
    if not free or not affordable(work, orbits):
        return None
    search = _Centring(work, caps, orbits, free, progress)
    if search.size() > CENTRING_WORK:
        return None
    return search.run()


class _Centring:
    """The bound on the cost as a function of the weights of each free kind of attribute."""

    def __init__(
        self,
        work: Workload,
        caps: Sequence[float | Array],
        orbits: Orbits,
        free: dict[int, int],
        progress: Progress | None,
    ) -> None:
        self.work, self.caps, self.orbits, self.free, self.progress = work, caps, orbits, free, progress
        self.weights = CellWeights(free)
        self.start: Array | None = None
        self.steps = 0

    def size(self) -> float:
        """Multiplications of a product with the Hessian."""
        found, _ = gathered(self.work, self.caps, self._measures(np.zeros(self.weights.count)), self.orbits)
        return total_work(found.values())

    def run(self) -> tuple[Measure, ...]:
        """The best weights found, as small whole numbers."""
        from scipy.optimize import minimize

        alone = alone_on_attributes(self.work, self.orbits, self.free)
        end = self.weights.vector({orbit: own.weights for orbit, own in alone.items()})
        start = min((part * end for part in PARTS), key=lambda x: self.value(x)[0])
        found = minimize(
            self.value,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": OUTER_STEPS, "ftol": LEAST_GAIN},
        )
        return self._on_attributes(in_whole_numbers(self.weights.read(found.x)))

    def value(self, x: Array) -> tuple[float, Array]:
        """Logarithm of the root of the least cost at these weights, and its slope."""
        self.steps += 1
        if self.progress is not None:
            self.progress("choosing weights", min(1.0, self.steps / (3 * OUTER_STEPS)))
        measures = self._measures(x)
        found, count = gathered(self.work, self.caps, measures, self.orbits)
        many = np.array([self.orbits.size(key) for key in found])
        search = JointSearch(list(found.values()), many, count, INNER_GAP, None)
        same = self.start is not None and len(self.start) == count + sum(
            b.root.shape[1] for b in found.values()
        )
        search.run(self.start if same else None)
        self.start = search.weights
        slopes = {kind: np.zeros(size) for kind, size in self.free.items()}
        for block, change in zip(found.values(), search.changes(), strict=True):
            self._add_slopes(block, change, slopes)
        root = math.sqrt(search.lower)
        return math.log(root), self.weights.vector(slopes) / root

    def _add_slopes(self, block: Block, change: Array, slopes: dict[int, Array]) -> None:
        """Add what the means of every query contribute: `change` is the slope in each row of the block."""
        start = 0
        for entry in block.entries:
            stop = start + int(entry.alive.sum())
            rows = np.zeros((len(entry.alive), change.shape[1]))
            rows[entry.alive] = change[start:stop] / entry.scale[entry.alive, None]
            start = stop
            places = np.argsort(self.orbits.order(entry.attributes)).tolist()
            tensor = permuted(rows, block.sizes, places)
            for place, factor in enumerate(entry.table.factors):
                kind = int(self.orbits.attributes[factor.attributes[0]])
                if len(factor.attributes) == 1 and kind in slopes:
                    slopes[kind] += _by_means(entry, tensor, place) @ factor.queries.matrix()

    def _measures(self, x: Array) -> tuple[Measure, ...]:
        return self._on_attributes({orbit: Measure.of(p) for orbit, p in self.weights.read(x).items()})

    def _on_attributes(self, chosen: dict[int, Measure]) -> tuple[Measure, ...]:
        return on_attributes(chosen, self.orbits.attributes.tolist(), self.work.schema.sizes)


def _by_means(entry: Entry, change: Array, place: int) -> Array:
    """Slope in the mean of each query of one factor, all others multiplied out, shape (queries,).

    A row is a product of `q - mean` along what is kept and of `mean` along the rest.
    """
    letters = iter(ascii_letters)
    queries = [next(letters) for _ in entry.pieces]
    cells = ["".join(next(letters) for _ in piece.kept) for piece in entry.pieces]
    counts = [piece.queries.count for piece in entry.pieces]
    sizes = [size for piece in entry.pieces for size in piece.sizes]
    operands, terms = [change.reshape(*counts, *sizes)], ["".join(queries) + "".join(cells)]
    for at, piece in enumerate(entry.pieces):
        if at != place:
            operands.append(piece.rows().reshape(counts[at], *piece.sizes))
            terms.append(queries[at] + cells[at])
    slope = np.einsum(f"{','.join(terms)}->{queries[place]}", *operands, optimize=True)
    return np.asarray(-slope if entry.pieces[place].kept else slope)
