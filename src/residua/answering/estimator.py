"""Answers from measurements: one least-squares estimator, so that all answers agree with each other.

For block plans the estimate of a marginal is the sum, over its subsets of attributes, of what the block on
that subset measured, spread evenly along the other attributes (claim A-004). Every query is then answered
from the estimate of its marginal.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua._limits import ESTIMATED_CELLS
from residua.answering.coarsened import Coarsened
from residua.answering.protocol import Answerer, Estimates
from residua.errors import Infeasible
from residua.linalg.centring import Measure
from residua.linalg.classes import Classes, summed_over
from residua.workload import Factor, Table, TableRun
from residua.workload.tables import choices, without_totals
from residua.workload.views import by_own_classes

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]


class Estimator:
    """Least-squares estimates of marginals, and of any query on them."""

    def __init__(self, answerer: Answerer, estimates: Estimates) -> None:
        self._estimates = estimates
        self._coarsened = answerer if isinstance(answerer, Coarsened) else None
        self._parts: list[Estimator] = []
        if isinstance(answerer, Coarsened):
            pairs = zip(answerer.answerers, estimates.parts, strict=True)
            self._parts = [Estimator(own, found) for own, found in pairs]

    def of_domain(self, number: int) -> "Estimator":
        """Estimates of marginals as one of the domains that blocks see has them."""
        return self._parts[number] if self._parts else self

    def marginals(self, subsets: Subsets, sizes: Sequence[int]) -> Array:
        """Estimates of marginals of one shape: (k, ways) ascending attributes to (k, sizes...)."""
        return self._by_kinds(subsets, [Classes.every(size) for size in sizes])

    def _by_kinds(self, subsets: Subsets, kinds: Sequence[Classes]) -> Array:
        """The same, added up by kinds of cells of each place: (k, numbers of kinds...)."""
        if self._parts:
            raise Infeasible(
                "this release was measured by kinds of cells and not by cells, which post-processing starts "
                "from; plan the tables to be processed by themselves"
            )
        if self._estimates.measures is None:
            return np.asarray(summed_over(self._joint(subsets, [own.size for own in kinds]), kinds, first=1))
        ways = subsets.shape[1]
        result = np.zeros((len(subsets), *(own.count for own in kinds)))
        for kept in choices(ways):
            self._add(result, subsets, kept, kinds)
        return result

    def _add(self, result: Array, subsets: Subsets, kept: tuple[int, ...], kinds: Sequence[Classes]) -> None:
        """Add what the blocks on the places `kept` measured, spread over the other places."""
        measures = self._estimates.measures or ()
        owners, places = self._estimates.index.find(subsets[:, kept])
        shape = [kinds[at].size if at in kept else 1 for at in range(len(kinds))]
        spread = np.ones((1,) * (1 + len(kinds)))
        for at in (at for at in range(len(kinds)) if at not in kept):
            spread = spread * _weights(subsets[:, at], measures, kinds[at], at, len(kinds))
        along = [(1 + at, kinds[at]) for at in kept if not kinds[at].trivial]
        for owner in np.unique(owners[owners >= 0]).tolist():
            here = np.flatnonzero(owners == owner)
            blocks = self._estimates.cells[owner][places[here]].reshape(len(here), *shape)
            for axis, own_kinds in along:
                blocks = own_kinds.summed(blocks, axis)
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
        if self._coarsened is not None:
            return self._coarsened.split(group).added_up(lambda at, asked: self._parts[at].answers(asked))
        group = without_totals(group)
        attributes = group.attributes
        order = np.argsort(attributes)
        ascending = np.array([sorted(attributes)], dtype=np.int32).reshape(1, -1)
        factors, kinds = by_own_classes(group.factors)
        cells = self._by_kinds(ascending, [kinds[at] for at in order])[0]
        return apply_queries(cells.transpose(np.argsort(order)), factors).reshape(-1)

    def run(self, tables: TableRun) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Answers of many tables: indices of tables of one shape, and their answers (tables, count)."""
        if self._coarsened is not None:
            seen = self._coarsened.run(tables)
            if seen is not None:
                yield from self._parts[0].run(seen)
            else:
                yield from ((np.array([at]), self.answers(group)[None]) for at, group in enumerate(tables))
            return
        kinds: dict[object, list[int]] = {}
        for index, row in enumerate(tables.subsets.tolist()):
            kinds.setdefault(tuple(tables.queries_of(at) for at in row), []).append(index)
        for indices in kinds.values():
            yield from self._run_of_kind(tables, np.array(indices))

    def _run_of_kind(
        self, tables: TableRun, indices: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """The same for tables with the same queries, some at a time."""
        first = tables[int(indices[0])]
        sizes = [factor.queries.cells for factor in first.factors]
        step = max(1, ESTIMATED_CELLS // max(1, math.prod(sizes)))
        for start in range(0, len(indices), step):
            chosen = indices[start : start + step]
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
    attributes: Subsets, measures: Sequence[Measure], kinds: Classes, place: int, ways: int
) -> Array:
    """Weights that spread along one place, (k or 1, 1.., kinds of cells, 1..): each marginal has its own."""
    distinct, inverse = np.unique(attributes, return_inverse=True)
    own = [measures[at] for at in distinct.tolist()]
    if len(set(own)) == 1:
        own, inverse = own[:1], np.zeros(1, dtype=np.intp)
    if all(measure.weights is None for measure in own) and kinds.trivial:
        return np.full((1,) * (1 + ways), 1.0 / kinds.size)
    rows = np.stack([kinds.summed(measure.vector(), 0) for measure in own])[inverse.reshape(-1)]
    return rows.reshape(len(rows), *(1,) * place, -1, *(1,) * (ways - place - 1))
