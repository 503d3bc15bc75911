"""Options and arguments that several commands take."""

from pathlib import Path
from typing import Annotated, Any

import typer


def output(words: str) -> Any:
    """The option that says where to write."""
    return typer.Option("-o", "--output", help=words)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Formulas = Annotated[
    bool,
    typer.Option(
        "--formulas", help="CSV: no quote before texts that a spreadsheet would run as formulas (=, +, -, @)."
    ),
]
OutputTable = Annotated[Path | None, output("Write all rows to this .csv or .parquet file.")]
SpecFile = Annotated[Path, typer.Argument(help="The release spec, a YAML file.")]
Data = Annotated[
    Path | None, typer.Option(help="The records, CSV or Parquet, or 'part-*.csv' (over the spec's).")
]
Payer = Annotated[str | None, typer.Option(help="The ledger that pays (over the spec's).")]
Note = Annotated[str, typer.Option(help="Words for the ledger and the audit record.")]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="AMOUNT", help="Most memory for counting, such as 2GB.")
]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
ReleaseFile = Annotated[Path, typer.Argument(help="A release, as 'residua release' writes it.")]
Replicates = Annotated[int, typer.Option(min=0, help="Simulations that errors are estimated from.")]
Flagged = Annotated[
    str | None,
    typer.Option(metavar="RULE", help="Flag numbers with a larger relative error (0.3), or 'zero' inside."),
]
FlaggedAs = Annotated[
    str, typer.Option(metavar="WAY", help="What becomes of flagged numbers: mark, grey, suppress.")
]
Most = Annotated[int, typer.Option("--most", "--rows", min=1, help="Most rows to print of each table.")]
