"""Marginals of a workload's largest attribute sets, stacked by shape, and how to find any smaller one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from residua._limits import STACKED_CELLS
from residua.errors import Infeasible
from residua.workload import Table, Workload
from residua.workload.tables import choices

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Subset = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Marginals of one shape: `subsets` is (tables, ways), rows ascending, `cells` is (tables, sizes...)."""

    subsets: Subsets
    cells: Array

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells along each attribute."""
        return self.cells.shape[1:]

    @property
    def ways(self) -> int:
        """Number of attributes of each table."""
        return self.cells.ndim - 1

    def rows(self) -> list[Subset]:
        """The attributes of each table."""
        return [tuple(row) for row in self.subsets.tolist()]


@dataclass(frozen=True, eq=False)
class TableSet:
    """Marginals on several sets of attributes, none inside another."""

    stacks: tuple[Stack, ...]

    @cached_property
    def places(self) -> dict[Subset, tuple[int, int]]:
        """For every subset of a table's attributes, the stack and place of the first such table."""
        found: dict[Subset, tuple[int, int]] = {}
        for number, stack in enumerate(self.stacks):
            for kept in _choices(stack.ways):
                for place, row in enumerate(stack.subsets[:, kept].tolist()):
                    found.setdefault(tuple(row), (number, place))
        return found

    def __contains__(self, subset: Subset) -> bool:
        return subset in self.places

    def subsets(self, ways: int) -> list[Subset]:
        """All attribute sets of this size that some table covers, ascending."""
        return sorted(subset for subset in self.places if len(subset) == ways)

    @property
    def ways(self) -> int:
        """The most attributes of any table."""
        return max(stack.ways for stack in self.stacks)

    def marginal(self, subset: Subset) -> Array:
        """The marginal on attributes, ascending, that some table covers; shape (sizes...)."""
        number, place = self.places[subset]
        stack = self.stacks[number]
        gone = tuple(axis for axis, at in enumerate(stack.subsets[place].tolist()) if at not in subset)
        return np.asarray(stack.cells[place].sum(axis=gone))

    def disagreement(self) -> float:
        """Largest difference between the margins that any two tables share."""
        worst = 0.0
        for stack in self.stacks:
            for kept in _choices(stack.ways):
                gone = tuple(1 + axis for axis in range(stack.ways) if axis not in kept)
                margins = stack.cells.sum(axis=gone)
                for place, row in enumerate(stack.subsets[:, kept].tolist()):
                    if self.places[tuple(row)] != (self._number(stack), place):
                        worst = max(worst, float(np.abs(margins[place] - self.marginal(tuple(row))).max()))
        return worst

    def _number(self, stack: Stack) -> int:
        return next(number for number, each in enumerate(self.stacks) if each is stack)


def _choices(ways: int) -> list[list[int]]:
    """Every choice of places, the largest first."""
    return sorted(map(list, choices(ways)), key=len, reverse=True)


def largest_sets(groups: Iterator[Table]) -> list[Subset]:
    """Attribute sets of tables that are not inside another table's, in order of first appearance."""
    asked = dict.fromkeys(tuple(sorted(group.attributes)) for group in groups)
    covered: set[Subset] = set()
    for subset in sorted(asked, key=len, reverse=True):
        if subset not in covered:
            covered.update(tuple(subset[at] for at in kept) for kept in choices(len(subset)))
            covered.discard(subset)
    return [subset for subset in asked if subset not in covered]


def shaped(work: Workload) -> list[tuple[Subsets, tuple[int, ...]]]:
    """The largest attribute sets of a workload by shape: (tables, ways) attributes, and sizes."""
    sizes = work.schema.sizes
    kinds: dict[tuple[int, ...], list[Subset]] = {}
    for subset in largest_sets(work.groups()):
        kinds.setdefault(tuple(sizes[at] for at in subset), []).append(subset)
    cells = sum(math.prod(shape) * len(rows) for shape, rows in kinds.items())
    if cells > STACKED_CELLS:
        largest = max(kinds, key=math.prod)
        names = " x ".join(work.schema.names[at] for at in kinds[largest][0])
        raise Infeasible(
            f"the marginals that these tables are part of have {cells:,} cells, more than the "
            f"{STACKED_CELLS:,} that are post-processed (the largest is {names}, {math.prod(largest):,} "
            "cells); plan tables on fewer attributes, or coarser ones"
        )
    return [(subsets_of(rows), shape) for shape, rows in kinds.items()]


def subsets_of(rows: Sequence[Subset]) -> Subsets:
    """Attribute sets of one size as an array (sets, ways)."""
    return np.array(rows, dtype=np.int32).reshape(len(rows), -1)
