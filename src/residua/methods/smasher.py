"""Optimised decomposition: blocks under the splits of the queries that make their sum least.

A query may be split in many ways into pieces on subsets of its attributes, not only by uniform centring.
With T the square root of a block's optimum, the total variance is `(sum over blocks of T)^2`; here the splits
are chosen to make the sum least, by quasi-Newton steps (from where, say claims C-006 and Q-009).
Tables of one-attribute families are centred by one weight vector per attribute (claims C-001 to C-004),
rounded to small whole numbers so that the plan can be measured in integers; tables with joint families are
split freely (`methods.splits`). The best of all that was found is taken, uniform centring included.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Integers
from residua._limits import BLOCK_RANK, BOUND_CELLS, CELL_CLASSES, UNION_WORK
from residua.answering.blocks import Layer, Shape
from residua.bounds import product_dual_or_nothing, svd_or_nothing
from residua.bounds.product import product_dual_near
from residua.decompose import Decomposition, SimpleBlocks, decompose, gather
from residua.linalg.matrices import Measure, threads_for
from residua.methods.blocks import Optimal, querysmasher, solve_blocks
from residua.methods.centring import CellWeights, in_whole_numbers, on_attributes
from residua.methods.dense import EVALUATIONS, dense, dense_work
from residua.methods.draft import Draft, Progress
from residua.methods.effort import CLOSE, DECOMPOSED, Account
from residua.methods.splits.blocks import Division, divide, family_of, is_joint
from residua.methods.splits.free import FreeTables
from residua.methods.splits.reweighting import ENOUGH, approached, polished, reweighted
from residua.methods.splits.sum import BlockSum
from residua.solve.cells import solve_cells
from residua.solve.newton import quasi_newton
from residua.solve.slopes import settled
from residua.strategy.strategy import Domain, with_best_noise
from residua.workload import Workload
from residua.workload.symmetry import roles
from residua.workload.views import combined_factors

OUTER_STEPS = 60
AGAIN = 4  # searches over light sums, each from where the last one ended
LIGHT = 1e9  # operations of one value of a sum that is light
FEW_CELLS = 64  # up to which weights need no more digits than their number


def smasher(
    work: Workload, tolerance: float, progress: Progress | None = None, account: Account | None = None
) -> Draft:
    """The best decomposition found, never worse than uniform centring; the draft states both totals."""
    if work.invariant or any(
        factor.queries.cells > CELL_CLASSES for _, factor in combined_factors(work.parts)
    ):
        found = querysmasher(work, tolerance, progress)  # a search would find nothing, or take too long
        return replace(found, uniform_total=found.value)
    account = Account() if account is None else account
    joint = any(map(is_joint, work.parts))
    if joint and dense_work(work, apart=False) <= UNION_WORK:
        return dense(work, tolerance, progress, apart=False)
    own = roles_in(work, by_weight=not joint)
    free = split(work, own, tolerance, progress, account) if joint else None
    if free is None:
        return centred(work, own, tolerance, progress, account)
    if not account.thorough and _is_close(free, free.lower_bound):
        return free  # and no uniform centring is much better
    uniform = querysmasher(work, tolerance, progress)
    best = min(free, uniform, key=lambda draft: draft.value or math.inf)
    return replace(best, uniform_total=uniform.value)


def centred(
    work: Workload,
    roles: list[int],
    tolerance: float,
    progress: Progress | None,
    account: Account | None = None,
) -> Draft:
    """All tables centred by the best weights found."""
    account = Account() if account is None else account
    sizes = work.schema.sizes
    total = BlockSum(gather(work.parts, roles), sizes)
    uniform = total.at({})[0] ** 2
    # Where tables ask little of their cells the sum has edges, on which a search is begun again.
    again = AGAIN if total.work <= LIGHT else 1
    found = least(total, roles, sizes, again, progress, account)
    tried = [found]
    if any(pattern.large for pattern in total.patterns):  # whose values the search only guessed
        tried.append(total.own_weights(total.complete_roles()))
    fine = total.complete_roles(FEW_CELLS)
    parts = (decompose(work, on_attributes(in_whole_numbers(own, fine), roles, sizes)) for own in tried)
    solver = Optimal(largest=min(BLOCK_RANK, largest_rank(account)))
    drafts = [solve_blocks(each, sizes, solver, tolerance, progress) for each in parts]
    draft = min(drafts, key=lambda draft: draft.value or math.inf)
    if draft.value is not None and draft.value > uniform * (1 + tolerance):
        other = solve_blocks(decompose(work), sizes, solver, tolerance, progress)
        draft = min(draft, other, key=lambda draft: draft.value or math.inf)
    return replace(draft, uniform_total=max(uniform, draft.value or 0.0) if found else draft.value)


def largest_rank(account: Account) -> int:
    """The rank of the largest block for whose optimum there is the work, once found; others are products."""
    return int((FINISHED_SHARE * account.allowed / (EVALUATIONS * DECOMPOSED)) ** (1 / 3))


def roles_in(work: Workload, *, by_weight: bool) -> list[int]:
    """The role of each attribute: those of one role share a split. With `by_weight`, weights count."""
    return roles(work.schema, work.parts, [part.weight if by_weight else 1.0 for part in work.parts])


LEAST_GAIN = 2e-6  # relative; a step that gains less is the last
LEAST_AGAIN = 1e-8  # the same where a search is begun again, whose steps gain little for long
FIRST_STEP = 0.03  # relative to the length of uniform weights
TURNS = 2
TURN_STEPS, TURN_GAIN = 15, 1e-7  # of weights in their turn
TURN_FILL = 0.003  # of a typical query, in every direction of blocks that moves touch meanwhile
FINISHED_SHARE = 0.25  # of the work allowed, for the optimum of one block
SEARCHED = 0.5  # of the work that is left, for a search
WEIGHED = 0.4  # the same for weights alone, whose steps take longer than their decompositions
FINISHED = 10.0  # times what splits took so far: to finish, they take about so much
FURTHER = "further steps of the search over splits"


class _Enough(Exception):
    """Raised where a search has done all the work that it may."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Where a search ended: the weights of each role of attribute that has some, and the moves."""

    weights: Mapping[int, Array]
    moved: Array | None


def least(
    total: BlockSum,
    roles: Sequence[int],
    sizes: Sequence[int],
    again: int,
    progress: Progress | None,
    account: Account,
) -> Mapping[int, Array]:
    """The best weights found within the account, by so many searches, each from where the last one ended."""
    weights = _weights_of(total, roles, sizes)
    if not weights.count:
        return {}
    x, allowed = weights.vector(total.own_weights(total.complete_roles())), WEIGHED * account.left
    for _ in range(again):
        least_gain = LEAST_AGAIN if again > 1 else LEAST_GAIN
        x = _weighed(total, weights, x, None, OUTER_STEPS, least_gain, allowed, progress, account)
    account.spent += total.work
    return weights.read(x)


def least_by_turns(
    total: BlockSum,
    free: FreeTables,
    roles: Sequence[int],
    sizes: Sequence[int],
    progress: Progress | None,
    account: Account,
) -> Search:
    """The best weights and moves found within the account, the ones searched for while the others rest."""
    weights, allowed = _weights_of(total, roles, sizes), SEARCHED * account.left
    x = weights.vector(total.own_weights(total.complete_roles()))
    moved, _ = approached(total, free, weights.read(x), progress)
    moved, _ = reweighted(total, free, weights.read(x), moved, allowed, progress)
    for _ in range(TURNS):
        x = _weighed(total, weights, x, moved, TURN_STEPS, TURN_GAIN, allowed, progress, account)
        moved = polished(total, free, weights.read(x), moved, allowed, progress)
    _settle_account(total, allowed, account)
    return Search(weights.read(x), moved)


def _settle_account(total: BlockSum, allowed: float, account: Account) -> None:
    """Note what a search took, and whether it ended for want of work."""
    account.spent += total.work
    if total.work > allowed:
        account.leave(FURTHER)


def _weights_of(total: BlockSum, roles: Sequence[int], sizes: Sequence[int]) -> CellWeights:
    return CellWeights({number: sizes[list(roles).index(number)] for number in weighted_roles(total)})


def _weighed(
    total: BlockSum,
    weights: CellWeights,
    x: Array,
    moved: Array | None,
    steps: int,
    least_gain: float,
    allowed: float,
    progress: Progress | None,
    account: Account,
) -> Array:
    """The best weights found from these on, for these moves, as one vector."""
    # A first step has length one; all weights of a role together are hardly longer than their mean.
    unit, fill = weights.lengths * FIRST_STEP, 0.0 if moved is None else TURN_FILL
    evaluations, reached = 0, (math.inf, x / unit)

    def value(y: Array) -> tuple[float, Array]:
        nonlocal evaluations, reached
        if evaluations and total.work > allowed:
            raise _Enough
        evaluations += 1
        if progress is not None:
            progress("choosing splits", min(1.0, evaluations / steps))
        found, by_role = total.at(weights.read(y * unit), moved, fill)
        reached = min(reached, (found, y.copy()), key=lambda each: each[0])
        return found, weights.vector(by_role) * unit

    try:
        quasi_newton(value, x / unit, maxiter=steps, maxfun=steps, ftol=least_gain)
    except _Enough:
        account.leave(FURTHER)
    return reached[1] * unit


def weighted_roles(total: BlockSum) -> list[int]:
    """Roles of attributes whose weights are worth choosing (claim C-004)."""
    return sorted(
        {
            role
            for source in total.asked.sources
            for role in source.roles
            if not all(queries.invariant for queries in source.queries)
        }
    )


LAST_FILL = 3e-5  # of the plan itself: what keeps every direction measurable
SMALL_BLOCK = 20_000  # entries of the rows of a block that is solved in milliseconds
LARGE_GAP = 1e-4  # to which others are
FIRST_GAP = 3e-3  # the same of a first plan, which may be good enough; one look at a block reaches it
LEAST_BOUND, GAP_SHARE = 1e-6, 1e-3  # gains of the last step to a bound: relative, and of the gap
HOPEFUL = 0.15  # the same for a sum with much filling, of which less may be as close as that


def split(
    work: Workload,
    roles: Sequence[int],
    tolerance: float,
    progress: Progress | None,
    account: Account | None = None,
) -> Draft | None:
    """Blocks under optimised splits, or None where no table gains by one or all are too large."""
    division = divide(work)
    if not division.free:
        return None
    own = list(range(len(work.schema))) if division.beyond else roles
    family = family_of(work.groups()) if division.beyond else ()
    free = FreeTables(division.free, own, family)
    total = BlockSum(gather(division.centred, own, free.blocks), work.schema.sizes, free)
    account = Account() if account is None else account

    def make(found: Search, gap: float = tolerance) -> Draft:
        return _assembled(work, division, total, found, own, gap, progress)

    lower = 0.0
    if weighted_roles(total):
        draft = make(least_by_turns(total, free, own, work.schema.sizes, progress, account))
    else:
        moved, filled = approached(total, free, {}, progress)
        if not account.thorough:
            lower = product_dual_near(work, total.attribute_weights())
        hopeful = filled**2 <= lower * (1 + HOPEFUL)
        first = make(Search({}, moved), max(tolerance, FIRST_GAP)) if hopeful else None
        if first is not None and _is_close(first, lower):
            account.leave(FURTHER)
            return replace(first, lower_bound=lower)
        draft = _by_moves(total, free, moved, make, lower if hopeful else 0.0, progress, account)
    if not _is_close(draft, lower):
        gap = (draft.value or math.inf) / lower - 1 if lower else 0.0
        lower = max(lower, _lower_bound(work, total.attribute_weights(), gap))
    return replace(draft, lower_bound=lower)


def _is_close(draft: Draft, lower: float) -> bool:
    return (draft.value or math.inf) <= lower * (1 + CLOSE)


def _by_moves(
    total: BlockSum,
    free: FreeTables,
    moved: Array,
    make: Callable[[Search], Draft],
    lower: float,
    progress: Progress | None,
    account: Account,
) -> Draft:
    """The best draft of moves from these on, as long as something worth having may be left.

    The least sum is not always the least variance: blocks know of each other what the sum does not.
    """
    allowed = SEARCHED * account.left
    moved, left = reweighted(total, free, {}, moved, allowed, progress)
    light = total.work < LIGHT
    # Where blocks are asked less than all of their cells, what rounds with much filling gain says little.
    worthwhile = left > ENOUGH or light or any(pattern.deficient for pattern in total.patterns)
    drafts = [make(Search({}, moved))] if light or lower or not worthwhile else []
    if worthwhile and drafts and _is_close(drafts[0], lower):
        account.leave(FURTHER)
    elif worthwhile and account.affords(FINISHED * total.work, FURTHER):
        moved = polished(total, free, {}, moved, allowed, progress)
        drafts.append(make(Search({}, moved)))
    _settle_account(total, allowed, account)
    return min(drafts or [make(Search({}, moved))], key=lambda draft: draft.value or math.inf)


def _assembled(
    work: Workload,
    division: Division,
    total: BlockSum,
    found: Search,
    roles: Sequence[int],
    tolerance: float,
    progress: Progress | None,
) -> Draft:
    """The mechanism of cost 1 for these weights and moves."""
    sizes = work.schema.sizes
    measures = on_attributes(in_whole_numbers(found.weights), roles, sizes)
    exact = {role: measures[list(roles).index(role)].vector() for role in found.weights}
    shapes: list[Shape] = []
    spans: dict[int, Integers | None] = {}
    layers: list[tuple[Layer, Array]] = []  # with the roots T of their blocks' optima
    rest = _untouched(work, division, total, measures)
    if rest is not None:
        draft = solve_blocks(rest, sizes, Optimal(), tolerance, progress)
        shapes, spans = list(draft.strategy.shapes), dict(draft.spans)
        layers = [(layer, layer.costs * math.sqrt(draft.value or 0.0)) for layer in draft.strategy.layers]
    for pattern, blocks, scales, root, start in total.touched(exact, found.moved, LAST_FILL):
        # Nothing is proved of blocks by themselves, and what larger ones could gain is a part of this.
        gap = tolerance if root.size <= SMALL_BLOCK else max(tolerance, LARGE_GAP)
        with threads_for(len(root)):
            deficient = len(root) < root.shape[1]  # where weights have zeros, and are hard to prove else
            near = settled(root, start, gap).weights if deficient else start
            solution = solve_cells(root, gap, near, exact=deficient)
        solution.require(gap, f"a block of {root.shape[1]:,} cells")
        strategy = solution.strategy
        if pattern.alike is not None:
            strategy = strategy[:, pattern.alike.whose]
        roots = np.sqrt(scales) * math.sqrt(solution.upper)
        subsets = np.array(blocks, dtype=np.int32).reshape(len(blocks), len(pattern.sizes))
        layout = (tuple(range(len(pattern.sizes))),) if pattern.sizes else ()
        numbers = np.full((len(blocks), len(layout)), len(shapes), dtype=np.int64)
        if pattern.sizes:
            if len(pattern.span) < pattern.span.shape[1]:
                spans[len(shapes)] = pattern.span
            shapes.append(Shape.independent(pattern.sizes, strategy))
        layers.append((Layer(subsets, layout, numbers, roots, roots), roots))
    mechanism = with_best_noise(Domain(sizes, measures), shapes, layers)
    value = math.fsum(mechanism.totals(part)[0] for part in work.parts)
    return Draft(mechanism, 0.0, "all mechanisms", value, spans=spans)


def _lower_bound(work: Workload, near: Mapping[int, Array], gap: float) -> float:
    """The best bound for all mechanisms that takes seconds; 0 where there is none.

    It is searched for from weights of attributes `near` the best, as long as steps gain something beside the
    `gap` that there is about.
    """
    cells = math.prod(work.schema.sizes[at] for at in work.attributes)
    found = product_dual_or_nothing(work, near, max(LEAST_BOUND, GAP_SHARE * gap))
    return max(found, svd_or_nothing(work) if cells <= BOUND_CELLS else 0.0)


def _untouched(
    work: Workload, division: Division, total: BlockSum, measures: Sequence[Measure]
) -> Decomposition | None:
    """The blocks of centred tables that no free table touches, None if there are none."""
    if not division.centred:
        return None
    parts = decompose(Workload(work.schema, division.centred), measures)
    touched = set(total.free.blocks) if total.free else set()
    simple = []
    for blocks in parts.simple:
        keep = np.array([tuple(row) not in touched for row in blocks.subsets.tolist()], dtype=bool)
        if keep.any():
            simple.append(SimpleBlocks(blocks.subsets[keep], blocks.pieces[keep], blocks.coefficients[keep]))
    mixed = tuple(block for block in parts.mixed if block.attributes not in touched)
    return replace(parts, simple=tuple(simple), mixed=mixed) if simple or mixed else None
