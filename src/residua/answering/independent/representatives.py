"""Tables of a run that blocks answer alike: one example of each kind is enough to know them all."""

import numpy as np
from numpy.typing import NDArray

from residua.answering.independent.cache import PartCache
from residua.linalg.keys import distinct_rows
from residua.workload import TableRun
from residua.workload.groups import choices

Integers = NDArray[np.int64]


def examples_of(known: PartCache, tables: TableRun) -> Integers:
    """Places of the first tables of each kind: all of a kind have the same variances, up to order."""
    subsets = np.sort(tables.subsets, axis=1)
    numbers: dict[object, int] = {}
    kinds = np.zeros(len(tables.schema), dtype=np.int64)
    for at in tables.attributes:
        kinds[at] = numbers.setdefault((tables.queries_of(at), known.measures[at]), len(numbers))
    blocks = _block_sorts(known)
    sorts = np.zeros(len(tables), dtype=np.int64)
    for place in range(tables.ways):
        sorts = _refined(sorts, kinds[subsets[:, place]])
    for chosen in choices(tables.ways):
        kept = subsets[:, chosen]
        owners, rows = known.index.find(kept)
        here = np.zeros(len(tables), dtype=np.int64)
        for owner in np.unique(owners[owners >= 0]).tolist():
            found = owners == owner
            here[found] = 2 + blocks[owner][rows[found]]
        here[known.elsewhere.find(kept)[0] >= 0] = 1
        sorts = _refined(sorts, here)
    return distinct_rows(sorts[:, None])[0]


def _refined(sorts: Integers, more: Integers) -> Integers:
    """Numbers of the sorts that are alike in both respects."""
    return distinct_rows(np.stack([sorts, more], axis=1))[1]


def _block_sorts(known: PartCache) -> list[Integers]:
    """For each layer a number for each block, equal where layer, shapes and noise are."""
    found: list[Integers] = []
    start = 0
    for layer in known.layers:
        noise = np.unique(layer.noise, return_inverse=True)[1].reshape(-1).astype(np.int64)
        number = distinct_rows(np.concatenate([layer.shapes, noise[:, None]], axis=1))[1]
        found.append(start + number)
        start += int(number.max(initial=-1)) + 1
    return found
