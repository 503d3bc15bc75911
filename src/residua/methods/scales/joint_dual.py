"""The best shapes of blocks for caps on every variance, all blocks at once (claim J-004)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import JOINT_WORK
from residua.answering.blocks import Shape
from residua.linalg.matrices import distinct_rows
from residua.methods.draft import Progress
from residua.methods.scales.query_pieces import Block, Capped, Orbits, permuted, total_work
from residua.solve.newton import LogLandscape, Search
from residua.solve.targets import Sight, sight_of
from residua.strategy.build import kept_in_span
from residua.strategy.strategy import Strategy

FIXED_POINT_STEPS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A block strategy with the best shapes, integer spans for those that are not complete, and a bound."""

    strategy: Strategy
    spans: dict[int, Integers | None]
    lower: float


def joined(
    asked: Capped, strategy: Strategy, tolerance: float, progress: Progress | None = None
) -> Joined | None:
    """The best shapes for these caps, for the blocks that `strategy` has; None where that takes too long."""
    if not asked.affordable():
        return None
    found, count = asked.gathered(strategy.measures)
    blocks = [found[key] for key in asked.orbits.numbers]
    if total_work(blocks) > JOINT_WORK:
        return None
    search = JointSearch(blocks, asked.orbits.many, count, tolerance, progress)
    search.run()
    return _shaped(strategy, asked.orbits, blocks, search)


@dataclass(frozen=True, slots=True, eq=False)
class _View(LogLandscape):
    """The landscape of `-2 log sum_b sqrt(m_b) ||..||_*` at one point."""

    blocks: Sequence[Block]
    sights: Sequence[Sight]
    parts: Array  # each block's part of the sum
    count: int
    slopes: Array

    def bend_times(self, direction: Array) -> Array:
        pairs = zip(self.sights, _apart(self.blocks, direction, self.count), strict=True)
        return self._together([sight.bend_times(own) for sight, own in pairs])

    def bend_diagonal(self) -> Array:
        # Rows that share a weight also bend each other; their diagonal alone serves to precondition.
        bends = [sight.bend_diagonal() for sight in self.sights]
        for bend, block in zip(bends, self.blocks, strict=True):
            bend[: len(block.rows)] *= block.shares
        return self._together(bends)

    def _together(self, bends: Sequence[Array]) -> Array:
        return _together(self.blocks, self.parts, bends, self.count)


def _apart(blocks: Sequence[Block], weights: Array, count: int) -> list[Array]:
    """Weights of queries and cells as those of each block's own rows and cells."""
    found, start = [], count
    for block in blocks:
        stop = start + block.root.shape[1]
        found.append(np.concatenate([weights[:count][block.owners] * block.shares, weights[start:stop]]))
        start = stop
    return found


def _together(blocks: Sequence[Block], parts: Array, values: Sequence[Array], count: int) -> Array:
    """Slopes in each block's own rows and cells as slopes in all weights, each block times its part."""
    queries, cells = np.zeros(count), []
    for block, part, value in zip(blocks, parts, values, strict=True):
        own = part * value[: len(block.rows)] * block.shares
        queries += np.bincount(block.owners, weights=own, minlength=count)
        cells.append(part * value[len(block.rows) :])
    return np.concatenate([queries, *cells])


class JointSearch(Search):
    """The best weights of queries, and of the cells of each orbit of blocks."""

    most_evaluations, patience = 100, 12

    def __init__(
        self,
        blocks: Sequence[Block],
        many: Array,
        count: int,
        tolerance: float,
        progress: Progress | None,
    ) -> None:
        super().__init__(tolerance)
        if progress is not None:
            self.progress = lambda looks, _: progress("choosing shapes", min(1.0, looks / 20))
        self.blocks, self.roots, self.count = blocks, np.sqrt(many), count

    def run(self, start: Array | None = None) -> None:
        """Search until the gap is reached, from these weights or from equal ones."""
        cells = [block.root.shape[1] for block in self.blocks]
        pieces = [self.count, *cells]
        equal = np.concatenate([np.full(length, 1 / length) for length in pieces])
        ends = np.cumsum(pieces)[:-1]
        weights = equal if start is None else start
        for _ in range(FIXED_POINT_STEPS if start is None else 0):
            moved = weights * self.look(weights).slopes
            weights = np.concatenate([part / part.sum() for part in np.split(moved, ends)])
        price = np.concatenate([[1.0] * self.count, np.repeat(self.look(weights).parts, cells)])
        self.newton(weights, price, pieces)

    def look(self, weights: Array) -> _View:
        """The landscape at these weights; the bounds they give are kept if they are the best yet."""
        own = _apart(self.blocks, weights, self.count)
        sights, proven = [], 0.0
        for block, root, mine in zip(self.blocks, self.roots, own, strict=True):
            u, v = np.split(mine, [len(block.rows)])
            sight = sight_of(block.rows, block.root, u, v)
            proven += root * math.sqrt(sight.lower * float(u.sum()))
            sights.append(sight)
        sums = np.array([sight.scales.sum() for sight in sights]) * self.roots
        whole = float(sums.sum())
        parts = sums / whole
        slopes = _together(self.blocks, parts, [sight.slopes for sight in sights], self.count)
        ends = self.count + np.cumsum([0] + [block.root.shape[1] for block in self.blocks])[:-1]
        cost = float(np.maximum.reduceat(slopes, ends).sum())
        upper = whole**2 * float(slopes[: self.count].max()) * cost
        reached = upper if all(math.isfinite(sight.upper) for sight in sights) else math.inf
        self.keep(float(proven**2), weights, reached, sights)
        return _View(self.blocks, sights, parts, self.count, slopes)

    def changes(self) -> list[Array]:
        """For each block the slope of the root of the bound in every entry of its pieces, (rows, cells)."""
        found = []
        for block, root, own in zip(
            self.blocks, self.roots, _apart(self.blocks, self.weights, self.count), strict=True
        ):
            u, v = np.split(own, [len(block.rows)])
            sight = sight_of(block.rows, block.root, u, v)
            # With W = rows root and A = diag(u)^1/2 W diag(v)^1/2 = O D O2', d||A||_* = tr(O' dA O2).
            left = u[:, None] * sight.row_directions / sight.scales
            found.append(root * left @ (sight.cell_directions * v))
        return found

    def strategies(self) -> list[Array]:
        """The shape of each orbit of blocks, at cost 1."""
        found = []
        for sight in self.best:
            z = sight.cell_directions
            found.append(z / math.sqrt(float(np.max(np.sum(z * z, axis=0)))))
        return found


def _shaped(strategy: Strategy, orbits: Orbits, blocks: Sequence[Block], search: JointSearch) -> Joined:
    """The strategy with one shape on all attributes of each block.

    The solution of each orbit is turned to the order of attributes of every block of the orbit.
    """
    shapes: list[Shape] = []
    spans: dict[int, Integers | None] = {}
    matrices = search.strategies()

    def number_of(orbit: int, attributes: Sequence[int]) -> int:
        """Number of the shape for blocks on attributes of these orbits in this order."""
        block = blocks[orbit]
        places = np.argsort(orbits.order(attributes)).tolist()  # of each attribute among those by orbit
        matrix = permuted(matrices[orbit], block.sizes, places)
        shape = Shape.independent([block.sizes[place] for place in places], matrix)

        def span() -> Integers | None:
            rows = block.integer_rows(orbits)
            return None if rows is None else permuted(rows, block.sizes, places)

        measures = [strategy.measures[at] for at in attributes]
        shapes.append(kept_in_span(shape, len(shapes), spans, span, measures))
        return len(shapes) - 1

    layers = []
    for layer, of in zip(strategy.layers, orbits.of, strict=True):
        if size := layer.subsets.shape[1]:
            first, inverse = distinct_rows(np.column_stack([of, orbits.attributes[layer.subsets]]))
            numbers = [number_of(int(of[row]), layer.subsets[row].tolist()) for row in first.tolist()]
            chosen = np.array(numbers, dtype=np.int64)[inverse].reshape(-1, 1)
            layer = replace(layer, layout=(tuple(range(size)),), shapes=chosen)
        layers.append(layer)
    return Joined(replace(strategy, shapes=tuple(shapes), layers=tuple(layers)), spans, search.lower)
