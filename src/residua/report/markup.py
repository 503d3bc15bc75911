"""Pieces of HTML, with everything that comes from outside escaped; and tables, number by number."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import count

import numpy as np

from residua._text import counted, visible
from residua.accuracy.reliability import Reliability
from residua.report.contents import Contents, Numbers, Sheet
from residua.report.words import asked, figure, level_text, shown

Row = Sequence[str]

OPEN = 3  # tables that are unfolded from the start


def text(words: str) -> str:
    """Words as HTML."""
    return escape(visible(words), quote=False)


def attribute(words: str) -> str:
    """Words as the value of an attribute, quotes included."""
    return f'"{escape(visible(words))}"'


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph."""
    return "\n".join(f"<p>{text(line)}</p>" for line in lines)


def table(
    caption: str,
    head: Row,
    rows: Iterable[Row],
    *,
    left: Sequence[int] = (),
    tall: bool = False,
    link: str | None = None,
) -> str:
    """A table of plain cells whose rows are named by their first cell; columns in `left` hold words.

    With `link`, the name of row n, from 1, leads to the place `link` with its number.
    """
    classes = [' class="left"' if at in left else "" for at in range(len(head))]
    heads = "".join(
        f'<th scope="col" class="left">{text(cell)}</th>'
        if at == 0 or at in left
        else f'<th scope="col">{text(cell)}</th>'
        for at, cell in enumerate(head)
    )
    names = ("{}" if link is None else f'<a href="#{link}-{number}">{{}}</a>' for number in count(1))
    body = "\n".join(
        f'<tr><th scope="row">{name.format(text(row[0]))}</th>'
        + "".join(f"<td{classes[at]}>{text(cell)}</td>" for at, cell in enumerate(row) if at)
        + "</tr>"
        for row, name in zip(rows, names, strict=False)
    )
    inner = f"<caption>{text(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody>"
    return scrolled(caption, f"<table>{inner}</table>", tall)


def scrolled(name: str, inner: str, tall: bool = False) -> str:
    """Something wide in a region of its own that scrolls, by keyboard too."""
    kind = "scroll tall" if tall else "scroll"
    return f'<div class="{kind}" role="region" aria-label={attribute(name)} tabindex="0">{inner}</div>'


def facts(pairs: Iterable[Sequence[str]]) -> str:
    """Names and what is known about them, as cards; a third part is small print."""
    cells = []
    for name, value, *small in pairs:
        print_small = f"<small>{text(small[0])}</small>" if small else ""
        cells.append(f"<div><dt>{text(name)}</dt><dd>{text(value)}{print_small}</dd></div>")
    return f'<dl class="cards">{"".join(cells)}</dl>'


def section(place: str, heading: str, *parts: str) -> str:
    """A section with its heading."""
    inner = "\n".join(part for part in parts if part)
    named = f'<h2 id="h-{place}">{text(heading)}</h2>'
    return f'<section id="{place}" aria-labelledby="h-{place}">{named}\n{inner}\n</section>'


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
    rule = [contents.reliability.describe()] if contents.released and contents.reliability.rule else []
    folded = "\n".join(
        _folded(number, sheet, contents, figures.get(number, ""))
        for number, sheet in enumerate(contents.sheets, 1)
    )
    return f"{paragraphs([words, *rule])}\n{tools}\n{folded}"


def _folded(number: int, sheet: Sheet, contents: Contents, picture: str) -> str:
    opened = " open" if number <= OPEN else ""
    numbers = counted(sheet.count, "number", "numbers")
    about = f"{numbers}, typical error {figure(sheet.rmse)}"
    return (
        f'<details id="t-{number}" data-name={attribute(sheet.name)}{opened}>'
        f"<summary><b>{text(sheet.name)}</b> "
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
    body = "\n".join(_rows(numbers, contents.margin, contents.reliability))
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
    listed = f'<table class="{kind}"><thead><tr>{names}</tr></thead><tbody>\n{body}\n</tbody></table>'
    return scrolled(f"Numbers of table {sheet.name}", listed, tall=len(numbers.queries) > 25) + more


def _rows(numbers: Numbers, margin: float, reliability: Reliability) -> Iterator[str]:
    """A row for each number; --a and --b say where its bar begins and how long it is, in percent."""
    stddev = numbers.stddev
    if numbers.values is None or numbers.lower is None or numbers.upper is None:
        wide = 100 * stddev / max(float(stddev.max()), 1e-300)
        for query, error, width in zip(numbers.queries, stddev.tolist(), wide.tolist(), strict=True):
            yield (
                f"<tr style=--a:0;--b:{width:.1f}><th "
                f"scope=row>{text(asked(query))}<td>{figure(error)}<td>{figure(margin * error)}<td>"
            )
        return
    low, high = min(float(numbers.lower.min()), 0.0), max(float(numbers.upper.max()), 0.0)
    scale = 100 / max(high - low, 1e-300)
    starts = np.round((numbers.lower - low) * scale, 1)
    widths = np.round((numbers.upper - numbers.lower) * scale, 1)
    unsure = reliability.unsure(numbers.values, stddev, numbers.lower)
    columns = (numbers.values, stddev, numbers.lower, numbers.upper, starts, widths, unsure)
    for query, row in zip(
        numbers.queries, zip(*(each.tolist() for each in columns), strict=True), strict=True
    ):
        value, error, lower, upper, start, width, doubtful = row
        if doubtful and reliability.suppresses:
            yield f"<tr style=--a:0;--b:0><th scope=row>{text(asked(query))}<td>..<td>..<td>..<td>"
            continue
        grey = " class=grey" if doubtful and reliability.unreliable == "grey" else ""
        mark = "*" if doubtful and not grey else ""
        yield (
            f"<tr{grey} style=--a:{start:g};--b:{width:g}><th scope=row>{text(asked(query))}"
            f"<td>{shown(value, error)}{mark}<td>{figure(error)}"
            f"<td>{shown(lower, error)} to {shown(upper, error)}<td>"
        )
