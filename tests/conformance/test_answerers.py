"""Every answerer gives the figures and answers of the general one, and of a dense matrix over all cells.

Strategies of each structure are drawn at random, small enough that every measurement is written out over
every cell. What the structure allows to be quick must change nothing: not a variance, not an answer, and not
what is refused.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.answering.blocks import Layer, Measured, Placed, Shape
from residua.answering.coarsened import Coarsened
from residua.answering.coupled.answerer import Coupled
from residua.answering.diagonal import Diagonal
from residua.answering.independent.answerer import Independent
from residua.answering.kronecker import Kronecker
from residua.answering.nested import Nested
from residua.answering.periods import Periods
from residua.answering.protocol import Answerer, Estimator
from residua.linalg.classes import Classes, JointClasses
from residua.linalg.matrices import Measure, centred_columns
from residua.privacy.unit import Person
from residua.strategy.build import of_blocks, seen_by, whole_span
from residua.strategy.integers import independent_integers
from residua.strategy.joining import as_cells
from residua.strategy.rounding import measurable
from residua.strategy.strategy import Domain, Strategy
from residua.workload import Table
from residua.workload.views import View

Array = NDArray[np.float64]
Generator = np.random.Generator

SEEDS = range(8)
NOISE = (0.03, 0.5, 1.0, 7.0, 40.0)
SINGLES = (rs.identity, rs.total, rs.prefix, rs.ranges, rs.circular, rs.predicates)
PAIRS = (rs.affine, rs.abs_diff)
NEAR = 1e-6  # relative


# --- strategies of each structure --------------------------------------------------------------------------


def sizes_of(rng: Generator) -> tuple[int, ...]:
    return tuple(rng.integers(2, 5, rng.integers(2, 5)).tolist())


def whole_rows(rng: Generator, cells: int, count: int | None = None) -> Array:
    """Small whole numbers, of any rank unless there are as many rows as cells."""
    many = int(rng.integers(1, cells + 2)) if count is None else count
    rows = rng.integers(-2, 4, (many, cells)).astype(np.float64)
    rows[0, rng.integers(cells)] = 5.0
    return rows


def shared_out(rng: Generator, attributes: Sequence[int]) -> list[tuple[int, ...]]:
    """The attributes in a random order, some of them together."""
    left, parts = rng.permutation(attributes).tolist(), []
    while left:
        many = int(rng.integers(1, min(len(left), 2) + 1))
        parts.append(tuple(left[:many]))
        left = left[many:]
    return parts


def some_of(rng: Generator, count: int, least: int = 0) -> list[int]:
    return sorted(rng.permutation(count)[: rng.integers(least, count + 1)].tolist())


def shape_on(rng: Generator, sizes: Sequence[int], attributes: Sequence[int]) -> Shape:
    own = [sizes[at] for at in attributes]
    return Shape.of(own, whole_rows(rng, math.prod(own)))


def block(rng: Generator, factors: Sequence[Placed]) -> tuple[Sequence[Placed], float]:
    """The block with noise that makes its cost the inverse of one of `NOISE`."""
    return factors, float(rng.choice(NOISE)) * math.prod(factor.shape.norm for factor in factors)


def one_block(rng: Generator) -> Strategy:
    sizes = sizes_of(rng)
    parts = shared_out(rng, some_of(rng, len(sizes)))
    return of_blocks(sizes, [block(rng, [Placed(own, shape_on(rng, sizes, own)) for own in parts])])


def centred_blocks(rng: Generator) -> Strategy:
    """On different attributes, centred under weights that may be uneven."""
    sizes = sizes_of(rng)
    measures = [
        Measure.whole(rng.integers(1, 5, size).tolist()) if rng.integers(2) else Measure(size)
        for size in sizes
    ]
    subsets = {tuple(some_of(rng, len(sizes))) for _ in range(5)} | {(), (0,)}
    shapes: list[Shape] = []
    layers = []
    for subset in sorted(subsets):
        layout = shared_out(rng, range(len(subset)))
        numbers = range(len(shapes), len(shapes) + len(layout))
        for places in layout:
            own = [measures[subset[place]] for place in places]
            shapes.append(centred_shape(rng, [measure.size for measure in own], own))
        layers.append(layer_of(subset, layout, shapes, numbers, 1 / float(rng.choice(NOISE))))
    return Strategy((Domain(sizes, tuple(measures)),), tuple(shapes), tuple(layers))


def periods(rng: Generator) -> Strategy:
    """Centred blocks on different attributes, each beside all cells of one more attribute."""
    others = centred_blocks(rng)
    at, size = int(rng.integers(len(others.sizes) + 1)), int(rng.integers(1, 5))
    even = others.domains[0]
    sizes = (*even.sizes[:at], size, *even.sizes[at:])
    measures = (*even.measures[:at], Measure(size), *even.measures[at:])
    shapes, layers = list(others.shapes), []
    for layer in others.layers:
        root = np.tril(rng.integers(-3, 4, (size, size)), -1) + np.diag(rng.integers(1, 4, size))
        shapes.append(Shape.of([size], root.astype(np.float64)))
        subset = [own + (own >= at) for own in layer.subsets[0].tolist()]
        place = sum(own < at for own in subset)
        layout = [tuple(own + (own >= place) for own in places) for places in layer.layout]
        numbers = [*layer.shapes[0].tolist(), len(shapes) - 1]
        subset.insert(place, at)
        layers.append(layer_of(subset, [*layout, (place,)], shapes, numbers, float(layer.costs[0])))
    return Strategy((Domain(sizes, measures),), tuple(shapes), tuple(layers))


def beside_whole(rng: Generator) -> Strategy:
    """Centred blocks on different attributes, each beside rows over two more attributes together."""
    others = centred_blocks(rng)
    even, more = others.domains[0], tuple(rng.integers(1, 4, 2).tolist())
    whole = [len(even.sizes), len(even.sizes) + 1]
    measures = (*even.measures, *map(Measure, more))
    shapes, layers = list(others.shapes), []
    for layer in others.layers:
        shapes.append(Shape.of(more, whole_rows(rng, math.prod(more))))
        subset = layer.subsets[0].tolist()
        layout = [*layer.layout, (len(subset), len(subset) + 1)]
        numbers = [*layer.shapes[0].tolist(), len(shapes) - 1]
        layers.append(layer_of([*subset, *whole], layout, shapes, numbers, float(layer.costs[0])))
    return Strategy((Domain((*even.sizes, *more), measures),), tuple(shapes), tuple(layers))


def centred_shape(rng: Generator, sizes: Sequence[int], measures: Sequence[Measure]) -> Shape:
    common = math.prod(sum(measure.whole_numbers()) for measure in measures)
    centre = np.rint(common * centred_columns(np.eye(math.prod(sizes)), sizes, measures))
    rows = whole_rows(rng, math.prod(sizes)) @ centre
    return Shape(tuple(sizes), rows, int(np.linalg.matrix_rank(rows)))


def layer_of(
    subset: Sequence[int],
    layout: Sequence[tuple[int, ...]],
    shapes: Sequence[Shape],
    numbers: Sequence[int],
    cost: float,
) -> Layer:
    variance = math.prod(shapes[number].norm for number in numbers) / cost
    return Layer(
        np.array([subset], dtype=np.int32).reshape(1, -1),
        tuple(layout),
        np.array([numbers], dtype=np.int64).reshape(1, -1),
        np.array([cost]),
        np.array([variance]),
    )


def nested_blocks(rng: Generator) -> Strategy:
    """One matrix for each attribute, whose rows tell the total, on several marginals."""
    sizes = sizes_of(rng)
    shapes = []
    for size in sizes:
        rows = whole_rows(rng, size)
        shapes.append(Shape.of([size], np.concatenate([rows, np.ones((1, size))])))
    subsets = [some_of(rng, len(sizes)) for _ in range(4)]
    blocks = [
        block(rng, [Placed((at,), shapes[at]) for at in rng.permutation(subset).astype(int).tolist()])
        for subset in subsets
    ]
    return of_blocks(sizes, blocks)


def products(rng: Generator) -> Strategy:
    """Two or three products over the same axes; in some of them an axis is added up."""
    sizes = sizes_of(rng)
    axes = shared_out(rng, some_of(rng, len(sizes), least=1))
    blocks = []
    for _ in range(int(rng.integers(2, 4))):
        used = [axes[at] for at in rng.permutation(len(axes)) if rng.integers(4)]
        blocks.append(block(rng, [Placed(axis, shape_on(rng, sizes, axis)) for axis in used]))
    return of_blocks(sizes, blocks)


def any_blocks(rng: Generator) -> Strategy:
    sizes = sizes_of(rng)
    blocks = []
    for _ in range(int(rng.integers(2, 6))):
        parts = shared_out(rng, some_of(rng, len(sizes)))
        blocks.append(block(rng, [Placed(own, shape_on(rng, sizes, own)) for own in parts]))
    return of_blocks(sizes, blocks)


STRUCTURES: dict[str, tuple[type, Callable[[Generator], Strategy]]] = {
    "one block": (Kronecker, one_block),
    "centred blocks": (Independent, centred_blocks),
    "periods": (Periods, periods),
    "beside whole attributes": (Periods, beside_whole),
    "nested blocks": (Nested, nested_blocks),
    "products": (Diagonal, products),
    "any blocks": (Coupled, any_blocks),
}


@cache
def drawn(name: str, seed: int) -> Strategy:
    """A strategy that is answered as its structure should be, and others of its kind before it are not."""
    wanted, make = STRUCTURES[name]
    rng = np.random.default_rng([seed, *map(ord, name)])
    while True:
        found = make(rng)
        if type(found.answerer) is wanted:
            return found


# --- the same over every cell ------------------------------------------------------------------------------


def over_cells(matrix: Array, codes: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Rows over cells of some attributes as rows over all cells, whose places on those are `codes`."""
    if not codes:
        return np.repeat(matrix, 1, axis=1)
    return matrix[:, np.ravel_multi_index(list(codes), tuple(sizes))]


def products_of(parts: Sequence[Array], cells: int) -> Array:
    """Every product of one row from each part, the last part fastest."""
    rows = np.ones((1, cells))
    for part in parts:
        rows = (rows[:, None, :] * part[None, :, :]).reshape(-1, cells)
    return rows


def codes_seen(domain: Domain, sizes: tuple[int, ...]) -> list[Array]:
    """For every cell of the schema its place along each attribute, as a domain sees it."""
    codes = list(np.indices(sizes).reshape(len(sizes), -1))
    places = list(codes)
    for part in domain.view.parts:
        kinds = [own.classes[codes[at]] for at, own in zip(part.attributes, part.partitions, strict=True)]
        joint = np.ravel_multi_index(kinds, [own.count for own in part.partitions])
        places[part.place] = part.joint.classes[joint]
    return places


def blocks_over_cells(strategy: Strategy, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, Array, float]]:
    """Layer, row, measured rows over all cells and noise of every block."""
    cells = math.prod(sizes)
    for number, layer in enumerate(strategy.layers):
        domain = strategy.domains[layer.domain]
        codes = codes_seen(domain, sizes)
        for row, subset in enumerate(layer.subsets.tolist()):
            parts = []
            for places, at in zip(layer.layout, layer.shapes[row].tolist(), strict=True):
                own = [codes[subset[place]] for place in places]
                parts.append(over_cells(strategy.shapes[at].matrix, own, strategy.shapes[at].sizes))
            yield number, row, products_of(parts, cells), float(layer.noise[row])


def asked_rows(group: Table, sizes: tuple[int, ...]) -> Array:
    codes = np.indices(sizes).reshape(len(sizes), -1)
    parts = [
        over_cells(f.queries.matrix(), [codes[at] for at in f.attributes], f.queries.sizes)
        for f in group.factors
    ]
    return products_of(parts, math.prod(sizes))


def weights_of(group: Table) -> Array:
    """Weight of every query."""
    own = (
        np.ones(f.queries.count) if f.queries.weights is None else np.asarray(f.queries.weights)
        for f in group.factors
    )
    return np.asarray(reduce(np.multiply.outer, own, np.array(group.weight))).reshape(-1)


@dataclass(frozen=True)
class Twin:
    """A strategy as one matrix over all cells, its noise of variance 1; and numbers that were measured."""

    sizes: tuple[int, ...]
    rows: Array
    numbers: Array
    measured: Measured

    @classmethod
    def of(cls, strategy: Strategy, sizes: tuple[int, ...], seed: int) -> "Twin":
        rng = np.random.default_rng(seed)
        values: dict[tuple[int, int], Array] = {}
        rows, numbers = [], []
        for layer, row, own, variance in blocks_over_cells(strategy, sizes):
            values[layer, row] = rng.normal(size=len(own))
            rows.append(own / math.sqrt(variance))
            numbers.append(values[layer, row] / math.sqrt(variance))
        measured = [
            (layer, mine, np.stack([values[layer, row] for row in mine.tolist()]))
            for layer, mine in strategy.runs()
        ]
        return cls(sizes, np.concatenate(rows), np.concatenate(numbers), measured)

    def coefficients(self, group: Table) -> Array:
        """Of the measured numbers in the best answers, (queries, numbers)."""
        return np.asarray(asked_rows(group, self.sizes) @ np.linalg.pinv(self.rows, rcond=1e-10))

    def answers(self, group: Table) -> bool:
        """Whether the measurements contain the table."""
        rows = asked_rows(group, self.sizes)
        outside = np.abs(rows - self.coefficients(group) @ self.rows).max() / np.abs(rows).max()
        assert outside < 1e-8 or outside > 1e-5, "a table that is too near the span to tell"
        return bool(outside < 1e-8)


def tables(rng: Generator, strategy: Strategy, sizes: tuple[int, ...]) -> list[Table]:
    """Tables of all kinds on the schema, and for some blocks combinations of what they measure."""
    schema = rs.Schema.of_sizes(sizes)
    works = [rs.table(schema)]
    for _ in range(8):
        left = rng.permutation(schema.names)[: rng.integers(1, 4)].tolist()
        families: dict[object, object] = {}
        while left:
            if len(left) > 1 and rng.integers(3) == 0:
                families[left.pop(), left.pop()] = rng.choice(PAIRS)
            else:
                families[left.pop()] = rng.choice(SINGLES)
        works.append(float(rng.integers(1, 4)) * rs.table(schema, families))
    for number, row, _, _ in list(blocks_over_cells(strategy, sizes))[:4]:
        layer = strategy.layers[number]
        if not layer.layout or strategy.coarsened:
            continue
        families = []
        for places, at in zip(layer.layout, layer.shapes[row].tolist(), strict=True):
            matrix = strategy.shapes[at].matrix
            names = [schema.names[layer.subsets[row, place]] for place in places]
            mixed = np.stack(
                [rng.integers(-2, 3, len(matrix)) @ matrix, matrix[np.abs(matrix).sum(1).argmax()]]
            )
            families.append((names, mixed, rng.integers(1, 4, 2).astype(float)))
        found = [next(rs.linear(schema, *each).groups()) for each in families]
        works.append(rs.Workload(schema, (Table("mixed", tuple(g.factors[0] for g in found), 2.0),)))
    return [group for work in works for group in work.groups()]


def check(answerer: Answerer, strategy: Strategy, sizes: tuple[int, ...], seed: int) -> tuple[int, int]:
    """All that an answerer says, against the dense twin; how many tables were answered and refused."""
    twin = Twin.of(strategy, sizes, seed)
    asked = tables(np.random.default_rng([seed, 1]), strategy, sizes)
    answered = [group for group in asked if twin.answers(group)]
    estimator = answerer.estimator(answerer.estimates(twin.measured))
    for group in answered:
        check_table(answerer, estimator, twin, group)
    for left, right in pairwise(answered):
        wanted = twin.coefficients(left) @ twin.coefficients(right).T
        scale = np.sqrt(np.outer(answerer.variances(left), answerer.variances(right)))
        assert np.all(np.abs(answerer.covariance(left, right) - wanted) <= NEAR * scale + 1e-9)
    for group in asked:
        if not twin.answers(group):
            check_refused(answerer, group, answered)
    return len(answered), len(asked) - len(answered)


def check_table(answerer: Answerer, estimator: Estimator, twin: Twin, group: Table) -> None:
    coefficients = twin.coefficients(group)
    variances = np.sum(coefficients**2, axis=1)
    near = NEAR * max(float(variances.max()), 1e-9)
    weighted = float(weights_of(group) @ variances)
    np.testing.assert_allclose(answerer.variances(group), variances, rtol=NEAR, atol=near)
    assert answerer.total(group, weighted=False) == pytest.approx(variances.sum(), rel=NEAR, abs=near)
    assert answerer.total(group, weighted=True) == pytest.approx(weighted, rel=NEAR, abs=near)
    assert answerer.largest(group) == pytest.approx(variances.max(), rel=NEAR, abs=near)
    np.testing.assert_allclose(
        answerer.covariance(group, group), coefficients @ coefficients.T, rtol=NEAR, atol=near
    )
    wanted = coefficients @ twin.numbers
    scale = NEAR * (1 + np.abs(wanted).max() + math.sqrt(variances.max()))
    np.testing.assert_allclose(estimator.answers(group), wanted, atol=scale)


def check_refused(answerer: Answerer, group: Table, others: Sequence[Table]) -> None:
    words = f"table '{group.name}'"
    for figure in (answerer.variances, answerer.largest, answerer.require_answerable):
        with pytest.raises(rs.NotInSpan, match=words):
            figure(group)
    for weighted in (False, True):
        with pytest.raises(rs.NotInSpan, match=words):
            answerer.total(group, weighted=weighted)
    for other in (group, *others[:1]):
        with pytest.raises(rs.NotInSpan):
            answerer.covariance(group, other)
        with pytest.raises(rs.NotInSpan):
            answerer.covariance(other, group)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_figures_and_answers_are_those_of_a_dense_matrix_over_all_cells(name, seed):
    strategy = drawn(name, seed)
    check(strategy.answerer, strategy, strategy.sizes, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_the_general_answerer_says_the_same_of_every_structure(name, seed):
    strategy = drawn(name, seed)
    check(Coupled(strategy.blocks()), strategy, strategy.sizes, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_strategies_in_whole_numbers_are_answered_alike(name, seed):
    ideal = drawn(name, seed)
    strategy = measurable(ideal, spans_of(ideal), Fraction(1), Person(rs.Unit()))
    check(strategy.answerer, strategy, strategy.sizes, seed)
    check(Coupled(strategy.blocks()), strategy, strategy.sizes, seed)


def spans_of(strategy: Strategy) -> dict[int, NDArray[np.int64]]:
    """Integer rows with the row space of every shape, as a method would give them."""
    spans = {}
    for layer in strategy.layers:
        for subset, numbers in zip(layer.subsets.tolist(), layer.shapes.tolist(), strict=True):
            for places, number in zip(layer.layout, numbers, strict=True):
                shape = strategy.shapes[number]
                measures = [strategy.measures[subset[place]] for place in places]
                if shape.is_centred(measures, whole=True) and shape.complete:
                    spans[number] = whole_span(measures)
                elif shape.rank < shape.matrix.shape[1]:
                    spans[number] = independent_integers(shape.matrix.astype(np.int64), shape.rank)
    return spans


@pytest.mark.parametrize("name", STRUCTURES)
def test_some_tables_are_answered_and_some_are_refused(name):
    each = ((drawn(name, seed), seed) for seed in SEEDS)
    found = [check(strategy.answerer, strategy, strategy.sizes, seed) for strategy, seed in each]
    answered, refused = (sum(column) for column in zip(*found, strict=True))
    assert answered > 10
    assert refused > 10


# --- runs of tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_runs_of_tables_are_answered_as_each_of_them_is(name, seed):
    strategy = drawn(name, seed)
    schema = rs.Schema.of_sizes(strategy.sizes)
    estimates = strategy.estimates(Twin.of(strategy, strategy.sizes, seed).measured)
    estimator = strategy.answerer.estimator(estimates)
    twin = Twin.of(strategy, strategy.sizes, seed)
    for family in (rs.identity, rs.ranges, rs.total):
        (run,) = rs.all_tables(schema, 1, family).parts
        groups = list(run)
        if not all(map(twin.answers, groups)):
            with pytest.raises(rs.NotInSpan):
                strategy.totals(run)
            continue
        variances = [strategy.variances(group) for group in groups]
        total = sum(float(own.sum()) for own in variances)
        assert strategy.totals(run) == pytest.approx((total, total), rel=NEAR)
        for tables_of_kind, answers in estimator.run(run):
            for at, own in zip(tables_of_kind.tolist(), answers, strict=True):
                np.testing.assert_allclose(own, estimator.answers(groups[at]), atol=1e-8)
        examples = [np.sort(strategy.variances(group)) for group in strategy.answerer.examples(run)]
        for own in variances:
            assert any(len(own) == len(each) and np.allclose(np.sort(own), each) for each in examples)
        worst = max(strategy.largest(group) for group in strategy.answerer.least_accurate(run))
        assert worst == pytest.approx(max(own.max() for own in variances), rel=NEAR)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_covariances_of_residuals_as_products_are_those_of_the_cells(name, seed):
    strategy = drawn(name, seed)
    twin = Twin.of(strategy, strategy.sizes, seed)
    schema = rs.Schema.of_sizes(strategy.sizes)
    for subset in [(at,) for at in range(len(schema))] + [(0, 1)]:
        (group,) = rs.table(schema, [schema.names[at] for at in subset]).groups()
        found = strategy.answerer.factored(subset)
        if found is None or not twin.answers(group):
            continue
        sizes = [strategy.sizes[at] for at in subset]
        order = [at for factor in found.factors for at in factor.attributes]
        square = found.scale * reduce(np.kron, [factor.square() for factor in found.factors], np.ones((1, 1)))
        turn = np.arange(len(square)).reshape([strategy.sizes[at] for at in order])
        turn = turn.transpose(np.argsort(order)).reshape(-1)
        means = found.means or [np.full(size, 1 / size) for size in sizes]
        centre = reduce(np.kron, [np.eye(len(p)) - np.outer(p, np.ones(len(p))) for p in means])
        cells = twin.coefficients(group) @ twin.coefficients(group).T
        wanted = centre @ cells @ centre.T
        np.testing.assert_allclose(
            centre @ square[np.ix_(turn, turn)] @ centre.T, wanted, atol=NEAR * np.abs(cells).max()
        )


# --- classes of cells --------------------------------------------------------------------------------------


def coarsened(rng: Generator, name: str) -> tuple[Strategy, tuple[int, ...]]:
    """A strategy of some structure for attributes by classes of their cells, or two of them as one."""
    inner = STRUCTURES[name][1](rng)
    while type(inner.answerer) is not STRUCTURES[name][0]:
        inner = STRUCTURES[name][1](rng)
    sizes = list(inner.sizes)
    parts = []
    if rng.integers(2):
        sizes[0] += 1
        classes = Classes(np.append(rng.permutation(inner.sizes[0]), 0))
        parts.append(JointClasses.of_one(0, classes))
    else:
        sizes[0], more = 2, 3
        sizes.append(more)  # joined to the first: each of their cells is of one of its classes
        joint = Classes(np.resize(np.arange(inner.sizes[0]), 2 * more))
        parts.append(JointClasses((0, len(inner.sizes)), (Classes.every(2), Classes.every(more)), joint))
        (domain,) = inner.domains
        wide = Domain((*domain.sizes, 1), (*domain.measures, Measure(1)))
        inner = Strategy((wide,), inner.shapes, inner.layers)
    return seen_by([(inner, View(tuple(parts)), {})])[0], tuple(sizes)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_blocks_that_see_classes_of_cells_are_answered_as_blocks_over_cells(name, seed):
    strategy, sizes = coarsened(np.random.default_rng([seed, *map(ord, name)]), name)
    assert type(strategy.answerer) is Coarsened
    check(strategy.answerer, strategy, sizes, seed)
    measured = Twin.of(strategy, sizes, seed).measured
    over, numbers = as_cells(strategy, measured, sizes, range(len(sizes)))
    general = Coupled(over.blocks())
    twin = Twin.of(strategy, sizes, seed)
    estimator = general.estimator(general.estimates(numbers))
    for group in tables(np.random.default_rng([seed, 1]), strategy, sizes):
        if twin.answers(group):
            check_table(general, estimator, twin, group)
        else:
            check_refused(general, group, ())


BESIDE = {
    "a condition": "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0 OR a2 = 0",
    "a condition by groups": "SELECT a2, COUNT(*) FROM t WHERE NOT (a0 = 1 AND a1 = 1) GROUP BY a2",
}


@pytest.mark.parametrize("method", ["dense", "auto"])
@pytest.mark.parametrize("name", BESIDE)
def test_blocks_that_see_cells_beside_such_are_answered_as_blocks_over_cells(name, method, monkeypatch):
    """Where both measure nothing in common (claim H-041); what else they do is in `test_coarsening_twins`."""
    schema = rs.Schema.of_sizes([3, 4, 2])
    work = rs.sql(schema, BESIDE[name]) + rs.marginals(schema, up_to=1)
    monkeypatch.setattr("residua.methods.coarsening._by_classes", lambda *_: None)
    strategy = rs.plan(work, rs.zcdp(1), method=method).strategy
    assert len(strategy.domains) == 2
    ranks = {
        domain: np.linalg.matrix_rank(
            np.concatenate(
                [
                    rows
                    for layer, _, rows, _ in blocks_over_cells(strategy, schema.sizes)
                    if domain in (strategy.layers[layer].domain, None)
                ]
            )
        )
        for domain in (0, 1, None)
    }
    assert ranks[0] + ranks[1] == ranks[None]
    check(strategy.answerer, strategy, schema.sizes, 1)
    twin = Twin.of(strategy, schema.sizes, 1)
    estimator = strategy.answerer.estimator(strategy.estimates(twin.measured))
    for group in work.groups():
        assert twin.answers(group)
        check_table(strategy.answerer, estimator, twin, group)
