"""Drafts of specs: what is known about the columns of a data file, written for a person to complete."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residua._arrays import Array
from residua._yaml import flow
from residua.engines.sources import find_files, is_parquet
from residua.errors import DataError, retold
from residua.schema.columns import SPELT_MISSING
from residua.spec.dialects import Dialect, dialect_of
from residua.spec.language import read_document
from residua.spec.release_spec import TO_CONFIRM

if TYPE_CHECKING:
    import pyarrow

MOST_LABELS = 200
MOST_INTEGERS = 1000
MANY = 100  # records that show whether a column of whole numbers only tells them apart
BINS = 10
EMPTY = f"; missing values are counted as (missing): {TO_CONFIRM} that, or leave them out (outside: drop)"


@dataclass(frozen=True, slots=True)
class ColumnDraft:
    """One column: its Table Schema type, the lines that give its cells, and a remark.

    `to_sum` are lines that could stand there instead, so that sums of it can be published.
    """

    name: str
    type: str
    cells: str
    remark: str
    left_out: bool = False
    to_sum: str = ""

    def lines(self) -> list[str]:
        """The field of the schema, as a comment where the column is left out."""
        cells = [f"    {line}" for line in self.cells.split("\n") if line]
        field = [f"  - name: {flow(self.name)}", f"    type: {self.type}", *cells]
        if self.to_sum:
            field += ["    # or, to publish sums and means of it instead of counts by bins:"]
            field += [f"    # {line}" for line in self.to_sum.split("\n")]
        return [f"  # {self.remark}", *(f"  # {line[2:]}" if self.left_out else line for line in field)]


@dataclass(frozen=True, slots=True)
class FieldDraft:
    """One column as a Table Schema has it, with a question where it does not say what the cells are."""

    field: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the column."""
        return str(self.field.get("name"))

    def lines(self) -> list[str]:
        """The field of the schema."""
        return [f"  - {flow(dict(self.field))}"]

    @classmethod
    def of(cls, field: Mapping[str, Any]) -> "FieldDraft":
        """The draft for a field."""
        kind = field.get("type", "string")
        given = field.get("constraints") or {}
        known = {*(field.get("residua") or {})}
        if "enum" in given or kind == "boolean" or {"bins", "hierarchy", "step"} & known:
            return cls(field)
        if kind in ("integer", "date"):
            ends = {end: given.get(end, TO_CONFIRM) for end in ("minimum", "maximum")}
            return cls({**field, "constraints": {**given, **ends}})
        if kind == "number":
            step = {"step": TO_CONFIRM} if {"minimum", "maximum"} <= {*given} else {}
            return cls({**field, "residua": {**step, "bins": TO_CONFIRM}})
        return cls({**field, "type": "string", "constraints": {**given, "enum": TO_CONFIRM}})


def drafts_of_schema(path: Path) -> list[FieldDraft] | None:
    """The columns that a Table Schema describes, or None where the file is a spec already."""
    document = read_document(path)
    value = document.value
    if isinstance(value, Mapping) and ("tables" in value or "privacy" in value):
        return None
    fields = value.get("fields") if isinstance(value, Mapping) else None
    if not isinstance(fields, list) or not all(isinstance(each, Mapping) for each in fields):
        raise document.refusal((), "neither a spec (schema, tables, privacy) nor a Table Schema (fields)")
    return [FieldDraft.of(each) for each in fields]


@dataclass(frozen=True, slots=True)
class Draft:
    """A spec to be completed."""

    columns: Sequence[ColumnDraft | FieldDraft]
    heading: str
    data: Path | None
    max_records: int = 1
    reading: Mapping[str, str] = field(default_factory=dict)

    def text(self, folder: Path) -> str:
        """The spec as YAML, to be kept in a folder."""
        fields = [line for column in self.columns for line in column.lines()]
        data = "" if self.data is None else f"data: {flow(os.path.relpath(self.data, folder))}\n"
        if self.data is not None and self.reading:
            data += f"reading: {flow(dict(self.reading))}\n"
        template = files("residua.spec").joinpath("draft.yaml").read_text(encoding="utf-8")
        own = {"heading": self.heading, "confirm": TO_CONFIRM, "max_records": self.max_records}
        return template.format(fields="\n".join(fields), ways=min(2, len(self.columns)), data=data, **own)


def draft_of(path: Path, dialect: Dialect | None, *, read_values: bool) -> Draft:
    """The draft for a data file, from the names and types of its columns, or from their values too."""
    name = flow(path.name)
    if read_values:
        found = _read(path, dialect, values=True)
        pairs = zip(found.column_names, found.columns, strict=True)
        columns = [_from_values(name, _numbers(name, column, dialect)) for name, column in pairs]
        heading = (
            f"Drafted from the values of {name}. This looked at the data: {TO_CONFIRM} that every range, bin "
            "and label below is public knowledge, and change those that are not."
        )
    else:
        import pyarrow as pa

        special = frozenset() if dialect is None else dialect.numbers
        columns = [
            _from_type(field.name, pa.float64() if field.name in special else field.type)
            for field in _read(path, dialect, values=False)
        ]
        heading = f"Drafted from the names and types of the columns of {name}; no values were used."
        if dialect is not None:
            heading = (
                f"Drafted from the names of the columns of {name}. Types are guessed from its first rows: "
                f"{TO_CONFIRM} them."
            )
    return Draft(columns, heading, path, reading={} if dialect is None else dialect.reading)


def dialect_of_file(path: Path, delimiter: str | None, encoding: str | None) -> Dialect | None:
    """How a data file is written, if it is one of text."""
    if not path.is_file():
        raise DataError(f"there is no data file {path}")
    find_files(path)  # refuses endings that are not known
    return None if is_parquet(path) else dialect_of(path, delimiter, encoding)


def _read(path: Path, dialect: Dialect | None, *, values: bool) -> "pyarrow.Table | pyarrow.Schema":
    """The columns of a file, or their names and types only; of text, as its first part suggests them."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    with retold((pa.ArrowException, OSError, UnicodeError), DataError, f"{path} cannot be read: "):
        if dialect is None:
            return parquet.read_table(path) if values else parquet.read_schema(path)
        options = {
            "read_options": csv.ReadOptions(encoding=dialect.encoding),
            "parse_options": csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        }
        if values:
            return csv.read_csv(path, **options)
        with csv.open_csv(path, **options) as reader:
            return reader.schema


def _numbers(name: str, column: "pyarrow.ChunkedArray", dialect: Dialect | None) -> "pyarrow.ChunkedArray":
    """The column as numbers, where its first rows show signs that Arrow does not read."""
    import pyarrow as pa

    if dialect is None or name not in dialect.numbers:
        return column
    try:
        texts = (None if text in SPELT_MISSING else dialect.number(str(text)) for text in column.to_pylist())
        return pa.chunked_array([pa.array([None if text is None else float(text) for text in texts])])
    except ValueError:
        return column


def _from_type(name: str, kind: Any) -> ColumnDraft:
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return ColumnDraft(name, "boolean", "", "true or false")
    if pa.types.is_integer(kind):
        cells = f"constraints: {{minimum: {TO_CONFIRM}, maximum: {TO_CONFIRM}}}"
        return ColumnDraft(name, "integer", cells, "the smallest and the largest value that can be")
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        remark = "the edges of the bins, such as [0, 10000, 25000]; 'above: true' opens the last one"
        cells = f"residua: {{bins: {TO_CONFIRM}}}"
        return ColumnDraft(name, "number", cells, remark, to_sum=quantity_lines())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        ends = f"constraints: {{minimum: {TO_CONFIRM}, maximum: {TO_CONFIRM}}}\nresidua: {{by: month}}"
        return ColumnDraft(name, "date", ends, "the first and the last day that can be; by day, month, ...")
    remark = "all labels that can be, such as [F, M]; or leave the column out"
    return ColumnDraft(name, "string", f"constraints: {{enum: {TO_CONFIRM}}}", remark)


def quantity_lines(values: Array | None = None, *, missing: bool = False) -> str:
    """The lines of a column whose values are added up; to be confirmed where none are known."""
    low, high, step = (TO_CONFIRM,) * 3 if values is None else quantity(values)
    gaps = ", missing: true" * missing
    return f"constraints: {{minimum: {low}, maximum: {high}}}\nresidua: {{step: {step}{gaps}}}"


def _from_values(name: str, column: "pyarrow.ChunkedArray") -> ColumnDraft:
    """The draft of one column as its values suggest it; every remark asks for confirmation."""
    import pyarrow as pa
    from pyarrow import compute

    present, draft = column.drop_null(), _from_type(name, column.type)
    if not len(present) or (draft.type == "boolean" and len(present) == len(column)):
        return draft
    gaps, constraints, additions, to_sum = len(present) < len(column), "", [], ""
    if draft.type == "boolean":
        read = "that there are no others"
    elif draft.type == "string":
        values = {str(label) for label in compute.unique(present).to_pylist()}
        labels, gaps = sorted(values - SPELT_MISSING), gaps or bool(values & SPELT_MISSING)
        if len(labels) > MOST_LABELS:
            remark = f"{len(labels)} different values: left out; group them to publish any"
            return ColumnDraft(name, "string", draft.cells, remark, left_out=True)
        constraints, read = f"{{enum: {flow(labels)}}}", "these labels"
    elif draft.type == "date":
        low, high = compute.min_max(compute.cast(present, pa.date32())).as_py().values()
        constraints = f"{{minimum: {low.year}-01-01, maximum: {high.year}-12-31}}"
        additions, read = ["by: month"], "these years"
    else:
        numbers = np.asarray(compute.cast(present, pa.float64(), safe=False))
        low, high = compute.min_max(present).as_py().values()
        many, dense = len(present), high - low < 3 * len(present)
        if draft.type == "integer" and dense and many > MANY and len(np.unique(numbers)) > 0.9 * many:
            remark = "a value of its own in nearly every record, as numbers of persons are: left out"
            return ColumnDraft(name, "integer", draft.cells, remark, left_out=True)
        if draft.type == "integer" and high - low < MOST_INTEGERS:
            constraints, read = f"{{minimum: {low}, maximum: {high}}}", "this range"
        else:
            additions, read = [f"bins: {bins_by_quantiles(numbers)}", "above: true"], "these bins"
            to_sum = quantity_lines(numbers, missing=gaps)
    additions += ["outside: missing"] * gaps
    cells = [f"constraints: {constraints}"] * bool(constraints)
    cells += [f"residua: {{{', '.join(additions)}}}"] * bool(additions)
    remark = f"read from the data: {TO_CONFIRM} {read}{EMPTY if gaps else ''}"
    return ColumnDraft(name, draft.type, "\n".join(cells), remark, to_sum=to_sum)


def bins_by_quantiles(values: Array) -> list[float]:
    """Round edges that part numbers in about equal shares, the first at or below all of them.

    >>> bins_by_quantiles(np.arange(0, 1000.0) ** 2 / 1000)
    [0.0, 10.0, 40.0, 90.0, 160.0, 250.0, 360.0, 490.0, 640.0, 810.0]
    """
    found = np.quantile(values[np.isfinite(values)], np.arange(BINS) / BINS)
    spread = max(float(found[-1] - found[0]), 1e-9)
    step = 10.0 ** np.floor(np.log10(spread / BINS / 2))
    edges = np.unique(np.append(np.floor(found[0] / step), np.round(found[1:] / step)))
    return [float(f"{edge * step:.10g}") for edge in edges]


def quantity(values: Array) -> tuple[str, str, str]:
    """Round bounds around numbers, and a step that divides their range into hundreds at least.

    >>> quantity(np.array([3.0, 187_345.0]))
    ('0', '190000', '100')
    """
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    coarse = 10.0 ** np.floor(np.log10(max(high - low, 1e-9) / 2))
    found = np.floor(low / coarse) * coarse, np.ceil(high / coarse) * coarse, coarse / 100
    return f"{found[0]:.12g}", f"{found[1]:.12g}", f"{found[2]:.12g}"


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
