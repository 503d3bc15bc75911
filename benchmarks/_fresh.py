"""One plan in an interpreter of its own: seconds from schema to saved file, and the most memory it held.

A benchmark names itself and some whole numbers; the new interpreter imports residua and its room for plans,
which opens on first use, and then the clock starts; scipy, which planning loads itself, is in the time. It
keeps to one processor where the system allows that: threads that wait for each other on a busy machine burn
processor time, and one processor makes a row the same whatever else runs. Memory is that of the whole
interpreter, residua and numpy included.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import residua as rs

Maker = Callable[..., rs.Workload]
Told = Callable[["Row"], None]


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds by the clock of planning alone and of planning and saving, processor seconds of both;
    peak and file in megabytes; the plan's error and gap, and the most that its error is above the least one.

    `wall` is infinite where saving did not end in time; `cpu` and `peak` are then those of planning.
    """

    planning: float
    wall: float
    cpu: float
    peak: float
    file: float
    rmse: float
    gap: float
    loss: float = math.inf


def fresh(script: str, *numbers: int, patience: float, repeats: int = 1) -> Row:
    """The fastest of several runs of `script --row numbers`, each in a new interpreter.

    A run that takes longer than `patience` seconds, start included, is stopped and not repeated.
    """
    rows = [_run(script, numbers, patience)]
    while len(rows) < repeats and math.isfinite(rows[-1].wall):
        rows.append(_run(script, numbers, patience))
    return min(rows, key=lambda row: row.wall)


def _run(script: str, numbers: tuple[int, ...], patience: float) -> Row:
    command = [sys.executable, script, "--row", *map(str, numbers)]
    try:
        with _one_processor():
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=patience).stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    lines = output.decode().splitlines()
    if not lines:
        return Row(math.inf, math.inf, math.inf, math.nan, math.nan, math.nan, math.nan)
    return Row(**json.loads(lines[-1]))


@contextmanager
def _one_processor() -> Iterator[None]:
    """What is started within it inherits one processor, and makes no more threads than that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def answer_row(workload: Maker, method: str) -> bool:
    """Whether this interpreter was started for one row; if so, it makes the plan and prints the figures."""
    if sys.argv[1:2] != ["--row"]:
        return False
    numbers = map(int, sys.argv[2:])
    print_row(measure(workload, method, *numbers, planned=print_row))
    return True


def print_row(row: Row) -> None:
    """One line that the benchmark reads; the last one counts."""
    print(json.dumps(asdict(row)), flush=True)


def measure(
    workload: Maker, method: str, *numbers: int, planned: Told | None = None, effort: str = "normal"
) -> Row:
    """Make, plan and save one workload here; `planned` is told what is known before saving."""
    with tempfile.TemporaryDirectory() as folder:
        path, plan_it = Path(folder) / "row.plan", rs.plan
        wall, cpu = time.perf_counter(), time.process_time()
        plan = plan_it(workload(*numbers), rs.privacy_cost(1), method=method, effort=effort)
        planning, busy = time.perf_counter() - wall, time.process_time() - cpu
        proved = plan.certificate
        loss = math.sqrt(1 + proved.everywhere_gap) - 1
        row = Row(planning, math.inf, busy, _peak(), math.nan, plan.ideal.rmse, proved.gap, loss)
        if planned is not None:
            planned(row)
        plan.save(path)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return replace(row, wall=wall, cpu=cpu, peak=_peak(), file=os.path.getsize(path) / 1e6)


def _peak() -> float:
    """Megabytes; the system counts bytes on macOS and kilobytes elsewhere."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
