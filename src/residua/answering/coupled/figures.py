"""Variances, sums and covariances of a table's answers from coupled blocks (claim O-003)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from residua._limits import COVARIANCE_CELLS, KEPT_FIGURES, SCRATCH
from residua.answering.blocks import Memory
from residua.answering.coupled.coordinates import subsets_of
from residua.answering.coupled.division import Residual
from residua.answering.coupled.system import Indices, System
from residua.answering.coupled.tables import Asked, Empty, Meeting, outer
from residua.answering.independent.parts import CANCELLED, SPAN_TOLERANCE
from residua.answering.kronecker import ProductPart
from residua.answering.protocol import not_in_span
from residua.workload import Factor, Table
from residua.workload.union import refuse_wide

Array = NDArray[np.float64]

ROUNDING = float(np.finfo(np.float64).eps)
CLOSE = 1e-6  # relative error that is allowed there


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Over all queries of a table: squared length of what each owner is asked, and a root of the rest.

    With `root`, (k, width), the squared lengths of `root L` and of what all queries need times L are equal.
    """

    owned: tuple[float, ...]
    root: Array


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Some queries of a table: what each asks of each owner, squared, and of shared coordinates.

    `squares` has (rows of each family...) for each owner; `others` are the squared means of families that
    `needed`, (rows of other families..., width), does not have.
    """

    squares: tuple[Array, ...]
    needed: Array
    others: Array

    def variances(self, noise: Sequence[float], root: Array) -> Array:
        """Variance of each query, (rows of each family...)."""
        result = np.sum((self.needed @ root) ** 2, axis=-1) * self.others
        for variance, squares in zip(noise, self.squares, strict=True):
            result = result + variance * squares
        return np.asarray(result)


def _figures_of(asked: Asked) -> Listed:
    """What every query of a table asks."""
    squares = []
    for number in range(len(asked.meeting.owners)):
        found = asked.owned(number)
        if found is None:
            squares.append(np.zeros(()))
        else:
            squares.append(asked.over_all(np.sum(found.gained**2, axis=-1), found.factors))
    factors, needed = asked.needed()
    counts = [len(rows) if at in factors else 1 for at, rows in enumerate(asked.rows)]
    others = outer(
        [np.ones(1) if at in factors else asked.part(at, ())[:, 0] ** 2 for at in range(len(counts))]
    )
    return Listed(tuple(squares), needed.reshape(*counts, needed.shape[-1]), others)


class MetTable:
    """The figures of one meeting that do not depend on noise; tables that meet blocks alike share them."""

    def __init__(self, meeting: Meeting, memory: Memory) -> None:
        self.meeting, self._memory = meeting, memory
        self._sums: dict[bool, Sums] = {}
        self._few: list[Listed] | None = None

    @cached_property
    def _roots(self) -> list[Array]:
        for queries, _ in self.meeting.factors:
            refuse_wide(queries)
        return [queries.root() for queries, _ in self.meeting.factors]

    @cached_property
    def _empty(self) -> Empty:
        return Empty(self.meeting, self._roots)

    def asked(self, rows: Sequence[Array]) -> Asked:
        """The table of every product of these rows."""
        return Asked(self.meeting, self._memory, rows, self._empty)

    @cached_property
    def outside(self) -> float:
        """Largest share of a query's squared length in private coordinates that its owner does not see."""
        return self.asked(self._roots).outside()

    @cached_property
    def spanning(self) -> tuple[Array, Array]:
        """What rows that span the table need of shared coordinates, (k, width), and a scale of each, (k,)."""
        asked = self.asked(self._roots)
        factors, needed = asked.needed()
        lengths = sum((asked.lengths(kept, factors) for kept in asked.alive), np.zeros(needed.shape[:-1]))
        wholes = outer([np.sum(self._roots[factor] ** 2, axis=1) for factor in factors])
        return _rows(needed), (lengths + CANCELLED * wholes).reshape(-1)

    def sums(self, *, weighted: bool) -> Sums:
        """Sums over all queries, each times its own weight if `weighted`."""
        if weighted not in self._sums:
            self._sums[weighted] = self._summed(weighted)
        return self._sums[weighted]

    def _summed(self, weighted: bool) -> Sums:
        rows = [
            queries.matrix() if not weighted and queries.weights is not None else root
            for (queries, _), root in zip(self.meeting.factors, self._roots, strict=True)
        ]
        owned = np.zeros(len(self.meeting.owners))
        root = np.zeros((0, self.meeting.width))
        for asked in self._pieces(rows):
            for number in range(len(owned)):
                found = asked.owned(number)
                if found is not None:
                    owned[number] += np.sum(found.gained**2) * _squares(asked.means(found.factors))
            factors, needed = asked.needed()
            more = _rows(needed) * math.sqrt(_squares(asked.means(factors)))
            root = _shortened(np.concatenate([root, more]))
        return Sums(tuple(owned.tolist()), root)

    def listed(self, noise: Sequence[float], root: Array) -> Array:
        """Variance of each query, shape (count of each family...), at this noise of the owners.

        `root` is a root of the covariance of the shared coordinates, (width, k).
        """
        queries = [queries for queries, _ in self.meeting.factors]
        cells = math.prod(each.cells for each in queries)
        if cells <= COVARIANCE_CELLS and math.prod(each.count for each in queries) > cells:
            quick = self._from_cells(noise, root)
            if quick is not None:
                return quick
        parts = [piece.variances(noise, root) for piece in self._listed()]
        longest = max(range(len(queries)), key=lambda factor: queries[factor].count, default=0)
        return np.concatenate(parts, axis=longest) if queries else parts[0]

    def _from_cells(self, noise: Sequence[float], root: Array) -> Array | None:
        """The same for more queries than cells, each family in its own quick way.

        None where large variances of cells may have cancelled in small ones of queries.
        """
        squares, needed = self._cells
        spread = needed @ root
        square = spread @ spread.T
        for variance, own in zip(noise, squares, strict=True):
            square += variance * own
        factors = tuple(Factor(attributes, queries) for queries, attributes in self.meeting.factors)
        found = ProductPart((), factors, square).variances()
        rounding = ROUNDING * len(square) ** 2 * float(np.diagonal(square).max())
        return found if rounding <= CLOSE * float(found.min()) else None

    @cached_property
    def _cells(self) -> tuple[list[Array], Array]:
        """For the cells of the table the square of what is asked of each owner, and what is needed."""
        owned, needed = self._expanded([np.eye(queries.cells) for queries, _ in self.meeting.factors])
        return [np.zeros((len(needed),) * 2) if rows is None else rows @ rows.T for rows in owned], needed

    def _listed(self) -> Iterable[Listed]:
        """All queries, some at a time; kept where they are few."""
        if self._few is not None:
            return self._few
        rows = [queries.matrix() for queries, _ in self.meeting.factors]
        pieces = map(_figures_of, self._pieces(rows))
        if math.prod(map(len, rows)) * (self.meeting.width + len(self.meeting.owners)) > KEPT_FIGURES:
            return pieces
        self._few = list(pieces)
        return self._few

    def coefficients(self) -> tuple[list[Array | None], Array]:
        """For every query what it asks of each owner, (count, k), and of shared coordinates."""
        return self._expanded([queries.matrix() for queries, _ in self.meeting.factors])

    def _expanded(self, rows: Sequence[Array]) -> tuple[list[Array | None], Array]:
        asked = self.asked(rows)
        found = [asked.owned(number) for number in range(len(self.meeting.owners))]
        owned = [None if each is None else asked.rows_of(each.gained, each.factors) for each in found]
        factors, needed = asked.needed()
        return owned, asked.rows_of(needed, factors)

    def _pieces(self, rows: list[Array]) -> Iterator[Asked]:
        """The table some rows of the longest family at a time, so that what is listed fits."""
        if not rows:
            yield self.asked(rows)
            return
        longest = max(range(len(rows)), key=lambda factor: len(rows[factor]))
        widths = [self._memory.of(kind, kind.reduce).private_rank for kind, _ in self.meeting.owners]
        others = math.prod(len(each) for at, each in enumerate(rows) if at != longest)
        step = max(1, SCRATCH // max(1, others * max([self.meeting.width, *widths])))
        for start in range(0, len(rows[longest]), step):
            some = list(rows)
            some[longest] = rows[longest][start : start + step]
            yield self.asked(some)


def _rows(tensor: Array) -> Array:
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def _shortened(rows: Array) -> Array:
    """No more rows than columns with the same gram."""
    return rows if len(rows) <= rows.shape[1] else np.asarray(np.linalg.qr(rows, mode="r"))


def _squares(means: Sequence[Array]) -> float:
    return math.prod(float(mean @ mean) for mean in means)


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A table with the blocks of one system: numbers of its owners, and its shared coordinates there."""

    table: MetTable
    owners: tuple[int, ...]
    indices: Indices


class Coupling:
    """Figures of tables from coupled blocks."""

    def __init__(self, system: System) -> None:
        self.system = system

    def variances(self, group: Table) -> Array | None:
        """Variance of each query from coupled blocks, (count of each family...); None if none is asked."""
        met = self._met(group)
        if met is None:
            return None
        noise = [self.system.blocks[number].noise for number in met.owners]
        return met.table.listed(noise, self.system.root_of(met.indices))

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances from coupled blocks, without the table's own weight."""
        met = self._met(group)
        if met is None:
            return 0.0
        sums = met.table.sums(weighted=weighted)
        noise = (self.system.blocks[number].noise for number in met.owners)
        private = math.fsum(variance * owned for variance, owned in zip(noise, sums.owned, strict=True))
        return private + float(np.sum((sums.root @ self.system.root_of(met.indices)) ** 2))

    def covariance(self, left: Table, right: Table) -> Array | None:
        """Covariance of the answers of two tables from coupled blocks, (left.count, right.count)."""
        ours, theirs = self._met(left), self._met(right)
        if ours is None or theirs is None:
            return None
        (owned, needed), (their_owned, their_needed) = ours.table.coefficients(), theirs.table.coefficients()
        result = self.system.between(needed, ours.indices, their_needed, theirs.indices)
        for number, rows in zip(ours.owners, owned, strict=True):
            for other, columns in zip(theirs.owners, their_owned, strict=True):
                if number == other and rows is not None and columns is not None:
                    result = result + self.system.blocks[number].noise * (rows @ columns.T)
        return result

    def asked(self, group: Table) -> list[Residual]:
        """The residuals of coupled blocks that a table may ask something of."""
        residuals = subsets_of(sorted(group.attributes))
        return [found for found in residuals if found in self.system.owners or found in self.system.places]

    def _met(self, group: Table) -> Met | None:
        """How a table meets the blocks, refused if it asks for more than they measure."""
        system = self.system
        asked = self.asked(group)
        if not asked:
            return None
        owners = tuple(sorted({system.owners[found] for found in asked if found in system.owners}))
        blocks = [system.blocks[number] for number in owners]
        shared = {found for found in asked if found in system.places}
        shared.update(block.residual(kept) for block in blocks for kept in block.kind.shared)
        residuals = sorted(shared, key=lambda found: (len(found), found))
        involved = sorted({*group.attributes, *(at for block in blocks for at in block.attributes)})
        names = {at: number for number, at in enumerate(involved)}

        def named(attributes: Sequence[int]) -> tuple[int, ...]:
            return tuple(names[at] for at in attributes)

        meeting = Meeting(
            tuple((factor.queries, named(factor.attributes)) for factor in group.factors),
            tuple(system.measures[at] for at in involved),
            tuple((block.kind, named(block.attributes)) for block in blocks),
            tuple(map(named, residuals)),
            tuple(map(named, asked)),
        )
        table = system.memory.of(meeting, lambda: MetTable(meeting, system.memory))
        met = Met(table, owners, system.indices(residuals))
        self._refuse_outside(met, group)
        return met

    def _refuse_outside(self, met: Met, group: Table) -> None:
        outside = met.table.outside
        unseen = self.system.unseen(met.indices)
        if unseen is not None and outside <= SPAN_TOLERANCE:
            needed, lengths = met.table.spanning
            lost = np.sum((needed @ unseen) ** 2, axis=1)
            outside = float(np.max(lost / lengths, initial=0.0))
        if outside > SPAN_TOLERANCE:
            told = f"table {group.name!r} asks for more than the plan measures"
            raise not_in_span(told, sorted(group.attributes))
