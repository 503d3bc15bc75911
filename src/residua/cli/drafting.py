"""`residua init`: a first spec from the names and types of columns, for a person to complete."""

from pathlib import Path
from typing import Annotated

import typer

from residua._files import write_text
from residua._text import counted
from residua.cli import drafts, smartnoise
from residua.cli.dialects import Dialect
from residua.cli.files import refuse_to_replace
from residua.cli.screens import AsJson, Force, show, show_json
from residua.engines.sources import CSV


def init(
    data: Annotated[Path | None, typer.Argument(help="Records, CSV or Parquet.")] = None,
    read_values: Annotated[
        bool, typer.Option("--read-values", help="Look at the values too; a person must confirm the result.")
    ] = False,
    from_smartnoise: Annotated[
        Path | None, typer.Option(help="Take columns and bounds from a SmartNoise metadata file.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHARACTER", help="Between the columns of a CSV file: ';', 'tab'.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a CSV file: utf-8, utf-16, cp1252.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The spec to write; otherwise named after the data.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draft a release spec from the names and types of columns.

    Ranges, labels and bins must be public knowledge, so they are not read from the data; the draft says
    CONFIRM where a person must fill them in. A CSV file has no types: they are guessed from its first rows.

    \b
    Examples:
      residua init people.csv -o people.yaml
      residua init people.csv --read-values
      residua init people.csv --delimiter ';' --encoding utf-16
      residua init --from-smartnoise metadata.yaml -o people.yaml
    """
    source = from_smartnoise or data
    if source is None or (from_smartnoise is not None and read_values):
        raise typer.BadParameter("give a data file, or --from-smartnoise metadata.yaml without --read-values")
    target = output or Path(f"{source.stem}.yaml")
    refuse_to_replace([target], force)
    dialect = None
    if from_smartnoise is not None:
        draft = smartnoise.draft_of(from_smartnoise, data)
    else:
        dialect = drafts.dialect_of_file(source, delimiter, encoding)
        draft = drafts.draft_of(source, dialect, read_values=read_values)
    write_text(target, draft.text(target.parent))
    if as_json:
        show_json({"spec": target, "columns": [column.name for column in draft.columns]})
        return
    seen = "values" if read_values else "names and types"
    if from_smartnoise is not None:
        seen = "columns and bounds"
    columns = counted(len(draft.columns), "column", "columns")
    show(
        [
            f"Drafted {target} from the {seen} of {source}: {columns}.",
            *([] if dialect is None else _remarks(source, dialect)),
            "Next: complete it where it says CONFIRM, choose tables and privacy, then",
            f"  residua plan {target}",
        ]
    )


def _remarks(source: Path, dialect: Dialect) -> list[str]:
    """What is out of the ordinary about a text file."""
    if dialect == Dialect(CSV[source.suffix.lower()], "utf-8"):
        return []
    lines = [f"It is {dialect.describe()}; if not, say so with --delimiter and --encoding."]
    if not dialect.is_utf_8:
        new = f"{source.stem}-utf8{source.suffix}"
        lines += [
            "Releases read UTF-8 only: write it anew before yours, and name the new file in the spec, as by",
            f"  iconv -f {dialect.charset} -t UTF-8 {source} > {new}",
        ]
    return lines
