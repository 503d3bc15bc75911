"""Centred blocks on different attributes: answers are sums of independent pieces (claim A-004).

Tables of a run with equal families and measures, and blocks of equal shapes and noise on all subsets of their
attributes, have the same variances, up to order: one of each class is enough to know them all.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from residua._arrays import Array, Indices, Integers, Subsets
from residua._limits import COMBINED_CANDIDATES, LISTED_QUERIES, LOOKED_UP_WAYS
from residua.answering.blocks import (
    Blocks,
    Factored,
    Layer,
    Measured,
    Placed,
    Shape,
    ascending,
    factored_over,
    outer,
)
from residua.answering.independent.parts import Part, PartCache, not_together, parts_of
from residua.answering.protocol import Answerer, Estimates
from residua.linalg.grams import sum_out
from residua.linalg.matrices import Measure, along_axes, centred_columns, distinct_rows, occurring
from residua.workload import Factor, Identity, Table, TableRun, Total
from residua.workload.tables import choices, splits


def _families(known: PartCache, tables: TableRun) -> Integers:
    """For each attribute of the schema a number, equal where families and measures are."""
    numbers: dict[object, int] = {}
    found = np.zeros(len(known.measures), dtype=np.int64)
    for at in tables.attributes:
        found[at] = numbers.setdefault((tables.queries_of(at), known.measures[at]), len(numbers))
    return found


def table_classes(known: PartCache, tables: TableRun) -> tuple[Integers, Integers]:
    """Places of the first tables of each class, and the class of each table.

    All of a class have the same variances, up to the order of their attributes.
    """
    subsets = np.sort(tables.subsets, axis=1)
    families, blocks = _families(known, tables), _block_classes(known)
    classes = np.zeros(len(tables), dtype=np.int64)
    for place in range(tables.ways):
        classes = _refined(classes, families[subsets[:, place]])
    for chosen in choices(tables.ways):
        kept = subsets[:, chosen]
        owners, rows = known.index.find(kept)
        here = np.zeros(len(tables), dtype=np.int64)
        for owner in occurring(owners[owners >= 0]):
            found = owners == owner
            here[found] = 2 + blocks[owner][rows[found]]
        here[known.elsewhere.find(kept)[0] >= 0] = 1
        classes = _refined(classes, here)
    return distinct_rows(classes[:, None])


def _refined(classes: Integers, more: Integers) -> Integers:
    """Numbers of the common refinement of two partitions."""
    return distinct_rows(np.stack([classes, more], axis=1))[1]


def _block_classes(known: PartCache) -> list[Integers]:
    """For each layer a number for each block, equal where layer, shapes and noise are."""
    found: list[Integers] = []
    start = 0
    for layer in known.blocks.layers:
        noise = np.unique(layer.noise, return_inverse=True)[1].reshape(-1).astype(np.int64)
        number = distinct_rows(np.concatenate([layer.shapes, noise[:, None]], axis=1))[1]
        found.append(start + number)
        start += int(number.max(initial=-1)) + 1
    return found


Pieces = Sequence[tuple[float, list[Part]]]
"""Noise variance and parts for each block that a table has a piece in; every part has one family."""

ROUNDING = 1e-12  # relative; figures this close are one figure


def largest_of(known: PartCache, pieces: Pieces, families: int) -> float:
    """Largest variance of a table of so many families; nan where there are too many candidates.

    A variance is a sum of products of the families' figures, none of them negative: only a query whose
    figures no other query of its family reaches all at once can be part of the largest.
    """
    listed = []
    for place in range(families):
        here = (part for _, parts in pieces for part in parts if part.places == (place,))
        figures = {part.key: known.listed(part) for part in here}
        listed.append(np.stack(list(figures.values())))  # (figures, queries)
    all_few = math.prod(each.shape[1] for each in listed) <= LISTED_QUERIES
    candidates = [np.arange(each.shape[1]) if all_few else _undominated(each) for each in listed]
    if math.prod(map(len, candidates)) > COMBINED_CANDIDATES:
        return math.nan
    grid = np.zeros([len(chosen) for chosen in candidates])
    for noise, parts in pieces:
        rows = {part.places[0]: known.listed(part) for part in parts}
        figures_of = [rows[place][chosen] for place, chosen in enumerate(candidates)]
        grid += noise * outer(figures_of)
    return float(grid.max())


def _undominated(figures: Array) -> Indices:
    """Places of columns of (figures, queries), one of each class that no other reaches in every row."""
    tallest = figures.max(axis=1, keepdims=True)
    heights = figures / np.where(tallest > 0, tallest, 1.0)
    left = np.argsort(-heights.sum(axis=0), kind="stable")
    chosen = []
    while len(left):
        best = left[0]
        chosen.append(best)
        above = heights[:, left] > heights[:, [best]] + ROUNDING
        left = left[above.any(axis=0)]
    return np.array(chosen, dtype=np.intp)


def table_counts(part: Table | TableRun) -> Array:
    """Number of queries of each table of a part, (tables,)."""
    if isinstance(part, Table) or part.joint is not None:
        return np.array([float(each.count) for each in part])
    counts = np.zeros(len(part.schema))
    for at in part.attributes:
        counts[at] = float(part.queries_of(at).count)
    return np.asarray(counts[part.subsets].prod(axis=1))


class _RunTotal:
    """What each attribute of a run contributes, by number of its distinct families."""

    def __init__(self, known: PartCache, tables: TableRun) -> None:
        self.known, self.tables = known, tables
        self.subsets: Subsets = np.sort(tables.subsets, axis=1)
        self.factors = {at: Factor((at,), tables.queries_of(at)) for at in tables.attributes}
        width = len(known.measures)
        self.families = _families(known, tables)
        self.means = np.zeros(width)
        self.vanishing = np.zeros((2, width), dtype=bool)  # what is left out, and what is kept
        for at, factor in self.factors.items():
            (mean,) = parts_of([factor], [()], known.measures, [])
            self.means[at] = known.summed(mean, weighted=False)
            (alone,) = parts_of([factor], [(0,)], known.measures, [])
            self.vanishing[:, at] = known.vanishes(mean), known.vanishes(alone)

    def found(self) -> Array:
        """Sum of the variances of the queries of each table, (tables,), worked out once for a run."""
        return self.known.of(("run", self.tables), self._sums, np.size)

    def _sums(self) -> Array:
        each = map(self.by_table, choices(self.tables.ways))
        return np.asarray(sum(each, np.zeros(len(self.subsets))))

    def least_accurate(self) -> int | None:
        """Place of the table with the largest variance; None unless all queries of a table have the same one.

        As for marginals: then the largest variance of a table is its mean.
        """
        return int(np.argmax(self.found() / table_counts(self.tables))) if self.even() else None

    def even(self) -> bool:
        """Whether all queries of each table have the same variance, every cell being treated alike."""
        return (
            all(isinstance(factor.queries, Identity | Total) for factor in self.factors.values())
            and all(measure.weights is None for measure in self.known.measures)
            and all(len(shape.sizes) == 1 and _even(shape) for shape in self.known.blocks.shapes)
        )

    def by_table(self, chosen: tuple[int, ...]) -> Array:
        """What the blocks on these places of every table add to the sum of its variances, (tables,)."""
        kept = self.subsets[:, chosen]
        others = [place for place in range(self.tables.ways) if place not in chosen]
        scale = self.means[self.subsets[:, others]].prod(axis=1)
        nothing = self.vanishing[0, self.subsets[:, others]].any(axis=1) | self.vanishing[1, kept].any(axis=1)
        owners, places = self.known.index.find(kept)
        nothing |= self.known.elsewhere.find(kept)[0] >= 0
        lost = (owners < 0) & ~nothing
        if lost.any():
            row = int(np.argmax(lost))
            raise not_together(self.tables[row].name, kept[row].tolist())
        sums = np.zeros(len(kept))
        for owner in occurring(owners[(owners >= 0) & ~nothing]):
            here = (owners == owner) & ~nothing
            layer = self.known.blocks.layers[owner]
            figures = self._figures(layer, np.flatnonzero(here), kept[here], places[here])
            sums[here] = scale[here] * layer.noise[places[here]] * figures
        return sums

    def _figures(self, layer: Layer, tables: Indices, kept: Subsets, rows: Integers) -> Array:
        """Sum of the variances at noise 1 of each table in its block, each distinct case worked out once."""
        result = np.ones(len(kept))
        for places, shapes in zip(layer.layout, layer.shapes[rows].T, strict=True):
            result *= self._distinct(tables, kept[:, places], shapes)
        return result

    def _distinct(self, tables: Indices, kept: Subsets, shapes: Integers) -> Array:
        """The same for one shape of each block, on these attributes."""
        first, inverse = distinct_rows(np.column_stack([self.families[kept], shapes]))
        values = np.empty(len(first))
        for place, row in enumerate(first.tolist()):
            attributes, number = tuple(kept[row].tolist()), int(shapes[row])
            measured = [Placed(attributes, self.known.blocks.shapes[number], number)]
            factors = [self.factors[at] for at in attributes]
            (part,) = parts_of(factors, [(0,)] * len(factors), self.known.measures, measured)
            self.known.refuse_outside(part, self.tables[int(tables[row])].name, attributes)
            values[place] = self.known.summed(part, weighted=False)
        return np.asarray(values[inverse])


def _even(shape: Shape) -> bool:
    """Whether the shape answers all cells with the same variance."""
    variances = np.sum(shape.inverse**2, axis=1)
    return bool(np.ptp(variances) <= ROUNDING * variances.max())


class Independent(Answerer):
    """Blocks on different subsets of attributes, each centred under the measures.

    `elsewhere` are subsets whose pieces are answered by other blocks: they are passed over here. All blocks
    have the attributes of `totals`, which are not centred: what asks nothing of them asks for those.
    Residuals are centred under `residual_measures`.
    """

    by_parts = True
    totals: Mapping[int, Factor] = MappingProxyType({})

    def __init__(self, blocks: Blocks, elsewhere: tuple[Subsets, ...] = ()) -> None:
        self.blocks, self.measures, self.residual_measures = blocks, blocks.measures, blocks.measures
        self.known = PartCache(blocks, elsewhere)

    def _classified(self, part: Table | TableRun) -> TypeGuard[TableRun]:
        """Whether tables have classes to be looked up."""
        run = isinstance(part, TableRun) and part.joint is None and part.ways <= LOOKED_UP_WAYS
        return run and not self.totals

    def _with_totals(self, group: Table) -> Table:
        """The same queries, on all attributes of `totals` too; totals of those as queries on their cells."""
        if not self.totals:
            return group
        plain = [
            self.totals.get(own.attributes[0], own) if isinstance(own.queries, Total) else own
            for own in group.factors
        ]
        more = [own for at, own in self.totals.items() if at not in group.attributes]
        return replace(group, factors=(*plain, *more))

    def variances(self, group: Table) -> Array:
        group = self._with_totals(group)
        grid = np.zeros([factor.queries.count for factor in group.factors])
        for _, noise, parts in self.pieces(group):
            grid += noise * self.known.grid(parts)
        return grid.reshape(-1)

    def variances_by_table(self, part: Table | TableRun) -> Iterator[Array]:
        if not self._classified(part) or (np.diff(part.subsets, axis=1) < 0).any():
            return super().variances_by_table(part)
        first, classes = table_classes(self.known, part)
        found = [self.variances(part[at]) for at in first.tolist()]
        return (found[at] for at in classes.tolist())

    def summed(self, group: Table, *, weighted: bool) -> float:
        return math.fsum(
            noise * math.prod(self.known.summed(part, weighted=weighted) for part in parts)
            for _, noise, parts in self.pieces(self._with_totals(group))
        )

    def run_total(self, tables: TableRun) -> float | None:
        if not all((tables.subsets == at).any(axis=1).all() for at in self.totals):
            return None
        return float(_RunTotal(self.known, tables).found().sum())

    def largest(self, group: Table) -> float:
        group = self._with_totals(group)
        pieces = [(noise, parts) for _, noise, parts in self.pieces(group)]
        if not group.listable:
            return math.nan
        key = tuple((noise, tuple((part.places, part.key) for part in parts)) for noise, parts in pieces)

        def largest() -> float:
            if any(len(part.places) > 1 for _, parts in pieces for part in parts):
                return float(self.variances(group).max())
            return largest_of(self.known, pieces, len(group.factors))

        return self.known.of(("largest", key), largest)

    def covariances(self, left: Table, right: Table) -> Array:
        left, right = self._with_totals(left), self._with_totals(right)
        ours = {attributes: parts for attributes, _, parts in self.pieces(left)}
        result = np.zeros((left.count, right.count))
        for attributes, noise, parts in self.pieces(right):
            if attributes in ours:
                rows = coefficients(ours[attributes], left)
                result += noise * (rows @ coefficients(parts, right).T)
        return result

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        if self._classified(part):
            yield from (part[at] for at in table_classes(self.known, part)[0].tolist())
        else:
            yield from super().examples(part)

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        if isinstance(part, TableRun) and part.joint is None and len(part) and not self.totals:
            worst = _RunTotal(self.known, part).least_accurate()
            if worst is not None:
                yield part[worst]
                return
        yield from self.examples(part)

    def estimates(self, measured: Measured) -> Estimates:
        """Each block's residual from its own numbers."""
        return Estimates.of(residuals_of(self.blocks, measured), self.blocks.measures)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a residual as a product of those of the factors of the block that tells it."""
        noise, measured = self.known.block(tuple(sorted({*subset, *self.totals})))
        found = factored_over(noise or 0.0, measured, subset, self._centred)
        return replace(found, means=tuple(self.residual_measures[at].vector() for at in subset))

    def _centred(self, factor: Placed, kept: tuple[int, ...]) -> tuple[object, Callable[[], Array]]:
        """Measures of some axes of a block's factor, and the covariance of what it tells of their cells."""
        measures = tuple(self.residual_measures[factor.attributes[place]] for place in kept)
        return (factor.number, measures), partial(_centred_square, factor, kept, measures)

    def pieces(self, group: Table) -> Iterator[tuple[tuple[int, ...], float, list[Part]]]:
        """Attributes, noise variance and parts for each block that the table's queries have a piece in."""
        for kept, attributes in splits(group):
            row = np.array([attributes], dtype=np.int32).reshape(1, -1)
            if self.known.elsewhere.find(row)[0][0] >= 0:
                continue
            noise, measured = self.known.block(attributes)
            parts = list(parts_of(group.factors, kept, self.blocks.measures, measured))
            if any(self.known.vanishes(part) for part in parts):
                continue  # whatever the block measures, or if there is none: nothing is asked of it
            if noise is None:
                raise not_together(group.name, attributes)
            for part in parts:
                self.known.refuse_outside(part, group.name, attributes)
            yield attributes, noise, parts


def _centred_square(measured: Placed, kept: Sequence[int], measures: Sequence[Measure]) -> Array:
    """Covariance, at noise 1, of what a block's matrix tells about some of its axes, centred along them."""
    sizes = [measure.size for measure in measures]
    square = sum_out(measured.inverse, measured.sizes, kept)
    half = centred_columns(square, sizes, measures)
    return np.asarray(centred_columns(np.ascontiguousarray(half.T), sizes, measures))


def coefficients(parts: list[Part], group: Table) -> Array:
    """Coefficients of a block's measurements, in its order, in the answers of a group: (count, measured)."""
    result: Array = np.ones(())
    rows: list[tuple[int, int]] = []  # (place of the factor in the table, axis of the result)
    ranks: list[tuple[int, int]] = []  # (slot of the shape in the block, axis of the result)
    for part in parts:
        tensor = part.answers_of([queries.matrix() for queries in part.queries])
        tensor = tensor.reshape(*tensor.shape[:-1], *(len(shape.matrix) for shape in part.shapes))
        start = result.ndim
        result = np.multiply.outer(result, tensor)
        rows += [(place, start + at) for at, place in enumerate(part.places)]
        ranks += [(slot, start + len(part.places) + at) for at, slot in enumerate(part.slots)]
    order = [axis for _, axis in sorted(rows)] + [axis for _, axis in sorted(ranks)]
    return np.asarray(result.transpose(order).reshape(group.count, -1))


def residuals_of(blocks: Blocks, measured: Measured) -> Iterator[tuple[Subsets, Array]]:
    """Residuals that centred blocks estimate, `C B^+ y`: (k, attributes) ascending, and (k, sizes...)."""
    for number, rows, values in measured:
        layer = blocks.layers[number]
        attributes = layer.subsets[rows[0]].tolist()
        shapes = [blocks.shapes[at] for at in layer.shapes[rows[0]].tolist()]
        kernels = []
        for shape, places in zip(shapes, layer.layout, strict=True):
            measures = [blocks.measures[attributes[place]] for place in places]
            kernels.append(centred_columns(shape.inverse, shape.sizes, measures))
        sizes = [size for shape in shapes for size in shape.sizes]
        yield layer.subsets[rows], ascending(along_axes(values, kernels), sizes, layer.order)
