"""Matrices over the coordinates that tables share: the total, and each single attribute's.

Exchanging attributes of one class leaves these matrices as they are, so they act in one way on what all of
them have in common and in another on all the rest: forty equal attributes of ten cells need a matrix of 10
rows and one of 9 in place of one of 361.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from residua.bounds.pairs import Pair, Structure

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A symmetric matrix over shared coordinates.

    `common` acts on the total and on what the attributes of each class have in common, `apart[c]` on each of
    the other directions of class c, one less than it has attributes.
    """

    common: Array
    apart: tuple[Array, ...]

    @property
    def parts(self) -> tuple[Array, ...]:
        """`common` and all of `apart`."""
        return self.common, *self.apart

    def plus(self, other: "Shared") -> "Shared":
        """The sum of two."""
        apart = tuple(one + two for one, two in zip(self.apart, other.apart, strict=True))
        return Shared(self.common + other.common, apart)


class Layout:
    """Where the coordinates of each class are."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.widths = [structure.sizes[kind] - 1 for kind in structure.kind_of]
        ends = np.cumsum([1, *self.widths]).tolist()
        self.places = [slice(start, stop) for start, stop in pairwise(ends)]
        self.dimension = int(ends[-1])

    @property
    def multiplicities(self) -> list[int]:
        """How often each part of a `Shared` occurs."""
        return [1, *(count - 1 for count in self.structure.members)]

    def of_singles(self, total: float, squares: Sequence[Array]) -> Shared:
        """Sum over the attributes of all classes; a square is over the total and one attribute."""
        sums = _Sums(self)
        sums.common[0, 0] += total
        for at, square in enumerate(squares):
            count = self.structure.members[at]
            sums.common[0, 0] += count * square[0, 0]
            sums.common[0, self.places[at]] += math.sqrt(count) * square[0, 1:]
            sums.same[at] += square[1:, 1:]
        return sums.finished()

    def of_pairs(self, squares: Sequence[Array]) -> Shared:
        """Sum over all pairs; a square, one for each pair kind, is over the total and both attributes."""
        sums = _Sums(self)
        for pair, number in self.structure.pairs.items():
            sums.add(pair, squares[number])
        return sums.finished()

    def local(self, matrix: Shared, pair: Pair) -> Array:
        """The matrix over the total and two attributes of these classes."""
        one, two = pair
        first, second = (self.own(matrix, number) for number in pair)
        roots = [math.sqrt(self.structure.members[number]) for number in pair]
        inside = matrix.common[self.places[one], self.places[two]]
        cross = inside - matrix.apart[one] if one == two else inside
        cross = cross / (roots[0] * roots[1])
        edges = [
            matrix.common[0, self.places[number]] / root for number, root in zip(pair, roots, strict=True)
        ]
        return bordered(float(matrix.common[0, 0]), edges, first, cross, second)

    def own(self, matrix: Shared, at: int) -> Array:
        """The matrix over one attribute of a class."""
        count = self.structure.members[at]
        inside = matrix.common[self.places[at], self.places[at]]
        return np.asarray((inside + (count - 1) * matrix.apart[at]) / count)

    def edge(self, matrix: Shared, at: int) -> Array:
        """The matrix between the total and one attribute of a class."""
        return np.asarray(matrix.common[0, self.places[at]] / math.sqrt(self.structure.members[at]))

    def by_kind(self, matrix: Shared) -> Mapping[int, Array]:
        """For each pair kind the sum of the local matrices of all its pairs."""
        sums: dict[int, Array] = {}
        for pair, number in self.structure.pairs.items():
            more = self.structure.times(pair) * self.local(matrix, pair)
            sums[number] = sums[number] + more if number in sums else more
        return sums


class _Sums:
    """A sum in the making: between an attribute and itself, and between two of one class."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.common = np.zeros((layout.dimension, layout.dimension))
        self.same = [np.zeros((width, width)) for width in layout.widths]
        self.other = [np.zeros((width, width)) for width in layout.widths]

    def add(self, pair: Pair, square: Array) -> None:
        one, two = pair
        places, structure = self.layout.places, self.layout.structure
        counts = structure.members[one], structure.members[two]
        split = 1 + self.layout.widths[one]
        first, second, cross = square[1:split, 1:split], square[split:, split:], square[1:split, split:]
        self.common[0, 0] += structure.times(pair) * square[0, 0]
        if one == two:  # both halves are equal: the tables are unchanged by a swap
            edge = 0.5 * (square[0, 1:split] + square[0, split:])
            self.common[0, places[one]] += math.sqrt(counts[0]) * (counts[0] - 1) * edge
            self.same[one] += 0.5 * (counts[0] - 1) * (first + second)
            self.other[one] += 0.5 * (cross + cross.T)
            return
        self.common[0, places[one]] += math.sqrt(counts[0]) * counts[1] * square[0, 1:split]
        self.common[0, places[two]] += math.sqrt(counts[1]) * counts[0] * square[0, split:]
        self.common[places[one], places[two]] += math.sqrt(counts[0] * counts[1]) * cross
        self.same[one] += counts[1] * first
        self.same[two] += counts[0] * second

    def finished(self) -> Shared:
        for at, place in enumerate(self.layout.places):
            self.common[place, place] = (
                self.same[at] + (self.layout.structure.members[at] - 1) * self.other[at]
            )
        whole = np.triu(self.common) + np.triu(self.common, 1).T
        return Shared(whole, tuple(a - b for a, b in zip(self.same, self.other, strict=True)))


def bordered(corner: float, edges: Sequence[Array], first: Array, cross: Array, second: Array) -> Array:
    """The symmetric matrix over the total and two attributes."""
    return np.block(
        [
            [np.array([[corner]]), edges[0][None], edges[1][None]],
            [edges[0][:, None], first, cross],
            [edges[1][:, None], cross.T, second],
        ]
    )
