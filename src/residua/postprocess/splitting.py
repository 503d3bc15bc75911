"""Nearest non-negative tables under any covariance, by alternating directions (ADMM).

Two copies of the tables are kept: one non-negative, one made of pieces and hence consistent. Each step
moves one towards the other; both moves are local, cell by cell and piece by piece, whatever the number of
tables (claim P-104).

A product strategy estimates one joint table. Where its errors tie together what the total, the margins and
the cells say, going up from the total would throw that away; so the joint table is projected as a whole, in
its true covariance, on the non-negative tables with the estimated total (claim P-109).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from residua._arrays import Array, Flags, Integers, Subset
from residua.answering.blocks import Placed
from residua.errors import Infeasible, NotConverged
from residua.linalg.matrices import subsets_of, threads_for
from residua.postprocess.facts import Facts
from residua.postprocess.margins import with_total
from residua.postprocess.pieces import (
    PieceError,
    Square,
    Squares,
    Stack,
    TableSet,
    alike,
    piece,
    spread,
    turned,
)
from residua.strategy.strategy import Strategy

MOST_STEPS = 20_000
RELAXATION = 1.6
BALANCE_EVERY, BALANCE_UNTIL = 20, 2_000
TIED = 0.2  # relative size of what ties pieces together, from which it is not left out of account
LOOSE = 1e-6  # weight of what is not measured, relative to what is
NEAR = 1e-4  # of the noise: how far the table is solved
WHOLE_UNTIL = MOST_STEPS // 4


def alternated(
    made: list[Array],
    nearest: Callable[[list[Array], float], list[Array]],
    cut: Callable[[int, Array], Array],
    pull: float,
    tolerance: float,
    balance_until: int,
) -> tuple[list[Array], list[Array]]:
    """Alternating directions: tables that `nearest` makes, and those that `cut` leaves, at most so far apart.

    `nearest` balances the distance from what was measured against a pull towards tables; the pull is balanced
    too, until that many steps.
    """
    held = [cut(number, table) for number, table in enumerate(made)]
    owed = [np.zeros_like(table) for table in made]
    for step in range(1, MOST_STEPS + 1):
        made = nearest([h - o for h, o in zip(held, owed, strict=True)], pull)
        apart = moved = 0.0
        for number, table in enumerate(made):
            ahead = RELAXATION * table + (1 - RELAXATION) * held[number]
            new = cut(number, ahead + owed[number])
            owed[number] += ahead - new
            apart = max(apart, float(np.abs(table - new).max(initial=0.0)))
            moved = max(moved, float(np.abs(new - held[number]).max(initial=0.0)))
            held[number] = new
        if max(apart, moved) <= tolerance:
            return made, held
        if step % BALANCE_EVERY == 0 and step <= balance_until:
            factor = 1.5 if apart > 5 * moved else 1 / 1.5 if moved > 5 * apart else 1.0
            pull, owed = pull * factor, [each / factor for each in owed]
    raise NotConverged(
        f"non-negative tables still differed by {apart:.2g} records from consistent ones after "
        f"{MOST_STEPS:,} steps: the facts given, if any, may contradict each other",
        lower=0.0,
        upper=apart,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _PieceClass:
    """Free pieces whose covariances differ by a factor only; arrays are (pieces, sizes...)."""

    error: PieceError
    target: Array  # in the coordinates of the eigenvectors, times the weights
    weights: Array  # (pieces, sizes...)
    share: Array  # (pieces, 1...): sum over the tables that hold the piece of one over the cells spread over

    def nearest(self, pulled: Array, pull: float) -> Array:
        """The pieces that balance distance from the target against the pull of the tables."""
        turned = self.error.rotated(pulled)
        found = (self.target + pull * turned) / (self.weights + pull * self.share)
        return np.asarray(self.error.rotated(found, back=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """Which pieces of a class stand on some places of each table of a stack."""

    places: tuple[int, ...]
    piece_class: int
    tables: Integers
    pieces: Integers
    cells: float  # that one cell of a piece is spread over


@dataclass(eq=False)
class Splitting:
    """A problem: tables (fixed part and allowed cells), and the pieces that may move.

    `fixed` holds what does not move, one stack for each shape; `allowed` is False where a cell must be zero.
    `targets` and `errors` belong to the pieces that may move; `stiffness` multiplies a piece's weight.
    """

    fixed: Sequence[Stack]
    allowed: Sequence[Flags] | None
    targets: Mapping[Subset, Array]
    errors: Mapping[Subset, PieceError]
    stiffness: Mapping[Subset, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place: dict[Subset, tuple[int, int]] = {}
        classes = alike(self.targets, self.errors)
        for number, subsets in enumerate(classes):
            self._place.update({subset: (number, at) for at, subset in enumerate(subsets)})
        self._links = [list(self._links_of(stack)) for stack in self.fixed]
        self._classes = [self._class(number, subsets) for number, subsets in enumerate(classes)]

    def _links_of(self, stack: Stack) -> Iterator[_Link]:
        for places in subsets_of(range(stack.ways)):
            rows = [tuple(row) for row in stack.subsets[:, places].tolist()]
            cells = math.prod(size for at, size in enumerate(stack.sizes) if at not in places)
            met = [(table, *self._place[row]) for table, row in enumerate(rows) if row in self._place]
            for piece_class in sorted({piece_class for _, piece_class, _ in met}):
                mine = [(table, at) for table, number, at in met if number == piece_class]
                tables, pieces = np.array(mine, dtype=np.int64).T
                yield _Link(places, piece_class, tables, pieces, cells)

    def _class(self, number: int, subsets: list[Subset]) -> _PieceClass:
        targets = np.stack([self.targets[subset] for subset in subsets])
        sizes = targets.shape[1:]
        errors = [self.errors[subset] for subset in subsets]
        stiff = np.array([self.stiffness.get(subset, 1.0) for subset in subsets])
        weights = np.stack([error.weights(sizes) for error in errors])
        weights *= stiff.reshape(-1, *(1,) * len(sizes))
        share = np.zeros(len(subsets))
        for link in chain.from_iterable(self._links):
            if link.piece_class == number:
                np.add.at(share, link.pieces, 1.0 / link.cells)
        return _PieceClass(
            errors[0], weights * errors[0].rotated(targets), weights, share.reshape(-1, *(1,) * len(sizes))
        )

    def solve(self, tolerance: float) -> list[Array]:
        """Tables made of pieces, (tables, sizes...) for each stack, negative by at most the tolerance."""
        pieces = [own.error.rotated(own.target / own.weights, back=True) for own in self._classes]

        def made(tables: list[Array], pull: float) -> list[Array]:
            return self._made(self._pieces(tables, pull))

        pull = float(np.median([np.median(own.weights / own.share) for own in self._classes]))
        return alternated(self._made(pieces), made, self.cut, pull, tolerance, BALANCE_UNTIL)[0]

    def cut(self, number: int, table: Array) -> Array:
        """The tables of a stack, zero where they were negative or a cell must be zero."""
        cut = np.maximum(table, 0.0)
        return cut if self.allowed is None else np.where(self.allowed[number], cut, 0.0)

    def _made(self, pieces: Sequence[Array]) -> list[Array]:
        """Tables from pieces."""
        result = []
        for stack, links in zip(self.fixed, self._links, strict=True):
            table = stack.cells.copy()
            for link in links:
                part = spread(pieces[link.piece_class][link.pieces], link.places, stack.sizes)
                if len(link.tables) == len(table):
                    table += part
                else:
                    table[link.tables] += part
            result.append(table)
        return result

    def _pieces(self, tables: Sequence[Array], pull: float) -> list[Array]:
        """Pieces pulled towards these tables."""
        sums = [np.zeros_like(own.target) for own in self._classes]
        for stack, links, table in zip(self.fixed, self._links, tables, strict=True):
            free = table - stack.cells
            for link in links:
                part = piece(free[link.tables], link.places) / link.cells
                np.add.at(sums[link.piece_class], link.pieces, part)
        return [own.nearest(total, pull) for own, total in zip(self._classes, sums, strict=True)]


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
    for kept in subsets_of(range(len(sizes))):
        once = _on(square, kept, sizes)
        within += _on(once.T, kept, sizes).T
    whole = float(np.linalg.norm(square))
    return float(np.linalg.norm(square - within)) / whole if whole else 0.0


def _on(rows: Array, kept: Sequence[int], sizes: tuple[int, ...]) -> Array:
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
        cells = _projected(stack.cells, tuple(_squares(factors, stack.rows()[0])), noise, total)
    return TableSet((Stack(stack.subsets, cells),))


def _squares(factors: Sequence[Placed], subset: Subset) -> Iterator[tuple[tuple[int, ...], Square]]:
    """Eigenvectors and eigenvalues of `B'B` of each factor: together, the weights of the joint table."""
    for factor in factors:
        values, vectors = np.linalg.eigh(factor.matrix.T @ factor.matrix)
        places = tuple(subset.index(at) for at in factor.attributes)
        yield places, Square(vectors, np.maximum(values, LOOSE * values[-1]), factor.sizes)


def _projected(cells: Array, squares: Squares, noise: float, total: Array) -> Array:
    """Alternating directions, as in `splitting`, between the quadratic and the tables with this total."""
    sizes = cells.shape[1:]
    weights = PieceError(1 / noise, squares).variances(sizes)[None]
    goal = weights * turned(cells, squares)
    pull = float(np.exp(np.mean(np.log(weights))))
    tolerance = NEAR / math.sqrt(float(weights.max()))

    def nearest(tables: list[Array], pull: float) -> list[Array]:
        return [turned((goal + pull * turned(tables[0], squares)) / (weights + pull), squares, back=True)]

    def cut(_: int, table: Array) -> Array:
        return with_total(table.reshape(1, -1), total).reshape(table.shape)

    return alternated([cells], nearest, cut, pull, tolerance, WHOLE_UNTIL)[1][0]
