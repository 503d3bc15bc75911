"""Weights for centring that make caps cheapest: the joint dual as a function of them (claim J-006).

With uniform centring the largest variance of prefix sums costs a third more than it must on one attribute,
and almost twice as much on two. By the envelope theorem the slope of the optimum in the weights is that of
the dual with its solution held fixed; quasi-Newton steps need nothing else.
"""

import math
from collections.abc import Sequence
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure, project
from residua.methods.draft import Progress
from residua.methods.scales.joint_dual import JointSearch
from residua.methods.scales.query_pieces import (
    Block,
    Entry,
    affordable,
    blocks_of_kind,
    gathered,
    out_of_order,
    total_work,
)
from residua.methods.scales.single_attribute import PARTS, alone_on_attributes, free_kinds
from residua.methods.scales.symmetry import Orbits
from residua.methods.splits.search import sum_zero, whole_weights
from residua.workload import Workload

Array = NDArray[np.float64]

OUTER_STEPS = 8
LEAST_GAIN = 1e-4  # of the logarithm of the root of the cost, for another step
INNER_GAP = 1e-5  # the slope is that of the optimum, and misleads away from it
MOST_WORK = 1e8  # of one product with the Hessian; above, the search would take minutes


def best_measures(
    work: Workload, caps: Sequence[float | Array], orbits: Orbits, progress: Progress | None = None
) -> list[Measure] | None:
    """Whole-number weights for every attribute; None if there are none to choose, or it takes too long."""
    free = free_kinds(work, orbits)
    if not free or not affordable(work, orbits):
        return None
    search = _Centring(work, caps, orbits, free, progress)
    if search.size() > MOST_WORK:
        return None
    return search.run()


class _Centring:
    """The bound on the cost as a function of the weights of each free kind of attribute."""

    def __init__(
        self,
        work: Workload,
        caps: Sequence[float | Array],
        orbits: Orbits,
        free: dict[int, int],
        progress: Progress | None,
    ) -> None:
        self.work, self.caps, self.orbits, self.free, self.progress = work, caps, orbits, free, progress
        self.bases = {kind: sum_zero(size) for kind, size in free.items()}
        self.ends = np.cumsum([basis.shape[1] for basis in self.bases.values()])
        self.start: Array | None = None
        self.steps = 0

    def size(self) -> float:
        """Multiplications of a product with the Hessian."""
        found, _ = gathered(self.work, self.caps, self._measures(np.zeros(self.ends[-1])), self.orbits)
        return total_work(found.values())

    def run(self) -> list[Measure]:
        """The best weights found, as small whole numbers."""
        from scipy.optimize import minimize

        alone = alone_on_attributes(self.work, self.orbits, self.free)
        ends = np.concatenate([self.bases[kind].T @ alone[kind].weights for kind in self.free])
        start = min((part * ends for part in PARTS), key=lambda x: self.value(x)[0])
        found = minimize(
            self.value,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": OUTER_STEPS, "ftol": LEAST_GAIN},
        )
        whole = {kind: Measure.whole(whole_weights(p)) for kind, p in self._weights(found.x).items()}
        return self._on_attributes(whole)

    def value(self, x: Array) -> tuple[float, Array]:
        """Logarithm of the root of the least cost at these weights, and its slope."""
        self.steps += 1
        if self.progress is not None:
            self.progress("choosing weights", min(1.0, self.steps / (3 * OUTER_STEPS)))
        measures = self._measures(x)
        found, count = gathered(self.work, self.caps, measures, self.orbits)
        many = np.array([blocks_of_kind(key, self.orbits.kinds) for key in found])
        search = JointSearch(list(found.values()), many, count, INNER_GAP, None)
        same = self.start is not None and len(self.start) == count + sum(
            b.root.shape[1] for b in found.values()
        )
        search.run(self.start if same else None)
        self.start = search.weights
        slopes = {kind: np.zeros(size) for kind, size in self.free.items()}
        for block, change in zip(found.values(), search.changes(), strict=True):
            self._add_slopes(block, change, measures, slopes)
        root = math.sqrt(search.lower)
        return math.log(root), np.concatenate(
            [self.bases[kind].T @ slopes[kind] for kind in self.free]
        ) / root

    def _add_slopes(
        self, block: Block, change: Array, measures: Sequence[Measure], slopes: dict[int, Array]
    ) -> None:
        """Add what the means of every query contribute: `change` is the slope in each row of the block."""
        start = 0
        for entry in block.entries:
            stop = start + int(entry.alive.sum())
            rows = np.zeros((len(entry.alive), change.shape[1]))
            rows[entry.alive] = change[start:stop] / entry.scale[entry.alive, None]
            start = stop
            tensor = out_of_order(rows, entry.attributes, self.work.schema.sizes, self.orbits)
            for place, factor in enumerate(entry.group.factors):
                kind = int(self.orbits.kinds[factor.attributes[0]])
                if len(factor.attributes) == 1 and kind in slopes:
                    slopes[kind] += _by_means(entry, tensor, place, measures) @ factor.queries.matrix()

    def _weights(self, x: Array) -> dict[int, Array]:
        parts = np.split(x, self.ends[:-1])
        return {
            kind: 1 / size + self.bases[kind] @ part
            for (kind, size), part in zip(self.free.items(), parts, strict=True)
        }

    def _measures(self, x: Array) -> list[Measure]:
        return self._on_attributes({kind: Measure.of(p) for kind, p in self._weights(x).items()})

    def _on_attributes(self, chosen: dict[int, Measure]) -> list[Measure]:
        pairs = zip(self.orbits.kinds.tolist(), self.work.schema.sizes, strict=True)
        return [chosen.get(kind, Measure(size)) for kind, size in pairs]


def _by_means(entry: Entry, change: Array, place: int, measures: Sequence[Measure]) -> Array:
    """Slope in the mean of each query of one factor, all others multiplied out, shape (queries,).

    A row is a product of `q - mean` along what is kept and of `mean` along the rest.
    """
    factors, letters = entry.group.factors, iter(ascii_letters)
    queries = [next(letters) for _ in factors]
    cells = ["".join(next(letters) for _ in places) for places in entry.kept]
    operands: list[Array] = [change.reshape(*(f.queries.count for f in factors), *change.shape[1:])]
    terms = ["".join(queries) + "".join(cells)]
    for at, factor in enumerate(factors):
        if at != place:
            own = [measures[axis] for axis in factor.attributes]
            kept = project(factor.queries.matrix(), factor.queries.sizes, own, entry.kept[at])
            shape = [factor.queries.sizes[axis] for axis in entry.kept[at]]
            operands.append(kept.reshape(factor.queries.count, *shape))
            terms.append(queries[at] + cells[at])
    slope = np.einsum(f"{','.join(terms)}->{queries[place]}", *operands, optimize=True)
    return np.asarray(-slope if entry.kept[place] else slope)
