"""Least-squares estimates of what each block measured: all that answers are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.linalg.keys import RowIndex
from residua.measurements import Measurements
from residua.strategy.batches import Batch
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.nested_estimates import nested_estimates
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.overlap_estimates import residual_estimates
from residua.strategy.sides import SidesStrategy
from residua.strategy.union import UnionStrategy
from residua.strategy.union_integers import union_estimate

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Estimates:
    """For runs of blocks their subsets, (blocks, attributes) ascending, and cells, (blocks, sizes...).

    Where a mechanism has several sides, `sides` are the estimates of each.
    """

    tables: tuple[Subsets, ...]
    cells: tuple[Array, ...]
    sides: tuple["Estimates", ...] = ()

    @classmethod
    def of(cls, mechanism: Mechanism, batches: Sequence[Batch], measurements: Measurements) -> "Estimates":
        """The estimates from the measurements of a plan's batches."""
        if isinstance(mechanism, SidesStrategy):
            return cls._of_sides(mechanism, batches, measurements)
        if isinstance(mechanism, OverlapStrategy):
            runs = list(residual_estimates(mechanism, batches, measurements.values))
            return cls(tuple(table for table, _ in runs), tuple(found for _, found in runs))
        if isinstance(mechanism, NestedStrategy):
            found = list(nested_estimates(mechanism, batches, measurements.values))
            return cls(tuple(table for table, _ in found), tuple(own for _, own in found))
        if isinstance(mechanism, UnionStrategy):
            table, joint = union_estimate(mechanism, measurements.values)
            return cls((table,), (joint,))
        tables, cells = [], []
        for batch, values in zip(batches, measurements.values, strict=True):
            tables.append(np.sort(batch.subsets, axis=1))
            cells.append(batch.ascending(values))
        return cls(tuple(tables), tuple(cells))

    @classmethod
    def _of_sides(
        cls, mechanism: SidesStrategy, batches: Sequence[Batch], measurements: Measurements
    ) -> "Estimates":
        sides = []
        for side in mechanism.sides:
            mine = [at for at, batch in enumerate(batches) if batch.derived is side.view.parts]
            own = Measurements(tuple(measurements.values[at] for at in mine))
            sides.append(cls.of(side.mechanism, [batches[at] for at in mine], own))
        return cls((), tuple(cells for side in sides for cells in side.cells), tuple(sides))

    @cached_property
    def index(self) -> RowIndex:
        """Finds the run and place of the block on a subset."""
        most = max((int(table.max()) for table in self.tables if table.size), default=0)
        return RowIndex(self.tables, most + 1)

    def block(self, subset: tuple[int, ...]) -> Array:
        """The estimate of the block on this subset, shape (sizes...)."""
        runs, places = self.index.find(np.array([subset], dtype=np.int32).reshape(1, -1))
        return np.asarray(self.cells[runs[0]][places[0]])

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its number of runs, with the arrays in `arrays`."""
        for number, (table, cells) in enumerate(zip(self.tables, self.cells, strict=True)):
            arrays[f"estimates.{number}.subsets"] = table
            arrays[f"estimates.{number}.cells"] = cells
        return {"runs": len(self.tables)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Estimates":
        """The estimates that `record` described."""
        runs = range(record["runs"])
        return cls(
            tuple(arrays[f"estimates.{number}.subsets"] for number in runs),
            tuple(arrays[f"estimates.{number}.cells"] for number in runs),
        )
