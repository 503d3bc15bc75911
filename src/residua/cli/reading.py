"""What is read of a release: `residua answer`, `tables`, `synthetic`, `report`; and `residua demo`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residua._text import Row, columns, counted
from residua.accuracy.reliability import Reliability, Rule
from residua.cli import options
from residua.cli.output import (
    CROSSTABS,
    TABLES,
    check_table_file,
    refuse_to_replace,
    show,
    show_crosstabs,
    show_json,
    tell,
    write_answers,
    write_rows,
)
from residua.cli.planning import GUESSED, plan_document, written_guess
from residua.errors import DataError
from residua.plans import Plan
from residua.postprocess import Processed
from residua.privacy.conversions import text_above
from residua.release import Release
from residua.release.crosstab import Crosstab, published
from residua.release.intervals import Intervals
from residua.release.printing import SIMULATED
from residua.report.words import decimals_for
from residua.workload import Workload, table
from residua.workload.sql import sql as sql_workload

if TYPE_CHECKING:
    import pyarrow


def answer(
    file: options.ReleaseFile,
    of: Annotated[
        str | None, typer.Option("--table", help="A table's name, or columns with commas between: age,sex.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="A table with these down the side: age, or age,sex (a number: --most)."),
    ] = None,
    across: Annotated[
        str | None, typer.Option("--columns", help="With --rows: these across the top.")
    ] = None,
    margins: Annotated[bool, typer.Option(help="With --rows: totals of rows and columns.")] = True,
    reliability: options.Flagged = None,
    unreliable: options.FlaggedAs = "mark",
    title: Annotated[str | None, typer.Option(help="With --rows: the title of the table.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="A statement, such as SELECT sex, COUNT(*) ... GROUP BY sex.")
    ] = None,
    level: options.Level = 0.95,
    output: Annotated[
        Path | None, options.output("Write all rows to this .csv, .parquet, .xlsx, .html or .md file.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="With -o: a folder with a part for each, such as place.state.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Most rows to print of each table.")] = 40,
    formulas: options.Formulas = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Show tables of a release, or any other query, with their errors.

    \b
    Examples:
      residua answer people.release
      residua answer people.release --table age,sex --level 0.9
      residua answer people.release --rows age --columns sex -o table.xlsx
      residua answer people.release -o answers.parquet      (.xlsx: a sheet for each table)
      residua answer census.release -o answers --by place.state
    """
    if rows is not None and rows.isdecimal():  # as --rows was once
        most, rows = max(int(rows), 1), None
    if sum(given is not None for given in (of, sql, rows)) > 1 or (across is not None and rows is None):
        raise typer.BadParameter("give one of --table, --sql and --rows; --columns goes with --rows")
    if by is not None:
        found = Release.load(file)
        written = _write_parts(found, _wanted(found, of, sql), output, by, level)
        tell({"answers": output}, [written], as_json)
        return
    book = rows is not None or (output is not None and output.suffix.lower() == ".xlsx")
    _refuse_output(output, force, CROSSTABS if book and sql is None else TABLES)
    found = Release.load(file)
    if book and sql is None:
        rule = _rule(reliability), unreliable
        made = _crosstabs(found, of, rows, across, rule, margins=margins, level=level, title=title)
        show_crosstabs(found, made, output, formulas=formulas, as_json=as_json)
        return
    if sql is not None and "query" not in (asked := found.sql(sql, level=level)).column_names:
        _show_rows(found, asked, output, most, level, formulas=formulas, as_json=as_json)
        return
    work = _wanted(found, of, sql)
    if output is not None:
        write_answers(found, output, work, formulas=formulas, level=level)
        written = f"Wrote {counted(work.count, 'answer', 'answers')} to {output}"
        tell({"answers": output}, [written], as_json)
    elif as_json:
        answers = found.answers(work, level=level).to_pylist()
        show_json({"simulated": found.simulated, "level": level, "answers": answers})
    else:
        rho, unit = text_above(found.plan.privacy.rho), found.plan.unit.describe()
        about = f"Measured {found.audit['time']} at rho = {rho}, protecting against {unit}."
        head = ("query", "value", "stddev", f"{100 * level:.4g}% interval")
        show(list(_screen(found, about, work, head, _answer_row, most, "answers.csv", level=level)))


def _write_parts(found: Release, work: Workload, output: Path | None, by: str, level: float) -> str:
    """Answers in a folder with a file for each node of a level; returns what to say of it."""
    if output is None:
        raise typer.BadParameter("--by writes a folder of files; name it with -o")
    found.write_answers(output, work, level=level, by=by)
    return f"Wrote {counted(work.count, 'answer', 'answers')} to {output}, a part for each {by}"


def _rule(text: str | None) -> Rule:
    """The rule of quality flags that was written: a number, or a word."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def _crosstabs(
    found: Release,
    of: str | None,
    rows: str | None,
    across: str | None,
    rule: tuple[Rule, str],
    *,
    margins: bool,
    level: float,
    title: str | None,
) -> list[Crosstab]:
    """The table that was asked for, or those that were published, with rows and columns."""
    if rows is None:
        groups = _wanted(found, of, None).groups()
        return list(published(found, groups, Intervals(level), Reliability(*rule), found.facts()))
    down, top = (_names(each, found.plan.schema.names) for each in (rows, across or ""))
    flags: dict[str, Any] = {"reliability": rule[0], "unreliable": rule[1]}
    return [found.crosstab(down, top, margins=margins, level=level, title=title, **flags)]


def _names(text: str, known: Sequence[str]) -> list[str]:
    return [text] if text in known else [name.strip() for name in text.split(",") if name.strip()]


def _show_rows(
    found: Release,
    asked: "pyarrow.Table",
    output: Path | None,
    most: int,
    level: float,
    *,
    formulas: bool,
    as_json: bool,
) -> None:
    """Show or write what a statement beyond plain counts gives."""
    if output is not None:
        write_rows(output, asked, ["simulated"] * found.simulated, formulas=formulas)
        tell({"answers": output}, [f"Wrote {counted(len(asked), 'row', 'rows')} to {output}"], as_json)
    elif as_json:
        show_json({"simulated": found.simulated, "level": level, "answers": asked.to_pylist()})
    else:
        rows = [tuple(map(_entry, row.values())) for row in asked.slice(0, most).to_pylist()]
        more = [f"... and {len(asked) - most:,} more rows"] if len(asked) > most else []
        show([SIMULATED] * found.simulated + [*columns(tuple(asked.column_names), rows), *more])


def _entry(value: Any) -> str:
    return "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _refuse_output(output: Path | None, force: bool, endings: Sequence[str] = TABLES) -> None:
    if output is not None:
        check_table_file(output, endings)
        refuse_to_replace([output], force)


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


def _screen(
    found: Release | Processed,
    about: str,
    work: Workload,
    head: Row,
    row: Callable[[dict[str, Any]], Row],
    most: int,
    file: str,
    **settings: float,
) -> Iterator[str]:
    """Lines for people, of the first `most` tables and rows; all of them are made before any is printed."""
    yield from [SIMULATED] * found.simulated
    yield about
    for group in islice(work.groups(), most):
        answers = found.answers(Workload(work.schema, (group,)), **settings).slice(0, most)
        yield ""
        yield f"{group.name} ({counted(group.count, 'number', 'numbers')})"
        yield from columns(head, map(row, answers.to_pylist()))
        if group.count > most:
            yield f"  ... and {group.count - most:,} more; --most or -o {file} shows them all"
    if work.tables > most:
        yield ""
        more = counted(work.tables - most, "more table", "more tables")
        yield f"... and {more}; -o {file} writes them all"


def _answer_row(row: dict[str, Any]) -> Row:
    places = decimals_for(row["stddev"])
    value, low, high = (f"{row[name]:,.{places}f}" for name in ("value", "lower", "upper"))
    return row["query"] or "everybody", value, f"{row['stddev']:,.3g}", f"{low} to {high}"


def tables(
    file: options.ReleaseFile,
    rounded: Annotated[bool, typer.Option("--rounded", help="Whole numbers that add up.")] = False,
    output: options.OutputTable = None,
    replicates: options.Replicates = 20,
    rows: options.Most = 40,
    formulas: options.Formulas = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Show a release's tables without negative numbers, or rounded.

    They agree on every margin and cost no privacy, but they are biased: statistics are done with the answers
    of 'residua answer'.

    \b
    Examples:
      residua tables people.release
      residua tables people.release --rounded -o tables.csv
    """
    _refuse_output(output, force)
    release = Release.load(file)
    found = release.rounded(replicates=replicates) if rounded else release.nonnegative(replicates=replicates)
    work = found.basis.workload
    if output is not None:
        write_answers(found, output, work, formulas=formulas)
        written = f"Wrote {counted(work.count, 'number', 'numbers')} to {output}"
        tell({"tables": output, "note": found.note}, [written, found.note], as_json)
    elif as_json:
        document = {"simulated": found.simulated, "biased": True, "release": found.release_hash}
        show_json(document | {"note": found.note, "answers": found.answers().to_pylist()})
    else:
        head = ("query", "value", "error")
        show(list(_screen(found, found.note, work, head, _table_row, rows, "tables.csv")))


def _table_row(row: dict[str, Any]) -> Row:
    places = 0 if float(row["value"]).is_integer() else 1
    return row["query"] or "everybody", f"{row['value']:,.{places}f}", f"{row['error']:,.3g}"


def synthetic(
    file: options.ReleaseFile,
    output: Annotated[Path, options.output("Write the records to this .parquet file.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many records; by default the number released.")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="A mixture of products, for models that are too large.")
    ] = False,
    replicates: options.Replicates = 5,
    seed: Annotated[int, typer.Option(help="For the draw of the records.")] = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
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
    document = {"rows": output, "records": len(found.codes), "biased": True, "note": found.note}
    tell(document, [f"Wrote {len(found.codes):,} synthetic records to {output}", found.note], as_json)


def report(
    file: Annotated[Path, typer.Argument(help="A plan (.plan) or a release.")],
    output: Annotated[Path | None, options.output("Write one HTML page with tables and pictures.")] = None,
    plots: Annotated[
        Path | None, typer.Option(help="With -o: a folder for the pictures as SVG files too.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="With -o: the title of the page.")] = None,
    level: Annotated[float, typer.Option(help="With -o: confidence level of the intervals.")] = 0.95,
    guess: Annotated[str | None, typer.Option(metavar="SIZE", help=f"Of a plan. {GUESSED}")] = None,
    reliability: options.Flagged = None,
    unreliable: options.FlaggedAs = "mark",
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Explain a plan or a release in words, or on a page.

    \b
    Examples:
      residua report people.plan
      residua report people.release -o people.html
    """
    if output is not None:
        refuse_to_replace([output], force)
    elif plots is not None or title is not None or reliability is not None:
        raise typer.BadParameter("--plots, --title and --reliability are for a page; give -o report.html too")
    found = Plan.load(file) if file.suffix.lower() == ".plan" else Release.load(file)
    if guess is not None and isinstance(found, Release):
        raise typer.BadParameter("--guess is for plans: a release knows its own sizes")
    sizes = None if guess is None else written_guess(guess)
    if output is not None:
        flags: Any = {"guess": sizes}
        if isinstance(found, Release):
            flags = {"reliability": _rule(reliability), "unreliable": unreliable}
        found.report(output, level=level, title=title, plots=plots, **flags)
        tell({"report": output}, [f"Wrote {output}"], as_json)
        return
    plan, audit = (found, None) if isinstance(found, Plan) else (found.plan, dict(found.audit))
    if as_json:
        show_json({"plan": plan_document(plan, sizes), "audit": audit})
        return
    show(plan.explain(guess=sizes).splitlines())
    if audit is not None:
        rows = [(name, _words(value)) for name, value in audit.items() if name != "privacy" and value != ""]
        show(["", "How it came to be", *columns(rows[0], rows[1:], left=(0, 1))])
    show(["", f"Next: residua report {file} -o {file.stem}.html   (a page with tables and pictures)"])


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())
    return "none" if value is None else str(value)


def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to leave the files; a temporary folder if not given.")
    ] = None,
) -> None:
    """Do all of it on 100,000 invented people.

    \b
    Example:
      residua demo demo-files
    """
    from residua.demo import main

    main(folder)
