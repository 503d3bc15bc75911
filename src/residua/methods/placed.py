"""What tables ask of the nodes of a hierarchy, and of the attributes beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import GROUPED_PLACES, NOISE_LEVELS
from residua.answering.asked_places import PlaceQueries
from residua.answering.blocks import Layer, Shape, rows_over
from residua.kernel.measurement import column_costs
from residua.linalg.classes import Classes, JointClasses
from residua.linalg.matrices import Measure
from residua.linalg.trees import Nest, Tree
from residua.privacy import NoiseLaw
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Combined, Table, Workload
from residua.workload.views import View

LEAST = 1e-5  # of the budget: a node that would get less gets this; far less would cost digits of answers


@dataclass(frozen=True, eq=False)
class Placed:
    """A workload on one attribute with levels: what each table asks of its nodes, and of everything else."""

    place: int
    nest: Nest
    tables: tuple[tuple[Table, PlaceQueries], ...]  # without their places

    @classmethod
    def of(cls, work: Workload) -> "Placed | None":
        """The workload by the largest attribute with levels whose tables all ask for nodes; None without."""
        schema = work.schema
        chosen = [at for at in work.attributes if schema.attributes[at].levels]
        for at in sorted(chosen, key=lambda each: -schema.sizes[each]):
            found = cls._on(work, at)
            if found is not None:
                return found
        return None

    @classmethod
    def _on(cls, work: Workload, place: int) -> "Placed | None":
        own = work.schema.attributes[place]
        every = Nest.of([own.level_of(level) for level in own.levels])
        tables = []
        for group in work.groups():
            mine = [factor for factor in group.factors if place in factor.attributes]
            others = tuple(factor for factor in group.factors if place not in factor.attributes)
            asked = PlaceQueries.of(every, mine[0].queries) if mine and len(mine[0].attributes) == 1 else None
            asked = PlaceQueries.of(every, None) if not mine else asked
            tied = any(isinstance(factor.queries, Combined) for factor in others)
            if asked is None or not asked.of_nodes or tied:
                return None
            tables.append((replace(group, factors=others), asked))
        depths = sorted({0}.union(*(np.unique(asked.depths).tolist() for _, asked in tables)))
        nest = Nest.of([every.classes[depth] for depth in depths[1:]])
        moved = {depth: number for number, depth in enumerate(depths)}
        kept = tuple(
            (
                group,
                replace(asked, nest=nest, depths=np.array([moved[each] for each in asked.depths.tolist()])),
            )
            for group, asked in tables
        )
        return cls(place, nest, kept) if len(depths) > 1 else None

    def grouped(self) -> "Placed | None":
        """The same with a level between every two, on which siblings are in two groups by size.

        Nobody asks for the groups; measured, they help where siblings are uneven (claim T-015). None where
        all siblings are alike, or too many.
        """
        if sum(self.nest.tree.sizes) > GROUPED_PLACES:
            return None
        depths, classes = [0], []
        for level, finer in enumerate(self.nest.classes[1:]):
            groups = by_half(self.nest.tree, level)
            if self.nest.tree.sizes[level] <= groups.max() < self.nest.tree.sizes[level + 1] - 1:
                classes.append(groups[self.nest.ranks[level + 1][finer]])
            classes.append(finer)
            depths.append(len(classes))
        if len(classes) == self.nest.tree.depth:
            return None
        nest, moved = Nest.of(classes), np.array(depths)
        tables = ((group, replace(own, nest=nest, depths=moved[own.depths])) for group, own in self.tables)
        return Placed(self.place, nest, tuple(tables))

    def others(self, schema_work: Workload) -> Workload:
        """The tables without places, each as heavy as all its nodes together."""
        groups = (replace(group, weight=group.weight * asked.count) for group, asked in self.tables)
        return Workload(schema_work.schema, tuple(groups))

    def weights(self, worth: Sequence[Array]) -> list[Array]:
        """For each level (nodes, channels), in the order of the tree: what variances count.

        `worth` has for each table what variance 1 of each channel costs, (channels,).
        """
        channels = len(worth[0])
        found = [np.zeros((size, channels)) for size in self.nest.tree.sizes]
        for (_, asked), own in zip(self.tables, worth, strict=True):
            for depth in np.unique(asked.depths).tolist():
                nodes = self.nest.ranks[depth][asked.nodes[asked.depths == depth]]
                found[depth][nodes] += own
        return found

    @cached_property
    def beside(self) -> list[int]:
        """The attributes that some table has beside places, ascending."""
        return sorted({at for group, _ in self.tables for at in group.attributes})

    def grams(self, sizes: Sequence[int]) -> Array:
        """Of every table the gram of its queries on the joint cells beside places, (tables, cells, cells)."""
        own = [sizes[at] for at in self.beside]
        rows = [rows_over(group.factors, self.beside, own, listed=False) for group, _ in self.tables]
        return np.stack([group.weight * (a.T @ a) for a, (group, _) in zip(rows, self.tables, strict=True)])

    def by_table(self) -> list[Array]:
        """For each level (nodes, tables), in the order of the tree: how often a table asks for a node."""
        return self.weights(list(np.eye(len(self.tables))))

    def domains(
        self, sizes: Sequence[int], measures: Sequence[Measure], *, root: bool
    ) -> tuple[tuple[Domain, ...], list[int]]:
        """All cells, then the places of each level, of one place if `root`; and the number for each level."""
        found, numbers = [Domain(tuple(sizes), tuple(measures))], []
        for depth, count in enumerate(self.nest.tree.sizes):
            if count < sizes[self.place] and (depth or root):
                numbers.append(len(found))
                view = View((JointClasses.of_one(self.place, Classes(self.nest.classes[depth])),))
                own = [Measure(count) if at == self.place else each for at, each in enumerate(measures)]
                found.append(Domain(view.sizes(sizes), tuple(own), view))
            else:
                numbers.append(0)
        return tuple(found), numbers

    def by_rows(
        self, sizes: Sequence[int], rows: Iterable[tuple[int, Shape, Array]], law: NoiseLaw, least: float
    ) -> tuple[Strategy, list[int]]:
        """The strategy of cost 1 that measures shapes over the attributes beside at all nodes of a level.

        Each comes with its level and what it costs at every node, (nodes,); one that costs no more than
        `least` anywhere is left out. Also the level of each shape that is left.
        """
        inner, levels = len(self.beside), []
        domains, numbers = self.domains(sizes, [Measure(size) for size in sizes], root=inner > 0)
        layers: list[Layer] = []
        shapes: list[Shape] = []
        for depth, shape, own in rows:
            costs = few_costs(np.maximum(own[self.nest.ranks[depth]], LEAST))  # in the order of its classes
            if (costs <= least).all():
                continue
            parameters = float(column_costs(law, shape.matrix).max()) / costs
            layers.append(
                Layer(
                    np.broadcast_to(np.array(self.beside, dtype=np.int32), (len(own), inner)),
                    (tuple(range(inner)),) if inner else (),
                    np.full((len(own), 1 if inner else 0), len(shapes)),
                    costs,
                    2.0 * parameters**2 if law == "laplace" else parameters,
                    domain=numbers[depth],
                    within=self.place if inner or depth else None,
                )
            )
            shapes += [shape] if inner else []
            levels.append(depth)
        strategy = Strategy(domains, tuple(shapes), tuple(layers), law)
        return strategy.scaled(1.0 / strategy.cost()), levels


def by_half(tree: Tree, level: int) -> Integers:
    """For each child of the nodes of a level a number of its group: two a node, or one of equal siblings.

    A group has about half of the leaves; siblings with equally many are in one.
    """
    leaves = np.ones(tree.sizes[-1])
    for above in range(tree.depth - 1, level, -1):
        leaves = tree.plain_up(above, leaves)
    parents, starts = tree.parents[level], tree.starts[level]
    order = np.lexsort((leaves, parents))
    running = np.cumsum(leaves[order])
    below = running - (running - leaves[order])[starts][parents]  # of the siblings that are no larger
    half = np.add.reduceat(leaves, starts)[parents] / 2
    last = np.append(np.diff(parents) > 0, True)
    uneven = np.append(np.diff(leaves[order]) > 0, False) & ~last  # where a group may end
    distance = np.where(uneven, np.abs(below - half), np.inf)
    nearest = np.minimum.reduceat(distance, starts)[parents]
    ends = np.flatnonzero((distance == nearest) & uneven)
    cut = np.full(tree.sizes[level], -1)
    cut[parents[ends[::-1]]] = ends[::-1]  # the first of several
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = 2 * parents + (np.arange(len(order)) > cut[parents])
    return np.unique(numbers, return_inverse=True)[1].reshape(-1).astype(np.int64)


def marks(weights: Sequence[Array]) -> list[Integers] | None:
    """For each level a number for each node, equal where the same is asked; None where that is all alike."""
    if all((own == own[:1]).all() for own in weights):
        return None
    return [np.unique(own, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64) for own in weights]


def by_node(weights: Sequence[Array], stands: Sequence[Integers], tree: Tree) -> list[Array]:
    """For each level sums of the weights of all nodes that one of a smaller tree stands for."""
    return [
        np.stack([np.bincount(nodes, column, size) for column in own.T], axis=1)
        for own, nodes, size in zip(weights, stands, tree.sizes, strict=True)
    ]


def few_costs(costs: Array) -> Array:
    """Costs lowered to one of not too many, so that there are not too many laws of noise."""
    if len(np.unique(costs)) <= NOISE_LEVELS:
        return costs
    step = np.log(costs.max() / costs.min()) / NOISE_LEVELS
    step = min(step, 1e-3)
    return np.asarray(np.exp(np.floor(np.log(costs) / step) * step))
