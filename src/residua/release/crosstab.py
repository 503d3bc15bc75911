"""Tables as readers know them: rows and columns with headings, margins that add up, and errors.

Cells, margins and the total are answers of one estimator, so margins are the sums of what they stand beside
(up to rounding for print). Cells that are too uncertain are marked by a rule that the notes state.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residua._arrays import Array
from residua._files import whole_file
from residua._text import listed_names
from residua.accuracy.reliability import Reliability, Rule
from residua.errors import WorkloadError
from residua.privacy.budgets import interval_margin
from residua.release.intervals import Intervals
from residua.release.printing import TOTAL, Label, Printed
from residua.release.statistics import Answers, Published
from residua.release.workbook import workbook_bytes
from residua.schema import Schema
from residua.workload import Table, table

if TYPE_CHECKING:
    import pandas
    import pyarrow


MOST_CELLS = 100_000  # of a table that people look at
MOST_SHEETS = 200  # of one workbook
MOST_COLUMNS = 24  # of a table whose layout nobody chose


class Crosstab(Printed):
    """One table with rows and columns, (rows, columns) each; the last ones may be margins."""

    __slots__ = ()

    def to_pandas(self, figure: str = "values") -> "pandas.DataFrame":
        """A data frame of `values`, `stddev`, `lower` or `upper`; suppressed cells are missing."""
        import pandas as pd

        found = np.where(self.left_out, np.nan, getattr(self, figure))
        return pd.DataFrame(
            found, index=_index(self.rows, self.row_names), columns=_index(self.columns, self.column_names)
        )

    def to_arrow(self) -> "pyarrow.Table":
        """A row for each cell: its labels, value, stddev, lower, upper, and whether it is reliable.

        Margins have the label Total; suppressed cells are null.
        """
        import pyarrow as pa

        labels = zip(*((*row, *column) for row, column in product(self.rows, self.columns)), strict=True)
        named = zip((*self.row_names, *self.column_names), labels, strict=True)
        found: dict[str, Any] = {name: pa.array(own) for name, own in named}
        figures = {"value": self.values, "stddev": self.stddev, "lower": self.lower, "upper": self.upper}
        for name, figure in figures.items():
            found[name] = pa.array(figure.reshape(-1), mask=self.left_out.reshape(-1))
        return pa.table(found | {"reliable": pa.array(~self.unsure.reshape(-1))})

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write a workbook with the table and a sheet of notes; needs the extra `residua[excel]`."""
        write_workbook(path, [self])


class Tabulates:
    """What a release offers to those who print tables."""

    def crosstab(
        self: Published,
        rows: str | Sequence[str],
        columns: str | Sequence[str] = (),
        *,
        margins: bool = True,
        level: float = 0.95,
        reliability: Rule = None,
        unreliable: str = "mark",
        title: str | None = None,
    ) -> Crosstab:
        """A table with rows and columns, as pandas, HTML, Markdown or a workbook; margins add up.

        With `reliability=0.3`, numbers whose standard error is above 30% of them are marked, or greyed or
        left out with `unreliable="grey"` or `"suppress"`; with `reliability="zero"`, those whose interval
        holds zero. The notes below the table state the rule.
        """
        rule = Reliability(reliability, unreliable)
        return crosstab(
            self, rows, columns, margins=margins, intervals=Intervals(level), rule=rule, title=title,
            about=self.facts(),
        )  # fmt: skip

    def to_excel(
        self: Published,
        path: str | os.PathLike[str],
        tables: Iterable[Crosstab] | None = None,
        *,
        level: float = 0.95,
        reliability: Rule = None,
        unreliable: str = "mark",
    ) -> None:
        """Write crosstabs, by default of all published tables, to one workbook: a sheet each, and notes.

        Needs the extra `residua[excel]`.
        """
        rule = Reliability(reliability, unreliable)
        if tables is None:
            tables = published(self, self.plan.workload.groups(), Intervals(level), rule, self.facts())
        write_workbook(path, tables)


def write_workbook(path: str | os.PathLike[str], tables: Iterable[Crosstab]) -> None:
    """Write tables to one workbook, which is either whole or not there."""
    made = list(islice(tables, MOST_SHEETS + 1))
    if not made or len(made) > MOST_SHEETS:
        raise WorkloadError(
            f"a workbook has between 1 and {MOST_SHEETS} tables with rows and columns; give fewer of them"
            if made
            else "no table here has rows and columns of its own; name some: rows=['age'], columns=['sex']"
        )
    content = workbook_bytes(made)
    with whole_file(Path(path)) as stream:
        stream.write(content)


def published(
    source: Answers,
    groups: Iterable[Table],
    intervals: Intervals,
    rule: Reliability,
    about: Sequence[tuple[str, str]],
) -> Iterator[Crosstab]:
    """Tables with a number for each combination of cells, laid out so that few columns stand side by side."""
    schema = source.plan.schema
    for group in groups:
        names = [name for factor in group.factors for name in factor.names(schema)]
        sizes = [schema.counted(name).size for name in names]
        counts = [factor.queries.count for factor in group.factors]
        if not names or counts != sizes or np.prod(sizes) > MOST_CELLS:
            continue
        last = names[-1:] if len(names) > 1 and sizes[-1] <= MOST_COLUMNS else []
        down = names[: len(names) - len(last)]
        yield crosstab(source, down, last, intervals=intervals, rule=rule, about=about)


def crosstab(
    source: Answers,
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    *,
    margins: bool = True,
    intervals: Intervals,
    rule: Reliability,
    title: str | None = None,
    about: Sequence[tuple[str, str]],
) -> Crosstab:
    """The table on these attributes, with margins over all of the rows and all of the columns."""
    down, across = listed_names(rows), listed_names(columns)
    schema = source.plan.schema
    if not down or set(down) & set(across):
        raise WorkloadError("a table needs attributes for its rows, and none of them again for its columns")
    shape = [int(np.prod([schema.counted(name).size for name in names])) for names in (down, across)]
    if (shape[0] + 1) * (shape[1] + 1) > MOST_CELLS:
        raise WorkloadError(
            f"{shape[0]:,} rows and {shape[1]:,} columns are no table to look at; use answers()"
        )
    figures = _figures(source, [*down, *across], shape, intervals)
    if margins:
        corner = _figures(source, [], [1, 1], intervals)
        right = [_figures(source, down, [shape[0], 1], intervals)] if across else []
        below = [_figures(source, across, [1, shape[1]], intervals)] if across else []
        figures = np.block([[figures, *right], [*below, corner]])
    values, stddev, lower, upper = figures
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
        unsure=rule.unsure(values, stddev, lower),
        reliability=rule,
        about=tuple(about),
    )


def _figures(source: Answers, names: Sequence[str], shape: Sequence[int], intervals: Intervals) -> Array:
    """Values, standard errors and ends of the intervals of a marginal, each in this shape, stacked."""
    work = table(source.plan.schema, list(names))
    values, stddev = source.values(work), np.sqrt(source.plan.variances(work))
    margin = interval_margin(source.plan.strategy.law, intervals.level) * stddev
    return np.stack([values, stddev, values - margin, values + margin]).reshape(4, *shape)


def _labels(schema: Schema, names: Sequence[str], margins: bool) -> tuple[Label, ...]:
    found = tuple(product(*(schema.counted(name).labels() for name in names)))
    return (*found, (TOTAL,) * max(len(names), 1)) if margins else found


def _index(labels: Sequence[Label], names: Sequence[str]) -> "pandas.Index":
    import pandas as pd

    if len(names) > 1:
        return pd.MultiIndex.from_tuples(labels, names=list(names))
    return pd.Index([label[0] if label else "count" for label in labels], name=names[0] if names else None)
