"""Least-squares estimates of what blocks measured: all that answers are made from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from residua._files import MOST_AXES
from residua._limits import COVARIANCE_ENTRIES
from residua._manifests import array_of, whole
from residua.answering.blocks import Measured
from residua.errors import FileFormatError, WorkloadError
from residua.linalg.centring import Measure
from residua.linalg.matrices import RowIndex
from residua.workload import Table, TableRun

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Estimates:
    """For runs of marginals their subsets, (k, attributes) ascending, and cells, (k, sizes...).

    With `measures`, one per attribute, the cells are residuals, centred under those; without, there is one
    marginal, of all cells that were measured. Where blocks see several domains, `parts` are the estimates
    of each.
    """

    tables: tuple[Subsets, ...]
    cells: tuple[Array, ...]
    measures: tuple[Measure, ...] | None = None
    parts: tuple["Estimates", ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[Subsets, Array]], measures: tuple[Measure, ...] | None) -> "Estimates":
        """The estimates with these runs."""
        found = list(runs)
        return cls(tuple(table for table, _ in found), tuple(cells for _, cells in found), measures)

    @cached_property
    def index(self) -> RowIndex:
        """Finds the run and place of the marginal on a subset."""
        most = max((int(table.max()) for table in self.tables if table.size), default=0)
        return RowIndex(self.tables, most + 1)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The cells of all parts."""
        return self.cells + tuple(cells for part in self.parts for cells in part.arrays)

    @classmethod
    def from_manifest(
        cls,
        record: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        measures: tuple[Measure, ...] | None,
        sizes: Sequence[int],
    ) -> "Estimates":
        """The estimates that a combined release of format 1 holds instead of measured numbers.

        Refused unless they are of attributes of these sizes.
        """
        runs = []
        for number in range(whole(record, "runs", least=1, most=len(arrays))):
            table = array_of(arrays, f"estimates.{number}.subsets", "i", (None, None)).astype(np.int32)
            if not len(table) or (table.size and not 0 <= table.min() <= table.max() < len(sizes)):
                raise FileFormatError("there are estimates of attributes that the schema lacks")
            if table.shape[1] > MOST_AXES or (np.diff(table, axis=1) <= 0).any():
                raise FileFormatError("there are estimates of attributes out of order")
            shapes = np.array(sizes, dtype=np.int64)[table]
            if (shapes != shapes[0]).any():
                raise FileFormatError("there are estimates of different shapes in one run")
            shape = (len(table), *shapes[0].tolist())
            runs.append((table, array_of(arrays, f"estimates.{number}.cells", "f", shape)))
        return cls.of(runs, measures)


class Answerer(Protocol):
    """Figures and estimates of the best linear unbiased answers from blocks.

    A table that the blocks cannot answer raises NotInSpan, whatever is asked of it.
    """

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""

    def largest(self, group: Table) -> float:
        """Largest variance of the table's queries; nan if there are too many to go through."""

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, shape (left.count, right.count)."""

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances."""

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""

    def factored(self, subset: tuple[int, ...]) -> "Factored | None":
        """Covariance of a residual as a product of small ones; None where that is not known."""

    def estimates(self, measured: Measured) -> Estimates:
        """Least-squares estimates from measured numbers."""

    def notes(self) -> Iterator[str]:
        """Lines for people about how answers are computed, if there is anything to say."""


@dataclass(frozen=True, slots=True, eq=False)
class FactorCovariance:
    """Covariance of the cells of some attributes, `square()`, (cells, cells); equal where `key` is."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    key: object
    square: Callable[[], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Factored:
    """Covariance of a residual: `scale` times a product of covariances, centred under `means` or evenly."""

    scale: float
    factors: tuple[FactorCovariance, ...]
    means: tuple[Array, ...] | None = None


class TableByTable:
    """An answerer that has nothing quicker for a run of tables than each of them."""

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""
        raise NotImplementedError

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables."""
        weighted = plain = 0.0
        for group in part if isinstance(part, TableRun) else (part,):
            weighted += self.total(group, weighted=True)
            plain += self.total(group, weighted=False)
        return weighted, plain

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances: all of them."""
        yield from part if isinstance(part, TableRun) else (part,)

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""
        yield from self.examples(part)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a residual as a product of small ones: not known."""
        return None

    def notes(self) -> Iterator[str]:
        """Nothing to say."""
        yield from ()


def refuse_large_covariance(left: Table, right: Table) -> None:
    """Raise WorkloadError where the covariance of two tables does not fit one array."""
    if left.count * right.count > COVARIANCE_ENTRIES:
        raise WorkloadError(
            f"the covariance of tables {left.name!r} and {right.name!r} has "
            f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_ENTRIES:,} at a time"
        )
