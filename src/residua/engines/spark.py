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

from residua._arrays import AnyArray, Integers
from residua.engines.kernel import ROWS, Set, Tally, block_of, narrowest
from residua.engines.marginals import Derived, Progress, Rereading, extended, shares_of
from residua.engines.persons import Packing, counted, plain_ids, refused
from residua.engines.sources import CSV, UNKNOWN, bytes_of, delimiter_of, is_parquet
from residua.errors import DataError
from residua.privacy.unit import Person
from residua.schema import Attribute, Categorical, Integer, Schema
from residua.schema.coding import is_a, places_of

if TYPE_CHECKING:
    import pyarrow as pa

BITS = 62  # of a long integer, so that no sign is in the way
INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
SPELT_OUT = 64  # labels that Spark compares one by one
REFUSED = -1  # the place that says that a partition has a value which the schema refuses
RECORDS = -2  # the place of the number of records
HALF = 32  # bits: halves of counts are added up, so that no sum can overflow


@dataclass(frozen=True, slots=True)
class Field:
    """Where an attribute is: its codes in a column of longs, from bit `shift`, or its values (None)."""

    column: int
    shift: int | None


def fields_of(schema: Schema, types: Sequence[str]) -> list[Field]:
    """The place of each attribute, packed columns first; `types` are Spark's names of the columns' types.

    >>> from residua.schema import Binned, Integer
    >>> fields_of(Schema(a=Integer(0, 9), b=Binned(0, 1), c=Integer(0, 1)), ["int", "double", "bigint"])
    [Field(column=0, shift=0), Field(column=1, shift=None), Field(column=0, shift=4)]
    """
    packed = [_packs(attribute, kind) for attribute, kind in zip(schema.attributes, types, strict=True)]
    places: list[Field | None] = []
    column = used = 0
    for attribute, packs in zip(schema.attributes, packed, strict=True):
        if packs and used + _bits(attribute) > BITS:
            column, used = column + 1, 0
        places.append(Field(column, used) if packs else None)
        used += _bits(attribute) if packs else 0
    after = iter(range(column + any(packed), column + any(packed) + len(packed)))
    return [place if place is not None else Field(next(after), None) for place in places]


def packed_columns(schema: Schema, fields: Sequence[Field], columns: Sequence[Any]) -> list[Any]:
    """The Spark columns to send, from those of the data in the order of the schema."""
    from pyspark.sql import functions

    sent: dict[int, Any] = {}
    for attribute, field, column in zip(schema.attributes, fields, columns, strict=True):
        if field.shift is None:
            sent[field.column] = column
            continue
        code = functions.shiftleft(_code(attribute, column).cast("long"), field.shift)
        sent[field.column] = code if field.shift == 0 else sent[field.column] + code
    return [sent[at].alias(f"p{at}") for at in range(len(sent))]


def unpack(schema: Schema, fields: Sequence[Field], table: "pa.Table") -> list[AnyArray]:
    """The codes of each attribute; -1 marks a record to drop. A DataError where a value is refused."""
    longs: dict[int, Integers] = {}
    codes: list[AnyArray] = []
    for name, attribute, field in zip(schema.names, schema.attributes, fields, strict=True):
        if field.shift is None:
            codes.append(attribute.encode(table.column(field.column), column=name))
            continue
        if field.column not in longs:
            longs[field.column] = table.column(field.column).to_numpy()
        kind = narrowest(attribute.size + 1)
        mask = kind(2 ** _bits(attribute) - 1)
        code = (longs[field.column] >> field.shift).astype(kind) & mask
        missed = code == kind(attribute.size)
        if missed.any():
            if attribute.outside != "drop":
                raise DataError(f"column {name!r}: a value is outside {attribute!r}")
            code = np.where(missed, np.int64(-1), code.astype(np.int64))
        codes.append(code)
    return codes


def _bits(attribute: Attribute) -> int:
    """Bits for the codes and one more number, the mark of a value without a cell."""
    return attribute.size.bit_length()


def _packs(attribute: Attribute, kind: str) -> bool:
    if attribute.outside == "missing":
        return False  # what is missing is known by more than its code
    if isinstance(attribute, Integer):
        return kind in INTEGERS
    if isinstance(attribute, Categorical):
        return kind == "string" and attribute.type == "text" and attribute.inner_size <= SPELT_OUT
    return False


def _code(attribute: Attribute, column: Any) -> Any:
    """The cell of a value as a Spark column, or the attribute's size where it has none."""
    from pyspark.sql import functions

    lit = functions.lit
    if isinstance(attribute, Integer):
        value = column.cast("long")
        code = functions.when(
            value.between(lit(attribute.low), lit(attribute.high)), value - lit(attribute.low)
        )
        if attribute.outside == "clip":
            code = code.when(value < lit(attribute.low), lit(0))
            code = code.when(value > lit(attribute.high), lit(attribute.size - 1))
    else:
        assert isinstance(attribute, Categorical)
        code = functions.when(column == lit(attribute.values[0]), lit(0))
        for cell, label in enumerate(attribute.values[1:], start=1):
            code = code.when(column == lit(label), lit(cell))
    return code.otherwise(lit(attribute.size if attribute.other is None else attribute.other))


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
        return self._open(schema, data, None)

    def open_kept(self, schema: Schema, data: object, person: Person) -> "SparkEngine":
        """An engine over those records that are counted; the data are shuffled by id for every pass."""
        return self._open(schema, data, person)

    def _open(self, schema: Schema, data: object, person: Person | None) -> "SparkEngine":
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
        sizes = self.sizes
        columns = [self._frame[name] for name in self._frame.columns]
        chosen = packed_columns(self._schema, self._fields, columns[: len(self._schema)])
        packed = self._frame.select(*chosen, *columns[len(self._schema) :])
        if self._person is not None:  # all records of a person in one partition, one after the other
            packed = packed.repartition(packed.columns[-1]).sortWithinPartitions(packed.columns[-1])
        counted = partial(
            _partial_counts,
            self._schema.to_manifest(),
            self._fields,
            self._derived,
            [tuple(each) for each in sets],
            self._person,
        )
        with _explained():
            parts = packed.mapInArrow(counted, "place long, low long, high long")
            summed = parts.groupBy("place").sum("low", "high").toArrow()
        places, low, high = (summed.column(at).to_numpy() for at in range(3))
        if (places == REFUSED).any():
            self._refuse()
        counts = low + (high << HALF)  # modulo 2^64
        ends = np.cumsum([math.prod(sizes[at] for at in each) for each in sets])
        flat: Integers = np.zeros(ends[-1], dtype=np.int64)
        flat[places[places >= 0]] = counts[places >= 0]
        found = np.split(flat, ends[:-1])
        self._records = int(counts[places == RECORDS].sum())
        if progress is not None:
            progress("counting", 1.0)
        return found

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
    batches: Iterator["pa.RecordBatch"],
) -> Iterator["pa.RecordBatch"]:
    """Counts of one partition: the places of the cells that are not empty, all sets end to end."""
    schema = Schema.from_manifest(record)
    tally = Tally((*schema.sizes, *(each.size for each in derived)), sets, shares_of(schema))
    records = 0
    try:
        for _, table in _gathered(batches) if person is None else _whole_persons(batches):
            codes = unpack(schema, fields, table)
            block = block_of(codes, schema.codes)
            if person is not None:
                block = counted(person, table.column(-1), codes, block, Packing.of(schema.codes))
            tally.add(extended(block, derived))
            records += len(block[0])
    except DataError:
        # Raised here it would be retried and written to logs; `_problems` says what it is about.
        yield _batch(place=[REFUSED], low=[1], high=[0])
        return
    yield _batch(place=[RECORDS], low=[records], high=[0])
    places = np.flatnonzero(tally.flat)
    for start in range(0, len(places), ROWS):
        some = places[start : start + ROWS]
        counts = tally.flat[some]
        yield _batch(place=some, low=counts & (2**HALF - 1), high=counts >> HALF)


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
