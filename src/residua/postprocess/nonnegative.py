"""Non-negative tables that agree on every margin, found from the total upwards.

First the total, then every one-way margin given the total, every two-way margin given its one-way margins,
and so on: each the nearest to the unbiased estimate in its own true covariance, given what is below it. From
three attributes on, given margins may leave no non-negative table; then the tables of one size are solved
together and the margins on two and more attributes give way, reluctantly (claims P-102 to P-105).

Why not all at once, in the one joint covariance? Cutting off negative noise in thousands of cells pushes
them up, and the cheapest way up is a larger total: it would end many standard errors too high.
"""

from collections.abc import Collection, Sequence

import numpy as np

from residua._arrays import Array, Subset
from residua.errors import WorkloadError
from residua.linalg.matrices import subsets_of, threads_for
from residua.postprocess.facts import Facts, margin_of
from residua.postprocess.margins import with_margins, with_total
from residua.postprocess.pieces import PieceErrors, Stack, TableSet, alike, as_subsets, centred, spread
from residua.postprocess.splitting import Splitting

STIFFNESS = 10.0  # of margins against the tables above them, where they must give way
NEAR = 1e-5  # of the noise: how far a local table is solved before its margins are set right
TOGETHER = 1e-8  # records: how far tables are solved together


def nonnegative_tables(tables: TableSet, errors: PieceErrors, facts: Facts) -> TableSet:
    """The nearest non-negative tables that agree with each other and with the facts."""
    if any(subset not in tables for subset in facts.allowed):
        raise WorkloadError(
            "a fact about impossible cells is on attributes that are in no table together; publish such a "
            "table, or leave the fact out"
        )
    with threads_for(0):
        return _Walk(tables, errors, facts).solve()


class _Walk:
    """The pieces found so far, and tables that are solved."""

    def __init__(self, tables: TableSet, errors: PieceErrors, facts: Facts) -> None:
        self.tables, self.errors, self.facts = tables, errors, facts
        self.pieces: dict[Subset, Array] = {
            subset: centred(tables.marginal(subset)) for subset in tables.places
        }
        self.solved: dict[Subset, Array] = {}

    def solve(self) -> TableSet:
        for subset in self.tables.places:
            known = self.facts.margin(subset)
            if known is not None:
                self._settle(subset, known)
        if () not in self.solved:
            self._settle((), np.maximum(self.pieces[()], 0.0))
        for subset in self._unsolved(1):
            self._one_way(subset)
        for several in alike({subset: self.pieces[subset] for subset in self._unsolved(2)}, self.errors):
            self._two_way(several)
        for ways in range(3, self.tables.ways + 1):
            self._together(self.tables.subsets(ways), least=2)
        if any(len(subset) > 1 for subset in self.facts.allowed):
            self._together([row for stack in self.tables.stacks for row in stack.rows()], least=1)
        return self.tables.with_tables(self.solved)

    def _unsolved(self, ways: int) -> list[Subset]:
        return [subset for subset in self.tables.subsets(ways) if subset not in self.solved]

    def _settle(self, subset: Subset, cells: Array) -> None:
        """Take a table as solved."""
        self.solved[subset] = cells
        self.pieces[subset] = centred(cells)

    def _one_way(self, subset: Subset) -> None:
        (cells,) = self._local([subset])
        mask, result = self.facts.cells(subset, cells.shape), np.zeros_like(cells)
        result[mask] = with_total(cells[mask][None], self.solved[()].reshape(1))[0]
        self._settle(subset, result)

    def _two_way(self, several: list[Subset]) -> None:
        rows, columns = (
            np.stack([self.solved[subset[at : at + 1]] for subset in several]) for at in range(2)
        )
        made = with_margins(self._local(several), rows, columns)
        for subset, found in zip(several, made, strict=True):
            self._settle(subset, found)

    def _local(self, several: list[Subset]) -> Array:
        """Tables that move in their own piece only, all with the same covariance but for a factor.

        Where that is even they are left as they are: the nearest with given margins are found at once.
        """
        if self.errors[several[0]].even:
            return self._stacks(several)[0].cells
        fixed = self._stacks(several, several)
        noise = np.sqrt(min(self.errors[subset].variance for subset in several))
        targets = {subset: self.pieces[subset] for subset in several}
        return Splitting(fixed, None, targets, self.errors).solve(NEAR * float(noise))[0]

    def _together(self, subsets: Sequence[Subset], least: int) -> None:
        """Solve tables that share margins; pieces on at least so many attributes move."""
        every = [(part, subset) for subset in subsets for part in subsets_of(subset, least)]
        parts = {part for part, _ in every if self.facts.margin(part) is None}
        if not parts:
            return  # all are known, and settled
        below = {part for part, subset in every if len(part) < len(subset)}
        targets = {part: self.pieces[part] for part in sorted(parts, key=lambda part: (len(part), part))}
        fixed = self._stacks(subsets, parts)
        masks = ([self.facts.cells(row, stack.sizes) for row in stack.rows()] for stack in fixed)
        allowed = [np.stack(own) for own in masks] if self.facts.allowed else None
        stiffness = dict.fromkeys(parts & below, STIFFNESS)
        problem = Splitting(fixed, allowed, targets, self.errors, stiffness)
        for number, (stack, made) in enumerate(zip(fixed, problem.solve(TOGETHER), strict=True)):
            for row, table in zip(stack.rows(), problem.cut(number, made), strict=True):
                for part in subsets_of(row, least):
                    self._settle(part, margin_of(table, row, part))

    def _stacks(self, subsets: Sequence[Subset], without: Collection[Subset] = ()) -> list[Stack]:
        """Tables made of the present pieces, but for those in `without`, stacked by shape."""
        classes: dict[tuple[int, ...], list[Subset]] = {}
        for subset in subsets:
            classes.setdefault(self.pieces[subset].shape, []).append(subset)
        return [self._stack(rows, sizes, {*without}) for sizes, rows in classes.items()]

    def _stack(self, rows: list[Subset], sizes: tuple[int, ...], without: set[Subset]) -> Stack:
        subsets, cells = as_subsets(rows), np.zeros((len(rows), *sizes))
        for places in subsets_of(range(len(sizes))):
            parts = [tuple(row[place] for place in places) for row in rows]
            here = [at for at, part in enumerate(parts) if part not in without]
            if here:
                stacked = np.stack([self.pieces[parts[at]] for at in here])
                cells[here] += spread(stacked, places, sizes)
        return Stack(subsets, cells)
