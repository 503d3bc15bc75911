"""Blocks that see each other: what they say together about the coordinates they share (claim O-002).

Every block is reduced to what it says about shared coordinates; the sum of that information is one dense
matrix, small as long as blocks share only small marginals.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from residua._arrays import Array, Indices
from residua._limits import SHARED_DIMENSIONS, SHARED_WORK
from residua.answering.blocks import Memory
from residua.answering.coupled.residuals import CoupledBlock, Reduced, Residual, dimension
from residua.answering.independent.parts import tied
from residua.errors import Infeasible
from residua.linalg.matrices import Measure, pivoted_qr, threads_for, triangle_inverse

SMALL = 512  # rows up to which numpy does it in less time than loading SciPy takes
SURE_RANK = 1e-7  # ratio of eigenvalues above which a matrix is regular, and its inverse accurate
RANK_RATIO = 1e-10  # of eigenvalues: below it a direction is not measured


class System:
    """Coupled blocks, where their shared coordinates are, and the covariance of their best estimates.

    Blocks that share nothing with each other, not even through others, are solved apart.
    """

    def __init__(self, measures: Sequence[Measure], blocks: Sequence[CoupledBlock], memory: Memory) -> None:
        self.measures, self.blocks, self.memory = tuple(measures), tuple(blocks), memory
        self.owners: dict[Residual, int] = {}  # the block that alone touches a residual
        for number, block in enumerate(self.blocks):
            self.owners.update({block.residual(kept): number for kept in block.block_class.private})
        self.components: list[Component] = []
        self.places: dict[Residual, tuple[int, int]] = {}  # of shared residuals among all shared coordinates
        start = 0
        sharing = [block for block in self.blocks if block.shared]
        for numbers in tied([block.shared for block in sharing]):
            component = Component(self.measures, [sharing[at] for at in numbers], start, memory)
            self.components.append(component)
            self.places |= component.places
            start = component.stop
        self.dimension = start
        self._stops = np.array([component.stop for component in self.components])

    def indices(self, residuals: Sequence[Residual]) -> Indices:
        """Positions of the coordinates of shared residuals, one residual after the other."""
        runs = [np.arange(*self.places[residual]) for residual in residuals]
        return np.concatenate(runs) if runs else np.zeros(0, dtype=np.intp)

    def unseen(self, indices: Indices) -> Array | None:
        """The shared directions that nobody measures, on some coordinates, (len(indices), k); or None."""
        each = ((at, own, component.unseen) for component, at, own in self._divided(indices))
        parts = [(at, unseen[own]) for at, own, unseen in each if unseen is not None]
        return _apart(len(indices), parts) if parts else None

    def root_of(self, indices: Indices) -> Array:
        """L with `L L'` the covariance of some shared coordinates: r has the variance `|r L|^2`.

        L has shape (len(indices), k), and is right for what can be answered. Where blocks differ by many
        orders of magnitude, the covariance itself would lose the small variances, and L does not (O-003).
        """
        parts = [(at, component.root_of(own)) for component, at, own in self._divided(indices)]
        return parts[0][1] if len(parts) == 1 else _apart(len(indices), parts)

    def between(self, left: Array, rows: Indices, right: Array, columns: Indices) -> Array:
        """Covariances of `left` and `right`, rows over some shared coordinates each."""
        union = np.union1d(rows, columns)
        root = self.root_of(union)
        seen = left @ root[np.searchsorted(union, rows)]
        return np.asarray(seen @ (right @ root[np.searchsorted(union, columns)]).T)

    def solve(self, sums: Array) -> Array:
        """Covariance of the shared coordinates times a vector."""
        parts = [each.solve(sums[each.start : each.stop]) for each in self.components]
        return np.concatenate([*parts, np.zeros(0)])

    def _divided(self, indices: Indices) -> "Iterator[tuple[Component, Indices, Indices]]":
        """The components of some coordinates, with places among them and positions in the component."""
        owners = np.searchsorted(self._stops, indices, side="right")
        for number in np.unique(owners).tolist():
            at = np.flatnonzero(owners == number)
            yield self.components[number], at, indices[at] - self.components[number].start


def _apart(rows: int, parts: Sequence[tuple[Indices, Array]]) -> Array:
    """Arrays on some rows each, side by side."""
    result = np.zeros((rows, sum(part.shape[1] for _, part in parts)))
    start = 0
    for at, part in parts:
        result[at, start : start + part.shape[1]] = part
        start += part.shape[1]
    return result


class Component:
    """Blocks that are tied together: their shared coordinates, from `start` on, and what is known of them."""

    def __init__(
        self, measures: Sequence[Measure], blocks: Sequence[CoupledBlock], start: int, memory: Memory
    ) -> None:
        self.blocks, self.start, self.memory = tuple(blocks), start, memory
        shared = {residual for block in blocks for residual in block.shared}
        self.places: dict[Residual, tuple[int, int]] = {}
        for residual in sorted(shared, key=lambda found: (len(found), found)):
            stop = start + dimension([measures[at].size for at in residual])
            self.places[residual] = (start, stop)
            start = stop
        self.stop, self.dimension = start, start - self.start
        if self.dimension > SHARED_DIMENSIONS:
            raise Infeasible(
                f"the blocks of this plan share {self.dimension:,} dimensions, more than the "
                f"{SHARED_DIMENSIONS:,} that can be solved together; use coarser attributes or fewer of "
                "them, or method 'querysmasher', whose blocks are independent"
            )

    def _shared_of(self, block: CoupledBlock) -> Indices:
        """Positions in this component of the shared coordinates of a block, in the order of its own."""
        return np.concatenate([np.arange(*self.places[each]) for each in block.shared]) - self.start

    @cached_property
    def unseen(self) -> Array | None:
        """Orthonormal basis of the shared directions that nobody measures, (dimension, k); None if none."""
        whole = [each for each in self.blocks if all(shape.whole_rank for shape in each.block_class.shapes)]
        if {residual for block in whole for residual in block.shared} == self.places.keys():
            return None
        with threads_for(self.dimension):
            known = self._sum(lambda each: each.known, [1.0] * len(self.blocks))
            if _surely_regular(known):
                return None
            values, vectors = np.linalg.eigh(known)
        lost = values <= RANK_RATIO * values[-1]
        return np.asarray(vectors[:, lost]) if lost.any() else None

    def root_of(self, indices: Indices) -> Array:
        """L with `L L'` the covariance of some coordinates."""
        if self._covariance is not None:
            return np.asarray(np.linalg.cholesky(self._covariance[np.ix_(indices, indices)]))
        rows = self._root[indices]
        if len(rows) == rows.shape[1]:
            return rows
        return np.asarray(np.linalg.qr(rows.T, mode="r")).T

    def solve(self, sums: Array) -> Array:
        """Covariance of all coordinates times a vector."""
        if self._covariance is not None:
            return np.asarray(self._covariance @ sums)
        return np.asarray(self._root @ (self._root.T @ sums))

    @cached_property
    def _covariance(self) -> Array | None:
        """Covariance of the shared coordinates, None where it would not be accurate."""
        with threads_for(self.dimension):
            information = self._sum(lambda each: each.spread, [block.noise for block in self.blocks])
            if self.unseen is not None:
                filling = float(np.trace(information)) / self.dimension or 1.0
                information += self.unseen @ self.unseen.T * filling
            scale = 1.0 / np.sqrt(np.diagonal(information))
            scales = np.outer(scale, scale)
            inverse = _inverse(information * scales)
            return None if inverse is None else inverse * scales

    @cached_property
    def _root(self) -> Array:
        """L with `L L'` the covariance of the shared coordinates, from rows ordered by their size."""
        stack = []
        for block in self.blocks:
            spread = block.block_class.reduced(self.memory).spread
            rows = np.zeros((len(spread), self.dimension))
            rows[:, self._shared_of(block)] = spread / math.sqrt(block.noise)
            stack.append(rows)
        if sum(map(len, stack)) * self.dimension**2 > SHARED_WORK:
            raise Infeasible(
                "the noise of the blocks of this plan differs by so many orders of magnitude that they "
                "cannot be solved together; use weights that differ less"
            )
        if self.unseen is not None:
            stack.append(self.unseen.T * np.median(np.linalg.norm(np.concatenate(stack), axis=1)))
        with threads_for(self.dimension):
            return _inverse_root(np.concatenate(stack))

    def _sum(self, rows: Callable[[Reduced], Array], noise: Sequence[float]) -> Array:
        """Sum of the grams of rows over the shared coordinates of each block, over its noise."""
        found = {each: rows(each.reduced(self.memory)) for each in {b.block_class for b in self.blocks}}
        squares = {each: own.T @ own for each, own in found.items()}
        result = np.zeros((self.dimension, self.dimension))
        for block, variance in zip(self.blocks, noise, strict=True):
            at = self._shared_of(block)
            result[np.ix_(at, at)] += squares[block.block_class] / variance
        return result


def _surely_regular(square: Array) -> bool:
    """Whether a symmetric matrix is certainly positive definite, by its factor and its condition."""
    return (_small_inverse if len(square) <= SMALL else _factor)(square) is not None


def _inverse(square: Array) -> Array | None:
    """Inverse of a positive definite matrix, None if it is too near a singular one to be accurate."""
    if len(square) <= SMALL:
        return _small_inverse(square)
    from scipy.linalg.lapack import dpotri

    if (factor := _factor(square)) is None:
        return None
    with threads_for(len(square)):
        upper = np.triu(dpotri(factor, lower=0)[0])
    return np.asarray(upper + np.triu(upper, 1).T)


def _factor(square: Array) -> Array | None:
    """Triangle R with `R'R` the matrix, None if it is too near a singular one."""
    from scipy.linalg.lapack import dpocon, dpotrf

    with threads_for(len(square)):
        factor, failed = dpotrf(square, lower=0)
    regular = not failed and dpocon(factor, float(np.abs(square).sum(axis=0).max()))[0] > SURE_RANK
    return np.asarray(factor) if regular else None


def _small_inverse(square: Array) -> Array | None:
    """The same in numpy alone, with the condition itself instead of an estimate."""
    if not len(square):
        return square
    try:
        factor = triangle_inverse(np.asarray(np.linalg.cholesky(square).T))
    except np.linalg.LinAlgError:
        return None
    inverse = factor @ factor.T
    condition = float(np.abs(square).sum(axis=0).max() * np.abs(inverse).sum(axis=0).max())
    return np.asarray(inverse) if condition * SURE_RANK < 1 else None


def _inverse_root(rows: Array) -> Array:
    """L with `L L' = (rows' rows)^-1`; small rows keep their digits, as large ones come first."""
    from scipy.linalg import solve_triangular

    order = np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")
    triangle, columns = pivoted_qr(rows[order], mode="r")
    size = rows.shape[1]
    result = np.empty((size, size))
    result[columns] = solve_triangular(triangle[:size], np.eye(size), check_finite=False)
    return result
