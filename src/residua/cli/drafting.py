"""`residua init`: a first spec from columns, or from SmartNoise metadata, for a person to complete."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from residua._files import write_text
from residua._text import counted, listing
from residua.cli import options
from residua.cli.output import refuse_to_replace, tell
from residua.engines.sources import CSV
from residua.spec import TO_CONFIRM, Document, read_document
from residua.spec.dialects import Dialect
from residua.spec.drafts import ColumnDraft, Draft, bins_between, dialect_of_file, draft_of, quantity_lines

LOOKED = "This looked at the data: ranges, bins and labels that are not public must be changed."


def smartnoise_draft(path: Path, data: Path | None) -> Draft:
    """The draft for the one table that a metadata file describes; the key of persons is left out."""
    document = read_document(path)
    table = _table(document)
    columns = [
        _column(document, str(name), entry)
        for name, entry in table.items()
        if isinstance(entry, Mapping) and not entry.get("private_id")
    ]
    if not columns:
        raise document.refusal((), "the table has no columns besides the key of persons")
    most = table.get("max_ids", table.get("max_contrib", 1))
    heading = f"Drafted from the SmartNoise metadata in {path.name}."
    return Draft(columns, heading, data, most if isinstance(most, int) and most > 0 else 1)


def _table(document: Document) -> Mapping[Any, Any]:
    """The mapping three levels down, of which there must be one."""
    found: list[tuple[str, Any]] = [("", document.value)]
    for _ in range(3):
        found = [
            (str(name), inner)
            for _, outer in found
            if isinstance(outer, Mapping)
            for name, inner in outer.items()
            if isinstance(inner, Mapping)
        ]
    if len(found) != 1:
        names = listing([name for name, _ in found]) or "none"
        raise document.refusal((), f"there must be one table under collection and schema; there are {names}")
    table: Mapping[Any, Any] = found[0][1]
    return table


def _column(document: Document, name: str, entry: Mapping[Any, Any]) -> ColumnDraft:
    kind, low, high = entry.get("type"), entry.get("lower"), entry.get("upper")
    match kind:
        case "boolean":
            return ColumnDraft(name, "boolean", "", "true or false")
        case "int":
            low, high = (TO_CONFIRM if end is None else end for end in (low, high))
            cells = f"constraints: {{minimum: {low}, maximum: {high}}}"
            return ColumnDraft(name, "integer", cells, "lower and upper of the metadata")
        case "float":
            bins: object = TO_CONFIRM
            to_sum = ""
            if isinstance(low, int | float) and isinstance(high, int | float) and low < high:
                bins = bins_between(low, high)
                to_sum = quantity_lines(np.array([low, high], dtype=np.float64))
            cells = f"residua: {{bins: {bins}, above: true}}"
            return ColumnDraft(name, "number", cells, "choose the bins", to_sum=to_sum)
        case "string" | "datetime":
            cells = f"constraints: {{enum: {TO_CONFIRM}}}"
            return ColumnDraft(name, "string", cells, "all labels that can be, such as [F, M]")
    raise document.refusal(
        (), f"column {name!r} has the type {kind!r}; there are int, float, string, boolean"
    )


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
        Path | None, options.output("The spec to write; otherwise named after the data.")
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
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
        draft = smartnoise_draft(from_smartnoise, data)
    else:
        dialect = dialect_of_file(source, delimiter, encoding)
        draft = draft_of(source, dialect, read_values=read_values)
    write_text(target, draft.text(target.parent))
    seen = "values" if read_values else "names and types"
    seen = seen if from_smartnoise is None else "columns and bounds"
    columns = counted(len(draft.columns), "column", "columns")
    lines = [f"Drafted {target} from the {seen} of {source}: {columns}."]
    lines += [] if dialect is None else _remarks(source, dialect)
    lines += [LOOKED] * read_values
    lines += ["Next: complete it where it says CONFIRM, choose tables and privacy, then"]
    lines += [f"  residua plan {target}"]
    tell({"spec": target, "columns": [column.name for column in draft.columns]}, lines, as_json)


def _remarks(source: Path, dialect: Dialect) -> list[str]:
    """What is out of the ordinary about a text file."""
    if dialect == Dialect(CSV[source.suffix.lower()], "utf-8"):
        return []
    return [f"It is {dialect.describe()}; if not, say so with --delimiter and --encoding."]
