"""Laws of the optimum: what must not change it, what must change it just so, what may only push it one way.

Two brackets agree if they overlap: each contains the true optimum.
"""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from solver_oracle import verify_solution, verify_targets

from residua.linalg.matrices import independent_rows, join
from residua.solve.cells import Solution, bracket, solve_cells
from residua.solve.targets import TargetSolution, solve_targets

Array = NDArray[np.float64]

GAP = 1e-6


def matrices(rows: int, cells: int) -> st.SearchStrategy[Array]:
    """Small integer queries, dependent, repeated or zero as they come, but not all of them zero."""
    shapes = st.tuples(st.integers(1, rows), st.integers(1, cells))
    entries = st.integers(-2, 2).map(float)
    return hnp.arrays(np.float64, shapes, elements=entries).filter(lambda matrix: bool(matrix.any()))


QUERIES = matrices(6, 6)
FACTORS = matrices(3, 3)
SCALES = st.floats(1e-6, 1e6)
SEEDS = st.integers(0, 2**32 - 1)


def solve(queries: Array, weights: Array | None = None) -> Solution:
    return solve_cells(independent_rows(queries, weights)).require(GAP)


def solve_for(queries: Array, targets: Array) -> TargetSolution:
    root = independent_rows(queries)
    coefficients = np.asarray(np.linalg.lstsq(root.T, queries.T, rcond=None)[0].T, dtype=np.float64)
    return solve_targets(coefficients, root, targets).require(GAP)


def agree(left: Solution | TargetSolution, right: Solution | TargetSolution, factor: float = 1.0) -> bool:
    """Whether the right bracket times `factor` overlaps the left one."""
    room = 1 + 1e-12  # the factor is a float too
    return left.lower <= room * factor * right.upper and factor * right.lower <= room * left.upper


@given(QUERIES, SEEDS)
def test_any_weights_give_bounds_in_order_and_above_no_mechanism(queries: Array, seed: int) -> None:
    draw = np.random.default_rng(seed)
    root = independent_rows(queries)
    v = 10.0 ** draw.uniform(-6, 0, root.shape[1])
    B = draw.standard_normal((root.shape[1] + 1, root.shape[1]))  # some mechanism that answers everything
    value = float(np.sum((root @ np.linalg.pinv(B)) ** 2) * np.max(np.sum(B**2, axis=0)))
    for precise in (False, True):
        seen = bracket(root, v, precise=precise)
        assert 0 < seen.lower <= seen.upper
        assert seen.lower <= value * (1 + 1e-9)


@given(QUERIES)
def test_solutions_pass_the_second_opinion(queries: Array) -> None:
    assert verify_solution(queries, None, solve(queries)).holds(GAP)


@given(QUERIES, SCALES)
def test_the_optimum_is_proportional_to_the_gram(queries: Array, scale: float) -> None:
    assert agree(solve(queries, np.full(len(queries), scale)), solve(queries), scale)


@given(QUERIES, SEEDS)
def test_the_order_of_queries_and_of_cells_does_not_matter(queries: Array, seed: int) -> None:
    draw = np.random.default_rng(seed)
    shuffled = draw.permutation(draw.permutation(queries, axis=0), axis=1)
    assert agree(solve(shuffled), solve(queries))


@given(QUERIES)
def test_a_sign_is_no_matter_and_a_repeated_query_is_one_of_twice_the_weight(queries: Array) -> None:
    twice = np.concatenate([queries, -queries[:1]])
    weights = np.ones(len(queries))
    weights[0] = 2.0
    assert agree(solve(twice), solve(queries, weights))


@settings(max_examples=40)
@given(FACTORS, FACTORS)
def test_the_optimum_of_a_kronecker_product_is_the_product_of_the_optima(left: Array, right: Array) -> None:
    a, b, both = solve(left), solve(right), solve(join([left, right]))
    assert both.lower <= a.upper * b.upper * (1 + 1e-12)
    assert a.lower * b.lower <= both.upper * (1 + 1e-12)
    product = Solution(
        join([a.strategy, b.strategy]),
        join([a.cell_weights[None], b.cell_weights[None]])[0],
        a.lower * b.lower * (1 - 1e-12),
        a.upper * b.upper * (1 + 1e-12),
        1,
    )
    assert verify_solution(join([left, right]), None, product).holds(2.1 * GAP)


@given(QUERIES, SEEDS)
def test_one_more_query_never_lowers_the_bound_nor_the_optimum(queries: Array, seed: int) -> None:
    draw = np.random.default_rng(seed)
    extra = np.vstack([queries, draw.integers(-2, 3, (1, queries.shape[1]))])
    v = np.asarray(draw.uniform(0.1, 1.0, size=queries.shape[1]))
    less, more = (bracket(independent_rows(rows), v, precise=True) for rows in (queries, extra))
    assert less.lower <= more.lower * (1 + 1e-12)
    assert solve(queries).lower <= solve(extra).upper


@given(QUERIES, SEEDS)
def test_fewer_cells_never_raise_the_optimum(queries: Array, seed: int) -> None:
    kept = np.random.default_rng(seed).random(queries.shape[1]) < 0.7
    assume(bool(queries[:, kept].any()))
    assert solve(queries[:, kept]).lower <= solve(queries).upper


@given(QUERIES)
def test_solving_twice_gives_the_same_bits(queries: Array) -> None:
    first, second = solve(queries), solve(queries)
    assert (first.lower, first.upper) == (second.lower, second.upper)
    assert first.strategy.tobytes() == second.strategy.tobytes()


@settings(max_examples=50)
@given(QUERIES, SEEDS, SCALES)
def test_the_cost_of_targets_falls_as_they_all_rise(queries: Array, seed: int, scale: float) -> None:
    targets = 10.0 ** np.random.default_rng(seed).uniform(-1, 1, len(queries))
    strict = solve_for(queries, targets)
    assert verify_targets(queries, targets, strict).holds(GAP)
    assert agree(solve_for(queries, scale * targets), strict, 1 / scale)


@settings(max_examples=50)
@given(QUERIES, SEEDS)
def test_a_laxer_target_never_costs_more_and_the_order_does_not_matter(queries: Array, seed: int) -> None:
    draw = np.random.default_rng(seed)
    targets = 10.0 ** draw.uniform(-1, 1, len(queries))
    strict = solve_for(queries, targets)
    lax = solve_for(queries, targets * draw.uniform(1, 3, len(targets)))
    assert lax.lower <= strict.upper
    order, cells = draw.permutation(len(queries)), draw.permutation(queries.shape[1])
    assert agree(solve_for(queries[order][:, cells], targets[order]), strict)


@settings(max_examples=50)
@given(QUERIES)
def test_the_largest_variance_is_at_least_the_mean_and_at_most_the_total(queries: Array) -> None:
    """Cost times largest variance against cost times total variance, over the same mechanisms."""
    asked = queries[queries.any(axis=1)]
    most, total = solve_for(asked, np.ones(len(asked))), solve(asked)
    assert total.lower <= len(asked) * most.upper
    assert most.lower <= total.upper
