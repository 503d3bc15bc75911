"""Variances of tables as sums over orbits of blocks: what each query takes from the noise of each orbit.

With the shapes fixed, a query's variance is linear in the blocks' noise variances. Tables of one orbit share
their rows; a table with many queries lists none until they are asked for.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from residua._arrays import Array, Indices, Integers, Subsets
from residua._limits import SEARCHED_QUERIES
from residua.answering.blocks import Placed, outer
from residua.answering.independent.answerer import Independent
from residua.answering.independent.parts import parts_of
from residua.decompose import Run, by_attribute
from residua.errors import Infeasible
from residua.linalg.matrices import along_axes
from residua.methods.draft import Caps
from residua.methods.scales.query_pieces import Orbits
from residua.strategy.strategy import Strategy
from residua.workload import Factor, Predicates, Prefix, Queries, Table, TableRun, Workload
from residua.workload.queries import spelled
from residua.workload.symmetry import row_orbits

ROUNDING = 1e-12  # relative; figures this close are one figure
FEW = 16  # queries of a table that are all listed at once; more than bind make the search slow


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A table whose figures are products: `blocks` has orbits of blocks, -1 where nothing is asked.

    Under blocks that are products it is (2^families,), by which families are kept (last family fastest), and
    `figures` has for each family (2, queries): squared means and variances at noise 1. A table of any
    families has one array of figures, (blocks, queries): each query's variance at noise 1.
    """

    blocks: Integers
    figures: tuple[Array, ...]

    @property
    def queries(self) -> int:
        """Queries, or representatives of them, that it goes through."""
        return math.prod(figure.shape[1] for figure in self.figures)

    def variances(self, noise: Array) -> Array:
        """Variance of each query at these noise variances by orbit of blocks, (queries,)."""
        known = np.where(self.blocks >= 0, noise[self.blocks], 0.0)
        return np.asarray(along_axes(known[None], [figure.T for figure in self.figures])[0])

    def row(self, query: int) -> Array:
        """What one query takes from each of `blocks`."""
        places = np.unravel_index(query, [figure.shape[1] for figure in self.figures])
        columns = [figure[:, place] for figure, place in zip(self.figures, places, strict=True)]
        return outer(columns).reshape(-1)

    def extremes(self) -> Iterator[int]:
        """The query that takes most from each block: every block is then asked for by some row."""
        for place in np.flatnonzero(self.blocks >= 0).tolist():
            rows = np.unravel_index(place, [len(figure) for figure in self.figures])
            best = [int(np.argmax(figure[row])) for figure, row in zip(self.figures, rows, strict=True)]
            yield int(np.ravel_multi_index(best, [figure.shape[1] for figure in self.figures]))


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """Orbits of tables with one figure each, as marginals have: `blocks` and `rows` are (orbits, 2^ways).

    `first` is the number of the first orbit; caps are those of the part.
    """

    first: int
    blocks: Integers
    rows: Array


@dataclass(frozen=True, slots=True, eq=False)
class TableOrbits:
    """All tables of a workload by orbit.

    `of` has for each part the orbit of each of its tables, `many` the tables of each orbit. `plain` holds
    those with one figure, `others` the rest by number. `means` is, for all, what the weighted mean variance
    of a table takes from the noise of each orbit of blocks: three arrays (orbit, block, value).
    """

    of: tuple[Integers, ...]
    many: Array
    plain: tuple[Plain, ...]
    others: dict[int, Product]
    means: tuple[Integers, Integers, Array]
    simple: bool

    def by_orbit(self, caps: Caps) -> list[float | Array]:
        """The cap of each orbit of tables, from those of the parts."""
        found: list[float | Array] = [0.0] * len(self.many)
        for of, cap in zip(self.of, caps, strict=True):
            for orbit in np.unique(of).tolist():
                found[orbit] = cap
        return found


def table_orbits(
    work: Workload, strategy: Strategy, orbits: Orbits, marks: Sequence[object], *, listing: bool = True
) -> TableOrbits:
    """The orbits of tables of a workload, for blocks with the shapes of `strategy`.

    `marks` are those that made the orbits of attributes. Without `listing` only `means` are worked out, and
    no table has too many queries.
    """
    return _Builder(strategy, orbits, listing).build(work, marks)


class _Builder:
    def __init__(self, strategy: Strategy, orbits: Orbits, listing: bool) -> None:
        self.strategy, self.orbits, self.listing = strategy, orbits, listing
        self.answerer = Independent(strategy.blocks())
        self.known = self.answerer.known
        self.shape_of = _one_shape_each(strategy, orbits.attributes)
        self.plain: list[Plain] = []
        self.others: dict[int, Product] = {}
        self.means: list[tuple[Integers, Integers, Array]] = []
        self.count = 0

    def build(self, work: Workload, marks: Sequence[object]) -> TableOrbits:
        of = []
        for part, mark in zip(work.parts, marks, strict=True):
            if self.shape_of is not None and (run := by_attribute(part)) is not None:
                of.append(self._run(run, part, whole=mark is None))
            else:
                of.append(self._one_by_one(part))
        many = np.bincount(np.concatenate(of), minlength=self.count).astype(np.float64)
        orbit, block, value = (np.concatenate(column) for column in zip(*self.means, strict=True))
        means = (orbit, block, value)
        return TableOrbits(tuple(of), many, tuple(self.plain), self.others, means, self.shape_of is not None)

    def _run(self, run: Run, part: Table | TableRun, *, whole: bool) -> Integers:
        """Orbits of the tables of a run, in arrays; with `whole`, queries that others exceed are kept."""
        first, inverse = row_orbits(self.orbits.attributes, run[0])
        subsets = run[0][first]
        figures = {at: self._figures(at, queries, whole=whole) for at, queries in run[1].items()}
        choices = product((False, True), repeat=subsets.shape[1])
        blocks = np.stack([self._blocks(subsets, kept) for kept in choices], axis=1)
        numbers = self.count + np.arange(len(first))
        means = {at: mean for at, (_, mean) in figures.items()}
        self._add_means(numbers, blocks, _outer_rows(means, subsets))
        self.count += len(first)
        if not self.listing:
            return np.asarray(numbers[inverse])
        if all(figure.shape[1] == 1 for figure, _ in figures.values()):
            values = {at: figure[:, 0] for at, (figure, _) in figures.items()}
            self.plain.append(Plain(int(numbers[0]), blocks, _outer_rows(values, subsets)))
        else:
            for row, number in enumerate(numbers.tolist()):
                chosen = tuple(figures[at][0] for at in subsets[row].tolist())
                table = Product(blocks[row], chosen)
                _refuse_many(table.queries, part)
                self.others[number] = table
        return np.asarray(numbers[inverse])

    def _figures(self, at: int, queries: Queries, *, whole: bool) -> tuple[Array, Array]:
        """(2, queries), squared means and variances at noise 1, one column of each sort; and their means."""
        factor = Factor((at,), queries)
        measures = self.strategy.measures
        measured = []
        if self.shape_of is not None and (number := int(self.shape_of[at])) >= 0:
            measured = [Placed((at,), self.strategy.shapes[number], number)]
        rows, sums = [], []
        # Sets of equally many cells have equal figures where all cells are treated alike.
        shown = Prefix(queries.cells) if isinstance(queries, Predicates) and not whole else queries
        for kept, mine in (((), []), ((0,), measured)):
            (part,) = parts_of([factor], [kept], measures, mine)
            empty = self.known.vanishes(part)
            sums.append(0.0 if empty else self.known.summed(part, weighted=True) / weight_of(queries))
            if empty or not self.listing:
                rows.append(np.zeros(shown.count if self.listing else 0))
            else:
                (listed,) = parts_of([Factor((at,), shown)], [kept], measures, mine)
                rows.append(self.known.listed(listed))
        figures = np.stack(rows)
        one_each = self.listing and not whole
        return (figures[:, _undominated(figures)] if one_each else figures), np.array(sums)

    def _blocks(self, subsets: Subsets, kept: Sequence[bool]) -> Integers:
        """Orbit of the block on the places kept of each subset, -1 where there is none."""
        chosen = np.sort(subsets[:, np.array(kept, dtype=bool)], axis=1)
        layers, rows = self.known.index.find(chosen)
        found = np.full(len(subsets), -1, dtype=np.int64)
        for layer in np.unique(layers[layers >= 0]).tolist():
            here = layers == layer
            found[here] = self.orbits.of[layer][rows[here]]
        return found

    def _one_by_one(self, part: Table | TableRun) -> Integers:
        """Orbits of the tables of a part, each looked at; equal orbits of attributes share one."""
        found: dict[object, int] = {}
        of = []
        for group in part:
            # In ascending order: the shape of a block on several attributes depends on their order.
            order = np.argsort(group.attributes)
            factors = tuple((len(factor.attributes), factor.queries) for factor in group.factors)
            own = tuple(self.orbits.attributes[list(group.attributes)].tolist())
            of.append(found.setdefault((own, tuple(order.tolist()), factors), self.count))
            if of[-1] == self.count:
                self._look_at(group)
                self.count += 1
        return np.array(of, dtype=np.int64)

    def _look_at(self, group: Table) -> None:
        """Figures and means of one table of a new orbit."""
        pieces = list(self.answerer.pieces(group))
        keys = [self.orbits.key(attributes) for attributes, _, _ in pieces]
        numbers = np.array([self.orbits.numbers[key] for key in keys], dtype=np.int64)
        sums = [math.prod(self.known.summed(part, weighted=True) for part in parts) for _, _, parts in pieces]
        whole = math.prod(weight_of(factor.queries) for factor in group.factors)
        self._add_means(np.array([self.count]), numbers[None], np.array(sums)[None] / whole)
        if self.listing:
            _refuse_many(group.count if group.listable else SEARCHED_QUERIES + 1, group)
            figures = np.stack([self.known.grid(parts).reshape(-1) for _, _, parts in pieces])
            self.others[self.count] = Product(numbers, (figures,))

    def _add_means(self, numbers: Integers, blocks: Integers, values: Array) -> None:
        alive = (blocks >= 0) & (values > 0)
        owners = np.broadcast_to(numbers[:, None], blocks.shape)
        self.means.append((owners[alive], blocks[alive], values[alive]))


def weight_of(queries: Queries) -> float:
    """Sum of the weights of its queries."""
    return float(queries.count) if queries.weights is None else float(queries.weights.sum())


def _one_shape_each(strategy: Strategy, orbits: Integers) -> Integers | None:
    """The one shape that measures each attribute in all its blocks, -1 where none does.

    None where an attribute, or two of one orbit, have several, or a shape has several attributes.
    """
    by_orbit = np.full(len(orbits) + 1, -1, dtype=np.int64)
    for layer in strategy.layers:
        for numbers, places in zip(layer.shapes.T, layer.layout, strict=True):
            if len(places) > 1:
                return None
            here = orbits[layer.subsets[:, places[0]]]
            by_orbit[here] = np.where(by_orbit[here] < 0, numbers, by_orbit[here])
            if np.any(by_orbit[here] != numbers):
                return None
    return np.where(orbits < 0, -1, by_orbit[orbits])


def _outer_rows(values: Mapping[int, Array], subsets: Subsets) -> Array:
    """Products of one of two values of each attribute of a subset, (subsets, 2^ways), last one fastest."""
    rows, pairs = np.ones((len(subsets), 1)), np.zeros((1 + max(values, default=0), 2))
    for at, own in values.items():
        pairs[at] = own
    for column in subsets.T:
        rows = (rows[:, :, None] * pairs[column, None, :]).reshape(len(subsets), -1)
    return rows


def _undominated(figures: Array) -> Indices:
    """Places of columns of (2, queries) that no other reaches in both rows, up to rounding."""
    order = np.lexsort((-figures[1], -figures[0]))
    highest = np.maximum.accumulate(figures[1, order])
    before = np.concatenate([[-1.0], highest[:-1]])
    return np.asarray(order[figures[1, order] > before * (1 + ROUNDING)])


def _refuse_many(queries: int, part: Table | TableRun) -> None:
    if queries > SEARCHED_QUERIES:
        raise Infeasible(
            f"table {next(part.names())!r} has {spelled(queries)} queries that may be the least accurate, "
            "too many to go through; ask for total variance, or put them in tables of fewer attributes"
        )
