"""The privacy cost of a person with several records, of which so many are kept, and so many in one class.

A person's records add up to a sum of columns, so that `c` records cost at most `c^2` times one (Gaussian
noise) or `c` times (Laplace), and they do where all may be in one cell (claim P-030). Where at most `m` of
them are in one class of an attribute, blocks that look at the attribute cost less (claims K-010 to K-013).
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import mul

import numpy as np

from residua._arrays import Integers
from residua.kernel.measurement import (
    FITS,
    Measurement,
    Whole,
    block_cost,
    column_costs,
    cost_power,
    dearest_pair,
    gram_rows,
    kron,
    largest_size,
    matrix_cost,
)
from residua.kernel.paths import paths_cost
from residua.privacy import NoiseLaw
from residua.privacy.unit import Cap, Person

Groups = Sequence[Integers]
"""For each class of a cap the cells that its records may be in."""
NOWHERE = -1

PATTERNS = 2**14  # sums of a person's columns that are listed
PAIRED = 2**11  # the same, where each two of them are compared
LISTED = 2**22  # numbers in such a list


def separate_person_cost(measurements: Sequence[Measurement], person: Person) -> Fraction:
    """The sum of what each block costs a person alone; of blocks within places, what paths do (K-010)."""
    found = _paths_cost([each for each in measurements if each.within is not None], person)
    for each in (each for each in measurements if each.within is None):
        for cost, blocks in block_costs(each, person):
            many = np.bincount(each.owners[blocks], minlength=len(each.parameters)).tolist()
            pairs = zip(many, each.parameters, strict=True)
            found += sum((own * cost / parameter for own, parameter in pairs), Fraction(0))
    return found


def _paths_cost(measurements: Sequence[Measurement], person: Person) -> Fraction:
    """What blocks within places cost a person whose records are anywhere (claim K-015)."""
    if not measurements:
        return Fraction(0)
    power = cost_power(measurements[0].law)
    path = paths_cost(measurements, replaced=False)
    ratio = 1 if power == 1 else max(_row_ratio(each, person) for each in measurements)
    if not person.unit.replacing:
        return person.records * path * ratio
    whole = int(person.records**power) * max(path, paths_cost(measurements, replaced=True))
    return min(whole, person.records * path * ratio * max(map(_times_replaced, measurements)))


def _times_replaced(measurement: Measurement) -> int:
    """What replacing a person costs at most, over what adding one does (claim K-016)."""
    if measurement.law == "laplace":
        return 2
    small = all(own.shape[1] ** 2 <= LISTED for own in measurement.matrices)
    return 2 if small and all(gram_rows(own, slice(None)).min() >= 0 for own in measurement.matrices) else 4


def _row_ratio(measurement: Measurement, person: Person) -> Fraction:
    """What a record costs at most beside all others of a person, over what it costs alone (claim K-015)."""
    least = Fraction(person.records)
    for cap in person.caps:
        place, groups = _groups(measurement, cap)
        for axis in np.flatnonzero(measurement.subsets[0] == place).tolist():
            found = _in_matrix(measurement, groups, axis)
            if found is not None and (own := measurement.matrices[found[0]]).shape[1] ** 2 <= LISTED:
                sizes = abs(gram_rows(own, slice(None)).astype(object))
                dearest = max(_rows(sizes, found[1], cap.most, person.records))
                least = min(least, Fraction(dearest, matrix_cost("gaussian", own)))
    return least


def block_costs(measurement: Measurement, person: Person) -> Iterator[tuple[int, Integers]]:
    """What blocks cost a person at noise of parameter 1, and which blocks those are."""
    groups = [_groups(measurement, cap) for cap in person.caps]
    axes = np.full((len(measurement.subsets), len(person.caps)), -1)  # -1: not looked at
    for number, (place, _) in enumerate(groups):
        rows, places = np.nonzero(measurement.subsets == place)
        axes[rows, number] = places
    distinct, which = np.unique(axes, axis=0, return_inverse=True)
    for number, own in enumerate(distinct.tolist()):
        capped = [
            (cells, axis, cap.most)
            for cap, (_, cells), axis in zip(person.caps, groups, own, strict=True)
            if axis >= 0
        ]
        yield _dearest(measurement, person, capped), np.flatnonzero(which.reshape(-1) == number)


def _groups(measurement: Measurement, cap: Cap) -> tuple[int, Groups]:
    """Where blocks see a cap's attribute, and the cells there that records of each class may be in.

    Of an attribute that is part of a derived one, these may be the same cells for several classes.
    """
    members = [np.flatnonzero(cap.classes == number) for number in np.unique(cap.classes)]
    for part in measurement.derived:
        if cap.attribute in part.attributes and part.cells <= LISTED:
            cells = np.moveaxis(part.classes(), part.attributes.index(cap.attribute), 0)
            return part.place, [np.unique(cells[own]) for own in members]
        if cap.attribute in part.attributes:
            return NOWHERE, []
    return cap.attribute, members


def _dearest(measurement: Measurement, person: Person, caps: Sequence[tuple[Groups, int, int]]) -> int:
    """What a block costs the dearest person, at noise of parameter 1: the least that is proved."""
    unit, power = person.unit, cost_power(measurement.law)
    record = block_cost(measurement, replaced=unit.replacing)
    if unit.replacing and unit.id is not None:
        record = max(record, block_cost(measurement, replaced=False))
    least = int(person.records**power) * record
    for groups, axis, each in caps:
        found = [_capped(measurement, groups, axis, each, person.records, replaced=unit.replacing)]
        if unit.replacing:
            added = _capped(measurement, groups, axis, each, person.records, replaced=False)
            found.append(None if added is None else added * _times_replaced(measurement))
        times = int(measurement.multiplier**power)
        least = min([least, *(own * times for own in found if own is not None)])
    return least


def _capped(
    measurement: Measurement, groups: Groups, axis: int, each: int, most: int, *, replaced: bool
) -> int | None:
    """The cost with at most `most` records and so many in one class of an axis; None if no better is known.

    By listing all patterns where they are few, else by a bound (claims K-011, K-012).
    """
    found = _in_matrix(measurement, groups, axis)
    if found is None:
        return None
    number, groups = found
    law, own = measurement.law, measurement.matrices[number]
    rest = [matrix for at, matrix in enumerate(measurement.matrices) if at != number]
    # In which order the matrices are multiplied does not matter.
    if (sums := _listed([own, *rest], groups, each, most, replaced)) is not None:
        return _largest(sums, law, replaced)
    if law == "laplace" or own.shape[1] ** 2 > LISTED:
        return None
    single = math.prod(matrix_cost(law, matrix) for matrix in rest)
    gram = gram_rows(own, slice(None)).astype(object)
    if replaced:
        return _replaced_bound(abs(gram), groups, each, most, max(dearest_pair(rest), 2 * single))
    # Columns at right angles or less cost most where all other attributes agree.
    sums = _listed([own], groups, each, most, replaced) if gram.min() >= 0 else None
    bound = _row_bound(abs(gram), groups, each, most)
    return single * (bound if sums is None else min(bound, _largest(sums, law, replaced)))


def _in_matrix(measurement: Measurement, groups: Groups, axis: int) -> tuple[int, Groups] | None:
    """The matrix that an axis is part of, and its cells in each group; None if axes cut through it."""
    sizes = measurement.sizes
    products = list(accumulate(sizes, mul, initial=1))  # of the axes before each
    ends = list(accumulate((matrix.shape[1] for matrix in measurement.matrices), mul))
    number = bisect_right(ends, products[axis])
    if sizes[axis] != 1 + max(own.max() for own in groups) or number == len(ends):
        return None
    cells = measurement.matrices[number].shape[1]
    if not {ends[number], ends[number] // cells} <= set(products):
        return None
    places = np.arange(cells) // (ends[number] // products[axis + 1]) % sizes[axis]
    return number, [np.flatnonzero(np.isin(places, own)) for own in groups]


def _listed(
    matrices: Sequence[Integers], groups: Groups, each: int, most: int, replaced: bool
) -> Whole | None:
    """All sums of columns that matter, (patterns, rows): at most `most` columns, at most `each` of one group.

    `groups` are of cells of the first matrix. All columns of a group are of one cell, and all groups but one
    have `each` or none (claim K-011). None where these patterns are too many.
    """
    if math.prod(matrix.size for matrix in matrices) > LISTED:
        return None
    columns = np.atleast_2d(kron(matrices)).T
    rows = columns.shape[1]
    if (2 * most * largest_size(columns)) ** 2 * rows >= FITS:
        columns = columns.astype(object)
    columns = columns.reshape(matrices[0].shape[1], -1, rows)  # by the cell of the first matrix
    full, left = divmod(most, each)
    sums = {(0, 0): np.zeros((1, rows), dtype=columns.dtype)}  # by groups with `each`, and with what is left
    for cells in groups:
        own, grown = columns[cells].reshape(-1, rows), dict(sums)
        steps = [
            (before, weight, key)
            for (used, ended), before in sums.items()
            for weight, key in ((each, (used + 1, ended)), (left, (used, ended + 1)))
            if weight and key[0] <= full and key[1] <= 1
        ]
        many = sum(map(len, sums.values())) + len(own) * sum(len(before) for before, _, _ in steps)
        if many > (PAIRED if replaced else PATTERNS) or many * rows > LISTED:
            return None
        for before, weight, key in steps:
            more = (before[:, None] + weight * own).reshape(-1, rows)
            grown[key] = np.concatenate([grown.get(key, more[:0]), more])
        sums = grown
    return np.concatenate(list(sums.values()))


def _largest(sums: Whole, law: NoiseLaw, replaced: bool) -> int:
    """The largest cost of a sum of columns, or of the difference of two, at noise of parameter 1."""
    if not replaced:
        return int(column_costs(law, sums.T).max())
    return max(int(column_costs(law, (sums - own).T).max()) for own in sums)


def _row_bound(sizes: Whole, groups: Groups, each: int, most: int) -> int:
    """A bound on what patterns cost from the sizes of the gram's entries, (cells, cells) (claim K-012)."""
    rows = np.array([_rows(sizes, groups, each, most)], dtype=object)
    return int(_shared_out(rows, each, most)[0])


def _rows(sizes: Whole, groups: Groups, each: int, most: int) -> list[int]:
    """For each group the most that a record of it costs beside all others of the person."""
    others = np.stack([sizes[:, own].max(axis=1) for own in groups], axis=1)  # (cells, groups)
    rows = []
    for number, own in enumerate(groups):
        mine = others[own]
        mine[:, number] = sizes[own, own]  # all records of a group are in one cell
        rows.append(int(_shared_out(mine, each, most).max()))
    return rows


def _shared_out(amounts: Whole, each: int, most: int) -> Whole:
    """The most that `most` records make of the amounts in each row, at most `each` of them one amount."""
    weights = np.clip(most - each * np.arange(amounts.shape[1]), 0, each).astype(object)
    return np.asarray(np.sort(amounts, axis=1)[:, ::-1] @ weights)


def _replaced_bound(sizes: Whole, groups: Groups, each: int, most: int, pair: int) -> int | None:
    """A bound on what replacing a person costs; `pair` is one on the other matrices (claim K-013).

    None where a group has several cells, or several groups one.
    """
    if any(len(own) > 1 for own in groups) or len(groups) < len(sizes):
        return None
    row = _shared_out(sizes, 1, 2 * -(-most // each)).max()
    return int(row) * most * each * pair
