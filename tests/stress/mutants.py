"""Mutants of what privacy rests on, each against the tests of tests/kernel that run its line.

`make mutants` changes one thing at a time in a function of kernel, noise, ledger or `_measure` (a comparison,
a sign, a number, a condition; or leaves out a statement) and runs the tests, quickest first, until one fails.
A mutant that none notices must stand in survivors.txt, beside this file, with the reason why it does no harm.
Each has a process of its own, forked after all tests are collected, in which the code of the function is
exchanged. What is computed when modules are loaded, such as their limits, is not changed; nor is `strict` of
zip, which guards against ourselves and never fires.

    python tests/stress/mutants.py                       all of them: about half an hour on one core
    python tests/stress/mutants.py kernel/cost.py        those of one file
    python tests/stress/mutants.py kernel/cost.py _runs  those of one function
"""

import ast
import importlib
import inspect
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "residua"
LISTED = Path(__file__).with_name("survivors.txt")
ROOMS = ("kernel/[!_]*.py", "noise/[!_]*.py", "ledger/[!_]*.py", "_measure.py")
ELSEWHERE_FILES = ("postgres.py",)  # needs a server: tests/extras
FILES = sorted(path for room in ROOMS for path in SOURCE.glob(room) if path.name not in ELSEWHERE_FILES)
ELSEWHERE = ("kills", "race", "forked", "process", "crash")  # tests whose other processes know no mutants

PATIENCE = 15  # seconds for each test, on top of what it takes
MEMORY = 6 * 2**30  # bytes that a mutant may ask for

LOADED = ("residua.cli", "residua._measure", "pandas", "polars", "pyarrow.csv", "pyarrow.parquet", "mpmath")

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one function; `name` does not depend on line numbers."""

    file: Path
    function: str
    line: int
    change: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return f"{self.file.relative_to(SOURCE)} | {self.function} | {self.change}"


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in order; equal changes of one function are numbered."""
    text = file.read_text(encoding="utf-8")
    seen: Counter[tuple[str, str]] = Counter()
    for at, (name, function) in enumerate(_functions(ast.parse(text))):
        for number in range(len(list(_changes(function)))):
            tree = ast.parse(text)
            _, same = list(_functions(tree))[at]
            line, change = list(_changes(same))[number]()
            seen[name, change] += 1
            count = seen[name, change]
            named = change if count == 1 else f"{change} ({count})"
            yield Mutant(file, name, line, named, ast.fix_missing_locations(tree))


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, by their qualified names."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        yield from ((prefix + each.name, each) for each in inside if isinstance(each, ast.FunctionDef))


def _changes(function: ast.FunctionDef) -> Iterator[Callable[[], tuple[int, str]]]:
    """What makes each change of a function in place, and then says its line and what it was."""
    body = ast.Module(function.body, [])
    unused = {
        inner
        for node in ast.walk(body)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if note is not None
        for inner in ast.walk(note)
    }
    unused |= {
        each.value for each in ast.walk(body) if isinstance(each, ast.keyword) and each.arg == "strict"
    }
    for node in ast.walk(body):
        if node not in unused:
            yield from (partial(_replace, node, field, new) for field, new in _replacements(node))
            for field in ("body", "orelse"):
                statements = getattr(node, field, None)
                if isinstance(statements, list):
                    places = (at for at, each in enumerate(statements) if _may_go(each))
                    yield from (partial(_leave_out, statements, at) for at in places)


def _replacements(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Fields of a node and what may stand there instead."""
    if isinstance(node, ast.Compare):
        for at, sign in enumerate(node.ops):
            yield "ops", [*node.ops[:at], COMPARED[type(sign)](), *node.ops[at + 1 :]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in COMPUTED:
        yield "op", COMPUTED[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        yield "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "op", ast.UAdd()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operand", ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "value", not node.value
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "value", node.value + 1  # type: ignore[operator]


def _replace(node: Any, field: str, new: object) -> tuple[int, str]:
    before = ast.unparse(node)
    setattr(node, field, new)
    return node.lineno, f"{before} -> {ast.unparse(node)}".replace("\n", " ")


def _leave_out(statements: list[ast.stmt], at: int) -> tuple[int, str]:
    gone = statements[at]
    statements[at] = ast.copy_location(ast.Pass(), gone)
    return gone.lineno, f"without {ast.unparse(gone)}".replace("\n", " ")


def _may_go(statement: ast.stmt) -> bool:
    """Whether a function without it still computes something: docstrings and names are left."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant | ast.Yield | ast.YieldFrom)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Subscript | ast.Attribute) for target in statement.targets)
    return isinstance(statement, ast.AugAssign | ast.Raise | ast.Break | ast.Continue)


def exchange(mutant: Mutant) -> None:
    """Give the loaded function the code of the mutant."""
    module = importlib.import_module(_module(mutant.file))
    whole = compile(mutant.tree, str(mutant.file), "exec", dont_inherit=True)
    found: object = module
    code = whole
    for part in mutant.function.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
        found = inspect.getattr_static(found, part)
    for wrapped in ("fget", "__func__"):
        found = getattr(found, wrapped, found)
    if hasattr(found, "cache_clear"):
        found.cache_clear()
    found = inspect.unwrap(found)  # type: ignore[arg-type]
    assert isinstance(found, FunctionType)
    found.__code__ = code


def _module(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)


def observed() -> dict[str, dict[str, object]]:
    """For each test its seconds and the lines of each file that it runs, of one run of tests/kernel."""
    import coverage

    with tempfile.TemporaryDirectory() as folder:
        data, report = Path(folder, "data"), Path(folder, "report.json")
        environment = {**os.environ, "COVERAGE_FILE": str(data), "MUTANTS_REPORT": str(report)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants", "tests/kernel", "--cov"]
        command += ["--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        found = {name: {"seconds": took} for name, took in json.loads(report.read_text()).items()}
        read = coverage.CoverageData(str(data))
        read.read()
        for file in FILES:
            for line, contexts in read.contexts_by_lineno(str(file)).items():
                for context in contexts:
                    if (name := context.removesuffix("|run")) in found:
                        found[name].setdefault(str(file), []).append(line)  # type: ignore[attr-defined]
    return found


TOOK: dict[str, float] = {}


def pytest_runtest_setup() -> None:
    if "MUTANTS_REPORT" in os.environ:
        forget()


def forget() -> None:
    """Forget what was computed once, so that every test runs the lines that it rests on."""
    for name in [_module(file) for file in FILES]:
        for found in list(vars(sys.modules.get(name, sys)).values()):
            if hasattr(found, "cache_clear") and getattr(found, "__module__", "") == name:
                found.cache_clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TOOK[report.nodeid] = TOOK.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    if "MUTANTS_REPORT" in os.environ:
        Path(os.environ["MUTANTS_REPORT"]).write_text(json.dumps(TOOK))


def tests_of(mutant: Mutant, tests: dict[str, dict[str, object]]) -> list[str]:
    """The tests that run the mutant's line, quickest first."""
    mine = (name for name, each in tests.items() if mutant.line in each.get(str(mutant.file), ()))  # type: ignore[operator]
    here = (name for name in mine if not any(word in name for word in ELSEWHERE))
    return sorted(here, key=lambda name: float(str(tests[name]["seconds"])))


class Loop:
    """What pytest does with the tests that it has collected: it tries mutants, one after another."""

    def __init__(self, chosen: list[Mutant], tests: dict[str, dict[str, object]], listed: set[str]) -> None:
        self.chosen, self.tests, self.listed = chosen, tests, listed
        self.new: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        quick = [name for name, each in self.tests.items() if float(str(each["seconds"])) < 0.1]
        if not self.survives(None, [name for name in quick if not any(word in name for word in ELSEWHERE)]):
            raise SystemExit("the tests fail without any mutant")
        began = time.monotonic()
        for number, mutant in enumerate(self.chosen, start=1):
            self.tried(mutant)
            if number % 50 == 0 or number == len(self.chosen):
                print(f"{number} of {len(self.chosen)} mutants, {time.monotonic() - began:.0f} s", flush=True)
        return True

    def tried(self, mutant: Mutant) -> None:
        """Tell of a mutant that survives and is not listed, or the other way round."""
        names = tests_of(mutant, self.tests)
        alive = self.survives(mutant, names)
        if alive and mutant.name not in self.listed:
            self.new.append(mutant.name)
            print(f"SURVIVES  {mutant.name} | line {mutant.line}, {len(names)} tests", flush=True)
        elif not alive and mutant.name in self.listed:
            print(f"listed, but noticed: {mutant.name}", flush=True)

    def survives(self, mutant: Mutant | None, names: list[str]) -> bool:
        """Whether all these tests pass with the mutant, or with none; one that never ends is noticed."""
        child = os.fork()
        if not child:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            if mutant is not None:
                exchange(mutant)
            forget()
            known = [self.items[name] for name in names if name in self.items]
            for item, following in pairwise([*known, None]):
                limit = PATIENCE + 3 * float(str(self.tests[item.nodeid]["seconds"]))
                signal.setitimer(signal.ITIMER_PROF, limit)  # of work, however busy the machine is
                signal.alarm(int(20 * limit))  # and for what only waits
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(1)  # in the child, of which nothing else is asked


def main(only: list[str]) -> int:
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutants", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
    )
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    stored = os.environ.get("MUTANTS_TESTS")
    if stored and Path(stored).exists():
        tests = json.loads(Path(stored).read_text())
    else:
        tests = observed()
        if stored:
            Path(stored).write_text(json.dumps(tests))
    for name in LOADED:
        importlib.import_module(name)
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    listed = {line.rpartition(" | ")[0] for line in lines if line and not line.startswith("#")}
    files = [file for file in FILES if not only or str(file).endswith(only[0])]
    chosen = [each for file in files for each in mutants(file) if not only[1:] or each.function in only[1:]]
    loop = Loop(chosen, tests, listed)
    ways = ["-q", "-s", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", "tests/kernel"]
    ways += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is loaded already
    ended = pytest.main(ways, plugins=[loop])
    print(f"{len(chosen)} mutants, {len(loop.new)} survive without a reason")
    return bool(ended or loop.new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
