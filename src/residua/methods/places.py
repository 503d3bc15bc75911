"""Tables of places at several levels: nodes of the tree measured, each with its own precision.

The other attributes are split as always, into one block for every subset R of them; each block is measured at
every place of every level that is asked, and all of them share one budget along each path from the nation to
a place. What every node gets is found for all blocks at once (claims T-003, T-008).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from residua._arrays import Array
from residua._limits import BOUND_CELLS, CAPPED_KINDS
from residua.answering.blocks import Layer, outer
from residua.answering.independent.answerer import Independent
from residua.bounds.trees import product_bound
from residua.errors import Infeasible
from residua.linalg.trees import Tree, merged, passes, slopes
from residua.methods.blocks import querysmasher
from residua.methods.draft import Caps, Draft, Progress, Scope
from residua.methods.placed import LEAST, Placed, by_node, few_costs, marks
from residua.methods.scales.query_pieces import unweighted
from residua.methods.smasher import centred, roles_in
from residua.methods.splits.blocks import is_joint
from residua.methods.vector_places import vector_places
from residua.solve.trees import Capped, CappedSolution, solve_capped, solve_tree
from residua.strategy.strategy import Strategy
from residua.workload import Table, Workload

NEAR = 1e-3  # of the value: a distance from the bound at which nothing else is tried


def places(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Nodes of a hierarchy measured, each with its own precision; the other attributes split as always."""
    found = placed(work)
    ways: list[Callable[[], Draft | None]] = [
        lambda: _by_subsets(found, work, tolerance, progress),
        lambda: None if (own := found.grouped()) is None else _by_subsets(own, work, tolerance, progress),
        lambda: vector_places(found, work.schema.sizes, tolerance),
    ]
    drafts: list[Draft] = []
    for way in ways:
        drafts += [] if (draft := way()) is None else [draft]
        best = min(drafts, key=lambda each: each.total(work))
        bounds = [each.lower_bound for each in drafts if each.scope == "all mechanisms"]
        if bounds and best.total(work) <= (1 + NEAR) * max(bounds):
            break
    return replace(best, lower_bound=max(bounds), scope="all mechanisms") if bounds else best


def placed(work: Workload) -> Placed:
    """What a workload asks of the nodes of a hierarchy; Infeasible where it asks for other things."""
    found = Placed.of(work)
    if found is None:
        raise Infeasible(
            "method 'places' is for tables that ask for the places of some levels of a Hierarchy or a Date; "
            "use method 'auto'"
        )
    return found


def _by_subsets(found: Placed, work: Workload, tolerance: float, progress: Progress | None) -> Draft:
    """The draft with one block for every subset of the other attributes."""
    base = _split(found.others(work), tolerance, progress)
    blocks = _Blocks(base.strategy)
    worth = [blocks.worth(group) for group, _ in found.tables]
    weights = found.weights(worth)
    small, stands = merged(found.nest.tree, marks(weights))
    summed = by_node(weights, stands, small)
    solution = solve_tree(small, summed, tolerance)
    shares = [own[node] for own, node in zip(solution.precisions, stands, strict=True)]
    strategy = _strategy(found, blocks, shares)
    asked = by_node(found.by_table(), stands, small)
    bound = places_bound(found, work.schema.sizes, small, summed, solution.precisions, asked)
    if bound is None:
        return Draft(strategy, solution.lower_bound, "this block structure", None, base.spans)
    return Draft(strategy, bound, "all mechanisms", None, base.spans)


def places_targets(work: Workload, caps: Caps, tolerance: float, progress: Progress | None = None) -> Draft:
    """The cheapest precisions of nodes that keep every variance within its cap, one a table (T-014)."""
    work = unweighted(work)
    if any(np.ndim(cap) for cap in caps):
        raise Infeasible(
            "targets for each query by itself are not planned by places; give one for each table"
        )
    limits = [float(cap) for part, cap in zip(work.parts, caps, strict=True) for _ in part]
    pairs = zip(work.parts, caps, strict=True)
    strict = Workload(work.schema, tuple(replace(part, weight=1 / float(cap)) for part, cap in pairs))
    found = placed(strict)
    base = _split(found.others(strict), tolerance, progress)
    blocks = _Blocks(base.strategy)
    tree, stands = merged(found.nest.tree, marks(found.by_table()))
    capped, owners = [], []
    for table, ((group, asked), cap) in enumerate(zip(found.tables, limits, strict=True)):
        for depth in np.unique(asked.depths).tolist():
            nodes = found.nest.ranks[depth][asked.nodes[asked.depths == depth]]
            capped.append(Capped(depth, np.unique(stands[depth][nodes]), blocks.kinds(group) / cap))
            owners.append(table)
    solution = solve_capped(tree, len(blocks.rows), capped, tolerance)
    shares = [own[node] for own, node in zip(solution.precisions, stands, strict=True)]
    strategy = _strategy(found, blocks, shares)
    ratio = max(strategy.largest(own) / cap for own, cap in zip(work.groups(), limits, strict=True))
    prices = np.zeros(len(limits))
    np.add.at(prices, owners, [float(own.sum()) for own in solution.prices])
    everywhere = _targets_bound(found, work.schema.sizes, tree, capped, owners, solution)
    scope: Scope = "this block structure" if everywhere is None else "all mechanisms"
    lower = solution.lower_bound if everywhere is None else everywhere
    by_part = np.split(prices, np.cumsum([sum(1 for _ in part) for part in work.parts])[:-1])
    return Draft(strategy.scaled(ratio), lower, scope, None, base.spans, prices=tuple(by_part))


def _targets_bound(
    found: Placed,
    sizes: Sequence[int],
    tree: Tree,
    capped: Sequence[Capped],
    owners: Sequence[int],
    solution: CappedSolution,
) -> float | None:
    """The bound for all mechanisms at the prices found; None where queries of a table have several."""
    if any(len(own.rows) > 1 for own in capped):
        return None
    asked = [np.zeros((size, len(found.tables))) for size in tree.sizes]
    weights = [np.zeros((size, len(capped[0].rows.T))) for size in tree.sizes]
    for own, table, price in zip(capped, owners, solution.prices, strict=True):
        asked[own.level][own.nodes, table] += price[:, 0] / found.tables[table][0].count
        weights[own.level][own.nodes] += price @ own.rows
    return places_bound(found, sizes, tree, weights, solution.precisions, asked)


def places_bound(
    found: Placed,
    sizes: Sequence[int],
    tree: Tree,
    weights: Sequence[Array],
    precisions: Sequence[Array],
    asked: Sequence[Array],
) -> float | None:
    """A bound for all mechanisms; None where the other attributes have too many joint cells.

    `asked`, (nodes, tables) a level, counts how often each table is asked of a node.
    """
    if math.prod(sizes[at] for at in found.beside) > BOUND_CELLS:
        return None
    precisions = [np.maximum(own, LEAST) for own in precisions]  # of nothing there is no slope
    slope = slopes(tree, passes(tree, precisions), weights)[-1]
    worth = -(slope * precisions[-1]).sum(axis=1) / precisions[-1].sum(axis=1)  # of what is measured there
    grams: dict[bytes, tuple[Array, list[Array]]] = {}
    for table, gram in enumerate(found.grams(sizes)):
        known = grams.setdefault(gram.tobytes(), (gram, [np.zeros(size) for size in tree.sizes]))
        for level, own in zip(known[1], asked, strict=True):
            level += own[:, table]
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

    def kinds(self, group: Table) -> Array:
        """Variances of a table's queries at cost 1 in each block alone, (kinds, blocks), equal ones once.

        Where those are many, one that is no less than any.
        """
        grid = np.zeros((*(factor.queries.count for factor in group.factors), len(self.rows)))
        for subset, _, parts in self.answerer.pieces(group):
            own = outer(map(self.answerer.known.listed, parts), [at for part in parts for at in part.places])
            grid[..., self.number[subset]] += own * self.unit[self.number[subset]]
        rows = grid.reshape(-1, len(self.rows))
        scale = np.maximum(rows.max(axis=0), 1e-300)
        first = np.unique(np.round(rows / scale, 9), axis=0, return_index=True)[1]
        return rows[first] if len(first) <= CAPPED_KINDS else rows.max(axis=0, keepdims=True)


def _strategy(found: Placed, blocks: _Blocks, shares: Sequence[Array]) -> Strategy:
    """The strategy whose blocks cost so much at each node, in all along every path at most 1."""
    base = blocks.strategy
    domains, numbers = found.domains(base.sizes, base.measures, root=False)
    layers = []
    for depth, own in enumerate(shares):
        count = len(own)
        for number, (at, row) in enumerate(blocks.rows):
            costs = few_costs(np.maximum(own[found.nest.ranks[depth], number], LEAST))
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
                    domain=numbers[depth],
                    within=found.place if depth else None,
                )
            )
    strategy = replace(base, domains=domains, layers=tuple(layers))
    return strategy.scaled(1.0 / strategy.cost())
