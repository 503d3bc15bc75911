"""Many independent measurements, one per subset of attributes, held as arrays.

Every block measures `B (marginal)` with its own noise, and B's rows answer only centred queries: so blocks
on different subsets span independent spaces, and the best answer to a query is the sum of the best
answers to its pieces (claim A-004).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import FileFormatError, WorkloadError
from residua.linalg.centring import Measure
from residua.strategy.blocks import Layer, Shape
from residua.strategy.known_parts import KnownParts, not_together
from residua.strategy.largest import largest_of
from residua.strategy.mechanism import totals_by_table
from residua.strategy.parts import Part, parts_of
from residua.strategy.run_totals import total_of_run
from residua.workload import Group, Tables
from residua.workload.groups import splits

Array = NDArray[np.float64]

COVARIANCE_LIMIT = 10_000_000  # entries


@dataclass(frozen=True, eq=False)
class BlockStrategy:
    """Independent blocks on subsets of attributes, under one product measure.

    `sizes` and `measures` have one entry per attribute of the schema. `grain` is that of the exact costs of
    an integer strategy; a real one, which only serves to be compared with, has none.
    """

    sizes: tuple[int, ...]
    measures: tuple[Measure, ...]
    shapes: tuple[Shape, ...]
    layers: tuple[Layer, ...]
    grain: int | None = None

    kind: ClassVar[str] = "blocks"

    @cached_property
    def known(self) -> KnownParts:
        """Finds blocks, and remembers the figures of parts that many tables share."""
        return KnownParts(self.measures, self.shapes, self.layers)

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
        """A bound on the privacy cost of replacing one record; the total costs nothing.

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

    def scaled(self, factor: float) -> "BlockStrategy":
        """The same measurements with every noise variance divided by `factor`."""
        layers = tuple(
            replace(layer, noise=layer.noise / factor, costs=layer.costs * factor) for layer in self.layers
        )
        return replace(self, layers=layers)

    def variances(self, group: Group) -> Array:
        """Variance of each query's answer, shape (count,)."""
        grid = np.zeros([factor.queries.count for factor in group.factors])
        for noise, parts in self._pieces(group):
            grids = [self.known.listed(part) for part in parts]
            grid += noise * _outer(parts, grids)
        return grid.reshape(-1)

    def total(self, group: Group, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        sums = [
            noise * math.prod(self.known.summed(part, weighted=weighted) for part in parts)
            for noise, parts in self._pieces(group)
        ]
        return math.fsum(sums) * (group.weight if weighted else 1.0)

    def totals(self, part: Group | Tables) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, Group) or part.joint is not None:
            return totals_by_table(self, part)
        total = total_of_run(self.known, part)
        return part.weight * total, total

    def largest(self, group: Group) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        pieces = list(self._pieces(group))
        if not group.listable:
            return math.nan
        alike = tuple((noise, tuple((part.places, part.key) for part in parts)) for noise, parts in pieces)
        return self.known.largest(alike, lambda: self._largest(group, pieces))

    def _largest(self, group: Group, pieces: list[tuple[float, list[Part]]]) -> float:
        if any(len(part.places) > 1 for _, parts in pieces for part in parts):
            return float(self.variances(group).max())
        return largest_of(self.known, pieces, len(group.factors))

    def covariance(self, left: Group, right: Group) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_LIMIT:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
            )
        ours = {attributes: parts for attributes, _, parts in self._measured_pieces(left)}
        result = np.zeros((left.count, right.count))
        for attributes, noise, parts in self._measured_pieces(right):
            if attributes in ours:
                rows = _coefficients(ours[attributes], left)
                result += noise * (rows @ _coefficients(parts, right).T)
        return result

    def _pieces(self, group: Group) -> Iterator[tuple[float, list[Part]]]:
        """Noise variance and parts for each block that the group's queries have a piece in."""
        return ((noise, parts) for _, noise, parts in self._measured_pieces(group))

    def _measured_pieces(self, group: Group) -> Iterator[tuple[tuple[int, ...], float, list[Part]]]:
        for kept, attributes in splits(group):
            noise, measured = self.known.block(attributes)
            parts = list(parts_of(group.factors, kept, self.measures, measured))
            if any(self.known.vanishes(part) for part in parts):
                continue  # whatever the block measures, or if there is none: nothing is asked of it
            if noise is None:
                raise not_together(group.name, attributes)
            for part in parts:
                self.known.refuse_outside(part, group.name, attributes)
            yield attributes, noise, parts

    def describe(self) -> Iterator[str]:
        """Lines for people: how many blocks of which size, and their share of the privacy."""
        whole = self.cost()
        for size in sorted({layer.subsets.shape[1] for layer in self.layers}):
            chosen = [layer for layer in self.layers if layer.subsets.shape[1] == size]
            blocks = sum(len(layer.noise) for layer in chosen)
            share = sum(float(np.sum(layer.costs)) for layer in chosen) / whole
            what = "the total" if size == 0 else f"{blocks:,} blocks on {size} attribute{'s' * (size > 1)}"
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
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "BlockStrategy":
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


def _outer(parts: list[Part], grids: list[Array]) -> Array:
    """Outer product of the parts' figures, in the order of the table's factors."""
    places = [place for part in parts for place in part.places]
    outer: Array = reduce(np.multiply.outer, grids, np.ones(()))
    return np.asarray(outer.transpose(np.argsort(places)))


def _coefficients(parts: list[Part], group: Group) -> Array:
    """Coefficients of a block's measurements, in its order, in the answers of a group: (count, measured)."""
    result: Array = np.ones(())
    rows: list[tuple[int, int]] = []  # (place of the factor in the table, axis of the result)
    ranks: list[tuple[int, int]] = []  # (slot of the shape in the block, axis of the result)
    for part in parts:
        tensor = part.answers_of([queries.matrix() for queries in part.queries])
        tensor = tensor.reshape(*tensor.shape[:-1], *(len(shape.matrix) for shape in part.shapes))
        start = result.ndim
        result = np.multiply.outer(result, tensor)
        rows += [(place, start + at) for at, place in enumerate(part.places)]
        ranks += [(slot, start + len(part.places) + at) for at, slot in enumerate(part.slots)]
    order = [axis for _, axis in sorted(rows)] + [axis for _, axis in sorted(ranks)]
    return np.asarray(result.transpose(order).reshape(group.count, -1))
