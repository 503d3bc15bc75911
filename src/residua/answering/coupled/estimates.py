"""Estimates of every residual from the measured numbers of overlapping blocks (claim O-004)."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from residua.answering.coupled.coordinates import lifted
from residua.answering.coupled.kinds import CoupledBlock, Residual
from residua.answering.coupled.system import System

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

REFINEMENTS = 1  # of the shared coordinates, for what rounding leaves where noise differs widely


def coupled_residuals(
    system: System, numbers: Mapping[tuple[int, int], Array]
) -> Iterator[tuple[Subsets, Array]]:
    """Runs of the residuals that coupled blocks touch, with their centred cells.

    `numbers` are measured by each block, by its layer and row.
    """
    solved = _solved(system, [numbers[block.layer, block.row] for block in system.blocks])
    kinds: dict[tuple[int, ...], list[Residual]] = {}
    for residual in solved:
        kinds.setdefault(tuple(system.measures[at].size for at in residual), []).append(residual)
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
            found, at = system.memory.of(block.kind, block.kind.reduce), system.shared_of(block)
            left = own[found.private_rank :] - found.spread @ shared[at]
            sums[at] += left @ found.spread / block.noise
        shared = shared + system.solve(sums)
    result = {residual: shared[slice(*run)] for residual, run in system.places.items()}
    for block, own in zip(system.blocks, turned, strict=True):
        found = system.memory.of(block.kind, block.kind.reduce)
        private = found.gain @ own[: found.private_rank] - found.carry @ shared[system.shared_of(block)]
        result |= {block.residual(kept): private[run] for kept, run in system.private_of(block)}
    return result


def _turned(system: System, block: CoupledBlock, numbers: Array) -> Array:
    """Measured numbers of a block: those about private coordinates first, then those about shared ones."""
    return np.asarray(numbers @ system.memory.of(block.kind, block.kind.reduce).left)
