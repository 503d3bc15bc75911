"""Trees: passes, slopes, equal siblings and bounds against dense twins; the best precisions."""

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.bounds.trees import tree_bound
from residua.linalg.trees import Nest, Tree, merged, passes, root_trace, slopes
from residua.solve.trees import Capped, _Shares, bracket, solve_capped, solve_tree

Array = NDArray[np.float64]


def random_tree(draw: np.random.Generator, levels: int, least: int, most: int) -> Tree:
    """A tree whose nodes have so many children each."""
    parents, size = [], 1
    for _ in range(levels - 1):
        parents.append(np.repeat(np.arange(size), draw.integers(least, most + 1, size)))
        size = len(parents[-1])
    return Tree.of(parents)


def incidences(tree: Tree) -> list[Array]:
    """For every level, (nodes, leaves): which leaves are below a node."""
    at, found = np.arange(tree.sizes[-1]), []
    for level in range(tree.depth, -1, -1):
        found.insert(0, (np.arange(tree.sizes[level])[:, None] == at).astype(float))
        if level:
            at = tree.parents[level - 1][at]
    return found


def gram(tree: Tree, weights: list[Array]) -> Array:
    return sum(each.T @ (own[:, None] * each) for own, each in zip(weights, incidences(tree), strict=True))


def dense_optimum(G: Array) -> tuple[float, float]:
    """A bracket of the least total variance at cost 1 over all mechanisms."""
    v = np.ones(len(G))
    for _ in range(20_000):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(root[:, None] * G * root)
        roots = np.sqrt(np.clip(values, 0, None))
        diagonal = (vectors**2) @ roots
        low, high = roots.sum() ** 2 / v.sum(), roots.sum() * (diagonal / v).max()
        if high / low - 1 < 1e-5:
            break
        v = diagonal
    return float(low), float(high)


TREES = [(2, 1, 6), (3, 1, 4), (4, 1, 3), (3, 3, 3), (5, 1, 2)]


@pytest.mark.parametrize("shape", TREES)
def test_variances_of_node_totals_are_those_of_dense_least_squares(shape):
    draw = np.random.default_rng(1)
    tree = random_tree(draw, *shape)
    precisions = [draw.random((size, 2)) + 0.1 for size in tree.sizes]
    precisions[0][:, 1] = 0  # a level that is not measured
    found = passes(tree, precisions)
    for channel in range(2):
        covariance = np.linalg.inv(gram(tree, [each[:, channel] for each in precisions]))
        for own, final in zip(incidences(tree), found.final, strict=True):
            np.testing.assert_allclose(np.einsum("ij,jk,ik->i", own, covariance, own), final[:, channel])


@pytest.mark.parametrize("shape", TREES)
def test_slopes_are_derivatives(shape):
    draw = np.random.default_rng(2)
    tree = random_tree(draw, *shape)
    precisions = [draw.random((size, 2)) + 0.1 for size in tree.sizes]
    weights = [draw.random((size, 2)) for size in tree.sizes]

    def value(level: int, node: int, change: float) -> float:
        changed = [each.copy() for each in precisions]
        changed[level][node, 1] += change
        return sum((a * b).sum() for a, b in zip(weights, passes(tree, changed).final, strict=True))

    found = slopes(tree, passes(tree, precisions), weights)
    for level, size in enumerate(tree.sizes):
        node = int(draw.integers(size))
        step = (value(level, node, 1e-6) - value(level, node, -1e-6)) / 2e-6
        assert found[level][node, 1] == pytest.approx(step, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("shape", TREES)
def test_equal_siblings_are_one_node_with_the_same_variances(shape):
    draw = np.random.default_rng(3)
    tree = random_tree(draw, *shape)
    small, stands = merged(tree)
    for level, size in enumerate(small.sizes):
        np.testing.assert_array_equal(small.stands_for[level], np.bincount(stands[level], minlength=size))
        if level:
            np.testing.assert_array_equal(
                stands[level - 1][tree.parents[level - 1]], small.parents[level - 1][stands[level]]
            )
    precisions = [draw.random((size, 1)) + 0.1 for size in small.sizes]
    whole = passes(tree, [each[own] for each, own in zip(precisions, stands, strict=True)])
    for own, few, all_ in zip(stands, passes(small, precisions).final, whole.final, strict=True):
        np.testing.assert_allclose(few[own], all_, rtol=1e-13)
    twice, again = merged(small)
    assert twice.sizes == small.sizes
    assert all(len(np.unique(own)) == len(own) for own in again)


def test_marked_nodes_are_not_merged():
    tree = Tree.of([np.zeros(3, dtype=np.int64), np.array([0, 0, 1, 1, 2, 2])])
    marks = [np.zeros(1, dtype=np.int64), np.array([0, 0, 1]), np.array([0, 0, 0, 1, 0, 0])]
    small, stands = merged(tree, marks)
    assert small.sizes == (1, 3, 4)
    assert len(set(stands[1].tolist())) == 3
    assert merged(tree)[0].sizes == (1, 1, 1)


def test_children_out_of_order_and_childless_nodes_are_refused():
    for parents in (
        [np.array([0, 1])],
        [np.array([0, 0]), np.array([0, 0])],
        [np.array([0, 0]), np.array([1, 0])],
    ):
        with pytest.raises(ValueError, match="order of their parents"):
            Tree.of(parents)


def test_slopes_in_the_shares_are_derivatives():
    draw = np.random.default_rng(4)
    tree = random_tree(draw, 4, 1, 3)
    weights = [draw.random((size, 3)) for size in tree.sizes]
    weights[-1][:, 2] = 0
    problem = _Shares(tree, weights)
    at = problem.start() + draw.normal(size=len(problem.start()))
    scale = draw.random(len(at)) + 0.5
    _, slope = problem.value(at * scale, scale)
    for index in draw.integers(0, len(at), 8):
        step = np.zeros(len(at))
        step[index] = 1e-6
        change = problem.value(at * scale + step, scale)[0] - problem.value(at * scale - step, scale)[0]
        assert slope[index] == pytest.approx(change / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", TREES)
def test_every_path_costs_one_and_the_bracket_holds(shape, channels):
    draw = np.random.default_rng(5)
    tree = random_tree(draw, *shape)
    weights = [draw.random((size, channels)) for size in tree.sizes]
    found = solve_tree(tree, weights, gap=1e-6)
    assert found.gap < 1e-4
    costs = sum(
        (own.sum(axis=1)[:, None] * each).sum(axis=0)
        for own, each in zip(found.precisions, incidences(tree), strict=True)
    )
    np.testing.assert_allclose(costs, 1.0)
    for _ in range(20):  # no other shares do better than the bound
        problem = _Shares(tree, weights)
        moved = problem.start() + draw.normal(size=len(problem.start()))
        other = bracket(tree, problem.weights, problem.precisions(moved)[0])
        assert other.value >= found.lower_bound
        assert other.lower_bound <= found.value * (1 + 1e-12)


def test_on_regular_trees_the_closed_form_is_the_optimum_of_all_mechanisms():
    for children, asked in (([3, 4], [1.0, 1.0, 1.0]), ([2, 2, 5], [100.0, 30.0, 5.0, 1.0])):
        sizes = np.cumprod([1, *children])
        tree = Tree.of([np.repeat(np.arange(n), k) for n, k in zip(sizes, children, strict=False)])
        weights = [np.full(size, own) for size, own in zip(tree.sizes, asked, strict=True)]
        start = _Shares(tree, [each[:, None] for each in weights])
        found = bracket(tree, start.weights, start.precisions(start.start())[0])
        assert found.gap < 1e-9
        low, high = dense_optimum(gram(tree, weights))
        assert low * (1 - 1e-9) <= found.value <= high * (1 + 1e-6)


@pytest.mark.parametrize("asked", [(1, 1, 1, 1), (100, 30, 5, 1), (0, 1, 0, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_on_irregular_trees_it_is_within_a_thousandth_of_the_least_rmse_of_all_mechanisms(seed, asked):
    draw = np.random.default_rng(seed)
    tree = random_tree(draw, 4, 1, 5)
    weights = [np.full(size, float(own)) for size, own in zip(tree.sizes, asked, strict=True)]
    found = solve_tree(tree, [each[:, None] for each in weights], gap=1e-6)
    low, high = dense_optimum(gram(tree, weights))
    assert low * (1 - 1e-9) <= found.value <= 1.001**2 * high
    bound = tree_bound(tree, weights, [each[:, 0] for each in found.precisions])
    assert 0.99 * found.value <= bound <= high


def test_the_root_trace_is_below_the_true_one_by_next_to_nothing():
    draw = np.random.default_rng(7)
    for scale in (1e-8, 1.0, 1e8):
        tree = random_tree(draw, 4, 1, 4)
        weights = [scale * draw.random(size) ** 4 for size in tree.sizes]
        leaves = draw.random(tree.sizes[-1]) ** 3 + 1e-9
        root = np.sqrt(leaves)
        values = np.linalg.eigvalsh(root[:, None] * gram(tree, weights) * root)
        exact = np.sqrt(np.clip(values, 0, None)).sum()
        found = root_trace(tree, weights, leaves)
        assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-12)


def test_what_is_asked_of_some_branches_only_is_measured_there():
    tree = Tree.of([np.array([0, 0]), np.array([0, 0, 1, 1])])
    weights = [np.ones((1, 1)), np.ones((2, 1)), np.array([[1.0], [1.0], [0.0], [0.0]])]
    found = solve_tree(tree, weights, gap=1e-8)
    assert (found.precisions[2][2:] == 0).all()
    assert found.precisions[1][1, 0] == pytest.approx(1 - found.precisions[0][0, 0])
    assert found.gap < 1e-6


def test_more_than_is_needed_is_never_worse():
    tree = Tree.of([np.zeros(3, dtype=np.int64)])
    even = bracket(tree, [np.ones((1, 1)), np.ones((3, 1))], [np.full((1, 1), 0.5), np.full((3, 1), 0.5)])
    assert solve_tree(tree, [np.ones((1, 1)), np.ones((3, 1))]).value <= even.value


def places(draw: np.random.Generator, *sizes: int) -> rs.Hierarchy:
    """An uneven hierarchy, leaves in no order."""
    nodes = np.arange(sizes[0])
    paths = [(f"0-{node}",) for node in nodes]
    for level, size in enumerate(sizes[1:], start=1):
        chosen = np.append(np.arange(len(paths)), draw.integers(0, len(paths), size - len(paths)))
        paths = [(*paths[at], f"{level}-{number}") for number, at in enumerate(chosen.tolist())]
    draw.shuffle(paths)
    return rs.Hierarchy(("state", "county", "tract")[: len(sizes)], paths)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_a_hierarchy_is_below_the_optimum_and_near_it(seed):
    schema = rs.Schema(place=places(np.random.default_rng(seed), 3, 9, 30))
    state, county = (rs.table(schema, place=rs.level(each)) for each in ("state", "county"))
    for work in (
        state + county,
        5.0 * state + rs.table(schema, ["place"]),
        county + rs.marginals(schema, up_to=1),
    ):
        bound, best = rs.bounds.tree(work), rs.bounds.dual(work)
        assert 0.99 * best <= bound <= best * (1 + 1e-4)


def test_nodes_in_any_order_make_the_same_tree():
    nodes = [np.array([1, 0, 1, 0]), np.array([2, 1, 0, 3])]
    tree = Nest.of(nodes).tree
    assert tree.sizes == (1, 2, 4)
    assert [each.tolist() for each in tree.parents] == [[0, 0], [0, 0, 1, 1]]


def test_the_bound_of_a_hierarchy_refuses_other_tables():
    schema = rs.Schema(place=places(np.random.default_rng(1), 2, 4), sex=rs.Categorical("F", "M"))
    with pytest.raises(rs.WorkloadError, match="one hierarchy or date alone"):
        rs.bounds.tree(rs.table(schema, ["place", "sex"]))
    with pytest.raises(rs.WorkloadError, match="asks no level of its hierarchy"):
        rs.bounds.tree(rs.table(schema, place=rs.prefix))


@pytest.mark.parametrize("kinds", [[[1.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]]])
def test_the_largest_ratio_is_within_a_thousandth_of_its_bound(kinds):
    tree, _ = merged(random_tree(np.random.default_rng(3), 4, 1, 4))
    rows = np.array(kinds)
    capped = [
        Capped(level, np.arange(tree.sizes[level]), rows / cap)
        for level, cap in enumerate((25, 400, 3600), start=1)
    ]
    found = solve_capped(tree, 2, capped)
    final = passes(tree, found.precisions).final
    asked = rows.any(axis=0)
    ratios = [final[own.level][:, asked] @ own.rows[:, asked].T for own in capped]
    assert max(float(own.max()) for own in ratios) == pytest.approx(found.value)
    assert found.lower_bound <= found.value <= found.lower_bound * 1.001
    assert sum(float(own.sum()) for own in found.prices) == pytest.approx(1)
