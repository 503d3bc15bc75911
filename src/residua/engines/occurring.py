"""Counts of the cells that occur, on piles: tables of many more cells than memory holds, some places a time.

The first attribute of a table has the piles; the cells on one pile are read at a time. Where they are many,
they wait in files without a name, as records by person do.
"""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from residua._arrays import Integers
from residua._limits import COUNTED_CELLS
from residua.engines.kernel import Occurrence, Set
from residua.engines.marginals import Steps, cells_of, sum_down
from residua.engines.piles import Columns
from residua.engines.protocol import Engine, Occurs, Progress
from residua.errors import Infeasible


class Occurrences:
    """Exact counts of attribute sets, whose first attribute is the same, by piles of its codes.

    Each asked set is added up from the smallest counted one that has its attributes.

    >>> from residua.engines.memory import MemoryEngine
    >>> engine = MemoryEngine(np.array([[0, 1], [2, 1], [2, 1]]), (3, 2))
    >>> found = Occurrences(engine, [(0, 1)], (3, 2), np.array([0, 1, 1]))
    >>> [each.tolist() for each in found.read((0, 1), 1)]
    [[2], [1], [2]]
    """

    def __init__(
        self,
        engine: Engine,
        asked: Sequence[Set],
        sizes: Sequence[int],
        piles: Integers,
        progress: Progress | None = None,
        units: Sequence[int] = (),
    ) -> None:
        self._sizes, self._piles, self._many = tuple(sizes), piles, int(piles.max()) + 1
        self._homes = _homes(asked, {at for at, unit in enumerate(units) if unit > 1})
        self._sets = list(dict.fromkeys(self._homes.values()))
        if any(cells_of(each, sizes) >= 2**62 for each in self._sets):
            raise Infeasible("a table of places has more cells than 64 bits number; use fewer attributes")
        self._columns = Columns()
        self._owners: list[int] = []
        steps = Steps(progress, len(self._sets))
        for at, cells, counts in _found(engine, self._sets, self._sizes, steps.part(0, 1)):
            self._add(at, cells, counts)
        steps.reach(1.0)

    def _add(self, at: int, cells: Integers, counts: Integers) -> None:
        piles = self._piles[cells // self._width(self._sets[at])]
        order = np.argsort(piles, kind="stable")
        ends = np.cumsum(np.bincount(piles, minlength=self._many)).tolist()
        self._columns.add([cells[order], counts[order]], [ends, ends])
        self._owners.append(at)

    def _width(self, attributes: Set) -> int:
        return prod(self._sizes[at] for at in attributes[1:])

    def read(self, asked: Set, pile: int) -> tuple[Integers, Integers, Integers]:
        """Codes of the first attribute, cells of the others and counts; the same ones may come again."""
        home = self._homes[asked]
        times = [time for time, at in enumerate(self._owners) if self._sets[at] == home]
        found = [self._columns.read(time, pile) for time in times]
        none = [np.zeros(0, dtype=np.int64)] * 2
        cells, counts = (np.concatenate(each) for each in zip(none, *found, strict=True))
        first, rest = np.divmod(cells, self._width(home))
        if asked != home:
            codes = np.unravel_index(rest, [self._sizes[at] for at in home[1:]] or [1])
            rest = np.zeros(len(rest), dtype=np.int64)
            for at in asked[1:]:
                rest = rest * self._sizes[at] + codes[home.index(at) - 1]
        return first, rest, counts


def _homes(asked: Sequence[Set], shared: set[int]) -> dict[Set, Set]:
    """For each set one that is counted and has its attributes, and no more that are `shared` out."""
    homes: dict[Set, Set] = {}
    for each in sorted(asked, key=len, reverse=True):
        larger = (home for home in dict.fromkeys(homes.values()) if {*home} >= {*each})
        fits = (home for home in larger if shared.isdisjoint({*home} - {*each}))
        homes[each] = next(fits, each)
    return homes


def _found(
    engine: Engine, sets: Sequence[Set], sizes: Sequence[int], progress: Progress | None
) -> Iterator[Occurrence]:
    """What an engine counts; one that counts all cells may do so for tables that memory holds."""
    if isinstance(engine, Occurs):
        yield from engine.occurring(sets, progress)
        return
    for at, each in enumerate(sets):
        if (cells := cells_of(each, sizes)) > COUNTED_CELLS:
            raise Infeasible(
                f"{type(engine).__name__} would count a table of {cells:,} cells, more than the "
                f"{COUNTED_CELLS:,} that are counted at once; count with rs.engines.DuckDB()"
            )
        ordered = tuple(sorted(each))
        (counts,) = engine.tally([ordered], progress)
        counts = sum_down(counts, ordered, sizes, each)
        places = np.flatnonzero(counts)
        yield at, places, counts[places]
