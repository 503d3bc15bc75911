"""How many files planning, measuring and answering pass through (docs/architecture.md)."""

import subprocess
import sys
from pathlib import Path

MOST = {"planning marginals": 21, "planning targets": 31, "measuring and answering": 38}


def test_the_three_journeys_pass_through_few_files():
    script = Path(__file__).parents[2] / "benchmarks" / "journeys.py"
    told = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in told.splitlines():
        name, _, rest = line.partition(": ")
        if rest:
            found[name] = int(rest.split()[0])
    assert found.keys() == MOST.keys()
    assert {name: many for name, many in found.items() if many > MOST[name]} == {}, told
