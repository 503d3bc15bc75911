"""Text files as Python reads them: how they are written, their headers, and what DuckDB does not read."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from residua.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 20  # letters looked at together
# DuckDB leaves out spaces before a quote, and takes a lone control character for a null unless it is quoted.
TWO_WAYS = re.compile(' +"|\x01$')


@dataclass(frozen=True, slots=True)
class Reading:
    """How data are written, where that is not plain: of text files their encoding, delimiter, and the signs
    for decimals and thousands; of databases the table. What is not plain is read by Python, slowly.

    >>> Reading(decimal=",", thousands=".").number("1.234,5"), Reading(decimal=",").number("1.234,5")
    ('1234.5', '1.234,5')
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    table: str | None = None

    def __post_init__(self) -> None:
        codec_of(self.encoding)
        signs = [self.decimal, *filter(None, (self.thousands, self.delimiter))]
        if any(len(sign) != 1 or sign.isalnum() for sign in signs) or self.decimal == self.thousands:
            raise DataError(
                "decimal, thousands and delimiter are one sign each, and none is a letter or digit"
            )

    @property
    def plain(self) -> bool:
        """Whether DuckDB can read it as it is."""
        return codec_of(self.encoding) == "utf-8" and (self.decimal, self.thousands) == (".", "")

    def number(self, text: str) -> str:
        """A number as it is written elsewhere; a text that is none stays as it is."""
        sign, point = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"\d{{1,3}}(?:{sign}\d{{3}})+|\d+" if self.thousands else r"\d+"
        if not re.fullmatch(rf"\s*[+-]?(?:{whole})?(?:{point}\d*)?\s*", text):
            return text
        return text.replace(self.thousands, "").replace(self.decimal, ".")


def codec_of(encoding: str) -> str:
    """Python's name for an encoding of text; a byte order mark is never told apart."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # not every codec is one of text
    except LookupError:
        raise DataError(
            f"there is no encoding {encoding!r}; there are utf-8, utf-16, cp1252, latin-1 and others"
        ) from None
    return "utf-8" if name == "utf-8-sig" else name


PLAINLY = Reading()


def header_of(path: Path, delimiter: str, encoding: str | None = None) -> tuple[list[str], int]:
    """The names of the columns, and the number of lines that they take up."""
    try:
        with opened(path, encoding) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(filter(None, reader), [])
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV ({error})") from error
    if not names:
        raise DataError(f"{path} cannot be read as CSV (it is empty; the first line should name the columns)")
    if encoding is None:
        names = [_bytes(name).decode(errors="surrogateescape") for name in names]
        if any("\0" in name for name in names):
            raise DataError(
                f"{path} is not UTF-8: zero bytes are between its letters, as in UTF-16; write it anew, as "
                f"by iconv -f UTF-16 -t UTF-8 {path}"
            )
    return names, reader.line_num


def is_utf8(path: str) -> bool:
    """Whether all of a file is UTF-8."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            while file.read(CHUNK):
                pass
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PlainText:
    """Some columns of a text file, by their places among `width`; stands in for a relation of DuckDB."""

    path: Path
    delimiter: str
    width: int
    places: Sequence[int]
    reading: Reading = PLAINLY
    numbers: frozenset[int] = frozenset()  # places of columns that hold numbers

    @property
    def encoding(self) -> str | None:
        """The encoding of its letters; None where every byte is taken for a letter."""
        return None if self.reading.plain else self.reading.encoding

    def to_arrow_reader(self, length: int) -> "pa.RecordBatchReader":
        """The records, so many at a time, every field as bytes."""
        import pyarrow as pa

        schema = pa.schema([(f"c{at}", pa.binary()) for at in range(len(self.places))])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, length))

    def _batches(self, schema: "pa.Schema", length: int) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        rows = self._rows()
        while some := list(islice(rows, length)):
            arrays = [pa.array([self._field(row[at], at) for row in some], pa.binary()) for at in self.places]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _field(self, field: str, place: int) -> bytes:
        if self.encoding is None:
            return _bytes(field)
        return (self.reading.number(field) if place in self.numbers else field).encode()

    def _rows(self) -> Iterator[list[str]]:
        """The fields of every record; a byte is a character unless the encoding is known."""
        with opened(self.path, self.encoding) as file:
            reader = csv.reader(file, delimiter=self.delimiter, strict=True)
            try:
                rows = filter(None, reader)  # without blank lines
                next(rows, None)  # the header
                for row in rows:
                    if len(row) != self.width:
                        raise csv.Error(f"{len(row)} fields, where the header has {self.width}")
                    if any(map(TWO_WAYS.match, row)):
                        raise csv.Error("a quote after spaces, or a control character by itself")
                    yield row
            except (csv.Error, UnicodeError) as error:
                where = f"line {reader.line_num:,}: {error}"
                raise DataError(f"{self.path} cannot be read as CSV ({where})") from error


def opened(path: Path, encoding: str | None = None) -> io.TextIOWrapper:
    """A file as text in which every byte is a character, or in an encoding, without its byte order mark."""
    if encoding is not None:
        return open(path, encoding="utf-8-sig" if codec_of(encoding) == "utf-8" else encoding, newline="")
    file = open(path, "rb")  # noqa: SIM115  # closed with the text that it becomes
    if file.read(3) != codecs.BOM_UTF8:
        file.seek(0)
    return io.TextIOWrapper(file, encoding="latin-1", newline="")


def _bytes(field: str) -> bytes:
    return field.encode("latin-1")
