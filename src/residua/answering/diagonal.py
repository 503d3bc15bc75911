"""Coordinates in which a sum of Kronecker products is diagonal (claim H-030).

Along one axis the grams `G_t` of all terms are brought to diagonal form at once, `V'G_t V = diag(d_t)`:
always possible for two of them, and for more where they commute. Then `X = sum_t kron_i G_ti / v_t` has the
generalised inverse `V D^+ V'` with V the product of the axes' and `D = sum_t kron_i d_ti / v_t`. Otherwise,
on few joint cells, X itself is diagonalised.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from residua._arrays import Array, Flags
from residua._limits import DIAGONAL_CELLS, DIAGONAL_COORDINATES, DIAGONAL_TERMS
from residua.answering.blocks import Blocks, Measured, ascending, by_block, outer, rows_over
from residua.answering.coupled.answerer import Coupled
from residua.answering.protocol import Answerer, Estimates, not_in_span
from residua.errors import WorkloadError
from residua.linalg.grams import sure_root
from residua.linalg.matrices import along_axes, join
from residua.workload import Factor, Table

RANK_RATIO = 1e-11
SURE_RANK = 1e-7  # ratio of eigenvalues of a sum above which it leaves enough digits
ROUNDING = float(np.finfo(np.float64).eps)
DIAGONAL = 1e-9  # relative size of what may be left beside a diagonal, by rounding


@dataclass(frozen=True, slots=True, eq=False)
class Diagonalisation:
    """Coordinates of each axis, `bases` V and `ranges` M V, (cells, coordinates), and the inverse of D.

    `inverse` is D^+ with an axis for each of them; zero where nothing is measured. A `whole` form has one
    axis, all joint cells.
    """

    bases: tuple[Array, ...]
    ranges: tuple[Array, ...]
    inverse: Array
    whole: bool


def diagonalised(grams: Sequence[Sequence[Array]], precisions: Sequence[float]) -> Diagonalisation | None:
    """The form of terms with these grams, one per axis each, and one over their noise variances.

    None where the grams have no common diagonal form, or the joint cells are too many.
    """
    cells = [len(gram) for gram in grams[0]]
    joint = math.prod(cells)
    if joint > DIAGONAL_COORDINATES:
        return None
    along = [_diagonalised([term[axis] for term in grams]) for axis in range(len(cells))]
    split = [each for each in along if each is not None]
    if len(split) == len(cells):
        products = (p * outer(each[2][t] for each in split) for t, p in enumerate(precisions))
        diagonal = np.asarray(sum(products))
        bases, ranges = tuple(each[0] for each in split), tuple(each[1] for each in split)
        # Sums of products of figures that are zero or far from it: none is what rounding leaves of zero.
        return Diagonalisation(bases, ranges, _inverted(diagonal, diagonal > 0), whole=False)
    if joint > DIAGONAL_CELLS:
        return None
    square = np.asarray(sum(p * join(term) for p, term in zip(precisions, grams, strict=True)))
    if (sure := sure_root(square)) is not None:  # R^-T X R^-1 is one: a third of the work of eigenvectors
        return Diagonalisation((sure[1],), (sure[0].T,), np.ones(joint), whole=True)
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


def _inverted(diagonal: Array, alive: Flags) -> Array:
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

    def asked(self, group: Table) -> list[Factor]:
        """The factors of a table that look at our attributes alone."""
        return [factor for factor in group.factors if set(factor.attributes) <= {*self.attributes}]


class Diagonal(Answerer):
    """Products over the same axes, each with independent noise of its own variance.

    Tables that look at other attributes, or at several axes together, are left to the general answerer.
    """

    def __init__(self, axes: Sequence[Axis], form: Diagonalisation, blocks: Blocks) -> None:
        self.axes, self.form, self.blocks = tuple(axes), form, blocks
        attributes = tuple(at for axis in axes for at in axis.attributes)
        self.joint = Axis(attributes, tuple(size for axis in axes for size in axis.sizes))
        self.seen = (self.joint,) if form.whole else self.axes
        """The axes of the diagonal form."""

    @cached_property
    def general(self) -> Coupled:
        """The answerer for any blocks."""
        return Coupled(self.blocks)

    def _fits(self, *groups: Table) -> bool:
        """Whether every factor of these tables looks at one axis of the diagonal form."""
        return all(
            sum(len(axis.asked(group)) for axis in self.seen) == len(group.factors) for group in groups
        )

    @classmethod
    def of(cls, blocks: Blocks) -> "Diagonal | None":
        """The blocks as products over common axes, or None if those have no common diagonal form."""
        if len(blocks) > DIAGONAL_TERMS:
            return None
        terms = list(blocks.each())
        found = {factor.attributes: factor.sizes for _, factors, _ in terms for factor in factors}
        axes = [Axis(attributes, sizes) for attributes, sizes in found.items()]
        attributes = [at for axis in axes for at in axis.attributes]
        if len(set(attributes)) < len(attributes):
            return None
        grams = []
        for _, factors, _ in terms:
            mine = {factor.attributes: factor.matrix for factor in factors}
            rows = (mine.get(axis.attributes, np.ones((1, axis.cells))) for axis in axes)
            grams.append([np.asarray(each.T @ each) for each in rows])
        form = diagonalised(grams, [1.0 / noise for _, _, noise in terms])
        return None if form is None else cls(axes, form, blocks)

    def variances(self, group: Table) -> Array:
        if not self._fits(group):
            return self.general.variances(group)
        self._refuse_outside(group)
        squares = [
            (rows_over(axis.asked(group), axis.attributes, axis.sizes) @ basis) ** 2
            for axis, basis in self._pairs
        ]
        tensor = along_axes(self.form.inverse.reshape(1, -1), squares)
        factors = [factor for axis in self.seen for factor in axis.asked(group)]
        order = [group.factors.index(factor) for factor in factors]
        counts = [factor.queries.count for factor in factors]
        return np.asarray(tensor.reshape(counts).transpose(np.argsort(order)).reshape(-1))

    def summed(self, group: Table, *, weighted: bool) -> float:
        if not self._fits(group):
            return self.general.summed(group, weighted=weighted)
        self._refuse_outside(group)
        return _contracted(self.form.inverse, self._lengths(group, weighted=weighted))

    def largest(self, group: Table) -> float:
        return super().largest(group) if self._fits(group) else self.general.largest(group)

    def covariances(self, left: Table, right: Table) -> Array:
        if not self._fits(left, right):
            return self.general.covariances(left, right)
        if self.joint.cells > DIAGONAL_CELLS:
            raise WorkloadError(
                f"the covariance of tables {left.name!r} and {right.name!r} is too large: of a union of "
                f"products it is computed on at most {DIAGONAL_CELLS:,} joint cells, and these are "
                f"{self.joint.cells:,}"
            )
        basis, seen = join(self.form.bases), []
        for group in (left, right):
            self._refuse_outside(group)
            seen.append(rows_over(group.factors, self.joint.attributes, self.joint.sizes) @ basis)
        return np.asarray((seen[0] * self.form.inverse.reshape(-1)) @ seen[1].T)

    def estimates(self, measured: Measured) -> Estimates:
        """The marginal of all measured cells: `V D^+ V' sum_t A_t' y_t / v_t`, by axis (claim H-031)."""
        total = np.zeros([axis.cells for axis in self.axes])
        numbers = by_block(measured)
        for (_, factors, noise), place in zip(self.blocks.each(), sorted(numbers), strict=True):
            cells = along_axes(numbers[place][None], [factor.matrix.T for factor in factors])
            own = [self.axes.index(Axis(factor.attributes, factor.sizes)) for factor in factors]
            tensor = cells.reshape([self.axes[at].cells for at in own]).transpose(np.argsort(own))
            total += np.expand_dims(tensor, [at for at in range(total.ndim) if at not in own]) / noise
        turned = along_axes(total.reshape(1, -1), [basis.T for basis in self.form.bases])
        cells = along_axes(turned * self.form.inverse.reshape(-1), self.form.bases)
        order = self.joint.attributes
        subsets = np.array([sorted(order)], dtype=np.int32)
        return Estimates.of([(subsets, ascending(cells, self.joint.sizes, order))], None)

    @property
    def _pairs(self) -> list[tuple[Axis, Array]]:
        """Each axis of the diagonal form, with its basis."""
        return list(zip(self.seen, self.form.bases, strict=True))

    @cached_property
    def _complete(self) -> bool:
        """Whether every query there is is a combination of what is measured."""
        return all(len(basis) == basis.shape[1] for basis in self.form.bases) and bool(
            np.all(self.form.inverse > 0)
        )

    def _lengths(self, group: Table, *, weighted: bool) -> list[Array]:
        """Sum of squares of every coordinate over the table's queries, for each axis of the diagonal form."""
        lengths = []
        for axis, basis in self._pairs:
            factors = axis.asked(group)
            if all(len(factor.attributes) == 1 for factor in factors):
                own = {factor.attributes[0]: factor.queries.gram(weighted=weighted) for factor in factors}
                pairs = zip(axis.attributes, axis.sizes, strict=True)
                grams = [own[at] if at in own else np.ones((size, size)) for at, size in pairs]
                lengths.append(np.einsum("ai,ai->a", along_axes(basis.T, grams), basis.T))
            else:
                listed = not weighted and any(factor.queries.weights is not None for factor in factors)
                rows = rows_over(factors, axis.attributes, axis.sizes, listed=listed)
                lengths.append(np.sum((rows @ basis) ** 2, axis=0))
        return lengths

    def _refuse_outside(self, group: Table) -> None:
        """NotInSpan if a query of the table is not a combination of what is measured."""
        if self._complete:
            return
        told = f"table {group.name!r} asks for more than the plan's products measure"
        for (axis, basis), reached in zip(self._pairs, self.form.ranges, strict=True):
            rows = rows_over(axis.asked(group), axis.attributes, axis.sizes, listed=False)
            left = rows - (rows @ basis) @ reached.T
            if np.sum(left**2) > SPAN_TOLERANCE * np.sum(rows**2):
                raise not_in_span(told)
        lengths = self._lengths(group, weighted=True)
        unseen = _contracted((self.form.inverse == 0).astype(np.float64), lengths)
        if unseen > SPAN_TOLERANCE * math.prod(float(each.sum()) for each in lengths):
            raise not_in_span(told)


def _contracted(tensor: Array, vectors: list[Array]) -> float:
    for vector in reversed(vectors):
        tensor = tensor @ vector
    return float(tensor)
