"""Bounds for what a person can change: records replaced, spread over classes, or shares of cells (B-013)."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs
from residua.bounds import people, quick_bound
from residua.bounds.people import on_records, person_bound
from residua.privacy.unit import Person
from residua.solve.pairs import solve_pairs
from residua.verify.people import over_changes
from residua.workload.union import joint_rows

SMALL = rs.Schema.of_sizes([3, 2, 2])
SCHEMA = rs.Schema.of_sizes([4, 3, 2])
MARGINALS = rs.marginals(SCHEMA, ways=2)
PREFIXES = rs.table(SCHEMA, a0=rs.prefix, a1=rs.identity) + rs.table(SCHEMA, a2=rs.prefix)
UNITS = [
    rs.Unit(neighbours="replace_one"),
    rs.Unit(max_records=3, neighbours="replace_one"),
    rs.Unit(id="who", max_records=4, one_per="a0"),
    rs.Unit(id="who", max_records=3, one_per="a0"),
    rs.Unit(id="who", max_records=5, max_per={"a0": 2, "a1": 4}),
    rs.Unit(id="who", max_records=3, one_per="a0", neighbours="replace_one"),
]


def bound(work, unit):
    return person_bound(work, Person.of(unit, work.schema))


def least_by_a_solver(work, changes):
    """The least total variance at cost 1 of every linear Gaussian mechanism, by a conic solver."""
    cp = pytest.importorskip("cvxpy")
    rows = joint_rows(work)
    basis = np.linalg.svd(np.array(changes))[2][: np.linalg.matrix_rank(np.array(changes))]
    asked, moved = rows @ basis.T, np.array(changes) @ basis.T
    size = len(basis)
    matrix, inverse = cp.Variable((size, size), PSD=True), cp.Variable((len(rows), len(rows)), symmetric=True)
    tied = cp.bmat([[inverse, asked], [asked.T, matrix]])
    costs = [cp.trace(np.outer(change, change) @ matrix) <= 1 for change in moved]
    return cp.Problem(cp.Minimize(cp.trace(inverse)), [tied >> 0, *costs]).solve(solver="CLARABEL")


def test_replacing_plain_cells_is_bounded_by_what_is_reached():
    """Of n cells that add up to a public number, each has variance 2 (n - 1) / n at cost 1."""
    cells = rs.table(rs.Schema.of_sizes([7]), a0=rs.identity)
    assert bound(cells, rs.Unit(neighbours="replace_one")) == pytest.approx(12)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("family", [rs.identity, rs.prefix])
def test_replacing_is_bounded_near_the_optimum(family):
    work = rs.table(SMALL, a0=family, a1=rs.identity) + rs.table(SMALL, a2=family)
    least = least_by_a_solver(work, [a - b for a, b in combinations(np.eye(12), 2)])
    found = bound(work, rs.Unit(neighbours="replace_one"))
    assert 0.85 * least <= found <= least * (1 + 1e-4)


@pytest.mark.parametrize("many", [2, 3])
def test_one_record_a_class_is_bounded_near_the_optimum(many):
    work = rs.marginals(SMALL, ways=2)
    cells = np.eye(12).reshape(3, 4, 12)
    changes = [
        sum(cells[t][at] for t, at in enumerate(chosen) if at < 4)
        for chosen in product(range(5), repeat=3)
        if 0 < sum(at < 4 for at in chosen) <= many
    ]
    least = least_by_a_solver(work, changes)
    found = bound(work, rs.Unit(id="who", max_records=many, one_per="a0"))
    assert 0.8 * least <= found <= least * (1 + 1e-6)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("work", [MARGINALS, PREFIXES], ids=["marginals", "prefixes"])
def test_two_ways_to_write_down_what_a_person_can_change_agree(work, unit):
    low, _ = over_changes(work, Person.of(unit, SCHEMA))
    assert bound(work, unit) == pytest.approx(low, rel=0.03)


@settings(max_examples=8)
@given(
    st.sampled_from(UNITS),
    st.sampled_from([rs.identity, rs.prefix, rs.ranges, rs.total]),
    st.sampled_from([rs.identity, rs.prefix]),
    st.sampled_from(["total_variance", "max_variance"]),
)
def test_no_plan_is_better_than_its_bound(unit, first, second, objective):
    work = rs.table(SCHEMA, a0=first, a1=second) + rs.table(SCHEMA, a1=rs.identity, a2=second)
    plan = rs.plan(work, rs.zcdp(0.5), unit=unit, objective=objective)
    assert plan.certificate.lower_bound > 0
    assert 0 <= plan.certificate.gap < np.inf
    assert plan.certificate.scope == "all mechanisms"


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("work", [MARGINALS, PREFIXES], ids=["marginals", "prefixes"])
def test_without_the_joint_cells_a_bound_is_lower_but_not_nothing(work, unit, monkeypatch):
    whole = bound(work + PREFIXES, unit)
    monkeypatch.setattr(people, "BOUND_CELLS", 1)
    assert 0 < bound(work + PREFIXES, unit) <= whole * (1 + 1e-6)


def test_losses_have_a_bound_whatever_a_person_can_change():
    cp = pytest.importorskip("cvxpy")
    work = rs.table(SCHEMA, a0=rs.prefix, name="a") + rs.table(SCHEMA, a1=rs.identity, name="b")
    for unit in UNITS:
        plan = rs.plan(work, rs.zcdp(0.5), unit=unit, objective=lambda means: cp.max(means))
        assert plan.certificate.lower_bound > 0
        assert 0 <= plan.certificate.gap < 20


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("bins", [None, [0.5]])
def test_a_bound_of_moments_is_for_values_that_occur(degree, bins):
    """Shares of cells between the ends of a bin are nobody's whole record: a mechanism may know (U-001)."""
    schema = rs.Schema(x=rs.Number(0, 1, step=0.05, degree=degree, bins=bins))
    moments = [rs.total, rs.sum, rs.moment(2)][: degree + 1]
    plan = rs.plan(rs.table(schema, x=moments), rs.privacy_cost(1))
    values = np.linspace(0, 1, 21)
    rows = np.array([values**power for power in range(min(degree, 2) + 1)])
    reached = rs.bounds.dual(rs.linear(rs.Schema(x=rs.Integer(0, 20)), "x", rows))
    assert 0.98 * reached <= plan.certificate.lower_bound <= reached * (1 + 1e-4)


def test_records_have_shares_as_engines_count_them():
    schema = rs.Schema(x=rs.Number(0, 4, step=1, degree=2, bins=[2], missing=True), sex=rs.Integer(0, 1))
    work = rs.table(schema, sex=rs.identity, x=[rs.total, rs.sum])
    on = on_records(work)
    assert on.schema.sizes == (6, 2)  # 0 and 1, then 2, 3 and 4, and missing ones
    asked = next(factor for factor in next(on.groups()).factors if factor.attributes == (0,)).queries
    rows = np.array([[1, 1, 1, 1, 1, 1], [0, 1 / 4, 2 / 4, 3 / 4, 1, 0]])  # sums weigh as if from 0 to 1
    assert asked.gram() == pytest.approx(rows.T @ rows)


def test_families_on_very_many_cells_have_a_bound(monkeypatch):
    monkeypatch.setattr("residua.bounds.quick.FEW_ENTRIES", 10_000_000)
    schema = rs.Schema.of_sizes([40_000, 2])
    wide = rs.table(schema, a0=rs.prefix)
    fewer = rs.table(rs.Schema.of_sizes([1_000]), a0=rs.prefix)
    assert rs.bounds.svd(fewer) / 100 < quick_bound(wide)
    assert bound(wide, rs.Unit(neighbours="replace_one")) > 0
    assert bound(wide + rs.table(schema, a1=rs.identity), rs.Unit(neighbours="replace_one")) > 0


def test_a_bound_of_replaced_moments_is_for_values_that_occur():
    """The plan is the best over cells, which not all are records: better ones may exist (U-001)."""
    schema = rs.Schema(x=rs.Number(0, 1, step=0.05, degree=2))
    unit = rs.Unit(neighbours="replace_one")
    plan = rs.plan(rs.table(schema, x=[rs.total, rs.sum, rs.moment(2)]), rs.privacy_cost(1), unit=unit)
    values = np.linspace(0, 1, 21)
    rows = np.array([values**0, values, values**2])
    reached = solve_pairs(rows.T @ rows, 1e-3).upper
    assert 0 < plan.certificate.lower_bound <= reached < plan.total_variance
