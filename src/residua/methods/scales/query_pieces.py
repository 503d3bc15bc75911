"""Attributes that a workload treats alike: exchanging two of one kind changes nothing that is asked.

Then the best plan may treat them alike as well (claim J-002): all marginals on at most 3 of 100 equal
attributes have 4 kinds of blocks, not 166,751.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from residua._limits import PIECE_CELLS, PIECE_ENTRIES, PIECE_QUERIES
from residua.answering.blocks import Layer
from residua.linalg.centring import VANISHING, Measure, project
from residua.linalg.matrices import distinct_rows, independent_rows, join
from residua.strategy.build import centred_span, product_span
from residua.workload import Explicit, Factor, Table, TableRun, Workload
from residua.workload.symmetry import attribute_orbits, representatives, row_orbits
from residua.workload.tables import splits

Integers = NDArray[np.int64]
Array = NDArray[np.float64]


def unweighted(work: Workload) -> Workload:
    """The same queries without weights of their own: caps and losses are about plain variances."""
    return Workload(work.schema, tuple(map(_unweighted, work.parts)))


def _unweighted(part: Table | TableRun) -> Table | TableRun:
    if not isinstance(part, Table) or all(factor.queries.weights is None for factor in part.factors):
        return part
    factors = tuple(
        Factor(factor.attributes, replace(factor.queries, row_weights=None))
        if isinstance(factor.queries, Explicit)
        else factor
        for factor in part.factors
    )
    return replace(part, factors=factors)


@dataclass(frozen=True, slots=True, eq=False)
class Orbits:
    """Blocks of one kind each, numbered: what has equally many attributes of every kind.

    `of` has the kind of every block of each layer, `many` how many blocks there are of a kind.
    """

    kinds: Integers
    of: tuple[Integers, ...]
    many: NDArray[np.float64]
    numbers: dict[tuple[int, ...], int]

    @classmethod
    def of_blocks(cls, work: Workload, marks: Sequence[object], layers: Sequence[Layer]) -> "Orbits":
        """The orbits of the blocks of these layers, for a workload with a mark for each part."""
        kinds = attribute_orbits(work.schema, work.parts, marks)
        numbers: dict[tuple[int, ...], int] = {}
        found = []
        for subsets in (layer.subsets for layer in layers):
            first, inverse = row_orbits(kinds, subsets)
            keys = [tuple(sorted(row)) for row in kinds[subsets[first]].tolist()]
            ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
            found.append(ids[inverse])
        many = np.bincount(np.concatenate(found), minlength=len(numbers)).astype(np.float64)
        return cls(kinds, tuple(found), many, numbers)

    def number(self, attributes: Sequence[int]) -> int:
        """Number of the kind of the block on these attributes."""
        return self.numbers[tuple(sorted(self.kinds[list(attributes)].tolist()))]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Where rows of a block come from: a table, and the places kept of each of its factors.

    `alive` says which of its queries have a piece here, `scale` is the square root of each one's cap.
    """

    group: Table
    kept: tuple[tuple[int, ...], ...]
    alive: NDArray[np.bool_]
    scale: Array

    @property
    def attributes(self) -> list[int]:
        """Attributes kept, in the order of the factors."""
        pairs = zip(self.group.factors, self.kept, strict=True)
        return [factor.attributes[place] for factor, places in pairs for place in places]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What all queries ask of one kind of block, in the order of kinds of attributes.

    The pieces are `rows @ root`, root with orthonormal rows; `owners` says whose weight each row has, and
    `shares` which part of it. `entries` say where the rows are from.
    """

    sizes: tuple[int, ...]
    rows: Array
    root: Array
    owners: Integers
    shares: Array
    entries: tuple[Entry, ...]

    def work(self) -> float:
        """Multiplications of a product with the Hessian."""
        rank, cells = self.root.shape
        return 2.0 * int(rank) ** 2 * (len(self.rows) + int(cells))


def total_work(blocks: Iterable[Block]) -> float:
    """Multiplications of a product with the Hessian of all blocks."""
    return sum(block.work() for block in blocks)


def affordable(work: Workload, orbits: Orbits) -> bool:
    """Whether no table has many queries or cells, nor all together, before anything is listed."""
    entries = 0
    for _, group in representatives(work.parts, orbits.kinds):
        shape = [work.schema.sizes[at] for at in group.attributes]
        if math.prod(shape) > PIECE_CELLS or group.count > PIECE_QUERIES or not group.listable:
            return False
        entries += group.count * math.prod(size + 1 for size in shape)
    return entries <= PIECE_ENTRIES


Blocks = dict[tuple[int, ...], Block]
"""Blocks by the kinds of their attributes, ascending."""


def gathered(
    work: Workload, caps: Sequence[float | Array], measures: Sequence[Measure], orbits: Orbits
) -> tuple[Blocks, int]:
    """What is asked of each kind of block; and how many weights the queries have."""
    found = _Gathered(work, measures, orbits)
    for part, group in representatives(work.parts, orbits.kinds):
        found.add(group, caps[part])
    return {key: found.block(key) for key in found.rows}, found.count


def blocks_of_kind(key: Sequence[int], kinds: Integers) -> float:
    """How many blocks there are on attributes of these kinds: every subset of the sort is one."""
    available = np.bincount(kinds[kinds >= 0])
    return float(math.prod(math.comb(int(available[kind]), many) for kind, many in Counter(key).items()))


class _Gathered:
    """The pieces of every query, kind of block by kind of block."""

    def __init__(self, work: Workload, measures: Sequence[Measure], orbits: Orbits) -> None:
        self.measures, self.orbits, self.sizes = measures, orbits, work.schema.sizes
        self.rows: dict[tuple[int, ...], list[tuple[Array, Integers, Array]]] = {}
        self.entries: dict[tuple[int, ...], list[Entry]] = {}
        self.count = 0

    def add(self, group: Table, cap: float | Array) -> None:
        """The pieces of one table of a kind."""
        owners, sizes = self._sorts(group)
        scale = np.sqrt(np.broadcast_to(np.asarray(cap, dtype=np.float64), (group.count,)))
        matrices = [factor.queries.matrix() for factor in group.factors]
        lengths = join([np.linalg.norm(matrix, axis=1)[:, None] for matrix in matrices])[:, 0]
        for kept, attributes in splits(group):
            whole = join(
                project(matrix, factor.queries.sizes, [self.measures[at] for at in factor.attributes], places)
                for matrix, factor, places in zip(matrices, group.factors, kept, strict=True)
            )
            alive = np.linalg.norm(whole, axis=1) > VANISHING * lengths
            if not alive.any():
                continue
            entry = Entry(group, kept, alive, scale)
            rows = in_order(whole, entry.attributes, self.sizes, self.orbits)
            key = tuple(sorted(self.orbits.kinds[list(attributes)].tolist()))
            self.entries.setdefault(key, []).append(entry)
            self.rows.setdefault(key, []).append(
                (rows[alive] / scale[alive, None], self.count + owners[alive], 1 / sizes[owners[alive]])
            )
        self.count += len(sizes)

    def _sorts(self, group: Table) -> tuple[Integers, Array]:
        """For each query which sort it is of, and the queries of each sort.

        Attributes of one kind change places freely, so queries that differ by that share one weight.
        """
        counts = [factor.queries.count for factor in group.factors]
        if not counts:
            return np.zeros(1, dtype=np.int64), np.ones(1)
        index = np.indices(counts).reshape(len(counts), -1).T  # (queries, factors)
        alike = [
            int(self.orbits.kinds[factor.attributes[0]]) if len(factor.attributes) == 1 else -1 - place
            for place, factor in enumerate(group.factors)
        ]
        for kind in set(alike):
            places = [place for place, other in enumerate(alike) if other == kind]
            index[:, places] = np.sort(index[:, places], axis=1)
        _, owners = distinct_rows(index.astype(np.int64))
        return owners, np.bincount(owners).astype(np.float64)

    def block(self, key: tuple[int, ...]) -> Block:
        """What is asked of the blocks on attributes of these kinds."""
        rows, owners, shares = (np.concatenate(column) for column in zip(*self.rows[key], strict=True))
        root = np.asarray(np.linalg.qr(independent_rows(rows).T)[0].T)
        entries = tuple(self.entries[key])
        axes = tuple(self.sizes[at] for at in _by_kind(entries[0].attributes, self.orbits))
        return Block(axes, rows @ root.T, root, owners, shares, entries)


def in_order(
    rows: NDArray[Any], attributes: Sequence[int], sizes: Sequence[int], orbits: Orbits
) -> NDArray[Any]:
    """Rows over the cells of these attributes as rows over those sorted by kind."""
    tensor = rows.reshape(len(rows), *(sizes[at] for at in attributes))
    places = [1 + list(attributes).index(at) for at in _by_kind(attributes, orbits)]
    return tensor.transpose(0, *places).reshape(len(rows), -1)


def out_of_order(rows: Array, attributes: Sequence[int], sizes: Sequence[int], orbits: Orbits) -> Array:
    """Rows over the cells of attributes sorted by kind as an array (rows, sizes in the order given)."""
    sorted_ = _by_kind(attributes, orbits)
    tensor = rows.reshape(len(rows), *(sizes[at] for at in sorted_))
    return tensor.transpose(0, *(1 + sorted_.index(at) for at in attributes))


def _by_kind(attributes: Sequence[int], orbits: Orbits) -> list[int]:
    return sorted(attributes, key=lambda at: (orbits.kinds[at], at))


def integer_rows(
    block: Block, measures: Sequence[Measure], sizes: Sequence[int], orbits: Orbits
) -> Integers | None:
    """Integer rows that span what is asked of a block, in the order of kinds; None if there are none."""
    found = []
    for entry in block.entries:
        spans = [
            centred_span(factor.queries, places, [measures[at] for at in factor.attributes])
            for factor, places in zip(entry.group.factors, entry.kept, strict=True)
        ]
        whole = product_span(spans)
        if whole is None:
            return None
        found.append(in_order(whole, entry.attributes, sizes, orbits))
    return np.concatenate(found)
