"""The nearest non-negative joint table of a product strategy whose pieces are strongly correlated.

A product strategy estimates one joint table. Where its errors tie together what the total, the margins and
the cells say, going up from the total would throw that away; so the joint table is projected as a whole,
in its true covariance, on the non-negative tables with the estimated total (claim P-109).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Placed
from residua.errors import Infeasible, NotConverged
from residua.linalg.matrices import threads_for
from residua.postprocess.covariances import Square, Squares, turned
from residua.postprocess.facts import Facts
from residua.postprocess.pieces import piece, spread
from residua.postprocess.separable import with_total
from residua.postprocess.splitting import BALANCE_EVERY, MOST_STEPS, RELAXATION
from residua.postprocess.stacks import Stack, Subset, TableSet
from residua.strategy.strategy import Strategy

Array = NDArray[np.float64]

TIED = 0.2  # relative size of what ties pieces together, from which it is not left out of account
LOOSE = 1e-6  # weight of what is not measured, relative to what is
NEAR = 1e-4  # of the noise: how far the table is solved
BALANCE_UNTIL = MOST_STEPS // 4


def tied_attributes(strategy: Strategy) -> Subset | None:
    """All attributes of a product strategy whose measurements tie pieces together strongly, else None."""
    block = strategy.single()
    if block is None or not any(
        _share_between_pieces(square, factor.sizes) > TIED
        for factor in block[1]
        for square in (factor.inverse, factor.matrix.T @ factor.matrix)
    ):
        return None
    return block[0]


def _share_between_pieces(square: Array, sizes: tuple[int, ...]) -> float:
    """Relative size of the entries of a covariance, or of its inverse, between different pieces."""
    within = np.zeros_like(square)
    for number in range(2 ** len(sizes)):
        kept = [at for at in range(len(sizes)) if number >> at & 1]
        once = _on(square, kept, sizes)
        within += _on(once.T, kept, sizes).T
    whole = float(np.linalg.norm(square))
    return float(np.linalg.norm(square - within)) / whole if whole else 0.0


def _on(rows: Array, kept: list[int], sizes: tuple[int, ...]) -> Array:
    """The part of each row on one piece, (rows, cells)."""
    part = spread(piece(rows.reshape(-1, *sizes), kept), kept, sizes)
    return np.broadcast_to(part, (len(rows), *sizes)).reshape(len(rows), -1)


def nonnegative_whole(tables: TableSet, strategy: Strategy, facts: Facts) -> TableSet:
    """The nearest non-negative joint table with the estimated, or known, total."""
    if facts.allowed or any(facts.counts):
        raise Infeasible(
            "this plan's measurements take no public facts but the number of records; plan with method "
            "'querysmasher'"
        )
    (stack,) = tables.stacks
    known = facts.margin(())
    total = np.maximum(stack.cells.sum() if known is None else known, 0.0).reshape(1)
    _, factors, noise = next(strategy.blocks().each())
    with threads_for(0):
        cells = _projected(stack.cells, _squares(factors, stack.rows()[0]), noise, total)
    return TableSet((Stack(stack.subsets, cells),))


def _squares(factors: Sequence[Placed], subset: Subset) -> Squares:
    """Eigenvectors and eigenvalues of `B'B` of each factor: together, the weights of the joint table."""
    found = []
    for factor in factors:
        values, vectors = np.linalg.eigh(factor.matrix.T @ factor.matrix)
        places = tuple(subset.index(at) for at in factor.attributes)
        found.append((places, Square(vectors, np.maximum(values, LOOSE * values[-1]), factor.sizes)))
    return tuple(found)


def _projected(cells: Array, squares: Squares, noise: float, total: Array) -> Array:
    """Alternating directions, as in `splitting`, between the quadratic and the tables with this total."""
    sizes = cells.shape[1:]
    weights = np.ones((1,) * len(sizes)) / noise
    for places, square in squares:
        # A square's cells are in the order of its attributes, which need not be ascending.
        order = np.argsort(places)
        values = square.values.reshape(square.sizes).transpose(order) if len(places) > 1 else square.values
        weights = weights * values.reshape([sizes[at] if at in places else 1 for at in range(len(sizes))])
    weights = np.broadcast_to(weights, sizes)[None]
    goal = weights * turned(cells, squares)
    pull = float(np.exp(np.mean(np.log(weights))))
    held, owed = _cut(cells, total), np.zeros_like(cells)
    tolerance = NEAR / math.sqrt(float(weights.max()))
    for step in range(1, MOST_STEPS + 1):
        made = turned((goal + pull * turned(held - owed, squares)) / (weights + pull), squares, back=True)
        ahead = RELAXATION * made + (1 - RELAXATION) * held
        cut = _cut(ahead + owed, total)
        owed = owed + ahead - cut
        apart, moved = float(np.abs(made - cut).max()), float(np.abs(cut - held).max())
        held = cut
        if max(apart, moved) <= tolerance:
            return held
        if step % BALANCE_EVERY == 0 and step <= BALANCE_UNTIL:
            factor = 1.5 if apart > 5 * moved else 1 / 1.5 if moved > 5 * apart else 1.0
            pull, owed = pull * factor, owed / factor
    raise NotConverged(
        f"the non-negative joint table still moved by {moved:.2g} records after {MOST_STEPS:,} steps",
        lower=0.0,
        upper=apart,
    )


def _cut(cells: Array, total: Array) -> Array:
    return with_total(cells.reshape(1, -1), total).reshape(cells.shape)
