"""Each attribute by itself: weights of cells and of queries that are best where nothing else is asked.

They are where the search for weights of cells starts, and what is used for tables too large to be listed
together: a product of tables has the products of them (claim J-007).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure
from residua.linalg.rows import independent_rows, pseudo_inverse
from residua.methods.scales.query_pieces import examples
from residua.methods.scales.symmetry import Orbits
from residua.methods.splits.search import whole_weights
from residua.solve.targets import solve_targets
from residua.workload import Explicit, Factor, Queries, Table, TableRun, Workload

Array = NDArray[np.float64]

PARTS = (0.0, 0.35, 0.7, 1.0)  # of the way from uniform weights to those that are best for one attribute
START_GAP = 1e-3
MOST_ENTRIES = 2_000_000  # of the query matrix of one attribute
LIGHTEST = 1e-6  # weight of a query, in units of an equal share


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """One attribute by itself: weights that centre it, and weights of its families' queries, sum 1 each."""

    weights: Array
    queries: dict[Queries, Array]


def free_kinds(work: Workload, orbits: Orbits) -> dict[int, int]:
    """Kinds of attributes with a family that tells cells apart and none on several attributes, with sizes."""
    found: dict[int, int] = {}
    tied: set[int] = set()
    for _, group in examples(work, orbits):
        for factor in group.factors:
            kinds = orbits.kinds[list(factor.attributes)].tolist()
            if len(kinds) > 1 or factor.queries.count * factor.queries.cells > MOST_ENTRIES:
                tied.update(kinds)
            elif not factor.queries.invariant:
                found[kinds[0]] = factor.queries.cells
    return {kind: size for kind, size in found.items() if kind not in tied}


def alone_on_attributes(work: Workload, orbits: Orbits, free: dict[int, int]) -> dict[int, Alone]:
    """Each free kind of attribute by itself, every query allowed the same variance."""
    asked: dict[int, dict[Queries, None]] = {kind: {} for kind in free}
    for _, group in examples(work, orbits):
        for factor in group.factors:
            kind = int(orbits.kinds[factor.attributes[0]])
            if kind in asked:
                asked[kind][factor.queries] = None
    return {kind: _alone(list(families), free[kind]) for kind, families in asked.items()}


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


def part_way(alone: dict[int, Alone], part: float, orbits: Orbits, sizes: Sequence[int]) -> list[Measure]:
    """Measures of all attributes so far of the way from uniform weights, as small whole numbers."""
    chosen = {
        kind: Measure.whole(whole_weights((1 - part) / len(own.weights) + part * own.weights))
        for kind, own in alone.items()
    }
    return [chosen.get(kind, Measure(size)) for kind, size in zip(orbits.kinds.tolist(), sizes, strict=True)]


def weighted(
    work: Workload, caps: Sequence[float | Array], alone: dict[int, Alone], orbits: Orbits
) -> Workload:
    """The workload with weights of each attribute's queries; parts with a cap for each query keep theirs."""
    made: dict[tuple[int, Queries], Queries] = {}

    def changed(factor: Factor) -> Factor:
        kind = int(orbits.kinds[factor.attributes[0]])
        if len(factor.attributes) > 1 or kind not in alone:
            return factor
        key = (kind, factor.queries)
        if key not in made:
            own = alone[kind].queries[factor.queries]
            made[key] = Explicit(factor.queries.sizes, factor.queries.matrix(), own)
        return Factor(factor.attributes, made[key])

    parts: list[Table | TableRun] = []
    for part, cap in zip(work.parts, caps, strict=True):
        if isinstance(cap, np.ndarray) or (isinstance(part, TableRun) and part.joint is not None):
            parts.append(part)
        elif isinstance(part, Table):
            parts.append(replace(part, factors=tuple(map(changed, part.factors))))
        else:
            factors = tuple(None if factor is None else changed(factor) for factor in part.factors)
            parts.append(replace(part, factors=factors))
    return Workload(work.schema, tuple(parts))
