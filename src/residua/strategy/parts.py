"""Which runs of blocks of a strategy by places are measured, and kept, part by part."""

import math
from functools import cached_property

import numpy as np

from residua._arrays import AnyArray, Integers
from residua._limits import PART_NUMBERS
from residua.answering.place_parts import Division, PlaceParts
from residua.answering.places import Numbers, Places
from residua.strategy.strategy import Strategy


class StrategyParts:
    """A strategy by places, divided: its runs are of the levels above, or in the parts."""

    def __init__(self, strategy: Strategy, source: Places, division: Division) -> None:
        self.strategy, self.source, self.division = strategy, source, division
        self.places = PlaceParts(source, division)
        self.runs = list(strategy.runs())

    def __len__(self) -> int:
        return len(self.division)

    @cached_property
    def divided(self) -> list[int]:
        """The runs that are in the parts."""
        return [at for at in range(len(self.runs)) if self.depth(at) >= self.division.depth]

    def depth(self, run: int) -> int:
        """The level of a run."""
        return self.source.depths[self.runs[run][0]]

    def rows(self, run: int) -> int:
        """Numbers of each block of a run."""
        return _rows(self.strategy, *self.runs[run])

    def of_cells(self) -> Integers:
        """The part of each place."""
        return self.division.of_places()

    def blocks(self, run: int, part: int) -> Integers:
        """The blocks of a run that are in a part, in the order of the tree."""
        return self.division.blocks(self.depth(run), part)

    def shape(self, run: int, part: int | None) -> tuple[int, int]:
        """Blocks and rows of a run, of all of it or of what is in a part."""
        level, (_, rows) = self.depth(run) - self.division.depth, self.runs[run]
        if part is None:
            return len(rows), self.rows(run)
        nodes = self.division.nodes(part)[level]
        return nodes.stop - nodes.start, self.rows(run)

    def at_once(self, layer: int) -> int | None:
        """The most blocks of a layer that a part has; None where they are in none."""
        level = self.source.depths[layer] - self.division.depth
        return None if level < 0 else int(np.diff(self.division.ends[level]).max())

    def numbers(self, part: int) -> int:
        """How many numbers a part has."""
        return sum(math.prod(self.shape(at, part)) for at in self.divided)

    def in_units(self, values: dict[int, AnyArray]) -> Numbers:
        """Measured numbers by run, in units of the matrices, as answering has them."""
        layers = self.strategy.layers
        runs = ((*self.runs[at], own.astype(np.float64)) for at, own in values.items())
        return self.source.numbers([(at, rows, own / layers[at].multiplier) for at, rows, own in runs])


def _rows(strategy: Strategy, layer: int, rows: Integers) -> int:
    """Numbers of each block of a run."""
    shapes = strategy.layers[layer].shapes[rows[0]].tolist()
    return math.prod(len(strategy.shapes[at].matrix) for at in shapes)


def parts_of(strategy: Strategy, most: int = PART_NUMBERS) -> StrategyParts | None:
    """The parts of a strategy by places that has more numbers than one part should; None of any other."""
    source = strategy.answerer if strategy.nested else None
    if not isinstance(source, Places):
        return None
    numbers = [0] * len(source.nest.tree.sizes)
    for layer, rows in strategy.runs():
        depth = source.depths[layer]
        numbers[depth] += _rows(strategy, layer, rows) * len(rows) // source.nest.tree.sizes[depth]
    division = Division.of(source.nest, numbers, most)
    return None if division is None else StrategyParts(strategy, source, division)


def counted_at_once(strategy: Strategy, layer: int) -> int | None:
    """The most blocks of a layer that are counted at once where it is measured in parts; None for all."""
    parts = parts_of(strategy)
    return None if parts is None else parts.at_once(layer)
