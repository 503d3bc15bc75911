"""What queries ask of places: nodes of a tree, or other sets of places, and how well those are known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import PLACE_QUERIES, SCRATCH
from residua.answering.protocol import not_in_span
from residua.errors import Infeasible
from residua.linalg.classes import Classes
from residua.linalg.trees import Nest, Passes, first_places, passes, solved
from residua.workload import Identity, Partition, Queries, Table, Total
from residua.workload.tables import without_totals
from residua.workload.views import coarsened


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

    def covariances(self, rows: Array) -> Array:
        """Covariances for noise 1 of the classes of the last level with rows over them, (classes, rows)."""
        return self.solved([None] * self.depth + [rows.T])


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
class PlaceQueries:
    """What queries ask of places: of each a node, or rows over all places where they ask for other sets."""

    nest: Nest
    queries: Queries | None
    depths: Integers  # (count,): the level of the node, and its class there; nothing for other sets
    nodes: Integers

    @classmethod
    def of(cls, nest: Nest, queries: Queries | None) -> "PlaceQueries":
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
        return len(self.nodes) if self.of_nodes or self.queries is None else self.queries.count

    def some(self, which: slice) -> "PlaceQueries":
        """Those of some of the nodes."""
        return replace(self, depths=self.depths[which], nodes=self.nodes[which])

    def variances(self, channel: Channel, name: str) -> Array:
        """Variance of each query for noise 1, (count,)."""
        if not self.of_nodes:
            some = self.rows(channel.depth, name)
            return np.concatenate([np.einsum("rc,cr->r", own, channel.covariances(own)) for own in some])
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

    def covariance(self, channel: Channel, other: "PlaceQueries", name: str) -> Array:
        """Covariances with other queries for noise 1, (count, other count)."""
        if self.count > other.count:
            return other.covariance(channel, self, name).T
        theirs = np.concatenate(list(other.rows(channel.depth, name)))
        some = self.rows(channel.depth, name)
        return np.concatenate([(theirs @ channel.covariances(own)).T for own in some])

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
