"""What the budget buys: the same plan at other budgets, and the share that each set of attributes took.

Shares are of the privacy cost, which adds up (claim V-002).
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, product
from typing import TypeVar

import numpy as np

from residua._arrays import Array, Subsets
from residua.accuracy.summaries import together
from residua.answering.blocks import Blocks, Shape, block_classes
from residua.linalg.matrices import distinct_rows
from residua.linalg.spans import mean_first
from residua.privacy import Budget, budget_from_manifest
from residua.privacy.conversions import exact_text
from residua.report.contents import BudgetPoint, Share, SourcePlan
from residua.strategy.strategy import Strategy
from residua.workload import Workload

FACTORS = {
    "a quarter": Fraction(1, 4),
    "half": Fraction(1, 2),
    "this plan": Fraction(1),
    "double": Fraction(2),
    "four times": Fraction(4),
}
DELTA = "1e-6"
MOST_SEARCHED = 2_000  # tables whose largest error is looked for
PlanKind = TypeVar("PlanKind", bound=SourcePlan)
MOST_SHARES = 12
NEGLIGIBLE = 1e-9  # of the whole: what rounding leaves of nothing
_Run = tuple[Subsets, Array]
"""Attributes of some blocks, (blocks, attributes), and the cost of each."""


def points_of(plan: SourcePlan, tables: Sequence[Workload]) -> tuple[BudgetPoint, ...]:
    """What the plan predicts at each budget: of all numbers together, and of some tables."""
    return tuple(_point(words, at_budget(plan, factor), tables) for words, factor in FACTORS.items())


def _point(words: str, plan: SourcePlan, tables: Sequence[Workload]) -> BudgetPoint:
    privacy, amount = plan.privacy, amount_of(plan.budget)
    cost = float(privacy.rho if privacy.pure_epsilon is None else privacy.pure_epsilon)
    errors = tuple(plan.summary(table)[0].rmse for table in tables)
    return BudgetPoint(words, amount, cost, privacy.epsilon(DELTA), *overall(plan), errors)


def at_budget(plan: PlanKind, factor: Fraction) -> PlanKind:
    """The plan with its budget multiplied."""
    return plan if factor == 1 else plan.rescale(scaled(plan.budget, factor))


def largest_of(plan: SourcePlan) -> float:
    """Largest standard deviation of any number, or nan where there are too many tables to go through."""
    return math.sqrt(plan.released.max_variance) if plan.workload.tables <= MOST_SEARCHED else math.nan


def overall(plan: SourcePlan) -> tuple[float, float]:
    """Root mean square and largest standard deviation: of all numbers, or of counts beside other units.

    The largest is nan where there are too many tables to go through, both where there are no counts.
    """
    work = plan.workload
    if work.counts:
        return plan.released.rmse, largest_of(plan)
    return together(plan.summary(Workload(work.schema, tuple(islice(work.groups(), MOST_SEARCHED)))))


def scaled(budget: Budget, factor: Fraction) -> Budget:
    """The budget with its amount multiplied; a delta stays as it is.

    >>> from residua.privacy import approx_dp
    >>> scaled(approx_dp(1, "1e-6"), Fraction(2))
    approx_dp('2', '1/1000000')
    """
    record = budget.to_manifest()
    amounts = {
        name: str(Fraction(text) * factor)
        for name, text in record.items()
        if name not in ("definition", "delta")
    }
    return budget_from_manifest(record | amounts)


def amount_of(budget: Budget) -> str:
    """The budget's amounts as far as a few digits go.

    >>> from residua.privacy import zcdp
    >>> amount_of(zcdp("0.1"))
    'rho = 0.1'
    """
    amounts = {name: Fraction(text) for name, text in budget.to_manifest().items() if name != "definition"}
    return ", ".join(f"{name} = {_short(value)}" for name, value in amounts.items())


def budget_words(budget: Budget) -> str:
    """The budget in plain words, a small delta as people write it.

    >>> from residua.privacy import approx_dp
    >>> budget_words(approx_dp(1, "1e-6"))
    'approximate DP with epsilon = 1 and delta = 1e-6'
    """
    delta = Fraction(budget.to_manifest().get("delta", 0))
    if Fraction(_short(delta)) != delta:
        return budget.describe()
    return budget.describe().replace(f"delta = {exact_text(delta)}", f"delta = {_short(delta)}")


def _short(value: Fraction) -> str:
    return f"{float(value):.4g}".replace("e-0", "e-")


def shares_of(plan: SourcePlan) -> tuple[Share, ...]:
    """The largest shares of the privacy, each with its attributes, and the rest by number of attributes."""
    runs = list(_costs(plan.strategy))
    whole = math.fsum(float(costs.sum()) for _, costs in runs)
    every = np.sort(np.concatenate([costs for _, costs in runs]))
    least = float(every[-MOST_SHARES]) if len(every) > MOST_SHARES else 0.0
    named, rest = _divided(runs, max(least, NEGLIGIBLE * whole), whole, plan.workload.schema.names)
    return (*sorted(named, key=lambda share: -share.fraction), *rest)


def _costs(strategy: Strategy) -> Iterator[_Run]:
    """The cost of each subset that blocks ask about, those of one size together, ascending."""
    found: dict[int, list[_Run]] = {}
    for domain in range(len(strategy.domains)):
        for run in _asked(strategy.blocks(domain)):
            found.setdefault(run[0].shape[1], []).append(run)
    for ways in sorted(found):
        subsets, weights = map(np.concatenate, zip(*found[ways], strict=True))
        first, inverse = distinct_rows(subsets.astype(np.int64))
        yield subsets[first], np.asarray(np.bincount(inverse, weights=weights), dtype=np.float64)


def _asked(blocks: Blocks) -> Iterator[_Run]:
    """The subsets that blocks ask about, and what they spend on them; the same may come again."""
    for layer in blocks.layers:
        if layer.within is not None:  # of which a record is in one, and in the mean
            yield layer.subsets[:1], np.array([layer.costs.mean()])
        elif blocks.centred(layer):
            yield layer.subsets, layer.costs
        else:
            for rows in block_classes(blocks.measures, layer):
                shapes = [blocks.shapes[at] for at in layer.shapes[rows[0]].tolist()]
                for asked, fraction in _energies(shapes, layer.layout):
                    yield layer.subsets[rows][:, sorted(asked)], layer.costs[rows] * fraction


def _energies(
    shapes: Sequence[Shape], layout: Sequence[tuple[int, ...]]
) -> list[tuple[tuple[int, ...], float]]:
    """For sets of a block's places: the share of its squared entries that asks about them."""
    parts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for shape, places in zip(shapes, layout, strict=True):
        own = energy_by_subset(shape.matrix, shape.sizes)
        parts = [
            (asked + tuple(places[axis] for axis in more), fraction * part)
            for asked, fraction in parts
            for more, part in own
            if fraction * part > NEGLIGIBLE
        ]
    return parts


def energy_by_subset(matrix: Array, sizes: Sequence[int]) -> list[tuple[tuple[int, ...], float]]:
    """The share of a matrix' squared entries in each space of queries that are centred along some axes.

    `matrix` is (rows, cells). Along each axis a rotation puts the mean first; what is then beyond the first
    place along exactly the axes of a set belongs to that set, and the squares add up to those of the matrix.

    >>> energy_by_subset(np.eye(2), [2])
    [((), 0.5), ((0,), 0.5)]
    """
    tensor = matrix.reshape(len(matrix), *sizes)
    for axis, size in enumerate(sizes, start=1):
        tensor = np.moveaxis(np.moveaxis(tensor, axis, -1) @ mean_first(size), -1, axis)
    squares = np.sum(tensor * tensor, axis=0)
    whole = float(squares.sum())
    found = []
    for kept in product((False, True), repeat=len(sizes)):
        place = tuple(slice(1, None) if keep else slice(0, 1) for keep in kept)
        asked = tuple(axis for axis, keep in enumerate(kept) if keep)
        found.append((asked, round(float(squares[place].sum()) / whole, 15)))
    return found


def _divided(
    runs: Sequence[_Run], least: float, whole: float, names: Sequence[str]
) -> tuple[list[Share], list[Share]]:
    """Blocks that are named one by one, as many as there is room for, and the others together."""
    named: list[Share] = []
    rest: list[Share] = []
    for subsets, costs in runs:
        chosen = np.flatnonzero(costs >= least)[: MOST_SHARES - len(named)]
        for at in chosen.tolist():
            words = " x ".join(names[attribute] for attribute in sorted(subsets[at].tolist()))
            named.append(Share(words or "the number of records", 1, float(costs[at]) / whole))
        left = np.delete(costs, chosen)
        left = left[left > NEGLIGIBLE * whole]
        if len(left):
            words = f"other sets of {subsets.shape[1]} attribute{'s' * (subsets.shape[1] != 1)}"
            rest.append(Share(words, len(left), float(left.sum()) / whole))
    return named, rest
