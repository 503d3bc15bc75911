"""Block strategies in integers, and their exact share of the privacy.

The cost of a block is `norm / variance`, with `norm` the largest squared column length of its integer matrix.
Costs are whole multiples of one tiny grain, so that their sum is exact whatever the number of blocks; the
variance of a block's noise is then the rational number `norm / cost` (claim I-005).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from residua.errors import Infeasible
from residua.linalg.keys import distinct_rows
from residua.strategy.block_strategy import BlockStrategy
from residua.strategy.blocks import Layer, Shape
from residua.strategy.integers import (
    centred_rows,
    combined_rows,
    completed,
    contrast_rows,
    enough_bits,
    even_bits,
    refuse_unfit,
)
from residua.strategy.lattice import short_basis
from residua.strategy.layered import Layered

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Blocks = TypeVar("Blocks", bound=Layered)

ALL_BITS = 36  # of the entries of a product: leaves room for a hundred million records in 64 bits
FEW_BITS = 14  # of the entries of a factor; more only where these change what is measured
LEAST_BITS = 3
NOISE_BITS = 52  # the standard deviation of the noise stays below 2 to this
GRAINS = 62  # the whole budget is about 2 to this many grains
LEAST_GRAINS = 2**10  # of any block: a weight that vanishes never makes noise that overflows
SLACK = 2.0**-40  # of the budget, left over so that rounding can never overspend it


def integer_blocks(
    ideal: BlockStrategy, spans: Mapping[int, Integers | None], allowed: Fraction
) -> BlockStrategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    `spans` has integer rows with the row space of a shape: for shapes that are not complete, and for those
    that are centred under another measure than the uniform one.
    """
    found = in_integers(
        ideal,
        allowed,
        lambda number, bits, few: integer_shape(ideal.shapes[number], spans.get(number), bits, few),
    )
    _check_centring(found)
    return with_budget(found, allowed)


def in_integers(
    ideal: Blocks, allowed: Fraction, integer_shape_of: Callable[[int, int, int], Shape]
) -> Blocks:
    """The strategy with every shape in integers, and costs as shares of the whole.

    `integer_shape_of` takes the number of a shape, the most bits that its entries may have, and the bits that
    are enough where nothing needs rounding.
    """
    if any(measure.weights is not None and measure.numerators is None for measure in ideal.measures):
        raise Infeasible("a plan whose measure has real weights cannot be measured; round them first")
    whole = ideal.cost()
    numbers: dict[tuple[int, int], int] = {}
    shapes: list[Shape] = []
    layers = []
    for layer in ideal.layers:
        bits = _bits(ideal, layer, whole, float(allowed))
        chosen = np.zeros_like(layer.shapes)
        for number in np.unique(layer.shapes).tolist():
            key = (number, bits)
            if key not in numbers:
                numbers[key] = len(shapes)
                even = -(-even_bits(allowed) // len(layer.layout))
                shapes.append(integer_shape_of(number, bits, min(bits, even)))
            chosen[layer.shapes == number] = numbers[key]
        multiplier = 1 if layer.layout else 2 ** even_bits(allowed)
        layers.append(replace(layer, shapes=chosen, costs=layer.costs / whole, multiplier=multiplier))
    return replace(ideal, shapes=tuple(shapes), layers=tuple(layers))


def _check_centring(strategy: BlockStrategy) -> None:
    """Stop if a row's mean is not exactly zero under the measure of some attribute that it is used on.

    Answers would be biased in proportion to the counts, and nobody would notice (claim I-002).
    """
    kinds = list(dict.fromkeys(strategy.measures))
    kind_of = np.array([kinds.index(measure) for measure in strategy.measures])
    for layer in strategy.layers:
        for column, places in zip(layer.shapes.T, layer.layout, strict=True):
            uses = np.column_stack([column, kind_of[layer.subsets[:, list(places)]]])
            for number, *measures in uses[distinct_rows(uses)[0]].tolist():
                shape = strategy.shapes[number]
                rows = shape.matrix.astype(np.int64).reshape(-1, *shape.sizes)
                for axis, kind in enumerate(measures):
                    if np.tensordot(rows, np.array(kinds[kind].whole_numbers()), axes=(1 + axis, 0)).any():
                        raise ArithmeticError("a block was rounded off centre: its answers would be biased")


def with_budget(strategy: Blocks, allowed: Fraction) -> Blocks:
    """The integer strategy with its costs scaled to use up `allowed`, exactly accounted."""
    whole = math.fsum(float(layer.costs.sum()) for layer in strategy.layers)
    grain = GRAINS - math.ceil(math.log2(allowed))
    most = math.floor(allowed * Fraction(2) ** grain)
    norms = np.array([float(shape.exact_norm) for shape in strategy.shapes])
    entries = np.array([float(np.abs(shape.matrix).max()) for shape in strategy.shapes])
    layers = []
    for layer in strategy.layers:
        shares = np.floor(layer.costs / whole * (float(most) * (1 - SLACK))).astype(np.int64)
        shares = np.maximum(shares, LEAST_GRAINS)
        costs = np.asarray(shares * 2.0**-grain, dtype=np.float64)
        squared = float(layer.multiplier) ** 2
        variances = squared * norms[layer.shapes].prod(axis=1) / costs
        largest = layer.multiplier * math.prod(int(entries[column].max()) for column in layer.shapes.T)
        refuse_unfit(float(variances.min()), float(variances.max()), largest)
        noise = (variances + 1.0 / 12.0) / squared  # rounding adds a twelfth
        layers.append(replace(layer, shares=shares, costs=costs, noise=noise))
    result = replace(strategy, layers=tuple(layers), grain=grain)
    if result.exact_cost() > allowed:
        raise Infeasible("the blocks are too many to share this budget")
    return result


def _bits(ideal: Layered, layer: Layer, whole: float, allowed: float) -> int:
    """The most bits of each factor's entries that fit 64-bit arithmetic with the noise of this layer."""
    factors = len(layer.layout)
    if not factors:
        return 0
    rows = max(ideal.shapes[number].rank + 1 for number in np.unique(layer.shapes).tolist())
    least = float(layer.costs.min()) / whole * allowed
    room = NOISE_BITS + 0.5 * math.log2(least) - 0.5 * factors * math.log2(rows)
    return max(LEAST_BITS, min(ALL_BITS, int(room)) // factors)


def integer_shape(shape: Shape, span: Integers | None, bits: int, few: int) -> Shape:
    """The shape in integers of at most so many bits, or of `few` where nothing needs rounding."""
    matrix, rank, sizes = shape.matrix, shape.rank, shape.sizes
    if shape.complete and len(sizes) == 1 and _is_contrast(matrix):
        return Shape(sizes, contrast_rows(sizes[0], few).astype(np.float64), rank)
    if span is not None:
        basis = short_basis(span)
        rows = enough_bits(lambda b: combined_rows(matrix, basis, b), matrix, rank, few=FEW_BITS, most=bits)
    else:
        if not shape.complete:
            matrix = completed(matrix, [np.ones(size) for size in sizes])
            rank = len(matrix)
        rows = enough_bits(lambda b: centred_rows(matrix, sizes, b), matrix, rank, few=FEW_BITS, most=bits)
    return Shape(sizes, rows.astype(np.float64), rank)


def _is_contrast(matrix: Array) -> bool:
    """Whether the strategy measures all centred cells alike, as for marginals."""
    size = matrix.shape[1]
    gram = matrix.T @ matrix
    wanted = (np.eye(size) - 1.0 / size) * (np.trace(gram) / (size - 1))
    return bool(np.abs(gram - wanted).max() <= 1e-9 * np.abs(gram).max())
