"""One spec file, looked at and changed from a page: its history, its plan, and what is kept beside it.

The file is the source of truth. Every change is written there at once; what somebody else writes there is
read. Planning goes on in one thread, which a newer wish or a click on Cancel stops.
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from residua import _files
from residua._text import one_line
from residua._yaml import Unreadable, parse
from residua.errors import FileFormatError, Infeasible, ResiduaError
from residua.plans import Plan
from residua.spec import Spec, load_spec
from residua.spec.language import Place
from residua.studio.editing import REMOVED, edited
from residua.studio.figures import figures_of, ghost_of

GHOSTS = ("identity", "hierarchical", "wavelet", "residualplanner", "querysmasher", "hdmm")
MOST_STEPS = 200  # that can be undone
_AMOUNTS = ("rho", "mu", "epsilon", "delta", "cost")


class Stale(FileFormatError):
    """The file has changed since the page saw it."""


class Cancelled(Exception):
    """Raised inside planning when nobody waits for it any more."""


@dataclass
class Planning:
    """Planning that is under way: what it is doing, and whether it shall stop."""

    key: str
    words: str = "planning"
    fraction: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def progress(self, words: str, fraction: float) -> None:
        """Take note of how far it is, or stop it."""
        if self.stopped.is_set():
            raise Cancelled
        self.words, self.fraction = words, fraction


@dataclass(frozen=True, slots=True)
class Kept:
    """A variant: the text of a spec, and what its plan promised."""

    text: str
    figures: dict[str, Any]


class Session:
    """The state behind the page. All methods may be called from several threads."""

    def __init__(self, path: Path | None, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.lock = threading.RLock()
        self.version = 0
        self.text: str | None = None
        self.value: Any = None
        self.spec: Spec | None = None
        self.problem: str | None = None
        self.plan: Plan | None = None
        self.figures: dict[str, Any] | None = None
        self.before: dict[str, Any] | None = None  # of the plan before this one
        self.planned = ""  # what the plan is for
        self.failure: str | None = None
        self.job: Planning | None = None
        self.ghosts: dict[str, Any] = {}
        self.wanted: tuple[str, ...] = ("identity",)
        self.kept: Kept | None = None
        self.steps: list[str] = []
        self.at = -1
        self._seen: object = None
        self.refresh()

    @property
    def revision(self) -> str:
        """A name for the text of the file."""
        return hashlib.sha256((self.text or "").encode()).hexdigest()[:16]

    def refresh(self) -> None:
        """Read the file if it has changed."""
        if self.path is None:
            return
        try:
            found = self.path.stat()
            seen: object = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            seen = None
        with self.lock:
            if seen == self._seen:
                return
            self._seen = seen
            try:
                text = self.path.read_text(encoding="utf-8-sig") if seen else None
            except (OSError, UnicodeDecodeError) as error:
                self.problem = f"{self.path.name} cannot be read: {getattr(error, 'strerror', None) or error}"
                self.version += 1
                return
            self._take(text)

    def edit(self, revision: str, edits: Sequence[tuple[Place, Any]]) -> None:
        """Make some edits as one step; refused where the page has not seen the newest text."""
        with self.lock:
            self.refresh()
            if self.text is None or revision != self.revision:
                raise Stale("the file has changed in the meantime; look at it, and try again")
            text = self.text
            for place, value in edits:
                text = edited(text, place, value)
            self.write(text)

    def undo(self, by: int) -> None:
        """Go back to an earlier text of the file, or forth again."""
        with self.lock:
            at = self.at + by
            if 0 <= at < len(self.steps):
                self.at = at
                self.write(self.steps[at], step=False)

    def keep(self) -> None:
        """Keep what is planned now as the variant to compare with."""
        with self.lock:
            if self.text is not None and self.figures is not None and not self.stale:
                self.kept = Kept(self.text, self.figures)
                self.version += 1

    def swap(self) -> None:
        """Make the variant the file, and keep what the file was."""
        with self.lock:
            if self.kept is not None and self.text is not None:
                other, text = self.kept.text, self.text
                self.kept = Kept(text, self.figures) if self.figures is not None else None
                self.write(other)

    def drop(self) -> None:
        """Forget the variant."""
        with self.lock:
            self.kept = None
            self.version += 1

    @property
    def stale(self) -> bool:
        """Whether the figures are of an earlier text."""
        return self.spec is None or self.planned != _key(self.spec, with_budget=True)

    def cancel(self) -> None:
        """Stop planning; the figures of the last plan stay, marked as old."""
        with self.lock:
            if self.job is not None:
                self.job.stopped.set()
                self.job, self.failure = None, "Planning was cancelled."
                self.version += 1

    def replan(self) -> None:
        """Plan again after it was cancelled."""
        with self.lock:
            self.planned, self.failure = "", None
            self._follow()

    def ghost(self, methods: Sequence[str]) -> None:
        """Choose the other methods whose errors are shown beside the plan's."""
        with self.lock:
            self.wanted = tuple(each for each in GHOSTS if each in methods)
            self.ghosts = {name: found for name, found in self.ghosts.items() if name in self.wanted}
            if not self.stale and self.job is None:
                self._start(None)
            self.version += 1

    def write(self, text: str, *, step: bool = True) -> None:
        """Make this the text of the file: of a draft, of the variant that was kept, of an earlier step."""
        if self.path is None:
            raise FileFormatError("no spec is open yet; choose a file first")
        with self.lock:
            _files.write_text(self.path, text)
            found = self.path.stat()
            self._seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            self._take(text, step=step)

    def _take(self, text: str | None, *, step: bool = True) -> None:
        """Look at a new text of the file, and plan what it asks for."""
        if text == self.text and text is not None:
            return
        self.text, self.version = text, self.version + 1
        self.value, self.spec, self.problem = None, None, None
        if text is None:
            return
        if step:
            self.steps = [*self.steps[: self.at + 1], text][-MOST_STEPS:]
            self.at = len(self.steps) - 1
        try:
            self.value = parse(text)[0]
            self.spec = load_spec(self.path or "")
        except Unreadable as error:
            self.problem = error.at(self._name)
        except ResiduaError as error:
            self.problem = self._words(error)
        self._follow()

    @property
    def _name(self) -> str:
        return "" if self.path is None else self.path.name

    def _words(self, error: ResiduaError) -> str:
        """An error on one line, without the folder that everybody is in."""
        return one_line(str(error)).replace(str(self.path), self._name)

    def _follow(self) -> None:
        """See to it that there is a plan for what the file says."""
        if self.spec is None or self.planned == _key(self.spec, with_budget=True):
            return
        self.failure = None
        same = self.plan is not None and self.plan_key == _key(self.spec)
        if same and self.plan is not None and self.spec.budget is not None and self.spec.targets is None:
            try:
                found = self.plan.rescale(self.spec.budget)
            except ResiduaError as error:
                self.failure = self._words(error)
                return
            self._publish(found, self.spec)
            return
        self._start(self.spec)

    plan_key = ""

    def _publish(self, found: Plan, spec: Spec, *, better: bool = False) -> None:
        self.before = self.before if better else self.figures
        self.plan, self.figures = found, figures_of(found)
        self.plan_key, self.planned = _key(spec), _key(spec, with_budget=True)
        self.version += 1

    def _start(self, spec: Spec | None) -> None:
        """Plan a spec, or only what is wanted besides, in a thread of its own, after the one before."""
        old, job = self.job, Planning("" if spec is None else _key(spec, with_budget=True))
        if old is not None:
            old.stopped.set()
        self.job = job
        self.version += 1
        threading.Thread(target=self._run, args=(job, old, spec), daemon=True, name="planning").start()

    def _run(self, job: Planning, old: Planning | None, spec: Spec | None) -> None:
        if old is not None:
            old.ended.wait()
        try:
            if spec is not None and not job.stopped.is_set():
                self._plan(job, spec)
            while not job.stopped.is_set() and (name := self._next_ghost()) is not None:
                self._plan_ghost(job, name)
        except Cancelled:
            pass
        finally:
            job.ended.set()
            with self.lock:
                if self.job is job:
                    self.job = None
                self.version += 1

    def _plan(self, job: Planning, spec: Spec) -> None:
        """Plan with little effort, so that there is something to look at, and then with what is asked for."""
        for effort in dict.fromkeys(("quick", spec.effort)):
            better = effort != "quick"
            if better and (self.plan is None or not self.plan.undone):
                return
            try:
                found = replace(spec, effort=effort).plan(job.progress)
            except ResiduaError as error:
                with self.lock:
                    if not job.stopped.is_set():
                        self.failure = self._words(error)
                return
            with self.lock:
                if job.stopped.is_set():
                    return
                self.ghosts = self.ghosts if better else {}
                self._publish_now(found, spec, better)

    def _publish_now(self, found: Plan, spec: Spec, better: bool) -> None:
        """Publish a plan; at the budget that was chosen in the meantime."""
        now = self.spec
        if now is not None and now.budget is not None and now.targets is None and _key(now) == _key(spec):
            found, spec = found if now.budget == found.budget else found.rescale(now.budget), now
        self._publish(found, spec, better=better)

    def _next_ghost(self) -> str | None:
        with self.lock:
            if self.plan is None or self.plan.targets is not None or self.failure is not None:
                return None
            return next((each for each in self.wanted if each not in self.ghosts), None)

    def _plan_ghost(self, job: Planning, name: str) -> None:
        plan, spec = self.plan, self.spec
        if plan is None or spec is None:
            return
        job.words, job.fraction = f"the same tables by {name}", 0.0
        try:
            other = replace(spec, method=name, budget=plan.budget, objective="total_variance").plan(
                job.progress
            )
            found: dict[str, Any] = ghost_of(other)
        except Infeasible as error:
            found = {"problem": f"{name} cannot plan these tables: {one_line(str(error))}"}
        except ResiduaError as error:
            found = {"problem": one_line(str(error))}
        with self.lock:
            if not job.stopped.is_set() and name in self.wanted:
                self.ghosts[name] = found
                self.version += 1


def _key(spec: Spec, *, with_budget: bool = False) -> str:
    """What a plan depends on, as text: all of the spec, and the budget only if asked for."""
    value = spec.document.value
    held = dict(value) if isinstance(value, dict) else {}
    for name in ("data", "ledger", "output"):
        held.pop(name, None)
    if not with_budget and spec.budget is not None and spec.targets is None:
        privacy = {name: each for name, each in held.get("privacy", {}).items() if name not in _AMOUNTS}
        privacy.pop("definition", None)
        held["privacy"] = privacy | {"law": spec.budget.law}
    return json.dumps(held, sort_keys=True, default=str)


def decoded(edits: Sequence[dict[str, Any]]) -> list[tuple[Place, Any]]:
    """Edits as the page sends them: a place, and a value or that it goes."""
    found: list[tuple[Place, Any]] = []
    for each in edits:
        place = each.get("place") if isinstance(each, dict) else None
        steps = isinstance(place, list) and all(isinstance(step, str | int) for step in place)
        if not place or not steps:
            raise FileFormatError("an edit names a place of the spec")
        found.append((tuple(place), REMOVED if each.get("remove") is True else each.get("value")))
    return found
