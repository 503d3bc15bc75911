"""Crosstabs in print: HTML, Markdown and plain text."""

import html
from collections.abc import Iterator, Sequence
from typing import Protocol

from residua._arrays import Array, Flags
from residua._text import columns as aligned
from residua._text import visible
from residua.accuracy.reliability import Reliability

TOTAL = "Total"
SUPPRESSED = ".."
WARNING = "Warning"
SIMULATED = "SIMULATED: for tests only; the noise is predictable and protects nobody."

STYLE = """table.crosstab{border-collapse:collapse;font:14px/1.35 system-ui,sans-serif;margin:0 0 1em}
table.crosstab td{font-variant-numeric:tabular-nums}
table.crosstab caption{caption-side:top;text-align:left;font-weight:600;padding:0 0 .5em}
table.crosstab th,table.crosstab td{padding:.2em .7em;text-align:right;vertical-align:top}
table.crosstab thead th{border-bottom:1px solid;text-align:center;font-weight:600}
table.crosstab thead th.name{text-align:left;vertical-align:bottom}
table.crosstab thead tr:first-child th{border-top:2px solid}
table.crosstab tbody th{text-align:left;font-weight:400}
table.crosstab tbody tr.group>*{border-top:1px solid color-mix(in srgb,currentColor 25%,transparent)}
table.crosstab tbody tr.sum>*{border-top:1px solid}
table.crosstab tbody tr:last-child>*{border-bottom:2px solid}
table.crosstab .total{font-weight:600}
table.crosstab .error{display:block;font-size:.8em;font-weight:400}
table.crosstab .error,table.crosstab tfoot{color:color-mix(in srgb,currentColor 75%,transparent)}
table.crosstab .grey{color:color-mix(in srgb,currentColor 60%,transparent)}
table.crosstab .grey .error{color:inherit}
table.crosstab tfoot td{text-align:left;font-size:.85em;padding:.4em 0 0}"""


class Printed(Protocol):
    """What is printed of a table with rows and columns."""

    @property
    def title(self) -> str: ...
    @property
    def row_names(self) -> tuple[str, ...]: ...
    @property
    def column_names(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def columns(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def values(self) -> Array: ...
    @property
    def lower(self) -> Array: ...
    @property
    def upper(self) -> Array: ...
    @property
    def unsure(self) -> Flags: ...
    @property
    def left_out(self) -> Flags: ...
    @property
    def reliability(self) -> Reliability: ...
    @property
    def about(self) -> tuple[tuple[str, str], ...]: ...
    def notes(self, *, errors: bool = True) -> Iterator[str]: ...


def number_of(table: Printed, row: int, column: int) -> str:
    """A number as it is printed, marked where it is not reliable."""
    unsure = bool(table.unsure[row, column])
    if table.left_out[row, column]:
        return SUPPRESSED
    mark = "*" if unsure and table.reliability.unreliable == "mark" else ""
    return f"{round(float(table.values[row, column])):,}".replace("-", "−") + mark


def error_of(table: Printed, row: int, column: int) -> str:
    """Half the width of its interval."""
    half = (table.upper[row, column] - table.lower[row, column]) / 2
    return f"{half:,.0f}" if half >= 10 else f"{half:.1f}"


def html_of(table: Printed, *, errors: bool) -> str:
    """A table with its style, headings and notes."""
    head = "".join(f"<tr>{line}</tr>" for line in _heads(table))
    body = "".join(_rows(table, errors))
    width = len(table.row_names) + len(table.columns)
    foot = "".join(f"<tr><td colspan={width}>{_text(note)}</td></tr>" for note in table.notes(errors=errors))
    return (
        f'<style>{STYLE}</style><table class="crosstab"><caption>{_text(table.title)}</caption>'
        f"<thead>{head}</thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>"
    )


def _heads(table: Printed) -> Iterator[str]:
    """Lines of headings, one for each attribute of the columns; equal neighbours are one heading."""
    depth = max(len(table.column_names), 1)
    corner = "".join(
        f'<th scope="col" class="name" rowspan={depth}>{_text(name)}</th>' for name in table.row_names
    )
    if not table.column_names:
        yield corner + '<th scope="col">count</th>'
    for level in range(len(table.column_names)):
        cells = [corner] if level == 0 else []
        for label, width in runs([each[: level + 1] for each in table.columns]):
            total = ' class="total"' if label[level] == TOTAL else ""
            word = label[level] if level == 0 or label[level] != TOTAL or label[0] != TOTAL else ""
            cells.append(f'<th scope="col" colspan={width}{total}>{_text(word)}</th>')
        yield "".join(cells)


def _rows(table: Printed, errors: bool) -> Iterator[str]:
    for at, label in enumerate(table.rows):
        words = shown_labels(table.rows, at)
        cells = [f'<th scope="row"{_class(["total"] * (word == TOTAL))}>{_text(word)}</th>' for word in words]
        for column, of in enumerate(table.columns):
            number = number_of(table, at, column)
            grey = table.unsure[at, column] and table.reliability.unreliable == "grey"
            kind = ["total"] * (TOTAL in label or TOTAL in of) + ["grey"] * bool(grey)
            below = errors and number != SUPPRESSED
            error = f'<span class="error">± {error_of(table, at, column)}</span>' if below else ""
            cells.append(f"<td{_class(kind)}>{number}{error}</td>")
        begins = len(label) > 1 and at > 0 and words[0] != ""
        kind = ["sum"] if label[0] == TOTAL else ["group"] * begins
        yield f"<tr{_class(kind)}>{''.join(cells)}</tr>"


def shown_labels(rows: Sequence[Sequence[str]], at: int) -> list[str]:
    """The labels of a row, those left out that the row before has as well, and totals said once."""
    label, before = rows[at], rows[at - 1] if at else ()
    words = []
    for place, word in enumerate(label):
        again = bool(before) and before[: place + 1] == label[: place + 1]
        again |= word == TOTAL and place > 0 and label[place - 1] == TOTAL
        words.append("" if again else word)
    return words


def markdown_of(table: Printed, *, errors: bool) -> str:
    """A table in Markdown; errors follow the numbers."""
    lines = [_heading(table), ["---"] * len(table.row_names) + ["---:"] * len(table.columns)]
    for at, label in enumerate(table.rows):
        lines.append(
            [*label, *(_with_error(table, at, column, errors) for column in range(len(table.columns)))]
        )
    text = "\n".join("| " + " | ".join(_cell(word) for word in line) + " |" for line in lines)
    return "\n\n".join([text, *table.notes(errors=errors)]) + "\n"


def text_of(table: Printed, *, errors: bool = True) -> str:
    """A table for a terminal."""
    rows = [
        [
            *shown_labels(table.rows, at),
            *(_with_error(table, at, to, errors) for to in range(len(table.columns))),
        ]
        for at in range(len(table.rows))
    ]
    left = range(len(table.row_names))
    body = aligned(_heading(table), rows, left=left, indent="")
    return "\n".join([visible(table.title), "", *body, "", *map(visible, table.notes(errors=errors))])


def _heading(table: Printed) -> list[str]:
    return [*table.row_names, *(" / ".join(dict.fromkeys(label)) or "count" for label in table.columns)]


def _with_error(table: Printed, row: int, column: int, errors: bool) -> str:
    number = number_of(table, row, column)
    return number if number == SUPPRESSED or not errors else f"{number} ± {error_of(table, row, column)}"


def runs(labels: Sequence[Sequence[str]]) -> Iterator[tuple[Sequence[str], int]]:
    """Equal neighbours, with how many there are."""
    start = 0
    for at in range(1, len(labels) + 1):
        if at == len(labels) or labels[at] != labels[start]:
            yield labels[start], at - start
            start = at


def _class(words: Sequence[str]) -> str:
    return f' class="{" ".join(words)}"' if words else ""


def _text(words: str) -> str:
    return html.escape(visible(words))


def _cell(words: str) -> str:
    return visible(words).replace("|", "\\|")
