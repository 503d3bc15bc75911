"""The two passes of `places`, one part of the tree at a time (claim T-020).

A part is some neighbouring nodes of one level with all that is below them. Going up, it adds something to the
sums of the level above; with those sums of all parts, the levels above are solved; going down, a part needs
nothing but the totals of the level above.

| symbol | meaning |
|---|---|
| above | the levels before `depth`, which are in no part |
| sums | for each subset, (nodes, k): what all parts say of the totals of the last level above |
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers
from residua.answering.asked_places import PlaceQueries, finer
from residua.answering.places import Numbers, Places, PlacesEstimator, Subset
from residua.answering.protocol import Estimates, Sliced
from residua.linalg.trees import Nest, downward, upward
from residua.workload import Table

Sums = dict[Subset, Array]
SMALL = 8  # parts of this part of the most numbers are not ended where a place of the level above ends


@dataclass(frozen=True, eq=False)
class Division:
    """A nest in parts: `cuts`, (parts + 1,), are the nodes of level `depth` where they begin and end."""

    nest: Nest
    depth: int
    cuts: Integers

    @classmethod
    def of(cls, nest: Nest, numbers: Sequence[int], most: int) -> "Division | None":
        """Parts of about `most` numbers, given those of a node of each level; None where one part has all.

        Parts end where a place of the first level ends, such as a state, unless that is too small or large.
        """
        sizes = nest.tree.sizes
        if sum(size * own for size, own in zip(sizes, numbers, strict=True)) <= most:
            return None
        # What is above is held whole: no more of it than of a part.
        depth = 2 if len(sizes) > 2 and numbers[0] + sizes[1] * numbers[1] <= most else 1
        below = np.full(sizes[-1], numbers[-1])
        for level in range(len(sizes) - 2, depth - 1, -1):
            below = numbers[level] + np.add.reduceat(below, nest.tree.starts[level])
        first = np.diff(nest.tree.parents[depth - 1], prepend=-1) > 0
        cuts, held = [0], 0
        for node, (own, new) in enumerate(zip(below.tolist(), first.tolist(), strict=True)):
            if held and (held + own > most or (new and held * SMALL >= most)):
                cuts.append(node)
                held = 0
            held += own
        return cls(nest, depth, np.array([*cuts, len(below)]))

    def __len__(self) -> int:
        return len(self.cuts) - 1

    @cached_property
    def ends(self) -> tuple[Integers, ...]:
        """The cuts of every level from `depth` on."""
        found, tree = [self.cuts], self.nest.tree
        for starts, size in zip(tree.starts[self.depth :], tree.sizes[self.depth + 1 :], strict=True):
            found.append(np.append(starts, size)[found[-1]])
        return tuple(found)

    def nodes(self, part: int) -> tuple[slice, ...]:
        """The nodes of a part, for every level from `depth` on."""
        return tuple(slice(*own[part : part + 2].tolist()) for own in self.ends)

    @cached_property
    def _orders(self) -> tuple[Integers, ...]:
        return tuple(map(np.argsort, self.nest.ranks))

    def blocks(self, level: int, part: int) -> Integers:
        """The classes of a level that are in a part, in the order of the tree."""
        return self._orders[level][self.nodes(part)[level - self.depth]]

    def of_places(self) -> Integers:
        """The part of each place."""
        nodes = self.nest.ranks[self.depth][self.nest.classes[self.depth]]
        return np.searchsorted(self.cuts, nodes, side="right") - 1


class PlaceParts:
    """What parts say of the levels above them, and what is known of all places of a part."""

    def __init__(self, source: Places, division: Division) -> None:
        self.source, self.division = source, division

    @property
    def divided(self) -> list[Subset]:
        """Subsets that are measured in the parts."""
        return [each for each, own in self.source.channels.items() if own.depth >= self.division.depth]

    def none(self) -> Sums:
        """The sums before any part is looked at."""
        above = self.division.nest.tree.sizes[self.division.depth - 1]
        layers = zip(self.source.channels, self.source.blocks.layers, strict=True)
        shapes = self.source.blocks.shapes
        rows = {each: [len(shapes[at].matrix) for at in layer.shapes[0].tolist()] for each, layer in layers}
        return {each: np.zeros((above, int(np.prod(rows[each], dtype=np.int64)))) for each in self.divided}

    def _upward(self, subset: Subset, part: int, numbers: Numbers) -> tuple[list[Array], list[Array]]:
        channel, depth = self.source.channels[subset], self.division.depth
        levels = range(depth, channel.depth + 1)
        nodes = self.division.nodes(part)[: len(levels)]
        blocks = [self.division.blocks(level, part) for level in levels]
        return upward(
            self.source.nest.tree.cut(channel.depth).part(depth, nodes),
            [own[here] for own, here in zip(channel.precisions[depth:], nodes, strict=True)],
            channel.passes.part(depth, nodes),
            self.source.sides(subset, numbers, levels, blocks),
        )

    def add(self, sums: Sums, part: int, numbers: Numbers) -> None:
        """Add what a part says, given its numbers: by layer, in the order of the tree."""
        owners = self.division.nest.tree.parents[self.division.depth - 1][self.division.nodes(part)[0]]
        for subset, own in sums.items():
            np.add.at(own, owners, self._upward(subset, part, numbers)[0][0])

    def above(self, numbers: Numbers, sums: Sums) -> dict[Subset, list[Array]]:
        """Totals of all nodes of the levels above, (nodes, k) a level, for every subset."""
        found = {}
        for subset, channel in self.source.channels.items():
            levels = range(min(self.division.depth, channel.depth + 1))
            tree = self.source.nest.tree.cut(levels[-1])
            pairs = zip(self.source.sides(subset, numbers, levels), self.division._orders, strict=False)
            sides = [None if own is None else own[order] for own, order in pairs]
            precisions = channel.precisions[: len(levels)]
            totals, added = upward(tree, precisions, channel.passes, sides, sums.get(subset))
            found[subset] = downward(tree, channel.passes, totals, added)
        return found

    def totals(self, subset: Subset, part: int, numbers: Numbers, sums: Array, above: Array) -> list[Array]:
        """Totals of all nodes of a part, (nodes, k) a level, given sums and totals of the level above."""
        channel, depth = self.source.channels[subset], self.division.depth
        nodes = self.division.nodes(part)[: channel.depth + 1 - depth]
        totals, added = self._upward(subset, part, numbers)
        owners = self.source.nest.tree.parents[depth - 1][nodes[0]]
        share = channel.passes.below[depth][nodes[0]] / channel.passes.sums[depth - 1][owners]
        known = totals[0] + share * (above - sums)[owners]
        tree = self.source.nest.tree.cut(channel.depth).part(depth, nodes)
        return downward(tree, channel.passes.part(depth, nodes), totals, added, known)


class PartsEstimator(PlacesEstimator):
    """Estimates of tables from parts, of which one is held at a time, and only those that are needed.

    `read` gives the numbers of a part.
    """

    def __init__(self, parts: PlaceParts, above: Numbers, sums: Sums, read: Callable[[int], Numbers]) -> None:
        super().__init__(parts.source, Estimates.of([], parts.source.measures))
        self.parts, self.sums, self._read = parts, sums, read
        self.above = parts.above(above, sums)
        self._held: tuple[int, Numbers, dict[Subset, list[Array]]] | None = None

    def _totals(self, subset: Subset, level: int, part: int) -> Array:
        """Totals of the nodes of a level that are in a part, (nodes, k)."""
        if self._held is None or self._held[0] != part:
            self._held = None
            self._held = (part, self._read(part), {})
        _, numbers, known = self._held
        if subset not in known:
            last = self.above[subset][-1]
            known[subset] = self.parts.totals(subset, part, numbers, self.sums[subset], last)
        return known[subset][level - self.parts.division.depth]

    def _placed(
        self, pieces: Sequence[Subset], places: PlaceQueries, name: str, strict: bool
    ) -> Iterator[tuple[Subset, Array]]:
        least = min(self.source.channels[subset].depth for subset in pieces)
        if places.of_nodes and places.depths.max() > least:
            raise finer(name)
        found = self._of_nodes(pieces, places) if places.of_nodes else self._of_sets(pieces, places, name)
        return ((subset, self.source.residuals(subset, own)) for subset, own in found.items())

    def _of_nodes(self, pieces: Sequence[Subset], places: PlaceQueries) -> Sums:
        """Totals of the nodes that are asked, (count, k)."""
        division = self.parts.division
        found = {each: np.empty((places.count, self.above[each][0].shape[1])) for each in pieces}
        for level in np.unique(places.depths).tolist():
            here = np.flatnonzero(places.depths == level)
            nodes = division.nest.ranks[level][places.nodes[here]]
            if level < division.depth:
                for subset, own in found.items():
                    own[here] = self.above[subset][level][nodes]
                continue
            ends = division.ends[level - division.depth]
            owners = np.searchsorted(ends, nodes, side="right") - 1
            for part in np.unique(owners).tolist():
                mine = owners == part
                for subset, own in found.items():
                    own[here[mine]] = self._totals(subset, level, part)[nodes[mine] - ends[part]]
        return found

    def _of_sets(self, pieces: Sequence[Subset], places: PlaceQueries, name: str) -> Sums:
        """Totals of sets of places that are no nodes, (count, k)."""
        division = self.parts.division
        found = {each: np.zeros((places.count, self.above[each][0].shape[1])) for each in pieces}
        for subset, own in found.items():
            level = self.source.channels[subset].depth
            start = 0
            for rows in places.rows(level, name):
                some = slice(start, start + len(rows))
                start = some.stop
                if level < division.depth:
                    own[some] = rows @ self.above[subset][level][division.nest.ranks[level]]
                    continue
                for part in range(len(division)):
                    own[some] += rows[:, division.blocks(level, part)] @ self._totals(subset, level, part)
        return found

    def sliced(self, group: Table) -> Sliced | None:
        """Answers of a table some places at a time, where those come first and each is a node."""
        number, asked, rest = self.source.split(group)
        places = PlaceQueries.of(self.source.nest, asked)
        if number or not places.of_nodes:
            return None
        pieces = [subset for subset, _ in self.source.pieces(rest)]

        def some(which: slice) -> tuple[Array, Array]:
            own = places.some(which)
            placed = self._placed(pieces, own, group.name, strict=True)
            values = self._joined(0, rest, own.count, placed)
            return values, self.source.variances_of(group, which)

        return places.count, some
