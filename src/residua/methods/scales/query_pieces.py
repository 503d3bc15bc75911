"""What the queries of a workload ask of each orbit of blocks, row by row (see `workload.symmetry`)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import AnyArray, Array, Flags, Integers
from residua._limits import PIECE_CELLS, PIECE_ENTRIES, PIECE_QUERIES
from residua.answering.blocks import Layer
from residua.decompose import Piece
from residua.linalg.matrices import VANISHING, Measure, distinct_rows, independent_rows, join
from residua.methods.centring import on_attributes
from residua.methods.draft import Caps
from residua.strategy.build import product_span
from residua.workload import Explicit, Factor, Table, Workload
from residua.workload.symmetry import attribute_orbits, representatives, row_orbits
from residua.workload.tables import splits


def unweighted(work: Workload) -> Workload:
    """The same queries without weights of their own: caps and losses are about plain variances."""

    def plain(factor: Factor) -> Factor:
        queries = factor.queries
        if not isinstance(queries, Explicit) or queries.weights is None:
            return factor
        return Factor(factor.attributes, replace(queries, weights=None))

    parts = work.parts
    own = (replace(p, factors=tuple(map(plain, p.factors))) if isinstance(p, Table) else p for p in parts)
    return Workload(work.schema, tuple(own))


@dataclass(frozen=True, slots=True, eq=False)
class Orbits:
    """Orbits of blocks, numbered: what has equally many attributes of every orbit of attributes.

    `attributes` has the orbit of each attribute, `of` that of every block of each layer, `many` the number of
    blocks of each; `numbers` are by the orbits of their attributes, ascending.
    """

    attributes: Integers
    of: tuple[Integers, ...]
    many: Array
    numbers: dict[tuple[int, ...], int]

    @classmethod
    def of_blocks(cls, work: Workload, marks: Sequence[object], layers: Sequence[Layer]) -> "Orbits":
        """The orbits of the blocks of these layers, for a workload with a mark for each part."""
        own = attribute_orbits(work.schema, work.parts, marks)
        numbers: dict[tuple[int, ...], int] = {}
        found = []
        for subsets in (layer.subsets for layer in layers):
            first, inverse = row_orbits(own, subsets)
            keys = [tuple(sorted(row)) for row in own[subsets[first]].tolist()]
            ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
            found.append(ids[inverse])
        many = np.bincount(np.concatenate(found), minlength=len(numbers)).astype(np.float64)
        return cls(own, tuple(found), many, numbers)

    def key(self, attributes: Sequence[int]) -> tuple[int, ...]:
        """The orbits of these attributes, ascending."""
        return tuple(sorted(self.attributes[list(attributes)].tolist()))

    def size(self, key: Sequence[int]) -> float:
        """How many blocks there are on attributes of these orbits: every such subset is one."""
        members = np.bincount(self.attributes[self.attributes >= 0])
        return float(math.prod(math.comb(int(members[own]), many) for own, many in Counter(key).items()))

    def order(self, attributes: Sequence[int]) -> list[int]:
        """Places of attributes in the order of their orbits."""
        own = self.attributes[list(attributes)]
        return [int(place) for place in np.lexsort([list(attributes), own.tolist()])]

    def in_order(self, rows: AnyArray, entry: "Entry") -> AnyArray:
        """Rows over the cells of an entry's attributes as rows over those in the order of their orbits."""
        sizes = [size for piece in entry.pieces for size in piece.sizes]
        return permuted(rows, sizes, self.order(entry.attributes))


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Where rows of a block come from: a piece of each factor of a table, on these attributes, in that order.

    `alive` says which of its queries have a piece here, `scale` is the square root of each one's cap.
    """

    table: Table
    pieces: tuple[Piece, ...]
    attributes: tuple[int, ...]
    alive: Flags
    scale: Array


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What all queries ask of one orbit of blocks, attributes in the order of their orbits.

    The pieces are `rows @ root`, root with orthonormal rows; `owners` says whose weight each row has, and
    `shares` which part of it. `entries` say where the rows are from.
    """

    sizes: tuple[int, ...]
    rows: Array
    root: Array
    owners: Integers
    shares: Array
    entries: tuple[Entry, ...]

    def integer_rows(self, orbits: Orbits) -> Integers | None:
        """Integer rows that span what is asked; None if there are none."""
        spans = [(entry, product_span([piece.span() for piece in entry.pieces])) for entry in self.entries]
        rows = [orbits.in_order(span, entry) for entry, span in spans if span is not None]
        return np.concatenate(rows) if len(rows) == len(spans) else None


def total_work(blocks: Iterable[Block]) -> float:
    """Multiplications of a product with the Hessian of all blocks."""
    return sum(2.0 * len(each.root) ** 2 * (len(each.rows) + int(each.root.shape[1])) for each in blocks)


Key = tuple[int, ...]
"""The orbits of a block's attributes, ascending."""


@dataclass(frozen=True, slots=True, eq=False)
class Capped:
    """A workload with a cap for each part, and what is symmetric in both."""

    work: Workload
    caps: Caps
    orbits: Orbits

    def representatives(self) -> Iterator[tuple[float | Array, Table]]:
        """One table of each orbit within each part, with its cap."""
        found = representatives(self.work.parts, self.orbits.attributes)
        return ((self.caps[part], table) for part, table in found)

    def on_attributes(self, chosen: Mapping[int, Measure]) -> tuple[Measure, ...]:
        """The measure of every attribute, by its orbit."""
        return on_attributes(chosen, self.orbits.attributes.tolist(), self.work.schema.sizes)

    def affordable(self) -> bool:
        """Whether no table has many queries or cells, nor all together, before anything is listed."""
        entries = 0
        for _, table in self.representatives():
            shape = [self.work.schema.sizes[at] for at in table.attributes]
            if math.prod(shape) > PIECE_CELLS or table.count > PIECE_QUERIES or not table.listable:
                return False
            entries += table.count * math.prod(size + 1 for size in shape)
        return entries <= PIECE_ENTRIES

    def gathered(self, measures: Sequence[Measure]) -> tuple[dict[Key, Block], int]:
        """What is asked of each orbit of blocks; and how many weights the queries have."""
        orbits, count = self.orbits, 0
        found: dict[Key, list[tuple[Entry, Array, Integers, Array]]] = {}
        for cap, table in self.representatives():
            owners, sizes = _query_orbits(table, orbits)
            scale = np.sqrt(np.broadcast_to(np.asarray(cap, dtype=np.float64), (table.count,)))
            lengths = [np.linalg.norm(factor.queries.matrix(), axis=1)[:, None] for factor in table.factors]
            least = VANISHING * join(lengths)[:, 0]
            for attributes, pieces in _pieces_of(table, measures):
                whole = join(piece.rows() for piece in pieces)
                alive = np.linalg.norm(whole, axis=1) > least
                if alive.any():
                    entry = Entry(table, pieces, attributes, alive, scale)
                    rows = orbits.in_order(whole, entry)[alive] / scale[alive, None]
                    own, several = owners[alive], found.setdefault(orbits.key(attributes), [])
                    several.append((entry, rows, count + own, 1 / sizes[own]))
            count += len(sizes)
        return {key: _block(entries, orbits) for key, entries in found.items()}, count


def _pieces_of(table: Table, measures: Sequence[Measure]) -> Iterator[tuple[Key, tuple[Piece, ...]]]:
    """For every subset of a table's attributes a piece of each factor; attributes in the factors' order."""
    for kept, _ in splits(table):
        pairs = list(zip(table.factors, kept, strict=True))
        pieces = (Piece(f.queries, own, tuple(measures[at] for at in f.attributes), ()) for f, own in pairs)
        yield tuple(f.attributes[place] for f, own in pairs for place in own), tuple(pieces)


def _block(found: Sequence[tuple[Entry, Array, Integers, Array]], orbits: Orbits) -> Block:
    entries = tuple(entry for entry, *_ in found)
    rows, owners, shares = (np.concatenate(column) for column in list(zip(*found, strict=True))[1:])
    root = np.asarray(np.linalg.qr(independent_rows(rows).T)[0].T)
    first = entries[0]
    sizes = [size for piece in first.pieces for size in piece.sizes]
    axes = tuple(sizes[place] for place in orbits.order(first.attributes))
    return Block(axes, rows @ root.T, root, owners, shares, entries)


def _query_orbits(table: Table, orbits: Orbits) -> tuple[Integers, Array]:
    """For each query the number of its orbit, and the queries of each: those that differ by an exchange of
    symmetric attributes share one weight.
    """
    counts = [factor.queries.count for factor in table.factors]
    if not counts:
        return np.zeros(1, dtype=np.int64), np.ones(1)
    index = np.indices(counts).reshape(len(counts), -1).T  # (queries, factors)
    alone = [len(factor.attributes) == 1 for factor in table.factors]
    own = [int(orbits.attributes[factor.attributes[0]]) for factor in table.factors]
    for orbit in set(own):
        places = [at for at, other in enumerate(own) if other == orbit and alone[at]]
        index[:, places] = np.sort(index[:, places], axis=1)
    _, owners = distinct_rows(index.astype(np.int64))
    return owners, np.bincount(owners).astype(np.float64)


def permuted(rows: AnyArray, sizes: Sequence[int], order: Sequence[int]) -> AnyArray:
    """Rows over the cells of axes of these sizes as rows over the cells of the axes in another order."""
    tensor = rows.reshape(len(rows), *sizes).transpose(0, *(1 + place for place in order))
    return tensor.reshape(len(rows), -1)
