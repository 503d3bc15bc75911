"""`residua tables` and `residua synthetic`: publishable tables without negative numbers, and rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from residua._text import Row, counted
from residua.cli.files import check_table_file, refuse_to_replace, write_csv
from residua.cli.screens import SIMULATED, AsJson, Force, Formulas, show, show_json, tables_screen
from residua.errors import DataError
from residua.postprocess import Processed
from residua.release import Release
from residua.workload import Workload

ReleaseFile = Annotated[Path, typer.Argument(help="A release, as 'residua release' writes it.")]
Replicates = Annotated[int, typer.Option(min=0, help="Simulations that errors are estimated from.")]


def tables(
    file: ReleaseFile,
    rounded: Annotated[bool, typer.Option("--rounded", help="Whole numbers that add up.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write all rows to this .csv or .parquet file.")
    ] = None,
    replicates: Replicates = 20,
    rows: Annotated[int, typer.Option(min=1, help="Most rows to print of each table.")] = 40,
    formulas: Formulas = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show a release's tables without negative numbers, or rounded.

    They agree on every margin and cost no privacy, but they are biased: statistics are done with the answers
    of 'residua answer'.

    \b
    Examples:
      residua tables people.release
      residua tables people.release --rounded -o tables.csv
    """
    if output is not None:
        check_table_file(output)
        refuse_to_replace([output], force)
    release = Release.load(file)
    found = release.rounded(replicates=replicates) if rounded else release.nonnegative(replicates=replicates)
    if output is not None:
        _write(found, output, formulas)
        written = f"Wrote {counted(found.plan.workload.count, 'number', 'numbers')} to {output}"
        show_json({"tables": output, "note": found.note}) if as_json else show([written, found.note])
    elif as_json:
        document = {"simulated": found.simulated, "biased": True, "release": found.release_hash}
        show_json(document | {"note": found.note, "answers": found.answers().to_pylist()})
    else:
        show(list(_screen(found, rows)))  # nothing is printed before all of it is known


def _write(found: Processed, path: Path, formulas: bool) -> None:
    if path.suffix.lower() == ".parquet":
        found.write_answers(path)
        return
    work = found.plan.workload
    marks = ["biased", "simulated"] if found.simulated else ["biased"]
    tables = (found.answers(Workload(work.schema, (group,))) for group in work.groups())
    write_csv(path, tables, marks, formulas=formulas)


def _screen(found: Processed, most: int) -> Iterator[str]:
    if found.simulated:
        yield SIMULATED
    yield found.note

    def rows_of(table: Workload) -> list[Row]:
        return [_row(row) for row in found.answers(table).slice(0, most).to_pylist()]

    yield from tables_screen(found.plan.workload, ("query", "value", "error"), rows_of, most, "tables.csv")


def _row(row: dict[str, Any]) -> tuple[str, str, str]:
    places = 0 if float(row["value"]).is_integer() else 1
    return row["query"] or "everybody", f"{row['value']:,.{places}f}", f"{row['error']:,.3g}"


def synthetic(
    file: ReleaseFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the records to this .parquet file.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many records; by default the number released.")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="A mixture of products, for models that are too large.")
    ] = False,
    replicates: Replicates = 5,
    seed: Annotated[int, typer.Option(help="For the draw of the records.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write synthetic records that resemble what was released.

    They are drawn from a graphical model of the released tables, which costs no privacy; what was not
    measured is the model's invention. Needs the extra 'synth'.

    \b
    Examples:
      residua synthetic people.release -o people.parquet
      residua synthetic people.release -o few.parquet --rows 1000 --approximate
    """
    if output.suffix.lower() != ".parquet":
        raise DataError(f"{output}: synthetic records are written to a file that ends in .parquet")
    refuse_to_replace([output], force)
    oracle = "approximate" if approximate else "exact"
    found = Release.load(file).synthetic(rows, oracle=oracle, replicates=replicates, seed=seed)
    found.write(output)
    if as_json:
        show_json({"rows": output, "records": len(found.codes), "biased": True, "note": found.note})
    else:
        show([f"Wrote {len(found.codes):,} synthetic records to {output}", found.note])
