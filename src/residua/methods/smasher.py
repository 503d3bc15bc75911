"""Optimised decomposition: blocks under the splits of the queries that make their sum least.

A query may be split in many ways into pieces on subsets of its attributes, not only by uniform centring.
With T the square root of a block's optimum, the total variance is `(sum over blocks of T)^2`; here the splits
are chosen to make the sum least, by quasi-Newton steps with exact slopes from uniform centring. Tables of
one-attribute families are centred by one weight vector per attribute (claims C-001 to C-004), rounded to
small whole numbers so that the plan can be measured in integers; tables with joint families are split freely
(`mechanisms.splits`). The best of all that was found is taken, uniform centring included.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from residua._limits import CELL_CLASSES, DENSE_CELLS, UNION_WORK
from residua.decompose import decompose, gather
from residua.methods.blocks import Optimal, querysmasher, solve_blocks
from residua.methods.centring import in_whole_numbers, on_attributes
from residua.methods.dense import dense
from residua.methods.draft import Draft, Progress
from residua.methods.splits import split
from residua.methods.splits.blocks import is_joint
from residua.methods.splits.draft import least
from residua.methods.splits.sum import BlockSum
from residua.workload import Workload
from residua.workload.symmetry import roles
from residua.workload.union import common_product
from residua.workload.views import combined_factors

OUTER_STEPS = 60


def smasher(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """The best decomposition found, never worse than uniform centring; the draft states both totals."""
    uniform = querysmasher(work, tolerance, progress)
    if uniform.scope == "all mechanisms":
        return replace(uniform, uniform_total=uniform.value)
    drafts = [uniform, *_candidates(work, tolerance, progress)]
    best = min(drafts, key=lambda draft: math.inf if draft.value is None else draft.value)
    return replace(best, uniform_total=uniform.value)


def _candidates(work: Workload, tolerance: float, progress: Progress | None) -> Iterator[Draft]:
    if any(factor.queries.cells > CELL_CLASSES for _, factor in combined_factors(work.parts)):
        return  # a search would go through all those cells at every step
    joint = any(map(is_joint, work.parts))
    if joint and _union_work(work) <= UNION_WORK:
        found = dense(work, tolerance, progress)
        yield replace(found, value=math.fsum(found.strategy.totals(part)[0] for part in work.parts))
        return
    own = roles_in(work, by_weight=not joint)
    free = split(work, own, tolerance, progress) if joint else None
    yield centred(work, own, tolerance, progress) if free is None else free


def centred(work: Workload, kinds: list[int], tolerance: float, progress: Progress | None) -> Draft:
    """All tables centred by the best weights found."""
    total = BlockSum(gather(work.parts, kinds), work.schema.sizes)
    found = least(total, kinds, work.schema.sizes, (0.0,), OUTER_STEPS, progress)
    measures = on_attributes(in_whole_numbers(found.weights), kinds, work.schema.sizes)
    return solve_blocks(decompose(work, measures), work.schema.sizes, Optimal(), tolerance, progress)


def roles_in(work: Workload, *, by_weight: bool) -> list[int]:
    """The role of each attribute: those of one role share a split. With `by_weight`, weights count."""
    return roles(work.schema, work.parts, [part.weight if by_weight else 1.0 for part in work.parts])


def _union_work(work: Workload) -> float:
    """`rank^2 * cells` of the largest matrix that the optimum needs; infinite if that does not fit."""
    shared = common_product(work)
    if shared is not None:
        pairs = [(factor.queries.count, factor.queries.cells) for factor in shared[1]]
    else:
        pairs = [(work.count, math.prod(work.schema.sizes[at] for at in work.attributes))]
    count, cells = max(pairs, key=lambda pair: pair[1])
    return math.inf if cells > DENSE_CELLS else float(min(count, cells)) ** 2 * cells
