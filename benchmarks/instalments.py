"""Errors of running totals, moving averages and year to date, published as periods come, at privacy cost 1.

`instalments` is `rs.plan(..., over="month")`; `offline` the bound that no mechanism can beat which waits for
the last period; `independent` measures every period for itself; `binary tree` the nodes of a binary tree over
the periods, with the best weight for each level (least squares over all, so better than the usual sums of
nodes); `renewed` and `doubling` plans for an unknown number of periods, in blocks of 12 and of 1, 2, 4, ..
All are root mean squared errors over the queries.

Fails if the total variance of instalments is 0.1% above the bound.
"""

import sys

import numpy as np
from _timing import Limits
from scipy.optimize import minimize

import residua as rs

LINE = "{:>18}{:>9}{:>13}{:>10}{:>9}{:>13}{:>13}{:>9}{:>10}"
COST = rs.privacy_cost(1)


def queries(kind: str, periods: int) -> np.ndarray:
    """What is asked of the periods, a row each."""
    rows = np.tril(np.ones((periods, periods)))
    if kind == "running totals":
        return rows
    if kind == "moving averages":
        return (rows - np.tril(rows, -4))[3:] / 4
    for at in range(periods):
        rows[at, : at - at % 12] = 0
    return rows


def tree_error(rows: np.ndarray) -> float:
    """Error of a binary tree over the periods, with the best weight for each level."""
    periods = rows.shape[1]
    size = 2 ** int(np.ceil(np.log2(periods)))
    levels = [np.kron(np.eye(size // width), np.ones((1, width)))[:, :periods] for width in _widths(size)]
    levels = [own[own.any(axis=1)] for own in levels]

    def total(logits: np.ndarray) -> float:
        shares = np.exp(logits - logits.max())
        gram = sum(share * own.T @ own for share, own in zip(shares / shares.sum(), levels, strict=True))
        return float(np.trace(rows @ np.linalg.solve(gram, rows.T)))

    found = minimize(total, np.zeros(len(levels)), method="L-BFGS-B", options={"maxiter": 60})
    return float(np.sqrt(found.fun / len(rows)))


def _widths(size: int) -> list[int]:
    return [2**power for power in range(int(np.log2(size)) + 1)]


def run(kind: str, periods: int, limits: Limits) -> None:
    """One line of the table."""
    rows = queries(kind, periods)
    schema = rs.Schema(month=rs.Integer(0, periods - 1))
    work = rs.linear(schema, ("month",), rows)
    plan = rs.plan(work, COST, over="month")
    bound = rs.bounds.dual(work)
    alone = float(np.sqrt(np.sum(rows * rows) / len(rows)))
    renewed = [rs.plan(work, COST, over="month", renew=each).rmse for each in (12, "doubling")]
    ratio = plan.total_variance / bound
    limits.check(ratio <= 1.001, f"{kind}, {periods}: {ratio:.5f} of the bound, not 1.001")
    figures = (np.sqrt(bound / len(rows)), ratio, alone, tree_error(rows), *renewed)
    words = [f"{figure:.4f}" for figure in figures]
    print(LINE.format(kind, periods, f"{plan.rmse:.4f}", words[0], f"{ratio:.5f}", *words[2:]), flush=True)


def main() -> int:
    """Print the table; 1 where a limit is not kept."""
    limits = Limits()
    head = ("periods", "instalments", "offline", "ratio", "independent", "binary tree", "renewed", "doubling")
    print(LINE.format("rmse of", *head))
    for kind in ("running totals", "moving averages", "year to date"):
        for periods in (12, 64, 256):
            run(kind, periods, limits)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
