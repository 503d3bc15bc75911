"""Blocks drawn at random against dense twins: every query and measurement over every cell."""

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from separate import separate_cost

import residua as rs
from residua.answering.blocks import Layer, Shape
from residua.answering.coupled.answerer import Coupled
from residua.answering.protocol import Answerer
from residua.errors import NotInSpan
from residua.kernel.cost import added_cost
from residua.kernel.measurement import Measurement
from residua.linalg.matrices import Measure, centred_columns
from residua.privacy.unit import Person
from residua.release import Measurements
from residua.strategy.build import whole_span
from residua.strategy.integers import independent_integers
from residua.strategy.rounding import measurable, record_cost
from residua.strategy.strategy import Domain, Strategy, batches_of
from residua.workload import Table

REPLACED = Person(rs.Unit(neighbours="replace_one"))

Array = NDArray[np.float64]

SINGLES = (rs.identity, rs.total, rs.prefix, rs.ranges, rs.circular, rs.predicates)
PAIRS = (rs.affine, rs.abs_diff)
NOISE = (0.03, 0.5, 1.0, 7.0, 40.0)


def over_cells(matrix: Array, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """Rows on some attributes as rows over all cells of the schema, by looking up each cell."""
    if not attributes:
        return np.repeat(matrix, math.prod(sizes), axis=1)
    place = np.indices(sizes).reshape(len(sizes), -1)
    inner = [place[axis] for axis in attributes]
    return matrix[:, np.ravel_multi_index(inner, [sizes[axis] for axis in attributes])]


def times(parts: list[Array], cells: int) -> Array:
    """Every product of one row from each part, the last part fastest."""
    rows = np.ones((1, cells))
    for part in parts:
        rows = (rows[:, None, :] * part[None, :, :]).reshape(-1, cells)
    return rows


def rows_of(group: Table, sizes: tuple[int, ...]) -> Array:
    parts = [over_cells(f.queries.matrix(), f.attributes, sizes) for f in group.factors]
    return times(parts, math.prod(sizes))


def measured_rows(strategy: Strategy) -> Array:
    """All measurements over all cells, each divided by its noise's standard deviation."""
    cells = math.prod(strategy.sizes)
    rows = []
    for layer in strategy.layers:
        for subset, shapes, noise in zip(layer.subsets, layer.shapes, layer.noise, strict=True):
            parts = []
            for places, number in zip(layer.layout, shapes, strict=True):
                attributes = tuple(int(subset[place]) for place in places)
                parts.append(over_cells(strategy.shapes[number].matrix, attributes, strategy.sizes))
            rows.append(times(parts, cells) / math.sqrt(noise))
    return np.concatenate(rows)


@st.composite
def shapes(draw, sizes, measures):
    """Any rows on these cells: whole numbers of any rank, or centred ones under these measures."""
    cells = math.prod(sizes)
    count = draw(st.integers(1, cells + 1))
    entries = st.lists(st.integers(-3, 3), min_size=count * cells, max_size=count * cells)
    rows = np.array(draw(entries), dtype=np.float64).reshape(count, cells)
    if draw(st.integers(0, 2)) == 0:
        rows = rows @ np.rint(
            math.prod(sum(m.whole_numbers()) for m in measures)
            * centred_columns(np.eye(cells), sizes, measures)
        )
    rank = int(np.linalg.matrix_rank(rows)) if rows.any() else 0
    assume(rank > 0)
    return Shape(tuple(sizes), rows, rank)


@st.composite
def layers_of(draw, sizes, measures, start):
    """One layer of one block on some attributes, with its shapes numbered from `start`."""
    ways = draw(st.integers(0, min(len(sizes), 3)))
    subset = sorted(draw(st.permutations(range(len(sizes))))[:ways])
    left, layout = draw(st.permutations(range(ways))), []
    while left:
        size = draw(st.integers(1, len(left)))
        layout.append(tuple(left[:size]))
        left = left[size:]
    found = [
        draw(shapes([sizes[subset[at]] for at in places], [measures[subset[at]] for at in places]))
        for places in layout
    ]
    noise = draw(st.sampled_from(NOISE))
    cost = math.prod(shape.norm for shape in found) / noise
    numbers = np.arange(start, start + len(found), dtype=np.int64).reshape(1, -1)
    subsets = np.array([subset], dtype=np.int32).reshape(1, -1)
    return Layer(subsets, tuple(layout), numbers, np.array([cost]), np.array([noise])), found


@st.composite
def strategies(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    measures = []
    for size in sizes:
        tilted = draw(st.booleans())
        numerators = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
        measures.append(Measure.whole(numerators) if tilted else Measure(size))
    all_shapes: list[Shape] = []
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        layer, found = draw(layers_of(sizes, measures, len(all_shapes)))
        layers.append(layer)
        all_shapes += found
    return Strategy((Domain(sizes, tuple(measures)),), tuple(all_shapes), tuple(layers))


@st.composite
def tables(draw, schema):
    """One table on some attributes in any order."""
    left = draw(st.permutations(schema.names))[: draw(st.integers(0, 3))]
    families: dict[Any, Any] = {}
    while left:
        if len(left) > 1 and draw(st.booleans()):
            families[left.pop(0), left.pop(0)] = draw(st.sampled_from(PAIRS))
        else:
            families[left.pop(0)] = draw(st.sampled_from(SINGLES))
    work = draw(st.sampled_from([1.0, 3.0])) * rs.table(schema, families)
    return next(iter(work.groups()))


@st.composite
def problems(draw):
    strategy = draw(strategies())
    schema = rs.Schema.of_sizes(strategy.sizes)
    return strategy, [draw(tables(schema)) for _ in range(3)]


class Twin:
    """A strategy as one matrix over all cells."""

    def __init__(self, strategy: Strategy) -> None:
        self.sizes = strategy.sizes
        self.rows = measured_rows(strategy)
        inverse = np.linalg.pinv(self.rows, rcond=1e-10)
        self.covariance = inverse @ inverse.T
        self.seen = inverse @ self.rows

    def outside(self, group: Table) -> float:
        rows = rows_of(group, self.sizes)
        return float(np.abs(rows - rows @ self.seen).max())

    def between(self, left: Table, right: Table) -> Array:
        return rows_of(left, self.sizes) @ self.covariance @ rows_of(right, self.sizes).T


def answerers(strategy: Strategy) -> list[Answerer]:
    """The one for any blocks, and the one that was chosen for these."""
    return [Coupled(strategy.blocks()), strategy.answerer]


@given(problems())
@settings(max_examples=80)
def test_every_figure_is_that_of_the_best_unbiased_answer_from_all_blocks(problem):
    """Claims O-002 and O-003."""
    strategy, groups = problem
    twin = Twin(strategy)
    for answerer in answerers(strategy):
        check_figures(answerer, twin, groups)


def check_figures(strategy: Answerer, twin: Twin, groups: list[Table]) -> None:
    answered = [group for group in groups if twin.outside(group) < 1e-8]
    for group in answered:
        variances = np.diagonal(twin.between(group, group))
        near = 1e-9 * variances.max()
        assert strategy.variances(group) == pytest.approx(variances, rel=1e-6, abs=near)
        assert strategy.total(group, weighted=False) == pytest.approx(variances.sum(), rel=1e-6)
        assert strategy.total(group, weighted=True) == pytest.approx(group.weight * variances.sum(), rel=1e-6)
        assert strategy.largest(group) == pytest.approx(variances.max(), rel=1e-6)
    for left, right in combinations(answered, 2):
        found, wanted = strategy.covariance(left, right), twin.between(left, right)
        scale = np.sqrt(np.outer(strategy.variances(left), strategy.variances(right)))
        assert np.all(np.abs(found - wanted) <= 1e-6 * scale + 1e-12)


@given(problems())
@settings(max_examples=60)
def test_a_query_is_answered_exactly_where_it_is_in_the_span_of_all_blocks(problem):
    """Claim O-003."""
    strategy, groups = problem
    twin = Twin(strategy)
    for answerer in answerers(strategy):
        for group in groups:
            if twin.outside(group) < 1e-8:
                answerer.variances(group)
                answerer.total(group, weighted=True)
            else:
                assert twin.outside(group) > 1e-6
                for figure in (answerer.variances, answerer.largest, answerer.require_answerable):
                    with pytest.raises(NotInSpan, match="add the table to the workload"):
                        figure(group)


@given(strategies())
@settings(max_examples=40)
def test_adding_or_replacing_a_record_never_costs_more_than_is_said(strategy):
    """Claim O-006."""
    rows = measured_rows(strategy)
    privacy = rows.T @ rows
    own = np.diagonal(privacy)
    assert own.max() <= strategy.cost() * (1 + 1e-9)
    replaced = own[:, None] + own[None, :] - 2 * privacy
    assert replaced.max() <= record_cost(strategy, REPLACED) * (1 + 1e-9) + 1e-12


def spans_of(strategy: Strategy) -> dict[int, Any]:
    """Integer rows with the row space of every shape, as a method would give them."""
    spans: dict[int, Any] = {}
    for layer in strategy.layers:
        for places, number in zip(layer.layout, layer.shapes[0].tolist(), strict=True):
            shape = strategy.shapes[number]
            measures = [strategy.measures[layer.subsets[0][place]] for place in places]
            if shape.is_centred(measures, whole=False) and shape.complete:
                spans[number] = whole_span(measures)
            elif shape.rank < shape.matrix.shape[1]:
                spans[number] = independent_integers(shape.matrix.astype(np.int64), shape.rank)
    return spans


def counted(codes: NDArray[np.int64], batch: Measurement) -> NDArray[np.int64]:
    """Counts of the marginal of each block of a batch, (blocks, cells)."""
    places = [
        np.ravel_multi_index(tuple(codes[:, row].T), batch.sizes)
        if batch.sizes
        else np.zeros(len(codes), int)
        for row in batch.subsets.tolist()
    ]
    return np.stack([np.bincount(found, minlength=batch.cells) for found in places])


@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from(["1/2", "1/10000", "50"]))
@settings(max_examples=60)
def test_an_integer_release_without_noise_gives_the_true_counts(problem, seed, budget):
    """Claims O-004, O-005 and O-006: unbiased by construction, at a cost that is exact."""
    strategy, groups = problem
    allowed = Fraction(budget)
    whole = measurable(strategy, spans_of(strategy), allowed, Person(rs.Unit()))
    batches = batches_of(whole)
    assert separate_cost(batches, replaced=False) == whole.exact_cost()
    assert allowed * (1 - Fraction(1, 2**30)) <= added_cost(batches) <= allowed
    codes = np.random.default_rng(seed).integers(0, strategy.sizes, (1000, len(strategy.sizes)))
    ones = [1] * len(strategy.sizes)
    exact = Measurements(
        tuple(batch.apply(counted(codes, batch), batch.multiples(ones)) for batch in batches)
    )
    found = [answerer.estimator(answerer.estimates(exact.in_units(whole))) for answerer in answerers(whole)]
    counts = np.bincount(
        np.ravel_multi_index(tuple(codes.T), strategy.sizes), minlength=math.prod(strategy.sizes)
    )
    ideal = strategy.scaled(float(whole.exact_cost()) / strategy.cost())
    for group in groups:
        if Twin(strategy).outside(group) < 1e-8:
            truth = rows_of(group, strategy.sizes) @ counts
            for estimator in found:
                assert estimator.answers(group) == pytest.approx(truth, abs=1e-6)
            total = ideal.total(group, weighted=False)
            assert whole.total(group, weighted=False) == pytest.approx(total, rel=2e-3)
