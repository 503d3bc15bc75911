"""What is known about all mechanisms within seconds: dual bounds at product weights (B-009 and B-010)."""

import math
from itertools import islice

import numpy as np

from residua._arrays import Array
from residua._limits import BOUND_CELLS, QUICK_PAIRS, QUICK_SHARED
from residua.bounds.product import product_dual_at
from residua.bounds.singular import svd_of_root, svd_or_nothing
from residua.errors import Infeasible
from residua.linalg.matrices import independent_rows, join
from residua.solve.cells import solve_cells
from residua.workload import Factor, Identity, Queries, Table, Workload
from residua.workload.union import common_product, joint_rows

FACTOR_GAP = 2e-5
START_GAP = 1e-3  # of weights that are only near the best
MOST_ALONE = 2_000  # tables that are looked at one by one


def quick_bound(work: Workload) -> float:
    """A bound for all mechanisms that takes seconds, the best of several; 0 where all are out of reach.

    Leaving out tables never raises the optimum (claim B-009).
    """
    if work.invariant:
        return svd_or_nothing(work)
    if (shared := common_product(work)) is not None:
        return float(shared[0] * math.prod(_of_family(factor.queries) for factor in shared[1]))
    if math.prod(work.schema.sizes[at] for at in work.attributes) <= BOUND_CELLS:
        root = joint_rows(work)
        return max(svd_of_root(root), svd_of_root(root * np.sqrt(product_weights(work) * root.shape[1])))
    alone: dict[object, Table] = {}
    for table in islice(work.groups(), MOST_ALONE):
        known = alone.setdefault(tuple(factor.queries for factor in table.factors), table)
        if known.weight < table.weight:
            alone[tuple(factor.queries for factor in table.factors)] = table
    single = max((quick_bound(Workload(work.schema, (each,))) for each in alone.values()), default=0.0)
    try:
        return max(single, product_dual_at(work, _Asked(work).weights, QUICK_PAIRS, QUICK_SHARED))
    except Infeasible:
        return single


def _of_family(queries: Queries) -> float:
    """A bound on what one family costs, near the optimum on few cells; 0 where it has too many."""
    if isinstance(queries, Identity):
        return float(queries.cells)  # no plain cell has less than its own noise, whatever is measured
    return solve_cells(queries.root(), FACTOR_GAP).lower if queries.cells <= BOUND_CELLS else 0.0


def product_weights(work: Workload) -> Array:
    """Weights of the joint cells of a workload: products of those best for each attribute alone (B-010)."""
    asked = _Asked(work)
    return join(asked.weights(at)[None] for at in work.attributes).reshape(-1)


class _Asked:
    """What the tables of a workload ask of each attribute alone, the others being known."""

    def __init__(self, work: Workload) -> None:
        self.sizes = work.schema.sizes
        self.asked: list[dict[tuple[Queries, int] | None, float]] = [{} for _ in self.sizes]
        sizes: dict[Queries, float] = {}
        for table in islice(work.groups(), MOST_ALONE):
            for queries in table.families:
                if queries not in sizes:
                    sizes[queries] = float(np.sum(queries.root() ** 2)) / queries.cells
            whole = table.weight * math.prod(sizes[queries] for queries in table.families)
            for at in work.attributes:
                key, weight = _part(table.factors, at), whole
                if key is not None:
                    weight = whole / sizes[key[0]]
                self.asked[at][key] = self.asked[at].get(key, 0.0) + weight

    def weights(self, at: int) -> Array:
        """The weights of an attribute's cells that are about best for it alone."""
        rows = [math.sqrt(weight) * self._rows(at, key) for key, weight in self.asked[at].items()]
        if not rows:
            return np.full(self.sizes[at], 1.0 / self.sizes[at])
        return solve_cells(independent_rows(np.concatenate(rows)), START_GAP).cell_weights

    def _rows(self, at: int, key: tuple[Queries, int] | None) -> Array:
        if key is None:
            return np.ones((1, self.sizes[at]))
        queries, place = key
        root = queries.root().reshape(-1, *queries.sizes)
        return np.moveaxis(root, 1 + place, -1).reshape(-1, self.sizes[at])


def _part(factors: tuple[Factor, ...], at: int) -> tuple[Queries, int] | None:
    """The family that asks of an attribute, and the attribute's place in it; None where none does."""
    for factor in factors:
        if at in factor.attributes:
            return factor.queries, factor.attributes.index(at)
    return None
