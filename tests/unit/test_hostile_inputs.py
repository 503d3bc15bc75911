"""A few of the hostile inputs of the stress tests, with every change."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "stress" / "hostile" / "run.py"


@pytest.mark.parametrize(("kind", "count"), [("files", 300), ("specs", 200), ("texts", 300), ("lines", 40)])
def test_a_few_hostile_inputs_end_in_clean_errors(kind, count, tmp_path):
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--quick", "--seed", "2", f"--{kind}", str(count)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)[kind]
    assert found["reasons"] == {}, run.stdout
    assert found["cases"] == count
    assert found["read"]
    assert found["refused"]
    assert run.returncode == 0
