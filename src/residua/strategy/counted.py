"""The largest table of cells that a strategy counts, and how large that may be."""

import math
from collections.abc import Sequence

import numpy as np

from residua._limits import COUNTED_CELLS
from residua.errors import Infeasible
from residua.strategy.strategy import Strategy
from residua.workload.queries import spelled


def refuse_uncounted(strategy: Strategy, names: Sequence[str]) -> None:
    """Nothing, or Infeasible where a table would have to be counted that has too many cells."""
    for layer in strategy.layers:
        sizes = strategy.domains[layer.domain].sizes
        largest = np.array(sizes, dtype=np.float64)[layer.subsets].prod(axis=1)
        attributes = layer.subsets[int(largest.argmax())].tolist()
        cells = math.prod(sizes[at] for at in attributes)
        if cells > COUNTED_CELLS:
            named = " x ".join(names[at] for at in attributes)
            raise Infeasible(
                f"this plan would measure a table of {spelled(cells)} cells, {named}, more than the "
                f"{COUNTED_CELLS:,} that are counted; use coarser attributes or fewer of them in one table"
            )
