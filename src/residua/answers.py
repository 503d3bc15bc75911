"""Answers as people and files hold them: arrays by attribute, data frames, Arrow tables, Parquet files."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from residua._arrays import AnyArray, Array, Flags, Integers
from residua._files import Target, whole_file
from residua._limits import ROWS_AT_ONCE
from residua._notebook import MOST, shown
from residua.schema import Schema
from residua.workload import Factor, Identity, Table
from residua.workload.groupings import Partition
from residua.workload.queries import Queries
from residua.workload.tables import ALL, AND

if TYPE_CHECKING:
    import pandas
    import pyarrow

FiguresOf = Callable[[slice], Sequence[Array]]
"""Gives the figures of some rows of a table, an array (rows,) for each."""


def held(figures: Sequence[Array]) -> FiguresOf:
    """Figures of all rows, of which some are asked for at a time."""
    return lambda rows: [own[rows] for own in figures]


def by_place(compute: FiguresOf, width: int) -> FiguresOf:
    """Figures that are computed for some places at a time, of which each has `width` rows.

    >>> (one,) = by_place(lambda some: [np.arange(some.start * 3, some.stop * 3)], 3)(slice(2, 7))
    >>> one.tolist()
    [2, 3, 4, 5, 6]
    """

    def figures(rows: slice) -> list[Array]:
        some = slice(rows.start // width, -(-rows.stop // width))
        first = some.start * width
        return [own[rows.start - first : rows.stop - first] for own in compute(some)]

    return figures


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One table of answers: arrays with an axis per attribute, in the order asked."""

    names: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]
    values: Array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def _repr_html_(self) -> str:
        figures = [each.name for each in fields(self) if isinstance(getattr(self, each.name), np.ndarray)]
        columns = [getattr(self, name).reshape(-1)[:MOST].tolist() for name in figures]
        cells = islice(product(*self.axes), MOST)
        pairs = zip(cells, zip(*columns, strict=True), strict=True)
        rows = ((*cell, *map(_printed, row)) for cell, row in pairs)
        caption, more = " x ".join(self.names) or "total", self.values.size - MOST
        return shown(caption, (*self.names, *figures), rows, left=len(self.names), more=more)

    def plot(self) -> Any:
        """A picture of the numbers with their intervals, where they have some; needs `residua[report]`."""
        from residua.report.charts import interval_plot  # seldom needed

        ends = [getattr(self, name, self.values).reshape(-1).tolist() for name in ("lower", "upper")]
        cells = list(product(*self.axes))
        labels = [" / ".join(cell[:1]) or "total" for cell in cells]
        series = [" / ".join(cell[1:]) for cell in cells]
        values = self.values.reshape(-1).tolist()
        return interval_plot(labels, series, [values, *ends], " x ".join(self.names))

    def to_pandas(self) -> "pandas.DataFrame":
        """A data frame with a row per cell, indexed by the labels of the attributes."""
        import pandas as pd

        found = {each.name: getattr(self, each.name) for each in fields(self)}
        columns = {name: each.reshape(-1) for name, each in found.items() if isinstance(each, np.ndarray)}
        index = pd.MultiIndex.from_product(self.axes, names=self.names) if self.names else None
        return pd.DataFrame(columns, index=index)


def _printed(figure: Any) -> str:
    if not isinstance(figure, float):
        return str(figure)
    return f"{figure:,.4g}" if abs(figure) < 1e4 else f"{figure:,.0f}"


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers of tables, one after the other: each table with what gives its figures."""

    schema: Schema
    tables: Iterable[tuple[Table, FiguresOf]]
    figures: Sequence[str]
    notes: Mapping[str, str]

    def arrow(self) -> "pyarrow.Table":
        """All of them as an Arrow table: table, each attribute, query, and the figures."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches()), schema=self._columns())

    def write(self, path: Target) -> None:
        """Write them to a Parquet file, some tables at a time."""
        columns = self._columns()
        different = ("query", "value", "lower", "upper") if "upper" in self.figures else ("query",)
        repeated = [name for name in columns.names if name not in different]
        told = ["table", *self.figures]  # statistics of a hundred columns of labels take longer than all else
        write_parquet(path, columns, self.batches(), use_dictionary=repeated, write_statistics=told)

    def _columns(self) -> "pyarrow.Schema":
        import pyarrow as pa

        def labels(count: int) -> "pyarrow.DataType":
            return pa.dictionary(pa.from_numpy_dtype(_narrow(count)), pa.string())

        attributes = zip(self._attributes(), self.schema.sizes, strict=True)
        columns = [pa.field("table", pa.dictionary(pa.int32(), pa.string()))]
        columns += [pa.field(name, labels(size)) for name, size in attributes]
        columns += [pa.field("query", pa.string()), *(pa.field(name, pa.float64()) for name in self.figures)]
        return pa.schema(columns, metadata=dict(self.notes))

    def _attributes(self) -> Iterator[str]:
        """The attributes' columns; one that has the name of another column is set apart."""
        others = ("table", "query", *self.figures)
        for name in self.schema.names:
            column = name
            while column in others or (column != name and column in self.schema.names):
                column = f"attribute {column}"
            yield column

    def batches(self) -> Iterator["pyarrow.RecordBatch"]:
        """The rows in order, some at a time: of many small tables, or of a part of a large one."""
        columns = self._columns()
        waiting = _Waiting(len(self.figures))
        for group, figures in self.tables:
            start = 0
            while start < group.count:
                start += waiting.add(group, start, figures)
                if waiting.full:
                    batch, waiting = self._batch(waiting, columns), _Waiting(len(self.figures))
                    yield batch
                    del batch  # one at a time is enough to hold
        if waiting.parts:
            yield self._batch(waiting, columns)

    def _batch(self, waiting: "_Waiting", columns: "pyarrow.Schema") -> "pyarrow.RecordBatch":
        """Some rows of tables with their labels, words and figures."""
        import pyarrow as pa

        parts = waiting.parts
        ends = np.cumsum([len(some) for _, some in parts])
        slices = [slice(end - len(some), end) for (_, some), end in zip(parts, ends.tolist(), strict=True)]
        words, cells = _Words(self.schema, int(ends[-1])), {}
        places = cache(_places)  # those in tables of one shape
        for (table, some), rows in zip(parts, slices, strict=True):
            found = places(tuple(factor.queries.count for factor in table.factors), some)
            for number, (factor, place) in enumerate(zip(table.factors, found, strict=True)):
                words.add(number, rows, factor, place)
                known = _cells(factor.queries)
                if known is not None:
                    (at,) = factor.attributes
                    if at not in cells:
                        cells[at] = np.full(words.count, -1, dtype=_narrow(self.schema.sizes[at]))
                    cells[at][rows] = known[place.queries]
        tables = np.repeat(np.arange(len(parts), dtype=np.int32), np.diff(ends, prepend=0))
        names = _texts([table.name for table, _ in parts])
        labels = [pa.DictionaryArray.from_arrays(_numbers(tables), names)]
        nothing = cache(partial(pa.nulls, words.count))
        for at, name in enumerate(self.schema.names):
            if at in cells:
                own = _numbers(cells[at], cells[at] >= 0)
                labels.append(pa.DictionaryArray.from_arrays(own, _texts(self.schema[name].labels())))
            else:
                labels.append(nothing(columns.field(1 + at).type))
        figures = [_numbers(each[: words.count]) for each in waiting.figures]
        return pa.RecordBatch.from_arrays([*labels, words.joined(), *figures], schema=columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """The place of a factor's query in some rows, and the least and the largest one."""

    queries: Integers
    low: int
    high: int


def _places(counts: tuple[int, ...], some: range) -> list[_Places]:
    """For each factor of a table, by its number of queries, the place of its query in some rows."""
    rows = np.arange(some.start, some.stop)
    found = [rows // math.prod(counts[number + 1 :]) % count for number, count in enumerate(counts)]
    return [_Places(each, int(each.min()), int(each.max())) for each in found]


class _Waiting:
    """Rows that become a batch, and their figures in its columns already."""

    def __init__(self, figures: int) -> None:
        self.parts: list[tuple[Table, range]] = []
        self.figures = [np.empty(ROWS_AT_ONCE) for _ in range(figures)]
        self._filled = 0

    @property
    def full(self) -> bool:
        """Whether there is no room for a further row."""
        return self._filled == ROWS_AT_ONCE

    def add(self, group: Table, start: int, figures: FiguresOf) -> int:
        """Take rows of a table from `start` on as far as there is room; how many."""
        rows = range(start, min(group.count, start + ROWS_AT_ONCE - self._filled))
        to = slice(self._filled, self._filled + len(rows))
        for column, own in zip(self.figures, figures(slice(rows.start, rows.stop)), strict=True):
            column[to] = own
        self.parts.append((group, rows))
        self._filled = to.stop
        return len(rows)


class _Words:
    """Words for rows, from those of the factors' queries, each of which is described once."""

    def __init__(self, schema: Schema, count: int) -> None:
        self.schema, self.count = schema, count
        self.columns: list[NDArray[np.int32]] = []  # numbers of words in every row; the first word is none
        self.words: list[str | None] = [None]
        self.known: dict[tuple[int, int, int], int] = {}

    def add(self, number: int, rows: slice, factor: Factor, place: _Places) -> None:
        """Say in these rows what the queries at these places of a factor ask, after so many others."""
        if number == len(self.columns):
            self.columns.append(np.zeros(self.count, dtype=np.int32))
        start = self.known.setdefault((id(factor), place.low, place.high), len(self.words))
        if start == len(self.words):
            described = range(place.low, place.high + 1)
            self.words += [factor.describe(at, self.schema) or None for at in described]
        self.columns[number][rows] = place.queries + (start - place.low)

    def joined(self) -> "pyarrow.Array":
        """The words of every row as one text."""
        from pyarrow import compute

        # Arrow leaves out rows that have no word at all: theirs is ALL, which stands last.
        silent = np.array([word is None for word in self.words])
        first, *others = self.columns or [np.zeros(self.count, dtype=np.int32)]
        nothing = np.logical_and.reduce([silent[column] for column in (first, *others)])
        words = _texts([*self.words, ALL])
        columns = [np.where(nothing, len(self.words), first), *others]
        found = [words.take(_numbers(column)) for column in columns]
        return compute.binary_join_element_wise(*found, _texts([AND])[0], null_handling="skip")


def _numbers(values: AnyArray, there: Flags | None = None) -> "pyarrow.Array":
    """Numbers as Arrow has them, null where none is there; `pyarrow.array` loads pandas, wherever it is."""
    import pyarrow as pa

    bits = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _texts(texts: Sequence[str | None]) -> "pyarrow.Array":
    """Texts as Arrow has them, null for None."""
    import pyarrow as pa

    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    there = np.packbits(np.array([text is not None for text in texts], dtype=bool), bitorder="little")
    parts = (pa.py_buffer(part) for part in (ends, b"".join(encoded), there))
    return pa.StringArray.from_buffers(len(texts), *parts)


def _cells(queries: Queries) -> Integers | None:
    """The cell that each query asks about, where each asks about one."""
    if isinstance(queries, Identity):
        return np.arange(queries.count)
    if not isinstance(queries, Partition) or queries.labels is not None or queries.level is not None:
        return None
    cells = np.flatnonzero(queries.classes >= 0)
    return cells[np.argsort(queries.classes[cells])] if len(cells) == queries.count else None


def _narrow(count: int) -> type[np.signedinteger[Any]]:
    """The narrowest whole numbers that tell so many labels apart."""
    return next(kind for kind in (np.int8, np.int16, np.int32, np.int64) if count <= np.iinfo(kind).max)


def write_parquet(
    path: Target, schema: "pyarrow.Schema", batches: Iterable["pyarrow.RecordBatch"], **settings: Any
) -> None:
    """Write batches to a Parquet file that is either whole or not there; settings as the writer has them."""
    from pyarrow import parquet

    with whole_file(path) as stream, parquet.ParquetWriter(stream, schema, **settings) as writer:
        for batch in batches:
            writer.write_batch(batch)
