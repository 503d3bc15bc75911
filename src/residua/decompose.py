"""Splitting a workload into blocks, one per subset of its attributes.

Choose for each attribute weights p on its cells that sum to 1 (uniform unless said otherwise). A query on
attributes A splits into one piece per subset A' of A: along an attribute outside A' it is replaced by its
mean under p, along one inside A' its mean is taken off. The pieces sum to the query, and pieces on
different subsets span independent spaces (claims D-001 and D-002). What all tables together ask of one
subset is a block: a sum of Kronecker products of pieces of families, with coefficients (D-003).

Nothing here is proportional to the number of queries, and most tables are handled as rows of arrays.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from residua.linalg.rows import independent_rows
from residua.workload import Factor, Group, Queries, Tables, Workload

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Integers = NDArray[np.int64]

VANISHING = 1e-12  # relative size below which a piece is what rounding leaves of zero


@dataclass(frozen=True, slots=True)
class Measure:
    """Weights on the cells of one attribute that sum to 1; `weights` None means uniform."""

    size: int
    weights: bytes | None = None

    @classmethod
    def of(cls, weights: Array) -> "Measure":
        """The measure with these weights."""
        return cls(len(weights), np.ascontiguousarray(weights, dtype=np.float64).tobytes())

    def vector(self) -> Array:
        """The weights, shape (size,)."""
        if self.weights is None:
            return np.full(self.size, 1.0 / self.size)
        return np.frombuffer(self.weights)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a family asks of some of its attributes: means along the others, centred along those kept.

    `kept` are places in `queries.sizes`; `measures` has one entry per place. Equal pieces have equal grams,
    whatever the attributes are called: they are solved once.
    """

    queries: Queries
    kept: tuple[int, ...]
    measures: tuple[Measure, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute kept."""
        return tuple(self.queries.sizes[place] for place in self.kept)

    def project(self, rows: Array) -> Array:
        """Rows over all cells of the family as rows over the cells kept, shape (k, product of sizes)."""
        tensor = rows.reshape(len(rows), *self.queries.sizes)
        for place in reversed(range(len(self.measures))):
            weights = self.measures[place].vector()
            mean = np.tensordot(tensor, weights, axes=(1 + place, 0))
            tensor = tensor - np.expand_dims(mean, 1 + place) if place in self.kept else mean
        return np.asarray(tensor.reshape(len(rows), -1))

    def root(self) -> Array:
        """R with independent rows and `R'R` the weighted gram of the piece; no rows if it vanishes."""
        whole = self.queries.root()
        rows = self.project(whole)
        left = np.linalg.norm(rows, axis=1) > VANISHING * np.linalg.norm(whole, axis=1)
        return independent_rows(rows[left]) if left.any() else rows[:0]

    def size(self) -> float:
        """Trace of the gram; for nothing kept, the sum of the squared means."""
        return float(np.sum(self.project(self.queries.root()) ** 2))


@dataclass(frozen=True, slots=True)
class Term:
    """One Kronecker product in a block's gram: a coefficient and pieces on places of the block."""

    coefficient: float
    pieces: tuple[tuple[tuple[int, ...], int], ...]  # (places in the block's attributes, piece number)


@dataclass(frozen=True, slots=True)
class Block:
    """What the workload asks of one subset of attributes (ascending): a sum of Kronecker products."""

    attributes: tuple[int, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SimpleBlocks:
    """Blocks on equally many attributes whose gram is one product of one-attribute pieces.

    `subsets` and `pieces` are (blocks, size), `coefficients` is (blocks,).
    """

    subsets: Subsets
    pieces: Integers
    coefficients: Array


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """A workload as blocks: `pieces` are numbered, `simple` holds the many, `mixed` the others.

    `roots` are those of the pieces; one without rows belongs to no block.
    """

    pieces: tuple[Piece, ...]
    roots: tuple[Array, ...]
    simple: tuple[SimpleBlocks, ...]
    mixed: tuple[Block, ...]
    measures: tuple[Measure, ...]


@dataclass(slots=True)
class _Registry:
    """Numbers for distinct pieces, and what is known of each."""

    measures: tuple[Measure, ...]
    numbers: dict[Piece, int] = field(default_factory=dict)
    grams: dict[bytes, int] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    roots: list[Array] = field(default_factory=list)
    means: dict[Piece, float] = field(default_factory=dict)

    def number(self, factor: Factor, kept: tuple[int, ...]) -> int:
        """Number of the piece of a factor that keeps these places."""
        piece = self._piece(factor, kept)
        if piece not in self.numbers:
            root = piece.root()
            number = self.grams.setdefault(_gram_key(piece.sizes, root), len(self.pieces))
            if number == len(self.pieces):
                self.pieces.append(piece)
                self.roots.append(root)
            self.numbers[piece] = number
        return self.numbers[piece]

    def mean(self, factor: Factor) -> float:
        """Sum over the factor's queries of weight times squared mean."""
        piece = self._piece(factor, ())
        if piece not in self.means:
            self.means[piece] = piece.size()
        return self.means[piece]

    def _piece(self, factor: Factor, kept: tuple[int, ...]) -> Piece:
        return Piece(factor.queries, kept, tuple(self.measures[at] for at in factor.attributes))


def _gram_key(sizes: tuple[int, ...], root: Array) -> bytes:
    """Equal for pieces whose grams agree to ten digits, such as both halves of a symmetric joint family."""
    gram = root.T @ root
    scale = float(np.abs(gram).max(initial=0.0))
    digits = np.round(gram / scale, 10) if scale > 0 else gram
    content = hashlib.sha256((digits + 0.0).tobytes()).digest()  # + 0.0 makes every zero a positive one
    return repr((sizes, float(f"{scale:.10e}"))).encode() + content


def uniform(work: Workload) -> tuple[Measure, ...]:
    """The uniform measure on every attribute of the schema."""
    return tuple(Measure(size) for size in work.schema.sizes)


def decompose(work: Workload, measures: Sequence[Measure] | None = None) -> Decomposition:
    """The blocks of a workload under a product measure (uniform by default)."""
    registry = _Registry(uniform(work) if measures is None else tuple(measures))
    rows: dict[int, list[tuple[Subsets, Integers, Array]]] = {}
    mixed: dict[tuple[int, ...], dict[tuple[tuple[tuple[int, ...], int], ...], float]] = {}
    for part in work.parts:
        if isinstance(part, Tables) and part.joint is None:
            _split_run(_run_of_tables(part, registry), rows)
        elif isinstance(part, Group) and all(len(factor.attributes) == 1 for factor in part.factors):
            _split_run(_run_of_group(part, registry), rows)
        else:
            for group in part if isinstance(part, Tables) else (part,):
                _split_group(group, registry, mixed)
    alive = np.array([len(root) > 0 for root in registry.roots], dtype=bool)
    simple = []
    for size in sorted(rows):
        merged = _merge(*(np.concatenate(parts) for parts in zip(*rows[size], strict=True)))
        merged = _drop(merged, alive[merged.pieces].all(axis=1) & (merged.coefficients > 0))
        simple.append(_take_out_shared(merged, mixed))
    blocks = _blocks(mixed, alive.tolist())
    return Decomposition(
        tuple(registry.pieces),
        tuple(registry.roots),
        tuple(part for part in simple if len(part.subsets)),
        blocks,
        registry.measures,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Tables on equally many attributes with, for each of them, a piece number and the number of its mean.

    `subsets`, `pieces` and `means` are (tables, ways), each row of `subsets` ascending; `weight` is theirs.
    """

    subsets: Subsets
    pieces: Integers
    means: Array
    weight: float


def _run_of_tables(part: Tables, registry: _Registry) -> Run:
    pieces = np.zeros(len(part.schema), dtype=np.int64)
    means = np.zeros(len(part.schema))
    for at in part.attributes:
        factor = Factor((at,), part.queries_of(at))
        pieces[at], means[at] = registry.number(factor, (0,)), registry.mean(factor)
    subsets = np.sort(part.subsets, axis=1)
    return Run(subsets, pieces[subsets], means[subsets], part.weight)


def _run_of_group(group: Group, registry: _Registry) -> Run:
    factors = sorted(group.factors, key=lambda factor: factor.attributes)
    subsets = np.array([[factor.attributes[0] for factor in factors]], dtype=np.int32).reshape(1, -1)
    pieces = np.array([[registry.number(factor, (0,)) for factor in factors]], dtype=np.int64).reshape(1, -1)
    means = np.array([[registry.mean(factor) for factor in factors]]).reshape(1, -1)
    return Run(subsets, pieces, means, group.weight)


def _split_run(run: Run, rows: dict[int, list[tuple[Subsets, Integers, Array]]]) -> None:
    """Add each table's contribution to every subset of its attributes."""
    ways = run.subsets.shape[1]
    for size in range(ways + 1):
        for chosen in combinations(range(ways), size):
            others = [place for place in range(ways) if place not in chosen]
            values = run.weight * run.means[:, others].prod(axis=1)
            rows.setdefault(size, []).append((run.subsets[:, chosen], run.pieces[:, chosen], values))


def _split_group(
    group: Group,
    registry: _Registry,
    mixed: dict[tuple[int, ...], dict[tuple[tuple[tuple[int, ...], int], ...], float]],
) -> None:
    """Add one table with families on several attributes, whose pieces do not fit an array of numbers."""
    choices = [
        [
            kept
            for size in range(len(factor.attributes) + 1)
            for kept in combinations(range(len(factor.attributes)), size)
        ]
        for factor in group.factors
    ]
    for chosen in product(*choices):
        coefficient = group.weight
        parts: list[tuple[tuple[int, ...], int]] = []
        for factor, kept in zip(group.factors, chosen, strict=True):
            if not kept:
                coefficient *= registry.mean(factor)
            else:
                parts.append(
                    (tuple(factor.attributes[place] for place in kept), registry.number(factor, kept))
                )
        attributes = tuple(sorted(at for places, _ in parts for at in places))
        key = tuple(sorted((tuple(attributes.index(at) for at in places), piece) for places, piece in parts))
        found = mixed.setdefault(attributes, {})
        found[key] = found.get(key, 0.0) + coefficient


def _merge(subsets: Subsets, pieces: Integers, values: Array) -> SimpleBlocks:
    """Equal rows joined, their values summed; in ascending order of subsets."""
    size = subsets.shape[1]
    if size == 0:
        return SimpleBlocks(subsets[:1], pieces[:1], np.array([math.fsum(values.tolist())]))
    codes = subsets.astype(np.int64) * (int(pieces.max()) + 1) + pieces
    first, inverse = distinct_rows(codes)
    sums = np.bincount(inverse, weights=values, minlength=len(first)).astype(np.float64)
    return SimpleBlocks(subsets[first], pieces[first], sums)


def _drop(blocks: SimpleBlocks, keep: NDArray[np.bool_]) -> SimpleBlocks:
    return SimpleBlocks(blocks.subsets[keep], blocks.pieces[keep], blocks.coefficients[keep])


def distinct_rows(codes: Integers) -> tuple[Integers, Integers]:
    """Index of the first of each distinct row, rows ascending, and for each row the place of its like."""
    size = codes.shape[1]
    base = int(codes.max(initial=0)) + 1
    if base**size < 2**62:
        keys = codes @ np.array([base**place for place in range(size - 1, -1, -1)], dtype=np.int64)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.reshape(-1).astype(np.int64)


def _take_out_shared(
    blocks: SimpleBlocks,
    mixed: dict[tuple[int, ...], dict[tuple[tuple[tuple[int, ...], int], ...], float]],
) -> SimpleBlocks:
    """Blocks alone on their subset; those that share it with others move to `mixed`."""
    if not len(blocks.subsets):
        return blocks
    if blocks.subsets.shape[1] == 0:
        alone = np.array([() not in mixed])
    else:
        _, inverse = distinct_rows(blocks.subsets.astype(np.int64))
        alone = np.bincount(inverse)[inverse] == 1
        if mixed:
            size = blocks.subsets.shape[1]
            held = {attributes for attributes in mixed if len(attributes) == size}
            alone &= np.array([tuple(row) not in held for row in blocks.subsets.tolist()])
    for row in np.flatnonzero(~alone).tolist():
        attributes = tuple(blocks.subsets[row].tolist())
        key = tuple(((place,), piece) for place, piece in enumerate(blocks.pieces[row].tolist()))
        found = mixed.setdefault(attributes, {})
        found[key] = found.get(key, 0.0) + float(blocks.coefficients[row])
    return _drop(blocks, alone)


def _blocks(
    mixed: dict[tuple[int, ...], dict[tuple[tuple[tuple[int, ...], int], ...], float]], alive: Sequence[bool]
) -> tuple[Block, ...]:
    found = []
    for attributes in sorted(mixed, key=lambda row: (len(row), row)):
        terms = tuple(
            Term(coefficient, key)
            for key, coefficient in sorted(mixed[attributes].items())
            if coefficient > 0 and all(alive[piece] for _, piece in key)
        )
        if terms:
            found.append(Block(attributes, terms))
    return tuple(found)


def block_signatures(blocks: Iterable[Block]) -> Iterator[tuple[tuple[tuple[float, object], ...], float]]:
    """For each block a key that equal grams share up to scale, and the scale."""
    for block in blocks:
        scale = max(term.coefficient for term in block.terms)
        yield tuple((float(f"{term.coefficient / scale:.12e}"), term.pieces) for term in block.terms), scale
