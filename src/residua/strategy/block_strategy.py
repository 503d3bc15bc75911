"""Many independent measurements, one per subset of attributes, held as arrays.

Every block measures `B (marginal)` with its own noise, and B's rows answer only centred queries: so blocks
on different subsets span independent spaces, and the best answer to a query is the sum of the best
answers to its pieces (claim A-004).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.strategy.known_parts import KnownParts, not_together
from residua.strategy.largest import largest_of
from residua.strategy.layered import Layered
from residua.strategy.mechanism import totals_by_table
from residua.strategy.parts import Part, parts_of
from residua.strategy.run_totals import total_of_run
from residua.workload import Group, Tables
from residua.workload.groups import splits

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

COVARIANCE_LIMIT = 10_000_000  # entries


@dataclass(frozen=True, eq=False)
class BlockStrategy(Layered):
    """Blocks on different subsets of attributes, each centred under one product measure.

    `elsewhere` are subsets whose pieces another part of a mechanism answers: they are passed over here.
    """

    elsewhere: tuple[Subsets, ...] = ()

    kind: ClassVar[str] = "blocks"

    @cached_property
    def known(self) -> KnownParts:
        """Finds blocks, and remembers the figures of parts that many tables share."""
        return KnownParts(self.measures, self.shapes, self.layers, self.elsewhere)

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
        refuse_large_covariance(left, right)
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
            if self.known.is_elsewhere(attributes):
                continue
            noise, measured = self.known.block(attributes)
            parts = list(parts_of(group.factors, kept, self.measures, measured))
            if any(self.known.vanishes(part) for part in parts):
                continue  # whatever the block measures, or if there is none: nothing is asked of it
            if noise is None:
                raise not_together(group.name, attributes)
            for part in parts:
                self.known.refuse_outside(part, group.name, attributes)
            yield attributes, noise, parts


def refuse_large_covariance(left: Group, right: Group) -> None:
    """Raise WorkloadError where the covariance of two tables does not fit one array."""
    if left.count * right.count > COVARIANCE_LIMIT:
        raise WorkloadError(
            f"the covariance of tables {left.name!r} and {right.name!r} has "
            f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_LIMIT:,} at a time"
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
