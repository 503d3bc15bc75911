"""Files that commands write: never over another one unless told, and whole or not at all."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from residua.errors import DataError, FileFormatError
from residua.release import Release
from residua.workload import Workload

if TYPE_CHECKING:
    import pyarrow


def refuse_to_replace(paths: list[Path], force: bool) -> None:
    """Nothing, or the error for a file that exists or a folder that does not."""
    for path in paths:
        if not path.parent.is_dir():
            raise FileFormatError(f"there is no folder {path.parent} to write {path.name} in")
        if path.is_dir():
            raise FileFormatError(f"{path} is a folder; name a file")
        if path.exists() and not force:
            raise FileFormatError(f"{path} exists; choose another name, or replace it with --force")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    part = _part(path)
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_table_file(path: Path) -> None:
    """Nothing, or the error for an ending that answers cannot be written to."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{path}: answers are written to a file that ends in .csv or .parquet")


def write_answers(release: Release, path: Path, work: Workload | None, level: float) -> None:
    """Write answers with their errors to a CSV or Parquet file, table by table."""
    check_table_file(path)
    if path.suffix.lower() == ".parquet":
        release.write_answers(path, work, level=level)
    else:
        _write_csv(release, path, work or release.plan.workload, level)


def _write_csv(release: Release, path: Path, work: Workload, level: float) -> None:
    from pyarrow import csv

    part = _part(path)
    try:
        writer = None
        for group in work.groups():
            rows = _plain(release.answers(Workload(work.schema, (group,)), level=level), release.simulated)
            writer = csv.CSVWriter(part, rows.schema) if writer is None else writer
            writer.write_table(rows)
        if writer is not None:
            writer.close()
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _plain(rows: "pyarrow.Table", simulated: bool) -> "pyarrow.Table":
    """The rows with text as text; CSV has no other place to say that they are simulated than a column."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        for field in rows.schema
    ]
    plain = rows.cast(pa.schema(fields))
    return plain.append_column("simulated", pa.array([True] * len(plain))) if simulated else plain


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
