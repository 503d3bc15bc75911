"""A workload as single attributes, pairs of attributes and wider tables, attributes alike put together.

Attributes are *exchangeable* where swapping any two leaves all single attributes and pairs as they are; they
form a class. Attributes of one *kind* share their cell weights, which is a choice, not a symmetry.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from residua.linalg.matrices import join, spread, unchanged_by_swap
from residua.workload import Queries, Table, TableRun, Workload

Array = NDArray[np.float64]


Factors = tuple[tuple[tuple[int, ...], Queries], ...]
"""The families of a table on a pair: the places in the pair that each is on, ascending by first place."""

Asked = frozenset[tuple[Factors, float]]
"""Tables on one pair, each with its weight."""

Pair = tuple[int, int]
Alone = Mapping[int, Mapping[Queries, float]]


@dataclass(frozen=True, slots=True, eq=False)
class PairKind:
    """Equal tables on pairs of attributes of two kinds; every such pair has the same rows."""

    kinds: Pair
    tables: tuple[tuple[Factors, float], ...]

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
    """What is asked of single attributes and pairs: by class, by kind, and how often.

    `kind_of`, `members` and `alone` have an entry for each class: its kind, its number of attributes, and the
    families that each of them is asked alone, with weights. `sizes` has the cells of each kind. `pairs` has
    for some pairs of classes (the first not above the second) the number of a pair kind in `pair_kinds`.
    `total` is the weight of tables without attributes, `kinds` the kind of each attribute of the schema.
    """

    kind_of: tuple[int, ...]
    members: tuple[int, ...]
    alone: tuple[Mapping[Queries, float], ...]
    sizes: tuple[int, ...]
    pairs: Mapping[Pair, int]
    pair_kinds: tuple[PairKind, ...]
    total: float
    kinds: tuple[int, ...]

    def times(self, pair: Pair) -> int:
        """Number of pairs of attributes of two classes."""
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
        """Number of attributes of each kind, as far as tables on up to two attributes ask about them."""
        counts = [0] * len(self.sizes)
        for kind, members in zip(self.kind_of, self.members, strict=True):
            counts[kind] += members
        return counts

    @property
    def work(self) -> float:
        """Sum of `rank^2 * cells` over the pair kinds that are no products."""
        return sum(kind.work() for kind in self.pair_kinds if kind.factors() is None)


def structure_of(work: Workload, heaviest: float) -> Structure:
    """The structure of the tables on up to two attributes; pairs with more than `heaviest` work lack tables.

    Leaving out tables never raises an optimum, so a bound for the rest is a bound.
    """
    total, alone, meets = _read(work, heaviest)
    sizes = work.schema.sizes
    kinds = _kinds(alone, meets, sizes)
    classes = _classes(sorted({*alone, *(at for at, _ in meets)}), alone, meets, sizes)
    known: dict[object, int] = {}
    found: list[PairKind] = []
    pairs: dict[Pair, int] = {}
    for one, two in combinations_with_replacement(range(len(classes)), 2):
        first, second = classes[one][0], classes[two][-1]
        tables = meets.get((first, second), frozenset())
        if tables:
            number = known.setdefault((kinds[first], kinds[second], tables), len(found))
            if number == len(found):
                found.append(PairKind((kinds[first], kinds[second]), tuple(sorted(tables, key=repr))))
            pairs[one, two] = number
    heads = [members[0] for members in classes]
    cells = {kind: sizes[at] for at, kind in enumerate(kinds)}
    return Structure(
        tuple(kinds[head] for head in heads),
        tuple(map(len, classes)),
        tuple(alone.get(head, {}) for head in heads),
        tuple(cells[kind] for kind in range(len(cells))),
        pairs,
        tuple(found),
        total,
        kinds,
    )


def ways_of(part: Table | TableRun) -> int:
    """Number of attributes of the tables of a part."""
    return part.ways if isinstance(part, TableRun) else len(part.attributes)


def _read(work: Workload, heaviest: float) -> tuple[float, Alone, dict[Pair, Asked]]:
    """Weight of the total, what is asked of each attribute alone, and of each pair, in both orders."""
    total = 0.0
    alone: dict[int, dict[Queries, float]] = {}
    pairs: dict[Pair, dict[Factors, float]] = {}
    same: dict[Queries, bool] = {}
    for group in (group for part in work.parts if ways_of(part) <= 2 for group in _groups(part)):
        if not group.factors:
            total += group.weight
        elif len(group.attributes) == 1:
            own = alone.setdefault(group.attributes[0], {})
            queries = group.factors[0].queries
            own[queries] = own.get(queries, 0.0) + group.weight
        else:
            for one, two in permutations(group.attributes):
                tables = pairs.setdefault((one, two), {})
                factors = _placed(group, (one, two), same)
                tables[factors] = tables.get(factors, 0.0) + group.weight
    kept = {pair: _affordable(tables, heaviest) for pair, tables in pairs.items()}
    return total, alone, {pair: tables for pair, tables in kept.items() if tables}


def _groups(part: Table | TableRun) -> Iterable[Table]:
    return part if isinstance(part, TableRun) else (part,)


def _placed(group: Table, pair: Pair, same: dict[Queries, bool]) -> Factors:
    """The families of a table by place in the pair; `same` remembers which joint ones may be turned."""
    if len(group.factors) == 2:
        first, second = sorted(group.factors, key=lambda factor: pair.index(factor.attributes[0]))
        return ((0,), first.queries), ((1,), second.queries)
    (factor,) = group.factors
    places, queries = tuple(pair.index(at) for at in factor.attributes), factor.queries
    if places == (1, 0) and queries.sizes[0] == queries.sizes[1]:
        if queries not in same:
            same[queries] = unchanged_by_swap(queries.root(), queries.sizes[0])
        if same[queries]:
            places = (0, 1)
    return ((places, queries),)


def _affordable(tables: Mapping[Factors, float], heaviest: float) -> Asked:
    """All tables of a pair; where that is too much work, the product of most weight, or nothing."""
    whole = PairKind((0, 0), tuple(tables.items()))
    if whole.factors() is not None or whole.work() <= heaviest:
        return frozenset(tables.items())
    products = [(factors, weight) for factors, weight in tables.items() if len(factors) == 2]
    return frozenset([max(products, key=lambda each: each[1])]) if products else frozenset()


def _kinds(alone: Alone, meets: Mapping[Pair, Asked], sizes: Sequence[int]) -> tuple[int, ...]:
    """A number for each attribute of the schema, equal for those that are used alike."""
    uses: list[Counter[object]] = [Counter() for _ in sizes]
    for (at, _), tables in meets.items():
        uses[at][frozenset((tuple(queries for _, queries in each), weight) for each, weight in tables)] += 1
    numbers: dict[object, int] = {}
    keys = [
        (size, frozenset(alone.get(at, {}).items()), frozenset(uses[at].items()))
        for at, size in enumerate(sizes)
    ]
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def _classes(
    used: Sequence[int], alone: Alone, meets: Mapping[Pair, Asked], sizes: Sequence[int]
) -> list[list[int]]:
    """Attributes in classes that are exchangeable; where there is doubt, each by itself."""
    keyed: dict[object, list[int]] = {}
    for at in used:
        keyed.setdefault((sizes[at], frozenset(alone.get(at, {}).items())), []).append(at)
    classes = list(keyed.values())
    while True:
        clashes = {number for pair in _clashes(classes, meets) for number in pair}
        if not any(len(classes[number]) > 1 for number in clashes):
            return classes
        classes = [
            part
            for number, members in enumerate(classes)
            for part in ([[at] for at in members] if number in clashes else [members])
        ]


def _clashes(classes: Sequence[Sequence[int]], meets: Mapping[Pair, Asked]) -> Iterator[Pair]:
    """Pairs of classes whose members do not all meet in the same tables."""
    nothing: Asked = frozenset()
    for one, two in combinations_with_replacement(range(len(classes)), 2):
        pairs = ((left, right) for left in classes[one] for right in classes[two] if left != right)
        if len({meets.get(pair, nothing) for pair in pairs}) > 1:
            yield one, two


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
