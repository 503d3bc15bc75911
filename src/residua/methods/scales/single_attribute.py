"""The best shapes of blocks for caps on every variance, all blocks at once, and weights that centre them.

Shapes are found by one dual problem (claim J-004). Weights that centre attributes are first those of each
attribute by itself, best where nothing else is asked: where the search for all together starts, and what is
used for tables too large to be listed together, as a product of tables has the products of them (J-007).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_letters

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import CENTRING_WORK, JOINT_ENTRIES, JOINT_WORK
from residua.answering.blocks import Shape
from residua.linalg.matrices import Measure, distinct_rows, independent_rows, pseudo_inverse
from residua.methods.centring import CellWeights, in_whole_numbers
from residua.methods.draft import Draft, Progress
from residua.methods.scales.query_pieces import Block, Capped, Entry, Orbits, permuted, total_work
from residua.solve.newton import LogLandscape, Search, quasi_newton
from residua.solve.targets import Sight, sight_of, solve_targets
from residua.strategy.rounding import kept_in_span
from residua.strategy.strategy import Strategy
from residua.workload import Explicit, Factor, Queries, Table, TableRun, Workload

FIXED_POINT_STEPS = 3


def joined(
    asked: Capped, strategy: Strategy, tolerance: float, progress: Progress | None = None
) -> Draft | None:
    """The best shapes for these caps, for the blocks that `strategy` has; None where that takes too long."""
    if not asked.affordable():
        return None
    found, count = asked.gathered(strategy.measures)
    blocks = [found[key] for key in asked.orbits.numbers]
    if total_work(blocks) > JOINT_WORK:
        return None
    search = JointSearch(blocks, asked.orbits.many, count, tolerance)
    if progress is not None:
        search.progress = lambda looks, _: progress("choosing shapes", min(1.0, looks / 20))
    search.run()
    return _shaped(strategy, asked.orbits, blocks, search)


@dataclass(frozen=True, slots=True, eq=False)
class _View(LogLandscape):
    """The landscape of `-2 log sum_b sqrt(m_b) ||..||_*` at one point."""

    search: "JointSearch"
    sights: Sequence[Sight]
    parts: Array  # each block's part of the sum
    slopes: Array

    def bend_times(self, direction: Array) -> Array:
        pairs = zip(self.sights, self.search.apart(direction), strict=True)
        return self.search.together(self.parts, [sight.bend_times(own) for sight, own in pairs])

    def bend_diagonal(self) -> Array:
        # Rows that share a weight also bend each other; their diagonal alone serves to precondition.
        bends = [sight.bend_diagonal() for sight in self.sights]
        for bend, block in zip(bends, self.search.blocks, strict=True):
            bend[: len(block.rows)] *= block.shares
        return self.search.together(self.parts, bends)


class JointSearch(Search):
    """The best weights of queries, and of the cells of each orbit of blocks."""

    most_evaluations, patience = 100, 12

    def __init__(self, blocks: Sequence[Block], many: Array, count: int, tolerance: float) -> None:
        super().__init__(tolerance)
        self.blocks, self.roots, self.count = blocks, np.sqrt(many), count
        self.pieces = [count, *(block.root.shape[1] for block in blocks)]
        self.ends = np.cumsum(self.pieces)[:-1]  # of the weights of queries, and of each block's cells

    def apart(self, weights: Array) -> list[Array]:
        """Weights of queries and cells as those of each block's own rows and cells."""
        queries, *cells = np.split(weights, self.ends)
        pairs = zip(self.blocks, cells, strict=True)
        return [np.concatenate([queries[block.owners] * block.shares, own]) for block, own in pairs]

    def together(self, parts: Array, values: Sequence[Array]) -> Array:
        """Slopes in each block's own rows and cells as slopes in all weights, each block times its part."""
        queries, cells = np.zeros(self.count), []
        for block, part, value in zip(self.blocks, parts, values, strict=True):
            own = part * value[: len(block.rows)] * block.shares
            queries += np.bincount(block.owners, weights=own, minlength=self.count)
            cells.append(part * value[len(block.rows) :])
        return np.concatenate([queries, *cells])

    def run(self, start: Array | None = None) -> None:
        """Search until the gap is reached, from these weights or from equal ones."""
        equal = np.concatenate([np.full(length, 1 / length) for length in self.pieces])
        weights = equal if start is None else start
        for _ in range(FIXED_POINT_STEPS if start is None else 0):
            moved = weights * self.look(weights).slopes
            weights = np.concatenate([part / part.sum() for part in np.split(moved, self.ends)])
        price = np.concatenate([[1.0] * self.count, np.repeat(self.look(weights).parts, self.pieces[1:])])
        self.newton(weights, price, self.pieces)

    def look(self, weights: Array) -> _View:
        """The landscape at these weights; the bounds they give are kept if they are the best yet."""
        sights, proven = [], 0.0
        for block, root, mine in zip(self.blocks, self.roots, self.apart(weights), strict=True):
            u, v = np.split(mine, [len(block.rows)])
            sight = sight_of(block.rows, block.root, u, v)
            proven += root * math.sqrt(sight.lower * float(u.sum()))
            sights.append(sight)
        sums = np.array([sight.scales.sum() for sight in sights]) * self.roots
        whole = float(sums.sum())
        parts = sums / whole
        slopes = self.together(parts, [sight.slopes for sight in sights])
        cost = float(np.maximum.reduceat(slopes, self.ends).sum())
        upper = whole**2 * float(slopes[: self.count].max()) * cost
        reached = upper if all(math.isfinite(sight.upper) for sight in sights) else math.inf
        self.keep(float(proven**2), weights, reached, sights)
        return _View(self, sights, parts, slopes)

    def changes(self) -> list[Array]:
        """For each block the slope of the root of the bound in every entry of its pieces, (rows, cells)."""
        found = []
        for block, root, own in zip(self.blocks, self.roots, self.apart(self.weights), strict=True):
            u, v = np.split(own, [len(block.rows)])
            sight = sight_of(block.rows, block.root, u, v)
            # With W = rows root and A = diag(u)^1/2 W diag(v)^1/2 = O D O2', d||A||_* = tr(O' dA O2).
            left = u[:, None] * sight.row_directions / sight.scales
            found.append(root * left @ (sight.cell_directions * v))
        return found

    def strategies(self) -> list[Array]:
        """The shape of each orbit of blocks, at cost 1."""
        found = [sight.cell_directions for sight in self.best]
        return [z / math.sqrt(float(np.max(np.sum(z * z, axis=0)))) for z in found]


def _shaped(strategy: Strategy, orbits: Orbits, blocks: Sequence[Block], search: JointSearch) -> Draft:
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
    shaped = replace(strategy, shapes=tuple(shapes), layers=tuple(layers))
    return Draft(shaped, search.lower, "this block structure", spans=spans)


PARTS = (0.0, 0.35, 0.7, 1.0)  # of the way from uniform weights to those that are best for one attribute
START_GAP = 1e-3
LIGHTEST = 1e-6  # weight of a query, in units of an equal share


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """One attribute by itself: weights that centre it, and weights of its families' queries, sum 1 each."""

    weights: Array
    queries: dict[Queries, Array]


def free_families(asked: Capped) -> dict[int, list[Queries]]:
    """Families of each orbit of attributes that has one that tells cells apart and none on several."""
    found: dict[int, dict[Queries, None]] = {}
    tied: set[int] = set()
    for _, table in asked.representatives():
        for factor in table.factors:
            own = asked.orbits.attributes[list(factor.attributes)].tolist()
            if len(own) > 1 or factor.queries.count * factor.queries.cells > JOINT_ENTRIES:
                tied.update(own)
            else:
                found.setdefault(own[0], {})[factor.queries] = None
    free = {orbit: list(own) for orbit, own in found.items() if orbit not in tied}
    return {orbit: own for orbit, own in free.items() if not all(queries.invariant for queries in own)}


def alone_on_attributes(asked: Capped) -> dict[int, Alone]:
    """Each free orbit of attributes by itself, every query allowed the same variance."""
    return {orbit: _alone(families) for orbit, families in free_families(asked).items()}


def _alone(families: Sequence[Queries]) -> Alone:
    cells = families[0].cells
    rows = np.concatenate([np.ones((1, cells)), *(queries.matrix() for queries in families)])
    root = independent_rows(rows)
    coefficients = np.linalg.lstsq(root.T, rows.T)[0].T
    targets = np.ones(len(rows))
    targets[0] = cells  # the total is there to be answered, not to bind
    solution = solve_targets(coefficients, root, targets, START_GAP)
    inverse = pseudo_inverse(solution.strategy)
    mean = inverse @ inverse.sum(axis=0)  # X^+ 1 (claim C-002)
    prices = np.split(solution.query_weights[1:], np.cumsum([queries.count for queries in families])[:-1])
    shares = {queries: _shares(price) for queries, price in zip(families, prices, strict=True)}
    return Alone(mean / mean.sum(), shares)


def _shares(prices: Array) -> Array:
    total = float(prices.sum())
    equal = np.full(len(prices), 1 / len(prices))
    return np.asarray((prices / total if total > 0 else equal) + LIGHTEST * equal)


def part_way(asked: Capped, alone: dict[int, Alone], part: float) -> tuple[Measure, ...]:
    """Measures of all attributes so far of the way from uniform weights, as small whole numbers."""
    moved = {orbit: (1 - part) / len(own.weights) + part * own.weights for orbit, own in alone.items()}
    return asked.on_attributes(in_whole_numbers(moved))


def weighted(asked: Capped, alone: dict[int, Alone]) -> Workload:
    """The workload with weights of each attribute's queries; parts with a cap for each query keep theirs."""
    made: dict[tuple[int, Queries], Queries] = {
        (orbit, queries): Explicit(queries.sizes, queries.matrix(), weights)
        for orbit, own in alone.items()
        for queries, weights in own.queries.items()
    }

    def changed(factor: Factor) -> Factor:
        key = (int(asked.orbits.attributes[factor.attributes[0]]), factor.queries)
        return Factor(factor.attributes, made[key]) if key in made else factor

    parts: list[Table | TableRun] = []
    for part, cap in zip(asked.work.parts, asked.caps, strict=True):
        if isinstance(cap, np.ndarray):
            parts.append(part)
        elif isinstance(part, Table):
            parts.append(replace(part, factors=tuple(map(changed, part.factors))))
        else:  # of one family for each attribute, or joint ones, which stay
            factors = tuple(None if factor is None else changed(factor) for factor in part.factors)
            parts.append(replace(part, factors=factors))
    return Workload(asked.work.schema, tuple(parts))


OUTER_STEPS = 8
LEAST_GAIN = 1e-4  # of the logarithm of the root of the cost, for another step
INNER_GAP = 1e-5  # the slope is that of the optimum, and misleads away from it


def best_measures(asked: Capped, progress: Progress | None = None) -> tuple[Measure, ...] | None:
    """Whole-number weights for every attribute; None if there are none to choose, or it takes too long."""
    if not free_families(asked) or not asked.affordable():
        return None
    search = Centring(asked, progress)
    found, _ = asked.gathered(search.measures(np.zeros(search.weights.count)))
    return search.run() if total_work(found.values()) <= CENTRING_WORK else None


class Centring:
    """The bound on the cost as a function of the weights of each free orbit of attributes."""

    def __init__(self, asked: Capped, progress: Progress | None) -> None:
        self.asked, self.progress = asked, progress
        self.free = {orbit: families[0].cells for orbit, families in free_families(asked).items()}
        self.weights = CellWeights(self.free)
        self.start: Array | None = None
        self.steps = 0

    def run(self) -> tuple[Measure, ...]:
        """The best weights found, as small whole numbers."""
        alone = alone_on_attributes(self.asked)
        end = self.weights.vector({orbit: own.weights for orbit, own in alone.items()})
        start = min((part * end for part in PARTS), key=lambda x: self.value(x)[0])
        found = quasi_newton(self.value, start, maxiter=OUTER_STEPS, ftol=LEAST_GAIN)
        return self.asked.on_attributes(in_whole_numbers(self.weights.read(found)))

    def value(self, x: Array) -> tuple[float, Array]:
        """Logarithm of the root of the least cost at these weights, and its slope."""
        self.steps += 1
        if self.progress is not None:
            self.progress("choosing weights", min(1.0, self.steps / (3 * OUTER_STEPS)))
        found, count = self.asked.gathered(self.measures(x))
        many = np.array([self.asked.orbits.size(key) for key in found])
        search = JointSearch(list(found.values()), many, count, INNER_GAP)
        same = self.start is not None and len(self.start) == sum(search.pieces)
        search.run(self.start if same else None)
        self.start = search.weights
        slopes = {orbit: np.zeros(size) for orbit, size in self.free.items()}
        for block, change in zip(found.values(), search.changes(), strict=True):
            self._add_slopes(block, change, slopes)
        root = math.sqrt(search.lower)
        return math.log(root), self.weights.vector(slopes) / root

    def _add_slopes(self, block: Block, change: Array, slopes: dict[int, Array]) -> None:
        """Add what the means of every query contribute: `change` is the slope in each row of the block."""
        start = 0
        for entry in block.entries:
            stop = start + int(entry.alive.sum())
            rows = np.zeros((len(entry.alive), change.shape[1]))
            rows[entry.alive] = change[start:stop] / entry.scale[entry.alive, None]
            start = stop
            places = np.argsort(self.asked.orbits.order(entry.attributes)).tolist()
            tensor = permuted(rows, block.sizes, places)
            for place, factor in enumerate(entry.table.factors):
                orbit = int(self.asked.orbits.attributes[factor.attributes[0]])
                if len(factor.attributes) == 1 and orbit in slopes:
                    slopes[orbit] += _by_means(entry, tensor, place) @ factor.queries.matrix()

    def measures(self, x: Array) -> tuple[Measure, ...]:
        """The measures of all attributes at a point of the search."""
        return self.asked.on_attributes({at: Measure.of(p) for at, p in self.weights.read(x).items()})


def _by_means(entry: Entry, change: Array, place: int) -> Array:
    """Slope in the mean of each query of one factor, all others multiplied out, shape (queries,).

    A row is a product of `q - mean` along what is kept and of `mean` along the rest.
    """
    letters = iter(ascii_letters)
    queries = [next(letters) for _ in entry.pieces]
    cells = ["".join(next(letters) for _ in piece.kept) for piece in entry.pieces]
    counts = [piece.queries.count for piece in entry.pieces]
    sizes = [size for piece in entry.pieces for size in piece.sizes]
    operands, terms = [change.reshape(*counts, *sizes)], ["".join(queries) + "".join(cells)]
    for at, piece in enumerate(entry.pieces):
        if at != place:
            operands.append(piece.rows().reshape(counts[at], *piece.sizes))
            terms.append(queries[at] + cells[at])
    slope = np.einsum(f"{','.join(terms)}->{queries[place]}", *operands, optimize=True)
    return np.asarray(-slope if entry.pieces[place].kept else slope)
