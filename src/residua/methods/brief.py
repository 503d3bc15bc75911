"""Blocks without a search: what a plan of quick effort is made of.

Two ways to centre the tables are tried, uniformly and by the weights that would be best if each attribute
were asked for alone (claim C-006), which a search over splits starts from and seldom leaves far behind. Every
block is solved once, large ones to a coarse gap, which the bound of the plan tells.
"""

import math
from collections.abc import Sequence

from residua._arrays import Array
from residua._limits import BRIEF_RANK, BRIEF_WORK, CELL_CLASSES
from residua.decompose import decompose, gather
from residua.linalg.matrices import Measure
from residua.methods.blocks import Optimal, solve_blocks, widened
from residua.methods.centring import in_whole_numbers, on_attributes
from residua.methods.draft import Draft, Progress
from residua.methods.smasher import FEW_CELLS, weighted_roles
from residua.methods.splits.sum import BlockSum
from residua.solve.cells import Solution, solve_cells
from residua.workload import Workload
from residua.workload.symmetry import roles
from residua.workload.views import combined_factors

COARSE_GAP = 0.02  # of a block that would take long otherwise


class Brief(Optimal):
    """The optimum of small blocks; of large ones what a few steps reach, and a product sooner."""

    largest = BRIEF_RANK

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """A strategy, and its own bracket."""
        if float(len(root)) ** 2 * root.shape[1] <= BRIEF_WORK:
            return super().solve(root, sizes, tags, tolerance, what)
        return solve_cells(root, COARSE_GAP).require(math.inf, f"the solver for {what}")


def brief(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Blocks under the better of two centrings, without a search."""
    sizes = work.schema.sizes
    own = _own_measures(work)
    parts = (decompose(work, measures) for measures in ([None] if own is None else [None, own]))
    found = [solve_blocks(each, sizes, Brief(), tolerance, progress) for each in parts]
    return widened(work, min(found, key=lambda draft: draft.value or math.inf))


def _own_measures(work: Workload) -> tuple[Measure, ...] | None:
    """The weights best for each attribute alone, None where no attribute has any but even ones."""
    if any(factor.queries.cells > CELL_CLASSES for _, factor in combined_factors(work.parts)):
        return None
    own = roles(work.schema, work.parts, [part.weight for part in work.parts])
    total = BlockSum(gather(work.parts, own), work.schema.sizes)
    uneven = weighted_roles(total)
    weights = total.own_weights([role for role in total.complete_roles() if role in uneven])
    if not weights:
        return None
    chosen = in_whole_numbers(weights, total.complete_roles(FEW_CELLS))
    return on_attributes(chosen, own, work.schema.sizes)
