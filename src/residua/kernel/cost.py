"""The privacy cost of one record, from the integers and their noise alone, never rounded down.

A block alone costs its dearest cell, or its dearest pair of cells (`block`). The dearest of one block need
not be that of another: blocks on few cells are added up before the largest is taken (`joint`).
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from residua.kernel.block import block_cost
from residua.kernel.joint import MOST_BLOCKS, joint_cost
from residua.kernel.measurement import Measurement


def added_cost(measurements: Sequence[Measurement]) -> Fraction:
    """Privacy cost of adding or removing one record, or a little more (claim K-005).

    The largest entry of the privacy matrix where the noise is Gaussian, an epsilon where it is Laplace.
    """
    return _cost(measurements, replaced=False)


def replaced_cost(measurements: Sequence[Measurement]) -> Fraction:
    """Privacy cost of replacing one record by any other, or a little more (claim K-005)."""
    return _cost(measurements, replaced=True)


def separate_cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    """The sum of what each block costs alone, as if one cell, or pair of cells, were the dearest of all."""
    return sum(_alone(measurements, replaced), Fraction(0))


def _cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    alone = _alone(measurements, replaced)
    whole = sum(alone, Fraction(0))
    if not whole or not 1 < sum(len(each.subsets) for each in measurements) <= MOST_BLOCKS:
        return whole
    return min(whole, joint_cost(measurements, alone, replaced=replaced))


def _alone(measurements: Sequence[Measurement], replaced: bool) -> list[Fraction]:
    """What the blocks of each measurement cost by themselves, added up."""
    if len({each.law for each in measurements}) > 1:
        raise ValueError("costs of Gaussian and of Laplace noise do not add up")
    known: dict[object, int] = {}
    found = []
    for each in measurements:
        key = (each.multiplier, *((matrix.shape, matrix.tobytes()) for matrix in each.matrices))
        if key not in known:
            known[key] = block_cost(each, replaced=replaced)
        blocks = np.bincount(each.owners, minlength=len(each.parameters)).tolist()
        pairs = zip(blocks, each.parameters, strict=True)
        found.append(sum((many * known[key] / parameter for many, parameter in pairs), Fraction(0)))
    return found
