"""Tables of places at several levels: nodes of the tree measured, each with its own precision.

The other attributes are split as always, into one block for every subset R of them; each block is measured at
every place of every level that is asked, and all of them share one budget along each path from the nation to
a place. What every node gets is found for all blocks at once (claims T-003, T-008).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import BOUND_CELLS, NOISE_LEVELS
from residua.answering.blocks import Layer, rows_over
from residua.answering.independent.answerer import Independent
from residua.answering.places import Asked
from residua.bounds.trees import product_bound
from residua.errors import Infeasible
from residua.linalg.classes import Classes, JointClasses
from residua.linalg.matrices import Measure
from residua.linalg.trees import Nest, Tree, merged, passes, slopes
from residua.methods.blocks import querysmasher
from residua.methods.draft import Draft, Progress
from residua.methods.smasher import centred, roles_in
from residua.methods.splits.blocks import is_joint
from residua.solve.trees import TreeSolution, solve_tree
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Combined, Table, Workload
from residua.workload.views import View

LEAST = 1e-5  # of the budget: a node that would get less gets this; far less would cost digits of answers


@dataclass(frozen=True, eq=False)
class Placed:
    """A workload on one attribute with levels: what each table asks of its nodes, and of everything else."""

    place: int
    nest: Nest
    tables: tuple[tuple[Table, Asked], ...]  # without their places

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
            asked = Asked.of(every, mine[0].queries) if mine and len(mine[0].attributes) == 1 else None
            asked = Asked.of(every, None) if not mine else asked
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


def places(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Nodes of a hierarchy measured, each with its own precision; the other attributes split as always."""
    found = Placed.of(work)
    if found is None:
        raise Infeasible(
            "method 'places' is for tables that ask for the places of some levels of a Hierarchy or a Date; "
            "use method 'auto'"
        )
    base = _split(found.others(work), tolerance, progress)
    blocks = _Blocks(base.strategy)
    worth = [blocks.worth(group) for group, _ in found.tables]
    weights = found.weights(worth)
    small, stands = merged(found.nest.tree, _marks(weights))
    summed = [_by_node(own, node, size) for own, node, size in zip(weights, stands, small.sizes, strict=True)]
    solution = solve_tree(small, summed, tolerance)
    shares = [own[node] for own, node in zip(solution.precisions, stands, strict=True)]
    strategy = _strategy(found, blocks, shares)
    bound = _bound(found, work.schema.sizes, small, stands, summed, solution)
    if bound is None:
        return Draft(strategy, solution.lower_bound, "this block structure", None, base.spans)
    return Draft(strategy, bound, "all mechanisms", None, base.spans)


def _bound(
    found: Placed,
    sizes: Sequence[int],
    tree: Tree,
    stands: Sequence[Integers],
    weights: Sequence[Array],
    solution: TreeSolution,
) -> float | None:
    """A bound for all mechanisms; None where the other attributes have too many joint cells."""
    others = sorted({at for group, _ in found.tables for at in group.attributes})
    cells = [sizes[at] for at in others]
    if math.prod(cells) > BOUND_CELLS:
        return None
    precisions = [np.maximum(own, LEAST) for own in solution.precisions]  # of nothing there is no slope
    worth = -slopes(tree, passes(tree, precisions), weights)[-1].min(axis=1)
    grams: dict[bytes, tuple[Array, list[Array]]] = {}
    for group, asked in found.tables:
        rows = rows_over(group.factors, others, cells, listed=False)
        gram = group.weight * (rows.T @ rows)
        own = found.weights([np.ones(1) if each is asked else np.zeros(1) for _, each in found.tables])
        counted = [
            _by_node(a, node, size)[:, 0] for a, node, size in zip(own, stands, tree.sizes, strict=True)
        ]
        known = grams.setdefault(gram.tobytes(), (gram, [np.zeros(size) for size in tree.sizes]))
        for level, more in zip(known[1], counted, strict=True):
            level += more
    pairs = list(grams.values())
    return product_bound(tree, [tuple(levels) for _, levels in pairs], [gram for gram, _ in pairs], worth)


def _split(work: Workload, tolerance: float, progress: Progress | None) -> Draft:
    """Centred blocks for the other attributes, uniformly or by the best weights found."""
    uniform = querysmasher(work, tolerance, progress)
    if work.invariant or any(map(is_joint, work.parts)) or not work.attributes:
        return uniform
    best = centred(work, roles_in(work, by_weight=True), tolerance, progress)
    return min(uniform, best, key=lambda draft: math.inf if draft.value is None else draft.value)


class _Blocks:
    """The blocks of a strategy on the other attributes, one channel each, and what each costs."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.answerer = Independent(strategy.blocks())
        self.rows = [(at, row) for at, layer in enumerate(strategy.layers) for row in range(len(layer.noise))]
        self.number = {
            tuple(strategy.layers[at].subsets[row].tolist()): number
            for number, (at, row) in enumerate(self.rows)
        }

    @cached_property
    def unit(self) -> Array:
        """Noise of each block at privacy cost 1."""
        layers = self.strategy.layers
        return np.array([layers[at].noise[row] * layers[at].costs[row] for at, row in self.rows])

    def worth(self, group: Table) -> Array:
        """Sum of the variances of a table's queries, weights included, at cost 1 in each block alone."""
        found = np.zeros(len(self.rows))
        for subset, _, parts in self.answerer.pieces(group):
            own = math.prod(self.answerer.known.summed(part, weighted=True) for part in parts)
            found[self.number[subset]] += group.weight * own * self.unit[self.number[subset]]
        return found


def _marks(weights: Sequence[Array]) -> list[Integers] | None:
    """For each level a number for each node, equal where the same is asked; None where that is all alike."""
    if all((own == own[:1]).all() for own in weights):
        return None
    return [np.unique(own, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64) for own in weights]


def _by_node(weights: Array, nodes: Integers, size: int) -> Array:
    """Sums of the weights of all nodes that one stands for."""
    return np.stack([np.bincount(nodes, own, size) for own in weights.T], axis=1)


def _strategy(found: Placed, blocks: _Blocks, shares: Sequence[Array]) -> Strategy:
    """The strategy whose blocks cost so much at each node, in all along every path at most 1."""
    base = blocks.strategy
    schema_sizes, domains = base.sizes, [base.domains[0]]
    layers = []
    for depth, own in enumerate(shares):
        count = len(own)
        if depth and count < schema_sizes[found.place]:
            part = JointClasses.of_one(found.place, Classes(found.nest.classes[depth]))
            view = View((part,))
            sizes = view.sizes(schema_sizes)
            measures = [
                Measure(count) if at == found.place else each for at, each in enumerate(base.measures)
            ]
            domains.append(Domain(sizes, tuple(measures), view))
        domain = len(domains) - 1 if depth and count < schema_sizes[found.place] else 0
        for number, (at, row) in enumerate(blocks.rows):
            costs = _few(np.maximum(own[found.nest.ranks[depth], number], LEAST))
            if (costs <= LEAST).all():
                continue
            layer, one = base.layers[at], slice(row, row + 1)
            layers.append(
                Layer(
                    np.broadcast_to(layer.subsets[one], (count, layer.subsets.shape[1])),
                    layer.layout,
                    np.broadcast_to(layer.shapes[one], (count, layer.shapes.shape[1])),
                    costs,
                    blocks.unit[number] / costs,
                    domain=domain,
                    within=found.place if depth else None,
                )
            )
    strategy = replace(base, domains=tuple(domains), layers=tuple(layers))
    return strategy.scaled(1.0 / strategy.cost())


def _few(costs: Array) -> Array:
    """Costs lowered to one of not too many, so that there are not too many laws of noise."""
    if len(np.unique(costs)) <= NOISE_LEVELS:
        return costs
    step = np.log(costs.max() / costs.min()) / NOISE_LEVELS
    step = min(step, 1e-3)
    return np.asarray(np.exp(np.floor(np.log(costs) / step) * step))
