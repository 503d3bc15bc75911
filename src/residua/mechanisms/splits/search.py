"""Quasi-Newton search for the weights and moves that make the sum of blocks least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure
from residua.mechanisms.draft import Progress
from residua.mechanisms.splits.sum import BlockSum

Array = NDArray[np.float64]

LEAST_GAIN = 1e-8  # relative; a step that gains less is the last
LARGEST_WEIGHT = 64  # of the whole numbers that weights are rounded to


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Where a search ended: the weights of each kind of attribute that has some, and the moves."""

    weights: Mapping[int, Array]
    moved: Array | None


def least(
    total: BlockSum,
    kinds: Sequence[int],
    sizes: Sequence[int],
    fills: Sequence[float],
    steps: int,
    progress: Progress | None,
) -> Search:
    """The best weights and moves found from uniform centring, with less and less filling."""
    from scipy.optimize import minimize

    free = weighted_kinds(total)
    cells = {kind: sizes[list(kinds).index(kind)] for kind in free}
    bases = {kind: sum_zero(cells[kind]) for kind in free}
    moves = 0 if total.free is None else len(total.free.start())
    ends = np.cumsum([*(cells[kind] - 1 for kind in free), moves])[:-1]
    if not free and not moves:
        return Search({}, None)
    evaluations = 0

    def read(x: Array) -> Search:
        *parts, moved = np.split(x, ends)
        weights = {kind: 1 / cells[kind] + bases[kind] @ part for kind, part in zip(free, parts, strict=True)}
        return Search(weights, None if total.free is None else moved)

    def value(x: Array, fill: float) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        if progress is not None:
            progress("choosing splits", min(1.0, evaluations / (steps * len(fills))))
        at = read(x)
        found, by_kind, by_move = total.at(at.weights, at.moved, fill)
        return found, np.concatenate([*(bases[kind].T @ by_kind[kind] for kind in free), by_move])

    x = np.zeros(sum(cells[kind] - 1 for kind in free) + moves)
    for fill in fills:
        x = minimize(
            value,
            x,
            args=(fill,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxfun": steps, "ftol": LEAST_GAIN},
        ).x
    return read(x)


def weighted_kinds(total: BlockSum) -> list[int]:
    """Kinds of attributes whose weights are worth choosing (claim C-004)."""
    return sorted(
        {
            kind
            for source in total.asked.sources
            for kind in source.kinds
            if not all(queries.invariant for queries in source.queries)
        }
    )


def whole_measures(
    weights: Mapping[int, Array], kinds: Sequence[int], sizes: Sequence[int]
) -> tuple[Measure, ...]:
    """The measure of every attribute, in small whole numbers nearly in proportion to the weights (I-007)."""
    known = {kind: Measure.whole(whole_weights(chosen)) for kind, chosen in weights.items()}
    return tuple(known.get(kind, Measure(size)) for kind, size in zip(kinds, sizes, strict=True))


def sum_zero(cells: int) -> Array:
    """Orthonormal directions in which weights can change without changing their sum, (cells, cells - 1)."""
    return np.asarray(np.linalg.qr(np.column_stack([np.ones(cells), np.eye(cells)[:, 1:]]))[0][:, 1:])


def whole_weights(weights: Array) -> list[int]:
    """Small whole numbers nearly in proportion to the weights."""
    scaled = np.rint(weights * (LARGEST_WEIGHT / np.abs(weights).max())).astype(np.int64)
    common = int(np.gcd.reduce(scaled))
    return [int(entry) // max(common, 1) for entry in scaled]
