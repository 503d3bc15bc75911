"""Counts of marginals from what an engine tallies: few sets are counted, the others add up from them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.engines.kernel import Set
from residua.engines.passes import Counted, passes, sum_down
from residua.engines.protocol import Engine, Progress
from residua.errors import DataError

Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]
Piece = tuple[int, list[int], Integers]
Place = tuple[int, int, Set]  # which request, which row of it, its attributes in the order asked

STEPS = 100  # of progress, whatever the data


def count_marginals(
    engine: Engine, sizes: Sequence[int], requests: Sequence[Subsets], progress: Progress | None = None
) -> Iterator[Piece]:
    """Exact counts of everything requested, in pieces: (request, rows of it, counts of shape (rows, cells)).

    A request is an array (marginals, attributes) of positions in the schema; the marginals of one request
    have the same sizes in the same order, and cells are row-major in that order. All requests share as few
    passes over the data as the engine's memory allows. A DataError if the data changed between two passes.
    What `progress` is told does not depend on the data (claim E-006).
    """
    places: dict[Set, list[Place]] = {}
    for request, subsets in enumerate(requests):
        for row, order in enumerate(map(tuple, subsets.tolist())):
            places.setdefault(tuple(sorted(order)), []).append((request, row, order))
    records: int | None = None
    steps = None if progress is None else Steps(progress, len(places))
    groups = list(passes(list(places), sizes, engine.about, engine.cells_at_once))
    for number, group in enumerate(groups):
        part = None if steps is None else steps.part(number, len(groups))
        tallied = engine.tally([each.attributes for each in group], part)
        for counted in tallied:
            total = int(counted.sum())
            if total != (records := total if records is None else records):
                raise DataError("the data changed while being counted; count a copy that stands still")
        yield from _pieces(group, tallied, places, sizes, engine.cells_at_once)
    if steps is not None:
        steps.reach(1.0)


def counts(engine: Engine, sizes: Sequence[int], subsets: Subsets) -> Integers:
    """Exact counts of marginals of one shape: (marginals, attributes) to (marginals, cells)."""
    cells = int(np.prod([sizes[at] for at in subsets[0].tolist()], dtype=np.int64)) if len(subsets) else 1
    result = np.empty((len(subsets), cells), dtype=np.int64)
    for _, rows, some in count_marginals(engine, sizes, [subsets]):
        result[rows] = some
    return result


def _pieces(
    group: Sequence[Counted],
    tallied: Sequence[Integers],
    places: dict[Set, list[Place]],
    sizes: Sequence[int],
    cells_at_once: int,
) -> Iterator[Piece]:
    """The marginals of one pass, those of a request gathered until they have many cells."""
    open_pieces: dict[int, tuple[list[int], list[Integers]]] = {}
    room = cells_at_once
    for each, all_counts in zip(group, tallied, strict=True):
        for wanted in each.wanted:
            summed = sum_down(all_counts, each.attributes, sizes, wanted)
            for request, row, order in places[wanted]:
                rows, found = open_pieces.setdefault(request, ([], []))
                rows.append(row)
                found.append(sum_down(summed, wanted, sizes, order) if order != wanted else summed)
                room -= len(summed)
            if room <= 0:
                yield from _stacked(open_pieces)
                open_pieces, room = {}, cells_at_once
    yield from _stacked(open_pieces)


def _stacked(open_pieces: dict[int, tuple[list[int], list[Integers]]]) -> Iterator[Piece]:
    for request, (rows, found) in open_pieces.items():
        yield request, rows, np.stack(found)


class Steps:
    """Progress in hundredths, each told once, in order and in the same words.

    How many records there are, and so how many blocks and passes, changes when a step is told, not what.
    """

    def __init__(self, progress: Progress, tables: int) -> None:
        self._progress = progress
        self._words = "counting 1 table" if tables == 1 else f"counting {tables:,} tables"
        self._told = 0

    def reach(self, fraction: float) -> None:
        """Tell all steps up to this fraction that were not told yet."""
        while self._told < min(int(fraction * STEPS), STEPS):
            self._told += 1
            self._progress(self._words, self._told / STEPS)

    def part(self, number: int, many: int) -> Progress:
        """What one pass of many calls; its own words are left out."""
        return lambda _, done: self.reach((number + done) / many)
