"""Methods that solve blocks: published numbers, closed forms, sharing, wild weights, the product fallback."""

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.accuracy.figures import totals_of
from residua.decompose import decompose
from residua.linalg.matrices import Measure, independent_rows, project
from residua.methods import blocks
from residua.methods.blocks import (
    BlockSolver,
    Fourier,
    Given,
    Optimal,
    querysmasher,
    solve_blocks,
    uniform_bound,
)
from residua.methods.draft import Draft
from residua.methods.registry import fourier, residualplanner, residualplanner_plus
from residua.workload import Family

Array = NDArray[np.float64]

FORTY = rs.Schema.of_sizes([10] * 40)
ONE = rs.privacy_cost(1)


def noise_of(draft: Draft) -> dict[tuple[int, ...], float]:
    """Noise variance of each block."""
    return {
        tuple(row): float(noise)
        for layer in draft.strategy.layers
        for row, noise in zip(layer.subsets.tolist(), layer.noise, strict=True)
    }


def prefix_and(family: Family) -> rs.Workload:
    return rs.all_tables(FORTY, 1, rs.prefix) + rs.all_tables(FORTY, 2, family)


PUBLISHED = [
    ("querysmasher", rs.all_tables(FORTY, (1, 2), rs.prefix), 33.6934),
    ("querysmasher", prefix_and(rs.affine), 28.0097),
    ("fourier", rs.all_tables(FORTY, (1, 2), rs.prefix), 39.70),
    ("fourier", prefix_and(rs.affine), 45.23),
    ("fourier", prefix_and(rs.abs_diff), 64.11),
]


@pytest.mark.parametrize(("method", "work", "rmse"), PUBLISHED)
def test_figures_of_forty_attributes_are_those_known(method, work, rmse):
    plan = rs.plan(work, ONE, method=method)
    digits = 4 if method == "querysmasher" else 2
    assert plan.ideal.rmse == pytest.approx(rmse, abs=0.5001 * 10**-digits, rel=1e-5)
    assert plan.rmse == pytest.approx(plan.ideal.rmse, rel=2e-4)
    assert plan.certificate.scope == "this block structure"


# --- sharing -----------------------------------------------------------------------------------------------


def test_blocks_that_are_alike_share_their_shapes():
    assert len(querysmasher(rs.all_tables(FORTY, (1, 2), rs.prefix), 1e-4).strategy.shapes) == 1
    shapes = querysmasher(prefix_and(rs.affine), 1e-4).strategy.shapes
    assert sorted(shape.sizes for shape in shapes) == [(10,), (10, 10)]
    weights = sum((4.0**at * rs.table(FORTY, [f"a{at}"]) for at in range(1, 9)), rs.table(FORTY, ["a0"]))
    assert len(querysmasher(weights, 1e-4).strategy.shapes) == 1


def test_attributes_of_one_size_with_different_families_have_shapes_of_their_own():
    schema = rs.Schema.of_sizes([5, 5, 5])
    work = rs.table(schema, a0=rs.prefix, a1=rs.identity, a2=rs.prefix)
    strategy = querysmasher(work, 1e-4).strategy
    assert len(strategy.shapes) == 2
    (ones,) = [layer for layer in strategy.layers if layer.layout == ((0,),)]
    first, second, third = ones.shapes[:, 0].tolist()
    assert first == third != second
    gram = strategy.shapes[second].matrix.T @ strategy.shapes[second].matrix
    np.testing.assert_allclose(gram, (np.eye(5) - 0.2) / 0.8, atol=1e-12)


def test_attributes_of_one_size_with_different_strategies_have_shapes_of_their_own():
    schema = rs.Schema.of_sizes([4, 4, 4])
    given = {"a0": np.eye(4), "a1": np.tril(np.ones((4, 4)))}
    strategy = residualplanner_plus(rs.all_tables(schema, (1, 2), rs.prefix), 1e-4, None, given).strategy
    assert len(strategy.shapes) == 3
    for at, name in enumerate(schema.names):
        noise, (factor,) = strategy.answerer.known.block((at,))
        assert noise is not None
        wanted = projected(given[name]) if name in given else factor.matrix
        np.testing.assert_allclose(factor.matrix.T @ factor.matrix, wanted.T @ wanted, atol=1e-12)


def projected(matrix: Array) -> Array:
    """A strategy on centred cells, scaled to cost 1."""
    rows = matrix - matrix.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.sqrt(np.sum(rows**2, axis=0).max()))


# --- scales ------------------------------------------------------------------------------------------------


def block_values(draft: Draft, work: rs.Workload) -> dict[tuple[int, ...], float]:
    """Weighted variance that each block causes at noise 1."""
    values: dict[tuple[int, ...], float] = {}
    for group in work.groups():
        for attributes, _, parts in draft.strategy.answerer.pieces(group):
            value = group.weight * math.prod(part.total(weighted=True) for part in parts)
            values[attributes] = values.get(attributes, 0.0) + value
    return values


MIXTURE = rs.Schema.of_sizes([3, 4, 2])
MIXED_WORK = (
    rs.all_tables(MIXTURE, (1, 2), rs.prefix)
    + 5.0 * rs.table(MIXTURE, {("a1", "a0"): rs.affine})
    + 0.1 * rs.table(MIXTURE, a0=rs.identity, a2=rs.identity)
)


@pytest.mark.parametrize("method", [querysmasher, fourier, residualplanner_plus])
def test_the_noise_of_each_block_is_the_best_share_of_the_privacy(method):
    draft = method(MIXED_WORK, 1e-6)
    values, noise = block_values(draft, MIXED_WORK), noise_of(draft)
    assert values.keys() == noise.keys()
    roots = {block: math.sqrt(value) for block, value in values.items()}
    whole = sum(roots.values())
    for block, root in roots.items():
        assert noise[block] == pytest.approx(whole / root, rel=1e-6)
    assert draft.value == pytest.approx(whole**2, rel=1e-6)
    assert sum(1 / each for each in noise.values()) == pytest.approx(1, rel=1e-12)


def test_no_other_share_of_the_privacy_is_better():
    draft = querysmasher(MIXED_WORK, 1e-6)
    values, noise = block_values(draft, MIXED_WORK), noise_of(draft)
    generator = np.random.default_rng(3)
    for spread in (1e-3, 0.1, 1.0):
        for _ in range(20):
            other = {block: each * math.exp(spread * generator.normal()) for block, each in noise.items()}
            cost = sum(1 / each for each in other.values())
            total = cost * sum(values[block] * other[block] for block in values)
            assert total >= draft.value * (1 - 1e-6)


# --- closed forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up_to", [1, 2, 3])
def test_for_marginals_every_variance_is_the_known_closed_form(up_to):
    sizes = (2, 3, 5, 4)
    work = rs.marginals(rs.Schema.of_sizes(sizes), up_to=up_to)
    draft = residualplanner(work, 1e-4)
    noise = noise_of(draft)
    roots = {
        block: math.sqrt(
            sum(
                math.prod(1 / sizes[at] for at in table if at not in block)
                for ways in range(up_to + 1)
                for table in combinations(range(4), ways)
                if set(block) <= set(table)
            )
        )
        * math.prod((sizes[at] - 1) / math.sqrt(sizes[at]) for at in block)
        for block in noise
    }
    for block, each in noise.items():
        assert each == pytest.approx(sum(roots.values()) / roots[block], rel=1e-10)
    for group in work.groups():
        table = group.attributes
        expected = sum(
            each
            * math.prod((1 - 1 / sizes[at]) ** 2 for at in block)
            * math.prod(1 / sizes[at] ** 2 for at in table if at not in block)
            for block, each in noise.items()
            if set(block) <= set(table)
        )
        np.testing.assert_allclose(draft.strategy.variances(group), expected, rtol=1e-10)


def test_residualplanner_and_querysmasher_agree_on_marginals():
    work = 3.0 * rs.marginals(MIXTURE, ways=2) + rs.table(MIXTURE, ["a1"])
    one, two = residualplanner(work, 1e-4), querysmasher(work, 1e-4)
    assert one.value == pytest.approx(two.value, rel=1e-9)
    assert one.scope == two.scope == "all mechanisms"
    assert one.lower_bound == pytest.approx(one.value, rel=1e-9)


def circulant_value(root: Array, heights: Array, sizes: tuple[int, ...]) -> float:
    """Total variance at cost 1 of the mechanism that is diagonal in the Fourier basis with these heights."""
    fourier_rows = reduce(np.kron, (np.fft.fft(np.eye(size)) / math.sqrt(size) for size in sizes))
    X = (fourier_rows.conj().T * heights @ fourier_rows).real
    X /= np.diagonal(X).max()
    return float(np.trace(root @ np.linalg.pinv(X, rcond=1e-13, hermitian=True) @ root.T))


@pytest.mark.parametrize("sizes", [(5,), (6,), (2, 3), (4, 4)])
def test_fourier_weights_are_the_best_of_their_kind(sizes):
    cells = math.prod(sizes)
    generator = np.random.default_rng(cells)
    measures = [Measure(size) for size in sizes]
    root = project(generator.normal(size=(cells, cells)), sizes, measures, range(len(sizes)))
    root = independent_rows(root)
    solution = Fourier().solve(root, sizes, (0,) * len(sizes), 1e-4, "a block")
    X = solution.strategy.T @ solution.strategy
    np.testing.assert_allclose(np.diagonal(X), 1, rtol=1e-12)
    np.testing.assert_allclose(X.sum(axis=1), 0, atol=1e-12)
    assert np.linalg.matrix_rank(solution.strategy) == len(solution.strategy)
    value = float(np.trace(root @ np.linalg.pinv(X, rcond=1e-13, hermitian=True) @ root.T))
    assert solution.upper == pytest.approx(value, rel=1e-9)
    assert solution.lower <= Optimal().solve(root, sizes, (0,), 1e-6, "a block").upper <= value * (1 + 1e-6)
    spectrum = np.fft.fftn(root.reshape(-1, *sizes), axes=range(1, 1 + len(sizes))).reshape(len(root), -1)
    best = np.sqrt(np.sum(np.abs(spectrum) ** 2, axis=0) / cells)
    best[best < 1e-9] = 0.0
    assert circulant_value(root, best, sizes) == pytest.approx(value, rel=1e-9)
    for _ in range(20):
        other = best * np.exp(0.2 * generator.normal(size=cells))
        mirror = np.ravel_multi_index(
            [(-at) % n for at, n in zip(np.indices(sizes), sizes, strict=True)], sizes
        )
        other = (
            other + other[mirror.ravel()]
        ) / 2  # a real mechanism has equal weights on mirror frequencies
        assert circulant_value(root, other, sizes) >= value * (1 - 1e-9)


def test_fourier_is_optimal_for_circular_queries():
    work = rs.all_tables(rs.Schema.of_sizes([5, 4, 6]), (1, 2), rs.circular)
    assert fourier(work, 1e-4).value == pytest.approx(querysmasher(work, 1e-6).lower_bound, rel=2e-6)


def test_fourier_measures_what_only_light_queries_ask():
    schema = rs.Schema.of_sizes([6])
    work = rs.linear(schema, ["a0"], [[1, -1, 1, -1, 1, -1], [1, 0, 0, 0, 0, 0]], [1, 1e-30])
    draft = fourier(work, 1e-4)
    (group,) = work.groups()
    variances = draft.strategy.variances(group)
    assert np.isfinite(variances).all()
    assert variances[1] > 1e12 > variances[0]


# --- strategies given --------------------------------------------------------------------------------------


def test_given_strategies_are_projected_on_what_is_asked():
    root = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0]])
    matrix = np.random.default_rng(1).normal(size=(6, 4))
    solution = Given({7: matrix}).solve(root, (4,), (7,), 1e-4, "a block")
    basis = np.linalg.qr(root.T)[0]
    expected = basis @ basis.T @ matrix.T @ matrix @ basis @ basis.T
    expected /= np.diagonal(expected).max()
    np.testing.assert_allclose(solution.strategy.T @ solution.strategy, expected, atol=1e-12)
    value = np.trace(root @ np.linalg.pinv(expected, rcond=1e-12) @ root.T)
    assert solution.upper == pytest.approx(value, rel=1e-10)
    assert solution.lower <= solution.upper


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        ({"a0": np.eye(2)}, "'a0' must be a finite matrix with 3 columns"),
        ({"a0": np.ones(3)}, "'a0' must be a finite matrix"),
        ({"a0": np.full((3, 3), np.nan)}, "'a0' must be a finite matrix"),
        ({"a1": np.ones((5, 4))}, "'a1' does not determine its 4 cells; add rows"),
    ],
)
def test_a_strategy_that_does_not_fit_is_refused_by_name(strategies, words):
    with pytest.raises(rs.WorkloadError, match=words):
        rs.plan(rs.marginals(MIXTURE, ways=1), ONE, method="residualplanner+", strategies=strategies)


def test_a_strategy_for_an_unknown_attribute_is_refused():
    with pytest.raises(rs.SchemaError, match="'b'"):
        rs.plan(rs.marginals(MIXTURE, ways=1), ONE, method="residualplanner+", strategies={"b": np.eye(3)})


def test_residualplanner_refuses_what_is_no_marginal():
    with pytest.raises(rs.WorkloadError, match=r"marginals only.*prefix"):
        rs.plan(rs.all_tables(MIXTURE, 1, rs.prefix), ONE, method="residualplanner")
    with pytest.raises(rs.WorkloadError, match=r"marginals only.*affine"):
        rs.plan(rs.all_tables(MIXTURE, 2, rs.affine), ONE, method="residualplanner")


# --- wild weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [querysmasher, fourier, residualplanner_plus])
@pytest.mark.parametrize("light", [1e-12, 1e-24, 1e-100, 1e-300])
def test_a_light_table_gets_huge_noise_and_never_none(method, light):
    work = rs.table(MIXTURE, a0=rs.prefix) + light * rs.table(MIXTURE, a1=rs.prefix, a2=rs.identity)
    draft = method(work, 1e-4)
    noise = noise_of(draft)
    assert set(noise) == {(), (0,), (1,), (2,), (1, 2)}
    assert all(math.isfinite(each) and each > 0 for each in noise.values())
    assert draft.strategy.cost() == pytest.approx(1, rel=1e-12)
    for block in ((1,), (2,), (1, 2)):
        assert 0.1 < noise[block] * math.sqrt(light) < 100
    assert max(noise[()], noise[0,]) < 10


@pytest.mark.parametrize("method", [querysmasher, fourier, residualplanner_plus])
def test_weights_from_a_trillionth_to_a_trillion_leave_every_figure_finite(method):
    schema = rs.Schema.of_sizes([3, 3, 3, 3])
    work = sum(
        (10.0**power * rs.table(schema, {f"a{at}": rs.prefix}) for at, power in ((1, -4), (2, 4), (3, 12))),
        1e-12 * rs.table(schema, a0=rs.prefix),
    )
    draft = method(work, 1e-4)
    noise = noise_of(draft)
    assert noise[0,] > noise[1,] > noise[2,] > noise[3,] > 1
    plan = rs.plan(work, ONE, method="querysmasher")
    assert np.isfinite(plan.variances(work)).all()
    assert plan.certificate.gap < 2e-4
    assert plan.strategy.exact_cost() <= 1
    assert all((layer.noise > 0).all() and np.isfinite(layer.noise).all() for layer in plan.strategy.layers)


def test_a_light_table_in_the_same_block_is_still_measured():
    work = 1e12 * rs.table(MIXTURE, a0=rs.buckets(1)) + 1e-12 * rs.table(MIXTURE, a0=rs.prefix)
    draft = querysmasher(work, 1e-4)
    heavy, light = work.groups()
    assert np.all(draft.strategy.variances(heavy) < 5)
    variances = draft.strategy.variances(light)
    assert np.isfinite(variances).all()
    assert variances.max() > 1e6


def test_a_query_that_is_flat_in_most_cells_is_planned_in_whole_numbers():
    rows = np.zeros((1, 12))
    rows[0, [3, 11]] = -1, -2
    plan = rs.plan(rs.linear(MIXTURE, ["a0", "a1"], rows), ONE, method="querysmasher")
    assert plan.rmse == pytest.approx(plan.ideal.rmse, rel=1e-3)


# --- the product fallback ----------------------------------------------------------------------------------


FALLBACKS = {
    "two products": rs.table(MIXTURE, a0=rs.prefix, a1=rs.prefix)
    + rs.table(MIXTURE, a0=rs.identity, a1=rs.ranges),
    "affine": rs.table(MIXTURE, {("a0", "a1"): rs.affine}) + rs.table(MIXTURE, a0=rs.prefix, a1=rs.identity),
    "three": rs.table(MIXTURE, a0=rs.prefix, a1=rs.identity, a2=rs.identity)
    + 4.0 * rs.table(MIXTURE, {("a1", "a2"): rs.abs_diff, "a0": rs.identity}),
    "low rank": rs.table(MIXTURE, a0=rs.buckets(1), a1=rs.buckets(2))
    + rs.table(MIXTURE, a0=rs.buckets(2), a1=rs.buckets(2)),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_the_best_product_is_a_valid_mechanism_no_better_than_the_block_and_no_worse_than_its_bound(
    name, monkeypatch
):
    work = FALLBACKS[name]
    best = querysmasher(work, 1e-6)
    monkeypatch.setattr(BlockSolver, "largest", 0)
    draft = querysmasher(work, 1e-6)
    assert all(len(places) == 1 for layer in draft.strategy.layers for places in layer.layout)
    assert draft.strategy.cost() == pytest.approx(1, rel=1e-12)
    assert draft.value == pytest.approx(totals_of(draft.strategy, work)[0], rel=1e-8)
    assert draft.value >= best.lower_bound * (1 - 1e-9)
    assert draft.lower_bound <= best.value * (1 + 1e-9)
    assert best.lower_bound >= 0.5 * draft.lower_bound


@pytest.mark.parametrize("name", FALLBACKS)
def test_improving_one_factor_at_a_time_ends_where_no_factor_can_be_improved(name, monkeypatch):
    monkeypatch.setattr(BlockSolver, "largest", 0)
    work = FALLBACKS[name]
    parts = decompose(work)
    few, many = (solve_with_sweeps(parts, sweeps, monkeypatch) for sweeps in (1, 30))
    assert many.value is not None
    assert few.value is not None
    assert many.value <= few.value * (1 + 1e-6)
    assert solve_with_sweeps(parts, 60, monkeypatch).value == pytest.approx(many.value, rel=1e-5)


def solve_with_sweeps(parts: blocks.Decomposition, sweeps: int, monkeypatch: pytest.MonkeyPatch) -> Draft:
    monkeypatch.setattr(blocks, "SWEEPS", sweeps)
    return solve_blocks(parts, MIXTURE.sizes, Optimal(), 1e-6)


def test_a_factor_gets_no_direction_from_rounding():
    schema = rs.Schema.of_sizes([2, 4])
    work = rs.table(schema, {("a0", "a1"): rs.abs_diff}) + 0.01 * rs.table(schema, {("a0", "a1"): rs.affine})
    for shape in residualplanner_plus(work, 1e-4).strategy.shapes:
        assert shape.rank <= math.prod(size - 1 for size in shape.sizes)
        np.testing.assert_allclose(shape.matrix.sum(axis=1), 0, atol=1e-9)


def test_a_block_is_no_better_than_its_hardest_term():
    root = np.random.default_rng(5).normal(size=(3, 6))
    more = np.vstack([root, np.random.default_rng(6).normal(size=(2, 6))])
    assert uniform_bound(root) <= uniform_bound(more) * (1 + 1e-12)


def test_progress_is_told_while_blocks_are_solved():
    told: list[tuple[str, float]] = []
    querysmasher(MIXED_WORK, 1e-4, lambda what, part: told.append((what, part)))
    assert told
    assert all(what and 0 <= part <= 1 for what, part in told)
