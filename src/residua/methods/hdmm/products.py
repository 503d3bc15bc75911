"""A workload as HDMM sees it: tables as products over axes, with one gram matrix per axis and family.

An axis is an attribute, or several that some family asks about together. Along an axis that a table does not
ask about it asks for the total.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from residua.linalg.squares import join, sum_out
from residua.workload import Factor, Workload
from residua.workload.joint import refuse_many_cells, refuse_wide

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

TOTAL = 0


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Attributes that are measured together, their sizes, and the gram of each family asked of them.

    The first gram is that of the total.
    """

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    grams: list[Array] = field(default_factory=list)

    @property
    def cells(self) -> int:
        """Number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Tables as products: `families` is (tables, axes), numbers of grams; `weights` is (tables,)."""

    axes: tuple[Axis, ...]
    families: Integers
    weights: Array

    @classmethod
    def of(cls, work: Workload) -> "Products":
        """The workload in this form; refused where attributes asked together have too many cells."""
        axes = _axes(work)
        place = {attribute: at for at, axis in enumerate(axes) for attribute in axis.attributes}
        known: dict[object, int] = {}
        rows, weights = [], []
        for group in work.groups():
            row = [TOTAL] * len(axes)
            mine: dict[int, list[Factor]] = {}
            for factor in group.factors:
                mine.setdefault(place[factor.attributes[0]], []).append(factor)
            for at, factors in mine.items():
                key = (at, tuple(factors))
                if key not in known:
                    axes[at].grams.append(_gram(axes[at], factors))
                    known[key] = len(axes[at].grams) - 1
                row[at] = known[key]
            rows.append(row)
            weights.append(group.weight)
        shape = (len(rows), len(axes))
        return cls(tuple(axes), np.array(rows, dtype=np.int64).reshape(shape), np.array(weights))

    def traces(self, inverses: Sequence[Array]) -> list[Array]:
        """For each axis `tr(G M)` of every family, M the inverse of the axis's strategy, (families,)."""
        return [
            np.array([float(np.sum(gram * inverse)) for gram in axis.grams])
            for axis, inverse in zip(self.axes, inverses, strict=True)
        ]

    def take(self, tables: Sequence[int] | Integers) -> "Products":
        """Some of the tables, on the axes that they ask about."""
        families, weights = self.families[np.asarray(tables)], self.weights[np.asarray(tables)]
        used = [at for at in range(len(self.axes)) if (families[:, at] != TOTAL).any()]
        return Products(tuple(self.axes[at] for at in used), families[:, used], weights)


def _axes(work: Workload) -> list[Axis]:
    """Attributes in use, joined where one family asks about several."""
    together: list[set[int]] = [{at} for at in work.attributes]
    for group in work.groups():
        for factor in group.factors:
            if len(factor.attributes) > 1 and not any(set(factor.attributes) <= each for each in together):
                touched = [each for each in together if each & set(factor.attributes)]
                together = [each for each in together if each not in touched]
                together.append(set().union(*touched))
    axes = []
    for chosen in sorted(map(sorted, together)):
        sizes = tuple(work.schema.sizes[at] for at in chosen)
        if len(chosen) > 1:
            names = " x ".join(work.schema.names[at] for at in chosen)
            refuse_many_cells(math.prod(sizes), f"{names}, which are asked about together")
        axes.append(Axis(tuple(chosen), sizes, [np.ones((math.prod(sizes),) * 2)]))
    return axes


def _gram(axis: Axis, factors: Sequence[Factor]) -> Array:
    """Weighted gram of a product of families over all cells of an axis."""
    for factor in factors:
        refuse_wide(factor.queries)
    asked = [attribute for factor in factors for attribute in factor.attributes]
    rest = [attribute for attribute in axis.attributes if attribute not in asked]
    size_of = dict(zip(axis.attributes, axis.sizes, strict=True))
    order = [*asked, *rest]
    square = join(
        [*(factor.queries.gram() for factor in factors), *(np.ones((size_of[at],) * 2) for at in rest)]
    )
    return sum_out(square, [size_of[at] for at in order], [order.index(at) for at in axis.attributes])
