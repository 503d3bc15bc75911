"""Quasi-Newton search for the weights and moves that make the sum of blocks least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import Measure
from residua.methods.draft import Progress
from residua.methods.splits.sum import BlockSum

Array = NDArray[np.float64]

LEAST_GAIN = 1e-8  # relative; a step that gains less is the last
LARGEST_WEIGHT = 64  # of the whole numbers that weights are rounded to


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Where a search ended: the weights of each kind of attribute that has some, and the moves."""

    weights: Mapping[int, Array]
    moved: Array | None


class _Variables:
    """One vector for all that is searched over: weights as distances from uniform ones, then moves."""

    def __init__(self, total: BlockSum, kinds: Sequence[int], sizes: Sequence[int]) -> None:
        self.kinds = weighted_kinds(total)
        self.cells = {kind: sizes[list(kinds).index(kind)] for kind in self.kinds}
        self.bases = {kind: sum_zero(self.cells[kind]) for kind in self.kinds}
        self.movable = total.free is not None
        moves = 0 if total.free is None else len(total.free.start())
        self.ends = np.cumsum([*(self.cells[kind] - 1 for kind in self.kinds), moves])

    @property
    def count(self) -> int:
        """Length of the vector."""
        return int(self.ends[-1])

    def read(self, x: Array) -> Search:
        """The weights and moves of a vector."""
        *parts, moved = np.split(x, self.ends[:-1])
        weights = {
            kind: 1 / self.cells[kind] + self.bases[kind] @ part
            for kind, part in zip(self.kinds, parts, strict=True)
        }
        return Search(weights, moved if self.movable else None)

    def slope(self, by_kind: Mapping[int, Array], by_move: Array) -> Array:
        """Slope in the vector, from those in the weights and moves."""
        return np.concatenate([*(self.bases[kind].T @ by_kind[kind] for kind in self.kinds), by_move])


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

    variables = _Variables(total, kinds, sizes)
    if not variables.count:
        return Search({}, None)
    evaluations = 0

    def value(x: Array, fill: float) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        if progress is not None:
            progress("choosing splits", min(1.0, evaluations / (steps * len(fills))))
        at = variables.read(x)
        found, by_kind, by_move = total.at(at.weights, at.moved, fill)
        return found, variables.slope(by_kind, by_move)

    x = np.zeros(variables.count)
    for fill in fills:
        x = minimize(
            value,
            x,
            args=(fill,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxfun": steps, "ftol": LEAST_GAIN},
        ).x
    return variables.read(x)


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
