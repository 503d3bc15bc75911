"""Tables as readers know them: rows and columns with headings, margins that add up, and errors.

Cells, margins and the total are answers of one estimator, so margins are the sums of what they stand beside
(up to rounding for print). Cells that are too uncertain are marked by a rule that the notes state.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from residua._arrays import Array, Flags
from residua._text import visible
from residua.errors import WorkloadError
from residua.privacy.statement import interval_margin
from residua.release.intervals import Intervals
from residua.release.statistics import Answers, listed_names
from residua.schema import Schema
from residua.workload import table

if TYPE_CHECKING:
    import pandas

Label = tuple[str, ...]

TOTAL = "Total"
MOST_CELLS = 100_000  # of a table that people look at
UNRELIABLE = ("mark", "suppress")
SUPPRESSED = ".."

STYLE = """table.crosstab{border-collapse:collapse;font:14px/1.35 system-ui,sans-serif}
table.crosstab td{font-variant-numeric:tabular-nums}
table.crosstab caption{caption-side:top;text-align:left;font-weight:600;padding:0 0 .5em}
table.crosstab th,table.crosstab td{padding:.2em .7em;text-align:right;vertical-align:top}
table.crosstab thead th{border-bottom:1px solid;text-align:center}
table.crosstab thead tr:first-child th{border-top:2px solid}
table.crosstab tbody th{text-align:left;font-weight:400}
table.crosstab tbody tr:last-child>*{border-bottom:2px solid}
table.crosstab .total{font-weight:600}
table.crosstab .error{display:block;font-size:.8em;opacity:.7;font-weight:400}
table.crosstab .unsure{opacity:.55;font-style:italic}
table.crosstab tfoot td{text-align:left;font-size:.85em;padding-top:.5em}"""


@dataclass(frozen=True, slots=True, eq=False)
class Crosstab:
    """One table with rows and columns, (rows, columns) each; the last ones may be margins."""

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
    notes: tuple[str, ...]
    suppress: bool = False

    def to_pandas(self, figure: str = "values") -> "pandas.DataFrame":
        """A data frame of `values`, `stddev`, `lower` or `upper`; suppressed cells are missing."""
        import pandas as pd

        found = np.where(self.unsure & self.suppress, np.nan, getattr(self, figure))
        return pd.DataFrame(
            found, index=_index(self.rows, self.row_names), columns=_index(self.columns, self.column_names)
        )

    def to_html(self, *, errors: bool = True) -> str:
        """A table for a page, with its own style, headings and notes; `errors` stand below the numbers."""
        head = "".join(f"<tr>{line}</tr>" for line in self._html_head())
        body = "".join(f"<tr>{line}</tr>" for line in self._html_rows(errors))
        width = len(self.row_names) + len(self.columns)
        foot = "".join(f"<tr><td colspan={width}>{_text(note)}</td></tr>" for note in self._notes(errors))
        return (
            f'<style>{STYLE}</style><table class="crosstab"><caption>{_text(self.title)}</caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_markdown(self, *, errors: bool = True) -> str:
        """A table in Markdown; errors follow the numbers."""
        heads = [*self.row_names, *(" / ".join(label) or "count" for label in self.columns)]
        lines = [heads, ["---"] * len(self.row_names) + ["---:"] * len(self.columns)]
        for at, label in enumerate(self.rows):
            numbers = [self._number(at, column) for column in range(len(self.columns))]
            spread = [
                f" ± {self._error(at, column)}" if errors else "" for column in range(len(self.columns))
            ]
            lines.append(
                [*label, *(a + ("" if a == SUPPRESSED else b) for a, b in zip(numbers, spread, strict=True))]
            )
        text = "\n".join("| " + " | ".join(_cell(word) for word in line) + " |" for line in lines)
        return "\n\n".join([text, *self._notes(errors)]) + "\n"

    def __str__(self) -> str:
        return self.to_pandas().to_string(float_format=lambda value: f"{value:,.0f}", na_rep=SUPPRESSED)

    def _number(self, row: int, column: int) -> str:
        if self.suppress and self.unsure[row, column]:
            return SUPPRESSED
        return f"{round(float(self.values[row, column])):,}".replace("-", "−")

    def _error(self, row: int, column: int) -> str:
        half = (self.upper[row, column] - self.lower[row, column]) / 2
        return f"{half:,.0f}" if half >= 10 else f"{half:.1f}"

    def _notes(self, errors: bool) -> Iterator[str]:
        if errors:
            level = f"{self.level:.0%}"
            yield f"± is half the width of the {level} interval, from the noise that protects people."
        yield from self.notes

    def _html_head(self) -> Iterator[str]:
        """Lines of headings, one for each attribute of the columns; equal neighbours are one heading."""
        depth = max(len(self.column_names), 1)
        corner = "".join(f'<th scope="col" rowspan={depth}>{_text(name)}</th>' for name in self.row_names)
        if not self.column_names:
            yield corner + '<th scope="col">count</th>'
        for level in range(len(self.column_names)):
            cells = [corner] if level == 0 else []
            for label, width in _runs([each[: level + 1] for each in self.columns]):
                total = ' class="total"' if label[level] == TOTAL else ""
                word = label[level] if level == 0 or label[level] != TOTAL or label[0] != TOTAL else ""
                cells.append(f'<th scope="col" colspan={width}{total}>{_text(word)}</th>')
            yield "".join(cells)

    def _html_rows(self, errors: bool) -> Iterator[str]:
        for at, label in enumerate(self.rows):
            before = self.rows[at - 1] if at else ()
            cells = []
            for place, word in enumerate(label):
                again = bool(before) and before[: place + 1] == label[: place + 1]
                again |= word == TOTAL and place > 0 and label[place - 1] == TOTAL
                total = ' class="total"' if word == TOTAL else ""
                cells.append(f'<th scope="row"{total}>{"" if again else _text(word)}</th>')
            for column, of in enumerate(self.columns):
                number = self._number(at, column)
                words = ["total"] * (TOTAL in label or TOTAL in of) + ["unsure"] * bool(
                    self.unsure[at, column]
                )
                shown = f' class="{" ".join(words)}"' if words else ""
                error = (
                    f'<span class="error">± {self._error(at, column)}</span>'
                    if errors and number != SUPPRESSED
                    else ""
                )
                cells.append(f"<td{shown}>{number}{error}</td>")
            yield "".join(cells)


class Tabulates:
    """What a release offers to those who print tables."""

    def crosstab(
        self: Answers,
        rows: str | Sequence[str],
        columns: str | Sequence[str] = (),
        *,
        margins: bool = True,
        level: float = 0.95,
        reliability: float | None = None,
        unreliable: str = "mark",
        title: str | None = None,
    ) -> Crosstab:
        """A table with rows and columns, as pandas, HTML or Markdown; margins add up.

        With `reliability=0.3`, numbers whose standard error is above 30% of them are marked, or left out with
        `unreliable="suppress"`; the notes below the table state the rule.
        """
        return crosstab(
            self, rows, columns, margins=margins, intervals=Intervals(level), reliability=reliability,
            unreliable=unreliable, title=title,
        )  # fmt: skip


def crosstab(
    source: Answers,
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    *,
    margins: bool,
    intervals: Intervals,
    reliability: float | None,
    unreliable: str,
    title: str | None,
) -> Crosstab:
    """The table on these attributes, with margins over all of the rows and all of the columns."""
    down, across = listed_names(rows), listed_names(columns)
    schema = source.plan.schema
    if not down or set(down) & set(across):
        raise WorkloadError("a table needs attributes for its rows, and none of them again for its columns")
    if unreliable not in UNRELIABLE:
        raise WorkloadError(
            f"unreliable cells are marked or suppressed, not {unreliable!r}; use {UNRELIABLE!r}"
        )
    shape = [int(np.prod([schema[name].size for name in names])) for names in (down, across)]
    if (shape[0] + 1) * (shape[1] + 1) > MOST_CELLS:
        raise WorkloadError(
            f"{shape[0]:,} rows and {shape[1]:,} columns are no table to look at; use answers()"
        )
    figures = _figures(source, [*down, *across], shape, intervals)
    if margins:
        corner = _figures(source, [], [1, 1], intervals)
        bottom = _figures(source, across, [1, shape[1]], intervals) if across else corner
        figures = [np.concatenate(pair) for pair in zip(figures, bottom, strict=True)]
    if margins and across:
        right = _figures(source, down, [shape[0], 1], intervals)
        right = [np.concatenate(pair) for pair in zip(right, corner, strict=True)]
        figures = [np.concatenate(pair, axis=1) for pair in zip(figures, right, strict=True)]
    values, stddev, lower, upper = figures
    notes, unsure = [], np.zeros(values.shape, dtype=np.bool_)
    if reliability is not None:
        unsure = stddev > reliability * np.maximum(values, 0.0)
        what = "left out" if unreliable == "suppress" else "in italics"
        notes.append(f"Numbers whose standard error is above {reliability:.0%} of them are {what}.")
    name = title or f"Number of records by {', '.join(down)}{' and ' + ', '.join(across) if across else ''}"
    return Crosstab(
        title=name,
        row_names=tuple(down),
        column_names=tuple(across),
        rows=_labels(schema, down, margins),
        columns=_labels(schema, across, margins and bool(across)),
        values=values,
        stddev=stddev,
        lower=lower,
        upper=upper,
        level=intervals.level,
        unsure=unsure,
        notes=tuple(notes),
        suppress=unreliable == "suppress",
    )


def _figures(
    source: Answers, names: Sequence[str], shape: Sequence[int], intervals: Intervals
) -> list[Array]:
    """Values, standard errors and ends of the intervals of a marginal, each in this shape."""
    work = table(source.plan.schema, list(names))
    values, stddev = source.values(work), np.sqrt(source.plan.variances(work))
    margin = interval_margin(source.plan.strategy.law, intervals.level) * stddev
    return [each.reshape(shape) for each in (values, stddev, values - margin, values + margin)]


def _labels(schema: Schema, names: Sequence[str], margins: bool) -> tuple[Label, ...]:
    axes = [schema[name].labels() for name in names]
    found = tuple(product(*axes))
    return (*found, (TOTAL,) * max(len(names), 1)) if margins else found


def _index(labels: Sequence[Label], names: Sequence[str]) -> "pandas.Index":
    import pandas as pd

    if len(names) > 1:
        return pd.MultiIndex.from_tuples(labels, names=list(names))
    return pd.Index([label[0] if label else "count" for label in labels], name=names[0] if names else None)


def _runs(labels: Sequence[Label]) -> Iterator[tuple[Label, int]]:
    """Equal neighbours, with how many there are."""
    start = 0
    for at in range(1, len(labels) + 1):
        if at == len(labels) or labels[at] != labels[start]:
            yield labels[start], at - start
            start = at


def _text(words: str) -> str:
    return html.escape(visible(words))


def _cell(words: str) -> str:
    return visible(words).replace("|", "\\|")
