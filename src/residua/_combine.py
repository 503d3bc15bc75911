"""Two releases as one: the least-squares answers from the measurements of both.

Both measure the same schema with independent noise, so privacy matrices add and privacy costs add. On each
block `X = X_1 + X_2` and the combined estimate is `X^+ (X_1 e_1 + X_2 e_2)` (claim A-006).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from residua._plan import Figures, Plan, certified, totals_of
from residua.errors import Infeasible, SchemaError
from residua.estimates import Estimates
from residua.linalg.centring import centred_columns
from residua.privacy import privacy_cost
from residua.release import Release
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.overlap_estimates import coupled_estimates, measured_numbers
from residua.workload import Workload

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

MOST_CELLS = 2_500  # of a block that both releases measure in different ways
RANK_RATIO = 1e-11


def combine(first: Release, second: Release) -> Release:
    """One release from two on the same schema: better answers, and the privacy cost of both.

    Blocks that both measured in the same way are averaged; blocks measured in different ways are solved
    together, up to 2,500 cells. Where blocks of a plan overlap, all blocks that touch each other are solved
    together.
    """
    _refuse_strangers(first, second)
    ours, theirs = first.plan.mechanism, second.plan.mechanism
    if not isinstance(ours, Layered) or not isinstance(theirs, Layered):
        raise Infeasible(
            "only releases of block plans can be combined; plan with method 'querysmasher' or "
            "'residualplanner'"
        )
    if ours.measures != theirs.measures:
        raise Infeasible(
            "the two plans split queries by different weights; plan both with method 'querysmasher', whose "
            "weights are always the same"
        )
    mechanism: Mechanism
    if isinstance(ours, BlockStrategy) and isinstance(theirs, BlockStrategy):
        blocks = list(_merged(_Blocks(first, ours), _Blocks(second, theirs)))
        mechanism, estimates = _assembled(blocks, ours)
    else:
        mechanism, estimates = _side_by_side(first, ours, second, theirs)
    work = first.plan.workload + second.plan.workload
    plan = _plan_of(first.plan, second.plan, mechanism, work)
    audit = {
        **first.audit,
        "plan_hash": plan.hash,
        "privacy": plan.privacy.record(),
        "combined": [dict(first.audit), dict(second.audit)],
        "simulated": first.simulated or second.simulated,
    }
    return Release(plan, estimates, audit)


def _refuse_strangers(first: Release, second: Release) -> None:
    if first.plan.schema != second.plan.schema:
        raise SchemaError("the two releases have different schemas and cannot be combined")
    if first.plan.unit != second.plan.unit:
        raise SchemaError("the two releases protect different units and cannot be combined")
    if first.hash == second.hash:
        raise Infeasible("this is one release twice: its noise is the same, and nothing is gained")


class _Blocks:
    """The blocks of one release by subset: shapes, noise variance and estimate."""

    def __init__(self, release: Release, strategy: BlockStrategy) -> None:
        self.strategy = strategy
        self.estimates = release.estimates
        self.rows = {
            tuple(row): (number, place)
            for number, layer in enumerate(strategy.layers)
            for place, row in enumerate(layer.subsets.tolist())
        }

    def shapes(self, subset: tuple[int, ...]) -> tuple[Layer, tuple[Shape, ...], float]:
        number, place = self.rows[subset]
        layer = self.strategy.layers[number]
        return layer, tuple(self.strategy.shapes[at] for at in layer.shapes[place]), float(layer.noise[place])


_Merged = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[Shape, ...], float, Array]


def _merged(ours: _Blocks, theirs: _Blocks) -> Iterator[_Merged]:
    """Subset, layout, shapes, noise variance and estimate of every block of either release."""
    for subset in sorted({*ours.rows, *theirs.rows}, key=lambda row: (len(row), row)):
        sides = [side for side in (ours, theirs) if subset in side.rows]
        found = [(*side.shapes(subset), side.estimates.block(subset)) for side in sides]
        layer, shapes, noise, cells = found[0]
        if len(found) == 1:
            yield subset, layer.layout, shapes, noise, cells
            continue
        other, their_shapes, their_noise, their_cells = found[1]
        if layer.layout == other.layout and _alike(shapes, their_shapes):
            # The same matrix up to scale: weigh by information.
            scale = math.prod(b.norm / a.norm for a, b in zip(shapes, their_shapes, strict=True))
            weights = 1 / noise, scale / their_noise
            mean = (weights[0] * cells + weights[1] * their_cells) / sum(weights)
            yield subset, layer.layout, shapes, 1 / sum(weights), mean
            continue
        yield (subset, *_solved_together(ours, theirs, subset, cells, their_cells))


def _alike(left: tuple[Shape, ...], right: tuple[Shape, ...]) -> bool:
    return all(
        a.matrix.shape == b.matrix.shape and np.array_equal(a.matrix * math.sqrt(b.norm / a.norm), b.matrix)
        for a, b in zip(left, right, strict=True)
    )


def _solved_together(
    ours: _Blocks, theirs: _Blocks, subset: tuple[int, ...], cells: Array, their_cells: Array
) -> tuple[tuple[tuple[int, ...], ...], tuple[Shape, ...], float, Array]:
    if cells.size > MOST_CELLS:
        raise Infeasible(
            f"the releases measure a block of {cells.size:,} cells in different ways, more than the "
            f"{MOST_CELLS:,} that can be combined"
        )
    squares = [_privacy_matrix(side, subset) for side in (ours, theirs)]
    both = squares[0] + squares[1]
    values, vectors = np.linalg.eigh(both)
    kept = values > RANK_RATIO * values[-1]
    rows = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    total = squares[0] @ cells.reshape(-1) + squares[1] @ their_cells.reshape(-1)
    mean = vectors[:, kept] @ ((vectors[:, kept].T @ total) / values[kept])
    measures = [ours.strategy.measures[at] for at in subset]
    mean = centred_columns(mean[:, None], cells.shape, measures)
    shape = Shape.independent(cells.shape, rows)
    return (tuple(range(len(subset))),), (shape,), 1.0, mean.reshape(cells.shape)


def _privacy_matrix(side: _Blocks, subset: tuple[int, ...]) -> Array:
    """X of one release's block, over its cells with axes ascending by attribute."""
    layer, shapes, noise = side.shapes(subset)
    rows: Array = np.ones((1, 1))
    for shape in shapes:
        rows = np.asarray(np.kron(rows, shape.matrix), dtype=np.float64)
    order = [place for places in layer.layout for place in places]
    sizes = [size for shape in shapes for size in shape.sizes]
    tensor = rows.reshape(len(rows), *sizes).transpose(0, *(1 + np.argsort(order)))
    rows = tensor.reshape(len(rows), -1)
    return np.asarray(rows.T @ rows / noise)


def _assembled(blocks: list[_Merged], like: BlockStrategy) -> tuple[BlockStrategy, Estimates]:
    """Merged blocks as a real block strategy, and their estimates in its order."""
    shapes: list[Shape] = []
    numbers: dict[int, int] = {}
    kinds: dict[object, list[_Merged]] = {}
    for block in blocks:
        for shape in block[2]:
            if id(shape) not in numbers:
                numbers[id(shape)] = len(shapes)
                shapes.append(shape)
        kinds.setdefault((len(block[0]), block[1], block[4].shape), []).append(block)
    layers, tables, cells = [], [], []
    for members in kinds.values():
        subsets = np.array([subset for subset, *_ in members], dtype=np.int32).reshape(len(members), -1)
        chosen = np.array([[numbers[id(shape)] for shape in block[2]] for block in members], dtype=np.int64)
        chosen = chosen.reshape(len(members), len(members[0][1]))
        noise = np.array([block[3] for block in members])
        norms = np.array([math.prod(shape.norm for shape in block[2]) for block in members])
        layers.append(Layer(subsets, members[0][1], chosen, norms / noise, noise))
        tables.append(subsets)
        cells.append(np.stack([block[4] for block in members]))
    strategy = BlockStrategy(like.sizes, like.measures, tuple(shapes), tuple(layers))
    return strategy, Estimates(tuple(tables), tuple(cells))


def _side_by_side(
    first: Release, ours: Layered, second: Release, theirs: Layered
) -> tuple[OverlapStrategy, Estimates]:
    """The blocks of both releases as one overlapping strategy, and least squares over all their numbers."""
    numbers = {}
    start = 0
    for release, strategy in ((first, ours), (second, theirs)):
        if isinstance(release.measurements, Estimates):
            raise Infeasible(
                "a release that was combined before has no measurements of its own left to combine with "
                "blocks that overlap; combine releases of block plans first, or plan with 'querysmasher'"
            )
        found = measured_numbers(strategy, release.plan.batches, release.measurements.values)
        numbers.update({(start + layer, row): own for (layer, row), own in found.items()})
        start += len(strategy.layers)
    moved = (replace(layer, shapes=layer.shapes + len(ours.shapes)) for layer in theirs.layers)
    layers = tuple(replace(layer, shares=None) for layer in (*ours.layers, *moved))
    both = OverlapStrategy(ours.sizes, ours.measures, ours.shapes + theirs.shapes, layers)
    runs = [*_alone(both, first, second), *coupled_estimates(both, numbers)]
    return both, Estimates(tuple(table for table, _ in runs), tuple(cells for _, cells in runs))


def _alone(both: OverlapStrategy, first: Release, second: Release) -> Iterator[tuple[Subsets, Array]]:
    """Estimates of the blocks that one release alone measured, and nothing else touches."""
    for layer in both.alone.layers:
        for side in (first.estimates, second.estimates):
            runs, places = side.index.find(layer.subsets)
            for run in np.unique(runs[runs >= 0]).tolist():
                here = runs == run
                yield layer.subsets[here], side.cells[run][places[here]]


def _plan_of(first: Plan, second: Plan, mechanism: Mechanism, work: Workload) -> Plan:
    """What the combination answers and proves, as a plan that has been measured already."""
    budget = privacy_cost(first.budget.gaussian_cost() + second.budget.gaussian_cost())
    figures = Figures.of(mechanism, work, totals_of(mechanism, work))
    certificate = certified(figures.total_variance, 0.0, "this block structure")
    objective = first.objective
    return Plan(work, budget, first.unit, "combined", mechanism, certificate, objective, figures, figures)
