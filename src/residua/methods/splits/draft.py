"""Quasi-Newton search for the weights and moves that make the sum of blocks least."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import BOUND_CELLS, HEAVY_WORK
from residua.answering.blocks import Layer, Shape
from residua.bounds import product_dual_or_nothing, svd_or_nothing
from residua.decompose import Decomposition, SimpleBlocks, decompose, gather
from residua.linalg.matrices import Measure, threads_for
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.centring import CellWeights, in_whole_numbers, on_attributes
from residua.methods.draft import Draft, Progress
from residua.methods.splits.blocks import Division, divide, family_of
from residua.methods.splits.free import FreeTables
from residua.methods.splits.sum import BlockSum
from residua.solve.cells import solve_cells
from residua.strategy.build import with_best_noise
from residua.strategy.strategy import Domain
from residua.workload import Workload

LEAST_GAIN = 1e-8  # relative; a step that gains less is the last


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Where a search ended: the weights of each kind of attribute that has some, and the moves."""

    weights: Mapping[int, Array]
    moved: Array | None


def least(
    total: BlockSum,
    kinds: Sequence[int],
    sizes: Sequence[int],
    fills: Sequence[float],
    steps: int,
    progress: Progress | None,
) -> Search:
    """The best weights and moves found from uniform centring, with less and less filling."""
    from scipy.optimize import minimize

    weights = CellWeights({number: sizes[list(kinds).index(number)] for number in weighted_kinds(total)})
    moves = 0 if total.free is None else len(total.free.start())
    if not weights.count + moves:
        return Search({}, None)

    def read(x: Array) -> Search:
        return Search(
            weights.read(x[: weights.count]), x[weights.count :] if total.free is not None else None
        )

    evaluations = 0

    def value(x: Array, fill: float) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        if progress is not None:
            progress("choosing splits", min(1.0, evaluations / (steps * len(fills))))
        at = read(x)
        found, by_kind, by_move = total.at(at.weights, at.moved, fill)
        return found, np.concatenate([weights.vector(by_kind), by_move])

    x = np.zeros(weights.count + moves)
    for fill in fills:
        x = minimize(
            value,
            x,
            args=(fill,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxfun": steps, "ftol": LEAST_GAIN},
        ).x
    return read(x)


def weighted_kinds(total: BlockSum) -> list[int]:
    """Kinds of attributes whose weights are worth choosing (claim C-004)."""
    return sorted(
        {
            kind
            for source in total.asked.sources
            for kind in source.kinds
            if not all(queries.invariant for queries in source.queries)
        }
    )


FILLS = (0.03, 0.003, 0.0003)  # of a typical query, in every direction: less and less
LAST_FILL = 3e-5  # of the plan itself: what keeps every direction measurable
STEPS = 60  # with each filling
HEAVY_STEPS = 30


def split(work: Workload, kinds: Sequence[int], tolerance: float, progress: Progress | None) -> Draft | None:
    """Blocks under optimised splits, or None where no table gains by one or all are too large."""
    division = divide(work)
    if not division.free:
        return None
    own = list(range(len(work.schema))) if division.beyond else kinds
    family = family_of(work.groups()) if division.beyond else ()
    free = FreeTables(division.free, own, family)
    total = BlockSum(gather(division.centred, own, free.blocks), work.schema.sizes, free)
    heavy = division.work > HEAVY_WORK
    fills, steps = (FILLS[1:], HEAVY_STEPS) if heavy else (FILLS, STEPS)
    found = least(total, own, work.schema.sizes, fills, steps, progress)
    return _assembled(work, division, total, found, own, tolerance, progress)


def _assembled(
    work: Workload,
    division: Division,
    total: BlockSum,
    found: Search,
    kinds: Sequence[int],
    tolerance: float,
    progress: Progress | None,
) -> Draft:
    """The mechanism of cost 1 for these weights and moves, and a bound for all mechanisms."""
    sizes = work.schema.sizes
    measures = on_attributes(in_whole_numbers(found.weights), kinds, sizes)
    exact = {kind: measures[list(kinds).index(kind)].vector() for kind in found.weights}
    shapes: list[Shape] = []
    spans: dict[int, Integers | None] = {}
    layers: list[tuple[Layer, Array]] = []  # with the roots T of their blocks' optima
    rest = _untouched(work, division, total, measures)
    if rest is not None:
        draft = solve_blocks(rest, sizes, Optimal(), tolerance, progress)
        shapes, spans = list(draft.strategy.shapes), dict(draft.spans)
        layers = [(layer, layer.costs * math.sqrt(draft.value or 0.0)) for layer in draft.strategy.layers]
    for pattern, blocks, scales, root in total.touched(exact, found.moved, LAST_FILL):
        with threads_for(len(root)):
            solution = solve_cells(root, tolerance).require(tolerance, f"a block of {root.shape[1]:,} cells")
        roots = np.sqrt(scales) * math.sqrt(solution.upper)
        subsets = np.array(blocks, dtype=np.int32).reshape(len(blocks), len(pattern.sizes))
        layout = (tuple(range(len(pattern.sizes))),) if pattern.sizes else ()
        numbers = np.full((len(blocks), len(layout)), len(shapes), dtype=np.int64)
        if pattern.sizes:
            if len(pattern.span) < pattern.span.shape[1]:
                spans[len(shapes)] = pattern.span
            shapes.append(Shape.independent(pattern.sizes, solution.strategy))
        layers.append((Layer(subsets, layout, numbers, roots, roots), roots))
    mechanism = with_best_noise(Domain(sizes, measures), shapes, layers)
    value = math.fsum(mechanism.totals(part)[0] for part in work.parts)
    return Draft(mechanism, _lower_bound(work), "all mechanisms", value, spans=spans)


def _lower_bound(work: Workload) -> float:
    """The best bound for all mechanisms that takes seconds; 0 where there is none."""
    cells = math.prod(work.schema.sizes[at] for at in work.attributes)
    return max(product_dual_or_nothing(work), svd_or_nothing(work) if cells <= BOUND_CELLS else 0.0)


def _untouched(
    work: Workload, division: Division, total: BlockSum, measures: Sequence[Measure]
) -> Decomposition | None:
    """The blocks of centred tables that no free table touches, None if there are none."""
    if not division.centred:
        return None
    parts = decompose(Workload(work.schema, division.centred), measures)
    touched = set(total.free.blocks) if total.free else set()
    simple = []
    for blocks in parts.simple:
        keep = np.array([tuple(row) not in touched for row in blocks.subsets.tolist()], dtype=bool)
        if keep.any():
            simple.append(SimpleBlocks(blocks.subsets[keep], blocks.pieces[keep], blocks.coefficients[keep]))
    mixed = tuple(block for block in parts.mixed if block.attributes not in touched)
    return replace(parts, simple=tuple(simple), mixed=mixed) if simple or mixed else None
