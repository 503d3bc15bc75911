"""The best mechanism of all where some attributes are asked for plain counts only, whatever their sizes.

Families that treat all cells of an attribute alike have grams `a I + b J`: along it every mechanism may be
made even, so the best one measures the total and the centred cells of it, each by a matrix over the other
attributes (claim S-013). A workload on the joint cells of all attributes becomes one for each set of plain
attributes, on the joint cells of the others, all under the same weights. What the blocks cost a record is
added up cell by cell.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from residua._arrays import Array
from residua._limits import DENSE_CELLS, PLAIN_BLOCKS, PLAIN_CELLS, PLAIN_WAYS, SAME_TABLES
from residua.answering.blocks import Placed, Shape
from residua.kernel.cost import OWN
from residua.linalg.spans import mean_first
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Identity, Queries, Table, Total, Workload
from residua.workload.tables import choices, without_totals

Subset = tuple[int, ...]


@dataclass(frozen=True)
class Plain:
    """A workload with attributes that are asked for plain counts only, and others.

    `asked` are the tables without totals; `cells` are the plain attributes that every table asks for each
    cell of, `split` the other plain ones; `others` those that are asked for anything else.
    """

    work: Workload
    asked: tuple[Table, ...]
    cells: Subset
    split: Subset
    others: Subset

    @classmethod
    def of(cls, work: Workload) -> "Plain | None":
        """The plain attributes of a workload; None where it has none or nothing else, or few joint cells."""
        if work.tables > SAME_TABLES:
            return None
        asked = tuple(without_totals(group) for group in work.groups())
        uneven = {
            at
            for group in asked
            for factor in group.factors
            if not factor.queries.invariant
            for at in factor.attributes
        }
        used = {at for group in asked for at in group.attributes}
        plain = sorted(at for at in used - uneven if work.schema.sizes[at] > 1)
        cells = tuple(at for at in plain if all(isinstance(_family(group, at), Identity) for group in asked))
        split = tuple(at for at in plain if at not in cells)
        found = cls(work, asked, cells, split, tuple(sorted(uneven)))
        return found if plain and uneven and found._worthwhile else None

    @property
    def _worthwhile(self) -> bool:
        """Whether there are many joint cells, and not too many blocks or cells of one."""
        sizes = self.work.schema.sizes
        if self.joint * self.whole <= PLAIN_CELLS:
            return False
        widest = max(sizes[at] for at in (*self.cells, *self.split))
        ways = max(sum(at in self.split for at in group.attributes) for group in self.asked)
        if widest > DENSE_CELLS or ways > PLAIN_WAYS or len(self.subsets) > PLAIN_BLOCKS:
            return False
        largest = max(math.prod(sizes[at] for at in subset) for subset in self.subsets)
        return largest * self.joint * math.prod(sizes[at] for at in self.cells) <= OWN

    @property
    def joint(self) -> int:
        """Joint cells of the other attributes."""
        return math.prod(self.work.schema.sizes[at] for at in self.others)

    @cached_property
    def subsets(self) -> tuple[Subset, ...]:
        """The sets of split attributes that some table asks about, the smaller ones first."""
        found = {
            tuple(own[place] for place in kept)
            for own in {tuple(at for at in self.split if at in group.attributes) for group in self.asked}
            for kept in choices(len(own))
        }
        return tuple(sorted(found, key=lambda subset: (len(subset), subset)))

    def count(self, subset: Subset) -> float:
        """How many times what is asked with a subset is asked: once for each of its centred directions."""
        sizes = self.work.schema.sizes
        return math.prod(sizes[at] - 1.0 for at in subset) * math.prod(float(sizes[at]) for at in self.cells)

    @property
    def whole(self) -> float:
        """Joint cells of the plain attributes."""
        return math.prod(float(self.work.schema.sizes[at]) for at in (*self.cells, *self.split))

    def asked_with(self, subset: Subset) -> Workload:
        """What is asked of the other attributes together with the centred cells of a subset."""
        tables = []
        for group in self.asked:
            weight = group.weight
            for at in self.split:
                even, total = _even(_family(group, at))
                weight *= even if at in subset else even + self.work.schema.sizes[at] * total
            if weight > 0:
                kept = tuple(own for own in group.factors if set(own.attributes) <= set(self.others))
                tables.append(replace(group, factors=kept, weight=weight))
        return Workload(self.work.schema, tuple(tables))

    def ranks(self) -> Iterator[int]:
        """About the rank of what is asked with each subset."""
        for subset in self.subsets:
            each = (group.factors for group in self.asked_with(subset).groups())
            found = sum(math.prod(min(own.queries.count, own.queries.cells) for own in row) for row in each)
            yield min(found, self.joint)

    def strategy(self, matrices: Mapping[Subset, Array]) -> tuple[Strategy, list[int]]:
        """The blocks of cost 1, cell by cell added up, for the solution of each subset; numbers of those."""
        sizes = self.work.schema.sizes
        centred = {at: Shape.independent((sizes[at],), mean_first(sizes[at])[:, 1:].T) for at in self.split}
        every = {at: Shape.independent((sizes[at],), np.eye(sizes[at])) for at in self.cells}
        own = tuple(sizes[at] for at in self.others)
        blocks, shapes = [], []
        for subset, matrix in matrices.items():
            scale = math.sqrt(math.prod(sizes[at] for at in (*subset, *self.cells)))
            shapes.append(Shape.independent(own, scale * matrix))
            placed = [Placed(self.others, shapes[-1])]
            placed += [Placed((at,), centred[at]) for at in subset]
            placed += [Placed((at,), every[at]) for at in self.cells]
            blocks.append((placed, 1.0))
        strategy = of_blocks(sizes, blocks)
        return strategy, [strategy.shapes.index(shape) for shape in shapes]


def _family(group: Table, at: int) -> Queries | None:
    """What a table asks of an attribute alone, None where that is the total."""
    return next((factor.queries for factor in group.factors if factor.attributes == (at,)), None)


def _even(queries: Queries | None) -> tuple[float, float]:
    """The numbers a and b of a gram `a I + b J`."""
    if queries is None or isinstance(queries, Total):
        return 0.0, 1.0
    if isinstance(queries, Identity):
        return 1.0, 0.0
    gram = queries.gram()
    return float(gram[0, 0] - gram[0, 1]), float(gram[0, 1])
