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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Array, Integers
from residua.answering.asked_places import Channel, PlaceQueries, nest_of, without_place
from residua.answering.blocks import Blocks, Layer, Measured
from residua.answering.independent.answerer import Independent, coefficients, residuals_of
from residua.answering.independent.parts import Part
from residua.answering.protocol import Answerer, Estimates, Estimator, TableEstimator, apply_queries
from residua.linalg.trees import first_places
from residua.workload import Queries, Table

Subset = tuple[int, ...]
Pieces = Iterator[tuple[Subset, list[Part]]]
Numbers = dict[tuple[int, int], Array]


class Places(Answerer):
    """Layers within one attribute, whose cells are places, and blocks that see all places at once.

    `levels` has for every layer the block of each place, None where blocks see all places.
    """

    def __init__(self, levels: Sequence[Integers | None], blocks: Blocks) -> None:
        self.measures, self.layers = blocks.measures, blocks.layers
        (self.place,) = {layer.within for layer in self.layers if layer.within is not None}
        self.nest, self.depths = nest_of(levels)
        self.members = self._rows()
        self.channels = {subset: self.channel(rows) for subset, rows in self.members.items()}
        self.blocks = replace(blocks, layers=tuple(self._one_each()))
        self.others = Independent(self.blocks)

    def _rows(self) -> dict[Subset, list[tuple[int, int]]]:
        """For each subset the layers, and rows there, that measure it; a layer within places has one."""
        found: dict[Subset, list[tuple[int, int]]] = {}
        for at, layer in enumerate(self.layers):
            for row, subset in enumerate(layer.subsets[: None if layer.within is None else 1].tolist()):
                found.setdefault(tuple(subset), []).append((at, row))
        return found

    def channel(self, rows: Sequence[tuple[int, int]]) -> Channel:
        """The passes over the tree for what these layers, and rows there, measure."""
        sizes = self.nest.tree.sizes
        found = [np.zeros((size, 1)) for size in sizes[: 1 + max(self.depths[at] for at, _ in rows)]]
        for at, row in rows:
            layer, depth = self.layers[at], self.depths[at]
            noise = layer.noise[row : row + 1] if layer.within is None else layer.noise
            found[depth][self.nest.ranks[depth], 0] += 1.0 / noise
        return Channel(self.nest, found)

    def _one_each(self) -> Iterator[Layer]:
        """For every subset one block with noise 1, as it would see one place."""
        for rows in self.members.values():
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
        return self.variances_of(group, slice(None))

    def variances_of(self, group: Table, some: slice) -> Array:
        """Variances of the queries on some places, in the order of the table without the others."""
        number, asked, rest = self.split(group)
        places = PlaceQueries.of(self.nest, asked).some(some)
        shape = [factor.queries.count for factor in rest.factors]
        grid = np.zeros((places.count, *shape))
        for subset, parts in self.pieces(rest):
            own = places.variances(self.channels[subset], group.name)
            grid += np.multiply.outer(own, self.others.known.grid(parts))
        return np.moveaxis(grid, 0, number).reshape(-1)

    def summed(self, group: Table, *, weighted: bool) -> float:
        _, asked, rest = self.split(group)
        places = PlaceQueries.of(self.nest, asked)
        return math.fsum(
            places.total(self.channels[subset], group.name, weighted=weighted)
            * math.prod(self.others.known.summed(part, weighted=weighted) for part in parts)
            for subset, parts in self.pieces(rest)
        )

    def covariances(self, left: Table, right: Table) -> Array:
        (number, mine, rest), (their_number, theirs, other) = self.split(left), self.split(right)
        ours, yours = PlaceQueries.of(self.nest, mine), PlaceQueries.of(self.nest, theirs)
        known = dict(self.pieces(rest))
        shapes = [[factor.queries.count for factor in each.factors] for each in (rest, other)]
        grid = np.zeros((ours.count, *shapes[0], yours.count, *shapes[1]))
        for subset, parts in self.pieces(other):
            if subset in known:
                rows = coefficients(known[subset], rest) @ coefficients(parts, other).T
                places = ours.covariance(self.channels[subset], yours, left.name)
                own = np.multiply.outer(places, rows.reshape((*shapes[0], *shapes[1])))
                grid += np.moveaxis(own, 1, 1 + len(shapes[0]))
        grid = np.moveaxis(grid, 1 + len(shapes[0]), 1 + len(shapes[0]) + their_number)
        return np.moveaxis(grid, 0, number).reshape(left.count, right.count)

    def estimates(self, measured: Measured) -> Estimates:
        """Residuals of the classes of each subset's last level: (1, attributes), (1, classes, sizes...)."""
        numbers = self.numbers(measured)
        runs = []
        for subset, channel in self.channels.items():
            sides = self.sides(subset, numbers, range(channel.depth + 1))
            cells = self.residuals(subset, channel.solved(sides, channel.known))
            runs.append((np.array([subset], dtype=np.int32).reshape(1, -1), cells[None]))
        return Estimates.of(runs, self.measures)

    def numbers(self, measured: Measured) -> Numbers:
        """Measured numbers by layer and row; those of a layer within places are together at its row 0."""
        return {
            (at, int(row)): own
            for at, rows, values in measured
            for row, own in zip(
                *((rows, values[:, None]) if self.layers[at].within is None else ([0], [values])), strict=True
            )
        }

    def sides(
        self, subset: Subset, numbers: Numbers, levels: range, blocks: Sequence[Integers] | None = None
    ) -> list[Array | None]:
        """Precision times measured number, (classes, k), for some levels; of all classes, or of `blocks`."""
        found: list[Array | None] = [None] * len(levels)
        for at, row in self.members[subset]:
            if self.depths[at] not in levels:
                continue
            level, layer = self.depths[at] - levels.start, self.layers[at]
            noise = layer.noise if layer.within is not None else layer.noise[row : row + 1]
            noise = noise if blocks is None else noise[blocks[level]]
            own, before = numbers[at, row] / noise[:, None], found[level]
            found[level] = own if before is None else before + own
        return found

    def residuals(self, subset: Subset, totals: Array) -> Array:
        """Cells of the residual on a subset, (n, sizes...), from totals of what is measured of it, (n, k)."""
        number = list(self.channels).index(subset)
        ((_, cells),) = residuals_of(
            self.blocks, [(number, np.zeros(len(totals), dtype=np.int64), np.asarray(totals))]
        )
        return cells

    def estimator(self, estimates: Estimates) -> Estimator:
        return PlacesEstimator(self, estimates)


class PlacesEstimator(TableEstimator):
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
        places = PlaceQueries.of(self.source.nest, asked)
        pieces = [subset for subset, _ in self.source.pieces(rest)]
        return self._joined(number, rest, places.count, self._placed(pieces, places, group.name, strict))

    def _placed(
        self, pieces: Sequence[Subset], places: PlaceQueries, name: str, strict: bool
    ) -> Iterator[tuple[Subset, Array]]:
        """Residuals of each subset at the places that are asked, (count, sizes...)."""
        for subset in pieces:
            own = self.residuals[subset]
            depth = self.source.channels[subset].depth
            if not strict:
                own, depth = self._spread(own, depth), len(self.source.nest.classes) - 1
            queries = places.on(depth, name)
            yield subset, np.moveaxis(queries.answers(np.moveaxis(own, 0, -1)), -1, 0)

    def _joined(self, number: int, rest: Table, count: int, placed: Iterable[tuple[Subset, Array]]) -> Array:
        """Answers of all queries from residuals of all subsets at so many places."""
        order = np.argsort(rest.attributes, kind="stable")
        ascending = [rest.attributes[at] for at in order]
        sizes = [self.source.blocks.sizes[at] for at in ascending]
        cells = np.zeros((count, *sizes))
        for subset, own in placed:
            shape = [size if at in subset else 1 for at, size in zip(ascending, sizes, strict=True)]
            spread = own.reshape(count, *shape)
            for axis, at in enumerate(ascending, start=1):
                if at not in subset:
                    weights = self.source.blocks.measures[at].vector()
                    spread = spread * weights.reshape(-1, *[1] * (len(ascending) - axis))
            cells += spread
        cells = cells.transpose(0, *(1 + np.argsort(order)))
        found = apply_queries(cells, rest.factors, leading=1)
        return np.moveaxis(found, 0, number).reshape(-1)

    def marginal(self, group: Table) -> Array:
        return self._answers(group, strict=False)

    def _spread(self, cells: Array, depth: int) -> Array:
        """Residuals of the classes of a level, (classes, ..), shared out evenly among those of the last."""
        classes = self.source.nest.classes
        first = first_places(classes[-1])
        owners = classes[depth][first]
        share = 1.0 / np.bincount(owners)[owners]
        return np.asarray(cells[owners] * share.reshape(-1, *[1] * (cells.ndim - 1)))
