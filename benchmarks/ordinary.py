"""Forty pieces of ordinary work, planned one after the other: processor seconds, memory, error and gap.

Every piece is planned in a fresh interpreter. Fails if the median takes more than 2 processor
seconds, one takes more than 15, or one holds more than 2 GB. `ordinary.py NAME ...` plans only those whose
name has these words. With `--thorough` first, the errors are compared with those of thorough effort, wherever
a bound for all mechanisms does not prove them within 0.5% already; fails where they are more than that above.
Seconds are indicative; the limits are for an idle machine.
"""

import json
import math
import statistics
import subprocess
import sys

from _fresh import Row, measure, print_row
from _ordinary import CASES
from _timing import Limits

PATIENCE = {"normal": 300.0, "thorough": 3600.0}
MEDIAN, WORST, MEMORY, LOSS = 2.0, 15.0, 2000.0, 0.005


def plan_one(name: str, effort: str) -> None:
    """Plan a piece of work in this interpreter, and print its figures."""
    print_row(measure(CASES[name], "auto", effort=effort))


def run(name: str, effort: str) -> Row | str:
    """The figures of a piece of work in an interpreter of its own, or why there are none."""
    command = [sys.executable, __file__, "--one", name, effort]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE[effort], check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {PATIENCE[effort]:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:120]
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def compare(name: str, row: Row, limits: Limits) -> None:
    """Print how far the error is above the least one at most, or above that of thorough effort."""
    if row.loss <= LOSS:
        print(f"{'':48}  proved within {row.loss:.2%} of the least error", flush=True)
        return
    best = run(name, "thorough")
    if isinstance(best, str):
        limits.check(False, f"{name} at thorough effort: {best}")
        return
    loss = row.rmse / best.rmse - 1
    print(f"{'':48}  {loss:.3%} above thorough effort, {best.cpu:.1f} s", flush=True)
    limits.check(loss <= LOSS, f"{name} is {loss:.2%} above thorough effort")


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        plan_one(*sys.argv[2:4])
        return 0
    thorough = sys.argv[1:2] == ["--thorough"]
    words = sys.argv[2:] if thorough else sys.argv[1:]
    limits, seconds = Limits(), []
    print(f"{'work':48}{'queries':>12}{'CPU s':>8}{'MB':>7}{'rmse':>11}{'gap':>10}")
    for name in CASES:
        if not all(word in name for word in words):
            continue
        row = run(name, "normal")
        count = CASES[name]().count
        if isinstance(row, str):
            print(f"{name:48}{count:>12,}  {row}", flush=True)
            seconds.append(math.inf)
        else:
            print(
                f"{name:48}{count:>12,}{row.cpu:>8.2f}{row.peak:>7.0f}{row.rmse:>11.4f}{row.gap:>10.2g}",
                flush=True,
            )
            seconds.append(row.cpu)
            limits.check(row.peak <= MEMORY, f"{name} held {row.peak:.0f} MB")
            if thorough:
                compare(name, row, limits)
        limits.check(seconds[-1] <= WORST, f"{name} took more than {WORST:.0f} processor seconds")
    if seconds:
        middle = statistics.median(seconds)
        print(f"{len(seconds)} pieces: median {middle:.2f}, worst {max(seconds):.2f} processor seconds")
        limits.check(middle <= MEDIAN, f"the median is above {MEDIAN:.0f} processor seconds")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
