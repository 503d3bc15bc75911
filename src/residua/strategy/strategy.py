"""What is measured: one kind of strategy for every method.

A strategy is distinct matrices and runs of blocks that use them. Each block measures `multiplier * kron(its
matrices)` of the marginal on its attributes with independent noise of one law. A real strategy serves to be
compared with; an integer one has exact costs in grains and can be measured.

| symbol | meaning |
|---|---|
| shape | a distinct matrix, (rows, cells) |
| layer | a run of blocks whose attributes are shared out in one way among their matrices |
| domain | how blocks see the schema: cells or classes of cells, and the weights that centre each attribute |
| share, grain | the exact cost of a block is `share * 2^-grain` |
| query split | how a query is split between blocks that see cells and blocks that see classes of cells |
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from residua._arrays import AnyArray, Array, Integers
from residua._limits import COUNTED_CELLS
from residua.answering.blocks import Blocks, Layer, Measured, Memory, Placed, Shape, block_classes
from residua.answering.coarsened import Coarsened, QuerySplit
from residua.answering.coupled.answerer import Coupled
from residua.answering.diagonal import Diagonal
from residua.answering.independent.answerer import Independent
from residua.answering.kronecker import Kronecker
from residua.answering.nested import Nested, halves_of
from residua.answering.periods import Periods, whole_attributes
from residua.answering.places import Places
from residua.answering.protocol import Answerer, Estimates
from residua.answering.vector_places import VectorPlaces
from residua.errors import BudgetError, Infeasible
from residua.kernel.measurement import Measurement, column_costs, cost_power, matrix_cost
from residua.linalg.matrices import Measure
from residua.privacy import NoiseLaw
from residua.privacy.budgets import variance_ratio
from residua.workload import Table, TableRun
from residua.workload.queries import spelled
from residua.workload.views import View


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """How blocks see the schema: the cells of each attribute, weights on them, and the view by classes."""

    sizes: tuple[int, ...]
    measures: tuple[Measure, ...]
    view: View = field(default_factory=View)

    @classmethod
    def of(cls, sizes: Sequence[int], view: View | None = None) -> "Domain":
        """The domain with even weights everywhere."""
        return cls(tuple(sizes), tuple(Measure(size) for size in sizes), view or View())

    def to_manifest(self, start: str, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under names that begin with `start`."""
        tilted = {at: measure for at, measure in enumerate(self.measures) if measure.weights is not None}
        for at, measure in tilted.items():
            exact = measure.numerators
            arrays[f"{start}.measure.{at}"] = measure.vector() if exact is None else np.array(exact)
        for number, part in enumerate(self.view.parts):
            arrays[f"{start}.view.{number}"] = part.joint.classes
            for place, partitions in enumerate(part.partitions):
                arrays[f"{start}.view.{number}.{place}"] = partitions.classes
        view = [list(part.attributes) for part in self.view.parts]
        return {"sizes": list(self.sizes), "measures": sorted(tilted), "view": view}


def answerer_for(blocks: Blocks) -> Answerer:
    """The quickest answerer that suits the blocks of one domain; all give the same figures."""
    if len(blocks) == 1:
        return Kronecker(blocks)
    if blocks.independent:
        return Independent(blocks)
    if all(map(blocks.centred, blocks.layers)):
        return Coupled(blocks)
    whole = whole_attributes(blocks)
    if whole and blocks.different:
        return Periods(blocks, whole)
    halves = halves_of(blocks)
    if halves is not None:
        return Nested(blocks, halves)
    return Diagonal.of(blocks) or Coupled(blocks)


@dataclass(frozen=True, eq=False)
class Strategy:
    """Blocks, each measuring its marginal with independent noise, answered by least squares over all.

    Figures are those of the best linear unbiased answer. A table that the measurements cannot answer raises
    NotInSpan. `grain` is that of the exact costs of an integer strategy; a real one has none.

    >>> pair, one = Shape.independent((2, 2), np.eye(4)), Shape.independent((2,), np.eye(2))
    >>> layers = (
    ...     Layer(np.array([[0, 1]], np.int32), ((0, 1),), np.array([[0]]), np.array([0.5]), np.array([2.0])),
    ...     Layer(np.array([[0]], np.int32), ((0,),), np.array([[1]]), np.array([0.25]), np.array([4.0])),
    ... )
    >>> Strategy((Domain.of((2, 2)),), (pair, one), layers).cost()
    0.75
    """

    domains: tuple[Domain, ...]
    shapes: tuple[Shape, ...]
    layers: tuple[Layer, ...]
    law: NoiseLaw = "gaussian"
    grain: int | None = None
    query_splits: tuple[QuerySplit, ...] = ()
    memory: Memory = field(default_factory=Memory, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each attribute as the first domain sees it."""
        return self.domains[0].sizes

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Weights on the cells of each attribute in the first domain."""
        return self.domains[0].measures

    @property
    def coarsened(self) -> bool:
        """Whether some blocks see classes of cells instead of cells."""
        return not self.nested and (len(self.domains) > 1 or bool(self.domains[0].view.parts))

    @property
    def nested(self) -> bool:
        """Whether blocks are within the cells of an attribute, at several levels."""
        return any(layer.within is not None for layer in self.layers)

    @cached_property
    def by_vectors(self) -> bool:
        """Whether all blocks are within places and measure rows, not centred, over the same attributes."""
        layers = self.layers
        if any(layer.within is None or len(layer.layout) != 1 for layer in layers):
            return False
        alike = all(np.array_equal(layer.subsets[0], layers[0].subsets[0]) for layer in layers)
        return alike and not all(self.blocks(layer.domain).centred(layer) for layer in layers)

    def attributes(self) -> list[int]:
        """Attributes of the schema that some block looks at, ascending."""
        found: set[int] = set()
        for layer in self.layers:
            parts = {part.place: part.attributes for part in self.domains[layer.domain].view.parts}
            for at in {*np.unique(layer.subsets).tolist(), *([] if layer.within is None else [layer.within])}:
                found.update(parts.get(at, (at,)))
        return sorted(found)

    def single(self) -> tuple[tuple[int, ...], tuple[Placed, ...], float] | None:
        """Attributes, factors and noise of the only block; None where there are several, or classes."""
        if self.coarsened or sum(len(layer.noise) for layer in self.layers) != 1:
            return None
        return next(self.blocks().each())

    def blocks(self, domain: int = 0) -> Blocks:
        """The blocks that see one of the domains."""
        layers = tuple(layer for layer in self.layers if layer.domain == domain)
        seen = self.domains[domain]
        return Blocks(seen.sizes, seen.measures, self.shapes, layers, self.grain is not None, self.memory)

    @cached_property
    def answerer(self) -> Answerer:
        """How figures and estimates of these blocks are computed."""
        if self.nested:
            way = VectorPlaces if self.by_vectors else Places
            return way(self.levels(), replace(self.blocks(), layers=self.layers))
        if not self.coarsened:
            return answerer_for(self.blocks())
        numbers = range(len(self.domains))
        parts = [(self.domains[at].view, answerer_for(self.blocks(at))) for at in numbers]
        layers = [[n for n, layer in enumerate(self.layers) if layer.domain == at] for at in numbers]
        return Coarsened(parts, self.query_splits, layers)

    def variances(self, group: Table) -> Array:
        """Variance of each query's answer, shape (count,)."""
        return self.answerer.variances(group)

    def total(self, group: Table, *, weighted: bool) -> float:
        """Sum of the variances, without listing them; with `weighted`, times each query's weight."""
        return self.answerer.total(group, weighted=weighted)

    def totals(self, part: Table | TableRun) -> tuple[float, float]:
        """Weighted and unweighted sum of the variances of one table, or of a run of tables at once."""
        answerer = self.answerer
        at_once = answerer.run_total(part) if isinstance(part, TableRun) and part.joint is None else None
        if at_once is not None:
            return part.weight * at_once, at_once
        weighted = plain = 0.0
        for group in part:
            alike = all(queries.weights is None for queries in group.families)
            own = answerer.total(group, weighted=False)
            weighted += own * group.weight if alike else answerer.total(group, weighted=True)
            plain += own
        return weighted, plain

    def largest(self, group: Table) -> float:
        """Largest variance of the table's queries; nan if there are too many to go through."""
        return self.answerer.largest(group)

    def covariance(self, left: Table, right: Table) -> Array:
        """Covariance of the answers of two tables, shape (left.count, right.count)."""
        return self.answerer.covariance(left, right)

    def runs(self) -> Iterator[tuple[int, Integers]]:
        """Blocks with equal matrices, in the order in which they are measured: layer, and rows there."""
        for number, layer in enumerate(self.layers):
            for rows in block_classes(self.domains[layer.domain].measures, layer):
                yield number, rows

    def estimates(self, measured: Measured) -> Estimates:
        """Least-squares estimates from measured numbers, in units of the matrices."""
        return self.answerer.estimates(measured)

    def cost(self) -> float:
        """Privacy cost of adding or removing one record: the sum of the blocks' costs.

        `max_i X_ii` or a bound on it for Gaussian noise; an epsilon for Laplace noise.
        """
        return math.fsum(float(np.sum(own)) for own in self._added([layer.costs for layer in self.layers]))

    def levels(self) -> tuple[Integers | None, ...]:
        """For each layer within an attribute the block of each of its cells; None for any other."""
        found: list[Integers | None] = []
        for layer in self.layers:
            parts = {part.place: part for part in self.domains[layer.domain].view.parts}
            known = parts.get(-1 if layer.within is None else layer.within)
            cells = np.arange(len(layer.noise)) if known is None else known.partitions[0].classes
            found.append(None if layer.within is None else cells)
        return tuple(found)

    def _added(self, costs: Sequence[AnyArray]) -> Iterator[AnyArray]:
        """Costs that add up to that of the dearest record: all, but of blocks within cells one path only."""
        paths: dict[int, AnyArray] = {}
        for layer, own, cells in zip(self.layers, costs, self.levels(), strict=True):
            if layer.within is None or cells is None:
                yield own
            else:
                paths[layer.within] = paths.get(layer.within, 0) + self._by_cell(layer, own)[cells]
        yield from (each.reshape(-1)[[each.argmax()]] for each in paths.values())

    def _by_cell(self, layer: Layer, costs: AnyArray) -> AnyArray:
        """What blocks within places cost in their dearest cell, (blocks, 1), or in each, (blocks, cells).

        Grains are rounded up.
        """
        if not self.by_vectors:
            return costs[:, None]
        matrix = self.shapes[layer.shapes[0, 0]].matrix
        if costs.dtype.kind == "f":
            columns = column_costs(self.law, matrix)
            return np.asarray(costs[:, None] * (columns / columns.max()))
        cells = column_costs(self.law, matrix.astype(np.int64)).tolist()
        known, owners = np.unique(costs, return_inverse=True)
        found = [[-(-share * own // max(cells)) for own in cells] for share in known.tolist()]
        return np.array(found, dtype=np.int64)[owners]

    def exact_cost(self) -> Fraction:
        """Privacy cost of an integer strategy, exactly: so many grains of `2^-grain` each."""
        if self.grain is None:
            raise ValueError("only an integer strategy has an exact cost")
        shares = [np.zeros(0) if layer.shares is None else layer.shares for layer in self.layers]
        grains = sum(int(own.sum(dtype=object)) for own in self._added(shares))
        return Fraction(grains) / Fraction(2) ** self.grain

    def scaled(self, factor: float) -> "Strategy":
        """The same measurements at `factor` times the privacy cost."""
        ratio = variance_ratio(self.law, factor)
        layers = tuple(
            replace(layer, noise=layer.noise / ratio, costs=layer.costs * factor, shares=None)
            for layer in self.layers
        )
        return replace(self, layers=layers, grain=None)

    def to_manifest(self, arrays: dict[str, AnyArray]) -> dict[str, Any]:
        """JSON-able description; arrays go into `arrays` under names that begin with `strategy`."""

        def each(name: str, parts: Sequence[Domain | Layer | QuerySplit]) -> list[dict[str, Any]]:
            return [own.to_manifest(f"strategy.{name}.{at}", arrays) for at, own in enumerate(parts)]

        for number, shape in enumerate(self.shapes):
            matrix = shape.matrix if self.grain is None else shape.matrix.astype(np.int64)
            arrays[f"strategy.shape.{number}"] = matrix
        return {
            "law": self.law,
            "grain": self.grain,
            "domains": each("domain", self.domains),
            "shapes": [{"sizes": list(shape.sizes), "rank": shape.rank} for shape in self.shapes],
            "layers": each("layer", self.layers),
            "lifts": each("lift", self.query_splits),
        }


def batches_of(strategy: Strategy) -> list[Measurement]:
    """The measurements of an integer strategy, in an order that its content determines."""
    if strategy.grain is None:
        raise Infeasible(
            "only a plan that rs.plan made can be measured; this one describes measurements made before"
        )
    shares = [_shares(layer, strategy.grain) for layer in strategy.layers]
    matrices = [_whole(shape.matrix) for shape in strategy.shapes]
    return list(measurements_of(strategy, matrices, shares, Fraction(1, 2) ** strategy.grain))


def stated_costs(strategy: Strategy) -> list[AnyArray]:
    """The costs that the blocks of each layer state, as floats have them."""
    return [layer.costs for layer in strategy.layers]


def measurements_of(
    strategy: Strategy, matrices: Sequence[Integers], costs: Sequence[AnyArray], unit: Fraction = Fraction(1)
) -> Iterator[Measurement]:
    """The blocks of a strategy with these matrices as its shapes, and noise that makes them cost so much.

    `costs` are those of the blocks of each layer in a unit, all above zero.
    """
    norms = [matrix_cost(strategy.law, matrix) for matrix in matrices]
    for number, mine in strategy.runs():
        layer = strategy.layers[number]
        numbers = layer.shapes[mine[0]].tolist()
        multiple = layer.multiplier ** cost_power(strategy.law)
        norm = multiple * math.prod(norms[at] for at in numbers)
        found, owners = np.unique(costs[number][mine], return_inverse=True)
        yield Measurement(
            layer.subsets[mine][:, layer.order],
            tuple(size for at in numbers for size in strategy.shapes[at].sizes),
            tuple(matrices[at] for at in numbers),
            layer.multiplier,
            strategy.law,
            tuple(norm / (Fraction(cost) * unit) for cost in found.tolist()),
            owners.astype(np.int64),
            strategy.domains[layer.domain].view.parts,
            layer.within,
        )


def _shares(layer: Layer, grain: int) -> Integers:
    """The exact costs of a layer's blocks; refused where its other arrays tell of other costs or blocks."""
    if layer.shares is None:
        raise ValueError("only an integer strategy can be measured")
    blocks = {len(layer.subsets), len(layer.shapes), len(layer.noise), len(layer.shares)}
    if len(blocks) > 1 or not np.array_equal(layer.costs, layer.shares * 2.0**-grain):
        raise BudgetError("this plan says of its blocks what their noise does not keep; plan again")
    return layer.shares


def _whole(matrix: Array) -> Integers:
    """The matrix in integers; refused where those would not be the very numbers that it has."""
    if not (np.abs(matrix) <= 2.0**53).all() or (np.rint(matrix) != matrix).any():
        raise BudgetError("only small whole numbers can be measured, and this plan has others; plan again")
    return matrix.astype(np.int64)


def refuse_uncounted(
    strategy: Strategy, names: Sequence[str], at_once: Callable[[int], int | None] | None = None
) -> None:
    """Nothing, or Infeasible where a table would have to be counted that has too many cells.

    `at_once` has for each layer how many of its blocks are counted at once, None for all.
    """
    for number, layer in enumerate(strategy.layers):
        sizes = strategy.domains[layer.domain].sizes
        largest = np.array(sizes, dtype=np.float64)[layer.subsets].prod(axis=1)
        attributes = layer.subsets[int(largest.argmax())].tolist()
        within = [] if layer.within is None else [layer.within]
        cells = math.prod(sizes[at] for at in attributes + within)
        some = None if at_once is None or cells <= COUNTED_CELLS else at_once(number)
        counted = cells if some is None else some * math.prod(sizes[at] for at in attributes)
        if counted > COUNTED_CELLS:
            named = " x ".join(names[at] for at in attributes + within)
            part = ", or measure it in parts, rs.measure(..., into=path)" if within and some is None else ""
            raise Infeasible(
                f"this plan would measure a table of {spelled(counted)} cells, {named}, more than the "
                f"{COUNTED_CELLS:,} that are counted at once; use coarser attributes or fewer of them in one "
                f"table{part}"
            )


def with_best_noise(
    domain: Domain, shapes: Sequence[Shape], layers: Sequence[tuple[Layer, Array]]
) -> Strategy:
    """The strategy of cost 1 with the best noise for blocks with these roots of optima (claim M-001)."""
    total = math.fsum(float(roots.sum()) for _, roots in layers)
    shared = tuple(replace(layer, noise=total / roots, costs=roots / total) for layer, roots in layers)
    return Strategy((domain,), tuple(shapes), shared)
