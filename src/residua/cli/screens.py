"""Text for the terminal, and JSON for programs."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

Row = Sequence[str]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def columns(head: Row, rows: Iterable[Row], *, left: Sequence[int] = (0,), indent: str = "  ") -> list[str]:
    """Aligned lines; columns in `left` start at the left, the others end at the right."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return [
        (
            indent
            + "  ".join(
                cell.ljust(width) if at in left else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
        ).rstrip()
        for line in lines
    ]


def show(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        typer.echo(line)


def show_json(document: Any) -> None:
    """Print a document as JSON to standard output; what is not a number is null."""
    typer.echo(json.dumps(_jsonable(document), indent=1, ensure_ascii=False, allow_nan=False))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
