"""What the tables of a workload ask of each attribute alone, and the cell weights best for that (B-010)."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import independent_rows, join
from residua.solve.cells import solve_cells
from residua.workload import Identity, Queries, Table, Workload

START_GAP = 1e-3  # of weights that are only near the best
MOST_ALONE = 2_000  # tables that are looked at one by one, about
DIGITS = 12  # to which sums of weights are the same

Part = tuple[Queries, int]
"""A family, and the place of the attribute in it."""


def product_weights(work: Workload, attributes: Sequence[int] | None = None) -> Array:
    """Weights of joint cells, of a workload's or some: products of those best for each attribute (B-010)."""
    asked = AttributeQueries(work)
    own = work.attributes if attributes is None else attributes
    return join(asked.weights(at)[None] for at in own).reshape(-1)


class AttributeQueries:
    """What the tables of a workload ask of each attribute alone, the others being known.

    `of[at]` has each family that asks of an attribute with its weight, and None for tables without it.
    `given` has weights that attributes of so many cells are to have.
    """

    def __init__(self, work: Workload, given: Mapping[int, Array] | None = None) -> None:
        self.sizes, self.given = work.schema.sizes, given or {}
        self.of: list[dict[Part | None, float]] = [{} for _ in self.sizes]
        self._weights: dict[object, Array] = {}
        sizes: dict[Queries, float] = {}
        used = work.attributes
        for table in some_tables(work):
            for queries in table.families:
                if queries not in sizes:
                    sizes[queries] = _mean_square(queries)
            whole = table.weight * math.prod(sizes[queries] for queries in table.families)
            parts = {
                at: (factor.queries, place)
                for factor in table.factors
                for place, at in enumerate(factor.attributes)
            }
            for at in used:
                part = parts.get(at)
                weight = whole if part is None else whole / sizes[part[0]]
                self.of[at][part] = self.of[at].get(part, 0.0) + weight

    def key(self, at: int) -> object:
        """Equal for attributes that are asked the same."""
        asked = ((part, float(f"{weight:.{DIGITS}g}")) for part, weight in self.of[at].items())
        return self.sizes[at], frozenset(asked)

    def weights(self, at: int) -> Array:
        """The weights of an attribute's cells that are about best for it alone."""
        if self.sizes[at] in self.given:
            return self.given[self.sizes[at]]
        key = self.key(at)
        if key not in self._weights:
            self._weights[key] = self._best(at)
        return self._weights[key]

    def _best(self, at: int) -> Array:
        size = self.sizes[at]
        if all(part is None or part[0].invariant for part in self.of[at]):
            return np.full(size, 1.0 / size)  # no cell differs from another
        rows = [math.sqrt(weight) * self.rows(at, part) for part, weight in self.of[at].items()]
        return solve_cells(independent_rows(np.concatenate(rows)), START_GAP).cell_weights

    def rows(self, at: int, part: Part | None) -> Array:
        """What a family asks of an attribute, one row for each query and each cell of its others."""
        if part is None:
            return np.ones((1, self.sizes[at]))
        queries, place = part
        root = queries.root().reshape(-1, *queries.sizes)
        return np.moveaxis(root, 1 + place, -1).reshape(-1, self.sizes[at])


def some_tables(work: Workload) -> Iterator[Table]:
    """Every table, or so many from all over the workload."""
    step = -(-work.tables // MOST_ALONE)
    for part in work.parts:
        if isinstance(part, Table):
            yield part
        else:
            yield from part[::step]


def _mean_square(queries: Queries) -> float:
    """The sum of squares of a column, in the mean over all columns."""
    if isinstance(queries, Identity):
        return 1.0
    return float(np.sum(queries.root() ** 2)) / queries.cells
