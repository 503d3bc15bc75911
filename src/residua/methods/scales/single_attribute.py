"""Weights that centre attributes under caps: of each attribute by itself, and the best for all together.

By itself, an attribute has weights of cells and of queries that are best where nothing else is asked. They
are where the search for weights starts, and what is used for tables too large to be listed together: a
product of tables has the products of them (claim J-007).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_letters

import numpy as np

from residua._arrays import Array
from residua._limits import CENTRING_WORK, JOINT_ENTRIES
from residua.linalg.matrices import Measure, independent_rows, pseudo_inverse
from residua.methods.centring import CellWeights, in_whole_numbers
from residua.methods.draft import Progress
from residua.methods.scales.joint_dual import JointSearch
from residua.methods.scales.query_pieces import Block, Capped, Entry, permuted, total_work
from residua.solve.newton import quasi_newton
from residua.solve.targets import solve_targets
from residua.workload import Explicit, Factor, Queries, Table, TableRun, Workload

PARTS = (0.0, 0.35, 0.7, 1.0)  # of the way from uniform weights to those that are best for one attribute
START_GAP = 1e-3
LIGHTEST = 1e-6  # weight of a query, in units of an equal share


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """One attribute by itself: weights that centre it, and weights of its families' queries, sum 1 each."""

    weights: Array
    queries: dict[Queries, Array]


def free_orbits(asked: Capped) -> dict[int, int]:
    """Orbits of attributes with a family that tells cells apart and none on several, with their sizes."""
    found: dict[int, int] = {}
    tied: set[int] = set()
    for _, table in asked.representatives():
        for factor in table.factors:
            own = asked.orbits.attributes[list(factor.attributes)].tolist()
            if len(own) > 1 or factor.queries.count * factor.queries.cells > JOINT_ENTRIES:
                tied.update(own)
            elif not factor.queries.invariant:
                found[own[0]] = factor.queries.cells
    return {orbit: size for orbit, size in found.items() if orbit not in tied}


def alone_on_attributes(asked: Capped, free: dict[int, int]) -> dict[int, Alone]:
    """Each free orbit of attributes by itself, every query allowed the same variance."""
    families: dict[int, dict[Queries, None]] = {orbit: {} for orbit in free}
    for _, table in asked.representatives():
        for factor in table.factors:
            own = families.get(int(asked.orbits.attributes[factor.attributes[0]]))
            if own is not None:
                own[factor.queries] = None
    return {orbit: _alone(list(own), free[orbit]) for orbit, own in families.items()}


def _alone(families: Sequence[Queries], cells: int) -> Alone:
    rows = np.concatenate([np.ones((1, cells)), *(queries.matrix() for queries in families)])
    root = independent_rows(rows)
    coefficients = np.linalg.lstsq(root.T, rows.T)[0].T
    targets = np.ones(len(rows))
    targets[0] = cells  # the total is there to be answered, not to bind
    solution = solve_targets(coefficients, root, targets, START_GAP)
    inverse = pseudo_inverse(solution.strategy)
    mean = inverse @ inverse.sum(axis=0)  # X^+ 1 (claim C-002)
    ends = 1 + np.cumsum([queries.count for queries in families])[:-1]
    prices = np.split(solution.query_weights[1:], ends - 1)
    return Alone(
        mean / mean.sum(),
        {queries: _shares(price) for queries, price in zip(families, prices, strict=True)},
    )


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
    made: dict[tuple[int, Queries], Queries] = {}

    def changed(factor: Factor) -> Factor:
        orbit = int(asked.orbits.attributes[factor.attributes[0]])
        if len(factor.attributes) > 1 or orbit not in alone:
            return factor
        key = (orbit, factor.queries)
        if key not in made:
            own = alone[orbit].queries[factor.queries]
            made[key] = Explicit(factor.queries.sizes, factor.queries.matrix(), own)
        return Factor(factor.attributes, made[key])

    parts: list[Table | TableRun] = []
    for part, cap in zip(asked.work.parts, asked.caps, strict=True):
        if isinstance(cap, np.ndarray) or (isinstance(part, TableRun) and part.joint is not None):
            parts.append(part)
        elif isinstance(part, Table):
            parts.append(replace(part, factors=tuple(map(changed, part.factors))))
        else:
            factors = tuple(None if factor is None else changed(factor) for factor in part.factors)
            parts.append(replace(part, factors=factors))
    return Workload(asked.work.schema, tuple(parts))


OUTER_STEPS = 8
LEAST_GAIN = 1e-4  # of the logarithm of the root of the cost, for another step
INNER_GAP = 1e-5  # the slope is that of the optimum, and misleads away from it


def best_measures(asked: Capped, progress: Progress | None = None) -> tuple[Measure, ...] | None:
    """Whole-number weights for every attribute; None if there are none to choose, or it takes too long."""
    free = free_orbits(asked)
    if not free or not asked.affordable():
        return None
    search = Centring(asked, free, progress)
    found, _ = asked.gathered(search.measures(np.zeros(search.weights.count)))
    return search.run() if total_work(found.values()) <= CENTRING_WORK else None


class Centring:
    """The bound on the cost as a function of the weights of each free orbit of attributes."""

    def __init__(self, asked: Capped, free: dict[int, int], progress: Progress | None) -> None:
        self.asked, self.free, self.progress = asked, free, progress
        self.weights = CellWeights(free)
        self.start: Array | None = None
        self.steps = 0

    def run(self) -> tuple[Measure, ...]:
        """The best weights found, as small whole numbers."""

        alone = alone_on_attributes(self.asked, self.free)
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
        search = JointSearch(list(found.values()), many, count, INNER_GAP, None)
        weights = count + sum(block.root.shape[1] for block in found.values())
        same = self.start is not None and len(self.start) == weights
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
