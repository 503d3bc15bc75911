"""Blocks that overlap: figures and estimates by least squares over all of them (claims O-003, O-004)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residua._arrays import Array, Indices
from residua._limits import COUPLED_QUERIES
from residua.answering.blocks import Blocks, Measured, by_block, stacked
from residua.answering.coupled.residuals import Residual, divided, lifted
from residua.answering.coupled.system import System
from residua.answering.coupled.tables import Meeting, MetTable
from residua.answering.independent.answerer import Independent, residuals_of
from residua.answering.independent.parts import SPAN_TOLERANCE
from residua.answering.protocol import Answerer, Estimates, not_in_span
from residua.linalg.matrices import subsets_of
from residua.workload import Table, TableRun

REFINEMENTS = 1  # of the shared coordinates, for what rounding leaves where noise differs widely


@dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """A table with the blocks of one system: numbers and noise of its owners, its shared coordinates."""

    table: MetTable
    owners: tuple[int, ...]
    noise: list[float]
    indices: Indices


class Coupled(Answerer):
    """Blocks on any subsets of attributes, centred or not, whose row spaces may overlap."""

    most_listed = COUPLED_QUERIES

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.measures = blocks, blocks.measures
        alone, coupled = divided(blocks)
        self.system = System(blocks.measures, coupled, blocks.memory)
        elsewhere = tuple(rows for rows, _ in stacked([*self.system.owners, *self.system.places]))
        self.alone = Independent(replace(blocks, layers=alone), elsewhere)
        self.shared = self.system.dimension

    def notes(self) -> Iterator[str]:
        together = f"{len(self.system.blocks):,} of these blocks overlap and are answered together"
        yield f"{together}; they share {self.shared:,} dimensions"

    def variances(self, group: Table) -> Array:
        result, met = self.alone.variances(group), self._met(group)
        if met is None:
            return result
        return result + met.table.variances(met.noise, self.system.root_of(met.indices)).reshape(-1)

    def summed(self, group: Table, *, weighted: bool) -> float:
        together = self._coupled_sum(group, weighted=weighted)
        if not self.alone.blocks.layers and len(self._asked(group)) == 2 ** len(group.attributes):
            return together
        return self.alone.summed(group, weighted=weighted) + together

    def run_total(self, tables: TableRun) -> float | None:
        alone = self.alone.run_total(tables) or 0.0
        return alone + math.fsum(self._coupled_sum(group, weighted=False) for group in tables)

    def _coupled_sum(self, group: Table, *, weighted: bool) -> float:
        met = self._met(group)
        if met is None:
            return 0.0
        owned, root = met.table.sums(weighted=weighted)
        private = math.fsum(variance * each for variance, each in zip(met.noise, owned, strict=True))
        return private + float(np.sum((root @ self.system.root_of(met.indices)) ** 2))

    def largest(self, group: Table) -> float:
        return super().largest(group) if self._asked(group) else self.alone.largest(group)

    def covariances(self, left: Table, right: Table) -> Array:
        result, ours, theirs = self.alone.covariances(left, right), self._met(left), self._met(right)
        if ours is None or theirs is None:
            return result
        (owned, needed), (their_owned, their_needed) = ours.table.coefficients(), theirs.table.coefficients()
        result = result + self.system.between(needed, ours.indices, their_needed, theirs.indices)
        others = dict(zip(theirs.owners, their_owned, strict=True))
        for number, noise, rows in zip(ours.owners, ours.noise, owned, strict=True):
            columns = others.get(number)
            if rows is not None and columns is not None:
                result = result + noise * (rows @ columns.T)
        return result

    def estimates(self, measured: Measured) -> Estimates:
        """Residuals of blocks that stand alone from their own numbers, the others from all together."""
        runs, together, measured = [], [], list(measured)
        for number, rows, values in measured:
            coupled = [block.row for block in self.system.blocks if block.layer == number]
            alone = ~np.isin(rows, coupled)
            if alone.any():
                runs.append((number, rows[alone], values[alone]))
        measures, numbers = self.blocks.measures, by_block(measured)
        solved = _solved(self.system, [numbers[block.layer, block.row] for block in self.system.blocks])
        for subsets, residuals in stacked(solved, lambda kept: tuple(measures[at].size for at in kept)):
            sizes = [measures[at].size for at in residuals[0]]
            together.append((subsets, lifted(np.stack([solved[each] for each in residuals]), sizes)))
        return Estimates.of((*residuals_of(self.blocks, runs), *together), measures)

    def _asked(self, group: Table) -> list[Residual]:
        """The residuals of coupled blocks that a table may ask something of."""
        residuals = subsets_of(sorted(group.attributes))
        return [found for found in residuals if found in self.system.owners or found in self.system.places]

    def _met(self, group: Table) -> _Met | None:
        """How a table meets coupled blocks, None if not at all; refused if they cannot answer it."""
        system, asked = self.system, self._asked(group)
        if not asked:
            return None
        owners = tuple(sorted({system.owners[found] for found in asked if found in system.owners}))
        blocks = [system.blocks[number] for number in owners]
        shared = {found for found in asked if found in system.places}
        shared.update(residual for block in blocks for residual in block.shared)
        residuals = sorted(shared, key=lambda found: (len(found), found))
        involved = sorted({*group.attributes, *(at for block in blocks for at in block.attributes)})
        names = {at: number for number, at in enumerate(involved)}

        def named(attributes: Sequence[int]) -> tuple[int, ...]:
            return tuple(names[at] for at in attributes)

        meeting = Meeting(
            tuple((factor.queries, named(factor.attributes)) for factor in group.factors),
            tuple(system.measures[at] for at in involved),
            tuple((block.block_class, named(block.attributes)) for block in blocks),
            tuple(map(named, residuals)),
            tuple(map(named, asked)),
        )
        table = system.memory.of(meeting, lambda: MetTable(meeting, system.memory))
        met = _Met(table, owners, [block.noise for block in blocks], system.indices(residuals))
        self._refuse_outside(met, group)
        return met

    def _refuse_outside(self, met: _Met, group: Table) -> None:
        outside = met.table.outside
        unseen = self.system.unseen(met.indices)
        if unseen is not None and outside <= SPAN_TOLERANCE:
            needed, lengths = met.table.spanning
            lost = np.sum((needed @ unseen) ** 2, axis=1)
            outside = float(np.max(lost / lengths, initial=0.0))
        if outside > SPAN_TOLERANCE:
            told = f"table {group.name!r} asks for more than the plan measures"
            raise not_in_span(told, sorted(group.attributes))


def _solved(system: System, numbers: Sequence[Array]) -> dict[Residual, Array]:
    """Coordinates of every coupled residual, by least squares over the numbers of all blocks."""
    reduced = [block.block_class.reduced(system.memory) for block in system.blocks]
    places = [system.indices(block.shared) for block in system.blocks]
    # Numbers about private coordinates first, then those about shared ones.
    turned = [own @ found.left for own, found in zip(numbers, reduced, strict=True)]
    shared = np.zeros(system.dimension)
    for _ in range(1 + REFINEMENTS):
        sums = np.zeros(system.dimension)
        for block, found, at, own in zip(system.blocks, reduced, places, turned, strict=True):
            left = own[found.private_rank :] - found.spread @ shared[at]
            sums[at] += left @ found.spread / block.noise
        shared = shared + system.solve(sums)
    result = {residual: shared[slice(*run)] for residual, run in system.places.items()}
    for block, found, at, own in zip(system.blocks, reduced, places, turned, strict=True):
        private = found.gain @ own[: found.private_rank] - found.carry @ shared[at]
        runs = block.block_class.private_runs
        result |= {block.residual(kept): private[run] for kept, run in runs}
    return result
