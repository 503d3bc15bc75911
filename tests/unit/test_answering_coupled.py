"""Blocks that overlap: figures known otherwise, what is shared, what is refused, digits that are kept."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import residua as rs
from residua.answering.blocks import Layer, Memory, Shape
from residua.answering.coupled import residuals as coupled_residuals
from residua.answering.coupled import system as coupled_system
from residua.answering.coupled import tables as coupled_tables
from residua.answering.coupled.answerer import Coupled
from residua.answering.coupled.residuals import contrasts, lifted, part_of, subsets_of, touched, turned
from residua.answering.kronecker import Kronecker
from residua.errors import Infeasible, NotInSpan
from residua.linalg.matrices import Measure
from residua.methods.blocks import querysmasher
from residua.strategy.manifest import strategy_from_manifest
from residua.strategy.strategy import Domain, Strategy


def block(subset, shape, noise, *, layout=None):
    """One block on a subset with its own layer; shapes are numbered by `joined`."""
    layout = (tuple(range(len(subset))),) if layout is None else layout
    shapes = shape if isinstance(shape, tuple) else (shape,)
    return subset, layout if subset else (), shapes if subset else (), noise


def joined(sizes, blocks, measures=None):
    """The strategy of some blocks."""
    shapes, layers = [], []
    for subset, layout, own, noise in blocks:
        numbers = np.arange(len(shapes), len(shapes) + len(own), dtype=np.int64).reshape(1, -1)
        shapes += own
        cost = math.prod(shape.norm for shape in own) / noise
        subsets = np.array([subset], dtype=np.int32).reshape(1, -1)
        layers.append(Layer(subsets, layout, numbers, np.array([cost]), np.array([noise])))
    measures = tuple(map(Measure, sizes)) if measures is None else measures
    return Strategy((Domain(tuple(sizes), measures),), tuple(shapes), tuple(layers))


def coupled(strategy):
    """Answers from all blocks together, whatever else could be said of their structure."""
    return Coupled(strategy.blocks())


def totals(answerer, part):
    """Sums of variances of a strategy that is answered so."""
    return Strategy.totals(SimpleNamespace(answerer=answerer), part)


def full(*sizes):
    """A shape that measures every cell, none of them alike."""
    cells = math.prod(sizes)
    rows = np.eye(cells) + np.tril(np.ones((cells, cells))) / cells
    return Shape.independent(sizes, rows)


def group_of(work):
    return next(iter(work.groups()))


# --- coordinates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tilted", [False, True])
def test_coordinates_of_all_residuals_give_back_the_query(tilted):
    """Claim O-001: q x is the sum over residuals of the coordinates of q times those of x."""
    sizes = (3, 2, 4)
    measures = [Measure.whole(range(1, n + 1)) if tilted else Measure(n) for n in sizes]
    rng = np.random.default_rng(0)
    q, x = rng.normal(size=(1, 24)), rng.normal(size=24)
    total = 0.0
    for kept in subsets_of(range(3)):
        counts = x.reshape(sizes)
        for axis in range(3):
            size, weights = sizes[axis], measures[axis].vector()
            left = contrasts(size).T @ (np.eye(size) - np.outer(weights, np.ones(size)))
            left = left if axis in kept else np.ones((1, size))
            counts = np.moveaxis(np.tensordot(left, counts, axes=(1, axis)), 0, axis)
        total += float(part_of(turned(q, sizes, measures), kept)[0] @ counts.reshape(-1))
    assert total == pytest.approx(float(q[0] @ x))


def test_lifted_cells_sum_to_zero_along_every_axis():
    values = np.random.default_rng(1).normal(size=(2, 2 * 1 * 3))
    cells = lifted(values, (3, 2, 4))
    assert cells.shape == (2, 3, 2, 4)
    for axis in (1, 2, 3):
        assert np.abs(cells.sum(axis=axis)).max() < 1e-12


def test_whole_rows_that_are_a_unit_off_centre_touch_the_mean():
    """What floats take for rounding is decided exactly in whole numbers."""
    rows = np.array([[2.0**40, -(2.0**40), 0.0]])
    exact = Shape.independent((3,), rows)
    off = Shape.independent((3,), rows + np.array([[0.0, 0.0, 1.0]]))
    assert touched(exact, [Measure(3)], whole=True) == {(0,)}
    assert touched(off, [Measure(3)], whole=True) == {(), (0,)}
    assert touched(off, [Measure(3)], whole=False) == {(0,)}


def test_products_beyond_64_bits_are_still_exact():
    """Weights and entries whose products do not fit 64 bits."""
    measure = Measure.whole([2**26, 2**26, -1])
    rows = np.kron([[2.0**14, -(2.0**14), 0.0]], [[2.0**14, -(2.0**14), 0.0]])
    off = rows + np.kron([[0.0, 0.0, 2.0**12]], [[0.0, 2.0**12, 0.0]]) * 2.0**-10
    shape = Shape.independent((3, 3), off)
    plain = Shape.independent((3, 3), rows)
    assert touched(plain, [measure, measure], whole=True) == {(0, 1)}
    assert touched(shape, [measure, measure], whole=True) > {(0, 1)}


# --- figures known otherwise -------------------------------------------------------------------------------


SCHEMA = rs.Schema.of_sizes([3, 2, 4, 3])
WORK = rs.all_tables(SCHEMA, (1, 2, 3), rs.prefix) + 2.0 * rs.all_tables(SCHEMA, 2, rs.affine)


def test_centred_blocks_are_answered_alone():
    blocks = querysmasher(WORK, 1e-4).strategy
    same = coupled(blocks)
    assert not same.system.blocks
    for part in WORK.parts:
        assert totals(same, part) == blocks.totals(part)
    groups = list(WORK.groups())
    for group in groups:
        assert np.array_equal(same.variances(group), blocks.variances(group))
        assert same.largest(group) == blocks.largest(group)
    assert np.array_equal(same.covariance(groups[0], groups[5]), blocks.covariance(groups[0], groups[5]))


def test_a_centred_block_that_is_solved_with_others_has_the_same_figures():
    """The same strategy, every block twice at twice the noise: nothing changes, and nothing stands alone."""
    blocks = querysmasher(WORK, 1e-4).strategy
    halves = tuple(replace(layer, noise=2 * layer.noise, costs=layer.costs / 2) for layer in blocks.layers)
    twice = replace(blocks, layers=halves + halves)
    assert type(twice.answerer) is Coupled
    assert not twice.answerer.alone.blocks.layers
    assert twice.cost() == pytest.approx(blocks.cost())
    for part in WORK.parts:
        assert twice.totals(part) == pytest.approx(blocks.totals(part))
    for group in WORK.groups():
        assert twice.variances(group) == pytest.approx(blocks.variances(group))


def test_one_block_on_everything_is_answered_as_a_product_is():
    sizes = (3, 2, 4)
    shapes = (full(3, 4), full(2))
    strategy = joined(sizes, [block((0, 1, 2), shapes, 2.5, layout=((0, 2), (1,)))])
    product, general = strategy.answerer, coupled(strategy)
    assert type(product) is Kronecker
    schema = rs.Schema.of_sizes(sizes)
    work = rs.all_tables(schema, (0, 1, 2, 3), rs.prefix) + rs.table(schema, {("a2", "a0"): rs.affine})
    for group in work.groups():
        assert general.variances(group) == pytest.approx(product.variances(group))
        assert general.total(group, weighted=True) == pytest.approx(product.total(group, weighted=True))


def test_measuring_a_marginal_besides_makes_its_answers_better_and_harms_none():
    pair = block((0, 1), full(3, 3), 2.0)
    alone = joined((3, 3), [pair])
    both = joined((3, 3), [pair, block((0,), full(3), 2.0)])
    schema = rs.Schema.of_sizes([3, 3])
    one = group_of(rs.table(schema, a0=rs.prefix))
    two = group_of(rs.marginals(schema, ways=2))
    assert type(both.answerer) is Coupled
    assert np.all(both.variances(one) < 0.9 * alone.variances(one))
    assert np.all(both.variances(two) <= alone.variances(two) * (1 + 1e-12))


def test_the_measures_do_not_change_any_figure():
    """Residual coordinates are a choice: any weights give the same answers (claim O-001)."""
    blocks = [block((0, 1), full(3, 2), 2.0), block((1, 2), full(2, 4), 1.0), block((0,), full(3), 5.0)]
    plain = coupled(joined((3, 2, 4), blocks))
    measures = Measure.whole([1, 2, 5]), Measure.whole([3, 1]), Measure.whole([1, 1, 1, 4])
    tilted = coupled(joined((3, 2, 4), blocks, measures))
    schema = rs.Schema.of_sizes([3, 2, 4])
    for group in (
        rs.table(schema, ["a0", "a1"]) + rs.table(schema, {"a2": rs.ranges, "a1": rs.identity})
    ).groups():
        assert tilted.variances(group) == pytest.approx(plain.variances(group))


def test_weights_of_queries_count_in_weighted_sums_only():
    strategy = coupled(joined((3, 2), [block((0, 1), full(3, 2), 2.0), block((0,), full(3), 1.0)]))
    schema = rs.Schema.of_sizes([3, 2])
    rows = np.random.default_rng(0).integers(-2, 3, (5, 6))
    weights = [1.0, 2.0, 0.5, 3.0, 1.0]
    group = group_of(4.0 * rs.linear(schema, ["a0", "a1"], rows, weights))
    variances = strategy.variances(group)
    assert strategy.total(group, weighted=False) == pytest.approx(variances.sum())
    assert strategy.total(group, weighted=True) == pytest.approx(4.0 * np.dot(weights, variances))


# --- many blocks -------------------------------------------------------------------------------------------


def all_pairs(size, count):
    """The cells of every pair, a full block on every attribute, and the total, at cost 1."""
    pairs = np.array([(i, j) for i in range(count) for j in range(i + 1, count)], dtype=np.int32)
    kinds = [
        (pairs, ((0, 1),), Shape.independent((size, size), np.eye(size * size)), 0.8),
        (np.arange(count, dtype=np.int32)[:, None], ((0,),), full(size), 0.19),
    ]
    layers = []
    for number, (subsets, layout, shape, share) in enumerate(kinds):
        costs = np.full(len(subsets), share / len(subsets))
        shapes = np.full((len(subsets), 1), number, dtype=np.int64)
        layers.append(Layer(subsets, layout, shapes, costs, shape.norm / costs))
    total = np.array([0.01])
    layers.append(Layer(np.zeros((1, 0), np.int32), (), np.zeros((1, 0), np.int64), total, 1 / total))
    shapes = tuple(shape for _, _, shape, _ in kinds)
    return Strategy((Domain.of([size] * count),), shapes, tuple(layers))


def test_forty_attributes_in_all_pairs_share_361_dimensions():
    strategy = coupled(all_pairs(10, 40))
    assert strategy.system.dimension == 361
    assert len({found.block_class for found in strategy.system.blocks}) == 3
    schema = rs.Schema.of_sizes([10] * 40)
    run = rs.all_tables(schema, 2, rs.prefix).parts[0]
    alike = totals(strategy, run[:3])[0] / 3
    assert totals(strategy, run)[0] == pytest.approx(780 * alike, rel=1e-9)  # all pairs are alike


def test_blocks_that_meet_no_other_are_never_multiplied_out(monkeypatch):
    """Three-way blocks of 27 cells stay products where pairs of 9 cells overlap."""
    monkeypatch.setattr(coupled_residuals, "MULTIPLIED_CELLS", 9)
    schema = rs.Schema.of_sizes([3] * 4)
    three = querysmasher(rs.all_tables(schema, 3, rs.prefix), 1e-4).strategy
    pairs = all_pairs(3, 4)
    layers = [
        replace(layer, shapes=layer.shapes + len(pairs.shapes))
        for layer in three.layers
        if layer.subsets.shape[1] == 3
    ]
    mixed = coupled(replace(pairs, shapes=pairs.shapes + three.shapes, layers=(*pairs.layers, *layers)))
    assert [layer.subsets.shape for layer in mixed.alone.blocks.layers] == [(4, 3)]
    for part in rs.all_tables(schema, (1, 2, 3), rs.prefix).parts:
        listed = sum(float(mixed.variances(group).sum()) for group in part)
        assert totals(mixed, part) == pytest.approx((listed, listed))
    group = group_of(rs.all_tables(schema, 3, rs.prefix))
    assert mixed.largest(group) == pytest.approx(mixed.variances(group).max())


def test_what_is_listed_some_rows_at_a_time_is_the_same(monkeypatch):
    strategy = all_pairs(3, 3)
    schema = rs.Schema.of_sizes([3] * 3)
    group = group_of(rs.table(schema, {"a0": rs.prefix, "a2": rs.ranges, "a1": rs.identity}, name="T"))
    blocks = querysmasher(rs.marginals(schema, ways=3), 1e-4).strategy
    top = [layer for layer in blocks.layers if layer.subsets.shape[1] == 3]
    top = [replace(layer, shapes=layer.shapes + len(strategy.shapes)) for layer in top]
    strategy = replace(strategy, shapes=strategy.shapes + blocks.shapes, layers=(*strategy.layers, *top))
    first = coupled(strategy)
    wanted, total = first.variances(group), first.total(group, weighted=False)
    monkeypatch.setattr(coupled_tables, "SCRATCH", 100)
    monkeypatch.setattr(coupled_tables, "KEPT_FIGURES", 0)
    again = coupled(replace(strategy, memory=Memory()))
    assert again.variances(group) == pytest.approx(wanted)
    assert again.total(group, weighted=False) == pytest.approx(total)


def test_variances_read_off_the_cells_are_those_of_the_rows(monkeypatch):
    strategy = all_pairs(5, 3)
    schema = rs.Schema.of_sizes([5] * 3)
    works = rs.table(schema, {"a2": rs.ranges, "a0": rs.circular}) + rs.table(schema, a1=rs.ranges)
    first = coupled(strategy)
    quick = [first.variances(group) for group in works.groups()]
    monkeypatch.setattr(coupled_tables, "COVARIANCE_CELLS", 0)
    again = coupled(replace(strategy, memory=Memory()))
    for group, found in zip(works.groups(), quick, strict=True):
        assert group.count > math.prod(schema.sizes[at] for at in group.attributes)
        assert found == pytest.approx(again.variances(group), rel=1e-9)


# --- digits ------------------------------------------------------------------------------------------------


SHARP = np.array([[1.0, 2, 0, 3], [0, 1, 4, -1]])  # not along any coordinates


def sharp_and_vague(ratio):
    """Little noise along two rows of a pair, `ratio` times as much along all cells."""
    shapes = Shape.independent((2, 2), SHARP), Shape.independent((2, 2), np.eye(4))
    return joined((2, 2), [block((0, 1), shapes[0], 1.0), block((0, 1), shapes[1], ratio)])


@pytest.mark.parametrize("answering", [coupled, lambda strategy: strategy], ids=["coupled", "chosen"])
@pytest.mark.parametrize("ratio", [1e4, 1e8, 1e12, 1e16])
def test_small_variances_keep_their_digits_beside_huge_ones(ratio, answering):
    """Against the inverse of the privacy matrix in rational numbers (claim O-003)."""
    from flint import fmpq, fmpq_mat, fmpz_mat

    rows = fmpz_mat(SHARP.astype(int).tolist())
    units = fmpq_mat([[fmpq(int(i == j), int(ratio)) for j in range(4)] for i in range(4)])
    covariance = (fmpq_mat(rows.transpose() * rows) + units).inv()
    schema = rs.Schema.of_sizes([2, 2])
    group = group_of(rs.linear(schema, ["a0", "a1"], [*SHARP, *np.eye(4)]))
    strategy = answering(sharp_and_vague(ratio))
    asked = [*SHARP.astype(int).tolist(), *np.eye(4, dtype=int).tolist()]
    for row, found in zip(asked, strategy.variances(group), strict=True):
        query = fmpq_mat(fmpz_mat([row]))
        exact = (query * covariance * query.transpose())[0, 0]
        assert found == pytest.approx(int(exact.p) / int(exact.q), rel=1e-6)
    both = strategy.covariance(group, group)
    assert np.diagonal(both)[:2] == pytest.approx(strategy.variances(group)[:2], rel=1e-6)
    assert strategy.total(group, weighted=False) == pytest.approx(strategy.variances(group).sum())


def test_noise_that_differs_too_much_for_so_many_blocks_is_refused(monkeypatch):
    monkeypatch.setattr(coupled_system, "SHARED_WORK", 10)
    group = group_of(rs.marginals(rs.Schema.of_sizes([2, 2]), ways=1))
    assert coupled(sharp_and_vague(10.0)).variances(group).min() > 0
    with pytest.raises(Infeasible, match="weights that differ less"):
        coupled(sharp_and_vague(1e16)).variances(group)


# --- refusals ----------------------------------------------------------------------------------------------


def test_a_query_outside_the_span_of_all_blocks_is_refused_with_the_name_of_its_table():
    schema = rs.Schema.of_sizes([3, 3, 2])
    rows = group_of(rs.table(schema, {("a0", "a1"): rs.affine})).factors[0].queries.matrix()
    some = Shape((3, 3), rows, int(np.linalg.matrix_rank(rows)))
    strategy = coupled(joined((3, 3, 2), [block((0, 1), some, 1.0), block((0,), full(3), 1.0)]))
    strategy.variances(group_of(rs.table(schema, {("a0", "a1"): rs.affine})))
    for work in (rs.table(schema, ["a0", "a1"], name="T1"), rs.table(schema, ["a1"], name="T1")):
        with pytest.raises(NotInSpan, match="'T1' asks for more than the plan measures") as caught:
            totals(strategy, group_of(work))
        assert caught.value.attributes == tuple(sorted(group_of(work).attributes))
    with pytest.raises(NotInSpan, match="does not measure together"):
        strategy.variances(group_of(rs.table(schema, ["a0", "a2"])))


def test_a_total_over_an_attribute_asks_nothing_of_blocks_on_it():
    schema = rs.Schema.of_sizes([3, 3])
    strategy = coupled(joined((3, 3), [block((0,), full(3), 1.0), block((0,), full(3), 2.0)]))
    wide = group_of(rs.table(schema, a0=rs.prefix, a1=rs.total))
    narrow = group_of(rs.table(schema, a0=rs.prefix))
    assert strategy.variances(wide) == pytest.approx(strategy.variances(narrow))


def test_too_many_shared_dimensions_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(coupled_system, "SHARED_DIMENSIONS", 20)
    with pytest.raises(Infeasible, match=r"share 37 dimensions, more than the 20 .* 'querysmasher'"):
        totals(coupled(all_pairs(10, 4)), group_of(rs.marginals(rs.Schema.of_sizes([10] * 4), ways=1)))


def test_a_block_too_large_to_be_multiplied_out_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(coupled_residuals, "MULTIPLIED_CELLS", 99)
    with pytest.raises(Infeasible, match=r"a block of 100 cells .* coarser attributes"):
        totals(coupled(all_pairs(10, 3)), group_of(rs.marginals(rs.Schema.of_sizes([10] * 3), ways=1)))


def test_the_largest_of_too_many_queries_is_not_known(monkeypatch):
    strategy = coupled(all_pairs(3, 2))
    schema = rs.Schema.of_sizes([3, 3])
    monkeypatch.setattr(Coupled, "most_listed", 8)
    assert math.isnan(strategy.largest(group_of(rs.marginals(schema, ways=2))))
    assert strategy.largest(group_of(rs.marginals(schema, ways=1))) > 0
    with pytest.raises(NotInSpan):
        coupled(joined((3, 3), [block((0,), full(3), 1.0), block((0,), full(3), 1.0)])).largest(
            group_of(rs.marginals(schema, ways=2))
        )


# --- files -------------------------------------------------------------------------------------------------


def test_a_saved_strategy_is_the_same_strategy():
    strategy = joined(
        (3, 2),
        [block((0, 1), full(3, 2), 2.0), block((0,), full(3), 1.0), block((), (), 3.0)],
        (Measure.whole([1, 2, 1]), Measure(2)),
    )
    arrays = {}
    again = strategy_from_manifest(strategy.to_manifest(arrays), arrays)
    assert again.measures == strategy.measures
    assert again.cost() == strategy.cost()
    group = group_of(rs.marginals(rs.Schema.of_sizes([3, 2]), ways=2))
    assert np.array_equal(again.variances(group), strategy.variances(group))
