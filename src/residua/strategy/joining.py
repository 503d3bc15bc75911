"""Several measured strategies as one: what releases of them say together (claim A-006).

Blocks of independent noise stand side by side, so joining is putting all blocks in one list. Those that
measure the same matrix, up to a factor, of the same marginal are one: the mean of their numbers, weighted by
precision, with the sum of their precisions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from residua.answering.blocks import Layer, Measured, Placed, Shape
from residua.errors import Infeasible
from residua.kernel.block import column_costs
from residua.linalg.matrices import along_axes, distinct_rows, join
from residua.privacy.laws import parameter_of
from residua.strategy.build import of_blocks
from residua.strategy.strategy import Domain, Strategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = tuple[Array, ...]
"""For each run of a strategy its numbers in units of the matrices, (blocks, rows)."""


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks of one layout and the same matrices, from all strategies."""

    subsets: list[NDArray[np.int32]] = field(default_factory=list)
    noise: list[Array] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)

    def merged(self) -> tuple[NDArray[np.int32], Array, Array]:
        """Distinct subsets, their noise and their numbers."""
        subsets, noise = np.concatenate(self.subsets), np.concatenate(self.noise)
        precision, weighted = 1.0 / noise, np.concatenate(self.numbers) / noise[:, None]
        first, inverse = distinct_rows(subsets.astype(np.int64))
        sums = np.bincount(inverse, weights=precision, minlength=len(first))
        numbers = np.zeros((len(first), weighted.shape[1]))
        np.add.at(numbers, inverse, weighted)
        return subsets[first], 1.0 / sums, numbers / sums[:, None]


def joined(parts: Sequence[tuple[Strategy, Measured]]) -> tuple[Strategy, Numbers]:
    """One strategy, never to be measured, of the blocks of all; and its numbers, run by run.

    Any measures will do (claim O-001); those under which the blocks share less are taken. Infeasible where
    the blocks share too much to be solved together.
    """
    strategies = [strategy for strategy, _ in parts]
    first = strategies[0]
    if any(not _same_domains(first, other) for other in strategies[1:]):
        raise Infeasible("the plans see different classes of cells")
    shapes, layers, numbers = _gathered(parts)
    found: list[tuple[int, Strategy]] = []
    refused: Infeasible | None = None
    candidates = dict.fromkeys(tuple(each.measures for each in other.domains) for other in strategies)
    for measures in candidates:
        pairs = zip(first.domains, measures, strict=True)
        domains = tuple(replace(domain, measures=own) for domain, own in pairs)
        strategy = Strategy(domains, shapes, layers, first.law, None, first.query_splits)
        try:
            shared = strategy.answerer.shared
        except Infeasible as error:  # under these measures they share more than can be solved
            refused = error
            continue
        found.append((shared, strategy))
    if not found:
        raise refused or Infeasible("these plans cannot be combined")
    best = min(found, key=lambda each: each[0])[1]
    return best, tuple(numbers[layer][rows] for layer, rows in best.runs())


def _same_domains(one: Strategy, other: Strategy) -> bool:
    """Whether both see the same classes of cells, and split queries between them alike."""
    views = [[domain.view.parts for domain in each.domains] for each in (one, other)]
    query_splits = [
        [(lift.attributes, lift.kinds, lift.settled) for lift in each.query_splits] for each in (one, other)
    ]
    return (
        views[0] == views[1]
        and query_splits[0] == query_splits[1]
        and all(
            np.array_equal(a.rows, b.rows) for a, b in zip(one.query_splits, other.query_splits, strict=True)
        )
    )


def _gathered(
    parts: Sequence[tuple[Strategy, Measured]],
) -> tuple[tuple[Shape, ...], tuple[Layer, ...], list[Array]]:
    """Distinct matrices, layers of merged blocks, and the numbers of each layer."""
    known: dict[object, int] = {}
    shapes: list[Shape] = []
    runs: dict[tuple[int, tuple[tuple[int, ...], ...], tuple[int, ...]], _Run] = {}
    for strategy, own in parts:
        reduced = [_reduced(shape, whole=strategy.grain is not None) for shape in strategy.shapes]
        for layer_number, rows, values in own:
            layer = strategy.layers[layer_number]
            used = layer.shapes[rows[0]].tolist()
            for number in used:
                if reduced[number][1] not in known:
                    known[reduced[number][1]] = len(shapes)
                    shapes.append(reduced[number][0])
            scale = math.prod(reduced[number][2] for number in used)
            numbers = tuple(known[reduced[number][1]] for number in used)
            run = runs.setdefault((layer.domain, layer.layout, numbers), _Run())
            run.subsets.append(layer.subsets[rows])
            run.noise.append(layer.noise[rows] / scale**2)
            run.numbers.append(values / scale)
    law = parts[0][0].law
    norms = [float(column_costs(law, shape.matrix).max()) for shape in shapes]
    layers, found = [], []
    for (domain, layout, numbers), run in runs.items():
        subsets, noise, values = run.merged()
        norm = math.prod(norms[number] for number in numbers)
        costs = np.array([norm / parameter_of(law, variance) for variance in noise.tolist()])
        chosen = np.tile(np.array(numbers, dtype=np.int64), (len(subsets), 1))
        layers.append(Layer(subsets, layout, chosen, costs, noise, domain=domain))
        found.append(values)
    return tuple(shapes), tuple(layers), found


def _reduced(shape: Shape, *, whole: bool) -> tuple[Shape, object, float]:
    """The shape without a common factor, what identifies it, and that factor."""
    factor = 1.0
    if whole:
        factor = float(np.gcd.reduce(shape.matrix.astype(np.int64), axis=None))
    matrix = shape.matrix if factor == 1.0 else shape.matrix / factor
    return replace(shape, matrix=matrix), (shape.sizes, matrix.shape, matrix.tobytes()), factor


def as_cells(
    strategy: Strategy, measured: Measured, sizes: Sequence[int], attributes: Sequence[int]
) -> tuple[Strategy, Measured]:
    """The same blocks over the joint cells of some attributes, which are all that they look at.

    A block that sees classes of cells is one that sees cells: its columns are those of their classes.
    """
    width = [sizes[at] for at in attributes]
    blocks: list[tuple[Sequence[Placed], float]] = []
    numbers: list[Array] = []
    shapes: dict[object, Shape] = {}
    for layer_number, rows, values in measured:
        layer = strategy.layers[layer_number]
        used = layer.shapes[rows[0]].tolist()
        matrix = join(strategy.shapes[number].matrix for number in used)
        for row, own in zip(rows.tolist(), values, strict=True):
            cells = joint_cells(strategy, layer_number, row, attributes, width)
            key = (layer_number, tuple(used), cells.tobytes())
            if key not in shapes:
                shapes[key] = Shape.of(width, matrix[:, cells])
            blocks.append(([Placed(tuple(attributes), shapes[key])], float(layer.noise[row])))
            numbers.append(own)
    found = of_blocks(sizes, blocks, strategy.law)
    # Blocks with the same matrix are one run, in the order in which they came.
    runs: dict[int, list[Array]] = {}
    for (factors, _), own in zip(blocks, numbers, strict=True):
        runs.setdefault(id(factors[0].shape), []).append(own)
    layers = enumerate(runs.values())
    return found, [(number, np.arange(len(own)), np.stack(own)) for number, own in layers]


def joint_cells(
    strategy: Strategy, number: int, row: int, attributes: Sequence[int], sizes: Sequence[int]
) -> Integers:
    """For every joint cell of some attributes the cell of a block's marginal that it is in, (cells,)."""
    places = [axis.reshape(-1) for axis in np.indices(sizes)]  # of every joint cell, by attribute
    layer = strategy.layers[number]
    seen = strategy.domains[layer.domain]
    cells = np.zeros(math.prod(sizes), dtype=np.int64)
    for place in layer.order:
        at = int(layer.subsets[row, place])
        cells = cells * seen.sizes[at] + _class_of(seen, at, attributes, places)
    return cells


def _class_of(seen: Domain, at: int, attributes: Sequence[int], places: Sequence[Integers]) -> Integers:
    """For every joint cell its place along an attribute, as a domain sees it."""
    for part in seen.view.parts:
        if part.place == at:
            joint = np.zeros(len(places[0]), dtype=np.int64)
            for own, kinds in zip(part.attributes, part.kinds, strict=True):
                joint = joint * kinds.count + kinds.classes[places[attributes.index(own)]]
            return np.asarray(part.joint.classes[joint])
    return np.asarray(places[attributes.index(at)])


def fitted(strategy: Strategy, marginals: Callable[[NDArray[np.int32], Sequence[int]], Array]) -> Measured:
    """What the blocks of a strategy measure of estimated marginals, (k, attributes) to (k, sizes...)."""
    found = []
    for number, rows in strategy.runs():
        layer = strategy.layers[number]
        subsets = layer.subsets[rows]
        cells = marginals(subsets, [strategy.sizes[at] for at in subsets[0].tolist()])
        cells = cells.transpose(0, *(1 + np.array(layer.order, dtype=np.int64))).reshape(len(rows), -1)
        matrices = [strategy.shapes[at].matrix for at in layer.shapes[rows[0]].tolist()]
        found.append((number, rows, along_axes(cells, matrices)))
    return found
