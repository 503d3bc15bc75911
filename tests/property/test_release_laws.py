"""Releases of random workloads, by every method: exact without noise, at one with themselves with it."""

import math
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import residua as rs
from residua.kernel import measuring
from residua.kernel.cost import added_cost

METHODS = (
    "auto",
    "querysmasher",
    "smasher",
    "fourier",
    "residualplanner+",
    "dense",
    "identity",
    "hierarchical",
    "wavelet",
)
SINGLES = (
    rs.identity,
    rs.total,
    rs.prefix,
    rs.ranges,
    rs.circular,
    rs.predicates,
    rs.width(2),
    rs.buckets(1),
)
PAIRS = (rs.affine, rs.abs_diff)
ENTRIES = (0, 0, 1, 1, -1, 2, 3, 0.25, 0.1, 1 / 3)


@st.composite
def tables(draw, schema):
    """One table on some attributes in any order: products, pairs or explicit rows."""
    names = draw(st.permutations(schema.names))[: draw(st.integers(0, 3))]
    if names and draw(st.integers(0, 4)) == 0:
        cells = math.prod(schema[name].size for name in names)
        numbers = st.lists(st.sampled_from(ENTRIES), min_size=cells, max_size=cells)
        rows = draw(st.lists(numbers, min_size=1, max_size=3))
        assume(np.any(rows))
        return rs.linear(schema, names, rows)
    families = {}
    left = list(names)
    while left:
        if len(left) > 1 and draw(st.booleans()):
            families[left.pop(0), left.pop(0)] = draw(st.sampled_from(PAIRS))
        else:
            families[left.pop(0)] = draw(st.sampled_from(SINGLES))
    return rs.table(schema, families)


@st.composite
def workloads(draw):
    schema = rs.Schema.of_sizes(draw(st.lists(st.integers(2, 4), min_size=1, max_size=4)))
    work = draw(tables(schema))
    for _ in range(draw(st.integers(0, 3))):
        work = work + draw(st.sampled_from([0.1, 1.0, 1e3])) * draw(tables(schema))
    assume(work.count <= 1000)
    return work


methods = st.sampled_from(METHODS)
budgets = st.sampled_from([rs.privacy_cost(1), rs.zcdp("1e-6"), rs.gdp(2), rs.approx_dp(1, "1e-6")])


class CountedEngine:
    """Counts of a joint table, shape `sizes`, of as many records as its entries say; opens itself."""

    cells_at_once = 10**8

    def __init__(self, joint):
        self.joint = joint
        self.records = self.about = int(joint.sum())

    def open(self, schema, data):
        return self

    def tally(self, sets, progress=None):
        return [marginal(self.joint, attributes).reshape(-1) for attributes in sets]


def marginal(joint, attributes):
    gone = tuple(axis for axis in range(joint.ndim) if axis not in attributes)
    ascending = sorted(attributes)
    return joint.sum(axis=gone).transpose([ascending.index(axis) for axis in attributes])


def people(schema, records, seed):
    chance = np.random.default_rng(seed)
    shares = chance.dirichlet(np.full(schema.cells, 0.3))
    return chance.multinomial(records, shares).reshape(schema.sizes).astype(np.int64)


def measured(plan, joint, *, silent):
    with pytest.MonkeyPatch.context() as patch:
        if silent:
            patch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))
        return rs.measure(plan, None, ledger=None, noise=rs.simulated(seed=5), engine=CountedEngine(joint))


def truth(work, joint):
    found = []
    for group in work.groups():
        rows = np.ones((1, 1), dtype=np.longdouble)
        for factor in group.factors:
            rows = np.kron(rows, factor.queries.matrix().astype(np.longdouble))
        found.append(rows @ marginal(joint, group.attributes).reshape(-1))
    return np.concatenate(found)


@settings(max_examples=60)
@given(workloads(), methods, budgets, st.sampled_from([0, 1, 1000, 10**8]), st.integers(0, 100))
def test_without_noise_every_answer_is_the_truth(work, method, budget, records, seed):
    plan = rs.plan(work, budget, method=method)
    joint = people(work.schema, records, seed)
    expected = truth(work, joint)
    error = np.abs(measured(plan, joint, silent=True).values() - expected)
    assert (error <= 1e-9 * (1 + np.abs(expected)) + 1e-14 * records).all()


@settings(max_examples=60)
@given(workloads(), methods, budgets)
def test_no_plan_spends_more_than_its_budget_or_measures_too_few_records(work, method, budget):
    plan = rs.plan(work, budget, method=method)
    allowed = budget.gaussian_cost()
    assert allowed * (1 - Fraction(1, 10**9)) < added_cost(plan.batches) <= allowed
    assert plan.most_records >= 10**8


@settings(max_examples=30)
@given(workloads(), methods, st.data())
def test_answers_of_one_release_agree_with_each_other(work, method, data):
    """Queries of any table in the span, asked alone, together, weighted or in another order."""
    plan = rs.plan(work, rs.privacy_cost(1), method=method)
    release = measured(plan, people(work.schema, 100, 1), silent=False)
    answers = release.values()
    group = data.draw(st.sampled_from(list(work.groups())))
    alone = rs.Workload(work.schema, (group,))
    start = sum(other.count for other in list(work.groups())[: list(work.groups()).index(group)])
    scale = 1e-7 * (1 + np.abs(answers).max())
    assert np.allclose(release.values(3.0 * alone), answers[start : start + group.count], atol=scale)
    assert np.allclose(release.values(alone + work)[group.count :], answers, atol=scale)
    if not group.attributes:
        return
    rows = np.ones((1, 1))
    for factor in group.factors:
        rows = np.kron(rows, factor.queries.matrix())
    names = [work.schema.names[at] for at in group.attributes]
    mix = np.random.default_rng(0).normal(size=(3, len(rows)))
    explicit = release.values(rs.linear(work.schema, names, mix @ rows + 0.0))
    assert np.allclose(explicit, mix @ answers[start : start + group.count], atol=100 * scale)


@settings(max_examples=30)
@given(workloads(), methods)
def test_a_release_comes_back_from_its_file_as_it_was(work, method):
    release = measured(
        rs.plan(work, rs.privacy_cost(1), method=method), people(work.schema, 50, 2), silent=False
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.release"
        release.save(path)
        back = rs.Release.load(path)
    assert back.hash == release.hash
    assert np.array_equal(back.values(), release.values())
    assert np.array_equal(back.plan.variances(work), release.plan.variances(work))
