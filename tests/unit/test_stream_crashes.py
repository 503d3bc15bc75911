"""A few of the kills of the stress tests, with every change."""

import json
import subprocess
import sys
from pathlib import Path

CRASHES = Path(__file__).parents[1] / "stress" / "test_stream_crashes.py"


def test_forty_kills_measure_nothing_twice_and_lose_nothing(tmp_path):
    command = [sys.executable, str(CRASHES), "40", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == 40
    assert counts["returned"]
