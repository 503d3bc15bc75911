"""Text for the terminal, and JSON for programs."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from residua._text import Row, columns, counted, visible
from residua.workload import Workload

SIMULATED = "SIMULATED: for tests only; the noise is predictable and protects nobody."

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]

Formulas = Annotated[
    bool,
    typer.Option(
        "--formulas", help="CSV: no quote before texts that a spreadsheet would run as formulas (=, +, -, @)."
    ),
]


def show(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        typer.echo(visible(line))


def tables_screen(
    work: Workload, head: Row, rows_of: Callable[[Workload], Iterable[Row]], most: int, file: str
) -> Iterator[str]:
    """The first `most` tables, and of each the rows that `rows_of` gives; `file` would hold all of them."""
    for group in islice(work.groups(), most):
        yield ""
        yield f"{group.name} ({counted(group.count, 'number', 'numbers')})"
        yield from columns(head, rows_of(Workload(work.schema, (group,))))
        if group.count > most:
            yield f"  ... and {group.count - most:,} more; --rows or -o {file} shows them all"
    if work.tables > most:
        yield ""
        more = counted(work.tables - most, "more table", "more tables")
        yield f"... and {more}; -o {file} writes them all"


def show_json(document: Any) -> None:
    """Print a document as JSON to standard output; what is not a number is null."""
    text = json.dumps(_jsonable(document), indent=1, ensure_ascii=False, allow_nan=False)
    typer.echo("\n".join(_as_json_writes_it(line) for line in text.split("\n")))


def _as_json_writes_it(line: str) -> str:
    """A line without what a terminal would obey, every such character as its number."""
    return "".join(each if visible(each) == each else json.dumps(each)[1:-1] for each in line)


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
