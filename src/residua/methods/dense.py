"""The yardstick: the best mechanism of all, wherever the cells in use can be held in one matrix.

For the least total variance, or for the least privacy that meets a variance for every query. A workload whose
tables are all multiples of one product of families is solved factor by factor, with the limit on each: values
and bounds multiply (claims S-008 and G-002).
"""

import math
from collections.abc import Sequence

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import DENSE_CELLS, TARGET_ENTRIES, TARGET_QUERIES, TARGET_RANK, WIDEST
from residua.answering.blocks import Placed, Shape, rows_over
from residua.bounds import product_weights
from residua.errors import WorkloadError
from residua.linalg.folding import Fold, exchange
from residua.linalg.grams import sure_root
from residua.linalg.matrices import row_space, spread, threads_for
from residua.methods.draft import Caps, Draft, Progress
from residua.methods.effort import DECOMPOSED
from residua.methods.plain import Plain
from residua.solve.cells import WHOLE, Solution, solve_cells, solve_circulant, solve_folded, stacked
from residua.solve.newton import Progress as SolverProgress
from residua.solve.targets import TargetSolution, refined, solve_targets
from residua.strategy.build import Spans, integer_span, of_blocks, product_span
from residua.strategy.integers import independent_integers
from residua.strategy.strategy import Strategy
from residua.workload import Identity, Queries, Workload
from residua.workload.queries import spelled
from residua.workload.tables import Factor, choices
from residua.workload.union import FEW_TABLES, common_product, joint_gram, joint_rows, refuse_many_cells


def dense(work: Workload, tolerance: float, progress: Progress | None = None, *, apart: bool = True) -> Draft:
    """The optimal mechanism to a certified gap, for workloads on at most about 4,000 joint cells.

    With `apart`, cells of attributes that are asked for plain counts only do not count: they are measured in
    blocks, whose costs are added up cell by cell. Otherwise everything is one block.
    """
    shared = common_product(work)
    plain = Plain.of(work) if apart and shared is None else None
    if plain is not None:
        return _beside_plain(plain, tolerance, progress)
    if shared is None:
        solution = _jointly(work, tolerance, progress)
        strategy, spans = one_block(work, solution.strategy)
        return Draft(strategy, solution.lower, "all mechanisms", solution.upper, spans=spans)
    weight, factors = shared
    share = OWN_SHARE * tolerance / max(len(factors), 1)
    solutions = [_least_total_of(factor.queries, share, progress) for factor in factors]
    strategy, spans = _product(work, factors, [solution.strategy for solution in solutions], 1.0)
    lower = weight * math.prod(solution.lower for solution in solutions)
    return Draft(strategy, lower, "all mechanisms", spans=spans)


def _jointly(work: Workload, tolerance: float, progress: Progress | None) -> Solution:
    """The optimum over all joint cells, by halves where two attributes may change places (claim S-012)."""
    sizes, what = [work.schema.sizes[at] for at in work.attributes], f"{len(work.attributes)} attributes"
    cells = math.prod(sizes)
    refuse_many_cells(cells, "the attributes of this workload together")
    start = product_weights(work) if cells > FEW_CELLS and len(sizes) > 1 else None
    halves = _halves(work, sizes) if cells > FOLDED_CELLS and work.tables <= FEW_TABLES else None
    if halves is None:
        return _least_total(joint_rows(work), tolerance, progress, what, start)
    with threads_for(cells // 2):
        told = _told(progress, what, tolerance)
        return solve_folded(*halves, tolerance, start, told).require(tolerance, f"the solver for {what}")


def _halves(work: Workload, sizes: Sequence[int]) -> tuple[Fold, list[Array]] | None:
    """Two attributes that may change places and roots of both halves, if these are surely of full rank."""
    if len(set(sizes)) == len(sizes):
        return None
    gram = joint_gram(work)
    fold = exchange(gram, sizes)
    roots = [] if fold is None else [sure_root(part) for part in fold.parts(gram)]
    known = [root[0] for root in roots if root is not None]
    return None if fold is None or len(known) < len(roots) else (fold, known)


OWN_SHARE = 0.9  # of its part of the gap, for a factor: gaps of several multiply, and integers take some
FOLDED_CELLS = 128  # up to which halves are not worth looking for
EVALUATIONS = 7.0  # of a solver, typically, those on fewer cells included
STARTED = 3.5  # the same of full rank, from product weights
GATHERED = 4.0  # operations of gathering rows, in units of rows * rank * cells
BLOCK_WORK = 4e8  # of a block however small: rounding it, and its part of every figure
FEW_CELLS = 512  # up to which equal weights do for a start


def _beside_plain(plain: Plain, tolerance: float, progress: Progress | None) -> Draft:
    """The optimum as one matrix over the other attributes for each subset of the plain ones (S-013).

    What is asked with each subset is asked so many times; the trace is the sum of those of the subsets, each
    times its number: that of one problem whose rows never meet.
    """
    asked = {subset: plain.asked_with(subset) for subset in plain.subsets}
    asked = {subset: own for subset, own in asked.items() if own.parts}
    counts = [plain.count(subset) for subset in asked]
    several = plain.joint > FEW_CELLS and len(plain.others) > 1
    start = product_weights(plain.work, plain.others) if several else None
    rows = [count * joint_rows(own, plain.others) for count, own in zip(counts, asked.values(), strict=True)]
    root, groups = stacked(rows)
    solution = _least_total(root, tolerance, progress, f"{len(plain.others)} attributes", start, groups)
    pairs = zip(groups, counts, strict=True)
    matrices = [solution.strategy[group] / math.sqrt(count) for group, count in pairs]
    strategy, numbers = plain.strategy(dict(zip(asked, matrices, strict=True)))
    spans = {
        number: independent_integers(joint_integer_rows(own, plain.others), len(matrix))
        for number, own, matrix in zip(numbers, asked.values(), matrices, strict=True)
        if len(matrix) < plain.joint
    }
    lower, value = solution.lower / plain.whole, solution.upper / plain.whole
    return Draft(strategy, lower, "all mechanisms", value, spans=spans)


def dense_work(work: Workload, *, apart: bool = True) -> float:
    """About how many operations `dense` takes; infinite where it is refused."""
    shared = common_product(work)
    plain = Plain.of(work) if apart and shared is None else None
    if plain is not None:
        if plain.joint > DENSE_CELLS:
            return math.inf
        each = (EVALUATIONS * DECOMPOSED * float(rank) ** 2 * plain.joint for rank in plain.ranks())
        return sum(each) + BLOCK_WORK * len(plain.subsets)
    pairs = matrix_sizes(work, shared and [factor for factor in shared[1] if not _plain(factor.queries)])
    if any(cells > DENSE_CELLS for _, cells in pairs):
        return math.inf
    if shared is None:
        ((_, cells),) = pairs
        ranks = [math.prod(min(f.queries.count, f.queries.cells) for f in g.factors) for g in work.groups()]
        pairs = [(min(sum(ranks), _residuals(work)), cells)]
        if pairs[0][0] >= cells:
            return (STARTED * DECOMPOSED * cells + GATHERED * sum(ranks)) * float(cells) ** 2
    return sum(EVALUATIONS * DECOMPOSED * float(min(pair)) ** 2 * pair[1] for pair in pairs)


def _residuals(work: Workload) -> int:
    """Dimensions of everything that can be asked of the attributes of each table."""
    sizes = work.schema.sizes
    subsets = {
        tuple(attributes[place] for place in kept)
        for attributes in {tuple(sorted(group.attributes)) for group in work.groups()}
        for kept in choices(len(attributes))
    }
    return sum(math.prod(sizes[at] - 1 for at in subset) for subset in subsets)


def _product(
    work: Workload, factors: Sequence[Factor], matrices: Sequence[Array], variance: float
) -> tuple[Strategy, Spans]:
    """The product of one matrix a factor, and integer spans of those that do not measure all their cells."""
    shapes = [
        Placed(factor.attributes, Shape.independent(factor.queries.sizes, matrix))
        for factor, matrix in zip(factors, matrices, strict=True)
    ]
    spans = {
        at: independent_integers(integer_span(factor.queries), len(matrix))
        for at, (factor, matrix) in enumerate(zip(factors, matrices, strict=True))
        if len(matrix) < factor.queries.cells
    }
    return of_blocks(work.schema.sizes, [(shapes, variance)]), spans


def one_block(work: Workload, matrix: Array) -> tuple[Strategy, Spans]:
    """One matrix over the joint cells, and its integer span if it does not measure all of them."""
    sizes = tuple(work.schema.sizes[at] for at in work.attributes)
    shape = Placed(work.attributes, Shape.independent(sizes, matrix))
    partial, own = len(matrix) < math.prod(sizes), work.attributes
    spans = {0: independent_integers(joint_integer_rows(work, own), len(matrix))} if partial else {}
    return of_blocks(work.schema.sizes, [([shape], 1.0)]), spans


def joint_integer_rows(work: Workload, attributes: Sequence[int]) -> Integers | None:
    """Integer rows over the joint cells of attributes that span what the workload asks, or None."""
    rows, sizes = [], [work.schema.sizes[at] for at in attributes]
    for group in work.groups():
        span = product_span([_few_integer_rows(factor.queries) for factor in group.factors])
        if span is None:
            return None
        places = [attributes.index(at) for at in group.attributes]
        rows.append(spread(span.astype(np.float64), [sizes[place] for place in places], places, sizes))
    return np.concatenate(rows).astype(np.int64)


def _few_integer_rows(queries: Queries) -> Integers | None:
    """Integer rows that span the queries, no more than cells: products of all of them would be many."""
    span = integer_span(queries)
    if span is None or len(span) <= queries.cells:
        return span
    few = independent_integers(span, len(queries.root()))
    return span if few is None else few


def _plain(queries: Queries) -> bool:
    """Whether queries are plain counts of cells, which measuring them as they are is best for."""
    return isinstance(queries, Identity) and queries.cells <= WIDEST


def _least_total_of(queries: Queries, tolerance: float, progress: Progress | None) -> Solution:
    if _plain(queries):
        cells = float(queries.cells)
        return Solution(np.eye(queries.cells), np.full(queries.cells, 1 / cells), cells, cells, 0)
    refuse_many_cells(queries.cells, repr(queries))
    if queries.circulant:
        closed = solve_circulant(queries.gram()[0])
        if closed is not None and closed.gap <= tolerance:
            return closed
    return _least_total(queries.root(), tolerance, progress, repr(queries))


def _least_total(
    root: Array,
    tolerance: float,
    progress: Progress | None,
    what: str,
    start: Array | None = None,
    groups: tuple[slice, ...] = WHOLE,
) -> Solution:
    with threads_for(max(len(root[group]) for group in groups)):
        solution = solve_cells(root, tolerance, start, _told(progress, what, tolerance), groups)
    return solution.require(tolerance, f"the solver for {what}")


def _told(progress: Progress | None, what: str, tolerance: float) -> SolverProgress | None:
    """What a solver tells its gap: a fraction of the way from 1 to the tolerance, in logarithms."""
    if progress is None:
        return None

    def tell(evaluations: int, gap: float) -> None:
        part = math.log(min(gap, 1.0)) / math.log(tolerance) if gap > 0 else 1.0
        progress(f"solving {what}", min(part, 1.0))

    return tell


def quick_for_targets(work: Workload, caps: Caps) -> bool:
    """Whether the best of all mechanisms that meet variances can be found in minutes."""
    pairs = matrix_sizes(work, _product_with_one_target_each(work, caps))
    return all(
        queries <= TARGET_QUERIES
        and cells <= DENSE_CELLS
        and queries * cells <= TARGET_ENTRIES
        and min(queries, cells) <= TARGET_RANK
        for queries, cells in pairs
    )


def matrix_sizes(work: Workload, factors: Sequence[Factor] | None) -> list[tuple[int, int]]:
    """Queries and cells of each factor of a product, or of everything where the workload is none."""
    if factors is None:
        return [(work.count, math.prod(work.schema.sizes[at] for at in work.attributes))]
    return [(factor.queries.count, factor.queries.cells) for factor in factors]


def dense_targets(
    work: Workload, caps: Caps, tolerance: float, progress: Progress | None = None, refine: bool = False
) -> Draft:
    """The cheapest mechanism of all that meets every target, to a certified gap.

    With `refine`, of all cheapest mechanisms the one with the least privacy profile (claim G-004).
    """
    factors = _product_with_one_target_each(work, caps)
    if factors is not None and not refine:
        return _product_targets(work, caps, factors, tolerance, progress)
    rows, allowed = _listed_queries(work, caps)
    solution = _cheapest(rows, allowed, tolerance, progress, f"{len(rows):,} queries", refine)
    strategy, spans = one_block(work, solution.strategy)
    prices = _by_table(work, solution.query_weights * allowed)
    return Draft(strategy, solution.lower, "all mechanisms", spans=spans, prices=prices)


def _product_with_one_target_each(work: Workload, caps: Caps) -> tuple[Factor, ...] | None:
    """The factors whose product every table is, where each table has one target; otherwise None."""
    shared = common_product(work)
    return None if shared is None or any(np.ndim(cap) for cap in caps) else shared[1]


def _product_targets(
    work: Workload, caps: Caps, factors: Sequence[Factor], tolerance: float, progress: Progress | None
) -> Draft:
    """The product of the factors' cheapest mechanisms; the strictest target pays for all."""
    allowed, strictest = min((float(np.asarray(cap)), at) for at, cap in enumerate(caps))
    share = tolerance / max(len(factors), 1) / 2
    families = [factor.queries for factor in factors]
    solutions = [
        _cheapest(queries.matrix(), np.ones(queries.count), share, progress, repr(queries), False)
        for queries in families
    ]
    strategy, spans = _product(work, factors, [solution.strategy for solution in solutions], allowed)
    lower = math.prod(solution.lower for solution in solutions) / allowed
    prices = tuple(np.zeros(len(part)) for part in work.parts)
    prices[strictest][0] = 1.0
    return Draft(strategy, lower, "all mechanisms", spans=spans, prices=prices)


def _listed_queries(work: Workload, caps: Caps) -> tuple[Array, Array]:
    """Every query as a row over the joint cells, (queries, cells), and what each may have for a variance."""
    sizes = [work.schema.sizes[at] for at in work.attributes]
    cells = math.prod(sizes)
    refuse_many_cells(cells, "the attributes of this workload together")
    if work.count > TARGET_QUERIES or work.count * cells > TARGET_ENTRIES:
        raise WorkloadError(
            f"{spelled(work.count)} queries on {cells:,} cells are too many for one matrix; use method 'auto'"
        )
    rows, allowed = [], []
    for part, cap in zip(work.parts, caps, strict=True):
        for group in part:
            rows.append(rows_over(group.factors, work.attributes, sizes))
            allowed.append(np.broadcast_to(cap, group.count))
    return np.concatenate(rows), np.concatenate(allowed).astype(np.float64)


def _by_table(work: Workload, paid: Array) -> tuple[Array, ...]:
    """What the queries pay, added up for each table of each part; everything adds up to 1 (claim G-003)."""
    ends = np.cumsum([group.count for group in work.groups()])
    sums = np.add.reduceat(paid, np.concatenate([[0], ends[:-1]])) / paid.sum()
    return tuple(np.split(sums, np.cumsum(list(map(len, work.parts)))[:-1]))


def _cheapest(
    rows: Array, allowed: Array, tolerance: float, progress: Progress | None, what: str, refine: bool
) -> TargetSolution:
    """The solution for queries over cells, with its gap checked."""
    basis = row_space(rows)
    complete = basis.shape[1] == rows.shape[1]
    root = np.eye(rows.shape[1]) if complete else np.ascontiguousarray(basis.T)
    coefficients = rows if complete else rows @ basis
    with threads_for(len(root)):
        solution = solve_targets(coefficients, root, allowed, tolerance, _told(progress, what, tolerance))
        solution = solution.require(tolerance, f"the solver for {what}")
        return refined(coefficients, root, allowed, solution) if refine else solution
