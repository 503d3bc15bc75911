"""Laws of plans that put accuracy first, on random small workloads and targets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs

SCHEMA = rs.Schema.of_sizes([4, 3, 2])
FAMILIES = (rs.identity, rs.prefix, rs.ranges, rs.total, rs.width(2))

amounts = st.floats(0.1, 1000.0)
units = st.sampled_from([rs.Unit(), rs.Unit(max_records=2), rs.Unit(neighbours="replace_one")])


@st.composite
def workloads(draw):
    """One to three tables of random families with targets, names different."""
    tables = []
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True))
        families = {}
        for name in chosen:
            family = draw(st.sampled_from(FAMILIES))
            families[name] = rs.identity if name == "a2" and family == rs.width(2) else family
        tables.append(rs.table(SCHEMA, families, name=f"T{number}"))
    work = tables[0]
    for table in tables[1:]:
        work = work + table
    targets = {name: rs.variance(draw(amounts)) for name in work.names}
    return work, targets


def allowed_by(work, targets):
    return np.concatenate([np.full(g.count, float(targets[g.name].variances)) for g in work.groups()])


def asks_only_for_records(work):
    matrices = [factor.queries.matrix() for group in work.groups() for factor in group.factors]
    return all((matrix == matrix[:, :1]).all() for matrix in matrices)


@settings(max_examples=15)
@given(workloads(), units)
def test_what_is_released_meets_every_target_whatever_the_unit(case, unit):
    work, targets = case
    if unit.neighbours == "replace_one" and asks_only_for_records(work):
        with pytest.raises(rs.Infeasible, match="only for the number of records"):
            rs.plan(work, targets=targets, unit=unit, gap=1e-3)
        return
    plan = rs.plan(work, targets=targets, unit=unit, gap=1e-3)
    ratios = plan.variances(work) / allowed_by(work, targets)
    assert ratios.max() <= 1
    assert ratios.max() > 1 - 1e-5
    assert plan.privacy.cost == plan.budget.gaussian_cost()


@settings(max_examples=10)
@given(workloads(), st.floats(1.0, 3.0))
def test_the_bound_is_below_every_other_mechanism_and_laxer_targets_never_cost_more(case, factor):
    work, targets = case
    plan = rs.plan(work, targets=targets, gap=1e-3)
    assert plan.certificate.gap <= 1e-3
    allowed = allowed_by(work, targets)
    for method in ("identity", "dense"):
        rival = rs.plan(work, rs.privacy_cost(1), method=method, gap=1e-2)
        assert plan.targets.least <= np.max(rival.variances(work) / allowed) * (1 + 1e-9)
    name = work.names[0]
    laxer = targets | {name: rs.variance(float(targets[name].variances) * factor)}
    after = rs.plan(work, targets=laxer, gap=1e-3)
    assert after.targets.least <= plan.budget.gaussian_cost()
    share = next(line.share for line in plan.targets.met if line.name == name)
    bound = plan.targets.least / (1 + (factor - 1) * share)
    assert float(after.budget.gaussian_cost()) >= bound * (1 - 1e-6)


@settings(max_examples=15)
@given(workloads())
def test_the_order_of_tables_does_not_matter(case):
    work, targets = case
    parts = tuple(reversed(work.parts))
    turned = rs.Workload(SCHEMA, parts)
    one, two = (rs.plan(each, targets=targets, gap=1e-3) for each in (work, turned))
    assert one.targets.least <= two.budget.gaussian_cost()
    assert two.targets.least <= one.budget.gaussian_cost()


@settings(max_examples=15)
@given(
    st.lists(st.integers(2, 4), min_size=3, max_size=5),
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["querysmasher", "smasher"]),
)
def test_one_table_of_each_sort_has_the_largest_variance_of_all(sizes, ways, method):
    work = rs.all_tables(rs.Schema.of_sizes(sizes), ways=ways, family=rs.prefix)
    plan = rs.plan(work, rs.privacy_cost(1), method=method, gap=1e-2)
    [part] = work.parts
    examples = list(plan.strategy.answerer.examples(part))
    assert len(examples) <= len(part)
    largest = max(map(plan.strategy.largest, examples))
    assert largest == max(map(plan.strategy.largest, part))
