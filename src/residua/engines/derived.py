"""Attributes that are made of others, counted as if the data had a column of each."""

from collections.abc import Sequence

import numpy as np

from residua._arrays import Integers
from residua._limits import COUNTED_CELLS
from residua.engines.kernel import Block, Set
from residua.engines.marginals import cells_of
from residua.engines.protocol import Derived, Derives, Engine, Progress
from residua.errors import Infeasible


def engine_with(
    engine: Engine, sizes: Sequence[int], derived: Sequence[Derived], units: Sequence[int] = ()
) -> Engine:
    """An engine over the same data with further attributes, after those of the schema, of these `sizes`.

    `units` of the schema's attributes tell which are shared out among cells. Attributes made of such come
    after all others: only once those are counted can their cells be added up.
    """
    shared = {at for at, unit in enumerate(units) if unit > 1}
    plain = [each for each in derived if shared.isdisjoint(each.attributes)]
    rest = [each for each in derived if not shared.isdisjoint(each.attributes)]
    if plain and isinstance(engine, Derives):
        engine, sizes, plain = engine.with_derived(plain), (*sizes, *(each.size for each in plain)), []
    return AddedUp(engine, sizes, [*plain, *rest]) if plain or rest else engine


def extended(block: Block, derived: Sequence[Derived]) -> Block:
    """The codes of some records with those of further attributes."""
    return [*block, *(each.coded([block[at] for at in each.attributes]) for each in derived)]


class AddedUp:
    """Further attributes for an engine that has none: it counts the old codes, which are then added up."""

    def __init__(self, engine: Engine, sizes: Sequence[int], derived: Sequence[Derived]) -> None:
        self.engine, self.sizes, self.derived = engine, tuple(sizes), derived
        self.about, self.cells_at_once = engine.about, engine.cells_at_once

    @property
    def records(self) -> int:
        """Number of records that the schema's policies leave."""
        return self.engine.records

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major."""
        old = [tuple(sorted({own for at in each for own in self._own(at)})) for each in sets]
        asked = list(dict.fromkeys(old))
        if (cells := max(cells_of(each, self.sizes) for each in asked)) > COUNTED_CELLS:
            raise Infeasible(
                f"a condition on numbers takes a table of {cells:,} cells, more than the {COUNTED_CELLS:,} "
                "that are counted; use coarser attributes, or conditions on fewer of them"
            )
        known = dict(zip(asked, self.engine.tally(asked, progress), strict=True))
        return [self._added(each, known[own], own) for each, own in zip(sets, old, strict=True)]

    def _own(self, at: int) -> Set:
        return (at,) if at < len(self.sizes) else self.derived[at - len(self.sizes)].attributes

    def _added(self, wanted: Set, counts: Integers, old: Set) -> Integers:
        """Counts of the wanted attributes from those of the ones that they are made of."""
        if wanted == old:
            return counts
        codes = np.unravel_index(np.arange(len(counts)), [self.sizes[at] for at in old])
        width, places = 1, np.zeros(len(counts), dtype=np.int64)
        for at in wanted:
            columns = [codes[old.index(own)] for own in self._own(at)]
            made = self.derived[at - len(self.sizes)] if at >= len(self.sizes) else None
            size = self.sizes[at] if made is None else made.size
            places = places * size + (columns[0] if made is None else made.coded(columns))
            width *= size
        result: Integers = np.zeros(width, dtype=np.int64)
        np.add.at(result, places, counts)
        return result
