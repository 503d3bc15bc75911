"""Text files that DuckDB does not read: bytes that are not UTF-8, and headers with line breaks.

DuckDB takes the first line break of a file for that which ends its lines, be it inside quotes, and refuses a
whole file for one byte. Python reads fields as the bytes that they are, and slowly. Where it would read
something in another way than DuckDB, it refuses the file: what a record means must not depend on whether
another one has an odd byte (claim E-005).
"""

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

CHUNK = 1 << 20  # bytes looked at together
# DuckDB leaves out spaces before a quote, and takes a lone control character for a null unless it is quoted.
TWO_WAYS = re.compile(' +"|\x01$')


def header_of(path: Path, delimiter: str) -> tuple[list[str], int]:
    """The names of the columns, and the number of lines that they take up."""
    try:
        with _opened(path) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in reader:
                if row:
                    names = [_bytes(name).decode(errors="surrogateescape") for name in row]
                    if any("\0" in name for name in names):
                        raise DataError(
                            f"{path} is not UTF-8: zero bytes are between its letters, as in UTF-16; write "
                            f"it anew, as by iconv -f UTF-16 -t UTF-8 {path}"
                        )
                    return names, reader.line_num
    except (OSError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV ({error})") from error
    raise DataError(f"{path} cannot be read as CSV (it is empty; the first line should name the columns)")


def is_utf8(path: str) -> bool:
    """Whether all of a file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
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

    def to_arrow_reader(self, length: int) -> "pa.RecordBatchReader":
        """The records, so many at a time, every field as bytes."""
        import pyarrow as pa

        schema = pa.schema([(f"c{at}", pa.binary()) for at in range(len(self.places))])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, length))

    def _batches(self, schema: "pa.Schema", length: int) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        rows = self._rows()
        while some := list(islice(rows, length)):
            arrays = [pa.array([_bytes(row[at]) for row in some], pa.binary()) for at in self.places]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _rows(self) -> Iterator[list[str]]:
        """The fields of every record; a byte is a character."""
        with _opened(self.path) as file:
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
            except csv.Error as error:
                where = f"line {reader.line_num:,}: {error}"
                raise DataError(f"{self.path} cannot be read as CSV ({where})") from error


def _opened(path: Path) -> io.TextIOWrapper:
    """A file as text in which every byte is a character, without a mark of its byte order."""
    file = open(path, "rb")  # noqa: SIM115  # closed with the text that it becomes
    if file.read(3) != codecs.BOM_UTF8:
        file.seek(0)
    return io.TextIOWrapper(file, encoding="latin-1", newline="")


def _bytes(field: str) -> bytes:
    return field.encode("latin-1")
