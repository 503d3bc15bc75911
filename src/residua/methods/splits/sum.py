"""The sum of blocks as a function of everything that splits the tables, with exact slopes.

`F = sum over blocks of T`, T the square root of a block's optimum at cost 1; the total variance is F squared.
With v the block's optimal cell weights, `S = (V^1/2 Y'Y V^1/2)^1/2` and `M = V^1/2 S^+ V^1/2`, a change of
the block's rows Y changes T by `tr(M Y' dY)` (claims C-003 and Q-004), wherever the rows come from: pieces
centred by weights p, or pieces moved freely.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua._limits import FILLED_WORK, HELD_WORK
from residua.decompose import Asked, Attributes
from residua.linalg.centring import Measure, project, standing_rows
from residua.methods.splits.blocks import Pattern, patterns
from residua.methods.splits.free import FreeTables, Key
from residua.solve.cells import solve_cells

Array = NDArray[np.float64]

INNER_GAP = 1e-6  # the slope is that of the optimum, and misleads away from it
FILLED_GAP = 1e-5  # filled blocks are smooth, and forgive more
HEAVY_GAP = 1e-4
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """A piece by itself: the square root of its optimum, and its slope in the rows."""

    root: float
    slope: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """All that weights and moves decide, before any block is solved.

    `measures` and `means` (the rows of each source averaged over all its attributes) are by source, `squares`
    are the squared lengths of the means; `added` is what each row of the additions adds to `coefficients`,
    one for each term; `pieces` has the rows of the pieces of free tables.
    """

    measures: list[list[Measure]]
    means: list[Array]
    squares: Array
    added: list[Array]
    coefficients: Array
    pieces: dict[Key, Array]


class BlockSum:
    """F and its slopes for the terms of `asked`, with composite blocks where `free` tables have pieces."""

    def __init__(self, asked: Asked, sizes: Sequence[int], free: FreeTables | None = None) -> None:
        self.asked, self.free = asked, free
        self.roots = [source.root() for source in asked.sources]
        self.lengths = [np.linalg.norm(root, axis=1) for root in self.roots]
        self.patterns = patterns(asked, sizes, free)
        self._starts: dict[object, Array] = {}
        self._held: dict[int, float] = {}

    def at(
        self, weights: Mapping[int, Array], moved: Array | None = None, fill: float = 0.0
    ) -> tuple[float, dict[int, Array], Array]:
        """F, its slope in the weights of each kind, and its slope in the moves.

        `weights` has those of some kinds of attributes, the others are uniform; `fill` is the relative size
        of what is added to every direction of a block that free tables touch, which makes F smooth (Q-005).
        """
        split = self._split(weights, moved)
        rows = [self._piece(number, split.measures) for number in range(len(self.asked.pieces))]
        slopes = _Slopes(len(split.coefficients), rows)
        total = self._simple(split.coefficients, rows, slopes)
        for pattern in self.patterns:
            total += self._composite(pattern, split.coefficients, rows, split.pieces, fill, slopes)
        by_mean = self._mean_slopes(split, slopes.coefficients)
        by_kind = {kind: np.zeros(len(weights[kind])) for kind in weights}
        for (source, kept), slope in zip(self.asked.pieces, slopes.rows, strict=True):
            if slope is not None:
                self._follow(source, kept, slope, split.measures, by_kind)
        for source, mean in enumerate(split.means):
            self._follow(source, (), 2 * by_mean[source] * mean, split.measures, by_kind)
        return total, by_kind, np.zeros(0) if self.free is None else self.free.slopes(slopes.pieces)

    def _split(self, weights: Mapping[int, Array], moved: Array | None) -> "_Split":
        measures = [self._measures(source, weights) for source in range(len(self.roots))]
        means = [self._project(source, measures, ()) for source in range(len(self.roots))]
        squares = np.array([float(np.sum(mean**2)) for mean in means])
        added = [each.weights * squares[each.others].prod(axis=1) for each in self.asked.additions]
        coefficients = np.zeros(self.asked.terms)
        for each, values in zip(self.asked.additions, added, strict=True):
            coefficients += np.bincount(each.terms, weights=values, minlength=len(coefficients))
        pieces = {} if self.free is None or moved is None else self.free.rows(moved)
        return _Split(measures, means, squares, added, coefficients, pieces)

    def _measures(self, source: int, weights: Mapping[int, Array]) -> list[Measure]:
        asked = self.asked.sources[source]
        return [
            Measure.of(weights[kind]) if kind in weights else Measure(size)
            for kind, size in zip(asked.kinds, asked.sizes, strict=True)
        ]

    def _project(self, source: int, measures: list[list[Measure]], kept: tuple[int, ...]) -> Array:
        return project(self.roots[source], self.asked.sources[source].sizes, measures[source], kept)

    def _piece(self, number: int, measures: list[list[Measure]]) -> Array:
        source, kept = self.asked.pieces[number]
        return self._project(source, measures, kept)

    def _mean_slopes(self, split: "_Split", by_term: Array) -> Array:
        """Slope in the squared means of each source, from the slopes in the coefficients."""
        by_mean = np.zeros(len(split.squares))
        for each, added in zip(self.asked.additions, split.added, strict=True):
            share = by_term[each.terms] * added
            for column in each.others.T:
                by_mean += np.bincount(column, weights=share, minlength=len(by_mean))
        return np.asarray(by_mean / np.maximum(split.squares, TINY))

    def _simple(self, coefficients: Array, rows: list[Array], slopes: "_Slopes") -> float:
        """Blocks that are one product of one-attribute pieces: their values multiply."""
        used = sorted({int(piece) for each in self.asked.simple for piece in np.unique(each.pieces)})
        alone = {piece: self.alone(piece, rows[piece]) for piece in used}
        roots = np.array([alone[piece].root if piece in alone else 0.0 for piece in range(len(rows))])
        by_root = np.zeros(len(rows))
        total = 0.0
        for each in self.asked.simple:
            scale = np.sqrt(coefficients[each.terms])
            product = roots[each.pieces].prod(axis=1) if each.pieces.shape[1] else np.ones(len(scale))
            sums = scale * product
            total += float(sums.sum())
            slopes.coefficients[each.terms] += np.divide(
                product, 2 * scale, out=np.zeros_like(scale), where=scale > 0
            )
            for column in each.pieces.T:
                by_root += np.bincount(column, weights=sums, minlength=len(rows)) / np.maximum(roots, TINY)
        for piece in used:
            slopes.add_rows(piece, by_root[piece] * alone[piece].slope)
        return total

    def alone(self, piece: int, rows: Array) -> Alone:
        """One piece by itself; a large one on several attributes keeps the shape it has at first."""
        kept = self.asked.pieces[piece][1]
        root = self._standing(piece, rows)
        if not len(root):
            return Alone(0.0, np.zeros_like(rows))
        if len(kept) > 1 and len(root) ** 2 * root.shape[1] > HELD_WORK:
            size = float(np.linalg.norm(rows))
            if piece not in self._held:
                spectrum = np.linalg.svd(root, compute_uv=False)
                self._held[piece] = float(spectrum.sum()) / math.sqrt(root.shape[1]) / size
            return Alone(self._held[piece] * size, rows * (self._held[piece] / size))
        value, half = self.solve(piece, root)
        return Alone(value, (rows @ half) @ half.T)

    def _standing(self, piece: int, rows: Array) -> Array:
        return standing_rows(rows, self.lengths[self.asked.pieces[piece][0]])

    def solve(self, name: object, root: Array, gap: float = INNER_GAP) -> tuple[float, Array]:
        """T and H with M = H H', shape (cells, rank); starts from the last solution of this name."""
        solution = solve_cells(root, gap, start=self._starts.get(name))
        self._starts[name] = v = solution.cell_weights
        _, scales, right = np.linalg.svd(root * np.sqrt(v), full_matrices=False)
        half = (right * np.sqrt(v)).T / np.sqrt(scales)
        return math.sqrt(solution.upper), half

    def _composite(
        self,
        pattern: Pattern,
        coefficients: Array,
        rows: list[Array],
        pieces: Mapping[Key, Array],
        fill: float,
        slopes: "_Slopes",
    ) -> float:
        """Blocks of several terms, each distinct one solved once; where nothing is asked, 0."""
        table = coefficients[pattern.terms]  # (blocks, terms)
        scale = pattern.scales if pattern.uses else table.max(axis=1)
        total = 0.0
        for alike in pattern.distinct(table / np.maximum(scale, TINY)[:, None]):
            if not scale[alike[0]]:
                continue
            shares = table[alike[0]] / scale[alike[0]]
            uses = pattern.weights[alike[0]] / scale[alike[0]]
            whole = float(np.sqrt(scale[alike]).sum())
            if pattern.large:
                value, by_share = self._approximate(pattern, shares, rows, whole, slopes)
            else:
                standing = {piece: self._standing(piece, rows[piece]) for piece in pattern.pieces}
                stack = pattern.stack(shares, uses, standing, pieces, fill)
                if not len(stack):
                    continue
                value, half = self.solve((pattern.key, alike[0]), stack, _gap(stack, fill))
                by_share = self._spread_slopes(pattern, shares, uses, rows, pieces, half, whole, slopes)
            total += whole * value
            for block in alike:
                slopes.coefficients[pattern.terms[block]] += by_share / math.sqrt(scale[block])
        return total

    def touched(
        self, weights: Mapping[int, Array], moved: Array | None, fill: float
    ) -> Iterator[tuple[Pattern, list[Attributes], Array, Array]]:
        """Distinct blocks that free tables touch: where they sit, their scales, and their rows."""
        split = self._split(weights, moved)
        for pattern in self.patterns:
            if pattern.uses:
                table = split.coefficients[pattern.terms] / pattern.scales[:, None]
                rows = {
                    piece: self._standing(piece, self._piece(piece, split.measures))
                    for piece in pattern.pieces
                }
                for alike in pattern.distinct(table):
                    uses = pattern.weights[alike[0]] / pattern.scales[alike[0]]
                    root = pattern.stack(table[alike[0]], uses, rows, split.pieces, fill)
                    yield pattern, [pattern.blocks[at] for at in alike], pattern.scales[alike], root

    def _spread_slopes(
        self,
        pattern: Pattern,
        shares: Array,
        uses: Array,
        rows: list[Array],
        pieces: Mapping[Key, Array],
        half: Array,
        whole: float,
        slopes: "_Slopes",
    ) -> Array:
        """Slopes in the rows of all terms of a block; returns those in the shares of its static terms."""
        by_share = np.zeros(len(shares))
        for at, placed in enumerate(pattern.placed):
            for place, (places, piece) in enumerate(placed):
                seen = pattern.seen(
                    half, places, [(p, rows[n]) for i, (p, n) in enumerate(placed) if i != place]
                )
                slope = rows[piece] @ seen
                slopes.add_rows(piece, (whole * shares[at]) * slope)
                if place == 0:
                    by_share[at] = 0.5 * float(np.sum(slope * rows[piece]))
            if not placed:
                by_share[at] = 0.5 * float(np.sum(half.sum(axis=0) ** 2))
        for use, weight in zip(pattern.uses, uses.tolist(), strict=True):
            seen = pattern.seen(half, use.places, [])
            slopes.add_piece(use.key, (whole * weight) * (pieces[use.key] @ seen))
        return by_share

    def _approximate(
        self, pattern: Pattern, shares: Array, rows: list[Array], whole: float, slopes: "_Slopes"
    ) -> tuple[float, Array]:
        """A block too large to solve: as if its terms had orthogonal answers, `T^2 = sum c prod T_i^2`."""
        alone = {piece: self.alone(piece, rows[piece]) for placed in pattern.placed for _, piece in placed}
        squares = np.array(
            [math.prod(alone[piece].root ** 2 for _, piece in placed) for placed in pattern.placed]
        )
        value = math.sqrt(float(shares @ squares))
        if not value:
            return 0.0, np.zeros(len(shares))
        for share, square, placed in zip(shares, squares, pattern.placed, strict=True):
            for _, piece in placed:
                if alone[piece].root > 0:
                    factor = share * square / (value * alone[piece].root)
                    slopes.add_rows(piece, (whole * factor) * alone[piece].slope)
        return value, squares / (2 * value)

    def _follow(
        self,
        source: int,
        kept: tuple[int, ...],
        slope: Array,
        measures: list[list[Measure]],
        by_kind: dict[int, Array],
    ) -> None:
        """Carry a slope in the rows of a piece to the weights that made it."""
        asked = self.asked.sources[source]
        shaped = slope.reshape(len(slope), *(asked.sizes[place] for place in kept))
        for place, kind in enumerate(asked.kinds):
            if kind not in by_kind:
                continue
            tensor = self.roots[source].reshape(-1, *asked.sizes)
            for axis in reversed(range(len(asked.sizes))):
                if axis != place:
                    mean = np.tensordot(tensor, measures[source][axis].vector(), axes=(1 + axis, 0))
                    tensor = tensor - np.expand_dims(mean, 1 + axis) if axis in kept else mean
            others = [axis for axis in range(len(asked.sizes)) if axis in kept or axis == place]
            tensor = np.moveaxis(tensor, 1 + others.index(place), -1)
            inner = -shaped.sum(axis=1 + kept.index(place)) if place in kept else shaped
            by_kind[kind] += inner.reshape(-1) @ tensor.reshape(-1, tensor.shape[-1])


def _gap(root: Array, fill: float) -> float:
    """How well a block is solved at each step."""
    if not fill:
        return INNER_GAP
    return HEAVY_GAP if len(root) ** 2 * root.shape[1] > FILLED_WORK else FILLED_GAP


class _Slopes:
    """Slopes of F gathered on the way: in coefficients, in the rows of pieces, in the rows of free pieces."""

    def __init__(self, terms: int, rows: list[Array]) -> None:
        self.coefficients = np.zeros(terms)
        self.rows: list[Array | None] = [None] * len(rows)
        self.pieces: dict[Key, Array] = {}

    def add_rows(self, piece: int, slope: Array) -> None:
        before = self.rows[piece]
        self.rows[piece] = slope if before is None else before + slope

    def add_piece(self, key: Key, slope: Array) -> None:
        self.pieces[key] = self.pieces[key] + slope if key in self.pieces else slope
