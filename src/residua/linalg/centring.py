"""Means and centring along the axes of a product of cells, under weights that sum to 1."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.linalg.matrices import independent_rows

Array = NDArray[np.float64]

VANISHING = 1e-12  # relative size below which something is what rounding leaves of zero
SETTLED = 1e-4  # relative size above which a row's own digits settle its direction


@dataclass(frozen=True, slots=True)
class Measure:
    """Weights p on the cells of one attribute that sum to 1 (uniform where none are given); only those in
    proportion to whole `numerators` can be measured."""

    size: int
    weights: bytes | None = None
    numerators: tuple[int, ...] | None = None

    @classmethod
    def of(cls, weights: Array) -> "Measure":
        return cls(len(weights), np.ascontiguousarray(weights, dtype=np.float64).tobytes())

    @classmethod
    def whole(cls, numerators: Sequence[int]) -> "Measure":
        """The measure with weights in proportion to whole numbers, whose sum must not be zero."""
        exact = tuple(int(entry) for entry in numerators)
        weights = np.array(exact, dtype=np.float64) / sum(exact)
        return cls(len(exact), weights.tobytes(), exact)

    def whole_numbers(self) -> tuple[int, ...]:
        """Whole numbers in proportion to the weights: ones for the uniform measure."""
        if self.weights is None:
            return (1,) * self.size
        if self.numerators is None:
            raise ValueError("a measure with real weights has no whole numbers")
        return self.numerators

    def vector(self) -> Array:
        """The weights, shape (size,)."""
        if self.weights is None:
            return np.full(self.size, 1.0 / self.size)
        return np.frombuffer(self.weights)


def project(rows: Array, sizes: Sequence[int], measures: Sequence[Measure], kept: Sequence[int]) -> Array:
    """Query rows `(k, product of sizes)` centred along the axes `kept`, and means along the others.

    The result is (k, product of the kept sizes): `q C` with `C = I - p 1'` along kept axes, else `q p`.
    """
    tensor = rows.reshape(len(rows), *sizes)
    for axis in reversed(range(len(sizes))):
        mean = np.tensordot(tensor, measures[axis].vector(), axes=(1 + axis, 0))
        tensor = tensor - np.expand_dims(mean, 1 + axis) if axis in kept else mean
    return np.asarray(tensor.reshape(len(rows), -1))


def standing_rows(rows: Array, lengths: Array) -> Array:
    """R with independent rows and `R'R = rows' rows`, counting only directions that stand out of rounding.

    `rows` is (k, cells), each a difference or sum of terms of length `lengths[i]`: where those cancel, what
    is left has few digits, and scaled to length 1 it would look like a direction of its own.
    """
    left = np.linalg.norm(rows, axis=1) / lengths
    rows, lengths, left = (each[left > VANISHING] for each in (rows, lengths, left))
    if left.min(initial=1.0) > SETTLED:
        return independent_rows(rows)
    from scipy.linalg import qr  # loading it takes longer than loading all of residua

    basis, upper, _ = qr((rows / lengths[:, None]).T, mode="economic", pivoting=True, check_finite=False)
    basis = np.asarray(basis[:, np.abs(np.diagonal(upper)) > VANISHING])  # (cells, rank)
    return np.asarray(independent_rows(rows @ basis) @ basis.T)


def centred_columns(columns: Array, sizes: Sequence[int], measures: Sequence[Measure]) -> Array:
    """`C` applied from the left along every axis of `(product of sizes, k)`: `C H = H - p (1'H)`."""
    tensor = columns.reshape(*sizes, columns.shape[1])
    for axis, measure in enumerate(measures):
        shape = [-1 if place == axis else 1 for place in range(tensor.ndim)]
        tensor = tensor - measure.vector().reshape(shape) * tensor.sum(axis=axis, keepdims=True)
    return np.asarray(tensor.reshape(columns.shape))
