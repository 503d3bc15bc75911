"""Rooted trees as arrays, level by level: sums up, values down, and equal siblings as one node.

| Symbol | What it is |
|---|---|
| level 0, .., L | the root, .., the leaves; every node above L has a child |
| `parents[l]` | of each node of level l + 1, its parent at level l, ascending: siblings stand together |
| `copies[l]` | siblings with equal subtrees that a node of level l stands for, itself included |
| `precisions[l]` | (nodes, channels): one over the variance of what is measured at each node; 0 for nothing |
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers

Levels = tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Tree:
    """A rooted tree whose leaves are all at the last level."""

    parents: tuple[Integers, ...]
    copies: Levels

    @classmethod
    def of(cls, parents: Sequence[Integers]) -> "Tree":
        """The tree in which every node stands for itself alone.

        >>> Tree.of([np.array([0, 0]), np.array([0, 0, 1])]).sizes
        (1, 2, 3)
        """
        kept = tuple(np.asarray(each, dtype=np.int64) for each in parents)
        sizes = (1, *map(len, kept))
        for size, each in zip(sizes, kept, strict=False):
            steps = np.diff(each, prepend=-1, append=size)
            if steps[0] != 1 or steps[-1] != 1 or not np.isin(steps, (0, 1)).all():
                raise ValueError("children stand in the order of their parents, and every parent has some")
        return cls(kept, tuple(np.ones(size) for size in sizes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of every level."""
        return tuple(map(len, self.copies))

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return len(self.parents)

    @cached_property
    def starts(self) -> tuple[Integers, ...]:
        """The first child of each node, for every level but the last."""
        return tuple(np.flatnonzero(np.diff(each, prepend=-1)) for each in self.parents)

    @cached_property
    def stands_for(self) -> Levels:
        """How many nodes of the whole tree each node stands for, its ancestors' copies included."""
        found = [self.copies[0]]
        for parents, copies in zip(self.parents, self.copies[1:], strict=True):
            found.append(found[-1][parents] * copies)
        return tuple(found)

    def cut(self, depth: int) -> "Tree":
        """The tree down to a level."""
        return Tree(self.parents[:depth], self.copies[: depth + 1])

    def part(self, level: int, nodes: Sequence[slice]) -> "Tree":
        """The trees below some neighbouring nodes of a level, which become the roots.

        `nodes` says where they, and all below them, stand in each level from there on.
        """
        parents = (
            own[here] - above.start
            for own, above, here in zip(self.parents[level:], nodes, nodes[1:], strict=False)
        )
        return Tree(
            tuple(parents), tuple(own[here] for own, here in zip(self.copies[level:], nodes, strict=True))
        )

    def up(self, level: int, values: Array) -> Array:
        """Sums over the children of each node of a level, copies counted; values (children, ..)."""
        weighted = values * self.copies[level + 1].reshape(-1, *[1] * (values.ndim - 1))
        return np.add.reduceat(weighted, self.starts[level], axis=0)

    def plain_up(self, level: int, values: Array) -> Array:
        """Sums over the children of each node of a level, each child once."""
        return np.add.reduceat(values, self.starts[level], axis=0)


@dataclass(frozen=True, eq=False)
class Nest:
    """The tree of nested classes of places: a root, and a level for each, the coarsest first.

    `ranks[l]` has for each class of level l the node that it is; `classes[l]`, (places,), the class of each
    place, as given.
    """

    tree: Tree
    ranks: tuple[Integers, ...]
    classes: tuple[Integers, ...]

    @classmethod
    def of(cls, classes: Sequence[Integers]) -> "Nest":
        """The nest of classes 0, 1, .. of places, (places,) each; none is empty, finer ones are inside.

        >>> nest = Nest.of([np.array([1, 0, 1]), np.array([0, 1, 2])])
        >>> nest.tree.sizes, nest.ranks[2].tolist()
        ((1, 2, 3), [1, 0, 2])
        """
        above = np.zeros(len(classes[0]) if len(classes) else 1, dtype=np.int64)
        parents, ranks, found = [], [np.zeros(1, dtype=np.int64)], [above]
        for own in classes:
            owners = above[first_places(own)]  # classes of the level above
            if not np.array_equal(owners[own], above):
                raise ValueError("the classes are not nested")
            order = np.argsort(ranks[-1][owners], kind="stable")
            parents.append(ranks[-1][owners[order]])
            ranks.append(np.empty(len(order), dtype=np.int64))
            ranks[-1][order] = np.arange(len(order))
            above = own
            found.append(own)
        return cls(Tree.of(parents), tuple(ranks), tuple(found))


def first_places(classes: Integers) -> Integers:
    """The first place of each class; those of class -1 are in none."""
    found = np.zeros(int(classes.max()) + 1, dtype=np.int64)
    places = np.flatnonzero(classes >= 0)[::-1]
    found[classes[places]] = places
    return found


def merged(tree: Tree, marks: Sequence[Integers] | None = None) -> tuple[Tree, tuple[Integers, ...]]:
    """The tree in which siblings with equal subtrees are one node, and the node that stands for each.

    Nodes with different `marks` are never equal. Exchanging equal siblings changes nothing that is asked, so
    by convexity the best precisions are equal on them (claim T-002).

    >>> small, stands = merged(Tree.of([np.array([0, 0, 0]), np.array([0, 0, 1, 1, 2])]))
    >>> small.sizes, small.copies[1].tolist(), stands[1].tolist()
    ((1, 2, 2), [1.0, 2.0], [1, 1, 0])
    """
    classes = _classes(tree, marks)
    stands, parents, copies = [np.zeros(1, dtype=np.int64)], [], [tree.copies[0]]
    chosen = np.ones(1, dtype=np.bool_)  # nodes that stand for others
    for below, own, multiple in zip(tree.parents, classes[1:], tree.copies[1:], strict=True):
        codes = stands[-1][below] * (int(own.max()) + 1) + own
        kept = np.flatnonzero(chosen[below])
        distinct, first, number = np.unique(codes[kept], return_index=True, return_inverse=True)
        copies.append(np.bincount(number.reshape(-1), weights=multiple[kept]).astype(np.float64))
        parents.append(stands[-1][below[kept[first]]])
        stands.append(np.searchsorted(distinct, codes))
        chosen = np.zeros(len(below), dtype=np.bool_)
        chosen[kept[first]] = True
    return Tree(tuple(parents), tuple(copies)), tuple(stands)


def _classes(tree: Tree, marks: Sequence[Integers] | None) -> list[Integers]:
    """For every level, a number for each node that equal subtrees share."""
    if marks is None:
        marks = [np.zeros(size, dtype=np.int64) for size in tree.sizes]
    found = [_numbered(np.stack([marks[-1], tree.copies[-1].astype(np.int64)]))]
    for level in range(tree.depth - 1, -1, -1):
        children, parents = found[0], tree.parents[level]
        most = int(children.max()) + 1
        if most == 1:
            owners, told = np.arange(tree.sizes[level]), np.bincount(parents)[:, None]
        else:
            kinds, counts = np.unique(parents * most + children, return_counts=True)
            owners, told = kinds // most, np.stack([kinds % most, counts], axis=1)
        if len(owners) == tree.sizes[level]:  # one class of children each
            numbers = _numbered(told.T)
        else:
            texts: dict[bytes, int] = {}
            ends = np.searchsorted(owners, np.arange(tree.sizes[level] + 1))
            numbers = np.array(
                [texts.setdefault(told[a:b].tobytes(), len(texts)) for a, b in itertools.pairwise(ends)]
            )
        found.insert(0, _numbered(np.stack([numbers, marks[level], tree.copies[level].astype(np.int64)])))
    return found


def _numbered(rows: Integers) -> Integers:
    """A number for each column that equal columns share."""
    varied = rows[(rows != rows[:, :1]).any(axis=1)]
    if len(varied) == 0:
        return np.zeros(rows.shape[1], dtype=np.int64)
    if len(varied) == 1:
        return np.unique(varied[0], return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Passes:
    """Variances of node totals: from what is below a node alone, and from everything."""

    below: Levels  # at or below the node; infinite where nothing is measured
    sums: Levels  # sums of the children's `below`, for every level but the last
    final: Levels

    def part(self, level: int, nodes: Sequence[slice]) -> "Passes":
        """Those of some nodes of each level from one on."""
        found = [
            tuple(own[here] for own, here in zip(each[level:], nodes, strict=False))
            for each in (self.below, self.sums, self.final)
        ]
        return Passes(*found)


def passes(tree: Tree, precisions: Sequence[Array]) -> Passes:
    """Variances of the best estimates of all node totals: one pass up, one down (claim T-001).

    Totals that are known have infinite precision (claim T-016).
    """
    below = [_reciprocal(precisions[-1])]
    sums: list[Array] = []
    for level in range(tree.depth - 1, -1, -1):
        sums.insert(0, tree.up(level, below[0]))
        below.insert(0, _reciprocal(precisions[level] + _reciprocal(sums[0])))
    final = [below[0]]
    for level, parents in enumerate(tree.parents):
        total, own = sums[level][parents], below[level + 1]
        share = np.divide(own, total, out=np.zeros_like(own), where=np.isfinite(total) & (total > 0))
        missing = np.subtract(total, final[-1][parents], out=np.zeros_like(own), where=np.isfinite(total))
        final.append(own - share**2 * missing)
    return Passes(tuple(below), tuple(sums), tuple(final))


def _reciprocal(values: Array) -> Array:
    return np.divide(1.0, values, out=np.full_like(values, np.inf), where=values > 0)


def solved(
    tree: Tree,
    precisions: Sequence[Array],
    found: Passes,
    sides: Sequence[Array | None],
    known: Sequence[Array] | None = None,
) -> list[Array]:
    """Totals of all nodes of the solution y of `X y = sum of sides`, each node's spread over its leaves.

    `X` is the sum over nodes of precision times `1_u 1_u'`; precisions are (nodes, 1), sides (nodes, k) a
    level, None for nothing. With sides of precision times measured number, these are the best estimates of
    node totals; with that of one node, their covariances with it (claim T-007). The tree has no copies.
    Where precisions are infinite, totals are those `known`, (nodes, k) a level, or zero (claim T-016).
    """
    totals, added = upward(tree, precisions, found, sides, known=known)
    return downward(tree, found, totals, added)


def upward(
    tree: Tree,
    precisions: Sequence[Array],
    found: Passes,
    sides: Sequence[Array | None],
    beneath: Array | None = None,
    known: Sequence[Array] | None = None,
) -> tuple[list[Array], list[Array]]:
    """What is at or below each node says of its total, and the sums of that over its children.

    `beneath` has those sums for the last level, where the tree was cut off there.
    """
    totals: list[Array] = []
    added: list[Array] = []
    for level in range(tree.depth, -1, -1):
        side, fixed = sides[level], np.isinf(precisions[level])
        if level < tree.depth:
            beneath = tree.plain_up(level, totals[0])
        if beneath is None:
            own = (0.0 if side is None else side) * found.below[level]
        else:
            sums = found.sums[level]
            added.insert(0, beneath)
            own = added[0] + (0.0 if side is None else side * sums)
            own = own / (1.0 + np.where(fixed, 0.0, precisions[level]) * sums)
        if fixed.any():
            own = np.where(fixed, 0.0 if known is None else known[level], own)
        totals.insert(0, own)
    return totals, added


def downward(
    tree: Tree, found: Passes, totals: Sequence[Array], added: Sequence[Array], roots: Array | None = None
) -> list[Array]:
    """Totals of all nodes from what `upward` found, and, of roots that are part of a larger tree, theirs."""
    totals = list(totals) if roots is None else [roots, *totals[1:]]
    for level, parents in enumerate(tree.parents):
        sums = found.sums[level][parents]
        share = np.divide(found.below[level + 1], sums, out=np.zeros_like(sums), where=sums > 0)
        totals[level + 1] = totals[level + 1] + share * (totals[level] - added[level])[parents]
    return totals


def slopes(tree: Tree, found: Passes, weights: Sequence[Array]) -> list[Array]:
    """Derivatives of the weighted sum of final variances by each precision: the passes in reverse.

    `weights[l]`, (nodes, channels), count a node with all that it stands for; so do the derivatives.
    """
    at_final = [each.copy() for each in weights]
    at_below = [np.zeros_like(each) for each in weights]
    at_sums = [np.zeros_like(each) for each in weights[:-1]]
    for level in range(tree.depth - 1, -1, -1):
        parents = tree.parents[level]
        total, above = found.sums[level][parents], found.final[level][parents]
        own, slope = found.below[level + 1], at_final[level + 1]
        open_ = np.isfinite(total)
        share = np.divide(own, total, out=np.zeros_like(own), where=open_)
        ratio = np.divide(above, total, out=np.zeros_like(own), where=open_)
        at_below[level + 1] = slope * (1.0 - 2.0 * share * (1.0 - ratio))
        at_final[level] += tree.plain_up(level, slope * share**2)
        at_sums[level] = tree.plain_up(level, slope * share**2 * (1.0 - 2.0 * ratio))
    at_below[0] = at_final[0]
    found_slopes = []
    for level in range(tree.depth + 1):
        own = found.below[level]
        squared = np.where(np.isfinite(own), own, 0.0) ** 2
        found_slopes.append(-at_below[level] * squared)
        if level < tree.depth:
            total = found.sums[level]
            ratio = np.divide(own, total, out=np.zeros_like(own), where=np.isfinite(total))
            at_sums[level] += at_below[level] * ratio**2
            copies = tree.copies[level + 1][:, None]
            at_below[level + 1] = at_below[level + 1] + at_sums[level][tree.parents[level]] * copies
    return found_slopes


def root_trace(tree: Tree, weights: Sequence[Array], leaves: Array) -> float:
    """At most the trace of the root of `D^1/2 G D^1/2`, short of it by a part of 1e-8 or less.

    `G` is the sum over all nodes of `weights[l]`, (nodes,), times `1_u 1_u'`, and `D` is diagonal with
    `leaves`. The integral over t of `log det(1 + A/t^2)` is pi times the trace; in `log t` its trapezoids
    err, for every eigenvalue alike, by the part `EXCESS` at most (claim T-005), and the determinant is one
    pass up the tree.
    """
    spread = 0.5 * np.log(_largest_root(tree, weights, leaves))
    total = 0.0
    for direction in (STEP, -STEP):
        at = spread + (direction if direction < 0 else 0.0)
        while (
            term := np.exp(at) * _log_determinant(tree, weights, leaves * np.exp(-2.0 * at))
        ) > 1e-10 * total:
            total += term
            at += direction
    return float(total * STEP / np.pi / (1.0 + EXCESS))


STEP = 0.5  # in the logarithm of t
EXCESS = 1e-9  # 2 / (w cosh(pi w / 2)) at w = 2 pi / STEP, and the same at its multiples


def _log_determinant(tree: Tree, weights: Sequence[Array], leaves: Array) -> float:
    """Of `1 + D^1/2 G D^1/2`: one factor a node, from the sums of what is below it."""
    total, below = 0.0, leaves
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
            below = tree.up(level, below)
        factor = weights[level] * below
        total += float((tree.stands_for[level] * np.log1p(factor)).sum())
        below = below / (1.0 + factor)
    return total


def _largest_root(tree: Tree, weights: Sequence[Array], leaves: Array) -> float:
    """The trace of `D^1/2 G D^1/2`, which no eigenvalue exceeds."""
    total, below = 0.0, leaves
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
            below = tree.up(level, below)
        total += float((tree.stands_for[level] * weights[level] * below).sum())
    return total
