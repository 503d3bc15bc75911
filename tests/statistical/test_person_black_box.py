"""An attacker's best guess whether a person with many records is in the data (as in test_privacy_black_box).

The person has ten records where two are counted, at most one a quarter. Without enforcement the same attack
finds a difference far beyond what the plan states.
"""

import math

import numpy as np
import pytest
from scipy import stats

import residua as rs
from residua.engines import MemoryEngine, persons
from residua.kernel import measuring

ALARM = 1e-6
RELEASES = 400
COST = 4
SCHEMA = rs.Schema(quarter=rs.Integer(0, 3), place=rs.Integer(0, 1))
WORK = rs.marginals(SCHEMA, up_to=2)
CROWD = {"quarter": [0, 1, 2, 3, 0], "place": [0, 1, 0, 1, 1], "who": [1, 1, 2, 2, 3]}
MANY = {"quarter": [0] * 5 + [1] * 5, "place": [1] * 10, "who": [9] * 10}
BOTH = {name: CROWD[name] + MANY[name] for name in CROWD}


def difference(plan):
    """What the person adds to every measured number, with all ten records."""
    schema, sizes = plan.schema, plan.schema.sizes
    alone = MemoryEngine(schema.encode({name: MANY[name] for name in schema.names}), sizes)
    answers = measuring.exact_answers(plan.batches, alone, measuring.Positions(plan), None)
    return np.concatenate([own.reshape(-1) for own in answers])


def evidence(plan, seed=0):
    spreads = [np.repeat([float(b.parameters[own]) for own in b.owners], b.rows) for b in plan.batches]
    weights = difference(plan) / np.concatenate(spreads)
    found = []
    for number, data in enumerate((CROWD, BOTH)):
        source = rs.simulated(seed + number)
        for _ in range(RELEASES):
            values = rs.measure(plan, data, ledger=None, noise=source).measurements.values
            found.append(np.concatenate([own.reshape(-1) for own in values]) @ weights)
    without, present = np.split(np.array(found), 2)
    pooled = math.sqrt((without.var(ddof=1) + present.var(ddof=1)) / 2)
    return (present.mean() - without.mean()) / (pooled * math.sqrt(2 / RELEASES))


LIMIT = stats.nct(2 * RELEASES - 2, math.sqrt(COST * RELEASES / 2)).isf(ALARM)


@pytest.mark.parametrize("caps", [{}, {"quarter": 1}])
def test_a_person_with_many_records_is_protected(caps):
    plan = rs.plan(WORK, rs.privacy_cost(COST), unit=rs.Unit(id="who", max_records=2, max_per=caps))
    assert evidence(plan) < LIMIT


@pytest.mark.parametrize("caps", [{}, {"quarter": 1}])
def test_enforcement_switched_off_is_caught(caps, monkeypatch):
    plan = rs.plan(WORK, rs.privacy_cost(COST), unit=rs.Unit(id="who", max_records=2, max_per=caps))
    monkeypatch.setattr(persons, "kept", lambda person, ids, words, packing: np.arange(len(ids)))
    assert evidence(plan, seed=10) > LIMIT
