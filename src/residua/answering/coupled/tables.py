"""How one table meets coupled blocks: what it asks of private and of shared coordinates (claim O-003).

Tables and blocks that differ only in the names of attributes give the same arrays, so these are kept; only
the covariance of the shared coordinates is each table's own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Memory
from residua.answering.coupled.coordinates import Places, coordinates, dimension, subsets_of
from residua.answering.coupled.division import Kind
from residua.answering.independent.parts import CANCELLED
from residua.linalg.centring import VANISHING, Measure
from residua.workload import Queries

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A table and the coupled blocks it asks something of, with attributes numbered in ascending order.

    `owners` are the blocks that alone see something that is asked, with their attributes; `shared` are the
    shared residuals that the table or one of the owners touches; `asked` are all residuals of the table that
    are coupled. `measures` has one entry per attribute.
    """

    factors: tuple[tuple[Queries, Places], ...]
    measures: tuple[Measure, ...]
    owners: tuple[tuple[Kind, Places], ...]
    shared: tuple[Places, ...]
    asked: tuple[Places, ...]

    @property
    def starts(self) -> dict[Places, int]:
        """Where each shared residual begins among the shared coordinates of this meeting."""
        dims = [dimension([self.measures[at].size for at in kept]) for kept in self.shared]
        return dict(zip(self.shared, np.cumsum([0, *dims]).tolist(), strict=False))

    @property
    def width(self) -> int:
        """Number of shared coordinates."""
        return sum(dimension([self.measures[at].size for at in kept]) for kept in self.shared)


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """What a table asks of an owner: `c gain` and `c carry`, (rows of these factors..., k)."""

    factors: list[int]
    gained: Array
    carried: Array


class Asked:
    """Rows of each family of a meeting in coordinates; a table is every product of one row from each.

    Results have one axis per family, in order, of its number of rows, or of 1 where all rows get the same.
    """

    def __init__(self, meeting: Meeting, memory: Memory, rows: Sequence[Array], empty: "Empty") -> None:
        self.meeting, self.memory, self.rows, self._empty = meeting, memory, rows, empty
        self._parts: dict[tuple[int, Places], Array] = {}
        self._owned: dict[int, Owned | None] = {}

    def part(self, factor: int, kept: Places) -> Array:
        """Coordinates of the rows of one family, (rows, dimension), in the residual on `kept`."""
        if (factor, kept) not in self._parts:
            self._parts[factor, kept] = family_part(self.meeting, factor, self.rows[factor], kept)
        return self._parts[factor, kept]

    @property
    def alive(self) -> list[Places]:
        """Asked residuals in which the table has a part that is not zero."""
        return [kept for kept in self.meeting.asked if not self._empty.holds(kept)]

    def through(self, kept: Places, matrix: Array, factors: Sequence[int]) -> Array:
        """Coordinates in a residual times a matrix, (dimension, k) to (rows of these factors..., k)."""
        pieces = [split_by(self.meeting, factor, kept) for factor in factors]
        sizes = [self.meeting.measures[at].size - 1 for at in kept]
        order = [kept.index(at) for piece in pieces for at in piece]
        tensor = matrix.reshape(*sizes, -1).transpose(*order, len(order))
        for factor, piece in zip(factors, pieces, strict=True):
            rows = self.part(factor, piece)
            flat = tensor.reshape(rows.shape[1], -1)
            # Each family's axis is used up in front and its rows come out behind: k ends up in front.
            tensor = np.moveaxis((rows @ flat).reshape(len(rows), -1), 0, -1)
        counts = [len(self.rows[factor]) for factor in factors]
        return np.moveaxis(tensor.reshape(matrix.shape[1], *counts), 0, -1)

    def means(self, without: Sequence[int]) -> list[Array]:
        """Means of the rows of every family but some, each (rows,)."""
        others = (factor for factor in range(len(self.rows)) if factor not in without)
        return [self.part(factor, ())[:, 0] for factor in others]

    def owned(self, number: int) -> Owned | None:
        """What is asked of an owner; None if nothing."""
        if number not in self._owned:
            self._owned[number] = self._asked_of(number)
        return self._owned[number]

    def _asked_of(self, number: int) -> Owned | None:
        kind, attributes = self.meeting.owners[number]
        found = self.memory.of(kind, kind.reduce)
        both = np.concatenate([found.gain, found.carry], axis=1)
        asked = self._of_owner(kind, attributes)
        if not asked:
            return None
        factors = self._touching([kept for kept, _ in asked])
        total = np.sum([self.through(kept, both[run], factors) for kept, run in asked], axis=0)
        return Owned(factors, total[..., : found.private_rank], total[..., found.private_rank :])

    def needed(self) -> tuple[list[int], Array]:
        """What is asked of shared coordinates in the end: families, and (rows..., width)."""
        factors = self._touching(self.alive)
        counts = [len(self.rows[factor]) for factor in factors]
        result = np.zeros((*counts, self.meeting.width))
        starts = self.meeting.starts
        for kept in self.alive:
            if kept in starts:
                size = dimension([self.meeting.measures[at].size for at in kept])
                result[..., starts[kept] : starts[kept] + size] += self.through(kept, np.eye(size), factors)
        for number, (kind, attributes) in enumerate(self.meeting.owners):
            owned = self.owned(number)
            if owned is None or not kind.shared:
                continue
            inside = self._spread(owned.factors, owned.carried, factors)
            ends = np.cumsum([0, *kind.dims(kind.shared)]).tolist()
            for at, kept in enumerate(kind.shared):
                start = starts[tuple(attributes[place] for place in kept)]
                run = slice(start, start + ends[at + 1] - ends[at])
                result[..., run] -= inside[..., ends[at] : ends[at + 1]]
        return factors, result

    def outside(self) -> float:
        """Largest share of a product's squared private length that an owner does not see."""
        worst = 0.0
        for kind, attributes in self.meeting.owners:
            seen = self.memory.of(kind, kind.reduce).seen
            asked = self._of_owner(kind, attributes)
            if seen is None or not asked:
                continue
            factors = self._touching([kept for kept, _ in asked])
            inside = np.sum([self.through(kept, seen[run], factors) for kept, run in asked], axis=0)
            lengths = np.sum([self.lengths(kept, factors) for kept, _ in asked], axis=0)
            wholes = outer([np.sum(self.rows[factor] ** 2, axis=1) for factor in factors])
            share = (lengths - np.sum(inside**2, axis=-1)) / (lengths + CANCELLED * wholes)
            worst = max(worst, float(share.max()))
        return worst

    def lengths(self, kept: Places, factors: Sequence[int]) -> Array:
        """Squared length of each product of rows in a residual, (rows of these factors...)."""
        squares = [
            np.sum(self.part(factor, split_by(self.meeting, factor, kept)) ** 2, axis=1) for factor in factors
        ]
        return outer(squares)

    def over_all(self, values: Array, factors: Sequence[int]) -> Array:
        """Squares by the rows of some families, times the squared means of the others: (rows of all...)."""
        result = values.reshape([len(rows) if at in factors else 1 for at, rows in enumerate(self.rows)])
        for factor in range(len(self.rows)):
            if factor not in factors:
                axes = [axis for axis in range(len(self.rows)) if axis != factor]
                result = result * np.expand_dims(self.part(factor, ())[:, 0] ** 2, axes)
        return result

    def rows_of(self, values: Array, factors: Sequence[int]) -> Array:
        """Values by the rows of some families, times the means of the others: (rows of the table, k)."""
        everything = range(len(self.rows))
        wide = self._spread(factors, values, everything)
        counts = [len(rows) for rows in self.rows]
        return np.broadcast_to(wide, (*counts, values.shape[-1])).reshape(math.prod(counts), -1)

    def _of_owner(self, kind: Kind, attributes: Places) -> list[tuple[Places, slice]]:
        """What is asked of an owner: private residuals, and where each is among its private coordinates."""
        ends = np.cumsum([0, *kind.dims(kind.private)]).tolist()
        alive = set(self.alive)
        named = [tuple(attributes[place] for place in kept) for kept in kind.private]
        return [(kept, slice(ends[at], ends[at + 1])) for at, kept in enumerate(named) if kept in alive]

    def _touching(self, residuals: Sequence[Places]) -> list[int]:
        """Families that one of these residuals is centred along."""
        wanted = {at for kept in residuals for at in kept}
        return [at for at, (_, attributes) in enumerate(self.meeting.factors) if wanted & set(attributes)]

    def _spread(self, own: Sequence[int], values: Array, factors: Sequence[int]) -> Array:
        """Values by the rows of some families, times the means of the others among `factors`."""
        shape = [len(self.rows[factor]) if factor in own else 1 for factor in factors]
        result = values.reshape(*shape, values.shape[-1])
        for place, factor in enumerate(factors):
            if factor not in own:
                axes = [axis for axis in range(len(factors) + 1) if axis != place]
                result = result * np.expand_dims(self.part(factor, ())[:, 0], axes)
        return result


class Empty:
    """Which parts of which families vanish, judged by rows that span each family."""

    def __init__(self, meeting: Meeting, roots: Sequence[Array]) -> None:
        self._meeting = meeting
        self._known: set[tuple[int, Places]] = set()
        for factor, (_, attributes) in enumerate(meeting.factors):
            lengths = np.linalg.norm(roots[factor], axis=1)
            for kept in subsets_of(sorted(attributes)):
                part = family_part(meeting, factor, roots[factor], kept)
                if np.all(np.linalg.norm(part, axis=1) <= VANISHING * lengths):
                    self._known.add((factor, kept))

    def holds(self, kept: Places) -> bool:
        """Whether the table has nothing in this residual."""
        count = len(self._meeting.factors)
        return any((factor, split_by(self._meeting, factor, kept)) in self._known for factor in range(count))


def family_part(meeting: Meeting, factor: int, rows: Array, kept: Places) -> Array:
    """Coordinates of rows of one family in the residual on `kept`, axes in the order of the attributes."""
    queries, attributes = meeting.factors[factor]
    order = np.argsort(attributes)
    sizes = [queries.sizes[place] for place in order]
    tensor = rows.reshape(len(rows), *queries.sizes).transpose(0, *(1 + order))
    ascending = sorted(attributes)
    places = [ascending.index(at) for at in kept]
    return coordinates(
        tensor.reshape(len(rows), -1), sizes, [meeting.measures[at] for at in ascending], places
    )


def split_by(meeting: Meeting, factor: int, kept: Places) -> Places:
    """The part of a residual that lies on the attributes of one family."""
    return tuple(at for at in kept if at in meeting.factors[factor][1])


def outer(vectors: Sequence[Array]) -> Array:
    """Outer product of vectors, one axis for each."""
    return np.asarray(reduce(np.multiply.outer, vectors, np.ones(())))
