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
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure, project, standing_rows
from residua.linalg.keys import distinct_rows
from residua.workload import Combined, Factor, Group, Queries, Tables, Workload
from residua.workload.groups import choices, splits, without_totals
from residua.workload.joint import refuse_wide
from residua.workload.tables import refuse_wide_tables

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]
Integers = NDArray[np.int64]

Placed = tuple[tuple[tuple[int, ...], int], ...]
"""Pieces of one Kronecker product: places in the block's attributes, and the number of the piece."""

Mixed = dict[tuple[int, ...], dict[Placed, float]]

SAME = 1e-9  # relative difference of grams that is rounding


@dataclass(frozen=True, slots=True)
class Piece:
    """What a family asks of some of its attributes: means along the others, centred along those kept.

    `kept` are places in `queries.sizes`; `measures` has one entry per place; `tags` has one per place kept,
    and keeps apart attributes that are to be treated differently. Equal pieces have equal grams, whatever
    the attributes are called: they are solved once.
    """

    queries: Queries
    kept: tuple[int, ...]
    measures: tuple[Measure, ...]
    tags: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute kept."""
        return tuple(self.queries.sizes[place] for place in self.kept)

    @property
    def kept_measures(self) -> tuple[Measure, ...]:
        """Measure of each attribute kept."""
        return tuple(self.measures[place] for place in self.kept)

    def project(self, rows: Array) -> Array:
        """Rows over all cells of the family as rows over the cells kept, shape (k, product of sizes)."""
        return project(rows, self.queries.sizes, self.measures, self.kept)

    def root(self) -> Array:
        """R with independent rows and `R'R` the weighted gram of the piece; no rows if it vanishes."""
        if isinstance(self.queries, Combined):
            return self.queries.centred_root(self.measures, self.kept)
        rows = self.queries.root()
        return standing_rows(self.project(rows), np.linalg.norm(rows, axis=1))

    def size(self) -> float:
        """Trace of the gram; for nothing kept, the sum of the squared means."""
        return float(np.sum(self.root() ** 2))


@dataclass(frozen=True, slots=True)
class Term:
    """One Kronecker product in a block's gram: a coefficient and pieces on places of the block."""

    coefficient: float
    pieces: Placed


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
    tags: tuple[int, ...]
    numbers: dict[Piece, int] = field(default_factory=dict)
    grams: dict[bytes, list[int]] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    roots: list[Array] = field(default_factory=list)
    means: dict[Piece, float] = field(default_factory=dict)

    def number(self, factor: Factor, kept: tuple[int, ...]) -> int:
        """Number of the piece of a factor that keeps these places."""
        piece = self._piece(factor, kept)
        if piece not in self.numbers:
            refuse_wide(factor.queries)
            root = piece.root()
            alike = self.grams.setdefault(_gram_key(piece, root), [])
            number = next((at for at in alike if _same_gram(self.roots[at], root)), len(self.pieces))
            if number == len(self.pieces):
                self.pieces.append(piece)
                self.roots.append(root)
                alike.append(number)
            self.numbers[piece] = number
        return self.numbers[piece]

    def mean(self, factor: Factor) -> float:
        """Sum over the factor's queries of weight times squared mean."""
        piece = self._piece(factor, ())
        if piece not in self.means:
            refuse_wide(factor.queries)
            self.means[piece] = piece.size()
        return self.means[piece]

    def _piece(self, factor: Factor, kept: tuple[int, ...]) -> Piece:
        measures = tuple(self.measures[at] for at in factor.attributes)
        return Piece(
            factor.queries, kept, measures, tuple(self.tags[factor.attributes[place]] for place in kept)
        )


def _gram_key(piece: Piece, root: Array) -> bytes:
    """Equal for pieces whose grams agree to ten digits of the largest entry, and may be the same.

    Both halves of a symmetric joint family are; but what light queries ask can hide below ten digits. The
    measures must be equal to the last bit: a shape that is centred for one is biased for any other.
    """
    alike = (tuple(piece.measures[place] for place in piece.kept), piece.tags)
    if len(piece.sizes) > 1:
        return repr((alike, len(root))).encode() + hashlib.sha256(root.tobytes()).digest()
    gram = root.T @ root
    scale = float(np.abs(gram).max(initial=0.0))
    digits = np.round(gram / scale, 10) if scale > 0 else gram
    content = hashlib.sha256((digits + 0.0).tobytes()).digest()  # + 0.0 makes every zero a positive one
    return repr((alike, float(f"{scale:.10e}"))).encode() + content


def _same_gram(one: Array, two: Array) -> bool:
    """Whether `R'R` of two roots agrees in every direction, light or heavy: `two = M one`, M orthogonal."""
    if np.array_equal(one, two):
        return True
    if one.shape != two.shape:
        return False
    basis, upper = np.linalg.qr(one.T)
    turn = np.linalg.solve(upper, (two @ basis).T).T  # one = upper' basis'
    lost = np.linalg.norm(two - turn @ one, axis=1) > SAME * np.linalg.norm(two, axis=1)
    return not lost.any() and bool(np.abs(turn.T @ turn - np.eye(len(turn))).max() < SAME)


def uniform(work: Workload) -> tuple[Measure, ...]:
    """The uniform measure on every attribute of the schema."""
    return tuple(Measure(size) for size in work.schema.sizes)


def decompose(
    work: Workload, measures: Sequence[Measure] | None = None, tags: Sequence[int] | None = None
) -> Decomposition:
    """The blocks of a workload under a product measure (uniform by default).

    Attributes with different `tags` (none by default) never share a piece, however alike they are.
    """
    refuse_wide_tables(work.parts)
    registry = _Registry(
        uniform(work) if measures is None else tuple(measures),
        (0,) * len(work.schema) if tags is None else tuple(tags),
    )
    rows: dict[int, list[tuple[Subsets, Integers, Array]]] = {}
    mixed: Mixed = {}
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
    factors = sorted(without_totals(group).factors, key=lambda factor: factor.attributes)
    subsets = np.array([[factor.attributes[0] for factor in factors]], dtype=np.int32).reshape(1, -1)
    pieces = np.array([[registry.number(factor, (0,)) for factor in factors]], dtype=np.int64).reshape(1, -1)
    means = np.array([[registry.mean(factor) for factor in factors]]).reshape(1, -1)
    return Run(subsets, pieces, means, group.weight)


def _split_run(run: Run, rows: dict[int, list[tuple[Subsets, Integers, Array]]]) -> None:
    """Add each table's contribution to every subset of its attributes."""
    ways = run.subsets.shape[1]
    for chosen in choices(ways):
        others = [place for place in range(ways) if place not in chosen]
        values = run.weight * run.means[:, others].prod(axis=1)
        rows.setdefault(len(chosen), []).append((run.subsets[:, chosen], run.pieces[:, chosen], values))


def _split_group(
    group: Group,
    registry: _Registry,
    mixed: Mixed,
) -> None:
    """Add one table with families on several attributes, whose pieces do not fit an array of numbers."""
    for chosen, attributes in splits(group):
        coefficient = group.weight
        parts: list[tuple[tuple[int, ...], int]] = []
        for factor, kept in zip(group.factors, chosen, strict=True):
            if kept:
                places = tuple(attributes.index(factor.attributes[place]) for place in kept)
                parts.append((places, registry.number(factor, kept)))
            else:
                coefficient *= registry.mean(factor)
        found = mixed.setdefault(attributes, {})
        key = tuple(sorted(parts))
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


def _take_out_shared(
    blocks: SimpleBlocks,
    mixed: Mixed,
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


def _blocks(mixed: Mixed, alive: Sequence[bool]) -> tuple[Block, ...]:
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


def signature(block: Block) -> tuple[tuple[tuple[float, Placed], ...], float]:
    """A key that blocks share whose grams agree up to scale (to ten digits), and the scale."""
    scale = max(term.coefficient for term in block.terms)
    return tuple((float(f"{term.coefficient / scale:.10e}"), term.pieces) for term in block.terms), scale
