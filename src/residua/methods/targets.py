"""Accuracy first on few cells: the least privacy of all mechanisms that meets a variance for every query."""

import math
from collections.abc import Sequence

import numpy as np

from residua._limits import DENSE_CELLS, TARGET_ENTRIES, TARGET_QUERIES, TARGET_RANK
from residua.answering.blocks import Placed, Shape
from residua.errors import WorkloadError
from residua.linalg.matrices import join, row_space, spread, threads_for
from residua.methods.dense import joint_integer_rows, told
from residua.methods.draft import Array, Caps, Draft, Progress
from residua.solve.targets import TargetSolution, refined, solve_targets
from residua.strategy.build import integer_span, of_blocks
from residua.strategy.integers import independent_integers
from residua.workload import Queries, Table, Workload
from residua.workload.queries import spelled
from residua.workload.union import common_product, refuse_many_cells


def suits(work: Workload, caps: Caps) -> bool:
    """Whether the best of all mechanisms can be found in minutes."""
    shared = _product(work, caps)
    if shared is not None:
        return all(_quick(queries.count, queries.cells) for queries in shared)
    cells = math.prod(work.schema.sizes[at] for at in work.attributes)
    return _quick(work.count, cells)


def _quick(queries: int, cells: int) -> bool:
    listable = queries <= TARGET_QUERIES and cells <= DENSE_CELLS and queries * cells <= TARGET_ENTRIES
    return listable and min(queries, cells) <= TARGET_RANK


def dense_targets(
    work: Workload, caps: Caps, tolerance: float, progress: Progress | None = None, refine: bool = False
) -> Draft:
    """The cheapest mechanism of all that meets every target, to a certified gap.

    A workload of one product of families with one target is solved factor by factor (claim G-002). With
    `refine`, of all cheapest mechanisms the one with the least privacy profile (claim G-004).
    """
    shared = _product(work, caps)
    if shared is not None and not refine:
        return _product_targets(work, caps, shared, tolerance, progress)
    rows, allowed = listed_queries(work, caps)
    attributes = work.attributes
    sizes = tuple(work.schema.sizes[at] for at in attributes)
    solution = _certified(rows, allowed, tolerance, progress, f"{len(rows):,} queries", refine)
    strategy = Placed(attributes, Shape.independent(sizes, solution.strategy))
    spans = {}
    if len(solution.strategy) < rows.shape[1]:
        whole = joint_integer_rows(work)
        spans[0] = None if whole is None else independent_integers(whole, len(solution.strategy))
    paid = solution.query_weights * allowed
    mechanism = of_blocks(work.schema.sizes, [([strategy], 1.0)])
    return Draft(mechanism, solution.lower, "all mechanisms", spans=spans, prices=_by_table(work, paid))


def listed_queries(work: Workload, caps: Caps) -> tuple[Array, Array]:
    """Every query as a row over the joint cells, (queries, cells), and what each may have for a variance."""
    attributes = work.attributes
    sizes = [work.schema.sizes[at] for at in attributes]
    cells = math.prod(sizes)
    refuse_many_cells(cells, "the attributes of this workload together")
    if work.count > TARGET_QUERIES or work.count * cells > TARGET_ENTRIES:
        raise WorkloadError(
            f"{spelled(work.count)} queries on {cells:,} cells are too many for one matrix; use method 'auto'"
        )
    rows, allowed = [], []
    for part, cap in zip(work.parts, caps, strict=True):
        for group in (part,) if isinstance(part, Table) else part:
            places = [attributes.index(at) for at in group.attributes]
            matrix = join(factor.queries.matrix() for factor in group.factors)
            rows.append(spread(matrix, [sizes[place] for place in places], places, sizes))
            allowed.append(np.broadcast_to(cap, group.count))
    return np.concatenate(rows), np.concatenate(allowed).astype(np.float64)


def _by_table(work: Workload, paid: Array) -> tuple[Array, ...]:
    """What the queries pay, added up for each table of each part; everything adds up to 1."""
    counts = [
        [group.count for group in ((part,) if isinstance(part, Table) else part)] for part in work.parts
    ]
    ends = np.cumsum([count for several in counts for count in several])
    sums = np.add.reduceat(paid, np.concatenate([[0], ends[:-1]])) / paid.sum()
    return tuple(np.split(sums, np.cumsum([len(several) for several in counts])[:-1]))


def _product(work: Workload, caps: Caps) -> list[Queries] | None:
    """The families whose product every table is, where each table has one target; otherwise None."""
    shared = common_product(work)
    if shared is None or any(np.ndim(cap) for cap in caps):
        return None
    return [factor.queries for factor in shared[1]]


def _product_targets(
    work: Workload, caps: Caps, families: Sequence[Queries], tolerance: float, progress: Progress | None
) -> Draft:
    """The product of the factors' cheapest mechanisms; the strictest target pays for all."""
    strictest = min(range(len(caps)), key=lambda at: float(np.asarray(caps[at])))
    share = tolerance / max(len(families), 1) / 2
    solutions = [
        _certified(queries.matrix(), np.ones(queries.count), share, progress, repr(queries), False)
        for queries in families
    ]
    first = next(work.groups())
    factors = tuple(
        Placed(factor.attributes, Shape.independent(factor.queries.sizes, solution.strategy))
        for factor, solution in zip(first.factors, solutions, strict=True)
    )
    spans = {
        at: None
        if (rows := integer_span(queries)) is None
        else independent_integers(rows, len(solution.strategy))
        for at, (queries, solution) in enumerate(zip(families, solutions, strict=True))
        if len(solution.strategy) < queries.cells
    }
    allowed = float(np.asarray(caps[strictest]))
    lower = math.prod(solution.lower for solution in solutions) / allowed
    prices = tuple(np.zeros(1 if isinstance(part, Table) else len(part)) for part in work.parts)
    prices[strictest][0] = 1.0
    strategy = of_blocks(work.schema.sizes, [(factors, allowed)])
    return Draft(strategy, lower, "all mechanisms", spans=spans, prices=prices)


def _certified(
    rows: Array, allowed: Array, tolerance: float, progress: Progress | None, what: str, refine: bool
) -> TargetSolution:
    """The solution for queries over cells, with its gap checked."""
    basis = row_space(rows)
    complete = basis.shape[1] == rows.shape[1]
    root = np.eye(rows.shape[1]) if complete else np.ascontiguousarray(basis.T)
    coefficients = rows if complete else rows @ basis
    with threads_for(len(root)):
        solution = solve_targets(coefficients, root, allowed, tolerance, told(progress, what, tolerance))
        solution = solution.require(tolerance, f"the solver for {what}")
        return refined(coefficients, root, allowed, solution) if refine else solution
