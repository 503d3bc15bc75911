"""What blocks cost as if one cell, or pair of cells, were the dearest of all of them."""

from collections.abc import Sequence
from fractions import Fraction

from residua.kernel.measurement import Measurement, block_cost
from residua.kernel.paths import paths_cost


def separate_cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    """The sum of what each block costs alone, and of what the dearest paths of blocks within cells do."""
    found = paths_cost([each for each in measurements if each.within is not None], replaced=replaced)
    for each in (each for each in measurements if each.within is None):
        own = block_cost(each, replaced=replaced)
        found += sum(own / each.parameters[owner] for owner in each.owners.tolist())
    return found
