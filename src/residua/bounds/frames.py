"""A few coordinates of an attribute that hold nearly all of what its mean has to do with the rest (B-011)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua.linalg.matrices import RANK_RATIO, join
from residua.solve.cells import UNIT_ROUNDOFF
from residua.workload import Identity, Queries

MOST_KEPT = 48  # coordinates of one attribute
NOTHING = 1e-10  # of the size of all rows: what is less is rounding
MIXED_CELLS = 300  # of an attribute up to which it is looked at how families differ; more take seconds
REACHING = 0.25  # of what rows reach beyond kept coordinates is lost, about (measured on prefix sums)
ROUNDED = 1e-14  # relative: more than a few operations round


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What a family asks of kept coordinates, (rows, product of 1 + kept), and the root of what is beyond.

    The rows are turned so that in the coordinates of all attributes at once, means left out, they are
    orthogonal, with these lengths.
    """

    rows: Array
    lengths: Array
    beyond: float

    @classmethod
    def of(cls, rows: Array, kept: Sequence[int], beyond: float = 0.0) -> "Kept":
        """Rows over the coordinates of attributes with so many kept, means first."""
        inside = join((np.arange(1 + count) > 0)[None].astype(float) for count in kept if count)[0] > 0
        left, values, _ = np.linalg.svd(rows[:, inside], full_matrices=True)
        lengths = np.zeros(len(rows))
        lengths[: len(values)] = values
        return cls(left.T @ rows, lengths, beyond)


Rows = Sequence[tuple[Array, float]]
"""Rows over the cells of an attribute, each set with what it weighs."""


class Frame:
    """Orthonormal coordinates of an attribute under cell weights, the mean first, and families in them.

    One more coordinate is taken where it saves most of what would be lost: along which rows that those so far
    see reach farthest, or on which families differ beyond them. `alone` has the families that ask of this
    attribute only, `joint` those that ask of others too.
    """

    def __init__(self, weights: Array, alone: Rows, joint: Rows = ()) -> None:
        self._mean = np.sqrt(weights / weights.sum())
        scaled = [math.sqrt(weight) * rows * self._mean for rows, weight in (*alone, *joint)]
        self._scaled, self._alone = scaled, len(alone)
        self._size = math.sqrt(sum(float(np.sum(own**2)) for own in scaled)) or 1.0
        self._basis = self._mean[:, None]
        self._lost: list[float] = []
        self._kept: dict[tuple[Queries, int], Kept] = {}

    def count_for(self, loss: float) -> int:
        """How many coordinates to keep so that no more than this is lost, about and relatively."""
        most, least = min(MOST_KEPT, len(self._mean) - 1), max(loss, NOTHING)
        while not self._lost or (self._lost[-1] > least and len(self._lost) <= most):
            self._extend()
        return next((at for at, own in enumerate(self._lost) if own <= least), len(self._lost) - 1)

    def columns(self, count: int) -> Array:
        """Mean and kept coordinates as columns over the cells: rows times these are rows in them."""
        return np.asarray(self._mean[:, None] * self._basis[:, : 1 + count])

    def kept(self, queries: Queries, count: int) -> Kept:
        """A family with so many coordinates kept."""
        if (queries, count) not in self._kept:
            self._kept[queries, count] = self._cut(queries, count)
        return self._kept[queries, count]

    def _cut(self, queries: Queries, count: int) -> Kept:
        cells = len(self._mean)
        if count == 0 and isinstance(queries, Identity) and np.ptp(self._mean) == 0:
            length = np.full(1, 1 / math.sqrt(cells))
            return Kept(length[None], length, (cells - 1) / math.sqrt(cells) * (1 - ROUNDED))
        return self._turned(queries.root() * self._mean, self._basis[:, : 1 + count])

    def _extend(self) -> None:
        """Note what is lost beyond kept coordinates, and put the direction that matters most last."""
        if not self._scaled:
            self._lost.append(0.0)
            return
        spans = [_span(own @ self._basis) for own in self._scaled]
        beyond = [own - (own @ self._basis) @ self._basis.T for own in self._scaled]
        seen = [span.T @ own for span, own in zip(spans, beyond, strict=True)]
        _, values, right = np.linalg.svd(np.concatenate(seen), full_matrices=False)
        lost, more = REACHING * math.sqrt(float(np.sum(values**2))), right[0]
        if len(spans) > min(self._alone, 1) and len(self._mean) <= MIXED_CELLS:
            rest = [own - span @ near for own, span, near in zip(beyond, spans, seen, strict=True)]
            mixed, direction = self._mixed(rest)
            lost, more = lost + mixed, direction if mixed > lost else more
        self._lost.append(lost / self._size)
        if self._basis.shape[1] < len(self._mean) and self._lost[-1] > NOTHING:
            new = more - self._basis @ (self._basis.T @ more)
            self._basis = np.column_stack([self._basis, new / np.linalg.norm(new)])

    def _mixed(self, rest: Sequence[Array]) -> tuple[float, Array]:
        """What is lost by taking families apart, and by leaving out joint ones, and where most of it is."""
        _, values, right = np.linalg.svd(np.concatenate(rest), full_matrices=False)
        apart = [float(np.linalg.svd(own, compute_uv=False).sum()) for own in rest[: self._alone]]
        return max(float(values.sum()) - math.hypot(*apart), 0.0), right[0]

    @staticmethod
    def _turned(rows: Array, basis: Array) -> Kept:
        span = _span(rows @ basis)
        rest = rows - span @ (span.T @ rows)
        rest -= (rest @ basis) @ basis.T
        values = np.linalg.svd(rest, compute_uv=False)
        error = 4 * sum(rows.shape) * UNIT_ROUNDOFF * math.sqrt(float(np.sum(rows**2)))
        beyond = float(np.maximum(values - error, 0.0).sum())
        return Kept.of(span.T @ rows @ basis, [basis.shape[1] - 1], beyond)


def joint_kept(queries: Queries, frames: Sequence[Frame], counts: Sequence[int]) -> Kept:
    """A family on several attributes in their kept coordinates; nothing is said about those beyond."""
    tensor = queries.root().reshape(-1, *queries.sizes)
    for place, (frame, count) in enumerate(zip(frames, counts, strict=True)):
        tensor = np.moveaxis(np.tensordot(tensor, frame.columns(count), (1 + place, 0)), -1, 1 + place)
    return Kept.of(few(tensor.reshape(len(tensor), -1)), counts)


def few(rows: Array) -> Array:
    """Rows with the same gram, no more than columns."""
    return rows if len(rows) <= rows.shape[1] else np.asarray(np.linalg.qr(rows, mode="r"))


def _span(columns: Array) -> Array:
    """Orthonormal columns with the same span."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, values > RANK_RATIO * max(float(values[0]), 1e-300)])
