"""Blocks of several terms: which are equal up to scale, their rows, what a solution says about each term."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Indices, Integers
from residua._limits import (
    FREE_ATTRIBUTES,
    FREE_CELLS,
    FREE_RANK,
    FREE_SHARED,
    HEAVY_STEP,
    SPLIT_CELLS,
    SPLIT_WORK,
    STEP_WORK,
)
from residua.decompose import Attributes, BlockTerms, Placed, common_pieces
from residua.linalg.matrices import join, spread, subsets_of
from residua.methods.splits.free import FreeTables, Key, Use
from residua.strategy.integers import independent_integers
from residua.workload import Table, TableRun, Workload

SQUARED = 1e-10  # of all squares, those of a row that stands out from their rounding


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Cells that no query tells apart: the `first` of each class, its `counts`, and the class of each cell.

    Only the sum of the weights of a class matters to a block's optimum (claim Q-012).
    """

    first: Indices  # (classes,)
    counts: Integers  # (classes,)
    whose: Indices  # (cells,)

    @classmethod
    def columns(cls, span: Integers) -> "Alike | None":
        """The classes of equal columns of independent rows, None where all are different."""
        if len(span) == span.shape[1]:
            return None
        _, first, whose, counts = np.unique(
            span, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        return None if len(first) == span.shape[1] else cls(first, counts, whose.reshape(-1))

    def gathered(self, weights: Array) -> Array:
        """Weights of the classes from those of the cells."""
        return np.asarray(np.bincount(self.whose, weights=weights), dtype=np.float64)

    def spread(self, values: Array) -> Array:
        """What each cell has of its class's, along the first axis."""
        shares = 1.0 / self.counts.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray((values * shares)[self.whose])


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Blocks on attributes of equal sizes with the same terms, up to their coefficients.

    `terms` is (blocks, terms), numbers of coefficients; `placed` the pieces of each term; `uses` what free
    tables ask of each block, with `weights` (blocks, uses) and `scales` (blocks,), the largest of them.
    `basis` has orthonormal rows that span all that free tables and others can ask, `span` the same in whole
    numbers; both are empty where there are no free tables, and there no cells are `alike`. `typical` is the
    length of a typical query. A `large` pattern is not solved at every step.
    """

    key: int
    sizes: tuple[int, ...]
    blocks: tuple[Attributes, ...]
    terms: Integers
    placed: tuple[Placed, ...]
    uses: tuple[Use, ...]
    weights: Array
    span: Integers
    basis: Array
    alike: Alike | None
    typical: float
    large: bool

    @property
    def scales(self) -> Array:
        """Largest weight of a free table in each block."""
        return np.asarray(self.weights.max(axis=1))

    @property
    def deficient(self) -> bool:
        """Whether free tables and others cannot ask for everything, so that the sum has edges (Q-005)."""
        return bool(self.uses) and len(self.basis) < self.basis.shape[1]

    def reduced(self) -> "tuple[tuple[int, ...], Pattern]":
        """Pieces that all terms share, and the pattern of what they are multiplied by."""
        if self.uses or len(self.placed) < 2:
            return (), self
        common, rest, others = common_pieces(self.placed)
        if not common or not rest:
            return (), self
        sizes = tuple(self.sizes[place] for place in rest)
        return tuple(piece for _, piece in common), replace(self, sizes=sizes, placed=tuple(others))

    @property
    def pieces(self) -> set[int]:
        """Numbers of the pieces in its terms."""
        return {piece for placed in self.placed for _, piece in placed}

    def distinct(self, shares: Array) -> Iterator[list[int]]:
        """Blocks whose grams agree up to scale, to nine digits."""
        whole = np.concatenate([shares, self.weights / self.scales[:, None]], axis=1) if self.uses else shares
        found: dict[tuple[float, ...], list[int]] = {}
        for block, row in enumerate(whole.tolist()):
            found.setdefault(tuple(float(f"{each:.9e}") for each in row), []).append(block)
        yield from found.values()

    def rows_of(self, placed: Placed, rows: Mapping[int, Array]) -> Array:
        """Rows of one term over the block's cells."""
        product = join(rows[piece] for _, piece in placed)
        order = [place for places, _ in placed for place in places]
        return spread(product, [self.sizes[place] for place in order], order, self.sizes)

    def stack(
        self, shares: Array, uses: Array, rows: Mapping[int, Array], pieces: Mapping[Key, Array], fill: float
    ) -> Array:
        """Rows with the gram of a block, and of a little more where `fill` is positive.

        Over all cells, or over one of all that are alike.
        """
        parts = [
            math.sqrt(share) * self.rows_of(placed, rows)
            for share, placed in zip(shares, self.placed, strict=True)
        ]
        for use, weight in zip(self.uses, uses.tolist(), strict=True):
            own = [self.sizes[place] for place in use.places]
            parts.append(math.sqrt(weight) * spread(pieces[use.key], own, use.places, self.sizes))
        every = np.concatenate(parts)
        if not self.uses:
            return every
        whole = len(self.basis) == self.basis.shape[1]  # of all cells, which are a basis too
        triangle = _filled(every if whole else every @ self.basis.T, fill * self.typical)
        if self.alike is not None:
            return np.asarray(triangle @ self.basis[:, self.alike.first])
        return triangle if whole else np.asarray(triangle @ self.basis)

    def seen(
        self, half: Array, places: Sequence[int], others: Sequence[tuple[tuple[int, ...], Array]]
    ) -> Array:
        """K with `K K'` what M = H H' looks like from the places of one piece, given the others' rows.

        `K K' = sum over others of (rows (x) I) M (rows (x) I)'`, with ones along places that nobody covers.
        """
        if not others and tuple(places) == tuple(range(len(self.sizes))):
            return half
        tensor = half.reshape(*self.sizes, -1)
        axes = list(range(len(self.sizes)))  # the place that each leading axis stands for
        for covered, rows in others:
            matrix = rows.reshape(len(rows), *(self.sizes[place] for place in covered))
            where = [axes.index(place) for place in covered]
            tensor = np.moveaxis(
                np.tensordot(matrix, tensor, axes=(list(range(1, matrix.ndim)), where)), 0, -1
            )
            axes = [place for place in axes if place not in covered]
        left = tuple(at for at, place in enumerate(axes) if place not in places)
        tensor = tensor.sum(axis=left) if left else tensor
        axes = [place for place in axes if place in places]
        tensor = np.moveaxis(tensor, [axes.index(place) for place in places], range(len(places)))
        return np.asarray(tensor.reshape(math.prod(self.sizes[place] for place in places), -1))


def _filled(rows: Array, fill: float) -> Array:
    """A triangle with the gram of these rows and of `fill` times every unit row."""
    gram = rows.T @ rows
    gram[np.diag_indices(len(gram))] += fill**2
    with suppress(np.linalg.LinAlgError):
        triangle = np.linalg.cholesky(gram).T
        if float(np.diagonal(triangle).min()) ** 2 > SQUARED * float(np.trace(gram)):
            return np.asarray(triangle)
    return np.asarray(np.linalg.qr(np.concatenate([rows, fill * np.eye(len(gram))]), mode="r"))


def patterns(asked: BlockTerms, sizes: Sequence[int], free: FreeTables | None) -> list[Pattern]:
    """The composite blocks by pattern."""
    found: dict[object, list[tuple[Attributes, list[tuple[int, Placed]]]]] = {}
    for attributes, terms in sorted(asked.composite.items()):
        uses = free.uses(attributes) if free is not None and attributes in free.blocks else ()
        placed = tuple(each for _, each in terms)
        if placed or uses:
            cells = tuple(sizes[at] for at in attributes)
            key = (cells, placed, tuple((use.key, use.places) for use in uses))
            found.setdefault(key, []).append((attributes, terms))
    made = [_pattern(number, entries, sizes, free) for number, entries in enumerate(found.values())]
    spent = 0.0
    widths = [math.prod(each.reduced()[1].sizes) for each in made]
    for at in sorted(range(len(made)), key=lambda at: widths[at]):
        width = widths[at]
        spent += 0.0 if made[at].uses else float(width) ** 3
        if not made[at].uses and (width > SPLIT_CELLS or spent > SPLIT_WORK):
            made[at] = replace(made[at], large=True)
    return made


def _pattern(
    number: int,
    entries: list[tuple[Attributes, list[tuple[int, Placed]]]],
    sizes: Sequence[int],
    free: FreeTables | None,
) -> Pattern:
    blocks = tuple(attributes for attributes, _ in entries)
    first, terms = entries[0]
    cells = tuple(sizes[at] for at in first)
    placed = tuple(each for _, each in terms)
    numbers = np.array([[term for term, _ in each] for _, each in entries], dtype=np.int64)
    numbers = numbers.reshape(len(blocks), len(placed))
    uses: tuple[Use, ...] = ()
    weights = np.zeros((len(blocks), 0))
    span, basis, typical = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0)), 0.0
    alike = None
    if free is not None and first in free.blocks:
        uses = free.uses(first)
        weights = np.array([[use.weight for use in free.uses(block)] for block in blocks])
        span = _span(uses, placed, cells, free)
        whole = len(span) == span.shape[1]  # of all cells
        basis = np.eye(len(span)) if whole else np.linalg.qr(span.T.astype(np.float64))[0].T
        alike = Alike.columns(span)
        typical = max(
            float(np.linalg.norm(free.roots[use.key[0]])) / math.sqrt(len(free.roots[use.key[0]]))
            for use in uses
        )
    return Pattern(number, cells, blocks, numbers, placed, uses, weights, span, basis, alike, typical, False)


def _span(
    uses: Sequence[Use], placed: Sequence[Placed], sizes: tuple[int, ...], free: FreeTables
) -> Integers:
    """Independent integer rows for everything that a block can be asked, wherever the pieces move.

    All cells of every subset with one attribute less, and the queries that sit on the block itself as they
    are: a piece of a query, however it is centred, is the query less something on smaller subsets.
    """
    cells = math.prod(sizes)
    whole = np.eye(cells, dtype=np.int64)
    rows = []
    for place in range(len(sizes)):
        rest = [at for at in range(len(sizes)) if at != place]
        smaller = np.eye(math.prod(sizes[at] for at in rest))
        rows.append(spread(smaller, [sizes[at] for at in rest], rest, sizes).astype(np.int64))
    if len(sizes) == 2 and all(free.tied[use.key[0]] for use in uses):
        rows = [rows[0] + rows[1]]  # no piece tells the two attributes apart
    for use in uses:
        number, places, _ = use.key
        if len(use.places) == len(sizes):
            source = free.sources[number]
            if len(free.roots[number]) == cells:
                return whole
            queries = source.span() if len(places) == len(source.sizes) else None
            if queries is None:
                return whole
            own = spread(queries.astype(np.float64), [sizes[at] for at in use.places], use.places, sizes)
            rows.append(own.astype(np.int64))
    if placed or not rows:
        return whole
    every = np.concatenate(rows)
    rank = int(np.linalg.matrix_rank(every.astype(np.float64)))
    if rank == cells:
        return whole
    found = independent_integers(every, rank)
    return whole if found is None else found


Part = Table | TableRun


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Tables that are split freely, and the parts of the workload that are centred.

    With `beyond`, pieces may also sit on blocks of other tables.
    """

    free: tuple[Table, ...]
    centred: tuple[Part, ...]
    beyond: bool


def divide(work: Workload) -> Division:
    """The division of a workload; without joint families nothing is free."""
    listed = [(at, group) for at, part in enumerate(work.parts) for group in _groups(part)]
    joint = [group for _, group in listed if is_joint(group)]
    widest = max((_ways(part) for part in work.parts), default=0)
    light = [group for _, group in listed if is_joint(group) or _rank(group) <= FREE_RANK]
    beyond = bool(joint) and len(work.attributes) <= FREE_ATTRIBUTES and _fits(light, work, widest)
    chosen = light if beyond else _with_singles(_lightest(joint, widest), listed)
    taken = {id(group) for group in chosen}
    parts: list[Part] = []
    for at, part in enumerate(work.parts):
        own = [group for number, group in listed if number == at]
        rest = [group for group in own if id(group) not in taken]
        parts += [part] if len(rest) == len(own) else rest
    return Division(tuple(chosen), tuple(parts), beyond)


def _with_singles(joint: list[Table], listed: Iterable[tuple[int, Table]]) -> list[Table]:
    """These tables, and those on one of their attributes alone, which weights split no better (Q-011)."""
    touched = {attribute for group in joint for attribute in group.attributes}
    return joint + [
        group for _, group in listed if len(group.attributes) == 1 and group.attributes[0] in touched
    ]


def is_joint(part: Part) -> bool:
    """Whether a table, or a run of tables, has a family on several attributes."""
    if isinstance(part, TableRun):
        return part.joint is not None
    return any(len(factor.attributes) > 1 for factor in part.factors)


def family_of(groups: Iterable[Table]) -> set[Attributes]:
    """Every subset of the attributes of a table."""
    return {block for group in groups for block in subsets_of(sorted(group.attributes))}


def _groups(part: Part) -> list[Table]:
    """The tables of a part, where it has joint families or is small."""
    if isinstance(part, Table):
        return [part]
    listed = part.joint is not None or part.ways == 1 or len(part) <= 2**FREE_ATTRIBUTES
    return list(part) if listed else []


def _ways(part: Part) -> int:
    """Number of attributes of the tables of a part, none if they have joint families."""
    if is_joint(part):
        return 0
    return part.ways if isinstance(part, TableRun) else len(part.attributes)


def _cells(group: Table) -> int:
    return math.prod(factor.queries.cells for factor in group.factors)


def _rank(group: Table) -> int:
    return math.prod(min(factor.queries.count, factor.queries.cells) for factor in group.factors)


def _effort(group: Table, widest: int) -> float:
    """`rank^2 * cells` of the block of a table: all its cells, where product tables may reach them too."""
    cells = _cells(group)
    if len(group.attributes) <= widest:
        return float(cells) ** 3
    sizes = [size for factor in group.factors for size in factor.queries.sizes]
    return float(min(cells, _rank(group) + sum(cells // size for size in sizes))) ** 2 * cells


def _work(groups: Iterable[Table], widest: int) -> float:
    """Work of one step: every distinct table once."""
    distinct = {tuple(factor.queries for factor in group.factors): group for group in groups}
    return math.fsum(_effort(group, widest) for group in distinct.values())


def _shared(blocks: Iterable[Attributes], sizes: Mapping[int, int]) -> int:
    """Dimensions of the residuals on these blocks."""
    return sum(math.prod(sizes[at] - 1 for at in block) for block in blocks)


def _fits(groups: Sequence[Table], work: Workload, widest: int) -> bool:
    """Whether all these tables can be split freely over all blocks."""
    family = family_of(work.groups())
    inner = [block for block in family if any(set(block) < set(other) for other in family)]
    # Pieces may also sit on the blocks of tables that stay centred, which then are solved at every step.
    centred = [_cells(group) for group in work.groups() if group not in groups]
    return (
        max([*centred, *map(_cells, groups)]) <= FREE_CELLS
        and _work(groups, widest) + sum(float(cells) ** 3 for cells in centred) <= HEAVY_STEP
        and _shared(inner, dict(enumerate(work.schema.sizes))) <= FREE_SHARED
    )


def _lightest(joint: Sequence[Table], widest: int) -> list[Table]:
    """Tables with joint families, lightest first, as long as a step stays affordable."""
    by_queries: dict[object, list[Table]] = {}
    for group in joint:
        by_queries.setdefault(tuple(factor.queries for factor in group.factors), []).append(group)
    spent = 0.0
    chosen: list[Table] = []
    sizes: dict[int, int] = {}
    inner: set[Attributes] = set()
    for same in sorted(by_queries.values(), key=lambda groups: _work(groups, widest)):
        for group in same:
            for factor in group.factors:
                sizes.update(zip(factor.attributes, factor.queries.sizes, strict=True))
        more = inner | {block for block in family_of(same) if len(block) < len(same[0].attributes)}
        heavy = spent + _work(same, widest) > STEP_WORK or _cells(same[0]) > FREE_CELLS
        if not heavy and _shared(more, sizes) <= FREE_SHARED:
            chosen += same
            inner = more
            spent += _work(same, widest)
    return chosen
