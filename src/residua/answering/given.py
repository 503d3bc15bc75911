"""Answers given what is publicly known: totals that have no error, and what follows from them.

For places measured by subsets of the other attributes, known totals are nodes of infinite precision in the
same two passes, at any size (claim T-016). For anything else the few known numbers are conditioned on.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from residua._arrays import Array, Integers, Subset
from residua._limits import GIVEN_NUMBERS
from residua.answering.asked_places import Channel
from residua.answering.blocks import Measured
from residua.answering.places import Places
from residua.answering.protocol import Answerer, Estimates, Estimator, TableEstimator, TableParts
from residua.errors import DataError, Infeasible
from residua.linalg.matrices import along_axes
from residua.linalg.trees import Nest, first_places
from residua.workload import Table

DEPENDENT = 1e-11  # of the largest eigenvalue: what rounding leaves of a fact that follows from others
AGREEMENT = 1e-6  # of the numbers: how far facts may contradict each other


@dataclass(frozen=True, slots=True, eq=False)
class KnownPlaces:
    """Cells of the marginal on some other attributes that are known of some nodes of a level of places.

    `level`, (places,), has the node of each place; `others` are attributes, ascending, None where everything
    is known to be zero; `cells` is (known nodes, sizes...).
    """

    level: Integers
    nodes: Integers
    others: Subset | None
    cells: Array

    @property
    def classes(self) -> Integers:
        """The number among the known nodes of each place's, -1 for places of which nothing is known."""
        found = np.full(int(self.level.max()) + 1, -1)
        found[self.nodes] = np.arange(len(self.nodes))
        return found[self.level]

    def by_nodes(self, owners: Integers) -> tuple[Integers, Array]:
        """Nodes of a level all of whose places are known, and their cells; `owners`, (places,)."""
        classes = self.classes
        inside = classes >= 0
        whole = np.bincount(owners[inside], minlength=int(owners.max()) + 1) == np.bincount(owners)
        theirs = owners[first_places(classes)]
        beyond = owners[inside] != theirs[classes[inside]]  # of a known node that is larger
        whole[owners[inside][beyond]] = False
        whole[theirs[classes[inside][beyond]]] = False
        sums = np.zeros((len(whole), *self.cells.shape[1:]))
        np.add.at(sums, theirs, self.cells)
        nodes = np.flatnonzero(whole)
        return nodes, sums[nodes]


def given_places(own: Places, known: Sequence[KnownPlaces]) -> Places:
    """The same places, of which something is known: the same passes with infinite precisions."""
    found = copy(own)
    found.nest, moved = _with_levels(own.nest, known)
    found.depths = [moved[depth] for depth in own.depths]
    found.channels = {
        subset: _given(found, subset, found.channel(rows), known) for subset, rows in own.members.items()
    }
    return found


def _given(places: Places, subset: Subset, channel: Channel, known: Sequence[KnownPlaces]) -> Channel:
    """The channel of a subset with what is known of its nodes."""
    mine = [own for own in known if own.others is None or {*subset} <= {*own.others}]
    nothing = np.zeros((1, *(places.blocks.sizes[at] for at in subset)))
    precisions = [own.copy() for own in channel.precisions]
    values = [np.zeros((len(own), _rows_of(places, subset, nothing).shape[1])) for own in precisions]
    for own in mine:
        for depth, ranks in enumerate(places.nest.ranks[: channel.depth + 1]):
            nodes, cells = own.by_nodes(places.nest.classes[depth])
            if own.others is not None:
                gone = tuple(1 + axis for axis, at in enumerate(own.others) if at not in subset)
                values[depth][ranks[nodes]] = _rows_of(places, subset, cells.sum(axis=gone))
            precisions[depth][ranks[nodes]] = np.inf
    return Channel(places.nest, precisions, values)


def _rows_of(places: Places, subset: Subset, cells: Array) -> Array:
    """What the block on a subset measures of marginals (nodes, sizes...), (nodes, rows)."""
    layer = places.blocks.layers[list(places.members).index(subset)]
    shapes = [places.blocks.shapes[at].matrix for at in layer.shapes[0].tolist()]
    turned = cells.transpose(0, *(1 + place for place in layer.order))
    return np.asarray(along_axes(turned.reshape(len(cells), math.prod(turned.shape[1:])), shapes))


def _with_levels(nest: Nest, known: Sequence[KnownPlaces]) -> tuple[Nest, list[int]]:
    """The nest with the levels that facts are about, down to its last one, and where its own levels are."""
    levels = {len(rank): own for rank, own in zip(nest.ranks, nest.classes, strict=True)}
    finest = len(nest.ranks[-1])
    for own in known:
        count = int(own.level.max()) + 1
        if count < finest:
            levels.setdefault(count, own.level)
    order = sorted(levels)
    return Nest.of([levels[count] for count in order[1:]]), [order.index(len(rank)) for rank in nest.ranks]


class Given(Answerer):
    """Any blocks, given a few known numbers: Gaussian conditioning, and least squares whatever the law."""

    def __init__(self, own: Answerer, known: Sequence[tuple[Table, Array]]) -> None:
        numbers = sum(group.count for group, _ in known)
        if numbers > GIVEN_NUMBERS:
            raise Infeasible(
                f"{numbers:,} known numbers are more than the {GIVEN_NUMBERS:,} that this plan's answers are "
                "worked out with; plan with method 'places', or give fewer"
            )
        self.own, self.known = own, tuple(known)
        self.measures, self.shared, self.most_listed = own.measures, own.shared, own.most_listed

    @cached_property
    def weights(self) -> Array:
        """The inverse covariance of the known numbers as the blocks estimate them, (numbers, numbers)."""
        groups = [group for group, _ in self.known]
        square = np.block([[self.own.covariance(left, right) for right in groups] for left in groups])
        values, vectors = np.linalg.eigh((square + square.T) / 2)
        kept = values > DEPENDENT * values[-1]
        return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)

    def cross(self, group: Table) -> Array:
        """Covariances of a table's answers with the known numbers, (count, numbers)."""
        return np.concatenate([self.own.covariance(group, known) for known, _ in self.known], axis=1)

    def variances(self, group: Table) -> Array:
        cross = self.cross(group)
        less = np.einsum("qi,ij,qj->q", cross, self.weights, cross, optimize=True)
        return np.asarray(np.maximum(self.own.variances(group) - less, 0.0))

    def covariances(self, left: Table, right: Table) -> Array:
        return self.own.covariance(left, right) - self.cross(left) @ self.weights @ self.cross(right).T

    def estimates(self, measured: Measured) -> Estimates:
        return self.own.estimates(measured)

    def asked(self, group: Table) -> TableParts:
        return self.own.asked(group)

    def estimator(self, estimates: Estimates) -> Estimator:
        return _GivenEstimator(self, estimates)


class _GivenEstimator(TableEstimator):
    """Estimates moved by what the known numbers differ from theirs."""

    def __init__(self, source: Given, estimates: Estimates) -> None:
        super().__init__(estimates)
        self.source, self.own = source, source.own.estimator(estimates)
        off = [values - self.own.answers(group) for group, values in source.known]
        self.moves = source.weights @ np.concatenate(off)
        for group, values in source.known:
            if np.abs(values - self.answers(group)).max() > AGREEMENT * max(1.0, float(values.max())):
                raise DataError(
                    f"public facts contradict each other: {group.name!r} does not add up to another"
                )

    def answers(self, group: Table) -> Array:
        return np.asarray(self.own.answers(group) + self.source.cross(group) @ self.moves)
