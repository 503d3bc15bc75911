"""What mechanisms made of many blocks have in common: shapes, layers of blocks, and what they cost."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from residua._text import counted
from residua.errors import FileFormatError
from residua.linalg.centring import Measure
from residua.privacy import NoiseLaw
from residua.strategy.blocks import Layer, Shape


@dataclass(frozen=True, eq=False)
class Layered:
    """Blocks on subsets of attributes, each measuring its marginal with independent noise.

    `sizes` and `measures` have one entry per attribute of the schema. `grain` is that of the exact costs of
    an integer strategy; a real one, which only serves to be compared with, has none.
    """

    sizes: tuple[int, ...]
    measures: tuple[Measure, ...]
    shapes: tuple[Shape, ...]
    layers: tuple[Layer, ...]
    grain: int | None = None

    kind: ClassVar[str]
    law: ClassVar[NoiseLaw] = "gaussian"

    def cost(self) -> float:
        """Privacy cost of adding or removing one record: the sum of the blocks' costs."""
        return math.fsum(float(np.sum(layer.costs)) for layer in self.layers)

    def exact_cost(self) -> Fraction:
        """Privacy cost of an integer strategy, exactly: so many grains of `2^-grain` each."""
        if self.grain is None:
            raise ValueError("only an integer strategy has an exact cost")
        grains = sum(int(layer.shares.sum(dtype=object)) for layer in self.layers if layer.shares is not None)
        return Fraction(grains) / Fraction(2) ** self.grain

    def replacement_cost(self) -> float:
        """A bound on the privacy cost of replacing one record; the total costs nothing (claim M-005).

        For each block `X_ii + X_jj - 2 X_ij <= 2 - 2 min X`, and the least entry of a product lies between
        the products of the factors' extremes.
        """
        total = 0.0
        for layer in self.layers:
            low, high = np.ones(len(layer.noise)), np.ones(len(layer.noise))
            for numbers in layer.shapes.T:
                ends = np.array([shape.overlap for shape in self.shapes])[numbers]
                corners = np.stack([low * ends[:, 0], low * ends[:, 1], high * ends[:, 0], high * ends[:, 1]])
                low, high = corners.min(axis=0), corners.max(axis=0)
            total += float(np.sum((2.0 - 2.0 * low) * layer.costs))
        return total

    def scaled(self, factor: float) -> Self:
        """The same measurements with every noise variance divided by `factor`."""
        layers = tuple(
            replace(layer, noise=layer.noise / factor, costs=layer.costs * factor) for layer in self.layers
        )
        return replace(self, layers=layers)

    def describe(self) -> Iterator[str]:
        """Lines for people: how many blocks of which size, and their share of the privacy."""
        whole = self.cost()
        for size in sorted({layer.subsets.shape[1] for layer in self.layers}):
            chosen = [layer for layer in self.layers if layer.subsets.shape[1] == size]
            blocks = sum(len(layer.noise) for layer in chosen)
            share = sum(float(np.sum(layer.costs)) for layer in chosen) / whole
            what = (
                "the total"
                if size == 0
                else f"{counted(blocks, 'block', 'blocks')} on {size} attribute{'s' * (size > 1)}"
            )
            yield f"{what}: {share:.1%} of the privacy cost"

    def record(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Its layers and shapes, with every array in `arrays`."""
        for number, shape in enumerate(self.shapes):
            whole = self.grain is not None
            arrays[f"blocks.shape.{number}"] = shape.matrix.astype(np.int64) if whole else shape.matrix
        for number, layer in enumerate(self.layers):
            arrays[f"blocks.layer.{number}.subsets"] = layer.subsets
            arrays[f"blocks.layer.{number}.shapes"] = layer.shapes
            arrays[f"blocks.layer.{number}.costs"] = layer.costs
            arrays[f"blocks.layer.{number}.noise"] = layer.noise
            if layer.shares is not None:
                arrays[f"blocks.layer.{number}.shares"] = layer.shares
        tilted = {at: measure for at, measure in enumerate(self.measures) if measure.weights is not None}
        for at, measure in tilted.items():
            exact = measure.numerators
            arrays[f"blocks.measure.{at}"] = measure.vector() if exact is None else np.array(exact)
        return {
            "kind": self.kind,
            "sizes": list(self.sizes),
            "measures": sorted(tilted),
            "grain": self.grain,
            "shapes": [{"sizes": list(shape.sizes), "rank": shape.rank} for shape in self.shapes],
            "layers": [
                {"layout": [list(places) for places in layer.layout], "multiplier": layer.multiplier}
                for layer in self.layers
            ],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The strategy that `record` described."""
        if record.get("kind") != cls.kind:
            raise FileFormatError(f"this version knows no strategy of kind {record.get('kind')!r}")
        sizes = tuple(record["sizes"])
        measures = [Measure(size) for size in sizes]
        for at in record["measures"]:
            weights = arrays[f"blocks.measure.{at}"]
            exact = np.issubdtype(weights.dtype, np.integer)
            measures[at] = Measure.whole(weights.tolist()) if exact else Measure.of(weights)
        shapes = tuple(
            Shape(tuple(part["sizes"]), arrays[f"blocks.shape.{number}"].astype(np.float64), part["rank"])
            for number, part in enumerate(record["shapes"])
        )
        return cls(sizes, tuple(measures), shapes, tuple(_layers(record["layers"], arrays)), record["grain"])


def _layers(parts: Sequence[Any], arrays: Mapping[str, NDArray[Any]]) -> Iterator[Layer]:
    for number, part in enumerate(parts):
        yield Layer(
            arrays[f"blocks.layer.{number}.subsets"],
            tuple(tuple(places) for places in part["layout"]),
            arrays[f"blocks.layer.{number}.shapes"],
            arrays[f"blocks.layer.{number}.costs"],
            arrays[f"blocks.layer.{number}.noise"],
            part["multiplier"],
            arrays.get(f"blocks.layer.{number}.shares"),
        )
