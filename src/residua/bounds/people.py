"""What no mechanism can go below where a person's change is not one record added or removed (claim B-013).

A change that a person can make at random has second moments over the joint cells; under product weights they
are a multiple on each of few spaces, and the bound for one record holds with these multiples put in.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from residua._arrays import Array, Integers, Subsets
from residua._limits import BOUND_CELLS, QUICK_PAIRS
from residua.bounds.alone import AttributeQueries, some_tables
from residua.bounds.quick import OPERATIONS, narrow, quick_bound, root_of_some_cells, together
from residua.bounds.singular import invariant_root, svd_of_root
from residua.linalg.matrices import join
from residua.privacy.unit import Cap, Person
from residua.schema import Integer, Number, Schema
from residua.solve.cells import UNIT_ROUNDOFF
from residua.workload import Explicit, Factor, Identity, Table, Workload
from residua.workload.union import joint_rows

Weights = Callable[[int], Array]
"""The weights of the cells of an attribute."""

APART = (0.0, 0.3, 0.6, 1.0)  # chances that are tried of replaced records differing in an attribute
TOGETHER = (0.0, 0.35, 0.7, 1.0)  # chances that are tried of a person's records being alike elsewhere
RECORDS = 8  # of each bin of a number, times its degree
ROUNDING = 1e-9  # relative, of what is taken off


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Second moments of a change: `whole` times those of one record, times shares of what it looks like.

    `total` is the share of what all cells have in common, `alone` of what only `attribute` tells apart,
    `others` of what it does not tell apart, `both` of the rest. `weights` are those of its cells. Where a
    record takes the place of another, all of whose cells have equal weights, `apart` is the chance that they
    differ in an attribute whatever the others do.
    """

    whole: float
    total: float
    attribute: int | None = None
    weights: Array | None = None
    alone: float = 1.0
    others: float = 1.0
    both: float = 1.0
    apart: float = 0.0

    def shares(self, subsets: Subsets, sizes: Integers) -> Array:
        """The share of each block on a subset of attributes; subsets are (blocks, size)."""
        if self.total == 0 and self.attribute is None:
            return np.asarray(1.0 - (-self.apart / np.maximum(sizes[subsets] - 1, 1)).prod(axis=1))
        if not subsets.shape[1]:
            return np.full(len(subsets), self.total)
        within = self.alone if subsets.shape[1] == 1 else self.both
        of = self.attribute if self.attribute is not None else -1
        return np.where((subsets == of).any(axis=1), within, self.others)

    def applied(self, rows: Array, roots: Sequence[Array], place: int | None) -> Array:
        """Rows over the joint cells times these shares; `whole` aside.

        `roots` are the roots of the weights of each attribute, `place` that of the attribute among them.
        """
        if place is None:
            return rows - (1 - self.total) * self._common(rows, roots)
        cube, mine = rows.reshape(-1, *map(len, roots)), roots[place]
        even = join(root[None] for at, root in enumerate(roots) if at != place).reshape(-1)
        cube = np.moveaxis(cube, 1 + place, 1).reshape(len(rows), len(mine), -1)
        along, across = cube @ even, np.einsum("rto,t->ro", cube, mine)
        found = self.both * cube + (self.others - self.both) * mine[:, None] * across[:, None, :]
        found += (self.alone - self.both) * along[:, :, None] * even
        shared = self.total - self.others - self.alone + self.both
        found += shared * (across @ even)[:, None, None] * np.outer(mine, even)
        others = [len(root) for at, root in enumerate(roots) if at != place]
        found = np.moveaxis(found.reshape(len(rows), len(mine), *others), 1, 1 + place)
        return np.asarray(found.reshape(len(rows), -1))

    def _common(self, rows: Array, roots: Sequence[Array]) -> Array:
        """What a record has in common with the one whose place it takes, or with all."""
        cube = rows.reshape(-1, *map(len, roots))
        for at, root in enumerate(roots):
            moved = np.moveaxis(cube, 1 + at, -1)
            mean, less = (moved @ root)[..., None] * root, self.apart / max(len(root) - 1, 1)
            cube = np.moveaxis(mean - less * (moved - mean), -1, 1 + at)
        return cube.reshape(len(rows), -1)


def changes(person: Person, work: Workload) -> Iterator[Change]:
    """Changes that a person can make, for which a bound is worth finding."""
    unit, most = person.unit, person.alike
    twice, total = (2.0, 0.0) if unit.replacing else (1.0, 1.0)
    for apart in APART if unit.replacing else (0.0,):
        yield Change(twice * most**2, total, apart=apart)
    for cap in person.caps:
        others = [other.most // most for other in person.caps if other is not cap]
        classes, sizes = np.unique(cap.classes, return_counts=True)
        spread = min(len(classes), unit.max_records // most, *others)
        if spread == 1:
            continue
        if cap.attribute not in work.attributes:
            yield Change(twice * (most * spread) ** 2, total)
            continue
        weights = 1.0 / (len(classes) * sizes[np.searchsorted(classes, cap.classes)])
        for chance in TOGETHER:
            yield _spread(cap, weights, spread, len(classes), twice * most**2, total, chance)


def _spread(
    cap: Cap, weights: Array, records: int, classes: int, whole: float, total: float, chance: float
) -> Change:
    """As many records in each of so many classes, all alike but for that with some chance."""
    left, more = (classes - records) / (classes - 1), chance * (records - 1)
    both = 1 - more / (classes - 1)
    return Change(whole * records, total * records, cap.attribute, weights, left, 1 + more, max(both, 0.0))


def person_bound(
    work: Workload, person: Person, operations: float = OPERATIONS, pairs: float = QUICK_PAIRS
) -> float:
    """The least total weighted variance of any mechanism that costs a person 1, from below.

    >>> import residua as rs
    >>> cells = rs.table(rs.Schema.of_sizes([10]), a0=rs.identity)
    >>> round(person_bound(cells, Person(rs.Unit(neighbours="replace_one"))), 9)
    18.0
    """
    work = on_records(work)
    if person.simple:
        return quick_bound(work, operations, pairs) * person.alike**2
    return max(_at(work, change, operations, pairs) for change in changes(person, work))


def shared_out(schema: Schema) -> dict[int, Array]:
    """Numbers of which some cells are nobody's whole record: shares of records that occur, (records, cells).

    Some from all over each bin. A number with two cells is left out: its ends are records.
    """
    return {
        at: np.array(list(_records(attribute)))
        for at, attribute in enumerate(schema.attributes)
        if isinstance(attribute, Number) and not attribute.whole
    }


def _records(number: Number) -> Iterator[Array]:
    """Shares of some values of a number, those of Bernstein's polynomials of where they are in their bins."""
    cells, degree = np.eye(number.size), number.degree
    many, choose = 2 if degree == 1 else RECORDS * degree, [math.comb(degree, i) for i in range(degree + 1)]
    last = number.steps[-1]
    for place, (low, high) in enumerate(pairwise(number.steps)):
        end = high if high == last else high - 1  # an edge belongs to the bin that it begins
        for code in np.unique(np.linspace(low, end, many).astype(np.int64)).tolist():
            up, down = (code - low) / (high - low), (high - code) / (high - low)
            weights = [choose[i] * up**i * down ** (degree - i) for i in range(degree + 1)]
            yield weights @ cells[place * (degree + 1) : (place + 1) * (degree + 1)]
    if number.missing:
        yield cells[-1]


def on_records(work: Workload) -> Workload:
    """The same queries of records that occur, where numbers are shared out among cells that do not."""
    shares = shared_out(work.schema)
    shares = {at: own for at, own in shares.items() if at in work.attributes}
    if not shares:
        return work
    named = dict(zip(work.schema.names, work.schema.attributes, strict=True))
    schema = Schema(named | {work.schema.names[at]: Integer(0, len(own) - 1) for at, own in shares.items()})
    known: dict[Factor, Factor] = {}
    parts = []
    for table in work.groups():
        for factor in table.factors:
            if factor not in known:
                known[factor] = _on_records(factor, shares)
        parts.append(replace(table, factors=tuple(known[factor] for factor in table.factors)))
    return Workload(schema, tuple(parts))


def _on_records(factor: Factor, shares: Mapping[int, Array]) -> Factor:
    if not shares.keys() & set(factor.attributes):
        return factor
    rows = factor.queries.root().reshape(-1, *factor.queries.sizes)
    for place, at in enumerate(factor.attributes):
        if at in shares:
            rows = np.moveaxis(np.tensordot(rows, shares[at], axes=(1 + place, 1)), -1, 1 + place)
    flat = rows.reshape(len(rows), -1)
    return Factor(factor.attributes, Explicit(rows.shape[1:], flat[np.any(flat != 0, axis=1)]))


def _at(work: Workload, change: Change, operations: float, pairs: float) -> float:
    sizes = np.array(work.schema.sizes)
    if work.invariant and (change.weights is None or np.ptp(change.weights) == 0):
        root = invariant_root(work, lambda subsets: change.shares(subsets, sizes))
        even = [*map(_even(work.schema.sizes), work.attributes)]
        return change.whole * root**2 / _distinct(change, even)
    if math.prod(work.schema.sizes[at] for at in work.attributes) <= BOUND_CELLS:
        return _of_all_cells(work, change)
    found = _of_many_cells(work, change, operations, pairs)
    return max(found, _without(work, change, operations, pairs))


def _of_all_cells(work: Workload, change: Change) -> float:
    """The better of equal and product weights, but for the attribute whose weights are given."""
    rows, asked, found = joint_rows(work), AttributeQueries(work), 0.0
    place = None if change.attribute is None else work.attributes.index(change.attribute)
    tried = [_even(work.schema.sizes)] if change.apart else [_even(work.schema.sizes), asked.weights]
    for weights in ([own(at) for at in work.attributes] for own in tried):
        if place is not None and change.weights is not None:
            weights[place] = change.weights
        roots = [np.sqrt(each) for each in weights]
        scaled = rows * join(root[None] for root in roots).reshape(-1)
        gram = change.applied(scaled, roots, place) @ scaled.T
        found = max(found, change.whole * _root_sum(gram) ** 2 / _distinct(change, weights))
    return found


def _root_sum(gram: Array) -> float:
    """The sum of the roots of the eigenvalues, from below: what rounding may have added is taken off."""
    values = np.linalg.eigvalsh(0.5 * (gram + gram.T))
    error = 8 * (len(gram) + 4) * UNIT_ROUNDOFF * float(np.trace(gram))
    return float(np.sqrt(np.maximum(values - error, 0.0)).sum())


def _distinct(change: Change, weights: Sequence[Array]) -> float:
    """The chance that two records are in different cells, where one takes the other's place; otherwise 1."""
    if change.total or change.attribute is not None:
        return 1.0
    chance = 1.0 - math.prod((1 - change.apart) * float(own @ own) for own in weights)
    return chance if chance > 0 else 1.0


def _of_many_cells(work: Workload, change: Change, operations: float, pairs: float) -> float:
    """The bound at product weights less what shares below 1 can take off it (claim B-013)."""
    if change.both < 1 or change.apart:
        return 0.0
    parts, weights, found = tuple(narrow(work)), _even(work.schema.sizes), 0.0
    if parts:
        kept = Workload(work.schema, parts)
        asked = AttributeQueries(
            kept, {} if change.weights is None else {len(change.weights): change.weights}
        )
        root, weights = math.sqrt(together(kept, asked, operations, pairs)), asked.weights
        found = root - _taken_off(kept.groups(), change, asked)
    for table in {tuple(table.families): table for table in some_tables(work)}.values():
        found = max(found, _of_table(table, change, weights))
    return change.whole * max(found, 0.0) ** 2


def _even(sizes: Sequence[int]) -> Weights:
    return lambda at: np.full(sizes[at], 1 / sizes[at])


def _without(work: Workload, change: Change, operations: float, pairs: float) -> float:
    """The bound of tables that do not ask of the attribute, where a person's records are alike elsewhere."""
    if change.attribute is None or change.others <= 1:
        return 0.0
    parts = tuple(table for table in work.groups() if change.attribute not in table.attributes)
    alike = Change(change.whole * change.others, float(change.total > 0))
    return _at(Workload(work.schema, parts), alike, operations, pairs) if parts else 0.0


def _taken_off(tables: Iterable[Table], change: Change, asked: AttributeQueries) -> float:
    """At most what shares below 1 of the total, and of one attribute alone, take off a sum of roots."""
    known: dict[Factor, tuple[float, float]] = {}
    total = alone = 0.0
    for table in tables:
        for factor in table.factors:
            if factor not in known:
                known[factor] = _squares(factor, change.attribute, asked)
        means = math.prod(known[factor][0] for factor in table.factors)
        total += table.weight * means
        for factor in table.factors:
            if change.attribute in factor.attributes:
                others = math.prod(known[other][0] for other in table.factors if other is not factor)
                alone += table.weight * others * known[factor][1]
    rank = 0 if change.weights is None else len(change.weights) - 1
    taken = max(1 - math.sqrt(change.total), 0.0) * math.sqrt(total)
    return (taken + (1 - math.sqrt(change.alone)) * math.sqrt(rank * alone)) * (1 + ROUNDING)


def _squares(factor: Factor, attribute: int | None, asked: AttributeQueries) -> tuple[float, float]:
    """Sums of squares over a factor's queries: of means of all cells, and of what one attribute adds to them.

    Of the root of the weighted gram, which has the same sums.
    """
    queries, places = factor.queries, factor.attributes
    if isinstance(queries, Identity):
        weights = asked.weights(places[0])
        return float(weights @ weights), float(weights.sum() - weights @ weights)
    rest = queries.root().reshape(-1, *queries.sizes)
    for place in reversed(range(len(places))):
        if places[place] != attribute:
            rest = np.tensordot(rest, asked.weights(places[place]), axes=(1 + place, 0))
    if attribute not in places:
        return float(np.sum(rest**2)), 0.0
    weights = asked.weights(attribute)
    means = float(np.sum((rest @ weights) ** 2))
    return means, max(float(np.sum(rest**2 * weights)) - means, 0.0)


def _of_table(table: Table, change: Change, weights: Weights) -> float:
    """The sum of roots of one table, of some cells of families on many, less what may be taken off."""
    whole, mean = math.sqrt(table.weight), math.sqrt(table.weight)
    for factor in table.factors:
        if change.attribute in factor.attributes:
            return 0.0
        roots, means = _alone(factor, weights)
        whole, mean = whole * roots, mean * means
    return whole - max(1 - math.sqrt(change.total), 0.0) * mean * (1 + ROUNDING)


def _alone(factor: Factor, weights_of: Weights) -> tuple[float, float]:
    """The sum of roots of a family, and the length of its means, at weights of its cells."""
    queries = factor.queries
    if isinstance(queries, Identity):
        return math.sqrt(queries.cells), 1 / math.sqrt(queries.cells)
    if queries.cells > BOUND_CELLS:
        rows = root_of_some_cells(queries)
        weights = np.full(rows.shape[1], 1 / rows.shape[1])
    else:
        rows, weights = queries.root(), join(weights_of(at)[None] for at in factor.attributes).reshape(-1)
    scaled = rows * np.sqrt(weights * len(weights))
    return math.sqrt(svd_of_root(scaled)), float(np.linalg.norm(rows @ weights))
