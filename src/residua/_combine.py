"""Two releases as one: the least-squares answers from the measurements of both.

Both measure the same schema with independent noise, so privacy matrices add and privacy costs add. On each
block `X = X_1 + X_2` and the combined estimate is `X^+ (X_1 e_1 + X_2 e_2)` (claim A-006).
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._agreement import disagreement
from residua._figures import Figures, totals_of
from residua._plan import Plan
from residua._summary import certified
from residua.errors import Infeasible, SchemaError, WorkloadError
from residua.estimates import Estimates
from residua.linalg.centring import centred_columns
from residua.privacy import Budget, privacy_cost, pure_dp
from residua.reconstruct import Estimator
from residua.release import Release
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.noise_laws import bound_divisor
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.overlap.together import never_measured, side_by_side
from residua.strategy.overlap_estimates import Numbers, estimates_of, fitted_numbers, measured_numbers
from residua.strategy.together import solved_together, with_half_the_noise
from residua.workload import Workload

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

MOST_CELLS = 2_500  # of a block that both releases measure in different ways
RANK_RATIO = 1e-11
IMPLAUSIBLE = 1e-9  # chance of a difference that is as large by noise alone


class DifferentDataWarning(UserWarning):
    """Releases that were combined, and may be of different data: then the combination means nothing."""


def combine(first: Release, second: Release, *more: Release) -> Release:
    """One release from several on the same schema: better answers, and the privacy cost of all.

    Blocks that two releases measured in the same way are averaged; blocks measured in different ways are
    solved together, up to 2,500 cells. Where blocks of a plan overlap, all blocks that touch each other are
    solved together. Plans of any other kind are combined where all their attributes have at most 2,500 joint
    cells, or where both are the same plan.

    Releases that ledgers of different datasets paid for are refused. A `DifferentDataWarning` says that the
    numbers differ more than their noise explains, or that no ledger tells of which data they are.
    """
    both = _pair(first, second)
    for each in more:
        both = _pair(both, each)
    return both


def _pair(first: Release, second: Release) -> Release:
    """One release from two."""
    _refuse_strangers(first, second)
    mechanism, estimates = _combined(first, second)
    _warn_of_strangers(first, second, mechanism, estimates)
    work = first.plan.workload + second.plan.workload
    plan = _plan_of(first.plan, second.plan, mechanism, work)
    audit = {
        **first.audit,
        "plan_hash": plan.hash,
        "privacy": plan.privacy.record(),
        "combined": [{**each.audit, "hash": each.hash} for each in (first, second)],
        "simulated": first.simulated or second.simulated,
    }
    return Release(plan, estimates, audit)


def _combined(first: Release, second: Release) -> tuple[Mechanism, Estimates]:
    """What both together measured, and the least-squares estimates from it, in the way that suits them."""
    ours, theirs = first.plan.mechanism, second.plan.mechanism
    if isinstance(ours, BlockStrategy) and isinstance(theirs, BlockStrategy):
        if ours.measures == theirs.measures:
            blocks = list(_merged(_Blocks(first, ours), _Blocks(second, theirs)))
            return _assembled(blocks, ours)
    elif _is_same(ours, theirs) and isinstance(ours, OverlapStrategy):
        return never_measured(ours.scaled(2)), _means(first.estimates, second.estimates)
    if isinstance(ours, Layered) and isinstance(theirs, Layered):
        both = side_by_side(ours, theirs)
        if both is not None:
            numbers = {**_numbers(first, ours, 0), **_numbers(second, theirs, len(ours.layers))}
            runs = list(estimates_of(both, numbers))
            return both, Estimates(tuple(table for table, _ in runs), tuple(cells for _, cells in runs))
    attributes = sorted({*first.plan.workload.attributes, *second.plan.workload.attributes})
    sizes = [first.plan.schema.sizes[at] for at in attributes]
    if math.prod(sizes) <= MOST_CELLS:
        return _over_joint_cells(first, second, attributes, sizes)
    if _is_same(ours, theirs):
        return with_half_the_noise(ours), _means(first.estimates, second.estimates)
    raise Infeasible(
        f"the two plans measure {math.prod(sizes):,} joint cells in ways that do not fit together, more than "
        f"the {MOST_CELLS:,} that can be combined; measure one plan twice, or plan both with method "
        "'querysmasher', which always splits queries by the same weights"
    )


def _over_joint_cells(
    first: Release, second: Release, attributes: list[int], sizes: list[int]
) -> tuple[Mechanism, Estimates]:
    """Both releases as one table of all joint cells (claim A-007)."""
    table = np.array([attributes], dtype=np.int32)
    alone = [
        Estimator(each.plan.mechanism, each.estimates).marginals(table, sizes)[0] for each in (first, second)
    ]
    strategy, cells = solved_together([first.plan.mechanism, second.plan.mechanism], alone, attributes)
    return strategy, Estimates((table,), (cells[None],))


def _is_same(ours: Mechanism, theirs: Mechanism) -> bool:
    """Whether two mechanisms would be saved alike."""
    arrays: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] = ({}, {})
    alike = ours.record(arrays[0]) == theirs.record(arrays[1])
    return alike and all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])


def _means(ours: Estimates, theirs: Estimates) -> Estimates:
    """The mean of the estimates of the same blocks in the same order."""
    pairs = zip(ours.cells, theirs.cells, strict=True)
    return Estimates(ours.tables, tuple((one + other) / 2 for one, other in pairs))


def _refuse_strangers(first: Release, second: Release) -> None:
    for each in (first, second):
        if not isinstance(each, Release):
            raise WorkloadError(f"combine needs releases, such as those rs.measure makes, not {each!r}")
    if first.plan.schema != second.plan.schema:
        raise SchemaError("the two releases have different schemas and cannot be combined")
    if first.plan.unit != second.plan.unit:
        raise SchemaError("the two releases protect different units and cannot be combined")
    if first.plan.mechanism.law != second.plan.mechanism.law:
        raise Infeasible(
            "one release has Gaussian noise and one has Laplace noise: their privacy has no common measure "
            "but zCDP; plan both with the same definition of privacy"
        )
    ours, theirs = _datasets(first.audit), _datasets(second.audit)
    if (known := {*ours, *theirs} - {None}) and len(known) > 1:
        names = " and ".join(repr(name) for name in sorted(map(str, known)))
        raise Infeasible(
            f"the ledgers that paid for these releases are of different datasets, {names}: their numbers are "
            "not of the same people, and cannot be combined; compare them instead"
        )
    if _ingredients(first.hash, first.audit) & _ingredients(second.hash, second.audit):
        raise Infeasible(
            "this is one release twice, or one that a combination has already: its noise is the same, and "
            "nothing is gained"
        )


def _warn_of_strangers(first: Release, second: Release, mechanism: Mechanism, estimates: Estimates) -> None:
    """DifferentDataWarning where two releases may be of different data, as far as can be known."""
    if None in (*_datasets(first.audit), *_datasets(second.audit)):
        _warn(
            "a release that no ledger paid for is combined: nothing says that it is of the same data as the "
            "other, without which the combination means nothing"
        )
    ours, theirs = ((each.plan.mechanism, each.estimates) for each in (first, second))
    found = disagreement(ours, theirs, (mechanism, estimates), first.plan.schema.sizes)
    excess = 0.0
    if mechanism.law == "laplace":
        epsilon = max(each.plan.budget.laplace_epsilon() for each in (first, second))
        excess = 3.0 + bound_divisor("laplace", epsilon)
    if found.chance(excess) < IMPLAUSIBLE:
        _warn(
            "the two releases differ more than their noise explains (chi-squared over what both measured is "
            f"{found.total:,.4g}, where {found.freedom:,} or less is expected): they are of different data, "
            "and the combination means nothing"
        )


def _warn(words: str) -> None:
    warnings.warn(words, DifferentDataWarning, stacklevel=5)  # in the line that calls combine


def _datasets(audit: Mapping[str, Any]) -> set[str | None]:
    """What the ledgers say that a release is of; None for those that no ledger paid for.

    A dataset is a name so far. What else a ledger may come to say of the data, such as their period, is to be
    compared along with it.
    """
    if parts := audit.get("combined"):
        return set[str | None]().union(*map(_datasets, parts))
    entry = audit.get("ledger")
    return {entry.get("dataset") if isinstance(entry, Mapping) else None}


def _ingredients(own: str | None, audit: Mapping[str, Any]) -> set[str]:
    """Hashes of a release and of all those that it was combined from, as far as they were noted."""
    parts = (_ingredients(part.get("hash"), part) for part in audit.get("combined", ()))
    found: set[str] = set().union(*parts)
    return found if own is None else {own, *found}


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


def _numbers(release: Release, strategy: Layered, start: int) -> Numbers:
    """What the blocks of a release measured, its layers counted from `start`.

    For a combination, what its blocks would have measured without noise on its estimates: those solve the
    same normal equations as the numbers that it was made from.
    """
    if isinstance(release.measurements, Estimates):
        found = fitted_numbers(strategy, Estimator(release.plan.mechanism, release.estimates).marginals)
    else:
        found = measured_numbers(strategy, release.plan.batches, release.measurements.values)
    return {(start + layer, row): own for (layer, row), own in found.items()}


def _plan_of(first: Plan, second: Plan, mechanism: Mechanism, work: Workload) -> Plan:
    """What the combination answers and proves, as a plan that has been measured already."""
    budget = _sum_of_budgets(first.budget, second.budget)
    figures = Figures.of(mechanism, work, totals_of(mechanism, work))
    certificate = certified(figures.total_variance, 0.0, "this block structure")
    objective = first.objective
    return Plan(work, budget, first.unit, "combined", mechanism, certificate, objective, figures, figures)


def _sum_of_budgets(first: Budget, second: Budget) -> Budget:
    """What both together have spent, in the definition that their noise proves."""
    if first.law == "laplace":
        return pure_dp(first.laplace_epsilon() + second.laplace_epsilon())
    return privacy_cost(first.gaussian_cost() + second.gaussian_cost())
