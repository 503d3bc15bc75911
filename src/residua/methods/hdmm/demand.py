"""What a workload asks of every residual, given one strategy per attribute (claim H-022)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Shape
from residua.answering.nested import Half, Subset
from residua.errors import Infeasible
from residua.linalg.classes import summed_over
from residua.workload import Combined, Factor, Queries, Table, Workload
from residua.workload.groups import splits
from residua.workload.joint import refuse_wide
from residua.workload.tables import refuse_wide_tables

Array = NDArray[np.float64]

VANISHING = 1e-12  # of what a family asks in all: below it a residual is not asked about


@dataclass(frozen=True, eq=False)
class Kernel:
    """The strategy of one attribute, as residuals see it: `mean` is p, `square` is `C (B'B)^+ C'`."""

    shape: Shape
    spread: float
    mean: Array
    square: Array
    number: int
    weights: Array | None = None
    """The weighted sums of a p-Identity strategy on all cells, to improve it from."""

    @classmethod
    def of(cls, matrix: Array, number: int, weights: Array | None = None) -> "Kernel":
        """The kernel of a matrix that determines the total; equal numbers mean equal matrices."""
        shape = Shape.of((matrix.shape[1],), matrix)
        half = Half.of(shape)
        if half is None:
            raise Infeasible("a matrix that does not determine the total cannot be part of nested marginals")
        mean = half.measure.vector()
        square = shape.gram_inverse[0] - half.spread * np.outer(mean, mean)
        return cls(shape, half.spread, mean, square, number, weights)


def demands(work: Workload, kernels: Mapping[int, Kernel]) -> dict[Subset, float]:
    """Total weighted variance that noise of variance 1 in a residual's block adds, for every residual asked.

    `kernels` has one entry per attribute in use.
    """
    refuse_wide_tables(work.parts)
    known: dict[object, float] = {}
    sums: dict[Subset, float] = {}
    for group in work.groups():
        for attributes, amount in asked_by(group, kernels, known):
            sums[attributes] = sums.get(attributes, 0.0) + amount
    return sums


def asked_by(
    group: Table, kernels: Mapping[int, Kernel], known: dict[object, float]
) -> Iterator[tuple[Subset, float]]:
    """The residuals that one table asks about, and how much; figures of families are kept in `known`."""
    for kept, attributes in splits(group):
        amount = group.weight
        for factor, places in zip(group.factors, kept, strict=True):
            amount *= _asked(factor, places, kernels, known)
            if amount == 0.0:
                break
        if amount > 0.0:
            yield attributes, amount


def _asked(
    factor: Factor, kept: tuple[int, ...], kernels: Mapping[int, Kernel], known: dict[object, float]
) -> float:
    own = [kernels[at] for at in factor.attributes]
    key = (factor.queries, kept, tuple(kernel.number for kernel in own))
    if key not in known:
        known[key] = _trace(factor.queries, kept, own)
    return known[key]


def _trace(queries: Queries, kept: tuple[int, ...], own: Sequence[Kernel]) -> float:
    """Sum over the queries of `q K q'`, K the kernels along what is kept and means along the rest."""
    squares = [
        kernel.square if place in kept else np.outer(kernel.mean, kernel.mean)
        for place, kernel in enumerate(own)
    ]
    if len(own) == 1:
        refuse_wide(queries)
        found = float(queries.trace(squares[0], weighted=True))
        whole = float(queries.trace(own[0].square + np.outer(own[0].mean, own[0].mean), weighted=True))
        return found if found > VANISHING * whole else 0.0
    if isinstance(queries, Combined):
        pairs = zip(squares, queries.kinds, strict=True)
        squares = [np.asarray(summed_over(square, [kinds, kinds])) for square, kinds in pairs]
        queries = queries.coarse
    rows = queries.root().reshape(-1, *queries.sizes)
    moved = rows
    for axis, square in enumerate(squares):
        moved = np.moveaxis(np.tensordot(moved, square, axes=(1 + axis, 0)), -1, 1 + axis)
    found = float(np.sum(moved * rows))
    return found if found > VANISHING * float(np.sum(rows * rows)) * _largest(squares) else 0.0


def _largest(squares: Sequence[Array]) -> float:
    return math.prod(float(np.abs(square).max()) for square in squares)
