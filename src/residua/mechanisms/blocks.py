"""Divide and conquer: split the workload into blocks, solve each distinct one once, share out the privacy.

With T the square root of a block's optimum at cost 1, the best noise variances are `(sum T) / T` and the
total variance is `(sum T)^2` (claim M-001). QuerySmasher, ResidualPlanner, ResidualPlanner+ and weighted
Fourier factorisation differ only in how a block is solved.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from residua.decompose import Block, Decomposition, Term, decompose, signature
from residua.errors import Infeasible
from residua.linalg.rows import independent_rows
from residua.linalg.squares import join
from residua.mechanisms.draft import Draft, Progress
from residua.mechanisms.shapes import fourier_shape, optimal_shape
from residua.solve.solution import Solution
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.workload import Workload

Array = NDArray[np.float64]

MOST_CELLS = 20_000  # of one block that is not a product
MOST_RANK = 2_600
ONE_THREAD = 1_200  # up to this rank two BLAS threads slow an eigendecomposition down

ShapeSolver = Callable[[Array, Sequence[int], float, str], Solution]


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """One block's solution: shapes by number and place, and the square roots of its bracket."""

    layout: tuple[tuple[int, ...], ...]
    shapes: tuple[int, ...]
    lower: float
    upper: float


def solve_blocks(
    parts: Decomposition,
    sizes: Sequence[int],
    solver: ShapeSolver,
    tolerance: float,
    progress: Progress | None = None,
) -> Draft:
    """The mechanism of cost 1 with every block solved by `solver`, and the bound of this block structure."""
    bench = _Bench(parts, solver, tolerance, progress)
    layers: list[tuple[Layer, Array, Array]] = []
    for blocks in parts.simple:
        size = blocks.subsets.shape[1]
        scale = np.sqrt(blocks.coefficients)
        used = np.unique(blocks.pieces)
        solved = {int(number): bench.piece(int(number)) for number in used}
        shapes, low, high = (np.zeros(len(parts.pieces), dtype=kind) for kind in (np.int64, float, float))
        for number, one in solved.items():
            shapes[number], low[number], high[number] = one.shapes[0], one.lower, one.upper
        layer = Layer(blocks.subsets, tuple((at,) for at in range(size)), shapes[blocks.pieces], scale)
        layers.append(
            (layer, scale * low[blocks.pieces].prod(axis=1), scale * high[blocks.pieces].prod(axis=1))
        )
    layers += bench.mixed_layers(parts.mixed)
    total = math.fsum(float(high.sum()) for _, _, high in layers)
    lower = math.fsum(float(low.sum()) for _, low, _ in layers) ** 2
    finished = tuple(
        Layer(layer.subsets, layer.layout, layer.shapes, total / high) for layer, _, high in layers
    )
    strategy = BlockStrategy(tuple(sizes), parts.measures, tuple(bench.shapes), finished)
    return Draft(strategy, lower, "this block structure")


class _Bench:
    """Solves distinct pieces and blocks once, and numbers their shapes."""

    def __init__(
        self, parts: Decomposition, solver: ShapeSolver, tolerance: float, progress: Progress | None
    ) -> None:
        self.parts, self.solver, self.tolerance, self.progress = parts, solver, tolerance, progress
        self.shapes: list[Shape] = []
        self._pieces: dict[int, _Solved] = {}
        self._blocks: dict[object, _Solved] = {}

    def piece(self, number: int) -> _Solved:
        """Solution of one piece by itself."""
        if number not in self._pieces:
            piece = self.parts.pieces[number]
            # A product of k solutions has about k times the gap of one.
            share = self.tolerance / max(4, len(piece.sizes))
            self._pieces[number] = self._solve(
                self.parts.roots[number], piece.sizes, share, repr(piece.queries)
            )
        return self._pieces[number]

    def mixed_layers(self, blocks: Iterable[Block]) -> list[tuple[Layer, Array, Array]]:
        """Blocks that are not simple products, by layout."""
        rows: dict[tuple[int, tuple[tuple[int, ...], ...]], list[tuple[tuple[int, ...], _Solved, float]]] = {}
        listed = list(blocks)
        for done, block in enumerate(listed):
            key, scale = signature(block)
            known = (key, tuple(self.parts.measures[at].size for at in block.attributes))
            if known not in self._blocks:
                if self.progress is not None:
                    self.progress("solving blocks", done / len(listed))
                terms = [Term(term.coefficient / scale, term.pieces) for term in block.terms]
                self._blocks[known] = self._block(terms, len(block.attributes))
            solved = self._blocks[known]
            place = (len(block.attributes), solved.layout)
            rows.setdefault(place, []).append((block.attributes, solved, math.sqrt(scale)))
        return [_layer(size, layout, entries) for (size, layout), entries in rows.items()]

    def _block(self, terms: Sequence[Term], width: int) -> _Solved:
        if len(terms) == 1:
            solved = [(places, self.piece(number)) for places, number in terms[0].pieces]
            return _Solved(
                tuple(places for places, _ in solved),
                tuple(one.shapes[0] for _, one in solved),
                math.prod(one.lower for _, one in solved),
                math.prod(one.upper for _, one in solved),
            )
        sizes = self._sizes(terms[0], width)
        cells = math.prod(sizes)
        if cells > MOST_CELLS or math.prod(size - 1 for size in sizes) > MOST_RANK:
            return self._best_product(terms, sizes)
        root = independent_rows(np.concatenate([self._rows(term, sizes) for term in terms]))
        solved_one = self._solve(root, sizes, self.tolerance, f"a block of {cells:,} cells")
        return _Solved((tuple(range(width)),), solved_one.shapes, solved_one.lower, solved_one.upper)

    def _sizes(self, term: Term, width: int) -> tuple[int, ...]:
        sizes = [0] * width
        for places, number in term.pieces:
            for place, size in zip(places, self.parts.pieces[number].sizes, strict=True):
                sizes[place] = size
        return tuple(sizes)

    def _rows(self, term: Term, sizes: Sequence[int]) -> Array:
        """Rows over the block's cells whose gram is the term's."""
        rows = join(self.parts.roots[number] for _, number in term.pieces)
        order = [place for places, _ in term.pieces for place in places]
        tensor = rows.reshape(len(rows), *(sizes[place] for place in order))
        tensor = tensor.transpose(0, *(1 + np.argsort(order)))
        return np.asarray(math.sqrt(term.coefficient) * tensor.reshape(len(rows), -1))

    def _solve(self, root: Array, sizes: Sequence[int], tolerance: float, what: str) -> _Solved:
        with threadpool_limits(limits=1 if len(root) <= ONE_THREAD else None, user_api="blas"):
            solution = self.solver(root, sizes, tolerance, what)
        self.shapes.append(Shape(tuple(sizes), solution.strategy))
        lower, upper = math.sqrt(solution.lower), math.sqrt(solution.upper)
        return _Solved((tuple(range(len(sizes))),), (len(self.shapes) - 1,), lower, upper)

    def _best_product(self, terms: Sequence[Term], sizes: Sequence[int]) -> _Solved:
        raise Infeasible(f"a block of {math.prod(sizes):,} cells is too large to solve")


def _layer(
    size: int, layout: tuple[tuple[int, ...], ...], entries: Sequence[tuple[tuple[int, ...], _Solved, float]]
) -> tuple[Layer, Array, Array]:
    subsets = np.array([attributes for attributes, _, _ in entries], dtype=np.int32).reshape(
        len(entries), size
    )
    shapes = np.array([solved.shapes for _, solved, _ in entries], dtype=np.int64).reshape(
        len(entries), len(layout)
    )
    low = np.array([scale * solved.lower for _, solved, scale in entries])
    high = np.array([scale * solved.upper for _, solved, scale in entries])
    return Layer(subsets, layout, shapes, high), low, high


def querysmasher(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Uniform centring and every block solved to a certified gap."""
    return solve_blocks(decompose(work), work.schema.sizes, optimal_shape, tolerance, progress)


def fourier(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Uniform centring and every block measured in the Fourier basis (weighted Fourier factorisation)."""
    return solve_blocks(decompose(work), work.schema.sizes, fourier_shape, tolerance, progress)
