"""Method `auto`: the best mechanism that can be planned in reasonable time."""

import math

from residua._limits import MANY_TABLES, QUICK_CELLS
from residua.bounds import all_invariant
from residua.methods.dense import dense
from residua.methods.draft import Draft, Progress
from residua.methods.named import querysmasher
from residua.methods.smasher import smasher
from residua.workload import Workload
from residua.workload.union import common_product, one_wide_product


def auto(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """The optimum of all mechanisms where that takes seconds, otherwise the best blocks."""
    if all_invariant(work) and not one_wide_product(work):
        return querysmasher(work, tolerance, progress)
    shared = common_product(work)
    sizes = [factor.queries.cells for factor in shared[1]] if shared else [_joint_cells(work)]
    if max(sizes, default=1) <= QUICK_CELLS:
        return dense(work, tolerance, progress)
    if work.tables > MANY_TABLES:
        return querysmasher(work, tolerance, progress)
    return smasher(work, tolerance, progress)


def _joint_cells(work: Workload) -> int:
    return math.prod(work.schema.sizes[at] for at in work.attributes)
