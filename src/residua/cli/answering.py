"""`residua answer`: published tables, or any other query, with standard errors and intervals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from residua._text import Row, counted
from residua.cli.files import check_table_file, refuse_to_replace, write_answers
from residua.cli.screens import SIMULATED, AsJson, Force, Formulas, show, show_json, tables_screen
from residua.privacy.conversions import text_above
from residua.release import Release
from residua.report.figures import decimals_for
from residua.workload import Workload, table
from residua.workload.sql import sql as sql_workload


def answer(
    file: Annotated[Path, typer.Argument(help="A release, as 'residua release' writes it.")],
    of: Annotated[
        str | None, typer.Option("--table", help="A table's name, or columns with commas between: age,sex.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="Counts, such as SELECT sex, COUNT(*) ... GROUP BY sex.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write all rows to this .csv or .parquet file.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Most rows to print of each table.")] = 40,
    formulas: Formulas = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show tables of a release, or any other query, with their errors.

    \b
    Examples:
      residua answer people.release
      residua answer people.release --table age,sex --level 0.9
      residua answer people.release -o answers.parquet
    """
    if of is not None and sql is not None:
        raise typer.BadParameter("give --table or --sql, not both")
    if output is not None:
        check_table_file(output)
        refuse_to_replace([output], force)
    found = Release.load(file)
    work = _wanted(found, of, sql)
    if output is not None:
        write_answers(found, output, work, level, formulas=formulas)
        written = f"Wrote {counted(work.count, 'answer', 'answers')} to {output}"
        show_json({"answers": output}) if as_json else show([written])
    elif as_json:
        show_json(
            {
                "simulated": found.simulated,
                "level": level,
                "answers": found.answers(work, level=level).to_pylist(),
            }
        )
    else:
        show(list(_screen(found, work, level, rows)))  # nothing is printed before all of it is known


def _wanted(found: Release, of: str | None, sql: str | None) -> Workload:
    """The tables that are asked for; by default the release's own."""
    own, schema = found.plan.workload, found.plan.schema
    if sql is not None:
        return sql_workload(schema, sql)
    if of is None:
        return own
    if of in own.names:
        return own.select(of)
    return table(schema, [of] if of in schema else [name.strip() for name in of.split(",")])


def _screen(found: Release, work: Workload, level: float, most: int) -> Iterator[str]:
    if found.simulated:
        yield SIMULATED
    rho = text_above(found.plan.privacy.rho)
    yield f"Measured {found.audit['time']} at rho = {rho}, protecting against {found.plan.unit.describe()}."
    head = ("query", "value", "stddev", f"{100 * level:.4g}% interval")

    def rows_of(table: Workload) -> list[Row]:
        return [_row(row) for row in found.answers(table, level=level).slice(0, most).to_pylist()]

    yield from tables_screen(work, head, rows_of, most, "answers.csv")


def _row(row: dict[str, Any]) -> tuple[str, str, str, str]:
    places = decimals_for(row["stddev"])
    value, low, high = (f"{row[name]:,.{places}f}" for name in ("value", "lower", "upper"))
    return row["query"] or "everybody", value, f"{row['stddev']:,.3g}", f"{low} to {high}"
