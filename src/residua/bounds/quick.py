"""What is known about all mechanisms within seconds: dual bounds at product weights (B-009 to B-011)."""

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from residua._arrays import Array
from residua._limits import (
    BOUND_CELLS,
    CHUNK_ENTRIES,
    FEW_CELLS,
    FEW_ENTRIES,
    QUICK_PAIRS,
    QUICK_SHARED,
    WIDEST,
)
from residua.bounds.alone import AttributeQueries, product_weights, some_tables
from residua.bounds.pairs import ways_of
from residua.bounds.product import product_dual_at
from residua.bounds.singular import svd_of_gram, svd_of_root, svd_or_nothing
from residua.bounds.wide import wide_dual
from residua.errors import Infeasible
from residua.linalg.folding import exchange
from residua.solve.cells import solve_cells
from residua.workload import Identity, Queries, Table, TableRun, Workload
from residua.workload.union import FEW_TABLES, common_product, joint_gram, joint_rows

FACTOR_GAP = 2e-5
MOST_INDEX = 2**53  # of a query that is looked at
OPERATIONS = 3e9  # of the bound for tables on several attributes: half a second


def quick_bound(
    work: Workload,
    operations: float = OPERATIONS,
    pairs: float = QUICK_PAIRS,
    gap: float = FACTOR_GAP,
) -> float:
    """A bound for all mechanisms that takes seconds, the best of several; 0 where all are out of reach.

    Leaving out tables never raises the optimum (claim B-009). More operations make it better for tables on
    three and more attributes; pairs of attributes that take more work than `pairs` lack some tables. A wider
    `gap` makes that of one family quicker to find.
    """
    if work.invariant:
        return svd_or_nothing(work)
    if (shared := common_product(work)) is not None:
        return float(shared[0] * math.prod(_of_family(factor.queries, gap) for factor in shared[1]))
    if math.prod(work.schema.sizes[at] for at in work.attributes) <= BOUND_CELLS:
        return _of_all_cells(work)
    alone: dict[object, Table] = {}
    for table in some_tables(work):
        known = alone.setdefault(tuple(table.families), table)
        if known.weight < table.weight:
            alone[tuple(table.families)] = table
    seen: dict[Queries, float] = {}
    single = max(_alone(work, each, gap, seen) for each in alone.values())
    parts = tuple(narrow(work))
    if not parts:
        return single
    kept = Workload(work.schema, parts)
    return max(single, together(kept, AttributeQueries(kept), operations, pairs))


def together(work: Workload, asked: AttributeQueries, operations: float, pairs: float) -> float:
    """A bound at product weights for tables that are `narrow`; 0 where none is to be had."""
    parts, found = work.parts, 0.0
    families = [queries for part in parts for queries in part.families]
    sets = [tuple(sorted(part.attributes)) for part in parts if isinstance(part, Table)]
    crowded = len(set(sets)) < len(sets)  # where all tables of a pair but one may be left out
    joint = any(len(queries.sizes) > 1 for queries in families)
    large = any(queries.cells > BOUND_CELLS for queries in families)
    few = max(map(ways_of, parts)) <= 2
    if not large and (few or joint):
        with suppress(Infeasible):
            found = product_dual_at(work, asked.weights, pairs, QUICK_SHARED)
    if found == 0 or crowded or not few:
        with suppress(Infeasible):
            found = max(found, wide_dual(work, asked, operations))
    return found


def narrow(work: Workload) -> Iterator[Table | TableRun]:
    """The parts of a workload without tables that have a family on too many cells."""
    for part in work.parts:
        if isinstance(part, TableRun) and part.joint is None:
            wide = [at for at in part.attributes if _too_wide(part.queries_of(at))]
            kept = np.flatnonzero(~np.isin(part.subsets, wide).any(axis=1))
            if len(kept):
                yield part if len(kept) == len(part) else part.take(kept)
        elif not any(map(_too_wide, part.families)):
            yield part


def _too_wide(queries: Queries) -> bool:
    return queries.cells > BOUND_CELLS and not isinstance(queries, Identity)


def _of_all_cells(work: Workload) -> float:
    """The better of the singular value bounds at equal and at product weights of the joint cells."""
    scales = np.sqrt(product_weights(work))
    scales *= math.sqrt(len(scales))
    if work.tables <= FEW_TABLES:
        gram = joint_gram(work)
        fold = exchange(gram, [work.schema.sizes[at] for at in work.attributes])
        even = svd_of_gram(gram, fold)
        fold = fold if fold is not None and fold.keeps(scales) else None
        weighted = svd_of_gram(gram * np.outer(scales, scales), fold)
        if even is not None and weighted is not None:
            return max(even, weighted)
    root = joint_rows(work)
    return max(svd_of_root(root), svd_of_root(root * scales))


def _alone(work: Workload, table: Table, gap: float, seen: dict[Queries, float]) -> float:
    """The bound of one table; a family of several tables is looked at once and kept in `seen`."""
    if all(queries.invariant and not isinstance(queries, Identity) for queries in table.families):
        return svd_or_nothing(Workload(work.schema, (table,)))
    for queries in table.families:
        if queries not in seen:
            seen[queries] = _of_family(queries, gap)
    return float(table.weight * math.prod(seen[queries] for queries in table.families))


def _of_family(queries: Queries, gap: float) -> float:
    """A bound on what one family costs, near the optimum on few cells; of some of its cells on many."""
    if isinstance(queries, Identity):
        return float(queries.cells)  # no plain cell has less than its own noise, whatever is measured
    if queries.cells <= BOUND_CELLS:
        return solve_cells(queries.root(), gap).lower
    return svd_of_root(root_of_some_cells(queries))


def root_of_some_cells(queries: Queries) -> Array:
    """Rows with the gram of a family on cells from all over it (claim B-002), of some queries if too many."""
    cells = np.linspace(0, queries.cells - 1, FEW_CELLS).astype(np.int64)
    if queries.cells <= WIDEST and queries.count * queries.cells > FEW_ENTRIES:
        gram = queries.gram()[np.ix_(cells, cells)]
    else:
        chosen = min(queries.count, FEW_ENTRIES // queries.cells)
        indices = np.linspace(0, min(queries.count, MOST_INDEX) - 1, chosen).astype(np.int64)
        gram = np.zeros((len(cells), len(cells)))
        step = max(1, CHUNK_ENTRIES // queries.cells)
        for start in range(0, chosen, step):
            own = indices[start : start + step]
            rows = queries.rows_at(own)[:, cells]
            if queries.weights is not None:
                rows = rows * np.sqrt(queries.weights[own])[:, None]
            gram += rows.T @ rows
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)
