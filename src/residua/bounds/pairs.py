"""A workload as single attributes, pairs of attributes and wider tables, symmetric attributes put together.

Attributes of one *orbit* can be exchanged without changing what single attributes and pairs are asked; those
of one *role* share their cell weights, which is a choice, not a symmetry (see `workload.symmetry`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from residua._arrays import Array, Indices, Integers
from residua.linalg.matrices import join, spread
from residua.workload import Queries, Table, TableRun, Workload
from residua.workload.symmetry import attribute_orbits, roles, symmetric

Factors = tuple[tuple[tuple[int, ...], Queries], ...]
"""The families of a table on a pair: the places in the pair that each is on, ascending by first place."""

Tables = tuple[tuple[Factors, float], ...]
"""Tables on one pair, each with its weight."""

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class PairKind:
    """Equal tables on pairs of attributes of two roles; every such pair has the same rows."""

    roles: Pair
    tables: Tables

    def factors(self) -> tuple[Queries, Queries] | None:
        """The two families, where there is one table and it is a product of them."""
        ((factors, _), *others) = self.tables
        return None if others or len(factors) != 2 else (factors[0][1], factors[1][1])

    def roots(self) -> tuple[Array, ...]:
        """Rows over the cells of each family of a product, or rows over the cells of the pair."""
        factors = self.factors()
        if factors is not None:
            return np.sqrt(self.tables[0][1]) * factors[0].root(), factors[1].root()
        return (np.concatenate([np.sqrt(weight) * _rows(each) for each, weight in self.tables]),)

    def work(self) -> float:
        """`rank^2 * cells`, at most."""
        ((factors, _), *_) = self.tables
        cells = float(np.prod([size for _, queries in factors for size in queries.sizes]))
        rank = sum(np.prod([min(q.count, q.cells) for _, q in each], dtype=float) for each, _ in self.tables)
        return float(min(rank, cells)) ** 2 * cells


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """What is asked of single attributes and pairs: by orbit, by role, and how often.

    `role_of`, `members` and `alone` have an entry for each orbit: its role, its number of attributes, and the
    families that each of them is asked alone, with weights. `sizes` has the cells of each role. `pairs` has
    for some pairs of orbits (the first not above the second) the number of a pair kind in `pair_kinds`.
    `total` is the weight of tables without attributes, `roles` the role of each attribute of the schema.
    """

    role_of: tuple[int, ...]
    members: tuple[int, ...]
    alone: tuple[Mapping[Queries, float], ...]
    sizes: tuple[int, ...]
    pairs: Mapping[Pair, int]
    pair_kinds: tuple[PairKind, ...]
    total: float
    roles: tuple[int, ...]

    def times(self, pair: Pair) -> int:
        """Number of pairs of attributes of two orbits."""
        one, two = pair
        count = self.members[one]
        return count * (count - 1) // 2 if one == two else count * self.members[two]

    def uses(self) -> list[int]:
        """Number of pairs of attributes of each pair kind."""
        counts = [0] * len(self.pair_kinds)
        for pair, number in self.pairs.items():
            counts[number] += self.times(pair)
        return counts

    def attributes(self) -> list[int]:
        """Number of attributes of each role, as far as tables on up to two attributes ask about them."""
        counts = [0] * len(self.sizes)
        for role, members in zip(self.role_of, self.members, strict=True):
            counts[role] += members
        return counts

    @property
    def shared(self) -> int:
        """Dimensions of the total and of all attributes, exchangeable ones counted once."""
        return 1 + sum(self.sizes[kind] - 1 for kind in self.role_of)

    @property
    def work(self) -> float:
        """Sum of `rank^2 * cells` over the pair kinds that are no products."""
        return sum(kind.work() for kind in self.pair_kinds if kind.factors() is None)


def structure_of(work: Workload, heaviest: float) -> Structure:
    """The structure of the tables on up to two attributes; pairs with more than `heaviest` work lack tables.

    Leaving out tables never raises an optimum, so a bound for the rest is a bound.
    """
    small = [part for part in work.parts if ways_of(part) <= 2]
    marks = [part.weight for part in small]
    role, orbit = roles(work.schema, small, marks), attribute_orbits(work.schema, small, marks)
    members = [np.flatnonzero(orbit == number).tolist() for number in range(orbit.max(initial=-1) + 1)]
    total, alone, meets = _read(small, orbit, members)
    pair_kinds: dict[tuple[Pair, Tables], int] = {}
    pairs: dict[Pair, int] = {}
    for (one, two), tables in sorted(meets.items()):
        kept = _affordable(tables, heaviest)
        if kept:
            key = ((role[members[one][0]], role[members[two][0]]), kept)
            pairs[one, two] = pair_kinds.setdefault(key, len(pair_kinds))
    cells = dict(zip(role, work.schema.sizes, strict=True))
    return Structure(
        tuple(role[own[0]] for own in members),
        tuple(map(len, members)),
        tuple(alone.get(number, {}) for number in range(len(members))),
        tuple(cells[number] for number in range(len(cells))),
        pairs,
        tuple(PairKind(pair, tables) for pair, tables in pair_kinds),
        total,
        tuple(role),
    )


def ways_of(part: Table | TableRun) -> int:
    """Number of attributes of the tables of a part."""
    return part.ways if isinstance(part, TableRun) else len(part.attributes)


def _read(
    small: Sequence[Table | TableRun], orbit: Integers, members: Sequence[Sequence[int]]
) -> tuple[float, dict[int, dict[Queries, float]], dict[Pair, dict[Factors, float]]]:
    """Weight of the total; what is asked of one attribute of each orbit; and of a pair of each two orbits."""
    total = 0.0
    alone: dict[int, dict[Queries, float]] = {}
    pairs: dict[Pair, dict[Factors, float]] = {}
    for table in (table for part in small for table in part):
        attributes = sorted(table.attributes, key=lambda at: (orbit[at], at))
        orbits = [int(orbit[at]) for at in attributes]
        if not attributes:
            total += table.weight
        elif attributes[0] != members[orbits[0]][0]:
            continue
        elif len(attributes) == 1:
            own, queries = alone.setdefault(orbits[0], {}), table.factors[0].queries
            own[queries] = own.get(queries, 0.0) + table.weight
        elif attributes[1] == members[orbits[1]][-1]:
            tables = pairs.setdefault((orbits[0], orbits[1]), {})
            factors = _placed(table, attributes)
            tables[factors] = tables.get(factors, 0.0) + table.weight
    return total, alone, pairs


def _placed(table: Table, pair: Sequence[int]) -> Factors:
    """The families of a table by place in the pair; joint ones in ascending order where that is the same."""
    if len(table.factors) == 2:
        first, second = sorted(table.factors, key=lambda factor: pair.index(factor.attributes[0]))
        return ((0,), first.queries), ((1,), second.queries)
    (factor,) = table.factors
    places, queries = tuple(pair.index(at) for at in factor.attributes), factor.queries
    if places == (1, 0) and symmetric(queries):
        places = (0, 1)
    return ((places, queries),)


def _affordable(tables: Mapping[Factors, float], heaviest: float) -> Tables:
    """All tables of a pair; where that is too much work, the product of most weight, or nothing."""
    whole = PairKind((0, 0), tuple(sorted(tables.items(), key=repr)))
    if whole.factors() is not None or whole.work() <= heaviest:
        return whole.tables
    products = [(factors, weight) for factors, weight in whole.tables if len(factors) == 2]
    return (max(products, key=lambda each: each[1]),) if products else ()


def _rows(factors: Factors) -> Array:
    """Rows of one table over the cells of its pair, row-major."""
    places = [place for own, _ in factors for place in own]
    sizes = [size for _, queries in factors for size in queries.sizes]
    width = [sizes[places.index(place)] for place in range(2)]
    return spread(join(queries.root() for _, queries in factors), sizes, places, width)


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
        self.widths = [structure.sizes[kind] - 1 for kind in structure.role_of]
        ends = np.cumsum([1, *self.widths]).tolist()
        self.places = [slice(start, stop) for start, stop in pairwise(ends)]
        self.dimension = int(ends[-1])

    @property
    def multiplicities(self) -> list[int]:
        """How often each part of a `Shared` occurs."""
        return [1, *(count - 1 for count in self.structure.members)]

    def of_singles(self, total: float, squares: Sequence[Array]) -> Shared:
        """Sum over the attributes of all classes; a square is over the total and one attribute."""
        common = np.zeros((self.dimension, self.dimension))
        common[0, 0] = total
        for at, square in enumerate(squares):
            count = self.structure.members[at]
            common[0, 0] += count * square[0, 0]
            common[0, self.places[at]] += math.sqrt(count) * square[0, 1:]
        own = [square[1:, 1:] for square in squares]
        return self.finished(common, own, [np.zeros_like(each) for each in own])

    def of_pairs(self, squares: Sequence[Array]) -> Shared:
        """Sum over all pairs; a square, one for each pair kind, is over the total and both attributes."""
        return self._pair_sums.of(squares)

    @cached_property
    def _pair_sums(self) -> "_PairSums":
        return _PairSums(self)

    def finished(self, common: Array, same: Sequence[Array], other: Sequence[Array]) -> Shared:
        """The matrix from what is above its diagonal, and between an attribute and itself or one alike."""
        for place, own, alike, count in zip(self.places, same, other, self.structure.members, strict=True):
            common[place, place] = own + (count - 1) * alike
        whole = np.triu(common) + np.triu(common, 1).T
        return Shared(whole, tuple(own - alike for own, alike in zip(same, other, strict=True)))

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


class _PairSums:
    """Sums over all pairs: which entry of which square is added where, and how often.

    Squares of all pair kinds one after the other are added to one vector, of `common` and, for each class, of
    what is between an attribute and itself (`same`) and between two of the class (`other`).
    """

    def __init__(self, layout: Layout) -> None:
        self.layout, structure = layout, layout.structure
        lengths = [layout.dimension, *layout.widths, *layout.widths]
        ends = np.cumsum([0, *(length**2 for length in lengths)]).tolist()
        self._size = ends[-1]
        self._grids = [
            np.arange(start, stop).reshape(length, length)
            for (start, stop), length in zip(pairwise(ends), lengths, strict=True)
        ]
        widths = [1 + sum(structure.sizes[role] - 1 for role in kind.roles) for kind in structure.pair_kinds]
        starts = np.cumsum([0, *(width**2 for width in widths)]).tolist()
        none = np.zeros(0, dtype=np.intp)
        every = [(none, none, np.zeros(0))]
        for pair, number in structure.pairs.items():
            width = widths[number]
            square = starts[number] + np.arange(width**2).reshape(width, width)
            for to, own, times in self._entries(pair, square):
                every.append((to.reshape(-1), own.reshape(-1), np.full(to.size, times)))
        self._to, self._own, self._times = (np.concatenate(each) for each in zip(*every, strict=True))

    def _entries(self, pair: Pair, square: Indices) -> Iterator[tuple[Indices, Indices, float]]:
        """Where entries of a square are added, which they are, and how often."""
        (one, two), layout = pair, self.layout
        common, same, other = self._grids[0], self._grids[1:][one], self._grids[1 + len(layout.widths) :][one]
        places, counts = layout.places, [layout.structure.members[at] for at in pair]
        split = 1 + layout.widths[one]
        first, second, cross = square[1:split, 1:split], square[split:, split:], square[1:split, split:]
        yield common[0, :1], square[0, :1], layout.structure.times(pair)
        if one == two:  # both halves are equal: the tables are unchanged by a swap
            for edge in (square[0, 1:split], square[0, split:]):
                yield common[0, places[one]], edge, 0.5 * math.sqrt(counts[0]) * (counts[0] - 1)
            for own in (first, second):
                yield same, own, 0.5 * (counts[0] - 1)
            for own in (cross, cross.T):
                yield other, own, 0.5
            return
        yield common[0, places[one]], square[0, 1:split], math.sqrt(counts[0]) * counts[1]
        yield common[0, places[two]], square[0, split:], math.sqrt(counts[1]) * counts[0]
        yield common[places[one], places[two]], cross, math.sqrt(counts[0] * counts[1])
        yield same, first, counts[1]
        yield self._grids[1:][two], second, counts[0]

    def of(self, squares: Sequence[Array]) -> Shared:
        """The sum of these squares, one for each pair kind."""
        entries = np.concatenate([np.zeros(0), *(square.reshape(-1) for square in squares)])
        shares = self._times * entries[self._own]
        sums: Array = np.asarray(np.bincount(self._to, shares, self._size), dtype=np.float64)
        common, *rest = (sums[grid] for grid in self._grids)
        return self.layout.finished(common, rest[: len(rest) // 2], rest[len(rest) // 2 :])


def bordered(corner: float, edges: Sequence[Array], first: Array, cross: Array, second: Array) -> Array:
    """The symmetric matrix over the total and two attributes."""
    split = 1 + len(first)
    found = np.empty((split + len(second),) * 2)  # np.block takes several times as long for small ones
    found[0, 0] = corner
    found[0, 1:] = found[1:, 0] = np.concatenate(edges)
    found[1:split, 1:split], found[split:, split:] = first, second
    found[1:split, split:], found[split:, 1:split] = cross, cross.T
    return found
