"""Least-squares estimates of what blocks measured: all that answers are made from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._files import MOST_AXES
from residua._manifests import array_of, whole
from residua.errors import FileFormatError
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
