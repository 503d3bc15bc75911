"""One plan in an interpreter of its own: seconds from schema to saved file, and the most memory it held.

A benchmark hands over a function and whole numbers; the interpreter imports residua, and then the clock
starts. Memory is that of the whole interpreter, residua and numpy included.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import residua as rs

Maker = Callable[..., rs.Workload]


@dataclass(frozen=True, slots=True)
class Row:
    """Wall and processor seconds, peak and file size in megabytes, and the plan's error and gap."""

    wall: float
    cpu: float
    peak: float
    file: float
    rmse: float
    gap: float


def fresh(script: str, *numbers: int, repeats: int = 1) -> Row:
    """The fastest of several runs of `script --row numbers`, each in a new interpreter."""
    return min((_run(script, numbers) for _ in range(repeats)), key=lambda row: row.wall)


def _run(script: str, numbers: tuple[int, ...]) -> Row:
    command = [sys.executable, script, "--row", *map(str, numbers)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Row(**json.loads(output))


def answer_row(workload: Maker, method: str) -> bool:
    """Whether this interpreter was started for one row; if so, it makes the plan and prints the figures."""
    if sys.argv[1:2] != ["--row"]:
        return False
    print(json.dumps(asdict(measure(workload, method, *map(int, sys.argv[2:])))))
    return True


def measure(workload: Maker, method: str, *numbers: int) -> Row:
    """Make, plan and save one workload here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.plan"
        wall, cpu = time.perf_counter(), time.process_time()
        plan = rs.plan(workload(*numbers), rs.privacy_cost(1), method=method)
        plan.save(path)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size = os.path.getsize(path) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Row(wall, cpu, peak, size, plan.ideal.rmse, plan.certificate.gap)
