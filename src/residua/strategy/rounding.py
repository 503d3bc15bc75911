"""From a real strategy to an integer one that answers exactly the same queries, and its exact budget.

The cost of a block is `norm / parameter`, with `norm` the largest squared column length (Gaussian noise) or
sum of sizes (Laplace noise) of its integer matrix. Costs are whole multiples of one tiny grain, so that their
sum is exact whatever the number of blocks; the parameter of a block's noise is then the rational number
`norm / cost` (claim I-005).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from residua._arrays import Array, Integers
from residua.answering.blocks import Layer, Memory, Shape, shape_uses
from residua.errors import Infeasible
from residua.kernel.cost import MOST_BLOCKS, person_cost
from residua.kernel.measurement import column_costs, matrix_cost
from residua.kernel.person import separate_person_cost
from residua.linalg.matrices import Measure, distinct_rows, occurring
from residua.privacy import NoiseLaw
from residua.privacy.budgets import integer_variances
from residua.privacy.unit import Person
from residua.strategy.build import Spans, whole_span
from residua.strategy.integers import (
    FEW_LOOSE_BITS,
    LARGEST_ENTRY,
    LARGEST_SCALE,
    centred_rows,
    combined_rows,
    completed,
    enough_bits,
    independent_integers,
    loose_rows,
    short_basis,
    small_multiple,
)
from residua.strategy.persons import real_measurements
from residua.strategy.strategy import Strategy, batches_of

ALL_BITS = 36  # of the entries of a product: leaves room for a hundred million records in 64 bits
FEW_BITS = 14  # of the entries of a centred factor; more only where these change what is measured
LEAST_BITS = 3
SOME_BITS = 12  # of a factor, beside the bits of numbers, even where that leaves room for fewer records
FEWEST_BITS = 7  # of one, beside numbers: with fewer, what is measured would be far from what is planned
NOISE_BITS = 52  # the standard deviation of Gaussian noise stays below 2 to this
GRAINS = 62  # the whole budget is about 2 to this many grains
LEAST_GRAINS = 2**10  # of any block: a weight that vanishes never makes noise that overflows
SLACK = 2.0**-40  # of the budget, left over so that rounding can never overspend it
NEGLIGIBLE = Fraction(1, 2**32)  # of a budget: noise that is wider by so little is not set again
EVEN_BITS = 10
LEAST_VARIANCE = 1.0
WIDEST_NOISE = 2.0**56  # standard deviation that 64 bits hold with room for the counts
ROUNDING = 1e-3  # relative difference of costs that rounding to integers may make
SOUGHT = {16: 1e-9, 64: 2e-4}  # by numbers of blocks: part of the costs that is worth a longer proof


def integer_strategy(ideal: Strategy, spans: Spans, allowed: Fraction, units: Sequence[int] = ()) -> Strategy:
    """The integer strategy nearest to a real one, with its exact cost at most `allowed`.

    `spans` has integer rows with the row space of a shape: for shapes that measure less than all (centred)
    cells, and for those that are centred under another measure than the uniform one. `units`, one for each
    attribute, are those that a record's shares of its cells are whole multiples of one over.
    """
    for domain in ideal.domains:
        if any(measure.weights is not None and measure.numerators is None for measure in domain.measures):
            raise Infeasible("a plan whose measure has real weights cannot be measured; round them first")
    ideal, own = _by_unit(ideal, units)
    rounding = _Rounding(ideal, spans, allowed, own)
    layers = tuple(map(rounding.layer, ideal.layers, rounding.bits, own))
    found = replace(ideal, shapes=tuple(rounding.shapes), layers=layers, memory=Memory())
    return with_budget(found, allowed)


def _by_unit(ideal: Strategy, units: Sequence[int]) -> tuple[Strategy, list[int]]:
    """The strategy with layers of blocks that have the same unit, and the unit of each."""
    if max(units, default=1) == 1:
        return ideal, [1] * len(ideal.layers)
    found: list[tuple[Layer, int]] = []
    for layer in ideal.layers:
        seen = np.array(ideal.domains[layer.domain].view.units(units), dtype=object)
        each = seen[layer.subsets].prod(axis=1, initial=1)
        found += [(layer.take(np.flatnonzero(each == unit)), unit) for unit in sorted(set(each))]
    return replace(ideal, layers=tuple(layer for layer, _ in found)), [unit for _, unit in found]


class _Rounding:
    """Rounds each shape once for each number of bits, and numbers what comes out."""

    def __init__(self, ideal: Strategy, spans: Spans, allowed: Fraction, units: Sequence[int]) -> None:
        self.ideal, self.spans, self.allowed = ideal, spans, allowed
        self.cost = ideal.cost()
        self.uses: dict[int, dict[tuple[Measure, ...], None]] = {}
        for layer in ideal.layers:
            for number, measures in shape_uses(ideal.domains[layer.domain].measures, layer):
                self.uses.setdefault(number, {})[measures] = None
        self.centred = {
            number
            for number, uses in self.uses.items()
            if all(ideal.shapes[number].is_centred(measures, whole=False) for measures in uses)
        }
        loose = {at: small_multiple(ideal.shapes[at].matrix) for at in self.uses.keys() - self.centred}
        self.plain = {number: rows for number, rows in loose.items() if rows is not None}
        self.bits = [self._bits(layer, unit) for layer, unit in zip(ideal.layers, units, strict=True)]
        self.common = self._common_bits()
        self.shapes: list[Shape] = []
        self._norms: list[float] = []  # logarithms of their costs at noise 1
        self._numbers: dict[tuple[int, int], int] = {}

    def _common_bits(self) -> dict[int, int]:
        """The bits of loose matrices of one attribute, the same in all blocks: else those are not nested.

        Blocks within places measure the same at all levels, so there it is so for all matrices.
        """
        found: dict[int, int] = {}
        nested = self.ideal.nested
        for layer, bits in zip(self.ideal.layers, self.bits, strict=True):
            for number in occurring(layer.shapes):
                if nested or (number not in self.centred and len(self.ideal.shapes[number].sizes) == 1):
                    found[number] = min(bits, found.get(number, bits))
        return found

    def layer(self, layer: Layer, most: int, unit: int) -> Layer:
        """The layer with its shapes in integers; its costs as parts of the whole."""
        chosen = np.zeros_like(layer.shapes)
        for number in occurring(layer.shapes):
            bits = self.common.get(number, most)
            place = self._numbers.setdefault((number, bits), len(self.shapes))
            if place == len(self.shapes):
                few = min(bits, -(-even_bits(self.allowed) // len(layer.layout)))
                self.shapes.append(self._rounded(number, bits, few))
                self._norms.append(math.log2(_norm(self.ideal.law, self.shapes[-1])))
            chosen[layer.shapes == number] = place
        multiplier = self._multiplier(layer, chosen, unit)
        return replace(layer, shapes=chosen, costs=layer.costs / self.cost, multiplier=multiplier)

    def _rounded(self, number: int, bits: int, few: int) -> Shape:
        shape, span = self.ideal.shapes[number], self.spans.get(number)
        if number in self.plain:
            return Shape(shape.sizes, self.plain[number], shape.rank)
        if number not in self.centred:
            rows, rank = loose_rows(self.ideal.law, shape, span, bits)
            return Shape(shape.sizes, rows.astype(np.float64), rank)
        found = centred_shape(shape, span, bits, few)
        # Off centre, blocks would have to be solved together with others that they know nothing of (I-002).
        if not all(found.is_centred(measures, whole=True) for measures in self.uses[number]):
            raise ArithmeticError("a block was rounded off centre: its answers would be biased")
        return found

    def _bits(self, layer: Layer, unit: int) -> int:
        """The most bits of each rounded factor's entries that leave room for the noise of a layer."""
        if not layer.layout:
            return 0
        columns = np.zeros(len(self.ideal.shapes))  # logarithm of what a column of ones costs at noise 1
        rounded = np.zeros(len(self.ideal.shapes), dtype=np.int64)
        for number in occurring(layer.shapes):
            known = self.plain.get(number)
            rounded[number] = known is None
            rank = self.ideal.shapes[number].rank
            ones = rank + 1 if known is None else matrix_cost("laplace", known.astype(np.int64))
            columns[number] = math.log2(ones)
        least = float(layer.costs.min()) / self.cost * float(self.allowed)
        shapes = layer.shapes[distinct_rows(layer.shapes)[0]]
        pairs = zip(columns[shapes].sum(axis=1).tolist(), rounded[shapes].sum(axis=1).tolist(), strict=True)
        return min(entry_bits(self.ideal.law, least, *pair, unit) for pair in set(pairs))

    def _multiplier(self, layer: Layer, chosen: Integers, unit: int) -> int:
        """What makes Gaussian noise wide beside the rounding of its numbers to whole ones, in units."""
        if self.ideal.law == "laplace":
            return unit  # integer noise on plain counts is narrower than on multiples of them (claim H-002)
        narrowest = float(np.array(self._norms)[chosen].sum(axis=1).min()) if chosen.shape[1] else 0.0
        room = NOISE_BITS + 0.5 * math.log2(float(layer.costs.min()) / self.cost * float(self.allowed))
        loose = not any(at in self.centred for at in occurring(layer.shapes))
        wanted = max(even_bits(self.allowed), min(FEW_LOOSE_BITS, int(room)) if loose else 0)
        return int(unit * 2 ** max(0, wanted - int(narrowest / 2 + math.log2(unit))))


def entry_bits(law: NoiseLaw, cost: float, columns: float, factors: int, unit: int = 1) -> int:
    """The most bits of each rounded factor's entries that leave room for the noise of a product.

    `columns` is the logarithm of what a column of a product of ones costs at noise 1. Records of numbers
    count by whole numbers of so many bits as their unit has, which are gone; Infeasible if too few are left.
    """
    if law == "laplace":
        room = math.log2(LARGEST_SCALE) + math.log2(cost) - columns
    else:
        room = NOISE_BITS + 0.5 * (math.log2(cost) - columns)
    gone = math.log2(unit)
    most = max(ALL_BITS - gone, min(math.log2(LARGEST_ENTRY) - gone, SOME_BITS * factors))
    bits = int(min(most, room - gone)) // max(factors, 1)
    if unit > 1 and bits < FEWEST_BITS and factors:
        raise Infeasible(
            f"a table of numbers counts records by whole numbers of {unit.bit_length()} bits, which leaves "
            "too few of 64 for what is measured; use a coarser step, a lower degree, bins of equal width, or "
            "fewer attributes in one table"
        )
    return max(LEAST_BITS, bits)


def even_bits(allowed: Fraction) -> int:
    """Bits of the entries that make noise of the whole budget span about a thousand units, or more."""
    return EVEN_BITS + max(0, math.ceil(0.5 * math.log2(allowed)))


def centred_shape(shape: Shape, span: Integers | None, bits: int, few: int) -> Shape:
    """A centred shape in integers of at most so many bits, or of `few` where nothing needs rounding."""
    matrix, rank, sizes = shape.matrix, shape.rank, shape.sizes
    if shape.complete and len(sizes) == 1 and span is None and _is_contrast(matrix):
        return Shape(sizes, contrast_rows(sizes[0], few).astype(np.float64), rank)
    if span is None and not shape.complete:
        matrix = completed(matrix, [np.ones(size) for size in sizes])
        rank = len(matrix)
    within = partial(centred_rows, matrix, sizes)
    rounding = within if span is None else partial(combined_rows, matrix, short_basis(span))
    rows = enough_bits(rounding, matrix, rank, few=FEW_BITS, most=bits)
    return Shape(sizes, rows.astype(np.float64), rank)


def _is_contrast(matrix: Array) -> bool:
    """Whether the strategy measures all centred cells alike, as for marginals."""
    size = matrix.shape[1]
    gram = matrix.T @ matrix
    wanted = (np.eye(size) - 1.0 / size) * (np.trace(gram) / (size - 1))
    return bool(np.abs(gram - wanted).max() <= 1e-9 * np.abs(gram).max())


def contrast_rows(size: int, bits: int) -> Integers:
    """A multiple of `n I - 11'`: measures all centred cells alike, with no rounding at all."""
    multiple = max(1, 2**bits // size)
    return np.asarray(multiple * (size * np.eye(size, dtype=np.int64) - 1), dtype=np.int64)


def kept_in_span(
    shape: Shape,
    number: int,
    spans: dict[int, Integers | None],
    span: Callable[[], Integers | None],
    measures: Sequence[Measure],
) -> Shape:
    """The shape, with integer rows in `spans` if it must not be rounded in any other way.

    A shape that is not complete keeps to what is asked (unless the solver measures more than that, as Fourier
    coefficients do); a complete one under another measure than the uniform to what that centres. One that is
    neither, for queries without a small integer form, is completed first.
    """
    tilted = any(measure.numerators is not None for measure in measures)
    if not shape.complete:
        asked = independent_integers(span(), shape.rank)
        if asked is not None or not tilted:
            spans[number] = asked
            return shape
        matrix = completed(shape.matrix, [measure.vector() for measure in measures])
        shape = Shape.independent(shape.sizes, matrix)
    if tilted:
        spans[number] = whole_span(measures)
    return shape


def measurable(
    ideal: Strategy, spans: Spans, allowed: Fraction, person: Person, *, units: Sequence[int] = ()
) -> Strategy:
    """The integer form of a real strategy, which the kernel proves to cost at most `allowed`.

    What it costs is what it costs a person, over `unit.factor`. `units` are those of the attributes that the
    strategy is for.
    """
    whole = integer_strategy(ideal, spans, allowed, units)
    spent = proved_cost(whole, person)
    if (1 - NEGLIGIBLE) * allowed <= spent <= allowed:
        return whole
    return _at(whole, spent, allowed, person)


def rebudgeted(strategy: Strategy, allowed: Fraction, person: Person) -> Strategy:
    """The same integer measurements with noise that uses up `allowed`, as far as the kernel can prove."""
    return _at(strategy, proved_cost(strategy, person), allowed, person)


def _at(strategy: Strategy, spent: Fraction, allowed: Fraction, person: Person) -> Strategy:
    """The strategy, which is proved to cost `spent`, with all its costs scaled to cost `allowed`."""
    found = with_budget(strategy, allowed * strategy.exact_cost() / spent)
    if proved_cost(found, person) > allowed:
        raise Infeasible("the blocks are too many to share this budget")
    return found


def with_budget(strategy: Strategy, allowed: Fraction) -> Strategy:
    """The integer strategy with its costs scaled to use up `allowed`, exactly accounted."""
    if float(allowed) <= 0:
        raise Infeasible("floats do not hold so small a budget; give more")
    whole, law = strategy.cost(), strategy.law
    grain = GRAINS - math.ceil(math.log2(allowed))
    most = math.floor(allowed * Fraction(2) ** grain)
    alone = sum(len(layer.noise) for layer in strategy.layers) == 1
    norms = np.array([float(_norm(law, shape)) for shape in strategy.shapes])
    entries = np.array([float(np.abs(shape.matrix).max()) for shape in strategy.shapes])
    layers = []
    for layer in strategy.layers:
        shares = np.floor(layer.costs / whole * (float(most) * (1 - SLACK))).astype(np.int64)
        shares = np.array([most]) if alone else np.maximum(shares, LEAST_GRAINS)
        costs = np.asarray(shares * 2.0**-grain, dtype=np.float64)
        squared = float(layer.multiplier) ** 2
        multiple = layer.multiplier if law == "laplace" else squared
        parameters = norms[layer.shapes].prod(axis=1) / costs * multiple
        largest = layer.multiplier * math.prod(int(entries[column].max()) for column in layer.shapes.T)
        refuse_unfit(law, float(parameters.min()), float(parameters.max()), largest)
        noise = integer_variances(law, parameters) / squared
        layers.append(replace(layer, shares=shares, costs=costs, noise=noise))
    result = replace(strategy, layers=tuple(layers), grain=grain)
    if result.exact_cost() > allowed:
        raise Infeasible("the blocks are too many to share this budget")
    return result


def _norm(law: NoiseLaw, shape: Shape) -> int:
    """Cost of an integer shape at noise of parameter 1, exactly."""
    return matrix_cost(law, shape.matrix.astype(np.int64))


def refuse_unfit(law: NoiseLaw, least: float, widest: float, entry: int) -> None:
    """Infeasible if 64-bit integers cannot hold noise of these parameters, or counts times this entry.

    Of Gaussian noise narrower than a unit, the variance after rounding would not be what is stated (I-005).
    """
    if law == "laplace":
        low, high, what = 1 / LARGEST_SCALE, LARGEST_SCALE, "the Laplace noise of this plan"
    else:
        low, high, what = LEAST_VARIANCE, WIDEST_NOISE**2, "the noise of a block"
    if not low <= least <= widest <= high:
        raise Infeasible(
            f"{what} does not fit 64-bit integers; plan for this budget (a plan made for another may not "
            "stretch so far), or with weights that differ less"
        )
    if entry > LARGEST_ENTRY:
        raise Infeasible(
            f"a block has entries of {entry.bit_length()} bits, too large to measure more than a few records "
            "in 64-bit integers; use fewer attributes in one table, or a coarser step of its numbers"
        )


def proved_cost(strategy: Strategy, person: Person) -> Fraction:
    """What an integer strategy is proved to cost a person, over `unit.factor`: one record's cost, or less."""
    if person.simple and not _may_save(strategy):
        return strategy.exact_cost()
    return person_cost(batches_of(strategy), person) / person.unit.factor_of(strategy.law)


def _may_save(strategy: Strategy) -> bool:
    """Whether adding up costs cell by cell might be less than the sum of what the blocks cost alone."""
    blocks = sum(len(layer.noise) for layer in strategy.layers)
    if strategy.nested or not 1 < blocks <= MOST_BLOCKS:
        return False
    costs = [column_costs(strategy.law, shape.matrix) for shape in strategy.shapes]
    level = np.array([float(own.min() / own.max()) for own in costs])
    least = sum(float(np.sum(layer.costs * level[layer.shapes].prod(axis=1))) for layer in strategy.layers)
    sought = next((part for few, part in SOUGHT.items() if blocks <= few), ROUNDING)
    return least < (1 - sought) * strategy.cost()


def record_cost(strategy: Strategy, person: Person) -> float:
    """About what a real strategy costs, as `proved_cost`: the sum of what its blocks cost alone."""
    if person.simple:
        return strategy.cost()
    found = separate_person_cost(list(real_measurements(strategy)), person)
    return float(found / person.unit.factor_of(strategy.law))


def ideal_scale(ideal: Strategy, released: Strategy, allowed: Fraction, person: Person) -> float:
    """What the costs of a real strategy are multiplied by to be compared with its integer form at a budget.

    Both then cost the same, block by block added up: as much as the integer one is proved to afford. Where
    that is no more than the budget, but for rounding, it is the budget.
    """
    spent = released.exact_cost()
    if person.simple and spent <= allowed * Fraction(1 + ROUNDING):
        spent = allowed
    return float(spent) / ideal.cost()
