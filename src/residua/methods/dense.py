"""The yardstick: the best mechanism of all, wherever the cells in use can be held in one matrix."""

import math

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Placed, Shape
from residua.linalg.matrices import spread, threads_for
from residua.methods.draft import Draft, Progress
from residua.solve.cells import Solution, solve_cells, solve_circulant
from residua.solve.newton import Progress as SolverProgress
from residua.strategy.build import integer_span, of_blocks, product_span
from residua.strategy.integers import independent_integers
from residua.workload import Queries, Workload
from residua.workload.union import common_product, joint_rows, refuse_many_cells

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def dense(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """The optimal mechanism to a certified gap, for workloads on at most about 4,000 joint cells.

    A workload whose tables are all multiples of one product of families is solved factor by factor
    (values and bounds multiply, claim S-008), with the limit on each factor.
    """
    sizes, shared = work.schema.sizes, common_product(work)
    if shared is not None:
        weight, factors = shared
        share = tolerance / max(len(factors), 1) / 2
        solutions = [_solve(factor.queries, share, progress) for factor in factors]
        strategies = [
            Placed(factor.attributes, Shape.independent(factor.queries.sizes, solution.strategy))
            for factor, solution in zip(factors, solutions, strict=True)
        ]
        lower = weight * math.prod(solution.lower for solution in solutions)
        spans = {
            at: None if (rows := integer_span(factor.queries)) is None else _independent(rows, solution)
            for at, (factor, solution) in enumerate(zip(factors, solutions, strict=True))
            if len(solution.strategy) < factor.queries.cells
        }
        return Draft(of_blocks(sizes, [(strategies, 1.0)]), lower, "all mechanisms", spans=spans)
    joint = joint_rows(work)
    solution = _certified(joint.root, tolerance, progress, f"{len(joint.attributes)} attributes")
    strategy = Placed(joint.attributes, Shape.independent(joint.sizes, solution.strategy))
    partial = len(solution.strategy) < math.prod(joint.sizes)
    rows = joint_integer_rows(work) if partial else None
    spans = {0: None if rows is None else _independent(rows, solution)} if partial else {}
    return Draft(of_blocks(sizes, [([strategy], 1.0)]), solution.lower, "all mechanisms", spans=spans)


def joint_integer_rows(work: Workload) -> Integers | None:
    """Integer rows over the joint cells that span what the workload asks, or None."""
    attributes = work.attributes
    sizes = [work.schema.sizes[at] for at in attributes]
    rows = []
    for group in work.groups():
        span = product_span([integer_span(factor.queries) for factor in group.factors])
        if span is None:
            return None
        places = [attributes.index(at) for at in group.attributes]
        rows.append(spread(span.astype(np.float64), [sizes[at] for at in places], places, sizes))
    return np.concatenate(rows).astype(np.int64)


def _independent(rows: Integers, solution: Solution) -> Integers | None:
    return independent_integers(rows, len(solution.strategy))


def _solve(queries: Queries, tolerance: float, progress: Progress | None) -> Solution:
    refuse_many_cells(queries.cells, repr(queries))
    if queries.circulant:
        closed = solve_circulant(queries.gram()[0])
        if closed is not None and closed.gap <= tolerance:
            return closed
    return _certified(queries.root(), tolerance, progress, repr(queries))


def _certified(root: Array, tolerance: float, progress: Progress | None, what: str) -> Solution:
    with threads_for(len(root)):
        solution = solve_cells(root, tolerance, progress=told(progress, what, tolerance))
    return solution.require(tolerance, f"the solver for {what}")


def told(progress: Progress | None, what: str, tolerance: float) -> SolverProgress | None:
    """What a solver tells its gap: a fraction of the way from 1 to the tolerance, in logarithms."""
    if progress is None:
        return None

    def tell(evaluations: int, gap: float) -> None:
        part = math.log(min(gap, 1.0)) / math.log(tolerance) if gap > 0 else 1.0
        progress(f"solving {what}", min(part, 1.0))

    return tell
