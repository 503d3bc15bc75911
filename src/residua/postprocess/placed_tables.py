"""What tables ask of a tree of places, what facts say of it, and post-processed tables of all its places."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array, Flags, Subset
from residua._limits import TREE_CELLS
from residua.answering.asked_places import PlaceQueries, without_place
from residua.answering.given import KnownPlaces
from residua.answering.protocol import apply_queries
from residua.errors import DataError, Infeasible, WorkloadError
from residua.linalg.trees import Nest
from residua.postprocess.facts import margin_of
from residua.postprocess.placed_facts import every_level
from residua.schema import Schema
from residua.workload import Table, Workload


@dataclass(frozen=True, eq=False)
class Chain:
    """Attributes that tables ask together, and how deep each is asked; those asked deepest come first."""

    attributes: Subset
    depths: tuple[int, ...]
    sizes: tuple[int, ...]

    def kept(self, depth: int) -> int:
        """How many of the attributes are asked at or below a level."""
        return sum(own >= depth for own in self.depths)


@dataclass(frozen=True, eq=False)
class Layout:
    """The tree of all levels of places, and what is asked of it."""

    place: int
    nest: Nest
    depth: int
    chains: tuple[Chain, ...]

    @classmethod
    def of(cls, work: Workload, place: int, known: Sequence[KnownPlaces]) -> "Layout":
        """The layout for the tables of a workload; attributes of known tables come as early as they can."""
        nest = every_level(work.schema, place)
        depths: dict[int, int] = {}
        together: list[set[int]] = []
        last = 0
        for group in work.groups():
            _, queries, rest = without_place(place, group)
            asked = PlaceQueries.of(nest, queries)
            depth = int(asked.depths.max()) if asked.of_nodes else nest.tree.depth
            last = max(last, depth)
            depths |= {at: max(depths.get(at, 0), depth) for at in rest.attributes}
            touched = [own for own in together if own & {*rest.attributes}]
            together = [own for own in together if own not in touched]
            together.append(set(rest.attributes).union(*touched))
        facts = [set(own.others or ()) for own in known]
        sizes = work.schema.sizes

        def rank(at: int) -> tuple[int, int, int]:
            return -depths[at], -sum(at in own for own in facts), sizes[at]

        chains = [tuple(sorted(own, key=rank)) for own in together if own] or [()]
        made = (
            Chain(own, tuple(depths[at] for at in own), tuple(sizes[at] for at in own))
            for own in sorted(chains)
        )
        found = cls(place, nest, last, tuple(made))
        found._refuse_large(work.schema)
        return found

    def _refuse_large(self, schema: Schema) -> None:
        for chain in self.chains:
            for depth in range(self.depth + 1):
                cells = self.nest.tree.sizes[depth] * math.prod(chain.sizes[: chain.kept(depth)])
                if cells > TREE_CELLS:
                    names = ", ".join(schema.names[at] for at in chain.attributes)
                    raise Infeasible(
                        f"{names} are in tables together and have {cells:,} joint cells in all places; at "
                        f"most {TREE_CELLS:,} are post-processed: plan tables of fewer of them together"
                    )


@dataclass(frozen=True, eq=False)
class Limits:
    """What facts say of the nodes of every level by some attributes: the least, and whose are known whole."""

    least: list[Array]  # (nodes, cells)
    fixed: list[Flags]  # (nodes,)

    @classmethod
    def of(cls, layout: Layout, known: Sequence[KnownPlaces], subset: Subset, cells: int) -> "Limits":
        """The limits of the margin on the attributes `subset`, in that order."""
        tree = layout.nest.tree
        least = [np.zeros((size, cells)) for size in tree.sizes]
        fixed = [np.zeros(size, dtype=bool) for size in tree.sizes]
        for own in known:
            if own.others is not None and not {*subset} <= {*own.others}:
                continue
            for depth in range(tree.depth + 1):
                nodes, counts = own.by_nodes(layout.nest.classes[depth])
                ranks = layout.nest.ranks[depth][nodes]
                fixed[depth][ranks] = True
                if own.others is not None:
                    summed = margin_of(counts, own.others, subset, leading=1)
                    least[depth][ranks] = summed.reshape(len(nodes), cells)
        for depth in range(tree.depth - 1, -1, -1):
            below = tree.plain_up(depth, least[depth + 1])
            short = (below > least[depth] + 1e-6 * np.maximum(1.0, below)).any(axis=1)
            if (fixed[depth] & short).any():
                raise DataError("public facts contradict each other: known parts exceed a known whole")
            least[depth] = np.where(fixed[depth][:, None], least[depth], np.maximum(least[depth], below))
        return cls(least, fixed)


@dataclass(frozen=True, eq=False)
class PlacedTables:
    """Tables of all places: totals, and for each chain the cells of every level, (nodes, sizes...)."""

    layout: Layout
    totals: tuple[Array, ...]
    levels: tuple[tuple[Array, ...], ...]

    def __contains__(self, subset: Subset) -> bool:
        others = {*subset} - {self.layout.place}
        return any(others <= {*chain.attributes} for chain in self.layout.chains)

    @property
    def cells(self) -> int:
        """Number of all cells."""
        return sum(own.size for levels in (self.totals, *self.levels) for own in levels)

    @property
    def count(self) -> int:
        """Number of tables of all levels."""
        return len(self.layout.chains) * len(self.totals)

    def disagreement(self) -> float:
        """Largest difference between a place's number and the sum of its parts', over all tables."""
        worst = 0.0
        for levels in (self.totals, *self.levels):
            for depth in range(len(levels) - 1):
                above, below = levels[depth], self.layout.nest.tree.plain_up(depth, levels[depth + 1])
                gone = tuple(range(below.ndim, above.ndim))
                worst = max(worst, float(np.abs(above.sum(axis=gone) - below).max()))
        for levels in self.levels:
            for total, cells in zip(self.totals, levels, strict=True):
                worst = max(worst, float(np.abs(cells.reshape(len(total), -1).sum(axis=1) - total).max()))
        return worst

    def at(self, depth: int, subset: Subset) -> Array:
        """The nodes of a level by some attributes of a chain: (nodes in the order of the tree, sizes...)."""
        if not subset:
            return self.totals[depth]
        for chain, levels in zip(self.layout.chains, self.levels, strict=True):
            kept = chain.attributes[: chain.kept(depth)]
            if {*subset} <= {*kept}:
                return margin_of(levels[depth], kept, subset, leading=1)
        raise WorkloadError("post-processed tables of these attributes are not kept at this level")

    def answers(self, group: Table) -> Array:
        """Answers of one table, shape (count,)."""
        number, queries, rest = without_place(self.layout.place, group)
        asked, nest = PlaceQueries.of(self.layout.nest, queries), self.layout.nest
        sizes = [factor.queries.count for factor in rest.factors]
        found = np.empty((asked.count, *sizes))
        if asked.of_nodes:
            for depth in np.unique(asked.depths).tolist():
                here = asked.depths == depth
                cells = self.at(depth, rest.attributes)[nest.ranks[depth][asked.nodes[here]]]
                found[here] = apply_queries(cells, rest.factors, leading=1)
        else:
            depth = self._deepest(rest.attributes)
            cells = self.at(depth, rest.attributes)[nest.ranks[depth]]
            summed = asked.on(depth, group.name).answers(np.moveaxis(cells, 0, -1))
            found = apply_queries(np.moveaxis(summed, -1, 0), rest.factors, leading=1)
        return np.moveaxis(found, 0, number).reshape(-1)

    def _deepest(self, subset: Subset) -> int:
        """The last level that has all these attributes."""
        if not subset:
            return len(self.totals) - 1
        (chain,) = (own for own in self.layout.chains if {*subset} <= {*own.attributes})
        return min(own for at, own in zip(chain.attributes, chain.depths, strict=True) if at in subset)
