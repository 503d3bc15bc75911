"""What commands show and write: text for the terminal, JSON for programs, files whole or not at all."""

import html
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from residua._files import Target, whole_file, write_text
from residua._text import counted, visible
from residua.answers import write_parquet
from residua.errors import DataError, FileFormatError
from residua.methods.draft import Progress
from residua.postprocess import Processed
from residua.release import Release
from residua.release.crosstab import Crosstab, write_workbook
from residua.workload import Workload

if TYPE_CHECKING:
    import pyarrow

DATABASE = b"SQLite format 3\0"  # how the files of ledgers begin
TABLES = (".csv", ".parquet")
CROSSTABS = (*TABLES, ".xlsx", ".html", ".md")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:2em}}</style></head>
<body>{body}</body></html>
"""
FORMULA = "^[=+\\-@\t\r\n＝＋－＠]"  # what spreadsheets take for the beginning of one
NUMBER = r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"  # and what they do not


def show(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        typer.echo(visible(line))


def tell(document: Any, lines: Iterable[str], as_json: bool) -> None:
    """Print a document for programs, or lines for people."""
    show_json(document) if as_json else show(lines)


def show_json(document: Any) -> None:
    """Print a document as JSON to standard output; what is not a number is null."""
    plain = json.loads(json.dumps(document, default=str), parse_constant=lambda _: None)
    text = json.dumps(plain, indent=1, ensure_ascii=False)
    # What a terminal would obey stands there as its number.
    harmless = (each if each == "\n" or visible(each) == each else json.dumps(each)[1:-1] for each in text)
    typer.echo("".join(harmless))


LINES_EVERY = 10.0  # seconds between lines of progress, where they go to no terminal


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A callback that shows on standard error how far it is, and how long this step will still take.

    Where that is no terminal, a line now and then.
    """
    if not sys.stderr.isatty():
        yield progress_lines(lambda line: typer.echo(line, err=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    parts = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*parts, console=Console(stderr=True), transient=True) as bar:
        task, pace = bar.add_task("starting", total=1.0), Pace()

        def draw(words: str, fraction: float) -> None:
            bar.update(task, description=words + pace.left(words, fraction), completed=fraction)

        yield draw


def progress_lines(show: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Progress:
    """A callback that shows a line every ten seconds: how far it is, and how long it will still take.

    >>> times = iter([0.0, 2.0, 12.0])
    >>> tell = progress_lines(print, lambda: next(times))
    >>> tell("solving", 0.1), tell("solving", 0.6)
    solving: 60%, about 7 s left
    (None, None)
    """
    pace, last = Pace(clock), clock()

    def tell(words: str, fraction: float) -> None:
        nonlocal last
        left = pace.left(words, fraction)
        if pace.now - last >= LINES_EVERY:
            last = pace.now
            show(f"{words}: {fraction:.0%}{left}")

    return tell


class Pace:
    """How long a step will still take, by how far it has come since it began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.words, self.began, self.now = clock, "", 0.0, 0.0

    def left(self, words: str, fraction: float) -> str:
        """The time left in words, once something is known about it."""
        self.now = self.clock()
        if words != self.words:
            self.words, self.began = words, self.now
        passed = self.now - self.began
        if not (0 < fraction < 1 and passed >= 1):
            return ""
        left = passed * (1 - fraction) / fraction
        return f", about {left:.0f} s left" if left < 100 else f", about {left / 60:.0f} min left"


def refuse_to_replace(paths: Iterable[Path], force: bool, inputs: Iterable[Path] = ()) -> None:
    """Nothing, or the error for a file that exists, a folder that does not, or a file that is read too."""
    taken = {path.resolve() for path in inputs}
    for path in paths:
        if not path.parent.is_dir():
            raise FileFormatError(f"there is no folder {path.parent} to write {path.name} in")
        if path.is_dir():
            raise FileFormatError(f"{path} is a folder; name a file")
        if path.exists() and not force:
            raise FileFormatError(f"{path} exists; choose another name, or replace it with --force")
        if path.is_file() and _is_database(path):
            raise FileFormatError(f"{path} is a database, perhaps a ledger; choose another name")
        if path.resolve() in taken:
            raise FileFormatError(f"{path} cannot be two things at once; choose another name for the output")
        taken.add(path.resolve())


def _is_database(path: Path) -> bool:
    """Whether a file begins as ledgers do: no output replaces one, not even by force."""
    with open(path, "rb") as file:
        return file.read(len(DATABASE)) == DATABASE


def check_table_file(path: Path, endings: Sequence[str] = TABLES) -> None:
    """Nothing, or the error for an ending that answers cannot be written to."""
    if path.suffix.lower() not in endings:
        known = f"{', '.join(endings[:-1])} or {endings[-1]}"
        more = "" if endings == CROSSTABS else "; with --rows also .xlsx, .html or .md"
        raise DataError(f"{path}: answers are written to a file that ends in {known}{more}")


def show_crosstabs(
    found: Release, tables: Sequence[Crosstab], output: Path | None, *, formulas: bool, as_json: bool
) -> None:
    """Print tables with rows and columns, or write them in the form that the file's ending names."""
    if not tables:
        raise DataError("no table here has a number for each combination of cells; name some: --rows age")
    if output is not None:
        _write_crosstabs(found, tables, output, formulas=formulas)
        tell({"tables": output}, [f"Wrote {counted(len(tables), 'table', 'tables')} to {output}"], as_json)
    elif as_json:
        show_json([{"title": each.title, "cells": each.to_arrow().to_pylist()} for each in tables])
    else:
        show(line for each in tables for line in str(each).splitlines())


def _write_crosstabs(found: Release, tables: Sequence[Crosstab], path: Path, *, formulas: bool) -> None:
    ending = path.suffix.lower()
    if ending == ".xlsx":
        write_workbook(path, tables)
    elif ending == ".html":
        body = "".join(each.to_html() for each in tables)
        write_text(path, PAGE.format(title=html.escape(tables[0].title), body=body))
    elif ending == ".md":
        write_text(path, "\n".join(f"## {each.title}\n\n{each.to_markdown()}" for each in tables))
    else:
        marks = ["simulated"] * found.simulated
        write_rows(path, tables[0].to_arrow().replace_schema_metadata(found.marks), marks, formulas=formulas)


def write_answers(
    found: Release | Processed,
    path: Path,
    work: Workload,
    *,
    formulas: bool,
    stream: IO[bytes] | None = None,
    **settings: Any,
) -> None:
    """Write answers with their errors to a CSV or Parquet file, some at a time; `stream`, if it is open."""
    if path.suffix.lower() == ".parquet":
        found.write_answers(stream or path, work, **settings)
        return
    marks = ["biased"] * isinstance(found, Processed) + ["simulated"] * found.simulated
    write_csv(stream or path, found.answer_batches(work, **settings), marks, formulas=formulas)


def write_rows(path: Path, rows: "pyarrow.Table", marks: Sequence[str], *, formulas: bool) -> None:
    """Write one table to a CSV or Parquet file."""
    if path.suffix.lower() == ".parquet":
        write_parquet(path, rows.schema, rows.to_batches())
    else:
        write_csv(path, rows.to_batches(), marks, formulas=formulas)


def write_csv(
    path: Target, batches: Iterable["pyarrow.RecordBatch"], marks: Sequence[str], *, formulas: bool
) -> None:
    """Write batches of rows below each other to a CSV file that is either whole or not there.

    CSV has no other place for a mark, such as that numbers are simulated, than a column. Unless `formulas`
    are wanted, a quote before them keeps spreadsheets from running labels.
    """
    from pyarrow import csv

    with whole_file(path) as stream:
        writer = None
        for batch in batches:
            rows = _plain(batch, marks)
            rows = rows if formulas else _harmless(rows)
            writer = csv.CSVWriter(stream, rows.schema) if writer is None else writer
            writer.write_table(rows)
        if writer is not None:
            writer.close()


def _plain(batch: "pyarrow.RecordBatch", marks: Sequence[str]) -> "pyarrow.Table":
    """The rows with text as text, and a column for each mark."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        for field in batch.schema
    ]
    plain = pa.Table.from_batches([batch]).cast(pa.schema(fields))
    for mark in marks:
        plain = plain.append_column(mark, pa.array([True] * len(plain)))
    return plain


def _harmless(rows: "pyarrow.Table") -> "pyarrow.Table":
    """The rows with a quote before every text, and every name of a column, that looks like a formula."""
    import pyarrow as pa
    from pyarrow import compute

    found = []
    for column in rows.columns:
        if pa.types.is_string(column.type):
            runs = compute.match_substring_regex(column, FORMULA)
            number = compute.match_substring_regex(column, NUMBER)
            stopped = compute.binary_join_element_wise("'", column, "")
            column = compute.if_else(compute.and_not(runs, number), stopped, column)
        found.append(column)
    names = [f"'{name}" if re.match(FORMULA, name) else name for name in rows.column_names]
    return pa.table(found, names=names)
