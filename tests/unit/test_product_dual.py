"""The dual bound over product weights: against explicit matrices, its order, its size (B-006 to B-008)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import residua as rs
from residua._limits import PAIR_WORK
from residua.bounds import product_dual_or_nothing
from residua.bounds.leaves import EXCESS, Axis, Nodes
from residua.bounds.pairs import structure_of
from residua.bounds.product import Evaluation, Problem, product_dual_at
from residua.errors import Infeasible, WorkloadError
from residua.workload.union import joint_rows

Array = NDArray[np.float64]
COST = rs.privacy_cost(1)
CLOSE = 3e-5  # relative: what the sum of fractions leaves out


def pairs(
    sizes: list[int], two: rs.workload.Family, one: rs.workload.Family | None = rs.prefix
) -> rs.Workload:
    schema = rs.Schema.of_sizes(sizes)
    joint = rs.all_tables(schema, 2, two)
    return joint if one is None else rs.all_tables(schema, 1, one) + joint


def turned() -> rs.Workload:
    """Explicit tables in both orders of their attributes, several on one pair, and a total."""
    schema = rs.Schema.of_sizes([3, 3, 2, 1])
    draw = np.random.default_rng(5)
    work = rs.linear(schema, ("a1", "a0"), draw.random((4, 9)), [1, 2, 3, 4])
    work += 2 * rs.linear(schema, ("a0", "a2"), draw.random((7, 6))) + rs.table(schema, ["a0", "a2"])
    work += 0.3 * rs.table(schema, {("a0", "a1"): rs.affine}) + rs.table(schema)
    return work + rs.table(schema, {"a3": rs.identity, "a1": rs.prefix}) + rs.table(schema, a2=rs.ranges)


WORKLOADS = {
    "prefix": pairs([4, 4, 4], rs.prefix),
    "affine": pairs([4, 4, 4], rs.affine),
    "abs_diff of several sizes": pairs([4, 3, 4, 2], rs.abs_diff),
    "affine alone": pairs([3, 5], rs.affine, None),
    "ranges": pairs([4, 2, 3], rs.ranges, rs.identity),
    "turned": turned(),
    "one attribute": rs.table(rs.Schema.of_sizes([6]), a0=rs.prefix),
    "a total": rs.table(rs.Schema.of_sizes([2])),
}


def drawn(work: rs.Workload) -> tuple[Evaluation, Array]:
    """The bound under some product weights, and the root of the explicit gram under the same weights."""
    structure = structure_of(work, PAIR_WORK)
    draw = np.random.default_rng(len(work.attributes))
    weights = [draw.dirichlet(np.full(size, 3.0)) for size in structure.sizes]
    joint = joint_rows(work)
    cells = np.ones(1)
    for at in work.attributes:
        cells = np.kron(cells, weights[structure.roles[at]])
    _, values, right = np.linalg.svd(joint * np.sqrt(cells), full_matrices=False)
    root = (right.T * values) @ right
    return Evaluation(Problem.of(structure), [Axis.of(each) for each in weights]), root


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_the_root_under_product_weights_is_that_of_the_explicit_matrix(work):
    found, root = drawn(work)
    assert np.trace(root) * (1 - CLOSE) <= found.value <= np.trace(root) * (1 + 1e-12)


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_the_traces_over_cells_are_those_of_the_explicit_root(work):
    found, root = drawn(work)
    kinds = structure_of(work, PAIR_WORK).roles
    sizes = [work.schema.sizes[at] for at in work.attributes]
    cells = np.diagonal(root).reshape(sizes)
    expected = [np.zeros(len(axis.weights)) for axis in found.axes]
    for place, at in enumerate(work.attributes):
        others = tuple(axis for axis in range(len(sizes)) if axis != place)
        expected[kinds[at]] += cells.sum(axis=others)
    for one, two in zip(found.traces(), expected, strict=True):
        np.testing.assert_allclose(one, two, atol=CLOSE * np.trace(root))


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_the_bound_lies_between_that_of_uniform_weights_and_the_optimum(work):
    found = rs.bounds.product_dual(work)
    assert rs.bounds.svd(work) * (1 - 2 * CLOSE) <= found <= rs.bounds.dual(work) * (1 + 1e-5)


@pytest.mark.parametrize(
    ("work", "share"),
    [
        (pairs([5, 4, 3], rs.prefix), 0.998),
        (pairs([6, 5, 4], rs.affine), 0.995),
        (pairs([6, 5, 4], rs.abs_diff), 0.98),
        (pairs([6, 6], rs.affine, None), 0.97),
    ],
    ids=["prefix", "affine and prefix", "abs_diff and prefix", "affine"],
)
def test_the_bound_is_close_to_the_optimum(work, share):
    assert rs.bounds.product_dual(work) >= share * rs.bounds.dual(work)


@settings(max_examples=25)
@given(st.data())
def test_no_bound_exceeds_the_optimum_whatever_the_tables(data):
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    schema = rs.Schema.of_sizes(sizes)
    families = [rs.identity, rs.prefix, rs.ranges, rs.total, rs.circular]
    work = None
    for _ in range(data.draw(st.integers(1, 4))):
        names = data.draw(st.permutations(schema.names))[: data.draw(st.integers(0, min(3, len(sizes))))]
        chosen = {name: data.draw(st.sampled_from(families)) for name in names}
        if len(names) > 1 and data.draw(st.booleans()):
            del chosen[names[0]], chosen[names[1]]
            chosen[names[0], names[1]] = data.draw(st.sampled_from([rs.affine, rs.abs_diff]))
        more = rs.table(schema, chosen, weight=data.draw(st.floats(0.01, 100)))
        work = more if work is None else work + more
    assert rs.bounds.product_dual(work) <= rs.bounds.dual(work) * (1 + 2e-5)


def test_wide_tables_add_to_the_bound_and_keep_it_true():
    schema = rs.Schema.of_sizes([3, 3, 2, 2])
    narrow = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.affine)
    wide = rs.all_tables(schema, 3, rs.prefix) + rs.table(schema, {("a0", "a1"): rs.affine, "a3": rs.prefix})
    found = [rs.bounds.product_dual(each) for each in (narrow, narrow + wide, narrow + wide + wide)]
    assert found[0] < found[1] < found[2]
    assert found[1] <= rs.bounds.dual(narrow + wide)
    assert found[2] <= rs.bounds.dual(narrow + wide + wide)
    assert 0 < rs.bounds.product_dual(wide) <= rs.bounds.dual(wide)


def test_what_varies_along_three_attributes_counts_in_closed_form():
    work = rs.table(rs.Schema.of_sizes([3, 4, 2]), ["a0", "a1", "a2"])
    shares = math.prod((size - 1) / math.sqrt(size) for size in (3, 4, 2))
    weights = [np.full(size, 1 / size) for size in work.schema.sizes]
    assert product_dual_at(work, weights.__getitem__, PAIR_WORK, 10) == pytest.approx(shares**2, rel=1e-8)
    assert rs.bounds.product_dual(work) == pytest.approx(24, rel=1e-8)  # the optimum: plain cells


def test_leaving_out_tables_lowers_the_bound():
    work = WORKLOADS["turned"]
    values = []
    for heaviest in (PAIR_WORK, 300.0, 200.0):
        structure = structure_of(work, heaviest)
        uniform = [Axis.of(np.full(size, 1 / size)) for size in structure.sizes]
        values.append(Evaluation(Problem.of(structure), uniform).value)
    assert values[0] > values[1] > values[2] > 0


def test_attributes_that_meet_in_different_tables_are_not_exchangeable():
    schema = rs.Schema.of_sizes([4] * 4)
    alike = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.affine)
    assert structure_of(alike, PAIR_WORK).members == (4,)
    one_less = rs.Workload(schema, (alike.parts[0], *list(alike.groups())[4:-1]))
    assert structure_of(one_less, PAIR_WORK).members == (2, 2)
    lopsided = rs.Workload(schema, (alike.parts[0],)) + rs.linear(
        schema, ("a0", "a1"), np.arange(32.0).reshape(2, 16)
    )
    assert structure_of(lopsided, PAIR_WORK).members == (1, 1, 2)


def test_forty_exchangeable_attributes_are_two_small_matrices():
    found = drawn_forty()
    assert [len(part) for part in found._inverses[0].parts] == [10, 9]
    assert math.sqrt(780 * 19 + 400) * 24 < found.value


def drawn_forty() -> Evaluation:
    structure = structure_of(pairs([10] * 40, rs.affine), PAIR_WORK)
    return Evaluation(Problem.of(structure), [Axis.of(np.full(10, 0.1))])


def test_exchanging_attributes_says_the_same_as_listing_them():
    schema = rs.Schema.of_sizes([3] * 4)
    work = rs.all_tables(schema, 1, rs.prefix) + rs.all_tables(schema, 2, rs.abs_diff)
    first, *others = work.groups()
    listed = rs.Workload(schema, (replace(first, weight=1 + 1e-10), *others))
    assert len(structure_of(listed, PAIR_WORK).members) > 1
    assert structure_of(work, PAIR_WORK).members == (4,)
    assert rs.bounds.product_dual(work) == pytest.approx(rs.bounds.product_dual(listed), rel=1e-4)


def test_the_sum_of_fractions_never_exceeds_the_square_root():
    for low, high in ((1e-6, 1e6), (1.0, 1.0), (1e-12, 3.0)):
        nodes = Nodes.between(low, high)
        x = np.geomspace(1e-20, 1e20, 4001)[:, None]
        ratio = np.sum(nodes.weights * x / (x + nodes.points), axis=1) / np.sqrt(x[:, 0])
        assert ratio.max() <= EXCESS
    inside = (x[:, 0] > 1e-9) & (x[:, 0] < 1e-3)
    assert ratio[inside].min() > 1 - 1e-4
    assert EXCESS < 1 + 1e-5


def test_plans_with_joint_families_on_many_attributes_state_a_bound_for_all_mechanisms(answered_by):
    work = pairs([4] * 20, rs.affine)
    plan = rs.plan(work, COST)
    assert answered_by(plan.strategy) == "coupled"
    assert plan.certificate.scope == "all mechanisms"
    assert 0 < plan.certificate.gap < 0.03
    assert "any mechanism" in plan.explain()


def test_what_cannot_be_bounded_is_refused_or_bounded_by_nothing():
    schema = rs.Schema.of_sizes([2_000, 2_000])
    work = rs.table(schema, {"a0": rs.identity}) + rs.table(schema, {"a1": rs.prefix})
    with pytest.raises(Infeasible, match="3,999 dimensions"):
        rs.bounds.product_dual(work)
    assert product_dual_or_nothing(work) == 0.0
    huge = rs.linear(rs.Schema.of_sizes([2]), ("a0",), [[1e80, 1.0]])
    with pytest.raises(Infeasible, match="1e\\+80"):
        rs.bounds.product_dual(huge)
    with pytest.raises(WorkloadError, match="not 3"):
        rs.bounds.product_dual(3)
