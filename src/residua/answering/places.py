"""Blocks within places, at several levels: one pass up the tree and one down (claims T-001, T-007).

Every subset R of the other attributes is measured in the same way at all places, with a precision each; what
is measured of different subsets has nothing to do with each other. So the tree of places is solved for each R
by itself, and figures are sums over R of products: of the places that a query asks, and of the rest of it.

| symbol | meaning |
|---|---|
| R | attributes, other than the place, of a block; its rows are those of `kron(shapes)` |
| v_R | variance of what a query asks of places, for noise 1 on the rows of R |
| h_R | variance of the rest of a query, for noise 1 and one place (`independent`) |
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from residua._arrays import Array, Integers, Subsets
from residua._limits import PLACE_QUERIES, SCRATCH
from residua.answering.blocks import Blocks, Layer, Measured, Shape, outer
from residua.answering.independent.answerer import Independent, coefficients, residuals_of
from residua.answering.independent.parts import Part
from residua.answering.protocol import Answerer, Estimates, Estimator, apply_queries, not_in_span
from residua.errors import Infeasible
from residua.linalg.classes import Classes
from residua.linalg.matrices import Measure
from residua.linalg.trees import Nest, Passes, first_places, passes, solved
from residua.workload import Factor, Identity, Partition, Queries, Table, TableRun, Total
from residua.workload.tables import without_totals
from residua.workload.views import coarsened

Subset = tuple[int, ...]
Pieces = Iterator[tuple[Subset, list[Part]]]


@dataclass(eq=False)
class Channel:
    """What is measured of one subset of the other attributes: its precisions, (nodes, 1) a level.

    Totals with infinite precision are `known`, (nodes, rows) a level.
    """

    nest: Nest
    precisions: list[Array]
    known: list[Array] | None = None

    @property
    def depth(self) -> int:
        """The last level at which it is measured; what is below cannot be told apart."""
        return len(self.precisions) - 1

    @cached_property
    def passes(self) -> Passes:
        """Variances of all node totals."""
        return passes(self.nest.tree.cut(self.depth), self.precisions)

    def solved(self, sides: Sequence[Array | None], known: list[Array] | None = None) -> Array:
        """Totals of the classes of the last level, (classes, k), for sides by classes of each level."""
        pairs = zip(sides, self.nest.ranks[: len(sides)], strict=True)
        order = [None if own is None else own[np.argsort(rank)] for own, rank in pairs]
        found = solved(self.nest.tree.cut(self.depth), self.precisions, self.passes, order, known)
        return found[-1][self.nest.ranks[self.depth]]


class Places(Answerer):
    """Layers within one attribute, whose cells are places, and blocks that see all places at once.

    `levels` has for every layer the block of each place, None where blocks see all places.
    """

    def __init__(
        self,
        levels: Sequence[Integers | None],
        sizes: tuple[int, ...],
        measures: tuple[Measure, ...],
        shapes: tuple[Shape, ...],
        layers: tuple[Layer, ...],
        whole: bool,
    ) -> None:
        self.measures, self.layers = measures, layers
        (self.place,) = {layer.within for layer in layers if layer.within is not None}
        self.nest, self.depths = nest_of(levels)
        self.channels = {
            subset: self._channel([(at, row) for at, row in rows]) for subset, rows in self._rows().items()
        }
        self.blocks = Blocks(sizes, measures, shapes, tuple(self._one_each()), whole)
        self.others = Independent(self.blocks)

    def _rows(self) -> dict[Subset, list[tuple[int, int]]]:
        """For each subset the layers, and rows there, that measure it; a layer within places has one."""
        found: dict[Subset, list[tuple[int, int]]] = {}
        for at, layer in enumerate(self.layers):
            for row, subset in enumerate(layer.subsets[: None if layer.within is None else 1].tolist()):
                found.setdefault(tuple(subset), []).append((at, row))
        return found

    def _channel(self, rows: Sequence[tuple[int, int]]) -> Channel:
        sizes = self.nest.tree.sizes
        found = [np.zeros((size, 1)) for size in sizes[: 1 + max(self.depths[at] for at, _ in rows)]]
        for at, row in rows:
            layer, depth = self.layers[at], self.depths[at]
            noise = layer.noise[row : row + 1] if layer.within is None else layer.noise
            found[depth][self.nest.ranks[depth], 0] += 1.0 / noise
        return Channel(self.nest, found)

    def _one_each(self) -> Iterator[Layer]:
        """For every subset one block with noise 1, as it would see one place."""
        for rows in self._rows().values():
            layer, one = self.layers[rows[0][0]], slice(rows[0][1], rows[0][1] + 1)
            yield Layer(layer.subsets[one], layer.layout, layer.shapes[one], np.ones(1), np.ones(1))

    def split(self, group: Table) -> tuple[int, Queries | None, Table]:
        """The position of the factor on the place, its queries, and the table without it."""
        return without_place(self.place, group)

    def pieces(self, rest: Table) -> Pieces:
        """Subsets that a table without its places has a piece in, and the parts of those."""
        for subset, _, parts in self.others.pieces(rest):
            yield subset, parts

    def variances(self, group: Table) -> Array:
        number, asked, rest = self.split(group)
        places = Asked.of(self.nest, asked)
        shape = [factor.queries.count for factor in rest.factors]
        grid = np.zeros((places.count, *shape))
        for subset, parts in self.pieces(rest):
            own = outer(map(self.others.known.listed, parts), [at for part in parts for at in part.places])
            grid += np.multiply.outer(places.variances(self.channels[subset], group.name), own)
        return np.moveaxis(grid, 0, number).reshape(-1)

    def summed(self, group: Table, *, weighted: bool) -> float:
        _, asked, rest = self.split(group)
        places = Asked.of(self.nest, asked)
        return math.fsum(
            places.total(self.channels[subset], group.name, weighted=weighted)
            * math.prod(self.others.known.summed(part, weighted=weighted) for part in parts)
            for subset, parts in self.pieces(rest)
        )

    def covariances(self, left: Table, right: Table) -> Array:
        found = [(*self.split(each), each) for each in (left, right)]
        (_, mine, rest), (_, theirs, other) = (each[:3] for each in found)
        ours, yours = Asked.of(self.nest, mine), Asked.of(self.nest, theirs)
        known = dict(self.pieces(rest))
        shapes = [[factor.queries.count for factor in each.factors] for each in (rest, other)]
        grid = np.zeros((ours.count, *shapes[0], yours.count, *shapes[1]))
        for subset, parts in self.pieces(other):
            if subset in known:
                rows = coefficients(known[subset], rest) @ coefficients(parts, other).T
                places = ours.covariance(self.channels[subset], yours, left.name)
                own = np.multiply.outer(places, rows.reshape((*shapes[0], *shapes[1])))
                grid += np.moveaxis(own, 1, 1 + len(shapes[0]))
        grid = np.moveaxis(grid, 1 + len(shapes[0]), 1 + len(shapes[0]) + found[1][0])
        return np.moveaxis(grid, 0, found[0][0]).reshape(left.count, right.count)

    def estimates(self, measured: Measured) -> Estimates:
        """Residuals of the classes of each subset's last level: (1, attributes), (1, classes, sizes...)."""
        numbers = {at: values for at, _, values in measured if self.layers[at].within is not None}
        plain = {
            (at, int(row)): own
            for at, rows, values in measured
            for row, own in zip(rows, values, strict=True)
            if self.layers[at].within is None
        }
        runs = []
        for (subset, rows), layer in zip(self._rows().items(), self.blocks.layers, strict=True):
            channel = self.channels[subset]
            sides: list[Array | None] = [None] * (channel.depth + 1)
            for at, row in rows:
                own = numbers[at] if at in numbers else plain[at, row][None]
                noise = self.layers[at].noise if at in numbers else self.layers[at].noise[row : row + 1]
                sides[self.depths[at]] = own / noise[:, None]
            totals = channel.solved(sides, channel.known)
            number = self.blocks.layers.index(layer)
            ((_, cells),) = residuals_of(
                self.blocks, [(number, np.zeros(len(totals), dtype=np.int64), totals)]
            )
            runs.append((np.array([subset], dtype=np.int32).reshape(1, -1), cells[None]))
        return Estimates.of(runs, self.measures)

    def estimator(self, estimates: Estimates) -> Estimator:
        return PlacesEstimator(self, estimates)


def without_place(place: int, group: Table) -> tuple[int, Queries | None, Table]:
    """The position of the factor on the place, its queries, and the table without it."""
    group = without_totals(group)
    for number, factor in enumerate(group.factors):
        if place in factor.attributes:
            if len(factor.attributes) > 1:
                raise not_in_span(f"table {group.name!r} ties places to other attributes", [place])
            others = group.factors[:number] + group.factors[number + 1 :]
            return number, factor.queries, replace(group, factors=others)
    return 0, None, group


def nest_of(levels: Sequence[Integers | None]) -> tuple[Nest, list[int]]:
    """The tree of the levels that layers are within, and the depth of each; None is the root, as is one."""
    distinct = {int(own.max()): own for own in levels if own is not None and own.max() > 0}
    nest = Nest.of([distinct[most] for most in sorted(distinct)])
    depths = {len(rank): depth for depth, rank in enumerate(nest.ranks)}
    return nest, [0 if own is None else depths[int(own.max()) + 1] for own in levels]


@dataclass(frozen=True, eq=False)
class Asked:
    """What queries ask of places: of each a node, or rows over all places where they ask for other sets."""

    nest: Nest
    queries: Queries | None
    depths: Integers  # (count,): the level of the node, and its class there; nothing for other sets
    nodes: Integers

    @classmethod
    def of(cls, nest: Nest, queries: Queries | None) -> "Asked":
        """The queries on the attribute whose cells are the places; None asks for all of them."""
        if queries is None or isinstance(queries, Total):
            return cls(nest, queries, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        classes = np.arange(queries.cells) if isinstance(queries, Identity) else None
        classes = queries.classes if isinstance(queries, Partition) else classes
        if classes is None:
            return cls(nest, queries, *np.zeros((2, 0), dtype=np.int64))
        for depth, own in enumerate(nest.classes):
            if np.array_equal(own, classes):
                count = len(nest.ranks[depth])
                return cls(nest, queries, np.full(count, depth), np.arange(count))
        first, inside = first_places(classes), np.flatnonzero(classes >= 0)
        sizes = np.bincount(classes[inside], minlength=len(first))
        depths, nodes = np.full((2, len(first)), -1)
        for depth, own in enumerate(nest.classes):
            node = own[first]  # the one that it would have to be
            alike = np.bincount(
                classes[inside], weights=own[inside] == node[classes[inside]], minlength=len(first)
            )
            found = (alike == sizes) & (np.bincount(own)[node] == sizes) & (depths < 0)
            depths[found], nodes[found] = depth, node[found]
        known = slice(None if (depths >= 0).all() else 0)
        return cls(nest, queries, depths[known], nodes[known])

    @property
    def of_nodes(self) -> bool:
        """Whether each query asks for one node."""
        return len(self.nodes) > 0

    @property
    def count(self) -> int:
        """Number of queries."""
        return 1 if self.queries is None else self.queries.count

    def variances(self, channel: Channel, name: str) -> Array:
        """Variance of each query for noise 1, (count,)."""
        if not self.of_nodes:
            return np.concatenate(
                [
                    np.einsum("rc,cr->r", rows, channel.solved(self._last(channel, rows)))
                    for rows in self.rows(channel.depth, name)
                ]
            )
        if self.depths.max() > channel.depth:
            raise finer(name)
        found = np.empty(self.count)
        for depth in np.unique(self.depths).tolist():
            here = self.depths == depth
            found[here] = channel.passes.final[depth][self.nest.ranks[depth][self.nodes[here]], 0]
        return found

    def total(self, channel: Channel, name: str, *, weighted: bool) -> float:
        """Sum of the variances, times each query's own weight if asked for."""
        weights = None if self.queries is None else self.queries.weights
        found = self.variances(channel, name)
        return float(found.sum() if weights is None or not weighted else found @ weights)

    def covariance(self, channel: Channel, other: "Asked", name: str) -> Array:
        """Covariances with other queries for noise 1, (count, other count)."""
        if self.count > other.count:
            return other.covariance(channel, self, name).T
        theirs = np.concatenate(list(other.rows(channel.depth, name)))
        found = [
            theirs @ channel.solved(self._last(channel, rows)) for rows in self.rows(channel.depth, name)
        ]
        return np.concatenate([each.T for each in found])

    def _last(self, channel: Channel, rows: Array) -> list[Array | None]:
        return [None] * channel.depth + [rows.T]

    def rows(self, depth: int, name: str) -> Iterator[Array]:
        """The queries over the classes of a level, some at a time, (some, classes)."""
        own = Classes(self.nest.classes[depth])
        seen = self.on(depth, name)
        if self.count * own.count > PLACE_QUERIES:
            raise Infeasible(
                f"table {name!r} asks {self.count:,} sets of places that are no places of a level, of "
                f"{own.count:,}; ask fewer of them at a time"
            )
        step = max(1, SCRATCH // own.count)
        for start in range(0, self.count, step):
            yield seen.rows(start, min(start + step, self.count))

    def on(self, depth: int, name: str) -> Queries:
        """The same queries over the classes of a level; NotInSpan where they are finer."""
        classes = self.nest.classes[depth]
        if self.queries is None:
            return Total(int(classes.max()) + 1)
        if isinstance(self.queries, Partition | Identity | Total):
            own = getattr(self.queries, "classes", np.zeros(len(classes), dtype=np.int64))
            own = np.arange(len(classes)) if isinstance(self.queries, Identity) else own
            seen = own[first_places(classes)]
            if not np.array_equal(seen[classes], own):
                raise finer(name)
            return Partition(seen)
        found = coarsened(self.queries, [Classes(classes)])
        if found is None:
            raise finer(name)
        return found


def finer(name: str) -> Exception:
    """The error for a table that asks for smaller places than are measured."""
    return not_in_span(
        f"table {name!r} asks for smaller places, or other sets of them, than the plan measures"
    )


class PlacesEstimator(Estimator):
    """Estimates of tables: residuals added up over places, then over subsets of the other attributes."""

    def __init__(self, source: Places, estimates: Estimates) -> None:
        super().__init__(estimates)
        self.source = source
        pairs = zip(estimates.tables, estimates.cells, strict=True)
        self.residuals = {tuple(table[0].tolist()): cells[0] for table, cells in pairs}

    def answers(self, group: Table) -> Array:
        return self._answers(group, strict=True)

    def _answers(self, group: Table, *, strict: bool) -> Array:
        """Answers; unless `strict`, what is not measured of smaller places is spread evenly among them."""
        number, asked, rest = self.source.split(group)
        places = Asked.of(self.source.nest, asked)
        order = np.argsort(rest.attributes, kind="stable")
        ascending = [rest.attributes[at] for at in order]
        sizes = [self.source.blocks.sizes[at] for at in ascending]
        cells = np.zeros((places.count, *sizes))
        for subset, _ in self.source.pieces(rest):
            own = self.residuals[subset]
            depth = self.source.channels[subset].depth
            if not strict:
                own, depth = self._spread(own, depth), len(self.source.nest.classes) - 1
            queries = places.on(depth, group.name)
            summed = np.moveaxis(queries.answers(np.moveaxis(own, 0, -1)), -1, 0)
            shape = [size if at in subset else 1 for at, size in zip(ascending, sizes, strict=True)]
            spread = summed.reshape(places.count, *shape)
            for axis, at in enumerate(ascending, start=1):
                if at not in subset:
                    weights = self.source.blocks.measures[at].vector()
                    spread = spread * weights.reshape(-1, *[1] * (len(ascending) - axis))
            cells += spread
        cells = cells.transpose(0, *(1 + np.argsort(order)))
        found = apply_queries(cells, rest.factors, leading=1)
        return np.moveaxis(found, 0, number).reshape(-1)

    def by_classes(self, subsets: Subsets, classes: Sequence[Classes]) -> Array:
        return marginals_by(partial(self._answers, strict=False), subsets, classes)

    def _spread(self, cells: Array, depth: int) -> Array:
        """Residuals of the classes of a level, (classes, ..), shared out evenly among those of the last."""
        classes = self.source.nest.classes
        first = first_places(classes[-1])
        owners = classes[depth][first]
        share = 1.0 / np.bincount(owners)[owners]
        return np.asarray(cells[owners] * share.reshape(-1, *[1] * (cells.ndim - 1)))

    def run(self, tables: TableRun) -> Iterator[tuple[Integers, Array]]:
        for index, group in enumerate(tables):
            yield np.array([index]), self.answers(group)[None]


def marginals_by(answers: Callable[[Table], Array], subsets: Subsets, classes: Sequence[Classes]) -> Array:
    """Marginals of one shape added up by classes of cells, each answered as a table: (k, classes...)."""
    rows = []
    for subset in subsets.tolist():
        factors = tuple(
            Factor((at,), Identity(own.size) if own.trivial else Partition(own.classes))
            for at, own in zip(subset, classes, strict=True)
        )
        rows.append(answers(Table("", factors)).reshape([own.count for own in classes]))
    return np.stack(rows)
