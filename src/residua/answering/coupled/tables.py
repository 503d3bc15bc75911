"""How one table meets coupled blocks: what it asks of private and of shared coordinates (claim O-003).

Tables and blocks that differ only in the names of attributes give the same arrays, so these are kept; only
noise, and the covariance of the shared coordinates, are each table's own.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from residua._arrays import Array
from residua._limits import COVARIANCE_CELLS, KEPT_FIGURES, SCRATCH
from residua.answering.blocks import Memory, outer
from residua.answering.coupled.residuals import BlockClass, Places, dimension, part_of, turned
from residua.answering.independent.parts import CANCELLED
from residua.answering.kronecker import ProductPart
from residua.linalg.matrices import VANISHING, Measure, project
from residua.workload import Factor, Queries
from residua.workload.union import refuse_wide

ROUNDING = float(np.finfo(np.float64).eps)
CLOSE = 1e-6  # relative error that is allowed of variances that are read off the covariance of cells

Asked = tuple[list[Array | None], Array]
"""What queries ask of each owner at noise 1, (rows..., k) or nothing, and of shared coordinates."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A table and the coupled blocks it asks something of, with attributes numbered in ascending order.

    `owners` are the blocks that alone see something that is asked, with their attributes; `shared` are the
    shared residuals that the table or one of the owners touches; `asked` are all residuals of the table that
    are coupled. `measures` has one entry per attribute.
    """

    factors: tuple[tuple[Queries, Places], ...]
    measures: tuple[Measure, ...]
    owners: tuple[tuple[BlockClass, Places], ...]
    shared: tuple[Places, ...]
    asked: tuple[Places, ...]

    def dimension(self, kept: Places) -> int:
        """Dimension of a residual."""
        return dimension([self.measures[at].size for at in kept])

    @property
    def starts(self) -> dict[Places, int]:
        """Where each shared residual begins among the shared coordinates of this meeting."""
        ends = np.cumsum([0, *map(self.dimension, self.shared)]).tolist()
        return dict(zip(self.shared, ends, strict=False))

    @property
    def width(self) -> int:
        """Number of shared coordinates."""
        return sum(map(self.dimension, self.shared))

    def within(self, factor: int, kept: Places) -> Places:
        """The part of a residual that lies on the attributes of one family."""
        return tuple(at for at in kept if at in self.factors[factor][1])

    def turned(self, factor: int, rows: Array) -> Array:
        """Rows of one family in all their coordinates, axes in the order of its attributes."""
        return turned(*self._ascending(factor, rows))

    def part(self, factor: int, tensor: Array, kept: Places) -> Array:
        """Those of turned rows in a residual on its attributes, in the order of those."""
        own = sorted(self.factors[factor][1])
        return part_of(tensor, [own.index(at) for at in kept])

    def means(self, factor: int, rows: Array) -> Array:
        """Mean of each row of one family, (rows,)."""
        return project(*self._ascending(factor, rows), ())[:, 0]

    def _ascending(self, factor: int, rows: Array) -> tuple[Array, list[int], list[Measure]]:
        """Rows of one family over its cells with attributes ascending; sizes and measures of those."""
        queries, attributes = self.factors[factor]
        order = np.argsort(attributes)
        tensor = rows.reshape(len(rows), *queries.sizes).transpose(0, *(1 + order))
        sizes = [queries.sizes[place] for place in order]
        return tensor.reshape(len(rows), -1), sizes, [self.measures[at] for at in sorted(attributes)]


class _Products:
    """Every product of one row from each of some families, in coordinates."""

    def __init__(
        self, meeting: Meeting, factors: Sequence[int], rows: Sequence[Array], turned: dict[int, Array]
    ) -> None:
        self.meeting, self.factors, self.rows = meeting, factors, rows
        self.counts = [len(each) for each in rows]
        self._turned = turned  # rows of families whose coordinates are known
        self._parts: dict[tuple[int, Places], Array] = {}

    def pieces(self, kept: Places) -> Iterator[tuple[Places, Array]]:
        """For each family its part of a residual, and the coordinates of its rows there."""
        for factor, rows in zip(self.factors, self.rows, strict=True):
            own = self.meeting.within(factor, kept)
            if (factor, own) not in self._parts:
                if factor not in self._turned:
                    self._turned[factor] = self.meeting.turned(factor, rows)
                self._parts[factor, own] = self.meeting.part(factor, self._turned[factor], own)
            yield own, self._parts[factor, own]

    def through(self, kept: Places, matrix: Array) -> Array:
        """Coordinates in a residual times a matrix, (dimension, k) to (rows..., k)."""
        pieces = list(self.pieces(kept))
        if len(pieces) == 1:  # whose attributes ascend, as those of the residual do
            return np.asarray(pieces[0][1] @ matrix)
        sizes = [self.meeting.measures[at].size - 1 for at in kept]
        order = [kept.index(at) for own, _ in pieces for at in own]
        tensor = matrix.reshape(*sizes, -1).transpose(*order, len(order))
        for _, rows in pieces:
            # Each family's axis is used up in front and its rows come out behind: k ends up in front.
            flat = tensor.reshape(rows.shape[1], -1)
            tensor = np.moveaxis((rows @ flat).reshape(len(rows), -1), 0, -1)
        return np.moveaxis(tensor.reshape(matrix.shape[1], *self.counts), 0, -1)

    def lengths(self, residuals: Iterable[Places]) -> Array:
        """Squared length of each product in some residuals together, (rows...)."""
        each = (outer(np.sum(rows**2, axis=1) for _, rows in self.pieces(kept)) for kept in residuals)
        return np.asarray(sum(each, np.zeros(self.counts)))

    def scales(self, lengths: Array) -> Array:
        """What squared lengths are compared with: no digits are left of much smaller ones."""
        return lengths + CANCELLED * outer(np.sum(rows**2, axis=1) for rows in self.rows)


class MetTable:
    """The figures of one meeting that do not depend on noise; tables with an equal meeting share them.

    Of families that no coupled residual is centred along, only the means count: `touched` are the others.
    """

    def __init__(self, meeting: Meeting, memory: Memory) -> None:
        self.meeting, self._memory = meeting, memory
        for queries, _ in meeting.factors:
            refuse_wide(queries)
        self._queries = [queries for queries, _ in meeting.factors]
        self._roots = [queries.root() for queries in self._queries]
        self._turned = [meeting.turned(factor, root) for factor, root in enumerate(self._roots)]
        self.alive = list(self._not_empty())
        """Asked residuals in which the table has a part that is not zero."""
        wanted = {at for kept in self.alive for at in kept}
        self.touched = [at for at, (_, own) in enumerate(meeting.factors) if wanted & set(own)]
        self._sums = Memory()
        self._few: list[tuple[list[Array], Array]] | None = None

    def _not_empty(self) -> Iterator[Places]:
        """Residuals in which the table has something, judged by rows that span each family."""
        if all(len(root) == root.shape[1] for root in self._roots):
            yield from self.meeting.asked  # families of full rank have something everywhere
            return
        least = [VANISHING * np.linalg.norm(root, axis=1) for root in self._roots]
        there: dict[tuple[int, Places], bool] = {}
        for kept in self.meeting.asked:
            own = [(factor, self.meeting.within(factor, kept)) for factor in range(len(self._roots))]
            for factor, within in own:
                if (factor, within) not in there:
                    part = np.linalg.norm(self.meeting.part(factor, self._turned[factor], within), axis=1)
                    there[factor, within] = bool(np.any(part > least[factor]))
            if all(there[each] for each in own):
                yield kept

    def _products(self, rows: Sequence[Array]) -> _Products:
        """Products of rows of the touched families."""
        known = {
            at: self._turned[at] for at, own in zip(self.touched, rows, strict=True) if own is self._roots[at]
        }
        return _Products(self.meeting, self.touched, rows, known)

    def _spanning(self) -> _Products:
        return self._products([self._roots[at] for at in self.touched])

    def _private(self, number: int) -> list[tuple[Places, slice]]:
        """What is asked of an owner: private residuals, and where each is among its private coordinates."""
        block, attributes = self.meeting.owners[number]
        named = ((tuple(attributes[place] for place in kept), run) for kept, run in block.private_runs)
        return [(kept, run) for kept, run in named if kept in self.alive]

    def _asked(self, products: _Products) -> Asked:
        """What every product asks of each owner, and of shared coordinates in the end."""
        needed = np.zeros((*products.counts, self.meeting.width))
        starts = self.meeting.starts
        for kept in self.alive:
            if kept in starts:
                size = self.meeting.dimension(kept)
                needed[..., starts[kept] : starts[kept] + size] += products.through(kept, np.eye(size))
        gained: list[Array | None] = []
        for number, (block, attributes) in enumerate(self.meeting.owners):
            found, asked = block.reduced(self._memory), self._private(number)
            if not asked:
                gained.append(None)
                continue
            both = np.concatenate([found.gain, found.carry], axis=1)
            total = reduce(np.add, (products.through(kept, both[run]) for kept, run in asked))
            gained.append(total[..., : found.private_rank])
            end = found.private_rank
            for kept in block.shared:
                named = tuple(attributes[place] for place in kept)
                size = self.meeting.dimension(named)
                needed[..., starts[named] : starts[named] + size] -= total[..., end : end + size]
                end += size
        return gained, needed

    @cached_property
    def outside(self) -> float:
        """Largest share of a query's squared length in private coordinates that its owner does not see."""
        worst, products = 0.0, self._spanning()
        for number, (block, _) in enumerate(self.meeting.owners):
            seen, asked = block.reduced(self._memory).seen, self._private(number)
            if seen is not None and asked:
                inside = np.sum([products.through(kept, seen[run]) for kept, run in asked], axis=0)
                lengths = products.lengths(kept for kept, _ in asked)
                share = (lengths - np.sum(inside**2, axis=-1)) / products.scales(lengths)
                worst = max(worst, float(share.max()))
        return worst

    @cached_property
    def spanning(self) -> tuple[Array, Array]:
        """What rows that span the table need of shared coordinates, (k, width), and a scale of each, (k,)."""
        products = self._spanning()
        scales = products.scales(products.lengths(self.alive))
        return _flat(self._asked(products)[1]), scales.reshape(-1)

    def sums(self, *, weighted: bool) -> tuple[list[float], Array]:
        """Over all queries: squared length of what each owner is asked, and a root R of the rest, (k, width).

        The squared lengths of `R L` and of what all queries need times L are equal.
        """
        return self._sums.of(weighted, lambda: self._summed(weighted))

    def _summed(self, weighted: bool) -> tuple[list[float], Array]:
        rows = [
            queries.matrix() if not weighted and queries.weights is not None else root
            for queries, root in zip(self._queries, self._roots, strict=True)
        ]
        owned = np.zeros(len(self.meeting.owners))
        root = np.zeros((0, self.meeting.width))
        for products in self._pieces(rows):
            gained, needed = self._asked(products)
            owned += [0.0 if each is None else float(np.sum(each**2)) for each in gained]
            root = np.concatenate([root, _flat(needed)])
            if len(root) > root.shape[1]:
                root = np.asarray(np.linalg.qr(root, mode="r"))
        means = [self.meeting.means(at, each) for at, each in enumerate(rows) if at not in self.touched]
        others = math.prod(float(mean @ mean) for mean in means)
        return (owned * others).tolist(), root * math.sqrt(others)

    def variances(self, noise: Sequence[float], root: Array) -> Array:
        """Variance of each query, shape (count of each family...), at this noise of the owners.

        `root` is a root of the covariance of the shared coordinates, (width, k).
        """
        own = [self._queries[at] for at in self.touched]
        counts = [each.count for each in own]
        cells, found = math.prod(each.cells for each in own), None
        if cells <= COVARIANCE_CELLS and math.prod(counts) > cells:
            found = self._from_cells(noise, root)
        if found is None:
            parts = []
            for squares, needed in self._listed():
                pairs = zip(noise, squares, strict=True)
                parts.append(np.sum((needed @ root) ** 2, axis=-1) + sum(v * each for v, each in pairs))
            found = np.concatenate(parts, axis=int(np.argmax(counts))) if own else parts[0]
        return found.reshape(self._shape(found.shape)) * outer(mean**2 for mean in self._means())

    def _from_cells(self, noise: Sequence[float], root: Array) -> Array | None:
        """The same for more queries than cells, each family in its own quick way.

        None where large variances of cells may have cancelled in small ones of queries.
        """
        squares, needed = self._cells
        spread = needed @ root
        square = spread @ spread.T
        for variance, own in zip(noise, squares, strict=True):
            square += variance * own
        pairs = [self.meeting.factors[at] for at in self.touched]
        factors = tuple(Factor(attributes, queries) for queries, attributes in pairs)
        found = ProductPart(factors, square).variances()
        rounding = ROUNDING * len(square) ** 2 * float(np.diagonal(square).max())
        return found if rounding <= CLOSE * float(found.min()) else None

    @cached_property
    def _cells(self) -> tuple[list[Array], Array]:
        """For the touched cells the square of what is asked of each owner, and what is needed."""
        gained, needed = self._asked(self._products([np.eye(self._queries[at].cells) for at in self.touched]))
        flat, cells = _flat(needed), math.prod(needed.shape[:-1])
        rows = [np.zeros((cells, 0)) if each is None else _flat(each) for each in gained]
        return [each @ each.T for each in rows], flat

    def _listed(self) -> Iterable[tuple[list[Array], Array]]:
        """What queries ask of each owner, squared, and what they need, some at a time; kept where few."""
        if self._few is not None:
            return self._few
        rows = [queries.matrix() for queries in self._queries]
        pieces = (
            ([np.zeros(()) if each is None else np.sum(each**2, axis=-1) for each in gained], needed)
            for gained, needed in map(self._asked, self._pieces(rows))
        )
        count = math.prod(len(rows[at]) for at in self.touched)
        if count * (self.meeting.width + len(self.meeting.owners)) > KEPT_FIGURES:
            return pieces
        self._few = list(pieces)
        return self._few

    def coefficients(self) -> Asked:
        """For every query what it asks of each owner, (count, k), and of shared coordinates."""
        gained, needed = self._asked(self._products([self._queries[at].matrix() for at in self.touched]))
        means = outer(self._means())[..., None]

        def rows(values: Array) -> Array:
            return _flat(values.reshape(*self._shape(values.shape[:-1]), values.shape[-1]) * means)

        return [None if each is None else rows(each) for each in gained], rows(needed)

    def _means(self) -> list[Array]:
        """Means of the queries of each family that is not touched; one for each other."""
        families = enumerate(self._queries)
        return [
            np.ones(1) if at in self.touched else self.meeting.means(at, queries.matrix())
            for at, queries in families
        ]

    def _shape(self, counts: Sequence[int]) -> list[int]:
        """Lengths of axes for all families, from those of the touched ones."""
        known = dict(zip(self.touched, counts, strict=True))
        return [known.get(at, 1) for at in range(len(self._queries))]

    def _pieces(self, rows: Sequence[Array]) -> Iterator[_Products]:
        """The products of rows, some rows of the longest family at a time, so that what is listed fits."""
        own = [rows[at] for at in self.touched]
        if not own:
            yield self._products(own)
            return
        counts = [len(each) for each in own]
        longest = int(np.argmax(counts))
        blocks = [block for block, _ in self.meeting.owners]
        widths = [block.reduced(self._memory).private_rank for block in blocks]
        others = math.prod(counts) // counts[longest]
        step = max(1, SCRATCH // max(1, others * max([self.meeting.width, *widths])))
        if step >= counts[longest]:
            yield self._products(own)
            return
        for start in range(0, counts[longest], step):
            some = own[longest][start : start + step]
            yield self._products([*own[:longest], some, *own[longest + 1 :]])


def _flat(tensor: Array) -> Array:
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
