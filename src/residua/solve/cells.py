"""What a solver returns: a mechanism, and the proof of how good it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from residua._arrays import Array, Indices
from residua.linalg.folding import Fold
from residua.linalg.grams import jacobi_svd
from residua.linalg.matrices import independent_rows
from residua.solve.newton import Bracketed, LogLandscape, Progress, Search


@dataclass(frozen=True, slots=True)
class Solution(Bracketed):
    """A mechanism for one set of queries, with a bracket on the best one there is.

    `strategy` is B, shape (rank, cells): measuring `Bx` with independent noise of variance 1 is the
    mechanism with privacy matrix `X = B'B`; it is scaled so that the cost `max_i X_ii` is 1, and its
    total weighted variance is `upper`.
    `cell_weights` is the dual point v, shape (cells,), sum 1, that proves `lower`; a good start for a
    similar problem. Both bounds are on the total weighted variance at privacy cost 1.
    """

    strategy: Array
    cell_weights: Array
    lower: float
    upper: float
    evaluations: int


WHOLE = (slice(None),)  # rows that are one group
UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2

GRADED = 1e-8  # ratio of the smallest to the largest t below which normwise accuracy is not enough
LARGEST_DOUBT = 1e-3  # above which columns are not scaled to one length
SMALLEST_RATIO = 1e-60  # of the smallest to the largest t: its cube must not underflow


@dataclass(frozen=True, slots=True)
class Bracket(LogLandscape, Bracketed):
    """Bounds on the optimum from one evaluation, and what a next step needs.

    `scales` is t, shape (rank,), `trace` its sum; `directions` is Z = U'R, shape (rank, cells); `slopes` is
    `r_i' K r_i / trace`, shape (cells,), the slope of `2 log trace`: its mean under v is 1, and at the
    optimum (sum v = 1) none is above 1. `blur` is the part of the relative gap that rounding alone causes.
    `levelled` if `upper` is reached by the strategy with every column scaled to length 1 (S-010). `groups`
    are the rows of the directions that are decomposed together: all, but for folded cells (S-012).
    """

    lower: float
    upper: float
    trace: float
    scales: Array
    directions: Array
    slopes: Array
    blur: float
    levelled: bool = False
    groups: tuple[slice, ...] = WHOLE

    def bend_times(self, direction: Array) -> Array:
        """For `-2 log trace` as a function of v (S-005)."""
        found = np.zeros(len(direction))
        for group in self.groups:
            z = self.directions[group]
            inner = self._coupling(self.scales[group]) * ((z * direction) @ z.T)
            found += np.einsum("ai,ai->i", z, inner @ z)
        return found

    def bend_diagonal(self) -> Array:
        """Its diagonal, shape (cells,)."""
        found = np.zeros(self.directions.shape[1])
        for group in self.groups:
            squares = self.directions[group] ** 2
            found += np.einsum("ai,ai->i", squares, self._coupling(self.scales[group]) @ squares)
        return found

    def _coupling(self, t: Array) -> Array:
        return np.asarray(1.0 / (self.trace * t[:, None] * t[None, :] * (t[:, None] + t[None, :])))

    def strategy(self) -> Array:
        """The mechanism that reaches `upper`: B, shape (rank, cells), with max_i (B'B)_ii = 1."""
        lengths = self.slopes if self.levelled else self.slopes.max()
        rows = self.directions / np.sqrt(self.scales * self.trace)[:, None]
        return np.asarray(rows / np.sqrt(lengths))


def bracket(
    root: Array, weights: Array, *, precise: bool = False, groups: tuple[slice, ...] = WHOLE
) -> Bracket:
    """Certified bounds on the optimum from cell weights v (positive, shape (cells,)).

    `root` is R, shape (rank, cells). One symmetric eigendecomposition of size rank; with
    `precise=True` a singular value decomposition instead, which resolves `t` down to 1e-14 of the
    largest (below that where rows differ in length) while squaring, the default, stops near 1e-7.
    Where the smallest `t` is not resolved, `upper` is infinite. Rows of different `groups` never meet (S-012,
    S-013), and have an eigendecomposition each.
    """
    rank, cells = root.shape
    found = [(_singular if precise else _squared)(root[group], weights) for group in groups]
    scales, proven = _joined([each[1] for each in found]), _joined([each[2] for each in found])
    floors = _joined([np.full(len(each[1]), each[3]) for each in found])
    floored = np.maximum(scales, floors)  # keeps the slopes finite where there is no upper bound
    lefts, doubt = [each[0] for each in found], max(each[4] for each in found)
    directions = _joined([left.T @ root[group] for left, group in zip(lefts, groups, strict=True)])
    trace = float(floored.sum())
    slopes = np.einsum("ai,ai->i", directions, directions / (trace * floored)[:, None])
    rounding = 8 * (rank + cells) * UNIT_ROUNDOFF
    lower = float(proven.sum()) ** 2 / float(weights.sum()) * (1 - rounding)
    upper = np.inf
    if (scales > floors).all():
        upper = _reached(root, weights, lefts, groups, scales, trace * slopes) * (1 + rounding)
    level = np.inf
    full = all(len(root[group]) == np.count_nonzero(root[group].any(axis=0)) for group in groups)
    if full and doubt < LARGEST_DOUBT and slopes.min() > 0:
        level = _reached_levelled(weights, scales, directions, groups, trace * slopes, doubt) * (1 + rounding)
    blur = 2 * (trace - float(proven.sum())) / trace
    return Bracket(lower, min(upper, level), trace, floored, directions, slopes, blur, level < upper, groups)


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


Decomposed = tuple[Array, Array, Array, float, float]
"""U, t, a lower bound on every t, what t must exceed to be resolved, and a bound on how far the computed
`D^-1/2 Z V Z' D^-3/2` is from one (S-010)."""


def _squared(root: Array, weights: Array) -> Decomposed:
    """The decomposition of `R diag(v) R'`."""
    rank, cells = root.shape
    squares, left = np.linalg.eigh((root * weights) @ root.T)
    error = UNIT_ROUNDOFF * ((cells + 4) * float(np.sum(np.abs(squares))) + 4 * rank * float(squares[-1]))
    scales = np.sqrt(np.maximum(squares, 0.0))
    doubt = 3 * error / float(squares[0]) if squares[0] > 0 else np.inf
    return left, scales, np.sqrt(np.maximum(squares - error, 0.0)), float(np.sqrt(error)), doubt


def _singular(root: Array, weights: Array) -> Decomposed:
    """The same from the singular values of `R diag(v)^1/2`.

    Where they spread widely, by Jacobi rotations, so that a light query keeps its own digits in the strategy
    beside a heavy one.
    """
    rank, cells = root.shape
    scaled = root * np.sqrt(weights)
    left, scales, _ = np.linalg.svd(scaled, full_matrices=False)
    error, doubt = 4 * (rank + cells) * UNIT_ROUNDOFF * float(scales[0]), np.inf
    if scales[-1] > GRADED * scales[0]:
        doubt = 6 * error / float(scales[-1]) * math.sqrt(scales[0] / scales[-1])
    else:
        left, scales, _ = jacobi_svd(scaled)
    return left, scales, np.maximum(scales - error, 0.0), SMALLEST_RATIO * float(scales[0]), doubt


def _reached(
    root: Array,
    weights: Array,
    lefts: Sequence[Array],
    groups: Sequence[slice],
    scales: Array,
    costs: Array,
) -> float:
    """What the strategy made of these U and t reaches, rounding of `U'R` included (S-003).

    Infinite where rounding could have made the rows of the strategy dependent.
    """
    unit = (len(root) + 4) * UNIT_ROUNDOFF
    hidden, drifts = np.zeros(len(weights)), []  # (cells,), (rank,)
    for left, group in zip(lefts, groups, strict=True):
        own = root[group]
        hidden += unit * (np.sqrt(np.sum(left**2 / scales[group], axis=1)) @ np.abs(own))
        drifts.append(2 * unit * (np.abs(left).T @ np.sqrt(own**2 @ weights)))
    cost = float(np.max((np.sqrt(costs) + hidden) ** 2))
    drift = _joined(drifts)
    if float(np.sum(drift / scales)) >= 1:
        return np.inf
    trace = float(np.sum(scales) + 2 * np.sum(drift) + (drift @ drift) * np.sum(1 / scales))
    return trace * cost


def _reached_levelled(
    weights: Array, scales: Array, directions: Array, groups: Sequence[slice], costs: Array, doubt: float
) -> float:
    """What the same strategy reaches with its columns scaled to length 1, rounding included (S-010)."""
    stretch = weights * np.sqrt(costs)
    sizes = [
        float(np.linalg.norm((directions[group] * stretch) @ directions[group].T / scales[group] ** 1.5))
        for group in groups
    ]
    squares = directions**2 @ stretch
    unit = 2 * (len(weights) + 4) * UNIT_ROUNDOFF
    rounded = unit * math.sqrt(float(squares.sum()) * float(np.sum(squares / scales**3)))
    return ((math.hypot(*sizes) + rounded) / (1 - doubt)) ** 2


def _levelled(root: Array, basis: Array, seen: Bracket) -> tuple[Array, float]:
    """The strategy of a bracket with columns scaled to length 1 and projected on the row space, a few times.

    It costs 1; and what it reaches, worked out from the matrix itself, rounding included (S-010). `basis` has
    orthonormal columns that span the rows of `root`.
    """
    rows = seen.directions / np.sqrt(seen.scales)[:, None]
    for _ in range(LEVELLINGS):
        lengths = np.linalg.norm(rows, axis=0)
        inner = (rows / np.where(lengths > 0, lengths, 1.0)) @ basis  # (rank, rank)
        rows = inner @ basis.T
    rows /= np.sqrt(np.max(np.sum(rows**2, axis=0)))
    inner = rows @ basis
    try:
        inverse = np.linalg.inv(inner)
    except np.linalg.LinAlgError:
        return rows, np.inf
    images = root @ basis @ inverse
    unit = 4 * (sum(root.shape) + 4) * UNIT_ROUNDOFF
    size, stretch = float(np.linalg.norm(images)), float(np.linalg.norm(inverse))
    missed = float(np.linalg.norm(images @ rows - root)) + unit * size * float(np.linalg.norm(rows))
    upper = (size + missed * stretch) ** 2 * (1 + 2 * unit) if missed * stretch < 1e-3 * size else np.inf
    return rows, upper


DEFAULT_TOLERANCE = 1e-6
BLUR_SHARE = 0.25  # of the tolerance: above this, rounding is in the way and brackets are made precisely
APPROACHES = 12  # steps before Newton's, at most
LEVELLINGS = 3
NEAR = 10.0  # times the tolerance: from weights farther than that no strategy comes within it
WORTHWHILE = 0.55  # of the gap that such a step may leave; above, Newton's are better
FEW_CELLS = 128  # up to which the weights of every second cell are no help
COARSE_GAP = 1e-3  # to which those are found


def solve_cells(
    root: Array,
    tolerance: float = DEFAULT_TOLERANCE,
    start: Array | None = None,
    progress: Progress | None = None,
    groups: tuple[slice, ...] = WHOLE,
    exact: bool = False,
) -> Solution:
    """The best mechanism found for queries with gram `root' root`, with its certified bracket.

    `root` is (rank, cells) with independent rows. `start` are cell weights of a similar problem, or `exact`
    ones of this, to be proved as they are. Rows of different `groups` never meet (S-012, S-013).
    Deterministic. Stops when the relative gap is at most `tolerance`, or when no step makes progress any
    more: the caller checks with `solution.require(tolerance)`. `progress` is called with the number of
    evaluations so far and the gap.
    """
    support = np.flatnonzero(np.any(root != 0, axis=0))
    if not len(support):
        raise ValueError("the queries are all zero: there is nothing to measure")
    exponent = int(np.frexp(np.abs(root).max())[1])  # squares must not underflow; a power of two is exact
    search = _Search(np.ldexp(root[:, support], -exponent), tolerance, progress, groups)
    uniform = np.full(len(support), 1.0 / len(support))
    near = _coarse_weights(search.root, groups, tolerance) if start is None else start[support]
    weights = uniform if near is None else near if exact else _usable(near, uniform)
    weights = search.approach(weights)
    if search.keep_going():
        search.newton(weights)
    return search.solution(support, root.shape[1], exponent)


def stacked(roots: Sequence[Array]) -> tuple[Array, tuple[slice, ...]]:
    """Rows that never meet, one below the other, and where those of each root are."""
    ends = np.cumsum([0, *map(len, roots)]).tolist()
    return np.concatenate(roots), tuple(slice(*each) for each in pairwise(ends))


def _coarse_weights(root: Array, groups: Sequence[slice], tolerance: float) -> Array | None:
    """Weights from the same problem on every second cell, those between halfway; None where that is no help.

    Neighbouring cells are mostly alike, and half the cells take an eighth of the work. Only a start: where
    they are not alike it costs little, and proves nothing.
    """
    cells = root.shape[1]
    if cells <= FEW_CELLS or 2 * max(len(root[group]) for group in groups) <= cells:
        return None
    fewer, own = stacked([independent_rows(root[group][:, ::2]) for group in groups])
    coarse = solve_cells(fewer, max(COARSE_GAP, tolerance), groups=own).cell_weights
    return np.interp(np.arange(cells), np.arange(0, cells, 2), coarse)


def _usable(start: Array, uniform: Array) -> Array:
    """`start`, normalised and mixed with a little of the uniform weights so that no cell is cut off."""
    positive = np.where(np.isfinite(start) & (start > 0), start, 0.0)
    total = positive.sum()
    if not 0 < total < np.inf:
        return uniform
    return np.asarray(0.999 * positive / total + 0.001 * uniform)


class _Search(Search):
    """Newton steps on `sum v - 2 log tr S`, whose optimum has sum v = 1."""

    def __init__(
        self, root: Array, tolerance: float, progress: Progress | None, groups: tuple[slice, ...]
    ) -> None:
        super().__init__(tolerance, progress)
        self.root, self.precise, self.groups = root, False, groups
        self._basis: Array | None = None

    def look(self, weights: Array) -> Bracket:
        seen = bracket(self.root, weights, precise=self.precise, groups=self.groups)
        if not self.precise and (seen.blur > BLUR_SHARE * self.tolerance or seen.upper == np.inf):
            self.precise = True
            seen = bracket(self.root, weights, precise=True, groups=self.groups)
        self.keep(seen.lower, weights / weights.sum(), seen.upper, seen)
        return seen

    def level(self, seen: Bracket) -> None:
        """Keep the strategy of a bracket with its columns brought nearer to one length, if it is better."""
        rank, cells = self.root.shape
        if rank == cells or len(self.groups) > 1 or self.precise or not np.isfinite(seen.upper):
            return
        if self._basis is None:
            self._basis = np.linalg.qr(self.root.T)[0]
        found, upper = _levelled(self.root, self._basis, seen)
        if upper < self.upper:
            self.upper, self.best = upper, found
            self.gaps[-1] = self.gap

    def approach(self, weights: Array) -> Array:
        """Weights after steps that multiply each by its squared slope, as long as the gap shrinks by them.

        Where no two cells share a query one such step is exact: `S_ii / v_i` is then `v_i^-1/2` (S-011).
        """
        for at in range(APPROACHES):
            seen = self.look(weights)
            if self.gap > self.tolerance and float(weights @ (seen.slopes - 1) ** 2) < NEAR * self.tolerance:
                self.level(seen)
            weights = weights * seen.slopes**2
            weights = weights / weights.sum()
            slow = at > 1 and self.gaps[-1] > WORTHWHILE * self.gaps[-2]
            if slow or not self.keep_going():
                break
        return weights

    def solution(self, support: Indices, cells: int, exponent: int) -> Solution:
        """The best of both bounds, on all cells and for the root as it was before scaling."""
        local = self.best.strategy() if isinstance(self.best, Bracket) else self.best
        strategy = np.zeros((local.shape[0], cells))
        strategy[:, support] = local
        weights = np.zeros(cells)
        weights[support] = self.weights
        lower, upper = (math.ldexp(bound, 2 * exponent) for bound in (self.lower, self.upper))
        return Solution(strategy, weights, lower, upper, self.evaluations)


def solve_folded(
    fold: Fold,
    parts: Sequence[Array],
    tolerance: float = DEFAULT_TOLERANCE,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Solution:
    """The same for a gram that an exchange of cells leaves as it is, from roots of its parts (S-012).

    `parts` are square roots of full rank of `fold.parts(gram)`. A quarter of the work of all cells at once.
    """
    even, odd = parts
    root, groups = stacked([even, np.pad(odd, ((0, 0), (0, len(even) - len(odd))))])
    near = np.ones(len(even)) if start is None else fold.gathered(start)
    found = solve_cells(root / fold.lengths, tolerance, near, progress, groups)
    return replace(found, strategy=fold.rows(found.strategy), cell_weights=fold.spread(found.cell_weights))


RANK_RATIO = 1e-10


def solve_circulant(row: Array) -> Solution | None:
    """The optimum for the circulant gram with this first row, or None if it is not of full rank.

    `row` is (cells,), symmetric: row[i] == row[-i]. Costs one Fourier transform.
    """
    cells = len(row)
    squares = np.fft.fft(row).real  # eigenvalues of the gram
    largest = float(squares.max())
    if squares.min() <= RANK_RATIO * largest:
        return None
    error = 8 * np.log2(cells + 1) * UNIT_ROUNDOFF * float(np.linalg.norm(squares))
    scales = np.sqrt(squares)  # eigenvalues of S
    trace = float(scales.sum())
    low = float(np.sqrt(np.maximum(squares - error, 0.0)).sum())
    high = float(np.sqrt(squares + error).sum())
    half = np.fft.ifft(np.sqrt(scales * cells / trace)).real
    shift = np.subtract.outer(np.arange(cells), np.arange(cells)) % cells
    lower, upper = low**2 / cells, high**2 / cells * (1 + 8 * cells * UNIT_ROUNDOFF)
    return Solution(half[shift], np.full(cells, 1 / cells), lower, upper, 1)
