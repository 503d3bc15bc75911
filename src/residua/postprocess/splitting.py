"""Nearest non-negative tables under any covariance, by alternating between cells and pieces.

Two copies of the tables are kept: one non-negative, one made of pieces and hence consistent. Each step
moves one towards the other; both moves are local, cell by cell and piece by piece, whatever the number of
tables (alternating direction method of multipliers, claim P-104).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from residua.errors import NotConverged
from residua.postprocess.covariances import PieceError
from residua.postprocess.pieces import piece, spread
from residua.postprocess.stacks import Stack, Subset

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_STEPS = 20_000
RELAXATION = 1.6
BALANCE_EVERY, BALANCE_UNTIL = 20, 2_000


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """Free pieces whose covariances differ by a factor only; arrays are (pieces, sizes...)."""

    error: PieceError
    target: Array  # in the coordinates of the eigenvectors, times the weights
    weights: Array  # (pieces, sizes...)
    share: Array  # (pieces, 1...): sum over the tables that hold the piece of one over the cells spread over

    def nearest(self, pulled: Array, pull: float) -> Array:
        """The pieces that balance distance from the target against the pull of the tables."""
        turned = self.error.rotated(pulled)
        found = (self.target + pull * turned) / (self.weights + pull * self.share)
        return self.error.rotated(found, back=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """Which pieces of a kind stand on some places of each table of a stack."""

    places: tuple[int, ...]
    kind: int
    tables: Indices
    pieces: Indices


@dataclass(eq=False)
class Splitting:
    """A problem: tables (fixed part and allowed cells), and the pieces that may move.

    `fixed` holds what does not move, one stack for each shape; `allowed` is False where a cell must be zero.
    `targets` and `errors` belong to the pieces that may move; `stiffness` multiplies a piece's weight.
    """

    fixed: Sequence[Stack]
    allowed: Sequence[NDArray[np.bool_] | None]
    targets: Mapping[Subset, Array]
    errors: Mapping[Subset, PieceError]
    stiffness: Mapping[Subset, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place: dict[Subset, tuple[int, int]] = {}
        members: dict[object, list[Subset]] = {}
        for subset, target in self.targets.items():
            members.setdefault((target.shape, self.errors[subset].alike), []).append(subset)
        for number, subsets in enumerate(members.values()):
            self._place.update({subset: (number, at) for at, subset in enumerate(subsets)})
        self._links = [list(self._links_of(stack)) for stack in self.fixed]
        self._kinds = [self._kind(number, subsets) for number, subsets in enumerate(members.values())]

    def _links_of(self, stack: Stack) -> Iterator[_Link]:
        for size in range(stack.ways + 1):
            for places in combinations(range(stack.ways), size):
                rows = [tuple(row) for row in stack.subsets[:, places].tolist()]
                met = [(table, *self._place[row]) for table, row in enumerate(rows) if row in self._place]
                for kind in sorted({kind for _, kind, _ in met}):
                    mine = [(table, at) for table, number, at in met if number == kind]
                    tables, pieces = np.array(mine, dtype=np.int64).T
                    yield _Link(places, kind, tables, pieces)

    def _kind(self, number: int, subsets: list[Subset]) -> _Kind:
        targets = np.stack([self.targets[subset] for subset in subsets])
        sizes = targets.shape[1:]
        errors = [self.errors[subset] for subset in subsets]
        stiff = np.array([self.stiffness.get(subset, 1.0) for subset in subsets])
        weights = np.stack([error.weights(sizes) for error in errors])
        weights *= stiff.reshape(-1, *(1,) * len(sizes))
        share = np.zeros(len(subsets))
        for stack, links in zip(self.fixed, self._links, strict=True):
            for link in links:
                if link.kind == number:
                    others = np.prod([s for at, s in enumerate(stack.sizes) if at not in link.places])
                    np.add.at(share, link.pieces, 1.0 / others)
        return _Kind(
            errors[0],
            weights * errors[0].rotated(targets),
            weights,
            share.reshape(-1, *(1,) * len(sizes)),
        )

    def solve(self, tolerance: float) -> list[Array]:
        """Tables made of pieces, (tables, sizes...) for each stack, negative by at most the tolerance."""
        pull = self._first_pull()
        pieces = [kind.error.rotated(kind.target / kind.weights, back=True) for kind in self._kinds]
        made = self._made(pieces)
        held = [self._cut(number, table) for number, table in enumerate(made)]
        owed = [np.zeros_like(table) for table in made]
        for step in range(1, MOST_STEPS + 1):
            pieces = self._pieces([h - o for h, o in zip(held, owed, strict=True)], pull)
            made = self._made(pieces)
            apart = moved = 0.0
            for number, table in enumerate(made):
                ahead = RELAXATION * table + (1 - RELAXATION) * held[number]
                cut = self._cut(number, ahead + owed[number])
                owed[number] += ahead - cut
                apart = max(apart, float(np.abs(table - cut).max(initial=0.0)))
                moved = max(moved, float(np.abs(cut - held[number]).max(initial=0.0)))
                held[number] = cut
            if max(apart, moved) <= tolerance:
                return made
            if step % BALANCE_EVERY == 0 and step <= BALANCE_UNTIL:
                factor = 1.5 if apart > 5 * moved else 1 / 1.5 if moved > 5 * apart else 1.0
                pull *= factor
                owed = [each / factor for each in owed]
        raise NotConverged(
            f"non-negative tables still differed by {apart:.2g} records from consistent ones after "
            f"{MOST_STEPS:,} steps: the facts given, if any, may contradict each other",
            lower=0.0,
            upper=apart,
        )

    def _first_pull(self) -> float:
        return float(np.median([np.median(kind.weights / kind.share) for kind in self._kinds]))

    def _cut(self, number: int, table: Array) -> Array:
        allowed = self.allowed[number]
        cut = np.maximum(table, 0.0)
        return cut if allowed is None else np.where(allowed, cut, 0.0)

    def _made(self, pieces: Sequence[Array]) -> list[Array]:
        """Tables from pieces."""
        result = []
        for stack, links in zip(self.fixed, self._links, strict=True):
            table = stack.cells.copy()
            for link in links:
                part = spread(pieces[link.kind][link.pieces], link.places, stack.sizes)
                if len(link.tables) == len(table):
                    table += part
                else:
                    table[link.tables] += part
            result.append(table)
        return result

    def _pieces(self, tables: Sequence[Array], pull: float) -> list[Array]:
        """Pieces pulled towards these tables."""
        sums = [np.zeros_like(kind.target) for kind in self._kinds]
        for stack, links, table in zip(self.fixed, self._links, tables, strict=True):
            free = table - stack.cells
            for link in links:
                others = np.prod([s for at, s in enumerate(stack.sizes) if at not in link.places])
                np.add.at(sums[link.kind], link.pieces, piece(free[link.tables], link.places) / others)
        return [kind.nearest(total, pull) for kind, total in zip(self._kinds, sums, strict=True)]
