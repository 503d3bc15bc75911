"""Crosstabs in print: HTML, Markdown and plain text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from residua._arrays import Array, Flags
from residua._notebook import text
from residua._text import columns as aligned
from residua._text import runs, visible
from residua.accuracy.reliability import Reliability

Label = tuple[str, ...]
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


@dataclass(frozen=True, slots=True, eq=False)
class Printed:
    """One table with rows and columns, (rows, columns) each, as it is printed; the last ones may be margins.

    `about` has facts on the release for the notes of a workbook.
    """

    title: str
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    values: Array
    stddev: Array
    lower: Array
    upper: Array
    level: float
    unsure: Flags
    reliability: Reliability
    about: tuple[tuple[str, str], ...]

    def to_html(self, *, errors: bool = True) -> str:
        """A table for a page, with its own style, headings and notes; `errors` stand below the numbers."""
        head = "".join(f"<tr>{line}</tr>" for line in self._heads())
        body = "".join(self._rows(errors))
        width = len(self.row_names) + len(self.columns)
        notes = self.notes(errors=errors)
        foot = "".join(f"<tr><td colspan={width}>{text(note)}</td></tr>" for note in notes)
        return (
            f'<style>{STYLE}</style><table class="crosstab"><caption>{text(self.title)}</caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>"
        )

    def to_markdown(self, *, errors: bool = True) -> str:
        """A table in Markdown; errors follow the numbers."""
        lines = [self._heading(), ["---"] * len(self.row_names) + ["---:"] * len(self.columns)]
        lines += [[*label, *self._numbers(at, errors)] for at, label in enumerate(self.rows)]
        table = "\n".join("| " + " | ".join(_cell(word) for word in line) + " |" for line in lines)
        return "\n\n".join([table, *self.notes(errors=errors)]) + "\n"

    _repr_html_ = to_html

    def __str__(self) -> str:
        rows = [[*shown_labels(self.rows, at), *self._numbers(at, True)] for at in range(len(self.rows))]
        body = aligned(self._heading(), rows, left=range(len(self.row_names)), indent="")
        return "\n".join([visible(self.title), "", *body, "", *map(visible, self.notes())])

    @property
    def left_out(self) -> Flags:
        """The cells that are suppressed."""
        return self.unsure & self.reliability.suppresses

    def notes(self, *, errors: bool = True) -> Iterator[str]:
        """What stands below the table."""
        if errors:
            level = f"{100 * self.level:.4g}%"
            yield f"± is half the width of the {level} interval, from the noise that protects people."
        if self.reliability.rule is not None:
            yield self.reliability.describe()
        yield from (fact for name, fact in self.about if name == WARNING)

    def _heads(self) -> Iterator[str]:
        """Lines of headings, one for each attribute of the columns; equal neighbours are one heading."""
        depth = max(len(self.column_names), 1)
        corner = "".join(
            f'<th scope="col" class="name" rowspan={depth}>{text(name)}</th>' for name in self.row_names
        )
        if not self.column_names:
            yield corner + '<th scope="col">count</th>'
        for level in range(len(self.column_names)):
            cells = [corner] if level == 0 else []
            for label, width in runs(each[: level + 1] for each in self.columns):
                total = ' class="total"' if label[level] == TOTAL else ""
                word = label[level] if level == 0 or label[level] != TOTAL or label[0] != TOTAL else ""
                cells.append(f'<th scope="col" colspan={width}{total}>{text(word)}</th>')
            yield "".join(cells)

    def _rows(self, errors: bool) -> Iterator[str]:
        for at, label in enumerate(self.rows):
            words = shown_labels(self.rows, at)
            cells = [
                f'<th scope="row"{_class(["total"] * (word == TOTAL))}>{text(word)}</th>' for word in words
            ]
            for column, of in enumerate(self.columns):
                number, half = self._cell(at, column, errors)
                grey = self.unsure[at, column] and self.reliability.unreliable == "grey"
                kind = ["total"] * (TOTAL in label or TOTAL in of) + ["grey"] * bool(grey)
                error = f'<span class="error">{half}</span>' if half else ""
                cells.append(f"<td{_class(kind)}>{number}{error}</td>")
            begins = len(label) > 1 and at > 0 and words[0] != ""
            kind = ["sum"] if label[0] == TOTAL else ["group"] * begins
            yield f"<tr{_class(kind)}>{''.join(cells)}</tr>"

    def _heading(self) -> list[str]:
        return [*self.row_names, *(" / ".join(dict.fromkeys(label)) or "count" for label in self.columns)]

    def _numbers(self, row: int, errors: bool) -> Iterator[str]:
        """The numbers of a row, with their errors."""
        return (" ".join(filter(None, self._cell(row, at, errors))) for at in range(len(self.columns)))

    def _cell(self, row: int, column: int, errors: bool) -> tuple[str, str]:
        """A number as it is printed, marked where it is not reliable, and half the width of its interval."""
        if self.left_out[row, column]:
            return SUPPRESSED, ""
        mark = "*" if self.unsure[row, column] and self.reliability.unreliable == "mark" else ""
        number = f"{round(float(self.values[row, column])):,}".replace("-", "−") + mark
        half = (self.upper[row, column] - self.lower[row, column]) / 2
        return number, (f"± {half:,.0f}" if half >= 10 else f"± {half:.1f}") if errors else ""


def shown_labels(rows: Sequence[Sequence[str]], at: int) -> list[str]:
    """The labels of a row, those left out that the row before has as well, and totals said once."""
    label, before = rows[at], rows[at - 1] if at else ()
    words = []
    for place, word in enumerate(label):
        again = bool(before) and before[: place + 1] == label[: place + 1]
        again |= word == TOTAL and place > 0 and label[place - 1] == TOTAL
        words.append("" if again else word)
    return words


def _class(words: Sequence[str]) -> str:
    return f' class="{" ".join(words)}"' if words else ""


def _cell(words: str) -> str:
    return visible(words).replace("|", "\\|")
