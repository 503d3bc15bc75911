"""A few of the kills of the stress tests, with every change."""

import json
import subprocess
import sys
from pathlib import Path

CRASHES = Path(__file__).parents[1] / "stress" / "test_measure_crashes.py"


def test_fifty_kills_release_nothing_unpaid(tmp_path):
    command = [sys.executable, str(CRASHES), "50", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == 50
    assert counts["returned"]
