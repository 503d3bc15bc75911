"""`residua init`: a first spec from the names and types of columns, for a person to complete."""

from pathlib import Path
from typing import Annotated

import typer

from residua._files import write_text
from residua.cli import drafts, smartnoise
from residua.cli.files import refuse_to_replace
from residua.cli.screens import AsJson, Force, show, show_json


def init(
    data: Annotated[Path | None, typer.Argument(help="Records, CSV or Parquet.")] = None,
    read_values: Annotated[
        bool, typer.Option("--read-values", help="Look at the values too; a person must confirm the result.")
    ] = False,
    from_smartnoise: Annotated[
        Path | None, typer.Option(help="Take columns and bounds from a SmartNoise metadata file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The spec to write; otherwise named after the data.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draft a release spec from the names and types of columns.

    Ranges, labels and bins must be public knowledge, so values are not looked at; the draft says CONFIRM
    where a person must fill them in.

    \b
    Examples:
      residua init people.csv -o people.yaml
      residua init people.csv --read-values
      residua init --from-smartnoise metadata.yaml -o people.yaml
    """
    source = from_smartnoise or data
    if source is None or (from_smartnoise is not None and read_values):
        raise typer.BadParameter("give a data file, or --from-smartnoise metadata.yaml without --read-values")
    target = output or Path(f"{source.stem}.yaml")
    refuse_to_replace([target], force)
    if from_smartnoise is not None:
        draft = smartnoise.draft_of(from_smartnoise, data)
    else:
        draft = drafts.draft_of(source, read_values=read_values)
    write_text(target, draft.text(target.parent))
    if as_json:
        show_json({"spec": target, "columns": [column.name for column in draft.columns]})
        return
    seen = "values" if read_values else "names and types"
    if from_smartnoise is not None:
        seen = "columns and bounds"
    show(
        [
            f"Drafted {target} from the {seen} of {source}: {len(draft.columns)} columns.",
            "Next: complete it where it says CONFIRM, choose tables and privacy, then",
            f"  residua plan {target}",
        ]
    )
