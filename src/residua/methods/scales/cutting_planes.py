"""The best noise of blocks whose shapes are fixed: least privacy cost that meets a cap on every variance.

Query q has variance `sum_b h_qb s_b` under noise variances `s_b`, and the cost is `sum_b m_b / s_b`. The dual
is `maximise (sum_b sqrt(m_b sum_q u_q h_qb))^2 / sum_q u_q c_q` over u >= 0 (claim J-001), walked by the same
Newton steps as the dense problems, with sparse products only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from residua._arrays import Array, Integers
from residua.methods.draft import Progress
from residua.methods.scales.query_pieces import Capped, Orbits
from residua.methods.scales.variance_rows import FEW, TableOrbits
from residua.solve.newton import Bracketed, LogLandscape, Search
from residua.strategy.strategy import Strategy

ROUNDING = 1e-12  # relative error of sums and roots of positive numbers, generously


@dataclass(frozen=True, slots=True, eq=False)
class Scales(Bracketed):
    """Noise variances by orbit of blocks that meet every cap, and what is proved about their cost.

    `lower <= least cost <= upper`, for the shapes at hand. `prices` are shares of the caps in the bound, one
    per row, adding up to 1.
    """

    noise: Array
    prices: Array
    lower: float
    upper: float
    evaluations: int


def best_scales(rows: Any, many: Array, tolerance: float, start: Array | None = None) -> Scales:
    """The cheapest noise with `rows @ noise <= 1`.

    `rows` is a sparse matrix (queries, orbits of blocks) of figures over caps, `many` the number of blocks of
    each orbit. `start` are prices to begin with.
    """
    search = _Search(rows, many, tolerance)
    equal = np.full(rows.shape[0], 1 / rows.shape[0])
    search.newton(search.fixed_point(equal if start is None else start, 3))
    return Scales(search.best, search.weights, search.lower, search.upper, search.evaluations)


@dataclass(frozen=True, slots=True, eq=False)
class _View(LogLandscape):
    """`-2 log sum_b sqrt(m_b (H'u)_b)` at one u: slopes and curvature, all by sparse products."""

    search: "_Search"
    curve: Array  # `sqrt(m) (H'u)^-3/2 / 2 root`, by orbit of blocks
    slopes: Array

    def bend_times(self, direction: Array) -> Array:
        rows = self.search.rows
        return np.asarray(rows @ (self.curve * (rows.T @ direction)))

    def bend_diagonal(self) -> Array:
        return np.asarray(self.search.squares @ self.curve)


class _Search(Search):
    most_evaluations, patience = 300, 25

    def __init__(self, rows: Any, many: Array, tolerance: float) -> None:
        super().__init__(tolerance)
        self.rows, self.many = rows, many
        self.squares = rows.multiply(rows).tocsr()

    def look(self, weights: Array) -> _View:
        asked = np.asarray(self.rows.T @ weights)
        noise = np.sqrt(self.many / asked)
        variances = np.asarray(self.rows @ noise)
        root = float(np.sqrt(self.many * asked).sum())  # also the cost of this noise
        lower = root**2 / float(weights.sum()) * (1 - ROUNDING)
        largest = float(variances.max())
        self.keep(lower, weights / weights.sum(), root * largest * (1 + ROUNDING), noise / largest)
        return _View(self, noise / asked / (2 * root), variances / root)


MOST_CUTS = 60
NEW_ROWS = 3  # of one orbit of tables that are added in a round


def by_cutting_planes(
    asked: Capped, tables: TableOrbits, tolerance: float, progress: Progress | None
) -> Scales:
    """The cheapest noise that meets the caps; its prices are those of the orbits of tables."""
    chosen, many = _Chosen(tables, tables.by_orbit(asked.caps)), asked.orbits.many
    start: Array | None = None
    for number in range(MOST_CUTS):
        if progress is not None:
            progress("sharing out the privacy", number / MOST_CUTS)
        rows = chosen.rows(len(many))
        found = best_scales(rows, many, tolerance / 3, start)
        found.require(tolerance, "the search for the blocks' noise")
        worst = chosen.add_violated(found.noise, 1 + tolerance / 3)
        if worst <= 1 + tolerance / 3 or number == MOST_CUTS - 1:
            break
        start = np.full(chosen.count, 0.5 / chosen.count)  # half equal prices, half those found
        start[: len(found.prices)] += 0.5 * found.prices
    owners = chosen.owners()[: rows.shape[0]]
    prices = np.bincount(owners, weights=found.prices, minlength=len(tables.many)).astype(np.float64)
    return replace(found, noise=found.noise / worst, prices=prices, upper=found.upper * worst)


def mean_scales(asked: Capped, tables: TableOrbits, tolerance: float) -> Scales:
    """The cheapest noise that meets the mean cap of each orbit of tables in the mean of its queries."""
    from scipy.sparse import csr_array

    orbits, blocks, values = tables.means  # what each mean takes from each orbit of blocks
    allowed, many = np.array([float(np.mean(cap)) for cap in tables.by_orbit(asked.caps)]), asked.orbits.many
    rows = csr_array((values / allowed[orbits], (orbits, blocks)), shape=(len(tables.many), len(many)))
    return best_scales(rows, many, tolerance)


def with_noise(strategy: Strategy, orbits: Orbits, noise: Array) -> Strategy:
    """The strategy with the noise of each orbit of blocks; its shapes cost 1."""
    layers = tuple(
        replace(layer, noise=noise[of], costs=1 / noise[of])
        for layer, of in zip(strategy.layers, orbits.of, strict=True)
    )
    return replace(strategy, layers=layers)


class _Chosen:
    """The queries listed so far; caps are one entry per orbit of tables: a number, or one per query."""

    def __init__(self, tables: TableOrbits, caps: Sequence[float | Array]) -> None:
        self.tables, self.caps = tables, caps
        self.queries: dict[tuple[int, int], None] = {}  # orbit of tables and query, as they were added
        for orbit, table in tables.others.items():
            self._add(orbit, range(table.queries) if table.queries <= FEW else table.extremes())

    @property
    def count(self) -> int:
        """Rows so far, plain ones included."""
        return sum(len(plain.rows) for plain in self.tables.plain) + len(self.queries)

    def owners(self) -> Integers:
        """Orbit of tables of each row."""
        plain = [plain.first + np.arange(len(plain.rows)) for plain in self.tables.plain]
        listed = np.array([orbit for orbit, _ in self.queries], dtype=np.int64)
        return np.concatenate([*plain, listed])

    def rows(self, blocks: int) -> Any:
        """Figures over caps, sparse (rows, orbits of blocks)."""
        from scipy.sparse import csr_array

        at: list[Integers] = []
        columns: list[Integers] = []
        values: list[Array] = []
        start = 0
        for plain in self.tables.plain:
            cap = np.array([self.caps[plain.first + row] for row in range(len(plain.rows))], dtype=np.float64)
            at.append(np.repeat(np.arange(start, start + len(cap)), plain.rows.shape[1]))
            columns.append(plain.blocks.reshape(-1))
            values.append((plain.rows / cap[:, None]).reshape(-1))
            start += len(cap)
        for number, (orbit, query) in enumerate(self.queries, start):
            table = self.tables.others[orbit]
            at.append(np.full(len(table.blocks), number))
            columns.append(table.blocks)
            cap = np.broadcast_to(self.caps[orbit], table.queries)[query]
            values.append(table.row(query) / cap)
        every, where, what = np.concatenate(values), np.concatenate(columns), np.concatenate(at)
        alive = (where >= 0) & (every > 0)
        return csr_array((every[alive], (what[alive], where[alive])), shape=(self.count, blocks))

    def add_violated(self, noise: Array, allowed: float) -> float:
        """The largest variance over its cap at this noise, at least 1; queries above `allowed` are added."""
        worst = 1.0
        for orbit, table in self.tables.others.items():
            ratios = table.variances(noise) / self.caps[orbit]
            largest = float(ratios.max())
            worst = max(worst, largest)
            if largest > allowed and table.queries > FEW:
                most = min(NEW_ROWS, len(ratios) - 1)
                top = np.argpartition(-ratios, most)[: most + 1]
                self._add(orbit, top[ratios[top] > allowed].tolist())
        return worst

    def _add(self, orbit: int, queries: Iterable[int]) -> None:
        self.queries |= dict.fromkeys((orbit, query) for query in queries)
