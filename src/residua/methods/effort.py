"""How much work a plan may take, and how Ctrl-C ends it.

An account counts floating-point operations, the same on every machine: seconds differ from run to run, and a
plan must not. What is tried, and when a search ends, is decided by estimates of the operations that it takes;
one core does about 4e10 of them a second.

Ctrl-C ends planning at once, or with the best draft so far where that is asked for. A signal reaches Python
only between two of its steps, and one decomposition of a large matrix may take a minute: so planning goes on
in a thread while the main one waits for it, or for Ctrl-C.
"""

import atexit
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from residua._limits import BRIEF_PAIRS, QUICK_PAIRS
from residua._text import short
from residua.errors import WorkloadError

EFFORTS: Mapping[str, float] = {"quick": 3e10, "normal": 4e11, "thorough": 4e13}
"""About one second, ten seconds and a quarter of an hour on one core."""

CLOSE = 2e-3  # gap to all mechanisms at which blocks are left as they are: a thousandth of the errors
BOUND_SHARE = 0.05  # of the work allowed, for the bound on all mechanisms
DECOMPOSED = 12.0  # operations of one evaluation of a solver, in units of rank^2 * cells
Result = TypeVar("Result")
LOOKED = 0.5  # seconds between looks at a thread: elsewhere than on POSIX no signal ends a wait


@dataclass(slots=True)
class Account:
    """Work allowed and spent, and what was left undone for want of it."""

    allowed: float = EFFORTS["normal"]
    spent: float = 0.0
    undone: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, effort: object) -> "Account":
        """The account of an effort by its name."""
        if not isinstance(effort, str) or effort not in EFFORTS:
            raise WorkloadError(f"effort is one of {', '.join(EFFORTS)}, not {short(effort)}")
        return cls(EFFORTS[effort])

    @property
    def left(self) -> float:
        """Work that may still be done."""
        return max(self.allowed - self.spent, 0.0)

    @property
    def brief(self) -> bool:
        """Whether nothing is searched for that a plan can do without."""
        return self.allowed <= EFFORTS["quick"]

    @property
    def thorough(self) -> bool:
        """Whether searches go on where little can be left."""
        return self.allowed > EFFORTS["normal"]

    @property
    def for_bound(self) -> tuple[float, float]:
        """Work on a bound for all mechanisms: a small part of that allowed, and what pairs of tables take."""
        return BOUND_SHARE * self.allowed, BRIEF_PAIRS if self.brief else QUICK_PAIRS

    def affords(self, work: float, what: str) -> bool:
        """Whether work fits what is left; if not, `what` is noted as undone."""
        if work > self.left:
            self.leave(what)
        return work <= self.left

    def leave(self, what: str) -> None:
        """Note as undone."""
        if what not in self.undone:
            self.undone.append(what)


@dataclass(slots=True)
class Interruption:
    """Whether Ctrl-C is to end with the best so far, and whether it has come."""

    keeps: bool
    came: bool = False

    @contextmanager
    def settled(self, found: object) -> Iterator[None]:
        """Within it, Ctrl-C ends what is done, where there is something `found` to be content with."""
        try:
            yield
        except KeyboardInterrupt:
            if not (self.keeps and found):
                raise
            self.came = True


NEVER = Interruption(keeps=False)
_LEFT: list[threading.Thread] = []  # that were not waited for
_CURRENT: ContextVar[Interruption] = ContextVar("_CURRENT", default=NEVER)


def interruption() -> Interruption:
    """The interruption of what is being planned."""
    return _CURRENT.get()


@dataclass(slots=True)
class _Outcome(Generic[Result]):
    result: Result | None = None
    error: BaseException | None = None


def interruptible(work: Callable[[], Result], own: Interruption) -> Result:
    """What `work` returns; Ctrl-C raises KeyboardInterrupt here at once and in `work` after its next step.

    Where Ctrl-C is to end with the best so far, it is raised in `work` alone; a second one is raised here.
    """
    _CURRENT.set(own)
    try:
        return _waited_for(work, own) if _ours() else work()
    finally:
        _CURRENT.set(NEVER)


def _ours() -> bool:
    """Whether Ctrl-C is Python's own in this thread; tracers and profilers want one thread to look at."""
    main = threading.current_thread() is threading.main_thread()
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    return main and not watched and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _waited_for(work: Callable[[], Result], own: Interruption) -> Result:
    outcome: _Outcome[Result] = _Outcome()
    begun, done = threading.Event(), threading.Event()

    def run() -> None:
        try:
            begun.set()
            outcome.result = work()
        except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
            outcome.error = error
        finally:
            done.set()

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True, name="planning")
    patient = own.keeps
    pressed = _launched(thread, begun)
    while not done.is_set():
        try:
            if pressed:
                pressed = False
                raise KeyboardInterrupt
            done.wait(LOOKED)
        except KeyboardInterrupt:
            target, error = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(target, error)
            if not patient:
                _LEFT.append(thread)
                raise
            patient = False
    if outcome.error is not None:
        raise outcome.error
    return outcome.result  # type: ignore[return-value]  # there is one where there is no error


def _launched(thread: threading.Thread, begun: threading.Event) -> bool:
    """Start a thread and wait until it runs; whether Ctrl-C came meanwhile."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        thread.start()
        begun.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return bool(came)


@atexit.register
def _leave() -> None:
    """End the process as Ctrl-C does where a thread is within a step yet, which BLAS would wait for."""
    if any(thread.is_alive() for thread in _LEFT):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
