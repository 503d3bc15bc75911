"""What tables ask of every subset of their attributes, with the weights that split them open or given.

A table of factors asks of every subset of its attributes a Kronecker product of pieces of those factors
(claim D-003). `gather` keeps the sum as terms whose coefficients and pieces are functions of the weights, so
that their slopes can be followed (claim C-003); `decompose` works them out under one product measure.
"""

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from residua._arrays import Array, Integers, Subsets
from residua.linalg.grams import same_gram
from residua.linalg.matrices import Measure, distinct_rows, join, occurring, project, standing_rows
from residua.strategy.build import centred_span, integer_span, product_span
from residua.workload import Combined, Queries, Table, TableRun, Workload
from residua.workload.tables import choices, refuse_wide_tables, splits, without_totals
from residua.workload.union import refuse_wide

Attributes = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)

Placed = tuple[tuple[tuple[int, ...], int], ...]
"""Pieces of one Kronecker product: places in the block's attributes, and the number of the piece."""


@dataclass(frozen=True, slots=True)
class Source:
    """Queries on attributes of these roles; whatever asks them is split in the same way."""

    queries: tuple[Queries, ...]
    roles: tuple[int, ...]

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
class BlockTerms:
    """Terms of all blocks. `pieces` are (source, places kept); `composite` has the terms of other blocks."""

    sources: list[Source] = field(default_factory=list)
    pieces: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    additions: list[Additions] = field(default_factory=list)
    simple: list[Simple] = field(default_factory=list)
    composite: dict[Attributes, list[tuple[int, Placed]]] = field(default_factory=dict)
    terms: int = 0
    numbers: dict[object, int] = field(default_factory=dict)

    def number(self, key: Key, known: list[Key]) -> int:
        """Number of a source, or of a piece, among those that are known, of which it is one then."""
        number = self.numbers.setdefault(key, len(known))
        if number == len(known):
            known.append(key)
        return number


Run = tuple[Subsets, dict[int, Queries]]
"""Subsets of attributes, and the queries of each attribute."""

Entry = tuple[Subsets, Integers, Integers, float]
"""Attributes, their sources, the sources averaged over, and the weight, of one subset of a run of tables."""

Rows = dict[int, list[tuple[int, tuple[int, ...], float]]]
"""By the number of means taken: terms, the sources averaged over, and weights."""


def gather(
    parts: Iterable[Table | TableRun], roles: Sequence[int], touched: Iterable[Attributes] = ()
) -> BlockTerms:
    """The terms of all tables; blocks on `touched` attributes are kept as composite ones."""
    asked = BlockTerms()
    runs: dict[int, list[Entry]] = {}
    asked.composite = {attributes: [] for attributes in touched}
    joint: Rows = {}
    for part in parts:
        run = by_attribute(without_totals(part) if isinstance(part, Table) else part)
        if run is not None:
            _split_product(run, part.weight, roles, asked, runs)
        else:
            for group in part:
                _split_joint(group, roles, asked, joint)
    for others, rows in joint.items():
        terms, means, weights = zip(*rows, strict=True)
        own = np.array(means, dtype=np.int64).reshape(len(rows), others)
        asked.additions.append(Additions(np.array(terms, dtype=np.int64), own, np.array(weights)))
    for size in sorted(runs):
        _add_runs(asked, size, runs[size])
    return asked


def by_attribute(part: Table | TableRun) -> Run | None:
    """A part of one-attribute families as a run; None where a family looks at several."""
    if isinstance(part, TableRun):
        if part.joint is not None:
            return None
        return part.subsets, {at: part.queries_of(at) for at in part.attributes}
    if any(len(factor.attributes) > 1 for factor in part.factors):
        return None
    subsets = np.array([part.attributes], dtype=np.int32).reshape(1, -1)
    return subsets, {factor.attributes[0]: factor.queries for factor in part.factors}


def _split_product(
    run: Run, weight: float, roles: Sequence[int], asked: BlockTerms, runs: dict[int, list[Entry]]
) -> None:
    """Tables of one family an attribute: every subset of their places."""
    subsets, families = np.sort(run[0], axis=1), run[1]
    sources = np.zeros(len(roles), dtype=np.int64)
    for at, queries in sorted(families.items()):
        sources[at] = asked.number(Source((queries,), (roles[at],)), asked.sources)
    ways = subsets.shape[1]
    for kept in choices(ways):
        others = [place for place in range(ways) if place not in kept]
        entry = (subsets[:, kept], sources[subsets[:, kept]], sources[subsets[:, others]], weight)
        runs.setdefault(len(kept), []).append(entry)


def _split_joint(group: Table, roles: Sequence[int], asked: BlockTerms, joint: Rows) -> None:
    own = (
        Source((factor.queries,), tuple(roles[at] for at in factor.attributes)) for factor in group.factors
    )
    numbers = [asked.number(source, asked.sources) for source in own]
    for chosen, attributes in splits(group):
        placed, others = [], []
        for factor, kept, number in zip(group.factors, chosen, numbers, strict=True):
            if kept:
                places = tuple(attributes.index(factor.attributes[place]) for place in kept)
                placed.append((places, asked.number((number, kept), asked.pieces)))
            else:
                others.append(number)
        key = (attributes, tuple(sorted(placed)))
        term = asked.numbers.setdefault(key, asked.terms)
        if term == asked.terms:
            asked.composite.setdefault(attributes, []).append((term, key[1]))
            asked.terms += 1
        joint.setdefault(len(others), []).append((term, tuple(others), group.weight))


def _add_runs(asked: BlockTerms, size: int, entries: Sequence[Entry]) -> None:
    """Number the terms of one size, and sort them into simple and composite blocks."""
    subsets = np.concatenate([entry[0] for entry in entries]).astype(np.int64)
    sources = np.concatenate([entry[1] for entry in entries])
    base = int(sources.max(initial=0)) + 1
    first, term = distinct_rows(subsets * base + sources)
    subsets, sources = subsets[first], sources[first]
    block = distinct_rows(subsets)[1]
    ends = np.cumsum([len(entry[0]) for entry in entries])[:-1]
    for rows, (_, _, others, weight) in zip(np.split(term, ends), entries, strict=True):
        asked.additions.append(Additions(rows + asked.terms, others, np.full(len(rows), weight)))
    numbers = np.zeros(len(asked.sources), dtype=np.int64)
    for source in occurring(sources):
        numbers[source] = asked.number((source, (0,)), asked.pieces)
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


@dataclass(frozen=True, slots=True)
class Piece:
    """What a family asks of some of its attributes: means along the others, centred along those kept.

    Equal pieces have equal grams, whatever the attributes are called: they are solved once.
    """

    queries: Queries
    kept: tuple[int, ...]  # places in `queries.sizes`
    measures: tuple[Measure, ...]  # one a place
    tags: tuple[int, ...]  # one a place kept: different for attributes that are to be treated differently

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute kept."""
        return tuple(self.queries.sizes[place] for place in self.kept)

    @property
    def kept_measures(self) -> tuple[Measure, ...]:
        """Measure of each attribute kept."""
        return tuple(self.measures[place] for place in self.kept)

    def root(self) -> Array:
        """R with independent rows and `R'R` the weighted gram of the piece; no rows if it vanishes."""
        if isinstance(self.queries, Combined):
            return self.queries.centred_root(self.measures, self.kept)
        rows = self.queries.root()
        kept = project(rows, self.queries.sizes, self.measures, self.kept)
        return standing_rows(kept, np.linalg.norm(rows, axis=1))

    def rows(self) -> Array:
        """What each query of the family asks of the cells kept, weights aside."""
        return project(self.queries.matrix(), self.queries.sizes, self.measures, self.kept)

    def span(self) -> Integers | None:
        """Integer rows with the row space of the piece, or None."""
        return centred_span(self.queries, self.kept, self.measures)


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
    """Blocks on equally many attributes whose gram is one product of one-attribute pieces."""

    subsets: Subsets  # (blocks, size)
    pieces: Integers  # (blocks, size)
    coefficients: Array  # (blocks,)


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """A workload as blocks: `pieces` are numbered, `simple` holds the many, `mixed` the others."""

    pieces: tuple[Piece, ...]
    roots: tuple[Array, ...]  # of the pieces; one without rows belongs to no block
    simple: tuple[SimpleBlocks, ...]
    mixed: tuple[Block, ...]
    measures: tuple[Measure, ...]


def uniform(work: Workload) -> tuple[Measure, ...]:
    """The uniform measure on every attribute of the schema."""
    return tuple(Measure(size) for size in work.schema.sizes)


def decompose(
    work: Workload, measures: Sequence[Measure] | None = None, tags: Sequence[int] | None = None
) -> Decomposition:
    """The blocks of a workload under a product measure (uniform by default).

    Attributes with different `tags` (none by default) never share a piece, whatever is asked of them.
    """
    refuse_wide_tables(work.parts)
    measures = uniform(work) if measures is None else tuple(measures)
    tags = (0,) * len(measures) if tags is None else tuple(tags)
    marks = list(zip(measures, tags, strict=True))
    classes = {mark: number for number, mark in enumerate(dict.fromkeys(marks))}
    asked = gather(work.parts, [classes[mark] for mark in marks])
    return _Evaluated(asked, list(classes)).decomposition(measures)


class _Evaluated:
    """The terms worked out; `marks` has the measure and the tag of each class of attributes."""

    def __init__(self, asked: BlockTerms, marks: Sequence[tuple[Measure, int]]) -> None:
        self.asked, self.marks = asked, marks
        self.pieces: list[Piece] = []
        self.roots: list[Array] = []
        by_key: dict[bytes, list[int]] = {}
        self.numbers = np.array([self._number(*each, by_key) for each in asked.pieces], dtype=np.int64)
        means = np.array([np.sum(self._piece(at, ()).root() ** 2) for at in range(len(asked.sources))])
        added = [each.weights * means[each.others].prod(axis=1) for each in asked.additions]
        terms = np.concatenate([each.terms for each in asked.additions])
        # In one go, so that equal terms get the same sum to the last bit.
        self.coefficients: Array = np.bincount(
            terms, weights=np.concatenate(added), minlength=asked.terms
        ).astype(np.float64)

    def _piece(self, source: int, kept: tuple[int, ...]) -> Piece:
        (queries,), roles = self.asked.sources[source].queries, self.asked.sources[source].roles
        refuse_wide(queries)
        measures = tuple(self.marks[role][0] for role in roles)
        return Piece(queries, kept, measures, tuple(self.marks[roles[place]][1] for place in kept))

    def _number(self, source: int, kept: tuple[int, ...], by_key: dict[bytes, list[int]]) -> int:
        """Number of a piece; those with the same gram have one."""
        piece = self._piece(source, kept)
        root = piece.root()
        known = by_key.setdefault(_gram_key(piece, root), [])
        number = next((at for at in known if same_gram(self.roots[at], root)), len(self.pieces))
        if number == len(self.pieces):
            self.pieces.append(piece)
            self.roots.append(root)
            known.append(number)
        return number

    def decomposition(self, measures: tuple[Measure, ...]) -> Decomposition:
        """All blocks of which something is asked."""
        alive = np.array([len(root) > 0 for root in self.roots], dtype=bool)
        simple: dict[int, list[SimpleBlocks]] = {}
        for each in self.asked.simple:
            pieces, values = self.numbers[each.pieces], self.coefficients[each.terms]
            keep = alive[pieces].all(axis=1) & (values > 0)
            found = SimpleBlocks(each.subsets[keep].astype(np.int32), pieces[keep], values[keep])
            simple.setdefault(each.subsets.shape[1], []).append(found)
        mixed = []
        for attributes in sorted(self.asked.composite, key=lambda row: (len(row), row)):
            sums: dict[Placed, float] = {}
            for term, placed in self.asked.composite[attributes]:
                key = tuple((places, int(self.numbers[piece])) for places, piece in placed)
                if all(alive[piece] for _, piece in key):
                    sums[key] = sums.get(key, 0.0) + float(self.coefficients[term])
            terms = tuple(Term(value, key) for key, value in sorted(sums.items()) if value > 0)
            if len(terms) == 1 and all(len(places) == 1 for places, _ in terms[0].pieces):
                pieces = np.array([[piece for _, piece in sorted(terms[0].pieces)]], dtype=np.int64)
                subset, value = np.array([attributes], dtype=np.int32), np.array([terms[0].coefficient])
                simple.setdefault(len(attributes), []).append(SimpleBlocks(subset, pieces, value))
            elif terms:
                mixed.append(Block(attributes, terms))
        runs = [_joined(simple[size]) for size in sorted(simple)]
        kept = tuple(run for run in runs if len(run.subsets))
        return Decomposition(tuple(self.pieces), tuple(self.roots), kept, tuple(mixed), measures)


def _joined(runs: Sequence[SimpleBlocks]) -> SimpleBlocks:
    """Simple blocks of one size, in ascending order of subsets."""
    subsets = np.concatenate([run.subsets for run in runs])
    order = np.lexsort(subsets.T[::-1]) if subsets.shape[1] else np.arange(len(subsets))
    pieces = np.concatenate([run.pieces for run in runs])
    coefficients = np.concatenate([run.coefficients for run in runs])
    return SimpleBlocks(subsets[order], pieces[order], coefficients[order])


def _gram_key(piece: Piece, root: Array) -> bytes:
    """Equal for pieces whose grams agree to ten digits of the largest entry, and may be the same.

    Both halves of a symmetric joint family are; but what light queries ask can hide below ten digits. The
    measures must be equal to the last bit: a shape that is centred for one is biased for any other.
    """
    marks = (piece.kept_measures, piece.tags)
    if len(piece.sizes) > 1:
        return repr((marks, len(root))).encode() + hashlib.sha256(root.tobytes()).digest()
    gram = root.T @ root
    scale = float(np.abs(gram).max(initial=0.0))
    digits = np.round(gram / scale, 10) if scale > 0 else gram
    content = hashlib.sha256((digits + 0.0).tobytes()).digest()  # + 0.0 makes every zero a positive one
    return repr((marks, float(f"{scale:.10e}"))).encode() + content


def common_pieces(terms: Sequence[Placed]) -> tuple[Placed, tuple[int, ...], list[Placed]]:
    """Pieces that all terms of a block share, the other places, and the terms on those, counted anew.

    A block whose terms are `A_t (x) C` is `(sum of A_t) (x) C`, and its solution a product (claim S-008).
    """
    common = tuple(piece for piece in terms[0] if all(piece in other for other in terms[1:]))
    own = [[piece for piece in term if piece not in common] for term in terms]
    rest = tuple(sorted(place for places, _ in own[0] for place in places))
    others = [tuple((tuple(map(rest.index, places)), number) for places, number in each) for each in own]
    return common, rest, others


def signature(block: Block) -> tuple[tuple[tuple[float, Placed], ...], float]:
    """A key that blocks share whose grams agree up to scale (to ten digits), and the scale."""
    scale = max(term.coefficient for term in block.terms)
    return tuple((float(f"{term.coefficient / scale:.10e}"), term.pieces) for term in block.terms), scale
