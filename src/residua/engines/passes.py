"""Which sets of attributes are counted, in how many passes over the data, and how the others add up.

Counting a set costs a step per record, adding up one per cell. So only the largest sets are counted, and sets
that overlap are counted as one where their union has few cells for the number of records.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb, prod
from operator import attrgetter

import numpy as np

from residua._arrays import Integers
from residua.engines.kernel import Set

LARGEST_UNION = 2**16  # cells: half a megabyte of counts, which a second-level cache holds
RECORDS_PER_CELL = 16  # a union with more cells than that is not worth adding up
SUMMED_FREE = 4_096  # cells that are added up in less time than a table takes to be counted at all
TRIED = 600  # smaller sets looked up for each attribute that may join a union


@dataclass(frozen=True, slots=True)
class Counted:
    """A set to count, attributes in increasing order, and the wanted ones that add up from it."""

    attributes: Set
    wanted: tuple[Set, ...]


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
    return prod(sizes[at] for at in attributes)


def _largest(wanted: Sequence[Set], sizes: Sequence[int], records: int) -> dict[Set, list[Set]]:
    """The sets that are in no other one, each with those that add up from it (itself included).

    A subset of a table that has many more cells than there are records is counted on its own.
    """
    worth = max(records, SUMMED_FREE)
    among = set(wanted)
    home: dict[Set, Set] = {}
    for big in sorted(wanted, key=len, reverse=True):
        home.setdefault(big, big)
        if home[big] != big or cells_of(big, sizes) > worth:
            continue
        for small in _subsets(big, among):
            rival = home.get(small)
            if rival is None or cells_of(big, sizes) < cells_of(rival, sizes):
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
    left = dict.fromkeys(sorted(homes))
    lengths = sorted({len(each) for each in homes})
    while left:
        seed = next(iter(left))
        del left[seed]
        union, parts = seed, [seed]
        while found := _best_addition(union, left, lengths, sizes, most):
            union, more = found
            parts += more
            for each in more:
                del left[each]
        yield Counted(union, tuple(each for part in parts for each in homes[part]))


def _best_addition(
    union: Set, left: dict[Set, None], lengths: Sequence[int], sizes: Sequence[int], most: int
) -> tuple[Set, list[Set]] | None:
    """The union and the attribute that together hold the most sets that are left, and those sets."""
    best: tuple[Set, list[Set]] | None = None
    if sum(comb(len(union), length - 1) for length in lengths if length) > TRIED:
        return None
    smaller = [each for length in lengths if length for each in combinations(union, length - 1)]
    cells = cells_of(union, sizes)
    for at, size in enumerate(sizes):
        if at in union or cells * size > most:
            continue
        more = [each for small in smaller if (each := tuple(sorted((*small, at)))) in left]
        if more and (best is None or len(more) > len(best[1])):
            best = tuple(sorted((*union, at))), more
    return best
