"""Laws of caps over blocks, on random workloads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs
from residua.linalg.matrices import independent_rows
from residua.methods.scales.targets import block_targets
from residua.solve.targets import solve_targets

shapes = st.lists(st.integers(2, 4), min_size=1, max_size=3)
families = st.sampled_from([rs.identity, rs.prefix, rs.total])
amounts = st.floats(0.1, 10.0)


@st.composite
def capped(draw):
    """A workload of products of families on few cells, each table with a cap."""
    schema = rs.Schema.of_sizes(draw(shapes))
    tables, caps = [], []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
        tables.append(rs.table(schema, {name: draw(families) for name in names}))
        caps.append(draw(amounts))
    work = tables[0]
    for table in tables[1:]:
        work = work + table
    return work, caps


def dense_cost(work, caps):
    """Least cost of any mechanism, from all queries over all cells."""
    rows, targets = [], []
    for group, cap in zip(work.groups(), caps, strict=True):
        asked = {factor.attributes[0]: factor.queries.matrix() for factor in group.factors}
        table = np.ones((1, 1))
        for at, size in enumerate(work.schema.sizes):
            table = np.kron(table, asked.get(at, np.ones((1, size))))
        rows.append(table)
        targets += [cap] * len(table)
    stack = np.concatenate(rows)
    root = independent_rows(stack)
    coefficients = np.linalg.lstsq(root.T, stack.T)[0].T
    return solve_targets(coefficients, root, np.array(targets), 1e-5)


@settings(max_examples=12)
@given(capped())
def test_caps_are_met_within_the_stated_gap_and_never_below_the_optimum_of_all_mechanisms(problem):
    work, caps = problem
    draft = block_targets(work, caps, 1e-3)
    for group, cap in zip(work.groups(), caps, strict=True):
        assert draft.strategy.largest(group) <= cap * (1 + 1e-9)
    cost = draft.strategy.cost()
    assert draft.lower_bound <= cost <= draft.lower_bound * (1 + 1.1e-3)
    dense = dense_cost(work, caps)
    assert cost >= dense.lower * (1 - 1e-9)
    if draft.scope == "all mechanisms":
        assert draft.lower_bound <= dense.upper * (1 + 1e-9)


@settings(max_examples=8)
@given(shapes, st.lists(amounts, min_size=4, max_size=4))
def test_a_laxer_cap_on_marginals_never_costs_more(shape, caps):
    work = rs.marginals(rs.Schema.of_sizes(shape), up_to=3)
    chosen = caps[: len(work.parts)]
    draft = block_targets(work, chosen, 1e-6)
    for place in range(len(chosen)):
        eased = [cap * (2 if at == place else 1) for at, cap in enumerate(chosen)]
        assert block_targets(work, eased, 1e-6).lower_bound <= draft.strategy.cost() * (1 + 1e-9)
    assert sum(float(prices.sum()) for prices in draft.prices) == pytest.approx(1)
