"""Noisy answers to a plan's measurements, and nothing else that was ever in the data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._manifests import whole
from residua.answering.blocks import Measured
from residua.errors import FileFormatError
from residua.strategy.strategy import Strategy


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """For each run of blocks of a strategy its noisy numbers, shape (blocks, rows).

    They are integers, times the multiplier of the run; a combination of releases has real numbers.
    """

    values: tuple[NDArray[Any], ...]

    def in_units(self, strategy: Strategy) -> Measured:
        """The numbers in units of the matrices, with the blocks that measured them."""
        return [
            (layer, rows, values.astype(np.float64) / strategy.layers[layer].multiplier)
            for (layer, rows), values in zip(strategy.runs(), self.values, strict=True)
        ]

    def to_manifest(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its number of runs, with the values in `arrays`."""
        for number, values in enumerate(self.values):
            arrays[f"measurements.{number}"] = values
        return {"batches": len(self.values)}

    @classmethod
    def from_manifest(
        cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], strategy: Strategy
    ) -> "Measurements":
        """The measurements that a manifest describes, refused if they do not fit the strategy."""
        runs = list(strategy.runs())
        if whole(manifest, "batches") != len(runs):
            raise FileFormatError("the measurements do not belong to the plan they are stored with")
        kind = np.float64 if strategy.grain is None else np.int64
        values = []
        for number, (layer, rows) in enumerate(runs):
            shapes = (strategy.shapes[at] for at in strategy.layers[layer].shapes[rows[0]].tolist())
            found = arrays.get(f"measurements.{number}")
            wanted = (len(rows), math.prod(len(shape.matrix) for shape in shapes))
            if found is None or found.shape != wanted or found.dtype != kind:
                raise FileFormatError(f"batch {number} of the measurements does not fit the plan")
            values.append(found)
        return cls(tuple(values))
