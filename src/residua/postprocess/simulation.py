"""Releases simulated from a post-processed one: how wrong post-processing is, where it knows the truth.

Post-processed tables are taken for the truth, noise of the plan's own law is added, and all is post-processed
again. The differences estimate bias and noise together (parametric bootstrap, claim P-107).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.estimates import Estimates
from residua.linalg.centring import centred_columns
from residua.linalg.keys import distinct_rows
from residua.linalg.rows import pseudo_inverse
from residua.measurements import Measurements
from residua.postprocess.stacks import Stack, TableSet
from residua.reconstruct import Estimator
from residua.strategy.batches import Batch
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.overlap import OverlapStrategy
from residua.strategy.overlap_estimates import estimates_of
from residua.strategy.product import ProductStrategy

Array = NDArray[np.float64]

Redo = Callable[[Measurements | Estimates], Estimator]
"""Least squares of a plan, from other measurements."""


def noisy(tables: TableSet, noise: Estimator) -> TableSet:
    """Tables with noise as a release would have it."""
    return TableSet(
        tuple(
            Stack(stack.subsets, stack.cells + noise.marginals(stack.subsets, stack.sizes))
            for stack in tables.stacks
        )
    )


def measured_noise(batches: Sequence[Batch], generator: np.random.Generator) -> Measurements:
    """Noise of the laws that a plan's batches have, and no data."""
    return Measurements(tuple(_noise(batch, generator) for batch in batches))


def _noise(batch: Batch, generator: np.random.Generator) -> NDArray[np.int64]:
    size = (len(batch.subsets), batch.rows)
    if batch.law == "gaussian":
        spread = np.sqrt([float(variance) for variance in batch.parameters])
        drawn = generator.standard_normal(size)
    else:
        spread = np.array([float(scale) for scale in batch.parameters])
        drawn = generator.laplace(size=size)
    return np.asarray(np.rint(drawn * spread[batch.owners][:, None]), dtype=np.int64)


def estimated_noise(strategy: BlockStrategy, generator: np.random.Generator) -> Estimates:
    """Gaussian noise in what each block estimates, for strategies that were never measured as one."""
    tables, cells = [], []
    for layer in strategy.layers:
        kinds = (
            distinct_rows(layer.shapes)
            if layer.layout
            else (np.zeros(1, np.int64), np.zeros(len(layer.noise)))
        )
        order = [place for places in layer.layout for place in places]
        for number, row in enumerate(kinds[0].tolist()):
            mine = np.flatnonzero(kinds[1] == number)
            shapes = [strategy.shapes[at] for at in layer.shapes[row].tolist()]
            drawn = generator.standard_normal((len(mine), *(len(shape.matrix) for shape in shapes)))
            drawn *= np.sqrt(layer.noise[mine]).reshape(-1, *(1,) * len(shapes))
            for place, (shape, places) in enumerate(zip(shapes, layer.layout, strict=True)):
                attributes = layer.subsets[row][list(places)].tolist()
                measures = [strategy.measures[at] for at in attributes]
                kernel = centred_columns(shape.inverse, shape.sizes, measures)
                drawn = np.moveaxis(np.moveaxis(drawn, 1 + place, -1) @ kernel.T, -1, 1 + place)
            sizes = [size for shape in shapes for size in shape.sizes]
            drawn = drawn.reshape(len(mine), *sizes).transpose(0, *(1 + np.argsort(order)))
            tables.append(layer.subsets[mine])
            cells.append(np.ascontiguousarray(drawn))
    return Estimates(tuple(tables), tuple(cells))


def overlap_noise(strategy: OverlapStrategy, generator: np.random.Generator) -> Estimates:
    """Gaussian noise in what overlapping blocks estimate together, where they were never measured as one."""
    numbers = {}
    for number, layer in enumerate(strategy.layers):
        for row, variance in enumerate(layer.noise.tolist()):
            count = math.prod(len(strategy.shapes[at].matrix) for at in layer.shapes[row].tolist())
            numbers[number, row] = math.sqrt(variance) * generator.standard_normal(count)
    runs = list(estimates_of(strategy, numbers))
    return Estimates(tuple(table for table, _ in runs), tuple(cells for _, cells in runs))


def joint_noise(strategy: ProductStrategy, generator: np.random.Generator) -> Estimates:
    """Gaussian noise in the joint cells that a product estimates, where it was never measured as one."""
    drawn = generator.standard_normal([len(factor.matrix) for factor in strategy.factors])
    for place, factor in enumerate(strategy.factors):
        drawn = np.moveaxis(np.moveaxis(drawn, place, -1) @ pseudo_inverse(factor.matrix).T, -1, place)
    attributes = np.array([at for factor in strategy.factors for at in factor.attributes], dtype=np.int32)
    sizes = [size for factor in strategy.factors for size in factor.sizes]
    order = np.argsort(attributes)
    cells = np.sqrt(strategy.noise_variance) * drawn.reshape(sizes).transpose(order)
    return Estimates((attributes[order][None],), (np.ascontiguousarray(cells)[None],))
