"""Estimates of every residual from the measured numbers of overlapping blocks (claim O-004)."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.kernel.exact import along_axes
from residua.linalg.centring import Measure, centred_columns
from residua.strategy.batches import Batch, batched_rows
from residua.strategy.layered import Layered
from residua.strategy.overlap.coordinates import lifted
from residua.strategy.overlap.kinds import CoupledBlock, Residual
from residua.strategy.overlap.strategy import OverlapStrategy
from residua.strategy.overlap.system import System

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]

REFINEMENTS = 1  # of the shared coordinates, for what rounding leaves where noise differs widely


Numbers = dict[tuple[int, int], Array]
"""Measured numbers of blocks, in units of their matrices, by layer and row of the block."""


def residual_estimates(
    strategy: OverlapStrategy, batches: Sequence[Batch], values: Sequence[Integers]
) -> Iterator[tuple[Subsets, Array]]:
    """Runs of residuals, (k, attributes) ascending, with their centred cells, (k, sizes...)."""
    for (layer, rows), batch, found in zip(batched_rows(strategy), batches, values, strict=True):
        alone = strategy.division.is_alone(layer, rows)
        if alone.any():
            yield np.sort(batch.subsets[alone], axis=1), batch.ascending(found[alone])
    yield from coupled_estimates(strategy, measured_numbers(strategy, batches, values))


def measured_numbers(strategy: Layered, batches: Sequence[Batch], values: Sequence[Integers]) -> Numbers:
    """The measured numbers of every block of a strategy."""
    return {
        (layer, row): found[at].astype(np.float64) / batch.multiplier
        for (layer, rows), batch, found in zip(batched_rows(strategy), batches, values, strict=True)
        for at, row in enumerate(rows.tolist())
    }


def fitted_numbers(strategy: Layered, marginals: Callable[[Subsets, Sequence[int]], Array]) -> Numbers:
    """What the blocks of a strategy measure of estimated marginals, (k, attributes) to (k, sizes...)."""
    numbers = {}
    for number, layer in enumerate(strategy.layers):
        order = [place for places in layer.layout for place in places]
        for row, subset in enumerate(layer.subsets):
            cells = marginals(subset[None], [strategy.sizes[at] for at in subset.tolist()])[0]
            matrices = [strategy.shapes[at].matrix for at in layer.shapes[row].tolist()]
            numbers[number, row] = along_axes(cells.transpose(order).reshape(1, -1), matrices)[0]
    return numbers


def estimates_of(strategy: OverlapStrategy, numbers: Numbers) -> Iterator[tuple[Subsets, Array]]:
    """The same from the numbers of all blocks of a strategy that was never measured as one."""
    yield from _alone_estimates(strategy, numbers)
    yield from coupled_estimates(strategy, numbers)


def _alone_estimates(strategy: OverlapStrategy, numbers: Numbers) -> Iterator[tuple[Subsets, Array]]:
    """Runs of the blocks that stand alone, with their centred cells."""
    kernels: dict[tuple[int, tuple[Measure, ...]], Array] = {}
    runs: dict[tuple[int, ...], list[tuple[list[int], Array]]] = {}
    for number, layer in enumerate(strategy.layers):
        order = [place for places in layer.layout for place in places]
        for row in np.flatnonzero(strategy.division.is_alone(number, np.arange(len(layer.noise)))).tolist():
            subset = layer.subsets[row].tolist()
            matrices = []
            for at, places in zip(layer.shapes[row].tolist(), layer.layout, strict=True):
                measures = tuple(strategy.measures[subset[place]] for place in places)
                if (at, measures) not in kernels:
                    shape = strategy.shapes[at]
                    kernels[at, measures] = centred_columns(shape.inverse, shape.sizes, measures)
                matrices.append(kernels[at, measures])
            sizes = [strategy.sizes[subset[place]] for place in order]
            cells = along_axes(numbers[number, row][None], matrices).reshape(sizes)
            cells = cells.transpose(np.argsort(order))
            runs.setdefault(cells.shape, []).append((subset, cells))
    for found in runs.values():
        subsets = np.array([subset for subset, _ in found], dtype=np.int32).reshape(len(found), -1)
        yield subsets, np.stack([cells for _, cells in found])


def coupled_estimates(strategy: OverlapStrategy, numbers: Numbers) -> Iterator[tuple[Subsets, Array]]:
    """Runs of the residuals that coupled blocks touch, with their centred cells."""
    system = strategy.system
    solved = _solved(system, [numbers[block.layer, block.row] for block in system.blocks])
    kinds: dict[tuple[int, ...], list[Residual]] = {}
    for residual in solved:
        kinds.setdefault(tuple(strategy.sizes[at] for at in residual), []).append(residual)
    for sizes, residuals in kinds.items():
        subsets = np.array(residuals, dtype=np.int32).reshape(len(residuals), len(sizes))
        yield subsets, lifted(np.stack([solved[residual] for residual in residuals]), sizes)


def _solved(system: System, numbers: Sequence[Array]) -> dict[Residual, Array]:
    """Coordinates of every coupled residual, by least squares over the numbers of all blocks."""
    turned = [_turned(system, block, own) for block, own in zip(system.blocks, numbers, strict=True)]
    shared = np.zeros(system.dimension)
    for _ in range(1 + REFINEMENTS):
        sums = np.zeros(system.dimension)
        for block, own in zip(system.blocks, turned, strict=True):
            found, at = system.memory.reduced(block.kind), system.shared_of(block)
            left = own[found.private_rank :] - found.spread @ shared[at]
            sums[at] += left @ found.spread / block.noise
        shared = shared + system.solve(sums)
    result = {residual: shared[slice(*run)] for residual, run in system.places.items()}
    for block, own in zip(system.blocks, turned, strict=True):
        found = system.memory.reduced(block.kind)
        private = found.gain @ own[: found.private_rank] - found.carry @ shared[system.shared_of(block)]
        result |= {block.residual(kept): private[run] for kept, run in system.private_of(block)}
    return result


def _turned(system: System, block: CoupledBlock, numbers: Array) -> Array:
    """Measured numbers of a block: those about private coordinates first, then those about shared ones."""
    return np.asarray(numbers @ system.memory.reduced(block.kind).left)
