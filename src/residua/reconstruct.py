"""Answers from measurements: one least-squares estimator, so that all answers agree with each other.

For block plans the estimate of a marginal is the sum, over its subsets of attributes, of what the block on
that subset measured, spread evenly along the other attributes (claim A-004). Every query is then answered
from the estimate of its marginal.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from residua.estimates import Estimates
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.workload import Factor, Group, Tables

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

CHUNK_CELLS = 20_000_000  # cells of estimated marginals held at once


class Estimator:
    """Least-squares estimates of marginals, and of any query on them."""

    def __init__(self, mechanism: Mechanism, estimates: Estimates) -> None:
        self._mechanism = mechanism.blocks if isinstance(mechanism, NestedStrategy) else mechanism
        self._estimates = estimates

    def marginals(self, subsets: Subsets, sizes: Sequence[int]) -> Array:
        """Estimates of marginals of one shape: (k, ways) ascending attributes to (k, sizes...)."""
        if not isinstance(self._mechanism, Layered):
            return self._joint(subsets, sizes)
        ways = subsets.shape[1]
        result = np.zeros((len(subsets), *sizes))
        for size in range(ways + 1):
            for kept in combinations(range(ways), size):
                self._add(result, subsets, kept, sizes)
        return result

    def _add(self, result: Array, subsets: Subsets, kept: tuple[int, ...], sizes: Sequence[int]) -> None:
        """Add what the blocks on the places `kept` measured, spread over the other places."""
        measures = self._mechanism.measures if isinstance(self._mechanism, Layered) else ()
        owners, places = self._estimates.index.find(subsets[:, kept])
        shape = [sizes[at] if at in kept else 1 for at in range(len(sizes))]
        others = [at for at in range(len(sizes)) if at not in kept]
        even = math.prod(1.0 / sizes[at] for at in others)
        tilted = [at for at in others if measures[int(subsets[0, at])].weights is not None]
        spread = np.full((1,) * (1 + len(sizes)), even)
        for at in tilted:
            weights = measures[int(subsets[0, at])].vector() * sizes[at]
            spread = spread * np.expand_dims(
                weights, [axis for axis in range(1 + len(sizes)) if axis != 1 + at]
            )
        for owner in np.unique(owners[owners >= 0]).tolist():
            here = np.flatnonzero(owners == owner)
            blocks = self._estimates.cells[owner][places[here]].reshape(len(here), *shape) * spread
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

    def answers(self, group: Group) -> Array:
        """Estimate of each query's answer, shape (count,)."""
        attributes = group.attributes
        order = np.argsort(attributes)
        ascending = np.array([sorted(attributes)], dtype=np.int32).reshape(1, -1)
        sizes = [size for factor in group.factors for size in factor.queries.sizes]
        cells = self.marginals(ascending, [sizes[at] for at in order])[0]
        return apply_queries(cells.transpose(np.argsort(order)), group.factors).reshape(-1)

    def run(self, tables: Tables) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Answers of many tables: indices of tables of one shape, and their answers (tables, count)."""
        kinds: dict[object, list[int]] = {}
        for index, row in enumerate(tables.subsets.tolist()):
            kinds.setdefault(tuple(tables.queries_of(at) for at in row), []).append(index)
        for queries, indices in kinds.items():
            yield from self._run_of_kind(tables, np.array(indices), queries)

    def _run_of_kind(
        self, tables: Tables, indices: NDArray[np.intp], queries: object
    ) -> Iterator[tuple[NDArray[np.intp], Array]]:
        first = tables[int(indices[0])]
        sizes = [factor.queries.cells for factor in first.factors]
        step = max(1, CHUNK_CELLS // max(1, math.prod(sizes)))
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
