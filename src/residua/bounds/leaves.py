"""The square root as a sum of simple fractions that never exceeds it by more than it says (claim B-007)."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from residua.bounds.pairs import bordered

Array = NDArray[np.float64]


STEP = 1.5  # between the logarithms of neighbouring points


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


_WAVE = math.exp(-2 * math.pi**2 / STEP)
EXCESS = 1.0 + 4 * _WAVE / (1 - _WAVE)
"""Bound on the ratio of the sum to the square root: 1 + 2 sum of sech(2 pi^2 m / step) over m >= 1."""


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


class Leaf(Protocol):
    """A pair of attributes."""

    @property
    def squares(self) -> Array:
        """The squares of l."""

    def left(self, point: float) -> tuple[Array, Array]:
        """`S' D S` and `S' D^2 S` with `D = s / (l^2 + s)`: what the pair leaves of shared coordinates."""

    def slopes(self) -> "Gathering":
        """An empty sum of slopes."""


class Gathering(Protocol):
    """A sum of the slopes at several nodes."""

    def add(self, node: Node) -> None:
        """Add one node."""

    def sums(self) -> tuple[Slopes, Slopes]:
        """For the first and the second attribute."""


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A pair with any rows. `right` is V with the pair's own coordinates as two axes, (a, b, rank)."""

    squares: Array
    shared: Array
    right: Array

    @classmethod
    def of(cls, rows: Array, one: Axis, two: Axis) -> "Listed":
        """The pair with these rows over its cells."""
        tensor = rows.reshape(len(rows), len(one.weights), len(two.weights))
        along, mean = tensor @ two.centred, tensor @ two.weights
        own = (one.centred.T @ along).reshape(len(rows), -1)
        shared = np.column_stack([mean @ one.weights, mean @ one.centred, one.weights @ along])
        # Where there are more rows than coordinates, some have no part of their own: all of U is needed.
        left, values, right = np.linalg.svd(own, full_matrices=len(rows) > own.shape[1])
        count = len(values)
        squares = np.zeros(len(rows))
        squares[:count] = values**2
        wide = np.zeros((one.width, two.width, len(rows)))
        wide[..., :count] = right[:count].T.reshape(one.width, two.width, count)
        return cls(squares, left.T @ shared, wide)

    def left(self, point: float) -> tuple[Array, Array]:
        """See `Leaf`."""
        damped = (point / (self.squares + point))[:, None] * self.shared
        return self.shared.T @ damped, damped.T @ damped

    def slopes(self) -> "ListedSlopes":
        """See `Leaf`."""
        rank, width = self.shared.shape
        return ListedSlopes(self, np.zeros((rank, rank)), np.zeros((rank, width)))


@dataclass(slots=True, eq=False)
class ListedSlopes:
    """The root among the pair's own coordinates is `V inner V'`, between those and shared ones `V mixed`."""

    leaf: Listed
    inner: Array
    mixed: Array

    def add(self, node: Node) -> None:
        """See `Gathering`."""
        squares, s = self.leaf.squares, node.point
        gain = (np.sqrt(squares) / (squares + s))[:, None] * self.leaf.shared
        reached = (node.weight * s) * (gain @ node.inverse)
        self.mixed += reached
        self.inner -= reached @ gain.T
        at = np.arange(len(squares))
        self.inner[at, at] += (node.weight * node.count) * squares / (squares + s)

    def sums(self) -> tuple[Slopes, Slopes]:
        """See `Gathering`."""
        right = self.leaf.right
        a = len(right)
        turned = right @ self.inner
        first = np.tensordot(turned, right, axes=((1, 2), (1, 2)))
        second = np.tensordot(turned, right, axes=((0, 2), (0, 2)))
        across = np.einsum("abr,rb->a", right, self.mixed[:, 1 + a :], optimize=True)
        other = np.einsum("abr,ra->b", right, self.mixed[:, 1 : 1 + a], optimize=True)
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
        """See `Leaf`."""
        return self._grid.reshape(-1)

    @property
    def _grid(self) -> Array:
        return np.multiply.outer(self.one.lengths**2, self.two.lengths**2)

    def left(self, point: float) -> tuple[Array, Array]:
        """See `Leaf`."""
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

    def slopes(self) -> "ProductSlopes":
        """See `Leaf`."""
        return ProductSlopes(self)


@dataclass(slots=True, eq=False)
class ProductSlopes:
    """Sums in the coordinates of the families' own decompositions."""

    leaf: Product
    first: Slopes = field(init=False)
    second: Slopes = field(init=False)

    def __post_init__(self) -> None:
        self.first = Slopes.zero(len(self.leaf.one.lengths))
        self.second = Slopes.zero(len(self.leaf.two.lengths))

    def add(self, node: Node) -> None:
        """See `Gathering`."""
        leaf, s = self.leaf, node.point
        width = len(leaf.one.right)
        one, two = leaf.one.right, leaf.two.right
        inverse = node.inverse
        edges = one.T @ inverse[1 : 1 + width, 0], two.T @ inverse[1 + width :, 0]
        squares = (
            one.T @ inverse[1 : 1 + width, 1 : 1 + width] @ one,
            two.T @ inverse[1 + width :, 1 + width :] @ two,
        )
        cross = one.T @ inverse[1 : 1 + width, 1 + width :] @ two
        grid = leaf._grid
        gain, kept = np.sqrt(grid) / (grid + s), grid / (grid + s)
        corner = float(inverse[0, 0])
        self.first.add(
            _partial(node, leaf.one, leaf.two, corner, edges, squares, cross, gain, kept.sum(axis=1))
        )
        edges, squares = (edges[1], edges[0]), (squares[1], squares[0])
        self.second.add(
            _partial(node, leaf.two, leaf.one, corner, edges, squares, cross.T, gain.T, kept.sum(axis=0))
        )

    def sums(self) -> tuple[Slopes, Slopes]:
        """See `Gathering`."""
        one, two = self.leaf.one.right, self.leaf.two.right
        return (
            Slopes(one @ self.first.along @ one.T, one @ self.first.across),
            Slopes(two @ self.second.along @ two.T, two @ self.second.across),
        )


def _partial(
    node: Node,
    own: Side,
    other: Side,
    corner: float,
    edges: tuple[Array, Array],
    squares: tuple[Array, Array],
    cross: Array,
    gain: Array,
    kept: Array,
) -> Slopes:
    """Partial traces over one attribute, the rows of the other family summed out.

    A row (j, k) of a product has the shared part `(mean_j mean_k, length_j mean_k e_j, mean_j length_k e_k)`.
    """
    scale = node.weight * node.point
    a, x, b, y = own.means, own.lengths, other.means, other.lengths
    along = (gain * b**2) @ gain.T
    along *= (
        np.outer(a, a) * corner
        + np.outer(a, x * edges[0])
        + np.outer(x * edges[0], a)
        + np.outer(x, x) * squares[0]
    )
    met = np.outer(x, a) * ((gain * cross * (b * y)) @ gain.T)
    along += met + met.T
    along += np.outer(a, a) * ((gain * (2 * b * y * edges[1] + y**2 * np.diagonal(squares[1]))) @ gain.T)
    along *= -scale
    at = np.arange(len(x))
    along[at, at] += (node.weight * node.count) * kept
    across = a * (gain @ (b * edges[1] + y * np.diagonal(squares[1]))) + x * ((gain * cross) @ b)
    return Slopes(along, scale * across)
