"""Estimates of every residual from the measured numbers of overlapping blocks (claim O-004)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from residua._limits import COUPLED_QUERIES
from residua.answering.blocks import Blocks, Measured, by_block
from residua.answering.coupled.coordinates import lifted
from residua.answering.coupled.division import CoupledBlock, Residual, divided
from residua.answering.coupled.figures import Coupling
from residua.answering.coupled.system import System
from residua.answering.estimator import Estimates
from residua.answering.independent.answerer import Independent, residuals_of
from residua.answering.protocol import Answerer
from residua.workload import Table, TableRun

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


class Coupled(Answerer):
    """Blocks on any subsets of attributes, centred or not, whose row spaces may overlap."""

    most_listed = COUPLED_QUERIES

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.measures = blocks, blocks.measures
        self.division = divided(blocks)
        self.system = System(blocks.measures, self.division.coupled, blocks.memory)
        alone = replace(blocks, layers=self.division.alone)
        self.alone = Independent(alone, _by_size(self.system.residuals))
        self.coupled = Coupling(self.system)
        self.shared = self.system.dimension

    def notes(self) -> Iterator[str]:
        together = f"{len(self.division.coupled):,} of these blocks overlap and are answered together"
        yield f"{together}; they share {self.system.dimension:,} dimensions"

    def estimates(self, measured: Measured) -> Estimates:
        """Residuals of blocks that stand alone from their own numbers, the others from all together."""
        runs = []
        for number, rows, values in measured:
            alone = self.division.is_alone(number, rows)
            if alone.any():
                runs.append((number, rows[alone], values[alone]))
        residuals = residuals_of(self.blocks, runs)
        return Estimates.of((*residuals, *coupled_residuals(self.system, by_block(measured))), self.measures)

    def variances(self, group: Table) -> Array:
        result = self.alone.variances(group)
        more = self.coupled.variances(group)
        return result if more is None else result + more.reshape(-1)

    def summed(self, group: Table, *, weighted: bool) -> float:
        return self.alone.summed(group, weighted=weighted) + self.coupled.total(group, weighted=weighted)

    def run_total(self, tables: TableRun) -> float | None:
        alone = self.alone.run_total(tables) or 0.0
        return alone + math.fsum(self.coupled.total(group, weighted=False) for group in tables)

    def largest(self, group: Table) -> float:
        return super().largest(group) if self.coupled.asked(group) else self.alone.largest(group)

    def covariances(self, left: Table, right: Table) -> Array:
        result = self.alone.covariances(left, right)
        more = self.coupled.covariance(left, right)
        return result if more is None else result + more


def _by_size(residuals: list[Residual]) -> tuple[Subsets, ...]:
    """Residuals as arrays of rows of one length."""
    lengths = sorted({len(found) for found in residuals})
    rows = [[found for found in residuals if len(found) == length] for length in lengths]
    return tuple(
        np.array(some, dtype=np.int32).reshape(len(some), length)
        for some, length in zip(rows, lengths, strict=True)
    )
