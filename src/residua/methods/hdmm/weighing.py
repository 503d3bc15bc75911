"""Weights of measured terms: the sum of demand over precision, made small at cost 1 (claim H-023).

For Gaussian noise, where weights count squared, the problem is convex in the squares. For Laplace noise it is
not: steps downhill are taken from several starts, and in between terms are merged, grown or shrunk where that
helps.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from residua._arrays import Array, Flags, Integers
from residua._limits import EXCHANGED_PAIRS
from residua.answering.blocks import Subset
from residua.methods.draft import Progress
from residua.methods.hdmm.p_identity import downhill
from residua.privacy import NoiseLaw

STEPS = 3_000
STEP_GAIN = 1e-10
FIRST_STEPS = 100  # that multiply, before those downhill
FEW_TERMS, MOST_STARTS, FEW_STARTS = 300, 20, 3
NEGLIGIBLE = 1e-6  # of the largest weight: a term below it is dropped where nothing needs it
MOVES = 60
MOVE_GAIN = 1e-4  # relative; terms are exchanged until that gains less
MOST_AT_ONCE = 50  # exchanges that are made before the next steps downhill
CHUNK = 2_000  # exchanges that are looked at together
NOTHING = 1e-12  # of the largest precision: what rounding leaves of none


@dataclass(frozen=True, slots=True, eq=False)
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

    def by_term(self, weights: Array) -> dict[Subset, float]:
        """The weights that are not zero, by the attributes of their terms."""
        pairs = zip(self.terms, weights.tolist(), strict=True)
        return {term: weight for term, weight in pairs if weight > 0}

    def descended(self, start: Array) -> Array:
        """The weights that quasi-Newton steps reach, terms of weight zero staying so."""
        alive = np.flatnonzero(start > 0)
        small = Weighing(self.gives[alive], self.demand, self.law, (), self.asked[alive])
        found = downhill(small.value, start[alive] / start.max(), steps=STEPS, gain=STEP_GAIN)
        result = np.zeros(len(start))
        result[alive] = found / found.max()
        pruned = np.where(result > NEGLIGIBLE, result, 0.0)
        return pruned if self.value(pruned)[0] <= (1 + STEP_GAIN) * self.value(result)[0] else result


def best_weights(problem: Weighing, progress: Progress | None = None) -> tuple[Array, float]:
    """The best weights found, scaled to cost 1, and the sum of demand over precision."""
    best, value = None, math.inf
    starts = list(_starts(problem))
    for number, start in enumerate(starts):
        weights = problem.descended(start)
        if problem.law == "laplace":
            weights = _exchanged(problem, weights)
        found = problem.value(weights)[0]
        if found < value:
            best, value = weights, found
        if progress is not None:
            progress("weighing marginals", (number + 1) / len(starts))
    if best is None:
        raise ArithmeticError("no weights were tried")
    return at_cost_one(problem.law, best), value


def at_cost_one(law: NoiseLaw, weights: Array) -> Array:
    """The weights scaled to cost 1."""
    return weights / (
        float(weights.sum()) if law == "laplace" else math.sqrt(float(np.sum(weights * weights)))
    )


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
    place = {term: at for at, term in enumerate(problem.terms)}
    value = problem.value(weights)[0]
    for _ in range(MOVES):
        moved = _best_moves(problem, weights, place)
        if moved is None:
            break
        trial = problem.descended(moved)
        found = problem.value(trial)[0]
        if found > (1 - MOVE_GAIN) * value:
            break
        weights, value = trial, found
    return weights


def _best_moves(problem: Weighing, weights: Array, place: dict[Subset, int]) -> Array | None:
    """The weights with the best exchanges of one or two terms for another made, as long as each helps."""
    moves = list(_moves(problem, weights, place))
    if not moves:
        return None
    gone = np.array([[old, other] for old, other, _ in moves])
    new = np.array([target for _, _, target in moves])
    precision = (weights * weights) @ problem.gives
    before = float(np.sum(problem.demand / precision))
    gains = np.empty(len(moves))
    for start in range(0, len(moves), CHUNK):
        part = slice(start, start + CHUNK)
        left, right = gone[part].T
        after = precision - (weights[left] ** 2)[:, None] * problem.gives[left]
        pairs = (right != left) & (right != new[part])
        after = after - np.where(pairs, weights[right] ** 2, 0.0)[:, None] * problem.gives[right]
        own = np.where(pairs, weights[left] + weights[right], weights[left])
        already = weights[new[part]]
        after = after + ((own + already) ** 2 - already**2)[:, None] * problem.gives[new[part]]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(
                after.min(axis=1) > NOTHING * precision.max(), (problem.demand / after).sum(axis=1), np.inf
            )
        gains[part] = before - values
    return _applied(problem, weights, gone, new, gains)


def _applied(problem: Weighing, weights: Array, gone: Integers, new: Integers, gains: Array) -> Array | None:
    """The moves with the largest gains, one after the other, each checked against what the others left."""
    changed, value = weights.copy(), problem.value(weights)[0]
    first = value
    touched: set[int] = set()
    for at in np.argsort(-gains)[:MOST_AT_ONCE].tolist():
        moved = {*gone[at].tolist(), int(new[at])}
        if not gains[at] > 0 or touched & moved:
            continue
        trial = changed.copy()
        old = sorted(moved - {int(new[at])})
        trial[new[at]] += trial[old].sum()
        trial[old] = 0.0
        found = problem.value(trial)[0]
        if found < value:
            changed, value = trial, found
            touched |= moved
    return changed if value < first else None


def _moves(problem: Weighing, weights: Array, place: dict[Subset, int]) -> Iterator[tuple[int, int, int]]:
    """Exchanges: a term for one with an attribute more or less, two terms for their union.

    Each is the two terms that go (one, twice, where only one goes) and the one that comes.
    """
    alive = np.flatnonzero(weights > 0).tolist()
    used = sorted({each for subset in problem.terms for each in subset})
    for at in alive:
        subset = set(problem.terms[at])
        for each in used:
            target = place.get(tuple(sorted(subset ^ {each})))
            if target is not None:
                yield at, at, target
    if len(alive) * len(alive) > 2 * EXCHANGED_PAIRS:
        order = np.argsort(-weights[alive])[: int(math.sqrt(2 * EXCHANGED_PAIRS))]
        alive = [alive[number] for number in order.tolist()]
    for number, at in enumerate(alive):
        for other in alive[number + 1 :]:
            union = tuple(sorted({*problem.terms[at], *problem.terms[other]}))
            target = place.get(union)
            if target is not None:
                yield at, other, target
