"""Strategies for comparison, for either law of noise.

Products of one fixed matrix per attribute that do not look at the workload (identity, hierarchical, HB,
wavelet); the workload itself; and simple searches of others (GreedyH, eigen-design, DataCube).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import BASELINE_CELLS, BASELINE_ENTRIES
from residua.answering.blocks import Placed, Shape
from residua.errors import Infeasible
from residua.kernel.measurement import column_costs
from residua.linalg.grams import inverse_gram
from residua.methods.draft import Draft
from residua.methods.hdmm.demand import Bound, lower_bound, product_draft
from residua.methods.hdmm.marginals import (
    Move,
    Weighing,
    applied,
    plain_kernels,
    unions,
    weighing_of,
    weighted_strategy,
)
from residua.methods.hdmm.marginals import at_cost_one as weights_at_cost_one
from residua.methods.hdmm.products import Products
from residua.privacy import NoiseLaw
from residua.privacy.budgets import unit_variance
from residua.solve.newton import quasi_newton
from residua.strategy.build import Spans, integer_span, of_blocks
from residua.strategy.integers import independent_integers
from residua.workload import Queries, Workload
from residua.workload.union import refuse_many_cells


def _tree(cells: int, cut: Callable[[int, int], Sequence[int]]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Every node of a tree over the cells, root first: its range, and where it is cut, if it is."""
    nodes = [(0, cells)]
    for start, stop in nodes:
        ends = cut(start, stop) if stop - start > 1 else ()
        nodes += pairwise(ends)
        yield start, stop, ends


def _range(cells: int, start: int, stop: int) -> Array:
    place = np.arange(cells)
    return ((place >= start) & (place < stop)).astype(np.float64)


def hierarchical_matrix(cells: int, branching: int = 2) -> Array:
    """Every node of a tree over the cells, root and leaves included (H2 for two branches).

    Each level cuts the last into `branching` nearly equal parts; a part of one cell is not cut again, so
    that no query is repeated.
    """

    def cut(start: int, stop: int) -> list[int]:
        ends = np.linspace(start, stop, min(branching, stop - start) + 1).round()
        return [int(end) for end in ends]

    return np.array([_range(cells, start, stop) for start, stop, _ in _tree(cells, cut)])


def wavelet_matrix(cells: int) -> Array:
    """The total and, at every node of a binary tree, left half minus right half (Haar; Privelet)."""
    halves = [ends for _, _, ends in _tree(cells, lambda a, b: (a, (a + b + 1) // 2, b)) if ends]
    rows = [_range(cells, a, middle) - _range(cells, middle, b) for a, middle, b in halves]
    return np.array([np.ones(cells), *rows])


def best_branching(cells: int) -> int:
    """The number of branches of HB: the one with the least mean error over all ranges of a full tree.

    A tree of height h with b branches has a mean variance in proportion to `(b - 1) h^3 - 2 (b + 1) h^2 / 3`
    (Qardaji, Yang and Li, 2013).
    """
    if cells <= 3:
        return 2

    def error(branches: int) -> float:
        height = math.ceil(math.log(cells, branches) - 1e-12)
        return (branches - 1) * height**3 - 2 * (branches + 1) * height**2 / 3

    return min(range(2, cells + 1), key=error)


def hb_matrix(cells: int) -> Array:
    """The tree with the best number of branches for ranges, without its root (HB)."""
    rows = hierarchical_matrix(cells, best_branching(cells))
    return rows if cells == 1 else rows[1:]


def plain_cells(work: Workload, law: NoiseLaw, bound: Bound | None = None) -> Draft:
    """Noise on every joint cell of the attributes in use; `bound` is what is known of the workload."""
    return _fixed(work, law, np.eye, bound)


def _fixed(
    work: Workload, law: NoiseLaw, matrix: Callable[[int], Array], bound: Bound | None = None
) -> Draft:
    """The product of `matrix(size)` over the attributes in use, scaled to cost 1."""
    factors = []
    for axis in work.attributes:
        size = work.schema.sizes[axis]
        if size > BASELINE_CELLS:
            raise Infeasible(
                f"attribute {work.schema.names[axis]!r} has {size:,} cells; a baseline holds at most "
                f"{BASELINE_CELLS:,}"
            )
        factors.append(Placed((axis,), Shape.of((size,), at_cost_one(matrix(size), law))))
    return product_draft(work, law, factors, bound)


def at_cost_one(rows: Array, law: NoiseLaw) -> Array:
    """The rows scaled so that noise of parameter 1 costs 1."""
    most = float(column_costs(law, rows).max())
    return rows / (most if law == "laplace" else math.sqrt(most))


TREE_TURNS = 3
MOST_MOVES = 40  # merges that one round makes at most
LOST = 1e-15  # a precision that rounding leaves of zero
NOTHING = 1e-12  # of the largest eigenvalue: smaller ones are what rounding leaves of zero


def workload_itself(work: Workload, law: NoiseLaw) -> Draft:
    """Every query of every table measured with equal noise; tables must ask one family of an attribute."""
    families: dict[int, Queries] = {}
    for group in work.groups():
        for factor in group.factors:
            known = families.setdefault(factor.attributes[0], factor.queries)
            if len(factor.attributes) > 1 or known != factor.queries:
                raise Infeasible(
                    f"table {group.name!r} asks other queries of an attribute than another table, or "
                    "about several together; such tables are not measured as they are: plan with 'hdmm'"
                )
            if factor.queries.count * factor.queries.cells > BASELINE_ENTRIES:
                raise Infeasible(f"{factor.queries!r} has too many queries to be measured one by one")
    distinct = {queries: Shape.of(queries.sizes, queries.matrix()) for queries in families.values()}
    blocks = [
        ([Placed((at,), distinct[families[at]]) for at in sorted(group.attributes)], unit_variance(law))
        for group in work.groups()
    ]
    strategy = of_blocks(work.schema.sizes, blocks, law)
    return Draft(strategy.scaled(1 / strategy.cost()), *lower_bound(work, law))


def datacube(work: Workload, law: NoiseLaw) -> Draft:
    """Marginals of plain cells with equal noise: tables are merged as long as that makes errors smaller."""
    kernels = plain_kernels(work)
    problem = weighing_of(work, law, kernels)
    if not isinstance(problem.gives, np.ndarray):
        raise Infeasible(f"{len(problem.terms):,} marginals are more than DataCube looks through")
    weights = weights_at_cost_one(law, _merged(problem))
    strategy = weighted_strategy(work, kernels, law, problem.by_term(weights))
    return Draft(strategy, *lower_bound(work, law))


def _by_axis(work: Workload, law: NoiseLaw, matrix_for: Callable[[Array], Array]) -> Draft:
    """The product of a strategy per axis, each for the sum of what tables ask of it, scaled to cost 1."""
    asked = Products.of(work)
    factors = []
    for at, axis in enumerate(asked.axes):
        refuse_many_cells(axis.cells, "the cells of one attribute")
        tables = np.bincount(asked.families[:, at], asked.weights, minlength=len(axis.grams))
        gram = np.asarray(np.tensordot(tables, np.array(axis.grams), axes=1), dtype=np.float64)
        factors.append(Placed(axis.attributes, Shape.of(axis.sizes, at_cost_one(matrix_for(gram), law))))
    return product_draft(work, law, factors, spans=_spans(work, factors))


def _spans(work: Workload, factors: Sequence[Placed]) -> Spans:
    """Integer rows that span what is asked, for factors that do not measure all their cells."""
    spans: dict[int, Integers | None] = {}
    for number, factor in enumerate(factors):
        if factor.shape.gram_inverse[1] is None:
            continue
        asked = {
            f.queries for group in work.groups() for f in group.factors if f.attributes == factor.attributes
        }
        rows = [integer_span(queries) for queries in asked]
        known = [each for each in rows if each is not None]
        whole = len(known) == len(rows) and known
        spans[number] = independent_integers(np.concatenate(known), factor.shape.rank) if whole else None
    return spans


def tree_for(gram: Array, law: NoiseLaw) -> Array:
    """A binary tree whose levels have weights found one at a time, from the leaves up (GreedyH)."""
    rows = hierarchical_matrix(len(gram))
    widths = rows.sum(axis=1)
    levels = np.ceil(np.log2(np.maximum(widths, 1.0)) - 1e-9).astype(np.int64)  # 0 for leaves
    weights = np.where(np.arange(levels.max() + 1) == 0, 1.0, 0.0)

    def error(level: int, weight: float) -> float:
        trial = np.where(np.arange(len(weights)) == level, weight, weights)
        strategy = at_cost_one(rows * trial[levels][:, None], law)
        return float(np.sum(gram * inverse_gram(strategy[trial[levels] > 0])[0]))

    tried = (0.0, *np.geomspace(0.05, 5.0, 14).tolist())
    for _ in range(TREE_TURNS if len(gram) <= 256 else 1):
        for level in range(1, len(weights)):
            errors = [error(level, weight) for weight in tried]
            weights[level] = tried[int(np.argmin(errors))]
    return np.asarray((rows * weights[levels][:, None])[weights[levels] > 0])


def _weighted_eigenvectors(gram: Array) -> Array:
    """Eigenvectors v_k of the gram, times the best weights u_k for Gaussian noise (eigen-design).

    Those have `sum u_k^2 v_ki^2 <= 1` for every cell.

    The least `sum(lambda_k / u_k^2)` is the largest `(sum_k sqrt(lambda_k sum_i m_i v_ki^2))^2` over
    multipliers m >= 0 of sum 1, a concave problem.
    """

    values, vectors = np.linalg.eigh(gram)
    kept = values > NOTHING * values[-1]
    values, squares = values[kept], vectors[:, kept].T ** 2

    def negative(logs: Array) -> tuple[float, Array]:
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        seen = squares @ shares
        roots = np.sqrt(values * seen)
        slope = 0.5 * ((roots / seen) @ squares)
        return -float(np.log(roots.sum())), -shares * (slope - float(slope @ shares)) / float(roots.sum())

    found = quasi_newton(negative, np.zeros(len(gram)), maxiter=500)
    shares = np.exp(found - found.max())
    weights = np.sqrt(np.sqrt(values / (squares @ shares)))
    return np.asarray(weights[:, None] * vectors[:, kept].T)


def _merged(problem: Weighing) -> Array:
    """Weights one or zero: tables' own terms, of which two give way to their union, or one to none.

    In each round the moves that would help most are made, those that still help after the ones before.
    """
    moved: Array | None = problem.asked.astype(np.float64)
    while moved is not None:
        chosen, order = moved, np.flatnonzero(moved).tolist()
        moves = [*((at, at, -1) for at in order), *unions(problem, order)]  # -1 where no term comes
        errors = _errors(problem, chosen, np.array(moves, dtype=np.int64))
        best = np.argsort(errors, kind="stable")[:MOST_MOVES].tolist()
        moved = applied(problem, chosen, [moves[at] for at in best], _replace)
    return chosen


def _replace(chosen: Array, terms: Move) -> None:
    """Drop the first two terms for the third, if there is one."""
    chosen[[*terms[:2]]] = 0.0
    if terms[2] >= 0:
        chosen[terms[2]] = 1.0


def _errors(problem: Weighing, chosen: Array, moves: Integers) -> Array:
    """The total variance after each move, infinite where something is not measured any more."""
    precision = chosen @ problem.gives
    result = np.empty(len(moves))
    for start in range(0, len(moves), 2_000):
        first, second, union = moves[start : start + 2_000].T
        pair = first != second
        after = precision - problem.gives[first] - pair[:, None] * problem.gives[second]
        fresh = (union >= 0) & (chosen[union] == 0)
        after = after + fresh[:, None] * problem.gives[union]
        count = chosen.sum() - 1 - pair + fresh
        cost = count**2 if problem.law == "laplace" else count
        sums = np.divide(problem.demand, after, out=np.full_like(after, np.inf), where=after > LOST)
        # Where nothing is left to measure the sums are infinite, and a cost of zero is no bargain.
        result[start : start + 2_000] = np.where(count > 0, cost, 1.0) * sums.sum(axis=1)
    return result


BASELINES: dict[str, Callable[[Workload, NoiseLaw], Draft]] = {
    "identity": plain_cells,
    "hierarchical": lambda work, law: _fixed(work, law, hierarchical_matrix),
    "hb": lambda work, law: _fixed(work, law, hb_matrix),
    "wavelet": lambda work, law: _fixed(work, law, wavelet_matrix),
    "greedy": lambda work, law: _by_axis(work, law, lambda gram: tree_for(gram, law)),
    "eigen": lambda work, law: _by_axis(work, law, _weighted_eigenvectors),
    "datacube": datacube,
    "workload": workload_itself,
}
