"""A few of the kills of the stress tests, with every change."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CRASHES = Path(__file__).parents[1] / "stress" / "test_measure_crashes.py"


@pytest.mark.parametrize(("points", "which"), [(50, "tables"), (20, "places"), (30, "parts")])
def test_some_kills_release_nothing_unpaid(points, which, tmp_path):
    command = [sys.executable, str(CRASHES), str(points), str(tmp_path), which]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == points
    assert counts["returned"]
