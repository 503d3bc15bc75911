"""What tables ask of blocks, with the weights that split them still open.

A table of factors asks of every subset of its attributes a Kronecker product of pieces of those factors
(claim D-003). The sum is kept as terms whose
coefficients and pieces are functions of the weights, so that their slopes can be followed (claim C-003).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from residua.linalg.keys import distinct_rows
from residua.linalg.squares import join
from residua.strategy.spans import integer_span, product_span
from residua.workload import Queries, Table, TableRun
from residua.workload.groups import choices, splits, without_totals

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]
Attributes = tuple[int, ...]

Placed = tuple[tuple[tuple[int, ...], int], ...]
"""Pieces of one Kronecker product: places in the block's attributes, and the number of the piece."""


@dataclass(frozen=True, slots=True)
class Source:
    """Queries on attributes of these kinds; whatever asks them is split in the same way."""

    queries: tuple[Queries, ...]
    kinds: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each of its attributes."""
        return tuple(size for queries in self.queries for size in queries.sizes)

    def root(self) -> Array:
        """Rows over its cells with the gram of its queries, shape (rank, cells)."""
        return join(queries.root() for queries in self.queries)

    def span(self) -> Integers | None:
        """Integer rows with the row space of its queries, or None."""
        return product_span([integer_span(queries) for queries in self.queries])


@dataclass(frozen=True, slots=True, eq=False)
class Additions:
    """Rows that add up to coefficients: row r adds `weights[r] * prod means[others[r]]` to `terms[r]`."""

    terms: Integers
    others: Integers  # (rows, means taken)
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Simple:
    """Blocks of one term each: a product of one-attribute pieces; subsets and pieces are (blocks, size)."""

    subsets: Integers
    terms: Integers
    pieces: Integers


@dataclass(slots=True)
class Asked:
    """Terms of all blocks. `pieces` are (source, places kept); `composite` has the terms of other blocks."""

    sources: list[Source] = field(default_factory=list)
    pieces: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    additions: list[Additions] = field(default_factory=list)
    simple: list[Simple] = field(default_factory=list)
    composite: dict[Attributes, list[tuple[int, Placed]]] = field(default_factory=dict)
    terms: int = 0
    numbers: dict[object, int] = field(default_factory=dict)

    def source(self, source: Source) -> int:
        """Number of a source."""
        if source not in self.numbers:
            self.numbers[source] = len(self.sources)
            self.sources.append(source)
        return self.numbers[source]

    def piece(self, source: int, kept: tuple[int, ...]) -> int:
        """Number of the piece of a source that keeps these places."""
        if (source, kept) not in self.numbers:
            self.numbers[source, kept] = len(self.pieces)
            self.pieces.append((source, kept))
        return self.numbers[source, kept]


Entry = tuple[Subsets, Integers, Integers, float]
"""Attributes, their sources, the sources averaged over, and the weight, of one subset of a run of tables."""


def gather(
    parts: Iterable[Table | TableRun], kinds: Sequence[int], touched: Iterable[Attributes] = ()
) -> Asked:
    """The terms of all tables; blocks on `touched` attributes are kept as composite ones."""
    asked = Asked()
    runs: dict[int, list[Entry]] = {}
    asked.composite = {attributes: [] for attributes in touched}
    joint: dict[int, list[tuple[int, tuple[int, ...], float]]] = {}
    for part in parts:
        if isinstance(part, TableRun) and part.joint is None:
            _split_run(part, kinds, asked, runs)
        elif isinstance(part, Table) and all(len(factor.attributes) == 1 for factor in part.factors):
            _split_group(part, kinds, asked, runs)
        else:
            for group in part if isinstance(part, TableRun) else (part,):
                _split_joint(group, kinds, asked, joint)
    for others, rows in joint.items():
        terms = np.array([term for term, _, _ in rows], dtype=np.int64)
        means = np.array([row for _, row, _ in rows], dtype=np.int64).reshape(len(rows), others)
        asked.additions.append(Additions(terms, means, np.array([weight for _, _, weight in rows])))
    for size in sorted(runs):
        _add_runs(asked, size, runs[size])
    return asked


def _split_run(part: TableRun, kinds: Sequence[int], asked: Asked, runs: dict[int, list[Entry]]) -> None:
    sources = np.zeros(len(part.schema), dtype=np.int64)
    for at in part.attributes:
        sources[at] = asked.source(Source((part.queries_of(at),), (kinds[at],)))
    subsets = np.sort(part.subsets, axis=1)
    _split_rows(subsets, sources[subsets], part.weight, runs)


def _split_group(group: Table, kinds: Sequence[int], asked: Asked, runs: dict[int, list[Entry]]) -> None:
    factors = sorted(without_totals(group).factors, key=lambda factor: factor.attributes)
    subsets = np.array([[factor.attributes[0] for factor in factors]], dtype=np.int32).reshape(1, -1)
    numbers = [asked.source(Source((f.queries,), (kinds[f.attributes[0]],))) for f in factors]
    _split_rows(subsets, np.array([numbers], dtype=np.int64).reshape(1, -1), group.weight, runs)


def _split_rows(subsets: Subsets, sources: Integers, weight: float, runs: dict[int, list[Entry]]) -> None:
    ways = subsets.shape[1]
    for kept in choices(ways):
        others = [place for place in range(ways) if place not in kept]
        entry = (subsets[:, kept], sources[:, kept], sources[:, others], weight)
        runs.setdefault(len(kept), []).append(entry)


def _split_joint(
    group: Table,
    kinds: Sequence[int],
    asked: Asked,
    joint: dict[int, list[tuple[int, tuple[int, ...], float]]],
) -> None:
    numbers = [
        asked.source(Source((factor.queries,), tuple(kinds[at] for at in factor.attributes)))
        for factor in group.factors
    ]
    for chosen, attributes in splits(group):
        placed, others = [], []
        for factor, kept, number in zip(group.factors, chosen, numbers, strict=True):
            if kept:
                places = tuple(attributes.index(factor.attributes[place]) for place in kept)
                placed.append((places, asked.piece(number, kept)))
            else:
                others.append(number)
        key = (attributes, tuple(sorted(placed)))
        if key not in asked.numbers:
            asked.numbers[key] = asked.terms
            asked.composite.setdefault(attributes, []).append((asked.terms, key[1]))
            asked.terms += 1
        term = asked.numbers[key]
        joint.setdefault(len(others), []).append((term, tuple(others), group.weight))


def _add_runs(asked: Asked, size: int, entries: Sequence[Entry]) -> None:
    """Number the terms of one size, and sort them into simple and composite blocks."""
    subsets = np.concatenate([entry[0] for entry in entries]).astype(np.int64)
    sources = np.concatenate([entry[1] for entry in entries])
    if size:
        base = int(sources.max()) + 1
        first, term = distinct_rows(subsets * base + sources)
        subsets, sources = subsets[first], sources[first]
        block = distinct_rows(subsets)[1]
    else:
        subsets, sources = subsets[:1], sources[:1]
        term, block = np.zeros(sum(len(e[0]) for e in entries), dtype=np.int64), np.zeros(1, dtype=np.int64)
    ends = np.cumsum([len(entry[0]) for entry in entries])[:-1]
    for rows, (_, _, others, weight) in zip(np.split(term, ends), entries, strict=True):
        asked.additions.append(Additions(rows + asked.terms, others, np.full(len(rows), weight)))
    numbers = np.zeros(len(asked.sources), dtype=np.int64)
    for source in np.unique(sources).tolist():
        numbers[source] = asked.piece(source, (0,))
    pieces = numbers[sources]
    alone = np.bincount(block)[block] == 1
    keep = {attributes for attributes in asked.composite if len(attributes) == size}
    if keep:
        alone &= np.array([tuple(row) not in keep for row in subsets.tolist()])
    for at in np.flatnonzero(~alone).tolist():
        placed = tuple(((place,), piece) for place, piece in enumerate(pieces[at].tolist()))
        asked.composite.setdefault(tuple(subsets[at].tolist()), []).append((asked.terms + at, placed))
    if alone.any():
        asked.simple.append(Simple(subsets[alone], np.flatnonzero(alone) + asked.terms, pieces[alone]))
    asked.terms += len(subsets)
