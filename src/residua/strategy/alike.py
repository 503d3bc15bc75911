"""Tables of a run that a mechanism answers alike: one example of each sort is enough to know them all."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from residua.linalg.keys import distinct_rows
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.known_parts import KnownParts
from residua.strategy.mechanism import Mechanism
from residua.strategy.run_totals import least_accurate
from residua.workload import Group, Tables
from residua.workload.groups import choices

Integers = NDArray[np.int64]

MOST_WAYS = 12  # attributes of a table, all of whose subsets are looked up


def unlike_tables(mechanism: Mechanism, part: Group | Tables) -> Iterator[Group]:
    """Tables of a part among which every table finds one with the same variances.

    Those with the same families and measures on their attributes, and blocks of the same shapes and noise on
    all subsets of them, have the same variances, up to order. Where that is not known, every table.
    """
    if isinstance(part, Group):
        yield part
    elif isinstance(mechanism, BlockStrategy) and part.joint is None and part.ways <= MOST_WAYS:
        yield from (part[at] for at in _examples(mechanism.known, part).tolist())
    else:
        yield from part


def least_accurate_tables(mechanism: Mechanism, part: Group | Tables) -> Iterator[Group]:
    """Tables of a part among which is the one with the largest variance."""
    if isinstance(part, Tables) and isinstance(mechanism, BlockStrategy) and part.joint is None and len(part):
        worst = least_accurate(mechanism.known, part)
        if worst is not None:
            yield part[worst]
            return
    yield from unlike_tables(mechanism, part)


def _examples(known: KnownParts, tables: Tables) -> Integers:
    """The first table of each sort."""
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


def _block_sorts(known: KnownParts) -> list[Integers]:
    """For each layer a number for each block, equal where layer, shapes and noise are."""
    found: list[Integers] = []
    start = 0
    for layer in known.layers:
        noise = np.unique(layer.noise, return_inverse=True)[1].reshape(-1).astype(np.int64)
        number = distinct_rows(np.concatenate([layer.shapes, noise[:, None]], axis=1))[1]
        found.append(start + number)
        start += int(number.max(initial=-1)) + 1
    return found
