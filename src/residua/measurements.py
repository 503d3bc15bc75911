"""Noisy answers to a plan's measurements, and nothing else that was ever in the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError
from residua.strategy.batches import Batch

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """For each batch of the plan the noisy integers, shape (blocks, rows)."""

    values: tuple[Integers, ...]

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its number of batches, with the values in `arrays`."""
        for number, values in enumerate(self.values):
            arrays[f"measurements.{number}"] = values
        return {"batches": len(self.values)}

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], batches: Sequence[Batch]
    ) -> "Measurements":
        """The measurements that `record` described, refused if they do not fit the plan's batches."""
        if record["batches"] != len(batches):
            raise FileFormatError("the measurements do not belong to the plan they are stored with")
        values = []
        for number, batch in enumerate(batches):
            found = arrays[f"measurements.{number}"]
            if found.shape != (len(batch.subsets), batch.rows) or found.dtype != np.int64:
                raise FileFormatError(f"batch {number} of the measurements does not fit the plan")
            values.append(found)
        return cls(tuple(values))
