"""How text files are written, as given or as they show: delimiter, encoding, signs in numbers."""

import codecs
import csv
import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from residua.engines.sources import CSV, DELIMITERS
from residua.engines.texts import PLAINLY, Reading, codec_of, opened
from residua.errors import DataError
from residua.schema.columns import SPELT_MISSING

SAMPLE = 1 << 16  # bytes that show an encoding
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
TAB = ("tab", "\\t")
ROWS = 1_000  # that show how numbers are written
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")


@dataclass(frozen=True, slots=True)
class Dialect(Reading):
    """How a text file is written, its encoding by Python's name; `numbers` are columns with its signs."""

    numbers: frozenset[str] = frozenset()

    @property
    def reading(self) -> dict[str, str]:
        """What a spec has to say about it under `reading:`."""
        keys = ("encoding", "decimal", "thousands")
        return {key: own for key in keys if (own := getattr(self, key)) != getattr(PLAINLY, key)}

    def describe(self) -> str:
        """All of it in words, with the name that other programs have for the encoding."""
        sign = "tabs" if self.delimiter == "\t" else repr(self.delimiter)
        charset = self.encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
        decimals = "" if self.decimal == "." else f", with {self.decimal!r} for decimals"
        return f"separated by {sign}, in {charset}{decimals}"


def dialect_of(path: Path, delimiter: str | None, encoding: str | None) -> Dialect:
    """The dialect of a text file; what is not given is found."""
    if delimiter is not None:
        delimiter = "\t" if delimiter in TAB else delimiter
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise DataError(f"a delimiter is one character, such as ';', or 'tab', not {delimiter!r}")
    known = _encoding(path) if encoding is None else codec_of(encoding)
    if delimiter is None:
        # The one that gives most columns, and of several the one that the ending stands for.
        usual = CSV[path.suffix.lower()]
        delimiter = max((usual, *DELIMITERS), key=lambda each: _width(path, each, known))
    if not _width(path, delimiter, known):
        raise DataError(f"{path} cannot be read: it has no first line that names the columns")
    return _with_numbers(path, Dialect(delimiter, known))


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
        with opened(path, encoding) as file:
            return next((len(row) for row in csv.reader(file, delimiter=delimiter, strict=True) if row), 0)
    except csv.Error:
        return 0
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; if need be, give --encoding") from error


def _with_numbers(path: Path, found: Dialect) -> Dialect:
    """The dialect with the signs that numbers are written with, where those are commas and points."""
    if found.delimiter == ",":
        return found
    with opened(path, found.encoding) as file:
        rows = csv.reader(file, delimiter=found.delimiter or ",")
        try:
            header, *records = islice(filter(None, rows), ROWS)
        except (csv.Error, UnicodeError):
            return found
    columns = {
        name: {row[at] for row in records if len(row) > at} - SPELT_MISSING for at, name in enumerate(header)
    }
    numbers = {
        name: values
        for name, values in columns.items()
        if all(map(_COMMA.fullmatch, values)) and any("," in value for value in values)
    }
    if not numbers:
        return found
    grouped = any("." in value for values in numbers.values() for value in values)
    return replace(found, decimal=",", thousands="." if grouped else "", numbers=frozenset(numbers))
