"""A loss of one's own: any convex, increasing function of one variance per table name (claim J-008).

With the shapes of blocks fixed, the mean variance of the queries of each name is linear in the blocks' noise,
so a convex loss of them is a convex problem of one number per orbit of blocks. cvxpy and clarabel (the extra
`convex`) solve it; the loss is written with cvxpy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from residua._arrays import Array
from residua._limits import LOSS_BLOCKS, LOSS_NAMES
from residua.answering.independent.answerer import table_counts
from residua.decompose import decompose
from residua.errors import Infeasible, NotConverged, WorkloadError
from residua.linalg.matrices import threads_for
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.draft import Draft, Progress, Scope
from residua.methods.scales.cutting_planes import with_noise
from residua.methods.scales.priced import Loss, Priced, cvxpy
from residua.methods.scales.query_pieces import Orbits, unweighted
from residua.methods.scales.variance_rows import TableOrbits, table_orbits
from residua.strategy.strategy import Strategy
from residua.workload import Workload


def block_loss(
    work: Workload, loss: Loss, tolerance: float, progress: Progress | None = None, *, cost: float = 1.0
) -> Draft:
    """The mechanism of blocks, at this privacy cost, with the least loss.

    `loss` gets the mean variances of the queries of each name of tables, a cvxpy vector whose entries are
    also found by name, and returns a convex and increasing cvxpy expression of them.
    """
    cvxpy()
    work = unweighted(work)
    names = table_names(work)
    with threads_for(0):
        draft = solve_blocks(decompose(work), work.schema.sizes, Optimal(), tolerance, progress)
        problem = _LossProblem.of(work, names, draft)
        return problem.solved(loss, cost, tolerance)


def table_names(work: Workload) -> list[str]:
    if work.tables > LOSS_NAMES and any(part.name is None for part in work.parts):
        raise WorkloadError(
            f"a loss of one variance per name needs few names, and the workload has {work.tables:,} tables "
            "without names of their own; give a run one, as in rs.marginals(schema, ways=2, name='pairs')"
        )
    return list(work.names)


@dataclass(frozen=True, slots=True, eq=False)
class _LossProblem:
    """Mean variances by name as a matrix over orbits of blocks: `rows @ noise`, (names, orbits)."""

    work: Workload
    names: list[str]
    draft: Draft
    orbits: Orbits
    tables: TableOrbits
    rows: Array

    @classmethod
    def of(cls, work: Workload, names: list[str], draft: Draft) -> "_LossProblem":
        marks = [part.name for part in work.parts]
        orbits = Orbits.of_blocks(work, marks, draft.strategy.layers)
        if len(orbits.many) > LOSS_BLOCKS:
            raise Infeasible(
                f"the tables need {len(orbits.many):,} different kinds of blocks, and a loss of your own can "
                f"be planned for {LOSS_BLOCKS:,}; use objective='max_variance', or fewer tables"
            )
        tables = table_orbits(work, draft.strategy, orbits, marks, listing=False)
        return cls(work, names, draft, orbits, tables, _rows_by_name(work, names, tables, orbits))

    def solved(self, loss: Loss, cost: float, tolerance: float) -> Draft:
        """The best noise for the loss, and the bound that its prices prove."""
        cp = cvxpy()
        many = self.orbits.many
        asked = self.rows.T @ np.ones(len(self.names))
        start = np.sqrt(many / asked)
        start *= float((many / start).sum()) / cost  # noise of a plan of this cost
        priced = Priced.of(loss, self.names, self.rows @ start)
        noise = cp.Variable(len(many), pos=True)
        spent = (many / start / cost) @ cp.inv_pos(noise) <= 1
        promised, prices = priced.least((self.rows * start) / priced.scale[:, None] @ noise, [spent])
        found = start * noise.value
        found *= float((many / found).sum()) / cost
        mine = priced.at(self.rows @ found)
        if mine > promised + 1e-4 * abs(promised):
            raise WorkloadError(
                f"the loss of the variances that are reached is {mine:.6g}, but {promised:.6g} with larger "
                "ones: it falls where a variance grows; let it grow with every variance"
            )
        lower = priced.bound(prices, mine, self._least_total(prices, tolerance) / cost)
        scope: Scope = "all mechanisms" if self.work.invariant else "this block structure"
        mechanism = with_noise(self.draft.strategy, self.orbits, found)
        return Draft(mechanism, lower, scope, mine, self.draft.spans, prices=(prices,))

    def _least_total(self, weights: Array, tolerance: float) -> float:
        """A bound on `weights` times the mean variances by name, at cost 1."""
        if self.tables.simple:  # products keep their shapes whatever the weights are
            wide = max(layer.subsets.shape[1] for layer in self.draft.strategy.layers)
            root = float(np.sqrt(self.orbits.many * (self.rows.T @ weights)).sum())
            return float(root**2 * (1 + tolerance / 4) ** -wide)
        again = weighted_by_name(self.work, self.names, weights)
        measures = self.draft.strategy.measures
        return solve_blocks(decompose(again, measures), again.schema.sizes, Optimal(), tolerance).lower_bound


def floor_of_loss(
    work: Workload, loss: Loss, prices: Array, mine: float, least: Callable[[Workload], float]
) -> float:
    """A bound on the loss by one on the total of priced variances; `mine` is reached (J-008)."""
    work = unweighted(work)
    names = table_names(work)
    total = least(weighted_by_name(work, names, prices))
    try:
        return Priced.of(loss, names, np.ones(len(names)), known=True).bound(prices, mine, total)
    except NotConverged:
        return 0.0


def weighted_by_name(work: Workload, names: Sequence[str], weights: Array) -> Workload:
    """The tables whose total weighted variance is `weights` times the mean variances by name."""
    counts = [float(work.select(name).count) for name in names]
    each = dict(zip(names, weights / counts, strict=True))
    named = chain.from_iterable([part] if part.name is not None else part for part in work.parts)
    parts = [(one, float(each[one.name or ""])) for one in named]
    return Workload(work.schema, tuple(replace(one, weight=weight) for one, weight in parts if weight > 0))


def mean_variances(work: Workload, names: Sequence[str], strategy: Strategy) -> Array:
    """Mean variance of the queries of each name, (names,)."""
    chosen = [work.select(name) for name in names]
    sums = [math.fsum(strategy.totals(part)[1] for part in own.parts) for own in chosen]
    return np.array([total / own.count for total, own in zip(sums, chosen, strict=True)])


def reshared(work: Workload, loss: Loss, draft: Draft, tolerance: float, cost: float) -> Draft | None:
    """The blocks of a draft with the best noise for the loss; None where they are coupled, or many."""
    strategy = draft.strategy
    if strategy.nested or strategy.coarsened or not strategy.blocks().independent:
        return None
    try:
        return _LossProblem.of(work, table_names(work), draft).solved(loss, cost, tolerance)
    except (Infeasible, NotConverged):  # conditions in the loss, or too many kinds of blocks
        return None


def _rows_by_name(work: Workload, names: list[str], tables: TableOrbits, orbits: Orbits) -> Array:
    """What the mean variance of each name takes from the noise of each orbit of blocks."""
    places = {name: place for place, name in enumerate(names)}
    owners, blocks, values = tables.means
    shares = np.zeros((len(names), len(tables.many)))
    for part, of in zip(work.parts, tables.of, strict=True):
        rows = np.array([places[name] for name in part.names()])
        np.add.at(shares, (rows, of), table_counts(part))
    shares /= shares.sum(axis=1, keepdims=True)
    means = np.zeros((len(tables.many), len(orbits.many)))
    np.add.at(means, (owners, blocks), values)
    return np.asarray(shares @ means)
