"""The square root as a sum of simple fractions that never exceeds it by more than it says (claim B-007)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from residua._arrays import Array
from residua.bounds.pairs import bordered

STEP = 1.5  # between the logarithms of neighbouring points
SLIGHT = 1e-3  # share of all roots that may be left to the outermost points, and how far out those are
FAINTEST = 1e-13  # of the largest root's square: what is smaller is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Points s and weights w with `sum w x / (x + s) <= excess * sqrt(x)` for every x >= 0."""

    points: Array
    weights: Array

    @classmethod
    def between(cls, low: float, high: float) -> "Nodes":
        """Points from `low` to `high`, with weights that allow for those beyond.

        >>> nodes = Nodes.between(1e-3, 1e7)
        >>> x = np.geomspace(1, 1e4, 5)
        >>> sums = (nodes.weights * x[:, None] / (x[:, None] + nodes.points)).sum(axis=1)
        >>> bool(np.all(np.abs(sums / np.sqrt(x) - 1) < 1e-4)), bool(np.all(sums <= EXCESS * np.sqrt(x)))
        (True, True)
        """
        count = max(1, math.ceil(math.log(high / low) / STEP))
        points = low * np.exp(STEP * np.arange(count + 1))
        weights = (STEP / math.pi) * np.sqrt(points)
        # Below the first point x / (x + s) is at least what it is there; above the last one, at least
        # s_last / s of that. Both are geometric series with the same ratio.
        beyond = 1.0 / math.expm1(STEP / 2)
        weights[0] += weights[0] * beyond
        weights[-1] += weights[-1] * beyond if len(points) > 1 else 0.0
        return cls(points, weights)

    @classmethod
    def around(cls, squares: Array, counts: Array, top: float) -> "Nodes":
        """Points from below all roots that matter to above all roots, the largest of them of `top`."""
        order = np.argsort(squares)
        seen = np.cumsum(counts[order] * np.sqrt(squares[order]))
        low = float(squares[order][np.searchsorted(seen, SLIGHT * seen[-1])])
        return cls.between(max(SLIGHT * low, FAINTEST * top), top / SLIGHT)

    def sum(self, at: Callable[[float], float]) -> float:
        """The sum of what is there at each point, each times its weight."""
        return math.fsum(
            weight * at(point)
            for point, weight in zip(self.points.tolist(), self.weights.tolist(), strict=True)
        )


_WAVE = math.exp(-2 * math.pi**2 / STEP)
EXCESS = 1.0 + 4 * _WAVE / (1 - _WAVE)
"""Bound on the ratio of the sum to the square root: 1 + 2 sum of sech(2 pi^2 m / step) over m >= 1."""


def inverse_trace(matrix: Array, inner: Array) -> tuple[float, Array]:
    """The trace of the inverse times a semidefinite matrix, never more than it is, and about the inverse."""
    inverse = np.linalg.inv(matrix)
    inverse = 0.5 * (inverse + inverse.T)
    product = inverse @ inner  # what follows is no more for any symmetric matrix in place of the inverse
    return float(2 * np.trace(product) - np.sum((matrix @ inverse) * product.T)), inverse


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Weights p on the cells of one attribute, and its coordinates: `centred = diag(sqrt p) Q`."""

    weights: Array
    turn: Array
    centred: Array

    @classmethod
    def of(cls, weights: Array) -> "Axis":
        """The coordinates of positive weights that sum to 1."""
        mean = np.sqrt(weights)
        basis = np.linalg.qr(np.column_stack([mean, np.eye(len(mean))[:, 1:]]))[0][:, 1:]
        return cls(weights, basis, mean[:, None] * basis)

    @property
    def width(self) -> int:
        """Number of its coordinates besides the mean."""
        return len(self.weights) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A point s and a weight w of the square root's sum, with the inverse of what is left at s.

    `inverse` is that of the shared coordinates of a pair, summed over all the pairs of one kind, and `count`
    is how many those are.
    """

    point: float
    weight: float
    inverse: Array
    count: int


@dataclass(slots=True, eq=False)
class Slopes:
    """Partial traces of the root over one attribute: along its coordinates, and from those to its mean."""

    along: Array
    across: Array

    @classmethod
    def zero(cls, width: int) -> "Slopes":
        return cls(np.zeros((width, width)), np.zeros(width))

    def add(self, other: "Slopes") -> None:
        """Add other partial traces over the same attribute."""
        self.along += other.along
        self.across += other.across


EVEN = 1e-2  # ratio of singular values above which their squares lose no digits that count


def decomposed(rows: Array) -> tuple[Array, Array, Array]:
    """The singular value decomposition, from that of the gram where this is as good, in half the time."""
    count, width = rows.shape
    if count >= width > 0:
        squares, right = np.linalg.eigh(rows.T @ rows)
        if squares[0] > EVEN**2 * squares[-1]:
            values = np.sqrt(squares)
            return (rows @ right) / values, values, right.T
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    return left, values, right


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A pair with any rows. `right` is V with the pair's own coordinates as two axes, (a, b, rank).

    `squares` are those of l, `shared` is `U' S` and `rest` the gram of what U leaves of S; `slopes` has the
    slopes at several nodes added up, for the first and the second attribute.
    """

    squares: Array
    shared: Array
    right: Array
    rest: Array

    @classmethod
    def of(cls, rows: Array, one: Axis, two: Axis) -> "Listed":
        """The pair with these rows over its cells."""
        tensor = rows.reshape(len(rows), len(one.weights), len(two.weights))
        along, mean = tensor @ two.centred, tensor @ two.weights
        own = (one.centred.T @ along).reshape(len(rows), -1)
        shared = np.column_stack([mean @ one.weights, mean @ one.centred, one.weights @ along])
        left, values, right = decomposed(own)
        turned = left.T @ shared
        rest = shared - left @ turned  # of rows that have no part of their own
        wide = right.T.reshape(one.width, two.width, len(values))
        return cls(values**2, turned, wide, rest.T @ rest)

    def slopes(self, nodes: Sequence[Node]) -> tuple[Slopes, Slopes]:
        """The root among own coordinates is `V inner V'`, between those and shared ones `V mixed`."""
        rank, width = self.shared.shape
        inner, mixed = np.zeros((rank, rank)), np.zeros((rank, width))
        at = np.arange(rank)
        for node in nodes:
            over = self.squares + node.point
            gain = (np.sqrt(self.squares) / over)[:, None] * self.shared
            reached = (node.weight * node.point) * (gain @ node.inverse)
            mixed += reached
            inner -= reached @ gain.T
            inner[at, at] += (node.weight * node.count) * self.squares / over
        right, a = self.right, len(self.right)
        turned = right @ inner
        first = np.tensordot(turned, right, axes=((1, 2), (1, 2)))
        second = np.tensordot(turned, right, axes=((0, 2), (0, 2)))
        across = np.einsum("abr,rb->a", right, mixed[:, 1 + a :], optimize=True)
        other = np.einsum("abr,ra->b", right, mixed[:, 1 : 1 + a], optimize=True)
        return Slopes(first, across), Slopes(second, other)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One family of a product: `rows centred = U diag(l) V'` and `U' rows p = means`."""

    lengths: Array
    means: Array
    right: Array

    @classmethod
    def of(cls, rows: Array, axis: Axis) -> "Side":
        """The family with these rows."""
        left, values, right = np.linalg.svd(rows @ axis.centred, full_matrices=len(rows) > axis.width)
        lengths, wide = np.zeros(len(rows)), np.zeros((axis.width, len(rows)))
        lengths[: len(values)] = values
        wide[:, : len(values)] = right[: len(values)].T
        return cls(lengths, left.T @ (rows @ axis.weights), wide)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A pair with one table, a product of two families: nothing of the size of its cells squared is made."""

    one: Side
    two: Side

    @property
    def squares(self) -> Array:
        """The squares of l."""
        return self._grid.reshape(-1)

    @property
    def _grid(self) -> Array:
        return np.multiply.outer(self.one.lengths**2, self.two.lengths**2)

    def left(self, point: float) -> tuple[Array, Array]:
        """`S' D S` and `S' D^2 S` with `D = s / (l^2 + s)`."""
        damping = point / (self._grid + point)
        return self._shared(damping), self._shared(damping**2)

    def _shared(self, damping: Array) -> Array:
        """`S' D S` for the diagonal D given as a grid, (rows of one, rows of two)."""
        one, two = self.one, self.two
        by_one, by_two = damping @ two.means**2, one.means**2 @ damping
        total = float(one.means**2 @ by_one)
        first = one.right @ (one.lengths * one.means * by_one)
        second = two.right @ (two.lengths * two.means * by_two)
        here = (one.right * (one.lengths**2 * by_one)) @ one.right.T
        there = (two.right * (two.lengths**2 * by_two)) @ two.right.T
        middle = (one.lengths * one.means)[:, None] * damping * (two.lengths * two.means)
        cross = one.right @ middle @ two.right.T
        return bordered(total, (first, second), here, cross, there)

    def slopes(self, nodes: Sequence[Node]) -> tuple[Slopes, Slopes]:
        """Summed in the coordinates of the families' own decompositions."""
        sides, width, grid = (self.one, self.two), 1 + len(self.one.right), self._grid
        places = slice(1, width), slice(width, None)
        turns = list(zip((self.one.right, self.two.right), places, strict=True))
        sums = [Slopes.zero(len(side.lengths)) for side in sides]
        for node in nodes:
            edges = [turn.T @ node.inverse[own, 0] for turn, own in turns]
            squares = [turn.T @ node.inverse[own, own] @ turn for turn, own in turns]
            cross = self.one.right.T @ node.inverse[places] @ self.two.right
            gain, kept = np.sqrt(grid) / (grid + node.point), grid / (grid + node.point)
            sums[0].add(_partial(node, sides, edges, squares, cross, gain, kept))
            sums[1].add(_partial(node, sides[::-1], edges[::-1], squares[::-1], cross.T, gain.T, kept.T))
        one, two = (
            Slopes(side.right @ each.along @ side.right.T, side.right @ each.across)
            for side, each in zip(sides, sums, strict=True)
        )
        return one, two


Leaf = Listed | Product
"""A pair of attributes."""


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Listed pairs of one shape: the arrays of all, with one more axis in front."""

    squares: Array
    shared: Array
    rest: Array

    @classmethod
    def of(cls, leaves: Sequence[Listed]) -> "Stack":
        """These pairs in their order."""
        names = ("squares", "shared", "rest")
        return cls(*(np.stack([getattr(leaf, name) for leaf in leaves]) for name in names))

    def left(self, point: float) -> tuple[Array, Array]:
        """`S' D S` and `S' D^2 S` of each with `D = s / (l^2 + s)`."""
        damped = (point / (self.squares + point))[..., None] * self.shared
        return self.shared.mT @ damped + self.rest, damped.mT @ damped + self.rest


class Leaves:
    """What all pairs leave of shared coordinates; small matrices of one shape are multiplied at once."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._products = [(at, leaf) for at, leaf in enumerate(leaves) if isinstance(leaf, Product)]
        by_shape: dict[tuple[int, ...], dict[int, Listed]] = {}
        for at, leaf in enumerate(leaves):
            if isinstance(leaf, Listed):
                by_shape.setdefault(leaf.shared.shape, {})[at] = leaf
        self._stacks = [(tuple(own), Stack.of(list(own.values()))) for own in by_shape.values()]

    def left(self, point: float) -> tuple[list[Array], list[Array]]:
        """`S' D S` and `S' D^2 S` of every pair, in their order, with `D = s / (l^2 + s)`."""
        found = {at: leaf.left(point) for at, leaf in self._products}
        for numbers, stack in self._stacks:
            found |= zip(numbers, zip(*stack.left(point), strict=True), strict=True)
        once, twice = zip(*(found[at] for at in sorted(found)), strict=True) if found else ((), ())
        return list(once), list(twice)


def _partial(
    node: Node,
    sides: Sequence[Side],
    edges: Sequence[Array],
    squares: Sequence[Array],
    cross: Array,
    gain: Array,
    kept: Array,
) -> Slopes:
    """Partial traces over the attribute of the first side, the rows of the other family summed out.

    A row (j, k) of a product has the shared part `(mean_j mean_k, length_j mean_k e_j, mean_j length_k e_k)`.
    """
    scale = node.weight * node.point
    a, x, b, y = sides[0].means, sides[0].lengths, sides[1].means, sides[1].lengths
    along = (gain * b**2) @ gain.T
    along *= (
        np.outer(a, a) * float(node.inverse[0, 0])
        + np.outer(a, x * edges[0])
        + np.outer(x * edges[0], a)
        + np.outer(x, x) * squares[0]
    )
    met = np.outer(x, a) * ((gain * cross * (b * y)) @ gain.T)
    along += met + met.T
    along += np.outer(a, a) * ((gain * (2 * b * y * edges[1] + y**2 * np.diagonal(squares[1]))) @ gain.T)
    along *= -scale
    at = np.arange(len(x))
    along[at, at] += (node.weight * node.count) * kept.sum(axis=1)
    across = a * (gain @ (b * edges[1] + y * np.diagonal(squares[1]))) + x * ((gain * cross) @ b)
    return Slopes(along, scale * across)
