"""Counts of marginals from what an engine tallies: few sets are counted, the others add up from them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.engines.cover import Counted, passes, sum_down
from residua.engines.kernel import Set
from residua.engines.protocol import Engine, Progress
from residua.errors import DataError

Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]
Piece = tuple[int, list[int], Integers]
Place = tuple[int, int, Set]  # which request, which row of it, its attributes in the order asked


def count_marginals(
    engine: Engine, sizes: Sequence[int], requests: Sequence[Subsets], progress: Progress | None = None
) -> Iterator[Piece]:
    """Exact counts of everything requested, in pieces: (request, rows of it, counts of shape (rows, cells)).

    A request is an array (marginals, attributes) of positions in the schema; the marginals of one request
    have the same sizes in the same order, and cells are row-major in that order. All requests share as few
    passes over the data as the engine's memory allows. A DataError if the data changed between two passes.
    """
    places: dict[Set, list[Place]] = {}
    for request, subsets in enumerate(requests):
        for row, order in enumerate(map(tuple, subsets.tolist())):
            places.setdefault(tuple(sorted(order)), []).append((request, row, order))
    records: int | None = None
    groups = list(passes(list(places), sizes, engine.about, engine.cells_at_once))
    for number, group in enumerate(groups):
        tallied = engine.tally([each.attributes for each in group], _part(progress, number, len(groups)))
        for counted in tallied:
            total = int(counted.sum())
            if total != (records := total if records is None else records):
                raise DataError(
                    f"the data changed while being counted: {records:,} records at first, then {total:,}; "
                    "count a copy that stands still"
                )
        yield from _pieces(group, tallied, places, sizes, engine.cells_at_once)


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


def _part(progress: Progress | None, number: int, many: int) -> Progress | None:
    """Progress of one pass as a part of the progress of all."""
    if progress is None or many == 1:
        return progress
    return lambda words, done: progress(f"pass {number + 1} of {many}: {words}", (number + done) / many)
