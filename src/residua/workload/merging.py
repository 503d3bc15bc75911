"""Tables with some of their factors multiplied out into one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.linalg.squares import join, spread
from residua.workload.groups import Factor, Table

Array = NDArray[np.float64]

MOST_ENTRIES = 20_000_000  # of factors that are multiplied out


@dataclass(frozen=True, slots=True)
class Order:
    """Where the factors of a table were before some were brought together, and their numbers of queries."""

    counts: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    def arranged(self, values: Array, axis: int = 0) -> Array:
        """Numbers of all queries along an axis, in the order that the table had."""
        if self.places == tuple(range(len(self.places))):
            return values
        numbers = np.arange(math.prod(self.counts)).reshape(self.counts)
        return np.take(values, numbers.transpose(np.argsort(self.places)).reshape(-1), axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A table whose factors that touch some attributes are one, in the place of the first of them."""

    group: Table
    mine: tuple[int, ...]

    @classmethod
    def of(cls, group: Table, attributes: Sequence[int]) -> "Merged":
        """The table with its factors on any of these attributes taken together."""
        wanted = set(attributes)
        touched = enumerate(group.factors)
        return cls(group, tuple(at for at, each in touched if wanted.intersection(each.attributes)))

    @property
    def order(self) -> Order:
        """Where each factor was."""
        first = self.mine[0] if self.mine else 0
        others = [at for at in range(len(self.group.factors)) if at not in self.mine]
        before = [at for at in others if at < first]
        places = (*before, *self.mine, *others[len(before) :])
        return Order(tuple(self.group.factors[at].queries.count for at in places), places)

    @property
    def factors(self) -> list[Factor]:
        """The factors that are taken together."""
        return [self.group.factors[at] for at in self.mine]

    @property
    def weights(self) -> Array | None:
        """Weight of each product of their queries, or None where every weight is one."""
        own = [factor.queries.weights for factor in self.factors]
        if all(each is None for each in own):
            return None
        filled = (
            np.ones(factor.queries.count) if each is None else each
            for factor, each in zip(self.factors, own, strict=True)
        )
        return np.asarray(join(each[None] for each in filled)[0])

    def others(self, attributes: Sequence[int]) -> list[tuple[int, int]]:
        """Further attributes that they look at, with their sizes."""
        return [(at, size) for at, size in self._axes() if at not in attributes]

    def rows(self, attributes: Sequence[int], sizes: Sequence[int]) -> Array:
        """Their products, (queries, cells of these attributes, cells of the others)."""
        count, axes = math.prod(factor.queries.count for factor in self.factors), self._axes()
        others = self.others(attributes)
        width = math.prod(size for _, size in others)
        if count * width * math.prod(sizes) > MOST_ENTRIES:
            raise Infeasible(
                f"table {self.group.name!r} has {count:,} queries on attributes that a condition ties "
                "together, too many to go through; take coarser groups"
            )
        order = [*attributes, *(at for at, _ in others)]
        whole = [*sizes, *(size for _, size in others)]
        rows = join(factor.queries.matrix() for factor in self.factors)
        rows = spread(rows, [size for _, size in axes], [order.index(at) for at, _ in axes], whole)
        return rows.reshape(count, -1, width)

    def with_factor(self, factor: Factor) -> Table:
        """The table with another factor in their place."""
        first = self.mine[0] if self.mine else 0
        others = [(at, each) for at, each in enumerate(self.group.factors) if at not in self.mine]
        before = [each for at, each in others if at < first]
        after = [each for at, each in others if at >= first]
        return replace(self.group, factors=(*before, factor, *after))

    def _axes(self) -> list[tuple[int, int]]:
        pairs = (zip(own.attributes, own.queries.sizes, strict=True) for own in self.factors)
        return [pair for several in pairs for pair in several]
