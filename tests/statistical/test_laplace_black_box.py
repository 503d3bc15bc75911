"""An attacker's best guess whether one person is in the data, against the epsilon that a plan states.

Two datasets differ in a record of the cell that the plan protects least. The attacker looks at one event:
every number that the record moves lies where the record puts it, or beyond. With Laplace noise no event's
chances differ more between the two datasets: by the factor e^epsilon, if the record costs the whole epsilon.
Of many releases of each dataset some show the event, and the test rejects "epsilon is at most what is stated"
if the lower limit of its chance with the record is above e^epsilon times the upper limit of that without.
Limits are those of Clopper and Pearson, each wrong with probability ALARM/2. So

- a mechanism that keeps its promise, whatever its noise, is rejected with probability at most ALARM;
- one with a fifth too little noise (epsilon a quarter larger) passes with a probability below MISSED.

At epsilon 10 the event has a chance of about 5e-5 without the record: so many releases are drawn that it is
expected EVENTS times, thousands of releases at a time by the code that draws the noise of one. At epsilon 0.1
the record comes ten times, which may cost ten times as much. Seeds are fixed.
"""

import math
from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import residua as rs
from residua.errors import BudgetError
from residua.kernel import measurement, measuring
from residua.noise import DiscreteLaplace
from residua.strategy import strategy as strategies

ALARM = 1e-6
MISSED = 1e-3
CHUNK = 250_000  # releases at a time
REPEATS = {"0.1": 10, "1": 1, "10": 1}  # of the record
EVENTS = {"0.1": 6_000, "1": 6_000, "10": 50}  # expected without the record
PRESENT = {"0.1": 0.5, "1": 0.5, "10": 0.02}  # releases with the record, of those without it

AGES = rs.Schema(age=rs.Integer(0, 3))
PAIRS = rs.Schema.of_sizes([3, 2])
SQUARE = rs.Schema(a=rs.Integer(0, 3), b=rs.Integer(0, 3))
PLANS = {
    "cells": (rs.table(AGES, {"age": rs.identity}), "identity"),
    "tree": (rs.table(AGES, {"age": rs.ranges}), "hierarchical"),
    "wavelet": (rs.table(AGES, {"age": rs.ranges}), "wavelet"),
    "p-identity": (rs.table(rs.Schema(age=rs.Integer(0, 8)), {"age": rs.prefix}), "hdmm-kron"),
    "nested": (rs.marginals(PAIRS, up_to=2), "workload"),
    "union": (rs.table(SQUARE, {"a": rs.prefix}) + rs.table(SQUARE, {"b": rs.prefix}), "hdmm-union"),
}
CASES = [(name, epsilon) for name in PLANS for epsilon in REPEATS]


def planned(name, epsilon):
    work, method = PLANS[name]
    return rs.plan(work, rs.pure_dp(epsilon), method=method)


def answers(plan, codes):
    """Exact answers of every batch: what two releases with the same noise differ by, one of no records."""
    both = [rs.measure(plan, data, ledger=None, noise=rs.simulated(0)) for data in (codes, codes[:0])]
    some, none = (release.measurements.values for release in both)
    return [a - b for a, b in zip(some, none, strict=True)]


def releases(plan, exact, count, source):
    """Measured numbers of so many releases, (count, numbers), every batch with `count` times its blocks."""
    parts = []
    for batch, own in zip(plan.batches, exact, strict=True):
        many = replace(batch, subsets=np.tile(batch.subsets, (count, 1)), owners=np.tile(batch.owners, count))
        order = np.argsort(many.owners, kind="stable")
        noisy = measuring.noisy(many, np.tile(own, (count, 1)), batch.laws(), source, order)
        parts.append(noisy.reshape(count, -1))
    return np.concatenate(parts, axis=1)


def flat(parts):
    return np.concatenate([part.reshape(-1) for part in parts])


def scales(plan):
    """The scale of every measured number's noise."""
    return np.concatenate(
        [
            np.repeat([float(batch.parameters[owner]) for owner in batch.owners], batch.rows)
            for batch in plan.batches
        ]
    )


def data_of(plan, repeat):
    """Some records, and the same with `repeat` more of the cell that is protected least."""
    sizes = plan.schema.sizes
    few = np.random.default_rng(3).integers(0, sizes, (7, len(sizes)))
    low = flat(answers(plan, few))

    def cost(cell):
        more = flat(answers(plan, np.concatenate([few, [cell]])))
        return float(np.sum(np.abs(more - low) / scales(plan)))

    worst = max(np.ndindex(*sizes), key=cost)
    return few, np.concatenate([few, [worst] * repeat])


def chances(moves, scale):
    """The chance of the event with the record and without it, for noise of these scales, exactly."""
    decay = np.exp(-1 / scale)
    present = float(np.prod(1 / (1 + decay)))
    return present, present * float(np.exp(-np.sum(np.abs(moves) / scale)))


def shown(plan, exact, moves, goal, count, seed):
    """How many releases, of so many, show the event."""
    source, found = rs.simulated(seed), 0
    touched = moves != 0
    side = np.sign(moves[touched])
    for start in range(0, count, CHUNK):
        numbers = releases(plan, exact, min(CHUNK, count - start), source)[:, touched]
        found += int(np.sum(((numbers - goal[touched]) * side >= 0).all(axis=1)))
    return found


class Attack:
    """The two datasets, the event, how many releases are looked at, and what is found."""

    def __init__(self, plan, epsilon):
        self.plan, self.limit = plan, math.exp(float(epsilon) * REPEATS[epsilon])
        few, more = data_of(plan, REPEATS[epsilon])
        self.low, self.high = answers(plan, few), answers(plan, more)
        self.moves = flat(self.high) - flat(self.low)
        self.scales = scales(plan)[self.moves != 0]
        self.without = math.ceil(EVENTS[epsilon] * self.limit / chances(self.touched, self.scales)[0])
        self.present = math.ceil(PRESENT[epsilon] * self.without)

    @property
    def touched(self):
        return self.moves[self.moves != 0]

    def found(self, seed):
        """Releases that show the event: with the record, and without it."""
        goal = flat(self.high)
        return (
            shown(self.plan, self.high, self.moves, goal, self.present, seed),
            shown(self.plan, self.low, self.moves, goal, self.without, seed + 1),
        )

    def rejects(self, present, without):
        """Whether these counts are too different for the epsilon stated."""
        least = stats.beta.ppf(ALARM / 2, present, self.present - present + 1) if present else 0.0
        most = stats.beta.isf(ALARM / 2, without + 1, self.without - without)
        return least > self.limit * most

    def missed(self, narrower):
        """A bound on the probability that noise of `narrower` times the scales is not rejected."""
        high, low = chances(self.touched, self.scales * narrower)
        least = int(stats.binom.ppf(MISSED / 10, self.present, high))
        # Fewer releases without the record that show the event speak against it more.
        first = bisect_left(range(self.without), True, key=lambda count: not self.rejects(least, count))
        return stats.binom.cdf(least - 1, self.present, high) + stats.binom.sf(first - 1, self.without, low)


@pytest.fixture(scope="module", params=CASES, ids=["-".join(case) for case in CASES])
def attack(request):
    return Attack(planned(*request.param), request.param[1])


@pytest.fixture(scope="module")
def found(attack):
    return attack.found(seed=1)


def test_many_releases_at_once_are_drawn_like_one(attack):
    few = data_of(attack.plan, 1)[0]
    one = rs.measure(attack.plan, few, ledger=None, noise=rs.simulated(seed=4)).measurements.values
    assert np.array_equal(flat(one), releases(attack.plan, attack.low, 1, rs.simulated(seed=4))[0])


def test_the_test_has_the_power_that_it_states(attack):
    assert attack.missed(0.8) < MISSED
    assert attack.missed(1.0) > 1 - MISSED  # and is no test that rejects everything


def test_the_record_that_is_protected_least_costs_all_of_epsilon(attack):
    """So the attacker attacks where it hurts most."""
    cost = float(np.sum(np.abs(attack.touched) / attack.scales))
    assert 0.999 * math.log(attack.limit) < cost <= math.log(attack.limit) * (1 + 1e-9)


def test_the_real_mechanism_passes(attack, found):
    assert not attack.rejects(*found)


def test_the_attack_finds_epsilon_itself(attack, found):
    """Two-sided: a mechanism that passes does not pass because the attack is idle."""
    high, low = chances(attack.touched, attack.scales)
    assert stats.binomtest(found[0], attack.present, high).pvalue > ALARM
    assert stats.binomtest(found[1], attack.without, low).pvalue > ALARM


# --- broken mechanisms are rejected, at every epsilon ------------------------------------------------------


def unguarded(plan, monkeypatch):
    """The plan, measured although its exact cost is too large, which is what the release code refuses."""
    with pytest.raises(BudgetError, match="would spend more"):
        rs.measure(plan, np.zeros((0, len(plan.schema.sizes)), int), ledger=None, noise=rs.simulated(0))
    monkeypatch.setattr(measuring, "person_cost", lambda batches, person: Fraction(0))
    return plan


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [(name, e) for name, e in CASES if name in ("cells", "union")] + [("p-identity", "1")],
)
def test_noise_that_is_a_fifth_too_narrow_is_rejected(name, epsilon, monkeypatch):
    attack = Attack(planned(name, epsilon), epsilon)
    monkeypatch.setattr(measurement, "DiscreteLaplace", lambda scale: DiscreteLaplace(scale * Fraction(4, 5)))
    assert attack.rejects(*attack.found(seed=11))


@pytest.mark.parametrize("epsilon", REPEATS)
@pytest.mark.parametrize("name", ["nested", "union"])
def test_blocks_whose_largest_cost_is_taken_for_their_sum_are_rejected(name, epsilon, monkeypatch):
    plan = planned(name, epsilon)
    strategy = plan.strategy
    most = max(int(layer.shares.max()) for layer in strategy.layers)
    louder = strategy.exact_cost() * Fraction(2) ** strategy.grain / most
    layers = []
    for layer in strategy.layers:
        shares = np.array([math.floor(share * louder) for share in layer.shares.tolist()], dtype=np.int64)
        layers.append(replace(layer, shares=shares, costs=shares * 2.0**-strategy.grain))
    broken = replace(plan, strategy=replace(strategy, layers=tuple(layers)))
    attack = Attack(unguarded(broken, monkeypatch), epsilon)
    assert attack.rejects(*attack.found(seed=21))


@pytest.mark.parametrize("epsilon", REPEATS)
def test_a_sensitivity_that_is_the_largest_entry_is_rejected(epsilon, monkeypatch):
    monkeypatch.setattr(strategies, "matrix_cost", lambda law, matrix: int(np.abs(matrix).max()))
    attack = Attack(unguarded(planned("tree", epsilon), monkeypatch), epsilon)
    assert attack.rejects(*attack.found(seed=31))


@pytest.mark.parametrize("epsilon", REPEATS)
def test_a_record_that_is_counted_twice_is_rejected(epsilon, monkeypatch):
    real = measuring.exact_answers
    monkeypatch.setattr(measuring, "exact_answers", lambda *args: [2 * answers for answers in real(*args)])
    attack = Attack(planned("cells", epsilon), epsilon)
    assert attack.rejects(*attack.found(seed=41))
