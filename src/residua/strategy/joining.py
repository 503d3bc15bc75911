"""Several measured strategies as one: what releases of them say together (claim A-006).

Blocks of independent noise stand side by side, so joining is putting all blocks in one list. Those that
measure the same matrix, up to a factor, of the same marginal are one: the mean of their numbers, weighted by
precision, with the sum of their precisions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from residua._arrays import Array, Integers, Subsets
from residua.answering.blocks import Layer, Measured, Memory, Placed, Shape
from residua.errors import Infeasible
from residua.linalg.matrices import along_axes, distinct_rows, join
from residua.privacy.budgets import parameter_of
from residua.strategy.build import Layout, norms_of, of_blocks, run_layer, runs_of
from residua.strategy.strategy import Strategy

Numbers = tuple[Array, ...]
"""For each run of a strategy its numbers in units of the matrices, (blocks, rows)."""


def joined(parts: Sequence[tuple[Strategy, Measured]]) -> tuple[Strategy, Numbers]:
    """One strategy, never to be measured, of the blocks of all; and its numbers, run by run.

    Any measures will do (claim O-001); those under which the blocks share less are taken. Infeasible where
    the blocks share too much to be solved together.
    """
    strategies = [strategy for strategy, _ in parts]
    first = strategies[0]
    if any(each.nested for each in strategies):
        return _averaged(parts)
    if any(_seen(first) != _seen(other) for other in strategies[1:]):
        raise Infeasible("the plans see different classes of cells")
    shapes, layers, numbers = _gathered(parts)
    found: list[tuple[int, Strategy]] = []
    refused = Infeasible("these plans cannot be combined")
    candidates = dict.fromkeys(tuple(each.measures for each in other.domains) for other in strategies)
    for measures in candidates:
        pairs = zip(first.domains, measures, strict=True)
        domains = tuple(replace(domain, measures=own) for domain, own in pairs)
        strategy = Strategy(domains, shapes, layers, first.law, None, first.query_splits)
        try:
            found.append((strategy.answerer.shared, strategy))
        except Infeasible as error:  # under these measures they share more than can be solved
            refused = error
    if not found:
        raise refused
    best = min(found, key=lambda each: each[0])[1]
    return best, tuple(numbers[layer][rows] for layer, rows in best.runs())


def _seen(strategy: Strategy) -> object:
    """The classes of cells that a strategy sees, and how it splits queries between them."""
    splits = [(s.attributes, s.classes, s.settled, s.rows.tolist()) for s in strategy.query_splits]
    return [domain.view.parts for domain in strategy.domains], splits


def _averaged(parts: Sequence[tuple[Strategy, Measured]]) -> tuple[Strategy, Numbers]:
    """Strategies of the same blocks as one of them: the means of their numbers, weighted by precision."""
    strategies = [strategy for strategy, _ in parts]
    first = strategies[0]
    if not all(_same_blocks(first, other) for other in strategies[1:]):
        raise Infeasible("of plans by places, only those with the same matrices at the same places do")
    layers = []
    for number, layer in enumerate(first.layers):
        noise = 1.0 / np.sum([1.0 / each.layers[number].noise for each in strategies], axis=0)
        before, after = ([parameter_of(first.law, v) for v in each.tolist()] for each in (layer.noise, noise))
        costs = layer.costs * np.array(before) / np.array(after)
        layers.append(replace(layer, noise=noise, costs=costs, multiplier=1, shares=None))
    numbers = []
    for runs in zip(*(own for _, own in parts), strict=True):
        layer_number, rows, _ = runs[0]
        weights = [1.0 / each.layers[layer_number].noise[rows, None] for each in strategies]
        sums = np.sum([w * values for w, (_, _, values) in zip(weights, runs, strict=True)], axis=0)
        numbers.append(sums / np.sum(weights, axis=0))
    return replace(first, layers=tuple(layers), grain=None, memory=Memory()), tuple(numbers)


def _same_blocks(one: Strategy, other: Strategy) -> bool:
    """Whether two strategies measure the same matrices of the same marginals, in the same order."""
    if _seen(one) != _seen(other) or len(one.layers) != len(other.layers):
        return False
    pairs = list(zip(one.layers, other.layers, strict=True))
    return (
        len(one.shapes) == len(other.shapes)
        and all(np.array_equal(a.matrix, b.matrix) for a, b in zip(one.shapes, other.shapes, strict=True))
        and all((a.layout, a.domain, a.within) == (b.layout, b.domain, b.within) for a, b in pairs)
        and all(np.array_equal(a.subsets, b.subsets) and np.array_equal(a.shapes, b.shapes) for a, b in pairs)
    )


def _gathered(
    parts: Sequence[tuple[Strategy, Measured]],
) -> tuple[tuple[Shape, ...], tuple[Layer, ...], list[Array]]:
    """Distinct matrices, layers of merged blocks, and the numbers of each layer."""
    known: dict[object, tuple[int, Shape]] = {}
    runs: dict[tuple[int, Layout, tuple[int, ...]], list[tuple[Subsets, Array, Array]]] = {}
    for strategy, own in parts:
        reduced = [_reduced(shape, whole=strategy.grain is not None) for shape in strategy.shapes]
        for layer_number, rows, values in own:
            layer = strategy.layers[layer_number]
            used = [reduced[number] for number in layer.shapes[rows[0]].tolist()]
            scale = math.prod(factor for _, _, factor in used)
            numbers = tuple(known.setdefault(key, (len(known), shape))[0] for shape, key, _ in used)
            run = (layer.subsets[rows], layer.noise[rows] / scale**2, values / scale)
            runs.setdefault((layer.domain, layer.layout, numbers), []).append(run)
    law, shapes = parts[0][0].law, tuple(shape for _, shape in known.values())
    norms, layers, found = norms_of(law, shapes), [], []
    for (domain, layout, numbers), same in runs.items():
        subsets, noise, values = _merged(same)
        layers.append(replace(run_layer(law, norms, subsets, layout, numbers, noise), domain=domain))
        found.append(values)
    return shapes, tuple(layers), found


def _merged(runs: Sequence[tuple[Subsets, Array, Array]]) -> tuple[Subsets, Array, Array]:
    """Blocks of the same matrices, with distinct subsets: those, their noise and their numbers."""
    subsets, noise, values = (np.concatenate(each) for each in zip(*runs, strict=True))
    first, inverse = distinct_rows(subsets.astype(np.int64))
    sums = np.bincount(inverse, weights=1.0 / noise, minlength=len(first))
    numbers = np.zeros((len(first), values.shape[1]))
    np.add.at(numbers, inverse, values / noise[:, None])
    return subsets[first], 1.0 / sums, numbers / sums[:, None]


def _reduced(shape: Shape, *, whole: bool) -> tuple[Shape, object, float]:
    """The shape without a common factor, what identifies it, and that factor."""
    factor = float(np.gcd.reduce(shape.matrix.astype(np.int64), axis=None)) if whole else 1.0
    matrix = shape.matrix if factor == 1.0 else shape.matrix / factor
    return replace(shape, matrix=matrix), (shape.sizes, matrix.shape, matrix.tobytes()), factor


def as_cells(
    strategy: Strategy, measured: Measured, sizes: Sequence[int], attributes: Sequence[int]
) -> tuple[Strategy, Measured]:
    """The same blocks over the joint cells of some attributes, which are all that they look at.

    A block that sees classes of cells is one that sees cells: its columns are those of their classes. One
    within a place measures nothing of cells elsewhere.
    """
    width = [sizes[at] for at in attributes]
    blocks: list[tuple[Sequence[Placed], float]] = []
    numbers: list[Array] = []
    shapes: dict[object, Shape] = {}
    for layer_number, rows, values in measured:
        layer = strategy.layers[layer_number]
        matrix = block_matrix(strategy, layer, rows)
        for row, own in zip(rows.tolist(), values, strict=True):
            columns = joint_columns(strategy, layer, row, attributes, width)
            key = (layer_number, tuple(layer.shapes[row].tolist()), columns.tobytes())
            if key not in shapes:
                shapes[key] = Shape.of(width, np.ascontiguousarray(matrix[:, columns]))
            blocks.append(([Placed(tuple(attributes), shapes[key])], float(layer.noise[row])))
            numbers.append(own)
    runs = enumerate(runs_of([factors for factors, _ in blocks]).values())
    return of_blocks(sizes, blocks, strategy.law), [
        (number, np.arange(len(run)), np.stack([numbers[at] for at in run])) for number, run in runs
    ]


def block_matrix(strategy: Strategy, layer: Layer, rows: Integers) -> Array:
    """The matrix that blocks of one run measure; with a last column of zeros where they are within places."""
    matrix = join(strategy.shapes[number].matrix for number in layer.shapes[rows[0]].tolist())
    return matrix if layer.within is None else np.pad(matrix, ((0, 0), (0, 1)))


def joint_columns(
    strategy: Strategy, layer: Layer, row: int, attributes: Sequence[int], sizes: Sequence[int]
) -> Integers:
    """For every joint cell of some attributes its column in the matrix of a block, (cells,)."""
    seen = strategy.domains[layer.domain]
    places = [axis.reshape(-1) for axis in np.indices(sizes)]  # of every joint cell, by attribute
    codes: dict[int, Integers] = dict(zip(attributes, places, strict=True))
    for part in seen.view.parts:
        codes[part.place] = part.classes()[tuple(codes[at] for at in part.attributes)]
    columns = np.zeros(math.prod(sizes), dtype=np.int64)
    own = layer.subsets[row, layer.order].tolist()
    for at in own:
        columns = columns * seen.sizes[at] + codes[at]
    if layer.within is None:
        return columns
    return np.where(codes[layer.within] == row, columns, math.prod(seen.sizes[at] for at in own))


def fitted(strategy: Strategy, marginals: Callable[[Subsets, Sequence[int]], Array]) -> Measured:
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
