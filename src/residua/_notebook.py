"""Things as a notebook shows them: a caption, a table of the first rows, and lines below."""

import html
from collections.abc import Iterable, Sequence
from itertools import islice

from residua._text import visible

MOST = 20  # rows that are shown
STYLE = (
    "border-collapse:collapse;font-variant-numeric:tabular-nums",
    "text-align:left;font-weight:600;padding:0 0 .4em",
)


def shown(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    more: int = 0,
    below: Iterable[str] = (),
) -> str:
    """HTML of a table; the first `left` columns start at the left, and `more` rows are not shown."""
    lines = [_row("th", head, left), *(_row("td", row, left) for row in islice(rows, MOST))]
    if more > 0:
        lines.append(f'<tr><td colspan="{len(head)}">... and {more:,} more</td></tr>')
    notes = "".join(f"<div>{text(line)}</div>" for line in below)
    return (
        f'<table style="{STYLE[0]}"><caption style="{STYLE[1]}">{text(caption)}</caption>'
        f"{''.join(lines)}</table>{notes}"
    )


def _row(tag: str, cells: Sequence[str], left: int) -> str:
    sides = ("left" if at < left else "right" for at in range(len(cells)))
    inner = (
        f'<{tag} style="text-align:{side};padding:.15em .7em">{text(cell)}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(inner)}</tr>"


def text(words: str) -> str:
    """Words as they stand in a page."""
    return html.escape(visible(words))
