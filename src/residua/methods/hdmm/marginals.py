"""OPT_M and more: the best weights found for measured marginals that contain each other (claim H-023).

With one strategy per attribute fixed, a term on attributes S at weight `t` gives every residual inside S the
precision `t^2 / prod s_i`, the product over what S has more. Laplace noise allows a sum of weights of one,
Gaussian noise a sum of squares, for which the problem is convex, and often solved by a formula (claim H-027).
With plain cells for every attribute this is the paper's OPT_M.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from residua._arrays import Array, Flags, Subset
from residua._limits import (
    COUNTED_CELLS,
    COVERING_TERMS,
    DENSE_NUMBERS,
    EVERY_SUBSET,
    EXCHANGED_PAIRS,
    MARGINAL_TERMS,
)
from residua.answering.blocks import Memory, Placed
from residua.answering.nested import given, precisions
from residua.errors import Infeasible
from residua.linalg.matrices import subsets_of
from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.demand import Kernel, asked_by, closed_form, demands, lower_bound
from residua.privacy import NoiseLaw
from residua.privacy.budgets import unit_variance
from residua.solve.descent import downhill
from residua.solve.newton import quasi_newton
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Table, Workload

STEPS = 3_000
STEP_GAIN = 1e-10
FIRST_STEPS = 100  # that multiply, before those downhill
FEWEST_TERMS = 4  # of two attributes: any steps downhill weigh them as well, without loading scipy
FEW_TERMS, MOST_STARTS, FEW_STARTS = 300, 20, 3
NEGLIGIBLE = 1e-6  # of the largest weight: a term below it is dropped where nothing needs it
MOVES = 60
MOVE_GAIN = 1e-4  # relative; terms are exchanged until that gains less
MOST_AT_ONCE = 50  # exchanges that are made before the next steps downhill
CHUNK = 2_000  # exchanges that are looked at together
NOTHING = 1e-12  # of the largest precision: what rounding leaves of none


Move = tuple[int, int, int]
"""The two terms that go (one, twice, where only one goes) and the one that comes."""


@dataclass(frozen=True, eq=False)
class Weighing:
    """What every term gives every residual at weight 1, (terms, residuals), and the demand of each residual.

    `gives` is an array, or a sparse one where that would be too large; `terms` are
    their attributes; `asked` says which are tables' own.
    """

    gives: Any
    demand: Array
    law: NoiseLaw
    terms: Sequence[Subset]
    asked: Flags

    @cached_property
    def place(self) -> dict[Subset, int]:
        """The number of the term on some attributes."""
        return {term: at for at, term in enumerate(self.terms)}

    def value(self, weights: Array) -> tuple[float, Array]:
        """`cost^2 * sum(demand / precision)` whatever the scale of the weights, and its gradient.

        For Gaussian noise the cost counts once, as there it is a sum of squares.
        """
        precision = (weights * weights) @ self.gives
        if precision.min() <= 0:
            return math.inf, np.zeros_like(weights)
        total = float(np.sum(self.demand / precision))
        falling = -2.0 * weights * (self.gives @ (self.demand / precision**2))
        if self.law == "laplace":
            size = float(weights.sum())
            return size * size * total, 2 * size * total + size * size * falling
        size = float(np.sum(weights * weights))
        return size * total, 2 * weights * total + size * falling

    def lowest(self, start: Array) -> Array:
        """Where steps downhill end; those of Laplace noise are of a problem that is not convex (H-023)."""
        if self.law == "gaussian" or len(start) <= FEWEST_TERMS:
            return downhill(self.value, start, steps=STEPS, gain=STEP_GAIN)
        unit = self.value(start)[0]

        def scaled(weights: Array) -> tuple[float, Array]:
            value, slope = self.value(weights)
            return value / unit, slope / unit

        # Its longer memory and first step lead to better weights.
        ends = {"maxiter": STEPS, "maxfun": 4 * STEPS, "ftol": STEP_GAIN, "gtol": 1e-10, "maxcor": 15}
        return quasi_newton(scaled, start, bounds=[(0.0, np.inf)] * len(start), **ends)

    def by_term(self, weights: Array) -> dict[Subset, float]:
        """The weights that are not zero, by the attributes of their terms."""
        pairs = zip(self.terms, weights.tolist(), strict=True)
        return {term: weight for term, weight in pairs if weight > 0}

    def descended(self, start: Array) -> Array:
        """The weights that quasi-Newton steps reach, terms of weight zero staying so."""
        alive = np.flatnonzero(start > 0)
        small = Weighing(self.gives[alive], self.demand, self.law, (), self.asked[alive])
        found = small.lowest(start[alive] / start.max())
        result = np.zeros(len(start))
        result[alive] = found / found.max()
        pruned = np.where(result > NEGLIGIBLE, result, 0.0)
        return pruned if self.value(pruned)[0] <= (1 + STEP_GAIN) * self.value(result)[0] else result


def best_weights(problem: Weighing, progress: Progress | None = None) -> tuple[Array, float]:
    """The best weights found, scaled to cost 1, and the sum of demand over precision."""
    starts, tried = list(_starts(problem)), []
    for number, start in enumerate(starts):
        weights = problem.descended(start)
        if problem.law == "laplace":
            weights = _exchanged(problem, weights)
        tried.append((problem.value(weights)[0], weights))
        if progress is not None:
            progress("weighing marginals", (number + 1) / len(starts))
    value, best = min(tried, key=lambda each: each[0])
    return at_cost_one(problem.law, best), value


def at_cost_one(law: NoiseLaw, weights: Array) -> Array:
    """The weights scaled to cost 1."""
    return np.asarray(weights / np.linalg.norm(weights, 1 if law == "laplace" else 2))


def _starts(problem: Weighing) -> Iterator[Array]:
    """Near the optimum for Gaussian noise; else equal weights, what is asked alone, that optimum, random."""
    count = len(problem.terms)
    gaussian = replace(problem, law="gaussian")
    if problem.law == "gaussian":
        yield _multiplied(gaussian)
        return
    yield np.full(count, 1.0 / count)
    random = np.random.default_rng(0)
    yield np.where(problem.asked, 1.0, 1e-3 * random.random(count))
    yield np.maximum(gaussian.descended(_multiplied(gaussian)), 1e-4)
    for _ in range(MOST_STARTS if count <= FEW_TERMS else FEW_STARTS):
        yield random.random(count) ** 4 + 1e-4


def _multiplied(problem: Weighing) -> Array:
    """Weights for Gaussian noise after steps that multiply each square by the root of what more of it gains.

    They are those of A-optimal designs. Steps downhill alone can set a weight to zero, where the gradient in
    it vanishes, and leave it there; near the optimum they do not (claim H-023).
    """
    squares = np.full(len(problem.terms), 1.0 / len(problem.terms))
    for _ in range(FIRST_STEPS):
        precision = squares @ problem.gives
        squares = squares * np.sqrt(problem.gives @ (problem.demand / precision**2))
        squares = squares / squares.sum()
    return np.asarray(np.sqrt(squares))


def _exchanged(problem: Weighing, weights: Array) -> Array:
    """The weights after every exchange of terms that helps, each followed by steps downhill."""
    if not isinstance(problem.gives, np.ndarray):
        return weights
    value = problem.value(weights)[0]
    for _ in range(MOVES):
        moved = _best_moves(problem, weights)
        if moved is None:
            break
        trial = problem.descended(moved)
        found = problem.value(trial)[0]
        if found > (1 - MOVE_GAIN) * value:
            break
        weights, value = trial, found
    return weights


def _best_moves(problem: Weighing, weights: Array) -> Array | None:
    """The weights with the best exchanges of one or two terms for another made, as long as each helps."""
    moves = list(_moves(problem, weights))
    if not moves:
        return None
    precision = (weights * weights) @ problem.gives
    before = float(np.sum(problem.demand / precision))
    gains = np.empty(len(moves))
    for start in range(0, len(moves), CHUNK):
        part = slice(start, start + CHUNK)
        left, right, new = np.array(moves[part]).T
        after = precision - (weights[left] ** 2)[:, None] * problem.gives[left]
        pairs = (right != left) & (right != new)
        after = after - np.where(pairs, weights[right] ** 2, 0.0)[:, None] * problem.gives[right]
        own = np.where(pairs, weights[left] + weights[right], weights[left])
        already = weights[new]
        after = after + ((own + already) ** 2 - already**2)[:, None] * problem.gives[new]
        enough = after.min(axis=1) > NOTHING * precision.max()
        with np.errstate(divide="ignore", invalid="ignore"):
            gains[part] = before - np.where(enough, (problem.demand / after).sum(axis=1), np.inf)
    best = [moves[at] for at in np.argsort(-gains)[:MOST_AT_ONCE].tolist() if gains[at] > 0]
    return applied(problem, weights, best, _exchange)


def applied(
    problem: Weighing, weights: Array, moves: Iterable[Move], move: Callable[[Array, Move], None]
) -> Array | None:
    """The weights after moves, each made where it helps after those before; None where none does.

    `move` changes weights in place. No term is moved twice.
    """
    changed, value, touched = None, problem.value(weights)[0], set[int]()
    for terms in moves:
        if touched.isdisjoint(terms):
            trial = (weights if changed is None else changed).copy()
            move(trial, terms)
            found = problem.value(trial)[0]
            if found < value:
                changed, value = trial, found
                touched.update(terms)
    return changed


def _exchange(weights: Array, terms: Move) -> None:
    """Give the weights of the first two terms to the third."""
    old = sorted({*terms[:2]} - {terms[2]})
    weights[terms[2]] += weights[old].sum()
    weights[old] = 0.0


def _moves(problem: Weighing, weights: Array) -> Iterator[Move]:
    """Exchanges: a term for one with an attribute more or less, two terms for their union."""
    alive = np.flatnonzero(weights > 0).tolist()
    used = sorted({each for subset in problem.terms for each in subset})
    for at in alive:
        subset = set(problem.terms[at])
        for each in used:
            target = problem.place.get(tuple(sorted(subset ^ {each})))
            if target is not None:
                yield at, at, target
    if len(alive) * len(alive) > 2 * EXCHANGED_PAIRS:
        order = np.argsort(-weights[alive])[: int(math.sqrt(2 * EXCHANGED_PAIRS))]
        alive = [alive[number] for number in order.tolist()]
    yield from unions(problem, alive)


def unions(problem: Weighing, alive: Iterable[int]) -> Iterator[Move]:
    """Two terms, and the one on the attributes of both, for each two that have such a one."""
    for at, other in combinations(alive, 2):
        target = problem.place.get(tuple(sorted({*problem.terms[at], *problem.terms[other]})))
        if target is not None:
            yield at, other, target


def marginals(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The best weights found for marginals of plain cells, at cost 1."""
    kernels = plain_kernels(work)
    return Draft(weighted_terms(work, law, kernels, progress)[0], *lower_bound(work, law))


def plain_kernels(work: Workload) -> dict[int, Kernel]:
    """Every cell of every attribute in use."""
    sizes = {at: work.schema.sizes[at] for at in work.attributes}
    known = {size: Kernel.of(np.eye(size), -size) for size in set(sizes.values())}
    return {at: known[size] for at, size in sizes.items()}


def weighted_terms(
    work: Workload, law: NoiseLaw, kernels: Mapping[int, Kernel], progress: Progress | None = None
) -> tuple[Strategy, float]:
    """The nested strategy at cost 1 with the best weights found, and its total weighted variance."""
    demand = demands(work, kernels)
    if law == "gaussian":
        spreads = {at: kernel.spread for at, kernel in kernels.items()}
        squares = closed_form(demand, spreads)
        if squares is not None:
            _refuse_large(work, demand)
            weights = {term: math.sqrt(square) for term, square in squares.items()}
            precision = precisions(squares.items(), spreads)
            value = math.fsum(amount / precision[kept] for kept, amount in demand.items())
            return weighted_strategy(work, kernels, law, weights), value
    problem = weighing_of(work, law, kernels, demand)
    found, value = best_weights(problem, progress)
    weights = problem.by_term(found)
    return weighted_strategy(work, kernels, law, weights), unit_variance(law) * value


def weighing_of(
    work: Workload,
    law: NoiseLaw,
    kernels: Mapping[int, Kernel],
    demand: Mapping[Subset, float] | None = None,
) -> Weighing:
    """The terms that may be measured, and what is to be weighed: what the workload demands, if known."""
    demand = demands(work, kernels) if demand is None else demand
    residuals = list(demand)
    _refuse_large(work, residuals)
    terms = _terms(work, residuals)
    own = {subset for group in work.groups() for subset in _own_terms(group, kernels, demand)}
    asked = np.array([subset in own for subset in terms])
    fits = len(terms) * len(residuals) <= DENSE_NUMBERS
    gives = _gives(terms, residuals, kernels) if fits else _sparse_gives(terms, residuals, kernels)
    return Weighing(gives, np.array([demand[residual] for residual in residuals]), law, terms, asked)


def _own_terms(
    group: Table, kernels: Mapping[int, Kernel], demand: Mapping[Subset, float]
) -> Iterator[Subset]:
    """The marginals that a table needs: that of its attributes, but for those it asks only totals of."""
    whole = tuple(sorted(group.attributes))
    if whole in demand:
        yield whole
        return
    asked = [residual for residual, _ in asked_by(group, kernels, Memory())]
    yield from (each for each in asked if not any(set(each) < set(other) for other in asked))


def weighted_strategy(
    work: Workload, kernels: Mapping[int, Kernel], law: NoiseLaw, weights: Mapping[Subset, float]
) -> Strategy:
    """The strategy of terms with these weights, which must cost 1."""
    blocks = [
        ([Placed((at,), kernels[at].shape) for at in subset], unit_variance(law) / weight**2)
        for subset, weight in weights.items()
    ]
    return of_blocks(work.schema.sizes, blocks, law)


def _gives(terms: Sequence[Subset], residuals: Sequence[Subset], kernels: Mapping[int, Kernel]) -> Array:
    """What every term gives every residual at weight 1, (terms, residuals)."""
    used = sorted({at for subset in terms for at in subset})
    inside = np.array([[at in subset for at in used] for subset in terms], dtype=np.float64)
    wanted = np.array([[at in residual for at in used] for residual in residuals], dtype=np.float64)
    logs = np.array([math.log(kernels[at].spread) for at in used])
    missing = (1.0 - inside) @ wanted.T  # attributes of the residual that the term lacks
    gives = np.where(missing == 0, np.exp((wanted @ logs)[None, :] - (inside @ logs)[:, None]), 0.0)
    return np.asarray(gives)


def _sparse_gives(terms: Sequence[Subset], residuals: Sequence[Subset], kernels: Mapping[int, Kernel]) -> Any:
    """The same as a sparse array."""
    from scipy.sparse import csr_array

    place = {residual: at for at, residual in enumerate(residuals)}
    spreads = {at: kernel.spread for at, kernel in kernels.items()}
    entries = [
        (row, place[kept], amount)
        for row, subset in enumerate(terms)
        for kept, amount in given(subset, spreads)
        if kept in place
    ]
    rows, columns, amounts = zip(*entries, strict=True)
    return csr_array((amounts, (rows, columns)), shape=(len(terms), len(residuals)))


def _terms(work: Workload, residuals: Sequence[Subset]) -> list[Subset]:
    """Attributes of every term that is considered."""
    used = sorted({at for residual in residuals for at in residual})
    sizes = work.schema.sizes
    if len(used) <= EVERY_SUBSET:
        subsets = list(subsets_of(used))
    else:
        wanted = set(residuals)
        grown = wanted | {
            tuple(sorted((*residual, at)))
            for residual in residuals
            for at in used
            if at not in residual and len(wanted) * len(used) <= MARGINAL_TERMS
        }
        ways = max(map(len, residuals))
        subsets = sorted(grown | set(_covering(used, ways)), key=lambda each: (len(each), each))
    return [each for each in subsets if math.prod(sizes[at] for at in each) <= COUNTED_CELLS]


def _refuse_large(work: Workload, residuals: Iterable[Subset]) -> None:
    """Infeasible if a residual that is asked about is in no marginal that can be counted."""
    for residual in residuals:
        cells = math.prod(work.schema.sizes[at] for at in residual)
        if cells > COUNTED_CELLS:
            names = " x ".join(work.schema.names[at] for at in residual)
            raise Infeasible(
                f"a table of {cells:,} cells, {names}, is asked for, more than the {COUNTED_CELLS:,} that "
                "are counted; use coarser attributes or fewer of them in one table"
            )


def _covering(used: Sequence[int], ways: int) -> Iterator[Subset]:
    """Unions of so many groups of attributes: few large marginals that together contain all small ones."""
    for size in range(2, len(used) // ways + 1):
        groups = [tuple(used[start : start + size]) for start in range(0, len(used), size)]
        if math.comb(len(groups), ways) <= COVERING_TERMS:
            for chosen in combinations(groups, min(ways, len(groups))):
                yield tuple(sorted(at for group in chosen for at in group))
