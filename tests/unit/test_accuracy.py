"""Accuracy targets: what they allow, whom they are for, and what is refused."""

from statistics import NormalDist

import numpy as np
import pytest

import residua as rs
from residua.accuracy.targets import Target, asked_of, weighted_caps

SCHEMA = rs.Schema(age=rs.Integer(0, 4), sex=rs.Categorical("F", "M"))
T1 = rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T1")
ONE_WAY = rs.marginals(SCHEMA, ways=1, name="one-way")
WORK = T1 + ONE_WAY


def test_a_target_is_the_variance_that_gives_it():
    assert float(rs.variance(25).variances) == 25
    assert float(rs.stddev(5).variances) == 25
    for level in (0.5, 0.9, 0.95, 0.999):
        allowed = float(rs.half_width(20, level=level).variances)
        assert NormalDist(0, allowed**0.5).cdf(20) == pytest.approx((1 + level) / 2)


def test_targets_print_as_they_are_written():
    assert repr(rs.stddev(5)) == "stddev(5)"
    assert repr(rs.half_width(20, level=0.9)) == "half_width(20, level=0.9)"
    assert repr(rs.variance([1, 2])) == "variance(array of 2)"
    assert rs.variance([1, 2]).describe() == "variance 1 to 2"


@pytest.mark.parametrize("make", [rs.variance, rs.stddev, rs.half_width])
@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), [1.0, 0.0]])
def test_zero_negative_and_endless_targets_are_refused(make, amount):
    with pytest.raises(rs.BudgetError, match=r"above zero.* such as 5"):
        make(amount)


@pytest.mark.parametrize("amount", ["5", None, True, object(), 1j, [[1.0]], [], [[1.0], [1.0, 2.0]]])
def test_what_is_no_number_is_no_target(amount):
    with pytest.raises(rs.BudgetError, match="a target is"):
        rs.stddev(amount)


@pytest.mark.parametrize("amount", [1e60, 1e300, 1e-60, 1e-300])
def test_a_target_that_floats_cannot_hold_is_refused(amount):
    for make in (rs.stddev, rs.half_width):
        with pytest.raises(rs.BudgetError, match="between 1e-100 and 1e100"):
            make(amount)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, "0.95", True])
def test_a_level_is_between_zero_and_one(level):
    with pytest.raises(rs.BudgetError, match=r"such as 0\.95"):
        rs.half_width(5, level=level)


def test_one_target_is_for_every_query():
    asked = asked_of(WORK, 25.0)
    assert asked.caps == (25.0, 25.0)
    assert asked.keys == ("T1", "one-way")


def test_names_of_tables_and_of_runs_have_targets():
    asked = asked_of(WORK, {"one-way": rs.stddev(3), "T1": 4})
    assert dict(zip(asked.keys, asked.caps, strict=True)) == {"T1": 4.0, "one-way": 9.0}


def test_a_run_is_cut_where_its_tables_have_targets_of_their_own():
    work = rs.marginals(SCHEMA, ways=(1, 2))
    asked = asked_of(work, {"age": 1, "sex": 2, "age x sex": 3})
    assert asked.keys == ("age", "sex", "age x sex")
    assert asked.caps == (1.0, 2.0, 3.0)
    assert asked.work.count == work.count
    assert [group.name for group in asked.work.groups()] == ["age", "sex", "age x sex"]


def test_an_array_has_a_figure_for_each_query():
    asked = asked_of(T1, np.arange(1.0, 11.0))
    np.testing.assert_array_equal(asked.caps[0], np.arange(1.0, 11.0))
    asked = asked_of(WORK, {"T1": rs.stddev(np.arange(1.0, 11.0)), "one-way": 2})
    np.testing.assert_array_equal(asked.caps[0], np.arange(1.0, 11.0) ** 2)
    asked = asked_of(WORK, np.arange(1.0, 18.0))
    assert [len(np.atleast_1d(cap)) for cap in asked.caps] == [10, 5, 2]
    np.testing.assert_array_equal(np.concatenate(asked.caps), np.arange(1.0, 18.0))


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({}, "targets: no table has one"),
        ({"T1": 1, "one-way": 1, "oneway": 1}, r"no table named 'oneway' \(did you mean 'one-way'\?\)"),
        ({"t1": 1, "one-way": 1}, r"no table named 't1' \(did you mean 'T1'\?\)"),
        ({"nope": 1}, "no table named 'nope'; it has 'T1'"),
        ({"T1": [1.0, 2.0], "one-way": 1}, "target of 'T1': 2 figures for 10 queries"),
        ([1.0, 2.0], "2 figures for 17 queries"),
    ],
)
def test_targets_that_do_not_fit_the_workload_are_refused(targets, words):
    with pytest.raises(rs.WorkloadError, match=words):
        asked_of(WORK, targets)


@pytest.mark.parametrize(
    ("targets", "words"),
    [({"T1": 0, "one-way": 1}, "target of 'T1': .*above zero"), ("small", "targets: a target is")],
)
def test_a_bad_target_is_named(targets, words):
    with pytest.raises(rs.BudgetError, match=words):
        asked_of(WORK, targets)


def test_tables_without_a_target_are_free():
    asked = asked_of(rs.marginals(SCHEMA, ways=1), {"age": 1})
    assert asked.keys == ("age",)
    assert [part.count for part in asked.free] == [2]
    whole, caps = asked.with_free()
    assert whole.count == 7
    assert caps[0] == 1.0
    assert caps[1] >= 1000 * caps[0]


def test_a_figure_per_query_of_many_tables_is_refused():
    many = rs.marginals(rs.Schema.of_sizes([2] * 60), ways=2, name="pairs")
    with pytest.raises(rs.WorkloadError, match="these are 1,770; give one figure"):
        asked_of(many, {"pairs": np.ones(4)})


def test_the_largest_weighted_variance_allows_one_over_the_weight():
    weights = [1.0, 4.0]
    explicit = rs.linear(SCHEMA, ["sex"], np.eye(2), weights=weights, name="own")
    caps = weighted_caps(2.0 * T1 + 3.0 * explicit)
    assert caps[0] == 0.5
    np.testing.assert_allclose(caps[1], [1 / 3, 1 / 12])


def test_a_target_is_read_back_as_it_was_written():
    for target in (rs.variance(25), rs.half_width(20, level=0.9), rs.stddev([1, 2, 3])):
        arrays = {}
        back = Target.from_manifest(target.to_manifest(arrays), arrays)
        assert back.same(target)
        assert not back.same(rs.variance(26))
