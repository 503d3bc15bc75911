"""Places measured by rows over all other attributes at once, which differ from level to level (claim T-010).

What is known of a place is a vector, with a covariance matrix: one coordinate for everything that can be told
at its level. One pass up the tree and one down give all of them.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers
from residua.answering.asked_places import PlaceQueries, finer, nest_of, without_place
from residua.answering.blocks import Blocks, Measured, rows_over
from residua.answering.protocol import (
    Answerer,
    Estimates,
    Estimator,
    TableEstimator,
    apply_queries,
    not_in_span,
)
from residua.errors import NotInSpan
from residua.linalg.vector_trees import VectorPasses, nested_bases, vector_passes, vector_solved
from residua.workload import Table

OUTSIDE = 1e-9  # of a query's length: what is more is not in the span


class VectorPlaces(Answerer):
    """Layers within one attribute, all on the same other attributes; a level may have several."""

    def __init__(self, levels: Sequence[Integers | None], blocks: Blocks) -> None:
        self.layers = blocks.layers
        (self.place,) = {layer.within for layer in self.layers if layer.within is not None}
        self.others = self.layers[0].subsets[0].tolist()
        self.sizes = [blocks.sizes[at] for at in self.others]
        self.matrices = [blocks.shapes[layer.shapes[0, 0]].matrix for layer in self.layers]
        self.nest, self.depths = nest_of(levels)
        self.members = [
            [at for at, own in enumerate(self.depths) if own == depth]
            for depth in range(len(self.nest.tree.sizes))
        ]
        empty = np.zeros((0, self.matrices[0].shape[1]))
        self.bases = nested_bases(
            [np.concatenate([empty, *(self.matrices[at] for at in own)]) for own in self.members]
        )

    @cached_property
    def passes(self) -> VectorPasses:
        """Covariances of all that is known of each place."""
        precisions, squares = [], []
        for depth, (members, basis) in enumerate(zip(self.members, self.bases, strict=True)):
            own = np.zeros((self.nest.tree.sizes[depth], len(members)))
            for kind, at in enumerate(members):
                own[self.nest.ranks[depth], kind] = 1.0 / self.layers[at].noise
            rows = [self.matrices[at] @ basis for at in members]
            precisions.append(own)
            squares.append(np.array([each.T @ each for each in rows]).reshape(-1, *[basis.shape[1]] * 2))
        try:
            return vector_passes(self.nest.tree, precisions, squares)
        except np.linalg.LinAlgError:  # a file may say anything
            raise NotInSpan(
                "places are measured with noise so unequal that floats do not tell what is known; plan again"
            ) from None

    def split(self, group: Table) -> tuple[int, PlaceQueries, Table, Array]:
        """Position of the factor on places, what it asks, the rest, and its rows over the other cells."""
        number, asked, rest = without_place(self.place, group)
        beyond = sorted({*rest.attributes} - {*self.others})
        if beyond:
            raise not_in_span(f"table {group.name!r} asks about attributes that are not measured", beyond)
        rows = rows_over(rest.factors, self.others, self.sizes)
        return number, PlaceQueries.of(self.nest, asked), rest, rows

    def coordinates(self, rows: Array, depth: int, name: str) -> Array:
        """Queries on the other attributes in the coordinates of a level, (queries, rank)."""
        if not self._told(rows, depth):
            raise finer(name)
        return np.asarray(rows @ self.bases[depth])

    def _told(self, rows: Array, depth: int) -> bool:
        """Whether queries on the other attributes can all be told at a level."""
        basis = self.bases[depth]
        left = np.linalg.norm(rows - (rows @ basis) @ basis.T, axis=1)
        return bool((left <= OUTSIDE * np.linalg.norm(rows, axis=1)).all())

    def _sides(self, places: PlaceQueries, rows: Array, name: str) -> Iterator[tuple[int, Array, Array]]:
        """For each query on places its level, what it asks of nodes there, and the rest in coordinates."""
        if places.of_nodes:
            for depth, node in zip(places.depths.tolist(), places.nodes.tolist(), strict=True):
                asked = np.zeros(self.nest.tree.sizes[depth])
                asked[self.nest.ranks[depth][node]] = 1.0
                yield depth, asked, self.coordinates(rows, depth, name)
            return
        # At the last level at which all queries on the other attributes can be told.
        depth = next((level for level in range(len(self.bases) - 1, 0, -1) if self._told(rows, level)), 0)
        coordinates = self.coordinates(rows, depth, name)
        for own in places.rows(depth, name):
            for row in own:
                asked = np.zeros(len(row))
                asked[self.nest.ranks[depth]] = row
                yield depth, asked, coordinates

    def _solved(self, depth: int, asked: Array, coordinates: Array) -> list[Array]:
        """Covariances of all that is known of each place with queries, (nodes, rank, queries) a level."""
        sides: list[Array | None] = [None] * len(self.bases)
        sides[depth] = asked[:, None, None] * coordinates.T
        return vector_solved(self.nest.tree, self.passes, sides, len(coordinates))

    def variances(self, group: Table) -> Array:
        number, places, rest, rows = self.split(group)
        found = np.empty((places.count, len(rows)))
        if places.of_nodes:
            for depth in np.unique(places.depths).tolist():
                here = places.depths == depth
                own = self.coordinates(rows, depth, group.name)
                final = self.passes.final[depth][self.nest.ranks[depth][places.nodes[here]]]
                found[here] = np.einsum("uiq,qi->uq", final @ own.T, own)
        else:
            for at, (depth, asked, own) in enumerate(self._sides(places, rows, group.name)):
                found[at] = np.einsum("u,uiq,qi->q", asked, self._solved(depth, asked, own)[depth], own)
        shape = [factor.queries.count for factor in rest.factors]
        return np.moveaxis(found.reshape(places.count, *shape), 0, number).reshape(-1)

    def covariances(self, left: Table, right: Table) -> Array:
        if left.count > right.count:
            return self.covariances(right, left).T
        number, places, rest, rows = self.split(left)
        their_number, theirs, their_rest, their_rows = self.split(right)
        shapes = [[factor.queries.count for factor in each.factors] for each in (rest, their_rest)]
        found = np.zeros((places.count, len(rows), theirs.count, len(their_rows)))
        others = list(self._sides(theirs, their_rows, right.name))
        for at, side in enumerate(self._sides(places, rows, left.name)):
            solved = self._solved(*side)
            for their_at, (depth, asked, own) in enumerate(others):
                found[at, :, their_at] = np.einsum("u,uiq,pi->qp", asked, solved[depth], own, optimize=True)
        grid = found.reshape(places.count, *shapes[0], theirs.count, *shapes[1])
        grid = np.moveaxis(grid, 1 + len(shapes[0]), 1 + len(shapes[0]) + their_number)
        return np.moveaxis(grid, 0, number).reshape(left.count, right.count)

    def estimates(self, measured: Measured) -> Estimates:
        """Cells of the classes of the last level, (1, classes, sizes...).

        What cannot be told of smaller places is shared out evenly among them; nobody may ask it.
        """
        sides: list[Array | None] = [
            np.zeros((size, basis.shape[1], 1))
            for size, basis in zip(self.nest.tree.sizes, self.bases, strict=True)
        ]
        for at, _, values in measured:
            depth, side = self.depths[at], sides[self.depths[at]]
            seen = (values / self.layers[at].noise[:, None]) @ (self.matrices[at] @ self.bases[depth])
            if side is not None:
                side[self.nest.ranks[depth], :, 0] += seen
        totals = vector_solved(self.nest.tree, self.passes, sides, 1)
        known = totals[0][:, :, 0]
        for level, parents in enumerate(self.nest.tree.parents):
            own = totals[level + 1][:, :, 0]
            rest = known[:, own.shape[1] :] / np.bincount(parents)[:, None]
            known = np.concatenate([own, rest[parents]], axis=1)
        cells = (known @ self.bases[0].T)[self.nest.ranks[-1]]
        subset = np.array([self.others], dtype=np.int32)
        return Estimates.of([(subset, cells.reshape(1, len(cells), *self.sizes))], None)

    def estimator(self, estimates: Estimates) -> Estimator:
        return VectorPlacesEstimator(self, estimates)


class VectorPlacesEstimator(TableEstimator):
    """Estimates of tables: cells of the last level added up."""

    def __init__(self, source: VectorPlaces, estimates: Estimates) -> None:
        super().__init__(estimates)
        self.source = source

    def answers(self, group: Table) -> Array:
        number, places, rest, _ = self.source.split(group)
        cells, last = self._estimates.cells[0][0], len(self.source.bases) - 1
        found = places.on(last, group.name).answers(np.moveaxis(cells, 0, -1))  # (sizes..., count)
        gone = tuple(axis for axis, at in enumerate(self.source.others) if at not in rest.attributes)
        kept = [at for at in self.source.others if at in rest.attributes]
        found = np.moveaxis(found.sum(axis=gone), -1, 0)
        found = found.transpose(0, *(1 + kept.index(at) for at in rest.attributes))
        found = apply_queries(found, rest.factors, leading=1)
        return np.moveaxis(found, 0, number).reshape(-1)
