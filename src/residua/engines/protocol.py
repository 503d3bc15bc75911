"""What counting anywhere takes: something that opens data, and something that counts attribute sets in it."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from residua.engines.kernel import Set
from residua.schema import Schema

Integers = NDArray[np.int64]

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
