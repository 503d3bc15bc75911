"""The replay audit over two thousand invented plans of every kind: not one alarm."""

from itertools import islice

from residua.audit import Audit, audit
from residua.audit.invented import invented_plans


def test_no_alarm_over_two_thousand_invented_plans():
    found = Audit()
    for number, plan in enumerate(islice(invented_plans(11), 2_000)):
        found += audit(plan, rounds=1, seed=number)
    assert found.alarms == []
    assert found.plans == 2_000
    assert min(found.neighbours.values()) > 100
