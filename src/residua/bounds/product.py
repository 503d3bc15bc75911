"""The dual bound over cell weights that are a product, for tables on few attributes of a domain of any size.

Under product weights the gram of a workload falls into coordinates by subsets of attributes (claim B-006). Of
tables on single attributes and pairs, the part of a pair that varies along both its attributes meets no other
pair: it is eliminated, and what is left has one coordinate for the total and one less than its cells for each
attribute. The trace of the square root is bounded from below through traces of inverses (B-007). Tables on
three and more attributes add what varies along all of theirs (B-008).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residua.bounds.evaluation import Evaluation, Problem
from residua.bounds.leaves import Axis
from residua.bounds.pairs import structure_of, ways_of
from residua.errors import Infeasible, WorkloadError
from residua.linalg.keys import distinct_rows
from residua.linalg.threads import threads_for
from residua.workload import Factor, Queries, Table, TableRun, Workload

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

HEAVIEST = 2e10  # rank^2 * cells of the tables of a pair that are looked at
MOST_SHARED = 2_500  # dimensions of the total and all attributes, exchangeable ones counted once
BUDGET = 4e10  # rank^2 * cells of all pairs, over all steps of the search
MOST_STEPS = 40
LEAST_GAIN = 1e-7  # relative; a step that gains less is the last
LEAST_WEIGHT = 1e-12  # of a cell
ROUNDING = 1e-9  # relative; more than rounding adds to sums of positive numbers


def product_dual(work: Workload) -> float:
    """The best dual bound found over cell weights that are a product over the attributes (B-006 to B-008).

    Within about 1% of the optimum for tables on single attributes and pairs, of any families; tables on three
    and more attributes count in part. The number of attributes hardly matters.

    >>> import residua as rs
    >>> schema = rs.Schema.of_sizes([4] * 20)
    >>> work = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.affine)
    >>> lower = math.sqrt(rs.bounds.product_dual(work) / work.count)
    >>> round(lower, 1), round(rs.plan(work, rs.privacy_cost(1)).rmse, 1)
    (8.9, 9.0)
    """
    if not isinstance(work, Workload):
        raise WorkloadError(f"a bound is on a workload, such as rs.marginals(schema, ways=2), not {work!r}")
    structure = structure_of(work, HEAVIEST)
    shared = 1 + sum(structure.sizes[kind] - 1 for kind in structure.kind_of)
    if shared > MOST_SHARED:
        raise Infeasible(
            f"tables on up to two attributes share {shared:,} dimensions, more than the {MOST_SHARED:,} that "
            "fit; take fewer attributes at a time, or coarser ones"
        )
    wide = [part for part in work.parts if ways_of(part) > 2]
    with threads_for(shared):
        problem = Problem.of(structure)
        uniform = [np.full(size, 1.0 / size) for size in structure.sizes]
        values = []
        for weights in (uniform, _Search(problem).best(uniform)):
            axes = [Axis.of(each) for each in weights]
            values.append(Evaluation(problem, axes).value + _wide_roots(wide, structure.kinds, axes))
    return (max(values) * (1 - ROUNDING)) ** 2


def product_dual_or_nothing(work: Workload) -> float:
    """The bound where it can be had, otherwise 0, which is a bound too."""
    try:
        return product_dual(work)
    except Infeasible:
        return 0.0


class _Search:
    """Quasi-Newton steps on the logarithms of the weights of each kind of attribute."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._ends = np.cumsum(problem.structure.sizes)[:-1]
        self._counts = problem.structure.attributes()
        self._value = 0.0
        self._best: list[Array] = []

    def best(self, start: list[Array]) -> list[Array]:
        """The weights with the largest bound of all that were tried."""
        from scipy.optimize import minimize

        self._best = start
        steps = int(min(MOST_STEPS, BUDGET // max(self._problem.structure.work, 1.0)))
        if steps > 1 and self._problem.structure.members:
            minimize(
                self._loss,
                np.log(np.concatenate(start)),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": steps, "maxfun": steps, "ftol": LEAST_GAIN},
            )
        return self._best

    def _loss(self, logs: Array) -> tuple[float, Array]:
        """Minus the logarithm of the root under weights scaled to sum 1, and its slope."""
        weights = [_scaled(part) for part in np.split(logs, self._ends)]
        found = Evaluation(self._problem, [Axis.of(part) for part in weights])
        if found.value > self._value:
            self._value, self._best = found.value, weights
        slopes = [
            0.5 * (count * part - traces / found.value)
            for part, traces, count in zip(weights, found.traces(), self._counts, strict=True)
        ]
        return -math.log(found.value), np.concatenate(slopes)


def _scaled(logs: Array) -> Array:
    """Positive weights that sum to 1."""
    raw = np.exp(logs - logs.max())
    weights = np.maximum(raw / raw.sum(), LEAST_WEIGHT)
    return np.asarray(weights / weights.sum())


def _wide_roots(parts: Sequence[Table | TableRun], kinds: Sequence[int], axes: Sequence[Axis]) -> float:
    """Sum over sets of three and more attributes of the root of what varies along all of them (B-008)."""
    known: dict[tuple[Queries, tuple[int, ...]], float] = {}

    def root(factor: Factor) -> float:
        key = (factor.queries, tuple(kinds[at] for at in factor.attributes))
        if key not in known:
            tensor = factor.queries.root().reshape(-1, *factor.queries.sizes)
            for place, kind in enumerate(key[1]):
                tensor = np.moveaxis(np.tensordot(tensor, axes[kind].centred, (1 + place, 0)), -1, 1 + place)
            known[key] = float(np.linalg.svd(tensor.reshape(len(tensor), -1), compute_uv=False).sum())
        return known[key]

    sums: dict[int, list[tuple[Subsets, Array]]] = {}
    for part in parts:
        if isinstance(part, TableRun) and part.joint is None:
            one = np.zeros(len(part.schema))
            for at in part.attributes:
                one[at] = root(Factor((at,), part.queries_of(at)))
            squares = part.weight * one[part.subsets].prod(axis=1) ** 2
            sums.setdefault(part.ways, []).append((np.sort(part.subsets, axis=1), squares))
        else:
            for group in part if isinstance(part, TableRun) else (part,):
                square = group.weight * math.prod(map(root, group.factors)) ** 2
                subset = np.array([sorted(group.attributes)], dtype=np.int32)
                sums.setdefault(subset.shape[1], []).append((subset, np.array([square])))
    return math.fsum(_over_distinct(runs) for runs in sums.values())


def _over_distinct(runs: Sequence[tuple[Subsets, Array]]) -> float:
    """Sum over distinct subsets of the root of the sum of squares."""
    subsets = np.concatenate([subset for subset, _ in runs]).astype(np.int64)
    numbers = distinct_rows(subsets)[1]
    return float(np.sqrt(np.bincount(numbers, weights=np.concatenate([square for _, square in runs]))).sum())
