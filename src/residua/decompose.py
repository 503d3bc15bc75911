"""Splitting a workload into pieces on subsets of its attributes.

A product query on attributes A splits into one piece per subset A' of A: along an attribute outside A' it
is replaced by its mean, along one inside A' by what is left (claim D-001). What all tables together
ask of each subset is then a sum over the tables that contain it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Tables on equally many attributes with two numbers for each attribute of each table.

    `subsets` is (tables, ways), each row ascending; `inside` and `outside` are (tables, ways): what the
    attribute contributes to a subset that contains it, and to one that does not; `weights` is (tables,).
    """

    subsets: Subsets
    inside: Array
    outside: Array
    weights: Array


def subset_sums(runs: Iterable[Run]) -> Iterator[tuple[Subsets, Array]]:
    """For each size, the distinct subsets of that size and the sum over all tables that contain them.

    A table adds `weight * prod inside * prod outside` to each subset of its attributes. Yields
    (subsets (count, size), sums (count,)) for sizes from 0 up.
    """
    found: dict[int, list[tuple[Subsets, Array]]] = {}
    for run in runs:
        ways = run.subsets.shape[1]
        for size in range(ways + 1):
            for chosen in combinations(range(ways), size):
                others = [place for place in range(ways) if place not in chosen]
                values = (
                    run.weights * run.inside[:, chosen].prod(axis=1) * run.outside[:, others].prod(axis=1)
                )
                found.setdefault(size, []).append((run.subsets[:, chosen], values))
    for size in sorted(found):
        rows = np.concatenate([rows for rows, _ in found[size]])
        values = np.concatenate([values for _, values in found[size]])
        yield _merged(rows, values)


def _merged(rows: Subsets, values: Array) -> tuple[Subsets, Array]:
    """Distinct rows in order, and the sum of the values of each."""
    size = rows.shape[1]
    if size == 0:
        return rows[:1], np.array([values.sum()])
    base = int(rows.max()) + 1
    if base**size < 2**62:
        radix = np.array([base**place for place in range(size - 1, -1, -1)], dtype=np.int64)
        keys = rows.astype(np.int64) @ radix
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    sums = np.zeros(len(first))
    np.add.at(sums, inverse.reshape(-1), values)
    return rows[first], sums
