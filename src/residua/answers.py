"""Answers as people and files hold them: arrays by attribute, data frames, Arrow tables, Parquet files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from residua._arrays import AnyArray, Array, Integers
from residua._files import Target, whole_file
from residua.schema import Schema
from residua.workload import Identity, Table, table

if TYPE_CHECKING:
    import pandas
    import pyarrow

ROWS_AT_ONCE = 1_000_000  # answers of a table that are put into words at a time


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One table of answers: arrays with an axis per attribute, in the order asked."""

    names: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]
    values: Array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def to_pandas(self) -> "pandas.DataFrame":
        """A data frame with a row per cell, indexed by the labels of the attributes."""
        import pandas as pd

        found = {each.name: getattr(self, each.name) for each in fields(self)}
        columns = {name: each.reshape(-1) for name, each in found.items() if isinstance(each, np.ndarray)}
        index = pd.MultiIndex.from_product(self.axes, names=self.names) if self.names else None
        return pd.DataFrame(columns, index=index)


def asked_cells(
    schema: Schema, names: Sequence[str | Sequence[str]], figures_of: Callable[[Table], Sequence[Array]]
) -> tuple[Any, ...]:
    """Names, axes and figures (sizes...) of the marginal on attributes named one by one, or in a list."""
    asked: list[Any] = list(names[0] if len(names) == 1 and isinstance(names[0], list | tuple) else names)
    (group,) = table(schema, asked).groups()
    axes = tuple(schema[name].labels() for name in asked)
    return tuple(asked), axes, *(each.reshape([*map(len, axes)]) for each in figures_of(group))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers of tables, one after the other; `figures_of` has an array (count,) for each of the figures."""

    schema: Schema
    groups: Iterable[Table]
    figures: Sequence[str]
    figures_of: Callable[[Table], Sequence[Array]]
    notes: Mapping[str, str]

    def arrow(self) -> "pyarrow.Table":
        """All of them as an Arrow table: table, each attribute, query, and the figures."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self._batches()), schema=self._columns())

    def write(self, path: Target) -> None:
        """Write them to a Parquet file, table by table."""
        write_parquet(path, self._columns(), self._batches())

    def _columns(self) -> "pyarrow.Schema":
        import pyarrow as pa

        labels = pa.dictionary(pa.int32(), pa.string())
        columns = [pa.field(name, labels) for name in ("table", *self._attributes())]
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

    def _batches(self) -> Iterator["pyarrow.RecordBatch"]:
        columns = self._columns()
        for group in self.groups:
            figures, words = self.figures_of(group), group.descriptions(self.schema)
            for start in range(0, group.count, ROWS_AT_ONCE):
                texts = list(islice(words, ROWS_AT_ONCE))
                part = slice(start, start + len(texts))
                yield self._batch(group, start, texts, [figure[part] for figure in figures], columns)

    def _batch(
        self, group: Table, start: int, texts: list[str], figures: Sequence[Array], columns: "pyarrow.Schema"
    ) -> "pyarrow.RecordBatch":
        """Some answers of one table, from the query `start` on, with their words and figures."""
        import pyarrow as pa

        def labelled(places: Any, labels: Sequence[str]) -> "pyarrow.Array":
            return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(labels, pa.string()))

        count = len(texts)
        found = [labelled(np.zeros(count, dtype=np.int32), [group.name])]
        cells = _cells(group, np.arange(start, start + count))
        for at, name in enumerate(self.schema.names):
            known = at in cells
            labels = list(self.schema[name].labels()) if known else []
            found.append(labelled(cells[at] if known else [None] * count, labels))
        arrays = [*found, pa.array(texts, pa.string()), *map(pa.array, figures)]
        return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _cells(group: Table, queries: Integers) -> dict[int, NDArray[np.int32]]:
    """For attributes that a table asks cell by cell, the cell of each query."""
    found = {}
    for factor in reversed(group.factors):
        queries, place = np.divmod(queries, factor.queries.count)
        if isinstance(factor.queries, Identity):
            found[factor.attributes[0]] = place.astype(np.int32)
    return found


def write_parquet(path: Target, schema: "pyarrow.Schema", batches: Iterable["pyarrow.RecordBatch"]) -> None:
    """Write batches to a Parquet file that is either whole or not there."""
    from pyarrow import parquet

    with whole_file(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
