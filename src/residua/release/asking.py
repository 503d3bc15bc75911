"""What SQL beyond plain counts gives of a release: rows of labels and figures, each figure with its error."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from residua._arrays import Array
from residua.errors import WorkloadError
from residua.privacy.budgets import interval_margin
from residua.release.intervals import Intervals, fieller
from residua.release.statistics import MOST_FIGURES, Answers, Published
from residua.workload import Workload
from residua.workload.moments import first_crossing, last_crossing
from residua.workload.sql import sql
from residua.workload.sql.figures import Crossing, Figure, Labels

if TYPE_CHECKING:
    import pyarrow

    from residua.workload.sql.selecting import Relation

FIGURES = ("value", "stddev", "lower", "upper")


class Asks:
    """What a release offers to those who write SQL."""

    def sql(self: Published, text: str, *, level: float = 0.95) -> "pyarrow.Table":
        """Answers to SQL: plain counts as `answers` gives them, otherwise the columns of SELECT.

        The only figure of a statement has the columns value, stddev, lower and upper; of several each has its
        name, and the same with _stddev, _lower and _upper. Errors are carried along through arithmetic, sums
        and quotients; see `residua.sql` and the guide.
        """
        work = sql(self.plan.schema, text)
        from residua.workload.sql.statements import rows_of  # loads sqlglot, which is not quick

        found = rows_of(self.plan.schema, text, self.values)
        if found is None:
            return self.answers(work, level=level)
        return rows_table(self, *found, Intervals(level))


def rows_table(source: Published, found: "Relation", work: Workload, intervals: Intervals) -> "pyarrow.Table":
    """The rows as an Arrow table: labels as they are, and every figure with its error."""
    import pyarrow as pa

    errors = Errors(source, work, intervals)
    single = sum(not isinstance(each, Labels) for each in found.columns) == 1
    columns: dict[str, Any] = {}
    for name, column in zip(found.names, found.columns, strict=True):
        if isinstance(column, Labels):
            columns[name] = pa.array(column.values, from_pandas=True)
            continue
        names = FIGURES if single else (name, *(f"{name}_{each}" for each in FIGURES[1:]))
        for each, numbers in zip(names, errors.of(column), strict=True):
            columns[each] = pa.array(numbers, pa.float64(), from_pandas=True)
    return pa.table(columns).replace_schema_metadata(source.marks)


class Errors:
    """Errors of figures that are made of the answers of some tables (claim F-006)."""

    def __init__(self, source: Answers, work: Workload, intervals: Intervals) -> None:
        self.source, self.work = source, work
        self.z = float(interval_margin(source.plan.strategy.law, intervals.level))

    def of(self, column: Figure | Crossing) -> tuple[Array, Array, Array, Array]:
        """Values, standard errors, and both ends of the intervals."""
        if isinstance(column, Crossing):
            return self._crossing(column)
        values, stddev = column.values, np.sqrt(self._covariances(column, column))
        lower, upper = values - self.z * stddev, values + self.z * stddev
        if column.parts is not None:
            top, bottom = column.parts
            vt, vb, c = (self._covariances(*pair) for pair in ((top, top), (bottom, bottom), (top, bottom)))
            lower, upper, bounded = fieller(top.values, bottom.values, vt, vb, c, self.z)
            stddev = np.where(bounded, stddev, np.inf)
        return values, stddev, lower, upper

    def _crossing(self, column: Crossing) -> tuple[Array, Array, Array, Array]:
        """The quantile, and where the band around the cumulative counts crosses it (claim F-002)."""
        numbers, smooth = column.numbers, column.smooth
        found = column.figure.values.reshape(-1, len(numbers))
        spread = self.z * np.sqrt(self._covariances(column.figure, column.figure)).reshape(found.shape)
        lower = first_crossing(found + spread, numbers, smooth)
        upper = last_crossing(found - spread, numbers, smooth)
        return column.values, (upper - lower) / (2 * self.z), lower, upper

    def _covariances(self, one: Figure, other: Figure) -> Array:
        """The covariance of two figures on each row."""
        rows = len(one.values)
        if one.fixed or other.fixed:
            return np.zeros(rows)
        if one is other and int(np.diff(one.slopes.indptr).max()) == 1:
            variances = self.source.plan.variances(self.work)[: one.slopes.shape[1]]
            return np.asarray(one.slopes.multiply(one.slopes) @ variances)
        found = np.zeros(rows)
        for left, start, size in self._tables():
            for right, first, width in self._tables():
                a, b = one.slopes[:, start : start + size], other.slopes[:, first : first + width]
                if a.nnz and b.nnz:
                    if size * width > MOST_FIGURES**2:
                        raise WorkloadError(
                            f"the covariance of {size * width:,} pairs of answers cannot be held; group by "
                            "fewer columns"
                        )
                    both = sparse.csr_array(b).multiply(a @ self.source.covariance(left, right))
                    found += np.asarray(both.sum(axis=1)).reshape(-1)
        return np.clip(found, 0.0, None) if one is other else found

    def _tables(self) -> Iterator[tuple[Workload, int, int]]:
        start = 0
        for table in self.work.groups():
            yield Workload(self.work.schema, (table,)), start, table.count
            start += table.count
