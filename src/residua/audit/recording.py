"""One run of measuring, with recorded noise and a ledger of its own: all that it did and said."""

import io
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from residua import _files
from residua._arrays import Integers
from residua._measure import released, released_in_parts
from residua.errors import ResiduaError
from residua.ledger import Entry, Ledger
from residua.noise import Source
from residua.plans import Plan
from residua.release import Release
from residua.strategy.parts import StrategyParts

PACKAGE = Path(__file__).parents[1]
WATCHED = ("kernel", "noise", "ledger", "_measure.py", str(Path("release", "release.py")))
SAMPLERS = ("rounded_gaussian", "discrete_laplace")

Step = tuple[str, int]
"""A function and a line of it that was run."""


@dataclass(slots=True)
class Recorded:
    """Words that a seed determines, as if they came from the system; notes whether they were paid for."""

    simulated: ClassVar[bool] = False
    seed: int
    ledger: Ledger
    asked: list[tuple[int, bool]] = field(default_factory=list)
    stream: Any = None

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next words of the seed's stream."""
        if self.stream is None:
            self.stream = np.random.PCG64(self.seed)
        paid = bool(self.asked and self.asked[-1][1]) or bool(self.ledger.entries())
        self.asked.append((count, paid))
        return np.asarray(self.stream.random_raw(count))


@dataclass(slots=True)
class Trace:
    """Lines of the watched rooms that were run, and what samplers drew from a recorded source."""

    source: Recorded
    steps: list[Step] = field(default_factory=list)
    draws: list[tuple[list[Fraction], Integers, Integers]] = field(default_factory=list)
    _known: dict[CodeType, str] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside it, every line of the watched rooms is noted."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = self._name(code)
        name = self._known[code]
        if not name:
            return None
        given = [frame.f_locals[name] for name in code.co_varnames[: code.co_argcount]]
        drawing = name.endswith(SAMPLERS) and given[0] is self.source
        own = (given[1], given[2].copy()) if drawing else None  # source, parameters, owner

        def local(inner: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            if event == "line":
                self.steps.append((name, inner.f_lineno))
            elif event == "return" and own is not None and arg is not None:
                self.draws.append((list(own[0]), own[1], np.array(arg)))
            return local

        return local

    @staticmethod
    def _name(code: CodeType) -> str:
        """The function's name, with that of its file; nothing for one that is not watched."""
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return ""
        inside = path.relative_to(PACKAGE)
        watched = inside.parts[0] in WATCHED or str(inside) in WATCHED
        return f"{inside.as_posix()}: {code.co_qualname}" if watched else ""


@dataclass(slots=True)
class Run:
    """What one run did: a release or a refusal, and all that somebody could see of it."""

    release: Release | None
    refusal: str
    steps: list[Step]
    draws: dict[Fraction, Integers]
    asked: list[tuple[int, bool]]
    entries: tuple[Entry, ...]
    said: tuple[str, ...]
    stored: _files.Container | None
    size: int


NOTE = "a replay audit"


def run(plan: Plan, data: object, seed: int, parts: StrategyParts | None = None) -> Run:
    """Measure once, in parts or in one piece, with the words of a seed and a ledger that has just enough."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder, "audit.db"), plan.budget, dataset="invented", unit=plan.unit)
        source = Recorded(seed, ledger)
        trace = Trace(source)
        said: list[str] = []
        file = Path(folder, "a.release")
        measure = released if parts is None else partial(_in_parts, file, parts)
        release, refusal = None, ""
        out, err = io.StringIO(), io.StringIO()
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(out), redirect_stderr(err):
            warnings.simplefilter("always")
            with trace.running():
                try:
                    release = measure(
                        plan, data, source, ledger, note=NOTE, progress=lambda *told: said.append(repr(told))
                    )
                except ResiduaError as error:
                    refusal = f"{type(error).__name__}: {error}"
        said += [str(each.message) for each in warned] + [out.getvalue(), err.getvalue()]
        stored, size = None, 0
        if release is not None:
            release.save(file)
            size = file.stat().st_size
            stored = _files.read(file, "release")
        entries = ledger.entries()
    return Run(
        release, refusal, trace.steps, _by_law(trace), source.asked, entries, tuple(said), stored, size
    )


def _in_parts(
    file: Path, parts: StrategyParts, plan: Plan, data: object, source: Source, ledger: Ledger, **given: Any
) -> Release:
    """A release that was measured in parts, with all its numbers in memory, as it would be without."""
    release = released_in_parts(file, plan, parts, data, source, ledger, **given)
    _ = release.measurements.values  # read now: the file is gone soon
    return release


def _by_law(trace: Trace) -> dict[Fraction, Integers]:
    """Everything that was drawn, in order of size, for each parameter."""
    found: dict[Fraction, list[Integers]] = {}
    for parameters, owner, drawn in trace.draws:
        for number, parameter in enumerate(parameters):
            found.setdefault(Fraction(parameter), []).append(drawn[owner == number])
    return {parameter: np.sort(np.concatenate(drawn)) for parameter, drawn in found.items()}
