"""Kill -9 between and within instalments: nothing is measured twice, nothing lost, and nothing paid twice.

Run as a program (`python test_stream_crashes.py POINTS FOLDER`) it does the killing: it plans once and forks,
so that a point takes milliseconds. As a test it runs itself so, which keeps forks out of pytest.
"""

import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from forked import Child

import residua as rs
from residua.stream.storage import Store

RHO = Fraction(1, 1000)
MONTHS = 8
SIZES = (MONTHS, 3)


def test_a_thousand_kills_measure_nothing_twice_and_lose_nothing(tmp_path):
    command = [sys.executable, __file__, "1000", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["points"] == 1000
    assert counts["returned"]
    assert counts["begun"]  # kills between the debit and the numbers
    assert counts["finished"]


@dataclass
class Counts:
    """What happened at all the points of one run."""

    points: int = 0
    returned: int = 0
    begun: int = 0
    finished: int = 0


def digest(stream: rs.Stream, number: int) -> str:
    """The numbers of one instalment, as they are stored."""
    with Store(stream.path).transaction() as connection:
        rows = connection.execute("SELECT content FROM part WHERE instalment = ? ORDER BY batch", (number,))
        return hashlib.sha256(b"".join(content for (content,) in rows)).hexdigest()


def measure_on(path: Path, codes: np.ndarray, report: Callable[[str], None]) -> None:
    """Instalment after instalment; each is reported once `measure` returned."""
    stream = rs.Stream.open(path)
    while (period := stream.next) is not None:
        stream.measure(period, codes)
        report(f"{period} {digest(stream, stream.periods.index(period))}")


def check(stream: rs.Stream, ledger: rs.Ledger, known: dict[str, str], spent: Fraction) -> int:
    """What must hold whenever a process was killed; how many instalments are begun and not measured."""
    found = {period: digest(stream, at) for at, period in enumerate(stream.measured)}
    assert known.items() <= found.items(), "an instalment that was returned is lost, or was measured again"
    known.update(found)
    entries = ledger.entries()
    assert {entry.instalment.stream for entry in entries} <= {stream_id(stream)}
    numbers = [entry.instalment.number for entry in entries]
    assert numbers == list(range(len(numbers))), "an instalment was paid for twice, or out of turn"
    assert len(found) <= len(entries) <= len(found) + 1, "noise without a debit, or a debit without a turn"
    assert ledger.spent <= spent, "more was debited than the plan"
    if found:
        assert stream.release().plan.schema["month"].size == len(found)
    return len(entries) - len(found)


def stream_id(stream: rs.Stream) -> str:
    return Store(stream.path).facts()["id"].decode()


def finished(stream: rs.Stream, plan: rs.Plan, codes: np.ndarray) -> None:
    """All numbers of a whole stream are those of the data, but for their noise: every period counted once."""
    release = stream.release()
    truth = np.zeros(SIZES)
    np.add.at(truth, tuple(codes.T), 1)
    table = release.table("month", "sex")
    assert np.abs((table.values - truth) / table.stddev).max() < 8, "counts were lost, or came in twice"
    assert release.plan.hash == plan.hash
    assert not Path(f"{stream.path}.secret").exists()


def main(points: int, folder: Path) -> None:
    """Run so many points in a folder and print the counts as JSON."""
    chance = random.Random(points)
    schema = rs.Schema(month=rs.Integer(0, MONTHS - 1), sex=rs.Categorical("F", "M", "X"))
    work = rs.table(schema, month=rs.prefix, sex=rs.identity) + rs.table(schema, ["month"])
    plan = rs.plan(work, rs.zcdp(RHO), over="month")
    codes = np.random.default_rng(0).integers(0, SIZES, (100_000, 2)).astype(np.int32)
    rs.Ledger.create(folder / "pace.db", rs.zcdp(1), dataset="pace")
    pace = rs.Stream.create(folder / "pace.stream", plan, over="month", ledger=folder / "pace.db")
    start = time.perf_counter()
    for period in pace.periods[:4]:
        pace.measure(period, codes)
    step = (time.perf_counter() - start) / 4
    total, number, stream, known = Counts(), 0, None, {}
    for _ in range(points):
        if stream is None:
            number, known = number + 1, {}
            ledger = rs.Ledger.create(folder / f"{number}.db", rs.zcdp(1), dataset="crashes")
            path = folder / f"{number}.stream"
            stream = rs.Stream.create(path, plan, over="month", ledger=folder / f"{number}.db")
        child = Child(lambda report, own=stream.path: measure_on(own, codes, report), ends=True)
        time.sleep(chance.uniform(0, 2 * step))
        child.kill()
        reported = dict(line.split() for line in child.reports())
        known.update({period: hash for period, hash in reported.items() if period not in known})
        assert reported.items() <= known.items(), "an instalment was returned twice"
        stream = rs.Stream.open(stream.path)
        total.points += 1
        total.returned += len(reported)
        total.begun += check(stream, ledger, known, RHO)
        if stream.next is None:
            finished(stream, plan, codes)
            total.finished += 1
            stream = None
    print(json.dumps(vars(total)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
