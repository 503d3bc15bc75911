"""The sum of blocks as a function of everything that splits the tables, with exact slopes.

`F = sum over blocks of T`, T the square root of a block's optimum at cost 1; the total variance is F squared.
With v the block's optimal cell weights, `S = (V^1/2 Y'Y V^1/2)^1/2` and `M = V^1/2 S^+ V^1/2`, a change of
the block's rows Y changes T by `tr(M Y' dY)` (claims C-003 and Q-004), wherever the rows come from: pieces
centred by weights p, or pieces moved freely.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua._limits import FILLED_WORK, HELD_WORK
from residua.decompose import Attributes, BlockTerms
from residua.linalg.matrices import VANISHING, Measure, project
from residua.methods.splits.blocks import Alike, Pattern, patterns
from residua.methods.splits.free import FreeTables, Key
from residua.solve.slopes import Slopes, few_steps, slopes_of

INNER_GAP = 1e-6  # the slope is that of the optimum, and misleads away from it
FILLED_GAP = 1e-5  # filled blocks are smooth, and forgive more
HEAVY_GAP = 1e-4
START_GAP = 1e-5
UNBENT = 1e-10  # of the largest square: where moves that undo each other only leave rounding
TINY = 1e-300


Solver = Callable[[Array, Array | None, float], Slopes]
"""From rows, weights to start from and a gap to the root of the optimum and its slopes."""


@dataclass(frozen=True, slots=True, eq=False)
class Majorant:
    """The sum at some moves, its slope there, and the second derivative of what is above it.

    That is the same in the moves of every row of a source: one matrix for each.
    """

    free: FreeTables
    value: float
    slope: Array
    bends: Sequence[Array]

    def step(self, downhill: Array) -> Array:
        """The step to the least of what is above, were this the way downhill; as short as it can be."""
        found = []
        for rows, bend in zip(self.free.by_source(downhill), self.bends, strict=True):
            squares, vectors = np.linalg.eigh(bend)
            kept = squares > UNBENT * squares[-1]
            vectors = vectors[:, kept]
            found.append((((rows @ vectors) / squares[kept]) @ vectors.T).reshape(-1))
        return np.concatenate(found)


class BlockSum:
    """F and its slopes for the terms of `asked`, with composite blocks where `free` tables have pieces."""

    def __init__(self, asked: BlockTerms, sizes: Sequence[int], free: FreeTables | None = None) -> None:
        self.asked, self.free = asked, free
        self.roots = [source.root() for source in asked.sources]
        self.lengths = [np.linalg.norm(root, axis=1) for root in self.roots]
        self.patterns = patterns(asked, sizes, free)
        self._starts: dict[object, Array] = {}
        self.held: dict[int, float] = {}
        self.work = 0.0  # flops so far

    def at(
        self, weights: Mapping[int, Array], moved: Array | None = None, fill: float = 0.0
    ) -> tuple[float, dict[int, Array]]:
        """F, and its slope in the weights of each role.

        `weights` has those of some roles of attributes, the others are uniform; `fill` is the relative size
        of what is added to every direction of a block that free tables touch, which makes F smooth (Q-005).
        """
        point = _Point(self, weights, moved, fill)
        total = point.total()
        return total, point.by_weight(weights)

    def majorant(
        self,
        free: FreeTables,
        weights: Mapping[int, Array],
        moved: Array,
        fill: float,
        solver: Solver = few_steps,
    ) -> "Majorant":
        """F, its slope in the moves, and what bends the quadratic function above it (Q-009).

        Nowhere is F above that, as far as the solver solves blocks.
        """
        point = _Point(self, weights, moved, fill, solver)
        total = point.total()
        slope = free.slopes(point.by_piece)
        return Majorant(free, total, slope, free.bends(point.seen))

    def complete_roles(self, above: int = 0) -> list[int]:
        """Roles of more cells than `above` that are asked, alone, for all of their cells, by every source."""
        found = {role: True for source in self.asked.sources for role in source.roles}
        for source, root in zip(self.asked.sources, self.roots, strict=True):
            for role, size in zip(source.roles, source.sizes, strict=True):
                found[role] &= size > above and len(source.roles) == 1 and len(root) == size
        return [role for role, complete in found.items() if complete]

    def own_weights(self, roles: Sequence[int]) -> dict[int, Array]:
        """Weights of each role that would be best if every other attribute were asked for plain cells.

        Those of the best mechanism X for what is asked of the role alone: `X^+ 1` over its sum, which is
        exact for one product of families (claim C-006).
        """
        point = _Point(self, {}, None, 0.0)
        weights = point.of_sources()
        found = {}
        for role in roles:
            own = [
                math.sqrt(weights[at]) * self.roots[at]
                for at, source in enumerate(self.asked.sources)
                if source.roles == (role,) and weights[at] > 0
            ]
            if own:
                half = self.solve(("own", role), np.concatenate(own), START_GAP)[1]
                worth = half @ half.sum(axis=0)
                found[role] = worth / worth.sum()
        return found

    def touched(
        self, weights: Mapping[int, Array], moved: Array | None, fill: float
    ) -> Iterator[tuple[Pattern, list[Attributes], Array, Array, Array | None]]:
        """Distinct blocks that free tables touch: where they sit, scales, rows, and weights to start from."""
        point = _Point(self, weights, moved, fill)
        for pattern in self.patterns:
            for same, shares, uses in point.distinct(pattern) if pattern.uses else ():
                root = point.stack(pattern, shares, uses)
                start = self._starts.get((pattern.key, same[0]))
                if start is not None and pattern.alike is not None:
                    start = pattern.alike.gathered(start)
                yield pattern, [pattern.blocks[at] for at in same], pattern.scales[same], root, start

    def attribute_weights(self) -> dict[int, Array]:
        """For attributes in blocks of pairs the mean of the weights that their cells have there."""
        found: dict[int, Array] = {}
        for pattern in self.patterns if self.free is not None else ():
            for at, block in enumerate(pattern.blocks) if len(pattern.sizes) == 2 else ():
                weights = self._starts.get((pattern.key, at), self._starts.get((pattern.key, 0)))
                if weights is None:
                    continue
                for place, attribute in enumerate(block):
                    own = weights.reshape(pattern.sizes).sum(axis=1 - place)
                    found[attribute] = found.get(attribute, np.zeros(len(own))) + own
        return {attribute: own / own.sum() for attribute, own in found.items()}

    def solve(
        self,
        name: object,
        rows: Array,
        gap: float = INNER_GAP,
        solver: Solver = slopes_of,
        alike: Alike | None = None,
    ) -> tuple[float, Array]:
        """T and H with M = H H', (cells, rank), from rows over cells or one of each class of `alike` ones."""
        start = self._starts.get(name)
        if alike is None:
            found = solver(rows, start, gap)
            self._starts[name], half = found.weights, found.half
        else:
            found = solver(rows, None if start is None else alike.gathered(start), gap)
            self._starts[name], half = alike.spread(found.weights), alike.spread(found.half)
        self.work += found.work
        return found.root, half


class _Point:
    """All that weights and moves decide, and the slopes of F there, gathered on the way.

    `measures` and `means` (the rows of each source averaged over all its attributes) are by source, `squares`
    are the squared lengths of the means; `added` is what each row of the additions adds to `coefficients`,
    one for each term; `rows` are those of the pieces, `pieces` those of free tables. Slopes are in
    coefficients, in `rows` and in `pieces`; `seen` has a root of what bends the sum for every use of a piece.
    """

    def __init__(
        self,
        whole: BlockSum,
        weights: Mapping[int, Array],
        moved: Array | None,
        fill: float,
        solver: Solver = slopes_of,
    ) -> None:
        self.whole, self.asked, self.fill, self.solver = whole, whole.asked, fill, solver
        self.measures = [
            [
                Measure.of(weights[role]) if role in weights else Measure(size)
                for role, size in zip(source.roles, source.sizes, strict=True)
            ]
            for source in self.asked.sources
        ]
        self.means = [self._project(source, ()) for source in range(len(whole.roots))]
        self.squares = np.array([float(np.sum(mean**2)) for mean in self.means])
        self.added = [each.weights * self.squares[each.others].prod(axis=1) for each in self.asked.additions]
        self.coefficients = np.zeros(self.asked.terms)
        for each, values in zip(self.asked.additions, self.added, strict=True):
            self.coefficients += np.bincount(each.terms, weights=values, minlength=self.asked.terms)
        self.rows = [self._project(*piece) for piece in self.asked.pieces]
        self.pieces = {} if whole.free is None or moved is None else whole.free.rows(moved)
        self.by_term = np.zeros(self.asked.terms)
        self.by_rows = [np.zeros_like(rows) for rows in self.rows]
        self.by_piece = {key: np.zeros_like(rows) for key, rows in self.pieces.items()}
        self.seen: list[tuple[Key, Array]] = []

    def _project(self, source: int, kept: tuple[int, ...]) -> Array:
        sizes = self.asked.sources[source].sizes
        return project(self.whole.roots[source], sizes, self.measures[source], kept)

    def _standing(self, piece: int) -> Array:
        """The rows of a piece of which centring leaves more than rounding."""
        rows, lengths = self.rows[piece], self.whole.lengths[self.asked.pieces[piece][0]]
        return np.asarray(rows[np.linalg.norm(rows, axis=1) > VANISHING * lengths])

    def total(self) -> float:
        """The sum of all blocks."""
        return self.simple() + sum(self.composite(pattern) for pattern in self.whole.patterns)

    def simple(self) -> float:
        """Blocks that are one product of one-attribute pieces: their values multiply."""
        used = sorted({int(piece) for each in self.asked.simple for piece in np.unique(each.pieces)})
        alone = {piece: self._alone(piece) for piece in used}
        roots = np.array([alone[piece][0] if piece in alone else 0.0 for piece in range(len(self.rows))])
        by_root = np.zeros(len(roots))
        total = 0.0
        for each in self.asked.simple:
            scale = np.sqrt(self.coefficients[each.terms])
            product = roots[each.pieces].prod(axis=1)
            sums = scale * product
            total += float(sums.sum())
            self.by_term[each.terms] += np.divide(
                product, 2 * scale, out=np.zeros_like(scale), where=scale > 0
            )
            for column in each.pieces.T:
                by_root += np.bincount(column, weights=sums, minlength=len(roots)) / np.maximum(roots, TINY)
        for piece in used:
            self.by_rows[piece] += by_root[piece] * alone[piece][1]
        return total

    def of_sources(self) -> Array:
        """About how much each source is asked: coefficients of its terms times sizes of the other pieces."""
        sizes = np.array([np.linalg.norm(rows, "nuc") ** 2 / max(rows.shape[1], 1) for rows in self.rows])
        whose = np.array([source for source, _ in self.asked.pieces], dtype=np.int64)
        found = np.zeros(len(self.asked.sources))
        terms = [
            (term, pieces)
            for each in self.asked.simple
            for term, pieces in zip(each.terms.tolist(), each.pieces.tolist(), strict=True)
        ]
        for placed_terms in self.asked.composite.values():
            terms += [(term, [piece for _, piece in placed]) for term, placed in placed_terms]
        for term, pieces in terms:
            for at, piece in enumerate(pieces):
                others = math.prod(sizes[pieces[:at] + pieces[at + 1 :]])
                found[whose[piece]] += self.coefficients[term] * others
        return found

    def _alone(self, piece: int) -> tuple[float, Array]:
        """Root of the optimum of a piece by itself, and its slope in the rows.

        A large piece on several attributes keeps the shape that it has at first.
        """
        rows, root, held = self.rows[piece], self._standing(piece), self.whole.held
        if not len(root):
            return 0.0, np.zeros_like(rows)
        if len(self.asked.pieces[piece][1]) > 1 and len(root) ** 2 * root.shape[1] > HELD_WORK:
            size = float(np.linalg.norm(rows))
            if piece not in held:
                spectrum = np.linalg.svd(root, compute_uv=False)
                held[piece] = float(spectrum.sum()) / math.sqrt(root.shape[1]) / size
            return held[piece] * size, rows * (held[piece] / size)
        value, half = self.whole.solve(piece, root, solver=self.solver)
        return value, (rows @ half) @ half.T

    def distinct(self, pattern: Pattern) -> Iterator[tuple[list[int], Array, Array]]:
        """Blocks with the same gram up to scale; the shares of their terms, and the weights of their uses."""
        table = self.coefficients[pattern.terms]  # (blocks, terms)
        scale = pattern.scales if pattern.uses else table.max(axis=1)
        for same in pattern.distinct(table / np.maximum(scale, TINY)[:, None]):
            if scale[same[0]]:
                yield same, table[same[0]] / scale[same[0]], pattern.weights[same[0]] / scale[same[0]]

    def stack(self, pattern: Pattern, shares: Array, uses: Array) -> Array:
        """Rows with the gram of a block."""
        standing = {piece: self._standing(piece) for piece in pattern.pieces}
        return pattern.stack(shares, uses, standing, self.pieces, self.fill)

    def composite(self, pattern: Pattern) -> float:
        """Blocks of several terms, each distinct one solved once; where nothing is asked, 0."""
        scale = pattern.scales if pattern.uses else self.coefficients[pattern.terms].max(axis=1)
        common, inner = pattern.reduced()
        shared = [self._alone(piece) for piece in common]
        times = math.prod(root for root, _ in shared)
        total = 0.0
        for same, shares, uses in self.distinct(pattern) if times else ():
            whole = float(np.sqrt(scale[same]).sum())
            if pattern.large:
                value, by_share = self._approximate(inner, shares, whole * times)
            else:
                stack = self.stack(inner, shares, uses)
                if not len(stack):
                    continue
                gap = _gap(stack, self.fill)
                name = (pattern.key, same[0])
                value, half = self.whole.solve(name, stack, gap, self.solver, pattern.alike)
                by_share = self._spread(inner, shares, uses, half, whole * times)
            total += whole * times * value
            for piece, (root, slope) in zip(common, shared, strict=True):
                self.by_rows[piece] += (whole * times * value / root) * slope
            for block in same:
                self.by_term[pattern.terms[block]] += times * by_share / math.sqrt(scale[block])
        return total

    def _spread(self, pattern: Pattern, shares: Array, uses: Array, half: Array, whole: float) -> Array:
        """Add slopes in the rows of all terms of a block; return those in the shares of its static terms."""
        by_share = np.zeros(len(shares))
        for at, placed in enumerate(pattern.placed):
            for place, (places, piece) in enumerate(placed):
                others = [(p, self.rows[n]) for i, (p, n) in enumerate(placed) if i != place]
                slope = _through(self.rows[piece], pattern.seen(half, places, others))
                self.by_rows[piece] += (whole * shares[at]) * slope
                if place == 0:
                    by_share[at] = 0.5 * float(np.sum(slope * self.rows[piece]))
            if not placed:
                by_share[at] = 0.5 * float(np.sum(half.sum(axis=0) ** 2))
        for use, weight in zip(pattern.uses, uses.tolist(), strict=True):
            seen = math.sqrt(whole * weight) * pattern.seen(half, use.places, [])
            self.seen.append((use.key, seen))
            self.by_piece[use.key] += _through(self.pieces[use.key], seen)
        return by_share

    def _approximate(self, pattern: Pattern, shares: Array, whole: float) -> tuple[float, Array]:
        """A block too large to solve: as if its terms had orthogonal answers, `T^2 = sum c prod T_i^2`."""
        alone = {piece: self._alone(piece) for piece in pattern.pieces}
        squares = np.array(
            [math.prod(alone[piece][0] ** 2 for _, piece in placed) for placed in pattern.placed]
        )
        value = math.sqrt(float(shares @ squares))
        if not value:
            return 0.0, np.zeros(len(shares))
        for share, square, placed in zip(shares, squares, pattern.placed, strict=True):
            for root, slope, piece in ((*alone[piece], piece) for _, piece in placed):
                if root > 0:
                    self.by_rows[piece] += (whole * share * square / (value * root)) * slope
        return value, squares / (2 * value)

    def by_weight(self, weights: Mapping[int, Array]) -> dict[int, Array]:
        """The slope in the weights of each role, once all blocks are added."""
        by_mean = np.zeros(len(self.squares))
        for each, added in zip(self.asked.additions, self.added, strict=True):
            share = self.by_term[each.terms] * added
            for column in each.others.T:
                by_mean += np.bincount(column, weights=share, minlength=len(by_mean))
        by_mean /= np.maximum(self.squares, TINY)
        by_role = {role: np.zeros(len(own)) for role, own in weights.items()}
        for (source, kept), slope in zip(self.asked.pieces, self.by_rows, strict=True):
            self._follow(source, kept, slope, by_role)
        for source, mean in enumerate(self.means):
            self._follow(source, (), 2 * by_mean[source] * mean, by_role)
        return by_role

    def _follow(self, source: int, kept: tuple[int, ...], slope: Array, by_role: dict[int, Array]) -> None:
        """Carry a slope in the rows of a piece to the weights that made it."""
        asked = self.asked.sources[source]
        shaped = slope.reshape(len(slope), *(asked.sizes[place] for place in kept))
        for place, role in enumerate(asked.roles):
            if role not in by_role:
                continue
            tensor = self.whole.roots[source].reshape(-1, *asked.sizes)
            for axis in reversed(range(len(asked.sizes))):
                if axis != place:
                    mean = np.tensordot(tensor, self.measures[source][axis].vector(), axes=(1 + axis, 0))
                    tensor = tensor - np.expand_dims(mean, 1 + axis) if axis in kept else mean
            others = [axis for axis in range(len(asked.sizes)) if axis in kept or axis == place]
            tensor = np.moveaxis(tensor, 1 + others.index(place), -1)
            inner = -shaped.sum(axis=1 + kept.index(place)) if place in kept else shaped
            by_role[role] += inner.reshape(-1) @ tensor.reshape(-1, tensor.shape[-1])


def _gap(root: Array, fill: float) -> float:
    """How well a block is solved at each step."""
    if not fill:
        return INNER_GAP
    return HEAVY_GAP if len(root) ** 2 * root.shape[1] > FILLED_WORK else FILLED_GAP


def _through(rows: Array, seen: Array) -> Array:
    """`rows K K'`, whichever way is shorter."""
    count, (cells, rank) = len(rows), seen.shape
    if 2 * count * rank <= cells * (count + rank):
        return np.asarray((rows @ seen) @ seen.T)
    return np.asarray(rows @ (seen @ seen.T))
