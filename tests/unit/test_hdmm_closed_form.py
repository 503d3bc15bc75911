"""Weights of nested terms in closed form: against steps downhill and a dense twin (claim H-027)."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.methods.hdmm.demand import Kernel, closed_form, demands
from residua.methods.hdmm.marginals import best_weights, marginals, plain_kernels, weighing_of, weighted_terms
from residua.methods.hdmm.p_identity import opt0
from residua.workload.intervals import Prefix

SCHEMA = rs.Schema.of_sizes([4, 3, 2])
APPLIES = {
    "all marginals": rs.marginals(SCHEMA, up_to=3),
    "prefixes": rs.all_tables(SCHEMA, (0, 1, 2), numeric=rs.prefix, categorical=rs.identity),
    "mostly totals": rs.marginals(SCHEMA, ways=1) + 30.0 * rs.marginals(SCHEMA, ways=0),
    "one table": rs.marginals(SCHEMA, ways=3),
}
LADDER = sum(
    (1e3**ways * rs.all_tables(SCHEMA, 3 - ways, rs.prefix) for ways in range(1, 4)),
    start=rs.all_tables(SCHEMA, 3, rs.prefix),
)
WIDE = rs.marginals(SCHEMA, ways=1)  # hardly anything is asked of the total, which they all measure


def spreads_of(kernels):
    return {at: kernel.spread for at, kernel in kernels.items()}


def better_kernels():
    """The certified strategy for prefix counts of every attribute."""
    return {
        at: Kernel.of(opt0(Prefix(size).gram(), "gaussian").matrix, at) for at, size in enumerate((4, 3, 2))
    }


KERNELS = {"cells": plain_kernels(APPLIES["all marginals"]), "prefixes": better_kernels()}
CASES = [pytest.param(work, KERNELS["cells"], id=f"{name}-cells") for name, work in APPLIES.items()] + [
    pytest.param(work, KERNELS["prefixes"], id=f"{name}-prefixes")
    for name, work in (("ladder", LADDER), ("mostly totals", APPLIES["mostly totals"]))
]


def dense_strategy(squares, kernels):
    """Every measured row over all cells, at cost 1."""
    rows = []
    for term, square in squares.items():
        whole = np.ones((1, 1))
        for at, size in enumerate(SCHEMA.sizes):
            whole = np.kron(whole, kernels[at].shape.matrix if at in term else np.ones((1, size)))
        rows.append(math.sqrt(square) * whole)
    return np.concatenate(rows)


def dense_gram(work):
    """Weighted gram of all queries over all cells."""
    total = np.zeros((math.prod(SCHEMA.sizes),) * 2)
    for group in work.groups():
        own = {factor.attributes[0]: factor.queries.gram() for factor in group.factors}
        whole = np.ones((1, 1))
        for at, size in enumerate(SCHEMA.sizes):
            whole = np.kron(whole, own.get(at, np.ones((size, size))))
        total += group.weight * whole
    return total


@pytest.mark.parametrize(("work", "kernels"), CASES)
def test_the_formula_is_the_optimum_that_steps_downhill_reach(work, kernels):
    squares = closed_form(demands(work, kernels), spreads_of(kernels))
    problem = weighing_of(work, "gaussian", kernels)
    found, value = best_weights(problem)
    exact = np.sqrt([squares.get(term, 0.0) for term in problem.terms])
    assert problem.value(exact)[0] == pytest.approx(value, rel=1e-6)
    assert problem.value(exact)[0] <= value * (1 + 1e-12)
    assert exact == pytest.approx(found, abs=2e-2)


@pytest.mark.parametrize(("work", "kernels"), CASES)
def test_the_total_is_that_of_a_dense_twin_at_cost_one(work, kernels):
    squares = closed_form(demands(work, kernels), spreads_of(kernels))
    rows = dense_strategy(squares, kernels)
    total = float(np.trace(dense_gram(work) @ np.linalg.pinv(rows.T @ rows)))
    assert (rows**2).sum(axis=0).max() == pytest.approx(1)
    assert weighted_terms(work, "gaussian", kernels)[1] == pytest.approx(total)


@pytest.mark.parametrize("name", ["all marginals", "mostly totals", "one table"])
def test_marginals_attain_the_singular_value_bound(name):
    """What Theorem 13 of the paper says, of workloads of marginals."""
    work = APPLIES[name]
    found = marginals(work, "gaussian")
    assert sum(found.strategy.totals(part)[0] for part in work.parts) == pytest.approx(found.lower_bound)


@given(st.lists(st.floats(0.01, 1.0), min_size=8, max_size=8))
def test_no_other_weights_on_any_terms_are_better(weights):
    problem = weighing_of(APPLIES["all marginals"], "gaussian", KERNELS["cells"])
    best = weighted_terms(APPLIES["all marginals"], "gaussian", KERNELS["cells"])[1]
    assert problem.value(np.array(weights))[0] >= best * (1 - 1e-12)


def test_where_a_weight_would_be_negative_steps_downhill_are_taken():
    kernels = KERNELS["cells"]
    demand = demands(WIDE, kernels)
    assert closed_form(demand, spreads_of(kernels)) is None
    relaxed = sum(
        math.sqrt(amount * math.prod(1 - 1 / kernels[at].spread for at in kept))
        for kept, amount in demand.items()
    )
    assert weighted_terms(WIDE, "gaussian", kernels)[1] > relaxed**2  # which no marginals attain


@pytest.mark.parametrize(
    "work", [WIDE, rs.marginals(SCHEMA, ways=2), rs.marginals(rs.Schema.of_sizes([2] * 8), ways=3)]
)
def test_steps_downhill_end_at_the_optimum_where_there_is_no_formula(work):
    """No squares of sum 1 have a total below V^2 / max_S g_S, V that of some, -g its gradient there."""
    kernels = plain_kernels(work)
    assert closed_form(demands(work, kernels), spreads_of(kernels)) is None
    problem = weighing_of(work, "gaussian", kernels)
    weights, value = best_weights(problem)
    precision = (weights * weights) @ problem.gives
    gradient = problem.gives @ (problem.demand / precision**2)
    assert value**2 / gradient.max() <= value <= value**2 / gradient.max() * (1 + 1e-3)


def test_a_residual_without_the_ones_inside_it_has_no_formula():
    subsets = [kept for ways in range(3) for kept in combinations(range(2), ways)]
    whole = dict.fromkeys(subsets, 1.0) | {(): 9.0}
    assert closed_form(whole, {0: 3.0, 1: 3.0}) is not None
    assert closed_form({kept: h for kept, h in whole.items() if kept != (0,)}, {0: 3.0, 1: 3.0}) is None


def test_terms_that_nothing_needs_are_left_out():
    """Where one product asks for everything, one term is measured."""
    squares = closed_form(
        demands(rs.marginals(SCHEMA, ways=3), KERNELS["cells"]), spreads_of(KERNELS["cells"])
    )
    assert list(squares) == [(0, 1, 2)]
    assert squares[0, 1, 2] == pytest.approx(1)


def test_the_formula_is_not_the_optimum_for_laplace_noise():
    """There costs add up and not their squares, and steps downhill do better."""
    work, kernels = APPLIES["all marginals"], KERNELS["cells"]
    squares = closed_form(demands(work, kernels), spreads_of(kernels))
    problem = weighing_of(work, "laplace", kernels)
    exact = np.sqrt([squares.get(term, 0.0) for term in problem.terms])
    assert best_weights(problem)[1] < 0.9 * problem.value(exact)[0]
