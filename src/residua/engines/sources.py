"""Data that DuckDB reads: files and relations, as columns at the places where the schema wants them.

Columns are found by their exact names in the file itself and then go by their positions: DuckDB takes 'Age'
and 'age' for the same name and renames the second of two columns that share one. Whole numbers in an integer
column and labels in a text column are most of all data, and SQL codes them on the way; every other column
comes out as it is and is coded by its attribute (claim E-002).

Python reads, slowly, the text files that DuckDB does not: bytes that are not UTF-8, and headers with line
breaks. Where it would read something in another way than DuckDB, it refuses the file: what a record means
must not depend on whether another one has an odd byte (claim E-005).
"""

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from residua.engines.kernel import narrowest
from residua.engines.texts import PLAINLY, PlainText, Reading, header_of
from residua.errors import DataError, Infeasible
from residua.schema import Categorical, Hierarchy, Integer, Schema
from residua.schema.columns import SPELT_MISSING, places_of

# UBIGINT and HUGEINT are left to the attribute: they do not fit the BIGINT that is computed with.
INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
SPELT_OUT = 20_000  # labels in one statement
TYPES = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}
CSV = {".csv": ",", ".tsv": "\t", ".txt": ","}
DELIMITERS = (",", ";", "\t", "|")
PARQUET = {".parquet", ".pq"}
DATABASES = {".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3"}
BUFFER = 8_000_000  # bytes of a text file read at a time: DuckDB's 32 megabytes are no faster
SAMPLE = 1 << 16  # bytes of a text file from which its number of records is guessed
UNKNOWN = 10_000_000  # records of a relation, for decisions about speed only


def bytes_of(limit: str | int) -> int:
    """The number of bytes of an amount like '500MB' or '2GiB'.

    >>> bytes_of("1.5GB"), bytes_of("2 MiB"), bytes_of(4096)
    (1500000000, 2097152, 4096)
    """
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(I?)B\s*", str(limit).upper())
    if parts is None or (parts[3] and not parts[2]):
        raise Infeasible(f"memory_limit={limit!r} is no amount of memory; write '500MB' or '2GiB'")
    return int(float(parts[1]) * (1024 if parts[3] else 1000) ** " KMGT".index(parts[2] or " "))


def code_in_sql(schema: Schema, position: int, column: str, type_name: str) -> str | None:
    """SQL for the cell of a column's value, or None where the attribute has to code it.

    `column` is the column as SQL names it. The result is NULL for a record to drop and for a value that the
    policy refuses, and an unsigned integer otherwise.

    >>> from residua.schema import Integer
    >>> code_in_sql(Schema(age=Integer(1, 9)), 0, "c0", "INTEGER")
    'CASE WHEN c0::BIGINT BETWEEN 1 AND 9 THEN c0::BIGINT - 1 END::UTINYINT'
    """
    attribute = schema.attributes[position]
    code = None
    if isinstance(attribute, Integer) and type_name in INTEGERS:
        value = f"{column}::BIGINT"
        low, high = f"{attribute.low}", f"{attribute.high}"
        ends = ""
        if attribute.outside == "clip":
            ends = f"WHEN {value} < {low} THEN 0 WHEN {value} > {high} THEN {attribute.size - 1} "
        code = f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} - {low} {ends}END"
    elif isinstance(attribute, Categorical | Hierarchy) and type_name == "VARCHAR":
        labels = _labels(attribute)
        if labels is not None:
            code = f"enum_code(TRY_CAST({column} AS ENUM({', '.join(map(quoted_text, labels))})))"
    if code is None:
        return None
    kind = TYPES[narrowest(attribute.size)().itemsize]
    if attribute.outside == "missing":
        spelt = ", ".join(map(quoted_text, sorted(SPELT_MISSING)))
        says = f" OR {column} IN ({spelt})" if type_name == "VARCHAR" else ""
        code = f"COALESCE({code}, CASE WHEN {column} IS NULL{says} THEN {attribute.other} END)"
    elif attribute.other is not None:
        code = f"COALESCE({code}, {attribute.other})"
    return f"{code}::{kind}"


def _labels(attribute: Categorical | Hierarchy) -> Sequence[str] | None:
    """The text of each cell, in the order of the cells, where no other text means a cell as well."""
    if isinstance(attribute, Categorical):
        labels = [str(value) for value in attribute.values] if attribute.type == "text" else None
    else:
        # A leaf of a deeper tree may be written as its name or as its path.
        labels = [path[0] for path in attribute.paths] if len(attribute.levels) == 1 else None
    if labels is None or len(labels) > SPELT_OUT or any("\0" in label for label in labels):
        return None
    return labels


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


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


def find_files(path: str | os.PathLike[str], table: str | None = None) -> list[Path]:
    """The data files that a path or a pattern like 'people-*.parquet' names, in the order of their names."""
    text = os.fspath(path)
    if os.path.isdir(text):
        raise DataError(f"{text} is a folder; name its files, as in {os.path.join(text, '*.parquet')!r}")
    found = [Path(text)]
    if not os.path.exists(text):
        found = [Path(each) for each in sorted(glob.glob(text, recursive=True)) if os.path.isfile(each)]
    if not found:
        raise DataError(f"there is no data file {text}")
    for each in found:
        ending = each.suffix.lower()
        if ending in DATABASES and table is None:
            raise DataError(
                f"{each} is a database; name one of its tables, with reading: {{table: people}} in the "
                "spec or engine=rs.engines.DuckDB(reading=rs.engines.Reading(table='people'))"
            )
        if ending not in {*CSV, *PARQUET, *DATABASES}:
            raise DataError(f"{each}: the ending {each.suffix!r} is not known; use .csv, .tsv or .parquet")
    return found


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a file is Parquet, by its ending."""
    return os.path.splitext(path)[1].lower() in PARQUET


def file_source(
    connection: Any, path: Path, schema: Schema, reading: Reading = PLAINLY, extra: Sequence[str] = ()
) -> Source:
    """A CSV or Parquet file, or a table of a DuckDB database, as a source; `extra` columns come last."""
    names = (*schema.names, *extra)
    if is_parquet(path):
        return _parquet_source(connection, path, names)
    if path.suffix.lower() not in DATABASES:
        return _csv_source(connection, path, schema, reading, names)
    connection.execute(f"ATTACH {quoted_text(os.fspath(path))} AS residua_data (READ_ONLY, TYPE duckdb)")
    name = (reading.table or "").replace('"', '""')
    found = relation_source(connection.sql(f'SELECT * FROM residua_data."{name}"'), names)
    return replace(found, name=os.fspath(path))


def relation_source(relation: Any, names: Sequence[str], held: Sequence[str] | None = None) -> Source:
    """A DuckDB relation as a source, run again for every pass; `held` are its columns as a file has them."""
    places = places_of(relation.columns if held is None else held, names)
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
    table = f"SELECT * FROM read_parquet({_literal_path(path)}, hive_partitioning=false)"
    found = relation_source(connection.sql(table), names, metadata.schema.to_arrow_schema().names)
    return replace(found, name=os.fspath(path), about=metadata.num_rows)


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


def _csv_source(
    connection: Any, path: Path, schema: Schema, reading: Reading, names: Sequence[str]
) -> Source:
    """A text file, every value as the text that stands there; nothing is guessed but the kind of newline."""
    encoding, usual = None if reading.plain else reading.encoding, CSV[path.suffix.lower()]
    delimiter = reading.delimiter or delimiter_of(
        lambda each: header_of(path, each, encoding)[0], usual, names
    )
    header, lines = header_of(path, delimiter, encoding)
    places = places_of(header, names)
    numbers = (
        at for at, own in zip(places, schema.attributes, strict=False) if own.numeric and not own.levels
    )
    text = PlainText(path, delimiter, len(header), places, reading, frozenset(numbers))
    columns, types = tuple(f"c{at}" for at in places), ("CSV",) * len(places)
    plain = Source(os.fspath(path), lambda _: text, columns, types, _guess_records(path))
    if encoding is not None or any({"\n", "\r"} & set(name) for name in header):
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
