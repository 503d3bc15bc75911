"""The largest variance of a table, without going through every product of its queries."""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from residua.answering.independent.cache import PartCache
from residua.answering.independent.parts import Part

Array = NDArray[np.float64]

Pieces = Sequence[tuple[float, list[Part]]]
"""Noise variance and parts for each block that a table has a piece in; every part has one family."""

ROUNDING = 1e-12  # relative; figures this close are one figure
FEW = 2_000_000  # queries up to which going through all is quicker than choosing candidates
MOST_COMBINED = 50_000_000  # products of candidates that are gone through


def largest_of(known: PartCache, pieces: Pieces, families: int) -> float:
    """Largest variance of a table of so many families; nan where there are too many candidates.

    A variance is a sum of products of the families' figures, none of them negative: only a query whose
    figures no other query of its family reaches all at once can be part of the largest.
    """
    listed = []
    for place in range(families):
        here = (part for _, parts in pieces for part in parts if part.places == (place,))
        figures = {part.key: known.listed(part) for part in here}
        listed.append(np.stack(list(figures.values())))  # (kinds, queries)
    all_few = math.prod(each.shape[1] for each in listed) <= FEW
    candidates = [np.arange(each.shape[1]) if all_few else _undominated(each) for each in listed]
    if math.prod(map(len, candidates)) > MOST_COMBINED:
        return math.nan
    grid = np.zeros([len(chosen) for chosen in candidates])
    for noise, parts in pieces:
        rows = {part.places[0]: known.listed(part) for part in parts}
        figures_of = [rows[place][chosen] for place, chosen in enumerate(candidates)]
        grid += noise * reduce(np.multiply.outer, figures_of, np.ones(()))
    return float(grid.max())


def _undominated(figures: Array) -> NDArray[np.intp]:
    """Places of columns of (kinds, queries), one of each sort that no other reaches in every row."""
    tallest = figures.max(axis=1, keepdims=True)
    heights = figures / np.where(tallest > 0, tallest, 1.0)
    left = np.argsort(-heights.sum(axis=0), kind="stable")
    chosen = []
    while len(left):
        best = left[0]
        chosen.append(best)
        above = heights[:, left] > heights[:, [best]] + ROUNDING
        left = left[above.any(axis=0)]
    return np.array(chosen, dtype=np.intp)
