"""Drafts of specs: what is known about the columns of a data file, written for a person to complete."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residua.cli.dialects import Dialect, dialect_of
from residua.engines.sources import find_files, is_parquet
from residua.errors import DataError
from residua.spec import TO_CONFIRM

if TYPE_CHECKING:
    import pyarrow

MOST_LABELS = 200
MOST_INTEGERS = 1000
BINS = 10
EMPTY = f"; {TO_CONFIRM} what empty values mean (residua: {{outside: drop}}, or other)"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_OTHER_TYPES = {"yes", "no", "y", "n", "true", "false", "on", "off", "null"}  # to YAML, these are not text


@dataclass(frozen=True, slots=True)
class ColumnDraft:
    """One column: its Table Schema type, the line that gives its cells, and a remark."""

    name: str
    type: str
    cells: str
    remark: str

    def lines(self) -> list[str]:
        """The field of the schema."""
        cells = [f"    {self.cells}"] if self.cells else []
        return [f"  # {self.remark}", f"  - name: {quoted(self.name)}", f"    type: {self.type}", *cells]


@dataclass(frozen=True, slots=True)
class Draft:
    """A spec to be completed."""

    columns: list[ColumnDraft]
    heading: str
    data: Path | None
    max_records: int = 1

    def text(self, folder: Path) -> str:
        """The spec as YAML, to be kept in a folder."""
        fields = [line for column in self.columns for line in column.lines()]
        ways = min(2, len(self.columns))
        data = "" if self.data is None else f"data: {quoted(os.path.relpath(self.data, folder))}\n"
        return _TEMPLATE.format(
            heading=self.heading,
            confirm=TO_CONFIRM,
            fields="\n".join(fields),
            ways=ways,
            max_records=self.max_records,
            data=data,
        )


_TEMPLATE = """\
# {heading}
# Everything here is published with the tables, so it must be public knowledge, never a fact of this data.
# Where it says {confirm}, fill in what is known without looking at the data.
# Leave out columns that are not in any table: names, addresses, numbers of persons.
schema:
  fields:
{fields}

# Which tables to publish. Other entries, each with a name or a weight if you like:
#   {{families: {{age: prefix, sex: identity}}}}                       cumulative counts of ages, for each sex
#   {{columns: [age, sex]}}                                          every combination
#   {{all: [1-way, 2-way], numeric: prefix, categorical: identity}}  all tables on one or two columns
#   {{sql: "SELECT sex, COUNT(*) FROM people GROUP BY sex"}}
tables:
- marginals: up to {ways}

# How much privacy this release may spend, and whose: the most records that one person can have.
privacy:
  definition: zcdp   # or gdp (mu), approx_dp (epsilon, delta), pure_dp (epsilon), privacy_cost (cost)
  rho: 0.1
  unit: {{max_records: {max_records}, neighbours: add_remove}}

{data}ledger: budget.db   # make it once: residua budget create budget.db --zcdp 1 --dataset NAME
"""


def quoted(text: str) -> str:
    """A text as YAML reads it back: plain where that is safe, otherwise in quotes.

    >>> quoted("age"), quoted("größe"), quoted("no")
    ('age', '"größe"', '"no"')
    """
    plain = _PLAIN.fullmatch(text) and text.lower() not in _OTHER_TYPES
    return text if plain else "".join(map(_visible, json.dumps(text, ensure_ascii=False)))


def _visible(character: str) -> str:
    """A character as it stands between quotes; what cannot be seen, as its number."""
    code = ord(character)
    return character if character.isprintable() else f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def draft_of(path: Path, dialect: Dialect | None, *, read_values: bool) -> Draft:
    """The draft for a data file, from the names and types of its columns, or from their values too."""
    name = quoted(path.name)
    if read_values:
        columns = [_from_values(name, column) for name, column in _values(path, dialect).items()]
        heading = f"Drafted from the values of {name}: confirm every range and label below."
    else:
        columns = [_from_type(field.name, field.type) for field in _types(path, dialect)]
        heading = f"Drafted from the names and types of the columns of {name}; no values were used."
        if dialect is not None:
            heading = (
                f"Drafted from the names of the columns of {name}. Types are guessed from its first rows: "
                f"{TO_CONFIRM} them."
            )
    return Draft(columns, heading, path)


def dialect_of_file(path: Path, delimiter: str | None, encoding: str | None) -> Dialect | None:
    """How a data file is written, if it is one of text."""
    if not path.is_file():
        raise DataError(f"there is no data file {path}")
    find_files(path)  # refuses endings that are not known
    return None if is_parquet(path) else dialect_of(path, delimiter, encoding)


def _types(path: Path, dialect: Dialect | None) -> "pyarrow.Schema":
    """Names and types of the columns; of a text file, as its first part suggests them."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if dialect is None:
            return parquet.read_schema(path)
        with csv.open_csv(path, **_options(dialect)) as reader:
            return reader.schema
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _values(path: Path, dialect: Dialect | None) -> dict[str, "pyarrow.ChunkedArray"]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        found = parquet.read_table(path) if dialect is None else csv.read_csv(path, **_options(dialect))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return dict(zip(found.column_names, found.columns, strict=True))


def _options(dialect: Dialect) -> dict[str, Any]:
    from pyarrow import csv

    return {
        "read_options": csv.ReadOptions(encoding=dialect.encoding),
        "parse_options": csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
    }


def _from_type(name: str, kind: Any) -> ColumnDraft:
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return ColumnDraft(name, "boolean", "", "true or false")
    if pa.types.is_integer(kind):
        cells = f"constraints: {{minimum: {TO_CONFIRM}, maximum: {TO_CONFIRM}}}"
        return ColumnDraft(name, "integer", cells, "the smallest and the largest value that can be")
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        remark = "the edges of the bins, such as [0, 10000, 25000]; 'above: true' opens the last one"
        return ColumnDraft(name, "number", f"residua: {{bins: {TO_CONFIRM}}}", remark)
    remark = "all labels that can be, such as [F, M]; or leave the column out"
    return ColumnDraft(name, "string", f"constraints: {{enum: {TO_CONFIRM}}}", remark)


def _from_values(name: str, column: "pyarrow.ChunkedArray") -> ColumnDraft:
    """The draft of one column as its values suggest it; every remark asks for confirmation."""
    import pyarrow as pa
    from pyarrow import compute

    present = column.drop_null()
    gaps = len(present) < len(column)
    draft = _from_type(name, column.type)
    if not len(present) or pa.types.is_boolean(column.type):
        return draft
    if draft.type == "string":
        values = {str(label) for label in compute.unique(present).to_pylist()}
        labels = sorted(values - {""})
        gaps = gaps or "" in values
        if len(labels) > MOST_LABELS:
            remark = f"{len(labels)} different values: leave the column out, or group them"
            return ColumnDraft(name, "string", draft.cells, remark)
        cells = f"constraints: {{enum: [{', '.join(map(quoted, labels))}]}}"
        return ColumnDraft(
            name, "string", cells, f"read from the data: {TO_CONFIRM} these labels{EMPTY if gaps else ''}"
        )
    ends = compute.min_max(present).as_py()
    low, high = ends["min"], ends["max"]
    if draft.type == "integer" and high - low < MOST_INTEGERS:
        cells = f"constraints: {{minimum: {low}, maximum: {high}}}"
        return ColumnDraft(
            name, "integer", cells, f"read from the data: {TO_CONFIRM} this range{EMPTY if gaps else ''}"
        )
    cells = f"residua: {{bins: {bins_between(float(low), float(high))}, above: true}}"
    return ColumnDraft(
        name, draft.type, cells, f"read from the data: {TO_CONFIRM} these bins{EMPTY if gaps else ''}"
    )


def bins_between(low: float, high: float) -> list[float]:
    """Some round edges that begin at or below `low`, the last at or below `high`.

    >>> bins_between(0, 95)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]
    """
    step = 10.0 ** np.ceil(np.log10(max(high - low, 1e-9) / BINS))
    step = next(size for size in (step / 5, step / 2, step) if (high - low) / size <= BINS)
    first = np.floor(low / step)
    edges = (first + np.arange(np.floor(high / step) - first + 1)) * step
    return [float(f"{edge:.10g}") for edge in edges]
