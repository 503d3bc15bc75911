"""Answers as Arrow record batches and Parquet files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from residua._files import Target, whole_file
from residua._limits import ROWS_AT_ONCE
from residua.schema import Schema
from residua.workload import Identity, Table

if TYPE_CHECKING:
    import pandas
    import pyarrow

Array = NDArray[np.float64]

FIGURES = ("value", "stddev", "lower", "upper")


def arrow_schema(
    schema: Schema, simulated: bool, figures: Sequence[str] = FIGURES, notes: Mapping[str, str] | None = None
) -> "pyarrow.Schema":
    """Columns of the answers: table, each attribute, query, and the figures; with notes in the metadata."""
    import pyarrow as pa

    labels = pa.dictionary(pa.int32(), pa.string())
    fields = [pa.field("table", labels)]
    fields += [pa.field(name, labels) for name in _columns(schema, figures)]
    fields += [pa.field("query", pa.string()), *(pa.field(name, pa.float64()) for name in figures)]
    return pa.schema(fields, metadata={"residua.simulated": str(simulated).lower(), **(notes or {})})


def _columns(schema: Schema, figures: Sequence[str]) -> list[str]:
    """The attributes' columns; one that has the name of another column is set apart."""
    taken = {"table", "query", *figures, *schema.names}
    found = []
    for name in schema.names:
        column = name
        while column in ("table", "query", *figures) or (column != name and column in taken):
            column = f"attribute {column}"
        found.append(column)
    return found


def record_batches(
    schema: Schema,
    groups: Iterable[Table],
    figures_of: Callable[[Table], Sequence[Array]],
    columns: "pyarrow.Schema",
) -> Iterator["pyarrow.RecordBatch"]:
    """The answers of some tables, one after the other; `figures_of` has an array (count,) for each figure."""
    for group in groups:
        figures = figures_of(group)
        words = group.descriptions(schema)
        for start in range(0, group.count, ROWS_AT_ONCE):
            texts = list(islice(words, ROWS_AT_ONCE))
            part = slice(start, start + len(texts))
            yield _record_batch(schema, group, start, texts, [figure[part] for figure in figures], columns)


def _record_batch(
    schema: Schema,
    group: Table,
    start: int,
    texts: list[str],
    figures: Sequence[Array],
    columns_of: "pyarrow.Schema",
) -> "pyarrow.RecordBatch":
    """Some answers of one table, from the query `start` on, with their words and figures."""
    import pyarrow as pa

    count = len(texts)
    columns: list[pyarrow.Array] = [_constant(group.name, count)]
    cells = _cells(group, np.arange(start, start + count))
    for at, name in enumerate(schema.names):
        if at in cells:
            labels = pa.array(list(schema[name].labels()), pa.string())
            columns.append(pa.DictionaryArray.from_arrays(pa.array(cells[at], pa.int32()), labels))
        else:
            empty = pa.array([None] * count, pa.int32())
            columns.append(pa.DictionaryArray.from_arrays(empty, pa.array([], pa.string())))
    columns.append(pa.array(texts, pa.string()))
    columns += [pa.array(figure) for figure in figures]
    return pa.RecordBatch.from_arrays(columns, schema=columns_of)


def _constant(text: str, count: int) -> "pyarrow.Array":
    import pyarrow as pa

    places = pa.array(np.zeros(count, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(places, pa.array([text], pa.string()))


def _cells(group: Table, queries: NDArray[np.int64]) -> dict[int, NDArray[np.int32]]:
    """For attributes that a table asks cell by cell, the cell of each query."""
    found = {}
    for factor in reversed(group.factors):
        queries, place = np.divmod(queries, factor.queries.count)
        if isinstance(factor.queries, Identity):
            found[factor.attributes[0]] = place.astype(np.int32)
    return found


def listed_names(names: Sequence[str | Sequence[str]]) -> list[str]:
    """The attributes that were named one by one, or in one list.

    >>> listed_names(("age", "sex")), listed_names((["age", "sex"],))
    (['age', 'sex'], ['age', 'sex'])
    """
    if len(names) == 1 and isinstance(names[0], list | tuple):
        return list(names[0])
    return list(names)  # type: ignore[arg-type]  # the schema refuses what is no name


def diagonalised(
    names: tuple[str, ...], axes: tuple[tuple[str, ...], ...], figures: Mapping[str, Array]
) -> "pandas.DataFrame":
    """A data frame with a row per cell of a table, indexed by the labels of its attributes."""
    import pandas as pd

    columns = {name: figure.reshape(-1) for name, figure in figures.items()}
    if not names:
        return pd.DataFrame(columns)
    return pd.DataFrame(columns, index=pd.MultiIndex.from_product(axes, names=names))


def write_parquet(path: Target, schema: "pyarrow.Schema", batches: Iterator["pyarrow.RecordBatch"]) -> None:
    """Write batches to a Parquet file that is either whole or not there."""
    from pyarrow import parquet

    with whole_file(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
