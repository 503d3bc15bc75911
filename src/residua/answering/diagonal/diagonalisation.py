"""Coordinates in which a sum of Kronecker products is diagonal (claim H-030).

Along one axis the grams `G_t` of all terms are brought to diagonal form at once, `V'G_t V = diag(d_t)`:
always possible for two of them, and for more where they commute. Then `X = sum_t kron_i G_ti / v_t` has the
generalised inverse `V D^+ V'` with V the product of the axes' and `D = sum_t kron_i d_ti / v_t`. Otherwise,
on few joint cells, X itself is diagonalised.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from residua.linalg.squares import join

Array = NDArray[np.float64]

DENSE_CELLS = 4_096
MOST_CELLS = 100_000_000
RANK_RATIO = 1e-11
SURE_RANK = 1e-7  # ratio of eigenvalues of a sum above which it leaves enough digits
ROUNDING = float(np.finfo(np.float64).eps)
DIAGONAL = 1e-9  # relative size of what may be left beside a diagonal, by rounding


@dataclass(frozen=True, slots=True, eq=False)
class Diagonalisation:
    """Coordinates of each axis, `bases` V and `ranges` M V, (cells, coordinates), and the inverse of D.

    `inverse` is D^+ with an axis for each of them; zero where nothing is measured. A `whole` frame has one
    axis, all joint cells.
    """

    bases: tuple[Array, ...]
    ranges: tuple[Array, ...]
    inverse: Array
    whole: bool


def diagonalised(grams: Sequence[Sequence[Array]], precisions: Sequence[float]) -> Diagonalisation | None:
    """The frame of terms with these grams, one per axis each, and one over their noise variances.

    None where the grams have no common diagonal form, or the joint cells are too many.
    """
    cells = [len(gram) for gram in grams[0]]
    joint = math.prod(cells)
    if joint > MOST_CELLS:
        return None
    along = [_diagonalised([term[axis] for term in grams]) for axis in range(len(cells))]
    split = [each for each in along if each is not None]
    if len(split) == len(cells):
        diagonal = _sum_of_products([[each[2][t] for each in split] for t in range(len(grams))], precisions)
        bases, ranges = tuple(each[0] for each in split), tuple(each[1] for each in split)
        # Sums of products of figures that are zero or far from it: none is what rounding leaves of zero.
        return Diagonalisation(bases, ranges, _inverted(diagonal, diagonal > 0), whole=False)
    if joint > DENSE_CELLS:
        return None
    square = sum(p * join(term) for p, term in zip(precisions, grams, strict=True))
    values, vectors = np.linalg.eigh(square)
    alive = values > RANK_RATIO * values[-1]
    if values[alive][0] < SURE_RANK * values[-1] or (values[~alive] > ROUNDING * joint * values[-1]).any():
        return None  # noise that differs so much leaves few digits here
    return Diagonalisation((vectors,), (vectors,), _inverted(np.asarray(values), alive), whole=True)


def _diagonalised(grams: Sequence[Array]) -> tuple[Array, Array, list[Array]] | None:
    """V, M V and each gram's diagonal, for M a sum of all; None where they have no common diagonal form."""
    scaled = [gram / float(np.trace(gram)) for gram in grams]
    distinct: list[Array] = []
    for gram in scaled:
        if not any(np.abs(gram - other).max() <= DIAGONAL * np.abs(gram).max() for other in distinct):
            distinct.append(gram)
    middle = np.sum(distinct, axis=0)
    values, vectors = np.linalg.eigh(middle)
    kept = values > RANK_RATIO * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    mixed = sum((number + 1.0) ** 0.5 * gram for number, gram in enumerate(distinct))
    turned = root @ np.linalg.eigh(root.T @ mixed @ root)[1]
    diagonals = []
    for gram in grams:
        seen = turned.T @ gram @ turned
        own = np.diagonal(seen).copy()
        if np.abs(seen - np.diag(own)).max() > DIAGONAL * np.abs(own).max():
            return None
        diagonals.append(np.where(own > DIAGONAL * own.max(), own, 0.0))
    return turned, middle @ turned, diagonals


def _sum_of_products(diagonals: Sequence[Sequence[Array]], precisions: Sequence[float]) -> Array:
    total = np.zeros([len(each) for each in diagonals[0]])
    for own, precision in zip(diagonals, precisions, strict=True):
        total += precision * reduce(np.multiply.outer, own)
    return total


def _inverted(diagonal: Array, alive: NDArray[np.bool_]) -> Array:
    return np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=alive)
