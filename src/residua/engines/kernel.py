"""The counting loop: how often each combination of codes occurs, block by block of records.

Blocks are short, so that the codes and the places computed from them stay in the cache. Attribute sets that
begin alike share the work of their common beginning. Needs numpy and nothing else of this package: helper
processes run this file by itself.
"""

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import IO, Any

import numpy as np

from residua._arrays import AnyArray, Integers

Block = Sequence[AnyArray]  # for each attribute, the codes of some records, unsigned, (records,)
Set = tuple[int, ...]  # attributes, by their positions
ROWS = 65_536  # records of a block: its codes and one array of places fit a second-level cache


class Tally:
    """Running counts of several attribute sets; `counts[k]` has the cells of `sets[k]`, row-major.

    >>> tally = Tally((2, 3), [(0, 1), (1,), ()])
    >>> tally.add([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)])
    >>> [counts.tolist() for counts in tally.counts]
    [[0, 0, 1, 2, 0, 0], [2, 0, 1], [3]]
    """

    def __init__(self, sizes: Sequence[int], sets: Sequence[Set]) -> None:
        self._sizes = tuple(sizes)
        self._sets = list(sets)
        self._order = sorted(range(len(sets)), key=lambda at: self._sets[at])
        self._places = np.empty(ROWS, dtype=np.intp)
        lengths = [prod(self._sizes[at] for at in each) for each in sets]
        self.flat: Integers = np.zeros(sum(lengths), dtype=np.int64)
        ends = np.cumsum([0, *lengths]).tolist()
        self.counts = [self.flat[start:end] for start, end in pairwise(ends)]

    def finish(self) -> list[Integers]:
        """The counts of every set."""
        return self.counts

    def add(self, block: Block) -> None:
        """Count the records of a block, of any length."""
        records = len(block[0])
        for start in range(0, records, ROWS):
            self._add([codes[start : start + ROWS] for codes in block], min(ROWS, records - start))

    def _add(self, block: Block, records: int) -> None:
        places = self._places[:records]
        known: list[tuple[int, AnyArray]] = []  # places of the last set's beginnings, one attribute each
        for at in self._order:
            attributes, counts = self._sets[at], self.counts[at]
            if not attributes:
                counts += records
                continue
            shared = 0
            while shared < min(len(known), len(attributes)) and known[shared][0] == attributes[shared]:
                shared += 1
            del known[shared:]
            for level in range(shared, len(attributes)):
                known.append((attributes[level], self._extend(known, attributes[: level + 1], block)))
            places[:] = known[-1][1]
            np.add.at(counts, places, 1)

    def _extend(self, known: Sequence[tuple[int, AnyArray]], attributes: Set, block: Block) -> AnyArray:
        """Places in the cells of `attributes`, from those of all but the last one."""
        codes = block[attributes[-1]]
        if not known:
            return codes
        size = self._sizes[attributes[-1]]
        kind = narrowest(prod(self._sizes[at] for at in attributes) + 1)  # the size itself must fit, too
        places: AnyArray = np.multiply(known[-1][1], kind(size), dtype=kind)
        places += codes  # a code is narrower than a place, or as narrow
        return places


def narrowest(cells: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type that numbers so many cells."""
    for kind in (np.uint8, np.uint16, np.uint32):
        if cells <= 2 ** (8 * np.dtype(kind).itemsize):
            return kind
    return np.uint64


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Count the blocks that come from `source`, and write the counts to `target` when it ends.

    First comes a line of JSON with the sizes and the sets. A block is the number of records in 8 bytes, and
    then the codes of every attribute that is in some set.
    """
    task = json.loads(source.readline())
    sizes, sets = task["sizes"], [tuple(each) for each in task["sets"]]
    used = sorted({at for each in sets for at in each})
    types = [np.dtype(narrowest(sizes[at])) for at in used]
    tally = Tally(sizes, sets)
    block = [np.empty(0, dtype=np.uint8)] * len(sizes)
    while header := source.read(8):
        records = int.from_bytes(header, "little")
        for at, kind in zip(used, types, strict=True):
            block[at] = np.frombuffer(source.read(records * kind.itemsize), dtype=kind)
        tally.add([block[at] if at in used else block[used[0]] for at in range(len(sizes))])
    target.write(tally.flat.data)


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
