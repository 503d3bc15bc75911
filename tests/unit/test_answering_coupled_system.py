"""Releases whose blocks overlap, combined: under any weights, twice the same, three, and post-processed."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import residua as rs
from residua.answering.coupled.answerer import Coupled

pytestmark = pytest.mark.filterwarnings(
    "ignore:a release that no ledger paid for:residua.DifferentDataWarning"
)

SCHEMA = rs.Schema.of_sizes([3] * 8)  # 6,561 joint cells: too many for a union block
PAIRS = rs.all_tables(SCHEMA, 1, rs.prefix) + rs.all_tables(SCHEMA, 2, rs.affine)
CODES = np.random.default_rng(1).integers(0, 3, (500, 8)).astype(np.int32)
ASKED = rs.table(SCHEMA, {("a0", "a1"): rs.affine}) + rs.table(SCHEMA, {"a2": rs.prefix})


@cache
def planned(kind: str) -> rs.Plan:
    if kind == "pairs":
        return rs.plan(PAIRS, rs.zcdp(1))
    if kind == "cells":
        return rs.plan(PAIRS + rs.marginals(SCHEMA, ways=2), rs.zcdp(1))
    if kind == "other weights":
        work = rs.table(SCHEMA, {"a0": rs.ranges, "a1": rs.prefix}, weight=9)
        return rs.plan(work + rs.all_tables(SCHEMA, 2, rs.affine), rs.zcdp(2))
    return rs.plan(rs.all_tables(SCHEMA, (1, 2), rs.prefix), rs.zcdp(1), method="smasher")


@cache
def measured(kind: str, seed: int) -> rs.Release:
    return rs.measure(planned(kind), CODES, ledger=None, noise=rs.simulated(seed=seed))


def test_the_plans_are_what_these_tests_are_about(answered_by) -> None:
    for kind in ("pairs", "other weights", "cells"):
        assert answered_by(planned(kind).strategy) == "coupled"
    assert planned("pairs").strategy.measures != planned("other weights").strategy.measures
    assert answered_by(planned("centred").strategy) == "independent"


@pytest.mark.parametrize(
    "kinds", [("pairs", "other weights"), ("other weights", "pairs"), ("centred", "pairs")]
)
def test_blocks_under_different_weights_are_solved_together(kinds, tmp_path) -> None:
    first, second = (measured(kind, seed) for seed, kind in enumerate(kinds))
    both = rs.combine(first, second)
    for work in (ASKED, PAIRS):
        variances = both.plan.variances(work)
        harmonic = 1 / sum(1 / each.plan.variances(work) for each in (first, second))
        assert np.all(variances <= harmonic * (1 + 1e-9))
    truth = rs.measure(planned("pairs"), CODES, ledger=None, noise=rs.simulated(seed=3)).values(PAIRS)
    spread = np.sqrt(both.plan.variances(PAIRS) + planned("pairs").variances(PAIRS))
    assert np.all(np.abs(both.values(PAIRS) - truth) < 6 * spread)
    both.save(tmp_path / "both.release")
    assert rs.Release.load(tmp_path / "both.release").answers(ASKED).equals(both.answers(ASKED))


def test_answers_of_both_are_those_of_least_squares_over_both() -> None:
    releases = [measured("pairs", 1), measured("pairs", 2), measured("pairs", 3)]
    # As if they were of different plans, so that their blocks are solved and not averaged.
    strategy = planned("pairs").strategy
    layers = len(strategy.layers)
    three = Coupled(replace(strategy, layers=strategy.layers * 3).blocks())
    numbers = [
        (layers * at + layer, rows, values)
        for at, release in enumerate(releases)
        for layer, rows, values in release.measurements.in_units(strategy)
    ]
    estimator = three.estimator(three.estimates(numbers))
    for group in PAIRS.groups():
        found = estimator.answers(group)
        means = np.mean([release._estimator.answers(group) for release in releases], axis=0)
        assert np.allclose(found, means)
        assert np.allclose(three.variances(group), strategy.variances(group) / 3)


def test_one_plan_measured_twice_is_averaged() -> None:
    first, second = measured("pairs", 1), measured("pairs", 2)
    both = rs.combine(first, second)
    np.testing.assert_allclose(both.values(), np.tile((first.values() + second.values()) / 2, 2))
    np.testing.assert_allclose(both.plan.variances(PAIRS), planned("pairs").variances(PAIRS) / 2)
    assert both.plan.strategy.grain is None


def test_three_releases_are_better_than_two_and_come_in_any_order() -> None:
    releases = [measured("pairs", 1), measured("other weights", 2), measured("centred", 3)]
    orders = [rs.combine(*(releases[at] for at in order)) for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0))]
    for other in orders[1:]:
        np.testing.assert_allclose(other.values(ASKED), orders[0].values(ASKED), atol=1e-6)
        np.testing.assert_allclose(other.plan.variances(ASKED), orders[0].plan.variances(ASKED), rtol=1e-6)
    two = rs.combine(*releases[:2])
    assert np.all(orders[0].plan.variances(PAIRS) < two.plan.variances(PAIRS))


def test_what_measures_no_cells_is_refused_with_the_remedy() -> None:
    both = rs.combine(measured("pairs", 1), measured("other weights", 2))
    with pytest.raises(rs.Infeasible, match="publish that table cell by cell too"):
        both.nonnegative()


@pytest.mark.parametrize("kinds", [("pairs", "centred"), ("cells", "cells"), ("cells", "other weights")])
def test_combined_releases_are_post_processed_with_errors_by_simulation(kinds) -> None:
    both = rs.combine(*(measured(kind, seed) for seed, kind in enumerate(kinds)))
    for processed in (both.nonnegative(replicates=3), both.rounded(replicates=3)):
        assert processed.values(PAIRS).min() >= 0
        errors = processed.errors(ASKED)
        assert np.all(np.isfinite(errors))
        assert 0 < np.sqrt(np.mean(errors**2)) < 3 * np.sqrt(np.mean(both.plan.variances(ASKED)))
