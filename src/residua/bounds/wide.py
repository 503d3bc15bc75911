"""A bound for tables on several attributes under product weights, few coordinates kept (B-011 and B-012)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import WIDE_SUBSETS, WIDE_WAYS
from residua.bounds.alone import AttributeQueries
from residua.bounds.frames import Frame, Kept, few, joint_kept
from residua.bounds.leaves import EXCESS, Nodes, inverse_trace
from residua.errors import Infeasible
from residua.linalg.matrices import join, subsets_of, threads_for
from residua.solve.cells import UNIT_ROUNDOFF
from residua.workload import Factor, Identity, Queries, Table, Workload
from residua.workload.symmetry import attribute_orbits

Term = tuple[tuple[tuple[int, ...], Kept], ...]
"""The families of a table, each with its attributes, in kept coordinates."""

Terms = dict[Term, float]
"""Tables with their weights."""

NODES = 22  # points of the square root's sum, about
LOSSES = tuple(0.2 * 0.85**at for at in range(60))  # of one attribute that are tried, larger ones first
ROUNDING = 1e-9  # relative; more than rounding adds to sums of positive numbers


def wide_dual(work: Workload, asked: AttributeQueries, operations: float) -> float:
    """A lower bound at product weights that takes about so many operations (claim B-011).

    Infeasible where the tables have too many subsets of attributes.
    """
    tables = [table for table in work.groups() if len(table.attributes) <= WIDE_WAYS]  # the others add to it
    if not tables or sum(2 ** len(table.attributes) for table in tables) > WIDE_SUBSETS:
        raise Infeasible(f"{work.tables:,} tables have too many subsets of attributes for this bound")
    orbits = attribute_orbits(work.schema, work.parts, [part.weight for part in work.parts])
    frames = _frames(orbits, asked)
    with threads_for(0):
        counts = _affordable(tables, frames, operations)
        total = _Cut(tables, orbits, frames, counts).root()
    return (total * (1 - ROUNDING)) ** 2


def _frames(orbits: Integers, asked: AttributeQueries) -> dict[int, Frame]:
    """The coordinates of each attribute; those that may change places share them."""
    shared: dict[int, Frame] = {}
    for at in np.flatnonzero(orbits >= 0).tolist():
        if int(orbits[at]) not in shared:
            parts = {part: weight for part, weight in asked.of[at].items() if part is not None}
            if all(isinstance(part[0], Identity) for part in parts):
                parts = {}  # of any number of cells, which are all alike: the mean is by itself
            rows = [(part, few(asked.rows(at, part)), weight) for part, weight in parts.items()]
            alone = [(own, weight) for part, own, weight in rows if len(part[0].sizes) == 1]
            joint = [(own, weight) for part, own, weight in rows if len(part[0].sizes) > 1]
            shared[int(orbits[at])] = Frame(asked.weights(at), alone, joint)
    return {at: shared[int(orbits[at])] for at in np.flatnonzero(orbits >= 0).tolist()}


def _affordable(tables: Sequence[Table], frames: Mapping[int, Frame], operations: float) -> dict[int, int]:
    """For each attribute how many coordinates are kept: as many as these operations allow."""
    asked: dict[tuple[int, ...], set[frozenset[Factor]]] = {}
    for table in tables:
        asked.setdefault(tuple(sorted(table.attributes)), set()).add(frozenset(table.factors))
    shared = _inside(asked).union(own for own, each in asked.items() if len(each) > 1)
    chosen = dict.fromkeys(frames, 0)
    for loss in LOSSES:
        counts = {at: frame.count_for(loss) for at, frame in frames.items()}
        if _operations(shared, asked.keys() - shared, counts) > operations:
            break
        chosen = counts
    return chosen


def _operations(
    shared: Iterable[tuple[int, ...]], single: Iterable[tuple[int, ...]], counts: Mapping[int, int]
) -> float:
    """About what it takes to evaluate tables in kept coordinates: sets that they share, and of one each."""
    width = sum(math.prod(counts[at] for at in own) for own in shared)
    own = 0.0
    for each in single:
        rows = math.prod(1.0 + counts[at] for at in each)
        own += 4 * rows * (rows - math.prod(counts[at] for at in each)) ** 2
    return NODES * (8.0 * width**3 + own)


class _Cut:
    """Tables whose coordinates beyond those kept are cut off from the kept ones, and are then products."""

    def __init__(
        self,
        tables: Sequence[Table],
        orbits: Integers,
        frames: Mapping[int, Frame],
        counts: Mapping[int, int],
    ) -> None:
        self._tables, self._orbits, self._frames, self._counts = tables, orbits, frames, counts
        self._joint: dict[tuple[Queries, tuple[int, ...]], Kept] = {}
        self._known: dict[object, float] = {}

    def root(self) -> float:
        """The sum of the roots of the parts, one for each set of attributes that are beyond what is kept."""
        beyond: dict[frozenset[tuple[int, Queries]], Terms] = {}
        for table in self._tables:
            for outside, scale, term in self._parts(table):
                own = beyond.setdefault(outside, {})
                own[term] = own.get(term, 0.0) + scale * table.weight
        squares: dict[frozenset[int], float] = {}
        for outside, terms in beyond.items():
            key = frozenset(at for at, _ in outside)
            squares[key] = squares.get(key, 0.0) + self._value(outside, terms) ** 2
        return math.fsum(map(math.sqrt, squares.values()))

    def _value(self, outside: frozenset[tuple[int, Queries]], terms: Terms) -> float:
        """The root of the tables that ask these families beyond what is kept."""
        key = frozenset(Counter((int(self._orbits[at]), queries) for at, queries in outside).items())
        if key not in self._known:
            self._known[key] = root_trace(terms, self._counts)
        scale = math.prod(self._frames[at].kept(queries, self._counts[at]).beyond for at, queries in outside)
        return scale * self._known[key]

    def _parts(self, table: Table) -> Iterator[tuple[frozenset[tuple[int, Queries]], float, Term]]:
        """What a table asks beyond what is kept of some attributes and within it of the others."""
        kept = [(factor, self._of(factor)) for factor in table.factors]
        choices = [(False, True) if own.beyond > 0 else (False,) for _, own in kept]
        for chosen in product(*choices):
            outside = frozenset(
                (factor.attributes[0], factor.queries)
                for (factor, _), away in zip(kept, chosen, strict=True)
                if away
            )
            scale, inside = 1.0, []
            for (factor, own), away in zip(kept, chosen, strict=True):
                left = tuple(at for at in factor.attributes if self._counts[at])
                if not away and not left:
                    scale *= float(np.sum(own.rows**2))
                elif not away:
                    inside.append((left, own))
            yield outside, scale, tuple(sorted(inside, key=lambda each: each[0]))

    def _of(self, factor: Factor) -> Kept:
        if len(factor.attributes) == 1:
            (at,) = factor.attributes
            return self._frames[at].kept(factor.queries, self._counts[at])
        key = (factor.queries, factor.attributes)
        if key not in self._joint:
            frames = [self._frames[at] for at in factor.attributes]
            self._joint[key] = joint_kept(
                factor.queries, frames, [self._counts[at] for at in factor.attributes]
            )
        return self._joint[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """The only table on a set of attributes that no other table contains (see claim B-012)."""

    squares: Array
    shared: Array
    places: Integers


def root_trace(terms: Terms, counts: Mapping[int, int]) -> float:
    """The trace of the root of tables in kept coordinates, never more than it is (claim B-012)."""
    sets: dict[tuple[int, ...], list[Term]] = {}
    for term in terms:
        sets.setdefault(tuple(sorted(_attributes(term))), []).append(term)
    inside = _inside(sets)
    single = {own for own, asked in sets.items() if len(asked) == 1 and own not in inside}
    starts, width = {}, 0
    for own in sorted(inside.union(sets) - single):
        starts[own] = width
        width += math.prod(counts[at] for at in own)
    fixed, leaves = np.zeros((width, width)), []
    for own, asked in sets.items():
        for term in asked:
            places = _places(_attributes(term), counts, starts)
            if own in single:
                leaves.append(_leaf(term, terms[term], places))
            else:
                gram = join(kept.rows.T @ kept.rows for _, kept in term)
                fixed[np.ix_(places, places)] += terms[term] * gram
    return _trace(fixed, leaves)


def _attributes(term: Term) -> tuple[int, ...]:
    return tuple(at for own, _ in term for at in own)


def _inside(sets: Iterable[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Every set that is smaller than one of these and inside it."""
    return {own for each in sets for own in subsets_of(each) if len(own) < len(each)}


def _places(
    attributes: Sequence[int], counts: Mapping[int, int], starts: Mapping[tuple[int, ...], int]
) -> Integers:
    """Where the coordinates of a table are among all, row-major over its attributes; -1 where nowhere."""
    shape = [1 + counts[at] for at in attributes]
    found = np.full(shape, -1, dtype=np.int64)
    for chosen in product(*((False, True) for _ in attributes)):
        inside = [at for at, own in zip(attributes, chosen, strict=True) if own]
        key = tuple(sorted(inside))
        if key in starts:
            where = tuple(slice(1, None) if own else 0 for own in chosen)
            order = np.arange(math.prod(counts[at] for at in key)).reshape([counts[at] for at in key])
            found[where] = starts[key] + order.transpose([key.index(at) for at in inside])
    return found.reshape(-1)


def _leaf(term: Term, weight: float, places: Integers) -> _Leaf:
    squares = weight * join((kept.lengths**2)[None] for _, kept in term)[0]
    rows = math.sqrt(weight) * join(kept.rows for _, kept in term)
    shared = places >= 0
    return _Leaf(squares, rows[:, shared], places[shared])


def _trace(fixed: Array, leaves: Sequence[_Leaf]) -> float:
    squares = np.concatenate([np.zeros(0), *(leaf.squares for leaf in leaves)])
    if not len(fixed):
        return float(np.sqrt(squares).sum())
    top = float(np.trace(fixed)) + sum(float(np.sum(leaf.shared**2)) for leaf in leaves)
    top += float(squares.max(initial=0.0))
    if top <= 0:
        return 0.0
    about = np.diagonal(fixed).copy()
    for leaf in leaves:
        np.add.at(about, leaf.places, np.sum(leaf.shared**2, axis=0))
    values = np.concatenate([squares, about])
    total = Nodes.around(values, np.ones(len(values)), top).sum(lambda point: _at(point, fixed, leaves))
    error = 64 * UNIT_ROUNDOFF * (len(fixed) + len(squares)) * math.sqrt(top)
    return max(total / EXCESS - error, 0.0)


def _at(point: float, fixed: Array, leaves: Sequence[_Leaf]) -> float:
    """The trace of `A (A + s)^-1`, never more than it is: (b) and (c) of claim B-007."""
    once, twice, total = fixed.copy(), fixed.copy(), 0.0
    for leaf in leaves:
        over = leaf.squares + point
        damped = (point / over)[:, None] * leaf.shared
        grid = np.ix_(leaf.places, leaf.places)
        once[grid] += leaf.shared.T @ damped
        twice[grid] += damped.T @ damped
        total += float(np.sum(leaf.squares / over))
    once[np.diag_indices_from(once)] += point
    return total + inverse_trace(once, twice)[0]
