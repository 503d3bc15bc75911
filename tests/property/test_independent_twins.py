"""Block plans of random workloads against dense twins: every query and every measurement over every cell."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import residua as rs
from residua.accuracy.figures import totals_of
from residua.decompose import decompose
from residua.linalg.matrices import Measure
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.draft import Draft
from residua.methods.registry import methods_for, residualplanner_plus
from residua.privacy import Budget
from residua.privacy.unit import Person
from residua.schema import Attribute
from residua.strategy.rounding import record_cost
from residua.strategy.strategy import Strategy
from residua.workload import Family, Table

REPLACED = Person(rs.Unit(neighbours="replace_one"))

Array = NDArray[np.float64]

NAMES = ("querysmasher", "fourier", "residualplanner+", "given", "residualplanner")
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
ONE = rs.privacy_cost(1)
TREE = rs.Hierarchy(("top", "leaf"), [("x", "1"), ("x", "2"), ("y", "3"), ("z", "4")])


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


def query_rows(work: rs.Workload) -> Array:
    sizes = work.schema.sizes
    return np.concatenate([rows_of(group, sizes) for group in work.groups()])


def rows_of(group: Table, sizes: tuple[int, ...]) -> Array:
    parts = [over_cells(f.queries.matrix(), f.attributes, sizes) for f in group.factors]
    return times(parts, math.prod(sizes))


def query_weights(work: rs.Workload) -> Array:
    found = []
    for group in work.groups():
        weights = np.array([group.weight])
        for factor in group.factors:
            own = factor.queries.weights
            own = np.ones(factor.queries.count) if own is None else own
            weights = np.multiply.outer(weights, own).ravel()
        found.append(weights)
    return np.concatenate(found)


def measured_rows(strategy: Strategy) -> Array:
    """All measurements over all cells, each divided by its noise's standard deviation."""
    cells = math.prod(strategy.sizes)
    rows = []
    for layer in strategy.layers:
        for subset, shapes, noise in zip(layer.subsets, layer.shapes, layer.noise, strict=True):
            parts = []
            for places, number in zip(layer.layout, shapes, strict=True):
                attributes = tuple(int(subset[place]) for place in places)
                parts.append(over_cells(strategy.shapes[number].matrix, attributes, strategy.sizes))
            rows.append(times(parts, cells) / math.sqrt(noise))
    return np.concatenate(rows)


@dataclass(frozen=True)
class Twin:
    """A workload and a mechanism as matrices over all cells of the schema."""

    queries: Array  # (count, cells)
    weights: Array  # (count,)
    measured: Array  # (measurements, cells)

    @classmethod
    def of(cls, work: rs.Workload, strategy: Any) -> "Twin":
        assert isinstance(strategy, Strategy)
        return cls(query_rows(work), query_weights(work), measured_rows(strategy))

    @property
    def privacy(self) -> Array:
        """The matrix X, (cells, cells)."""
        return self.measured.T @ self.measured

    @property
    def covariance(self) -> Array:
        return self.queries @ np.linalg.pinv(self.privacy, rcond=1e-12, hermitian=True) @ self.queries.T

    @property
    def unseen(self) -> Array:
        """Length of the part of each query outside the row space of X, over its own length."""
        onto = np.linalg.pinv(self.privacy, rcond=1e-12, hermitian=True) @ self.privacy
        left = np.linalg.norm(self.queries - self.queries @ onto, axis=1)
        return left / np.maximum(np.linalg.norm(self.queries, axis=1), 1e-300)


def strategies(schema: rs.Schema) -> dict[str, Array]:
    """Strategies of full rank for every other attribute."""
    generator = np.random.default_rng(len(schema))
    return {
        name: generator.integers(-1, 3, (size + 1, size)) + 4.0 * np.eye(size + 1, size)
        for name, size in list(zip(schema.names, schema.sizes, strict=True))[::2]
    }


def planned(work: rs.Workload, method: str, budget: Budget = ONE, **more: Any) -> rs.Plan:
    """A plan; "given" is residualplanner+ with strategies for some attributes."""
    if method == "given":
        return rs.plan(work, budget, method="residualplanner+", strategies=strategies(work.schema), **more)
    return rs.plan(work, budget, method=method, **more)


def drafted(work: rs.Workload, method: str, gap: float = 1e-4) -> Draft:
    """The real-valued mechanism of cost 1 that a plan is made of."""
    if method == "given":
        return residualplanner_plus(work, gap, None, strategies(work.schema))
    return methods_for("gaussian")[method](work, gap, None)


@st.composite
def schemas(draw: st.DrawFn) -> rs.Schema:
    """One to four attributes of few cells, with at most 150 cells together; some have one cell, or a tree."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    assume(math.prod(sizes) <= 150)
    attributes: dict[str, Attribute] = {f"a{at}": rs.Integer(0, size - 1) for at, size in enumerate(sizes)}
    odd = draw(st.integers(0, 5))
    if odd == 0 and math.prod(sizes) <= 40:
        attributes["tree"] = TREE
    if odd == 1:
        attributes["single"] = rs.Integer(0, 0)
    return rs.Schema(attributes)


def families(schema: rs.Schema, name: str) -> list[Family]:
    attribute = schema.attributes[schema.position(name)]
    if name == "tree":
        return [rs.identity, rs.level("top"), rs.prefix, rs.total]
    if attribute.size == 1:
        return [rs.identity, rs.total, rs.prefix]
    return list(SINGLES)


@st.composite
def explicit(draw: st.DrawFn, schema: rs.Schema) -> rs.Workload:
    names = draw(st.permutations(schema.names))[: draw(st.integers(1, 2))]
    cells = math.prod(schema.sizes[schema.position(name)] for name in names)
    row = st.lists(st.integers(-2, 3), min_size=cells, max_size=cells)
    rows = draw(st.lists(row, min_size=1, max_size=3))
    assume(np.any(rows))
    weights = draw(st.lists(st.sampled_from([0.25, 1.0, 9.0]), min_size=len(rows), max_size=len(rows)))
    return rs.linear(schema, names, rows, weights)


@st.composite
def runs(draw: st.DrawFn, schema: rs.Schema) -> rs.Workload:
    """All tables of some ways; attributes in any order."""
    order = draw(st.permutations(schema.names))
    ways = draw(st.lists(st.integers(0, min(3, len(order))), min_size=1, max_size=2))
    if len(order) > 1 and draw(st.integers(0, 3)) == 0:
        return rs.all_tables(schema, 2, draw(st.sampled_from(PAIRS)), attributes=order)
    family = draw(st.sampled_from([rs.identity, rs.prefix, rs.ranges, rs.circular]))
    return rs.all_tables(schema, ways, family, attributes=order)


@st.composite
def tables(draw: st.DrawFn, schema: rs.Schema) -> rs.Workload:
    """One table on some attributes in any order: products, pairs, or the total."""
    names = list(draw(st.permutations(schema.names))[: draw(st.integers(0, min(3, len(schema))))])
    spec: dict[str | tuple[str, str], Family] = {}
    while names:
        if len(names) > 1 and draw(st.booleans()):
            spec[names.pop(0), names.pop(0)] = draw(st.sampled_from(PAIRS))
        else:
            name = names.pop(0)
            spec[name] = draw(st.sampled_from(families(schema, name)))
    return rs.table(schema, spec)


@st.composite
def workloads(draw: st.DrawFn, schema: rs.Schema | None = None) -> rs.Workload:
    schema = draw(schemas()) if schema is None else schema
    kind = st.one_of(tables(schema), tables(schema), explicit(schema), runs(schema))
    work = draw(kind)
    for _ in range(draw(st.integers(0, 3))):
        work = work + draw(st.sampled_from([0.01, 1.0, 1.0, 75.0])) * draw(kind)
    assume(work.count <= 1000)  # a thousand squared covariances
    assume(np.any(query_rows(work)))
    return work


@st.composite
def marginal_sets(draw: st.DrawFn) -> rs.Workload:
    schema = draw(schemas())
    work = rs.marginals(schema, up_to=draw(st.integers(0, 2)))
    for _ in range(draw(st.integers(0, 2))):
        names = draw(st.permutations(schema.names))[: draw(st.integers(0, min(3, len(schema))))]
        spec = {name: draw(st.sampled_from([rs.identity, rs.identity, rs.total])) for name in names}
        work = work + draw(st.sampled_from([0.01, 1.0, 75.0])) * rs.table(schema, spec)
    assume(work.count <= 1000)
    return work


@st.composite
def cases(draw: st.DrawFn) -> tuple[rs.Workload, str]:
    """A workload and a method that plans it."""
    method = draw(st.sampled_from(NAMES))
    return draw(marginal_sets() if method == "residualplanner" else workloads()), method


budgets = st.sampled_from([ONE, rs.zcdp("0.1"), rs.gdp(2), rs.approx_dp(1, "1e-6")])


def check_figures(mechanism: Strategy, work: rs.Workload, twin: Twin) -> None:
    """Whether all a mechanism says about a workload is what the dense matrices say."""
    assert twin.unseen.max() < 1e-6
    expected = twin.covariance
    variances = np.diagonal(expected)
    scale = variances.max()
    groups = list(work.groups())
    found = np.concatenate([mechanism.variances(group) for group in groups])
    np.testing.assert_allclose(found, variances, rtol=1e-6, atol=1e-8 * scale)
    rows = [np.hstack([mechanism.covariance(one, two) for two in groups]) for one in groups]
    np.testing.assert_allclose(np.vstack(rows), expected, atol=1e-7 * scale)
    assert totals_of(mechanism, work) == pytest.approx((twin.weights @ variances, variances.sum()), rel=1e-7)
    assert max(map(mechanism.largest, groups)) == pytest.approx(scale, rel=1e-7)


@given(cases())
def test_every_figure_of_a_draft_is_that_of_the_best_unbiased_answer(case):
    work, method = case
    draft = drafted(work, method)
    twin = Twin.of(work, draft.strategy)
    check_figures(draft.strategy, work, twin)
    assert draft.value == pytest.approx(totals_of(draft.strategy, work)[0], rel=1e-8)
    assert draft.strategy.cost() == pytest.approx(1, rel=1e-12)
    assert np.diagonal(twin.privacy).max() <= 1 + 1e-12


@given(cases(), budgets)
def test_every_figure_of_a_plan_is_that_of_the_best_unbiased_answer(case, budget):
    work, method = case
    plan = planned(work, method, budget)
    twin = Twin.of(work, plan.strategy)
    check_figures(plan.strategy, work, twin)
    variances = np.diagonal(twin.covariance)
    assert plan.total_variance == pytest.approx(twin.weights @ variances, rel=1e-7)
    assert plan.rmse == pytest.approx(math.sqrt(variances.mean()), rel=1e-7)
    assert plan.max_variance == pytest.approx(variances.max(), rel=1e-7)
    cost = float(budget.gaussian_cost())
    assert np.diagonal(twin.privacy).max() <= cost * (1 + 1e-12)


@given(cases(), budgets)
def test_the_summary_is_each_tables_share_of_the_variances(case, budget):
    work, method = case
    plan = planned(work, method, budget)
    start = 0
    variances = plan.variances(work)
    for group, row in zip(work.groups(), plan.summary(), strict=True):
        part = variances[start : start + group.count]
        start += group.count
        assert (row.name, row.queries) == (group.name, group.count)
        assert row.rmse == pytest.approx(math.sqrt(part.mean()), rel=1e-9)
        assert row.max_stddev == pytest.approx(math.sqrt(part.max()), rel=1e-9)


def worst_pair(X: Array) -> float:
    """Largest `(e_i - e_j)' X (e_i - e_j)`."""
    own = np.diagonal(X)
    return float((own[:, None] + own[None, :] - 2 * X).max())


@given(cases())
def test_replacing_a_record_never_costs_more_than_is_said(case):
    work, method = case
    mechanism = drafted(work, method).strategy
    worst = worst_pair(Twin.of(work, mechanism).privacy)
    assert worst <= record_cost(mechanism, REPLACED) + 1e-12
    assert record_cost(mechanism, REPLACED) <= 4 * mechanism.cost() + 1e-12


@given(cases())
def test_under_replacement_no_pair_of_cells_costs_more_than_the_budget(case):
    work, method = case
    try:
        plan = planned(work, method, unit=rs.Unit(neighbours="replace_one"))
    except rs.Infeasible:
        rows = query_rows(work)
        assert np.all(rows == rows[:, :1])  # only totals
        return
    assert worst_pair(Twin.of(work, plan.strategy).privacy) <= 1 + 1e-9


@given(cases())
def test_no_block_method_beats_the_optimum_and_querysmasher_leads_them(case):
    work, method = case
    dense, smasher, other = (drafted(work, each) for each in ("dense", "querysmasher", method))
    best = totals_of(dense.strategy, work)[0]
    totals = {draft.strategy: draft.value for draft in (smasher, other)}
    assert all(total is not None and total >= dense.lower_bound * (1 - 1e-9) for total in totals.values())
    assert best <= totals[smasher.strategy] * (1 + 1e-4)
    assert totals[other.strategy] >= smasher.lower_bound * (1 - 1e-9)
    for draft in (smasher, other):
        assert draft.lower_bound <= totals[draft.strategy] * (1 + 1e-12)
        if draft.scope == "all mechanisms":
            assert draft.lower_bound <= best * (1 + 1e-9)
    assert smasher.lower_bound >= totals[smasher.strategy] * (1 - 3e-4)


@given(marginal_sets())
def test_for_marginals_residualplanner_is_the_optimum_of_all_mechanisms(work):
    draft = drafted(work, "residualplanner")
    assert draft.scope == "all mechanisms"
    assert draft.value == pytest.approx(draft.lower_bound, rel=1e-9)
    assert draft.value == pytest.approx(totals_of(drafted(work, "dense").strategy, work)[0], rel=1e-4)


@given(cases(), budgets)
def test_the_certificate_of_a_plan_is_below_what_is_released(case, budget):
    work, method = case
    plan = planned(work, method, budget)
    assert 0 < plan.certificate.lower_bound <= plan.total_variance
    assert plan.certificate.lower_bound <= plan.ideal.total_variance * (1 + 1e-9)


def test_a_plan_whose_blocks_cost_less_together_is_not_below_its_bound():
    schema = rs.Schema.of_sizes([2, 3])
    work = rs.all_tables(schema, 2, rs.abs_diff)
    apart, plan = drafted(work, "querysmasher").lower_bound, planned(work, "querysmasher")
    assert plan.strategy.exact_cost() > 1  # one by one; together the kernel proves at most 1
    assert plan.certificate.lower_bound == plan.total_variance < apart
    assert plan.certificate.gap == 0


@settings(max_examples=50)
@given(cases(), budgets, st.sampled_from(["add_remove", "replace_one"]))
def test_a_saved_plan_comes_back_with_every_figure(case, budget, neighbours):
    work, method = case
    try:
        plan = planned(work, method, budget, unit=rs.Unit(2, neighbours))
    except rs.Infeasible:
        assume(False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.plan")
        plan.save(path)
        back = rs.Plan.load(path)
        back.save(Path(folder, "b.plan"))
        assert Path(folder, "b.plan").read_bytes() == path.read_bytes()
    assert back.hash == plan.hash
    np.testing.assert_array_equal(back.variances(back.workload), plan.variances(work))
    assert back.strategy.cost() == plan.strategy.cost()
    assert record_cost(back.strategy, REPLACED) == record_cost(plan.strategy, REPLACED)
    for name in ("rmse", "total_variance", "max_variance", "certificate"):
        assert getattr(back, name) == getattr(plan, name)
    assert back.summary() == plan.summary()
    assert back.explain() == plan.explain()


@st.composite
def measures(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[Measure, ...]:
    """Weights on the cells of each attribute that sum to 1, in proportion to whole numbers, some negative."""
    found = []
    for size in sizes:
        signed = draw(st.integers(0, 3)) == 0
        entry = st.integers(-3 if signed else 1, 9)
        weights = draw(st.lists(entry, min_size=size, max_size=size))
        assume(abs(sum(weights)) >= 2)
        found.append(Measure.whole(weights))
    return tuple(found)


@settings(max_examples=60)
@given(st.data(), schemas())
def test_any_product_measure_gives_an_unbiased_plan_whose_figures_are_right(data, schema):
    work = data.draw(workloads(schema))
    chosen = data.draw(measures(schema.sizes))
    draft = solve_blocks(decompose(work, chosen), schema.sizes, Optimal(), 1e-4)
    twin = Twin.of(work, draft.strategy)
    check_figures(draft.strategy, work, twin)
    assert draft.value == pytest.approx(totals_of(draft.strategy, work)[0], rel=1e-8)
    assert np.diagonal(twin.privacy).max() <= draft.strategy.cost() * (1 + 1e-12)
    assert worst_pair(twin.privacy) <= record_cost(draft.strategy, REPLACED) + 1e-12


@settings(max_examples=100)
@given(st.data(), schemas(), st.sampled_from(NAMES[:-1]), st.booleans())
def test_a_query_is_answered_exactly_where_it_is_in_the_span(data, schema, method, whole):
    work = data.draw(workloads(schema))
    other = data.draw(st.one_of(tables(schema), explicit(schema), runs(schema)))
    assume(other.count <= 1000 and np.any(query_rows(other)))
    mechanism = planned(work, method).strategy if whole else drafted(work, method).strategy
    twin = Twin.of(work, mechanism)
    asked = Twin(query_rows(other), query_weights(other), twin.measured)
    groups = list(other.groups())
    if asked.unseen.max() > 1e-3:
        with pytest.raises(rs.NotInSpan, match="table '"):
            [mechanism.variances(group) for group in groups]
        with pytest.raises(rs.NotInSpan, match="table '"):
            totals_of(mechanism, other)
        with pytest.raises(rs.NotInSpan, match="table '"):
            [mechanism.largest(group) for group in groups]
        with pytest.raises(rs.NotInSpan, match="table '"):
            [mechanism.covariance(next(work.groups()), group) for group in groups]
    else:
        check_figures(mechanism, other, asked)
        both = Twin(np.concatenate([twin.queries, asked.queries]), np.ones(0), twin.measured).covariance
        found = [np.vstack([mechanism.covariance(g, h) for g in work.groups()]) for h in groups]
        expected = both[: work.count, work.count :]
        np.testing.assert_allclose(np.hstack(found), expected, atol=1e-7 * np.abs(both).max())
