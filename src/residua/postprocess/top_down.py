"""Non-negative and whole tables of places that add up along the tree, from the nation down.

Of the nation one table of all attributes asked together is made, as for any plan. Then every place's numbers
are shared out among its parts, level by level: first the totals, then by one attribute more at a time. Each
step is a table of parts by cells whose margins are settled: the parts' own numbers so far, and the cells of
the place. The nearest such table without negative numbers is taken, in proportion to the variances of the
estimates, and rounded to whole numbers with the same margins (claim P-111). So all tables of a place are
margins of one, and those of its parts add up to them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from residua._arrays import Array, Flags, Integers, Subset
from residua._limits import JOINT_COVARIANCE, SHARED_CELLS
from residua.answering.protocol import Estimator
from residua.errors import DataError, Infeasible, NotInSpan, WorkloadError
from residua.linalg.classes import Classes
from residua.linalg.trees import first_places
from residua.postprocess.facts import Facts, ascending
from residua.postprocess.margins import WHOLE, controlled, rounded_among, rounded_tables, with_margins
from residua.postprocess.nonnegative import nonnegative_tables
from residua.postprocess.pieces import PieceErrors, Stack, TableSet, as_subsets, every_cell
from residua.postprocess.placed_facts import PlacedFacts
from residua.postprocess.placed_tables import Chain, Layout, Limits, PlacedTables
from residua.strategy.strategy import Strategy
from residua.workload import Explicit, Factor, Partition, Table, Workload

Estimated = Callable[[int, Subset], Array]
"""Estimates of the nodes of a level by some attributes: (nodes in the order of the tree, sizes...)."""


class TopDown:
    """Makes tables of places from estimates of them, given facts."""

    def __init__(
        self, strategy: Strategy, work: Workload, place: int, facts: PlacedFacts, whole: bool
    ) -> None:
        self.strategy, self.schema, self.facts, self.whole = strategy, work.schema, facts, whole
        self.layout = Layout.of(work, place, facts.known)
        self._spread = cache(self._node_variances)
        self._refuse_unfit()

    def _refuse_unfit(self) -> None:
        chains = [chain.attributes for chain in self.layout.chains]
        prefixes = [{*each[:count]} for each in chains for count in range(len(each) + 1)]
        for own in self.facts.known:
            if own.others is not None and {*own.others} not in prefixes:
                names = " x ".join(self.schema.names[at] for at in own.others)
                raise WorkloadError(
                    f"known tables of places by {names} are not kept along with the other facts; give them "
                    "by fewer attributes, or those of one table only"
                )
            if self.whole and np.abs(own.cells - np.rint(own.cells)).max(initial=0.0) > WHOLE:
                raise Infeasible("a known table is not whole, so that nothing whole adds up to it")
        if any(self.schema.units[at] > 1 for each in chains for at in each):
            raise Infeasible(
                "tables of places with sums of numbers are not post-processed; plan counts alone"
            )

    def estimated(self, estimator: Estimator) -> Estimated:
        """Estimates of nodes, in the order of the tree, from an estimator of marginals."""

        def found(depth: int, subset: Subset) -> Array:
            own = self.layout.nest.classes[depth]
            every = sorted((*subset, self.layout.place))
            sizes = [self.schema.sizes[at] for at in every]
            seen = Classes(own)
            classes = {} if seen.trivial else {every.index(self.layout.place): seen}
            cells = estimator.marginals(as_subsets([tuple(every)]), sizes, classes)[0]
            cells = cells.transpose([every.index(at) for at in (self.layout.place, *subset)])
            renumbered = seen.classes[first_places(own)]  # classes are numbered as they first occur
            return np.asarray(cells[renumbered[np.argsort(self.layout.nest.ranks[depth])]])

        return found

    def tables(self, estimated: Estimated) -> PlacedTables:
        """All tables, from the nation down."""
        tree, limits = self.layout.nest.tree, self._limits(())
        totals = [self._nation(estimated(0, ()), limits)]
        for depth in range(1, self.layout.depth + 1):
            starts, least, fixed = tree.starts[depth - 1], limits.least[depth][:, 0], limits.fixed[depth]
            spread = self._spread(depth, ())
            cells = shared_among(estimated(depth, ()), starts, totals[-1], least, fixed, spread)
            totals.append(rounded_among(cells, starts, totals[-1]) if self.whole else cells)
        levels = tuple(tuple(self._chain(chain, totals, estimated)) for chain in self.layout.chains)
        return PlacedTables(self.layout, tuple(totals), levels)

    def _limits(self, subset: Subset) -> Limits:
        cells = math.prod(self.schema.sizes[at] for at in subset)
        return Limits.of(self.layout, self.facts.known, subset, cells)

    def _nation(self, cells: Array, limits: Limits) -> Array:
        """The number of records."""
        if limits.fixed[0][0]:
            return np.asarray(limits.least[0][:, 0])
        found = np.maximum(cells, limits.least[0][:, 0])
        return np.asarray(np.rint(found) if self.whole else found)

    def _chain(self, chain: Chain, totals: Sequence[Array], estimated: Estimated) -> Iterator[Array]:
        """The cells of a chain of attributes, level by level."""
        limits = [self._limits(chain.attributes[: 1 + at]) for at in range(len(chain.attributes))]
        above = _Root(self, chain, limits).cells(float(totals[0][0]), estimated(0, chain.attributes)[0])[None]
        yield above
        for depth in range(self.layout.depth):
            kept = chain.kept(depth + 1)
            known = estimated(depth + 1, chain.attributes[:kept])
            below = totals[depth + 1]
            for stage in range(kept):
                later = (own.sum(axis=tuple(range(stage + 2, own.ndim))) for own in (known, above))
                cells, whole = map(np.asarray, later)
                below = self._split(depth, chain.attributes[: stage + 1], below, cells, whole, limits[stage])
            above = below
            yield above

    def _split(
        self, depth: int, subset: Subset, rows: Array, cells: Array, columns: Array, limits: Limits
    ) -> Array:
        """The parts of a level by one attribute more: (children, sizes...), given what is known of each.

        `rows`, (children, sizes but the last), `columns`, (nodes, sizes...), are the margins.
        """
        size = cells.shape[-1]
        many = math.prod(cells.shape[1:-1])
        least = limits.least[depth + 1].reshape(-1, many, size)
        found = least.copy()
        inner = cells.reshape(-1, many, size) - least
        left = columns.reshape(-1, many, size) - self.layout.nest.tree.plain_up(depth, least)
        goal = rows.reshape(-1, many) - least.sum(axis=2)
        spread = self._spread(depth + 1, subset)
        shape = self.shape(subset).reshape(many, size)
        for nodes, parts in _batches(self.layout.nest.tree.starts[depth], len(cells), many * size):
            inside = parts >= 0
            at = np.where(inside, parts, 0)
            table, cell = np.nonzero(left[nodes].sum(axis=2) > 0.5 * self.whole)
            if not len(table):
                continue
            chosen = at[table], cell[:, None]  # (tables, parts)
            own = np.where(inside[table], goal[chosen], 0.0)
            made = _nearest(
                inner[chosen], own, left[nodes[table], cell], spread[at[table]], shape[cell], self.whole
            )
            pairs = np.nonzero(inside[table])
            found[at[table][pairs], cell[pairs[0]]] += made[pairs]
        return found.reshape(cells.shape)

    def _node_variances(self, depth: int, subset: Subset) -> Array:
        """Variance of a cell of each node of a level, in the order of the tree; one where it is not known."""
        nest = self.layout.nest
        sized = ((at, self.schema.sizes[at]) for at in subset)
        one = (Factor((at,), Explicit((size,), np.eye(1, size))) for at, size in sized)
        nodes = Factor((self.layout.place,), Partition(nest.classes[depth]))
        found = self._proportions(Table("parts", (nodes, *one)), np.argsort(nest.ranks[depth]))
        return np.maximum(found, 1e-9)

    def shape(self, subset: Subset) -> Array:
        """Variances of the nation's cells in proportion, flat; one where they are not known."""
        return self._proportions(every_cell(self.schema, subset))

    def _proportions(self, group: Table, order: Integers | slice = slice(None)) -> Array:
        """Variances of a table's answers, in this order, over their mean; one where they are not known."""
        try:
            found = self.strategy.variances(group)[order]
        except NotInSpan:
            return np.ones(group.count)
        return np.asarray(found / found.mean())


def _nearest(cells: Array, rows: Array, columns: Array, spread: Array, shape: Array, whole: bool) -> Array:
    """Tables of parts by cells, (tables, parts, cells), with these margins; whole ones if asked for."""
    rows, columns = np.maximum(rows, 0.0), np.maximum(columns, 0.0)
    if not whole:  # rounding errors of the levels above
        columns = columns * (rows.sum(axis=1) / columns.sum(axis=1))[:, None]
    near = with_margins(cells, rows, columns, None, spread[:, :, None] * shape[:, None, :])
    return rounded_tables_of(near, rows, columns) if whole else near


def _batches(starts: Integers, children: int, cells: int) -> Iterator[tuple[Integers, Integers]]:
    """Nodes with about equally many children, some at a time, and those, (nodes, most), -1 beyond them."""
    counts = np.diff(starts, append=children)
    order = np.argsort(counts, kind="stable")
    start = 0
    while start < len(order):
        most = max(1, SHARED_CELLS // (cells * int(counts[order[start]])))
        alike = np.searchsorted(counts[order], 1.25 * counts[order[start]], side="right")
        nodes = order[start : min(start + most, int(alike))]
        parts = np.arange(int(counts[nodes].max()))
        yield nodes, np.where(parts < counts[nodes][:, None], starts[nodes][:, None] + parts, -1)
        start += len(nodes)


class _Root:
    """The nation's table of a chain of attributes."""

    def __init__(self, source: TopDown, chain: Chain, limits: Sequence[Limits]) -> None:
        self.source, self.chain, self.limits = source, chain, limits

    def cells(self, total: float, estimate: Array) -> Array:
        """The nearest non-negative table, or a whole one: (sizes...)."""
        partly = any(own.least[0].any() and not own.fixed[0][0] for own in self.limits)
        if not self.chain.attributes:
            return np.asarray(total)
        made = self._by_steps if partly or not self._joint() else self._at_once
        return made(total, estimate)

    def _joint(self) -> bool:
        """Whether the covariance of the whole table is known, and small enough."""
        cells = every_cell(self.source.schema, self.chain.attributes)
        try:
            self.source.strategy.total(cells, weighted=False)
        except NotInSpan:
            return False
        return math.prod(self.chain.sizes) <= JOINT_COVARIANCE

    def _masks(self) -> dict[Subset, Flags]:
        mine = {*self.chain.attributes}
        found = {subset: own for subset, own in self.source.facts.masks.items() if mine & {*subset}}
        if any(not {*subset} <= mine for subset in found):
            raise WorkloadError("a fact about impossible cells is on attributes of no table together")
        return found

    def _at_once(self, total: float, estimate: Array) -> Array:
        counts: dict[Subset, Array] = {(): np.asarray(total)}
        for stage, own in enumerate(self.limits, 1):
            if own.fixed[0][0]:
                known = own.least[0][0].reshape(self.chain.sizes[:stage])
                counts.update([ascending(self.chain.attributes[:stage], known)])
        facts = Facts(counts, self._masks(), "")
        subset, cells = ascending(self.chain.attributes, estimate)
        tables = TableSet((Stack(as_subsets([subset]), cells[None]),))
        errors = PieceErrors(self.source.strategy, self.source.schema)
        found = nonnegative_tables(tables, errors, facts)
        found = rounded_tables(found, facts) if self.source.whole else found
        return found.marginal(self.chain.attributes)

    def _by_steps(self, total: float, estimate: Array) -> Array:
        """One attribute more at a time, each cell shared out among its parts."""
        sizes, above = self.chain.sizes, np.array([total])
        subset = tuple(sorted(self.chain.attributes))
        facts = Facts({}, self._masks(), "")
        allowed = facts.cells(subset, [self.source.schema.sizes[at] for at in subset])
        allowed = allowed.transpose([subset.index(at) for at in self.chain.attributes])
        for stage, size in enumerate(sizes):
            gone = tuple(range(stage + 1, len(sizes)))
            starts = np.arange(0, len(above) * size, size)
            limits = self.limits[stage]
            closed = ~allowed.any(axis=gone).reshape(-1) | limits.fixed[0][0]
            cells = estimate.sum(axis=gone).reshape(-1)
            spread = self.source.shape(self.chain.attributes[: stage + 1])
            found = shared_among(cells, starts, above, limits.least[0][0], closed, spread)
            above = rounded_among(found, starts, above) if self.source.whole else found
        return above.reshape(sizes)


def shared_among(
    cells: Array, starts: Integers, totals: Array, least: Array, closed: Flags, spread: Array
) -> Array:
    """The nearest numbers, none below `least`, that sum to `totals` in each group; all but those: (cells,).

    Groups are runs of cells that begin at `starts`. Closed cells stay at their least. Near is by variances in
    proportion to `spread`: what is over or missing is shared out in proportion to it.
    """
    owners = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells)))
    left = totals - np.add.reduceat(least, starts)
    if (left < -1e-6 * np.maximum(1.0, totals)).any():
        raise DataError("public facts contradict each other: known parts add up to more than a known whole")
    over = np.where(closed, -np.inf, (cells - least) / spread)  # what would make it zero, per unit of spread
    order = np.lexsort((-over, owners))
    weight = np.where(np.isfinite(over[order]), spread[order], 0.0)
    worth = np.where(weight > 0, cells[order] - least[order], 0.0)
    before = starts - 1
    sums = [np.cumsum(own) for own in (weight, worth)]
    weights, worths = (own - np.where(before >= 0, own[before], 0.0)[owners] for own in sums)
    moves = np.divide(left[owners] - worths, weights, out=np.full_like(worths, -np.inf), where=weights > 0)
    kept = (weight > 0) & (over[order] + moves > 0)
    count = np.add.reduceat(kept.astype(np.int64), starts)
    if ((count == 0) & (left > 1e-6 * np.maximum(1.0, totals))).any():
        raise DataError("public facts leave no place for records that are counted above it")
    free = np.zeros(len(cells), dtype=bool)
    free[order] = kept & (left[owners] > 0)
    sums = [np.add.reduceat(np.where(free, own, 0.0), starts) for own in (spread, cells - least)]
    move = np.divide(left - sums[1], sums[0], out=np.zeros_like(left), where=sums[0] > 0)
    found = np.where(free, np.maximum(cells - least + move[owners] * spread, 0.0), 0.0)
    return np.asarray(least + found)


def rounded_tables_of(cells: Array, rows: Array, columns: Array) -> Array:
    """Whole tables (tables, n, m) with whole margins, each cell its floor or its ceiling.

    Rows are rounded one after another, and carry on what they owe each column; what columns owe in the end is
    swapped within rows. The few tables where no swap helps are rounded by linear programmes.
    """
    floor = np.floor(cells + WHOLE)
    share = np.where(cells - floor > WHOLE, cells - floor, 0.0)
    up = np.zeros(cells.shape, dtype=bool)
    owed = np.zeros_like(columns)
    for row in range(cells.shape[1]):
        count = np.rint(rows[:, row] - floor[:, row].sum(axis=1)).astype(np.int64)
        score = np.where(share[:, row] > 0, share[:, row] + owed, -np.inf)
        order = np.argsort(-score, axis=1, kind="stable")
        chosen = np.arange(cells.shape[2]) < count[:, None]
        np.put_along_axis(up[:, row], order, chosen, axis=1)
        up[:, row] &= share[:, row] > 0
        owed += share[:, row] - up[:, row]
    result = floor + up
    left = _swapped(result, up, share, columns)
    for table in left.tolist():
        allowed = (rows[table] > 0)[:, None] & (columns[table] > 0)
        result[table] = controlled(cells[table], allowed, rows[table], columns[table])
    return np.asarray(result)


def _swapped(result: Array, up: Flags, share: Array, columns: Array) -> Integers:
    """Swap units within rows, from columns with too many to columns with too few; tables left undone."""
    short = np.rint(columns - result.sum(axis=1)).astype(np.int64)
    left = np.flatnonzero((short != 0).any(axis=1) | (np.rint(result) != result).any(axis=(1, 2)))
    stuck: list[int] = []
    while len(left):
        over, under = (short[left] < 0)[:, None, :], (short[left] > 0)[:, None, :]
        down = np.where(up[left] & over, share[left], np.inf)
        raised = np.where(~up[left] & (share[left] > 0) & under, share[left], -np.inf)
        price = down.min(axis=2) - raised.max(axis=2)
        row = price.argmin(axis=1)
        here = np.arange(len(left))
        able = np.isfinite(price[here, row])
        stuck += left[~able].tolist()
        left, row, down, raised = left[able], row[able], down[able], raised[able]
        here = np.arange(len(left))
        lower, higher = down[here, row].argmin(axis=1), raised[here, row].argmax(axis=1)
        for column, change in ((lower, -1), (higher, 1)):
            result[left, row, column] += change
            up[left, row, column] = change > 0
            short[left, column] -= change
        left = left[(short[left] != 0).any(axis=1)]
    return np.array(stuck, dtype=np.int64)
