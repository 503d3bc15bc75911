"""A second opinion on solutions: their claims checked from the queries, by code the solvers do not share.

The solvers work with a root of the gram and in its eigenbasis. Here everything starts from the queries
themselves and from the strategy as a plain matrix: each query is written as a combination of the strategy's
rows, which gives its variance and shows whether it can be answered at all; the lower bound is the sum of
singular values of the weighted queries (claims S-001, S-006).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.solve.cells import Solution
from residua.solve.targets import TargetSolution

Array = NDArray[np.float64]

UNIT = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Verification:
    """What the queries, the strategy and the dual weights show when they are recomputed.

    `cost` is the privacy cost of the strategy. `value` is the total weighted variance or, for targets, the
    largest ratio of a variance to its target; `lower` is what the dual weights prove about `cost * value`,
    which does not depend on the strategy's scale. `outside` is the largest part of a query, relative to its
    length, that no combination of the strategy's rows gives. `problems` are the claims that do not hold,
    after everything that rounding in this check can explain.
    """

    cost: float
    value: float
    lower: float
    outside: float
    problems: tuple[str, ...]

    def holds(self, tolerance: float) -> bool:
        """Whether every claim holds and the recomputed gap is at most `tolerance`."""
        return not self.problems and self.cost * self.value <= self.lower * (1 + tolerance)


def verify_solution(queries: Array, weights: Array | None, solution: Solution) -> Verification:
    """Check a solution for the least total variance against the queries it is for.

    `queries` is W, shape (queries, cells), `weights` multiply the variances (None: all are 1). A root of
    the gram may stand for the queries.

    >>> from residua.solve.cells import solve_cells
    >>> prefix = np.tril(np.ones((8, 8)))
    >>> verify_solution(prefix, None, solve_cells(prefix)).holds(1e-6)
    True
    """
    importance = np.ones(len(queries)) if weights is None else np.asarray(weights, dtype=np.float64)
    answers = _answers(queries, solution.strategy)
    cost, cost_error = _cost(solution.strategy)
    value = float(importance @ answers.variances)
    value_error = float(importance @ answers.errors)
    low, high = _bound(queries, importance, solution.cell_weights, 1.0)
    problems = [*answers.problems, *_weight_problems("cell", solution.cell_weights)]
    if cost > 1 + cost_error:
        problems.append(f"the privacy cost is {cost!r}, above 1")
    if value - value_error > solution.upper:
        problems.append(f"the total weighted variance is {value!r}, above the claimed {solution.upper!r}")
    problems += _bound_problems(solution.lower, solution.upper, high)
    return Verification(cost, value, low, answers.outside, tuple(problems))


def verify_targets(queries: Array, targets: Array, solution: TargetSolution) -> Verification:
    """Check a solution for accuracy first against the queries and the variance that each may have.

    `queries` is W, shape (queries, cells); `targets` is (queries,). All variances are recomputed, also those
    of queries whose weight in the lower bound is zero.

    >>> from residua.solve.targets import solve_targets
    >>> prefix = np.tril(np.ones((8, 8)))
    >>> solution = solve_targets(np.eye(8), prefix, np.ones(8))
    >>> verify_targets(prefix, np.ones(8), solution).holds(1e-6)
    True
    """
    answers = _answers(queries, solution.strategy)
    cost, cost_error = _cost(solution.strategy)
    priced = float(solution.query_weights @ targets)
    low, high = _bound(queries, solution.query_weights, solution.cell_weights, priced)
    problems = [
        *answers.problems,
        *_weight_problems("cell", solution.cell_weights),
        *_weight_problems("query", solution.query_weights),
    ]
    certain = answers.variances - answers.errors
    for what, limits in (("target", targets), ("stated variance", solution.variances)):
        over = np.flatnonzero(certain > limits * (1 + 8 * UNIT))
        if len(over):
            worst = int(over[np.argmax(certain[over] - limits[over])])
            found = float(answers.variances[worst])
            problems.append(
                f"query {worst} has variance {found!r}, above its {what} {float(limits[worst])!r}"
            )
    if cost > solution.upper * (1 + cost_error):
        problems.append(f"the privacy cost is {cost!r}, above the claimed {solution.upper!r}")
    problems += _bound_problems(solution.lower, solution.upper, high)
    ratio = float(np.max(answers.variances / targets))
    return Verification(cost, ratio, low, answers.outside, tuple(problems))


@dataclass(frozen=True, slots=True)
class _Answers:
    """Variance of each query with unit noise on the strategy's rows, its error, and what was left out."""

    variances: Array
    errors: Array
    outside: float
    problems: tuple[str, ...]


def _answers(queries: Array, strategy: Array) -> _Answers:
    """Each query as a combination of the strategy's rows, which are scaled to length 1 meanwhile."""
    lengths = np.linalg.norm(strategy, axis=1)
    if not lengths.all():
        nothing = np.full(len(queries), np.inf)
        return _Answers(nothing, np.zeros(len(queries)), 1.0, ("a row of the strategy is zero",))
    left, scales, right = np.linalg.svd(strategy / lengths[:, None], full_matrices=False)
    unit = 16 * sum(strategy.shape) * UNIT
    if len(strategy) > strategy.shape[1] or scales[-1] <= unit * scales[0]:
        nothing = np.full(len(queries), np.inf)
        return _Answers(nothing, np.zeros(len(queries)), 1.0, ("the rows of the strategy are dependent",))
    combination = (queries @ right.T / scales) @ left.T  # (queries, rank), of rows of length 1
    beyond = np.linalg.norm(queries - combination @ (strategy / lengths[:, None]), axis=1)
    accuracy = unit * float(scales[0] / scales[-1]) * np.linalg.norm(combination, axis=1)
    noise = combination / lengths
    slips = accuracy[:, None] / lengths
    errors = np.sum(2 * np.abs(noise) * slips + slips**2, axis=1)
    sizes = np.linalg.norm(queries, axis=1)
    parts = np.divide(beyond, sizes, out=np.zeros(len(queries)), where=sizes > 0)
    problems = [
        f"query {query} is no combination of the strategy's rows: {parts[query]:.1e} of it is left"
        for query in np.flatnonzero(beyond > accuracy)[:1]
    ]
    outside = float(np.max(parts, initial=0.0))
    return _Answers(np.sum(noise**2, axis=1), errors, outside, tuple(problems))


def _cost(strategy: Array) -> tuple[float, float]:
    """Largest squared length of a column, and the relative error of computing and of having scaled it."""
    return float(np.max(np.sum(strategy**2, axis=0))), 4 * (len(strategy) + 4) * UNIT


def _bound(queries: Array, rows: Array, cells: Array, price: float) -> tuple[float, float]:
    """The lower bound that weights on rows and cells prove: surely this much, and possibly this much."""
    weighted = np.sqrt(np.maximum(rows, 0.0))[:, None] * queries * np.sqrt(np.maximum(cells, 0.0))
    scales = np.linalg.svd(weighted, compute_uv=False)
    error = 4 * sum(queries.shape) * UNIT * float(scales[0])
    low, high = np.sum(np.maximum(scales - error, 0.0)), np.sum(scales + error)
    total = price * float(cells.sum())
    if total <= 0:
        return 0.0, 0.0
    unit = 8 * sum(queries.shape) * UNIT
    return float(low**2 / total * (1 - unit)), float(high**2 / total * (1 + unit))


def _weight_problems(what: str, weights: Array) -> list[str]:
    good = np.isfinite(weights) & (weights >= 0)
    return [] if good.all() else [f"{what} weight {int(np.argmin(good))} is not a number from 0 up"]


def _bound_problems(lower: float, upper: float, provable: float) -> list[str]:
    problems = []
    if not lower <= provable:
        problems.append(f"the weights prove at most {provable!r}, not the claimed lower bound {lower!r}")
    if not lower <= upper:
        problems.append(f"the claimed lower bound {lower!r} is above the claimed upper bound {upper!r}")
    return problems
