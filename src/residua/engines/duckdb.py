"""Counting files and DuckDB relations that need not fit in memory.

DuckDB reads, and codes what SQL can code; the records then stream through the counting loop in batches, one
pass for all tables whose counts fit. Decision 0004 has the measurements behind this.
"""

import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Never

import numpy as np
from numpy.typing import NDArray

from residua._arrays import Integers
from residua.engines.derived import extended
from residua.engines.kernel import ROWS, WAITING, Block, Occurrence, Occurring, Set, block_of
from residua.engines.marginals import Rereading
from residua.engines.memory import CELLS_AT_ONCE, counting
from residua.engines.persons import Packing, ids_inside
from residua.engines.piles import Columns, Sorting
from residua.engines.protocol import Progress
from residua.engines.sources import (
    Source,
    bytes_of,
    code_in_sql,
    file_source,
    find_files,
    is_parquet,
    relation_source,
)
from residua.engines.texts import PLAINLY, Reading, is_utf8
from residua.errors import DataError, Infeasible
from residua.linalg.matrices import processors
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.schema.columns import is_a

if TYPE_CHECKING:
    import duckdb
    import pyarrow

BATCH = 122_880  # records of a batch: what DuckDB keeps together
SHORTEST = 2_048  # and what it works on at a time
AHEAD = 16 * 10**6  # bytes that are read ahead while a batch is counted
WIDTH = 16  # bytes of a value, about

# How a memory limit is divided. Code and workspace of all libraries come first; of the rest DuckDB gets half,
# the counts of a pass an eighth (more than once while they are added up), a batch and what is read ahead a
# sixteenth each.
RESERVED = 128 * 2**20
LEAST = 200 * 10**6
FOR_DUCKDB, FOR_COUNTS, FOR_BATCHES = 2, 8, 16
FOR_A_HELPER = 512 * 2**20  # bytes of memory limit that make room for one more process

# Where persons are looked up, so many records are put on piles at a time.
AT_ONCE = 2**22
FOR_PERSONS, PERSON_WIDTH = 4, 80  # their part of a memory limit, and bytes of a record while that is done

Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class DuckDB:
    """Counting CSV and Parquet files, patterns of such, and DuckDB relations, larger than memory or not.

    `memory_limit` ('500MB', '2GiB', or a number of bytes) is for all that counting needs; by default DuckDB
    decides. A relation keeps to the limit of its own connection. `threads` is how many processors to use.
    `reading` says how files are written that are not plain, or names the table of a database or connection.

    >>> import residua as rs
    >>> rs.engines.DuckDB(memory_limit="500MB").memory_limit
    '500MB'
    """

    memory_limit: str | int | None = None
    threads: int | None = None
    reading: Reading = field(default=PLAINLY, repr=False)

    def __post_init__(self) -> None:
        if self.memory_limit is not None and bytes_of(self.memory_limit) < LEAST:
            raise Infeasible(
                f"memory_limit={self.memory_limit!r} is too little to read a file; give at least 200MB"
            )
        if self.threads is not None and self.threads < 1:
            raise Infeasible(f"threads={self.threads!r} cannot count anything; give at least 1")

    def open(self, schema: Schema, data: object) -> "DuckDBEngine":
        """An engine over a path, a pattern of paths, or a relation."""
        return self.open_kept(schema, data, None)

    def open_kept(self, schema: Schema, data: object, person: Person | None) -> "DuckDBEngine":
        """An engine over those records that are counted.

        Where there are many, their codes and ids wait in files that have no name, in the folder for temporary
        files, and are gone with the process.
        """
        threads = self.threads or processors()
        limit = None if self.memory_limit is None else bytes_of(self.memory_limit)
        extra = () if person is None else (str(person.unit.id),)
        if isinstance(data, str | os.PathLike):
            connection = _connect(limit, threads)
            sources = []
            for path in find_files(data, self.reading.table):
                with _explained(os.fspath(path)):
                    sources.append(file_source(connection, path, schema, self.reading, extra))
        elif is_a(data, "_duckdb", "DuckDBPyConnection") and self.reading.table is not None:
            opened: Any = data
            with _explained(""):
                sources = [relation_source(opened.table(self.reading.table), (*schema.names, *extra))]
        elif is_a(data, "duckdb", "DuckDBPyRelation"):
            if limit is not None:
                raise Infeasible(
                    "a relation keeps to the memory limit of its own connection: set it there with "
                    f"connection.execute(\"SET memory_limit = '{self.memory_limit}'\")"
                )
            sources = [relation_source(data, (*schema.names, *extra))]
        else:
            raise DataError(
                f"DuckDB counts files, DuckDB relations, and tables of a connection, which Reading(table=..) "
                f"names, not {type(data).__qualname__}; leave engine= out for other data"
            )
        if limit is None:
            return DuckDBEngine(schema, sources, CELLS_AT_ONCE, threads, person=person)
        room = limit - RESERVED
        helped = min(threads, 1 + limit // FOR_A_HELPER)
        batch = max(SHORTEST, min(BATCH, room // (FOR_BATCHES * WIDTH * len(schema))))
        cells = room // (8 * FOR_COUNTS * helped)
        at_once = room // (FOR_PERSONS * (PERSON_WIDTH + 2 * len(schema)))
        return DuckDBEngine(
            schema, sources, cells, helped, batch=batch, strict=True, person=person, at_once=at_once
        )


class DuckDBEngine(Rereading):
    """Counts over sources that are read again for every pass; made by `DuckDB.open`.

    With `strict`, a table of more than `cells_at_once` cells is refused instead of counted by itself.
    """

    def __init__(
        self,
        schema: Schema,
        sources: Sequence[Source],
        cells_at_once: int,
        processes: int,
        *,
        batch: int = BATCH,
        strict: bool = False,
        person: Person | None = None,
        at_once: int | None = None,
    ) -> None:
        super().__init__(schema, sum(source.about for source in sources), cells_at_once)
        self.sources, self._processes = list(sources), processes
        self._batch, self._strict = batch, strict
        self._person, self._at_once = person, at_once or AT_ONCE
        self._kept: Columns | None = None

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major."""
        sizes = self.sizes
        cells = sum(math.prod(sizes[at] for at in each) for each in sets)
        if self._strict and cells > self.cells_at_once:
            raise Infeasible(
                f"a table of {cells:,} cells cannot be counted within the memory limit, which has room for "
                f"{self.cells_at_once:,}; raise memory_limit"
            )
        while True:
            try:
                with counting(sizes, sets, self.about, self._processes, self._shares) as tally:
                    for block in self._blocks(progress):
                        tally.add(block)
                    return tally.finish()
            except _ReadAgain:
                continue

    def occurring(self, sets: Sequence[Set], progress: Progress | None = None) -> Iterator[Occurrence]:
        """Exact counts of the cells of each set that occur, in one pass over the data, some at a time."""
        if self._records is None:
            self.tally([()])  # finds out how files have to be read
        most = min(WAITING, self.cells_at_once // 4)  # each waits with a copy of it, and in order again
        yield from Occurring(self.sizes, sets, self._shares).stream(self._blocks(progress), most)

    def _blocks(self, progress: Progress | None) -> Iterator[Block]:
        """The codes of all records that are counted, and of further attributes; notes how many there are."""
        kept = 0
        for codes in self._counted(progress):
            yield extended(codes, self._derived)
            kept += len(codes[0])
        self._records = kept

    def _counted(self, progress: Progress | None) -> Iterator[Block]:
        """The codes of all records that are counted, a batch at a time."""
        if self._person is None:
            for coded in self._read(progress):
                yield block_of(coded.codes, self._schema.codes)
            return
        if self._kept is None:
            self._kept = self._sorted(self._person, progress)
        packing = Packing.of(self._schema.codes)
        for time in range(len(self._kept)):
            words = self._kept.read(time, 0)
            for start in range(0, len(words[0]), ROWS):
                yield packing.unpacked([each[start : start + ROWS] for each in words])

    def _sorted(self, person: Person, progress: Progress | None) -> Columns:
        """What is kept of every person."""
        sorting = Sorting(person, Packing.of(self._schema.codes), self.about, self._at_once)
        for coded in self._read(progress):
            sorting.add(ids_inside(person, coded.ids, coded.codes), block_of(coded.codes, self._schema.codes))
        return sorting.kept(self._processes)

    def _read(self, progress: Progress | None) -> Iterator["Coded"]:
        """All records, coded, a batch at a time."""
        done = 0
        for number, source in enumerate(self.sources):
            try:
                with closing(_coded(self._schema, source, self._batch)) as batches:
                    for coded in batches:
                        yield coded
                        done += coded.read
                        if progress is not None:
                            progress("counting", min(1.0, done / max(1, self.about)))
            except DataError as error:
                if source.instead is None or is_utf8(source.name):
                    raise
                self.sources[number] = source.instead
                raise _ReadAgain from error


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Some records: how many were read, their codes, -1 marking one to drop, and their ids."""

    read: int
    codes: list[Codes]
    ids: Any = None


class _ReadAgain(Exception):
    """One of the sources is a text file that is not UTF-8, and is read in another way from now on."""


def _coded(schema: Schema, source: Source, length: int) -> Generator[Coded]:
    """The records of a source, batch by batch; its last column has ids if it has one more than the schema."""
    in_sql = [*map(partial(code_in_sql, schema), range(len(schema)), source.columns, source.types)]
    chosen = [sql or column for sql, column in zip_longest(in_sql, source.columns)]
    with closing(_batches(source, chosen, length)) as batches:
        for rows, batch in batches:
            codes = [_codes(schema, at, batch.column(at), rows, sql) for at, sql in enumerate(in_sql)]
            known = [each for each in codes if each is not None]
            if len(known) < len(codes):
                break
            ids = batch.column(len(schema)) if len(chosen) > len(schema) else None
            yield Coded(batch.num_rows, known, ids)
        else:
            return
    _refuse(schema, source, length)


def _codes(schema: Schema, at: int, column: "pyarrow.Array", rows: "Rows", sql: str | None) -> Codes | None:
    """Codes of a column, which `sql` may have made; None where that found a value that the policy refuses."""
    attribute = schema.attributes[at]
    if sql is None:
        with rows.named():
            return attribute.encode(column, column=schema.names[at], first_row=rows.first)
    if column.null_count and attribute.outside != "drop":
        return None
    codes: Codes = (column.cast("int64").fill_null(-1) if column.null_count else column).to_numpy()
    return codes


def _refuse(schema: Schema, source: Source, length: int) -> Never:
    """Read the source from the start and raise the error that its first bad value deserves."""
    with closing(_batches(source, source.columns, length)) as batches:
        for rows, batch in batches:
            with rows.named():
                given = batch.select(list(range(len(schema)))).rename_columns(schema.names)
                schema.encode_columns(given, first_row=rows.first)
    raise DataError(
        f"{source.name or 'the data'} changed while being counted; count a copy that stands still"
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """The first record that a batch has of a source; `reader` has those that follow."""

    source: str
    first: int
    reader: Any

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors within say which file and records they are about, unless it is all there is."""
        try:
            yield
        except DataError as error:
            if self.first == 0 and next(self.reader, None) is None:
                raise DataError(f"{self.source}: {error}" if self.source else f"{error}") from error
            # Not where the batch ends: of the last one, that is the number of records.
            where = f"from row {self.first:,} of {self.source or 'the data'} on"
            raise DataError(f"{where}: {error}") from error


def _batches(
    source: Source, expressions: Sequence[str], length: int
) -> Generator[tuple[Rows, "pyarrow.RecordBatch"]]:
    """The batches of a query over a source, in its order; an empty one where there are no records."""
    import pyarrow as pa

    listed = ", ".join(f"{sql} AS c{at}" for at, sql in enumerate(expressions))
    # A connection has one open result: it is closed whatever becomes of this pass.
    with _explained(source.name), closing(source.query(listed).to_arrow_reader(length)) as reader:
        first = 0
        for batch in reader:
            yield Rows(source.name, first, reader), batch
            first += batch.num_rows
        if not first:
            # The types of columns without records are the attributes' to accept, too.
            empty = pa.RecordBatch.from_pylist([], schema=reader.schema)
            yield Rows(source.name, 0, reader), empty


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """What DuckDB cannot do within is a DataError or, for lack of memory, Infeasible."""
    import duckdb
    from pyarrow import ArrowException

    try:
        yield
    except (duckdb.Error, ArrowException, OSError) as error:
        words = str(error)
        if "Out of Memory" in words:
            raise Infeasible(
                f"{source or 'the relation'} cannot be read within the memory limit; raise memory_limit, or "
                "use fewer threads"
            ) from error
        # What follows are proposals to set options of DuckDB.
        reason = " ".join(words.partition("Possible fixes")[0].split())
        kind = "" if not source else " as Parquet" if is_parquet(source) else " as CSV"
        raise DataError(f"{source or 'the relation'} cannot be read{kind} ({reason})") from error


def _connect(limit: int | None, threads: int) -> "duckdb.DuckDBPyConnection":
    """A connection of our own: nothing of the data goes to a file or over a network."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "temp_directory": "",
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "python_enable_replacements": False,
    }
    ahead = AHEAD
    if limit is not None:
        room = limit - RESERVED
        settings["memory_limit"] = f"{room // FOR_DUCKDB}B"
        ahead = min(AHEAD, room // FOR_BATCHES)
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute(f"SET streaming_buffer_size = '{ahead}B'")
    return connection
