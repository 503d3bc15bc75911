"""Answers from measurements: one least-squares estimator, so that all answers agree with each other.

For block plans the estimate of a marginal is the sum, over its subsets of attributes, of what the block on
that subset measured, spread evenly along the other attributes (claim A-004). Every query is then answered
from the estimate of its marginal.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Indices, Subsets
from residua._files import MOST_AXES
from residua._limits import ESTIMATED_CELLS
from residua._manifests import array_of, whole
from residua.errors import FileFormatError
from residua.linalg.classes import Classes, summed_over
from residua.linalg.matrices import Measure, RowIndex
from residua.workload import Factor, Table, TableRun
from residua.workload.tables import choices, without_totals
from residua.workload.views import by_own_classes


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
        manifest: Mapping[str, Any],
        arrays: Mapping[str, AnyArray],
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


class Estimator:
    """Least-squares estimates of marginals, and of any query on them."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates

    def of_domain(self, number: int) -> "Estimator":
        """Estimates of marginals as one of the domains that blocks see has them."""
        return self

    def marginals(self, subsets: Subsets, sizes: Sequence[int]) -> Array:
        """Estimates of marginals of one shape: (k, ways) ascending attributes to (k, sizes...)."""
        return self.by_classes(subsets, [Classes.every(size) for size in sizes])

    def by_classes(self, subsets: Subsets, classes: Sequence[Classes]) -> Array:
        """The same, added up by classes of cells of each place: (k, numbers of classes...)."""
        if self._estimates.measures is None:
            cells = self._joint(subsets, [own.size for own in classes])
            return np.asarray(summed_over(cells, classes, first=1))
        result = np.zeros((len(subsets), *(own.count for own in classes)))
        for kept in choices(subsets.shape[1]):
            self._add(result, subsets, kept, classes)
        return result

    def _add(
        self, result: Array, subsets: Subsets, kept: tuple[int, ...], classes: Sequence[Classes]
    ) -> None:
        """Add what the blocks on the places `kept` measured, spread over the other places."""
        measures = self._estimates.measures or ()
        owners, places = self._estimates.index.find(subsets[:, kept])
        shape = [classes[at].size if at in kept else 1 for at in range(len(classes))]
        spread = np.ones((1,) * (1 + len(classes)))
        for at in (at for at in range(len(classes)) if at not in kept):
            spread = spread * _weights(subsets[:, at], measures, classes[at], at, len(classes))
        along = [(1 + at, classes[at]) for at in kept if not classes[at].trivial]
        for owner in np.unique(owners[owners >= 0]).tolist():
            here = np.flatnonzero(owners == owner)
            blocks = self._estimates.cells[owner][places[here]].reshape(len(here), *shape)
            for axis, own in along:
                blocks = own.summed(blocks, axis)
            if len(here) == len(result):
                result += blocks * spread
            else:
                result[here] += blocks * (spread if len(spread) == 1 else spread[here])

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
        cells = self.by_classes(ascending, [classes[at] for at in order])[0]
        return apply_queries(cells.transpose(np.argsort(order)), factors).reshape(-1)

    def run(self, tables: TableRun) -> Iterator[tuple[Indices, Array]]:
        """Answers of many tables: indices of tables of one shape, and their answers (tables, count)."""
        found: dict[object, list[int]] = {}
        for index, row in enumerate(tables.subsets.tolist()):
            found.setdefault(tuple(tables.queries_of(at) for at in row), []).append(index)
        for indices in found.values():
            first = tables[indices[0]]
            sizes = [factor.queries.cells for factor in first.factors]
            step = max(1, ESTIMATED_CELLS // max(1, math.prod(sizes)))
            for start in range(0, len(indices), step):
                chosen = np.array(indices[start : start + step])
                cells = self.marginals(tables.subsets[chosen], sizes)
                yield chosen, apply_queries(cells, first.factors, leading=1).reshape(len(chosen), -1)


def apply_queries(cells: Array, factors: Sequence[Factor], *, leading: int = 0) -> Array:
    """Every product of queries on cells (leading..., sizes of all factors...), flattened per factor."""
    tensor = cells.reshape((*cells.shape[:leading], *(factor.queries.cells for factor in factors)))
    for place, factor in enumerate(factors):
        axis = leading + place
        tensor = np.moveaxis(factor.queries.answers(np.moveaxis(tensor, axis, -1)), -1, axis)
    return tensor


def _weights(
    attributes: Subsets, measures: Sequence[Measure], classes: Classes, place: int, ways: int
) -> Array:
    """Weights that spread along one place, (k or 1, 1.., classes, 1..): each marginal has its own."""
    distinct, inverse = np.unique(attributes, return_inverse=True)
    own = [measures[at] for at in distinct.tolist()]
    if len(set(own)) == 1:
        own, inverse = own[:1], np.zeros(1, dtype=np.intp)
    if all(measure.weights is None for measure in own) and classes.trivial:
        return np.full((1,) * (1 + ways), 1.0 / classes.size)
    rows = np.stack([classes.summed(measure.vector(), 0) for measure in own])[inverse.reshape(-1)]
    return rows.reshape(len(rows), *(1,) * place, -1, *(1,) * (ways - place - 1))
