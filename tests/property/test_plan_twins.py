"""Plans of random workloads against dense twins: every query and every measurement over every cell."""

import math
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import residua as rs
from residua.privacy.unit import Person
from residua.strategy.rounding import record_cost
from residua.workload import Family, Table

REPLACED = Person(rs.Unit(neighbours="replace_one"))

Array = NDArray[np.float64]

METHODS = ("dense", "identity", "hierarchical", "wavelet")
SINGLES: tuple[Family, ...] = (
    rs.identity,
    rs.total,
    rs.prefix,
    rs.ranges,
    rs.circular,
    rs.predicates,
    rs.width(2),
    rs.buckets(1),
)
PAIRS: tuple[Family, ...] = (rs.affine, rs.abs_diff)
ENTRIES = (0, 0, 1, 1, -1, 2, 3, 0.25, 0.1, 1 / 3)  # of explicit queries; some no fractions of two


def over_cells(matrix: Array, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """Rows on some attributes as rows over all cells of the schema, by looking up each cell."""
    place = np.indices(sizes).reshape(len(sizes), -1)  # (attributes, cells)
    inner = [place[axis] for axis in attributes]
    return matrix[:, np.ravel_multi_index(inner, [sizes[axis] for axis in attributes])] if inner else matrix


def times(parts: list[Array], cells: int) -> Array:
    """Every product of one row from each part, the last part fastest."""
    rows = np.ones((1, cells))
    for part in parts:
        rows = (rows[:, None, :] * part[None, :, :]).reshape(-1, cells)
    return rows


def query_rows(group: Table, sizes: tuple[int, ...]) -> Array:
    parts = [over_cells(f.queries.matrix(), f.attributes, sizes) for f in group.factors]
    return times(parts, math.prod(sizes))


def query_weights(group: Table) -> Array:
    weights = np.array([group.weight])
    for factor in group.factors:
        own = factor.queries.weights
        weights = np.multiply.outer(weights, np.ones(factor.queries.count) if own is None else own).ravel()
    return weights


@dataclass(frozen=True)
class Twin:
    """A plan and its workload as matrices over all cells of the schema."""

    plan: rs.Plan
    queries: Array  # (count, cells)
    weights: Array  # (count,)
    privacy: Array  # (cells, cells), the matrix X

    @classmethod
    def of(cls, plan: rs.Plan) -> "Twin":
        sizes = plan.schema.sizes
        groups = list(plan.workload.groups())
        _, factors, noise = plan.strategy.single()
        parts = [over_cells(f.matrix, f.attributes, sizes) for f in factors]
        measured = times(parts, math.prod(sizes))
        return cls(
            plan,
            np.concatenate([query_rows(group, sizes) for group in groups]),
            np.concatenate([query_weights(group) for group in groups]),
            measured.T @ measured / noise,
        )

    @property
    def covariance(self) -> Array:
        return self.queries @ np.linalg.pinv(self.privacy, rcond=1e-11, hermitian=True) @ self.queries.T

    @property
    def unseen(self) -> Array:
        """Length of the part of each query outside the row space of X, over its own length."""
        onto = np.linalg.pinv(self.privacy, rcond=1e-11, hermitian=True) @ self.privacy
        left = np.linalg.norm(self.queries - self.queries @ onto, axis=1)
        return left / np.maximum(np.linalg.norm(self.queries, axis=1), 1e-300)


def whole_columns(plan: rs.Plan) -> list[list[int]]:
    """The columns of the measured matrix, one per cell of the attributes in use, as Python integers."""
    _, factors, _ = plan.strategy.single()
    matrix = np.full((1, 1), plan.strategy.layers[0].multiplier, dtype=object)
    for factor in factors:
        assert np.array_equal(factor.matrix, np.rint(factor.matrix))
        matrix = np.kron(matrix, np.vectorize(int, otypes=[object])(factor.matrix))
    return matrix.T.tolist()


def exact_variance(plan: rs.Plan) -> Fraction:
    """Variance of the Gaussian noise before it is rounded, which adds a twelfth."""
    (layer,), (batch,) = plan.strategy.layers, plan.batches
    (exact,) = batch.parameters
    assert layer.noise[0] * layer.multiplier**2 == pytest.approx(float(exact) + 1 / 12, rel=1e-12)
    return exact


@st.composite
def schemas(draw: st.DrawFn) -> rs.Schema:
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    return rs.Schema.of_sizes(sizes)


@st.composite
def tables(draw: st.DrawFn, schema: rs.Schema) -> rs.Workload:
    """One table on some attributes in any order: products, pairs, explicit rows, or the total."""
    names = draw(st.permutations(schema.names))[: draw(st.integers(0, len(schema)))]
    if names and draw(st.integers(0, 4)) == 0:
        cells = math.prod(schema.sizes[schema.position(name)] for name in names)
        rows = draw(
            st.lists(
                st.lists(st.sampled_from(ENTRIES), min_size=cells, max_size=cells), min_size=1, max_size=3
            )
        )
        assume(np.any(rows))
        weights = draw(st.lists(st.sampled_from([0.25, 1.0, 9.0]), min_size=len(rows), max_size=len(rows)))
        return rs.linear(schema, names, rows, weights)
    spec: dict[str | tuple[str, str], Family] = {}
    left = list(names)
    while left:
        if len(left) > 1 and draw(st.booleans()):
            spec[left.pop(0), left.pop(0)] = draw(st.sampled_from(PAIRS))
        else:
            spec[left.pop(0)] = draw(st.sampled_from(SINGLES))
    return rs.table(schema, spec)


@st.composite
def workloads(draw: st.DrawFn, schema: rs.Schema | None = None) -> rs.Workload:
    schema = draw(schemas()) if schema is None else schema
    work = draw(tables(schema))
    for _ in range(draw(st.integers(0, 3))):
        work = work + draw(st.sampled_from([0.1, 1.0, 1.0, 7.5])) * draw(tables(schema))
    assume(work.count <= 1000)  # a thousand squared covariances
    return work


budgets = st.sampled_from([rs.privacy_cost(1), rs.zcdp("0.1"), rs.gdp(2), rs.approx_dp(1, "1e-6")])


@given(workloads(), st.sampled_from(METHODS), budgets)
def test_every_figure_is_that_of_the_best_unbiased_answer(work, method, budget):
    plan = rs.plan(work, budget, method=method)
    twin = Twin.of(plan)
    assert twin.unseen.max() < 1e-6
    variances = np.diagonal(twin.covariance)
    scale = variances.max()
    np.testing.assert_allclose(plan.variances(work), variances, rtol=1e-7, atol=1e-9 * scale)
    np.testing.assert_allclose(plan.covariance(work, work), twin.covariance, atol=1e-7 * scale)
    assert plan.total_variance == pytest.approx(twin.weights @ variances, rel=1e-7)
    assert plan.rmse == pytest.approx(math.sqrt(variances.mean()), rel=1e-7)
    assert plan.released.weighted_rmse == pytest.approx(
        math.sqrt(twin.weights @ variances / work.count), rel=1e-7
    )
    assert plan.max_variance == pytest.approx(scale, rel=1e-7)


@given(workloads(), st.sampled_from(METHODS), budgets)
def test_whole_numbers_cost_next_to_nothing(work, method, budget):
    plan = rs.plan(work, budget, method=method)
    for name in ("total_variance", "rmse", "weighted_rmse", "max_variance"):
        assert getattr(plan.released, name) == pytest.approx(getattr(plan.ideal, name), rel=1e-3)


@given(workloads(), st.sampled_from(METHODS), budgets)
def test_the_summary_is_each_tables_share_of_the_variances(work, method, budget):
    plan = rs.plan(work, budget, method=method)
    variances = plan.variances(work)
    start = 0
    for group, row, (listed, own) in zip(
        work.groups(), plan.summary(), plan.iter_variances(work), strict=True
    ):
        part = variances[start : start + group.count]
        start += group.count
        assert (row.name, row.queries) == (group.name, group.count)
        assert listed == group
        np.testing.assert_array_equal(own, part)
        assert row.rmse == pytest.approx(math.sqrt(part.mean()), rel=1e-9)
        assert row.max_stddev == pytest.approx(math.sqrt(part.max()), rel=1e-9)


@given(workloads(), st.sampled_from(METHODS), budgets)
def test_no_record_costs_more_than_the_budget(work, method, budget):
    plan = rs.plan(work, budget, method=method)
    columns = whole_columns(plan)
    largest = max(sum(entry**2 for entry in column) for column in columns)
    assert largest / exact_variance(plan) == plan.strategy.exact_cost()
    allowed = budget.gaussian_cost()
    assert allowed * (1 - Fraction(1, 10**9)) < plan.strategy.exact_cost() <= allowed
    assert plan.privacy.cost == allowed


@given(workloads(), st.sampled_from(METHODS))
def test_replacing_a_record_costs_the_worst_pair_of_cells(work, method):
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    X = Twin.of(plan).privacy
    own = np.diagonal(X)
    worst = max(own[i] + own[j] - 2 * X[i, j] for i in range(len(X)) for j in range(len(X)))
    assert record_cost(plan.strategy, REPLACED) == pytest.approx(worst, rel=1e-9, abs=1e-12)


@given(workloads(), st.sampled_from(METHODS))
def test_under_replacement_no_pair_of_cells_costs_more_than_the_budget(work, method):
    unit = rs.Unit(neighbours="replace_one")
    try:
        plan = rs.plan(work, rs.privacy_cost(1), method=method, unit=unit)
    except rs.Infeasible:
        rows = np.concatenate([query_rows(group, work.schema.sizes) for group in work.groups()])
        assert np.all(rows == rows[:, :1])  # only totals
        return
    columns = whole_columns(plan)
    worst = max(
        sum((a - b) ** 2 for a, b in zip(one, two, strict=True)) for one in columns for two in columns
    )
    assert 1 - Fraction(1, 10**8) < worst / exact_variance(plan) <= 1
    assert 0 <= plan.certificate.gap < math.inf


@given(workloads(), st.sampled_from(METHODS))
def test_the_certificate_is_a_lower_bound_with_the_gap_it_states(work, method):
    best = rs.plan(work, rs.privacy_cost(1), method="dense", gap=1e-5)
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    proof = plan.certificate
    assert proof.scope == "all mechanisms"
    assert proof.lower_bound <= best.total_variance * (1 + 1e-9)
    assert plan.total_variance == pytest.approx(proof.lower_bound * (1 + proof.gap), rel=1e-9)
    assert method != "dense" or proof.gap <= 1e-4 + 1e-5  # whole numbers add a little


@given(workloads(), st.sampled_from(METHODS[1:]))
def test_dense_is_never_worse_than_a_baseline(work, method):
    best, other = (rs.plan(work, rs.privacy_cost(1), method=each) for each in ("dense", method))
    assert best.total_variance <= other.total_variance * (1 + 1e-4)


@given(workloads(), st.sampled_from(METHODS))
def test_doubling_the_budget_halves_every_variance(work, method):
    once, twice = (rs.plan(work, rs.privacy_cost(cost), method=method) for cost in (1, 2))
    np.testing.assert_allclose(2 * twice.variances(work), once.variances(work), rtol=1e-9)
    assert 2 * twice.certificate.lower_bound == pytest.approx(once.certificate.lower_bound, rel=1e-12)


@given(workloads(), st.sampled_from(METHODS), budgets, budgets, st.integers(1, 4))
def test_rescaling_equals_planning_anew(work, method, first, second, records):
    unit = rs.Unit(max_records=records)
    anew = rs.plan(work, second, method=method, unit=unit)
    rescaled = rs.plan(work, first, method=method, unit=unit).rescale(second)
    np.testing.assert_allclose(rescaled.variances(work), anew.variances(work), rtol=1e-9)
    for name in ("rmse", "total_variance", "max_variance"):
        assert getattr(rescaled, name) == pytest.approx(getattr(anew, name), rel=1e-9)
        assert getattr(rescaled.ideal, name) == pytest.approx(getattr(anew.ideal, name), rel=1e-9)
    assert rescaled.certificate.lower_bound == pytest.approx(anew.certificate.lower_bound, rel=1e-12)
    assert rescaled.certificate.gap == pytest.approx(anew.certificate.gap, rel=1e-9, abs=1e-12)
    assert rescaled.budget == second


@settings(max_examples=200)
@given(st.data(), schemas(), st.sampled_from(METHODS))
def test_a_query_is_answered_exactly_where_it_is_in_the_span(data, schema, method):
    work = data.draw(workloads(schema))
    other = data.draw(tables(schema))
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    twin = Twin.of(plan)
    asked = Twin(plan, query_rows(next(iter(other.groups())), schema.sizes), np.ones(0), twin.privacy)
    if asked.unseen.max() > 1e-3:
        with pytest.raises(rs.NotInSpan, match="table '"):
            plan.variances(other)
        with pytest.raises(rs.NotInSpan):
            plan.summary(other)
        with pytest.raises(rs.NotInSpan):
            plan.covariance(work, other)
    else:
        assert asked.unseen.max() < 1e-6
        scale = max(asked.covariance.max(), 1e-9)
        np.testing.assert_allclose(plan.variances(other), np.diagonal(asked.covariance), atol=1e-7 * scale)
        both = Twin(plan, np.concatenate([twin.queries, asked.queries]), np.ones(0), twin.privacy).covariance
        expected = both[: work.count, work.count :]
        np.testing.assert_allclose(plan.covariance(work, other), expected, atol=1e-7 * np.abs(both).max())


@given(workloads(), st.sampled_from(METHODS))
def test_asking_everything_twice_changes_no_variance_and_doubles_the_total(work, method):
    once, twice = (rs.plan(each, rs.privacy_cost(1), method=method) for each in (work, work + work))
    np.testing.assert_allclose(twice.variances(work), once.variances(work), rtol=2e-2, atol=1e-9)
    assert twice.total_variance == pytest.approx(2 * once.total_variance, rel=3e-4)
    assert twice.rmse == pytest.approx(once.rmse, rel=1e-2)
    assert len(twice.variances(twice.workload)) == 2 * work.count


@given(workloads(), st.sampled_from(METHODS), budgets, st.sampled_from(["add_remove", "replace_one"]))
def test_a_saved_plan_comes_back_with_every_figure(work, method, budget, neighbours):
    try:
        plan = rs.plan(work, budget, method=method, unit=rs.Unit(2, neighbours))
    except rs.Infeasible:
        assume(False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.plan")
        plan.save(path)
        back = rs.Plan.load(path)
        back.save(Path(folder, "b.plan"))
        assert Path(folder, "b.plan").read_bytes() == path.read_bytes()
    assert back.hash == plan.hash
    assert list(back.workload.groups()) == list(work.groups())
    assert (back.schema, back.budget, back.unit) == (plan.schema, plan.budget, plan.unit)
    assert (back.method, back.objective, back.certificate) == (plan.method, plan.objective, plan.certificate)
    np.testing.assert_array_equal(back.variances(back.workload), plan.variances(work))
    assert back.summary() == plan.summary()
    assert back.explain() == plan.explain()
    assert repr(back) == repr(plan)
