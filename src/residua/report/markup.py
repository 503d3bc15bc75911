"""Pieces of HTML, with everything that comes from outside escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat

from residua._text import visible

Row = Sequence[str]


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
    links: Sequence[str] = (),
) -> str:
    """A table of plain cells whose rows are named by their first cell; columns in `left` hold words.

    With `links`, the name of each row leads to a place.
    """
    classes = [' class="left"' if at in (0, *left) else "" for at in range(len(head))]
    pairs = zip(classes, head, strict=True)
    heads = "".join(f'<th scope="col"{own}>{text(cell)}</th>' for own, cell in pairs)
    names = (f'<a href="{link}">{{}}</a>' for link in links) if links else repeat("{}")
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


def facts(cards: Iterable[tuple[str, str, str]]) -> str:
    """Names, what is known about them, and small print, as cards."""
    cells = (
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(small)}</small></dd></div>"
        for name, value, small in cards
    )
    return f'<dl class="cards">{"".join(cells)}</dl>'


def section(place: str, heading: str, *parts: str) -> str:
    """A section with its heading."""
    inner = "\n".join(part for part in parts if part)
    named = f'<h2 id="h-{place}">{text(heading)}</h2>'
    return f'<section id="{place}" aria-labelledby="h-{place}">{named}\n{inner}\n</section>'


def folded(place: str, heading: str, inner: str) -> str:
    """A section that is folded up under its heading."""
    named = f'<summary><h2 id="h-{place}">{text(heading)}</h2></summary>'
    return f'<details class="prose" id="{place}">{named}\n<div>{inner}</div>\n</details>'
