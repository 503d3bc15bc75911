"""OPT_M and more: the best weights found for measured marginals that contain each other (claim H-023).

With one strategy per attribute fixed, a term on attributes S at weight `t` gives every residual inside S the
precision `t^2 / prod s_i`, the product over what S has more. Laplace noise allows a sum of weights of one,
Gaussian noise a sum of squares, for which the problem is convex, and often solved by a formula (claim H-027).
With plain cells for every attribute this is the paper's OPT_M.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from residua._arrays import Array
from residua._limits import COUNTED_CELLS, COVERING_TERMS, DENSE_NUMBERS, EVERY_SUBSET, MARGINAL_TERMS
from residua.answering.blocks import Placed, Subset
from residua.errors import Infeasible
from residua.methods.draft import Draft, Progress
from residua.methods.hdmm.demand import Kernel, asked_by, closed_form, demands, given, lower_bound, precisions
from residua.methods.hdmm.weighing import Weighing, best_weights
from residua.privacy import NoiseLaw
from residua.privacy.statement import unit_variance
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Strategy
from residua.workload import Table, Workload


def marginals(work: Workload, law: NoiseLaw, progress: Progress | None = None) -> Draft:
    """The best weights found for marginals of plain cells, at cost 1."""
    kernels = plain_kernels(work)
    return Draft(weighted_terms(work, law, kernels, progress)[0], *lower_bound(work, law))


def plain_kernels(work: Workload) -> dict[int, Kernel]:
    """Every cell of every attribute in use."""
    numbers: dict[int, Kernel] = {}
    sizes = {at: work.schema.sizes[at] for at in work.attributes}
    for size in sorted(set(sizes.values())):
        numbers[size] = Kernel.of(np.eye(size), -size)
    return {at: numbers[size] for at, size in sizes.items()}


def weighted_terms(
    work: Workload, law: NoiseLaw, kernels: Mapping[int, Kernel], progress: Progress | None = None
) -> tuple[Strategy, float]:
    """The nested strategy at cost 1 with the best weights found, and its total weighted variance."""
    demand = demands(work, kernels)
    if law == "gaussian":
        squares = closed_form(demand, {at: kernel.spread for at, kernel in kernels.items()})
        if squares is not None:
            _refuse_large(work, demand)
            weights = {term: math.sqrt(square) for term, square in squares.items()}
            precision = precisions(squares.items(), kernels)
            value = math.fsum(amount / precision[kept] for kept, amount in demand.items())
            return weighted_strategy(work, kernels, law, weights), value
    problem = _weighing(work, law, kernels, demand)
    found, value = best_weights(problem, progress)
    weights = problem.by_term(found)
    return weighted_strategy(work, kernels, law, weights), unit_variance(law) * value


def weighing_of(work: Workload, law: NoiseLaw, kernels: Mapping[int, Kernel]) -> Weighing:
    """The terms that may be measured, and what is to be weighed."""
    return _weighing(work, law, kernels, demands(work, kernels))


def _weighing(
    work: Workload, law: NoiseLaw, kernels: Mapping[int, Kernel], demand: Mapping[Subset, float]
) -> Weighing:
    residuals = list(demand)
    _refuse_large(work, residuals)
    terms = _terms(work, residuals)
    own = {subset for group in work.groups() for subset in _own_terms(group, kernels, demand)}
    asked = np.array([subset in own for subset in terms])
    fits = len(terms) * len(residuals) <= DENSE_NUMBERS
    gives = _gives(terms, residuals, kernels) if fits else _sparse_gives(terms, residuals, kernels)
    return Weighing(gives, np.array([demand[residual] for residual in residuals]), law, terms, asked)


def _own_terms(
    group: Table, kernels: Mapping[int, Kernel], demand: Mapping[Subset, float]
) -> Iterator[Subset]:
    """The marginals that a table needs: that of its attributes, but for those it asks only totals of."""
    whole = tuple(sorted(group.attributes))
    if whole in demand:
        yield whole
        return
    asked = [residual for residual, _ in asked_by(group, kernels, {})]
    yield from (each for each in asked if not any(set(each) < set(other) for other in asked))


def weighted_strategy(
    work: Workload, kernels: Mapping[int, Kernel], law: NoiseLaw, weights: Mapping[Subset, float]
) -> Strategy:
    """The strategy of terms with these weights, which must cost 1."""
    blocks = [
        ([Placed((at,), kernels[at].shape) for at in subset], unit_variance(law) / weight**2)
        for subset, weight in weights.items()
    ]
    return of_blocks(work.schema.sizes, blocks, law)


def _gives(terms: Sequence[Subset], residuals: Sequence[Subset], kernels: Mapping[int, Kernel]) -> Array:
    """What every term gives every residual at weight 1, (terms, residuals)."""
    used = sorted({at for subset in terms for at in subset})
    inside = np.array([[at in subset for at in used] for subset in terms], dtype=np.float64)
    wanted = np.array([[at in residual for at in used] for residual in residuals], dtype=np.float64)
    logs = np.array([math.log(kernels[at].spread) for at in used])
    missing = (1.0 - inside) @ wanted.T  # attributes of the residual that the term lacks
    gives = np.where(missing == 0, np.exp((wanted @ logs)[None, :] - (inside @ logs)[:, None]), 0.0)
    return np.asarray(gives)


def _sparse_gives(terms: Sequence[Subset], residuals: Sequence[Subset], kernels: Mapping[int, Kernel]) -> Any:
    """The same as a sparse array."""
    from scipy.sparse import csr_array

    place = {residual: at for at, residual in enumerate(residuals)}
    entries = [
        (row, place[kept], amount)
        for row, subset in enumerate(terms)
        for kept, amount in given(subset, kernels)
        if kept in place
    ]
    rows, columns, amounts = zip(*entries, strict=True)
    return csr_array((amounts, (rows, columns)), shape=(len(terms), len(residuals)))


def _terms(work: Workload, residuals: Sequence[Subset]) -> list[Subset]:
    """Attributes of every term that is considered."""
    used = sorted({at for residual in residuals for at in residual})
    sizes = work.schema.sizes
    if len(used) <= EVERY_SUBSET:
        subsets = [each for ways in range(len(used) + 1) for each in combinations(used, ways)]
    else:
        wanted = set(residuals)
        grown = wanted | {
            tuple(sorted((*residual, at)))
            for residual in residuals
            for at in used
            if at not in residual and len(wanted) * len(used) <= MARGINAL_TERMS
        }
        ways = max(map(len, residuals))
        subsets = sorted(grown | set(_covering(used, ways)), key=lambda each: (len(each), each))
    return [each for each in subsets if math.prod(sizes[at] for at in each) <= COUNTED_CELLS]


def _refuse_large(work: Workload, residuals: Iterable[Subset]) -> None:
    """Infeasible if a residual that is asked about is in no marginal that can be counted."""
    for residual in residuals:
        cells = math.prod(work.schema.sizes[at] for at in residual)
        if cells > COUNTED_CELLS:
            names = " x ".join(work.schema.names[at] for at in residual)
            raise Infeasible(
                f"a table of {cells:,} cells, {names}, is asked for, more than the {COUNTED_CELLS:,} that "
                "are counted; use coarser attributes or fewer of them in one table"
            )


def _covering(used: Sequence[int], ways: int) -> Iterator[Subset]:
    """Unions of so many groups of attributes: few large marginals that together contain all small ones."""
    for size in range(2, len(used) // ways + 1):
        groups = [tuple(used[start : start + size]) for start in range(0, len(used), size)]
        if math.comb(len(groups), ways) <= COVERING_TERMS:
            for chosen in combinations(groups, min(ways, len(groups))):
                yield tuple(sorted(at for group in chosen for at in group))
