"""Tables whose queries are split freely: any piece on any block that holds it (claims Q-001 to Q-004).

A split is written as moves from the uniform one. Moving rows Z from subset S to a larger block B subtracts Z
from what is asked of S and adds it, spread over the cells of B, to what is asked of B; every split of a
query over blocks that hold parts of its attributes is reached by such moves, and each is unbiased.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua.decompose import Attributes, Source
from residua.linalg.grams import unchanged_by_swap
from residua.linalg.matrices import Measure, project
from residua.workload import Table
from residua.workload.tables import choices

Key = tuple[int, tuple[int, ...], int]
"""A piece: the source, the places it depends on, and another attribute that its block has too."""

NOBODY = -1  # in place of another attribute


@dataclass(frozen=True, slots=True)
class Move:
    """Rows that may be moved from one piece to others; each target has the places of the origin within."""

    origin: Key
    taken: int  # how many times the rows are taken off the origin
    targets: tuple[tuple[Key, tuple[int, ...]], ...]
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Use:
    """A piece in a block: the places of the block that it depends on, and the weight of its queries."""

    key: Key
    places: tuple[int, ...]
    weight: float


class FreeTables:
    """Sources, moves and blocks of the tables that are split freely.

    Pieces sit on blocks within their own table, and on those blocks of `family` that have one attribute more
    (attributes must then be of different roles).
    """

    def __init__(
        self, groups: Iterable[Table], roles: Sequence[int], family: Iterable[Attributes] = ()
    ) -> None:
        self.groups = list(groups)
        self.blocks: dict[Attributes, dict[tuple[Key, tuple[int, ...]], float]] = {}
        numbers: dict[Source, int] = {}
        outsiders: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        wider = set(family)
        for group in self.groups:
            queries = tuple(factor.queries for factor in group.factors)
            source = Source(queries, tuple(roles[at] for at in group.attributes))
            number = numbers.setdefault(source, len(numbers))
            for places in choices(len(group.attributes)):
                own = tuple(group.attributes[place] for place in places)
                self._use((number, places, NOBODY), own, tuple(sorted(own)), group.weight)
                others = _others(own, group.attributes, wider)
                outsiders[number, places] = others
                for other in others:
                    block = tuple(sorted((*own, other)))
                    self._use((number, places, other), own, block, group.weight)
        self.sources = list(numbers)
        self.roots = [source.root() for source in self.sources]
        # Where swapping its two attributes, of one role, leaves every row as it is.
        self.tied = [
            len(source.roles) == 2
            and len(set(source.roles)) == 1
            and unchanged_by_swap(root, source.sizes[0])
            for source, root in zip(self.sources, self.roots, strict=True)
        ]
        self.base: dict[Key, Array] = {}
        for number, source in enumerate(self.sources):
            uniform = [Measure(size) for size in source.sizes]
            for places in choices(len(source.sizes)):
                piece = project(self.roots[number], source.sizes, uniform, places)
                self.base[number, places, NOBODY] = piece
        self.moves = [
            move
            for number, source in enumerate(self.sources)
            for move in _moves(number, source, len(self.roots[number]), self.tied[number], outsiders)
        ]
        self._columns: list[slice] = []  # of every move within all moves of its source
        self._widths = [0] * len(self.sources)
        self._touching: dict[Key, list[tuple[slice, int, tuple[int, ...]]]] = {}
        for move in self.moves:
            number, cells = move.origin[0], move.shape[1]
            columns = slice(self._widths[number], self._widths[number] + cells)
            self._columns.append(columns)
            self._widths[number] += cells
            self._touching.setdefault(move.origin, []).append((columns, -move.taken, ()))
            for target, places in move.targets:
                self._touching.setdefault(target, []).append((columns, 0, places))

    def _use(self, key: Key, own: Attributes, block: Attributes, weight: float) -> None:
        uses = self.blocks.setdefault(block, {})
        at = (key, tuple(block.index(attribute) for attribute in own))
        uses[at] = uses.get(at, 0.0) + weight

    def canonical(self, key: Key) -> Key:
        """The piece that stands for this one where both halves of a symmetric table are split alike."""
        number, places, other = key
        return (number, (0,), other) if self.tied[number] and places == (1,) else key

    def uses(self, block: Attributes) -> tuple[Use, ...]:
        """What is asked of a block."""
        sums: dict[tuple[Key, tuple[int, ...]], float] = {}
        for (key, places), weight in sorted(self.blocks[block].items()):
            same = (self.canonical(key), places)
            sums[same] = sums.get(same, 0.0) + weight
        return tuple(Use(key, places, weight) for (key, places), weight in sums.items())

    def start(self) -> Array:
        """No moves: the uniform split."""
        shapes = zip(self.roots, self._widths, strict=True)
        return np.zeros(sum(len(root) * width for root, width in shapes))

    def by_source(self, moved: Array) -> list[Array]:
        """The moves of each source side by side, one row for each of its own: (rows, cells of its moves)."""
        lengths = [len(root) * width for root, width in zip(self.roots, self._widths, strict=True)]
        parts = np.split(moved, np.cumsum(lengths)[:-1]) if lengths else []
        return [part.reshape(len(root), -1) for part, root in zip(parts, self.roots, strict=True)]

    def rows(self, moved: Array) -> dict[Key, Array]:
        """Rows of every piece after these moves."""
        rows = {key: piece.copy() for key, piece in self.base.items() if self.canonical(key) == key}
        own = self.by_source(moved)
        for move, columns in zip(self.moves, self._columns, strict=True):
            part = own[move.origin[0]][:, columns]
            rows[move.origin] -= move.taken * part
            for target, places in move.targets:
                sizes = [self.sources[target[0]].sizes[place] for place in target[1]]
                if target not in rows:
                    rows[target] = np.zeros((len(part), math.prod(sizes)))
                shape = [size if at in places else 1 for at, size in enumerate(sizes)]
                onto = rows[target].reshape(len(part), *sizes)
                onto += part.reshape(len(part), *shape)
        return rows

    def slopes(self, by_rows: Mapping[Key, Array]) -> Array:
        """Slope in the moves, from the slopes in the rows of the pieces."""
        found = [np.zeros((len(root), width)) for root, width in zip(self.roots, self._widths, strict=True)]
        for key, slope in by_rows.items():
            for columns, taken, places in self._touching.get(key, ()):
                found[key[0]][:, columns] += taken * slope if taken else self._gathered(slope, key, places)
        return np.concatenate([each.reshape(-1) for each in found]) if found else np.zeros(0)

    def bends(self, seen: Iterable[tuple[Key, Array]]) -> list[Array]:
        """For each source the second derivative in the moves of one row, the same for all its rows.

        `seen` has, for pieces, K where that in their rows is `K K'`.
        """
        found = [np.zeros((width, width)) for width in self._widths]
        for key, root in seen:
            pulled = np.zeros((self._widths[key[0]], root.shape[1]))
            for columns, taken, places in self._touching.get(key, ()):
                pulled[columns] += taken * root if taken else self._gathered(root.T, key, places).T
            found[key[0]] += pulled @ pulled.T
        return found

    def _gathered(self, slope: Array, target: Key, places: tuple[int, ...]) -> Array:
        """The slope in what is moved onto these places of a piece, from that in its rows."""
        sizes = self.sources[target[0]].sizes
        tensor = slope.reshape(len(slope), *(sizes[place] for place in target[1]))
        gone = tuple(1 + at for at in range(len(target[1])) if at not in places)
        return np.asarray(tensor.sum(axis=gone).reshape(len(slope), -1))


def _others(own: Attributes, table: Attributes, family: set[Attributes]) -> list[int]:
    """Attributes outside the table that make a block of the family together with its own."""
    return sorted(
        other
        for block in family
        if len(block) == len(own) + 1 and set(own) < set(block)
        for other in set(block) - set(own)
        if other not in table
    )


def _moves(
    number: int,
    source: Source,
    rows: int,
    tied: bool,
    outsiders: Mapping[tuple[int, tuple[int, ...]], Sequence[int]],
) -> Iterable[Move]:
    """Every move by one attribute."""
    for places in choices(len(source.sizes)):
        shape = (rows, int(np.prod([source.sizes[place] for place in places], dtype=np.int64)))
        origin: Key = (number, places, NOBODY)
        if tied and places == (1,):
            continue
        if tied and not places:
            yield Move(origin, 2, (((number, (0,), NOBODY), ()),), shape)
        elif tied and places == (0,):
            both: Key = (number, (0, 1), NOBODY)
            yield Move(origin, 1, ((both, (0,)), (both, (1,))), shape)
        else:
            for place in set(range(len(source.sizes))) - set(places):
                target = tuple(sorted((*places, place)))
                inside = tuple(target.index(each) for each in places)
                yield Move(origin, 1, (((number, target, NOBODY), inside),), shape)
        for other in outsiders[number, places]:
            yield Move(origin, 1, (((number, places, other), tuple(range(len(places)))),), shape)
