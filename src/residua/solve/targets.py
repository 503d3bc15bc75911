"""The certified solver for accuracy first: least privacy cost that meets a variance target for every query.

For queries `W = L R` (`R` with independent rows) and targets `c`, any positive definite K gives the
mechanism `X = R'KR` with cost `max_i r_i'Kr_i` and variances `l_j'K^-1 l_j`. Scaled until every target
holds, its cost is an upper bound (S-007); from weights `u` on the queries (`sum u c = 1`) and `v` on the
cells (`sum v = 1`), `|| diag(u)^1/2 W diag(v)^1/2 ||_*^2` is a lower bound (S-006). The nuclear norm is the
fidelity of `P = L'diag(u)L` and `Q = R diag(v) R'`, jointly concave, and K is their geometric mean.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from residua.solve.bracket import UNIT_ROUNDOFF
from residua.solve.quasi_newton import Point, descend
from residua.solve.solution import Solution

Array = NDArray[np.float64]

PATIENCE = 25
MOST_EVALUATIONS = 2000
FIXED_POINT_STEPS = 10


@dataclass(frozen=True, slots=True)
class TargetSolution:
    """A mechanism that meets every target, and a bracket on the least privacy cost that can.

    `strategy` is B, shape (rank, cells): measuring `Bx` with independent noise of variance 1 meets every
    target exactly and costs `upper`. `query_weights` (u, sum u c = 1) and `cell_weights` (v, sum 1) prove
    `lower`. `variances` are those of all queries; a query with `variances == targets` binds.
    """

    strategy: Array
    cell_weights: Array
    query_weights: Array
    variances: Array
    lower: float
    upper: float
    evaluations: int

    @property
    def gap(self) -> float:
        """Relative width of the bracket on the privacy cost."""
        return self.upper / self.lower - 1.0

    def require(self, tolerance: float, what: str = "the target solver") -> "TargetSolution":
        """Itself, if its gap is at most `tolerance`; otherwise raise NotConverged with the bracket."""
        bare = Solution(self.strategy, self.cell_weights, self.lower, self.upper, self.evaluations)
        bare.require(tolerance, what)
        return self


def solve_targets(
    coefficients: Array, root: Array, targets: Array, tolerance: float = 1e-5
) -> TargetSolution:
    """The cheapest mechanism found that answers query j with variance at most `targets[j]`.

    The queries are `coefficients @ root`: L, shape (queries, rank), times R, shape (rank, cells), with
    independent rows. Deterministic; the caller checks the gap with `require`.
    """
    support = np.flatnonzero(np.any(root != 0, axis=0))
    search = _TargetSearch(coefficients / np.sqrt(targets)[:, None], root[:, support], tolerance)
    queries, cells = len(targets), len(support)
    logs = np.concatenate([np.full(queries, -np.log(queries)), np.full(cells, -np.log(cells))])
    while search.keep_going():
        before = search.gap
        search.restart()
        logs = descend(search.evaluate, logs, search.keep_going)
        if search.gap > 0.9 * before:
            break
        logs = search.fixed_point(logs)
    return search.solution(targets, support, root.shape[1])


@dataclass(frozen=True, slots=True)
class _Sight:
    """One evaluation: the nuclear norm and its slopes, and the bracket they prove."""

    norm: float
    row_slopes: Array
    cell_slopes: Array
    half: Array  # F with K = F'F
    lower: float
    upper: float


def _sight(rows: Array, root: Array, u: Array, v: Array) -> _Sight:
    """Bracket at weights u (queries, sum 1 for unit targets) and v (cells, sum 1)."""
    rank = root.shape[0]
    queries, cells = len(u), len(v)
    p = (rows.T * u) @ rows
    q = (root * v) @ root.T
    ridge_p = UNIT_ROUNDOFF * 4 * (queries + rank) * float(np.trace(p))
    ridge_q = UNIT_ROUNDOFF * 4 * (cells + rank) * float(np.trace(q))
    p[np.diag_indices(rank)] += ridge_p
    q[np.diag_indices(rank)] += ridge_q
    factor = scipy.linalg.cholesky(p, lower=True)  # P = C C'
    squares, turn = np.linalg.eigh(factor.T @ q @ factor)
    error = UNIT_ROUNDOFF * 8 * rank * float(np.sum(np.abs(squares)))
    scales = np.sqrt(np.maximum(squares, error))
    half = (turn / np.sqrt(scales)).T @ factor.T
    inverse_half = scipy.linalg.solve_triangular(factor, turn * np.sqrt(scales), lower=True, trans="T")
    cell_slopes = np.einsum("ai,ai->i", z := half @ root, z)
    row_slopes = np.einsum("ja,ja->j", y := rows @ inverse_half, y)
    proven = float(np.sqrt(np.maximum(squares - error, 0.0)).sum())
    # ||(P+e)^1/2 Q^1/2||_* exceeds ||P^1/2 Q^1/2||_* by at most sqrt(e) tr Q^1/2 (S-006)
    allowance = np.sqrt(ridge_p * rank * np.trace(q)) + np.sqrt(ridge_q * rank * np.trace(p))
    rounding = 1 + 16 * (queries + cells + rank) * UNIT_ROUNDOFF
    lower = max(proven - float(allowance), 0.0) ** 2 / rounding
    upper = float(cell_slopes.max() * row_slopes.max()) * rounding
    return _Sight(float(scales.sum()), row_slopes, cell_slopes, half, lower, upper)


class _TargetSearch:
    """The best bounds seen so far; rows are scaled so that every target is 1."""

    def __init__(self, rows: Array, root: Array, tolerance: float) -> None:
        self.rows, self.root, self.tolerance = rows, root, tolerance
        self.evaluations = 0
        self.lower = 0.0
        self.lower_weights = (np.ones(len(rows)), np.ones(root.shape[1]))
        self.best: _Sight | None = None
        self.gaps: list[float] = []

    def look(self, u: Array, v: Array) -> _Sight:
        self.evaluations += 1
        seen = _sight(self.rows, self.root, u, v)
        if seen.lower > self.lower:
            self.lower, self.lower_weights = seen.lower, (u, v)
        if self.best is None or seen.upper < self.best.upper:
            self.best = seen
        self.gaps.append(self.gap)
        return seen

    def evaluate(self, logs: Array) -> Point:
        """The negative log of the squared norm at normalised weights, for the quasi-Newton steps."""
        u, v = self._weights(logs)
        seen = self.look(u, v)
        gradient = np.concatenate(
            [u * (1 - seen.row_slopes / seen.norm), v * (1 - seen.cell_slopes / seen.norm)]
        )
        return Point(-2 * np.log(seen.norm), gradient, np.concatenate([u, v]))

    def fixed_point(self, logs: Array) -> Array:
        """Logs after some steps `u <- u * variance`, `v <- v * privacy`, which leave a stall."""
        for _ in range(FIXED_POINT_STEPS):
            if self.gap <= self.tolerance:
                break
            u, v = self._weights(logs)
            seen = self.look(u, v)
            logs = logs + np.log(np.concatenate([seen.row_slopes, seen.cell_slopes]) / seen.norm)
        return logs

    def _weights(self, logs: Array) -> tuple[Array, Array]:
        queries = len(self.rows)
        u, v = (np.exp(part - part.max()) for part in (logs[:queries], logs[queries:]))
        return u / u.sum(), v / v.sum()

    @property
    def gap(self) -> float:
        if self.best is None or self.lower <= 0:
            return np.inf
        return self.best.upper / self.lower - 1.0

    def restart(self) -> None:
        self.gaps.clear()

    def keep_going(self) -> bool:
        if self.gap <= self.tolerance or self.evaluations >= MOST_EVALUATIONS:
            return False
        return len(self.gaps) <= PATIENCE or self.gaps[-1] <= 0.5 * self.gaps[-1 - PATIENCE]

    def solution(self, targets: Array, support: NDArray[np.intp], cells: int) -> TargetSolution:
        if self.best is None:
            raise ValueError("no evaluation was made")
        most = float(self.best.row_slopes.max())
        strategy = np.zeros((self.root.shape[0], cells))
        strategy[:, support] = np.sqrt(most) * (self.best.half @ self.root)
        u, v = self.lower_weights
        cell_weights = np.zeros(cells)
        cell_weights[support] = v
        variances = targets * self.best.row_slopes / most
        return TargetSolution(
            strategy, cell_weights, u / targets, variances, self.lower, self.best.upper, self.evaluations
        )
