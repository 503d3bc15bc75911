"""Ways to solve one block: the optimum, the Fourier basis, or strategies given in advance.

Each takes the root of the block's gram and returns a strategy of cost 1 with a bracket on the best there is.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from residua._arrays import AnyArray, Array, Integers
from residua._limits import BLOCK_RANK
from residua.answering.blocks import Layer, Shape
from residua.decompose import Block, Decomposition, SimpleBlocks, Term, common_pieces, decompose, signature
from residua.linalg.matrices import (
    VANISHING,
    Measure,
    independent_rows,
    join,
    occurring,
    pseudo_inverse,
    standing_rows,
    threads_for,
)
from residua.methods.draft import Draft, Progress
from residua.solve.cells import Solution, bracket, solve_cells
from residua.strategy.build import product_span
from residua.strategy.rounding import kept_in_span
from residua.strategy.strategy import Domain, with_best_noise
from residua.workload import Workload


class BlockSolver(ABC):
    """Finds a strategy of cost 1 for queries with gram `root' root`, on cells row-major over `sizes`.

    `products_only` if it can solve one attribute at a time alone; `asked_only` if its strategies answer
    nothing but combinations of the block's queries. Blocks of several products above the rank `largest` get
    the best product of factors instead.
    """

    products_only: ClassVar[bool] = False
    asked_only: ClassVar[bool] = True
    largest: int = BLOCK_RANK

    @abstractmethod
    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The strategy, and a bracket on the best there is."""


class Optimal(BlockSolver):
    """The certified optimum of each block (QuerySmasher)."""

    def __init__(self, largest: int | None = None) -> None:
        self.largest = type(self).largest if largest is None else largest

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The optimum within `tolerance`."""
        return solve_cells(root, tolerance).require(tolerance, f"the solver for {what}")


class Fourier(BlockSolver):
    """The best strategy that measures real Fourier coefficients, in closed form (claim M-002).

    For uniform centring only: no other centres a row along every axis by dropping frequencies.
    With c_j the squared length of the queries along frequency j, the noise variance of coefficient j is
    proportional to `1 / sqrt(c_j)`, the diagonal of X is constant, and the value is `(sum sqrt c)^2 / cells`.
    """

    asked_only = False

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The optimum among strategies that are diagonal in the Fourier basis."""
        cells = root.shape[1]
        spectrum = np.fft.fftn(root.reshape(len(root), *sizes), axes=range(1, 1 + len(sizes)))
        power = np.abs(spectrum.reshape(len(root), -1)) ** 2 / cells  # (rows, frequencies)
        asked = np.any(power > VANISHING**2 * power.sum(axis=1, keepdims=True), axis=0)
        asked &= np.all(np.indices(sizes).reshape(len(sizes), -1) > 0, axis=0)  # centred rows have no others
        heights = np.sqrt(np.where(asked, power.sum(axis=0), 0.0))
        strategy = _real_fourier_rows(heights * cells / heights.sum(), sizes)
        value = float(heights.sum()) ** 2 / cells
        return Solution(strategy, np.full(cells, 1 / cells), uniform_bound(root), value, 1)


@dataclass(frozen=True)
class Given(BlockSolver):
    """One strategy per attribute, projected on what the block asks (ResidualPlanner and ResidualPlanner+).

    `matrices` has a strategy for each tag; an attribute without one gets the optimum of its own piece.
    """

    matrices: Mapping[int, Array] = field(default_factory=dict)

    products_only = True

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The given strategy, projected on the queries' row space and scaled to cost 1."""
        (tag,) = tags
        if tag not in self.matrices:
            return Optimal().solve(root, sizes, tags, tolerance, what)
        basis = np.linalg.qr(root.T)[0]  # (cells, rank)
        rows = independent_rows(self.matrices[tag] @ basis) @ basis.T
        rows = rows / np.sqrt(np.max(np.sum(rows * rows, axis=0)))
        value = float(np.sum((root @ pseudo_inverse(rows)) ** 2))
        cells = root.shape[1]
        return Solution(rows, np.full(cells, 1 / cells), uniform_bound(root), value, 1)


def uniform_bound(root: Array) -> float:
    """The dual bound at uniform cell weights, which is the singular value bound."""
    return bracket(root, np.full(root.shape[1], 1.0 / root.shape[1]), precise=True).lower


def _real_fourier_rows(heights: Array, sizes: Sequence[int]) -> Array:
    """Independent rows B with `B'B = sum_j heights_j f_j f_j^*`, f_j the unit Fourier vectors."""
    cells = len(heights)
    grid = np.indices(sizes).reshape(len(sizes), -1)  # (axes, cells)
    mirror = np.ravel_multi_index(tuple((-grid) % np.array(sizes)[:, None]), tuple(sizes))
    chosen = np.flatnonzero((heights > 0) & (np.arange(cells) <= mirror))
    angles = 2 * np.pi * ((grid[:, chosen] / np.array(sizes)[:, None]).T @ grid)  # (chosen, cells)
    own = mirror[chosen] == chosen
    scale = np.sqrt(heights[chosen] * np.where(own, 1.0, 2.0) / cells)[:, None]
    return np.concatenate([scale * np.cos(angles), (scale * np.sin(angles))[~own]])


Layout = tuple[tuple[int, ...], ...]

SWEEPS = 30
SWEEP_GAIN = 1e-7  # relative; below this another sweep over the factors is not worth its time


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One block's solution: its shapes by number, where they go, and square roots of a bracket on it."""

    layout: Layout
    shapes: tuple[int, ...]
    lower: float
    upper: float


Solutions = tuple[Layer, Array, Array]
"""Blocks of one layout, their noise open, with square roots of brackets on each, (blocks,)."""


def solve_blocks(
    parts: Decomposition,
    sizes: Sequence[int],
    solver: BlockSolver,
    tolerance: float,
    progress: Progress | None = None,
) -> Draft:
    """The strategy of cost 1 with every block solved by `solver`, and the bound of this block structure."""
    cache = _BlockCache(parts, solver, tolerance, progress)
    found = [*map(cache.simple, parts.simple), *cache.mixed(parts.mixed)]
    total = math.fsum(float(upper.sum()) for _, _, upper in found)
    lower = math.fsum(float(each.sum()) for _, each, _ in found) ** 2
    layers = [(layer, upper) for layer, _, upper in found]
    strategy = with_best_noise(Domain(tuple(sizes), parts.measures), cache.shapes, layers)
    return Draft(strategy, lower, "this block structure", total**2, spans=cache.spans)


def querysmasher(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Every block under uniform centring, solved to a certified gap."""
    draft = solve_blocks(decompose(work), work.schema.sizes, Optimal(), tolerance, progress)
    return widened(work, draft)


def widened(work: Workload, draft: Draft) -> Draft:
    """The draft, with its bound for all mechanisms where no other structure can be better (claim B-003)."""
    return replace(draft, scope="all mechanisms") if work.invariant else draft


class _BlockCache:
    """Solves distinct pieces and blocks once, and numbers their shapes."""

    def __init__(
        self, parts: Decomposition, solver: BlockSolver, tolerance: float, progress: Progress | None
    ) -> None:
        self.parts, self.solver, self.tolerance, self.progress = parts, solver, tolerance, progress
        self.shapes: list[Shape] = []
        self.spans: dict[int, Integers | None] = {}
        self._pieces: dict[int, Solved] = {}
        self._blocks: dict[object, Solved] = {}

    def piece(self, number: int) -> Solved:
        """Solution of one piece by itself."""
        if number not in self._pieces:
            piece, root = self.parts.pieces[number], self.parts.roots[number]
            if len(piece.sizes) > 1 and self.solver.products_only:
                alone = Term(1.0, ((tuple(range(len(piece.sizes))), number),))
                self._pieces[number] = self._product_of([alone])
            else:
                share = self.tolerance / 4  # a product of k solutions has about k times the gap of one
                solved = self._solve(root, piece.sizes, piece.tags, share, repr(piece.queries))
                self._remember_span(solved, piece.span, piece.kept_measures)
                self._pieces[number] = solved
        return self._pieces[number]

    def simple(self, blocks: SimpleBlocks) -> Solutions:
        """Blocks that are products of one-attribute pieces."""
        count = len(self.parts.pieces)
        shapes, low, high = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(count)
        for number in occurring(blocks.pieces):
            one = self.piece(number)
            shapes[number], low[number], high[number] = one.shapes[0], one.lower, one.upper
        scale = np.sqrt(blocks.coefficients)
        lower, upper = (scale * roots[blocks.pieces].prod(axis=1) for roots in (low, high))
        layout = tuple((place,) for place in range(blocks.subsets.shape[1]))
        return Layer(blocks.subsets, layout, shapes[blocks.pieces], upper, upper), lower, upper

    def mixed(self, blocks: Sequence[Block]) -> Iterator[Solutions]:
        """Blocks that are not simple products, by layout."""
        rows: dict[Layout, list[tuple[tuple[int, ...], Solved, float]]] = {}
        for done, block in enumerate(blocks):
            key, scale = signature(block)
            if key not in self._blocks:
                if self.progress is not None:
                    self.progress("solving blocks", done / len(blocks))
                terms = [Term(term.coefficient / scale, term.pieces) for term in block.terms]
                self._blocks[key] = self._block(terms)
            solved = self._blocks[key]
            rows.setdefault(solved.layout, []).append((block.attributes, solved, math.sqrt(scale)))
        for layout, entries in rows.items():
            subsets = np.array([attributes for attributes, _, _ in entries], dtype=np.int32)
            shapes = np.array([solved.shapes for _, solved, _ in entries], dtype=np.int64)
            lower = np.array([scale * solved.lower for _, solved, scale in entries])
            upper = np.array([scale * solved.upper for _, solved, scale in entries])
            yield Layer(subsets, layout, shapes, upper, upper), lower, upper

    def _block(self, terms: Sequence[Term]) -> Solved:
        if len(terms) == 1:  # one Kronecker product of pieces: solutions, values and bounds multiply
            return self._joined([(places, self.piece(number)) for places, number in terms[0].pieces])
        common, rest, others = common_pieces([term.pieces for term in terms])
        if common and rest:
            reduced = [Term(term.coefficient, own) for term, own in zip(terms, others, strict=True)]
            return self._joined(
                [*((places, self.piece(at)) for places, at in common), (rest, self._block(reduced))]
            )
        sizes, tags, measures = self._places(terms[0])
        several = self.solver.products_only and len(sizes) > 1
        if several or math.prod(size - 1 for size in sizes) > self.solver.largest:
            return self._product_of(terms)
        stack = np.concatenate([self._rows(term, sizes) for term in terms])
        with threads_for(len(stack)):
            root = independent_rows(stack)
        solved = self._solve(root, sizes, tags, self.tolerance, f"a block of {math.prod(sizes):,} cells")
        self._remember_span(solved, lambda: self._joint_span(terms, sizes), measures)
        return solved

    def _joined(self, solved: Sequence[tuple[tuple[int, ...], Solved]]) -> Solved:
        """The product of solutions on these places each."""
        layout = [tuple(places[at] for at in inner) for places, one in solved for inner in one.layout]
        return Solved(
            tuple(layout),
            tuple(shape for _, one in solved for shape in one.shapes),
            math.prod(one.lower for _, one in solved),
            math.prod(one.upper for _, one in solved),
        )

    def _places(self, term: Term) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Measure, ...]]:
        """Size, tag and measure of each place of a block."""
        found: dict[int, tuple[int, int, Measure]] = {}
        for places, number in term.pieces:
            piece = self.parts.pieces[number]
            found.update(
                zip(places, zip(piece.sizes, piece.tags, piece.kept_measures, strict=True), strict=True)
            )
        sizes, tags, measures = zip(*(found[place] for place in range(len(found))), strict=True)
        return sizes, tags, measures

    def _rows(self, term: Term, sizes: Sequence[int]) -> Array:
        """Rows over the block's cells whose gram is the term's."""
        rows = join(self.parts.roots[number] for _, number in term.pieces)
        return np.asarray(math.sqrt(term.coefficient) * _in_order(rows, term, sizes))

    def _remember_span(
        self, solved: Solved, span: Callable[[], Integers | None], measures: Sequence[Measure]
    ) -> None:
        (number,) = solved.shapes
        asked = span if self.solver.asked_only else lambda: None
        self.shapes[number] = kept_in_span(self.shapes[number], number, self.spans, asked, measures)

    def _joint_span(self, terms: Sequence[Term], sizes: Sequence[int]) -> Integers | None:
        """Integer rows that span what all terms ask together."""
        rows = []
        for term in terms:
            span = product_span([self.parts.pieces[number].span() for _, number in term.pieces])
            if span is None:
                return None
            rows.append(_in_order(span, term, sizes))
        return np.concatenate(rows)

    def _solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solved:
        with threads_for(len(root)):
            solution = self.solver.solve(root, sizes, tags, tolerance, what)
        self.shapes.append(Shape.independent(sizes, solution.strategy))
        lower, upper = math.sqrt(solution.lower), math.sqrt(solution.upper)
        return Solved((tuple(range(len(sizes))),), (len(self.shapes) - 1,), lower, upper)

    def _product_of(self, terms: Sequence[Term]) -> Solved:
        """The best product of one-attribute strategies, one factor improved at a time (claim M-003).

        With the other factors fixed, what the block asks of one attribute is a problem of that size. The
        bound is that of the hardest single term: adding queries never makes a block easier.
        """
        sizes, tags, measures = self._places(terms[0])
        factors = [Shape.independent((measure.size,), _centred_rows(measure)) for measure in measures]
        value = math.inf
        with threads_for(max(sizes)):
            for _ in range(SWEEPS):
                before = value
                for place, size in enumerate(sizes):
                    asked, tag = self._asked(terms, factors, place), tags[place]
                    solution = self.solver.solve(asked, (size,), (tag,), self.tolerance / 4, "a factor")
                    factors[place] = Shape.independent((size,), solution.strategy)
                    value = solution.upper
                if value > before * (1 - SWEEP_GAIN):
                    break
        numbers = tuple(range(len(self.shapes), len(self.shapes) + len(factors)))
        self.shapes += factors
        for number, measure in zip(numbers, measures, strict=True):
            # What all terms together ask of one attribute has no integer form that is known.
            self._remember_span(Solved(((0,),), (number,), 0.0, 0.0), lambda: None, [measure])
        bounds = [[uniform_bound(self.parts.roots[number]) for _, number in term.pieces] for term in terms]
        each = (term.coefficient * math.prod(own) for term, own in zip(terms, bounds, strict=True))
        lower = math.sqrt(max(each))
        return Solved(tuple((place,) for place in range(len(sizes))), numbers, lower, math.sqrt(value))

    def _asked(self, terms: Sequence[Term], factors: Sequence[Shape], place: int) -> Array:
        """Root over one place's cells: its share of the block, weighed by the other factors' variances."""
        rows, lengths = [], []
        for term in terms:
            scale, own, sizes = term.coefficient, np.empty((0, 0)), np.empty(0)
            for places, number in term.pieces:
                tensor = self.parts.roots[number].reshape(-1, *self.parts.pieces[number].sizes)
                whole = np.linalg.norm(self.parts.roots[number], axis=1)  # bounds what rounding adds
                for axis in reversed(range(len(places))):
                    if places[axis] != place:
                        inverse = factors[places[axis]].inverse
                        tensor = np.tensordot(tensor, inverse, axes=(1 + axis, 0))
                        whole = np.multiply.outer(whole, np.linalg.norm(inverse, axis=0))
                if place in places:
                    own = np.moveaxis(tensor, 1, -1).reshape(-1, factors[place].sizes[0])
                    sizes = whole.reshape(-1)
                else:
                    scale *= float(np.sum(tensor**2))
            rows.append(math.sqrt(scale) * own)
            lengths.append(math.sqrt(scale) * sizes)
        return standing_rows(np.concatenate(rows), np.concatenate(lengths))


def _in_order(rows: AnyArray, term: Term, sizes: Sequence[int]) -> AnyArray:
    """Rows over the cells of a term's pieces as rows over the block's cells."""
    order = [place for places, _ in term.pieces for place in places]
    tensor = rows.reshape(len(rows), *(sizes[place] for place in order))
    return tensor.transpose(0, *(1 + np.argsort(order))).reshape(len(rows), -1)


def _centred_rows(measure: Measure) -> Array:
    """Orthonormal rows whose mean under the measure is zero, (cells - 1, cells); of no weights, all."""
    weights = measure.vector()
    if not weights.any():
        return np.eye(measure.size)
    others = np.delete(np.eye(measure.size), int(np.abs(weights).argmax()), axis=1)
    return np.asarray(np.linalg.qr(np.column_stack([weights, others]))[0][:, 1:].T)
