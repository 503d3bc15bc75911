"""The counting loop: how often each combination of codes occurs, block by block of records.

A bounded number is shared out among cells: its records count in several, each by a whole weight.

Blocks are short, so that the codes and the places computed from them stay in the cache. Attribute sets that
begin alike share the work of their common beginning. Needs numpy and nothing else of this package: helper
processes run this file by itself.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import comb, lcm, prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Integers = NDArray[np.int64]
Block = Sequence[AnyArray]  # for each attribute, the codes of some records, unsigned, (records,)
Set = tuple[int, ...]  # attributes, by their positions
Occurrence = tuple[int, Integers, Integers]  # a set, cells of it that occur, and how often
WAITING = 2**21  # numbers that wait until those of equal cells are added up: 50 megabytes while they are
ROWS = 65_536  # records of a block: its codes and one array of places fit a second-level cache


class Shares:
    """How codes of a bounded number are shared out among cells: by whole weights that add up to `unit`.

    `steps` are the codes of the ends of its bins. A code within a bin has weights in the bin's `degree + 1`
    cells, those of Bernstein's polynomials; with `missing`, the code after the last has a cell of its own.

    >>> cells, weights = Shares((0, 4), 1, True).of(np.array([0, 1, 4, 5]))
    >>> cells.tolist(), [each.tolist() for each in weights]
    ([0, 0, 0, 1], [[4, 3, 0, 0], [0, 1, 4, 4]])
    """

    def __init__(self, steps: Sequence[int], degree: int, missing: bool) -> None:
        self.steps, self.degree, self.missing = tuple(steps), degree, missing
        ends = np.array(self.steps, dtype=np.int64)
        self._starts, self._widths = ends[:-1], ends[1:] - ends[:-1]
        widest = lcm(*self._widths.tolist())
        self.unit = int(widest**degree)
        self._multiples = np.array([(widest // each) ** degree for each in self._widths.tolist()])

    @property
    def codes(self) -> int:
        """Number of codes."""
        return self.steps[-1] + 1 + self.missing

    def of(self, codes: AnyArray) -> tuple[AnyArray, list[Integers]]:
        """The first cell of each record, (records,), and its weights in that one and the next ones."""
        bins = np.searchsorted(self._starts[1:], codes, side="right")
        above = codes.astype(np.int64) - self._starts[bins]
        below = self._widths[bins] - above
        degree = self.degree
        weights = [
            comb(degree, i) * above**i * below ** (degree - i) * self._multiples[bins]
            for i in range(degree + 1)
        ]
        cells = bins * (degree + 1)
        lost = codes > self.steps[-1]
        if self.missing and lost.any():
            cells[lost] += 1
            for i, own in enumerate(weights):
                own[lost] = self.unit if i == degree else 0
        return cells, weights


@dataclass(slots=True)
class Beginning:
    """The places of records in the cells of some attributes, the first ones of a set."""

    attributes: Set
    cells: int
    places: AnyArray  # (records,)
    _ahead: dict[int, AnyArray] = field(default_factory=dict)

    def with_next(self, attribute: int, size: int, codes: AnyArray) -> "Beginning":
        """The same with one attribute more."""
        return Beginning((*self.attributes, attribute), self.cells * size, self.ahead(size) + codes)

    def ahead(self, size: int) -> AnyArray:
        """Places of the first cells, with one attribute more of so many; kept for other ones."""
        if size not in self._ahead:
            kind = narrowest(self.cells * size + 1)  # the size itself must fit, too
            self._ahead[size] = np.multiply(self.places, kind(size), dtype=kind)
        return self._ahead[size]  # a code is narrower than that, or as narrow


class Tally:
    """Running counts of several attribute sets; `counts[k]` has the cells of `sets[k]`, row-major.

    The codes of attributes in `shares` are shared out: each record counts by the products of its weights.

    >>> tally = Tally((2, 3), [(0, 1), (1,), ()])
    >>> tally.add([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)])
    >>> [counts.tolist() for counts in tally.counts]
    [[0, 0, 1, 2, 0, 0], [2, 0, 1], [3]]
    """

    def __init__(
        self, sizes: Sequence[int], sets: Sequence[Set], shares: Mapping[int, Shares] | None = None
    ) -> None:
        self._sizes, self._sets = tuple(sizes), list(sets)
        used = {at for each in sets for at in each}
        self._shares = {at: own for at, own in (shares or {}).items() if at in used}
        self._order = sorted(range(len(sets)), key=lambda at: self._sets[at])
        self._places = np.empty(ROWS, dtype=np.intp)
        self._start()

    def _start(self) -> None:
        lengths = [prod(self._sizes[at] for at in each) for each in self._sets]
        self.flat: Integers = np.zeros(sum(lengths), dtype=np.int64)
        ends = np.cumsum([0, *lengths]).tolist()
        self.counts = [self.flat[start:end] for start, end in pairwise(ends)]

    def _put(self, at: int, places: AnyArray, weights: Any) -> None:
        """Add weights to the counts of a set, at these places."""
        np.add.at(self.counts[at], places.astype(np.intp, copy=False), weights)

    def _put_each(self, at: int, places: AnyArray) -> None:
        """Add one to the counts of a set, at each of these places."""
        own = self.counts[at]
        if len(own) > len(places):
            self._put(at, places, 1)
        else:
            own += np.bincount(places, minlength=len(own))

    waiting = 0
    """How many numbers wait for being added up."""

    def finish(self) -> list[Integers]:
        """The counts of every set."""
        return self.counts

    def pieces(self) -> Iterator[Occurrence]:
        """Each set with those of its cells that occur, increasing, and their counts."""
        for at, own in enumerate(self.counts):
            places = np.flatnonzero(own)
            yield at, places, own[places]

    def stream(self, blocks: Iterable[Block], most: int) -> Iterator[Occurrence]:
        """The cells that occur in all blocks, told as soon as so many numbers wait."""
        for block in blocks:
            self.add(block)
            if self.waiting >= most:
                yield from self.pieces()
        yield from self.pieces()

    def add(self, block: Block) -> None:
        """Count the records of a block, of any length."""
        records = len(block[0])
        for start in range(0, records, ROWS):
            self._add([codes[start : start + ROWS] for codes in block], min(ROWS, records - start))

    def _add(self, block: Block, records: int) -> None:
        weights: dict[int, list[Integers]] = {}
        for at, shares in self._shares.items():
            cells, weights[at] = shares.of(block[at])
            block = [*block[:at], cells.astype(narrowest(self._sizes[at])), *block[at + 1 :]]
        known: list[Beginning] = []  # those of the last set, one attribute more each
        places = self._places[:records]
        for at in self._order:
            attributes = self._sets[at]
            if not attributes:
                self._put(at, np.zeros(1, dtype=np.intp), records)
                continue
            *first, last = attributes
            while known and known[-1].attributes != tuple(first[: len(known)]):
                known.pop()
            for each in first[len(known) :]:
                size, codes = self._sizes[each], block[each]
                begun = known[-1].with_next(each, size, codes) if known else Beginning((each,), size, codes)
                known.append(begun)
            # Into memory that stays: places of one set after another would be given back each time.
            np.add(known[-1].ahead(self._sizes[last]) if known else 0, block[last], out=places)
            if self._shares.keys().isdisjoint(attributes):
                self._put_each(at, places)
            else:
                self._add_shares(at, places, weights)

    def _add_shares(self, set_: int, places: AnyArray, weights: Mapping[int, list[Integers]]) -> None:
        """Count records in all their cells: numbers at `places` and on, by products of their weights."""
        attributes = self._sets[set_]
        found: list[tuple[int, Any]] = [(0, 1)]
        for level, at in enumerate(attributes):
            if at in weights:
                stride = prod(self._sizes[each] for each in attributes[level + 1 :])
                own = [(number * stride, weight) for number, weight in enumerate(weights[at])]
                found = [(first + more, left * right) for first, left in found for more, right in own]
        for offset, weight in found:
            self._put(set_, places + offset, weight)


class Occurring(Tally):
    """Running counts of those cells only that occur, of sets that may have many more cells than records.

    >>> tally = Occurring((2, 10**9), [(0, 1)])
    >>> tally.add([np.array([0, 1, 1], np.uint8), np.array([7, 5, 5], np.uint32)])
    >>> [(at, places.tolist(), counts.tolist()) for at, places, counts in tally.pieces()]
    [(0, [7, 1000000005], [1, 2])]
    """

    def _start(self) -> None:
        self._waiting: list[list[tuple[AnyArray, Any]]] = [[] for _ in self._sets]

    def _put(self, at: int, places: AnyArray, weights: Any) -> None:
        self._waiting[at].append((places.astype(np.intp), weights))
        self.waiting += len(places)

    def _put_each(self, at: int, places: AnyArray) -> None:
        self._put(at, places, 1)

    def pieces(self) -> Iterator[Occurrence]:
        """What was added since the last time, which is forgotten here."""
        for at, found in enumerate(self._waiting):
            if found:
                places = np.concatenate([own for own, _ in found])
                plain = all(np.ndim(weight) == 0 and weight == 1 for _, weight in found)
                weights = [] if plain else [np.broadcast_to(weight, own.shape) for own, weight in found]
                found.clear()
                if weights:
                    yield at, *_added_up(places, np.concatenate(weights))
                else:
                    yield at, *np.unique(places, return_counts=True)
        self.waiting = 0


def _added_up(places: Integers, weights: Integers) -> tuple[Integers, Integers]:
    """Different places, increasing, and the sum of the weights of each."""
    order = np.argsort(places)
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    return places[order[first]], np.add.reduceat(weights[order], first)


def narrowest(cells: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type that numbers so many cells."""
    for kind in (np.uint8, np.uint16, np.uint32):
        if cells <= 2 ** (8 * np.dtype(kind).itemsize):
            return kind
    return np.uint64


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Count the blocks that come from `source`, and write the counts to `target` when it ends.

    First comes a line of JSON with the sizes, the sets and the shares. A block is the number of records in
    8 bytes, and then the codes of every attribute that is in some set.
    """
    task = json.loads(source.readline())
    sizes, sets = task["sizes"], [tuple(each) for each in task["sets"]]
    used = sorted({at for each in sets for at in each})
    shares = {at: Shares(steps, degree, missing) for at, steps, degree, missing in task["shares"]}
    types = [np.dtype(narrowest(each)) for at, each in enumerate(code_counts(sizes, shares)) if at in used]
    tally = Tally(sizes, sets, shares)
    block = [np.empty(0, dtype=np.uint8)] * len(sizes)
    while header := source.read(8):
        records = int.from_bytes(header, "little")
        for at, kind in zip(used, types, strict=True):
            block[at] = np.frombuffer(source.read(records * kind.itemsize), dtype=kind)
        tally.add([block[at] if at in used else block[used[0]] for at in range(len(sizes))])
    target.write(tally.flat.data)


def code_counts(sizes: Sequence[int], shares: Mapping[int, Shares]) -> tuple[int, ...]:
    """Number of codes of each attribute: that of its cells, unless records are shared out among those."""
    return tuple(shares[at].codes if at in shares else size for at, size in enumerate(sizes))


def block_of(codes: Sequence[AnyArray], sizes: Sequence[int]) -> Block:
    """The codes in the narrowest types, without the records that have a negative one.

    >>> block_of([np.array([0, -1, 2], np.int32), np.array([1, 1, 0], np.uint8)], (3, 2))
    [array([0, 2], dtype=uint8), array([1, 0], dtype=uint8)]
    """
    signed = [each for each in codes if each.dtype.kind == "i"]
    if any((each < 0).any() for each in signed):
        kept = np.logical_and.reduce([each >= 0 for each in signed])
        codes = [each[kept] for each in codes]
    return [each.astype(narrowest(size), copy=False) for each, size in zip(codes, sizes, strict=True)]


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
