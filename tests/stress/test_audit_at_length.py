"""The replay audit over two thousand invented plans of every kind: not one alarm.

    python tests/stress/test_audit_at_length.py

prints the audit's page, and how far it is; two processes take some ten minutes on an idle machine. Two
numbers after it, such as 0 20, say which of the forty parts to take.
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from residua.audit import Audit, audit
from residua.audit.invented import invented_plans

PARTS, PLANS = 40, 50
MEMORY = Path("/dev/shm")  # most of the time would be spent on waiting for disks


def test_no_alarm_over_two_thousand_invented_plans():
    found = audited()
    assert found.alarms == []
    assert found.plans == 2_000
    assert min(found.neighbours.values()) > 20


def audited(first: int = 0, end: int = PARTS) -> Audit:
    """Some parts together."""
    found = Audit()
    with ProcessPoolExecutor(2) as pool:
        for part in pool.map(_part, range(first, end)):
            found += part
            print(f"{found.plans} plans, {len(found.alarms)} alarms", file=sys.stderr, flush=True)
    return found


def _part(part: int) -> Audit:
    if MEMORY.is_dir():
        tempfile.tempdir = str(MEMORY)
    found = Audit()
    for number, plan in enumerate(islice(invented_plans(100 + part), PLANS)):
        found += audit(plan, rounds=1, seed=PLANS * part + number)
    return found


if __name__ == "__main__":
    print(audited(*map(int, sys.argv[1:])).page(["Plans of every kind, invented."]))
