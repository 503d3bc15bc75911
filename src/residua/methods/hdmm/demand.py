"""What a workload asks of every residual, given one strategy per attribute (claim H-022)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from residua._arrays import Array, Integers, Subset
from residua.answering.blocks import Memory, Placed, Shape
from residua.answering.nested import Half
from residua.bounds import quick_bound
from residua.errors import Infeasible
from residua.linalg.classes import summed_over
from residua.linalg.matrices import along_axes
from residua.methods.draft import Draft, Scope
from residua.privacy import NoiseLaw
from residua.privacy.budgets import unit_variance
from residua.strategy.build import Spans, of_blocks
from residua.workload import Combined, Queries, Table, Workload
from residua.workload.tables import refuse_wide_tables, splits
from residua.workload.union import refuse_wide

VANISHING = 1e-12  # of what a family asks in all: below it a residual is not asked about


@dataclass(frozen=True, eq=False)
class Kernel:
    """The strategy of one attribute, as residuals see it: `mean` is p, `square` is `C (B'B)^+ C'`."""

    shape: Shape
    spread: float
    mean: Array
    square: Array
    number: int
    weights: Array | None = None
    """The weighted sums of a p-Identity strategy on all cells, to improve it from."""

    @classmethod
    def of(cls, matrix: Array, number: int, weights: Array | None = None) -> "Kernel":
        """The kernel of a matrix that determines the total; equal numbers mean equal matrices."""
        shape = Shape.of((matrix.shape[1],), matrix)
        half = Half.of(shape)
        if half is None:
            raise Infeasible("a matrix that does not determine the total cannot be part of nested marginals")
        mean = half.measure.vector()
        square = shape.gram_inverse[0] - half.spread * np.outer(mean, mean)
        return cls(shape, half.spread, mean, square, number, weights)


def demands(work: Workload, kernels: Mapping[int, Kernel]) -> dict[Subset, float]:
    """Total weighted variance that noise of variance 1 in a residual's block adds, for every residual asked.

    `kernels` has one entry per attribute in use.
    """
    refuse_wide_tables(work.parts)
    known = Memory()
    sums: dict[Subset, float] = {}
    for group in work.groups():
        for attributes, amount in asked_by(group, kernels, known):
            sums[attributes] = sums.get(attributes, 0.0) + amount
    return sums


def asked_by(group: Table, kernels: Mapping[int, Kernel], known: Memory) -> Iterator[tuple[Subset, float]]:
    """The residuals that one table asks about, and how much; figures of families are kept in `known`."""
    for kept, attributes in splits(group):
        amount = group.weight
        for factor, places in zip(group.factors, kept, strict=True):
            own = [kernels[at] for at in factor.attributes]
            key = (factor.queries, places, tuple(kernel.number for kernel in own))
            amount *= known.of(key, partial(_trace, factor.queries, places, own))
            if amount == 0.0:
                break
        if amount > 0.0:
            yield attributes, amount


def _trace(queries: Queries, kept: tuple[int, ...], own: Sequence[Kernel]) -> float:
    """Sum over the queries of `q K q'`, K the kernels along what is kept and means along the rest."""
    squares = [
        kernel.square if place in kept else np.outer(kernel.mean, kernel.mean)
        for place, kernel in enumerate(own)
    ]
    if len(own) == 1:
        refuse_wide(queries)
        found = float(queries.trace(squares[0], weighted=True))
        whole = float(queries.trace(own[0].square + np.outer(own[0].mean, own[0].mean), weighted=True))
        return found if found > VANISHING * whole else 0.0
    if isinstance(queries, Combined):
        pairs = zip(squares, queries.partitions, strict=True)
        squares = [np.asarray(summed_over(square, [own, own])) for square, own in pairs]
        queries = queries.coarse
    rows = queries.root()
    found = float(np.sum(along_axes(rows, squares) * rows))
    largest = math.prod(float(np.abs(square).max()) for square in squares)
    return found if found > VANISHING * float(np.sum(rows * rows)) * largest else 0.0


SAME = 1e-12  # relative difference that is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A gram that is `before_i after_j` for cell i not behind cell j; `order` puts its cells in line.

    >>> from residua.workload.intervals import Prefix
    >>> chain = chain_of(Prefix(3).gram())
    >>> chain.before, chain.after
    (array([1., 1., 1.]), array([3., 2., 1.]))
    """

    order: Integers
    before: Array
    after: Array

    def times(self, rows: Array) -> Array:
        """The rows, (k, cells in line), times the gram, in O(k cells) steps (claim H-013)."""
        behind = rows * self.after
        total = behind.sum(axis=1, keepdims=True)
        behind.cumsum(axis=1, out=behind)
        np.subtract(total, behind, out=behind)
        behind *= self.before
        ahead = (rows * self.before).cumsum(axis=1)
        ahead *= self.after
        ahead += behind
        return ahead


def chain_of(gram: Array) -> Chain | None:
    """The chain of a gram, (cells, cells), with its cells as they are or in another order; None if none."""
    own = np.diagonal(gram)
    if not own.min() > 0:
        return None
    as_it_is = np.arange(len(gram))
    # An end of the line has the least of its own, and cells are less and less like it along the line.
    end = int(np.argmin(own))
    likeness = gram[end] / np.sqrt(own)
    for order in (as_it_is, np.argsort(-likeness, kind="stable")):
        first, last = int(order[0]), int(order[-1])
        if not gram[first, last] > 0:
            continue
        before, after = gram[order, last], gram[first, order] / gram[first, last]
        in_line = gram if order is as_it_is else gram[np.ix_(order, order)]
        apart = np.triu(in_line - before[:, None] * after)
        if np.abs(apart).max() <= SAME * np.abs(own).max():
            return Chain(order, before, after)
    return None


ROUNDING = 1e-12  # of a residual's precision: what cancellation leaves of a weight that is zero


def closed_form(demand: Mapping[Subset, float], spreads: Mapping[int, float]) -> dict[Subset, float] | None:
    """Squared weights of the terms to measure, of sum 1; None where the formula does not apply.

    `demand` has what is asked of every residual, by its attributes, ascending; `spreads` has the variance of
    the total in each attribute's strategy, at cost 1. The sum of demand over precision is then the square of
    `sum_A sqrt(h_A c_A)`, `c_A` the product of `1 - 1/s_i`, and no weights on any terms have less.

    >>> closed_form({(): 4.0, (0,): 2.0}, {0: 2.0})
    {(): 0.3333333333333333, (0,): 0.6666666666666666}
    >>> closed_form({(): 0.1, (0,): 2.0}, {0: 2.0}) is None
    True
    """
    shares = {residual: math.prod(1 - 1 / spreads[at] for at in residual) for residual in demand}
    smaller = (term[:place] + term[place + 1 :] for term in demand for place in range(len(term)))
    if min(shares.values()) <= 0 or not all(term in demand for term in smaller):
        return None
    size = math.fsum(math.sqrt(demand[residual] * share) for residual, share in shares.items())
    precision = {residual: math.sqrt(demand[residual] / share) / size for residual, share in shares.items()}
    squares = dict(precision)
    for at, spread in spreads.items():  # inclusion and exclusion, an attribute at a time
        for residual in squares:
            larger = tuple(sorted((*residual, at)))
            if at not in residual and larger in squares:
                squares[residual] -= squares[larger] / spread
    if any(square < -ROUNDING * precision[term] for term, square in squares.items()):
        return None
    return {term: square for term, square in squares.items() if square > ROUNDING * precision[term]}


LAPLACE_GAP = 1e-3  # of a bound that is a long way below any strategy with this noise

Bound = tuple[float, Scope]
"""A bound at cost 1, and for whom it holds."""


def lower_bound(work: Workload, law: NoiseLaw) -> Bound:
    """A bound at Gaussian cost 1 and for whom it holds; for Laplace noise see claim H-003."""
    return (quick_bound(work, gap=LAPLACE_GAP) if law == "laplace" else quick_bound(work)), scope_of(law)


def product_draft(
    work: Workload,
    law: NoiseLaw,
    factors: Sequence[Placed],
    bound: Bound | None = None,
    spans: Spans | None = None,
) -> Draft:
    """The draft of one block, a product of factors at cost 1; `bound` is what is known of the workload."""
    strategy = of_blocks(work.schema.sizes, [(factors, unit_variance(law))], law)
    return Draft(strategy, *(bound or lower_bound(work, law)), spans=spans or {})


def scope_of(law: NoiseLaw) -> Scope:
    """For whom a bound on strategies with this noise holds."""
    return "all Laplace noise" if law == "laplace" else "all mechanisms"
