"""Data that DuckDB reads: files and relations, as columns at the places where the schema wants them.

Columns are found by their exact names in the file itself and then go by their positions: DuckDB takes 'Age'
and 'age' for the same name and renames the second of two columns that share one.
"""

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from residua.engines.plain_text import PlainText, header_of
from residua.engines.recode import quoted_text
from residua.errors import DataError
from residua.schema.coding import places_of

CSV = {".csv": ",", ".tsv": "\t", ".txt": ","}
DELIMITERS = (",", ";", "\t", "|")
PARQUET = {".parquet", ".pq"}
DATABASES = {".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3"}
BUFFER = 8_000_000  # bytes of a text file read at a time: DuckDB's 32 megabytes are no faster
SAMPLE = 1 << 16  # bytes of a text file from which its number of records is guessed
UNKNOWN = 10_000_000  # records of a relation, for decisions about speed only


@dataclass(frozen=True, slots=True)
class Source:
    """One table to read: where it is from, how to run SQL over it, and its columns in the schema's order.

    `query` runs `SELECT {expressions} FROM the table` and returns a relation; `columns` and `types` name the
    schema's columns as SQL does. `about` is roughly the number of records. `instead` is for a
    text file that turns out not to be UTF-8.
    """

    name: str
    query: Callable[[str], Any]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    about: int
    instead: "Source | None" = None


def find_files(path: str | os.PathLike[str]) -> list[Path]:
    """The data files that a path or a pattern like 'people-*.parquet' names, in the order of their names."""
    text = os.fspath(path)
    if os.path.isdir(text):
        raise DataError(f"{text} is a folder; name its files, as in {os.path.join(text, '*.parquet')!r}")
    if os.path.exists(text):
        found = [Path(text)]
    elif glob.has_magic(text):
        found = [Path(each) for each in sorted(glob.glob(text, recursive=True)) if os.path.isfile(each)]
        if not found:
            raise DataError(f"there is no data file {text}")
    else:
        raise DataError(f"there is no data file {text}")
    for each in found:
        if each.suffix.lower() in DATABASES:
            raise DataError(
                f"{each} is a database; write one of its tables to a file, COPY people TO 'people.parquet', "
                f"or give rs.measure a relation of it, duckdb.connect({str(each)!r}).table('people')"
            )
        if each.suffix.lower() not in {*CSV, *PARQUET}:
            raise DataError(f"{each}: the ending {each.suffix!r} is not known; use .csv, .tsv or .parquet")
    return found


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a file is Parquet, by its ending."""
    return os.path.splitext(path)[1].lower() in PARQUET


def file_source(connection: Any, path: Path, names: Sequence[str]) -> Source:
    """A CSV or Parquet file as a source."""
    if is_parquet(path):
        return _parquet_source(connection, path, names)
    return _csv_source(connection, path, names, CSV[path.suffix.lower()])


def relation_source(relation: Any, names: Sequence[str]) -> Source:
    """A DuckDB relation as a source; it is run again for every pass."""
    places = places_of(relation.columns, names)
    every = ", ".join(f"c{at}" for at in range(len(relation.columns)))

    def query(expressions: str) -> Any:
        return relation.query("residua data", f'SELECT {expressions} FROM "residua data" AS t({every})')

    types = [str(each) for each in relation.types]
    return Source("", query, tuple(f"c{at}" for at in places), tuple(types[at] for at in places), UNKNOWN)


def _parquet_source(connection: Any, path: Path, names: Sequence[str]) -> Source:
    from pyarrow import ArrowInvalid, parquet

    try:
        metadata = parquet.read_metadata(path)
    except (ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({error})") from error
    places = places_of(metadata.schema.to_arrow_schema().names, names)
    table = f"read_parquet({_literal_path(path)}, hive_partitioning=false)"
    found = connection.sql(f"SELECT * FROM {table}")
    every = ", ".join(f"c{at}" for at in range(len(found.columns)))
    return Source(
        os.fspath(path),
        lambda expressions: connection.sql(f"SELECT {expressions} FROM {table} AS t({every})"),
        tuple(f"c{at}" for at in places),
        tuple(str(found.types[at]) for at in places),
        metadata.num_rows,
    )


def delimiter_of(header: Callable[[str], Sequence[str]], usual: str, names: Sequence[str]) -> str:
    """The delimiter under which a header holds all the names: the usual one, or one of the others.

    Only where none does, which is an error, is it the usual one all the same.

    >>> delimiter_of("age;sex".split, ",", ["age", "sex"])
    ';'
    """

    def fits(delimiter: str) -> bool:
        try:
            return {*names} <= {*header(delimiter)}
        except DataError:
            return False

    return next((each for each in (usual, *DELIMITERS) if fits(each)), usual)


def _csv_source(connection: Any, path: Path, names: Sequence[str], usual: str) -> Source:
    """A text file, every value as the text that stands there; nothing is guessed but the kind of newline."""
    delimiter = delimiter_of(lambda each: header_of(path, each)[0], usual, names)
    header, lines = header_of(path, delimiter)
    places = places_of(header, names)
    text = PlainText(path, delimiter, len(header), places)
    plain = Source(
        os.fspath(path),
        lambda _: text,
        tuple(f"c{at}" for at in places),
        ("CSV",) * len(places),
        _guess_records(path),
    )
    if any({"\n", "\r"} & set(name) for name in header):
        return plain
    every = ", ".join(f"c{at}: 'VARCHAR'" for at in range(len(header)))
    # No text is NULL: an empty field is the empty text, and what that means is the attribute's to say.
    table = (
        f"read_csv({_literal_path(path)}, auto_detect=false, header=false, skip={lines}, "
        f"delim={quoted_text(delimiter)}, quote='\"', escape='\"', nullstr=[chr(1)], "
        f"allow_quoted_nulls=false, strict_mode=true, null_padding=false, buffer_size={BUFFER}, "
        f"columns={{{every}}})"
    )
    return replace(
        plain, query=lambda expressions: connection.sql(f"SELECT {expressions} FROM {table}"), instead=plain
    )


def _literal_path(path: Path) -> str:
    """A path as SQL writes it, with no character left that DuckDB would take for a pattern."""
    return quoted_text(glob.escape(os.fspath(path)))


def _guess_records(path: Path) -> int:
    with open(path, "rb") as file:
        sample = file.read(SAMPLE)
    lines = max(1, sample.count(b"\n"))
    return int(path.stat().st_size * lines / max(1, len(sample)))
