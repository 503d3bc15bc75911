"""The tables of a report, number by number: value, error, interval, and the interval drawn in its row."""

from collections.abc import Iterator, Mapping

import numpy as np

from residua._text import counted
from residua.report import markup as html
from residua.report.contents import Contents, Numbers, Sheet
from residua.report.figures import figure, level_text
from residua.report.words import asked, shown

OPEN = 3  # tables that are unfolded from the start


def tables_section(contents: Contents, figures: Mapping[int, str]) -> str:
    """Every table folded up under its name, with a field that finds tables; `figures` by table number."""
    drawn = "each row's bar is its interval, all bars of a table on one scale"
    words = (
        f"Published numbers with their {level_text(contents.level)} intervals; {drawn}."
        if contents.released
        else "Predicted standard deviations, number by number where they differ; the bars of a table are on "
        "one scale."
    )
    tools = (
        '<div id="tools" class="tools" hidden><label for="find">Find a table by its name</label>'
        '<input type="search" id="find" autocomplete="off"> <span id="found" role="status" '
        'class="soft"></span></div>'
        if len(contents.sheets) > OPEN
        else ""
    )
    folded = "\n".join(
        _folded(number, sheet, contents, figures.get(number, ""))
        for number, sheet in enumerate(contents.sheets, 1)
    )
    return f"{html.paragraphs([words])}\n{tools}\n{folded}"


def _folded(number: int, sheet: Sheet, contents: Contents, picture: str) -> str:
    opened = " open" if number <= OPEN else ""
    numbers = counted(sheet.count, "number", "numbers")
    about = f"{numbers}, typical error {figure(sheet.rmse)}"
    return (
        f'<details id="t-{number}" data-name={html.attribute(sheet.name)}{opened}>'
        f"<summary><b>{html.text(sheet.name)}</b> "
        f"<span>{about}</span></summary><div>{picture}{_listed(sheet, contents)}</div></details>"
    )


def _listed(sheet: Sheet, contents: Contents) -> str:
    level, numbers = level_text(contents.level), sheet.numbers
    if numbers is None:
        words = f"{sheet.count:,} numbers are too many to list one by one"
        return f"<p>{words}; their typical error is {figure(sheet.rmse)}.</p>"
    if numbers.values is None and sheet.even and len(numbers.queries) == sheet.count:
        return (
            f"<p>Each of its numbers will have a standard deviation of {figure(float(numbers.stddev[0]))}, "
            f"and be within {figure(contents.margin * float(numbers.stddev[0]))} of the truth with "
            f"probability {level}.</p>"
        )
    body = "\n".join(_rows(numbers, contents.margin))
    ahead = numbers.values is None
    errors = ["std. dev.", f"\u00b1 at {level}"] if ahead else ["published", "std. dev.", f"{level} interval"]
    names = "".join(f'<th scope="col">{cell}</th>' for cell in errors)
    names = f'<th scope="col" class="left">count of</th>{names}<th scope="col" class="left">picture</th>'
    left = sheet.count - len(numbers.queries)
    more = (
        f"<p>{left:,} more numbers are not listed here; the release answers them all (<code>residua "
        "answer</code>).</p>"
        if left
        else ""
    )
    kind = "n ahead" if ahead else "n"
    table = f'<table class="{kind}"><thead><tr>{names}</tr></thead><tbody>\n{body}\n</tbody></table>'
    return html.scrolled(f"Numbers of table {sheet.name}", table, tall=len(numbers.queries) > 25) + more


def _rows(numbers: Numbers, margin: float) -> Iterator[str]:
    """A row for each number; --a and --b say where its bar begins and how long it is, in percent."""
    stddev = numbers.stddev
    if numbers.values is None or numbers.lower is None or numbers.upper is None:
        wide = 100 * stddev / max(float(stddev.max()), 1e-300)
        for query, error, width in zip(numbers.queries, stddev.tolist(), wide.tolist(), strict=True):
            yield (
                f"<tr style=--a:0;--b:{width:.1f}><th "
                f"scope=row>{html.text(asked(query))}<td>{figure(error)}<td>{figure(margin * error)}<td>"
            )
        return
    low, high = min(float(numbers.lower.min()), 0.0), max(float(numbers.upper.max()), 0.0)
    scale = 100 / max(high - low, 1e-300)
    starts = np.round((numbers.lower - low) * scale, 1)
    widths = np.round((numbers.upper - numbers.lower) * scale, 1)
    columns = (numbers.values, stddev, numbers.lower, numbers.upper, starts, widths)
    for query, row in zip(
        numbers.queries, zip(*(each.tolist() for each in columns), strict=True), strict=True
    ):
        value, error, lower, upper, start, width = row
        yield (
            f"<tr style=--a:{start:g};--b:{width:g}><th scope=row>{html.text(asked(query))}"
            f"<td>{shown(value, error)}<td>{figure(error)}"
            f"<td>{shown(lower, error)} to {shown(upper, error)}<td>"
        )
