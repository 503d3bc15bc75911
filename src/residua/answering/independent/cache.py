"""Figures of parts already met, so that tables that differ only in names share them."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, Shape
from residua.answering.independent.parts import Measured, Part
from residua.errors import NotInSpan
from residua.linalg.centring import Measure
from residua.linalg.keys import RowIndex

Array = NDArray[np.float64]

SPAN_TOLERANCE = 1e-12  # of a query's squared length: what rounding may leave outside the row space
LISTED = 50_000_000  # numbers kept of variances already listed, and of sums of them


class PartCache:
    """The blocks of one strategy, how to find them, and what has been worked out about their parts."""

    def __init__(
        self,
        measures: tuple[Measure, ...],
        shapes: tuple[Shape, ...],
        layers: tuple[Layer, ...],
        elsewhere: Sequence[NDArray[np.int32]] = (),
    ) -> None:
        self.measures, self.shapes, self.layers = measures, shapes, layers
        self.elsewhere = RowIndex(elsewhere, len(measures))
        self._known: dict[object, Any] = {}
        self._listed = 0

    @cached_property
    def index(self) -> RowIndex:
        """Finds the layer and row of the block on a subset."""
        return RowIndex([layer.subsets for layer in self.layers], len(self.measures))

    def is_elsewhere(self, attributes: tuple[int, ...]) -> bool:
        """Whether what is asked of this subset is answered by another part of the mechanism."""
        return bool(self.elsewhere.find(np.array([attributes], dtype=np.int32).reshape(1, -1))[0][0] >= 0)

    def block(self, attributes: tuple[int, ...]) -> tuple[float | None, list[Measured]]:
        """Noise variance of the block on a subset (None if not measured), and its shapes."""
        tables, rows = self.index.find(np.array([attributes], dtype=np.int32).reshape(1, -1))
        if tables[0] < 0:
            return None, []
        layer, row = self.layers[tables[0]], int(rows[0])
        measured = [
            (tuple(attributes[place] for place in places), int(number), self.shapes[number])
            for places, number in zip(layer.layout, layer.shapes[row].tolist(), strict=True)
        ]
        return float(layer.noise[row]), measured

    def listed(self, part: Part) -> Array:
        """Variance at noise 1 of each product of queries."""
        key = ("listed", part.key)
        if key in self._known:
            return np.asarray(self._known[key])
        figures = part.variances()
        if self._has_room_for(figures):
            self._known[key] = figures
        return figures

    def summed(self, part: Part, *, weighted: bool) -> float:
        """Sum of the variances at noise 1."""
        key = ("summed", weighted, part.key)
        if key not in self._known:
            self._known[key] = part.total(weighted=weighted)
        return float(self._known[key])

    def vanishes(self, part: Part) -> bool:
        """Whether the part asks nothing of what it keeps."""
        key = ("vanishes", part.key)
        if key not in self._known:
            self._known[key] = part.vanishes()
        return bool(self._known[key])

    def largest(self, alike: object, find: Callable[[], float]) -> float:
        """What `find` returns, which is the same for all tables with an equal `alike`."""
        key = ("largest", alike)
        if key not in self._known:
            self._known[key] = find()
        return float(self._known[key])

    def of_run(self, tables: object, find: Callable[[], tuple[float, Array]]) -> tuple[float, Array]:
        """What `find` returns of a run of tables: the sum of all variances, and those of each table."""
        key = ("run", tables)
        if key in self._known:
            total, sums = self._known[key]
            return total, sums
        total, sums = find()
        if self._has_room_for(sums):
            self._known[key] = total, sums
        return total, sums

    def _has_room_for(self, figures: Array) -> bool:
        """Whether so many more numbers may be kept; then they count."""
        if self._listed + figures.size > LISTED:
            return False
        self._listed += figures.size
        return True

    def refuse_outside(self, part: Part, name: str, attributes: Sequence[int]) -> None:
        """Raise NotInSpan if a query of the part is not a combination of what its shapes measure.

        `name` is the table's, `attributes` are those of the block.
        """
        key = ("outside", part.key)
        if key not in self._known:
            self._known[key] = part.outside()
        if self._known[key] > SPAN_TOLERANCE:
            raise NotInSpan(
                f"table {name!r} asks for more than the plan measures; add the table to the workload "
                "before planning",
                attributes,
            )


def not_together(name: str, attributes: Sequence[int]) -> NotInSpan:
    """The error for a table that has a piece in a block which is not measured."""
    return NotInSpan(
        f"table {name!r} asks about attributes together that the plan does not measure together; add the "
        "table to the workload before planning",
        attributes,
    )
