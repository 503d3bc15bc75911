"""Tables of a report as HTML: rows and columns, sums beside them, errors below the numbers, flags.

Places of a hierarchy are maps without a map: one small heat table for each region, in order.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from residua._arrays import Array
from residua._text import counted, runs
from residua.accuracy.reliability import Reliability
from residua.report.contents import Contents, Numbers, Sheet
from residua.report.grid import Grid
from residua.report.markup import attribute, paragraphs, scrolled, text
from residua.report.words import asked, figure, half_width, level_text, shown

OPEN = 6  # tables that are unfolded from the start
TALL = 30  # rows, from which on a table scrolls in a frame of its own
SUPPRESSED = ".."


def tables_section(contents: Contents, figures: Mapping[int, str]) -> str:
    """Every table under its name, with a field that finds tables; `figures` by table number."""
    half = f"\u00b1 is half the width of the {level_text(contents.level)} interval"
    words = (
        f"Below each number, {half}, from the noise that protects people."
        if contents.released
        else f"Errors that the numbers will have: {half}."
    )
    tools = (
        '<div id="tools" class="tools" hidden><label for="find">Find a table by its name</label>'
        '<input type="search" id="find" autocomplete="off"> <span id="found" role="status" '
        'class="soft"></span></div>'
        if len(contents.sheets) > OPEN
        else ""
    )
    rule = [contents.reliability.describe()] if contents.released and contents.reliability.rule else []
    numbered = enumerate(contents.sheets, 1)
    folded = "\n".join(_folded(at, own, contents, figures.get(at, "")) for at, own in numbered)
    return f"{paragraphs([words, *rule])}\n{tools}\n{folded}"


def _folded(number: int, sheet: Sheet, contents: Contents, picture: str) -> str:
    opened = " open" if number <= OPEN else ""
    about = f"{counted(sheet.count, 'number', 'numbers')}, typical error {_typical(sheet)}"
    return (
        f'<details class="table" id="t-{number}" data-name={attribute(sheet.name)}{opened}>'
        f"<summary><b>{text(sheet.name)}</b> <span>{about}</span></summary>"
        f'<div class="side">{_listed(sheet, contents)}{picture}</div></details>'
    )


def _typical(sheet: Sheet) -> str:
    """The typical error, of each statistic where there are several."""
    several = len(sheet.lines) > 1
    return ", ".join(f"{figure(own.rmse)}{f' ({text(own.statistic)})' * several}" for own in sheet.lines)


def _listed(sheet: Sheet, contents: Contents) -> str:
    level, numbers, name = level_text(contents.level), sheet.numbers, f"Numbers of table {sheet.name}"
    if numbers is None:
        words = f"{sheet.count:,} numbers are too many to list one by one"
        return f"<p>{words}; their typical error is {_typical(sheet)}.</p>"
    if numbers.values is None and sheet.even and len(numbers.queries) == sheet.count:
        return (
            f"<p>Each of its numbers will have a standard deviation of {figure(float(numbers.stddev[0]))}, "
            f"and be within {figure(contents.margin * float(numbers.stddev[0]))} of the truth with "
            f"probability {level}.</p>"
        )
    if sheet.grid is None:
        left = sheet.count - len(numbers.queries)
        more = f"<p>{left:,} more numbers are not listed here; the release answers them all (<code>residua "
        return scrolled(name, _list(numbers, contents), tall=True) + (
            f"{more}answer</code>).</p>" if left else ""
        )
    if sheet.grid.parts:
        return _maps(sheet, sheet.grid, numbers, contents)
    body = _rows(sheet, sheet.grid, numbers, range(len(sheet.grid.rows)), contents)
    table = _table(sheet.grid, [*body, *_sums(sheet, contents)], sheet.beside is not None)
    return scrolled(name, table, tall=len(sheet.grid.rows) > TALL)


def _cells(
    numbers: Numbers, places: Sequence[int], contents: Contents, kind: str = "", heat: Array | None = None
) -> str:
    """Cells of some numbers; `heat` shades each, in percent."""
    chosen, rule = list(places), contents.reliability
    stddev = numbers.stddev[chosen]
    halves = [f"\u00b1 {half_width(contents.margin * each)}" for each in stddev.tolist()]
    if numbers.values is None or numbers.lower is None:
        return "".join(f"<td{kind}>{half}" for half in halves)
    values = numbers.values[chosen]
    unsure = rule.unsure(values, stddev, numbers.lower[chosen]).tolist()
    shades = [""] * len(chosen) if heat is None else [f" style=--h:{each:.0f}" for each in heat[chosen]]
    words = [shown(*pair) for pair in zip(values.tolist(), stddev.tolist(), strict=True)]
    rows = zip(words, halves, unsure, shades, strict=True)
    return "".join(_cell(*row, kind, rule) for row in rows)


def _cell(number: str, half: str, unsure: bool, shade: str, kind: str, rule: Reliability) -> str:
    """A number with half the width of its interval below it, flagged where it is unsure."""
    if unsure and rule.suppresses:
        return f"<td{kind}>{SUPPRESSED}"
    grey = unsure and rule.unreliable == "grey"
    kind = f' class="grey{" total" * bool(kind)}"' if grey else kind
    return f"<td{kind}{shade}>{number}{'*' * (unsure and not grey)}<small>{half}</small>"


def _rows(
    sheet: Sheet, grid: Grid, numbers: Numbers, which: range, contents: Contents, heat: Array | None = None
) -> Iterator[str]:
    for at in which:
        names = (
            "".join(f"<th scope=row>{text(word)}" for word in grid.rows[at]) or "<th scope=row>all records"
        )
        total = "" if sheet.beside is None else _cells(sheet.beside, [at], contents, " class=total")
        yield f"<tr>{names}{_cells(numbers, grid.places[at].tolist(), contents, heat=heat)}{total}"


def _sums(sheet: Sheet, contents: Contents) -> Iterator[str]:
    """The last row: sums of the columns, and of everything."""
    if sheet.below is None or sheet.grid is None:
        return
    width = max(len(sheet.grid.row_names), 1)
    corner = "" if sheet.corner is None else _cells(sheet.corner, [0], contents, " class=total")
    corner = "<td>" if sheet.beside is not None and not corner else corner
    row = _cells(sheet.below, range(len(sheet.grid.columns)), contents, " class=total")
    yield f"<tr class=sum><th scope=row colspan={width} class=total>Total{row}{corner}"


def _table(grid: Grid, rows: Sequence[str], sums: bool, caption: str = "") -> str:
    named = f"<caption>{text(caption)}</caption>" if caption else ""
    head = "".join(f"<tr>{line}" for line in _heads(grid, sums))
    return f"<table class=x>{named}<thead>{head}</thead><tbody>\n{chr(10).join(rows)}\n</tbody></table>"


def _heads(grid: Grid, sums: bool) -> Iterator[str]:
    """Lines of headings, one for each attribute of the columns; equal neighbours share one."""
    depth = max(len(grid.column_names), 1)
    names = [*grid.row_names] or ["count of"]
    corner = "".join(f"<th scope=col class=left rowspan={depth}>{text(name)}" for name in names)
    total = f"<th scope=col class=total rowspan={depth}>Total" if sums else ""
    if not grid.column_names:
        yield f"{corner}<th scope=col>count{total}"
    for level in range(len(grid.column_names)):
        alike = runs(each[: level + 1] for each in grid.columns)
        cells = "".join(f"<th scope=col colspan={width}>{text(label[-1])}" for label, width in alike)
        yield f"{corner if level == 0 else ''}{cells}{total if level == 0 else ''}"


def _maps(sheet: Sheet, grid: Grid, numbers: Numbers, contents: Contents) -> str:
    """One small table for each region, shaded on one scale; the sums follow."""
    values = numbers.values if numbers.values is not None else numbers.stddev
    heat = 100 * np.clip(values, 0, None) / max(float(values.max()), 1e-300)
    tables, start = [], 0
    for region, count in grid.parts:
        rows = _rows(sheet, grid, numbers, range(start, start + count), contents, heat)
        table = _table(grid, list(rows), sheet.beside is not None, region)
        tables.append(scrolled(f"{sheet.name}: {region}", table))
        start += count
    if sums := list(_sums(sheet, contents)):
        everything = _table(grid, sums, sheet.beside is not None, "All together")
        tables.append(scrolled(f"{sheet.name}: all together", everything))
    return f'<div class="maps">{"".join(tables)}</div>'


def _list(numbers: Numbers, contents: Contents) -> str:
    """Numbers one below the other, where not all of a table are listed."""
    rows = "\n".join(
        f"<tr><th scope=row>{text(asked(query))}{_cells(numbers, [at], contents)}"
        for at, query in enumerate(numbers.queries)
    )
    head = "<tr><th scope=col class=left>count of<th scope=col>number"
    return f"<table class=x><thead>{head}</thead><tbody>\n{rows}\n</tbody></table>"
