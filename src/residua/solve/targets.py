"""The certified solver for accuracy first: least privacy cost that meets a variance target for every query.

For queries `W = L R` (`R` with independent rows), any positive definite K gives the mechanism `X = R'KR`
with cost `max_i r_i'Kr_i` and variances `l_j'K^-1 l_j`. Scaled until every target holds, its cost is an
upper bound (S-007). Weights `u` on the queries and `v` on the cells give the lower bound
`|| diag(u)^1/2 W diag(v)^1/2 ||_*^2 / (sum u c * sum v)` (S-006). The norm is the fidelity of
`P = L'diag(u)L` and `Q = R diag(v) R'`, jointly concave; K is the geometric mean of P and Q^-1.
"""

from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Flags, Indices
from residua.errors import NotConverged
from residua.linalg.grams import jacobi_svd
from residua.linalg.matrices import graded_root
from residua.solve.cells import GRADED, SMALLEST_RATIO, UNIT_ROUNDOFF
from residua.solve.newton import Bracketed, LogLandscape, Progress, Search

FIXED_POINT_STEPS = 3


@dataclass(frozen=True, slots=True)
class TargetSolution(Bracketed):
    """A mechanism that meets every target, and a bracket on the least privacy cost that can.

    `strategy` is B, shape (rank, cells): measuring `Bx` with independent noise of variance 1 meets every
    target and costs `upper`. `query_weights` (u, sum u c = 1) and `cell_weights` (v, sum 1) prove `lower`.
    `variances` are those of all queries, rounded up; the largest ratio to its target is 1.
    """

    strategy: Array
    cell_weights: Array
    query_weights: Array
    variances: Array
    lower: float
    upper: float
    evaluations: int


def solve_targets(
    coefficients: Array,
    root: Array,
    targets: Array,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> TargetSolution:
    """The cheapest mechanism found that answers query j with variance at most `targets[j]`.

    The queries are `coefficients @ root`: L, shape (queries, rank), times R, shape (rank, cells), with
    independent rows. Deterministic; the caller checks the gap with `require`. `progress` is called with the
    number of evaluations so far and the gap.
    """
    support = np.flatnonzero(np.any(root != 0, axis=0))
    rows = coefficients / np.sqrt(targets)[:, None]  # from here on every target is 1
    asked = np.flatnonzero(np.any(rows != 0, axis=1))
    search = _TargetSearch(rows[asked], root[:, support], tolerance, progress)
    equal = [np.full(length, 1 / length) for length in (len(asked), len(support))]
    search.newton(search.fixed_point(np.concatenate(equal), FIXED_POINT_STEPS))
    return search.solution(targets, asked, support, root.shape[1])


@dataclass(frozen=True, slots=True)
class Sight(LogLandscape):
    """The landscape of `-2 log || diag(u)^1/2 L R diag(v)^1/2 ||_*` at one (u, v), and its bracket.

    With K = F'F: `cell_directions` is F R, shape (rank, cells), `row_directions` is L F^-1, shape
    (queries, rank). `slopes` are the variances, then the cell costs, both divided by the norm.
    `deviations` are the queries' standard deviations, rounding included wherever `upper` is finite.
    """

    cell_directions: Array
    row_directions: Array
    scales: Array
    slopes: Array
    lower: float
    upper: float
    deviations: Array

    def bend_times(self, direction: Array) -> Array:
        """For the landscape over (u, v), shape (queries + cells,)."""
        queries = len(self.row_directions)
        y, z = self.row_directions, self.cell_directions
        inner = (y.T * direction[:queries]) @ y - (z * direction[queries:]) @ z.T
        inner /= self._sums()
        rows = np.einsum("ja,ja->j", y @ inner, y)
        cells = np.einsum("ai,ai->i", z, inner @ z)
        return np.asarray(np.concatenate([rows, -cells]) / self.scales.sum())

    def bend_diagonal(self) -> Array:
        """Its diagonal, shape (queries + cells,)."""
        rows, cells = self.row_directions**2, self.cell_directions**2
        over = 1.0 / self._sums()
        parts = [np.einsum("ja,ja->j", rows @ over, rows), np.einsum("ai,ai->i", cells, over @ cells)]
        return np.asarray(np.concatenate(parts) / self.scales.sum())

    def _sums(self) -> Array:
        return np.asarray(self.scales[:, None] + self.scales[None, :])


def sight_of(rows: Array, root: Array, u: Array, v: Array) -> Sight:
    """Bracket and landscape at positive weights u (queries) and v (cells), for targets of 1.

    With triangles `P = A'A` and `Q = C'C` the norm is that of `A C' = left diag(s) right'`, and
    `F = diag(s)^-1/2 left' A` has the inverse `C' right diag(s)^-1/2`: nothing is squared or inverted.
    """
    queries, (rank, cells) = len(rows), root.shape
    a, c, (left, scales, right) = _factors(rows, root, np.sqrt(u), np.sqrt(v))
    half = (left.T @ a) / np.sqrt(scales)[:, None]
    back = (right @ c).T / np.sqrt(scales)
    z, y = half @ root, rows @ back
    lengths = np.linalg.norm(c, axis=0)  # of the rows of R diag(v)^1/2
    rounding = 8 * (queries + cells + rank) * UNIT_ROUNDOFF
    error = rounding * float(np.linalg.norm(a, axis=0) @ lengths)
    proven = float(np.sum(np.maximum(scales - error, 0.0)))
    lower = proven**2 / (float(u.sum()) * float(v.sum())) * (1 - rounding)
    lost, drift = _rounding_of(half, back, lengths, scales)
    unit = (rank + 4) * UNIT_ROUNDOFF
    variances, costs = np.einsum("ja,ja->j", y, y), np.einsum("ai,ai->i", z, z)
    hidden = unit * (np.abs(rows) @ np.linalg.norm(back, axis=1)) + np.abs(y) @ drift
    deviations = (np.sqrt(variances) + hidden) / (1 - lost)
    columns = np.sqrt(costs) + unit * (np.linalg.norm(half, axis=0) @ np.abs(root))
    upper = float(deviations.max() * columns.max()) ** 2 * (1 + rounding) if lost < 0.5 else np.inf
    slopes = np.concatenate([variances, costs]) / float(scales.sum())
    return Sight(z, y, scales, slopes, lower, upper, deviations)


def _factors(
    rows: Array, root: Array, row_scales: Array, cell_scales: Array
) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """Triangles A and C with `A'A = L'diag(u)L`, `C'C = R diag(v)R'`, and the decomposition of `A C'`."""
    a = np.asarray(np.linalg.qr(row_scales[:, None] * rows, mode="r"))
    c = np.asarray(np.linalg.qr((root * cell_scales).T, mode="r"))
    left, scales, right = np.linalg.svd(a @ c.T, full_matrices=False)
    if scales[-1] <= GRADED * scales[0]:  # vanishing weights: keep the digits of what depends on them alone
        a, c = graded_root(rows, row_scales), graded_root(root.T, cell_scales)
        left, scales, right = jacobi_svd(a @ c.T)
    return a, c, (left, np.maximum(scales, SMALLEST_RATIO * scales[0]), right)


def _rounding_of(half: Array, back: Array, lengths: Array, scales: Array) -> tuple[float, Array]:
    """How far `half @ back` is from the identity, where 1/2 means too far for a bound, and how much each row
    of `half @ root` can drift, as what a standard deviation made of it loses (S-007).
    """
    unit = (half.shape[1] + 4) * UNIT_ROUNDOFF
    drift = 2 * unit * (np.abs(half) @ lengths)
    if float(np.sum(drift / np.sqrt(scales))) >= 1:
        return 0.5, drift
    product = float(np.linalg.norm(half, axis=0) @ np.linalg.norm(back, axis=1))
    lost = float(np.linalg.norm(half @ back - np.eye(len(half)))) + 2 * unit * product
    return min(lost, 0.5), drift * float(np.sqrt(np.sum(1 / scales)))


class _TargetSearch(Search):
    """Steps first `u <- u * variance`, `v <- v * cost`, each part with sum 1, then Newton's."""

    def __init__(self, rows: Array, root: Array, tolerance: float, progress: Progress | None) -> None:
        super().__init__(tolerance, progress)
        self.rows, self.root = rows, root

    def look(self, weights: Array) -> Sight:
        u, v = np.split(weights, [len(self.rows)])
        seen = sight_of(self.rows, self.root, u, v)
        self.keep(seen.lower, weights, seen.upper, seen)
        return seen

    def solution(self, targets: Array, asked: Indices, support: Indices, cells: int) -> TargetSolution:
        deviations = self.best.deviations
        strategy = np.zeros((len(self.best.scales), cells))
        strategy[:, support] = deviations.max() * self.best.cell_directions
        u, v = np.split(self.weights, [len(self.rows)])
        query_weights, cell_weights = np.zeros(len(targets)), np.zeros(cells)
        query_weights[asked] = u / u.sum() / targets[asked]
        cell_weights[support] = v / v.sum()
        variances = np.zeros(len(targets))
        variances[asked] = targets[asked] * (deviations / deviations.max()) ** 2
        return TargetSolution(
            strategy, cell_weights, query_weights, variances, self.lower, self.upper, self.evaluations
        )


TOLERANCE = 1e-7  # gap to which each level is solved
LEEWAY = 3e-7  # by which all allowances may grow at each level, so that rounding never makes them contradict
MOST_RISES = 30  # Newton steps for one level
MOST_LEVELS = 60  # below them the profile stays as the last level left it
BOUND_BY = 1e-3  # of the mean weight of the cells in question: heavier cells hold the level up


def refined(coefficients: Array, root: Array, targets: Array, solution: TargetSolution) -> TargetSolution:
    """The solution with the least sorted profile; its privacy cost is the given one's, to 2e-5 at most."""
    seen = np.flatnonzero(np.any(root != 0, axis=0))
    columns = root[:, seen]
    least = np.max((coefficients @ columns) ** 2 / targets[:, None], axis=0)  # X_ii >= q_i^2 / c
    allowed = np.full(len(seen), solution.upper)
    found = solution.strategy[:, seen]
    open_cells = solution.cell_weights[seen] <= BOUND_BY / len(seen)
    for _ in range(MOST_LEVELS):
        if not open_cells.any():
            break
        allowed, found, weights = _level(coefficients, columns, targets, allowed, open_cells, least)
        share = weights[open_cells].mean()
        held = open_cells & (weights >= BOUND_BY * share)
        held |= open_cells & (weights == weights[open_cells].max())
        open_cells &= ~held
    strategy = np.zeros((len(found), root.shape[1]))
    strategy[:, seen] = found
    return _renewed(coefficients, root, targets, solution, strategy)


def _level(
    coefficients: Array,
    columns: Array,
    targets: Array,
    allowed: Array,
    open_cells: Flags,
    least: Array,
) -> tuple[Array, Array, Array]:
    """Allowances with the least common one of the open cells; a mechanism within them; its cell weights.

    Newton steps from below: the share `s` of the open cells in the weights and the cost `b > 1` of the
    present allowances show that the level must rise by a factor of at least `1 + (b - 1) / s`.
    """
    level = float(least[open_cells].max())
    for _ in range(MOST_RISES):
        allowances = np.where(open_cells, level, allowed)
        scale = np.sqrt(allowances)
        tried = solve_targets(coefficients, columns / scale, targets, TOLERANCE)
        weights = tried.cell_weights
        if tried.upper <= 1 + LEEWAY:
            return allowances * max(tried.upper, 1.0), tried.strategy * scale, weights
        level *= 1 + (tried.upper - 1) / float(weights[open_cells].sum())
    raise NotConverged(
        f"a level of the privacy profile was not found in {MOST_RISES} steps; plan without refine",
        lower=tried.lower,
        upper=tried.upper,
    )


def _renewed(
    coefficients: Array, root: Array, targets: Array, solution: TargetSolution, strategy: Array
) -> TargetSolution:
    """The solution with another strategy, which is scaled until every target holds."""
    answers = np.linalg.lstsq(strategy.T, (coefficients @ root).T, rcond=None)[0]  # (rank, queries)
    variances = np.sum(answers**2, axis=0)
    worst = float(np.max(variances / targets)) * (1 + 1e-12)
    cost = float(np.max(np.sum(strategy**2, axis=0))) * worst
    return replace(solution, strategy=strategy * np.sqrt(worst), variances=variances / worst, upper=cost)
