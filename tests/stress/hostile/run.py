"""Hostile files, specs, SQL and command lines: only errors of ours, in bounded time and memory, nothing lost.

    python run.py FOLDER --seed 1 --files 20000 --specs 20000 --texts 50000 --lines 2000
    python run.py FOLDER --seed 1 --replay files/1234

A case is made of the seed, its kind and its number alone. Each is tried in a process that has a limit of
memory, and is replaced where it dies: no case can end the run. What fails is left in FOLDER/failed with the
reason, and is made again by --replay. Prints what happened as JSON; ends with 1 if anything failed.
"""

import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import bases
import lines
import mutants
import numpy as np
import pyarrow as pa
import specs
import texts

import residua as rs
from residua.spec import load_spec

CPU_SECONDS = 5.0  # that no case may take
MEGABYTES = 500  # that no process may have
ENOUGH = 20.0  # CPU seconds after which a case is stopped
PATIENCE = 300.0  # seconds after which a process that says nothing is stopped
ADDRESSES = 2 * 2**30  # bytes that a process may ask for beyond what it starts with
SPENDS = 40  # cases that share a ledger: each opens it and checks all its entries
FEW_CELLS = 100_000  # of all attributes together: specs of more are not planned


class TooSlow(BaseException):
    """Nobody's to catch."""


@dataclass
class Trial:
    """One case: every step ends well or with an error of ours; anything else is written down."""

    failures: list[str] = field(default_factory=list)
    read: bool = False

    def step(self, name: str) -> "Step":
        """A block that may end with an error of ours."""
        return Step(self, name)

    def fail(self, what: str) -> None:
        """Write down what must not be."""
        self.failures.append(what)


@dataclass
class Step:
    """Part of a trial; `well` says whether it ended without any error."""

    trial: Trial
    name: str
    well: bool = False
    said: str = ""
    span: bool = False

    def __enter__(self) -> "Step":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.well, self.said, self.span = kind is None, str(error), isinstance(error, rs.NotInSpan)
        if error is not None and not isinstance(error, rs.ResiduaError):
            self.trial.fail(f"{self.name}: {''.join(traceback.format_exception(kind, error, trace))[-3000:]}")
        return not isinstance(error, TooSlow | KeyboardInterrupt)


# Files


def try_file(trial: Trial, chance: random.Random, folder: Path) -> None:
    """A mutant of a saved plan or release: loaded, asked everything, saved again, measured."""
    base = chance.choice(sorted((folder / "bases").iterdir()))
    path = folder / f"case{base.suffix}"
    path.write_bytes(mutants.mutant(base.read_bytes(), chance))
    if base.suffix == ".plan":
        _try_plan(trial, path, folder)
    else:
        _try_release(trial, path, folder)


def _try_plan(trial: Trial, path: Path, folder: Path) -> None:
    with trial.step("load") as loaded:
        plan = rs.Plan.load(path)
    if not loaded.well:
        return
    trial.read = True
    again = folder / "again.plan"
    steps: dict[str, Callable[[], object]] = {
        "repr": lambda: repr(plan),
        "explain": plan.explain,
        "summary": plan.summary,
        "figures": lambda: (plan.rmse, plan.max_variance, plan.ideal.rmse, plan.ideal.max_variance),
        "variances": lambda: plan.variances(plan.workload),
        "covariance": lambda: plan.covariance(*_ends(plan.workload)),
        "spare": plan.spare,
        "rescale": lambda: plan.rescale(
            rs.pure_dp(2) if plan.budget.law == "laplace" else rs.zcdp(2)
        ).explain(),
        "save": lambda: plan.save(again),
        "load again": lambda: rs.Plan.load(again).hash == plan.hash or trial.fail("another hash"),
    }
    for name, ask in steps.items():
        with trial.step(name):
            ask()
    with trial.step("simulate"):
        _ask(rs.measure(plan, _records(plan.schema), ledger=None, noise=rs.simulated(seed=1)))
    _measure(trial, plan, folder)


def _ends(work: rs.Workload) -> tuple[rs.Workload, rs.Workload]:
    """The first part of a workload and the last: all with all would be many."""
    first, last = (rs.Workload(work.schema, (part,)) for part in (work.parts[0], work.parts[-1]))
    return first, last


def _records(schema: rs.Schema) -> Any:
    return np.zeros((3, len(schema)), dtype=np.int64)


def _ask(release: rs.Release) -> None:
    release.values()
    release.answers()


def _measure(trial: Trial, plan: rs.Plan, folder: Path) -> None:
    """Measure with a real ledger: it is debited if, and only if, a release comes back that can be kept."""
    path = folder / f"{plan.budget.law}.db"
    budget = rs.pure_dp(10**9) if plan.budget.law == "laplace" else rs.zcdp(10**9)
    if path.exists() and len(rs.Ledger.open(path).entries()) >= SPENDS:
        for file in folder.glob(f"{path.name}*"):
            file.unlink()
    book = (
        rs.Ledger.open(path) if path.exists() else rs.Ledger.create(path, budget, dataset="x", unit=rs.Unit())
    )
    before = len(book.entries())
    with trial.step("measure") as measured:
        release = rs.measure(plan, _records(plan.schema), ledger=book)
    spent = len(book.entries()) - before
    if spent != measured.well:
        trial.fail(f"{spent} debits for {int(measured.well)} releases")
    if measured.well:
        with trial.step("keep") as kept:
            release.save(folder / "kept.release")
            again = rs.Release.load(folder / "kept.release")
        if not kept.well:
            trial.fail(f"a release was paid for and could not be kept: {kept.said}")
            return
        with trial.step("answer") as answered:
            _ask(again)
        if not answered.well and not answered.span:
            trial.fail(f"a release was paid for and could not answer: {answered.said}")


def _try_release(trial: Trial, path: Path, folder: Path) -> None:
    with trial.step("load") as loaded:
        release = rs.Release.load(path)
    if not loaded.well:
        return
    trial.read = True
    names = release.plan.schema.names
    again = folder / "again.release"

    def combine() -> None:
        other = rs.measure(
            release.plan, _records(release.plan.schema), ledger=None, noise=rs.simulated(seed=9)
        )
        both = rs.combine(release, other)
        both.save(folder / "both.release")
        _ask(rs.Release.load(folder / "both.release"))

    steps: dict[str, Callable[[], object]] = {
        "repr": lambda: repr(release),
        "values": release.values,
        "answers": release.answers,
        "table": lambda: release.table(names[0]),
        "sql": lambda: release.sql("SELECT COUNT(*) FROM t"),
        "covariance": lambda: release.covariance(*_ends(release.plan.workload)),
        "combine": combine,
        "save": lambda: release.save(again),
        "load again": lambda: rs.Release.load(again).hash == release.hash or trial.fail("another hash"),
    }
    for name, ask in steps.items():
        with trial.step(name):
            ask()


# Texts


def try_spec(trial: Trial, chance: random.Random, folder: Path) -> None:
    """A spec: read, planned if it is small; and read as a schema."""
    rs.Schema.of_sizes([3, 2]).save(folder / "schema.yaml")
    path = folder / "case.yaml"
    path.write_bytes(specs.spec(chance))
    with trial.step("load") as loaded:
        spec = load_spec(path)
    with trial.step("schema"):
        rs.Schema.load(path)
    if loaded.well:
        trial.read = True
        if spec.schema.cells <= FEW_CELLS and spec.workload.count <= FEW_CELLS:
            with trial.step("plan"):
                spec.plan().explain()


SQL_SCHEMA = rs.Schema(
    age=rs.Integer(0, 99),
    sex=rs.Categorical("F", "M"),
    pay=rs.Binned(0, 10_000, 25_000, above=True),
    place=rs.Hierarchy(("state", "county"), [("NY", "Kings"), ("NY", "Bronx"), ("NJ", "Essex")]),
    code=rs.Categorical(3, 1, 2),
    member=rs.Categorical(False, True),
    kids=rs.Integer(0, 3, outside="other"),
)


def try_text(trial: Trial, chance: random.Random, folder: Path) -> None:
    """Statements, and some of them as the condition of a table."""
    text = texts.text(chance)
    (folder / "case.sql").write_text(text, encoding="utf-8", errors="surrogatepass")
    with trial.step("sql") as read:
        for group in rs.sql(SQL_SCHEMA, text).groups():
            group.describe(0, SQL_SCHEMA)
    trial.read = read.well
    with trial.step("where"):
        rs.table(SQL_SCHEMA, ["sex"], where=text.partition("WHERE ")[2] or text)


def try_line(trial: Trial, chance: random.Random, folder: Path) -> None:
    """A command line: an exit code, no traceback, and no debit without its release."""
    from typer.testing import CliRunner

    from residua.cli import app

    room = folder / "room"
    shutil.rmtree(room, ignore_errors=True)
    shutil.copytree(folder / "furnished", room)
    os.chdir(room)
    words = lines.line(chance)
    (folder / "case.json").write_text(json.dumps(words))
    before = _paid()
    with trial.step("line"):
        result = CliRunner().invoke(app, words)
        trial.read = result.exit_code == 0
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code not in (0, 1, 2) or "Traceback" in result.output:
            trial.fail(f"exit code {result.exit_code}: {result.output[-500:]}")
    for debit in _paid() - before:
        if not trial.read or debit not in _released():
            trial.fail("privacy was spent without a release")


def _paid() -> set[str]:
    return {entry.hash for entry in rs.Ledger.open("budget.db").entries()}


def _released() -> set[str]:
    """The debits that releases in this folder tell of."""
    found = set()
    for path in Path().glob("*.release"):
        with Trial().step("load") as loaded:
            release = rs.Release.load(path)
        if loaded.well and release.audit["ledger"] is not None:
            found.add(release.audit["ledger"]["hash"])
    return found


KINDS: dict[str, Callable[[Trial, random.Random, Path], None]] = {
    "files": try_file,
    "specs": try_spec,
    "texts": try_text,
    "lines": try_line,
}


# One process tries cases and reports; another one watches


@dataclass
class Tally:
    """What became of the cases of one kind."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    largest: int = 0
    failed: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, report: dict[str, Any]) -> None:
        """Count one case."""
        self.cases += 1
        self.seconds += report["cpu"]
        self.slowest = max(self.slowest, report["cpu"])
        self.largest = max(self.largest, report["mb"])
        if report["failures"]:
            self.failed.append(number)
            self.reasons.update({each.strip().splitlines()[-1][:120] for each in report["failures"]})
        elif report["read"]:
            self.read += 1
        else:
            self.refused += 1


def chance_of(seed: int, kind: str, number: int) -> random.Random:
    """What the case of this number is made of."""
    return random.Random(f"{seed}/{kind}/{number}")


def tried(kind: str, number: int, seed: int, folder: Path) -> dict[str, Any]:
    """What became of one case, and what it took."""
    trial = Trial()
    for path in folder.glob("case.*"):
        path.unlink()
    _forget_peak()
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, ENOUGH)
    try:
        KINDS[kind](trial, chance_of(seed, kind, number), folder)
    except TooSlow:
        trial.fail(f"stopped after {ENOUGH:g} CPU seconds")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    cpu, peak = time.process_time() - began, _peak()
    if cpu > CPU_SECONDS:
        trial.fail(f"slow: {cpu:.1f} CPU seconds")
    if peak > MEGABYTES:
        trial.fail(f"large: {peak} MB")
    if trial.failures:
        leave(folder, kind, number, seed, trial.failures)
    return {"cpu": cpu, "mb": peak, "read": trial.read, "failures": trial.failures}


def leave(folder: Path, kind: str, number: int, seed: int, failures: list[str]) -> None:
    """Leave a case that failed, and the reason."""
    left = folder / "failed" / f"{kind}-{number}"
    left.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("case.*"):
        shutil.copy(path, left)
    (left / "reason.txt").write_text(f"seed {seed}\n" + "\n\n".join(failures))


def _peak() -> int:
    """Megabytes that this process had at most since they were last forgotten."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def _stop(number: int, frame: object) -> None:
    raise TooSlow


def work(kind: str, first: int, count: int, seed: int, folder: Path, report: int) -> None:
    """Try cases, and say of each that it begins and what became of it."""
    warnings.simplefilter("ignore")
    pa.array(["packages that are loaded once", "count against no case"]).to_pandas()
    signal.signal(signal.SIGPROF, _stop)
    with open("/proc/self/statm") as statm:
        held = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ADDRESSES, held + ADDRESSES))
    with open(report, "w") as stream:
        for number in range(first, count):
            print(number, file=stream, flush=True)
            print(json.dumps(tried(kind, number, seed, folder)), file=stream, flush=True)


def watch(kind: str, count: int, seed: int, folder: Path) -> Tally:
    """Try all cases of a kind in processes that are replaced where they die."""
    tally = Tally()
    while tally.cases < count:
        pipe, far_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(pipe)
            try:
                work(kind, tally.cases, count, seed, folder, far_end)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(far_end)
        dead = _follow(pipe, tally, kind)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if dead is not None:
            reasons = ["the process died or hung"]
            leave(folder, kind, dead, seed, reasons)
            _take(tally, dead, {"cpu": 0.0, "mb": 0, "read": False, "failures": reasons}, kind)
    return tally


def _follow(pipe: int, tally: Tally, kind: str) -> int | None:
    """Read reports until a process ends or says nothing for long; the case that it was at, if any."""
    begun: int | None = None
    held = b""
    while select.select([pipe], [], [], PATIENCE)[0]:
        more = os.read(pipe, 2**16)
        if not more:
            break
        *whole, held = (held + more).split(b"\n")
        for line in whole:
            if begun is None:
                begun = int(line)
            else:
                _take(tally, begun, json.loads(line), kind)
                begun = None
    os.close(pipe)
    return begun


def _take(tally: Tally, number: int, report: dict[str, Any], kind: str) -> None:
    tally.add(number, report)
    if tally.cases % 1000 == 0:
        print(f"{kind}: {tally.cases:,} tried, {len(tally.failed)} failed", file=sys.stderr, flush=True)


def prepared(folder: Path, kinds: set[str], *, fresh: bool) -> None:
    """Make the files that cases start from, in a process of its own: this one stays without threads."""
    folder.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            if "files" in kinds and not (folder / "bases").exists():
                bases.make(folder / "bases.part", fresh=fresh)
                (folder / "bases.part").rename(folder / "bases")
            if "lines" in kinds and not (folder / "furnished").exists():
                (folder / "furnished").mkdir()
                lines.furnish(folder / "furnished")
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        sys.exit("the sound files could not be made")


def main() -> int:
    """Try as many cases as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", metavar="KIND/NUMBER")
    parser.add_argument("--quick", action="store_true", help="make mutants of the kept files only")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    kinds = (
        {asked.replay.partition("/")[0]} if asked.replay else {kind for kind in KINDS if getattr(asked, kind)}
    )
    prepared(folder, kinds, fresh=not asked.quick)
    if asked.replay:
        kind, _, number = asked.replay.partition("/")
        signal.signal(signal.SIGPROF, _stop)
        warnings.simplefilter("ignore")
        report = tried(kind, int(number), asked.seed, folder)
        print(*report.pop("failures"), report, sep="\n")
        return 0
    found = {}
    for kind in KINDS:
        tally = watch(kind, getattr(asked, kind), asked.seed, folder)
        found[kind] = vars(tally) | {"reasons": dict(tally.reasons.most_common(40))}
    print(json.dumps({"seed": asked.seed} | found, indent=1))
    return int(any(each["failed"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
