"""Everything that somebody else may have written, in large numbers: see hostile/run.py."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "hostile" / "run.py"
COUNTS = {"files": 20_000, "specs": 20_000, "texts": 50_000, "lines": 2_000}


def test_hostile_inputs_end_in_clean_errors_within_bounds_and_spend_nothing(tmp_path):
    counts = [word for kind, count in COUNTS.items() for word in (f"--{kind}", str(count))]
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--seed", "1", *counts]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(run.stdout)
    assert {kind: found[kind]["cases"] for kind in COUNTS} == COUNTS
    assert {kind: found[kind]["reasons"] for kind in COUNTS} == {kind: {} for kind in COUNTS}, run.stdout
    assert all(found[kind]["read"] for kind in COUNTS)
    assert run.returncode == 0
