"""Answers from measurements: exact where the noise is zero, and least squares where it is not.

The engine is a fake that counts a table of given counts: a hundred million records need not be listed.
"""

import math

import numpy as np
import pytest

import residua as rs
from residua.kernel import measuring
from residua.kernel.measurement import TAIL_BITS
from residua.release import Measurements

ONE = rs.privacy_cost(1)
MANY = 10**8
MIXED = rs.Schema(
    age=rs.Integer(0, 4),
    sex=rs.Categorical("F", "M"),
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
    month=rs.Integer(1, 4),
)
SMALL = rs.Schema.of_sizes([3, 4, 2])
EQUAL = rs.Schema.of_sizes([3, 3, 3])
SINGLE = rs.Schema.of_sizes([1, 3, 1, 2])  # attributes of one cell have nothing to centre


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
    """The counts on some attributes, axes in their order."""
    gone = tuple(axis for axis in range(joint.ndim) if axis not in attributes)
    ascending = sorted(attributes)
    return joint.sum(axis=gone).transpose([ascending.index(axis) for axis in attributes])


def people(schema, records, seed=0):
    """A joint table with empty cells, rare cells and crowded cells."""
    chance = np.random.default_rng(seed)
    shares = chance.dirichlet(np.full(schema.cells, 0.2)) * (chance.random(schema.cells) < 0.8)
    return chance.multinomial(records, shares / shares.sum()).reshape(schema.sizes).astype(np.int64)


def measured(plan, joint, noise=None):
    """A release of a joint table; without a source of noise the noise is zero."""
    with pytest.MonkeyPatch.context() as patch:
        if noise is None:
            patch.setattr(measuring, "draw", lambda source, laws, counts: np.zeros(sum(counts), np.int64))
        return rs.measure(
            plan, None, ledger=None, noise=noise or rs.simulated(seed=0), engine=CountedEngine(joint)
        )


def query_rows(group):
    """The group's queries over its own marginal, in more digits than float64 has."""
    rows = np.ones((1, 1), dtype=np.longdouble)
    for factor in group.factors:
        rows = np.kron(rows, factor.queries.matrix().astype(np.longdouble))
    return rows


def truth(work, joint):
    return np.concatenate(
        [query_rows(group) @ marginal(joint, group.attributes).reshape(-1) for group in work.groups()]
    )


def assert_exact(release, work, joint):
    """Right to 1e-9 of one plus the answer, and to the last digits of a float64 as large as the data."""
    expected = truth(work, joint)
    weights = np.concatenate([np.abs(query_rows(group)).max(axis=1) for group in work.groups()])
    error = np.abs(release.values(work) - expected)
    assert (error <= 1e-9 * (1 + np.abs(expected)) + 2e-15 * weights * joint.sum()).all(), error.max()


REAL = np.random.default_rng(5).normal(size=(6, 8))
WORKS = {
    "marginals": rs.marginals(SMALL, up_to=3),
    "prefix": rs.all_tables(SMALL, (1, 2), rs.prefix),
    "ranges of three": rs.table(SMALL, {"a2": rs.ranges, "a0": rs.prefix, "a1": rs.identity}),
    "circular": rs.all_tables(SMALL, (1, 2), rs.circular),
    "windows": rs.all_tables(SMALL, (1, 2), rs.width(2)),
    "predicates": rs.table(SMALL, {"a2": rs.predicates, "a0": rs.predicates}),
    "affine": rs.all_tables(SMALL, 2, rs.affine),
    "abs_diff, far apart": rs.table(SMALL, {("a2", "a0"): rs.abs_diff, "a1": rs.prefix}),
    "real numbers": rs.linear(SMALL, ("a2", "a1"), REAL),
    "real numbers on one attribute": rs.linear(SMALL, ("a1",), np.abs(REAL[:2, :4]))
    + rs.table(SMALL, ["a0"]),
    "mixed": rs.all_tables(SMALL, 2, rs.affine) + 3 * rs.marginals(SMALL, up_to=2) + rs.table(SMALL),
    "levels and buckets": rs.table(MIXED, {"month": rs.buckets(2, 4), "place": rs.level("state")})
    + rs.table(MIXED, {"place": rs.identity, "age": rs.width(3)}),
    "by kind": rs.all_tables(MIXED, (1, 2), numeric=rs.prefix, categorical=rs.identity),
    "single cells": rs.marginals(SINGLE, up_to=4),
}
METHODS = (
    "querysmasher",
    "smasher",
    "fourier",
    "residualplanner",
    "residualplanner+",
    "dense",
    "identity",
    "hierarchical",
    "wavelet",
)
MARGINALS_ONLY = ("marginals", "single cells")
KINDS = [
    (name, method)
    for name in WORKS
    for method in METHODS
    if method != "residualplanner" or name in MARGINALS_ONLY
]


@pytest.fixture(scope="module")
def plans():
    """Every kind of plan, each made when it is first asked for."""
    made = {}

    def plan(name, method):
        if (name, method) not in made:
            made[name, method] = rs.plan(WORKS[name], ONE, method=method)
        return made[name, method]

    return plan


@pytest.mark.parametrize(("name", "method"), KINDS)
def test_without_noise_every_answer_is_the_truth(plans, name, method):
    plan, work = plans(name, method), WORKS[name]
    joint = people(work.schema, MANY)
    assert_exact(measured(plan, joint), work, joint)


@pytest.mark.parametrize(("name", "method"), KINDS)
def test_every_plan_can_measure_a_hundred_million_records(plans, name, method):
    assert plans(name, method).most_records >= MANY


@pytest.mark.parametrize(("name", "method"), [("prefix", "querysmasher"), ("mixed", "dense")])
def test_an_empty_table_answers_zero(plans, name, method):
    joint = np.zeros(SMALL.sizes, dtype=np.int64)
    assert not measured(plans(name, method), joint).values().any()


def over_cells(matrix, attributes, sizes):
    place = np.indices(sizes).reshape(len(sizes), -1)
    inner = [place[axis] for axis in attributes]
    return (
        matrix[:, np.ravel_multi_index(inner, [sizes[axis] for axis in attributes])]
        if inner
        else (np.repeat(matrix, math.prod(sizes), axis=1))
    )


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name, method in KINDS
        if name in ("prefix", "affine", "mixed", "real numbers", "by kind")
    ],
)
def test_with_noise_every_answer_is_that_of_least_squares_over_all_measurements(plans, name, method):
    """A twin over all cells: whitened rows, one pseudo-inverse, nothing block by block."""
    plan, work = plans(name, method), WORKS[name]
    sizes = work.schema.sizes
    release = measured(plan, people(work.schema, 50), rs.simulated(seed=3))
    rows, values = [], []
    for batch, found in zip(plan.batches, release.measurements.values, strict=True):
        matrix = np.ones((1, 1)) * batch.multiplier
        for each in batch.matrices:
            matrix = np.kron(matrix, each)
        for attributes, owner, numbers in zip(batch.subsets.tolist(), batch.owners, found, strict=True):
            scale = math.sqrt(batch.parameters[owner] + 1 / 12)
            rows.append(over_cells(matrix, attributes, sizes) / scale)
            values.append(numbers / scale)
    estimate = np.linalg.pinv(np.concatenate(rows), rcond=1e-9) @ np.concatenate(values)
    expected = truth(work, estimate.reshape(sizes)).astype(float)
    assert np.allclose(release.values(), expected, atol=1e-6 * plan.rmse)


# --- queries that were not planned -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["querysmasher", "dense", "identity"])
def test_other_queries_in_the_span_are_answered_exactly(method):
    plan = rs.plan(rs.all_tables(SMALL, 2, rs.prefix), ONE, method=method)
    joint = people(SMALL, 1000)
    release = measured(plan, joint)
    for work in (
        rs.marginals(SMALL, up_to=2),
        rs.table(SMALL, {"a1": rs.ranges, "a0": rs.predicates}),
        rs.table(SMALL, {("a2", "a1"): rs.abs_diff}),
        rs.linear(SMALL, ("a1",), REAL[:, :4]),
    ):
        assert_exact(release, work, joint)


@pytest.mark.parametrize("method", ["querysmasher", "dense", "identity"])
def test_totals_along_attributes_that_are_not_measured_are_answered(method):
    plan = rs.plan(rs.table(SMALL, ["a1"]) + rs.table(SMALL), ONE, method=method)
    joint = people(SMALL, 1000)
    release = measured(plan, joint)
    for families in (
        {"a0": rs.total, "a1": rs.prefix},
        {"a1": rs.identity, "a2": rs.total},
        {"a2": rs.total},
    ):
        assert_exact(release, rs.table(SMALL, families), joint)


@pytest.mark.parametrize("method", ["querysmasher", "dense"])
def test_queries_outside_the_span_are_refused_by_the_names_of_their_attributes(method):
    release = measured(rs.plan(rs.marginals(SMALL, ways=1), ONE, method=method), people(SMALL, 10))
    if method == "querysmasher":
        with pytest.raises(rs.NotInSpan, match="attributes 'a0', 'a2'"):
            release.table("a0", "a2")
    narrow = measured(rs.plan(rs.table(SMALL, ["a1"]), ONE, method=method), people(SMALL, 10))
    with pytest.raises(rs.NotInSpan, match="'a0'"):
        narrow.table("a0")


# --- many tables at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "work",
    [
        rs.marginals(SMALL, up_to=3),
        rs.all_tables(MIXED, (1, 2), numeric=rs.prefix, categorical=rs.identity),
        rs.all_tables(SMALL, 2, rs.affine),
        rs.all_tables(SMALL, 2, rs.prefix) + rs.table(SMALL, {"a2": rs.prefix, "a0": rs.total}),
        rs.all_tables(EQUAL, 2, rs.prefix) + rs.table(EQUAL, {("a0", "a2"): rs.affine}),
    ],
    ids=["marginals", "by kind", "affine", "and one more", "of two layouts"],
)
@pytest.mark.parametrize("chunk", [1, 10**6])
@pytest.mark.parametrize("method", ["querysmasher", "smasher", "dense"])
def test_tables_answered_together_are_answered_as_one_by_one(monkeypatch, work, chunk, method):
    monkeypatch.setattr("residua.answering.protocol.ESTIMATED_CELLS", chunk)
    plan = rs.plan(work, ONE, method=method)
    release = measured(plan, people(work.schema, 100), rs.simulated(seed=1))
    one_by_one = np.concatenate([release._values_of(group) for group in work.groups()])
    assert np.allclose(release.values(), one_by_one, rtol=0, atol=1e-9)


def test_a_run_of_tables_with_one_that_is_not_measured_is_refused():
    release = measured(rs.plan(rs.marginals(SMALL, ways=1), ONE, method="querysmasher"), people(SMALL, 10))
    with pytest.raises(rs.NotInSpan, match="attributes 'a0', 'a1'"):
        release.values(rs.marginals(SMALL, up_to=2))


@pytest.mark.parametrize("work", [rs.table, lambda schema, families: rs.all_tables(schema, 1, rs.predicates)])
def test_queries_beyond_number_are_refused_before_memory_is(work):
    schema = rs.Schema.of_sizes([60])
    release = measured(rs.plan(rs.marginals(schema, ways=1), ONE, method="identity"), people(schema, 10))
    with pytest.raises(rs.WorkloadError, match="too many"):
        release.values(work(schema, {"a0": rs.predicates}))
    with pytest.raises(rs.WorkloadError, match="too many to list; ask for those of interest"):
        release.answers(work(schema, {"a0": rs.predicates}))


# --- wrapping around ---------------------------------------------------------------------------------------


def exact_answers(batch, counts):
    """What a batch measures of one block's counts, in Python's integers."""
    whole = np.ones((1, 1), dtype=object) * batch.multiplier
    for matrix in batch.matrices:
        whole = np.kron(whole, matrix.astype(object))
    return whole @ counts.astype(object)


def wrapped(number):
    return (number + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize(("name", "method"), [("prefix", "querysmasher"), ("ranges of three", "dense")])
@pytest.mark.parametrize("records", [1, 10**3, 2**17, 2**25, 2**40, 2**55])
def test_measured_numbers_are_right_modulo_two_to_the_64(plans, name, method, records):
    """Whether floats are exact, integers are, or everything wraps around: the remainder is the same."""
    chance = np.random.default_rng(records)
    for batch in plans(name, method).batches:
        counts = chance.multinomial(records, np.full(batch.cells, 1 / batch.cells), size=3).astype(np.int64)
        found = batch.apply(counts, np.full(3, batch.multiplier))
        for row, values in zip(counts, found, strict=True):
            assert values.tolist() == [wrapped(number) for number in exact_answers(batch, row)]


@pytest.mark.parametrize(
    ("name", "method"), [("prefix", "querysmasher"), ("prefix", "dense"), ("affine", "smasher")]
)
def test_at_the_record_limit_no_number_wraps_around(plans, name, method):
    """All records in one cell, each cell in turn: then every measured number is as large as it can be."""
    plan = plans(name, method)
    limit = plan.most_records
    for cell in range(SMALL.cells):
        joint = np.zeros(SMALL.cells, dtype=np.int64)
        joint[cell] = limit
        joint = joint.reshape(SMALL.sizes)
        release = measured(plan, joint, rs.simulated(seed=cell))
        expected = truth(plan.workload, joint)
        rounding = 1e-13 * limit
        assert (
            np.abs(release.values() - expected) < 8 * plan.variances(plan.workload) ** 0.5 + rounding
        ).all()


def test_one_record_more_than_the_limit_could_wrap_around(plans):
    """The limit is not a guess: the largest entry times one record more leaves no room for the noise."""
    plan = plans("prefix", "querysmasher")
    limit = plan.most_records
    room = min(2**63 - 1 - (limit + 1) * batch.largest_entry() for batch in plan.batches)
    widest = max(law.bound(TAIL_BITS) for batch in plan.batches for law in batch.laws())
    assert room < widest


# --- measurements in a file --------------------------------------------------------------------------------


def test_measurements_that_do_not_fit_the_plan_are_refused(plans):
    plan = plans("prefix", "querysmasher")
    arrays = {}
    record = measured(plan, people(SMALL, 10)).measurements.to_manifest(arrays)
    with pytest.raises(rs.FileFormatError, match="do not belong to the plan"):
        Measurements.from_manifest({"batches": 1}, arrays, plan.strategy)
    for wrong in (arrays["measurements.1"][:, :-1], arrays["measurements.1"].astype(float)):
        with pytest.raises(rs.FileFormatError, match="batch 1 of the measurements does not fit"):
            Measurements.from_manifest(record, {**arrays, "measurements.1": wrong}, plan.strategy)


# --- attributes of one size with different weights ---------------------------------------------------------


def test_marginals_of_one_shape_are_each_spread_by_the_weights_of_their_own_attributes():
    """Claim A-004 for attributes of equal sizes and queries that a plan centres by different weights."""
    schema = rs.Schema.of_sizes([5, 5, 5])
    work = rs.all_tables(schema, 2, rs.prefix) + rs.table(schema, {"a0": rs.ranges}, weight=50)
    plan = rs.plan(work, ONE, method="smasher")
    assert len(set(plan.strategy.measures)) == 2
    codes = people(schema, 200_000)
    release = measured(plan, codes, rs.simulated(seed=1))
    expected = truth(work, codes)
    assert (np.abs(release.values() - expected) < 6 * plan.variances(work) ** 0.5).all()
    alone = [release.values(rs.Workload(schema, (group,))) for group in work.groups()]
    np.testing.assert_allclose(release.values(), np.concatenate(alone), atol=1e-6)
    processed = release.nonnegative(replicates=0)
    np.testing.assert_allclose(processed.values(), release.values(), atol=40)
