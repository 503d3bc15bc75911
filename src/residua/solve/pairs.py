"""The best mechanism where a record is replaced by another: the dual has weights on pairs of cells (S-014).

| symbol | meaning |
|---|---|
| `w_ij` | weight of a pair of cells; `L` the Laplacian matrix of the graph with these weights |
| `G` | Gram matrix of the queries, on vectors of sum zero: in coordinates without the last cell |
| `X` | privacy matrix there; replacing a record costs `c_ij = (e_i - e_j)' X (e_i - e_j)` |
"""

import math
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua.solve.newton import Bracketed

POWERS = (4.0, 1.5)  # of the costs that move the weights: the first while that gets nearer, then the second
STEPS = 150
STALE = 15  # steps without a gain after which the power is lowered, or no more are made
LIGHTEST = 1e-10  # of the largest weight
ROUNDING = 1e-9  # relative, of the lower bound
RANK = 1e-13  # of the largest eigenvalue: below, what rounding leaves of zero


@dataclass(frozen=True, slots=True)
class PairSolution(Bracketed):
    """A mechanism that costs 1 where a record is replaced, with a bracket on the best one there is.

    `strategy` is B, (rank, cells), with a last cell of zeros: with the number of records, which is public, it
    answers all queries; total weighted variance `upper`.
    """

    strategy: Array
    lower: float
    upper: float
    evaluations: int


def solve_pairs(gram: Array, gap: float) -> PairSolution:
    """The least total variance for queries with this gram over cells, two at least, by a fixed point.

    Stops when its bracket is as narrow as `gap`, or no longer narrows.
    """
    own = gram[:-1, :-1] - gram[-1, :-1] - gram[:-1, -1:] + gram[-1, -1]  # of changes that sum to zero
    weights = 1.0 - np.eye(len(gram))
    lower, upper, stale, evaluations = 0.0, math.inf, 0, 0
    powers, best = list(POWERS), np.zeros((0, len(gram)))
    for _ in range(STEPS):
        evaluations += 1
        scales, strategy = _evaluated(own, weights)
        costs = _costs(strategy)
        low, high = float(scales.sum() ** 2 / (weights.sum() / 2)), float(scales.sum() * costs.max())
        nearer = high / low < (upper / lower if lower else math.inf) or high < upper or low > lower
        stale = 0 if nearer else stale + 1
        lower = max(lower, low)
        if high < upper:
            upper, best = high, strategy / math.sqrt(costs.max())
        if upper <= lower * (1 + gap) or (stale > STALE and len(powers) == 1):
            break
        if stale > STALE:
            powers, stale = powers[1:], 0
        weights *= (costs / costs.max()) ** powers[0]
        weights = np.maximum(weights / weights.max(), LIGHTEST)
        np.fill_diagonal(weights, 0.0)
    return PairSolution(best, lower * (1 - ROUNDING), upper, evaluations)


def _evaluated(gram: Array, weights: Array) -> tuple[Array, Array]:
    """Singular values of the weighted queries, and the strategy that they make, over all cells."""
    laplacian = np.diag(weights.sum(axis=1)) - weights
    root = np.linalg.cholesky(laplacian[:-1, :-1])
    values, vectors = np.linalg.eigh(root.T @ gram @ root)
    kept = values > RANK * values[-1]
    scales = np.sqrt(values[kept])
    strategy = np.linalg.solve(root.T, vectors[:, kept] * np.sqrt(scales)).T
    return scales, np.pad(strategy, ((0, 0), (0, 1)))


def _costs(strategy: Array) -> Array:
    """What each pair of cells costs, (cells, cells)."""
    products = strategy.T @ strategy
    own = np.diag(products)
    return np.maximum(own[:, None] + own - 2 * products, 0.0)
