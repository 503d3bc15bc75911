"""Accuracy first over blocks: the least privacy cost at which every query's variance is at most its cap.

Shapes of blocks are fixed by `solve_blocks` to start with; their noise is then a convex problem of one number
per kind of block (`scales.solve`), with violated queries added in rounds. Largest variance is the same with
equal caps, rescaled to the budget.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from residua.bounds import all_invariant
from residua.decompose import decompose
from residua.linalg.centring import Measure
from residua.linalg.threads import threads_for
from residua.methods.blocks import solve_blocks
from residua.methods.draft import Caps, Draft, Progress, Scope
from residua.methods.scales.centring import best_measures
from residua.methods.scales.cutting_planes import Rounds, in_rounds, mean_rows, with_noise
from residua.methods.scales.joint_dual import joined
from residua.methods.scales.single_attribute import PARTS, alone_on_attributes, free_kinds, part_way, weighted
from residua.methods.scales.solve import best_scales
from residua.methods.scales.symmetry import Orbits, kinds_of, unweighted
from residua.methods.scales.variance_rows import TableKinds, table_kinds, weight_of
from residua.methods.shapes import Optimal
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

EXACT = 1e-9  # gap of shapes that symmetry determines
MOST_KINDS = 300  # kinds of tables for whose weights blocks are solved again


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
    rounds: Rounds


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
        invariant = all_invariant(work)
        asked = Workload(work.schema, tuple(map(_weighted, work.parts, caps)))
        parts = decompose(asked, measures)
        draft = solve_blocks(parts, work.schema.sizes, Optimal(), EXACT if invariant else tolerance, progress)
        strategy = draft.strategy
        orbits = Orbits.of_blocks(kinds_of(work, marks), [layer.subsets for layer in strategy.layers])
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
        return self._solved_again(tables, means.prices) if len(tables.many) <= MOST_KINDS else 0.0

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
