"""What counts, as far as others are concerned: engines, ways of opening them, and attributes to derive."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from residua._arrays import AnyArray, Integers
from residua.engines.kernel import Occurrence, Set, narrowest
from residua.schema import Schema

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1; it may raise to stop."""


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
