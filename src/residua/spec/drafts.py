"""Drafts of specs: what is known about the columns of a data file, written for a person to complete.

How a text file is written, its delimiter and its encoding, is as given or as its first bytes show.
"""

import codecs
import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residua._yaml import flow
from residua.engines.sources import CSV, DELIMITERS, find_files, is_parquet
from residua.errors import DataError
from residua.spec.language import read_document
from residua.spec.release_spec import TO_CONFIRM

if TYPE_CHECKING:
    import pyarrow

SAMPLE = 1 << 16  # bytes that show an encoding
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
TAB = ("tab", "\\t")
MOST_LABELS = 200
MOST_INTEGERS = 1000
BINS = 10
EMPTY = f"; {TO_CONFIRM} what empty values mean (residua: {{outside: drop}}, or other)"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_OTHER_TYPES = {"yes", "no", "y", "n", "true", "false", "on", "off", "null"}  # to YAML, these are not text


@dataclass(frozen=True, slots=True)
class Dialect:
    """A delimiter, and an encoding by Python's name for it."""

    delimiter: str
    encoding: str

    @property
    def is_utf_8(self) -> bool:
        """Whether the file can be counted as it is."""
        return self.encoding == "utf-8"

    def describe(self) -> str:
        """Both in words."""
        return (
            f"separated by {'tabs' if self.delimiter == chr(9) else repr(self.delimiter)}, in {self.charset}"
        )

    @property
    def charset(self) -> str:
        """The encoding by the name that other programs have for it."""
        return self.encoding.upper().replace("-LE", "LE").replace("-BE", "BE")


def dialect_of(path: Path, delimiter: str | None, encoding: str | None) -> Dialect:
    """The dialect of a text file; what is not given is found."""
    if delimiter is not None:
        delimiter = "\t" if delimiter in TAB else delimiter
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise DataError(f"a delimiter is one character, such as ';', or 'tab', not {delimiter!r}")
    known = _encoding(path) if encoding is None else _named(encoding)
    if delimiter is None:
        # The one that gives most columns, and of several the one that the ending stands for.
        usual = CSV[path.suffix.lower()]
        delimiter = max((usual, *DELIMITERS), key=lambda each: _width(path, each, known))
    if not _width(path, delimiter, known):
        raise DataError(f"{path} cannot be read: it has no first line that names the columns")
    return Dialect(delimiter, known)


def _named(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # not every codec is one of text
    except LookupError:
        raise DataError(
            f"there is no encoding {encoding!r}; there are utf-8, utf-16, cp1252, latin-1 and others"
        ) from None
    return "utf-8" if name == "utf-8-sig" else name


def _encoding(path: Path) -> str:
    """The encoding that the first bytes of a file show."""
    try:
        with open(path, "rb") as file:
            sample = file.read(SAMPLE)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    for mark, encoding in MARKS.items():
        if sample.startswith(mark):
            return encoding
    if sample[1::2].count(0) > len(sample) / 4:  # letters of most scripts' headers are in the first 256
        return "utf-16-le"
    if sample[::2].count(0) > len(sample) / 4:
        return "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < SAMPLE)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _width(path: Path, delimiter: str, encoding: str) -> int:
    """How many columns the header has; 0 where this cannot be its delimiter."""
    try:
        with open(path, encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as file:
            rows = csv.reader(file, delimiter=delimiter, strict=True)
            return next((len(row) for row in rows if row), 0)
    except csv.Error:
        return 0
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; if need be, give --encoding") from error


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
        if "enum" in given or kind == "boolean" or {"bins", "hierarchy"} & {*(field.get("residua") or {})}:
            return cls(field)
        if kind in ("integer", "date"):
            ends = {end: given.get(end, TO_CONFIRM) for end in ("minimum", "maximum")}
            return cls({**field, "constraints": {**given, **ends}})
        if kind == "number":
            return cls({**field, "residua": {"bins": TO_CONFIRM}})
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

    def text(self, folder: Path) -> str:
        """The spec as YAML, to be kept in a folder."""
        fields = [line for column in self.columns for line in column.lines()]
        ways = min(2, len(self.columns))
        data = "" if self.data is None else f"data: {quoted(os.path.relpath(self.data, folder))}\n"
        template = files("residua.spec").joinpath("draft.yaml").read_text(encoding="utf-8")
        return template.format(
            heading=self.heading,
            confirm=TO_CONFIRM,
            fields="\n".join(fields),
            ways=ways,
            max_records=self.max_records,
            data=data,
        )


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
        found = _read(path, dialect, values=True)
        pairs = zip(found.column_names, found.columns, strict=True)
        columns = [_from_values(name, column) for name, column in pairs]
        heading = f"Drafted from the values of {name}: confirm every range and label below."
    else:
        columns = [_from_type(field.name, field.type) for field in _read(path, dialect, values=False)]
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


def _read(path: Path, dialect: Dialect | None, *, values: bool) -> "pyarrow.Table | pyarrow.Schema":
    """The columns of a file, or their names and types only; of text, as its first part suggests them."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if dialect is None:
            return parquet.read_table(path) if values else parquet.read_schema(path)
        if values:
            return csv.read_csv(path, **_options(dialect))
        with csv.open_csv(path, **_options(dialect)) as reader:
            return reader.schema
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


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
        remark = (
            "the edges of the bins, such as [0, 10000, 25000]; 'above: true' opens the last one; to sum it, "
        )
        remark += "constraints: {minimum: .., maximum: ..} and residua: {step: ..}"
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
        cells, read = f"constraints: {{enum: [{', '.join(map(quoted, labels))}]}}", "these labels"
    else:
        low, high = compute.min_max(present).as_py().values()
        cells, read = f"residua: {{bins: {bins_between(float(low), float(high))}, above: true}}", "these bins"
        if draft.type == "integer" and high - low < MOST_INTEGERS:
            cells, read = f"constraints: {{minimum: {low}, maximum: {high}}}", "this range"
    remark = f"read from the data: {TO_CONFIRM} {read}{EMPTY if gaps else ''}"
    return ColumnDraft(name, draft.type, cells, remark)


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
