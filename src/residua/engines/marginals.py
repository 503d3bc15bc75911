"""Counts of marginals from what an engine tallies: few sets are counted, the others add up from them.

Counting a set costs a step per record, adding up one per cell. So only the largest sets are counted, and sets
that overlap are counted as one where their union has few cells for the number of records.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb, prod
from operator import attrgetter
from typing import Self

import numpy as np

from residua._arrays import Integers, Subsets
from residua.engines.kernel import Set, Shares
from residua.engines.protocol import Derived, Engine, Progress
from residua.errors import DataError
from residua.schema import Number, Schema

Piece = tuple[int, list[int], Integers]
Place = tuple[int, int, Set]  # which request, which row of it, its attributes in the order asked
STEPS = 100  # of progress, whatever the data
PIECE_CELLS = 2**17  # that are handed on at a time: a megabyte, which stays in the cache
LARGEST_UNION = 2**16  # cells: half a megabyte of counts, which a second-level cache holds
RECORDS_PER_CELL = 16  # a union with more cells than that is not worth adding up
SUMMED_FREE = 4_096  # cells that are added up in less time than a table takes to be counted at all
TRIED = 600  # smaller sets looked up for each attribute that may join a union


@dataclass(frozen=True, slots=True)
class Counted:
    """A set to count, attributes in increasing order, and the wanted ones that add up from it."""

    attributes: Set
    wanted: tuple[Set, ...]


class Rereading(ABC):
    """An engine that codes its data against a schema anew for every pass."""

    def __init__(self, schema: Schema, about: int, cells_at_once: int) -> None:
        self._schema, self.about, self.cells_at_once = schema, about, cells_at_once
        self._shares = shares_of(schema)
        self._derived: tuple[Derived, ...] = ()
        self._records: int | None = None

    @property
    def records(self) -> int:
        """Number of records that the schema's policies leave; known after the first pass."""
        if self._records is None:
            self.tally([()])
        assert self._records is not None
        return self._records

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of the schema's attributes and of those made of them."""
        return (*self._schema.sizes, *(each.size for each in self._derived))

    def with_derived(self, derived: Sequence[Derived]) -> Self:
        """The same data with further attributes."""
        other = copy(self)
        other._derived, other._records = tuple(derived), None
        return other

    @abstractmethod
    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major."""


def shares_of(schema: Schema) -> dict[int, Shares]:
    """How the numbers of a schema are shared out among cells, by position."""
    pairs = enumerate(schema.attributes)
    return {at: Shares(own.steps, own.degree, own.missing) for at, own in pairs if isinstance(own, Number)}


def count_marginals(
    engine: Engine,
    sizes: Sequence[int],
    requests: Sequence[Subsets],
    progress: Progress | None = None,
    units: Sequence[int] | None = None,
) -> Iterator[Piece]:
    """Exact counts of everything requested, in pieces: (request, rows of it, counts of shape (rows, cells)).

    Counts modulo 2^64, where attributes have `units`: a record adds the product of those (claim U-004).

    A request is an array (marginals, attributes) of positions in the schema; the marginals of one request
    have the same sizes in the same order, and cells are row-major in that order. All requests share as few
    passes over the data as the engine's memory allows. A DataError if the data changed between two passes.
    What `progress` is told does not depend on the data (claim E-006).
    """
    places: dict[Set, list[Place]] = {}
    for request, subsets in enumerate(requests):
        for row, order in enumerate(map(tuple, subsets.tolist())):
            places.setdefault(tuple(sorted(order)), []).append((request, row, order))
    units = [1] * len(sizes) if units is None else units
    shared = {at for at, unit in enumerate(units) if unit > 1}
    first: tuple[int, int] | None = None
    steps = Steps(progress, len(places))
    groups = list(passes(list(places), sizes, engine.about, engine.cells_at_once, shared))
    for number, group in enumerate(groups):
        tallied = engine.tally([each.attributes for each in group], steps.part(number, len(groups)))
        pairs = list(zip(group, tallied, strict=True))
        for each, counted in pairs:
            total, unit = int(counted.sum()), prod([units[at] for at in each.attributes])
            first = (total, unit) if first is None else first
            if (total * first[1] - first[0] * unit) % 2**64:
                raise DataError("the data changed while being counted; count a copy that stands still")
        yield from _pieces(pairs, places, sizes)
    steps.reach(1.0)


def counts(engine: Engine, sizes: Sequence[int], subsets: Subsets) -> Integers:
    """Exact counts of marginals of one shape: (marginals, attributes) to (marginals, cells)."""
    cells = int(np.prod([sizes[at] for at in subsets[0].tolist()], dtype=np.int64)) if len(subsets) else 1
    result = np.empty((len(subsets), cells), dtype=np.int64)
    for _, rows, some in count_marginals(engine, sizes, [subsets]):
        result[rows] = some
    return result


def _pieces(
    tallied: Iterable[tuple[Counted, Integers]], places: dict[Set, list[Place]], sizes: Sequence[int]
) -> Iterator[Piece]:
    """The marginals of one pass, those of a request gathered until they have many cells."""
    open_pieces: dict[int, tuple[list[int], list[Integers]]] = {}
    room = PIECE_CELLS
    for each, all_counts in tallied:
        for wanted in each.wanted:
            same = wanted == each.attributes
            summed = all_counts if same else sum_down(all_counts, each.attributes, sizes, wanted)
            for request, row, order in places[wanted]:
                rows, found = open_pieces.setdefault(request, ([], []))
                rows.append(row)
                found.append(sum_down(summed, wanted, sizes, order) if order != wanted else summed)
                room -= len(summed)
            if room <= 0:
                yield from _stacked(open_pieces)
                open_pieces, room = {}, PIECE_CELLS
    yield from _stacked(open_pieces)


def _stacked(open_pieces: dict[int, tuple[list[int], list[Integers]]]) -> Iterator[Piece]:
    for request, (rows, found) in open_pieces.items():
        yield request, rows, np.stack(found)


class Steps:
    """Progress in hundredths, each told once, in order and in the same words.

    How many records there are, and so how many blocks and passes, changes when a step is told, not what.
    """

    def __init__(self, progress: Progress | None, tables: int) -> None:
        self._progress = progress
        self._words = "counting 1 table" if tables == 1 else f"counting {tables:,} tables"
        self._told = 0

    def reach(self, fraction: float) -> None:
        """Tell all steps up to this fraction that were not told yet."""
        while self._progress is not None and self._told < min(int(fraction * STEPS), STEPS):
            self._told += 1
            self._progress(self._words, self._told / STEPS)

    def part(self, number: int, many: int) -> Progress | None:
        """What one pass of many calls, if somebody listens; its own words are left out."""
        return None if self._progress is None else lambda _, done: self.reach((number + done) / many)


def passes(
    wanted: Sequence[Set],
    sizes: Sequence[int],
    records: int,
    cells_at_once: int,
    shared: Collection[int] = (),
) -> Iterator[list[Counted]]:
    """The sets to count, in groups of at most `cells_at_once` cells (or of one set that has more).

    Sets add up from such only as have the same ones of the attributes that are `shared` out among cells:
    those count by weights.

    `wanted` are different sets with attributes in increasing order. Each is the business of exactly one
    counted set.

    >>> list(passes([(0,), (0, 1), (2,)], (2, 2, 2), 4, 100))
    [[Counted(attributes=(0, 1), wanted=((0,), (0, 1))), Counted(attributes=(2,), wanted=((2,),))]]
    """
    group: list[Counted] = []
    room = cells_at_once
    by_shares: dict[Set, list[Set]] = {}
    for each in wanted:
        by_shares.setdefault(tuple(at for at in each if at in shared), []).append(each)
    unions = (_unions(_largest(own, sizes, records), sizes, records) for own in by_shares.values())
    for counted in sorted(chain.from_iterable(unions), key=attrgetter("attributes")):
        cells = cells_of(counted.attributes, sizes)
        if group and cells > room:
            yield group
            group, room = [], cells_at_once
        group.append(counted)
        room -= cells
    if group:
        yield group


def sum_down(counts: Integers, attributes: Set, sizes: Sequence[int], order: Set) -> Integers:
    """Counts of the attributes in `order`, in that order, from those of a set that has them all.

    >>> sum_down(np.array([1, 2, 3, 4, 5, 6]), (0, 1), (2, 3), (1,)).tolist()
    [5, 7, 9]
    """
    table = counts.reshape([sizes[at] for at in attributes])
    rest = tuple(axis for axis, at in enumerate(attributes) if at not in order)
    table = table.sum(axis=rest, dtype=np.int64) if rest else table
    left = [at for at in attributes if at in order]
    return table.transpose([left.index(at) for at in order]).reshape(-1)


def cells_of(attributes: Set, sizes: Sequence[int]) -> int:
    return prod([sizes[at] for at in attributes])


def _largest(wanted: Sequence[Set], sizes: Sequence[int], records: int) -> dict[Set, list[Set]]:
    """The sets that are in no other one, each with those that add up from it (itself included).

    A subset of a table that has many more cells than there are records is counted on its own.
    """
    worth = max(records, SUMMED_FREE)
    among, cells = set(wanted), {each: cells_of(each, sizes) for each in wanted}
    home: dict[Set, Set] = {}
    for big in sorted(wanted, key=len, reverse=True):
        home.setdefault(big, big)
        if home[big] != big or cells[big] > worth:
            continue
        for small in _subsets(big, among):
            rival = home.get(small)
            if rival is None or cells[big] < cells[rival]:
                home[small] = big
    homes: dict[Set, list[Set]] = {}
    for each in wanted:
        homes.setdefault(home[each], []).append(each)
    return homes


def _subsets(big: Set, among: set[Set]) -> Iterator[Set]:
    """The proper subsets of a set that are among some; attributes keep their order."""
    if 2 ** len(big) > len(among):
        inside = frozenset(big)
        yield from (small for small in among if len(small) < len(big) and inside.issuperset(small))
        return
    for length in range(len(big)):
        yield from (small for small in combinations(big, length) if small in among)


def _unions(homes: dict[Set, list[Set]], sizes: Sequence[int], records: int) -> Iterator[Counted]:
    """Sets and unions of sets that together have everything, each set in one of them."""
    most = min(LARGEST_UNION, records // RECORDS_PER_CELL)
    few = {each for each in homes if cells_of(each, sizes) <= most}
    left = _Left(few, sizes, most)
    for seed in sorted(homes):
        if seed not in few:
            yield Counted(seed, tuple(homes[seed]))
        elif seed in left.sets:
            union, parts = left.taken_with(seed)
            yield Counted(union, tuple(each for part in parts for each in homes[part]))


class _Left:
    """Sets of few cells that are in no union yet; `completing` has for smaller ones what makes them one.

    Attributes are bits of a number there, so that all that may join a union are looked at together.
    """

    def __init__(self, sets: Collection[Set], sizes: Sequence[int], most: int) -> None:
        self.sets = set(sets)
        self.sizes, self.most, self.least = sizes, most, min(sizes, default=1)
        self.lengths = sorted({len(each) for each in sets})
        self.completing: dict[Set, int] = {}
        self.of_size: dict[int, int] = {}
        for at, size in enumerate(sizes):
            self.of_size[size] = self.of_size.get(size, 0) | 1 << at
        for each in sets:
            self._turn(each)

    def taken_with(self, seed: Set) -> tuple[Set, list[Set]]:
        """A union that has a set, and all sets that are in it from now on."""
        self.take(seed)
        union, parts = seed, [seed]
        while found := self.best_addition(union):
            union, more = found
            parts += more
            for each in more:
                self.take(each)
        return union, parts

    def take(self, each: Set) -> None:
        """Leave out a set."""
        self.sets.remove(each)
        self._turn(each)

    def _turn(self, each: Set) -> None:
        """Note, or forget, how a set is completed."""
        for place, at in enumerate(each):
            small = each[:place] + each[place + 1 :]
            self.completing[small] = self.completing.get(small, 0) ^ 1 << at

    def best_addition(self, union: Set) -> tuple[Set, list[Set]] | None:
        """The union and the attribute that together hold the most sets that are left, and those sets."""
        room = self.most // cells_of(union, self.sizes)
        if room < self.least:
            return None
        if sum(comb(len(union), length - 1) for length in self.lengths if length) > TRIED:
            return None
        fitting = sum(own for size, own in self.of_size.items() if size <= room)
        fitting &= ~sum(1 << at for at in union)
        if not fitting:
            return None
        smaller = [each for length in self.lengths if length for each in combinations(union, length - 1)]
        best = _most_frequent(self.completing.get(small, 0) & fitting for small in smaller)
        if best is None:
            return None
        more = [each for small in smaller if (each := tuple(sorted((*small, best)))) in self.sets]
        return tuple(sorted((*union, best))), more


def _most_frequent(numbers: Iterable[int]) -> int | None:
    """The bit that is set in most of some numbers, the lowest of those; None if there is none.

    >>> _most_frequent([0b0110, 0b0101, 0b1100])
    2
    """
    planes: list[int] = []  # how often each bit is set, in binary, the ones first
    for carry in numbers:
        for place, plane in enumerate(planes):
            planes[place], carry = plane ^ carry, plane & carry
        if carry:
            planes.append(carry)
    best = -1  # all of them
    for plane in reversed(planes):
        best = best & plane or best
    return (best & -best).bit_length() - 1 if planes else None
