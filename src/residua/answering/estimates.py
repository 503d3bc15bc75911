"""Least-squares estimates of what blocks measured: all that answers are made from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure
from residua.linalg.keys import RowIndex

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
    def from_record(
        cls,
        record: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        measures: tuple[Measure, ...] | None,
    ) -> "Estimates":
        """The estimates that a combined release of format 1 holds instead of measured numbers."""
        runs = range(record["runs"])
        tables = (arrays[f"estimates.{number}.subsets"] for number in runs)
        cells = (arrays[f"estimates.{number}.cells"] for number in runs)
        return cls.of(zip(tables, cells, strict=True), measures)
