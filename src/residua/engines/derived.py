"""Attributes that are made of others: counted as if the data had a column of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from residua.engines.kernel import Block, Integers, Set, narrowest
from residua.engines.protocol import Engine, Progress


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """An attribute made of others, at positions of the schema.

    `steps` has for each of them what a code adds to a place, and `codes` the new code of each place.
    """

    attributes: tuple[int, ...]
    steps: tuple[Integers, ...]
    codes: NDArray[Any]

    @classmethod
    def of(cls, attributes: Sequence[int], kinds: Sequence[Integers], codes: Integers) -> "Derived":
        """The attribute with a code, from 0, for each combination of kinds of the old codes, row-major."""
        steps, width = [], 1
        for own in reversed(kinds):
            steps.append(own.astype(np.int64) * width)
            width *= int(own.max()) + 1
        return cls(tuple(attributes), tuple(reversed(steps)), codes.astype(narrowest(int(codes.max()) + 1)))

    @property
    def size(self) -> int:
        """Number of codes."""
        return int(self.codes.max()) + 1

    def coded(self, columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The new codes of records, from the old ones of each attribute."""
        places = sum((step[own] for step, own in zip(self.steps, columns, strict=True)), start=np.int64(0))
        return np.asarray(self.codes[places])


@runtime_checkable
class Derives(Protocol):
    """An engine that can make further attributes while it counts."""

    def with_derived(self, derived: Sequence[Derived]) -> Engine:
        """The same data with further attributes, which follow those of the schema."""


def engine_with(engine: Engine, sizes: Sequence[int], derived: Sequence[Derived]) -> Engine:
    """An engine over the same data with further attributes, after those of the schema, of these `sizes`."""
    if not derived:
        return engine
    if isinstance(engine, Derives):
        return engine.with_derived(derived)
    return AddedUp(engine, tuple(sizes), tuple(derived))


def extended(block: Block, derived: Sequence[Derived]) -> Block:
    """The codes of some records with those of further attributes."""
    return [*block, *(each.coded([block[at] for at in each.attributes]) for each in derived)]


@dataclass(frozen=True, slots=True, eq=False)
class AddedUp:
    """Further attributes for an engine that has none: it counts the old codes, which are then added up."""

    engine: Engine
    sizes: tuple[int, ...]
    derived: tuple[Derived, ...]

    @property
    def records(self) -> int:
        """Number of records that the schema's policies leave."""
        return self.engine.records

    @property
    def about(self) -> int:
        """Roughly how many records there are."""
        return self.engine.about

    @property
    def cells_at_once(self) -> int:
        """The most cells whose counts one pass over the data may hold."""
        return self.engine.cells_at_once

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major."""
        old = [tuple(sorted({own for at in each for own in self._own(at)})) for each in sets]
        asked = list(dict.fromkeys(old))
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
            made = at >= len(self.sizes)
            size = self.derived[at - len(self.sizes)].size if made else self.sizes[at]
            new = self.derived[at - len(self.sizes)].coded(columns) if made else columns[0]
            width, places = width * size, places * size + new
        result: Integers = np.zeros(width, dtype=np.int64)
        np.add.at(result, places, counts)
        return result
