"""Counting where a cluster has the data: every partition is counted where it lies, Spark adds the counts up.

The driver gets counts and nothing else. Every worker needs this package installed. Half of what Spark spends
is the way to Python, so codes of several columns are packed into few long integers: Spark codes whole numbers
under `Integer` and text under labels, where it can do exactly what the schema does; the others travel as
they are and are coded by their attributes.
"""

import csv
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from residua._arrays import Integers
from residua.engines.derived import extended
from residua.engines.kernel import ROWS, WAITING, Occurrence, Occurring, Set, Tally, block_of
from residua.engines.marginals import Rereading, shares_of
from residua.engines.persons import Packing, counted, plain_ids, refused
from residua.engines.protocol import Derived, Progress
from residua.engines.sources import CSV, UNKNOWN, bytes_of, delimiter_of, is_parquet
from residua.engines.spark_columns import Field, fields_of, packed_columns, unpack
from residua.errors import DataError
from residua.privacy.unit import Person
from residua.schema import Schema
from residua.schema.columns import is_a, places_of

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED = -1  # the place that says that a partition has a value which the schema refuses
RECORDS = -2  # the place of the number of records
HALF = 32  # bits: halves of counts are added up, so that no sum can overflow


@dataclass(frozen=True, slots=True)
class Spark:
    """Counting a Spark DataFrame, or a path or pattern of CSV or Parquet files that Spark can read.

    `session` reads paths; the active one by default. `memory_limit` is for the counts that one task holds:
    tables that do not fit take further passes, so cache a DataFrame that is costly to compute.
    """

    session: Any = None
    memory_limit: str | int = "256MB"

    def open(self, schema: Schema, data: object) -> "SparkEngine":
        """An engine over a DataFrame or a path."""
        return self.open_kept(schema, data, None)

    def open_kept(self, schema: Schema, data: object, person: Person | None) -> "SparkEngine":
        """An engine over those records that are counted; the data are shuffled by id for every pass."""
        names = schema.names if person is None else (*schema.names, str(person.unit.id))
        frame: Any = data
        if isinstance(data, str | os.PathLike):
            with _explained():
                frame = _read(self.session or _active_session(), os.fspath(data), names)
        elif not is_a(data, "pyspark", "DataFrame"):
            raise DataError(
                f"Spark counts its own DataFrames and files, not {type(data).__qualname__}; leave engine= out"
            )
        places = places_of(frame.columns, names)
        # By position: names may need quoting, and Spark takes 'Age' and 'age' for one.
        named = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
        # The counts of a task are there twice while they are sent.
        cells = bytes_of(self.memory_limit) // 16
        return SparkEngine(schema, named.select(*(f"c{at}" for at in places)), cells, person)


class SparkEngine(Rereading):
    """Counts over a DataFrame whose columns are those of the schema, in its order; made by `Spark.open`.

    Where a `person` says which records are counted, there is one more column, of ids.
    """

    def __init__(self, schema: Schema, frame: Any, cells_at_once: int, person: Person | None = None) -> None:
        super().__init__(schema, UNKNOWN, cells_at_once)
        self._frame, self._person = frame, person
        self._fields = fields_of(schema, [kind for _, kind in frame.dtypes][: len(schema)])

    def tally(self, sets: Sequence[Set], progress: Progress | None = None) -> list[Integers]:
        """Exact counts of each attribute set, in one pass over the data: (cells,) for each, row-major."""
        ends = np.cumsum([math.prod(self.sizes[at] for at in each) for each in sets])
        with _explained():
            places, counts = self._checked(self._summed(sets, occurring=False).toArrow())
        flat: Integers = np.zeros(ends[-1], dtype=np.int64)
        flat[places] = counts
        if progress is not None:
            progress("counting", 1.0)
        return np.split(flat, ends[:-1])

    def occurring(self, sets: Sequence[Set], progress: Progress | None = None) -> Iterator[Occurrence]:
        """Exact counts of those cells of each set that occur, in one pass; the driver gets some at a time."""
        ends = np.cumsum([0, *(math.prod(self.sizes[at] for at in each) for each in sets)])
        with _explained():
            summed = self._summed(sets, occurring=True).persist()
            slices = 1 + summed.count() // WAITING
        try:
            for number in range(slices):
                with _explained():
                    some = summed.filter(f"place < 0 OR pmod(place, {slices}) = {number}").toArrow()
                places, counts = self._checked(some)
                owners = np.searchsorted(ends, places, side="right") - 1
                for at in np.unique(owners).tolist():
                    mine = owners == at
                    yield at, places[mine] - ends[at], counts[mine]
                if progress is not None:
                    progress("counting", (number + 1) / slices)
        finally:
            summed.unpersist()

    def _summed(self, sets: Sequence[Set], *, occurring: bool) -> Any:
        """A DataFrame of places, all sets end to end, and their counts in halves."""
        columns = [self._frame[name] for name in self._frame.columns]
        chosen = packed_columns(self._schema, self._fields, columns[: len(self._schema)])
        packed = self._frame.select(*chosen, *columns[len(self._schema) :])
        if self._person is not None:  # all records of a person in one partition, one after the other
            packed = packed.repartition(packed.columns[-1]).sortWithinPartitions(packed.columns[-1])
        asked, kind = [tuple(each) for each in sets], Occurring if occurring else Tally
        task = (self._schema.to_manifest(), self._fields, self._derived, asked, self._person, kind)
        parts = packed.mapInArrow(partial(_partial_counts, *task), "place long, low long, high long")
        return parts.groupBy("place").sum("low", "high").toDF("place", "low", "high")

    def _checked(self, summed: "pa.Table") -> tuple[Integers, Integers]:
        """Places and their counts; the number of records is noted, a value that is refused raised."""
        places, low, high = (summed.column(at).to_numpy() for at in range(3))
        if (places == REFUSED).any():
            self._refuse()
        counts = low + (high << HALF)  # modulo 2^64
        self._records = int(counts[places == RECORDS].sum())
        return places[places >= 0], counts[places >= 0]

    def _refuse(self) -> None:
        """Raise the error about the first value that the schema refuses."""
        problems = (
            self._frame.select(*self._frame.columns[: len(self._schema)])
            .mapInArrow(partial(_problems, self._schema.to_manifest()), "partition long, problem string")
            .collect()
        )
        if not problems and self._person is not None:
            raise refused(self._person)
        raise DataError(min(problems).problem if problems else "the data changed while being counted")


def _partial_counts(
    record: dict[str, Any],
    fields: Sequence[Field],
    derived: Sequence[Derived],
    sets: Sequence[Set],
    person: Person | None,
    kind: type[Tally],
    batches: Iterator["pa.RecordBatch"],
) -> Iterator["pa.RecordBatch"]:
    """Counts of one partition: the places of the cells that are not empty, all sets end to end."""
    schema = Schema.from_manifest(record)
    sizes = (*schema.sizes, *(each.size for each in derived))
    starts = np.cumsum([0, *(math.prod(sizes[at] for at in each) for each in sets)])
    tally = kind(sizes, sets, shares_of(schema))
    records = 0
    try:
        for _, table in _gathered(batches) if person is None else _whole_persons(batches):
            codes = unpack(schema, fields, table)
            block = block_of(codes, schema.codes)
            if person is not None:
                block = counted(person, table.column(-1), codes, block, Packing.of(schema.codes))
            tally.add(extended(block, derived))
            records += len(block[0])
            if tally.waiting >= WAITING:
                yield from _sent(tally, starts)
    except DataError:
        # Raised here it would be retried and written to logs; `_problems` says what it is about.
        yield _batch(place=[REFUSED], low=[1], high=[0])
        return
    yield _batch(place=[RECORDS], low=[records], high=[0])
    yield from _sent(tally, starts)


def _sent(tally: Tally, starts: Integers) -> Iterator["pa.RecordBatch"]:
    """Places of cells that are not empty, and their counts in halves."""
    for at, places, counts in tally.pieces():
        for start in range(0, len(places), ROWS):
            some, own = places[start : start + ROWS], counts[start : start + ROWS]
            yield _batch(place=starts[at] + some, low=own & (2**HALF - 1), high=own >> HALF)


def _whole_persons(batches: Iterator["pa.RecordBatch"]) -> Iterator[tuple[int, "pa.Table"]]:
    """Tables of all records of some persons, out of batches in which those of a person follow each other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, waiting = 0, None
    for _, more in _gathered(batches):
        table = more if waiting is None else pa.concat_tables([waiting, more])
        ids = plain_ids(table.column(-1), "")
        differ = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).fill_null(True)
        cut = int(np.flatnonzero(np.append(True, differ.to_numpy(zero_copy_only=False)))[-1])
        if cut:
            yield first, table.slice(0, cut)
        first, waiting = first + cut, table.slice(cut)
    if waiting is not None:
        yield first, waiting


def _problems(record: dict[str, Any], batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """The error about the first value of one partition that the schema refuses, if there is one."""
    from pyspark import TaskContext

    schema = Schema.from_manifest(record)
    number = TaskContext.get().partitionId()
    try:
        for first, table in _gathered(batches):
            schema.encode(table.rename_columns(schema.names), first_row=first)
    except DataError as error:
        yield _batch(partition=[number], problem=[f"partition {number} of the Spark data: {error}"])


def _gathered(batches: Iterator["pa.RecordBatch"]) -> Iterator[tuple[int, "pa.Table"]]:
    """Tables of many records out of small batches, each with the number of its first record."""
    import pyarrow as pa

    first, waiting, rows = 0, [], 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS:
            yield first, pa.Table.from_batches(waiting)
            first, waiting, rows = first + rows, [], 0
    if waiting:
        yield first, pa.Table.from_batches(waiting)


def _batch(**columns: Any) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(columns)


@contextmanager
def _explained() -> Iterator[None]:
    """What Spark cannot do within is a DataError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # The last cause is the first one; what follows it is where in Spark's own code this happened.
        reason = str(error).rpartition("Caused by: ")[2].split("\n\tat ")[0].split("JVM stacktrace")[0]
        raise DataError(f"Spark cannot read the data ({' '.join(reason.split())[:600]})") from error


def _active_session() -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise DataError("no Spark session is active; start one, or give it: engine=rs.engines.Spark(session)")
    return session


def _read(session: Any, path: str, names: Sequence[str]) -> Any:
    """A DataFrame of files: Parquet as it is, CSV with every value as the text that stands there."""
    if is_parquet(path):
        return session.read.parquet(path)
    usual = CSV.get(os.path.splitext(path)[1].lower())
    if usual is None:
        raise DataError(f"{path}: the ending is not known; use .csv, .tsv or .parquet, or give a DataFrame")
    first = session.read.text(path).first()
    if first is None:
        raise DataError(f"{path} cannot be read as CSV (it is empty; the first line should name the columns)")
    line = first.value.removeprefix("\ufeff")
    delimiter = delimiter_of(lambda each: _header(path, line, each), usual, names)
    header = _header(path, line, delimiter)
    places_of(header, names)
    frame = session.read.option("columnPruning", False).csv(
        path,
        schema=", ".join(f"`{name.replace('`', '``')}` STRING" for name in header),
        header=True,
        enforceSchema=False,
        sep=delimiter,
        quote='"',
        escape='"',
        multiLine=True,
        mode="FAILFAST",
    )
    # An empty field is the empty text, and what that means is the attribute's to say.
    return frame.na.fill("")


def _header(path: str, line: str, delimiter: str) -> list[str]:
    """The names of the columns in the first line of a text file."""
    try:
        [names] = csv.reader([line], delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as CSV ({error} in the first line, which should name the columns; a name "
            "may not have a line break in it here)"
        ) from error
    return names
