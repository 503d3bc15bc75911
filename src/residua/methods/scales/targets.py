"""Accuracy first over blocks: the least privacy cost at which every query's variance is at most its cap.

Shapes of blocks are fixed by `solve_blocks` to start with; their noise is then a convex problem of one number
per orbit of blocks, solved by cutting planes: violated queries are added. Largest variance is the same with
equal caps, rescaled to the budget.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import REWEIGHED_QUERIES, WEIGHED_CLASSES
from residua.bounds import quick_bound
from residua.decompose import decompose
from residua.linalg.matrices import Measure, threads_for
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.draft import Caps, Draft, Progress, Scope
from residua.methods.scales.cutting_planes import Scales, by_cutting_planes, mean_scales, with_noise
from residua.methods.scales.query_pieces import Capped, Orbits, unweighted
from residua.methods.scales.single_attribute import (
    PARTS,
    Alone,
    alone_on_attributes,
    best_measures,
    free_families,
    joined,
    part_way,
    weighted,
)
from residua.methods.scales.variance_rows import TableOrbits, table_orbits, weight_of
from residua.methods.smasher import centred, roles_in
from residua.methods.splits.blocks import is_joint
from residua.strategy.strategy import Strategy
from residua.workload import Table, TableRun, Workload

ROUNDS = 3  # of plans whose weights follow the largest variances
NEGLIGIBLE = 1e-9  # price of a table that is planned all the same
MOST_PRICED = 2_000  # tables, the dearest ones, of which a mean is taken
EXACT = 1e-9  # gap of shapes that symmetry determines


def block_targets(work: Workload, caps: Caps, tolerance: float, progress: Progress | None = None) -> Draft:
    """The cheapest mechanism of blocks found that meets the caps, and a bound on all of its scope."""
    work = unweighted(work)
    with threads_for(0):
        problem = _Problem.of(work, caps, tolerance, progress)
        if work.invariant:
            return problem.symmetric()
        first = problem.joined()
        if first is None:
            return problem.reweighed(min(problem.apart(), key=_cost))
        measures = best_measures(problem.asked, progress) or problem.rough_measures()
        if measures == problem.strategy.measures:
            return problem.bounded(first)
        tilted = _Problem.of(work, caps, tolerance, progress, measures).joined()
        return problem.bounded(first if tilted is None else min((first, tilted), key=_cost))


def _cost(draft: Draft) -> float:
    return draft.strategy.cost()


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Caps on a workload, and the strategy whose shapes are in use."""

    asked: Capped
    tolerance: float
    progress: Progress | None
    marks: list[float | None]
    strategy: Strategy
    spans: Mapping[int, Integers | None]

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
        pairs = zip(work.parts, caps, strict=True)
        parts = tuple(replace(part, weight=1 / float(np.mean(cap))) for part, cap in pairs)
        strict = decompose(Workload(work.schema, parts), measures)
        gap = EXACT if work.invariant else tolerance
        draft = solve_blocks(strict, work.schema.sizes, Optimal(), gap, progress)
        asked = Capped(work, caps, Orbits.of_blocks(work, marks, draft.strategy.layers))
        return cls(asked, tolerance, progress, marks, draft.strategy, draft.spans)

    def shared_out(self) -> tuple[TableOrbits, Scales]:
        """The best noise for the shapes in use, by orbit of blocks, and the tables that it serves."""
        tables = table_orbits(self.asked.work, self.strategy, self.asked.orbits, self.marks)
        return tables, by_cutting_planes(self.asked, tables, self.tolerance / 2, self.progress)

    def symmetric(self) -> Draft:
        """The draft where all cells are alike: its shapes are the best there are, for any weights (J-002)."""
        tables, found = self.shared_out()
        return self.draft(tables, found, found.lower * (1 + EXACT) ** -self.wide, "all mechanisms")

    @property
    def wide(self) -> int:
        """Attributes of the largest block."""
        return max(len(layer.subsets.T) for layer in self.strategy.layers)

    def apart(self) -> Iterator[Draft]:
        """Drafts with shapes from each attribute by itself, for several weights that centre it (J-007).

        Blocks that several families share take long to solve, and are taken as they are.
        """
        tables, found = self.shared_out()
        yield self.draft(tables, found, self.mean_bound(tables))
        alone = alone_on_attributes(self.asked)
        if not alone or not tables.simple:
            return
        work = weighted(self.asked, alone)
        for part in PARTS:
            measures = part_way(self.asked, alone, part)
            problem = _Problem.of(work, self.asked.caps, self.tolerance, self.progress, measures)
            tables, found = problem.shared_out()
            yield problem.draft(tables, found, problem.mean_bound(tables))

    def bounded(self, draft: Draft) -> Draft:
        """The draft with a bound for all mechanisms: no largest is below a mean, whatever its weights."""
        alone = alone_on_attributes(self.asked)
        works = [self.asked.work, weighted(self.asked, alone)] if alone else [self.asked.work]
        totals = [quick_bound(mean_of(work, self.asked.caps, draft.prices)) for work in works]
        return replace(draft, everywhere=max(totals))

    def reweighed(self, best: Draft) -> Draft:
        """The best of some rounds of plans for means of all variances, whose weights follow the largest.

        Weights of a table's queries are products of those of each attribute's (J-010).
        """
        alone, work = alone_on_attributes(self.asked), self.asked.work
        few = work.tables <= WEIGHED_CLASSES and all(table.listable for table in work.groups())
        if not alone or not few or work.count > REWEIGHED_QUERIES or any(map(is_joint, work.parts)):
            return self.bounded(best)
        draft = best
        for _ in range(ROUNDS):
            mean = mean_of(weighted(self.asked, alone), self.asked.caps, draft.prices, NEGLIGIBLE)
            total = centred(mean, roles_in(mean, by_weight=True), self.tolerance, self.progress)
            asked = replace(self.asked, orbits=Orbits.of_blocks(work, self.marks, total.strategy.layers))
            shaped = replace(self, asked=asked, strategy=total.strategy, spans=total.spans)
            draft = shaped.draft(*shaped.shared_out(), total.lower_bound)
            best = min(best, draft, key=_cost)
            alone = self._followed(alone, draft)
        mean_work = weighted(self.asked, alone)
        means = [mean_of(mean_work, self.asked.caps, own.prices) for own in (best, draft)]
        return replace(best, everywhere=max(map(quick_bound, means)))

    def _followed(self, alone: Mapping[int, Alone], draft: Draft) -> dict[int, Alone]:
        """Weights of each attribute's queries times the largest variance that each has in a table."""
        largest = {(orbit, own): np.zeros(own.count) for orbit, each in alone.items() for own in each.queries}
        for part, prices, cap in zip(self.asked.work.parts, draft.prices, self.asked.caps, strict=True):
            for table, price in zip(part, prices.tolist(), strict=True):
                if price <= NEGLIGIBLE:
                    continue
                counts = [factor.queries.count for factor in table.factors]
                ratios = (draft.strategy.variances(table) / cap).reshape(counts)
                for place, factor in enumerate(table.factors):
                    key = (int(self.asked.orbits.attributes[factor.attributes[0]]), factor.queries)
                    if key in largest:
                        others = tuple(at for at in range(ratios.ndim) if at != place)
                        largest[key] = np.maximum(largest[key], ratios.max(axis=others))
        moved = {}
        for orbit, each in alone.items():
            raw = {own: weights * largest[orbit, own] ** 2 for own, weights in each.queries.items()}
            kept = {own: new / new.sum() if new.any() else each.queries[own] for own, new in raw.items()}
            moved[orbit] = replace(each, queries=kept)
        return moved

    def rough_measures(self) -> tuple[Measure, ...]:
        """The weights that centre best where each attribute's shapes come from itself alone."""
        if not free_families(self.asked):
            return self.strategy.measures
        return min(self.apart(), key=_cost).strategy.measures

    def joined(self) -> Draft | None:
        """The draft with the best shapes for the caps; None where that takes too long."""
        better = joined(self.asked, self.strategy, self.tolerance / 2, self.progress)
        if better is None:
            return None
        shaped = replace(self, strategy=better.strategy, spans=better.spans)
        return shaped.draft(*shaped.shared_out(), better.lower_bound)

    def mean_bound(self, tables: TableOrbits) -> float:
        """A bound on the cost from weights that are equal within each table: no largest is below a mean."""
        means = mean_scales(self.asked, tables, self.tolerance / 2)
        if tables.simple:  # the shapes of products do not depend on the weights of tables
            return float(means.lower * (1 + self.tolerance / 4) ** -self.wide)
        return self._solved_again(tables, means.prices) if len(tables.many) <= WEIGHED_CLASSES else 0.0

    def _solved_again(self, tables: TableOrbits, prices: Array) -> float:
        """The bound of blocks solved for these shares of the orbits of tables."""
        parts: list[Table | TableRun] = []
        for part, of, cap in zip(self.asked.work.parts, tables.of, self.asked.caps, strict=True):
            for orbit in np.unique(of[prices[of] > 0]).tolist():
                mine = np.flatnonzero(of == orbit)
                chosen = part.take(mine) if isinstance(part, TableRun) else part
                each = prices[orbit] * len(mine) / tables.many[orbit]
                weight = len(mine) * _weight(chosen) * float(np.mean(cap))
                parts.append(replace(chosen, weight=float(each) / weight))
        again = decompose(Workload(self.asked.work.schema, tuple(parts)))
        sizes = self.asked.work.schema.sizes
        return solve_blocks(again, sizes, Optimal(), self.tolerance, self.progress).lower_bound

    def draft(
        self, tables: TableOrbits, found: Scales, lower: float, scope: Scope = "this block structure"
    ) -> Draft:
        """What is handed out: the strategy with this noise, and prices table by table."""
        mechanism = with_noise(self.strategy, self.asked.orbits, found.noise)
        prices = tuple(found.prices[of] / tables.many[of] for of in tables.of)
        return Draft(mechanism, lower, scope, spans=self.spans, prices=prices)


def floor_of_mean(
    work: Workload, caps: Caps, prices: Sequence[Array], least: Callable[[Workload], float]
) -> float:
    """A bound on the largest variance over its cap: none is below a mean, here by prices (claim B-009)."""
    return least(mean_of(work, caps, prices))


def mean_of(work: Workload, caps: Caps, prices: Sequence[Array], least: float = 0.0) -> Workload:
    """Tables whose total variance is a mean of variances over their caps, by the prices of the tables."""
    dearest = np.sort(np.concatenate(prices))[-MOST_PRICED:].min()
    chosen: list[tuple[Table, float, float]] = []
    for part, own, cap in zip(work.parts, prices, caps, strict=True):
        shares = np.where(own >= dearest, np.maximum(own, least), 0.0).tolist()
        chosen += [(t, share, float(np.max(cap))) for t, share in zip(part, shares, strict=True) if share]
    whole = math.fsum(share for _, share, _ in chosen)
    parts = [replace(t, weight=share / whole / (_weight(t) * cap)) for t, share, cap in chosen]
    return Workload(work.schema, tuple(parts))


def _weight(part: Table | TableRun) -> float:
    """Sum of the weights of the queries of one table."""
    return math.prod(map(weight_of, next(iter(part)).families))
