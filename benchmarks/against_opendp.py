"""The demo's census tables at rho = 0.05: our error against OpenDP's Gaussian noise on each table by itself.

OpenDP is asked the way its users ask it: every table is counted and noised with a share of the budget, equal
shares first, then the best ones, in proportion to the square root of the variance that each table adds up to.
Cumulative counts are added up from noisy cells. Fails if ours is not at least 1.3 times as accurate.
"""

import math
import sys
from typing import Any

import numpy as np
from _timing import Limits
from numpy.typing import NDArray

import residua as rs
from residua.demo import census
from residua.workload import Table

Array = NDArray[np.float64]

RHO = "0.05"
RUNS = 200
LEAST_RATIO = 1.3


def main() -> int:
    limits = Limits()
    work = census()
    ours = rs.plan(work, rs.zcdp(RHO)).rmse
    groups = list(work.groups())
    even = dict.fromkeys(range(len(groups)), 1 / len(groups))
    weights = {at: math.sqrt(_unit_variances(group).sum()) for at, group in enumerate(groups)}
    best = {at: weight / sum(weights.values()) for at, weight in weights.items()}
    print(f"Residua, predicted: {ours:.3f} standard deviation in the root mean square, {work.count} numbers")
    for words, shares in (("equal shares", even), ("best shares", best)):
        theirs = _measured(groups, shares)
        print(f"OpenDP, {words}, {RUNS} runs: {theirs:.3f}, ratio {theirs / ours:.2f}")
        limits.check(theirs / ours >= LEAST_RATIO, f"the ratio with {words} is below {LEAST_RATIO}")
    return limits.exit_code()


def _unit_variances(group: Table) -> Array:
    """Variance of each query if every cell that the table is made of has noise of variance 1."""
    result = np.ones(1)
    for factor in group.factors:
        queries = factor.queries
        cells = np.ones(queries.count) if queries.title != "prefix" else np.arange(1.0, queries.count + 1)
        result = np.outer(result, cells).reshape(-1)
    return result


def _measured(groups: list[Table], shares: dict[int, float]) -> float:
    """Root mean square error of all numbers over the runs; the truth is zero everywhere."""
    errors = [_errors(group, float(RHO) * shares[at]) for at, group in enumerate(groups)]
    return math.sqrt(float(np.mean(np.concatenate([error.reshape(-1) for error in errors]) ** 2)))


def _errors(group: Table, rho: float) -> Array:
    """Errors of one table's numbers, (runs, numbers)."""
    noisy = _mechanism(math.sqrt(1 / (2 * rho)), rho)
    counts = np.array([noisy([0] * group.count) for _ in range(RUNS)], dtype=np.float64)
    tensor = counts.reshape(RUNS, *(factor.queries.count for factor in group.factors))
    for axis, factor in enumerate(group.factors, start=1):
        if factor.queries.title == "prefix":
            tensor = np.cumsum(tensor, axis=axis)
    return tensor.reshape(RUNS, -1)


def _mechanism(scale: float, rho: float) -> Any:
    """OpenDP's discrete Gaussian noise on a vector of counts, checked by its own privacy map."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    found: Any = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    if not found.map(1.0) <= rho * (1 + 1e-9):
        raise ValueError("OpenDP's map says that this noise costs more than its share")
    return found


if __name__ == "__main__":
    sys.exit(main())
