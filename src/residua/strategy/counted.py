"""The largest table of cells that a mechanism counts, and how large that may be."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from residua.errors import Infeasible
from residua.strategy.layered import Layered
from residua.strategy.mechanism import Mechanism
from residua.strategy.nested import NestedStrategy
from residua.strategy.product import ProductStrategy
from residua.strategy.sides import SidesStrategy
from residua.strategy.union import UnionStrategy
from residua.workload.queries import spelled

MOST_CELLS = 100_000_000  # of a marginal that is counted


def refuse_uncounted(mechanism: Mechanism, names: Sequence[str]) -> None:
    """Nothing, or Infeasible where a table would have to be counted that has too many cells."""
    for attributes, sizes in _largest_tables(mechanism):
        cells = math.prod(sizes)
        if cells > MOST_CELLS:
            named = " x ".join(names[at] for at in attributes)
            raise Infeasible(
                f"this plan would measure a table of {spelled(cells)} cells, {named}, more than the "
                f"{MOST_CELLS:,} that are counted; use coarser attributes or fewer of them in one table"
            )


def _largest_tables(mechanism: Mechanism) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Attributes and sizes of tables among which is the largest that is counted."""
    if isinstance(mechanism, SidesStrategy):
        for side in mechanism.sides:
            yield from _largest_tables(side.mechanism)
    elif isinstance(mechanism, Layered):
        for layer in mechanism.layers:
            if len(layer.subsets):
                cells = np.array(mechanism.sizes, dtype=np.float64)[layer.subsets].prod(axis=1)
                attributes = layer.subsets[int(cells.argmax())].tolist()
                yield attributes, [mechanism.sizes[at] for at in attributes]
    elif isinstance(mechanism, ProductStrategy):
        factors = mechanism.factors
        yield [at for each in factors for at in each.attributes], [n for each in factors for n in each.sizes]
    elif isinstance(mechanism, NestedStrategy):
        for term in mechanism.terms:
            yield term.attributes, [mechanism.sizes[at] for at in term.attributes]
    elif isinstance(mechanism, UnionStrategy):
        for product in mechanism.terms:
            pairs = zip(mechanism.axes, product.matrices, strict=True)
            axes = [axis for axis, matrix in pairs if matrix is not None]
            yield [at for axis in axes for at in axis.attributes], [n for axis in axes for n in axis.sizes]
