"""The trace of a square root under product weights, from below, and its slopes (claims B-006 and B-007)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from residua.bounds.leaves import Axis, Leaf, Listed, Node, Product, Side, Slopes
from residua.bounds.nodes import EXCESS, Nodes
from residua.bounds.pairs import Structure
from residua.bounds.shared import Layout, Shared
from residua.errors import Infeasible

Array = NDArray[np.float64]

SLIGHT = 1e-3  # share of all roots that may be left to the outermost points, and how far out those are
FAINTEST = 1e-13  # of the largest root's square: what is smaller is rounding
LARGEST = 1e60  # entry of a query times the root of its weight: fourth powers must fit
HUGE = 1e290  # a point at which pairs leave all of the shared coordinates


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A structure with the rows of its tables: of each class alone, and of each pair kind (see `roots`)."""

    structure: Structure
    alone: tuple[Array, ...]
    pairs: tuple[tuple[Array, ...], ...]

    @classmethod
    def of(cls, structure: Structure) -> "Problem":
        """The rows of a structure, made once."""
        alone = []
        for kind, tables in zip(structure.kind_of, structure.alone, strict=True):
            rows = [math.sqrt(weight) * queries.root() for queries, weight in tables.items()]
            alone.append(np.concatenate([np.zeros((0, structure.sizes[kind])), *rows]))
        pairs = tuple(kind.roots() for kind in structure.pair_kinds)
        largest = max(
            (float(np.abs(rows).max(initial=0.0)) for rows in (*alone, *chain(*pairs))), default=1.0
        )
        if not 1 / LARGEST < largest < LARGEST:
            raise Infeasible(
                f"queries with entries of about {largest:.0e} are beyond what is computed here; change the "
                "unit of their numbers, or their weights"
            )
        return cls(structure, tuple(alone), pairs)

    def leaf(self, number: int, axes: Sequence[Axis]) -> Leaf:
        """A pair kind under these weights."""
        one, two = (axes[kind] for kind in self.structure.pair_kinds[number].kinds)
        rows = self.pairs[number]
        if len(rows) == 1:
            return Listed.of(rows[0], one, two)
        return Product(Side.of(rows[0], one), Side.of(rows[1], two))


class Evaluation:
    """A lower bound, `value`, on the trace of the root under product weights, and its slopes."""

    def __init__(self, problem: Problem, axes: Sequence[Axis]) -> None:
        structure = problem.structure
        self.axes, self.layout = axes, Layout(structure)
        self._leaves = [problem.leaf(number, axes) for number in range(len(problem.pairs))]
        self._uses = structure.uses()
        squares = []
        for kind, rows in zip(structure.kind_of, problem.alone, strict=True):
            parts = np.column_stack([rows @ axes[kind].weights, rows @ axes[kind].centred])
            squares.append(parts.T @ parts)
        self._singles = self.layout.of_singles(structure.total, squares)
        self._nodes = self._chosen_nodes()
        self._inverses: list[Shared] = []
        self._whole = math.fsum(
            weight * self._at(point)
            for point, weight in zip(self._nodes.points.tolist(), self._nodes.weights.tolist(), strict=True)
        )
        self.value = self._whole / EXCESS

    def _at(self, point: float) -> float:
        """The trace of `A (A + s)^-1`, never more than it is (claim B-007); remembers the inverse."""
        left = [leaf.left(point) for leaf in self._leaves]
        once = self._singles.plus(self.layout.of_pairs([each[0] for each in left]))
        twice = self._singles.plus(self.layout.of_pairs([each[1] for each in left]))
        total = math.fsum(
            uses * float(np.sum(leaf.squares / (leaf.squares + point)))
            for leaf, uses in zip(self._leaves, self._uses, strict=True)
        )
        inverses = []
        for count, one, two in zip(self.layout.multiplicities, once.parts, twice.parts, strict=True):
            matrix = one + point * np.eye(len(one))
            inverse = np.linalg.inv(matrix)
            inverse = 0.5 * (inverse + inverse.T)
            inverses.append(inverse)
            # tr(K^-1 E) is at least this for every symmetric matrix in place of the inverse.
            product = inverse @ two
            total += count * float(2 * np.trace(product) - np.sum((matrix @ inverse) * product.T))
        self._inverses.append(Shared(inverses[0], tuple(inverses[1:])))
        return total

    def _chosen_nodes(self) -> Nodes:
        """Points from below all roots that matter to above all roots."""
        pairs = self.layout.of_pairs([leaf.left(HUGE)[0] for leaf in self._leaves])
        whole = self._singles.plus(pairs)
        found = [(uses, leaf.squares) for leaf, uses in zip(self._leaves, self._uses, strict=True)]
        found += [
            (count, np.maximum(np.linalg.eigvalsh(part), 0.0))
            for count, part in zip(self.layout.multiplicities, whole.parts, strict=True)
        ]
        squares = np.concatenate([each for _, each in found])
        counts = np.concatenate([np.full(len(each), float(count)) for count, each in found])
        order = np.argsort(squares)
        seen = np.cumsum(counts[order] * np.sqrt(squares[order]))
        low = float(squares[order][np.searchsorted(seen, SLIGHT * seen[-1])])
        top = float(np.trace(whole.common) + squares.max())
        if top <= 0:
            return Nodes(np.zeros(0), np.zeros(0))
        return Nodes.between(max(SLIGHT * low, FAINTEST * top), top / SLIGHT)

    def traces(self) -> list[Array]:
        """For each kind of attribute the root's trace over each of its cells, summed over its attributes.

        Half of it, over the weight of a cell, is the slope of the trace of the root (claim B-006).
        """
        structure = self.layout.structure
        sums = [Slopes.zero(axis.width) for axis in self.axes]
        gathered = [leaf.slopes() for leaf in self._leaves]
        for point, weight, inverse in zip(
            self._nodes.points.tolist(), self._nodes.weights.tolist(), self._inverses, strict=True
        ):
            for at, (kind, count) in enumerate(zip(structure.kind_of, structure.members, strict=True)):
                scale = weight * count
                sums[kind].along += scale * (
                    np.eye(self.layout.widths[at]) - point * self.layout.own(inverse, at)
                )
                sums[kind].across -= scale * point * self.layout.edge(inverse, at)
            for number, local in self.layout.by_kind(inverse).items():
                gathered[number].add(Node(point, weight, local, self._uses[number]))
        for pair_kind, gathering in zip(structure.pair_kinds, gathered, strict=True):
            for kind, slopes in zip(pair_kind.kinds, gathering.sums(), strict=True):
                sums[kind].add(slopes)
        counts = structure.attributes()
        return [
            _by_cell(axis, slopes, count * self._whole)
            for axis, slopes, count in zip(self.axes, sums, counts, strict=True)
        ]


def _by_cell(axis: Axis, slopes: Slopes, whole: float) -> Array:
    """Traces over single cells from partial traces in the coordinates of an attribute."""
    mean = whole - float(np.trace(slopes.along))
    inner = np.sum((axis.turn @ slopes.along) * axis.turn, axis=1)
    return np.asarray(axis.weights * mean + 2 * (axis.centred @ slopes.across) + inner)
