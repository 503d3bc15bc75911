"""Caps on every variance, over blocks: what is met, what it costs, and what is proved about that."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import csr_array

import residua as rs
from residua.errors import Infeasible
from residua.linalg.matrices import independent_rows
from residua.methods.scales import cutting_planes as scales_rounds
from residua.methods.scales import variance_rows as scales_tables
from residua.methods.scales.cutting_planes import best_scales
from residua.methods.scales.targets import block_targets
from residua.privacy.unit import Person
from residua.solve.targets import solve_targets
from residua.strategy.rounding import measurable
from residua.workload import TableRun

sizes = rs.Schema.of_sizes


def caps_of(work, *caps):
    return list(caps) if caps else [1.0] * len(work.parts)


def joint_matrix(work):
    """Every query over all cells of the schema, and the part each is from."""
    rows, owners = [], []
    for number, part in enumerate(work.parts):
        for group in part if isinstance(part, TableRun) else (part,):
            table = np.ones((1, 1))
            by_attribute = {factor.attributes[0]: factor.queries.matrix() for factor in group.factors}
            for at, size in enumerate(work.schema.sizes):
                table = np.kron(table, by_attribute.get(at, np.ones((1, size))))
            rows.append(table)
            owners += [number] * len(table)
    return np.concatenate(rows), np.array(owners)


def dense_optimum(work, caps):
    rows, owners = joint_matrix(work)
    root = independent_rows(rows)
    coefficients = np.linalg.lstsq(root.T, rows.T)[0].T
    return solve_targets(coefficients, root, np.array(caps, dtype=float)[owners], 1e-6)


def largest_ratio(draft, work, caps):
    return max(
        float(np.max(draft.strategy.variances(group) / cap))
        for part, cap in zip(work.parts, caps, strict=True)
        for group in (part if isinstance(part, TableRun) else (part,))
    )


WORKLOADS = {
    "marginals": lambda: (rs.marginals(sizes([3, 2, 4]), up_to=3), [1.0, 2.0, 0.5, 3.0]),
    "prefix sums": lambda: (rs.all_tables(sizes([4, 4, 3]), ways=(1, 2), family=rs.prefix), [1.0, 2.0]),
    "two families of one attribute": lambda: (
        rs.marginals(sizes([3, 4]), ways=2) + rs.table(sizes([3, 4]), a0=rs.prefix, a1=rs.ranges),
        [1.0, 0.7],
    ),
    "affine": lambda: (rs.all_tables(sizes([4, 4, 4]), ways=2, family=rs.affine), [2.0]),
    "a cap for each query": lambda: (
        rs.table(sizes([5, 2]), a0=rs.prefix) + rs.marginals(sizes([5, 2]), ways=2),
        [np.array([0.1, 1.0, 2.0, 0.5, 3.0]), 4.0],
    ),
    "weights of queries": lambda: (
        rs.linear(sizes([3]), ("a0",), np.array([[1.0, 2, 0], [0, 1, 1], [1, 0, -1]]), weights=[1, 9, 1]),
        [2.0],
    ),
    "predicates": lambda: (rs.all_tables(sizes([4, 3]), ways=(1, 2), family=rs.predicates), [1.0, 2.0]),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_cap_is_met_and_the_dearest_one_exactly(name):
    work, caps = WORKLOADS[name]()
    draft = block_targets(work, caps, 1e-4)
    assert largest_ratio(draft, work, caps) == pytest.approx(1, abs=1e-4)
    assert largest_ratio(draft, work, caps) <= 1 + 1e-9
    assert 0 <= draft.strategy.cost() / draft.lower_bound - 1 <= 1.1e-4
    assert sum(float(prices.sum()) for prices in draft.prices) == pytest.approx(1)
    assert [len(prices) for prices in draft.prices] == [
        len(part) if isinstance(part, TableRun) else 1 for part in work.parts
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_draft_has_an_integer_form_of_the_same_variances(name):
    work, caps = WORKLOADS[name]()
    draft = block_targets(work, caps, 1e-4)
    whole = measurable(draft.strategy, draft.spans, rs.privacy_cost(1).gaussian_cost(), Person(rs.Unit()))
    ideal = draft.strategy.scaled(1 / draft.strategy.cost())
    for group in work.groups():
        assert whole.variances(group) == pytest.approx(ideal.variances(group), rel=1e-2)


@pytest.mark.parametrize(
    ("shape", "caps"),
    [([3, 2, 4], [1.0, 2.0, 0.5, 3.0]), ([2, 2, 2], [1.0, 1.0, 1.0, 1.0]), ([5, 3, 2], [9.0, 1.0, 4.0, 1.0])],
)
def test_for_marginals_no_mechanism_at_all_is_cheaper(shape, caps):
    work = rs.marginals(sizes(shape), up_to=3)
    draft, dense = block_targets(work, caps, 1e-6), dense_optimum(work, caps)
    assert draft.scope == "all mechanisms"
    assert draft.strategy.cost() == pytest.approx(dense.upper, rel=1e-5)
    assert draft.lower_bound == pytest.approx(dense.lower, rel=1e-5)


def test_sets_of_cells_are_capped_by_their_size_and_no_mechanism_is_cheaper():
    work = rs.all_tables(sizes([4, 3]), ways=(1, 2), family=rs.predicates)
    draft, dense = block_targets(work, [1.0, 2.0], 1e-6), dense_optimum(work, [1.0, 2.0])
    assert draft.scope == "all mechanisms"
    assert draft.strategy.cost() == pytest.approx(dense.upper, rel=1e-5)


def test_more_sets_than_can_be_listed_are_capped():
    work = rs.all_tables(sizes([30, 30]), ways=2, family=rs.predicates)
    draft = block_targets(work, [1.0], 1e-6)
    assert draft.strategy.cost() == pytest.approx(draft.lower_bound, rel=1e-6)


def test_the_largest_variances_of_two_published_examples():
    work = rs.marginals(sizes([3] * 5), up_to=5)
    assert block_targets(work, caps_of(work), 1e-7).strategy.cost() == pytest.approx(7.59375, rel=1e-7)
    weighted = block_targets(work, [1.0] * 5 + [1 / 3], 1e-7).strategy
    cost = weighted.cost()
    assert cost == pytest.approx(8.15362, rel=1e-6)
    shown = [cost * float(weighted.largest(part[0])) for part in work.parts]
    assert shown[3:] == pytest.approx([8.15362, 5.52788, 2.71787], rel=1e-5)


def test_on_one_attribute_the_best_centring_reaches_the_optimum_of_all_mechanisms():
    work = rs.table(sizes([16]), a0=rs.prefix)
    cost, dense = block_targets(work, [1.0], 1e-5).strategy.cost(), dense_optimum(work, [1.0])
    assert dense.lower <= cost <= 1.003 * dense.upper  # weights are rounded to small whole numbers


def test_a_product_costs_the_product_of_its_factors():
    alone = dense_optimum(rs.table(sizes([6]), a0=rs.prefix), [1.0]).upper
    both = block_targets(rs.table(sizes([6, 6]), a0=rs.prefix, a1=rs.prefix), [1.0], 1e-5)
    assert both.strategy.cost() == pytest.approx(alone**2, rel=5e-3)


def test_large_tables_are_planned_from_each_attribute_alone():
    work = rs.all_tables(sizes([100, 100]), ways=2, family=rs.prefix)
    draft = block_targets(work, [1.0], 1e-4)
    alone = dense_optimum(rs.table(sizes([100]), a0=rs.prefix), [1.0]).upper
    assert draft.strategy.cost() == pytest.approx(alone**2, rel=2e-2)
    assert draft.lower_bound >= 0.97 * draft.strategy.cost()


def test_tables_written_one_by_one_cost_what_a_run_of_them_costs():
    schema = sizes([3, 3, 3])
    run = rs.all_tables(schema, ways=2, family=rs.prefix)
    pairs = [("a0", "a1"), ("a0", "a2"), ("a1", "a2")]
    single = [rs.table(schema, dict.fromkeys(pair, rs.prefix)) for pair in pairs]
    listed = single[0] + single[1] + single[2]
    costs = [block_targets(work, caps_of(work), 1e-5).strategy.cost() for work in (run, listed)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-3)


def test_doubling_every_cap_halves_the_cost():
    work = rs.all_tables(sizes([4, 3]), ways=(1, 2), family=rs.prefix)
    costs = [block_targets(work, [cap, 3 * cap], 1e-6).strategy.cost() for cap in (1.0, 2.0)]
    assert costs[0] == pytest.approx(2 * costs[1], rel=1e-4)


def test_prices_are_what_relaxing_a_part_saves():
    work = rs.marginals(sizes([3, 4, 2]), up_to=2)
    caps, step = [1.0, 1.2, 2.0], 1e-3
    draft = block_targets(work, caps, 1e-9)
    for number in range(3):
        eased = [cap * (1 + step * (place == number)) for place, cap in enumerate(caps)]
        saved = 1 - block_targets(work, eased, 1e-9).strategy.cost() / draft.strategy.cost()
        assert saved == pytest.approx(step * float(draft.prices[number].sum()), rel=2e-2, abs=1e-7)


def test_adding_violated_queries_in_rounds_ends_where_listing_all_does(monkeypatch):
    work = rs.all_tables(sizes([40, 30]), ways=(1, 2), family=rs.ranges)
    rounds = block_targets(work, [1.0, 3.0], 1e-5).strategy.cost()
    monkeypatch.setattr(scales_tables, "FEW", 10**9)
    monkeypatch.setattr(scales_rounds, "FEW", 10**9)
    assert block_targets(work, [1.0, 3.0], 1e-5).strategy.cost() == pytest.approx(rounds, rel=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_noise_is_that_of_a_conic_solver(seed):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 1, (7, 4)) * (rng.uniform(size=(7, 4)) < 0.7)
    rows[:4] += np.eye(4)
    many = rng.integers(1, 9, 4).astype(float)
    noise = cp.Variable(4)
    problem = cp.Problem(cp.Minimize(many @ cp.inv_pos(noise)), [rows @ noise <= 1])
    problem.solve(solver=cp.CLARABEL)
    found = best_scales(csr_array(rows), many, 1e-7)
    assert found.lower <= problem.value * (1 + 1e-6)
    assert found.upper >= problem.value * (1 - 1e-6)
    assert found.gap <= 1e-7
    assert (rows @ found.noise).max() <= 1 + 1e-12


def test_the_joint_dual_is_the_optimum_of_a_semidefinite_program():
    work = rs.all_tables(sizes([3, 2]), ways=(1, 2), family=rs.prefix)
    caps = [1.0, 1.5]
    draft = block_targets(work, caps, 1e-5)
    measures = [measure.vector() for measure in draft.strategy.measures]
    assert draft.strategy.cost() == pytest.approx(_block_program(work, caps, measures), rel=1e-4)


def _block_program(work, caps, measures):
    """Least sum of the largest diagonal entries of privacy matrices of blocks that together meet the caps."""
    shape = work.schema.sizes
    centred = [np.eye(n) - np.outer(p, np.ones(n)) for n, p in zip(shape, measures, strict=True)]
    blocks = {}
    for kept in np.ndindex(*(2,) * len(shape)):
        parts = [c if k else p[:, None] for c, p, k in zip(centred, measures, kept, strict=True)]
        piece = np.ones((1, 1))
        for part in parts:
            piece = np.kron(piece, part)
        basis = np.linalg.svd(piece)[2][: np.linalg.matrix_rank(piece)]
        blocks[kept] = (piece @ basis.T, basis, cp.Variable((len(basis), len(basis)), PSD=True))
    rows, owners = joint_matrix(work)
    conditions = []
    for row, owner in zip(rows, owners, strict=True):
        terms = [
            cp.matrix_frac(row @ piece, inner) for piece, _, inner in blocks.values() if np.any(row @ piece)
        ]
        conditions.append(cp.sum(terms) <= caps[owner])
    costs = [cp.max(cp.diag(basis.T @ inner @ basis)) for _, basis, inner in blocks.values()]
    problem = cp.Problem(cp.Minimize(cp.sum(costs)), conditions)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def test_tables_that_cannot_be_gone_through_are_refused_with_a_remedy():
    schema = sizes([200] * 4)
    work = rs.table(schema, dict.fromkeys(schema.names, rs.ranges)) + rs.table(schema, a0=rs.prefix)
    with pytest.raises(Infeasible, match="too many to go through; ask for total variance"):
        block_targets(work, [1.0, 1.0], 1e-3)


@pytest.mark.parametrize("shape", [[3, 3, 3, 3], [2, 3, 4, 5]])
def test_the_least_accurate_marginal_is_found_without_going_through_all(shape):
    work = rs.marginals(sizes(shape), up_to=3)
    mechanism = block_targets(work, [1.0, 2.0, 1.5, 3.0], 1e-5).strategy
    for part in work.parts:
        (worst,) = mechanism.answerer.least_accurate(part)
        assert mechanism.largest(worst) == pytest.approx(max(map(mechanism.largest, part)), rel=1e-12)


def test_tables_with_unlike_queries_are_all_candidates_for_the_least_accurate():
    work = rs.all_tables(sizes([3, 4, 5]), ways=2, family=rs.prefix)
    mechanism = rs.plan(work, rs.privacy_cost(1), method="querysmasher").strategy
    assert len(list(mechanism.answerer.least_accurate(work.parts[0]))) == 3


def test_weights_that_follow_the_largest_variances_lower_the_cost(monkeypatch):
    schema = sizes([14, 9, 5])
    work = rs.all_tables(schema, ways=2, family=rs.prefix) + rs.table(schema, ["a0", "a2"])
    caps = [1.0] * len(work.parts)
    least = dense_optimum(work, caps).upper
    monkeypatch.setattr("residua.methods.scales.single_attribute.JOINT_WORK", 0.0)  # as of large tables
    found = block_targets(work, caps, 1e-4)
    monkeypatch.setattr("residua.methods.scales.targets.ROUNDS", 0)
    before = block_targets(work, caps, 1e-4)
    assert found.strategy.cost() < 0.99 * before.strategy.cost()
    for draft in (found, before):
        assert 0 < draft.everywhere <= least * (1 + 1e-4) <= draft.strategy.cost() * (1 + 2e-4)
        assert draft.lower_bound <= draft.strategy.cost()
        for group in work.groups():
            assert draft.strategy.largest(group) <= 1 + 1e-6
