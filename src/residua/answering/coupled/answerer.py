"""Answers from blocks that overlap: each measures any rows of its marginal, and all are used together.

`X = sum_B E_B' M_B' M_B E_B / noise_B`, and a query's best answer has the variance `q X^- q'`. In residual
coordinates most blocks see something that no other sees; that is eliminated block by block, and what is left
is one small system on shared coordinates (claims O-001 to O-004). Blocks that are centred and alone on their
residual are never multiplied out: they are answered as independent ones.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Blocks, Measured, by_block
from residua.answering.coupled.estimates import coupled_residuals
from residua.answering.coupled.figures import Coupling
from residua.answering.coupled.kinds import Residual, divided
from residua.answering.coupled.system import System
from residua.answering.estimates import Estimates
from residua.answering.independent.answerer import Independent, residuals_of
from residua.answering.protocol import TableByTable, refuse_large_covariance
from residua.workload import Table, TableRun

Array = NDArray[np.float64]
Subsets = NDArray[np.int32]

MOST_LISTED = 20_000_000  # queries whose variances are gone through to find the largest


class Coupled(TableByTable):
    """Blocks on any subsets of attributes, centred or not, whose row spaces may overlap."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.measures = blocks, blocks.measures
        self.division = divided(blocks)
        self.system = System(blocks.measures, self.division.coupled, blocks.memory)
        alone = replace(blocks, layers=self.division.alone)
        self.alone = Independent(alone, _by_size(self.system.residuals))
        self.coupled = Coupling(self.system)
        self.shared = self.system.dimension

    def notes(self) -> Iterator[str]:
        """How many blocks are answered together."""
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
        """Variance of each query's answer, shape (count,)."""
        result = self.alone.variances(group)
        more = self.coupled.variances(group)
        return result if more is None else result + more.reshape(-1)

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances; with `weighted`, each times the group's and the query's weight."""
        more = self.coupled.total(group, weighted=weighted) * (group.weight if weighted else 1.0)
        return self.alone.total(group, weighted=weighted) + more

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        if isinstance(part, Table) or part.joint is not None:
            return super().totals(part)
        weighted, plain = self.alone.totals(part)
        more = math.fsum(self.coupled.total(group, weighted=False) for group in part)
        return weighted + part.weight * more, plain + more

    def largest(self, group: Table) -> float:
        """Largest variance of the group's queries; nan if there are too many to go through."""
        if not self.coupled.asks(group):
            return self.alone.largest(group)
        self.total(group, weighted=False)  # refuses what is not measured, however many queries there are
        if not group.listable or group.count > MOST_LISTED:
            return math.nan
        return float(self.variances(group).max())

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two groups, shape (left.count, right.count)."""
        refuse_large_covariance(left, right)
        result = self.alone.covariance(left, right)
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
