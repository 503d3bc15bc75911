"""What blocks within the cells of an attribute cost a record: those on its path through the levels.

A place is in one block of every level, and a record only in the blocks of its own place, so costs add up
along paths and the dearest path counts (claim K-020). A record that is replaced leaves one path for another:
in blocks that both share it costs a pair of cells, below them the two paths cost what each does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from residua._arrays import Integers
from residua.errors import BudgetError
from residua.kernel.measurement import (
    FITS,
    Measurement,
    Whole,
    block_cost,
    cost_power,
    costs_by_cell,
    grain_of,
)

JOINT_CELLS = 2**20  # of the attributes beside the places, or pairs of them, that are compared
MOST_PROFILES = 2**8  # of joint cells, or pairs, that none outdoes: each is one pass through the tree


def paths_cost(measurements: Sequence[Measurement], *, replaced: bool) -> Fraction:
    """Cost of the dearest path of blocks within cells, or pair of paths, each block at its dearest cell."""
    total = Fraction(0)
    for attribute in {each.within for each in measurements}:
        total += _dearest([each for each in measurements if each.within == attribute], replaced)
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Blocks within the cells of a level, in grains: what each costs a record, and a pair that shares it."""

    blocks: Integers  # (places,): the block of each
    one: Integers
    pair: Integers


def _dearest(measurements: Sequence[Measurement], replaced: bool) -> Fraction:
    """The same for blocks within the cells of one attribute."""
    cells = [each.cells_of_blocks() for each in measurements]
    if len({len(each) for each in cells}) > 1:
        raise BudgetError("blocks within the cells of one attribute disagree on how many it has; plan again")
    profiles = _profiles(measurements, replaced)
    most = zip(profiles.max(axis=0).tolist(), measurements, strict=True)
    grain = grain_of(
        Fraction(sum(Fraction(2 * one + pair) / min(each.parameters) for (one, pair), each in most))
    )
    dearest = _dearest_pair if replaced else _dearest_path
    return grain * max(
        dearest(
            [
                _Level(blocks, *(_in_grains(each, unit, grain) for unit in own))
                for blocks, each, own in zip(cells, measurements, profile, strict=True)
            ]
        )
        for profile in profiles
    )


def _profiles(measurements: Sequence[Measurement], replaced: bool) -> Whole:
    """What each measurement costs at noise of parameter 1, (profiles, measurements, 2): one record, a pair.

    A profile is that of a joint cell of the attributes beside the places, or of two of them; those that
    another outdoes throughout are left out. Where there are too many, one outdoes them all.
    """
    ones = [block_cost(each, replaced=False) for each in measurements]
    pairs = [block_cost(each, replaced=True) if replaced else 0 for each in measurements]
    bound = np.array([list(zip(ones, pairs, strict=True))], dtype=object)
    sizes: dict[int, int] = {}
    for each in measurements:
        sizes |= zip(each.subsets[0].tolist(), each.sizes, strict=True)
    cells = math.prod(sizes.values())
    others = any(part.attributes != (each.within,) for each in measurements for part in each.derived)
    if others or cells ** (1 + replaced) > JOINT_CELLS or max(*ones, *pairs) >= FITS:
        return bound
    found: dict[object, Integers] = {}
    keys = [
        (each.multiplier, each.subsets[0].tobytes(), *(m.tobytes() for m in each.matrices))
        for each in measurements
    ]
    for key, each in zip(keys, measurements, strict=True):
        if key not in found:
            found[key] = _by_joint_cell(each, sizes, replaced)
    kept = _undominated(np.concatenate(list(found.values()), axis=1))
    numbers = {key: number for number, key in enumerate(found)}
    chosen = [numbers[key] for key in keys]
    return bound if kept is None else kept.reshape(len(kept), -1, 2)[:, chosen]


def _by_joint_cell(measurement: Measurement, sizes: dict[int, int], replaced: bool) -> Integers:
    """Costs of all joint cells, or of pairs of them, at noise of parameter 1: (joint cells or pairs, 2)."""
    codes = np.zeros(tuple(sizes.values()), dtype=np.int64)
    for axis, at in enumerate(sizes):
        if at in measurement.subsets[0]:
            own = np.arange(sizes[at]).reshape(-1, *[1] * (len(sizes) - axis - 1))
            place = measurement.subsets[0].tolist().index(at)
            codes = codes + own * math.prod(measurement.sizes[place + 1 :])
    flat, multiple = codes.reshape(-1), measurement.multiplier ** cost_power(measurement.law)
    one = costs_by_cell(measurement, replaced=False)[flat] * multiple
    if not replaced:
        return np.stack([one, np.zeros_like(one)], axis=1)
    pair = costs_by_cell(measurement, replaced=True)[np.ix_(flat, flat)] * multiple
    return np.stack([np.maximum.outer(one, one), pair], axis=-1).reshape(-1, 2)


def _undominated(rows: Integers) -> Integers | None:
    """Rows that no other outdoes throughout; None where they are many."""
    left = np.unique(rows, axis=0)
    left = left[np.argsort(-left.sum(axis=1, dtype=np.float64), kind="stable")]
    kept: list[Integers] = []
    while len(left) and len(kept) <= MOST_PROFILES:
        kept.append(left[0])
        left = left[(left > left[0]).any(axis=1)]
    return None if len(kept) > MOST_PROFILES else np.array(kept)


def _in_grains(measurement: Measurement, unit: int, grain: Fraction) -> Integers:
    """What a cost at noise of parameter 1 is with the noise of each block, rounded up to whole grains."""
    found = [math.ceil(int(unit) / (parameter * grain)) for parameter in measurement.parameters]
    return np.array(found, dtype=np.int64)[measurement.owners]


def _dearest_path(levels: Sequence[_Level]) -> int:
    """Largest cost of the blocks that a place is in."""
    return int(np.sum([level.one[level.blocks] for level in levels], axis=0).max())


def _dearest_pair(levels: Sequence[_Level]) -> int:
    """Largest cost of two paths: of pairs in the blocks they share, and of each alone below those.

    From the finest level up, `below` is the dearest path from a block down; a pair that parts in a block
    takes the two dearest of its children.
    """
    levels = sorted(levels, key=lambda each: len(each.one), reverse=True)
    places = len(levels[0].blocks)
    below, apart = np.zeros((2, places), dtype=np.int64)  # of each place to begin with
    inner = np.arange(places)
    for each in levels:
        owners = each.blocks[_first(inner, len(below))]
        if not np.array_equal(owners[inner], each.blocks):
            raise BudgetError("the levels that blocks are within are not nested; plan again")
        most, two = _largest(below, owners, len(each.one))
        together = np.zeros(len(each.one), dtype=np.int64)
        np.maximum.at(together, owners, apart)
        apart = np.maximum(together, two) + each.pair
        below, inner = most + each.one, each.blocks
    _, two = _largest(below, np.zeros(len(below), dtype=np.int64), 1)
    return int(max(apart.max(), two[0]))


def _first(blocks: Integers, count: int) -> Integers:
    """The first place of each block."""
    found = np.zeros(count, dtype=np.int64)
    found[blocks[::-1]] = np.arange(len(blocks))[::-1]
    return found


def _largest(values: Integers, owners: Integers, count: int) -> tuple[Integers, Integers]:
    """The largest value of each owner, and the sum of its two largest, 0 where it has but one."""
    most, two = np.zeros((2, count), dtype=np.int64)
    order = np.lexsort((values, owners))
    values, owners = values[order], owners[order]
    last = np.flatnonzero(np.diff(owners, append=count))
    most[owners[last]] = values[last]
    several = last[(last > 0) & (owners[last] == owners[last - 1])]
    two[owners[several]] = values[several] + values[several - 1]
    return most, two
