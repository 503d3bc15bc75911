"""A thousand random plans for persons of at most four records: their cost, by brute force (claim K-010)."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from random_plans import columns, random_workload

import residua as rs
from residua.kernel.cost import person_cost
from residua.methods.registry import methods_for
from residua.privacy.unit import Person

PLANS = 1_000
MOST_PATTERNS = 3_000
LAWS = {"gaussian": rs.zcdp, "laplace": rs.pure_dp}


def random_unit(schema, generator):
    records = int(generator.integers(2, 5))
    names = generator.permutation(schema.names)[: generator.integers(1, 3)].tolist()
    per = {name: int(generator.integers(1, records)) for name in names}
    return rs.Unit(records, str(generator.choice(["add_remove", "replace_one"])), id="who", max_per=per)


def patterns(person, sizes):
    """Every sum of a person's records, (patterns, joint cells); None if they are too many."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    found = []
    for many in range(person.unit.max_records + 1):
        for own in combinations_with_replacement(range(cells.shape[1]), many):
            codes = cells[:, list(own)]
            if all(
                np.bincount(cap.classes[codes[cap.attribute]], minlength=1).max() <= cap.most
                for cap in person.caps
            ):
                found.append(np.bincount(own, minlength=cells.shape[1]))
            if len(found) > MOST_PATTERNS:
                return None
    return np.array(found)


def true_cost(plan, sums):
    costs = 0.0
    for rows, parameter, law in columns(plan):
        values = sums @ rows.T.astype(np.float64)
        if plan.unit.replacing and law == "gaussian":
            own = np.sum(values**2, axis=1)
            costs = costs + (own[:, None] + own[None] - 2 * values @ values.T) / float(parameter)
        elif plan.unit.replacing:
            costs = costs + sum(abs(v[:, None] - v[None]) for v in values.T) / float(parameter)
        else:
            costs = costs + np.sum(values**2 if law == "gaussian" else abs(values), axis=1) / float(parameter)
    return float(np.max(costs))


@pytest.mark.parametrize("law", LAWS)
def test_random_plans_cost_no_person_more_than_they_state(law):
    generator = np.random.default_rng(24)
    tried = alone = 0
    while tried < PLANS // 2:
        work = random_workload(generator)
        unit, budget = random_unit(work.schema, generator), LAWS[law](1)
        person = Person.of(unit, work.schema)
        sums = patterns(person, work.schema.sizes)
        if sums is None:
            continue
        method = str(generator.choice([*methods_for(law)]))
        try:
            plan = rs.plan(work, budget, unit=unit, method=method)
        except rs.ResiduaError:
            continue  # the method does not plan this, or replacing a person changes nothing
        tried += 1
        allowed = float(person.allowance(budget))
        found = true_cost(plan, sums)
        assert found <= allowed * (1 + 1e-9)
        assert found <= float(person_cost(plan.batches, person)) * (1 + 1e-9)
        if len(plan.batches) == 1 and len(plan.batches[0].subsets) == 1 and len(person.caps) == 1:
            assert found >= allowed * (1 - 1e-6)
            alone += 1
    assert alone > 20
