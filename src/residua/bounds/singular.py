"""Bounds from singular values of the whole workload, or of one family after the other (B-001 to B-004)."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from residua._arrays import Array, Subsets
from residua.decompose import decompose
from residua.errors import Infeasible, WorkloadError
from residua.linalg.folding import Fold
from residua.solve.cells import UNIT_ROUNDOFF, solve_cells
from residua.workload import Workload
from residua.workload.union import common_product, joint_rows, refuse_many_cells

DUAL_GAP = 1e-5
FEW_DIGITS = 1e-7  # relative; where squaring may have taken more of a bound, it is not squared
EVERY_RANGE = 64  # cells up to which every range is tried; above, ranges on a grid, then around the best


def svd(work: Workload) -> float:
    """The singular value bound (claim B-001): square of the sum of the singular values, over the cells.

    In closed form, without building the domain, for tables of families that treat all cells alike
    (marginals); as a product of bounds for one product of families; otherwise for at most about 4,000
    joint cells.

    >>> import residua as rs
    >>> schema = rs.Schema.of_sizes([10] * 40)
    >>> round(rs.bounds.svd(rs.marginals(schema, ways=2)))
    42845047
    """
    refuse_other(work)
    if work.invariant:
        return _invariant_svd(work)
    return _over_factors(work, svd_of_root)


def supreme_svd(work: Workload, sets: Iterable[Iterable[int]] | None = None) -> float:
    """The largest singular value bound over projections onto sets of cells (claim B-002).

    Without `sets`: ranges of cells, every one up to 64 cells, above that ranges on a grid refined around
    the best. `sets` are more sets of joint cells to try, row-major over the attributes in use.
    """
    best = svd(work) if sets is None else max(svd(work), _best_of_sets(work, sets))
    if work.invariant:
        return best  # already the optimum (claim B-003)
    return max(best, _over_factors(work, _best_range))


def dual(work: Workload) -> float:
    """The best lower bound there is, within 1e-5 of the optimum itself (claim B-004).

    Of a product of families, within 1e-5 for each factor.
    """
    refuse_other(work)
    if work.invariant:
        return _invariant_svd(work)
    return _over_factors(
        work, lambda root: solve_cells(root, DUAL_GAP).require(DUAL_GAP, "the dual bound").lower
    )


def svd_or_nothing(work: Workload) -> float:
    """The singular value bound where it is cheap, otherwise 0, which is a bound too."""
    try:
        return svd(work)
    except Infeasible:
        return 0.0


def _over_factors(work: Workload, bound: Callable[[Array], float]) -> float:
    """A bound of one root matrix, multiplied over the factors of a product or taken of the joint rows."""
    shared = common_product(work)
    if shared is None:
        return bound(joint_rows(work))
    weight, factors = shared
    for factor in factors:
        refuse_many_cells(factor.queries.cells, repr(factor.queries))
    return float(weight * math.prod(bound(factor.queries.root()) for factor in factors))


def refuse_other(work: object) -> None:
    """Nothing, or WorkloadError where this is no workload."""
    if not isinstance(work, Workload):
        raise WorkloadError(f"a bound is on a workload, such as rs.marginals(schema, ways=2), not {work!r}")


def svd_of_root(root: Array) -> float:
    """The singular value bound of queries with gram `root' root`, rounding taken off."""
    scales = np.linalg.svd(root, compute_uv=False)
    error = 4 * sum(root.shape) * UNIT_ROUNDOFF * float(scales[0])
    total = float(np.maximum(scales - error, 0.0).sum())
    return total * total / float(root.shape[1])


def svd_of_gram(gram: Array, fold: Fold | None = None) -> float | None:
    """The same from the gram itself, in a third of the time; None where squaring leaves few digits.

    A quarter of that where an exchange of cells leaves the gram as it is (claim S-012).
    """
    parts = (gram,) if fold is None else fold.parts(gram)
    squares = np.sort(np.concatenate([np.linalg.eigvalsh(part) for part in parts]))
    cells = len(gram)
    error = UNIT_ROUNDOFF * 4 * (cells + 4) * (float(np.trace(gram)) + float(squares[-1]))
    total = float(np.sqrt(np.maximum(squares - error, 0.0)).sum())
    most = float(np.sqrt(np.maximum(squares + error, 0.0)).sum())
    return total * total / cells if most - total <= FEW_DIGITS * most else None


def _best_of_sets(work: Workload, sets: Iterable[Iterable[int]]) -> float:
    root = joint_rows(work)
    best = 0.0
    for chosen in sets:
        cells = np.unique(np.fromiter(chosen, dtype=np.int64))
        if not len(cells) or cells[0] < 0 or cells[-1] >= root.shape[1]:
            raise WorkloadError(f"a set of cells must name some of the cells 0..{root.shape[1] - 1}")
        best = max(best, svd_of_root(root[:, cells]))
    return best


def _best_range(root: Array) -> float:
    """Largest bound over ranges of cells `start..stop-1`."""
    cells = root.shape[1]
    tried: dict[tuple[int, int], float] = {}

    def value(start: int, stop: int) -> float:
        if (start, stop) not in tried:
            tried[start, stop] = svd_of_root(root[:, start:stop])
        return tried[start, stop]

    if cells <= EVERY_RANGE:
        return max(value(a, b) for a in range(cells) for b in range(a + 1, cells + 1))
    step = cells // 8
    marks = [*range(0, cells, step), cells]
    best = max(((a, b) for a in marks for b in marks if a < b), key=lambda ends: value(*ends))
    while step > 1:
        step = max(1, step // 2)
        best = max(_around(*best, step, cells), key=lambda ends: value(*ends))
    return value(*best)


def _around(start: int, stop: int, step: int, cells: int) -> Iterator[tuple[int, int]]:
    for a in (start - step, start, start + step):
        for b in (stop - step, stop, stop + step):
            if 0 <= a < b <= cells:
                yield a, b


def _invariant_svd(work: Workload) -> float:
    """The bound from eigenvalues known in advance, one per subset of attributes (claim B-003)."""
    return invariant_root(work, lambda subsets: np.ones(len(subsets))) ** 2


def invariant_root(work: Workload, shares: Callable[[Subsets], Array]) -> float:
    """Sum of roots of the eigenvalues, each times the share of its subset of attributes, one row of several.

    Under the uniform measure the gram of each piece is a multiple of the centring matrix, so the gram of the
    workload is diagonal block by block, and the number of cells of the whole domain cancels.
    """
    parts = decompose(work)
    sizes = np.array([piece.sizes[0] for piece in parts.pieces], dtype=np.float64)
    squares = np.array([np.sum(root**2) for root in parts.roots]) / np.maximum(sizes - 1, 1)
    spread = (sizes - 1) / np.sqrt(sizes)
    total = 0.0
    for blocks in parts.simple:
        scales = blocks.coefficients * squares[blocks.pieces].prod(axis=1) * shares(blocks.subsets)
        total += float(np.sum(np.sqrt(scales) * spread[blocks.pieces].prod(axis=1)))
    for block in parts.mixed:
        numbers = [[piece for _, piece in term.pieces] for term in block.terms]
        scale = sum(
            term.coefficient * math.prod(squares[chosen])
            for term, chosen in zip(block.terms, numbers, strict=True)
        )
        share = float(shares(np.array([block.attributes], dtype=np.int32))[0])
        total += math.sqrt(scale * share) * math.prod(spread[numbers[0]])
    return total
