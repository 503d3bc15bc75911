"""Coordinates in which a sum of Kronecker products is diagonal (claim H-030).

Along one axis the grams `G_t` of all terms are brought to diagonal form at once, `V'G_t V = diag(d_t)`:
always possible for two of them, and for more where they commute. Then `X = sum_t kron_i G_ti / v_t` has the
generalised inverse `V D^+ V'` with V the product of the axes' and `D = sum_t kron_i d_ti / v_t`. Otherwise,
on few joint cells, X itself is diagonalised.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from residua._limits import DIAGONAL_CELLS, DIAGONAL_COORDINATES, DIAGONAL_TERMS
from residua.answering.blocks import Blocks, Measured, by_block
from residua.answering.coupled.answerer import Coupled
from residua.answering.protocol import Estimates, TableByTable, refuse_large_covariance
from residua.errors import NotInSpan, WorkloadError
from residua.linalg.matrices import join, spread
from residua.workload import Factor, Table

Array = NDArray[np.float64]


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
    if joint > DIAGONAL_COORDINATES:
        return None
    along = [_diagonalised([term[axis] for term in grams]) for axis in range(len(cells))]
    split = [each for each in along if each is not None]
    if len(split) == len(cells):
        diagonal = _sum_of_products([[each[2][t] for each in split] for t in range(len(grams))], precisions)
        bases, ranges = tuple(each[0] for each in split), tuple(each[1] for each in split)
        # Sums of products of figures that are zero or far from it: none is what rounding leaves of zero.
        return Diagonalisation(bases, ranges, _inverted(diagonal, diagonal > 0), whole=False)
    if joint > DIAGONAL_CELLS:
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


SPAN_TOLERANCE = 1e-9  # of a query's squared length: what rounding may leave outside what is measured


@dataclass(frozen=True, slots=True)
class Axis:
    """Attributes whose cells one matrix looks at together, and their sizes."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One block: a matrix for each axis, None where it asks for the total, and the noise variance.

    `order` are the axes that it has a matrix for, in the order of its factors.
    """

    matrices: tuple[Array | None, ...]
    noise: float
    order: tuple[int, ...]

    def matrix(self, axis: int, cells: int) -> Array:
        """The matrix along an axis; a row of ones where it asks for the total."""
        found = self.matrices[axis]
        return np.ones((1, cells)) if found is None else found

    def arranged(self, numbers: Array) -> Array:
        """Measured numbers with an axis for each of ours."""
        rows = [1 if matrix is None else len(matrix) for matrix in self.matrices]
        tensor = numbers.reshape([rows[at] for at in self.order]).transpose(np.argsort(self.order))
        return tensor.reshape(rows)


class Diagonal(TableByTable):
    """Products over the same axes, each with independent noise of its own variance.

    Tables that look at other attributes, or at several axes together, are left to the general answerer.
    """

    def __init__(
        self, axes: Sequence[Axis], terms: Sequence[Product], frame: Diagonalisation, blocks: Blocks
    ) -> None:
        self.axes, self.terms, self.frame, self.blocks = tuple(axes), tuple(terms), frame, blocks

    @cached_property
    def general(self) -> Coupled:
        """The answerer for any blocks."""
        return Coupled(self.blocks)

    def _fits(self, *groups: Table) -> bool:
        """Whether every factor of these tables looks at one axis of the frame."""
        parts = [self.axes] if self.frame.whole else [(axis,) for axis in self.axes]
        known = [{at for axis in axes for at in axis.attributes} for axes in parts]
        return all(
            any(set(factor.attributes) <= own for own in known) for each in groups for factor in each.factors
        )

    @classmethod
    def of(cls, blocks: Blocks) -> "Diagonal | None":
        """The blocks as products over common axes, or None if those have no common diagonal form."""
        if len(blocks) > DIAGONAL_TERMS:
            return None
        each = list(blocks.each())
        found = {factor.attributes: factor.sizes for _, factors, _ in each for factor in factors}
        axes = [Axis(attributes, sizes) for attributes, sizes in found.items()]
        attributes = [at for axis in axes for at in axis.attributes]
        if len(set(attributes)) < len(attributes):
            return None
        terms = []
        for _, factors, noise in each:
            mine = {factor.attributes: factor.matrix for factor in factors}
            order = tuple(list(found).index(attributes) for attributes in mine)
            terms.append(Product(tuple(mine.get(axis.attributes) for axis in axes), noise, order))
        grams = [[_gram(term.matrix(at, axis.cells)) for at, axis in enumerate(axes)] for term in terms]
        frame = diagonalised(grams, [1.0 / term.noise for term in terms])
        return None if frame is None else cls(axes, terms, frame, blocks)

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""
        if not self._fits(group):
            return self.general.variances(group)
        self._refuse_outside(group)
        parts = list(self._parts(group))
        tensor = self.frame.inverse
        for axes, factors, basis in reversed(parts):  # the last axis of the tensor that is left, each time
            squares = (self._rows(factors, axes, listed=True) @ basis) ** 2
            tensor = np.tensordot(squares, tensor, axes=(1, len(parts) - 1))
        counts = [factor.queries.count for _, factors, _ in parts for factor in factors]
        order = [group.factors.index(factor) for _, factors, _ in parts for factor in factors]
        return np.asarray(tensor.reshape(counts).transpose(np.argsort(order)).reshape(-1))

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        if not self._fits(group):
            return self.general.total(group, weighted=weighted)
        self._refuse_outside(group)
        lengths = self._lengths(group, weighted=weighted)
        return _contracted(self.frame.inverse, lengths) * (group.weight if weighted else 1.0)

    def largest(self, group: Table) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        if not self._fits(group):
            return self.general.largest(group)
        return float(self.variances(group).max()) if group.listable else math.nan

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        if not self._fits(left, right):
            return self.general.covariance(left, right)
        refuse_large_covariance(left, right)
        cells = math.prod(axis.cells for axis in self.axes)
        if cells > DIAGONAL_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} is too large: of a union of "
                f"products it is computed on at most {DIAGONAL_CELLS:,} joint cells, and these are {cells:,}"
            )
        for group in (left, right):
            self._refuse_outside(group)
        basis = join(self.frame.bases)
        seen = [self._rows(group.factors, self.axes, listed=True) @ basis for group in (left, right)]
        return np.asarray((seen[0] * self.frame.inverse.reshape(-1)) @ seen[1].T)

    def estimates(self, measured: Measured) -> Estimates:
        """The marginal of all measured cells: `V D^+ V' sum_t A_t' y_t / v_t`, by axis (claim H-031)."""
        frame, axes = self.frame, self.axes
        total = np.zeros([axis.cells for axis in axes])
        numbers = by_block(measured)
        for term, place in zip(self.terms, sorted(numbers), strict=True):
            tensor = term.arranged(numbers[place])
            for at, axis in enumerate(axes):
                tensor = _along(tensor, term.matrix(at, axis.cells).T, at)
            total += tensor / term.noise
        tensor = total.reshape(-1) if frame.whole else total
        for at, basis in enumerate(frame.bases):
            tensor = _along(tensor, basis.T, at)
        tensor = tensor * frame.inverse
        for at, basis in enumerate(frame.bases):
            tensor = _along(tensor, basis, at)
        order = [at for axis in axes for at in axis.attributes]
        cells = tensor.reshape([size for axis in axes for size in axis.sizes]).transpose(np.argsort(order))
        return Estimates.of(
            [(np.array([sorted(order)], dtype=np.int32), np.ascontiguousarray(cells)[None])], None
        )

    def _parts(self, group: Table) -> Iterator[tuple[tuple[Axis, ...], list[Factor], Array]]:
        """For each axis of the frame the axes it stands for, the group's factors there, and its basis."""
        split = [self.axes] if self.frame.whole else [(axis,) for axis in self.axes]
        for axes, basis in zip(split, self.frame.bases, strict=True):
            here = {at for axis in axes for at in axis.attributes}
            yield axes, [factor for factor in group.factors if set(factor.attributes) <= here], basis

    @staticmethod
    def _rows(factors: Sequence[Factor], axes: Sequence[Axis], *, listed: bool) -> Array:
        """Queries of some factors over all cells of some axes: all of them, or rows with their gram."""
        order = [attribute for axis in axes for attribute in axis.attributes]
        sizes = [size for axis in axes for size in axis.sizes]
        rows = join(factor.queries.matrix() if listed else factor.queries.root() for factor in factors)
        places = [order.index(attribute) for factor in factors for attribute in factor.attributes]
        return spread(rows, [sizes[place] for place in places], places, sizes)

    def _lengths(self, group: Table, *, weighted: bool) -> list[Array]:
        """Sum of squares of every coordinate over the group's queries, for each axis of the frame."""
        lengths = []
        for axes, factors, basis in self._parts(group):
            single = len(axes) == 1 and len(axes[0].attributes) == 1 and len(factors) == 1
            if single:
                gram = factors[0].queries.gram(weighted=weighted)
                lengths.append(np.einsum("ia,ij,ja->a", basis, gram, basis, optimize=True))
            else:
                listed = not weighted and any(factor.queries.weights is not None for factor in factors)
                rows = self._rows(factors, axes, listed=listed)
                lengths.append(np.sum((rows @ basis) ** 2, axis=0))
        return lengths

    def _refuse_outside(self, group: Table) -> None:
        """NotInSpan if a query of the group is not a combination of what is measured."""
        for at, (axes, factors, basis) in enumerate(self._parts(group)):
            rows = self._rows(factors, axes, listed=False)
            left = rows - (rows @ basis) @ self.frame.ranges[at].T
            if np.sum(left**2) > SPAN_TOLERANCE * np.sum(rows**2):
                raise _not_in_span(group)
        lengths = self._lengths(group, weighted=True)
        unseen = _contracted((self.frame.inverse == 0).astype(np.float64), lengths)
        if unseen > SPAN_TOLERANCE * math.prod(float(each.sum()) for each in lengths):
            raise _not_in_span(group)


def _contracted(tensor: Array, vectors: list[Array]) -> float:
    for vector in reversed(vectors):
        tensor = tensor @ vector
    return float(tensor)


def _not_in_span(group: Table) -> NotInSpan:
    return NotInSpan(
        f"table {group.name!r} asks for more than the plan's products measure; add the table to the workload "
        "before planning"
    )


def _gram(rows: Array) -> Array:
    return np.asarray(rows.T @ rows)


def _along(tensor: Array, matrix: Array, axis: int) -> Array:
    return np.asarray(np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis))
