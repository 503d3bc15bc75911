"""Counts of marginals from what an engine tallies: few sets are counted, the others add up from them.

Attributes that are made of others are counted as if the data had a column of each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Protocol, Self, runtime_checkable

import numpy as np

from residua._arrays import AnyArray, Integers, Subsets
from residua._limits import COUNTED_CELLS
from residua.engines.kernel import Block, Occurrence, Set, Shares, narrowest
from residua.engines.passes import Counted, cells_of, passes, sum_down
from residua.errors import DataError, Infeasible
from residua.schema import Number, Schema

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1; it may raise to stop."""
Piece = tuple[int, list[int], Integers]
Place = tuple[int, int, Set]  # which request, which row of it, its attributes in the order asked
STEPS = 100  # of progress, whatever the data
PIECE_CELLS = 2**20  # that are handed on at a time: 8 megabytes


class Engine(Protocol):
    """Counts over one dataset that is coded against a schema."""

    @property
    def records(self) -> int:
        """Number of records that the schema's policies leave."""

    @property
    def about(self) -> int:
        """Roughly how many records there are, known without reading them; matters for speed only."""

    @property
    def cells_at_once(self) -> int:
        """The most cells whose counts one pass over the data may hold."""

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major.

        A set holds positions of attributes in the schema, increasing; the empty set counts the records.
        """


class Opener(Protocol):
    """A way of counting, with its settings: `DuckDB(memory_limit="1GB")`, `Spark()`, or one of your own."""

    def open(self, schema: Schema, data: object) -> Engine:
        """An engine over the data; a DataError where they cannot be its data."""


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """An attribute made of others, at positions of the schema.

    `steps` has for each of them what a code adds to a place, and `codes` the new code of each place.
    """

    attributes: tuple[int, ...]
    steps: tuple[Integers, ...]
    codes: AnyArray

    @classmethod
    def of(cls, attributes: Sequence[int], classes: Sequence[Integers], codes: Integers) -> "Derived":
        """The attribute with a code, from 0, for each combination of classes of the old codes, row-major."""
        steps, width = [], 1
        for own in reversed(classes):
            steps.append(own.astype(np.int64) * width)
            width *= int(own.max()) + 1
        return cls(tuple(attributes), tuple(reversed(steps)), codes.astype(narrowest(int(codes.max()) + 1)))

    @property
    def size(self) -> int:
        """Number of codes."""
        return int(self.codes.max()) + 1

    def coded(self, columns: Sequence[AnyArray]) -> AnyArray:
        """The new codes of records, from the old ones of each attribute."""
        places = sum((step[own] for step, own in zip(self.steps, columns, strict=True)), start=np.int64(0))
        return np.asarray(self.codes[places])


@runtime_checkable
class Derives(Protocol):
    """An engine that can make further attributes while it counts."""

    def with_derived(self, derived: Sequence[Derived]) -> Engine:
        """The same data with further attributes, which follow those of the schema."""


@runtime_checkable
class Occurs(Protocol):
    """An engine that can count those cells only that occur: tables may have any number of others."""

    def occurring(self, sets: Sequence[Set], progress: Progress | None = None) -> Iterator[Occurrence]:
        """Exact counts of the cells of each set that occur, in one pass over the data, some at a time.

        A set holds positions of attributes in any order, and its cells are row-major in that order. A cell
        may come several times: its count is the sum.
        """


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
            width, places = (
                width * size,
                places * size + (columns[0] if made is None else made.coded(columns)),
            )
        result: Integers = np.zeros(width, dtype=np.int64)
        np.add.at(result, places, counts)
        return result


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
    steps = None if progress is None else Steps(progress, len(places))
    groups = list(passes(list(places), sizes, engine.about, engine.cells_at_once, shared))
    for number, group in enumerate(groups):
        part = None if steps is None else steps.part(number, len(groups))
        tallied = engine.tally([each.attributes for each in group], part)
        for each, counted in zip(group, tallied, strict=True):
            total, unit = int(counted.sum()), prod(units[at] for at in each.attributes)
            first = (total, unit) if first is None else first
            if (total * first[1] - first[0] * unit) % 2**64:
                raise DataError("the data changed while being counted; count a copy that stands still")
        yield from _pieces(group, tallied, places, sizes)
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
) -> Iterator[Piece]:
    """The marginals of one pass, those of a request gathered until they have many cells."""
    open_pieces: dict[int, tuple[list[int], list[Integers]]] = {}
    room = PIECE_CELLS
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
                open_pieces, room = {}, PIECE_CELLS
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
