"""Counting records in memory: pandas, polars and Arrow tables, mappings of columns, arrays of codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from residua.engines.coding import block_of
from residua.engines.derived import Derived, extended
from residua.engines.kernel import ROWS, Block, Integers, Set, narrowest
from residua.engines.protocol import Progress
from residua.engines.workers import counting
from residua.errors import DataError, Infeasible
from residua.linalg.matrices import processors
from residua.schema import Schema
from residua.schema.coding import is_a, shape_of

CELLS_AT_ONCE = 20_000_000  # 160 megabytes of counts


class MemoryEngine:
    """Counts over an array of codes, shape (records, attributes), kept a byte or few each."""

    def __init__(self, codes: NDArray[Any], sizes: Sequence[int], *, processes: int | None = None) -> None:
        if codes.ndim != 2 or codes.shape[1] != len(sizes):
            raise DataError(
                f"codes must have one column for each of the {len(sizes)} attributes, not {shape_of(codes)}"
            )
        columns = [np.ascontiguousarray(codes[:, at], narrowest(size)) for at, size in enumerate(sizes)]
        self._set(columns, sizes, processes)

    @classmethod
    def of_columns(cls, columns: Block, sizes: Sequence[int], *, processes: int | None = None) -> Self:
        """Counts over one array of codes for each attribute, of the narrowest type each."""
        engine = cls.__new__(cls)
        engine._set(columns, sizes, processes)
        return engine

    def _set(self, columns: Block, sizes: Sequence[int], processes: int | None) -> None:
        self._columns = columns
        self._sizes = tuple(sizes)
        self._processes = processors() if processes is None else processes
        self.records = len(columns[0])
        self.about = self.records
        self.cells_at_once = CELLS_AT_ONCE

    def with_derived(self, derived: Sequence[Derived]) -> "MemoryEngine":
        """The same records with further attributes."""
        sizes = (*self._sizes, *(each.size for each in derived))
        return MemoryEngine.of_columns(extended(self._columns, derived), sizes, processes=self._processes)

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set: (cells,) for each, row-major."""
        with counting(self._sizes, sets, self.records, self._processes) as tally:
            for start in range(0, self.records, ROWS):
                tally.add([column[start : start + ROWS] for column in self._columns])
                if progress is not None:
                    done = min(start + ROWS, self.records)
                    progress("counting", done / self.records)
            return tally.finish()


@dataclass(frozen=True, slots=True)
class Memory:
    """Counting in this machine's memory, whatever the data; at most so many `processes` count.

    >>> import residua as rs
    >>> schema = rs.Schema(sex=rs.Categorical("F", "M"))
    >>> Memory().open(schema, {"sex": ["F", "M", "M"]}).tally([(0,)])[0].tolist()
    [1, 2]
    """

    processes: int | None = None

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise Infeasible(f"processes={self.processes!r} cannot count anything; give at least 1")

    def open(self, schema: Schema, data: object) -> MemoryEngine:
        """An engine over a table, a mapping of columns or an array of codes."""
        if is_a(data, "pyarrow", "Table") or is_a(data, "polars", "DataFrame"):
            return MemoryEngine.of_columns(_coded(schema, data), schema.sizes, processes=self.processes)
        return MemoryEngine(schema.encode(data), schema.sizes, processes=self.processes)


def _coded(schema: Schema, table: Any) -> Block:
    """The codes of a table whose columns have one type each, coded some records at a time.

    Nothing but the narrow codes is kept, and what is in between fits a cache.
    """
    columns = [np.empty(len(table), narrowest(size)) for size in schema.sizes]
    end = 0
    for start in range(0, max(len(table), 1), ROWS):
        try:
            codes = schema.encode(table.slice(start, ROWS), first_row=start)
        except DataError:
            schema.encode(table)  # tells of all the values that it refuses
            raise
        for column, part in zip(columns, block_of(list(codes.T), schema.sizes), strict=True):
            column[end : end + len(part)] = part
        end += len(codes)
    return [column[:end] for column in columns]
