"""What every answerer can be asked, what follows for all of them, and answers from estimates.

For block plans the estimate of a marginal is the sum, over its subsets of attributes, of what the block on
that subset measured, spread evenly along the other attributes (claim A-004). Every query is then answered
from the estimate of its marginal.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from residua._arrays import Array, Arrays, Indices, Manifest, Subsets
from residua._files import MOST_AXES
from residua._limits import COVARIANCE_ENTRIES, ESTIMATED_CELLS
from residua._manifests import array_of, whole
from residua.answering.blocks import Factored, Measured, outer
from residua.errors import FileFormatError, NotInSpan, WorkloadError
from residua.linalg.classes import Classes
from residua.linalg.matrices import Measure, RowIndex, occurring
from residua.workload import Combined, Factor, Identity, Partition, Table, TableRun
from residua.workload.tables import choices, without_totals
from residua.workload.views import Order


@dataclass(frozen=True, eq=False)
class Estimates:
    """For runs of marginals their subsets, (k, attributes) ascending, and cells, (k, sizes...).

    With `measures`, one per attribute, the cells are residuals, centred under those; without, there is one
    marginal, of all cells that were measured. Where blocks see several domains, `parts` are the estimates
    of each.
    """

    tables: tuple[Subsets, ...]
    cells: tuple[Array, ...]
    measures: tuple[Measure, ...] | None = None
    parts: tuple["Estimates", ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[Subsets, Array]], measures: tuple[Measure, ...] | None) -> "Estimates":
        """The estimates with these runs."""
        found = list(runs)
        return cls(tuple(table for table, _ in found), tuple(cells for _, cells in found), measures)

    @cached_property
    def index(self) -> RowIndex:
        """Finds the run and place of the marginal on a subset."""
        most = max((int(table.max()) for table in self.tables if table.size), default=0)
        return RowIndex(self.tables, most + 1)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The cells of all parts."""
        return self.cells + tuple(cells for part in self.parts for cells in part.arrays)

    @classmethod
    def from_manifest(
        cls,
        manifest: Manifest,
        arrays: Arrays,
        measures: tuple[Measure, ...] | None,
        sizes: Sequence[int],
    ) -> "Estimates":
        """The estimates that a combined release of format 1 holds instead of measured numbers.

        Refused unless they are of attributes of these sizes.
        """
        runs = []
        for number in range(whole(manifest, "runs", least=1, most=len(arrays))):
            table = array_of(arrays, f"estimates.{number}.subsets", "i", (None, None)).astype(np.int32)
            if not len(table) or (table.size and not 0 <= table.min() <= table.max() < len(sizes)):
                raise FileFormatError("there are estimates of attributes that the schema lacks")
            if table.shape[1] > MOST_AXES or (np.diff(table, axis=1) <= 0).any():
                raise FileFormatError("there are estimates of attributes out of order")
            shapes = np.array(sizes, dtype=np.int64)[table]
            if (shapes != shapes[0]).any():
                raise FileFormatError("there are estimates of different shapes in one run")
            shape = (len(table), *shapes[0].tolist())
            runs.append((table, array_of(arrays, f"estimates.{number}.cells", "f", shape)))
        return cls.of(runs, measures)


ByPlace = Mapping[int, Classes]
"""Classes of cells by place of a marginal; a place without any has its cells."""
CELLS: ByPlace = MappingProxyType({})

Sliced = tuple[int, Callable[[slice], tuple[Array, Array]]]
"""A number of places, and a function from some of them to values and variances of their queries."""


class Estimator:
    """Least-squares estimates of marginals, and of any query on them."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates

    def of_domain(self, number: int) -> "Estimator":
        """Estimates of marginals as one of the domains that blocks see has them."""
        return self

    def marginals(self, subsets: Subsets, sizes: Sequence[int], classes: ByPlace = CELLS) -> Array:
        """Estimates of marginals of one shape: (k, ways) ascending attributes to (k, sizes...).

        Along places that have `classes`, cells are added up by these.
        """
        if self._estimates.measures is None:
            cells = self._joint(subsets, sizes)
            for at, own in classes.items():
                cells = own.summed(cells, 1 + at)
            return cells
        result = np.zeros((len(subsets), *lengths(sizes, classes)))
        for kept in choices(subsets.shape[1]):
            self._add(result, subsets, kept, sizes, classes)
        return result

    def _add(
        self, result: Array, subsets: Subsets, kept: tuple[int, ...], sizes: Sequence[int], classes: ByPlace
    ) -> None:
        """Add what the blocks on the places `kept` measured, spread over the other places."""
        measures = self._estimates.measures or ()
        owners, places = self._estimates.index.find(subsets[:, kept])
        shape = [size if at in kept else 1 for at, size in enumerate(sizes)]
        spread = np.ones((1,) * (1 + len(sizes)))
        for at in (at for at in range(len(sizes)) if at not in kept):
            spread = spread * _weights(subsets[:, at], measures, classes.get(at), at, len(sizes))
        for owner in occurring(owners[owners >= 0]):
            here = np.flatnonzero(owners == owner)
            blocks = self._estimates.cells[owner][places[here]].reshape(len(here), *shape)
            for at, own in classes.items():
                if at in kept:
                    blocks = own.summed(blocks, 1 + at)
            if len(kept) < len(sizes):
                blocks = blocks * (spread if len(spread) in (1, len(here)) else spread[here])
            if len(here) == len(result):
                result += blocks
            else:
                result[here] += blocks

    def _joint(self, subsets: Subsets, sizes: Sequence[int]) -> Array:
        """Marginals of the one estimate of all cells that a product strategy gives.

        Along an attribute that is not measured the total is spread evenly: only totals are asked there.
        """
        order = self._estimates.tables[0][0].tolist()
        whole = self._estimates.cells[0][0]
        rows = []
        for attributes in subsets.tolist():
            gone = tuple(axis for axis, at in enumerate(order) if at not in attributes)
            measured = [at in order for at in attributes]
            shape = [size if there else 1 for size, there in zip(sizes, measured, strict=True)]
            even = math.prod(size for size, there in zip(sizes, measured, strict=True) if not there)
            rows.append(np.broadcast_to(whole.sum(axis=gone).reshape(shape) / even, sizes))
        return np.stack(rows)

    def answers(self, group: Table) -> Array:
        """Estimate of each query's answer, shape (count,)."""
        group = without_totals(group)
        attributes = group.attributes
        order = np.argsort(attributes)
        ascending = np.array([sorted(attributes)], dtype=np.int32).reshape(1, -1)
        factors, classes = by_own_classes(group.factors)
        sizes = [size for factor in group.factors for size in factor.queries.sizes]
        along = {place: classes[at] for place, at in enumerate(order.tolist()) if at in classes}
        cells = self.marginals(ascending, [sizes[at] for at in order], along)[0]
        return apply_queries(cells.transpose(np.argsort(order)), factors).reshape(-1)

    def sliced(self, group: Table) -> "Sliced | None":
        """Answers of a table some places at a time; None where all have to be asked for."""
        return None

    def run(self, tables: TableRun) -> Iterator[tuple[Indices, Array]]:
        """Answers of many tables: indices of tables of one shape, and their answers (tables, count)."""
        numbers: dict[object, int] = {}
        asked = [numbers.setdefault(own and own.queries, len(numbers)) for own in tables.factors]
        found: dict[tuple[int, ...], list[int]] = {}
        for index, row in enumerate(np.array(asked)[tables.subsets].tolist()):
            found.setdefault(tuple(row), []).append(index)
        for indices in found.values():
            first = tables[indices[0]]
            sizes = [factor.queries.cells for factor in first.factors]
            step = max(1, ESTIMATED_CELLS // max(1, math.prod(sizes)))
            for start in range(0, len(indices), step):
                chosen = np.array(indices[start : start + step])
                cells = self.marginals(tables.subsets[chosen], sizes)
                plain = all(isinstance(factor.queries, Identity) for factor in first.factors)
                answers = cells if plain else apply_queries(cells, first.factors, leading=1)
                yield chosen, answers.reshape(len(chosen), -1)


class TableEstimator(Estimator):
    """Estimates that are made table by table; marginals are tables of plain cells, or of classes."""

    def marginals(self, subsets: Subsets, sizes: Sequence[int], classes: ByPlace = CELLS) -> Array:
        own = [
            Partition(classes[at].classes) if at in classes else Identity(size)
            for at, size in enumerate(sizes)
        ]
        rows = []
        for subset in subsets.tolist():
            factors = (Factor((at,), queries) for at, queries in zip(subset, own, strict=True))
            rows.append(self.marginal(Table("", tuple(factors))).reshape(lengths(sizes, classes)))
        return np.stack(rows)

    def marginal(self, group: Table) -> Array:
        """Estimates of the cells of a marginal, or of classes of them, shape (count,)."""
        return self.answers(group)

    def run(self, tables: TableRun) -> Iterator[tuple[Indices, Array]]:
        for index, group in enumerate(tables):
            yield np.array([index]), self.answers(group)[None]


def apply_queries(cells: Array, factors: Sequence[Factor], *, leading: int = 0) -> Array:
    """Every product of queries on cells (leading..., sizes of all factors...), flattened per factor."""
    tensor = cells.reshape((*cells.shape[:leading], *(factor.queries.cells for factor in factors)))
    for place, factor in enumerate(factors):
        axis = leading + place
        tensor = np.moveaxis(factor.queries.answers(np.moveaxis(tensor, axis, -1)), -1, axis)
    return tensor


def lengths(sizes: Sequence[int], classes: ByPlace) -> tuple[int, ...]:
    """Numbers of cells or classes of each place of a marginal."""
    return tuple(classes[at].count if at in classes else size for at, size in enumerate(sizes))


def _weights(
    attributes: Subsets, measures: Sequence[Measure], classes: Classes | None, place: int, ways: int
) -> Array:
    """Weights that spread along one place, (k or 1, 1.., classes, 1..): each marginal has its own."""
    distinct = sorted(set(attributes.tolist()))
    own = [measures[at] for at in distinct]
    if classes is None and all(measure.weights is None for measure in own):
        return np.full((1,) * (1 + ways), 1.0 / own[0].size)
    own = own[:1] if len(set(own)) == 1 else own
    vectors = [measure.vector() for measure in own]
    rows = np.stack(vectors if classes is None else [classes.summed(each, 0) for each in vectors])
    rows = rows[np.searchsorted(distinct, attributes)] if len(own) > 1 else rows
    return rows.reshape(len(rows), *(1,) * place, -1, *(1,) * (ways - place - 1))


@dataclass(frozen=True, slots=True, eq=False)
class TableParts:
    """What a table asks of which parts, in the order that each sees, and how to get back to its own."""

    parts: tuple[tuple[int, Table, list[Order]], ...]
    order: Order = field(default_factory=Order)

    def added_up(self, figures: Callable[[int, Table], Array]) -> Array:
        """The sum over the parts of figures of all queries, in the order of the table."""
        found = [in_order(orders, figures(at, asked)) for at, asked, orders in self.parts]
        return self.order.arranged(np.sum(found, axis=0))


def in_order(orders: Sequence[Order], values: Array, axis: int = 0) -> Array:
    """Numbers of all queries along an axis, brought back to an order step by step."""
    for order in orders:
        values = order.arranged(values, axis)
    return values


class Answerer(ABC):
    """Figures and estimates of the best linear unbiased answers from blocks.

    A table that the blocks cannot answer raises NotInSpan, whatever is asked of it. `measures` are those
    under which estimates are centred, None where all cells are estimated at once; `shared` is the number of
    dimensions in which blocks are solved together.
    """

    measures: tuple[Measure, ...] | None = None
    shared: int = 0
    by_parts: bool = False  # whether measured numbers may come some blocks at a time, and once
    most_listed: float = math.inf  # queries whose variances are gone through to find the largest

    @abstractmethod
    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""

    def variances_by_table(self, part: Table | TableRun) -> Iterator[Array]:
        """Variances of the queries of each table of a part, table by table."""
        return map(self.variances, part)

    def summed(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, not listing them if need not be; with `weighted`, by each query's weight."""
        found = self.variances(group)
        if not weighted:
            return float(found.sum())
        return float(found @ outer(each.every_weight for each in group.families).reshape(-1))

    @abstractmethod
    def covariances(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, which fits one array."""

    @abstractmethod
    def estimates(self, measured: Measured) -> Estimates:
        """Least-squares estimates from measured numbers."""

    def asked(self, group: Table) -> TableParts:
        """What a table asks of each part of the blocks that sees a domain of its own."""
        return TableParts(((0, group, []),))

    def estimator(self, estimates: Estimates) -> Estimator:
        """What answers queries from estimates."""
        return Estimator(estimates)

    def require_answerable(self, group: Table) -> None:
        """NotInSpan if some query is not a combination of what is measured."""
        self.summed(group, weighted=False)

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the table's and the query's weight."""
        return self.summed(group, weighted=weighted) * (group.weight if weighted else 1.0)

    def run_total(self, tables: TableRun) -> float | None:
        """Sum of the variances of a run of tables at once; None where each has to be asked."""
        return None

    def largest(self, group: Table) -> float:
        """Largest variance of the table's queries; nan if there are too many to go through."""
        self.require_answerable(group)
        if not group.listable or group.count > self.most_listed:
            return math.nan
        return float(self.variances(group).max())

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, shape (left.count, right.count)."""
        if left.count * right.count > COVARIANCE_ENTRIES:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} has "
                f"{left.count * right.count:,} entries; ask for at most {COVARIANCE_ENTRIES:,} at a time"
            )
        return self.covariances(left, right)

    def examples(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which every table finds one with the same variances."""
        yield from part

    def least_accurate(self, part: Table | TableRun) -> Iterator[Table]:
        """Tables of a part among which is the one with the largest variance."""
        yield from self.examples(part)

    def factored(self, subset: tuple[int, ...]) -> Factored | None:
        """Covariance of a residual as a product of small ones; None where that is not known."""
        return None

    def notes(self) -> Iterator[str]:
        """Lines for people about how answers are computed, if there is anything to say."""
        yield from ()


def not_in_span(told: str, attributes: Sequence[int] = ()) -> NotInSpan:
    """The error for a table with queries that are no combinations of what is measured."""
    return NotInSpan(f"{told}; add the table to the workload before planning", attributes)


def by_own_classes(factors: Sequence[Factor]) -> tuple[list[Factor], ByPlace]:
    """The factors over the classes that joined conditions separate, and these classes by place."""
    found: list[Factor] = []
    partitions: dict[int, Classes] = {}
    place = 0
    for factor in factors:
        queries = factor.queries
        if isinstance(queries, Combined):
            partitions |= enumerate(queries.partitions, start=place)
            factor = Factor(factor.attributes, queries.coarse)
        found.append(factor)
        place += len(factor.attributes)
    return found, partitions
