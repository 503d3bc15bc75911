"""The bound for tables on several attributes: against explicit matrices, cut or whole (B-011 and B-012)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_work import random_work

import residua as rs
from residua.bounds import quick_bound
from residua.bounds.alone import AttributeQueries
from residua.bounds.frames import Frame, few
from residua.bounds.wide import wide_dual
from residua.errors import Infeasible
from residua.linalg.matrices import join
from residua.workload import Identity
from residua.workload.union import joint_rows

Array = NDArray[np.float64]
COST = rs.privacy_cost(1)
EVERYTHING = 1e13  # operations: all coordinates of what is small are kept
CLOSE = 6e-5  # relative: what the sum of fractions leaves out


def tables(sizes: list[int], ways: tuple[int, ...], family: rs.workload.Family = rs.prefix) -> rs.Workload:
    return rs.all_tables(rs.Schema.of_sizes(sizes), ways, family)


def mixed() -> rs.Workload:
    """Different families of one attribute, several tables on one set, joint families and a total."""
    schema = rs.Schema.of_sizes([4, 3, 3, 2])
    draw = np.random.default_rng(3)
    work = rs.table(schema, a0=rs.prefix, a1=rs.identity, a2=rs.prefix)
    work += 2 * rs.table(schema, a0=rs.identity, a1=rs.prefix, a2=rs.identity)
    work += rs.linear(schema, ("a2", "a1"), draw.random((5, 9))) + rs.table(schema, a3=rs.ranges)
    work += rs.linear(schema, ("a3", "a0"), draw.random((3, 8)), [1, 2, 3])
    work += 0.5 * rs.table(schema, {("a0", "a2"): rs.affine, "a3": rs.prefix})
    return work + rs.table(schema) + 3 * rs.table(schema, ["a0", "a1", "a2", "a3"])


WORKLOADS = {
    "prefix": tables([4, 3, 5], (1, 2, 3)),
    "triples alone": tables([3, 3, 3, 3], (3,)),
    "four ways": tables([3, 2, 3, 2], (1, 2, 3, 4)),
    "ranges": tables([4, 5, 3], (2, 3), rs.ranges),
    "mixed": mixed(),
    "one attribute": tables([7], (1,)),
    "a total": rs.table(rs.Schema.of_sizes([2])),
}


def at_weights(work: rs.Workload) -> float:
    """The bound at the same weights from the singular values of the explicit matrix."""
    asked = AttributeQueries(work)
    weights = join((asked.weights(at) / asked.weights(at).sum())[None] for at in work.attributes)[0]
    return float(np.linalg.svd(joint_rows(work) * np.sqrt(weights), compute_uv=False).sum()) ** 2


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_with_everything_kept_it_is_the_bound_of_the_explicit_matrix(work):
    found, exact = wide_dual(work, AttributeQueries(work), EVERYTHING), at_weights(work)
    assert exact * (1 - 2 * CLOSE) <= found <= exact * (1 + 1e-12)


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
@pytest.mark.parametrize("operations", [0.0, 1e5, 1e6, 1e7])
def test_with_less_kept_it_is_below_and_not_far_below(work, operations):
    found, exact = wide_dual(work, AttributeQueries(work), operations), at_weights(work)
    assert 0.5 * exact < found <= exact * (1 + 1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e5, EVERYTHING]))
@settings(max_examples=40, deadline=None)
def test_no_bound_of_random_tables_is_above_the_explicit_one(seed, operations):
    work = random_work(np.random.default_rng(seed), 2, 60, levels=True).without_totals()
    assert 0 < wide_dual(work, AttributeQueries(work), operations) <= at_weights(work) * (1 + 1e-11)


def test_what_is_cut_off_leaves_the_kept_coordinates_and_a_rest_that_they_do_not_see():
    draw = np.random.default_rng(2)
    weights = draw.dirichlet(np.ones(6))
    queries = rs.table(rs.Schema.of_sizes([6]), a0=rs.prefix).parts[0].families[0]
    frame = Frame(weights, [(queries.root(), 1.0)])
    assert [frame.count_for(loss) for loss in (1.0, 1e-12)] == [0, 5]
    explicit = queries.root() * np.sqrt(weights)
    for count in range(6):
        kept = frame.kept(queries, count)
        columns = frame.columns(count)
        np.testing.assert_allclose(columns[:, 0], weights)  # the mean, with its sign
        np.testing.assert_allclose(
            kept.rows.T @ kept.rows, (queries.root() @ columns).T @ queries.root() @ columns, atol=1e-12
        )
        own = kept.rows[:, 1:] if count else kept.rows
        np.testing.assert_allclose(own @ own.T, np.diag(kept.lengths**2), atol=1e-12)
        whole = np.linalg.svd(explicit, compute_uv=False).sum()
        cut = np.linalg.svd(kept.rows, compute_uv=False).sum() + kept.beyond
        assert cut <= whole * (1 + 1e-12)
    assert cut == pytest.approx(whole)


def test_plain_cells_need_no_matrix():
    even = np.full(9, 1 / 9)
    plain = Frame(even, []).kept(Identity(9), 0)
    dense = Frame(even, [])._turned(np.eye(9) / 3, np.full((9, 1), 1 / 3))
    assert abs(plain.rows[0, 0]) == pytest.approx(abs(dense.rows[0, 0]))
    assert plain.beyond == pytest.approx(dense.beyond)
    schema = rs.Schema.of_sizes([100_000, 5, 4])
    triple = rs.table(schema, a0=rs.identity, a1=rs.prefix, a2=rs.prefix)
    both = triple + rs.table(schema, a0=rs.identity, a1=rs.prefix)
    assert quick_bound(triple) < quick_bound(both) < 1.3 * quick_bound(triple)


def test_exchangeable_attributes_share_what_is_solved(monkeypatch):
    work = tables([4, 4, 4, 3, 3], (1, 2, 3))
    shared = wide_dual(work, AttributeQueries(work), 1e7)
    apart = lambda schema, *_: np.arange(len(schema))  # noqa: E731
    monkeypatch.setattr("residua.bounds.wide.attribute_orbits", apart)
    assert wide_dual(work, AttributeQueries(work), 1e7) == pytest.approx(shared, rel=1e-9)


def test_tables_on_three_attributes_are_bounded_within_a_few_percent():
    schema = rs.Schema(
        {"age": rs.Integer(0, 39), "hours": rs.Integer(0, 19), "wage": rs.Integer(0, 29)}
        | {f"q{at}": rs.Categorical(*map(str, range(size))) for at, size in enumerate((7, 5, 3))}
    )
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    certificate = rs.plan(work, COST).certificate
    assert certificate.scope == "this block structure"
    assert certificate.everywhere_gap < 0.03
    assert rs.bounds.product_dual(work) > 0.99 * certificate.everywhere


def test_too_many_tables_for_it_are_said_to_be():
    work = tables([2] * 60, (3,))
    with pytest.raises(Infeasible, match="34,220 tables have too many subsets"):
        wide_dual(work, AttributeQueries(work), 1e9)


def test_few_rows_have_the_same_gram():
    rows = np.random.default_rng(1).random((9, 4))
    np.testing.assert_allclose(few(rows).T @ few(rows), rows.T @ rows)
    assert few(rows).shape == (4, 4)
    assert few(rows[:3]).shape == (3, 4)


def test_several_tables_on_one_pair_are_bounded_together():
    schema = rs.Schema.of_sizes([60, 40])
    one, two = rs.table(schema, a0=rs.prefix, a1=rs.identity), rs.table(schema, a0=rs.identity, a1=rs.prefix)
    assert quick_bound(one + two) > 2 * max(map(quick_bound, (one, two)))
    certificate = rs.plan(one + two, COST, method="hdmm").certificate
    assert certificate.gap < 0.2  # half of what was asked was left out: 1.8


@pytest.mark.parametrize("family", [rs.prefix, rs.identity, rs.ranges, rs.width(7)], ids=str)
def test_families_on_thousands_of_cells_have_a_bound(family):
    work = rs.table(rs.Schema.of_sizes([2500, 3]), a0=family, a1=rs.prefix)
    assert quick_bound(work + rs.table(work.schema, ["a1"])) > 0


def test_some_cells_of_a_family_bound_it_from_below(monkeypatch):
    work = rs.table(rs.Schema.of_sizes([120]), a0=rs.prefix)
    best = rs.bounds.dual(work)
    monkeypatch.setattr("residua.bounds.quick.BOUND_CELLS", 100)
    monkeypatch.setattr("residua.bounds.quick.FEW_CELLS", 60)
    for entries in (10**6, 0):  # row by row, or from the gram
        monkeypatch.setattr("residua.bounds.quick.FEW_ENTRIES", entries)
        assert 0.5 * best < quick_bound(work) <= best
    monkeypatch.setattr("residua.bounds.quick.WIDEST", 0)
    assert quick_bound(work) == 0
