"""The best mechanism for several sets of queries on the same cells, each asked a number of times (S-013).

Such are the residuals of attributes that are asked for plain counts only: what is asked of the others
together with each of them is a set of its own, and no mechanism gains by weighing the plain cells unevenly.
The trace is the sum of those of the sets, each times its number: that of one problem whose rows never meet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import independent_rows
from residua.solve.cells import COARSE_GAP, FEW_CELLS, solve_cells
from residua.solve.newton import Bracketed, Progress


@dataclass(frozen=True, slots=True)
class Solutions(Bracketed):
    """A mechanism for each set of queries, with a bracket on the best ones there are.

    `strategies` are B_s, (rank, cells): measuring `B_s x_s` for every one of the `counts[s]` times that set s
    is asked, with independent noise of variance 1, costs `max_i sum_s counts[s] (B_s'B_s)_ii = 1`; the total
    variance, that of each set times its count, is `upper`. `cell_weights` prove `lower`.
    """

    strategies: tuple[Array, ...]
    cell_weights: Array
    lower: float
    upper: float
    evaluations: int


def solve_several(
    roots: Sequence[Array],
    counts: Sequence[float],
    tolerance: float,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Solutions:
    """The best mechanism found for sets of queries with grams `root' root` on the same cells.

    Roots are (rank, cells) with independent rows; `start` are cell weights of a similar problem.
    """
    ends = np.cumsum([0, *map(len, roots)]).tolist()
    groups = tuple(slice(*each) for each in pairwise(ends))
    stack = np.concatenate([count * root for count, root in zip(counts, roots, strict=True)])
    near = _coarse_weights(roots, counts, tolerance) if start is None else start
    found = solve_cells(stack, tolerance, near, progress, groups)
    pairs = zip(groups, counts, strict=True)
    strategies = tuple(found.strategy[group] / math.sqrt(count) for group, count in pairs)
    return Solutions(strategies, found.cell_weights, found.lower, found.upper, found.evaluations)


def _coarse_weights(roots: Sequence[Array], counts: Sequence[float], tolerance: float) -> Array | None:
    """Weights from the same problem on every second cell, as for one set; None where that is no help."""
    cells = roots[0].shape[1]
    if cells <= FEW_CELLS or 2 * max(map(len, roots)) <= cells:
        return None
    fewer = [independent_rows(root[:, ::2]) for root in roots]
    coarse = solve_several(fewer, counts, max(COARSE_GAP, tolerance)).cell_weights
    return np.interp(np.arange(cells), np.arange(0, cells, 2), coarse)
